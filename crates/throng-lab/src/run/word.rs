//! The words between a run and its load workers, over an encrypted connection of Throng's own: the worker is the server.
//!
//! ```text
//! run                                        load worker
//!   ask (number)                  ------->                      lane 1, again and again
//!                                 <-------    answer (number, when it came, when it left)
//!   order (JSON)                  ------->    starts its bots
//!                                 <-------    ready, or refused (why)
//!   command (a line)              ------->    to its bots
//!   tick (number, beginning)      ------->    lane 1
//!   snapshot                      ------->    into a file, as the server writes it beside local bots
//!                                 <-------    got: the next snapshot may come
//!                                 <-------    line (JSON) of its bots
//!                                 <-------    gone: its bots have ended
//! ```
//!
//! All times are those of the worker's clock: the run knows how both clocks differ, and translates. Lane 0 keeps the order, and
//! lane 1 may lose what it carries. Neither side takes more of the other than the limits here, and whoever does not know the key
//! of the worker gets no word.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use throng::{LaneKind, LaneOptions, Replicate, Schema};
use throng_crowd::scenario::Scenario;
use throng_crowd::truth;

use crate::bots::Share;

/// The protocol id of load workers.
pub(super) const PROTOCOL_ID: u64 = 0x7468_726F_6E67_7731;
/// In order, and never lost.
pub(super) const LANE: u8 = 0;
/// At once, or never.
pub(super) const QUICK: u8 = 1;
/// A side that says nothing for so long is gone.
pub(super) const SILENCE: Duration = Duration::from_secs(3);
/// The most that either side sends in a second.
pub(super) const BYTES_PER_S: u32 = 25_000_000;
/// Objects of a world that load workers can compare with.
const OBJECTS_MAX: usize = 100_000;
/// Whether load workers can compare with the world of a scenario.
pub(super) fn check_world(scenario: &Scenario) -> Result<()> {
    let objects = truth::room(scenario);
    ensure!(objects <= OBJECTS_MAX, "a world of {objects} objects is too large for load workers");
    Ok(())
}

/// The longest body of a message in parts: a snapshot of that world, and the counts of a worker's bots.
const BODY_MAX: usize = 8 << 20;
const PART_MAX: usize = 128 << 10;
/// Bytes that wait in lane 0.
const QUEUE_BYTES: usize = 4 << 20;

/// A message, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(super) struct Word {
    /// [`Kind`], as a number.
    #[replicate(integer)]
    kind: u8,
    /// Parts that are still to come.
    #[replicate(integer)]
    parts_left: u16,
    /// The meaning of the kind.
    #[replicate(bytes(max_bytes = 131072))]
    pub(super) body: Vec<u8>,
}

/// The meaning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ask,
    Answer,
    Order,
    Ready,
    Refused,
    Command,
    Tick,
    Snapshot,
    Got,
    Line,
    Gone,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Ask,
        Kind::Answer,
        Kind::Order,
        Kind::Ready,
        Kind::Refused,
        Kind::Command,
        Kind::Tick,
        Kind::Snapshot,
        Kind::Got,
        Kind::Line,
        Kind::Gone,
    ];
}

/// The part that a load worker is to play.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WorkOrder {
    pub(super) server: std::net::SocketAddr,
    pub(super) key: [u8; 32],
    pub(super) scenario: Scenario,
    pub(super) share: Share,
    /// When its first bot connects, in microseconds of the worker's clock.
    pub(super) begin_us: u64,
}

pub(super) fn schema() -> Arc<Schema> {
    Arc::new(Schema::builder().kind::<Word>().build().expect("one kind of message is possible"))
}

pub(super) fn lanes() -> Vec<LaneOptions> {
    let ordered = LaneOptions { queue_bytes: QUEUE_BYTES, ..LaneOptions::new(LaneKind::ReliableOrdered) };
    vec![ordered, LaneOptions::new(LaneKind::Unreliable)]
}

