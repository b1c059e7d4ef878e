//! The commands of one player: checked when they come, and one for each tick.
//!
//! A player moves once per tick, however many commands arrive. Commands that come together wait. If none has come, the
//! last movement goes on for a while, without shots; the late commands then count together as one, so that a player gains
//! no time and its commands wait no longer than necessary.

use throng::Tick;
use throng_match::Digest;
use throng_wire::ShortTick;

use crate::command::{Buttons, Choice, Command};

/// Commands of a player that wait at most.
pub(crate) const WAITING_MAX: usize = 8;
/// The last movement goes on for so many ticks at most.
const REPEATED_MAX: u8 = 16;
/// If so many ticks in a row a command was left waiting, one is merged into the next.
const STANDING_TICKS: u16 = 128;

/// Buttons that do something once, when they are pressed.
const PRESSES: u16 = Buttons::FIRE.bits()
    | Buttons::JUMP.bits()
    | Buttons::RELOAD.bits()
    | Buttons::SMOKE.bits()
    | Buttons::WALL.bits()
    | Buttons::DASH.bits();

/// Why a command, or the shot in it, was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    OutOfOrder,
    FromFuture,
    TooFast,
    ViewTooOld,
    FarOrigin,
    UnknownSeat,
}

/// Commands and shots that were refused so far, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Bytes that are no command.
    pub malformed: u64,
    /// A number that is not newer than the last one.
    pub out_of_order: u64,
    /// A view of a tick that has not been sent yet.
    pub from_future: u64,
    /// More commands than ticks: speed and rate cheats.
    pub too_fast: u64,
    /// A shot at a view that is older than anything that is kept.
    pub view_too_old: u64,
    /// A shot from a place where the player is not.
    pub far_origin: u64,
    /// A command of a seat that does not exist or is not connected: misuse by the runtime.
    pub unknown_seat: u64,
}

impl Refusals {
    pub(crate) fn count(&mut self, refusal: Refusal) {
        *match refusal {
            Refusal::Malformed => &mut self.malformed,
            Refusal::OutOfOrder => &mut self.out_of_order,
            Refusal::FromFuture => &mut self.from_future,
            Refusal::TooFast => &mut self.too_fast,
            Refusal::ViewTooOld => &mut self.view_too_old,
            Refusal::FarOrigin => &mut self.far_origin,
            Refusal::UnknownSeat => &mut self.unknown_seat,
        } += 1;
    }

    /// All counts with stable names, for metrics.
    pub fn all(&self) -> [(&'static str, u64); 7] {
        [
            ("malformed", self.malformed),
            ("out_of_order", self.out_of_order),
            ("from_future", self.from_future),
            ("too_fast", self.too_fast),
            ("view_too_old", self.view_too_old),
            ("far_origin", self.far_origin),
            ("unknown_seat", self.unknown_seat),
        ]
    }
}

/// A player's action in one tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) command: Command,
    /// It came for this tick; else it is a repeated one.
    pub(crate) is_fresh: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) is_joined: bool,
    pub(crate) rtt_us: u32,
    newest: Option<u32>,
    waiting: [Command; WAITING_MAX],
    count: usize,
    last: Command,
    /// Ticks in a row without a command.
    repeated: u8,
    /// Commands that are late because the player moved without them.
    debt: u8,
    /// Ticks in a row in which a command was left waiting.
    standing: u16,
}

impl Inbox {
    /// A new player: nothing of the one before is left.
    pub(crate) fn join(&mut self) {
        *self = Inbox { is_joined: true, last: self.last, ..Inbox::default() };
        self.repeated = REPEATED_MAX;
    }

    /// The player looks somewhere else from now on, without having said so.
    pub(crate) fn turn(&mut self, yaw: u16) {
        (self.last.yaw, self.last.pitch) = (yaw, 0);
    }

    pub(crate) fn leave(&mut self) {
        self.is_joined = false;
        self.rtt_us = 0;
        self.count = 0;
    }

