//! The witness on virtual time: it finds planted errors, and no others.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use throng::net::{
    Condition, Conditioned, ConditionedOptions, Driver, MemoryNetwork, ReceiveError, SendError, Transmit, Wrapper,
};
use throng::replica::{self, ReplicaClient};
use throng::schema::{Schema, Values};
use throng::{
    Client, ClientEvent, ClientOptions, ConnectionId, GridOptions, GridShape, Key, Placement, Ring, Server,
    ServerEvent, ServerOptions, TokenIssuer, Up,
};
use throng_crowd::copies::{CopiesWriter, Original};
use throng_crowd::kinds::{self, Character};
use throng_crowd::pulse::{Pulse, SentInputs};
use throng_crowd::scenario::Overrides;
use throng_crowd::truth::{GameObject, LIFE_TICKS, TruthWriter};

use super::*;
use crate::host::PROTOCOL_ID;

const TICK_US: u64 = 33_333;
const SEATS: usize = 12;
/// The moments of samples do not depend on the ticks.
const LOOK_US: u64 = 977;

/// One client with a witness of its own.
struct Seat {
    client: Client,
    witness: Witness,
    connection: Option<u32>,
    inputs: SentInputs,
}

/// The clock of the clients' machine, and the ways to it.
#[derive(Clone, Copy, Debug)]
struct Skew {
    offset_us: i64,
    drift: f64,
    to_server_us: u32,
    to_client_us: u32,
}

impl Skew {
    fn bots_time(self, server: Time) -> Time {
        Time((server.0 as f64 * (1.0 + self.drift)).round() as u64).shifted(self.offset_us)
    }

    fn server_time(self, bots: Time) -> Time {
        Time((bots.shifted(-self.offset_us).0 as f64 / (1.0 + self.drift)).round() as u64)
    }
}

trait Shifted {
    fn shifted(self, us: i64) -> Self;
}

impl Shifted for Time {
    fn shifted(self, us: i64) -> Time {
        Time(self.0.checked_add_signed(us).expect("the clocks begin late enough"))
    }
}

/// A network on the server's clock, for a client with another clock.
struct Skewed<D> {
    inner: D,
    skew: Skew,
}

impl<D: Driver> Wrapper for Skewed<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn wrap_send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        self.inner.send(self.skew.server_time(now), transmit)
    }

    fn wrap_receive(
        &mut self,
        now: Time,
        sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8]),
    ) -> Result<usize, ReceiveError> {
        let skew = self.skew;
        self.inner.receive(skew.server_time(now), &mut |at, from, datagram| sink(skew.bots_time(at), from, datagram))
    }

    fn wrap_flush(&mut self, now: Time) -> Result<usize, SendError> {
        self.inner.flush(self.skew.server_time(now))
    }

    fn wrap_next_due(&self) -> Option<Time> {
        self.inner.next_due().map(|due| self.skew.bots_time(due))
    }
}

/// A server whose characters walk in a circle, everybody within 10 m, and its truth by the game's own structs.
struct World {
    server: Server,
    seats: Vec<Seat>,
    characters: Vec<(ObjectId, u32, Character)>,
    /// By connection index: who is there, and the newest input that was read from it.
    heard: Vec<(ConnectionId, Option<(u32, Time)>)>,
    /// When each tick began.
    began: HashMap<Tick, Time>,
    /// Ticks between two snapshots of the truth.
    snapshot_ticks: u64,
    /// Length of a tick, in microseconds.
    tick_us: u64,
    /// Of clients on another machine.
    skew: Option<Skew>,
    /// The truth of this object is off in this word, by so much.
    wrong: Option<(ObjectId, usize, u32)>,
    /// The characters walk straight, and turn their heads once in a second.
    is_straight: bool,
    /// The edge to which all clients are connected, as far as the witness knows: the truth has other ids and ticks then.
    edge: Option<CopiesWriter>,
    /// The edge counts the server's ticks by so many too far.
    beyond_ticks: u64,
    /// The edge notes that.
    notes_beyond: bool,
    /// An object that the clients see and the snapshots leave out.
    ghost: Option<ObjectId>,
    /// An object that a second server has now.
    moved: Option<ObjectId>,
    now: Time,
}

impl World {
    /// The seats of `slow` receive everything 50 ms later.
    fn new(slow: &[usize], skew: Option<Skew>) -> World {
        World::with_edge(slow, skew, None)
    }

