//! The movement of one client, at the socket's end: which datagram holds which frames, and which are too old to be sent
//! or handled. The bytes are drawn in [`throng_channeld::link::section`].

use std::collections::VecDeque;
use std::sync::Arc;

use throng_channeld::link::section::{HEAD_BYTES, Section, begin_movement};
use throng_link::session::{Delivery, MessageId};

use crate::serve::datagrams::DatagramQueue;
use throng_gateway_engine::port::{Fate, Ticket};

/// Written bytes that are not counted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) sections: usize,
    pub(super) bytes: usize,
}

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
    written: Written,
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
            written: Written::default(),
            fates: Vec::new(),
        }
    }

    /// Whether a frame waits to be sent.
    pub(super) fn has_waiting(&self) -> bool {
        self.queue.has_waiting()
    }

    /// The rest of a packet that came. Its entries, if there are any, and none that are newer came before.
    pub(super) fn read<'a>(&mut self, sequence: u64, rest: &'a [u8]) -> Option<&'a [u8]> {
        let section = Section::read(rest);
        if section.is_wanted {
            self.queue.want();
        }
        let entries = section.movement?.entries;
        let is_new = self.newest_in.is_none_or(|newest| newest < sequence);
        self.newest_in = self.newest_in.max(Some(sequence));
        (is_new && !entries.is_empty()).then_some(entries)
    }

    /// A message with this many bytes of entries was given to the reliable lane.
    pub(super) fn handed(&mut self, entry_bytes: usize) {
        self.handed = self.handed.wrapping_add(1);
        self.handed_bytes += entry_bytes as u64;
        self.ends.push_back(self.handed_bytes);
    }

    /// Entries were dropped after the last message that was given to the reliable lane. They count as arrived with it.
    pub(super) fn skipped(&mut self, entry_bytes: usize) {
        self.handed_bytes += entry_bytes as u64;
        match self.ends.back_mut() {
            Some(end) => *end = self.handed_bytes,
            None => {
                self.settled_bytes = self.handed_bytes;
                self.queue.settle(self.settled_bytes);
            }
        }
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

    /// Appends the frames that fit to a packet, up to `end` bytes in all. Returns whether any did.
    pub(super) fn write(&mut self, sequence: u64, end: usize, datagram: &mut Vec<u8>) -> bool {
        let Movement { queue, flying, ends, handed, settled_bytes, fates, .. } = self;
        let mut section = None;
        let start = datagram.len();
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
                begin_movement(datagram, after, false);
                section = Some(after);
            }
            datagram.extend_from_slice(&frame.entries);
            flying.push_back((sequence, frame.ticket));
            true
        });
        if section.is_some() {
            self.written.sections += 1;
            self.written.bytes += datagram.len() - start;
        }
        self.tell();
        section.is_some()
    }

    /// The bytes written since the last call.
    pub(super) fn take_written(&mut self) -> Written {
        std::mem::take(&mut self.written)
    }

    /// The result of a packet.
    pub(super) fn on_verdict(&mut self, sequence: u64, delivery: Delivery) {
        let first = self.flying.partition_point(|&(other, _)| other < sequence);
        let end = self.flying.partition_point(|&(other, _)| other <= sequence);
        let fate = if delivery == Delivery::Delivered { Fate::Delivered } else { Fate::Lost };
        self.fates.extend(self.flying.drain(first..end).map(|(_, ticket)| (ticket, fate)));
    }

    /// Reports the results of frames since the last call to the engine.
    pub(super) fn tell(&mut self) {
        if !self.fates.is_empty() {
            self.queue.note(self.fates.drain(..));
        }
    }
}

#[cfg(test)]
mod tests {
    use throng_replica::SubscriptionId;
    use throng_wire::Tick;

    use super::*;
    use crate::serve::datagrams::PeerId;
    use crate::serve::memory::{Holding, Memory, Part};
    use crate::serve::wake::WakeList;
    use throng_gateway_engine::port::Datagrams as _;

    fn movement() -> Movement {
        let holding = Holding::new(&Arc::<Memory>::default(), Part::Queues, 0);
        Movement::new(DatagramQueue::new(PeerId(1), Arc::new(WakeList::default()), holding))
    }

    fn ticket(subscription: u16, tick: u64) -> Ticket {
        Ticket { subscription: SubscriptionId::from_number(subscription), epoch: 1, tick: Tick(tick) }
    }

