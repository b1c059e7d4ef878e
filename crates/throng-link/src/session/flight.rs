//! The packets that are under way, and the verdict on each.
//!
//! Every packet gets one verdict. It is *delivered* when the peer acknowledges it. It is *lost* when a packet some
//! sequences newer has been acknowledged, or any newer one and enough time has passed (RFC 9002 section 6.1), or after
//! silence for three probe timeouts. It is *discarded* when the session ends first. A verdict is final: an
//! acknowledgement that comes after *lost* is counted and changes nothing, so "lost" can be wrong and "delivered"
//! cannot.

use std::collections::VecDeque;

use throng_wire::{Room, Time};

use super::error::PacketError;
use super::lane::PieceRun;
use super::pace::Stamp;
use super::wire::{ACK_REACH, Ack, AckBits, expand_sequence};

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The peer has it.
    Delivered,
    /// It has probably not arrived.
    Lost,
    /// The session ended before anything was known.
    Discarded,
}

/// Late acknowledgements are recognised for this many lost packets.
const MAX_LOST_REMEMBERED: usize = 64;

/// A packet under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) sequence: u64,
    pub(super) sent_at: Time,
    /// The newest sequence that was received when it was written, if any.
    pub(super) told: Option<u64>,
    /// The newest input that it carries.
    pub(super) newest_input: Option<u32>,
    pub(super) bytes: u16,
    /// With all that surrounds it.
    pub(super) datagram_bytes: u16,
    pub(super) is_eliciting: bool,
    /// It says whether there is room for the peer's messages.
    pub(super) says_room: bool,
    /// It is sent to find out whether so long a datagram arrives.
    pub(super) is_size_probe: bool,
    /// A packet that was sent later had arrived when this one was called lost.
    pub(super) is_overtaken: bool,
    /// For the congestion control, if it is eliciting.
    pub(super) stamp: Stamp,
    is_settled: bool,
    run_count: u16,
    /// Position of its first run, counted from the start of the session, wrapping.
    first_run: u32,
}

#[cfg(test)]
impl Sent {
    /// A packet of which only this is known.
    pub(super) fn in_a_test(
        sequence: u64,
        sent_at: Time,
        datagram_bytes: usize,
        is_size_probe: bool,
        is_overtaken: bool,
    ) -> Sent {
        Sent {
            sequence,
            sent_at,
            told: None,
            newest_input: None,
            bytes: datagram_bytes as u16,
            datagram_bytes: datagram_bytes as u16,
            is_eliciting: true,
            says_room: false,
            is_size_probe,
            is_overtaken,
            stamp: Stamp::default(),
            is_settled: true,
            run_count: 0,
            first_run: 0,
        }
    }
}

/// Receives the verdicts. The packet's runs of message pieces come with it.
pub(super) trait Settle {
    fn settle(&mut self, sent: &Sent, runs: impl Iterator<Item = PieceRun>, delivery: Delivery);
}

/// An acknowledgement with full sequences, checked against what was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedAck {
    newest: u64,
    bits: AckBits,
}

impl CheckedAck {
    fn has(&self, sequence: u64) -> bool {
        sequence == self.newest || self.newest.checked_sub(sequence).is_some_and(|behind| self.bits.has(behind))
    }
}

/// The result of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    /// The newest packet that it names, if that had no verdict before.
    pub(super) newest: Option<Newest>,
    /// When the oldest was sent that got its verdict now and had asked for it.
    pub(super) oldest_at: Option<Time>,
    /// Packets that had been called lost.
    pub(super) spurious: u64,
}

/// The packet with which a round trip is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub(super) sent_at: Time,
    /// If the packet asked for the acknowledgement.
    pub(super) stamp: Option<Stamp>,
}

#[derive(Debug)]
pub(super) struct Flight {
    /// In order of sequence. The front is never settled.
    sent: VecDeque<Sent>,
    room: Room,
    /// The runs of all packets in `sent`, in the same order.
    runs: VecDeque<PieceRun>,
    /// Position of the front of `runs`.
    runs_base: u32,
    verdicts: VecDeque<(u64, Delivery)>,
    /// Lost packets whose acknowledgement may still come.
    lost: VecDeque<u64>,
    newest_sent: Option<u64>,
    newest_acked: Option<u64>,
    first_sent: u64,
    /// Packets that ask for an acknowledgement and have no verdict.
    eliciting: u32,
    limit: u32,
    /// No packet can be lost by time before this.
    deadline: Option<Time>,
}

/// How long packets may be out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) packet_threshold: u64,
    /// Once a newer one is acknowledged.
    pub(super) loss_delay_micros: u64,
    /// In any case.
    pub(super) give_up_micros: u64,
}