    fn with_edge(slow: &[usize], skew: Option<Skew>, edge: Option<CopiesWriter>) -> World {
        let point =
            |edge: &CopiesWriter| EdgePoint { address: ([10, 9, 0, 1], 1).into(), copies: edge.path().to_owned() };
        let points: Vec<EdgePoint> = edge.iter().map(point).collect();
        let start = Time(1 << 40);
        let network = MemoryNetwork::new(Condition::NONE, 1).expect("a good condition");
        let address: SocketAddr = "10.0.0.1:40000".parse().expect("an address");
        let key = Key::new([7; 32]);
        let ring = Ring { radius_m: 30.0, interval_ticks: 1 };
        let grids = vec![GridOptions { rings: vec![ring], ..GridOptions::new(Up::Z) }];
        let options =
            ServerOptions { grids, client_bytes_per_s: 256_000, ..ServerOptions::new(PROTOCOL_ID, key.clone()) };
        let driver = Box::new(network.endpoint(address).expect("a free address"));
        let server = Server::new(driver, kinds::schema(), options).expect("good options");
        let issuer = TokenIssuer::new(PROTOCOL_ID, key);
        let scenario = scenario();
        let seats = (0..SEATS).map(|seat| {
            let own: SocketAddr = ([10, 1, 0, seat as u8], 50_000).into();
            let endpoint = network.endpoint(own).expect("a free address");
            let mut conditions = ConditionedOptions::both_ways(Condition::NONE, seat as u64);
            if slow.contains(&seat) {
                conditions.incoming.delay_us = 50_000;
            }
            if let Some(skew) = skew {
                (conditions.incoming.delay_us, conditions.outgoing.delay_us) = (skew.to_client_us, skew.to_server_us);
            }
            let endpoint = Conditioned::new(endpoint, &conditions).expect("good conditions");
            let driver: Box<dyn Driver> = match skew {
                Some(skew) => Box::new(Skewed { inner: endpoint, skew }),
                None => Box::new(endpoint),
            };
            let token = issuer.issue(seat as u64 + 1, &[address]).expect("one server");
            let now = skew.map_or(start, |skew| skew.bots_time(start));
            let client = Client::new(driver, token, kinds::schema(), ClientOptions::default(), now);
            Seat {
                client: client.expect("good options"),
                witness: witness(&points, &scenario),
                connection: None,
                inputs: SentInputs::default(),
            }
        });
        let seats = seats.collect();
        let (characters, heard, began) = (Vec::new(), Vec::new(), HashMap::new());
        World {
            server,
            seats,
            characters,
            heard,
            began,
            skew,
            snapshot_ticks: 1,
            tick_us: TICK_US,
            wrong: None,
            is_straight: false,
            edge,
            beyond_ticks: 0,
            notes_beyond: true,
            ghost: None,
            moved: None,
            now: start,
        }
    }

