//! A load worker: a process that plays a part of the bots of runs on other machines, one run after the other.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use throng::{ConnectionId, Key, Server, ServerEvent, ServerOptions, Tick, Time};
use throng_crowd::truth::{self, TruthMirror};
use throng_machine::clock;
use throng_machine::piped::{Gone, Piped, Signal};

use super::crew::WorkerName;
use super::word::{self, Assembly, Kind, LANE, Outbox, QUICK, Word, WorkOrder};
use crate::bots::BotsOptions;
use crate::bus::Registration;
use crate::control::{BotsLine, Command};

/// The worker looks at its connection and its bots this often.
const OFTEN: Duration = Duration::from_micros(500);
/// The bots of a run that has left have so long to end.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// Lines of theirs that are thrown away at once.
const LAST_LINES: usize = 256;
/// Datagrams of a run that are taken in a second: its server's state comes in them.
const PACKETS_PER_S: u32 = 50_000;

/// Where a load worker listens.
#[derive(Clone, Debug)]
pub enum Listen {
    /// At a UDP address.
    Address(SocketAddr),
    /// At a nats-server (feature `nats`), under a name that no other load worker has there.
    Bus {
        /// Its addresses, with commas between them, as `nats://127.0.0.1:4222`.
        nats: String,
        /// The name.
        name: WorkerName,
    },
}

/// Options of a load worker.
pub struct WorkerOptions {
    /// The place at which runs find it.
    pub listen: Listen,
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
/// The address cannot be used, or the nats-server is not there, or another load worker there has the name.
pub fn work(options: &WorkerOptions, stop: &AtomicBool) -> Result<()> {
    let (mut server, mut registration) = listen(options).context("cannot listen for runs")?;
    let mut session: Option<Session> = None;
    let mut former: Option<Former> = None;
    while !stop.load(Ordering::Relaxed) {
        // A socket that fails now and then is a lossy network.
        let _ = server.receive(clock::now());
        let came = clock::now();
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::Connected { connection, .. } => session = Some(Session::new(connection)),
                ServerEvent::Disconnected { connection, cause, .. } => {
                    let left = session.take_if(|session| session.connection == connection);
                    if let Some(left) = left {
                        (options.note)(&format!("the run has left: {cause}"));
                        // There are others only while nobody is on its way out.
                        former = left.bots.map(Former::new).or(former);
                    }
                }
                ServerEvent::Message { connection, message, .. } => {
                    let session = session.as_mut().filter(|session| session.connection == connection);
                    if let (Some(session), Some(word)) = (session, message.get::<Word>()) {
                        session.take(word, came, &mut server);
                    }
                }
                _ => {}
            }
        }
        former.take_if(Former::is_over);
        if let Some(session) = &mut session {
            if former.is_none() {
                session.begin_ordered(options);
            }
            session.pass_on(&mut server);
        }
        server.tick(clock::now());
        match registration.as_mut().and_then(Registration::turn) {
            Some(true) => (options.note)("runs find this load worker again"),
            Some(false) => (options.note)("the bus is away: no new run finds this load worker"),
            None => {}
        }
        std::thread::sleep(OFTEN);
    }
    server.shut_down(clock::now(), "the load worker ends");
    server.tick(clock::now());
    Ok(())
}

fn listen(options: &WorkerOptions) -> Result<(Server, Option<Registration>)> {
    let (schema, server_options) = (word::schema(), server_options(&options.key));
    match &options.listen {
        Listen::Address(address) => {
            let server = Server::bind(*address, schema, server_options)?;
            (options.note)(&format!("load worker at {}; press Ctrl-C to stop", server.local_address()));
            Ok((server, None))
        }
        Listen::Bus { nats, name } => {
            let registration = Registration::begin(nats, name)?;
            let server = Server::new(registration.endpoint()?, schema, server_options)?;
            (options.note)(&format!(
                "load worker {name} at {}; press Ctrl-C to stop",
                throng_machine::masked_servers(nats)
            ));
            Ok((server, Some(registration)))
        }
    }
}

/// The server of a load worker.
pub(super) fn server_options(key: &Key) -> ServerOptions {
    ServerOptions {
        tick_interval: Duration::from_millis(1),
        // One run at a time. The worker refuses another one because it is full.
        max_clients: 1,
        client_bytes_per_s: word::BYTES_PER_S,
        client_packets_per_s: PACKETS_PER_S,
        lanes: word::lanes(),
        idle_timeout: word::SILENCE,
        ..ServerOptions::new(word::PROTOCOL_ID, key.clone())
    }
}

/// The bots of a run that has left, on their way to their end: meanwhile the worker answers the next run, and does not begin it.
struct Former {
    bots: Piped,
    until: Time,
}

impl Former {
    fn new(mut bots: Piped) -> Former {
        bots.close();
        Former { bots, until: clock::now().after(END_PATIENCE) }
    }

    /// Whether they have ended. They are killed when their time is over.
    fn is_over(&mut self) -> bool {
        // Bots whose last words nobody takes do not end.
        let _ = (0..LAST_LINES).take_while(|_| matches!(self.bots.next_line(Duration::ZERO), Ok(Some(_)))).count();
        if clock::now() >= self.until {
            self.bots.signal(Signal::Kill);
        }
        self.bots.has_ended()
    }
}

