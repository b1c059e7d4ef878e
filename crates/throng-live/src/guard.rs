//! The guard of the hub: a page of another site must neither read the stream nor steer a load.
//!
//! A browser names the site that it believes to talk to (`Host`), and the site whose page asks (`Origin`). Another site's page
//! has another `Origin`. A name of another site that leads to this machine has another `Host`.

use std::net::SocketAddr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

/// Whether a request comes from this hub's own page, or from a program that is no browser.
pub(crate) fn is_own(headers: &HeaderMap, bound: SocketAddr) -> bool {
    let text = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
    let hosts: Vec<&str> = text(HOST).collect();
    let [host] = hosts[..] else { return false };
    let is_here = !bound.ip().is_loopback() || is_name_of(host, bound);
    let mut origins = text(ORIGIN);
    is_here && origins.all(|origin| origin.strip_prefix("http://").is_some_and(|from| from == host))
}

fn is_name_of(host: &str, bound: SocketAddr) -> bool {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "80"));
    let is_name =
        name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()) || name == "[::1]";
    is_name && port.parse() == Ok(bound.port())
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
        for wrong in [
            &[("host", "evil.example:8090")][..],
            &[("host", "127.0.0.1:8091")],
            &[("host", "127.0.0.1")],
            &[("host", "127.0.0.1:8090"), ("origin", "http://evil.example")],
            &[("host", "127.0.0.1:8090"), ("origin", "https://127.0.0.1:8090")],
            &[("host", "127.0.0.1:8090"), ("origin", "null")],
            &[("host", "127.0.0.1:8090"), ("origin", "http://127.0.0.1:9000")],
            &[],
        ] {
            assert!(!own(wrong, here), "{wrong:?}");
        }
        // An address that others reach is known by names that only they know.
        assert!(own(&[("host", "lab.example:8090")], "0.0.0.0:8090"));
        assert!(!own(&[("host", "lab.example:8090"), ("origin", "http://evil.example")], "0.0.0.0:8090"));
    }
}
