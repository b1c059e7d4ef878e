//! A gateway with just enough features for a small load, which can make mistakes on request: a load test that does not
//! notice them measures nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prost::Message as _;
use throng_channeld::message_type as kinds;
use throng_channeld::proto::unrealpb::{ActorState, SpatialChannelData, SpatialEntityState};
use throng_channeld::proto::{
    Any, AuthResultMessage, ChannelDataHandoverMessage, ChannelDataUpdateMessage, ChannelType, CreateChannelMessage,
    CreateChannelResultMessage, CreateEntityChannelMessage, CreateSpatialChannelsResultMessage,
    QuerySpatialChannelMessage, QuerySpatialChannelResultMessage, ServerForwardMessage, SpatialChannelsReadyMessage,
    SpatialInfo, SubscribedToChannelMessage, SubscribedToChannelResultMessage, UnsubscribedFromChannelMessage,
    UpdateSpatialInterestMessage,
};
use throng_channeld::{
    Broadcast, Dialect, FIRST_ENTITY_CHANNEL, FIRST_SPATIAL_CHANNEL, FrameReader, GLOBAL_CHANNEL, Header, Message,
    Messages, PacketWriter, put_body, put_message,
};

const CELLS: u32 = 15;
const SERVERS: u32 = 3;
const CELL_CM: f64 = 2_000.0;
const TICK: Duration = Duration::from_millis(20);

/// The planned mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// One in this many calls is lost.
    LosesCall(u32),
    /// One in this many calls arrives twice.
    DoublesCall(u32),
    /// One in this many updates is not sent.
    DropsUpdate(u32),
}

/// The gateway, in a thread of its own until it is dropped.
pub(crate) struct StandIn {
    pub(crate) servers: SocketAddr,
    pub(crate) clients: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    pub(crate) fn start(mistake: Mistake) -> StandIn {
        let listen = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let listeners = [listen(), listen()];
        let [servers, clients] = [0, 1].map(|side: usize| listeners[side].local_addr().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut gateway = Gateway::new(mistake);
            while !stopped.load(Ordering::Relaxed) {
                gateway.round(&listeners);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        StandIn { servers, clients, stop, thread: Some(thread) }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.thread.take().is_some_and(|thread| thread.join().is_err());
        assert!(!failed || std::thread::panicking(), "the stand-in has failed");
    }
}

struct Peer {
    stream: TcpStream,
    reader: FrameReader,
    out: Vec<u8>,
    is_server: bool,
    is_open: bool,
}

#[derive(Default)]
struct Channel {
    owner: u32,
    /// By connection: its interval, and when it was last sent something.
    subscribers: BTreeMap<u32, (Duration, Option<Instant>, u64)>,
    newest: Option<Message>,
    version: u64,
    entities: BTreeSet<u32>,
    cell: u32,
}

struct Gateway {
    mistake: Mistake,
    /// The peer of connection 1 is the first.
    peers: Vec<Peer>,
    channels: BTreeMap<u32, Channel>,
    spatial_servers: Vec<u32>,
    next_tick: Instant,
    calls: u32,
    updates: u32,
}

impl Gateway {
    fn new(mistake: Mistake) -> Gateway {
        Gateway {
            mistake,
            peers: Vec::new(),
            channels: BTreeMap::from([(GLOBAL_CHANNEL, Channel::default())]),
            spatial_servers: Vec::new(),
            next_tick: Instant::now(),
            calls: 0,
            updates: 0,
        }
    }

    fn round(&mut self, listeners: &[TcpListener; 2]) {
        for (side, listener) in listeners.iter().enumerate() {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).unwrap();
                let (reader, out) = (FrameReader::new(), Vec::new());
                self.peers.push(Peer { stream, reader, out, is_server: side == 0, is_open: true });
            }
        }
        for index in 0..self.peers.len() {
            for message in self.peers[index].receive() {
                self.take(index as u32 + 1, message);
            }
        }
        if Instant::now() >= self.next_tick {
            self.next_tick += TICK;
            self.fan_out();
        }
        self.peers.iter_mut().for_each(Peer::flush);
    }

    fn fan_out(&mut self) {
        let now = Instant::now();
        for channel in self.channels.values_mut() {
            let Some(newest) = &channel.newest else { continue };
            for (&connection, (interval, last, seen)) in &mut channel.subscribers {
                // Half a tick early is nearer than half a tick late.
                let is_due = last.is_none_or(|last| now + TICK / 2 >= last + *interval);
                if *seen == channel.version || !is_due || connection == channel.owner {
                    continue;
                }
                *seen = channel.version;
                *last = Some(last.map_or(now, |last| (last + *interval).max(now - *interval)));
                self.updates += 1;
                if matches!(self.mistake, Mistake::DropsUpdate(every) if self.updates.is_multiple_of(every)) {
                    continue;
                }
                put_message(&mut self.peers[connection as usize - 1].out, newest.header(), &newest.body);
            }
        }
    }

    fn say(&mut self, to: u32, header: Header, body: &impl prost::Message) {
        put_body(&mut self.peers[to as usize - 1].out, header, body);
    }

