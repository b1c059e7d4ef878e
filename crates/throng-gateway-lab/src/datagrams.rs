//! A client's connection over Throng's own link, polled by a thread with many of them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use throng_channeld::link::{LinkClient, LinkEnd, LinkError, PROTOCOL_ID};
use throng_link::netcode::{ConnectToken, ConnectTokenOptions, Key, Suite, USER_DATA_LEN};
use throng_link::session::SendError;
use throng_wire::Time;

use crate::light::{Message, Outgoing, frame};
use crate::link::CONNECT_PATIENCE;
use crate::load::TOKEN_KEY;

/// Longer datagrams than any of the protocol.
const DATAGRAM_BYTES_MAX: usize = 2_048;
/// Datagrams of one client that are read before others have their turn, and that it sends.
const DATAGRAMS_PER_TURN: usize = 256;
/// A token is shown at once.
const TOKEN_LASTS_S: u64 = 60;
const SILENCE_MAX_S: i32 = 10;

/// The connection.
pub(super) struct Datagrams {
    socket: UdpSocket,
    end: LinkEnd,
    /// Its times count from here.
    began: Instant,
    datagram: Vec<u8>,
    /// Bytes that were sent since somebody asked.
    sent: u64,
}

impl Datagrams {
    /// Connects, which takes two round trips.
    ///
    /// # Errors
    /// The gateway does not let the client in within [`CONNECT_PATIENCE`].
    pub(super) fn connect(address: SocketAddr, client: u32) -> io::Result<Datagrams> {
        let connected = LinkClient::connect(token(address, client)?, Instant::now() + CONNECT_PATIENCE);
        let (socket, end, began) = connected.map_err(io::Error::other)?.into_parts()?;
        Ok(Datagrams { socket, end, began, datagram: Vec::new(), sent: 0 })
    }

    /// The socket, to wait for.
    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Says good-bye.
    pub(super) fn close(&mut self) {
        self.end.close(self.now());
        self.transmit();
    }

    /// Reads what is there, counts its bytes, and hands each message to `each`.
    ///
    /// # Errors
    /// The socket has failed, or the gateway has sent something that cannot be read ([`io::ErrorKind::InvalidData`]).
    pub(super) fn read(&mut self, bytes: &mut u64, mut each: impl FnMut(Message<'_>)) -> io::Result<()> {
        let mut datagram = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..DATAGRAMS_PER_TURN {
            match self.socket.recv(&mut datagram) {
                Ok(count) => {
                    *bytes += count as u64;
                    self.end.handle(self.now(), &mut datagram[..count]).map_err(garbled)?;
                    // Many may have come at once, and an acknowledgement names only so many.
                    if self.end.is_answer_due() {
                        self.transmit();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An earlier datagram found nobody there. If that lasts, the session ends.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while let Some(message) = self.end.poll_message().map_err(garbled)? {
            let (channel, stub, kind) = (message.channel_id, message.stub_id, message.msg_type);
            each(Message { channel, stub, kind, body: &message.body });
        }
        Ok(())
    }

    /// Sends what waits, and what the connection itself has to say: to be called in each round. The bytes that were sent
    /// since the last call.
    pub(super) fn send(&mut self, outgoing: &mut Outgoing) -> io::Result<u64> {
        while let Ok(Some((payload, whole))) = frame(outgoing.waiting()) {
            match self.end.send_entries(payload) {
                Ok(()) => outgoing.advance(whole),
                Err(LinkError::Send(SendError::QueueFull)) => break,
                Err(_) if self.end.has_ended() => break,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        self.transmit();
        match self.end.has_ended() {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(std::mem::take(&mut self.sent)),
        }
    }

    fn transmit(&mut self) {
        for _ in 0..DATAGRAMS_PER_TURN {
            if !self.end.poll_transmit(self.now(), &mut self.datagram) {
                return;
            }
            // Datagrams that the kernel does not accept are lost, as on any other path.
            self.sent += self.socket.send(&self.datagram).unwrap_or(0) as u64;
        }
    }

    fn now(&self) -> Time {
        Time(self.began.elapsed().as_micros() as u64)
    }
}

fn garbled(error: LinkError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn token(address: SocketAddr, client: u32) -> io::Result<ConnectToken> {
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let options = ConnectTokenOptions {
        protocol_id: PROTOCOL_ID,
        client_id: u64::from(client) + 1,
        create_unix_s: unix_s,
        expire_unix_s: unix_s + TOKEN_LASTS_S,
        suite: Suite::Aes256Gcm,
        timeout_s: SILENCE_MAX_S,
        servers: vec![address],
        user_data: [0; USER_DATA_LEN],
    };
    let mut is_random = Ok(());
    let token = ConnectToken::generate(&options, &Key::new(TOKEN_KEY), &mut |bytes| is_random = getrandom::fill(bytes));
    is_random.map_err(io::Error::other)?;
    token.map_err(io::Error::other)
}
