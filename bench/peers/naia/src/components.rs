//! The protocol of server and clients.

use naia_shared::{Property, Protocol, Replicate, Serde, SignedInteger, UnsignedInteger};
use peers_harness::Units;

#[derive(Replicate)]
pub(crate) struct Character {
    /// Which of the world's objects it is; never changes.
    pub(crate) number: Property<u16>,
    pub(crate) state: Property<State>,
}

#[derive(Replicate)]
pub(crate) struct Chest {
    pub(crate) number: Property<u16>,
    /// Never changes.
    pub(crate) place: Property<Place>,
    pub(crate) contents: Property<u16>,
}

/// A character, quantised. 97 bits.
#[derive(Serde, Clone, PartialEq)]
pub(crate) struct State {
    x: UnsignedInteger<20>,
    y: UnsignedInteger<20>,
    z: UnsignedInteger<11>,
    vx: SignedInteger<8>,
    vy: SignedInteger<8>,
    vz: SignedInteger<8>,
    yaw: UnsignedInteger<9>,
    pitch: SignedInteger<7>,
    mode: UnsignedInteger<2>,
}

#[derive(Serde, Clone, PartialEq)]
pub(crate) struct Place {
    x: f32,
    y: f32,
    z: f32,
}

pub(crate) fn protocol() -> Protocol {
    Protocol::builder().add_component::<Character>().add_component::<Chest>().build()
}

impl Character {
    pub(crate) fn new(number: u16, units: &Units) -> Character {
        Character::new_complete(number, State::from(units))
    }
}

impl Chest {
    pub(crate) fn new(number: u16, [x, y, z]: [f32; 3], contents: u16) -> Chest {
        Chest::new_complete(number, Place { x, y, z }, contents)
    }
}

impl From<&Units> for State {
    fn from(units: &Units) -> State {
        let steps = units.steps();
        let ([x, y, z], [vx, vy, vz]) = (steps.position, steps.velocity);
        State {
            x: UnsignedInteger::new(x),
            y: UnsignedInteger::new(y),
            z: UnsignedInteger::new(z),
            vx: SignedInteger::new(vx),
            vy: SignedInteger::new(vy),
            vz: SignedInteger::new(vz),
            yaw: UnsignedInteger::new(steps.yaw),
            pitch: SignedInteger::new(steps.pitch),
            mode: UnsignedInteger::new(steps.mode),
        }
    }
}

impl State {
    pub(crate) fn steps(&self) -> peers_harness::Character {
        peers_harness::Character {
            position: [self.x.get(), self.y.get(), self.z.get()].map(|steps| steps as u32),
            velocity: [self.vx.get(), self.vy.get(), self.vz.get()].map(|steps| steps as i32),
            yaw: self.yaw.get() as u32,
            pitch: self.pitch.get() as i32,
            mode: self.mode.get() as u32,
        }
    }
}
