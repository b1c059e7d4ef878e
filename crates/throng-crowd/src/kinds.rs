//! The kinds that the lab's server replicates.

use std::sync::Arc;

use throng::schema::Threshold;
use throng::{Replicate, ReplicateEnum, Schema};
use throng_edge::{ToEdge, ToOrigin};

use crate::pulse::Pulse;
use crate::talk::Talk;
use crate::world::{CharacterState, Mode};

/// The steps of a character's position as clients far away are told it.
pub const FAR_STEP_M: f32 = 0.5;

/// A character's velocity along an axis, in metres per second, from its word.
pub fn velocity_of(word: u32) -> f64 {
    f64::from(word) * 0.02 - 20.0
}

/// The words of a character with a threshold, and by how many steps clients may be off: velocity, yaw and pitch.
pub const THRESHOLDS: [Threshold; 5] = [
    Threshold { word: 3, steps: 40, code_mask: u32::MAX },
    Threshold { word: 4, steps: 40, code_mask: u32::MAX },
    Threshold { word: 5, steps: 40, code_mask: u32::MAX },
    Threshold { word: 6, steps: 5, code_mask: 0x1FF },
    Threshold { word: 7, steps: 2, code_mask: u32::MAX },
];

/// Where the words of that position begin.
pub const FAR_WORD: usize = 9;

/// A player's character.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Character {
    /// Feet, in metres.
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03), far(step = 0.5))]
    pub position: [f32; 3],
    /// In metres per second. While a character turns or falls, its position is stated when the old velocity would lead too far
    /// from it, and the new velocity with it.
    #[replicate(fixed(min = -20.0, max = 20.0, step = 0.02), threshold = 0.8)]
    pub velocity: [f32; 3],
    /// Where it looks, in radians. Three and a half degrees are seen by nobody, and one that turns fast turns so far in two ticks.
    #[replicate(angle(bits = 9), threshold = 0.062)]
    pub yaw: f32,
    /// Up is positive, in radians. Aims wander in every tick; two degrees are seen by nobody.
    #[replicate(fixed(min = -1.5, max = 1.5, step = 0.02), threshold = 0.04)]
    pub pitch: f32,
    /// The state of the legs.
    #[replicate(enumeration)]
    pub stance: Stance,
}

/// The state of a character's legs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ReplicateEnum)]
pub enum Stance {
    /// On the ground, not moving.
    #[default]
    Standing,
    /// On the ground, moving.
    Walking,
    /// In the air.
    Airborne,
}

/// A chest beside a character's spawn point; its contents change all the time.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Chest {
    /// In metres.
    #[replicate(position(step = 0.01))]
    pub position: [f32; 3],
    /// A generated property.
    #[replicate(integer)]
    pub contents: u16,
}

/// Something that never changes.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Prop {
    /// In metres.
    #[replicate(position(step = 0.01))]
    pub position: [f32; 3],
}

/// A kind of the lab: its number in [`schema`], and the words that its quantised fields take.
pub trait LabKind: Replicate {
    /// Index of the kind.
    const NUMBER: u16;
    /// Words of its quantised fields.
    const WORDS: usize;
}

impl LabKind for Character {
    const NUMBER: u16 = 0;
    const WORDS: usize = 12;
}

impl LabKind for Chest {
    const NUMBER: u16 = 1;
    const WORDS: usize = 4;
}

impl LabKind for Prop {
    const NUMBER: u16 = 2;
    const WORDS: usize = 3;
}

/// The code tables, learnt from the workloads: see the example `learn_codes`.
const CODES: &str = include_str!("kinds.codes");

/// The kinds of all workloads, and the messages between a server and bots on another machine, and between an edge and its origin.
pub fn schema() -> Arc<Schema> {
    let schema = Schema::builder().kind::<Character>().kind::<Chest>().kind::<Prop>().kind::<Pulse>().kind::<Talk>();
    let schema = schema.kind::<ToOrigin>().kind::<ToEdge>();
    Arc::new(schema.codes(CODES).build().expect("the lab's kinds and their code tables are possible"))
}

impl From<&CharacterState> for Character {
    fn from(state: &CharacterState) -> Character {
        Character {
            position: state.position,
            velocity: state.velocity,
            yaw: state.yaw,
            pitch: state.pitch,
            stance: match state.mode {
                Mode::Standing => Stance::Standing,
                Mode::Walking => Stance::Walking,
                Mode::Airborne => Stance::Airborne,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_of_the_kinds_are_those_of_the_schema() {
        fn check<K: LabKind>() {
            assert_eq!(schema().kind_id::<K>().map(|kind| kind.0), Some(K::NUMBER), "{}", K::kind().name);
            assert_eq!(K::kind().empty_values().0.len(), K::WORDS, "{}", K::kind().name);
        }
        assert_eq!(Character::kind().thresholds(), THRESHOLDS);
        check::<Character>();
        check::<Chest>();
        check::<Prop>();
    }
}
