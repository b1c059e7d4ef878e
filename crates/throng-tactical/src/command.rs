//! A client's command for one tick, in 16 bytes.
//!
//! ```text
//!  0  4  view_tick       low half of the tick that the screen showed, little endian
//!  4  1  view_fraction   of the way to the next tick, in 1/256
//!  5  1  choice          0 nothing, 1 and 2 weapon slots, 16 to 22 items to buy
//!  6  2  yaw             full circle in 65,536 steps, little endian; 0 looks along +z, a quarter along +x
//!  8  2  pitch           -32,767 is straight down, 32,767 straight up, little endian
//! 10  1  forward         -127 to 127: share of full speed
//! 11  1  right           -127 to 127: share of full speed
//! 12  2  buttons         bits in the order of `Buttons`; the others are 0; little endian
//! 14  2  place           x and z of the feet by the client's knowledge: low byte of each, in 1/8 m
//! ```
//!
//! The bytes come from a client. Everything that has no meaning is refused: [`Command::decode`].

use std::f32::consts::{FRAC_PI_2, TAU};
use std::ops::{BitOr, BitOrAssign};

use glam::Vec3;
use thiserror::Error;

use crate::angle;
use crate::weapon::Slot;

/// Bytes of a command.
pub const COMMAND_BYTES: usize = 16;

/// Steps of [`Command::place`] in a metre.
const PLACE_STEPS_PER_M: f32 = 8.0;

/// A player's command for one tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Low half of the tick that the player's screen showed.
    pub view_tick: u32,
    /// Of the way to the next tick, in 1/256.
    pub view_fraction: u8,
    /// Where the player looks: the full circle in 65,536 steps. 0 looks along +z, 16,384 along +x.
    pub yaw: u16,
    /// Where the player looks: 32,767 is straight up, -32,767 straight down.
    pub pitch: i16,
    /// Share of full speed in the direction of the yaw: -127 to 127.
    pub forward: i8,
    /// Share of full speed to the right: -127 to 127.
    pub right: i8,
    /// The buttons that are held down.
    pub buttons: Buttons,
    /// A weapon to draw or an item to buy.
    pub choice: Choice,
    /// Where the feet are by the client's knowledge, as [`Command::place_of`] gives it. A shot is refused if it is fired
    /// too far from where the server has the player; it is always fired from the server's place.
    pub place: [u8; 2],
}

/// Buttons that are held down: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buttons(u16);

impl Buttons {
    /// Nothing.
    pub const NONE: Buttons = Buttons(0);
    /// Shoot.
    pub const FIRE: Buttons = Buttons(1);
    /// Jump.
    pub const JUMP: Buttons = Buttons(1 << 1);
    /// Crouch.
    pub const CROUCH: Buttons = Buttons(1 << 2);
    /// Walk silently and slowly instead of running.
    pub const WALK: Buttons = Buttons(1 << 3);
    /// Plant or defuse, while it is held; pick up the bomb.
    pub const USE: Buttons = Buttons(1 << 4);
    /// Reload.
    pub const RELOAD: Buttons = Buttons(1 << 5);
    /// Throw a smoke to where the player looks.
    pub const SMOKE: Buttons = Buttons(1 << 6);
    /// Raise a wall before the player.
    pub const WALL: Buttons = Buttons(1 << 7);
    /// Dash in the direction of the movement.
    pub const DASH: Buttons = Buttons(1 << 8);

    const ALL: u16 = (1 << 9) - 1;

    /// Whether all of `other` are held.
    pub const fn contains(self, other: Buttons) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those of this set that are not in `other`.
    pub const fn without(self, other: Buttons) -> Buttons {
        Buttons(self.0 & !other.0)
    }

    /// The set as bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The set of some bits. `None` if one of them has no meaning.
    pub const fn from_bits(bits: u16) -> Option<Buttons> {
        if bits & !Buttons::ALL == 0 { Some(Buttons(bits)) } else { None }
    }
}

impl BitOr for Buttons {
    type Output = Buttons;

    fn bitor(self, other: Buttons) -> Buttons {
        Buttons(self.0 | other.0)
    }
}

impl BitOrAssign for Buttons {
    fn bitor_assign(&mut self, other: Buttons) {
        self.0 |= other.0;
    }
}

/// Something to buy in the buy phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// A rifle, in place of the first weapon.
    Rifle,
    /// A sniper rifle, in place of the first weapon.
    Sniper,
    /// Armour, which takes half of the damage until it is used up.
    Armour,
    /// A charge of smoke.
    Smoke,
    /// A charge of the wall.
    Wall,
    /// A charge of the dash.
    Dash,
    /// A kit that halves the time of a defusal.
    Kit,
}

impl Item {
    /// All items, in the order of their codes.
    pub const ALL: [Item; 7] =
        [Item::Rifle, Item::Sniper, Item::Armour, Item::Smoke, Item::Wall, Item::Dash, Item::Kit];
}

