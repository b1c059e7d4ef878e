//! One server and one client in the product's own loops, a game at each end that speaks on all lanes as early as it may,
//! and a network in which chosen datagrams are lost or overtaken.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::net::{Driver, MemoryDriver, MemoryNetwork, Transmit};
use throng::{
    Client, ClientCore, ClientEvent, ClientOptions, ConnectionId, InputError, Key, MessageError, Server, ServerEvent,
    ServerOptions, Time,
};
use throng_testkit::{Chat, Intercepted};

/// Messages of each end on each lane.
pub(super) const MESSAGES: u32 = 4;
const LANES: u8 = 3;
/// The client sends an input in each step. The newest that the server has got may be this many steps old: a second.
const NEWEST_INPUT_STEPS: u32 = 100;
const STEP: Duration = Duration::from_millis(11);
/// The server ticks with every third step.
const STEPS_PER_TICK: u64 = 3;

pub(super) fn server_address() -> SocketAddr {
    "10.0.0.1:40000".parse().expect("an address")
}

pub(super) fn client_address() -> SocketAddr {
    "10.0.0.2:50000".parse().expect("an address")
}

/// The fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    Doubled,
    /// This many later ones of the same sender go first.
    Overtaken(usize),
}

/// The fates of datagrams by their number, counted over both directions.
#[derive(Clone, Default)]
pub(super) struct Fates {
    shared: Arc<Mutex<(usize, BTreeMap<usize, Fate>)>>,
}

impl Fates {
    pub(super) fn new(fates: impl IntoIterator<Item = (usize, Fate)>) -> Fates {
        Fates { shared: Arc::new(Mutex::new((0, fates.into_iter().collect()))) }
    }

    /// Datagrams sent so far.
    pub(super) fn count(&self) -> usize {
        self.shared.lock().expect("no panic under the lock").0
    }

    fn next(&self) -> Option<Fate> {
        let mut shared = self.shared.lock().expect("no panic under the lock");
        let number = shared.0;
        shared.0 += 1;
        shared.1.get(&number).copied()
    }
}

/// A driver whose datagrams have fates.
fn fated(driver: MemoryDriver, fates: Fates) -> Box<dyn Driver> {
    // Datagrams that are overtaken: how many go first, where to, what.
    let mut held: Vec<(usize, SocketAddr, Vec<u8>)> = Vec::new();
    Box::new(Intercepted::new(driver, move |driver: &mut MemoryDriver, now, transmit: &Transmit<'_>| {
        for datagram in transmit.iter() {
            match fates.next() {
                Some(Fate::Lost) => continue,
                Some(Fate::Overtaken(by)) => held.push((by + 1, transmit.to, datagram.to_vec())),
                fate => {
                    for _ in 0..=usize::from(fate == Some(Fate::Doubled)) {
                        driver.send(now, &Transmit::single(transmit.to, datagram))?;
                    }
                }
            }
            held.iter_mut().for_each(|(left, ..)| *left -= 1);
            while let Some(at) = held.iter().position(|(left, ..)| *left == 0) {
                let (_, to, bytes) = held.remove(at);
                driver.send(now, &Transmit::single(to, &bytes))?;
            }
        }
        Ok(transmit.datagrams())
    }))
}

/// Which of the two clients plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// [`Client`], whose `update` takes in, flushes, and is polled afterwards.
    WithDriver,
    /// [`ClientCore`] in its documented order: handle, poll events, transmit.
    Core,
}

enum Player {
    WithDriver(Box<Client>),
    Core(Box<ClientCore>, Box<dyn Driver>),
}

impl Player {
    fn core(&mut self) -> &mut ClientCore {
        match self {
            Player::WithDriver(client) => client,
            Player::Core(core, _) => core,
        }
    }
}

/// The messages that one end has received.
#[derive(Default)]
struct Heard {
    is_connected: bool,
    lanes: [Vec<u32>; LANES as usize],
}

impl Heard {
    fn take(&mut self, lane: u8, message: &throng::Received) -> Result<(), String> {
        if !self.is_connected {
            return Err(format!("a message on lane {lane} came before *connected*"));
        }
        let chat: Chat = message.get().ok_or("a message of another type")?;
        self.lanes[usize::from(lane)].push(chat.number);
        Ok(())
    }

    /// Whether the reliable lanes have brought everything; an error if they brought too much or the wrong thing.
    fn is_complete(&self) -> Result<bool, String> {
        for (lane, numbers) in self.lanes.iter().enumerate() {
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if sorted.len() != numbers.len() || numbers.iter().any(|number| *number >= MESSAGES) {
                return Err(format!("lane {lane} brought {numbers:?}"));
            }
            if lane == 0 && !numbers.iter().copied().eq(0..numbers.len() as u32) {
                return Err(format!("the ordered lane brought {numbers:?}"));
            }
        }
        Ok(self.lanes[..2].iter().all(|numbers| numbers.len() == MESSAGES as usize))
    }
}

/// The whole of it.
pub(super) struct Stage {
    pub(super) now: Time,
    server: Server,
    player: Player,
    pub(super) fates: Fates,
    steps: u64,
    connection: Option<ConnectionId>,
    at_server: Heard,
    at_client: Heard,
    said_by_server: u32,
    said_by_client: u32,
    inputs: Vec<u32>,
    sent_input: u32,
    ended: Option<String>,
}