    fn take(&mut self, from: u32, message: Message) {
        let header = Header { broadcast: 0, ..message.header() };
        match message.msg_type {
            kinds::AUTH => {
                let result = AuthResultMessage { conn_id: from, ..AuthResultMessage::default() };
                self.say(from, header, &result);
                let master = self.channels[&GLOBAL_CHANNEL].owner;
                if master != 0 {
                    self.say(master, header, &result);
                }
            }
            kinds::CREATE_CHANNEL => self.create(from, header, &message.decode().unwrap()),
            kinds::CREATE_ENTITY_CHANNEL => self.create_entity(from, header, message.decode().unwrap()),
            kinds::SUB_TO_CHANNEL => {
                let subscribe: SubscribedToChannelMessage = message.decode().unwrap();
                let interval_ms = subscribe.sub_options.and_then(|options| options.fan_out_interval_ms).unwrap_or(20);
                self.subscribe(from, header, subscribe.conn_id, interval_ms);
            }
            kinds::UNSUB_FROM_CHANNEL => {
                let unsubscribe: UnsubscribedFromChannelMessage = message.decode().unwrap();
                if let Some(channel) = self.channels.get_mut(&message.channel_id) {
                    channel.subscribers.remove(&unsubscribe.conn_id);
                }
            }
            kinds::CHANNEL_DATA_UPDATE => self.update(message),
            kinds::QUERY_SPATIAL_CHANNEL => {
                let query: QuerySpatialChannelMessage = message.decode().unwrap();
                let channel_id = query.spatial_info.iter().map(|at| cell_at(at.x, at.z)).collect();
                self.say(from, header, &QuerySpatialChannelResultMessage { channel_id });
            }
            kinds::UPDATE_SPATIAL_INTEREST => self.look(&message.decode().unwrap()),
            kinds::USER_SPACE_START.. if self.peers[from as usize - 1].is_server => self.forward(message),
            kinds::USER_SPACE_START.. => self.call(from, message),
            other => panic!("nobody here understands {other}"),
        }
    }

    fn create(&mut self, from: u32, header: Header, create: &CreateChannelMessage) {
        if create.channel_type() == ChannelType::Global {
            self.channels.get_mut(&GLOBAL_CHANNEL).unwrap().owner = from;
            let result = CreateChannelResultMessage { owner_conn_id: from, ..CreateChannelResultMessage::default() };
            return self.say(from, header, &result);
        }
        assert_eq!(create.channel_type(), ChannelType::Spatial);
        let slot = self.spatial_servers.len() as u32;
        self.spatial_servers.push(from);
        let mut spatial_channel_id = Vec::new();
        for cell in 0..CELLS * CELLS {
            let (column, row) = (cell % CELLS, cell / CELLS);
            let each = CELLS / SERVERS;
            if column / each + row / each * SERVERS == slot {
                spatial_channel_id.push(FIRST_SPATIAL_CHANNEL + cell);
                let subscribers = BTreeMap::from([(from, (TICK, None, 0))]);
                let channel = Channel { owner: from, subscribers, ..Channel::default() };
                self.channels.insert(FIRST_SPATIAL_CHANNEL + cell, channel);
            }
        }
        let result =
            CreateSpatialChannelsResultMessage { spatial_channel_id, owner_conn_id: from, ..Default::default() };
        self.say(from, Header { msg_type: kinds::CREATE_SPATIAL_CHANNEL, ..header }, &result);
        if slot + 1 == SERVERS * SERVERS {
            let ready = SpatialChannelsReadyMessage::default();
            let master = self.channels[&GLOBAL_CHANNEL].owner;
            self.say(master, Header::new(0, kinds::SPATIAL_CHANNELS_READY), &ready);
        }
    }

    fn create_entity(&mut self, from: u32, header: Header, create: CreateEntityChannelMessage) {
        assert!(create.entity_id >= FIRST_ENTITY_CHANNEL, "{:x}", create.entity_id);
        let cell = header.channel_id;
        let channel = Channel { owner: from, cell, ..Channel::default() };
        self.channels.insert(create.entity_id, channel);
        self.channels.get_mut(&cell).unwrap().entities.insert(create.entity_id);
        let (owner_conn_id, channel_id) = (from, create.entity_id);
        let result = CreateChannelResultMessage { owner_conn_id, channel_id, ..CreateChannelResultMessage::default() };
        self.say(from, header, &result);
    }

    fn subscribe(&mut self, from: u32, header: Header, connection: u32, interval_ms: u32) {
        let Some(channel) = self.channels.get_mut(&header.channel_id) else { return };
        let interval = Duration::from_millis(u64::from(interval_ms));
        let entry = channel.subscribers.entry(connection);
        let is_new = matches!(entry, std::collections::btree_map::Entry::Vacant(_));
        entry.or_insert((interval, None, 0)).0 = interval;
        let result = SubscribedToChannelResultMessage { conn_id: connection, ..Default::default() };
        if is_new {
            self.say(from, header, &result);
            self.say(connection, Header { stub_id: 0, ..header }, &result);
        }
    }

