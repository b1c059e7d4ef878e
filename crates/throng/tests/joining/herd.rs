//! A server has restarted, and everybody comes back at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use throng::net::{Condition, Driver, MemoryDriver, MemoryNetwork, Transmit};
use throng::{
    ClientCore, ClientEvent, ClientOptions, Decode, Key, Schema, Server, ServerEvent, ServerOptions, Time, TokenIssuer,
};

const STEP: Duration = Duration::from_millis(10);

fn home() -> SocketAddr {
    "10.0.0.1:40000".parse().expect("an address")
}

struct Member {
    core: ClientCore,
    driver: MemoryDriver,
    round_trip: Duration,
    joined_at: Option<Time>,
    ended: Option<String>,
}

struct Herd {
    server: Server,
    network: MemoryNetwork,
    issuer: TokenIssuer,
    schema: Arc<Schema>,
    options: Arc<ClientOptions>,
    members: Vec<Member>,
    now: Time,
    tick: Duration,
    /// Of every way, beside its delay.
    weather: Condition,
    connected: usize,
    disconnected: usize,
}

impl Herd {
    fn new(max_clients: u32, tick: Duration) -> Herd {
        let network = MemoryNetwork::new(Condition::NONE, 5).expect("no condition");
        let schema = Arc::new(Schema::builder().build().expect("no kinds"));
        let options = ServerOptions { max_clients, tick_interval: tick, ..ServerOptions::new(3, Key::new([5; 32])) };
        let issuer = options.token_issuer();
        let driver = Box::new(network.endpoint(home()).expect("free"));
        let server = Server::new(driver, Arc::clone(&schema), options).expect("good options");
        let options = Arc::new(ClientOptions { decode: Decode::Nothing, ..ClientOptions::default() });
        let (members, now) = (Vec::new(), Time(0));
        let weather = Condition::NONE;
        Herd { server, network, issuer, schema, options, members, now, tick, weather, connected: 0, disconnected: 0 }
    }

    /// This many come in this moment, with round trips from 20 to 200 ms.
    fn come(&mut self, count: usize, port: u16) {
        let mut rng = Rng::with_seed(count as u64);
        for number in 0..count {
            let address = SocketAddr::from(([10, 1, (number >> 8) as u8, number as u8], port));
            let driver = self.network.endpoint(address).expect("free");
            let delay_us = rng.u32(10_000..=100_000);
            let condition = Condition { delay_us, ..self.weather.clone() };
            self.network.set_way(address, home(), condition.clone()).expect("good");
            self.network.set_way(home(), address, condition).expect("good");
            let token = self.issuer.issue(number as u64 + 1, &[home()]).expect("a token");
            let core = ClientCore::new(token, Arc::clone(&self.schema), Arc::clone(&self.options), self.now);
            let round_trip = Duration::from_micros(2 * u64::from(delay_us));
            let core = core.expect("good options");
            self.members.push(Member { core, driver, round_trip, joined_at: None, ended: None });
        }
    }

    fn play(&mut self, time: Duration) {
        let end = self.now.after(time);
        let mut out = Vec::new();
        while self.now < end {
            self.now = self.now.after(STEP);
            let now = self.now;
            if (now.0 / 1_000).is_multiple_of(self.tick.as_millis() as u64) {
                self.server.receive(now).expect("in memory");
                while let Some(event) = self.server.poll_event() {
                    match event {
                        ServerEvent::Connected { .. } => self.connected += 1,
                        ServerEvent::Disconnected { .. } => self.disconnected += 1,
                        _ => {}
                    }
                }
                self.server.tick(now);
            }
            for Member { core, driver, joined_at, ended, .. } in &mut self.members {
                driver.receive(now, &mut |_, from, bytes| core.handle(now, from, bytes)).expect("in memory");
                while let Some(event) = core.poll_event() {
                    match event {
                        ClientEvent::Connected { .. } => *joined_at = Some(now),
                        ClientEvent::Ended(reason) => *ended = Some(reason.to_string()),
                        _ => {}
                    }
                }
                while core.poll_transmit(now, &mut out) {
                    driver.send(now, &Transmit::single(home(), &out)).expect("in memory");
                }
            }
        }
    }

    /// All are in within two round trips and a second since `came`. Returns the longest time.
    fn check(&self, came: Time) -> Duration {
        self.check_within(came, Duration::from_secs(1))
    }

    /// All are in within two round trips and `slack` since `came`. Returns the longest time.
    fn check_within(&self, came: Time, slack: Duration) -> Duration {
        let mut longest = Duration::ZERO;
        for (number, member) in self.members.iter().enumerate() {
            let Some(joined_at) = member.joined_at else {
                panic!("member {number} is not in ({:?}): {:?}", member.ended, self.server.door_counters());
            };
            let took = joined_at.since(came);
            assert!(took <= 2 * member.round_trip + slack, "member {number}: {took:?}");
            longest = longest.max(took);
        }
        longest
    }
}

fn storm(count: usize, tick: Duration) {
    let mut herd = Herd::new(count as u32, tick);
    herd.come(count, 50_000);
    herd.play(Duration::from_millis(1_700));
    let longest = herd.check(Time(0));
    assert_eq!(herd.connected, count, "the server knows of all");
    println!("{count} are in after {longest:?} at most, ticks of {tick:?}: {:?}", herd.server.door_counters());
}

#[test]
fn ten_thousand_that_come_at_once_are_in_within_two_round_trips_and_a_second() {
    storm(10_000, Duration::from_millis(30));
}

#[test]
fn the_same_holds_for_a_server_that_ticks_ten_times_a_second() {
    storm(10_000, Duration::from_millis(100));
}

#[test]
fn a_hundred_and_a_thousand_come_as_fast() {
    storm(100, Duration::from_millis(100));
    storm(1_000, Duration::from_millis(50));
}

/// A client repeats its packet several times a second while no answer comes.
#[test]
fn over_a_network_that_loses_one_packet_in_twenty_nearly_all_are_in_as_fast() {
    let mut herd = Herd::new(10_000, Duration::from_millis(100));
    herd.weather = Condition { loss: 0.05, ..Condition::NONE };
    herd.come(10_000, 50_000);
    herd.play(Duration::from_secs(4));
    let longest = herd.check_within(Time(0), Duration::from_secs(3));
    let late = herd.members.iter().filter(|member| member.joined_at > Some(Time::from_millis(1_700))).count();
    assert!(late < 200, "{late} of 10,000 needed a repetition");
    assert_eq!(herd.connected, 10_000);
    println!("10000 are in after {longest:?} at most, {late} of them by a repetition");
}

/// Everybody's network was gone, and every program has restarted before the server noticed.
#[test]
fn a_full_server_whose_clients_all_crashed_has_them_back_as_fast() {
    let mut herd = Herd::new(1_000, Duration::from_millis(100));
    herd.come(1_000, 50_000);
    herd.play(Duration::from_secs(2));
    assert_eq!(herd.connected, 1_000);
    herd.members.clear();
    let came = herd.now;
    herd.come(1_000, 50_001);
    herd.play(Duration::from_millis(1_700));
    herd.check(came);
    assert_eq!((herd.connected, herd.disconnected, herd.server.connection_count()), (2_000, 1_000, 1_000));
    assert_eq!(herd.server.door_counters().replaced, 1_000);
}
