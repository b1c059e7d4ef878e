//! The state of each object that one connection has been sent: the part that all older models have in common.
//!
//! ```text
//!             open                first packet arrived            close                arrived
//!  (nothing) ------> Opening ---------------------> Open ------------------> Closing -------> (nothing)
//! ```
//!
//! An object has a *channel* to each connection that receives it, as an actor has in Unreal. A number is not used again
//! before the close has arrived, so that late packets cannot be taken for news of another object.

use std::collections::VecDeque;

use throng::replica::ConnectionCounters;
use throng::schema::FieldMask;
use throng::{Facet, ObjectId, Tick};
use throng_wire::{BitWriter, KindId};

use crate::baseline::{Baselines, Basis};
use crate::flight::{Flight, Record};
use crate::record::{Head, is_shorter_from, position_of, write_body};
use crate::world::{World, role_mask};

/// How far a channel has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Free,
    /// No packet that opens it is known to have arrived.
    Opening,
    Open,
    /// Its end has to be sent, or is in flight.
    Closing,
}

/// An object as one connection knows it.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    pub(crate) id: ObjectId,
    pub(crate) kind: KindId,
    pub(crate) stage: Stage,
    pub(crate) is_owner: bool,
    /// Fields to be sent whether they have changed or not: never sent yet, lost, or new in this role.
    pub(crate) resend: FieldMask,
    /// The existence of the object has to be sent, even without fields.
    pub(crate) is_untold: bool,
    /// When it was sent last, or opened.
    pub(crate) sent_at: Tick,
    /// Which use of the number this is; 0: none.
    serial: u32,
    /// Number of its newest record, plus 1.
    newest: u64,
}

/// All channels of one connection, and the packets in flight.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// By object index: number of the channel, plus 1.
    by_object: Vec<u32>,
    channels: Vec<Channel>,
    free: Vec<u32>,
    closes: VecDeque<u32>,
    flight: Flight,
    pub(crate) counters: ConnectionCounters,
    buffer: Vec<u8>,
    next_serial: u32,
    /// `None`: positions are written as they are.
    pub(crate) baselines: Option<Box<Baselines>>,
}

/// A packet that is being written.
pub(crate) struct Packet<'a> {
    w: BitWriter<'a>,
    room_bits: usize,
    first: u64,
}

impl Packet<'_> {
    /// Ends the packet; returns the number of its first record.
    pub(crate) fn finish(self) -> u64 {
        self.w.finish();
        self.first
    }
}

impl Link {
    /// The number of the channel of an object, in whatever stage.
    #[inline]
    pub(crate) fn find(&self, object: u32) -> Option<u32> {
        self.by_object.get(object as usize)?.checked_sub(1)
    }

    #[inline]
    pub(crate) fn channel(&self, number: u32) -> &Channel {
        &self.channels[number as usize]
    }

    /// Whether the connection receives the object.
    #[inline]
    pub(crate) fn is_told(&self, object: u32) -> bool {
        self.find(object).is_some_and(|number| self.channel(number).stage != Stage::Closing)
    }

    /// The channels that are not closing, with their numbers.
    pub(crate) fn told(&self) -> impl Iterator<Item = (u32, &Channel)> {
        let numbered = (0..).zip(&self.channels);
        numbered.filter(|(_, channel)| matches!(channel.stage, Stage::Opening | Stage::Open))
    }

    /// Begins to tell of an object. `None` while its number is not free again.
    pub(crate) fn open(&mut self, world: &World, object: u32, is_owner: bool) -> Option<u32> {
        if self.by_object.len() <= object as usize {
            self.by_object.resize(world.len(), 0);
        }
        if self.by_object[object as usize] != 0 {
            return None;
        }
        self.next_serial = self.next_serial.wrapping_add(1).max(1);
        let channel = Channel {
            id: world.id_at(object),
            kind: world.kind_id(object),
            stage: Stage::Opening,
            is_owner,
            resend: world.visible(object, is_owner),
            is_untold: true,
            sent_at: world.now().before(1),
            serial: self.next_serial,
            newest: 0,
        };
        let number = self.free.pop().unwrap_or(self.channels.len() as u32);
        match self.channels.get_mut(number as usize) {
            Some(place) => *place = channel,
            None => self.channels.push(channel),
        }
        self.by_object[object as usize] = number + 1;
        Some(number)
    }

