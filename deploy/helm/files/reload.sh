# Sends SIGHUP to the gateway when its files have changed, and the gateway reads them again (docs/gateway.md, "Reload").
#
#   sh reload.sh SECONDS FOLDER ...
#
# The files of a mounted ConfigMap or Secret change all at once: `..data` in their folder then leads to another one.
# The gateway checks all files before it uses one. If one is wrong, it goes on with the old ones and says so in its log.

interval_s=$1
shift

version() {
    for folder in "$@"; do
        readlink "$folder/..data"
    done
}

seen=$(version "$@")
while sleep "$interval_s"; do
    now=$(version "$@")
    if [ "$now" != "$seen" ]; then
        # Without a gateway there is nothing to tell: one that starts reads the new files.
        if gateway=$(pidof throng); then
            kill -HUP $gateway && echo "the settings have changed: SIGHUP to $gateway"
        fi
        seen=$now
    fi
done
