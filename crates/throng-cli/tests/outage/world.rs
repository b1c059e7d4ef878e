//! A world server in a process of its own: it moves entities through two cells, and says on its standard output what it
//! knows.
//!
//! ```text
//! world begun     <connection id> <doubled> <entity>=<step> ...      it has made everything anew, from its own memory
//! world recovered <connection id> <doubled> <entity>=<step> ...      it was given everything back
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use prost::Message as _;
use throng_channeld::client::{Client, ClientError};
use throng_channeld::proto::{
    Any, AuthResultMessage, ChannelDataAccess, ChannelDataRecoveryMessage, ChannelDataUpdateMessage,
    ChannelSubscriptionOptions, ChannelType, CreateChannelMessage, CreateEntityChannelMessage,
    SubscribedToChannelMessage, TransformState, Vector3f,
};
use throng_channeld::{
    FIRST_ENTITY_CHANNEL, FIRST_SPATIAL_CHANNEL, GLOBAL_CHANNEL, Header, Message, message_type, put_body,
};

use super::{GatewayProcess, come_in};

/// Two cells of ten metres, one server.
pub(crate) const SPATIAL: &str = r#"{ "SpatialControllerType": "StaticGrid2D", "Config": {
    "WorldOffsetX": 0, "WorldOffsetZ": 0, "GridWidth": 10, "GridHeight": 10, "GridCols": 2, "GridRows": 1,
    "ServerCols": 1, "ServerRows": 1, "ServerInterestBorderSize": 0 } }"#;

/// Entities of the world.
pub(crate) const ENTITIES: u32 = 30;

const CELLS: u32 = 2;
const FRAME: Duration = Duration::from_millis(20);
/// Names the address of the gateway to the process.
const ADDRESS: &str = "THRONG_TEST_WORLD_SERVERS";

/// The entities' ids.
pub(crate) fn entities() -> impl Iterator<Item = u32> {
    FIRST_ENTITY_CHANNEL..FIRST_ENTITY_CHANNEL + ENTITIES
}

/// The process, seen from the test.
pub(crate) struct World {
    process: Child,
    words: Receiver<String>,
}

/// Its output.
#[derive(Debug)]
pub(crate) struct Word {
    /// The step of each entity.
    pub(crate) entities: BTreeMap<u32, u32>,
    /// Channels that it received more than once.
    pub(crate) doubled: u32,
    /// The first connection id that a gateway in development mode gives.
    pub(crate) is_under_former_id: bool,
}

impl World {
    /// Starts it: this program, asked for nothing but [`play`].
    pub(crate) fn start(gateway: &GatewayProcess) -> World {
        let mut process = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", "gateway_killed::world_server", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ADDRESS, gateway.servers.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let out = BufReader::new(process.stdout.take().expect("its output is ours"));
        let (sender, words) = channel();
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        World { process, words }
    }

    /// SIGKILL: it has no time for anything.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Waits until it says this.
    pub(crate) fn wait_for(&mut self, what: &str, deadline: Instant) -> Word {
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            let line = self.words.recv_timeout(wait).unwrap_or_else(|error| panic!("the world: {what}: {error}"));
            // The test harness writes into the same line.
            let Some(said) = line.split("world ").nth(1).and_then(|said| said.strip_prefix(what)) else { continue };
            let mut fields = said.split_whitespace();
            let mut number = || fields.next().and_then(|field| field.parse::<u32>().ok()).expect("a number");
            let (id, doubled) = (number(), number());
            let entity = |field: &str| -> Option<(u32, u32)> {
                let (entity, step) = field.split_once('=')?;
                Some((entity.parse().ok()?, step.parse().ok()?))
            };
            let entities = fields.map(|field| entity(field).expect("an entity and its step")).collect();
            return Word { entities, doubled, is_under_former_id: id == 1 };
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // An error here means that it was already killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The process itself, until its input ends.
pub(crate) fn play() {
    let Some(address) = std::env::var(ADDRESS).ok().and_then(|address| address.parse::<SocketAddr>().ok()) else {
        return;
    };
    let stop: &'static AtomicBool = Box::leak(Box::default());
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Ordering::Relaxed);
    });
    let mut steps: BTreeMap<u32, u32> = entities().map(|entity| (entity, 1)).collect();
    while let Some((client, recovers)) = come_in(address, "world", stop) {
        let served = serve(client, recovers, &mut steps, stop);
        if let Err(error) = served {
            println!("world without a gateway: {error}");
        }
    }
}

