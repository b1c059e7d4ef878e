//! From the gateway's settings to the shell's options.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use super::draft::SnapshotOptions;
use super::error::ServeError;
use super::options::{
    DoorLimits, DoorOptions, EdgeSecret, EdgesOptions, HomeOptions, LinkOptions, ServeOptions, TlsFiles, Transport,
    WebSocketOptions,
};
use super::record::RecordingOptions;
use crate::auth::DeskLimits;
use crate::settings::{Listener, Network, Settings};
use throng_gateway_engine::limits::Limits;
use throng_gateway_engine::port::Side;

/// An event with one message, and what surrounds it.
const EVENT_BYTES: usize = 2 << 10;

/// The bytes around the two tokens of a login.
const AUTH_BYTES: u32 = 256;

impl ServeOptions {
    /// The shell's options from the settings.
    ///
    /// # Errors
    /// An address that is none, or an encrypted door without certificate.
    pub fn from_settings(settings: &Settings) -> Result<ServeOptions, ServeError> {
        let servers = settings.server_listeners().map(|door| (Side::Server, door));
        let doors = servers.chain(settings.client_listeners().map(|door| (Side::Client, door)));
        let page = |address: &str| (!address.is_empty()).then(|| resolve(address)).transpose();
        let (http, admin) = (page(&settings.http_address)?, page(&settings.admin_address)?);
        Ok(ServeOptions {
            doors: doors.map(|(side, listener)| door(settings, side, listener)).collect::<Result<_, _>>()?,
            edges: settings.edges.as_ref().map(|address| edges(settings, address)).transpose()?,
            home: settings.home.as_ref().map(|address| home(settings, address)).transpose()?,
            http,
            admin,
            memory_bytes: settings.engine.limits.max_memory_bytes,
            inbound_bytes: settings.engine.limits.max_inbound_events as usize * EVENT_BYTES,
            lame_duck: Duration::from_millis(settings.engine.limits.lame_duck_ms.into()),
            drain: Duration::from_millis(settings.engine.limits.drain_ms.into()),
            io_threads: 0,
            waits_for_master: settings.client_waits_for_master,
            recordings: settings.record_clients.then(|| RecordingOptions {
                folder: PathBuf::from(settings.recording_folder.as_deref().unwrap_or(".")),
                session_bytes: settings.engine.limits.max_recording_bytes,
                sessions: settings.engine.limits.max_recordings as usize,
            }),
            snapshots: settings.snapshot_file.as_ref().map(|file| SnapshotOptions {
                file: PathBuf::from(file),
                every: (!settings.snapshot_every.is_zero()).then_some(settings.snapshot_every),
                max_bytes: settings.engine.limits.max_snapshot_bytes,
            }),
            ..ServeOptions::new()
        })
    }
}

impl DeskLimits {
    /// The desk's options from the settings.
    pub fn from_settings(settings: &Settings) -> DeskLimits {
        let limits = &settings.engine.limits;
        DeskLimits {
            calls: limits.max_auth_calls as usize,
            waiting: limits.max_pending_auth as usize,
            per_address: limits.max_pending_auth_per_address as usize,
            patience: Duration::from_millis(limits.max_auth_wait_ms.into()),
            failures: limits.max_failed_auth,
            ban: Duration::from_millis(limits.block_ms.into()),
            remembered: limits.max_blocked as usize,
        }
    }
}

impl DoorLimits {
    /// A door's options from the limits.
    pub fn from_limits(limits: &Limits, side: Side) -> DoorLimits {
        DoorLimits::new(side).with_limits(limits, side)
    }