    /// Takes bytes that came from the client.
    pub(crate) fn accept(&mut self, number: u32, bytes: &[u8], now: Tick) -> Result<(), Refusal> {
        let command = Command::decode(bytes).map_err(|_| Refusal::Malformed)?;
        // Numbers wrap around: newer is what lies within the next half of them.
        if self.newest.is_some_and(|newest| number.wrapping_sub(newest).cast_signed() <= 0) {
            return Err(Refusal::OutOfOrder);
        }
        self.newest = Some(number);
        if ShortTick(command.view_tick).near(now) > now {
            return Err(Refusal::FromFuture);
        }
        self.push(command).ok_or(Refusal::TooFast)
    }

    /// Takes a command of an agent, which needs no checks.
    pub(crate) fn push(&mut self, command: Command) -> Option<()> {
        *self.waiting.get_mut(self.count)? = command;
        self.count += 1;
        Some(())
    }

    /// The player's action in this tick. Each choice of a command that came is reported, in order.
    pub(crate) fn take(&mut self, mut choose: impl FnMut(Choice)) -> Order {
        let Some(mut command) = self.pop() else {
            self.standing = 0;
            if self.repeated == REPEATED_MAX {
                let Command { yaw, pitch, .. } = self.last;
                self.last = Command { yaw, pitch, ..Command::default() };
            } else {
                self.repeated += 1;
                self.debt = (self.debt + 1).min(REPEATED_MAX);
            }
            return Order { command: self.last, is_fresh: false };
        };
        self.repeated = 0;
        choose(command.choice);
        self.standing = if self.count > 0 { self.standing + 1 } else { 0 };
        if self.standing > STANDING_TICKS {
            (self.standing, self.debt) = (0, self.debt + 1);
        }
        while self.debt > 0 {
            let Some(next) = self.pop() else { break };
            self.debt -= 1;
            choose(next.choice);
            command = merged(command, next);
        }
        if self.count == 0 {
            // Nothing is late any more: what did not come was lost.
            self.debt = self.debt.saturating_sub(1);
        }
        self.last = command;
        Order { command, is_fresh: true }
    }

    fn pop(&mut self) -> Option<Command> {
        if self.count == 0 {
            return None;
        }
        let first = self.waiting[0];
        self.waiting.copy_within(1.., 0);
        self.count -= 1;
        Some(first)
    }

    /// Everything of it that a later tick depends on.
    pub(crate) fn digest(&self, hash: &mut Digest) {
        hash.add(self.is_joined.into());
        hash.add(u64::from(self.rtt_us));
        hash.add(self.newest.map_or(u64::MAX, u64::from));
        hash.add(self.count as u64);
        for command in self.waiting[..self.count].iter().chain([&self.last]) {
            hash.add_bytes(&command.encode());
        }
        hash.add(u64::from(self.repeated) | u64::from(self.debt) << 8 | u64::from(self.standing) << 16);
    }
}