    /// A tick, then looks until the next one.
    fn step(&mut self) {
        let began = self.now;
        let _ = self.server.receive(began);
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Connected { connection, .. } = event {
                let value = Character::default();
                let id = self.server.spawn_owned(value.clone(), Placement::Cell(0), Some(connection)).expect("room");
                self.server.set_viewpoint(connection, [0.0; 3]);
                self.edge.iter_mut().for_each(|edge| edge.note(id, original(id)));
                self.characters.push((id, connection.index, value));
                self.heard.push((connection, None));
            }
        }
        while let Some((connection, input)) = self.server.poll_input() {
            let heard = self.heard.iter_mut().find(|(known, _)| *known == connection).expect("it has connected");
            heard.1 = Some((input.number, began));
        }
        let tick = self.server.current_tick();
        self.began.insert(tick, began);
        for (id, number, value) in &mut self.characters {
            let angle = tick.short().0 as f32 * 0.02 + *number as f32;
            value.position = [3.0 * angle.cos(), 3.0 * angle.sin(), 0.0];
            value.velocity = [-1.8 * angle.sin(), 1.8 * angle.cos(), 0.0];
            // By 0.08 rad in a tick, which is more than the threshold: each tick has news of everybody.
            value.yaw = 4.0 * angle % 3.0;
            if self.is_straight {
                let seconds = (tick.short().0 % 600) as f32 * TICK_US as f32 / 1e6;
                value.velocity = [0.5, 0.0, 0.0];
                value.position = [0.5 * seconds - 4.0, *number as f32 * 0.2, 0.0];
                value.yaw = ((tick.short().0 + *number * 3) / 30 % 6) as f32 * 0.5;
            }
            *self.server.get_mut(*id).expect("the object is there") = value.clone();
        }
        if self.skew.is_some() {
            self.tell_time(tick);
        }
        self.server.tick(began);
        if let Some(edge) = &mut self.edge {
            for origin in 0..2 {
                edge.note_ticks(origin, tick, later(tick).after(self.beyond_ticks as u32));
                if self.notes_beyond && self.beyond_ticks > 0 {
                    edge.note_beyond(origin, tick, self.beyond_ticks);
                }
            }
            edge.flush().expect("the file can be written");
        }
        let is_moved = self.edge.is_some();
        let all = self.characters.iter().filter(|(id, ..)| self.ghost != Some(*id));
        let truth = all.map(|(id, owner, value)| {
            let mut object = TrueObject::of(if is_moved { there(*id) } else { *id }, Some(*owner), value);
            if let Some((_, word, off)) = self.wrong.filter(|wrong| wrong.0 == *id) {
                object.words[word] = object.words[word].wrapping_add(off);
            }
            object
        });
        let objects: Vec<TrueObject> = truth.collect();
        let tick_there = if is_moved { later(tick) } else { tick };
        let moved = self.moved.map(there);
        let (second, first) = objects.into_iter().partition(|object| Some(object.id) == moved);
        let snapshot_of = |objects| Snapshot { tick: tick_there, time: began, objects, ..Snapshot::default() };
        let (snapshot, second): (Snapshot, Snapshot) = (snapshot_of(first), snapshot_of(second));
        if self.skew.is_none() {
            self.seats.iter_mut().for_each(|seat| seat.witness.pasts[0].note_tick(tick_there, began));
            if tick.0.is_multiple_of(self.snapshot_ticks) {
                self.seats.iter_mut().for_each(|seat| seat.witness.tell(&snapshot));
                self.seats.iter_mut().for_each(|seat| seat.witness.pasts[1].tell(&second));
            }
        }
        let mut look = 0;
        while self.now.micros_since(began) < self.tick_us {
            self.now = Time(self.now.0 + LOOK_US).min(Time(began.0 + self.tick_us));
            let now = self.skew.map_or(self.now, |skew| skew.bots_time(self.now));
            look += 1;
            let mut pulses = Vec::new();
            for (number, seat) in self.seats.iter_mut().enumerate() {
                // An input per tick, at another moment for each seat.
                if look == 1 + number * 3
                    && let Ok(number) = seat.client.send_input(&[0])
                {
                    seat.inputs.note(number, now);
                }
                let _ = seat.client.update(now);
                while let Some(event) = seat.client.poll_event() {
                    match event {
                        ClientEvent::Connected { connection, .. } => seat.connection = Some(connection.index),
                        ClientEvent::Message { message, .. } => {
                            pulses.extend(message.get::<Pulse>().map(|pulse| (pulse, seat.inputs.clone())));
                        }
                        _ => {}
                    }
                }
            }
            for seat in &mut self.seats {
                pulses.iter().for_each(|(pulse, sent)| seat.witness.clock().take(pulse, now, sent));
                let eyes =
                    Eyes { replica: seat.client.replica(), connection: seat.connection, edge: is_moved.then_some(0) };
                // A sample does not depend on when the files are read otherwise.
                seat.witness.next_refresh = Time(u64::MAX);
                seat.witness.look(|| now, std::iter::once(eyes), true);
            }
        }
    }

    /// Tells one client the server's time, as the lab's server does.
    fn tell_time(&mut self, tick: Tick) {
        let Some(&(connection, heard)) = self.heard.get(tick.0 as usize % self.heard.len().max(1)) else { return };
        let (heard_input, heard_us) = heard.map_or((0, 0), |(number, read)| (number, read.0));
        let now_us = self.now.0;
        let pulse = Pulse { tick: tick.0, began_us: now_us, sent_us: now_us, heard_input, heard_us };
        pulse.send(&mut self.server, connection).expect("there is room for a message");
    }

    /// Compares the age of everything at every seat with the truth, and returns the largest error that is stated.
    fn check_ages(&mut self) -> f64 {
        let Some(skew) = self.skew else { return 0.0 };
        let mut largest_us = 0f64;
        for seat in &mut self.seats {
            let Some(replica) = seat.client.replica() else { continue };
            for view in replica.views() {
                let Some(age) = seat.witness.clock().age(view.newest_tick, skew.bots_time(self.now)) else { continue };
                let truth_us = self.now.micros_since(self.began[&view.newest_tick]) as f64;
                assert!((age.us - truth_us).abs() <= age.error_us, "{age:?}, in truth {truth_us} µs, with {skew:?}");
                largest_us = largest_us.max(age.error_us);
            }
        }
        largest_us
    }

    /// Plays, and measures only after everybody has connected.
    fn play(slow: &[usize]) -> World {
        World::play_apart(slow, None)
    }

    fn play_apart(slow: &[usize], skew: Option<Skew>) -> World {
        World::new(slow, skew).played()
    }

    fn played(self) -> World {
        let mut world = self;
        for _ in 0..60 {
            world.step();
        }
        world.seats.iter_mut().for_each(|seat| seat.witness.begin());
        for _ in 0..150 {
            world.step();
        }
        assert!(world.seats.iter().all(|seat| seat.connection.is_some()));
        world
    }

    /// Compares all objects at the seats with the truth of the last tick, which has arrived everywhere.
    fn compare(&mut self) {
        for seat in &mut self.seats {
            let edge = self.edge.as_ref().map(|_| 0);
            seat.witness.refresh(self.now);
            seat.witness.compare(&Eyes { replica: seat.client.replica(), connection: seat.connection, edge });
        }
    }

    /// By seat, the median age of near neighbours in milliseconds.
    fn ages_ms(&self) -> Vec<f64> {
        let median = |seat: &Seat| seat.witness.neighbours.figures().near.age_ms.p50.expect("there are neighbours");
        self.seats.iter().map(median).collect()
    }
}

