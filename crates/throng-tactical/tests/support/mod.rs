//! Maps that are shared by all tests, and a match that is played by scripts.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::sync::OnceLock;

use glam::{Vec3, vec3};
use throng::Tick;
use throng_match::{Flow, Game, Scopes, Seat, SeatCommand, SeatLatency, TickInput};
use throng_sight::{Layers, Map, Mesh, NamedBox, bake, town};
use throng_tactical::command::{Buttons, Command};
use throng_tactical::senses::{Own, RoundPhase};
use throng_tactical::{Arena, Event, Rules, SenseRoom, Tactical};

/// A town of two lots with furnished houses.
pub fn small_town() -> Arena {
    static TOWN: OnceLock<Arena> = OnceLock::new();
    TOWN.get_or_init(|| Arena::new(bake(&town::town(7, 20_000)).unwrap()).unwrap()).clone()
}

/// Boxes and planes with known places: see [`course`].
#[derive(Default)]
struct Bricks(Mesh);

impl Bricks {
    fn quad(&mut self, corners: [Vec3; 4], layers: u16) {
        let first = self.0.positions.len() as u32;
        self.0.positions.extend(corners);
        self.0.triangles.extend([[first, first + 1, first + 2], [first, first + 2, first + 3]]);
        self.0.layers.extend([Layers(layers); 2]);
    }

    fn brick(&mut self, low: Vec3, high: Vec3) {
        let at = |x: f32, y: f32, z: f32| low + (high - low) * vec3(x, y, z);
        for [a, b, c, d] in [
            [at(0., 0., 0.), at(0., 0., 1.), at(0., 1., 1.), at(0., 1., 0.)],
            [at(1., 0., 0.), at(1., 1., 0.), at(1., 1., 1.), at(1., 0., 1.)],
            [at(0., 0., 0.), at(1., 0., 0.), at(1., 0., 1.), at(0., 0., 1.)],
            [at(0., 1., 0.), at(0., 1., 1.), at(1., 1., 1.), at(1., 1., 0.)],
            [at(0., 0., 0.), at(0., 1., 0.), at(1., 1., 0.), at(1., 0., 0.)],
            [at(0., 0., 1.), at(1., 0., 1.), at(1., 1., 1.), at(0., 1., 1.)],
        ] {
            self.quad([a, b, c, d], 7);
        }
    }
}

/// An open field of 120 m x 120 m with things to walk on, far from each other:
///
/// ```text
/// x = 20, z -3..3        a wall without thickness, 3 m high
/// x = -20..-30, z -30    stairs of 16 steps (0.19 m high, 0.28 m deep) along -x, and a platform 3 m high
/// x = 30, z = 30         a kerb 0.3 m high (x 29..31)
/// x = 30, z = 40         a block 0.7 m high (x 29..31)
/// x = 40, z = 0          a roof 1.4 m above the ground (x 38..42)
/// spawn/a at z = -50, spawn/b at z = 50; site/a at x = -40, site/b at x = 50
/// ```
pub fn course() -> Arena {
    static COURSE: OnceLock<Arena> = OnceLock::new();
    COURSE
        .get_or_init(|| {
            let mut bricks = Bricks::default();
            for x in -6..6 {
                for z in -6..6 {
                    let low = vec3(10.0 * x as f32, 0.0, 10.0 * z as f32);
                    bricks.quad([low, low + vec3(0., 0., 10.), low + vec3(10., 0., 10.), low + vec3(10., 0., 0.)], 7);
                }
            }
            bricks.quad([vec3(20., 0., -3.), vec3(20., 3., -3.), vec3(20., 3., 3.), vec3(20., 0., 3.)], 7);
            for step in 0..16 {
                let (top, from) = (0.1875 * (step + 1) as f32, -20.0 - 0.28 * step as f32);
                bricks.brick(vec3(from - 0.28, 0.0, -32.0), vec3(from, top, -28.0));
            }
            bricks.brick(vec3(-30.0, 2.8, -32.0), vec3(-20.0 - 0.28 * 16.0, 3.0, -28.0));
            bricks.brick(vec3(29.0, 0.0, 28.0), vec3(31.0, 0.3, 32.0));
            bricks.brick(vec3(29.0, 0.0, 38.0), vec3(31.0, 0.7, 42.0));
            bricks.brick(vec3(38.0, 1.4, -3.0), vec3(42.0, 1.6, 3.0));
            let mark = |name: &str, middle: Vec3, half: Vec3| NamedBox {
                name: name.to_owned(),
                bounds: [middle - vec3(half.x, 0.0, half.z), middle + half],
            };
            bricks.0.marks = vec![
                mark("spawn/a", vec3(0.0, 0.0, -50.0), vec3(6.0, 2.0, 1.0)),
                mark("spawn/b", vec3(0.0, 0.0, 50.0), vec3(6.0, 2.0, 1.0)),
                mark("site/a", vec3(-40.0, 0.0, 0.0), vec3(4.0, 2.0, 4.0)),
                mark("site/b", vec3(50.0, 0.0, 0.0), vec3(4.0, 2.0, 4.0)),
            ];
            Arena::new(bake(&bricks.0).unwrap()).unwrap()
        })
        .clone()
}

/// Rules with short phases.
pub fn quick() -> Rules {
    Rules { buy_s: 0.1, end_s: 0.2, ..Rules::default() }
}