    /// Stops to tell of an object. Without effect if that has begun.
    pub(crate) fn close(&mut self, number: u32) {
        let channel = &mut self.channels[number as usize];
        if matches!(channel.stage, Stage::Opening | Stage::Open) {
            channel.stage = Stage::Closing;
            self.closes.push_back(number);
        }
    }

    /// The object has become the connection's, or another's: other fields may be sent now.
    pub(crate) fn set_role(&mut self, world: &World, number: u32, is_owner: bool) {
        let channel = &mut self.channels[number as usize];
        if channel.is_owner == is_owner {
            return;
        }
        channel.is_owner = is_owner;
        let kind = world.kind(channel.id.index);
        let gained = role_mask(kind, is_owner);
        let public = kind.facet_mask(Facet::Public) & !kind.skip_owner_mask();
        // The role travels with fields: if there are none for the new one, with the first that everybody sees.
        channel.resend |= if gained != 0 { gained } else { public & public.wrapping_neg() };
    }

    /// Whether ends have to be sent.
    pub(crate) fn has_closes(&self) -> bool {
        !self.closes.is_empty()
    }

    /// The buffer of packets, to be given back by [`end_packet`](Self::end_packet).
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer
    }

    /// A packet with so much room.
    pub(crate) fn begin_packet<'a>(&self, buffer: &'a mut Vec<u8>, room_bytes: usize) -> Packet<'a> {
        Packet { w: BitWriter::new(buffer), room_bits: room_bytes * 8, first: self.flight.end() }
    }

    /// Remembers that packet `sequence` carries what was put into it: the records from `first` on.
    pub(crate) fn end_packet(&mut self, buffer: Vec<u8>, sequence: u64, first: u64) {
        if self.flight.end() > first {
            self.flight.depart(sequence, first);
        }
        self.buffer = buffer;
    }

    /// Tells of ends. False when there was no room for all.
    pub(crate) fn put_closes(&mut self, packet: &mut Packet<'_>, world: &World) -> bool {
        while let Some(&number) = self.closes.front() {
            let (mark, before) = (packet.w.mark(), packet.w.bit_len());
            let channel = &mut self.channels[number as usize];
            Head::Close { index: channel.id.index }.write(world.schema(), &mut packet.w);
            if packet.w.bit_len() > packet.room_bits {
                packet.w.rewind(mark);
                return false;
            }
            self.closes.pop_front();
            self.counters.control_bytes += ((packet.w.bit_len() - before) as u64).div_ceil(8);
            let record = Record {
                channel: number,
                serial: channel.serial,
                mask: 0,
                older: channel.newest,
                opens: false,
                closes: true,
            };
            self.flight.push(record);
            self.channels[number as usize].newest = self.flight.end();
        }
        true
    }

    /// Writes the fields of `mask` of an object, and remembers that. False when there is no room for them.
    pub(crate) fn put(&mut self, packet: &mut Packet<'_>, world: &World, number: u32, mask: FieldMask) -> bool {
        let (mark, before) = (packet.w.mark(), packet.w.bit_len());
        let channel = &mut self.channels[number as usize];
        let ObjectId { index, generation } = channel.id;
        let opens = channel.stage == Stage::Opening;
        let kind = channel.kind;
        let position = self.baselines.as_ref().and_then(|_| position_of(world.kind(index), mask, world.values(index)));
        let basis = match (&mut self.baselines, position) {
            (Some(baselines), Some(position)) if !opens => {
                baselines.basis(number, channel.serial, world.now()).map(|basis| fit(basis, position))
            }
            _ => None,
        };
        let basis = basis.filter(|basis| basis.from.is_some() || basis.is_kept);
        let head = match basis {
            _ if opens => Head::Opening { index, generation, kind },
            Some(_) => Head::Based { index, kind },
            None => Head::Update { index, kind },
        };
        head.write(world.schema(), &mut packet.w);
        let body_kind = world.schema().kind(kind);
        write_body(body_kind, channel.is_owner, mask, world.values(index), basis.as_ref(), &mut packet.w);
        if packet.w.bit_len() > packet.room_bits {
            packet.w.rewind(mark);
            return false;
        }
        if let (Some(baselines), Some(Basis { is_kept: true, .. }), Some(position)) =
            (&mut self.baselines, basis, position)
        {
            baselines.sent(number, self.flight.end(), position, world.now());
        }
        self.counters.segments += 1;
        self.counters.object_updates += 1;
        self.counters.object_bytes += bytes_between(before, packet.w.bit_len());
        channel.resend &= !mask;
        channel.is_untold = false;
        channel.sent_at = world.now();
        self.flight.push(Record {
            channel: number,
            serial: channel.serial,
            mask,
            older: channel.newest,
            opens,
            closes: false,
        });
        channel.newest = self.flight.end();
        true
    }

    /// A packet has arrived. `freed` gets the channels that have ended.
    pub(crate) fn delivered(&mut self, sequence: u64, mut freed: impl FnMut(u32, &Channel)) {
        for number in self.flight.settle(sequence) {
            let Some(&record) = self.flight.get(number) else { continue };
            let channel = &mut self.channels[record.channel as usize];
            if channel.serial != record.serial {
                continue;
            }
            if let Some(baselines) = &mut self.baselines {
                baselines.settled(record.channel, record.serial, number, true);
            }
            if record.closes {
                freed(record.channel, channel);
                channel.stage = Stage::Free;
                self.by_object[channel.id.index as usize] = 0;
                self.free.push(record.channel);
                channel.serial = 0;
            } else if record.opens && channel.stage == Stage::Opening {
                channel.stage = Stage::Open;
            }
        }
        self.flight.forget_settled();
    }

    /// A packet counts as lost: `again` gets the fields that have to be sent again, because no later packet carries
    /// them.
    pub(crate) fn lost(&mut self, sequence: u64, mut again: impl FnMut(u32, &Channel)) {
        for number in self.flight.settle(sequence) {
            let Some(&record) = self.flight.get(number) else { continue };
            let channel = &mut self.channels[record.channel as usize];
            if channel.serial != record.serial {
                continue;
            }
            if let Some(baselines) = &mut self.baselines {
                baselines.settled(record.channel, record.serial, number, false);
            }
            if record.closes {
                self.closes.push_back(record.channel);
            } else if channel.stage != Stage::Closing {
                let lost = record.mask & !self.flight.told_since(number, channel.newest);
                self.counters.resent_segments += u64::from(lost != 0);
                self.counters.superseded_segments += u64::from(lost == 0);
                channel.resend |= lost;
                channel.is_untold |= record.opens && channel.stage == Stage::Opening && (lost != 0 || record.mask == 0);
                again(record.channel, channel);
            }
        }
        self.flight.forget_settled();
    }
}

/// The basis as it serves this position: a distance that is no shorter is not written.
fn fit(basis: Basis, position: [i32; 3]) -> Basis {
    match basis.from {
        Some(from) if !is_shorter_from(position, from) => {
            Basis { from: None, slot: basis.kept_slot(), is_kept: basis.is_kept }
        }
        _ => basis,
    }
}

/// Whole bytes that end between two places, so that the sum over records is right.
fn bytes_between(before_bits: usize, after_bits: usize) -> u64 {
    (after_bits.div_ceil(8) - before_bits.div_ceil(8)) as u64
}