/// The id at the origin of an object at an edge.
fn there(here: ObjectId) -> ObjectId {
    ObjectId { index: here.index + 100, generation: here.generation + 7 }
}

/// A witness of two servers, of which most worlds have only the first.
fn witness(points: &[EdgePoint], scenario: &Scenario) -> Witness {
    let mut witness = Witness::new(&[], points, scenario).expect("the file is there");
    witness.pasts.push(Past::new(None, FORMER_MAX, (1, scenario)).expect("there is no file"));
    witness
}

fn original(here: ObjectId) -> Original {
    Original { origin: 0, id: there(here), since: Tick(0), there: Tick(0) }
}

/// The tick of an origin that one of an edge stands for.
fn later(tick: Tick) -> Tick {
    tick.after(1_000)
}

fn at_an_edge() -> World {
    World::with_edge(&[], None, Some(CopiesWriter::create(2).expect("a file"))).played()
}

fn scenario() -> Scenario {
    let overrides = Overrides { players: Some(SEATS as u32), ..Overrides::default() };
    Scenario::resolve("crowd", &overrides).expect("a scenario of ours")
}

#[test]
fn a_planted_delay_of_50_ms_is_found_at_every_seat_and_at_no_other() {
    let before = World::play(&[]).ages_ms();
    for (seat, age_ms) in before.iter().enumerate() {
        assert!((10.0..40.0).contains(age_ms), "seat {seat}: {age_ms} ms of age without a delay");
    }
    for slow in 0..SEATS {
        let after = World::play(&[slow]).ages_ms();
        for (seat, (before, after)) in before.iter().zip(&after).enumerate() {
            let planted = if seat == slow { 50.0 } else { 0.0 };
            assert!((after - before - planted).abs() < 4.0, "seat {seat}: {before} ms, then {after} ms");
        }
    }
}

#[test]
fn ages_on_another_machine_are_told_with_an_error_that_contains_the_truth() {
    let same_machine = World::play(&[]).ages_ms();
    for (offset_us, drift, to_server_us, to_client_us) in [
        (0, 0.0, 200, 200),
        (3_600_000_000, 50e-6, 2_000, 2_000),
        (-(1 << 39), -50e-6, 500, 24_000),
        (86_400_000_000, 50e-6, 30_000, 1_000),
    ] {
        let skew = Skew { offset_us, drift, to_server_us, to_client_us };
        let mut world = World::play_apart(&[], Some(skew));
        let mut largest_us = 0f64;
        for _ in 0..60 {
            world.step();
            largest_us = largest_us.max(world.check_ages());
        }
        // Half of the way there and back, and of the waits: for the client's next update, and for the server's.
        let least_us = f64::from(to_server_us + to_client_us) / 2.0;
        assert!((least_us..least_us + 2_500.0).contains(&largest_us), "{skew:?}: an error of {largest_us} µs");
        for (seat, (there, here_ms)) in world.seats.iter().zip(&same_machine).enumerate() {
            let figures = there.witness.neighbours.figures().near;
            let age_ms = figures.age_ms.p50.expect("neighbours move");
            let expected_ms = here_ms + f64::from(to_client_us) / 1e3;
            let error_ms = there.witness.age_error_ms().expect("the clock is estimated");
            // Looks at other moments differ by some milliseconds.
            assert!(
                (age_ms - expected_ms).abs() < error_ms + 4.0,
                "seat {seat}: {age_ms} ± {error_ms}, {expected_ms} here"
            );
            assert_eq!(figures.position_error_m, throng_summary::Spread::default());
        }
    }
}

