//! The receiving half of a lane.

use std::collections::VecDeque;
use std::time::Duration;

use throng_wire::Time;

use super::super::error::PacketError;
use super::super::options::{LaneKind, LaneOptions};
use super::super::wire::expand_number;
use super::buffers::Buffers;
use super::entry::{Entry, Part};
use super::reassembly::Reassembly;
use super::{Inbox, MAX_UNRELIABLE_REASSEMBLIES, RELIABLE_WINDOW};

/// A message beyond the next one to complete, or one that is not complete.
#[derive(Debug)]
enum Waiting {
    Unfinished(Reassembly),
    /// Complete, waiting for its turn on an ordered lane.
    Complete(Vec<u8>),
    /// Already given out on an unordered lane.
    Taken,
}

/// The receiving half of a reliable lane.
#[derive(Debug)]
pub(super) struct ReliableIncoming {
    /// The lowest number that is not complete.
    next: u32,
    /// By number, from `next` on, rising; only those of which something is here.
    waiting: VecDeque<(u32, Waiting)>,
    /// Bytes in `waiting`.
    bytes: usize,
    /// Memory of the messages in `waiting`.
    held_bytes: usize,
}

impl ReliableIncoming {
    pub(super) fn new(first_message: u32) -> ReliableIncoming {
        ReliableIncoming { next: first_message, waiting: VecDeque::new(), bytes: 0, held_bytes: 0 }
    }

    /// Memory of messages that are not complete, or wait for their turn.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes + self.waiting.capacity() * size_of::<(u32, Waiting)>()
    }

    pub(super) fn take(
        &mut self,
        options: &LaneOptions,
        entry: &Entry<'_>,
        buffers: &mut Buffers,
        inbox: &mut Inbox,
    ) -> Result<(), PacketError> {
        let number = expand_number(entry.number.ok_or(PacketError::BadEntry)?, self.next);
        let ahead = number.wrapping_sub(self.next) as i32;
        if ahead < 0 {
            return Ok(());
        }
        if ahead as usize >= RELIABLE_WINDOW {
            return Err(PacketError::WindowExceeded);
        }
        let place = self.waiting.partition_point(|(other, _)| (number.wrapping_sub(*other) as i32) > 0);
        let is_known = self.waiting.get(place).is_some_and(|(other, _)| *other == number);
        match entry.part {
            None => self.take_whole(options, (number, place, is_known), entry.bytes, buffers, inbox),
            Some(part) => self.take_part(options, (number, place, is_known), (part, entry.bytes), buffers, inbox),
        }
    }

    fn take_whole(
        &mut self,
        options: &LaneOptions,
        (number, place, is_known): (u32, usize, bool),
        bytes: &[u8],
        buffers: &mut Buffers,
        inbox: &mut Inbox,
    ) -> Result<(), PacketError> {
        if is_known {
            let Waiting::Unfinished(reassembly) = &self.waiting[place].1 else { return Ok(()) };
            self.bytes -= reassembly.bytes();
            self.held_bytes -= reassembly.capacity();
            if let Some((_, Waiting::Unfinished(reassembly))) = self.waiting.remove(place) {
                buffers.give_back(reassembly.into_buffer());
            }
        }
        let message = buffers.filled(bytes);
        self.complete(options, (number, place), message, inbox)
    }

    fn take_part(
        &mut self,
        options: &LaneOptions,
        (number, place, is_known): (u32, usize, bool),
        (part, bytes): (Part, &[u8]),
        buffers: &mut Buffers,
        inbox: &mut Inbox,
    ) -> Result<(), PacketError> {
        if !is_known {
            let reassembly = Reassembly::new(part.message_bytes, buffers.empty());
            self.held_bytes += reassembly.capacity();
            self.waiting.insert(place, (number, Waiting::Unfinished(reassembly)));
        }
        let Waiting::Unfinished(reassembly) = &mut self.waiting[place].1 else { return Ok(()) };
        if reassembly.message_bytes() != part.message_bytes {
            return Err(PacketError::PartsDisagree);
        }
        let before = reassembly.capacity();
        self.bytes += reassembly.add(part, bytes);
        self.held_bytes += reassembly.capacity() - before;
        if self.bytes > options.queue_bytes {
            return Err(PacketError::WindowExceeded);
        }
        if !reassembly.is_complete() {
            return Ok(());
        }
        self.bytes -= reassembly.bytes();
        self.held_bytes -= reassembly.capacity();
        match self.waiting.remove(place) {
            Some((_, Waiting::Unfinished(reassembly))) => {
                self.complete(options, (number, place), reassembly.into_message(), inbox)
            }
            _ => Ok(()),
        }
    }

    /// A message is complete, and no longer among those waiting, where it would stand at `place`.
    fn complete(
        &mut self,
        options: &LaneOptions,
        (number, place): (u32, usize),
        message: Vec<u8>,
        inbox: &mut Inbox,
    ) -> Result<(), PacketError> {
        if number == self.next {
            inbox.push(message);
            self.next = self.next.wrapping_add(1);
            self.give_out_next(inbox);
            return Ok(());
        }
        if options.kind == LaneKind::ReliableUnordered {
            inbox.push(message);
            self.waiting.insert(place, (number, Waiting::Taken));
            return Ok(());
        }
        if self.bytes + message.len() > options.queue_bytes {
            return Err(PacketError::WindowExceeded);
        }
        self.bytes += message.len();
        self.held_bytes += message.capacity();
        self.waiting.insert(place, (number, Waiting::Complete(message)));
        Ok(())
    }

    /// Moves on over the messages that were complete before their turn.
    fn give_out_next(&mut self, inbox: &mut Inbox) {
        while let Some((number, waiting)) = self.waiting.front_mut() {
            if *number != self.next {
                return;
            }
            match waiting {
                Waiting::Unfinished(_) => return,
                Waiting::Complete(message) => {
                    self.bytes -= message.len();
                    self.held_bytes -= message.capacity();
                    inbox.push(std::mem::take(message));
                }
                Waiting::Taken => {}
            }
            self.waiting.pop_front();
            self.next = self.next.wrapping_add(1);
        }
    }
}