/// A player's choice: in effect once for each command that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Nothing.
    #[default]
    Nothing,
    /// Draw the weapon in this slot.
    Draw(Slot),
    /// Buy.
    Buy(Item),
}

/// The code of the first item.
const FIRST_ITEM: u8 = 16;

impl Choice {
    /// Its byte in a command.
    pub fn code(self) -> u8 {
        match self {
            Choice::Nothing => 0,
            Choice::Draw(Slot::Primary) => 1,
            Choice::Draw(Slot::Sidearm) => 2,
            Choice::Buy(item) => FIRST_ITEM + item as u8,
        }
    }

    /// The choice of a byte. `None` if it has no meaning.
    pub fn from_code(code: u8) -> Option<Choice> {
        match code {
            0 => Some(Choice::Nothing),
            1 => Some(Choice::Draw(Slot::Primary)),
            2 => Some(Choice::Draw(Slot::Sidearm)),
            _ => Item::ALL.get(usize::from(code.checked_sub(FIRST_ITEM)?)).copied().map(Choice::Buy),
        }
    }
}

/// Why bytes are not a command. The client is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Another number of bytes than [`COMMAND_BYTES`].
    #[error("a command has {found} bytes instead of {COMMAND_BYTES}")]
    Length {
        /// Bytes given.
        found: usize,
    },
    /// A share of full speed below -127, or a pitch below straight down.
    #[error("a command has a speed or a pitch below its range")]
    Range,
    /// A button that does not exist.
    #[error("a command has a button that does not exist")]
    Buttons,
    /// A choice that does not exist.
    #[error("a command has a choice that does not exist")]
    Choice,
}

impl CommandError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            CommandError::Length { .. } => "command_length",
            CommandError::Range => "command_range",
            CommandError::Buttons => "command_buttons",
            CommandError::Choice => "command_choice",
        }
    }
}

