//! The command line, as Go's `flag` package reads it.
//!
//! `-name`, `--name`, `-name=value`, `--name=value`, and for flags that are not switches `-name value`. A switch can be
//! turned off with `-name=false` only. Whole numbers may be written as 65536, 0x10000, 0o200000, 0b1 or 65_536. `--`
//! ends the flags. If a flag is repeated, the last one counts. Go's package silently stops at the first word that is
//! not a flag, and ignores all following flags; this one returns an error.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use throng_channeld::proto::ChannelType;
use throng_gateway_engine::config_file::Note;
use throng_gateway_engine::limits::{LimitRefusal, Limits};
use throng_gateway_engine::settings::{ClientRights, MovementTypes};
use throng_link::netcode::SERVERS_MAX;

use crate::protections;

use super::{AuthProvider, Listener, LogFormat, LogLevel, Network, Profile, Settings, SettingsError};

/// Most words of a command line.
const MAX_WORDS: usize = 4_096;

/// The effect of a flag's value.
enum Kind {
    /// A switch.
    Switch(fn(&mut Settings, bool)),
    /// A whole number from the first to the second.
    Number(i64, i64, fn(&mut Settings, i64)),
    /// Any other text: returns the expected value if the text is wrong.
    Text(fn(&mut Settings, &str) -> Result<(), String>),
    /// Accepted, but without effect here, for this reason.
    Unused(&'static str),
}

struct Flag {
    name: &'static str,
    kind: Kind,
    help: &'static str,
}

const fn flag(name: &'static str, kind: Kind, help: &'static str) -> Flag {
    Flag { name, kind, help }
}

macro_rules! keep {
    ($($field:ident).+) => {
        Kind::Text(|settings, text| {
            settings.$($field).+ = text.into();
            Ok(())
        })
    };
    (some $($field:ident).+) => {
        Kind::Text(|settings, text| {
            settings.$($field).+ = (!text.is_empty()).then(|| text.into());
            Ok(())
        })
    };
}

/// channeld's flags first, in its order, then ours.
const FLAGS: &[Flag] = &[
    flag(
        "dev",
        Kind::Switch(|s, on| s.engine.development = on),
        "development: connection ids count from 1, every login is accepted",
    ),
    flag(
        "loglevel",
        Kind::Number(-3, 3, |s, n| s.log_level = LogLevel::from_number(n)),
        "-3 all, -1 debug, 0 info, 1 warnings, 2 errors, 3 only fatal errors",
    ),
    flag("logfile", keep!(some log_file), "also write the log to this file; {time} becomes the start time"),
    flag(
        "profile",
        Kind::Text(set_profile),
        "cpu: samples processor time and writes a profile at the end; mem, goroutine: no effect",
    ),
    flag("profilepath", keep!(profile_path), "folder for profiles"),
    flag("sn", Kind::Text(|s, v| network(v).map(|n| s.server.network = n)), "servers: tcp, kcp, ws, tls, wss"),
    flag("sa", Kind::Text(|s, v| address(v).map(|a| s.server.address = a)), "servers: address, for example :11288"),
    flag("srb", Kind::Unused("read buffers adapt their size"), "servers: bytes of a read buffer"),
    flag(
        "swb",
        Kind::Unused("use the limits queue_soft_bytes and queue_hard_bytes"),
        "servers: bytes of a write buffer",
    ),
    flag("sfsm", keep!(some server_fsm), "servers: state machine file"),
    flag("sba", Kind::Switch(|s, on| s.engine.server_bypass_auth = on), "servers log in without authentication (true)"),
    flag(
        "scr",
        Kind::Switch(|s, on| s.engine.server_recovery = on),
        "a lost server gets its channels back when it logs in under the same identifier",
    ),
    flag(
        "scrt",
        Kind::Number(0, 86_400_000, |s, n| s.engine.server_recovery_ms = Some(n as u32)),
        "how long the gateway waits for a lost server, in ms; 0 for ever",
    ),
    flag("cn", Kind::Text(|s, v| network(v).map(|n| s.client.network = n)), "clients: tcp, kcp, ws, tls, wss, throng"),
    flag("ca", Kind::Text(|s, v| address(v).map(|a| s.client.address = a)), "clients: address, for example :12108"),
    flag("crb", Kind::Unused("read buffers adapt their size"), "clients: bytes of a read buffer"),
    flag(
        "cwb",
        Kind::Unused("use the limits queue_soft_bytes and queue_hard_bytes"),
        "clients: bytes of a write buffer",
    ),
    flag("cfsm", keep!(some client_fsm), "clients: state machine file"),
    flag(
        "cwm",
        Kind::Switch(|s, on| s.client_waits_for_master = on),
        "refuse clients until GLOBAL has an owner (off; channeld's own command ignores it)",
    ),
    flag("erp", Kind::Switch(|s, on| s.record_clients = on), "record the packets of clients that log in in .cpr files"),
    flag("rspd", keep!(some recording_folder), "folder for recordings"),
    flag(
        "ct",
        Kind::Number(0, 1, |s, n| s.engine.advises_snappy = n == 1),
        "compression that peers should use: 0 none, 1 snappy",
    ),
    flag("scc", keep!(some spatial_file), "spatial controller file"),
    flag(
        "scs",
        Kind::Number(0x1_0000, 0xFFFF_FFFF, |s, n| s.engine.spatial_channel_start = n as u32),
        "first spatial channel id (65536)",
    ),
    flag(
        "ecs",
        Kind::Number(0x1_0000, 0xFFFF_FFFF, |s, n| s.engine.entity_channel_start = n as u32),
        "first entity channel id (524288)",
    ),
    flag(
        "mcb",
        Kind::Number(1, 32, |s, n| s.engine.connection_id_bits = n as u32),
        "bits of connection ids (31; Unreal: 13)",
    ),
    flag(
        "cat",
        Kind::Number(0, 3_600_000, |s, n| s.limit_flags.push(("max_unauthenticated_ms".into(), n))),
        "time to log in, in ms; 0 for ever",
    ),
    flag(
        "mfaa",
        Kind::Number(0, 1_000_000, |s, n| s.limit_flags.push(("max_failed_auth".into(), n))),
        "failed logins before a connection is closed; 0 any number",
    ),
    flag(
        "mfd",
        Kind::Number(0, 1_000_000, |s, n| s.limit_flags.push(("max_fsm_violations".into(), n))),
        "forbidden messages before a connection is closed; 0 any number",
    ),
    flag("chs", keep!(some channel_settings_file), "channel settings file, or hifi, lofi, ue, tps (hifi)"),
    // Ours.
    flag("logformat", Kind::Text(set_log_format), "format of log lines: text, json (text)"),
    flag(
        "listen",
        Kind::Text(add_listener),
        "a further listener, such as client,wss,:12110, or behind proxies client,tcp,:12111,proxy=10.0.0.0/8; may be \
         repeated",
    ),
    flag(
        "sproxy",
        Kind::Text(|s, v| set_proxies(&mut s.server, v)),
        "servers: networks of proxies that send a PROXY header (v1, v2): 10.0.0.0/8,192.0.2.1; empty for none",
    ),
    flag(
        "cproxy",
        Kind::Text(|s, v| set_proxies(&mut s.client, v)),
        "clients: networks of proxies that send a PROXY header",
    ),
    flag("http", keep!(http_address), "address of /healthz, /readyz, /metrics (127.0.0.1:8080); empty for none"),
    flag(
        "admin",
        keep!(admin_address),
        "loopback address of the page for operators, such as 127.0.0.1:8081: connections, channels, bans; kick, unban, \
         reload; empty for none (none)",
    ),
    flag("cert", keep!(some tls_certificate), "certificate chain (PEM) for tls and wss"),
    flag("key", keep!(some tls_key), "private key (PEM) for tls and wss"),
    flag(
        "throngkey",
        keep!(some link_key),
        "file with the 32-byte key, in hex, of connect tokens for the throng network",
    ),
    flag(
        "throngoldkey",
        keep!(some link_old_key),
        "file with the key before that one: tokens that were made with it are taken too, while keys are changed (none)",
    ),
    flag(
        "throngaddress",
        Kind::Text(set_link_addresses),
        "host:port that connect tokens name for the throng network, behind NAT or in a container; separated by commas \
         (the listening address)",
    ),
    flag(
        "origins",
        Kind::Text(set_origins),
        "origins of web pages whose browsers may connect, separated by commas; empty for all",
    ),
    flag(
        "edges",
        Kind::Text(|s, v| address(v).map(|a| s.edges = Some(a))),
        "address at which edges of this gateway connect, such as :11290; needs -edgekey (none)",
    ),
    flag(
        "home",
        Kind::Text(set_home),
        "makes this gateway an edge of the one at host:port: it holds clients' connections for it; needs -edgekey (none)",
    ),
    flag("edgekey", keep!(some edge_key), "file with the 32-byte key, in hex, that a gateway and its edges know"),
    flag("auth", Kind::Text(set_auth), "authentication provider: none, all, tokens:FILE, http(s)://..."),
    flag(
        "clientrights",
        Kind::Text(set_rights),
        "rights of clients, if their state machine allows it: create,write,own-global,entity (create,write)",
    ),
    flag(
        "descriptors",
        Kind::Text(|s, v| {
            s.descriptor_files.push(v.into());
            Ok(())
        }),
        "descriptor set with the types of channel data; may be repeated",
    ),
    flag(
        "movement",
        Kind::Text(set_movement),
        "channel types whose updates are sent unreliably over throng: none, or a list (spatial,entity)",
    ),
    flag("unreal", Kind::Switch(|s, on| s.engine.unreal = on), "interpret Unreal's spawn and destroy messages (true)"),
    flag(
        "threads",
        Kind::Number(0, 256, |s, n| s.threads = n as u32),
        "threads for large steps: encoding, and the clients of a throng door; 0 for one per core",
    ),
    flag(
        "engine-threads",
        Kind::Number(1, 64, |s, n| s.engine_threads = n as u32),
        "engines with a thread each, which share the channels out (1); not with -scc, -scr, -unreal, movement over throng",
    ),
    flag(
        "snapshot",
        keep!(some snapshot_file),
        "file to which the gateway writes its channels and sessions, and from which it starts; empty for none (none)",
    ),
    flag(
        "snapshot-every",
        Kind::Text(|s, v| {
            s.snapshot_every = duration(v)?;
            Ok(())
        }),
        "time between two snapshots, such as 500ms, 30s, 5m; 0 for one at the end only (30s)",
    ),
    flag(
        "snapshot-discard",
        Kind::Switch(|s, on| s.snapshot_discard = on),
        "start empty if the file of -snapshot cannot be used; it is renamed to FILE.unusable",
    ),
    flag("limits", keep!(some limits_file), "file of limits"),
    flag("limit", Kind::Text(set_limit), "one limit, for example max_radius=500; may be repeated"),
];

/// Reads the words after the program's name over the defaults. Files are not read here.
pub(super) fn parse<S: AsRef<str>>(words: &[S], settings: &mut Settings) -> Result<(), SettingsError> {
    if words.len() > MAX_WORDS {
        return Err(SettingsError::TooManyWords { limit: MAX_WORDS });
    }
    let mut words = words.iter().map(AsRef::as_ref);
    while let Some(word) = words.next() {
        let name = match word.strip_prefix('-') {
            Some("-") => return words.next().map_or(Ok(()), |word| Err(unexpected(word))),
            Some(name) => name.strip_prefix('-').unwrap_or(name),
            None => return Err(unexpected(word)),
        };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (name, None),
        };
        if matches!(name, "h" | "help") {
            return Err(SettingsError::HelpWanted);
        }
        let flag = FLAGS.iter().find(|flag| flag.name == name);
        let flag = flag.ok_or_else(|| SettingsError::UnknownFlag { flag: name.into() })?;
        apply(flag, value, &mut words, settings)?;
    }
    Ok(())
}