/// A run that is connected.
struct Session {
    connection: ConnectionId,
    words: Assembly,
    bots: Option<Piped>,
    mirror: Option<TruthMirror>,
    /// Its order, until its bots begin.
    ordered: Option<Vec<u8>>,
    outbox: Outbox,
}

impl Session {
    fn new(connection: ConnectionId) -> Session {
        Session {
            connection,
            words: Assembly::default(),
            bots: None,
            mirror: None,
            ordered: None,
            outbox: Outbox::default(),
        }
    }

    /// A word has come by that moment.
    fn take(&mut self, word: Word, came: Time, server: &mut Server) {
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
                    self.take_whole(kind, body);
                }
            }
        }
    }

    /// Begins what was ordered.
    fn begin_ordered(&mut self, options: &WorkerOptions) {
        let Some(body) = self.ordered.take() else { return };
        let words = match self.begin(&body, options) {
            Ok(()) => Word::parts(Kind::Ready, &[]),
            Err(error) => {
                (options.note)(&format!("a run is refused: {error:#}"));
                Word::parts(Kind::Refused, format!("{error:#}").as_bytes())
            }
        };
        self.outbox.push(words.into_iter().flatten());
    }

    fn take_whole(&mut self, kind: Kind, body: Vec<u8>) {
        match kind {
            Kind::Order if self.bots.is_none() => self.ordered = Some(body),
            Kind::Command => {
                if let (Ok(command), Some(bots)) = (serde_json::from_slice::<Command>(&body), &mut self.bots) {
                    bots.tell(&command);
                }
            }
            Kind::Snapshot => {
                if let Some(mirror) = &mut self.mirror {
                    // One that cannot be written is missing, as one that was lost.
                    let _ = mirror.write(&body);
                }
                // A run that sends the next one before it hears this may get none.
                self.outbox.push([Word::new(Kind::Got, Vec::new())]);
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
        let order = BotsOptions::new(server, Key::new(key), scenario);
        let order = BotsOptions { truths, share, begin_us: Some(begin_us), ..order };
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
        while self.outbox.has_room() {
            let Some(bots) = &self.bots else { break };
            let words = match bots.next_line(Duration::ZERO) {
                Ok(Some(line)) => Word::parts(Kind::Line, line.as_bytes()).or_else(too_long),
                Ok(None) => break,
                Err(Gone) => {
                    self.bots = None;
                    Word::parts(Kind::Gone, &[])
                }
            };
            self.outbox.push(words.into_iter().flatten());
        }
        self.outbox.pass_on(|word| server.send(self.connection, LANE, word).is_ok());
    }
}

/// In the place of a line that no run would take.
fn too_long() -> Option<Vec<Word>> {
    let line = BotsLine::Failed("they say more at once than a load worker can pass on".to_owned());
    Word::parts(Kind::Line, &serde_json::to_vec(&line).ok()?)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use throng_crowd::scenario::{Overrides, Scenario};

    use super::*;
    use crate::bots::Share;
    use crate::run::remote::{Heard, Remote, Say};

    fn until_some<T>(mut find: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(found) = find() {
                return found;
            }
            assert!(Instant::now() < until, "it did not come");
            std::thread::sleep(OFTEN);
        }
    }

    /// Ends the worker, also if the test fails.
    struct Stops<'a>(&'a AtomicBool);

    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    static WORKER: Mutex<String> = Mutex::new(String::new());

    #[test]
    fn a_worker_answers_the_next_run_while_the_bots_of_the_last_one_end_and_begins_it_after_that() {
        let folder = tempfile::tempdir().unwrap();
        let ended = folder.path().join("ended");
        // The first bots take a second to end, and the second ones none.
        let script = format!("read order; [ -e {0} ] || {{ cat > /dev/null; sleep 1; touch {0}; }}", ended.display());
        let options = WorkerOptions {
            listen: Listen::Address(([127, 0, 0, 1], 0).into()),
            key: Key::new([7; 32]),
            own: Vec::new(),
            bots_command: ["sh", "-c", &script].map(OsString::from).to_vec(),
            note: |line| WORKER.lock().unwrap().push_str(line),
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stops = Stops(&stop);
            scope.spawn(|| work(&options, &stop).unwrap());
            let order = || {
                let scenario = Scenario::resolve("crowd", &Overrides::default()).unwrap();
                let server = ([127, 0, 0, 1], 9).into();
                let order = WorkOrder { server, key: [7; 32], scenario, share: Share::default(), begin_us: 0 };
                Say::Order(Box::new(order), clock::now())
            };
            let address = until_some(|| {
                let text = WORKER.lock().unwrap().clone();
                text.strip_prefix("load worker at ")?.split_once(';')?.0.parse().ok()
            });
            let met = || {
                let remote = Remote::connect(address, &options.key).unwrap();
                until_some(|| remote.hear().filter(|heard| matches!(heard, Heard::Met)));
                remote
            };
            let begin = |remote: &Remote| {
                assert!(remote.say(order()));
                until_some(|| remote.hear().filter(|heard| matches!(heard, Heard::Ready)));
            };
            let first = met();
            begin(&first);
            drop(first);
            let second = met();
            assert!(!ended.exists(), "it has waited for the bots");
            begin(&second);
            assert!(ended.exists(), "bots of two runs play at once");
        });
    }

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