#[test]
fn a_server_that_is_too_slow_has_states_as_old_as_its_ticks_are_long_and_no_false_position_errors() {
    let mut world = World::new(&[], None);
    // Three times as long as planned: the world plays at a third of its speed, and snapshots are rare.
    (world.tick_us, world.snapshot_ticks) = (3 * TICK_US, 10);
    for (number, seat) in world.played().seats.iter().enumerate() {
        let near = seat.witness.neighbours.figures().near;
        let age_ms = near.age_ms.p50.expect("there are neighbours");
        // About 30 looks, at any moment of a tick of 100 ms.
        assert!((35.0..65.0).contains(&age_ms), "seat {number}: {age_ms} ms");
        // The characters walk 6 cm in a tick.
        let error_m = near.position_error_m.p99.expect("there are neighbours");
        assert!(error_m < 0.12, "seat {number}: {error_m} m");
    }
}

#[test]
fn characters_that_walk_straight_and_send_nothing_do_not_count_as_old_when_they_turn_their_heads() {
    // While a turn is on its way for 50 ms, a client shows a state without news for a second.
    let all: Vec<usize> = (0..SEATS).collect();
    let mut world = World::new(&all, None);
    (world.is_straight, world.snapshot_ticks) = (true, 3);
    let world = world.played();
    let mut rare_updates = 0;
    for (number, seat) in world.seats.iter().enumerate() {
        let near = seat.witness.neighbours.figures().near;
        let p99_ms = near.age_ms.p99.expect("there are neighbours");
        assert!(p99_ms < 2.0 * 100.0 + 40.0, "seat {number}: {p99_ms} ms");
        assert!(near.position_error_m.p99.expect("there are neighbours") < 0.1, "seat {number}: {near:?}");
        let replica = seat.client.replica().expect("connected");
        let tick = seat.client.server_tick().expect("connected");
        rare_updates += replica.views().filter(|view| tick.since(view.newest_tick) > 10).count();
    }
    assert!(rare_updates > SEATS * SEATS / 3, "{rare_updates} states without news for a third of a second");
}

#[test]
fn the_same_world_twice_gives_the_same_figures() {
    let figures = || World::play(&[3]).seats.iter().map(|seat| seat.witness.neighbours.figures()).collect::<Vec<_>>();
    assert_eq!(figures(), figures());
}

#[test]
fn a_planted_wrong_state_is_found_in_play_and_at_rest() {
    // The position is predicted to within 3 steps, velocity, yaw and pitch are known to within 40, 5 and 2: a little more than
    // twice as many are wrong wherever in between it is. All else is exact.
    for (word, off) in [(6, 11), (3, 81), (5, 81_u32.wrapping_neg()), (7, 5), (8, 1), (0, 7), (2, 7)] {
        check_planted(World::play(&[]), word, off);
    }
    // State at an edge may be off twice, and may equal the truth of any tick of the last seconds.
    for (word, off) in [(6, 150), (3, 200), (5, 200_u32.wrapping_neg()), (7, 7), (8, 1), (0, 60), (2, 60)] {
        check_planted(at_an_edge(), word, off);
    }
}

#[test]
fn clients_of_an_edge_have_the_same_ages_as_clients_of_the_server() {
    let edge = at_an_edge().ages_ms();
    for (seat, (here_ms, edge_ms)) in World::play(&[]).ages_ms().iter().zip(&edge).enumerate() {
        assert!((here_ms - edge_ms).abs() < 4.0, "seat {seat}: {here_ms} ms, and {edge_ms} ms at an edge");
    }
}

#[test]
fn an_object_that_an_edge_has_from_nowhere_is_a_mismatch() {
    let mut world = at_an_edge();
    world.compare();
    // The edge calls one object another one.
    let (wrong, right) = (world.characters[0].0, world.characters[1].0);
    let edge = world.edge.as_mut().expect("it is there");
    edge.note(wrong, original(right));
    edge.flush().expect("the file can be written");
    world.step();
    world.compare();
    for (number, seat) in world.seats.iter().enumerate() {
        // It is another one than the truth has, and the one that it is called is missing.
        assert_eq!(seat.witness.at_rest(), Compared { objects: 2 * SEATS as u64, mismatches: 2 }, "seat {number}");
    }
}

