//! A world of walkers and chests in front of any model, driven by its seam alone.

use std::f32::consts::TAU;
use std::sync::Arc;
use std::time::Instant;

use throng::replica::{Inline, Placement};
use throng::{
    ConnectionId, GridOptions, GridShape, ObjectId, Replicate, Replication, Ring, Schema, ServerOptions, StartError,
};
use throng_wire::KindId;

/// The steps of a tick, in the order in which they are done.
pub(crate) const STEPS: [&str; 5] = ["update", "look", "encode", "write", "settle"];
/// Nanoseconds of each step.
pub(crate) type StepTimes = [u64; STEPS.len()];

/// Verdicts on packets come after this many ticks.
const VERDICT_TICKS: usize = 3;
/// Until every buffer has its working size.
const WARM_UP_TICKS: usize = 60;
const PACKET_BYTES: usize = 1_150;
const BUDGET_BYTES: usize = 1 << 20;
/// Between two characters that must not see each other.
const APART_M: f32 = 800.0;
const SIGHT_M: f64 = 300.0;

/// The changing objects: every field changes in every tick, or only the direction of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    All,
    Turns,
}

/// Which kind the characters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// 5 fields, as in the lab.
    Character,
    /// The same, and 40 more that never change.
    Wide,
}

/// How many there are, and who sees what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Each with a connection and a character.
    pub(crate) viewers: u32,
    /// They all see each other, or each only itself and its chests.
    is_dense: bool,
    /// One field of each changes in every tick.
    chests_each: u32,
    body: Body,
    moves: Moves,
}

const ALONE: Shape = Shape {
    name: "sparse_100",
    what: "100 characters, each sees only itself",
    viewers: 100,
    is_dense: false,
    chests_each: 0,
    body: Body::Character,
    moves: Moves::All,
};
const DENSE: Shape =
    Shape { name: "dense_100", what: "100 characters in sight of each other", is_dense: true, ..ALONE };

pub(crate) const SHAPES: [Shape; 10] = [
    ALONE,
    Shape { name: "sparse_100_10", what: "and 10 chests for each", chests_each: 10, ..ALONE },
    Shape { name: "sparse_100_20", what: "and 20 chests for each", chests_each: 20, ..ALONE },
    Shape { name: "sparse_100_40", what: "and 40 chests for each", chests_each: 40, ..ALONE },
    Shape { name: "dense_25", what: "25 characters in sight of each other", viewers: 25, ..DENSE },
    DENSE,
    Shape { name: "dense_100_turn", what: "one field of 5 changes", moves: Moves::Turns, ..DENSE },
    Shape { name: "dense_100_wide", what: "40 fields more, which never change", body: Body::Wide, ..DENSE },
    Shape {
        name: "dense_100_wide_turn",
        what: "one field of 45 changes",
        body: Body::Wide,
        moves: Moves::Turns,
        ..DENSE
    },
    Shape { name: "dense_400", what: "400 characters in sight of each other", viewers: 400, ..DENSE },
];

impl Shape {
    /// Objects in sight of a viewer, its own character among them.
    pub(crate) fn seen(&self) -> u32 {
        if self.is_dense { self.viewers } else { 1 + self.chests_each }
    }

    fn home_m(&self, viewer: u32) -> [f32; 3] {
        let side = f64::from(self.viewers).sqrt().ceil() as u32;
        let apart_m = if self.is_dense { 150.0 / side as f32 } else { APART_M };
        // Off the corners of everybody's cells, so that who walks round there stays in one.
        let [x, y] = [viewer % side, viewer / side].map(|at| at as f32 * apart_m + 430.0);
        [x, y, 0.0]
    }
}