    /// The same for a door that is open: what settings do not speak of stays as it is.
    pub(crate) fn with_limits(self, limits: &Limits, side: Side) -> DoorLimits {
        let both = DoorLimits {
            connections: limits.max_connections as usize,
            ban: Duration::from_millis(limits.block_ms.into()),
            remembered: limits.max_blocked as usize,
            unpacked_bytes: limits.max_decompressed_bytes as usize,
            unreachable: Duration::from_millis(limits.max_unreachable_ms.into()),
            stranger_bytes: limits.max_unauthenticated_bytes.max(2 * limits.max_token_bytes + AUTH_BYTES) as usize,
            ..self
        };
        match side {
            Side::Server => DoorLimits {
                messages_per_s: limits.max_server_messages_per_s,
                burst_messages: limits.max_server_messages_per_s,
                queued_bytes: limits.server_queue_hard_bytes as usize,
                ..both
            },
            Side::Client => DoorLimits {
                connections_per_address: limits.max_connections_per_address as usize,
                arrivals_per_s: limits.max_new_connections_per_address_per_s,
                all_arrivals_per_s: limits.max_new_connections_per_s,
                handshakes_per_s: limits.max_handshakes_per_s,
                strikes: limits.max_strikes,
                messages_per_s: limits.max_client_messages_per_s,
                burst_messages: limits.client_burst_messages,
                bytes_per_s: limits.max_client_bytes_per_s,
                burst_bytes: limits.client_burst_bytes,
                queued_bytes: limits.queue_hard_bytes as usize,
                ..both
            },
        }
    }
}

fn door(settings: &Settings, side: Side, listener: &Listener) -> Result<DoorOptions, ServeError> {
    let address = resolve(listener.host_and_port())?;
    let websocket =
        || WebSocketOptions { path: listener.path().unwrap_or_default().to_owned(), origins: settings.origins.clone() };
    let transport = match listener.network {
        Network::Tcp | Network::Tls => Transport::Tcp,
        Network::WebSocket | Network::SecureWebSocket => Transport::WebSocket(websocket()),
        Network::Kcp => Transport::Kcp,
        Network::Throng => Transport::Link(link(settings)?),
    };
    let tls = match (listener.network.needs_certificate(), &settings.tls_certificate, &settings.tls_key) {
        (false, ..) => None,
        (true, Some(certificates), Some(key)) => {
            Some(TlsFiles { certificates: PathBuf::from(certificates), key: PathBuf::from(key) })
        }
        _ => {
            let what = "needs a certificate (-cert) and its key (-key)";
            return Err(ServeError::Door { transport: listener.network.tag(), address, what });
        }
    };
    let proxies = listener.proxies.clone();
    Ok(DoorOptions {
        side,
        transport,
        address,
        tls,
        proxies,
        limits: DoorLimits::from_limits(&settings.engine.limits, side),
    })
}

fn link(settings: &Settings) -> Result<LinkOptions, ServeError> {
    let addresses = settings.link_addresses.iter().map(|address| resolve(address));
    let old_key = settings.link_old_key.as_deref().filter(|file| !file.is_empty());
    Ok(LinkOptions {
        public_addresses: addresses.collect::<Result<_, _>>()?,
        threads: settings.threads,
        previous_private_key: old_key.map(|file| read_key("-throngoldkey", file)).transpose()?,
        ..LinkOptions::new(read_key("-throngkey", settings.link_key.as_deref().unwrap_or_default())?)
    })
}

fn edges(settings: &Settings, address: &str) -> Result<EdgesOptions, ServeError> {
    Ok(EdgesOptions { address: resolve(address)?, secret: edge_secret(settings)? })
}

fn home(settings: &Settings, address: &str) -> Result<HomeOptions, ServeError> {
    Ok(HomeOptions { address: address.to_owned(), secret: edge_secret(settings)? })
}

fn edge_secret(settings: &Settings) -> Result<EdgeSecret, ServeError> {
    read_key("-edgekey", settings.edge_key.as_deref().unwrap_or_default()).map(EdgeSecret)
}

/// A key in a file.
fn read_key(flag: &str, file: &str) -> Result<[u8; 32], ServeError> {
    let text = std::fs::read_to_string(file).ok();
    text.and_then(|text| key_of(text.trim())).ok_or_else(|| ServeError::Key(format!("{flag} {file:?}")))
}