/// While nothing comes from the server, an edge shows its objects later than it knows them, as far as it promises, and no further.
#[test]
fn an_edge_that_counts_too_far_is_wrong_unless_it_notes_that_and_keeps_its_promise() {
    let coast = COAST_TICKS as u64;
    for (beyond_ticks, notes_beyond, is_right) in [(9, false, false), (coast, true, true), (coast + 4, true, false)] {
        let edge = CopiesWriter::create(2).expect("a file");
        let world = World { beyond_ticks, notes_beyond, ..World::with_edge(&[], None, Some(edge)) }.played();
        for seat in &world.seats {
            let in_play = seat.witness.in_play();
            let case = format!("{beyond_ticks} ticks, noted: {notes_beyond}, {in_play:?}");
            assert!(in_play.objects > 100 && (in_play.mismatches == 0) == is_right, "{case}");
        }
    }
}

/// An object goes to a second server: its state is compared with that one's from then on, and what was sent before with the first.
#[test]
fn an_object_that_another_server_has_taken_over_is_compared_with_that_ones_state() {
    let mut world = at_an_edge();
    let id = world.characters[SEATS / 2].0;
    let since = world.server.current_tick();
    let edge = world.edge.as_mut().expect("it is there");
    edge.note(id, Original { origin: 1, id: there(id), since, there: since });
    world.moved = Some(id);
    let compared: Vec<u64> = world.seats.iter().map(|seat| seat.witness.in_play().objects).collect();
    // Until all that is kept of the second server has the object.
    for _ in 0..200 {
        world.step();
    }
    world.compare();
    for (seat, before) in world.seats.iter().zip(compared) {
        let in_play = seat.witness.in_play();
        assert!(in_play.objects > before + 100 && in_play.mismatches == 0, "{in_play:?}");
        assert_eq!(seat.witness.at_rest(), Compared { objects: SEATS as u64, mismatches: 0 });
    }
    world.wrong = Some((id, 8, 1));
    for _ in 0..30 {
        world.step();
    }
    world.compare();
    for (number, seat) in world.seats.iter().enumerate() {
        assert_eq!(seat.witness.at_rest(), Compared { objects: 2 * SEATS as u64, mismatches: 1 }, "seat {number}");
    }
}

fn check_planted(mut world: World, word: usize, off: u32) {
    world.compare();
    for seat in &world.seats {
        let (in_play, at_rest) = (seat.witness.in_play(), seat.witness.at_rest());
        assert!(in_play.objects > 100 && in_play.mismatches == 0, "{in_play:?}");
        assert_eq!(at_rest, Compared { objects: SEATS as u64, mismatches: 0 });
    }
    world.wrong = Some((world.characters[SEATS / 2].0, word, off));
    for _ in 0..30 {
        world.step();
    }
    world.compare();
    for (number, seat) in world.seats.iter().enumerate() {
        assert!(seat.witness.in_play().mismatches > 0, "seat {number}");
        assert_eq!(seat.witness.at_rest(), Compared { objects: 2 * SEATS as u64, mismatches: 1 }, "seat {number}");
    }
}

#[test]
fn an_object_that_the_game_does_not_have_is_a_mismatch_in_play() {
    let mut world = World::play(&[]);
    let (id, owner, _) = world.characters[SEATS / 2];
    world.ghost = Some(id);
    for _ in 0..30 {
        world.step();
    }
    // A bot whose own character is not in the snapshot does not look.
    for seat in world.seats.iter().filter(|seat| seat.connection != Some(owner)) {
        assert!(seat.witness.in_play().mismatches > 0, "{:?}", seat.witness.in_play());
    }
}

#[test]
fn a_neighbour_that_a_seat_does_not_hold_is_a_mismatch() {
    let mut world = World::play(&[]);
    for seat in &mut world.seats {
        let mut snapshot = seat.witness.pasts[0].snapshot.clone();
        let mut missing = snapshot.objects[0];
        (missing.id.index, missing.owner) = (missing.id.index + 1_000, Some(9_999));
        snapshot.objects.push(missing);
        seat.witness.tell(&snapshot);
    }
    world.compare();
    for seat in &world.seats {
        assert_eq!(seat.witness.at_rest(), Compared { objects: SEATS as u64, mismatches: 1 });
    }
}

/// A client whose view of one object is another one.
struct Planted<'a> {
    inner: &'a ReplicaClient,
    id: ObjectId,
    facets: [bool; Facet::ALL.len()],
    words: Vec<u32>,
}

impl Planted<'_> {
    fn plant<'b>(&'b self, view: ObjectView<'b>) -> ObjectView<'b> {
        let values = Values { words: &self.words, ..view.values };
        if view.id == self.id { ObjectView { facets: self.facets, values, reckoned: None, ..view } } else { view }
    }
}