/// The receiving half of an unreliable lane.
#[derive(Debug, Default)]
pub(super) struct UnreliableIncoming {
    /// Unfinished messages, in order of their first part's arrival, with that time.
    unfinished: VecDeque<(u16, Time, Reassembly)>,
    bytes: usize,
}

impl UnreliableIncoming {
    /// Returns how many older messages were given up for this one.
    pub(super) fn take(
        &mut self,
        options: &LaneOptions,
        now: Time,
        entry: &Entry<'_>,
        buffers: &mut Buffers,
        inbox: &mut Inbox,
    ) -> Result<u64, PacketError> {
        let mut evicted = 0;
        let (Some(part), Some(number)) = (entry.part, entry.number) else {
            inbox.push(buffers.filled(entry.bytes));
            return Ok(evicted);
        };
        let known = self.unfinished.iter().position(|(other, ..)| *other == number);
        let place = match known {
            Some(place) => place,
            None => {
                if self.unfinished.len() == MAX_UNRELIABLE_REASSEMBLIES {
                    self.give_up_oldest(buffers);
                    evicted += 1;
                }
                self.unfinished.push_back((number, now, Reassembly::new(part.message_bytes, buffers.empty())));
                self.unfinished.len() - 1
            }
        };
        let reassembly = &mut self.unfinished[place].2;
        if reassembly.message_bytes() != part.message_bytes {
            return Err(PacketError::PartsDisagree);
        }
        self.bytes += reassembly.add(part, entry.bytes);
        if reassembly.is_complete() {
            self.bytes -= reassembly.bytes();
            if let Some((.., reassembly)) = self.unfinished.remove(place) {
                inbox.push(reassembly.into_message());
            }
        }
        while self.bytes > options.queue_bytes {
            self.give_up_oldest(buffers);
            evicted += 1;
        }
        Ok(evicted)
    }

    /// Memory of unfinished messages.
    pub(super) fn held_bytes(&self) -> usize {
        let content_bytes: usize = self.unfinished.iter().map(|(.., reassembly)| reassembly.capacity()).sum();
        content_bytes + self.unfinished.capacity() * size_of::<(u16, Time, Reassembly)>()
    }

    /// Gives up the messages whose first part came `patience` ago or earlier.
    pub(super) fn expire(&mut self, now: Time, patience: Duration, buffers: &mut Buffers) -> u64 {
        let mut expired = 0;
        while self.unfinished.front().is_some_and(|(_, began, _)| now.since(*began) >= patience) {
            self.give_up_oldest(buffers);
            expired += 1;
        }
        expired
    }

    fn give_up_oldest(&mut self, buffers: &mut Buffers) {
        if let Some((.., reassembly)) = self.unfinished.pop_front() {
            self.bytes -= reassembly.bytes();
            buffers.give_back(reassembly.into_buffer());
        }
    }

    pub(super) fn oldest(&self) -> Option<Time> {
        self.unfinished.front().map(|(_, began, _)| *began)
    }
}