/// Two commands as one: the movement of the later one, and everything that was pressed. A shot keeps its aim.
fn merged(earlier: Command, later: Command) -> Command {
    let pressed = Buttons::from_bits(earlier.buttons.bits() & PRESSES).unwrap_or_default();
    let mut command = Command { buttons: later.buttons | pressed, ..later };
    if earlier.buttons.contains(Buttons::FIRE) && !later.buttons.contains(Buttons::FIRE) {
        let Command { view_tick, view_fraction, yaw, pitch, place, .. } = earlier;
        command = Command { view_tick, view_fraction, yaw, pitch, place, ..command };
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Item;

    const NOW: Tick = Tick(1_000);

    fn bytes(forward: i8) -> [u8; 16] {
        Command { forward, view_tick: 990, ..Command::default() }.encode()
    }

    fn joined() -> Inbox {
        let mut inbox = Inbox::default();
        inbox.join();
        inbox
    }

    #[test]
    fn a_player_moves_once_per_tick_and_the_rest_waits_or_is_refused() {
        let mut inbox = joined();
        for number in 0..WAITING_MAX as u32 {
            assert_eq!(inbox.accept(number, &bytes(number as i8), NOW), Ok(()));
        }
        assert_eq!(inbox.accept(8, &bytes(8), NOW), Err(Refusal::TooFast));
        for tick in 0..WAITING_MAX as i8 {
            let order = inbox.take(|_| ());
            assert_eq!((order.command.forward, order.is_fresh), (tick, true));
        }
        assert!(!inbox.take(|_| ()).is_fresh);
    }

    #[test]
    fn numbers_rise_and_wrap_around() {
        let mut inbox = joined();
        assert_eq!(inbox.accept(u32::MAX - 1, &bytes(1), NOW), Ok(()));
        assert_eq!(inbox.accept(u32::MAX - 1, &bytes(1), NOW), Err(Refusal::OutOfOrder));
        assert_eq!(inbox.accept(5, &bytes(1), NOW), Ok(()));
        assert_eq!(inbox.accept(u32::MAX, &bytes(1), NOW), Err(Refusal::OutOfOrder));
    }

    #[test]
    fn views_of_ticks_to_come_are_refused() {
        let mut inbox = joined();
        let seen = |view_tick: u32| Command { view_tick, ..Command::default() }.encode();
        assert_eq!(inbox.accept(0, &seen(1_001), NOW), Err(Refusal::FromFuture));
        assert_eq!(inbox.accept(1, &seen(1_000), NOW), Ok(()));
        assert_eq!(inbox.accept(2, &seen(0), NOW), Ok(()), "only a shot is too old");
        assert_eq!(inbox.accept(3, &[0; 3], NOW), Err(Refusal::Malformed));
    }

    #[test]
    fn what_comes_late_counts_as_one_and_no_press_is_lost() {
        let mut inbox = joined();
        inbox.accept(0, &bytes(100), NOW).unwrap();
        inbox.take(|_| ());
        for _ in 0..3 {
            assert_eq!(inbox.take(|_| ()).command.forward, 100, "it goes on");
        }
        let fire = Command { buttons: Buttons::FIRE, yaw: 7, choice: Choice::Buy(Item::Kit), ..Command::default() };
        let jump = Command { buttons: Buttons::JUMP, yaw: 8, choice: Choice::Buy(Item::Smoke), ..Command::default() };
        let last = Command { forward: 5, yaw: 9, ..Command::default() };
        for (number, command) in [fire, jump, last, last, last].into_iter().enumerate() {
            inbox.accept(number as u32 + 1, &command.encode(), NOW).unwrap();
        }
        let mut choices = Vec::new();
        let order = inbox.take(|choice| choices.push(choice));
        assert_eq!(order.command.buttons, Buttons::FIRE | Buttons::JUMP);
        assert_eq!((order.command.yaw, order.command.forward), (7, 5), "aimed as when it fired");
        assert_eq!(choices[..2], [Choice::Buy(Item::Kit), Choice::Buy(Item::Smoke)]);
        assert!(inbox.take(|_| ()).is_fresh, "three ticks were made up for; the fifth command is a tick of its own");
        assert!(!inbox.take(|_| ()).is_fresh);
    }

    #[test]
    fn a_player_who_has_gone_quiet_stops() {
        let mut inbox = joined();
        inbox.accept(0, &bytes(100), NOW).unwrap();
        inbox.take(|_| ());
        let moves = (0..100).filter(|_| inbox.take(|_| ()).command.forward != 0).count();
        assert_eq!(moves, usize::from(REPEATED_MAX));
    }

    #[test]
    fn a_client_that_is_a_little_fast_does_not_wait_for_ever_longer() {
        let mut inbox = joined();
        let mut number = 0;
        let mut most = 0;
        for tick in 0..20_000u32 {
            for _ in 0..if tick % 500 == 0 { 2 } else { 1 } {
                inbox.accept(number, &bytes(1), NOW).unwrap();
                number += 1;
            }
            inbox.take(|_| ());
            most = most.max(inbox.count);
        }
        assert!(most <= 2, "{most}");
    }
}
