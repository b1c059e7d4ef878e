//! A gateway on loopback with a world server that sends back what clients say.
#![allow(dead_code)] // each test file uses its part

pub(crate) mod kcp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use prost::Message as _;
use throng_channeld::client::{Client, ClientError, ClientOptions};
use throng_channeld::proto::{AuthMessage, ChannelType, CreateChannelMessage, ServerForwardMessage};
use throng_channeld::{Broadcast, Dialect, Header, PacketWriter, message_type, put_body};
use throng_gateway::auth::{AcceptAll, DeskLimits, Provider};
use throng_gateway::serve::{DoorOptions, Gateway, LinkOptions, Parts, Reason, ServeError, ServeOptions, Transport};
use throng_gateway::settings;
use throng_gateway_engine::Engine;
use throng_gateway_engine::port::Side;
use throng_gateway_engine::shards::Shards;
use throng_link::netcode::{ConnectToken, ConnectTokenOptions};
use throng_protostate::Schemas;
use throng_testkit::{token_now, token_options_now};
use throng_wire::Time;

/// The messages of the tests through the gateway.
pub(crate) const ECHO: u32 = 150;
/// Asks the world server for as many messages of 50,000 bytes as the body's first two bytes say.
pub(crate) const FLOOD: u32 = 151;
pub(crate) const FLOOD_BYTES: usize = 50_000;

/// The key of doors of the link.
pub(crate) const LINK_KEY: [u8; 32] = [7; 32];

/// A token for a door of the link with [`LINK_KEY`].
pub(crate) fn token(address: SocketAddr, client_id: u64) -> ConnectToken {
    token_with(LINK_KEY, address, client_id)
}

/// The same with another key.
pub(crate) fn token_with(key: [u8; 32], address: SocketAddr, client_id: u64) -> ConnectToken {
    token_now(LinkOptions::PROTOCOL_ID, key, address, client_id)
}

/// The options of such a token.
pub(crate) fn token_options(address: SocketAddr, client_id: u64) -> ConnectTokenOptions {
    token_options_now(LinkOptions::PROTOCOL_ID, address, client_id)
}

/// Everything here answers within milliseconds; a machine that is busy may take longer.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Tries until it holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = soon();
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within 20 s");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs parts of a test beside each other, because they wait more than they compute.
pub(crate) fn beside_each_other(parts: &[&(dyn Fn() + Sync)]) {
    thread::scope(|scope| parts.iter().for_each(|part| drop(scope.spawn(part))));
}

pub(crate) struct Serving {
    pub(crate) gateway: Gateway,
    world: Option<JoinHandle<()>>,
}

/// A gateway with a server door (TCP) and a client door, and the world server behind it.
pub(crate) fn serve(transport: Transport, change: impl FnOnce(&mut ServeOptions)) -> Serving {
    serve_with(transport, &[], Arc::new(AcceptAll), change)
}

pub(crate) fn serve_with(
    transport: Transport,
    arguments: &[&str],
    provider: Arc<dyn Provider>,
    change: impl FnOnce(&mut ServeOptions),
) -> Serving {
    let gateway = bare(transport, arguments, provider, change);
    let address = gateway.addresses()[0];
    let mut world = Client::connect(address, ClientOptions::default()).expect("the server door is open");
    world.authenticate("world", "", soon()).expect("servers are let in");
    let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
    world.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
    world.wait_for(message_type::CREATE_CHANNEL, soon()).expect("it owns the world");
    let world = thread::spawn(move || while answer(&mut world).is_ok() {});
    Serving { gateway, world: Some(world) }
}

/// A gateway without a world server.
pub(crate) fn bare(
    transport: Transport,
    arguments: &[&str],
    provider: Arc<dyn Provider>,
    change: impl FnOnce(&mut ServeOptions),
) -> Gateway {
    try_bare(transport, arguments, provider, change).expect("loopback has free ports")
}