    fn fates(movement: &Movement) -> Vec<(Ticket, Fate)> {
        let mut fates = Vec::new();
        movement.queue.take_fates(&mut fates);
        fates
    }

    /// The entries that the client would read from a packet with `room` bytes for movement.
    fn written(movement: &mut Movement, sequence: u64, room: usize) -> Option<(u32, Vec<u8>)> {
        movement.queue.want();
        let mut datagram = Vec::new();
        movement.write(sequence, room, &mut datagram);
        let movement = Section::read(&datagram).movement?;
        Some((movement.after, movement.entries.to_vec()))
    }

    #[test]
    fn frames_share_a_packet_and_its_fate() {
        let mut movement = movement();
        for number in 1..=3 {
            movement.queue.send(ticket(number, 7), 0, &[number as u8; 100]);
        }
        let (after, entries) = written(&mut movement, 5, HEAD_BYTES + 250).expect("two fit");
        assert_eq!((after, entries.len()), (0, 200));
        assert_eq!(movement.take_written(), Written { sections: 1, bytes: HEAD_BYTES + 200 });
        assert_eq!(written(&mut movement, 6, HEAD_BYTES + 250).expect("the third").1, [3; 100]);
        movement.on_verdict(6, Delivery::Delivered);
        movement.on_verdict(5, Delivery::Lost);
        movement.tell();
        let expected = [(3, Fate::Delivered), (1, Fate::Lost), (2, Fate::Lost)];
        assert_eq!(fates(&movement), expected.map(|(number, fate)| (ticket(number, 7), fate)));
    }

    #[test]
    fn a_later_frame_takes_the_place_of_one_that_waits() {
        let mut movement = movement();
        movement.queue.send(ticket(1, 7), 0, &[7; 10]);
        movement.queue.send(ticket(1, 8), 0, &[8; 20]);
        assert_eq!(written(&mut movement, 1, 100), Some((0, vec![8; 20])));
        assert_eq!(written(&mut movement, 2, 100), None);
        movement.on_verdict(1, Delivery::Delivered);
        movement.tell();
        assert_eq!(fates(&movement), [(ticket(1, 8), Fate::Delivered)]);
    }

    #[test]
    fn a_frame_says_how_much_of_the_reliable_lane_is_older() {
        let mut movement = movement();
        movement.handed(100);
        movement.handed(100);
        movement.queue.send(ticket(1, 7), 100, &[1; 10]);
        movement.queue.send(ticket(2, 7), 200, &[2; 10]);
        movement.queue.send(ticket(3, 7), 250, &[3; 10]);
        assert_eq!(written(&mut movement, 1, 100), Some((1, vec![1; 10])));
        assert_eq!(written(&mut movement, 2, 100), Some((2, [[2; 10], [3; 10]].concat())), "of one age");
    }

    #[test]
    fn what_is_dropped_counts_as_arrived_with_what_went_before() {
        let mut movement = movement();
        movement.skipped(10);
        assert_eq!(movement.queue.settled_bytes(), 10);
        movement.handed(100);
        movement.skipped(20);
        assert_eq!(movement.queue.settled_bytes(), 10);
        movement.settle(MessageId(1));
        assert_eq!(movement.queue.settled_bytes(), 130);
    }

    #[test]
    fn what_the_client_may_have_something_newer_of_is_not_sent() {
        let mut movement = movement();
        movement.queue.send(ticket(1, 7), 50, &[1; 10]);
        movement.handed(100);
        movement.settle(MessageId(1));
        assert_eq!(movement.queue.settled_bytes(), 100);
        assert_eq!(written(&mut movement, 1, 100), None);
        assert_eq!(fates(&movement), [(ticket(1, 7), Fate::Lost)]);
    }

    #[test]
    fn late_movement_of_a_client_is_not_taken() {
        let mut movement = movement();
        let mut section = Vec::new();
        begin_movement(&mut section, 0, false);
        assert_eq!(movement.read(3, &section), None, "nothing is in it");
        section.push(9);
        assert_eq!(movement.read(5, &section), Some(&[9][..]));
        assert_eq!(movement.read(4, &section), None);
        assert_eq!(movement.read(6, &section), Some(&[9][..]));
        assert!(!movement.queue.is_wanted(), "who sends some need not understand any");
    }
}
