//! The door of Throng's own link of `throng gateway`, behind a translation of addresses as routers and containers do it:
//! clients know the gateway by another address than the one that it listens at.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::lines::Gateway;
use throng_channeld::link::{LinkClient, LinkClientError};
use throng_gateway::serve::LinkOptions;
use throng_testkit::token_now;

const KEY: [u8; 32] = [15; 32];

/// A gateway, and where its door of the link listens.
struct Linked {
    _process: Gateway,
    link: SocketAddr,
}

impl Linked {
    /// Starts it with a door of the link at any free port.
    fn start(more: &[&str]) -> Linked {
        let mut process = Gateway::start(&[&["-dev", "-listen=client,throng,127.0.0.1:0"], more].concat());
        let link = process.address("listening for clients (throng) at ");
        Linked { _process: process, link }
    }
}

/// Passes datagrams on between one client, who knows only this, and the gateway.
struct Translation {
    public: UdpSocket,
    is_wanted: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Translation {
    fn bind() -> Translation {
        let public = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        Translation { public, is_wanted: Arc::new(AtomicBool::new(true)), thread: None }
    }

    fn address(&self) -> SocketAddr {
        self.public.local_addr().expect("it is bound")
    }

    fn pass_on_to(&mut self, gateway: SocketAddr) {
        let outside = self.public.try_clone().expect("a socket");
        let inside = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        inside.connect(gateway).expect("an address");
        for socket in [&outside, &inside] {
            socket.set_read_timeout(Some(Duration::from_millis(1))).expect("it can be set");
        }
        let is_wanted = Arc::clone(&self.is_wanted);
        self.thread = Some(thread::spawn(move || {
            let (mut datagram, mut client) = ([0; 2_048], None);
            while is_wanted.load(Ordering::Relaxed) {
                if let Ok((bytes, from)) = outside.recv_from(&mut datagram) {
                    client = Some(from);
                    let _ = inside.send(&datagram[..bytes]);
                }
                if let (Ok(bytes), Some(client)) = (inside.recv(&mut datagram), client) {
                    let _ = outside.send_to(&datagram[..bytes], client);
                }
            }
        }));
    }
}

impl Drop for Translation {
    fn drop(&mut self) {
        self.is_wanted.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Connects to a gateway that is known by this address, and logs in; the connection id.
fn join(known_as: SocketAddr, client_id: u64, patience: Duration) -> Result<u32, LinkClientError> {
    let token = token_now(LinkOptions::PROTOCOL_ID, KEY, known_as, client_id);
    let mut client = LinkClient::connect(token, Instant::now() + patience)?;
    client.authenticate("ada", "", Instant::now() + patience)?;
    Ok(client.connection_id())
}

#[test]
fn clients_come_in_by_the_address_that_the_gateway_is_known_by_and_by_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    fs::write(&key, KEY.map(|byte| format!("{byte:02x}")).concat()).expect("the folder is ours");
    let key = format!("-throngkey={}", key.display());
    let patience = Duration::from_secs(20);

    let mut translation = Translation::bind();
    let known_as = format!("-throngaddress=203.0.113.7:4000,{}", translation.address());
    let gateway = Linked::start(&[&key, &known_as]);
    translation.pass_on_to(gateway.link);
    assert_ne!(translation.address(), gateway.link);
    assert_ne!(join(translation.address(), 1, patience).expect("it is let in"), 0);
    let by_its_own = join(gateway.link, 2, Duration::from_secs(1));
    assert!(by_its_own.is_err(), "a token for an address that is not the gateway's: {by_its_own:?}");

    let gateway = Linked::start(&[&key]);
    let mut translation = Translation::bind();
    translation.pass_on_to(gateway.link);
    join(gateway.link, 3, patience).expect("without the flag it is known by where it listens");
    let by_another = join(translation.address(), 4, Duration::from_secs(1));
    assert!(by_another.is_err(), "nobody has said that this is its address: {by_another:?}");
}
