//! Inputs: small, numbered, sent several times instead of resent.
//!
//! A lost input is useless by the time that its loss is known. So each packet repeats the last few that may not have
//! arrived. The receiver takes each number once, in order, and skips those that never arrived.

use std::collections::VecDeque;
use std::fmt;

use super::wire::{InputSection, MAX_INPUT_BYTES, expand_number};

/// Received inputs that may wait to be polled; beyond, the oldest is dropped.
pub const MAX_QUEUED_INPUTS: usize = 64;

/// Of these, so many wait at most in most ticks.
const USUALLY_QUEUED_INPUTS: usize = 8;

/// The distance behind the newest received input up to which an acknowledgement is sent: half of what the peer can tell
/// apart by 16 bits, so that inputs that it has pushed since do no harm.
const ACK_REACH_INPUTS: u32 = 1 << 14;

/// One input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// Its number, counting from [`SessionOptions::first_input`](super::SessionOptions::first_input), wrapping.
    pub number: u32,
    length: u8,
    bytes: [u8; MAX_INPUT_BYTES],
}

impl Input {
    /// `content` has at most [`MAX_INPUT_BYTES`]; what is beyond is cut off.
    fn new(number: u32, content: &[u8]) -> Input {
        let length = content.len().min(MAX_INPUT_BYTES);
        let mut bytes = [0; MAX_INPUT_BYTES];
        bytes[..length].copy_from_slice(&content[..length]);
        Input { number, length: length as u8, bytes }
    }

    /// The bytes of the input, at most [`MAX_INPUT_BYTES`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input {} {:?}", self.number, self.bytes())
    }
}

/// Whether `a` comes after `b` on the circle of numbers.
fn is_newer(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// The inputs that may not have arrived.
#[derive(Debug)]
pub(super) struct InputSender {
    /// Oldest first, numbers rising by one.
    recent: VecDeque<Input>,
    next: u32,
    /// The newest that the peer has processed.
    acked: Option<u32>,
    redundancy: usize,
    is_due: bool,
    /// The inputs pushed so far; from `u32::MAX` on the number stays.
    pushed: u32,
}

impl InputSender {
    pub(super) fn new(first: u32, redundancy: usize) -> InputSender {
        InputSender { recent: VecDeque::new(), next: first, acked: None, redundancy, is_due: false, pushed: 0 }
    }

    /// See [`Session::fetch`](super::Session::fetch).
    pub(super) fn fetch(&self) -> u64 {
        u64::from(self.next) ^ self.recent.len() as u64
    }

    /// See [`Session::fetch_behind`](super::Session::fetch_behind).
    pub(super) fn fetch_behind(&self) -> u64 {
        self.recent.front().map_or(0, |input| u64::from(input.number))
    }

    pub(super) fn push(&mut self, content: &[u8]) -> u32 {
        if self.recent.len() == self.redundancy {
            self.recent.pop_front();
        }
        let number = self.next;
        self.recent.push_back(Input::new(number, content));
        self.next = self.next.wrapping_add(1);
        self.pushed = self.pushed.saturating_add(1);
        self.is_due = true;
        number
    }

    /// Whether an input waits for its first sending, or the packet with the newest was lost.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    pub(super) fn acked(&self) -> Option<u32> {
        self.acked
    }

    /// Appends an input section of at most `room` bytes. Returns the newest input's number if one was written.
    pub(super) fn write(&mut self, room: usize, out: &mut Vec<u8>) -> Option<u32> {
        const HEAD_BYTES: usize = 3;
        let newest = self.recent.back()?;
        let mut used = HEAD_BYTES;
        let mut count = 0;
        for input in self.recent.iter().rev() {
            used += 1 + usize::from(input.length);
            if used > room {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return None;
        }
        out.extend_from_slice(&(newest.number as u16).to_le_bytes());
        out.push(count);
        for input in self.recent.iter().rev().take(usize::from(count)) {
            out.push(input.length);
            out.extend_from_slice(input.bytes());
        }
        self.is_due = false;
        Some(newest.number)
    }

    /// A packet with everything up to `number` has arrived.
    pub(super) fn on_delivered(&mut self, number: u32) {
        while self.recent.front().is_some_and(|input| !is_newer(input.number, number)) {
            self.recent.pop_front();
        }
        self.is_due &= !self.recent.is_empty();
    }

    /// A packet whose newest input was `number` is lost.
    pub(super) fn on_lost(&mut self, number: u32) {
        if self.recent.back().is_some_and(|input| input.number == number) {
            self.is_due = true;
        }
    }

    /// The peer says what it has processed. Returns false if that was never sent.
    pub(super) fn on_processed(&mut self, low: u16) -> bool {
        let number = expand_number(low, self.next.wrapping_sub(1));
        if self.next.wrapping_sub(number).wrapping_sub(1) >= self.pushed {
            return false;
        }
        if self.acked.is_none_or(|acked| is_newer(number, acked)) {
            self.acked = Some(number);
            self.on_delivered(number);
        }
        true
    }
}

/// The inputs that wait to be polled.
#[derive(Debug)]
pub(super) struct InputReceiver {
    queue: VecDeque<Input>,
    /// The number that has to come next.
    next: u32,
}

/// The result of a packet's inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InputTally {
    pub(super) received: u64,
    /// Skipped, because a newer one came first.
    pub(super) lost: u64,
    /// Dropped unpolled.
    pub(super) overflowed: u64,
}