impl Word {
    /// A message of one part. A body that is too long is cut: see [`Word::parts`].
    pub(super) fn new(kind: Kind, mut body: Vec<u8>) -> Word {
        body.truncate(PART_MAX);
        Word::part(kind, 0, body)
    }

    /// Some numbers.
    pub(super) fn numbers<const N: usize>(kind: Kind, numbers: [u64; N]) -> Word {
        Word::new(kind, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    /// The messages of a body of any length; `None` if no other side would take it.
    pub(super) fn parts(kind: Kind, body: &[u8]) -> Option<Vec<Word>> {
        if body.len() > BODY_MAX {
            return None;
        }
        let count = body.len().div_ceil(PART_MAX).max(1);
        let mut bodies: Vec<Vec<u8>> = body.chunks(PART_MAX).map(<[u8]>::to_vec).collect();
        bodies.resize(count, Vec::new());
        let parts = bodies.into_iter().enumerate();
        Some(parts.map(|(number, body)| Word::part(kind, (count - 1 - number) as u16, body)).collect())
    }

    fn part(kind: Kind, parts_left: u16, body: Vec<u8>) -> Word {
        Word { kind: Kind::ALL.iter().position(|of| *of == kind).unwrap_or_default() as u8, parts_left, body }
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        Kind::ALL.get(usize::from(self.kind)).copied()
    }

    /// The numbers of its body, if it has so many.
    pub(super) fn read<const N: usize>(&self) -> Option<[u64; N]> {
        let (numbers, rest) = self.body.as_chunks::<8>();
        let numbers: [[u8; 8]; N] = numbers.try_into().ok().filter(|_| rest.is_empty())?;
        Some(numbers.map(u64::from_le_bytes))
    }
}

/// Puts messages together that come in parts, one after the other.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    kind: Option<Kind>,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Takes a part. The message, once it is whole; a message that is too long, or is mixed with another, is lost.
    pub(super) fn take(&mut self, word: Word) -> Option<(Kind, Vec<u8>)> {
        let kind = word.kind()?;
        if self.kind.is_some_and(|of| of != kind) || self.bytes.len() + word.body.len() > BODY_MAX {
            (self.kind, self.bytes) = (None, Vec::new());
            return None;
        }
        self.kind = Some(kind);
        self.bytes.extend_from_slice(&word.body);
        if word.parts_left > 0 {
            return None;
        }
        self.kind = None;
        Some((kind, std::mem::take(&mut self.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_come_in_parts_and_no_more_is_kept_than_may_come() {
        let body: Vec<u8> = (0..500_000u32).map(|number| number as u8).collect();
        let mut assembly = Assembly::default();
        let parts = Word::parts(Kind::Snapshot, &body).expect("it is short enough");
        let mut came = parts.into_iter().filter_map(|part| assembly.take(part));
        assert_eq!((came.next(), came.next()), (Some((Kind::Snapshot, body)), None));
        drop(came);
        assert_eq!(Word::parts(Kind::Line, &vec![0; BODY_MAX + 1]), None);
        assert_eq!(assembly.take(Word::new(Kind::Got, Vec::new())), Some((Kind::Got, Vec::new())));
        // One that never ends, and one that nobody knows.
        for _ in 0..1_000 {
            assert_eq!(assembly.take(Word::part(Kind::Line, 1, vec![0; PART_MAX])), None);
            assert!(assembly.bytes.len() <= BODY_MAX);
        }
        assert_eq!(assembly.take(Word { kind: 11, ..Word::default() }), None);
    }

    #[test]
    fn numbers_are_read_as_they_were_written_and_others_are_not() {
        let word = Word::numbers(Kind::Answer, [1, u64::MAX, 3]);
        assert_eq!((word.kind(), word.read()), (Some(Kind::Answer), Some([1, u64::MAX, 3])));
        assert_eq!((word.read::<2>(), Word::new(Kind::Tick, vec![0; 17]).read::<2>()), (None, None));
        for kind in Kind::ALL {
            assert_eq!(Word::new(kind, Vec::new()).kind(), Some(kind));
        }
    }
}
