//! The witness on virtual time: it finds planted errors, and no others.

use std::net::SocketAddr;

use throng::net::{Condition, Conditioned, ConditionedOptions, Driver, MemoryNetwork};
use throng::{
    Client, ClientEvent, ClientOptions, GridOptions, Key, Placement, Ring, Server, ServerEvent, ServerOptions,
    TokenIssuer, Up,
};

use super::*;
use crate::host::PROTOCOL_ID;
use crate::kinds::{self, Character};
use crate::scenario::Overrides;

const TICK_US: u64 = 33_333;
const SEATS: usize = 12;
/// The moments of samples do not depend on the ticks.
const LOOK_US: u64 = 977;

/// One client with a witness of its own.
struct Seat {
    client: Client,
    witness: Witness,
    connection: Option<u32>,
}

/// A server whose characters walk in a circle, everybody within 10 m, and its truth by the game's own structs.
struct World {
    server: Server,
    seats: Vec<Seat>,
    characters: Vec<(ObjectId, u32, Character)>,
    /// The truth of this object is one bit off.
    wrong: Option<ObjectId>,
    now: Time,
}

impl World {
    /// The seats of `slow` receive everything 50 ms later.
    fn new(slow: &[usize]) -> World {
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
            let driver: Box<dyn Driver> = Box::new(Conditioned::new(endpoint, &conditions).expect("good conditions"));
            let token = issuer.issue(seat as u64 + 1, &[address]).expect("one server");
            let client = Client::new(driver, token, kinds::schema(), ClientOptions::default(), Time(0));
            Seat {
                client: client.expect("good options"),
                witness: Witness::new(None, &scenario).expect("no file to open"),
                connection: None,
            }
        });
        let seats = seats.collect();
        World { server, seats, characters: Vec::new(), wrong: None, now: Time(0) }
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
                self.characters.push((id, connection.index, value));
            }
        }
        while self.server.poll_input().is_some() {}
        let tick = self.server.current_tick();
        for (id, number, value) in &mut self.characters {
            let angle = tick.short().0 as f32 * 0.02 + *number as f32;
            value.position = [3.0 * angle.cos(), 3.0 * angle.sin(), 0.0];
            value.velocity = [-1.8 * angle.sin(), 1.8 * angle.cos(), 0.0];
            value.yaw = angle % 3.0;
            *self.server.get_mut(*id).expect("the object is there") = value.clone();
        }
        self.server.tick(began);
        let truth = self.characters.iter().map(|(id, owner, value)| {
            let mut object = TrueObject::of(*id, Some(*owner), value);
            object.words[6] ^= u32::from(self.wrong == Some(*id));
            object
        });
        let snapshot = Snapshot { tick, time: began, objects: truth.collect(), ..Snapshot::default() };
        self.seats.iter_mut().for_each(|seat| seat.witness.tell(&snapshot));
        while self.now.micros_since(began) < TICK_US {
            self.now = Time(self.now.0 + LOOK_US).min(Time(began.0 + TICK_US));
            for seat in &mut self.seats {
                let _ = seat.client.update(self.now);
                while let Some(event) = seat.client.poll_event() {
                    if let ClientEvent::Connected { connection, .. } = event {
                        seat.connection = Some(connection.index);
                    }
                }
                let eyes = Eyes { replica: seat.client.replica(), connection: seat.connection };
                let now = self.now;
                seat.witness.look(|| now, std::iter::once(eyes), true);
            }
        }
    }

    /// Plays, and measures only after everybody has connected.
    fn play(slow: &[usize]) -> World {
        let mut world = World::new(slow);
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
            seat.witness.compare(&Eyes { replica: seat.client.replica(), connection: seat.connection });
        }
    }

    /// By seat, the median age of near neighbours in milliseconds.
    fn ages_ms(&self) -> Vec<f64> {
        let median = |seat: &Seat| seat.witness.figures().near.age_ms.p50.expect("there are neighbours");
        self.seats.iter().map(median).collect()
    }
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
fn the_same_world_twice_gives_the_same_figures() {
    let figures = || World::play(&[3]).seats.iter().map(|seat| seat.witness.figures()).collect::<Vec<_>>();
    assert_eq!(figures(), figures());
}

#[test]
fn a_planted_wrong_state_is_found_in_play_and_at_rest() {
    let mut world = World::play(&[]);
    world.compare();
    for seat in &world.seats {
        let (in_play, at_rest) = (seat.witness.in_play(), seat.witness.at_rest());
        assert!(in_play.objects > 100 && in_play.mismatches == 0, "{in_play:?}");
        assert_eq!(at_rest, Compared { objects: SEATS as u64, mismatches: 0 });
    }
    let (id, owner, _) = world.characters[SEATS / 2];
    world.wrong = Some(id);
    for _ in 0..30 {
        world.step();
    }
    world.compare();
    for (number, seat) in world.seats.iter().enumerate() {
        // While everything moves, a bot's own character is not compared.
        let is_own = seat.connection == Some(owner);
        assert_eq!(seat.witness.in_play().mismatches > 0, !is_own, "seat {number}");
        assert_eq!(seat.witness.at_rest(), Compared { objects: 2 * SEATS as u64, mismatches: 1 }, "seat {number}");
    }
}