/// A character, and as many more fields as it is given names for.
macro_rules! character {
    ($name:ident $($idle:ident)*) => {
        #[derive(Clone, Debug, Default, PartialEq, Replicate)]
        struct $name {
            #[replicate(position(step = 0.01))]
            position: [f32; 3],
            #[replicate(fixed(min = -20.0, max = 20.0, step = 0.1))]
            velocity: [f32; 3],
            #[replicate(angle(bits = 9))]
            yaw: f32,
            #[replicate(fixed(min = -1.5, max = 1.5, step = 0.02))]
            pitch: f32,
            #[replicate(integer)]
            stance: u8,
            $(#[replicate(integer)] $idle: u16,)*
        }
    };
}

character!(Character);

character! {
    Wide
    a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9
    c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 d0 d1 d2 d3 d4 d5 d6 d7 d8 d9
}

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Chest {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer)]
    contents: u16,
}

const CHARACTER: KindId = KindId(0);
const WIDE: KindId = KindId(1);
const CHEST: KindId = KindId(2);

impl Character {
    /// Of a viewer in a tick: round a circle of a metre, and back and forth in everything else.
    fn at(shape: &Shape, viewer: u32, tick: u32) -> Character {
        let [x, y, z] = shape.home_m(viewer);
        let turn = ((tick + viewer * 7) % 64) as f32 / 64.0 * TAU;
        if shape.moves == Moves::Turns {
            return Character { position: [x, y, z], yaw: turn, ..Character::default() };
        }
        Character {
            position: [x + turn.cos(), y + turn.sin(), z + turn.sin() + 1.0],
            velocity: [turn.cos() * 4.0, turn.sin() * 4.0, turn.cos()],
            yaw: turn,
            pitch: turn.sin(),
            stance: ((tick + viewer) % 3) as u8,
        }
    }
}

/// A scene whose model is not known.
pub(crate) trait Crowded {
    /// A whole tick.
    fn tick(&mut self) -> StepTimes;

    /// Mean bytes to a connection in the last tick.
    fn bytes_per_tick(&self) -> u64;
}

/// A model, and its viewers.
pub(crate) struct Scene<R: Replication> {
    model: R,
    shape: Shape,
    viewers: Vec<ConnectionId>,
    characters: Vec<ObjectId>,
    chests: Vec<ObjectId>,
    tick: u32,
    next_sequence: u64,
    /// Packets of the last ticks, by connection index; the oldest ones are at `tick` modulo the length.
    under_way: [Vec<(u32, u64)>; VERDICT_TICKS],
    room: Vec<u8>,
    bytes: u64,
}

impl<R: Replication> Scene<R> {
    /// Everybody is there and knows everything in sight.
    pub(crate) fn new(
        shape: &Shape,
        model: impl FnOnce(&Arc<Schema>, &ServerOptions) -> Result<R, StartError>,
    ) -> Scene<R> {
        let schema = Schema::builder().kind::<Character>().kind::<Wide>().kind::<Chest>().build();
        let schema = Arc::new(schema.expect("good kinds"));
        let side_m = f64::from(APART_M) * (f64::from(shape.viewers).sqrt().ceil() + 1.0);
        let grid = GridOptions {
            shape: GridShape::flat(throng::Up::Z, [if shape.is_dense { 1_000.0 } else { 250.0 }, 250.0, 20.0]),
            bounds_m: Some([[0.0; 3], [side_m, side_m, 20.0]]),
            rings: vec![Ring { radius_m: SIGHT_M, interval_ticks: 1 }],
            ..GridOptions::new(throng::Up::Z)
        };
        let options = ServerOptions {
            grids: vec![grid],
            max_clients: shape.viewers,
            ..ServerOptions::new(1, throng::Key::new([1; 32]))
        };
        let mut scene = Scene {
            model: model(&schema, &options).expect("good options"),
            shape: *shape,
            viewers: Vec::new(),
            characters: Vec::new(),
            chests: Vec::new(),
            tick: 0,
            next_sequence: 1,
            under_way: Default::default(),
            room: vec![0; PACKET_BYTES],
            bytes: 0,
        };
        (0..shape.viewers).for_each(|viewer| scene.join(viewer));
        for _ in 0..WARM_UP_TICKS {
            scene.tick();
        }
        scene
    }