    fn look(&mut self, update: &UpdateSpatialInterestMessage) {
        let sphere = update.query.as_ref().and_then(|query| query.sphere_aoi.as_ref()).expect("a sphere");
        let SpatialInfo { x, z, .. } = sphere.center.expect("a centre");
        for cell in 0..CELLS * CELLS {
            let off = |at: f64, number: u32| {
                let low = f64::from(number) * CELL_CM;
                (low - at).max(at - low - CELL_CM).max(0.0)
            };
            let is_seen = off(x, cell % CELLS).hypot(off(z, cell / CELLS)) <= sphere.radius;
            let channel = self.channels.get_mut(&(FIRST_SPATIAL_CHANNEL + cell)).expect("all cells");
            if is_seen {
                channel.subscribers.entry(update.conn_id).or_insert((TICK, None, 0));
            } else {
                channel.subscribers.remove(&update.conn_id);
            }
        }
    }

    fn update(&mut self, message: Message) {
        let id = message.channel_id;
        let channel = self.channels.get_mut(&id).unwrap_or_else(|| panic!("no channel {id}"));
        channel.version += 1;
        let before = channel.cell;
        let location = (before != 0).then(|| location(&message)).flatten();
        channel.newest = Some(message);
        if let Some((x, y)) = location {
            let cell = cell_at(x, y);
            if cell != before {
                self.hand_over(id, before, cell);
            }
        }
    }

    fn hand_over(&mut self, entity: u32, from: u32, to: u32) {
        self.channels.get_mut(&from).unwrap().entities.remove(&entity);
        let target = self.channels.get_mut(&to).unwrap();
        target.entities.insert(entity);
        let (owner, seers) = (target.owner, target.subscribers.clone());
        let channel = self.channels.get_mut(&entity).unwrap();
        (channel.owner, channel.cell) = (owner, to);
        for (connection, subscription) in &seers {
            channel.subscribers.entry(*connection).or_insert(*subscription);
        }
        let data = SpatialChannelData { entities: [(entity, SpatialEntityState::default())].into() };
        let message = ChannelDataHandoverMessage {
            src_channel_id: from,
            dst_channel_id: to,
            data: Some(Any::pack(&data)),
            ..ChannelDataHandoverMessage::default()
        };
        let mut hearers: BTreeSet<u32> = seers.keys().copied().collect();
        hearers.extend(self.channels[&from].subscribers.keys());
        for connection in hearers {
            self.say(connection, Header::new(to, kinds::CHANNEL_DATA_HANDOVER), &message);
        }
    }

    fn call(&mut self, from: u32, message: Message) {
        self.calls += 1;
        let owner = self.channels[&message.channel_id].owner;
        let forward = ServerForwardMessage { client_conn_id: from, payload: message.body.clone() };
        let times = match self.mistake {
            Mistake::LosesCall(every) if self.calls.is_multiple_of(every) => 0,
            Mistake::DoublesCall(every) if self.calls.is_multiple_of(every) => 2,
            _ => 1,
        };
        for _ in 0..times {
            self.say(owner, Header { broadcast: 0, ..message.header() }, &forward);
        }
    }

    fn forward(&mut self, message: Message) {
        let forward: ServerForwardMessage = message.decode().unwrap();
        if message.broadcast == Broadcast::SINGLE_CONNECTION.0 {
            put_message(
                &mut self.peers[forward.client_conn_id as usize - 1].out,
                Header { broadcast: 0, ..message.header() },
                &message.body,
            );
        }
    }
}

impl Peer {
    fn receive(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut buffer = [0; 65_536];
        while self.is_open {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.is_open = false,
                Ok(bytes) => self.reader.push(&buffer[..bytes]).unwrap(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_open = false,
            }
            while let Some(frame) = self.reader.next_frame().unwrap() {
                messages.extend(Messages::new(frame.payload).map(Result::unwrap));
            }
        }
        messages
    }

    fn flush(&mut self) {
        let mut bytes = Vec::new();
        PacketWriter::new().write(Dialect::Fixed, &self.out, &mut bytes);
        self.out.clear();
        let mut rest = &bytes[..];
        let until = Instant::now() + Duration::from_secs(2);
        while self.is_open && !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(_) => self.is_open = false,
            }
        }
    }
}

/// The channel of the cell at a position on the ground.
fn cell_at(x: f64, y: f64) -> u32 {
    let number = |at: f64| ((at / CELL_CM).floor().max(0.0) as u32).min(CELLS - 1);
    FIRST_SPATIAL_CHANNEL + number(x) + number(y) * CELLS
}

/// Where the entity of an update is: field 2 of its data is an actor.
fn location(message: &Message) -> Option<(f64, f64)> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Entity {
        #[prost(message, optional, tag = "2")]
        actor: Option<ActorState>,
    }
    let update: ChannelDataUpdateMessage = message.decode().ok()?;
    let entity = Entity::decode(update.data?.value).ok()?;
    let location = entity.actor?.replicated_movement?.location?;
    Some((f64::from(location.x?), f64::from(location.y?)))
}
