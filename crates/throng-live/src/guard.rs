//! The guard of the hub: a page of another site must neither read the stream nor steer a load.
//!
//! A browser names the site that it believes to talk to (`Host`), and the site whose page asks (`Origin`). Another site's page
//! has another `Origin`; where a browser sends none, as for a picture or a frame, `Sec-Fetch-Site` says that another site asks. A
//! link of another site may lead here: the page is shown in a window of its own, and the other site reads nothing of it. A
//! name of another site that leads to this machine has another `Host`.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

/// Whether a request comes from this hub's own page, or from a program that is no browser.
pub(crate) fn is_own(headers: &HeaderMap, bound: SocketAddr) -> bool {
    let text = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
    let hosts: Vec<&str> = text(HOST).collect();
    let [host] = hosts[..] else { return false };
    let mut origins = text(ORIGIN);
    let is_here = |origin: &str| origin.strip_prefix("http://").is_some_and(|from| from == host);
    // Other ports of this machine are the same site, and other origins.
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let says = |name: &str, word: &str| headers.get(name).is_some_and(|value| value == word);
    let is_link = says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document");
    let is_own_site = is_link || sites.all(|site| site == "same-origin" || site == "none");
    is_address_of(host, bound) && origins.all(is_here) && is_own_site
}

/// Whether a host is an address, as `10.0.0.5:8090`, or `localhost`, at the hub's port. Any other name may lead here too, once
/// its owner wants that.
fn is_address_of(host: &str, bound: SocketAddr) -> bool {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "80"));
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_possible = |ip: IpAddr| ip.is_loopback() || !bound.ip().is_loopback();
    (name == "localhost" || name.parse().is_ok_and(is_possible)) && port.parse() == Ok(bound.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(headers: &[(&'static str, &str)], bound: &str) -> bool {
        let pairs = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        is_own(&pairs.collect::<HeaderMap>(), bound.parse().unwrap())
    }

    #[test]
    fn another_site_is_neither_host_nor_origin() {
        let here = "127.0.0.1:8090";
        assert!(own(&[("host", "127.0.0.1:8090")], here));
        assert!(own(&[("host", "localhost:8090"), ("origin", "http://localhost:8090")], here));
        assert!(own(&[("host", "[::1]:8090")], "[::1]:8090"));
        assert!(own(&[("host", "127.0.0.1:8090"), ("sec-fetch-site", "none")], here));
        assert!(own(&[("host", "127.0.0.1:8090"), ("sec-fetch-site", "same-origin")], here));
        let from_elsewhere =
            [("host", "127.0.0.1:8090"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert!(own(&[&from_elsewhere[..], &[("sec-fetch-dest", "document")]].concat(), here), "a link");
        assert!(!own(&[&from_elsewhere[..], &[("sec-fetch-dest", "iframe")]].concat(), here));
        for wrong in [
            &[("host", "evil.example:8090")][..],
            &[("host", "127.0.0.1:8091")],
            &[("host", "127.0.0.1")],
            &[("host", "127.0.0.1:8090"), ("origin", "http://evil.example")],
            &[("host", "127.0.0.1:8090"), ("origin", "https://127.0.0.1:8090")],
            &[("host", "127.0.0.1:8090"), ("origin", "null")],
            &[("host", "127.0.0.1:8090"), ("origin", "http://127.0.0.1:9000")],
            &[("host", "127.0.0.1:8090"), ("sec-fetch-site", "cross-site")],
            &[("host", "127.0.0.1:8090"), ("sec-fetch-site", "same-site")],
            &[("host", "127.0.0.1:8090"), ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
            &[],
        ] {
            assert!(!own(wrong, here), "{wrong:?}");
        }
        // An address that others reach has others of its own. A name might be one of another site that leads here.
        assert!(own(&[("host", "10.0.0.5:8090"), ("origin", "http://10.0.0.5:8090")], "0.0.0.0:8090"));
        assert!(own(&[("host", "[fd00::5]:8090")], "[::]:8090"));
        for wrong in [
            &[("host", "lab.example:8090"), ("origin", "http://lab.example:8090")][..],
            &[("host", "10.0.0.5:8090"), ("origin", "http://evil.example")],
        ] {
            assert!(!own(wrong, "0.0.0.0:8090"), "{wrong:?}");
        }
        assert!(!own(&[("host", "10.0.0.5:8090")], here));
    }
}