/// The same, if it can be started.
pub(crate) fn try_bare(
    transport: Transport,
    arguments: &[&str],
    provider: Arc<dyn Provider>,
    change: impl FnOnce(&mut ServeOptions),
) -> Result<Gateway, ServeError> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let doors =
        vec![DoorOptions::new(Side::Server, Transport::Tcp, any), DoorOptions::new(Side::Client, transport, any)];
    let mut options = ServeOptions { doors, http: Some(any), io_threads: 2, ..ServeOptions::new() };
    // Clients here stop looking at their sockets when they have seen enough.
    options.doors[1].limits.flush = Duration::from_millis(300);
    options.drain = Duration::from_millis(500);
    change(&mut options);
    let arguments: Vec<&str> = ["-dev"].iter().chain(arguments).copied().collect();
    let settings = settings::load(&arguments).expect("sound arguments");
    let shards = Shards::new(settings.engine_threads, settings.engine.spatial_channel_start);
    let settings = Arc::new(settings.engine);
    let schemas = Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("our own files are sound");
    let schemas = Arc::new(schemas);
    let engine = |number| {
        let mut engine = Engine::new(Arc::clone(&settings), Arc::clone(&schemas), 7, (Time(0), 0));
        engine.set_share(number, shards.clone());
        if options.home.is_some() {
            engine.set_edge();
        }
        engine
    };
    let parts = Parts {
        engines: (0..shards.count()).map(engine).collect(),
        provider,
        desk: DeskLimits::default(),
        render: Arc::new(|report, _| format!("clients {}\n", report.occupancy.clients)),
        snapshot_file: None,
    };
    Gateway::start(&options, parts)
}

/// The world server's reaction to one message.
fn answer(world: &mut Client) -> Result<(), ClientError> {
    let message = world.wait_for_any(Instant::now() + Duration::from_secs(600))?;
    let Ok(forward) = message.decode::<ServerForwardMessage>() else { return Ok(()) };
    let header = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..message.header() };
    match message.msg_type {
        ECHO => world.send(header, &forward),
        FLOOD => {
            let count = u16::from_le_bytes([forward.payload[0], forward.payload[1]]);
            let payload = vec![7; FLOOD_BYTES].into();
            let flood = ServerForwardMessage { client_conn_id: forward.client_conn_id, payload };
            let mut entries = Vec::new();
            put_body(&mut entries, header, &flood);
            (0..count).try_for_each(|_| world.send_entries(&entries))
        }
        _ => Ok(()),
    }
}

trait WaitForAny {
    fn wait_for_any(&mut self, deadline: Instant) -> Result<throng_channeld::Message, ClientError>;
}

impl WaitForAny for Client {
    fn wait_for_any(&mut self, deadline: Instant) -> Result<throng_channeld::Message, ClientError> {
        self.poll(deadline)?.ok_or(ClientError::Closed)
    }
}

impl Serving {
    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[1]
    }

    pub(crate) fn connect(&self, options: ClientOptions) -> Client {
        Client::connect(self.address(), options).expect("the door is open")
    }

    pub(crate) fn join(&self, options: ClientOptions) -> Client {
        let mut client = self.connect(options);
        client.authenticate("player", "secret", soon()).expect("it is let in");
        client
    }

    pub(crate) fn refused(&self, reason: Reason) -> u64 {
        self.gateway.counters().of(Side::Client).refused(reason)
    }

    /// Waits until this many were refused for this reason: a peer may see the end of its connection before it is
    /// counted.
    pub(crate) fn counts(&self, reason: Reason, count: u64) {
        eventually(reason.tag(), || self.refused(reason) >= count);
        assert_eq!(self.refused(reason), count, "{reason:?}");
    }

    pub(crate) fn end(mut self) {
        self.gateway.shut_down();
        if let Some(world) = self.world.take() {
            world.join().expect("the world server met nothing strange");
        }
    }
}

/// Sends a message through the gateway to the world server, and waits until it comes back.
pub(crate) fn echo(client: &mut Client, payload: &[u8]) {
    client.send_bytes(Header::new(0, ECHO), payload).expect("connected");
    let answer = client.wait_for(ECHO, soon()).expect("it comes back");
    assert_eq!(payload_of(&answer.body), payload);
}

/// The payload of a server's message to a client.
pub(crate) fn payload_of(body: &[u8]) -> Vec<u8> {
    ServerForwardMessage::decode(body).expect("it is forwarded").payload.to_vec()
}

/// Waits for the end of a connection, and throws away what comes before.
pub(crate) fn wait_for_end(client: &mut Client) -> ClientError {
    loop {
        match client.poll(soon()) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the connection is still open"),
            Err(error) => return error,
        }
    }
}

/// A frame with any payload.
pub(crate) fn frame(compression: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    [&[0x43, 0x48, high, low, compression], payload].concat()
}

/// A login, as it is sent.
pub(crate) fn auth_frame() -> Vec<u8> {
    let auth = AuthMessage { player_identifier_token: "ada".into(), login_token: String::new(), ..Default::default() };
    let (mut entries, mut bytes) = (Vec::new(), Vec::new());
    put_body(&mut entries, Header::new(0, message_type::AUTH), &auth);
    PacketWriter::new().write(Dialect::Fixed, &entries, &mut bytes);
    bytes
}