    fn join(&mut self, viewer: u32) {
        let id = self.model.connect(viewer as usize);
        self.model.admit(id);
        self.viewers.push(id);
        let home_m = self.shape.home_m(viewer);
        let start = Character::at(&self.shape, viewer, 0);
        let (kind, place) = (self.body_kind(), Placement::Cell(0));
        let spawned = self.model.spawn(kind, place, Some(id), |to| match kind {
            WIDE => Wide { position: start.position, ..Wide::default() }.quantise(to),
            _ => start.quantise(to),
        });
        self.characters.push(spawned.expect("room"));
        for chest in 0..self.shape.chests_each {
            let chest = Chest { position: [home_m[0] + 2.0 + chest as f32 * 0.1, home_m[1], 0.0], contents: 0 };
            self.chests.push(self.model.spawn(CHEST, place, None, |to| chest.quantise(to)).expect("room"));
        }
    }

    fn body_kind(&self) -> KindId {
        if self.shape.body == Body::Wide { WIDE } else { CHARACTER }
    }

    /// The game has moved everything.
    #[inline(never)]
    fn update(&mut self) {
        for (viewer, &id) in (0..).zip(&self.characters) {
            let state = Character::at(&self.shape, viewer, self.tick);
            let Character { position, velocity, yaw, pitch, stance } = state.clone();
            match self.shape.body {
                Body::Character => self.model.update(id, |to| state.quantise(to)),
                Body::Wide => self.model.update(id, |to| {
                    Wide { position, velocity, yaw, pitch, stance, ..Wide::default() }.quantise(to);
                }),
            }
            self.model.set_viewpoint(self.viewers[viewer as usize], position.map(f64::from));
        }
        for (number, &id) in (0..).zip(&self.chests) {
            let home_m = self.shape.home_m(number / self.shape.chests_each);
            let along_m = 2.0 + (number % self.shape.chests_each) as f32 * 0.1;
            let contents = (self.tick.wrapping_mul(40_503) as u16).wrapping_add(number as u16);
            let chest = Chest { position: [home_m[0] + along_m, home_m[1], 0.0], contents };
            self.model.update(id, |to| chest.quantise(to));
        }
    }

    #[inline(never)]
    fn look(&mut self) {
        self.model.look(&Inline);
    }

    #[inline(never)]
    fn encode(&mut self) {
        self.model.plan(&Inline);
        self.model.encode(&Inline);
    }

    #[inline(never)]
    fn write(&mut self) {
        let under_way = &mut self.under_way[self.tick as usize % VERDICT_TICKS];
        let (outgoing, slots) = self.model.writers();
        self.bytes = 0;
        for (viewer, slot) in (0..self.shape.viewers).zip(slots) {
            R::begin_write(slot, outgoing, BUDGET_BYTES);
            while R::has_more(slot) {
                let len = R::write_packet(slot, outgoing, self.next_sequence, &mut self.room);
                if len == 0 {
                    break;
                }
                under_way.push((viewer, self.next_sequence));
                self.next_sequence += 1;
                self.bytes += len as u64;
            }
        }
    }

    /// The packets of some ticks ago have arrived.
    #[inline(never)]
    fn settle(&mut self) {
        let arrived = &mut self.under_way[self.tick as usize % VERDICT_TICKS];
        for (viewer, sequence) in arrived.drain(..) {
            self.model.delivered(self.viewers[viewer as usize], sequence);
        }
    }
}

impl<R: Replication> Crowded for Scene<R> {
    fn tick(&mut self) -> StepTimes {
        self.tick += 1;
        let mut times = StepTimes::default();
        let mut time = |step: usize, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            times[step] = start.elapsed().as_nanos() as u64;
        };
        time(4, &mut || self.settle());
        time(0, &mut || self.update());
        time(1, &mut || self.look());
        time(2, &mut || self.encode());
        time(3, &mut || self.write());
        self.model.end_tick();
        times
    }

    fn bytes_per_tick(&self) -> u64 {
        self.bytes / u64::from(self.shape.viewers)
    }
}