fn unexpected(word: &str) -> SettingsError {
    SettingsError::UnexpectedWord { word: word.into() }
}

/// One line for each flag, and a few for each limit.
pub(super) fn usage() -> String {
    let mut text = String::from("Flags:\n");
    for flag in FLAGS {
        text.push_str(&format!("  -{:<14} {}\n", flag.name, flag.help));
    }
    text.push_str("\nLimits, for -limit and in the file of -limits:\n");
    text + &protections::help()
}

fn apply<'w>(
    flag: &Flag,
    value: Option<&'w str>,
    rest: &mut impl Iterator<Item = &'w str>,
    settings: &mut Settings,
) -> Result<(), SettingsError> {
    let refused = |value: &str, expected: String| SettingsError::FlagValue {
        flag: flag.name.into(),
        value: value.into(),
        expected,
    };
    let mut needed = || {
        let value = value.or_else(|| rest.next());
        value.ok_or_else(|| SettingsError::MissingValue { flag: flag.name.into() })
    };
    match flag.kind {
        Kind::Switch(set) => {
            let text = value.unwrap_or("true");
            set(settings, go_bool(text).ok_or_else(|| refused(text, "true or false".into()))?);
        }
        Kind::Number(min, max, set) => {
            let value = needed()?;
            let number = go_int(value).filter(|number| (min..=max).contains(number));
            set(settings, number.ok_or_else(|| refused(value, format!("a whole number from {min} to {max}")))?);
        }
        Kind::Text(set) => {
            let value = needed()?;
            set(settings, value).map_err(|expected| refused(value, expected))?;
        }
        Kind::Unused(why) => {
            needed()?;
            settings.notes.push(Note { text: format!("-{} has no effect: {why}", flag.name) });
        }
    }
    Ok(())
}

fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// As Go's `ParseInt` with base 0.
fn go_int(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = if let Some(digits) = lower.strip_prefix("0x") {
        (16, digits)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (2, digits)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (8, digits)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    let is_parted = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    let digits: String = digits.chars().filter(|&digit| digit != '_').collect();
    if is_parted || digits.starts_with(['-', '+']) {
        return None;
    }
    i64::from_str_radix(&digits, base).ok().map(|number| sign * number)
}

/// A whole number with a unit, as Go writes durations; 0 needs none. Up to a day.
fn duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" if number == "0" => 1,
        _ => 0,
    };
    let ms = number.parse::<u64>().ok().filter(|_| unit_ms > 0).and_then(|number| number.checked_mul(unit_ms));
    let ms = ms.filter(|&ms| ms <= 86_400_000);
    ms.map(Duration::from_millis).ok_or_else(|| "a time such as 500ms, 30s, 5m or 1h, up to 24h".into())
}

fn network(text: &str) -> Result<Network, String> {
    match text {
        "tcp" => Ok(Network::Tcp),
        "kcp" => Ok(Network::Kcp),
        "ws" | "websocket" => Ok(Network::WebSocket),
        "tls" => Ok(Network::Tls),
        "wss" => Ok(Network::SecureWebSocket),
        "throng" => Ok(Network::Throng),
        _ => Err("tcp, kcp, ws, tls, wss or throng".into()),
    }
}

