//! naia's sockets on the harness's buffers. Data of a signalling server for the transports (an identity token for each
//! client) goes through a table.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use naia_client::transport as client;
use naia_server::transport as server;
use naia_shared::IdentityToken;
use peers_harness::Packets;

fn address_of(client: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(client), 1))
}

/// The client that has an address.
pub(crate) fn client_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(address) => u32::from(*address.ip()),
        SocketAddr::V6(_) => unreachable!("all addresses are ours"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with it")
}

/// The server's end.
#[derive(Clone, Default)]
pub(crate) struct ServerPort {
    shared: Arc<Mutex<ServerQueues>>,
    tokens: Arc<Mutex<HashMap<u32, IdentityToken>>>,
    /// The packet that was received last: naia borrows it.
    current: Vec<u8>,
}

#[derive(Default)]
struct ServerQueues {
    knocks: VecDeque<u32>,
    incoming: VecDeque<(u32, Vec<u8>)>,
    outgoing: Packets,
}

impl ServerPort {
    /// A client wants in.
    pub(crate) fn knock(&self, client: u32) {
        lock(&self.shared).knocks.push_back(client);
    }

    /// Queues the packets that clients sent.
    pub(crate) fn fill(&self, packets: &Packets) {
        let incoming = packets.iter().map(|packet| (packet.client, packet.bytes.to_vec()));
        lock(&self.shared).incoming.extend(incoming);
    }

    /// Takes the packets that the server sent.
    pub(crate) fn swap_outgoing(&self, packets: &mut Packets) {
        std::mem::swap(packets, &mut lock(&self.shared).outgoing);
    }
}

impl From<ServerPort> for Box<dyn server::Socket> {
    fn from(port: ServerPort) -> Self {
        Box::new(port)
    }
}

impl server::Socket for ServerPort {
    fn listen(self: Box<Self>) -> server::ListenResult {
        (self.clone(), Box::new(Door(self.clone())), self.clone(), self)
    }
}

impl server::PacketSender for ServerPort {
    fn send(&self, address: &SocketAddr, payload: &[u8]) -> Result<(), server::SendError> {
        lock(&self.shared).outgoing.push(client_of(*address), 0, payload);
        Ok(())
    }
}

impl server::PacketReceiver for ServerPort {
    fn receive(&mut self) -> Result<Option<(SocketAddr, &[u8])>, server::RecvError> {
        let Some((client, bytes)) = lock(&self.shared).incoming.pop_front() else { return Ok(None) };
        self.current = bytes;
        Ok(Some((address_of(client), &self.current)))
    }
}

impl server::AuthSender for ServerPort {
    fn accept(&self, address: &SocketAddr, token: &IdentityToken) -> Result<(), server::SendError> {
        lock(&self.tokens).insert(client_of(*address), token.clone());
        Ok(())
    }

    fn reject(&self, _: &SocketAddr) -> Result<(), server::SendError> {
        Ok(())
    }
}

#[derive(Clone)]
struct Door(Box<ServerPort>);

impl server::AuthReceiver for Door {
    fn receive(&mut self) -> Result<Option<(SocketAddr, &[u8])>, server::RecvError> {
        let knock = lock(&self.0.shared).knocks.pop_front();
        Ok(knock.map(|client| (address_of(client), &[][..])))
    }
}

/// A client's end.
#[derive(Clone)]
pub(crate) struct ClientPort {
    number: u32,
    tokens: Arc<Mutex<HashMap<u32, IdentityToken>>>,
    queues: Arc<Mutex<ClientQueues>>,
    current: Vec<u8>,
}

#[derive(Default)]
struct ClientQueues {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
}

impl ClientPort {
    pub(crate) fn new(number: u32, server: &ServerPort) -> ClientPort {
        ClientPort { number, tokens: Arc::clone(&server.tokens), queues: Arc::default(), current: Vec::new() }
    }

    /// Queues a packet that the server sent.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        lock(&self.queues).incoming.push_back(bytes.to_vec());
    }

    /// Takes the packets that the client sent.
    pub(crate) fn drain(&self, mut sink: impl FnMut(&[u8])) {
        lock(&self.queues).outgoing.drain(..).for_each(|bytes| sink(&bytes));
    }

    fn connected(
        self: Box<Self>,
    ) -> (Box<dyn client::IdentityReceiver>, Box<dyn client::PacketSender>, Box<dyn client::PacketReceiver>) {
        (self.clone(), self.clone(), self)
    }
}

impl From<ClientPort> for Box<dyn client::Socket> {
    fn from(port: ClientPort) -> Self {
        Box::new(port)
    }
}

type ClientHandles =
    (Box<dyn client::IdentityReceiver>, Box<dyn client::PacketSender>, Box<dyn client::PacketReceiver>);

impl client::Socket for ClientPort {
    fn connect(self: Box<Self>) -> ClientHandles {
        self.connected()
    }

    fn connect_with_auth(self: Box<Self>, _: Vec<u8>) -> ClientHandles {
        self.connected()
    }

    fn connect_with_auth_headers(self: Box<Self>, _: Vec<(String, String)>) -> ClientHandles {
        self.connected()
    }

    fn connect_with_auth_and_headers(self: Box<Self>, _: Vec<u8>, _: Vec<(String, String)>) -> ClientHandles {
        self.connected()
    }
}

fn server_address() -> client::ServerAddr {
    client::ServerAddr::Found(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))
}

impl client::PacketSender for ClientPort {
    fn send(&self, payload: &[u8]) -> Result<(), client::SendError> {
        lock(&self.queues).outgoing.push(payload.to_vec());
        Ok(())
    }

    fn server_addr(&self) -> client::ServerAddr {
        server_address()
    }
}

impl client::PacketReceiver for ClientPort {
    fn receive(&mut self) -> Result<Option<&[u8]>, client::RecvError> {
        let Some(bytes) = lock(&self.queues).incoming.pop_front() else { return Ok(None) };
        self.current = bytes;
        Ok(Some(&self.current))
    }

    fn server_addr(&self) -> client::ServerAddr {
        server_address()
    }
}

impl client::IdentityReceiver for ClientPort {
    fn receive(&mut self) -> client::IdentityReceiverResult {
        match lock(&self.tokens).get(&self.number) {
            Some(token) => client::IdentityReceiverResult::Success(token.clone()),
            None => client::IdentityReceiverResult::Waiting,
        }
    }
}