impl InputReceiver {
    /// See [`Session::fetch`](super::Session::fetch).
    pub(super) fn fetch(&self) -> u64 {
        u64::from(self.next) ^ self.queue.len() as u64
    }

    pub(super) fn new(first: u32) -> InputReceiver {
        InputReceiver { queue: VecDeque::new(), next: first }
    }

    pub(super) fn poll(&mut self) -> Option<Input> {
        self.queue.pop_front()
    }

    /// The low half of an acknowledged number, if the peer can expand it: the number was received, and not too long ago.
    pub(super) fn short_ack(&self, number: u32) -> Option<u16> {
        let is_near = (1..=ACK_REACH_INPUTS).contains(&self.next.wrapping_sub(number));
        is_near.then_some(number as u16)
    }

    /// Takes the inputs that are new.
    pub(super) fn take(&mut self, section: &InputSection<'_>) -> InputTally {
        let mut tally = InputTally::default();
        let newest = expand_number(section.newest, self.next);
        if is_newer(self.next, newest) {
            return tally;
        }
        if newest == self.next
            && let Some((&length, items)) = section.items.split_first()
        {
            self.next = newest.wrapping_add(1);
            tally.overflowed += self.queue(newest, &items[..usize::from(length).min(items.len())]);
            tally.received += 1;
            return tally;
        }
        let wanted = newest.wrapping_sub(self.next) as usize + 1;
        // The section has its newest first; taken from its end it is in order.
        let mut items: [&[u8]; super::wire::MAX_INPUT_REDUNDANCY] = Default::default();
        let mut count = 0;
        let mut rest = section.items;
        while let Some((&length, tail)) = rest.split_first() {
            if count == wanted.min(items.len()) {
                break;
            }
            let (item, tail) = tail.split_at(usize::from(length).min(tail.len()));
            items[count] = item;
            count += 1;
            rest = tail;
        }
        tally.lost = (wanted - count) as u64;
        for (behind, item) in items[..count].iter().enumerate().rev() {
            tally.overflowed += self.queue(newest.wrapping_sub(behind as u32), item);
            tally.received += 1;
        }
        self.next = newest.wrapping_add(1);
        tally
    }

    /// Returns how many were dropped for it.
    fn queue(&mut self, number: u32, item: &[u8]) -> u64 {
        let is_full = self.queue.len() == MAX_QUEUED_INPUTS;
        if is_full {
            self.queue.pop_front();
        }
        match self.queue.capacity() {
            // Where inputs are polled as soon as they come, one waits.
            0 => self.queue.reserve_exact(1),
            // Where several wait, their number varies: there is room for the usual ones from then on.
            1 if !self.queue.is_empty() => self.queue.reserve_exact(USUALLY_QUEUED_INPUTS - 1),
            _ => {}
        }
        self.queue.push_back(Input::new(number, item));
        u64::from(is_full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(newest: u16, items: &[u8]) -> InputSection<'_> {
        InputSection { newest, items }
    }

    #[test]
    fn each_input_is_taken_once_and_in_order() {
        let mut receiver = InputReceiver::new(u32::MAX);
        let take = |r: &mut InputReceiver, newest, items: &[u8]| {
            let tally = r.take(&section(newest, items));
            let numbers: Vec<u32> = std::iter::from_fn(|| r.poll()).map(|input| input.number).collect();
            (numbers, tally.lost)
        };
        assert_eq!(take(&mut receiver, 1, &[1, 9, 1, 8]), (vec![0, 1], 1));
        assert_eq!(take(&mut receiver, 1, &[1, 9, 1, 8]), (vec![], 0));
        assert_eq!(take(&mut receiver, 2, &[0, 1, 9, 1, 8]), (vec![2], 0));
        assert_eq!(take(&mut receiver, 65_535, &[0]), (vec![], 0));
        assert_eq!(take(&mut receiver, 5, &[0]), (vec![5], 2));
    }

    #[test]
    fn where_inputs_wait_there_is_room_for_the_usual_ones_at_once() {
        let mut receiver = InputReceiver::new(0);
        let rooms = [0, 1, 2, 3, 4, 5, 6, 7].map(|newest| {
            receiver.take(&section(newest, &[0]));
            receiver.queue.capacity()
        });
        assert_eq!(rooms, [1, 8, 8, 8, 8, 8, 8, 8]);
    }

    #[test]
    fn only_what_was_pushed_can_be_acknowledged() {
        let mut sender = InputSender::new(65_530, 4);
        assert!(!sender.on_processed(65_530));
        for _ in 0..10 {
            sender.push(&[1]);
        }
        assert!(!sender.on_processed(65_529));
        assert!(!sender.on_processed(4));
        assert!(sender.on_processed(2));
        assert_eq!(sender.acked(), Some(65_538));
        assert!(sender.on_processed(65_535));
        assert_eq!(sender.acked(), Some(65_538));
        assert_eq!(sender.recent.len(), 1);
    }
    #[test]
    fn an_input_is_acknowledged_after_all_numbers_were_used_once() {
        let mut sender = InputSender::new(0, 4);
        assert!(!sender.on_processed(0));
        // All numbers but the last have been pushed.
        (sender.next, sender.pushed) = (u32::MAX, u32::MAX);
        sender.push(&[1]);
        assert_eq!(sender.next, 0, "it counts from the beginning again");
        assert!(sender.on_processed(0xFFFF));
        sender.push(&[1]);
        assert!(sender.on_processed(0xFFFF) && sender.on_processed(0));
        assert_eq!(sender.acked(), Some(0));
    }
}