/// Checks the form `host:port/path`, in which host and path may be missing.
fn address(text: &str) -> Result<String, String> {
    let place = text.split('/').next().unwrap_or_default();
    let port = place.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    port.map(|_| text.into()).ok_or_else(|| "an address such as :12108, 10.0.0.1:12108 or :12108/path".into())
}

fn set_profile(settings: &mut Settings, text: &str) -> Result<(), String> {
    let profile = match text.to_ascii_lowercase().as_str() {
        "cpu" => Profile::Processor,
        "mem" => Profile::Memory,
        "goroutine" => Profile::Threads,
        _ => return Err("cpu, mem or goroutine".into()),
    };
    settings.profile = Some(profile);
    if profile != Profile::Processor {
        let text = format!("-profile {text} has no effect: use heaptrack or gdb on this process");
        settings.notes.push(Note { text });
    }
    Ok(())
}

fn add_listener(settings: &mut Settings, text: &str) -> Result<(), String> {
    let expected =
        || "side, network and address, for example client,wss,:12110, and optionally proxy=10.0.0.0/8".to_string();
    let mut parts = text.split(',').map(str::trim);
    let mut part = || parts.next().ok_or_else(expected);
    let (side, network, address) = (part()?, network(part()?)?, address(part()?)?);
    let mut listener = Listener { network, address, proxies: Vec::new() };
    for part in parts {
        listener.proxies.push(ip_network(part.strip_prefix("proxy=").ok_or_else(expected)?)?);
    }
    match side {
        "server" => settings.more_servers.push(listener),
        "client" => settings.more_clients.push(listener),
        _ => return Err(expected()),
    }
    Ok(())
}

