//! The movement of one client, at the socket's end: which datagram holds which frames, and what is too old to be sent or
//! taken. The bytes are drawn in [`throng_channeld::link::section`].

use std::collections::VecDeque;
use std::sync::Arc;

use throng_channeld::link::section::{HEAD_BYTES, Section, begin_movement};
use throng_link::session::{Delivery, MessageId};

use super::datagrams::DatagramQueue;
use crate::engine::port::{Fate, Ticket};

/// Both directions of one client's movement.
pub(super) struct Movement {
    queue: Arc<DatagramQueue>,
    /// Frames under way with the sequence of their datagram, which rises. The session bounds the datagrams.
    flying: VecDeque<(u64, Ticket)>,
    /// Where the entries of each message on the reliable lane that has not arrived end, in bytes from the first.
    ends: VecDeque<u64>,
    /// Bytes of entries that were given to the reliable lane.
    handed_bytes: u64,
    /// Messages that were given to the reliable lane, wrapping.
    handed: u32,
    settled_bytes: u64,
    /// The last datagram with movement that came.
    newest_in: Option<u64>,
    /// Scratch.
    fates: Vec<(Ticket, Fate)>,
}

impl Movement {
    pub(super) fn new(queue: Arc<DatagramQueue>) -> Movement {
        Movement {
            queue,
            flying: VecDeque::new(),
            ends: VecDeque::new(),
            handed_bytes: 0,
            handed: 0,
            settled_bytes: 0,
            newest_in: None,
            fates: Vec::new(),
        }
    }

    /// Whether a frame waits to be sent.
    pub(super) fn has_waiting(&self) -> bool {
        self.queue.has_waiting()
    }

    /// The rest of a packet that came. Its entries, if there are any, and none that are newer came before.
    pub(super) fn read<'a>(&mut self, sequence: u64, rest: &'a [u8]) -> Option<&'a [u8]> {
        match Section::read(rest) {
            Section::Nothing => None,
            Section::Wanted => {
                self.queue.want();
                None
            }
            Section::Movement { entries, .. } => {
                self.queue.want();
                let is_new = self.newest_in.is_none_or(|newest| newest < sequence);
                self.newest_in = self.newest_in.max(Some(sequence));
                (is_new && !entries.is_empty()).then_some(entries)
            }
        }
    }

    /// A message with so many bytes of entries was given to the reliable lane.
    pub(super) fn handed(&mut self, entry_bytes: u32) {
        self.handed = self.handed.wrapping_add(1);
        self.handed_bytes += u64::from(entry_bytes);
        self.ends.push_back(self.handed_bytes);
    }

    /// All messages of the reliable lane before this one have arrived.
    pub(super) fn settle(&mut self, first_undelivered: MessageId) {
        let under_way = self.handed.wrapping_sub(first_undelivered.0) as usize;
        while self.ends.len() > under_way {
            if let Some(end) = self.ends.pop_front() {
                self.settled_bytes = end;
            }
        }
        self.queue.settle(self.settled_bytes);
    }

    /// Appends the frames that fit to a packet, up to `end` bytes in all.
    pub(super) fn write(&mut self, sequence: u64, end: usize, datagram: &mut Vec<u8>) {
        let Movement { queue, flying, ends, handed, settled_bytes, fates, .. } = self;
        let mut section = None;
        queue.drain(|frame| {
            if frame.after_bytes < *settled_bytes {
                // The client may have taken something newer already.
                fates.push((frame.ticket, Fate::Lost));
                return true;
            }
            let newer = ends.iter().rev().take_while(|&&end| end > frame.after_bytes).count();
            let after = handed.wrapping_sub(newer as u32);
            let head_bytes = if section.is_none() { HEAD_BYTES } else { 0 };
            let fits = datagram.len() + head_bytes + frame.entries.len() <= end;
            if !fits || section.is_some_and(|section| section != after) {
                return false;
            }
            if section.is_none() {
                begin_movement(datagram, after);
                section = Some(after);
            }
            datagram.extend_from_slice(&frame.entries);
            flying.push_back((sequence, frame.ticket));
            true
        });
        self.tell();
    }

    /// What became of a packet.
    pub(super) fn on_verdict(&mut self, sequence: u64, delivery: Delivery) {
        let first = self.flying.partition_point(|&(other, _)| other < sequence);
        let end = self.flying.partition_point(|&(other, _)| other <= sequence);
        let fate = if delivery == Delivery::Delivered { Fate::Delivered } else { Fate::Lost };
        self.fates.extend(self.flying.drain(first..end).map(|(_, ticket)| (ticket, fate)));
    }

    /// Tells the engine what became of frames since the last call.
    pub(super) fn tell(&mut self) {
        if !self.fates.is_empty() {
            self.queue.note(self.fates.drain(..));
        }
    }
}
