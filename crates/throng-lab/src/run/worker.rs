//! A load worker: a process that plays a part of the bots of runs on other machines, one run after the other.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use throng::{ConnectionId, Key, Server, ServerEvent, ServerOptions, Tick, Time};
use throng_crowd::truth::{self, TruthMirror};
use throng_machine::clock;
use throng_machine::piped::{Gone, Piped};

use super::child::Order;
use super::word::{self, Assembly, Kind, LANE, QUICK, Word, WorkOrder};
use crate::control::Command;

/// The worker looks at its connection and its bots this often.
const OFTEN: Duration = Duration::from_micros(500);
/// Messages that wait for the connection. With this many, what the bots say waits with them.
const OUTBOX_MAX: usize = 1_024;
/// Datagrams of a run that are taken in a second: its server's state comes in them.
const PACKETS_PER_S: u32 = 50_000;

/// Options of a load worker.
pub struct WorkerOptions {
    /// The address at which runs find it.
    pub address: SocketAddr,
    /// The key that a run has to know.
    pub key: Key,
    /// Addresses of one's own beside loopback: no other address is put under load.
    pub own: Vec<IpAddr>,
    /// The command of the bots' process; it reads [`BotsOptions`](crate::bots::BotsOptions) from its standard input.
    pub bots_command: Vec<OsString>,
    /// Gets a line for each event.
    pub note: fn(&str),
}

/// Plays what runs ask for until `stop` is set.
///
/// # Errors
/// The address cannot be used.
pub fn work(options: &WorkerOptions, stop: &AtomicBool) -> Result<()> {
    let server = ServerOptions {
        tick_interval: Duration::from_millis(1),
        // One run at a time. The worker refuses another one because it is full.
        max_clients: 1,
        client_bytes_per_s: word::BYTES_PER_S,
        client_packets_per_s: PACKETS_PER_S,
        lanes: word::lanes(),
        idle_timeout: word::SILENCE,
        ..ServerOptions::new(word::PROTOCOL_ID, options.key.clone())
    };
    let mut server = Server::bind(options.address, word::schema(), server).context("cannot listen for runs")?;
    (options.note)(&format!("load worker at {}; press Ctrl-C to stop", server.local_address()));
    let mut session: Option<Session> = None;
    while !stop.load(Ordering::Relaxed) {
        // A socket that fails now and then is a lossy network.
        let _ = server.receive(clock::now());
        let came = clock::now();
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::Connected { connection, .. } => session = Some(Session::new(connection)),
                ServerEvent::Disconnected { connection, cause, .. } => {
                    let left = session.take_if(|session| session.connection == connection);
                    if left.is_some() {
                        (options.note)(&format!("the run has left: {cause}"));
                    }
                }
                ServerEvent::Message { connection, message, .. } => {
                    let session = session.as_mut().filter(|session| session.connection == connection);
                    if let (Some(session), Some(word)) = (session, message.get::<Word>()) {
                        session.take(word, (options, came), &mut server);
                    }
                }
                _ => {}
            }
        }
        if let Some(session) = &mut session {
            session.pass_on(&mut server);
        }
        server.tick(clock::now());
        std::thread::sleep(OFTEN);
    }
    server.shut_down(clock::now(), "the load worker ends");
    server.tick(clock::now());
    Ok(())
}

/// A run that is connected.
struct Session {
    connection: ConnectionId,
    words: Assembly,
    bots: Option<Piped>,
    mirror: Option<TruthMirror>,
    /// Oldest first.
    outbox: VecDeque<Word>,
}

impl Session {
    fn new(connection: ConnectionId) -> Session {
        Session { connection, words: Assembly::default(), bots: None, mirror: None, outbox: VecDeque::new() }
    }

    /// A word has come by that moment.
    fn take(&mut self, word: Word, (options, came): (&WorkerOptions, Time), server: &mut Server) {
        match word.kind() {
            Some(Kind::Ask) => {
                let Some([number]) = word.read() else { return };
                let answer = Word::numbers(Kind::Answer, [number, came.0, clock::now().0]);
                // A run that gets no answer asks again.
                let _ = server.send(self.connection, QUICK, &answer);
            }
            Some(Kind::Tick) => {
                if let (Some([tick, began_us]), Some(mirror)) = (word.read(), &mut self.mirror) {
                    // Without it, a look at the tick has no age.
                    let _ = mirror.note_tick(Tick(tick), Time(began_us));
                }
            }
            _ => {
                if let Some((kind, body)) = self.words.take(word) {
                    self.take_whole(kind, &body, options);
                }
            }
        }
    }