impl Command {
    /// The bytes that a client sends.
    pub fn encode(&self) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0..4].copy_from_slice(&self.view_tick.to_le_bytes());
        bytes[4] = self.view_fraction;
        bytes[5] = self.choice.code();
        bytes[6..8].copy_from_slice(&self.yaw.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.pitch.max(-i16::MAX).to_le_bytes());
        bytes[10] = self.forward.max(-i8::MAX).cast_unsigned();
        bytes[11] = self.right.max(-i8::MAX).cast_unsigned();
        bytes[12..14].copy_from_slice(&self.buttons.0.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.place);
        bytes
    }

    /// The command in bytes that came from a client.
    ///
    /// # Errors
    /// Bytes that [`Command::encode`] never gives. The client is at fault.
    pub fn decode(bytes: &[u8]) -> Result<Command, CommandError> {
        let bytes: [u8; COMMAND_BYTES] = bytes.try_into().map_err(|_| CommandError::Length { found: bytes.len() })?;
        let [t0, t1, t2, t3, view_fraction, choice, y0, y1, p0, p1, forward, right, b0, b1, x, z] = bytes;
        let pitch = i16::from_le_bytes([p0, p1]);
        let (forward, right) = (forward.cast_signed(), right.cast_signed());
        if pitch == i16::MIN || forward == i8::MIN || right == i8::MIN {
            return Err(CommandError::Range);
        }
        Ok(Command {
            view_tick: u32::from_le_bytes([t0, t1, t2, t3]),
            view_fraction,
            yaw: u16::from_le_bytes([y0, y1]),
            pitch,
            forward,
            right,
            buttons: Buttons::from_bits(u16::from_le_bytes([b0, b1])).ok_or(CommandError::Buttons)?,
            choice: Choice::from_code(choice).ok_or(CommandError::Choice)?,
            place: [x, z],
        })
    }

    /// The yaw in radians, 0 to 2 pi.
    pub fn yaw_rad(&self) -> f32 {
        angle::yaw_rad(self.yaw)
    }

    /// The pitch in radians, positive upwards.
    pub fn pitch_rad(&self) -> f32 {
        angle::pitch_rad(self.pitch)
    }

    /// Sets yaw and pitch so that the command looks along `direction`, of any length above 0.
    pub fn look_along(&mut self, direction: Vec3) {
        let yaw = direction.x.atan2(direction.z) / TAU * 65_536.0;
        // Through a signed number: below zero counts back from the full circle.
        self.yaw = (yaw.round() as i32).rem_euclid(65_536) as u16;
        let level = (direction.x * direction.x + direction.z * direction.z).sqrt();
        let pitch = direction.y.atan2(level) / FRAC_PI_2 * f32::from(i16::MAX);
        self.pitch = pitch.round().clamp(-f32::from(i16::MAX), f32::from(i16::MAX)) as i16;
    }

    /// Sets forward and right so that the player walks along `direction` (y is ignored) as fast as `share` of full speed
    /// allows, whatever the yaw of this command is. Set the yaw before.
    pub fn walk_along(&mut self, direction: Vec3, share: f32) {
        let (sine, cosine) = angle::sine_cosine(self.yaw);
        let level = Vec3::new(direction.x, 0.0, direction.z).normalize_or_zero() * share.clamp(0.0, 1.0);
        let step = |part: f32| (part * 127.0).round().clamp(-127.0, 127.0) as i8;
        self.forward = step(level.x * sine + level.z * cosine);
        self.right = step(angle::right_of(sine, cosine).dot(level));
    }

    /// The [`place`](Command::place) of a position of feet.
    pub fn place_of(position: Vec3) -> [u8; 2] {
        // Through a wide signed number, so that the low byte of a negative one counts on without a step at zero.
        [position.x, position.z].map(|metres| ((metres * PLACE_STEPS_PER_M).floor() as i64 & 0xff) as u8)
    }

    /// The smallest level distance in metres between `position` and a position with this command's place. At most 22.6 m,
    /// because the bytes repeat every 32 m.
    pub fn distance_from_place_m(&self, position: Vec3) -> f32 {
        let own = Command::place_of(position);
        let off = |axis: usize| {
            let steps = self.place[axis].wrapping_sub(own[axis]).cast_signed();
            f32::from(steps) / PLACE_STEPS_PER_M
        };
        (off(0) * off(0) + off(1) * off(1)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_command() -> Command {
        Command {
            view_tick: 0x0403_0201,
            view_fraction: 5,
            yaw: 0x0807,
            pitch: -2,
            forward: 127,
            right: -127,
            buttons: Buttons::FIRE | Buttons::DASH,
            choice: Choice::Buy(Item::Kit),
            place: [14, 15],
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = [1, 2, 3, 4, 5, 22, 7, 8, 0xfe, 0xff, 127, 0x81, 1, 1, 14, 15];
        assert_eq!(some_command().encode(), bytes);
        assert_eq!(Command::decode(&bytes), Ok(some_command()));
    }

    #[test]
    fn any_bytes_are_a_command_or_refused_and_none_has_two_forms() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes: [u8; COMMAND_BYTES] = std::array::from_fn(|_| random.u8(..));
            if random.bool() {
                (bytes[5], bytes[13]) = (random.u8(..24), random.u8(..3));
            }
            match Command::decode(&bytes) {
                Ok(command) => {
                    taken += 1;
                    assert_eq!(command.encode(), bytes);
                }
                Err(_) => refused += 1,
            }
        }
        assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_reason() {
        let good = some_command().encode();
        let with = |place: usize, value: u8| {
            let mut bytes = good;
            bytes[place] = value;
            Command::decode(&bytes).map_err(|error| error.tag())
        };
        assert_eq!(Command::decode(&good[..15]), Err(CommandError::Length { found: 15 }));
        assert_eq!(Command::decode(&[0; 17]), Err(CommandError::Length { found: 17 }));
        assert_eq!(Command::decode(&[]), Err(CommandError::Length { found: 0 }));
        assert_eq!(with(10, 0x80), Err("command_range"));
        assert_eq!(with(11, 0x80), Err("command_range"));
        assert_eq!(with(13, 0x02), Err("command_buttons"));
        for code in [3, 15, 23, 255] {
            assert_eq!(with(5, code), Err("command_choice"), "{code}");
        }
        let mut down = good;
        down[8..10].copy_from_slice(&i16::MIN.to_le_bytes());
        assert_eq!(Command::decode(&down), Err(CommandError::Range));
    }

    #[test]
    fn looking_along_a_direction_gives_it_back() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1_000 {
            let mut part = || 2.0 * random.f32() - 1.0;
            let direction = Vec3::new(part(), part(), part()).normalize_or(Vec3::X);
            let mut command = Command::default();
            command.look_along(direction);
            let back = angle::direction(command.yaw, command.pitch);
            assert!((back - direction).length() < 2e-4, "{direction} {back}");
        }
    }

    #[test]
    fn walking_along_a_direction_does_not_depend_on_the_yaw() {
        for yaw in [0, 1_000, 16_384, 40_000, 65_535] {
            let mut command = Command { yaw, ..Command::default() };
            command.walk_along(Vec3::new(3.0, 1.0, -4.0), 1.0);
            let way = angle::level(command.yaw, command.forward, command.right);
            assert!((way - Vec3::new(0.6, 0.0, -0.8)).length() < 0.01, "{yaw}: {way}");
        }
    }

    #[test]
    fn a_place_is_near_the_position_it_was_made_of_and_far_from_others() {
        let command = Command { place: Command::place_of(Vec3::new(-0.05, 9.0, 31.0)), ..Command::default() };
        assert!(command.distance_from_place_m(Vec3::new(0.05, 0.0, 31.0)) < 0.2);
        let away = command.distance_from_place_m(Vec3::new(2.95, 0.0, 35.0));
        assert!((away - 5.0).abs() < 0.2, "{away}");
    }
}