fn key_of(hex: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if hex.len() != 2 * key.len() || !hex.is_ascii() {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(key)
}

/// `host:port`, the host possibly empty for all interfaces.
fn resolve(address: &str) -> Result<SocketAddr, ServeError> {
    let full = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() };
    full.to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .ok_or_else(|| ServeError::Address(address.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Result<ServeOptions, ServeError> {
        ServeOptions::from_settings(&crate::settings::load(arguments).expect("sound arguments"))
    }

    #[test]
    fn without_arguments_the_doors_are_those_of_channeld() {
        let options = options(&["-dev"]).expect("sound");
        let doors: Vec<(Side, String)> =
            options.doors.iter().map(|door| (door.side, door.address.to_string())).collect();
        let expected = [(Side::Server, "0.0.0.0:11288".to_owned()), (Side::Client, "0.0.0.0:12108".to_owned())];
        assert_eq!(doors, expected);
        assert!(options.doors.iter().all(|door| door.transport == Transport::Tcp && door.tls.is_none()));
        assert!(options.http.expect("there are pages").ip().is_loopback());
    }

    #[test]
    fn websocket_doors_have_their_path_and_list_of_origins() {
        let options =
            options(&["-dev", "-cn=ws", "-ca=127.0.0.1:0/play", "-origins=https://a.example"]).expect("sound");
        let Transport::WebSocket(websocket) = &options.doors[1].transport else { panic!("another transport") };
        assert_eq!((websocket.path.as_str(), websocket.origins.len()), ("/play", 1));
        assert_eq!(options.doors[1].address.to_string(), "127.0.0.1:0");
    }

    #[test]
    fn a_link_may_be_known_under_other_addresses_than_it_listens_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = folder.path().join("key");
        std::fs::write(&key, "0f".repeat(32)).expect("written");
        let key = format!("-throngkey={}", key.display());
        let door = ["-dev", "-cn=throng", "-ca=:12110", &key];
        let named = [&door[..], &["-throngaddress=203.0.113.7:4000, 127.0.0.1:4001"]].concat();
        let options = options(&named).expect("sound");
        let Transport::Link(link) = &options.doors[1].transport else { panic!("another transport") };
        let addresses: Vec<String> = link.public_addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["203.0.113.7:4000", "127.0.0.1:4001"]);
        let notes = |arguments: &[&str]| crate::settings::load(arguments).expect("sound").notes.len();
        assert_eq!(notes(&door), notes(&named) + 1, "all interfaces are no address");
        for wrong in ["-throngaddress=:4000", "-throngaddress=here", "-throngaddress=a:1/path"] {
            assert!(crate::settings::load([&door[..], &[wrong]].concat()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_keys_are_read_while_they_are_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let new = format!("-throngkey={}", file("new", &"0f".repeat(32)));
        let old = format!("-throngoldkey={}", file("old", &"0e".repeat(32)));
        let door = ["-dev", "-cn=throng", "-ca=127.0.0.1:0", &new];
        let key = |arguments: &[&str]| {
            let Transport::Link(link) = options(arguments).expect("sound").doors[1].transport.clone() else {
                panic!("another transport")
            };
            (link.private_key, link.previous_private_key)
        };
        assert_eq!(key(&door), ([15; 32], None));
        assert_eq!(key(&[&door[..], &[&old]].concat()), ([15; 32], Some([14; 32])));
        let short = format!("-throngoldkey={}", file("short", "0e"));
        let error = options(&[&door[..], &[&short]].concat()).expect_err("a key has 64 digits");
        assert!(error.to_string().contains("-throngoldkey"), "{error}");
    }

    #[test]
    fn keys_are_64_digits() {
        let key = key_of(&"0f".repeat(32)).expect("it is one");
        assert_eq!(key, [15; 32]);
        for wrong in ["0f".repeat(31), "0g".repeat(32), "ä".repeat(32), String::new()] {
            assert_eq!(key_of(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn limits_reach_the_doors() {
        let options = options(&["-dev", "-limit", "max_client_messages_per_s=7"]).expect("sound");
        assert_eq!(options.doors[1].limits.messages_per_s, 7);
        assert!(options.doors[0].limits.messages_per_s > 7);
    }
}