impl Decoder for Planted<'_> {
    fn open(_: &Arc<Schema>, _: &[GridShape], _: replica::ClientOptions) -> Result<Self, String> {
        Err("it is of another client".to_owned())
    }

    fn apply(&mut self, _: Tick, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn poll_event(&mut self) -> Option<replica::ClientEvent> {
        None
    }

    fn view(&self, id: ObjectId) -> Option<ObjectView<'_>> {
        Decoder::view(self.inner, id).map(|view| self.plant(view))
    }

    fn views(&self) -> impl Iterator<Item = ObjectView<'_>> {
        Decoder::views(self.inner).map(|view| self.plant(view))
    }

    fn count(&self) -> usize {
        Decoder::count(self.inner)
    }
}

/// The values are right each time: only what the client is sent is not.
#[test]
fn a_neighbour_that_is_seen_from_afar_is_lacking_and_an_owner_has_to_be_the_right_one() {
    let mut world = World::play(&[]);
    let now = world.now;
    let Seat { client, witness, connection, .. } = &mut world.seats[0];
    let inner = client.replica().expect("connected");
    let own = inner.owned().next().expect("it has a character").id();
    let other = Decoder::views(inner).map(|view| view.id).find(|id| *id != own).expect("it has neighbours");
    let (near, mine, far) = ([true, false, false, false], [true, true, false, false], [false, false, false, true]);
    let all = 1.0 - 1.0 / SEATS as f64;
    for (id, facets, because, known) in [
        (own, mine, None, 1.0),
        (other, near, None, 1.0),
        (other, far, Some("the client lacks it"), all),
        (own, near, Some("another owner"), 1.0),
        (other, mine, Some("another owner"), 1.0),
    ] {
        let words = witness.pasts[0].find(id).expect("it is there").words.to_vec();
        let eyes = Eyes { replica: Some(&Planted { inner, id, facets, words }), connection: *connection, edge: None };
        (witness.at_rest, witness.differences) = (Compared::default(), Differences::default());
        witness.begin();
        witness.compare(&eyes);
        witness.look_through(now, &eyes);
        let expected = Compared { objects: SEATS as u64, mismatches: because.is_some().into() };
        assert_eq!((witness.at_rest(), witness.known_within_40_m()), (expected, Some(known)), "{facets:?}");
        let told: Vec<String> = witness.differences().into_iter().map(|difference| difference.because).collect();
        assert_eq!(told, because.into_iter().collect::<Vec<_>>());
    }
    // Clients of older models do not know what they own.
    witness.knows_owners = false;
    let words = witness.pasts[0].find(own).expect("it is there").words.to_vec();
    let planted = Planted { inner, id: own, facets: near, words };
    witness.compare(&Eyes { replica: Some(&planted), connection: *connection, edge: None });
    assert_eq!(witness.at_rest().mismatches, 1, "that of before");
}

#[test]
fn a_bot_is_compared_with_nothing_if_a_server_has_left_no_last_state_and_the_witness_says_so() {
    let scenario = scenario();
    let mut writers = [0, 1].map(|_| TruthWriter::create(SEATS).expect("a file"));
    let paths: Vec<PathBuf> = writers.iter().map(|writer| writer.path().to_owned()).collect();
    let mut write = |server: usize, is_final: bool| {
        let objects = std::iter::empty::<GameObject>();
        writers[server].write((Tick(7), clock::now()), None, is_final, objects).expect("the file can be written");
    };
    let compared = |connection: Option<u32>| {
        let mut witness = Witness::new(&paths, &[], &scenario).expect("the files are there");
        let eyes = Eyes::<ReplicaClient> { replica: None, connection, edge: None };
        witness.compare_final(std::iter::once(eyes), Duration::ZERO);
        (witness.without_last().to_vec(), witness.not_compared(), witness.at_rest().mismatches)
    };
    write(0, true);
    assert_eq!(compared(Some(3)), (vec![2], 1, 0), "before the second server has begun");
    write(1, false);
    assert_eq!(compared(Some(3)), (vec![2], 1, 0));
    write(1, true);
    assert_eq!(compared(Some(3)), (vec![], 0, 1), "no server has its character");
    assert_eq!(compared(None), (vec![], 1, 0), "it is not connected");
}