impl Stage {
    pub(super) fn new(network: &MemoryNetwork, kind: Kind, fates: Fates) -> Stage {
        let schema = throng_testkit::schema();
        let options = ServerOptions::new(9, Key::new([9; 32]));
        let issuer = options.token_issuer();
        let driver = |address| fated(network.endpoint(address).expect("a free address"), fates.clone());
        let server = Server::new(driver(server_address()), Arc::clone(&schema), options).expect("good options");
        let token = issuer.issue(1, &[server_address()]).expect("a good token");
        let (driver, options) = (driver(client_address()), ClientOptions::default());
        let player = match kind {
            Kind::WithDriver => {
                let client = Client::new(driver, token, schema, options, Time(0));
                Player::WithDriver(Box::new(client.expect("good options")))
            }
            Kind::Core => {
                let core = ClientCore::new(token, schema, Arc::new(options), Time(0));
                Player::Core(Box::new(core.expect("good options")), driver)
            }
        };
        Stage {
            now: Time(0),
            server,
            player,
            fates,
            steps: 0,
            connection: None,
            at_server: Heard::default(),
            at_client: Heard::default(),
            said_by_server: 0,
            said_by_client: 0,
            inputs: Vec::new(),
            sent_input: 0,
            ended: None,
        }
    }

    /// Runs until both ends have received everything, or one end has learnt that the connection is over. An error says
    /// what went wrong, or that it took too long.
    pub(super) fn play(&mut self, patience: Duration) -> Result<(), String> {
        while self.now.since(Time(0)) < patience {
            self.step()?;
            if self.ended.is_some() {
                return Ok(());
            }
            if self.is_complete()? {
                // The second copy of a doubled packet comes a little later.
                for _ in 0..100 {
                    self.step()?;
                }
                self.is_complete()?;
                return self.check_inputs();
            }
        }
        let (up, down) = (&self.at_server.lanes, &self.at_client.lanes);
        Err(format!("after {patience:?}: the server heard {up:?}, the client {down:?}, inputs {:?}", self.inputs))
    }

    fn check_inputs(&self) -> Result<(), String> {
        let is_rising = self.inputs.is_sorted_by(|one, next| one < next);
        let newest = self.inputs.last().copied().unwrap_or(0);
        match is_rising && newest + NEWEST_INPUT_STEPS >= self.sent_input {
            true => Ok(()),
            false => Err(format!("{} inputs were sent, the server got {:?}", self.sent_input, self.inputs)),
        }
    }

    fn is_complete(&self) -> Result<bool, String> {
        Ok(self.at_server.is_complete()? && self.at_client.is_complete()?)
    }

    /// Why the connection has ended, if an end knows.
    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Whether both ends have received the other's first messages.
    pub(super) fn have_spoken(&self) -> bool {
        [&self.at_server, &self.at_client].iter().all(|heard| !heard.lanes[0].is_empty())
    }

    pub(super) fn step(&mut self) -> Result<(), String> {
        self.now = self.now.after(STEP);
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_TICK) {
            self.turn_server()?;
        }
        self.turn_client()
    }

    fn turn_server(&mut self) -> Result<(), String> {
        self.server.receive(self.now).map_err(|error| error.to_string())?;
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Connected { connection, .. } => {
                    self.connection = Some(connection);
                    self.at_server.is_connected = true;
                }
                ServerEvent::Message { lane, message, .. } => self.at_server.take(lane, &message)?,
                ServerEvent::Disconnected { cause, .. } => self.ended = Some(cause.to_string()),
                other => return Err(format!("the server was told of {other:?}")),
            }
        }
        while let Some((_, input)) = self.server.poll_input() {
            if !self.at_server.is_connected {
                return Err("an input came before *connected*".to_owned());
            }
            self.inputs.push(input.number);
        }
        if let Some(connection) = self.connection.filter(|_| self.said_by_server < MESSAGES && self.ended.is_none()) {
            let chat = Chat { number: self.said_by_server, text: "down".into() };
            for lane in 0..LANES {
                self.server.send(connection, lane, &chat).map_err(|error| error.to_string())?;
            }
            self.said_by_server += 1;
        }
        self.server.tick(self.now);
        Ok(())
    }

    fn turn_client(&mut self) -> Result<(), String> {
        let now = self.now;
        match &mut self.player {
            Player::WithDriver(client) => client.update(now).map_err(|error| error.to_string())?,
            Player::Core(core, driver) => {
                driver.receive(now, &mut |_, from, bytes| core.handle(now, from, bytes)).map_err(|e| e.to_string())?;
            }
        }
        self.speak()?;
        if let Player::Core(core, driver) = &mut self.player {
            let mut out = Vec::new();
            while core.poll_transmit(now, &mut out) {
                let Some(to) = core.server() else { break };
                driver.send(now, &Transmit::single(to, &out)).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// The client's game: receives, and sends a message on every lane as soon as it may. Before that, the call is
    /// refused.
    fn speak(&mut self) -> Result<(), String> {
        let core = self.player.core();
        while let Some(event) = core.poll_event() {
            match event {
                ClientEvent::Connected { .. } => self.at_client.is_connected = true,
                ClientEvent::Message { lane, message } => self.at_client.take(lane, &message)?,
                ClientEvent::Ended(reason) => self.ended = Some(reason.to_string()),
                other => return Err(format!("the client was told of {other:?}")),
            }
        }
        if self.ended.is_some() {
            return Ok(());
        }
        let chat = Chat { number: self.said_by_client, text: "up".into() };
        if !self.at_client.is_connected {
            let refused = (0..LANES).all(|lane| core.send(lane, &chat) == Err(MessageError::NotConnected));
            let input = core.send_input(&[7]);
            return match refused && input == Err(InputError::NotConnected) {
                true => Ok(()),
                false => Err("what was said before *connected* was taken".to_owned()),
            };
        }
        if self.said_by_client < MESSAGES {
            for lane in 0..LANES {
                core.send(lane, &chat).map_err(|error| error.to_string())?;
            }
            self.said_by_client += 1;
        }
        self.sent_input = core.send_input(&[7]).map_err(|error| error.to_string())?;
        Ok(())
    }
}
