//! A bot's input for the server, four bytes per input tick:
//!
//! ```text
//! byte 0: actions   bit 0 forward, bit 1 jump, bit 2 seek centre, bits 3 to 7 zero
//! byte 1: turn      signed, −127..127: share of the largest turn rate, positive from x towards y
//! byte 2: pitch     signed, −127..127: share of the largest pitch, positive up
//! byte 3: sequence  counts inputs, wrapping, so that a repeated input is known as such
//! ```

use thiserror::Error;

use super::MAX_PITCH_RAD;

const FORWARD: u8 = 1;
const JUMP: u8 = 2;
const SEEK_CENTRE: u8 = 4;
const ACTIONS: u8 = FORWARD | JUMP | SEEK_CENTRE;

/// The wanted actions of a bot's character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BotInput {
    /// Walk.
    pub forward: bool,
    /// Jump, once, if on the ground.
    pub jump: bool,
    /// Let the server steer to the centre of the area.
    pub seek_centre: bool,
    /// −127 to 127: share of [`MAX_TURN_RAD_PER_S`](super::MAX_TURN_RAD_PER_S).
    pub turn: i8,
    /// −127 to 127: share of [`MAX_PITCH_RAD`].
    pub pitch: i8,
    /// Counts the bot's inputs, wrapping.
    pub sequence: u8,
}

/// Why bytes are not an input. Always the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InputError {
    /// Not [`BotInput::LEN`] bytes.
    #[error("an input is {} bytes long, not {len}", BotInput::LEN)]
    Length {
        /// Bytes that came.
        len: usize,
    },
    /// Bits that mean nothing are set.
    #[error("an input has unknown actions: {actions:#04x}")]
    Actions {
        /// The byte that came.
        actions: u8,
    },
    /// Turn or pitch is −128.
    #[error("an input turns or aims by -128; the range is -127 to 127")]
    Range,
}

impl InputError {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            InputError::Length { .. } => "input_length",
            InputError::Actions { .. } => "input_actions",
            InputError::Range => "input_range",
        }
    }
}

impl BotInput {
    /// Bytes of an encoded input.
    pub const LEN: usize = 4;

    /// The input's bytes. −128 becomes −127.
    pub fn encode(self) -> [u8; BotInput::LEN] {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let actions = flag(self.forward, FORWARD) | flag(self.jump, JUMP) | flag(self.seek_centre, SEEK_CENTRE);
        [actions, self.turn.max(-127) as u8, self.pitch.max(-127) as u8, self.sequence]
    }

    /// The input in `bytes`.
    ///
    /// # Errors
    /// If the bytes are not what [`BotInput::encode`] makes.
    pub fn decode(bytes: &[u8]) -> Result<BotInput, InputError> {
        let &[actions, turn, pitch, sequence] = bytes else { return Err(InputError::Length { len: bytes.len() }) };
        if actions & !ACTIONS != 0 {
            return Err(InputError::Actions { actions });
        }
        let (turn, pitch) = (turn as i8, pitch as i8);
        if turn == i8::MIN || pitch == i8::MIN {
            return Err(InputError::Range);
        }
        Ok(BotInput {
            forward: actions & FORWARD != 0,
            jump: actions & JUMP != 0,
            seek_centre: actions & SEEK_CENTRE != 0,
            turn,
            pitch,
            sequence,
        })
    }

    /// From −1 to 1.
    pub(super) fn turn_share(self) -> f32 {
        f32::from(self.turn) / 127.0
    }

    pub(super) fn pitch_rad(self) -> f32 {
        f32::from(self.pitch) / 127.0 * MAX_PITCH_RAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_fixed() {
        let input = BotInput { forward: true, jump: false, seek_centre: true, turn: -1, pitch: 127, sequence: 9 };
        assert_eq!(input.encode(), [0b101, 0xFF, 127, 9]);
    }

    #[test]
    fn what_decodes_encodes_to_the_same_bytes_and_nothing_else_decodes() {
        let mut accepted = 0;
        for actions in 0..=255 {
            for turn in 0..=255 {
                for pitch in [0, 1, 127, 128, 129, 255] {
                    let bytes = [actions, turn, pitch, 7];
                    if let Ok(input) = BotInput::decode(&bytes) {
                        assert_eq!(input.encode(), bytes);
                        accepted += 1;
                    }
                }
            }
        }
        assert_eq!(accepted, 8 * 255 * 5);
    }

    #[test]
    fn wrong_bytes_are_refused_by_reason() {
        let tag = |bytes: &[u8]| BotInput::decode(bytes).unwrap_err().tag();
        assert_eq!(tag(&[]), "input_length");
        assert_eq!(tag(&[0; 5]), "input_length");
        assert_eq!(tag(&[8, 0, 0, 0]), "input_actions");
        assert_eq!(tag(&[1, 0x80, 0, 0]), "input_range");
        assert_eq!(tag(&[1, 0, 0x80, 0]), "input_range");
    }
}
