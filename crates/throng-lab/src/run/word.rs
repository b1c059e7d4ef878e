//! The words between a run and its load workers, over an encrypted connection of Throng's own: the worker is the server.
//!
//! ```text
//! run                                        load worker
//!   ask (number)                  ------->                      lane 1, again and again
//!                                 <-------    answer (number, when it came, when it left)
//!   order (JSON)                  ------->    starts its bots
//!                                 <-------    ready, or refused (why)
//!   command (JSON)                ------->    to its bots
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

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use throng::{LaneKind, LaneOptions, Replicate, Schema};
use throng_crowd::scenario::Scenario;
use throng_crowd::truth;

use crate::bots::Share;

/// The protocol id of load workers.
pub(super) const PROTOCOL_ID: u64 = 0x7468_726F_6E67_7732;
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
pub(super) const BODY_MAX: usize = 8 << 20;
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
    /// The kind of the message that has begun, and the parts that are still to come.
    begun: Option<(Kind, u16)>,
    /// A message of this kind is lost: its other parts are no message of their own.
    lost: Option<Kind>,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Takes a part. The message, once it is whole. A message that is too long, lacks a part or is mixed with another is lost, and so is
    /// all that comes before its last part.
    pub(super) fn take(&mut self, word: Word) -> Option<(Kind, Vec<u8>)> {
        let kind = word.kind()?;
        if let Some(lost) = self.lost {
            if lost == kind && word.parts_left == 0 {
                self.lost = None;
            }
            return None;
        }
        let follows = self.begun.is_none_or(|(of, left)| of == kind && left.checked_sub(1) == Some(word.parts_left));
        if !follows || self.bytes.len() + word.body.len() > BODY_MAX {
            let (of, _) = self.begun.take().unwrap_or((kind, word.parts_left));
            self.lost = (of != kind || word.parts_left > 0).then_some(of);
            self.bytes = Vec::new();
            return None;
        }
        self.begun = (word.parts_left > 0).then_some((kind, word.parts_left));
        self.bytes.extend_from_slice(&word.body);
        self.begun.is_none().then(|| (kind, std::mem::take(&mut self.bytes)))
    }
}

/// Messages that wait for the connection, oldest first. They are counted in bytes: some are short, and some are a world.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    words: VecDeque<Word>,
    bytes: usize,
}

/// A word takes so many bytes beside its body.
const WORD_BYTES: usize = size_of::<Word>();

impl Outbox {
    /// Whether a message of any length may wait, too. Then all together have twice the bytes of the longest at most.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < BODY_MAX
    }

    /// Adds the parts of a message. False, and nothing is added, if there is no room.
    pub(super) fn push(&mut self, words: impl IntoIterator<Item = Word>) -> bool {
        let has_room = self.has_room();
        if has_room {
            for word in words {
                self.bytes += WORD_BYTES + word.body.len();
                self.words.push_back(word);
            }
        }
        has_room
    }

    /// Sends as much as `send` takes: it returns false for a word that has to wait.
    pub(super) fn pass_on(&mut self, mut send: impl FnMut(&Word) -> bool) {
        while let Some(word) = self.words.front()
            && send(word)
        {
            self.bytes -= WORD_BYTES + word.body.len();
            self.words.pop_front();
        }
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
        // One that is too long, and one that nobody knows.
        for parts_left in (0..1_000).rev() {
            assert_eq!(
                assembly.take(Word::part(Kind::Line, parts_left, vec![0; PART_MAX])),
                None,
                "its end is no message"
            );
            assert!(assembly.bytes.len() <= BODY_MAX);
        }
        assert_eq!(assembly.take(Word { kind: 11, ..Word::default() }), None);
        assert_eq!(assembly.take(Word::new(Kind::Got, Vec::new())), Some((Kind::Got, Vec::new())));
    }

    #[test]
    fn a_message_that_lacks_a_part_or_is_mixed_with_another_is_lost_and_the_next_one_is_whole() {
        let part = |kind: Kind, parts_left: u16| Word::part(kind, parts_left, vec![parts_left as u8]);
        let whole = |assembly: &mut Assembly| {
            assert_eq!(assembly.take(part(Kind::Line, 1)), None);
            assert_eq!(assembly.take(part(Kind::Line, 0)), Some((Kind::Line, vec![1, 0])));
        };
        let mut assembly = Assembly::default();
        for words in [
            &[(Kind::Line, 3), (Kind::Line, 1), (Kind::Line, 0)][..],
            &[(Kind::Line, 2), (Kind::Line, 2), (Kind::Line, 1), (Kind::Line, 0)],
            &[(Kind::Line, 1), (Kind::Got, 0), (Kind::Line, 0)],
            &[(Kind::Line, 2), (Kind::Got, 1), (Kind::Got, 0), (Kind::Line, 1), (Kind::Line, 0)],
        ] {
            let taken = words.iter().filter_map(|&(kind, left)| assembly.take(part(kind, left))).count();
            assert_eq!(taken, 0, "{words:?}");
            whole(&mut assembly);
        }
    }

    #[test]
    fn what_waits_for_the_connection_is_counted_in_bytes() {
        let mut outbox = Outbox::default();
        let long = || Word::parts(Kind::Line, &vec![0; BODY_MAX]).expect("it is short enough");
        assert!(outbox.push(long()) && !outbox.push(long()) && !outbox.push([Word::new(Kind::Got, Vec::new())]));
        let mut sent = 0;
        outbox.pass_on(|word| {
            sent += word.body.len();
            sent <= BODY_MAX / 2
        });
        assert!(outbox.push(long()) && !outbox.has_room());
        assert!(outbox.bytes <= 2 * BODY_MAX, "{}", outbox.bytes);
        outbox.pass_on(|_| true);
        assert_eq!((outbox.bytes, outbox.words.len()), (0, 0));
        // Empty ones take room, too.
        let many = (0..BODY_MAX).take_while(|_| outbox.push([Word::new(Kind::Got, Vec::new())])).count();
        assert!(many <= BODY_MAX / WORD_BYTES + 1, "{many}");
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
