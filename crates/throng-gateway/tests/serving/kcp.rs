//! A client of KCP.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use kcp::Kcp;
use throng_channeld::proto::{AuthMessage, AuthResultMessage};
use throng_channeld::{Dialect, FrameReader, Header, Message, Messages, PacketWriter, message_type, put_message};

use super::{ECHO, payload_of, soon};

/// A client of KCP that writes as kcp-go does: messages of one segment each.
pub(crate) struct KcpClient {
    socket: UdpSocket,
    machine: Kcp<Loose>,
    began: Instant,
    reader: FrameReader,
    pub(crate) received: Vec<Message>,
    /// One in this many datagrams is lost in each direction.
    loses_every: usize,
    datagrams: usize,
}

struct Loose {
    socket: UdpSocket,
    loses_every: usize,
    datagrams: usize,
}

impl Write for Loose {
    fn write(&mut self, datagram: &[u8]) -> std::io::Result<usize> {
        self.datagrams += 1;
        if !self.datagrams.is_multiple_of(self.loses_every) {
            self.socket.send(datagram)?;
        }
        Ok(datagram.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl KcpClient {
    pub(crate) fn connect(address: SocketAddr, conversation: u32, loses_every: usize) -> KcpClient {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.connect(address).expect("an address");
        KcpClient::over(socket, conversation, loses_every)
    }

    /// Begins another conversation from the same port, as a client does that was started again.
    pub(crate) fn begin_again(&self, conversation: u32) -> KcpClient {
        KcpClient::over(self.socket.try_clone().expect("a socket"), conversation, usize::MAX)
    }

    /// Sends a datagram as anybody can who writes this client's address on it.
    pub(crate) fn forge(&self, datagram: &[u8]) {
        self.socket.send(datagram).expect("loopback takes it");
    }

    fn over(socket: UdpSocket, conversation: u32, loses_every: usize) -> KcpClient {
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("it can be set");
        let output = Loose { socket: socket.try_clone().expect("a socket"), loses_every, datagrams: 0 };
        let mut machine = Kcp::new(conversation, output);
        machine.set_nodelay(true, 10, 2, true);
        machine.update(0).expect("it runs");
        let reader = FrameReader::with_dialect(Dialect::Fixed);
        KcpClient { socket, machine, began: Instant::now(), reader, received: Vec::new(), loses_every, datagrams: 0 }
    }

    pub(crate) fn send(&mut self, header: Header, body: &[u8]) {
        let (mut entries, mut bytes) = (Vec::new(), Vec::new());
        put_message(&mut entries, header, body);
        PacketWriter::new().write(Dialect::Fixed, &entries, &mut bytes);
        self.send_raw(&bytes);
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(self.machine.mss()) {
            self.machine.send(piece).expect("it is short");
        }
    }

    pub(crate) fn turn(&mut self) {
        let now_ms = self.began.elapsed().as_millis() as u32;
        self.machine.update(now_ms).expect("it runs");
        let mut datagram = [0; 2_000];
        while let Ok(count) = self.socket.recv(&mut datagram) {
            self.datagrams += 1;
            // Answers to other users of this address do not belong to this conversation.
            let is_ours = datagram[..4] == self.machine.conv().to_le_bytes();
            if is_ours && !self.datagrams.is_multiple_of(self.loses_every) {
                self.machine.input(&datagram[..count]).expect("sound");
            }
        }
        while let Ok(bytes) = self.machine.peeksize() {
            let mut piece = vec![0; bytes];
            self.machine.recv(&mut piece).expect("it is there");
            self.reader.push(&piece).expect("frames are taken");
            while let Some(frame) = self.reader.next_frame().expect("sound") {
                self.received.extend(Messages::new(frame.payload).map(|message| message.expect("sound")));
            }
        }
    }

    pub(crate) fn wait_for(&mut self, msg_type: u32) -> Message {
        let deadline = soon();
        loop {
            if let Some(index) = self.received.iter().position(|message| message.msg_type == msg_type) {
                return self.received.remove(index);
            }
            assert!(Instant::now() < deadline, "no message of type {msg_type} within 20 s");
            self.turn();
        }
    }

    /// Logs in, and does not wait for the answer.
    pub(crate) fn knock(&mut self) {
        let auth =
            AuthMessage { player_identifier_token: "kay".into(), login_token: String::new(), ..Default::default() };
        self.send(Header::new(0, message_type::AUTH), &prost::Message::encode_to_vec(&auth));
    }

    /// Logs in. Its connection id.
    pub(crate) fn join(&mut self) -> u32 {
        self.knock();
        let result: AuthResultMessage = self.wait_for(message_type::AUTH).decode().expect("an answer");
        result.conn_id
    }

    pub(crate) fn echo(&mut self, payload: &[u8]) {
        self.send(Header::new(0, ECHO), payload);
        assert_eq!(payload_of(&self.wait_for(ECHO).body), payload);
    }
}
