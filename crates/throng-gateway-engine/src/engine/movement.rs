//! State that may be lost in the network: which subscriptions use it, and the results of its datagrams.
//!
//! ```text
//!  frame due --> lane of the subscription --> reliable: complete, too long, or said once only
//!                        |                --> put back: something reliable of this channel is still under way
//!                        v
//!                    datagram  ----- Datagrams ----->  delivered: later frames begin after it
//!                                                      lost: told again, unless a later frame was sent
//! ```
//!
//! Two rules keep the order. No datagram of a channel is sent while the peer may lack something reliable of that
//! channel. A datagram is discarded once something reliable of its channel is newer: by the transport
//! ([`Datagrams::send`]'s `after_bytes`) and by the client.
//!
//! Each frame holds all changes since the newest that has arrived ([`throng_replica::Stream::keep_track`]), so nothing
//! is missing when one is lost, and no client ever sees a state that never existed.

use throng_replica::{ChannelState, Frame, Outgoing, Since, Stream, SubscriptionId};
use throng_wire::Tick;

use super::port::{Datagrams, Fate, Ticket};

/// Longer frames go the reliable way: they would be several datagrams, of which none may be lost.
const FRAME_MAX_BYTES: usize = throng_channeld::link::section::MAX_ENTRY_BYTES;

/// A subscription whose frame was too long goes the reliable way for so long, short frames too: to change over costs a
/// round trip.
const PLAIN_TICKS: u32 = 1_000;

/// The lanes of one connection for state that may get lost. Only connections that ask for it have one.
#[derive(Debug, Default)]
pub(crate) struct Movement {
    /// By number of the subscription.
    lanes: Vec<Option<Lane>>,
    next_epoch: u32,
    fates: Vec<(Ticket, Fate)>,
    verdicts: Vec<Verdict>,
}

/// The way of one subscription.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// Tells this subscription from those that had its number before.
    epoch: u32,
    /// Bytes that the peer has to have before it may be sent datagrams. `None`: it was sent nothing reliable yet.
    reliable_to: Option<u64>,
    /// Everything goes the reliable way until then.
    plain_until: Option<Tick>,
    /// Everything goes the reliable way: the subscriber wants it so.
    is_plain: bool,
}

/// The report to the stream about a frame that it returned.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// It counts as received.
    Settled(SubscriptionId, Tick),
    /// It was not sent.
    PutBack(SubscriptionId, Tick),
}

/// The lanes of a connection while its frames are written.
pub(super) struct MovementTurn<'a> {
    movement: &'a mut Movement,
    datagrams: &'a dyn Datagrams,
    /// Bytes given to the outbox before those that are being written.
    flushed_bytes: u64,
    settled_bytes: u64,
}

impl Movement {
    /// Begins or ends the lane of a subscription that was just made.
    pub(super) fn assign(&mut self, id: SubscriptionId, has_lane: bool) {
        let number = usize::from(id.number());
        if self.lanes.len() <= number {
            if !has_lane {
                return;
            }
            self.lanes.resize(number + 1, None);
        }
        self.next_epoch = self.next_epoch.wrapping_add(1);
        let lane = Lane { epoch: self.next_epoch, reliable_to: None, plain_until: None, is_plain: false };
        self.lanes[number] = has_lane.then_some(lane);
    }

    /// An existing subscription now wants its state the reliable way, or no longer does. Returns whether it has a lane.
    pub(super) fn set_plain(&mut self, id: SubscriptionId, is_plain: bool) -> bool {
        self.lane_mut(id).map(|lane| lane.is_plain = is_plain).is_some()
    }

    /// Gives out the results of datagrams whose subscriptions are still there.
    pub(super) fn take_fates(&mut self, datagrams: &dyn Datagrams, mut tell: impl FnMut(Ticket, Fate)) {
        let mut fates = std::mem::take(&mut self.fates);
        datagrams.take_fates(&mut fates);
        for (ticket, fate) in fates.drain(..) {
            if self.lane_mut(ticket.subscription).is_some_and(|lane| lane.epoch == ticket.epoch) {
                tell(ticket, fate);
            }
        }
        self.fates = fates;
    }

    fn lane_mut(&mut self, id: SubscriptionId) -> Option<&mut Lane> {
        self.lanes.get_mut(usize::from(id.number()))?.as_mut()
    }

    pub(super) fn turn<'a>(&'a mut self, datagrams: &'a dyn Datagrams, flushed_bytes: u64) -> MovementTurn<'a> {
        self.verdicts.clear();
        MovementTurn { settled_bytes: datagrams.settled_bytes(), movement: self, datagrams, flushed_bytes }
    }
}

impl MovementTurn<'_> {
    /// Decides about a frame for subscription `id` whose entries were appended to `out` from `start` on: leaves them there
    /// for the reliable lane, or takes them off. Returns whether they are sent now.
    pub(super) fn take(
        &mut self,
        id: SubscriptionId,
        frame: &Frame,
        since: Since,
        (out, start): (&mut Vec<u8>, usize),
    ) -> bool {
        let (flushed_bytes, settled_bytes) = (self.flushed_bytes, self.settled_bytes);
        let Some(lane) = self.movement.lane_mut(id) else { return true };
        let bytes = out.len() - start;
        if bytes == 0 {
            // All of it was the subscriber's own.
            self.movement.verdicts.push(Verdict::Settled(id, frame.tick));
            return true;
        }
        if bytes > FRAME_MAX_BYTES || frame.says_once {
            lane.plain_until = Some(frame.tick.after(PLAIN_TICKS));
        }
        lane.plain_until = lane.plain_until.filter(|until| until.is_newer_than(frame.tick));
        let is_plain = since == Since::Start || lane.is_plain || lane.plain_until.is_some();
        let Some(reliable_to) = lane.reliable_to.filter(|_| !is_plain) else {
            lane.reliable_to = Some(flushed_bytes + out.len() as u64);
            self.movement.verdicts.push(Verdict::Settled(id, frame.tick));
            return true;
        };
        let is_open = settled_bytes >= reliable_to;
        if is_open {
            let ticket = Ticket { subscription: id, epoch: lane.epoch, tick: frame.tick };
            self.datagrams.send(ticket, flushed_bytes + start as u64, &out[start..]);
        } else {
            self.movement.verdicts.push(Verdict::PutBack(id, frame.tick));
        }
        out.truncate(start);
        is_open
    }

    /// A frame goes the reliable way, but not now: the next one is the first after it that can be placed.
    pub(super) fn put_off(&mut self, id: SubscriptionId, frame: &Frame) {
        let Some(lane) = self.movement.lane_mut(id) else { return };
        lane.reliable_to = None;
        self.movement.verdicts.push(Verdict::Settled(id, frame.tick));
    }

    /// Tells the stream what was done with its frames.
    pub(super) fn finish<S: ChannelState>(self, stream: &mut Stream, outgoing: Outgoing<'_, S>) {
        for verdict in self.movement.verdicts.drain(..) {
            match verdict {
                Verdict::Settled(id, tick) => stream.delivered(id, tick),
                Verdict::PutBack(id, tick) => stream.put_back(id, tick, outgoing),
            }
        }
    }
}