#[test]
fn whatever_a_client_still_shows_of_a_server_that_was_killed_is_a_mismatch_at_rest() {
    let mut world = at_an_edge();
    world.compare();
    world.seats.iter_mut().for_each(|seat| seat.witness.pasts[0].is_gone = true);
    world.compare();
    for seat in &world.seats {
        // And nobody has the character of its client.
        let expected = Compared { objects: 2 * SEATS as u64, mismatches: SEATS as u64 + 1 };
        assert_eq!(seat.witness.at_rest(), expected);
        let differences = seat.witness.differences();
        assert_eq!(differences.len(), differences::DESCRIBED, "no more are described");
        assert!(differences.iter().all(|of| of.because == "its server was killed" && of.server == Some(1)));
    }
}

/// In a few ticks an object can go from server to server to server, and a client knows nothing of it yet.
#[test]
fn a_state_of_two_servers_ago_is_compared_with_the_state_of_that_server() {
    let mut world = at_an_edge();
    let id = world.characters[0].0;
    let (sent, mut at) = (world.server.current_tick(), Vec::new());
    for (hops, origin) in [(1, 1), (2, 0)] {
        let edge = world.edge.as_mut().expect("it is there");
        let since = sent.after(hops);
        edge.note(id, Original { origin, id: ObjectId { index: 900 + hops, generation: 1 }, since, there: since });
        edge.flush().expect("the file can be written");
        let translation = &mut world.seats[0].witness.translation;
        translation.refresh();
        let (now, told) = translation.source(Some(0), id, sent).expect("it is known");
        at.push((now.id.index, told.map(|told| told.id)));
    }
    assert_eq!(at, [(901, Some(there(id))), (902, Some(there(id)))]);
}

/// The new process counts its objects from the beginning, so it gives the numbers of the former one to others.
#[test]
fn an_object_of_a_killed_process_is_not_the_one_with_its_number_in_the_process_after_it() {
    let mut world = at_an_edge();
    let (id, here) = (world.characters[0].0, world.server.current_tick());
    let now = |witness: &Witness| witness.translation.source(Some(0), id, here).expect("it is known").0;
    let witness = &mut world.seats[0].witness;
    assert!(witness.truth_of(now(witness)).is_some());
    let mut again = witness.pasts[0].snapshot.clone();
    again.tick = Tick(LIFE_TICKS + 9);
    witness.pasts[0].tell(&again);
    assert!(witness.pasts[0].find(there(id)).is_some() && witness.truth_of(now(witness)).is_none());
    assert_eq!(witness.pasts[0].oldest_us(), None, "states of the former process are those of other objects");
    // The edge connects to the new process, and counts its ticks. Its objects are still of the former one.
    let edge = world.edge.as_mut().expect("it is there");
    edge.note_ticks(0, here, again.tick);
    edge.flush().expect("the file can be written");
    witness.refresh(Time(0));
    assert!(witness.truth_of(now(witness)).is_none());
    // It goes on as an object of the new process. That misses ticks later, and the edge corrects its count.
    edge.note(id, Original { since: here, there: again.tick, ..original(id) });
    edge.note_ticks(0, here.after(90), again.tick.after(5));
    edge.flush().expect("the file can be written");
    witness.refresh(Time(0));
    assert!(witness.truth_of(now(witness)).is_some());
}

/// By the faults of a run, and how long a server that had been killed by then was silent.
#[test]
fn a_server_is_gone_until_a_process_has_its_place_and_for_good_after_a_kill() {
    for (faults, [first, second]) in [
        (&["kill:server-2:1s"][..], [true, true]),
        (&["restart:server-2:1s:1s"], [true, false]),
        (&["restart:server-2:1s:1s", "kill:server-2:5s"], [true, true]),
        (&["restart:server-2:1s:1s", "restart:server-2:5s:1s"], [true, true]),
        (&["restart:server-3:1s:1s", "pause:server-2:1s:2s"], [false, false]),
    ] {
        let faults = faults.iter().map(|fault| fault.parse().expect("a fault")).collect();
        let (edges, servers, seconds) = (Some(1), Some(3), Some(10));
        let overrides = Overrides { edges, servers, seconds, faults, ..Overrides::default() };
        let scenario = Scenario::resolve("crowd", &overrides).expect("it is possible");
        let mut writer = TruthWriter::create(1).expect("a file");
        let mut past = Past::new(Some(writer.path()), FORMER_MAX, (1, &scenario)).expect("the file is there");
        for (life, is_gone) in [(0, first), (1, second)] {
            let written = Time::from_secs(10 * life + 1);
            writer
                .write((Tick(LIFE_TICKS * life + 1), written), None, false, std::iter::empty())
                .expect("it is written");
            past.refresh(written);
            assert!(!past.is_gone);
            past.refresh(written.after(Duration::from_millis(1_100)));
            assert_eq!(past.is_gone, is_gone, "{:?}, process {life}", scenario.faults);
        }
    }
}
