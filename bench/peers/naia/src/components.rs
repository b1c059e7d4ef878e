//! The protocol of server and clients.

use std::sync::OnceLock;

use naia_shared::{
    BitReader, BitWrite, Property, Protocol, Replicate, Serde, SerdeErr, SignedInteger, UnsignedInteger,
};
use peers_harness::{Units, Workload};

/// Which plane is on the wire. naia's reading and writing of values know nothing but the value, so the program knows it.
static WORKLOAD: OnceLock<Workload> = OnceLock::new();

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

/// A character, quantised: 84 bits in the dense workload, 94 in the sparse ones.
#[derive(Serde, Clone, PartialEq)]
pub(crate) struct State {
    x: Plane,
    y: Plane,
    z: UnsignedInteger<8>,
    vx: SignedInteger<8>,
    vy: SignedInteger<8>,
    vz: SignedInteger<8>,
    yaw: UnsignedInteger<9>,
    pitch: SignedInteger<7>,
    mode: UnsignedInteger<2>,
}

/// Steps along an axis: 15 bits in the dense workload, 20 in the sparse ones.
#[derive(Clone, PartialEq)]
struct Plane(u32);

#[derive(Serde, Clone, PartialEq)]
pub(crate) struct Place {
    x: f32,
    y: f32,
    z: f32,
}

/// Of one workload, the same for the whole program.
pub(crate) fn protocol(workload: Workload) -> Protocol {
    WORKLOAD.get_or_init(|| workload);
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
            x: Plane(x),
            y: Plane(y),
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
            position: [self.x.0, self.y.0, self.z.get() as u32],
            velocity: [self.vx.get(), self.vy.get(), self.vz.get()].map(|steps| steps as i32),
            yaw: self.yaw.get() as u32,
            pitch: self.pitch.get() as i32,
            mode: self.mode.get() as u32,
        }
    }
}

type DenseSteps = UnsignedInteger<15>;
type SparseSteps = UnsignedInteger<20>;

fn is_dense() -> bool {
    WORKLOAD.get() == Some(&Workload::Dense)
}

impl Serde for Plane {
    fn ser(&self, writer: &mut dyn BitWrite) {
        match is_dense() {
            true => DenseSteps::new(self.0).ser(writer),
            false => SparseSteps::new(self.0).ser(writer),
        }
    }

    fn de(reader: &mut BitReader) -> Result<Plane, SerdeErr> {
        let steps = match is_dense() {
            true => DenseSteps::de(reader)?.get(),
            false => SparseSteps::de(reader)?.get(),
        };
        Ok(Plane(steps as u32))
    }

    fn bit_length(&self) -> u32 {
        if is_dense() { 15 } else { 20 }
    }
}