impl Flight {
    pub(super) fn new(limit: usize) -> Flight {
        Flight {
            sent: VecDeque::new(),
            room: Room::default(),
            runs: VecDeque::new(),
            runs_base: 0,
            verdicts: VecDeque::new(),
            lost: VecDeque::new(),
            newest_sent: None,
            newest_acked: None,
            first_sent: 0,
            eliciting: 0,
            limit: limit as u32,
            deadline: None,
        }
    }

    /// See [`Session::fetch`](super::Session::fetch).
    pub(super) fn fetch(&self) -> u64 {
        let lengths =
            self.sent.len() ^ self.runs.len() ^ self.verdicts.len() ^ self.lost.len() ^ self.eliciting as usize;
        lengths as u64 ^ self.first_sent ^ self.deadline.map_or(0, |deadline| deadline.0)
    }

    /// See [`Session::fetch_behind`](super::Session::fetch_behind).
    pub(super) fn fetch_behind(&self) -> u64 {
        let first = self.sent.front().map_or(0, |sent| sent.sequence ^ u64::from(sent.first_run));
        first ^ self.sent.back().map_or(0, |sent| sent.sequence ^ u64::from(sent.first_run))
    }

    pub(super) fn newest_sent(&self) -> Option<u64> {
        self.newest_sent
    }