fn set_log_format(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.log_format = match text {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        _ => return Err("text or json".into()),
    };
    Ok(())
}

fn set_proxies(listener: &mut Listener, text: &str) -> Result<(), String> {
    let networks = text.split(',').map(str::trim).filter(|network| !network.is_empty());
    listener.proxies = networks.map(ip_network).collect::<Result<_, _>>()?;
    Ok(())
}

/// `10.0.0.0/8`, or a single address.
fn ip_network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| "networks such as 10.0.0.0/8, or addresses such as 192.0.2.1".into())
}

fn set_origins(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.origins = text.split(',').map(str::trim).filter(|origin| !origin.is_empty()).map(String::from).collect();
    Ok(())
}

fn set_link_addresses(settings: &mut Settings, text: &str) -> Result<(), String> {
    let expected =
        || "1 to 32 addresses with host and port, such as play.example:12110, separated by commas".to_string();
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let is_address = |part: &&str| !part.starts_with(':') && !part.contains('/') && address(part).is_ok();
    if !(1..=SERVERS_MAX).contains(&parts.len()) || !parts.iter().all(is_address) {
        return Err(expected());
    }
    settings.link_addresses = parts.into_iter().map(String::from).collect();
    Ok(())
}

fn set_home(settings: &mut Settings, text: &str) -> Result<(), String> {
    let is_address = !text.starts_with(':') && !text.contains('/') && address(text).is_ok();
    settings.home = Some(is_address.then(|| text.into()).ok_or("host and port, such as gateway-0.example:11290")?);
    Ok(())
}

fn set_auth(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.names_auth = true;
    settings.auth = match text {
        "none" => AuthProvider::Nobody,
        "all" => AuthProvider::Everybody,
        _ if text.starts_with("http://") || text.starts_with("https://") => AuthProvider::Http(text.into()),
        _ => match text.strip_prefix("tokens:") {
            Some(file) if !file.is_empty() => AuthProvider::Tokens(file.into()),
            _ => return Err("none, all, tokens:FILE, http://... or https://...".into()),
        },
    };
    Ok(())
}

fn set_rights(settings: &mut Settings, text: &str) -> Result<(), String> {
    let mut rights = ClientRights::NONE;
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match name {
            "create" => rights.create = true,
            "write" => rights.write = true,
            "own-global" => rights.own_global = true,
            "entity" => rights.entity = true,
            _ => return Err("create, write, own-global and entity, separated by commas".into()),
        }
    }
    settings.engine.client_rights = rights;
    Ok(())
}

fn set_movement(settings: &mut Settings, text: &str) -> Result<(), String> {
    let mut types = MovementTypes::NONE;
    for name in text.split(',').map(str::trim).filter(|&name| !name.is_empty() && name != "none") {
        let kind = ChannelType::from_str_name(&name.to_ascii_uppercase());
        types = types.with(kind.ok_or("none, or channel types separated by commas, such as spatial,entity")?);
    }
    settings.engine.movement = types;
    Ok(())
}

fn set_limit(settings: &mut Settings, text: &str) -> Result<(), String> {
    let (name, value) = text.split_once('=').ok_or("a name and a number, such as max_radius=500")?;
    let number = go_int(value).ok_or_else(|| format!("a whole number after {name}="))?;
    Limits::default().set(name, number).map_err(|refusal| match refusal {
        LimitRefusal::Unknown => "the name of a limit".into(),
        LimitRefusal::Range(min, max) => format!("a whole number from {min} to {max}"),
    })?;
    settings.limit_flags.push((name.into(), number));
    Ok(())
}