    fn take_whole(&mut self, kind: Kind, body: &[u8], options: &WorkerOptions) {
        match kind {
            Kind::Order if self.bots.is_none() => {
                let words = match self.begin(body, options) {
                    Ok(()) => Word::parts(Kind::Ready, &[]),
                    Err(error) => {
                        (options.note)(&format!("a run is refused: {error:#}"));
                        Word::parts(Kind::Refused, format!("{error:#}").as_bytes())
                    }
                };
                self.outbox.extend(words.into_iter().flatten());
            }
            Kind::Command => {
                let command = std::str::from_utf8(body).ok().and_then(Command::read);
                if let (Some(command), Some(bots)) = (command, &mut self.bots) {
                    bots.tell(&command.line());
                }
            }
            Kind::Snapshot => {
                if let Some(mirror) = &mut self.mirror {
                    // One that cannot be written is missing, as one that was lost.
                    let _ = mirror.write(body);
                }
                self.outbox.push_back(Word::new(Kind::Got, Vec::new()));
            }
            _ => {}
        }
    }

    /// Starts the bots, if they are to load something of one's own.
    fn begin(&mut self, body: &[u8], options: &WorkerOptions) -> Result<()> {
        let order: WorkOrder = serde_json::from_slice(body).context("it is of another version")?;
        let truths = vec![self.prepare(&order, &options.own)?];
        let WorkOrder { server, key, scenario, share, begin_us } = order;
        let (number, of) = (share.index + 1, share.of);
        (options.note)(&format!("bots of {} play against {server}: share {number} of {of}", scenario.name));
        let order =
            Order { server, edges: Vec::new(), key, scenario, truths, cores: None, share, begin_us: Some(begin_us) };
        self.bots = Some(Piped::start(&options.bots_command, &order).context("cannot start the bots")?);
        Ok(())
    }

    /// Checks an order, and makes the file for the server's state.
    fn prepare(&mut self, order: &WorkOrder, own: &[IpAddr]) -> Result<PathBuf> {
        let WorkOrder { server, scenario, share, .. } = order;
        let address = server.ip();
        anyhow::ensure!(
            address.is_loopback() || own.contains(&address),
            "{address} is no address of one's own: if it is yours, start the load worker with --own {address}"
        );
        scenario.check()?;
        anyhow::ensure!(share.is_possible() && scenario.edges == 0, "such a share of the bots is not possible");
        word::check_world(scenario)?;
        let mirror =
            TruthMirror::create(truth::room(scenario)).context("cannot create the file with the server's state")?;
        let path = mirror.path().to_owned();
        self.mirror = Some(mirror);
        Ok(path)
    }

    /// Passes on what the bots have said.
    fn pass_on(&mut self, server: &mut Server) {
        while self.outbox.len() < OUTBOX_MAX {
            let Some(bots) = &self.bots else { break };
            let words = match bots.next_line(Duration::ZERO) {
                Ok(Some(line)) => Word::parts(Kind::Line, line.as_bytes()),
                Ok(None) => break,
                Err(Gone) => {
                    self.bots = None;
                    Word::parts(Kind::Gone, &[])
                }
            };
            self.outbox.extend(words.into_iter().flatten());
        }
        while let Some(word) = self.outbox.front() {
            if server.send(self.connection, LANE, word).is_err() {
                return;
            }
            self.outbox.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use throng_crowd::scenario::{Overrides, Scenario};

    use super::*;
    use crate::bots::Share;

    #[test]
    fn only_loopback_and_ones_own_addresses_are_loaded_and_orders_are_bounded() {
        let scenario = Scenario::resolve("crowd", &Overrides::default()).expect("a scenario");
        let order = |server: &str, share: Share, change: fn(&mut Scenario)| {
            let mut scenario = scenario.clone();
            change(&mut scenario);
            let server = server.parse().expect("an address");
            WorkOrder { server, key: [7; 32], scenario, share, begin_us: 0 }
        };
        let own: [IpAddr; 1] = [[10, 0, 0, 5].into()];
        let prepared = |order: &WorkOrder| {
            let mut session = Session::new(ConnectionId { index: 0, generation: 0 });
            session.prepare(order, &own).map(drop).map_err(|error| error.to_string())
        };
        let (all, nothing): (Share, fn(&mut Scenario)) = (Share::default(), |_| ());
        for server in ["127.0.0.1:5", "127.8.7.6:5", "[::1]:5", "10.0.0.5:7777"] {
            assert_eq!(prepared(&order(server, all, nothing)), Ok(()), "{server}");
        }
        for (order, words) in [
            (order("10.0.0.6:5", all, nothing), "10.0.0.6 is no address of one's own"),
            (order("0.0.0.0:5", all, nothing), "no address of one's own"),
            (order("127.0.0.1:5", Share { index: 2, of: 2 }, nothing), "not possible"),
            (order("127.0.0.1:5", all, |scenario| scenario.edges = 1), "not possible"),
            (order("127.0.0.1:5", all, |scenario| scenario.players = 100_000), "--players"),
            (order("127.0.0.1:5", all, |scenario| scenario.idle_objects = 200_000), "too large"),
        ] {
            let error = prepared(&order).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