    /// Whether no packet is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn is_undrained(&self) -> bool {
        self.verdicts.len() >= 2 * self.limit()
    }

    pub(super) fn poll_verdict(&mut self) -> Option<(u64, Delivery)> {
        self.verdicts.pop_front()
    }

    /// Whether an acknowledgement is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.eliciting > 0
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    pub(super) fn packets(&self) -> usize {
        self.sent.iter().filter(|sent| !sent.is_settled).count()
    }

    /// Whether fewer than `spare` packets more may be under way.
    pub(super) fn is_full(&self, spare: usize) -> bool {
        self.sent.len() + spare >= self.limit()
    }

    /// The most packets that may be under way.
    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Enters a packet; its runs follow by [`Flight::add_run`].
    pub(super) fn begin(&mut self, sequence: u64, sent_at: Time, told: Option<u64>) {
        if self.newest_sent.is_none() {
            self.first_sent = sequence;
        }
        self.newest_sent = Some(sequence);
        self.room.trim(&mut self.sent);
        self.sent.push_back(Sent {
            sequence,
            sent_at,
            told,
            newest_input: None,
            bytes: 0,
            datagram_bytes: 0,
            is_eliciting: false,
            says_room: false,
            is_size_probe: false,
            is_overtaken: false,
            stamp: Stamp::default(),
            is_settled: false,
            run_count: 0,
            first_run: self.runs_base.wrapping_add(self.runs.len() as u32),
        });
    }

    /// A run of the newest packet.
    pub(super) fn add_run(&mut self, run: PieceRun) {
        if let Some(sent) = self.sent.back_mut() {
            sent.run_count += 1;
            self.runs.push_back(run);
        }
    }

    /// The newest packet, while it has no verdict.
    pub(super) fn newest_mut(&mut self) -> Option<&mut Sent> {
        self.sent.back_mut()
    }

    /// Gives the newest packet its time to live.
    pub(super) fn finish(&mut self, give_up_micros: u64) {
        let Some(sent) = self.sent.back() else { return };
        self.eliciting += u32::from(sent.is_eliciting);
        let gives_up = Time(sent.sent_at.0.saturating_add(give_up_micros));
        self.deadline = Some(self.deadline.map_or(gives_up, |deadline| deadline.min(gives_up)));
    }

    /// Checks an acknowledgement against what was sent. Changes nothing.
    pub(super) fn check(&self, ack: &Ack) -> Result<CheckedAck, PacketError> {
        let newest_sent = self.newest_sent.ok_or(PacketError::AckOfUnsentPacket)?;
        let newest = expand_sequence(ack.newest, newest_sent).ok_or(PacketError::AckOfUnsentPacket)?;
        if newest > newest_sent || newest < self.first_sent {
            return Err(PacketError::AckOfUnsentPacket);
        }
        let checked = CheckedAck { newest, bits: ack.bits };
        // Sequences older than the front have had their verdict, the others are known or were never sent.
        let Some(checkable) = self.sent.front().and_then(|front| newest.checked_sub(front.sequence)) else {
            return Ok(checked);
        };
        if checkable == 0 {
            return Ok(checked);
        }
        let acked = self.sent.iter().rev().skip_while(|sent| sent.sequence > newest);
        let acked = acked.take_while(|sent| newest - sent.sequence <= ACK_REACH);
        let known = acked.filter(|sent| checked.has(sent.sequence)).count() as u32;
        if known != ack.bits.count(checkable) + 1 {
            return Err(PacketError::AckOfUnsentPacket);
        }
        Ok(checked)
    }

    /// Gives the acknowledged packets their verdict.
    pub(super) fn acknowledge(&mut self, ack: CheckedAck, settle: &mut impl Settle) -> Acknowledged {
        self.newest_acked = self.newest_acked.max(Some(ack.newest));
        let (mut newest, mut oldest_at) = (None, None);
        for index in (0..self.sent.len()).rev() {
            let sent = &self.sent[index];
            let Some(behind) = ack.newest.checked_sub(sent.sequence) else { continue };
            if behind > ACK_REACH {
                break;
            }
            if !sent.is_settled && ack.has(sent.sequence) {
                if behind == 0 {
                    newest = Some(Newest {
                        sent_at: sent.sent_at,
                        stamp: (sent.is_eliciting && !sent.is_size_probe).then_some(sent.stamp),
                    });
                }
                oldest_at = if sent.is_eliciting { Some(sent.sent_at) } else { oldest_at };
                self.settle(index, Delivery::Delivered, settle);
            }
        }
        let spurious = if self.lost.is_empty() { 0 } else { self.forget_lost(ack) };
        self.retire();
        Acknowledged { newest, oldest_at, spurious }
    }

    /// Forgets the lost packets that are acknowledged after all, and those that cannot be any more.
    fn forget_lost(&mut self, ack: CheckedAck) -> u64 {
        let mut spurious = 0;
        self.lost.retain(|&sequence| match ack.newest.checked_sub(sequence) {
            Some(behind) if behind > ACK_REACH => false,
            Some(_) if ack.has(sequence) => {
                spurious += 1;
                false
            }
            _ => true,
        });
        spurious
    }

    /// Finds the packets that count as lost by now.
    pub(super) fn detect_losses(&mut self, now: Time, patience: Patience, settle: &mut impl Settle) {
        self.deadline = None;
        for index in 0..self.sent.len() {
            let sent = &self.sent[index];
            if sent.is_settled {
                continue;
            }
            let newer_acked = self.newest_acked.and_then(|newest| newest.checked_sub(sent.sequence)).unwrap_or(0);
            let micros = if newer_acked > 0 {
                patience.loss_delay_micros.min(patience.give_up_micros)
            } else {
                patience.give_up_micros
            };
            let deadline = Time(sent.sent_at.0.saturating_add(micros));
            if newer_acked >= patience.packet_threshold || deadline <= now {
                self.sent[index].is_overtaken = newer_acked > 0;
                self.settle(index, Delivery::Lost, settle);
                continue;
            }
            self.deadline = Some(self.deadline.map_or(deadline, |earliest| earliest.min(deadline)));
            // Packets after this were sent later, so unless a shorter patience applies to them no more are lost.
            if newer_acked == 0 {
                break;
            }
        }
        self.retire();
    }

    /// Declares everything lost that is under way, as no fault of the path. Nobody learns anything from what becomes of it.
    pub(super) fn give_up_all(&mut self, settle: &mut impl Settle) {
        for index in 0..self.sent.len() {
            self.sent[index].is_eliciting = false;
            self.settle(index, Delivery::Lost, settle);
        }
        self.lost.clear();
        self.retire();
        self.deadline = None;
    }

    /// Gives every packet that has no verdict the last one.
    pub(super) fn discard(&mut self, settle: &mut impl Settle) {
        for index in 0..self.sent.len() {
            self.settle(index, Delivery::Discarded, settle);
        }
        self.retire();
        self.deadline = None;
    }

    fn settle(&mut self, index: usize, delivery: Delivery, settle: &mut impl Settle) {
        let sent = &mut self.sent[index];
        if sent.is_settled {
            return;
        }
        sent.is_settled = true;
        self.eliciting = self.eliciting.saturating_sub(u32::from(sent.is_eliciting));
        let first = sent.first_run.wrapping_sub(self.runs_base) as usize;
        let runs = self.runs.range(first..first + usize::from(sent.run_count));
        settle.settle(sent, runs.copied(), delivery);
        self.verdicts.push_back((sent.sequence, delivery));
        if delivery == Delivery::Lost {
            if self.lost.len() == MAX_LOST_REMEMBERED {
                self.lost.pop_front();
            }
            self.lost.push_back(sent.sequence);
        }
    }

    /// Drops the settled packets at the front.
    fn retire(&mut self) {
        while let Some(sent) = self.sent.front().filter(|sent| sent.is_settled) {
            if sent.run_count > 0 {
                self.runs.drain(..usize::from(sent.run_count));
                self.runs_base = self.runs_base.wrapping_add(u32::from(sent.run_count));
            }
            self.sent.pop_front();
        }
        if self.sent.is_empty() {
            self.deadline = None;
        }
    }
}
