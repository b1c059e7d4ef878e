//! The content of each packet in flight, until it is delivered or lost.

use std::collections::VecDeque;

use throng::schema::FieldMask;

/// The part of one packet about one object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) channel: u32,
    /// Which use of the channel's number.
    pub(crate) serial: u32,
    pub(crate) mask: FieldMask,
    /// Number of the record before, of the same channel, plus 1; 0 if there is none.
    pub(crate) older: u64,
    pub(crate) opens: bool,
    pub(crate) closes: bool,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    sequence: u64,
    first: u64,
    end: u64,
    settled: bool,
}

/// The packets of one connection in flight, in order of sequence.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    packets: VecDeque<Packet>,
    records: VecDeque<Record>,
    /// Number of the first of `records`, counted from the connection's start.
    base: u64,
}

impl Flight {
    /// The number that the next record gets.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.records.push_back(record);
    }

    /// The records from `first` on left in packet `sequence`.
    pub(crate) fn depart(&mut self, sequence: u64, first: u64) {
        self.packets.push_back(Packet { sequence, first, end: self.end(), settled: false });
    }

    /// The numbers of the records of a packet whose fate was not known yet, and is now.
    pub(crate) fn settle(&mut self, sequence: u64) -> std::ops::Range<u64> {
        let Ok(index) = self.packets.binary_search_by_key(&sequence, |packet| packet.sequence) else { return 0..0 };
        let packet = &mut self.packets[index];
        if std::mem::replace(&mut packet.settled, true) {
            return 0..0;
        }
        packet.first..packet.end
    }

    /// A record that is still kept.
    pub(crate) fn get(&self, number: u64) -> Option<&Record> {
        self.records.get(number.checked_sub(self.base)? as usize)
    }

    /// The fields that records of the same channel after `number` carry; `newest` is the last of them, plus 1.
    pub(crate) fn told_since(&self, number: u64, mut newest: u64) -> FieldMask {
        let mut mask = 0;
        while newest > number + 1 {
            let Some(record) = self.get(newest - 1) else { break };
            mask |= record.mask;
            newest = record.older;
        }
        mask
    }

    /// Forgets what lies before the oldest packet whose fate is not known.
    pub(crate) fn forget_settled(&mut self) {
        while let Some(packet) = self.packets.front().filter(|packet| packet.settled) {
            let end = packet.end;
            self.records.drain(..(end - self.base) as usize);
            self.base = end;
            self.packets.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(mask: FieldMask, older: u64) -> Record {
        Record { channel: 0, serial: 0, mask, older, opens: false, closes: false }
    }

    #[test]
    fn what_was_told_later_is_known_even_after_its_packet_has_arrived() {
        let mut flight = Flight::default();
        for (sequence, mask) in [(10, 0b011), (11, 0b001), (12, 0b100)] {
            let first = flight.end();
            flight.push(record(mask, first));
            flight.depart(sequence, first);
        }
        assert_eq!(flight.settle(11), 1..2);
        assert_eq!(flight.settle(11), 0..0, "a fate is told once");
        flight.forget_settled();
        assert_eq!(flight.settle(10), 0..1);
        assert_eq!(flight.told_since(0, 3), 0b101);
        flight.forget_settled();
        assert!(flight.get(1).is_none() && flight.get(2).is_some());
        assert_eq!(flight.settle(9), 0..0);
    }
}