fn serve(
    mut client: Client,
    recovers: bool,
    steps: &mut BTreeMap<u32, u32>,
    stop: &AtomicBool,
) -> Result<(), ClientError> {
    let (what, doubled) = match recovers {
        true => ("recovered", take_over(&mut client, steps)?),
        false => {
            begin(&mut client, steps)?;
            ("begun", 0)
        }
    };
    let known: Vec<String> = steps.iter().map(|(entity, step)| format!("{entity}={step}")).collect();
    println!("\nworld {what} {} {doubled} {}", client.connection_id(), known.join(" "));
    while !stop.load(Ordering::Relaxed) {
        let frame_end = Instant::now() + FRAME;
        while let Some(message) = client.poll(frame_end)? {
            welcome(&mut client, &message)?;
        }
        move_all(&mut client, steps)?;
    }
    Ok(())
}

/// Everything is made from what this process knows: at its first start, and when the gateway has lost everything.
fn begin(client: &mut Client, steps: &BTreeMap<u32, u32>) -> Result<(), ClientError> {
    for kind in [ChannelType::Global, ChannelType::Spatial] {
        let create = CreateChannelMessage { channel_type: kind.into(), ..Default::default() };
        client.send(Header::new(GLOBAL_CHANNEL, message_type::CREATE_CHANNEL), &create)?;
    }
    let mut entries = Vec::new();
    for (&entity_id, &step) in steps {
        let options = ChannelSubscriptionOptions {
            data_access: Some(ChannelDataAccess::WriteAccess.into()),
            ..Default::default()
        };
        let data = Some(standing(entity_id, step));
        let create = CreateEntityChannelMessage { entity_id, sub_options: Some(options), data, ..Default::default() };
        put_body(&mut entries, Header::new(GLOBAL_CHANNEL, message_type::CREATE_ENTITY_CHANNEL), &create);
    }
    client.send_entries(&entries)
}

/// Everything is taken from what the gateway kept. The number of channels that came twice.
fn take_over(client: &mut Client, steps: &mut BTreeMap<u32, u32>) -> Result<u32, ClientError> {
    steps.clear();
    let mut doubled = 0;
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Some(message) = client.poll(deadline)? {
        match message.msg_type {
            message_type::RECOVERY_END => return Ok(doubled),
            message_type::RECOVERY_CHANNEL_DATA => {
                let channel: ChannelDataRecoveryMessage = message.decode()?;
                if channel.channel_type != i32::from(ChannelType::Entity) {
                    continue;
                }
                assert_eq!(channel.owner_conn_id, client.connection_id(), "{channel:?} is ours");
                let state = TransformState::decode(channel.channel_data.expect("with state").value)?;
                let step = state.position.expect("with its place").y as u32;
                doubled += u32::from(steps.insert(channel.channel_id, step).is_some());
            }
            _ => {}
        }
    }
    Err(ClientError::Late { msg_type: message_type::RECOVERY_END })
}

/// A player has come: it is to see everything.
fn welcome(client: &mut Client, message: &Message) -> Result<(), ClientError> {
    if message.msg_type != message_type::AUTH {
        return Ok(());
    }
    let result: AuthResultMessage = message.decode()?;
    let mut entries = Vec::new();
    for channel in (FIRST_SPATIAL_CHANNEL..FIRST_SPATIAL_CHANNEL + CELLS).chain(entities()) {
        let subscribe = SubscribedToChannelMessage { conn_id: result.conn_id, ..Default::default() };
        put_body(&mut entries, Header::new(channel, message_type::SUB_TO_CHANNEL), &subscribe);
    }
    client.send_entries(&entries)
}

fn move_all(client: &mut Client, steps: &mut BTreeMap<u32, u32>) -> Result<(), ClientError> {
    let mut entries = Vec::new();
    for (&entity, step) in steps {
        *step += 1;
        let update = ChannelDataUpdateMessage { data: Some(standing(entity, *step)), context_conn_id: 0 };
        put_body(&mut entries, Header::new(entity, message_type::CHANNEL_DATA_UPDATE), &update);
    }
    client.send_entries(&entries)
}

/// To and fro through both cells; how high it stands is its step.
fn standing(entity: u32, step: u32) -> Any {
    let phase = (entity + step) % 36;
    let x = 1.0 + phase.min(36 - phase) as f32;
    Any::pack(&TransformState { position: Some(Vector3f { x, y: step as f32, z: 5.0 }), ..Default::default() })
}