/// A match that is played by a script, with the inputs of all ticks so far.
pub struct Play {
    pub game: Tactical,
    pub tick: u64,
    numbers: Vec<u32>,
    waiting: Vec<(Seat, u32, Vec<u8>)>,
    rtts: Vec<u32>,
    pub room: SenseRoom,
    /// Events of all ticks so far.
    pub seen: Vec<Event>,
    pub digests: Vec<u64>,
}

impl Play {
    /// All seats are connected.
    pub fn new(arena: Arena, rules: Rules, seed: u64) -> Play {
        let seats = rules.seats();
        let game = Tactical::new(arena, rules, seed).unwrap();
        let mut play = Play {
            game,
            tick: 0,
            numbers: vec![0; seats],
            waiting: Vec::new(),
            rtts: vec![0; seats],
            room: SenseRoom::default(),
            seen: Vec::new(),
            digests: Vec::new(),
        };
        let joined: Vec<Seat> = (0..seats as u16).map(Seat).collect();
        play.step_with(&joined);
        play
    }

    /// A match in its live phase, on the course.
    pub fn live(rules: Rules) -> Play {
        let mut play = Play::new(course(), rules, 1);
        play.until(RoundPhase::Live);
        play
    }

    /// The same with another match, before its first step.
    pub fn rejoin(mut self) -> Play {
        (self.tick, self.seen, self.digests) = (0, Vec::new(), Vec::new());
        let joined: Vec<Seat> = (0..self.rtts.len() as u16).map(Seat).collect();
        self.step_with(&joined);
        self
    }

    pub fn rtt(&mut self, seat: u16, rtt_us: u32) {
        self.rtts[usize::from(seat)] = rtt_us;
    }

    pub fn me(&mut self, seat: u16) -> Own {
        self.game.senses(Seat(seat), &mut self.room).unwrap().me
    }

    /// A command of somebody who stands and looks as before, at the present.
    pub fn idle(&mut self, seat: u16) -> Command {
        self.game.senses(Seat(seat), &mut self.room).unwrap().command()
    }

    pub fn send(&mut self, seat: u16, command: Command) {
        self.send_bytes(seat, command.encode().to_vec());
    }

    pub fn send_bytes(&mut self, seat: u16, bytes: Vec<u8>) {
        let number = self.numbers[usize::from(seat)];
        self.numbers[usize::from(seat)] = number.wrapping_add(1);
        self.send_numbered(seat, number, bytes);
    }

    pub fn send_numbered(&mut self, seat: u16, number: u32, bytes: Vec<u8>) {
        self.waiting.push((Seat(seat), number, bytes));
    }

    pub fn step(&mut self) -> Flow {
        self.step_with(&[])
    }

    fn step_with(&mut self, joined: &[Seat]) -> Flow {
        self.tick += 1;
        self.waiting.sort_by_key(|(seat, ..)| *seat);
        let commands: Vec<SeatCommand<'_>> = self
            .waiting
            .iter()
            .map(|(seat, number, bytes)| SeatCommand { seat: *seat, number: *number, bytes })
            .collect();
        let latency = |(seat, rtt_us): (usize, &u32)| SeatLatency { seat: Seat(seat as u16), rtt_us: *rtt_us };
        let latencies: Vec<SeatLatency> = self.rtts.iter().enumerate().map(latency).collect();
        let input = TickInput { tick: Tick(self.tick), joined, left: &[], commands: &commands, latencies: &latencies };
        let flow = self.game.step(&input, &mut Scopes::off());
        self.waiting.clear();
        self.seen.extend_from_slice(self.game.events());
        self.digests.push(self.game.digest());
        flow
    }

    /// Steps until the phase comes; everybody is idle.
    pub fn until(&mut self, phase: RoundPhase) {
        let limit = self.tick + 60_000;
        while self.game.round_phase() != phase {
            self.step();
            assert!(self.tick < limit, "{phase:?} does not come");
        }
    }

    /// One seat does the same for some ticks, and the others nothing.
    pub fn hold(&mut self, seat: u16, ticks: u32, change: impl Fn(&mut Command)) {
        for _ in 0..ticks {
            let mut command = self.idle(seat);
            change(&mut command);
            self.send(seat, command);
            self.step();
        }
    }

    /// One seat presses buttons for one tick, and lets them go in the next.
    pub fn press(&mut self, seat: u16, buttons: Buttons) {
        self.hold(seat, 1, |command| command.buttons = buttons);
        self.hold(seat, 1, |_| ());
    }

    /// Puts somebody somewhere, looking along a direction.
    pub fn put(&mut self, seat: u16, feet: Vec3, towards: Vec3) {
        let mut command = Command::default();
        command.look_along(towards);
        self.game.put(Seat(seat), feet, command.yaw);
    }

    pub fn count(&self, is_wanted: impl Fn(&Event) -> bool) -> usize {
        self.seen.iter().filter(|event| is_wanted(event)).count()
    }

    pub fn shots(&self) -> usize {
        self.count(|event| matches!(event, Event::Shot { .. }))
    }

    pub fn hits(&self) -> usize {
        self.count(|event| matches!(event, Event::Hit { .. }))
    }
}

/// The height of the ground under a point.
pub fn ground_m(map: &Map, above: Vec3) -> Option<f32> {
    let ray = throng_sight::Ray::new(above, Vec3::NEG_Y, 100.0).ok()?;
    Some(ray.at(map.closest(&ray, town::BODIES)?.distance_m).y)
}
