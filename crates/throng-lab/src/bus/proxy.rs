//! A TCP proxy between a process of a run and the nats-server: a fault of the run can cut it.
//!
//! ```text
//!  NatsBus  --TCP-->  Proxy, two threads for each connection  --TCP-->  nats-server
//! ```
//!
//! While it is cut, nothing passes, as in a partition: TCP keeps what was sent, and ends nothing. Both ends notice the silence by
//! themselves, or get everything late.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cut::Cut;

/// The time between two looks whether a cut has ended.
const CUT_LOOK: Duration = Duration::from_millis(10);
/// The nats-server may take so long to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Bytes that pass at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Connections at a time. A client that tries again while the network is cut leaves one behind with each attempt, until the cut ends.
const CONNECTIONS_MAX: usize = 64;

/// Starts a proxy for each of the addresses, with commas between them, and returns the addresses to connect to instead. They end with the
/// process.
///
/// # Errors
/// An address is none of NATS without TLS, or no socket can be had.
pub(super) fn proxied(servers: &str, cut: &Cut) -> Result<String> {
    let proxied: Vec<String> = servers.split(',').map(|server| start(server.trim(), cut)).collect::<Result<_>>()?;
    Ok(proxied.join(","))
}

fn start(server: &str, cut: &Cut) -> Result<String> {
    let rest = match server.split_once("://") {
        None => server,
        Some(("nats", rest)) => rest,
        Some((scheme, _)) => bail!("a connection to {scheme}://... cannot be cut: only one to nats://... can"),
    };
    let rest = rest.trim_end_matches('/');
    let (login, host) = rest.rsplit_once('@').map_or((None, rest), |(login, host)| (Some(login), host));
    let target = match host.rsplit_once(':').filter(|_| !host.ends_with(']')) {
        Some(_) => host.to_owned(),
        None => format!("{host}:4222"),
    };
    target.to_socket_addrs().with_context(|| format!("{server} is no address of a nats-server"))?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no socket for a proxy before the nats-server")?;
    let address = listener.local_addr()?;
    let cut = cut.clone();
    std::thread::Builder::new().name("nats proxy".to_owned()).spawn(move || serve(&listener, &target, &cut))?;
    Ok(with_login(login, address))
}

fn with_login(login: Option<&str>, address: SocketAddr) -> String {
    login.map_or_else(|| format!("nats://{address}"), |login| format!("nats://{login}@{address}"))
}

fn serve(listener: &TcpListener, target: &str, cut: &Cut) {
    let open = Arc::new(AtomicUsize::new(0));
    for near in listener.incoming() {
        let Ok(near) = near else {
            std::thread::sleep(CUT_LOOK);
            continue;
        };
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        let (target, cut, open) = (target.to_owned(), cut.clone(), open.clone());
        open.fetch_add(1, Ordering::Relaxed);
        let ended = open.clone();
        let spawned = std::thread::Builder::new().name("nats proxy".to_owned()).spawn(move || {
            // A connection that fails is closed at both ends.
            let _ = join(near, &target, &cut);
            open.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            ended.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Carries both directions of a connection until it has ended.
fn join(near: TcpStream, target: &str, cut: &Cut) -> io::Result<()> {
    await_mended(cut);
    let far = connect(target)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (from_far, to_near) = (far.try_clone()?, near.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(|| carry(from_far, to_near, cut));
        carry(near, far, cut);
    });
    Ok(())
}

/// Connects to the first address of the target that answers.
fn connect(target: &str) -> io::Result<TcpStream> {
    let mut error = io::ErrorKind::AddrNotAvailable.into();
    for address in target.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(next) => error = next,
        }
    }
    Err(error)
}

/// Carries one direction until it has ended, and ends the other side of it.
fn carry(mut from: TcpStream, mut to: TcpStream, cut: &Cut) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk);
        await_mended(cut);
        let bytes = match read {
            Ok(0) | Err(_) => break,
            Ok(bytes) => bytes,
        };
        if to.write_all(&chunk[..bytes]).is_err() {
            break;
        }
    }
    // Both directions: neither client nor server of NATS goes on with half a connection.
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}

fn await_mended(cut: &Cut) {
    while cut.is_cut() {
        std::thread::sleep(CUT_LOOK);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Answers each byte with the same one. Returns how many connections have ended, too.
    fn echo() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (address, ended) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = ended.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let ended = counted.clone();
                std::thread::spawn(move || {
                    let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                    let _ = io::copy(&mut from, &mut to);
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        (address, ended)
    }

    fn connect(proxied: &str) -> TcpStream {
        let address = proxied.strip_prefix("nats://").unwrap();
        let stream = TcpStream::connect(address.rsplit('@').next().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn ask(stream: &mut TcpStream, byte: u8) -> u8 {
        stream.write_all(&[byte]).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        answer[0]
    }

    #[test]
    fn a_cut_connection_is_silent_and_goes_on_with_all_that_was_sent() {
        let (cut, (address, ended)) = (Cut::default(), echo());
        let proxied = proxied(&format!("nats://{address}, nats://me:secret@{address}"), &cut).unwrap();
        let (first, second) = proxied.split_once(',').unwrap();
        assert!(second.starts_with("nats://me:secret@127.0.0.1:"), "{second}");
        let mut streams = [first, second].map(connect);
        for stream in &mut streams {
            assert_eq!(ask(stream, 1), 1);
        }
        cut.set(true);
        let [stream, closed] = &mut streams;
        stream.write_all(&[2, 3]).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(stream.read(&mut [0]).is_err(), "a cut connection is not silent");
        // A close does not pass either, and a new connection waits.
        closed.shutdown(Shutdown::Both).unwrap();
        let mut late = connect(first);
        late.write_all(&[4]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        cut.set(false);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut answer, mut late_answer) = ([0; 2], [0]);
        stream.read_exact(&mut answer).unwrap();
        late.read_exact(&mut late_answer).unwrap();
        assert_eq!((answer, late_answer), ([2, 3], [4]));
        let until = Instant::now() + PATIENCE;
        while ended.load(Ordering::Relaxed) < 1 {
            assert!(Instant::now() < until, "a close has not passed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn more_connections_than_there_may_be_are_closed_and_those_that_are_there_go_on() {
        let (cut, (address, _)) = (Cut::default(), echo());
        let proxied = proxied(&address.to_string(), &cut).unwrap();
        let mut all: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect(&proxied)).collect();
        all.iter_mut().for_each(|stream| assert_eq!(ask(stream, 7), 7));
        let mut beyond = connect(&proxied);
        let _ = beyond.write_all(&[1]);
        assert!(beyond.read(&mut [0]).map_or(true, |bytes| bytes == 0));
        assert_eq!(ask(&mut all[0], 9), 9);
    }

    #[test]
    fn a_connection_with_tls_cannot_be_cut() {
        let error = proxied("tls://127.0.0.1:4222", &Cut::default()).unwrap_err().to_string();
        assert_eq!(error, "a connection to tls://... cannot be cut: only one to nats://... can");
    }
}
