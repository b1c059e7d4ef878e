//! The engine's data about one connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;
use throng_channeld::{Header, put_body, put_message};
use throng_replica::{ChannelIndex, Frame};
use throng_wire::{ConnectionId, Time};

use super::backlog::Backlog;
use super::buffers::Buffers;
use super::ends::RecentEnds;
use super::movement::{Movement, MovementTurn};
use super::news::NewsList;
use super::place::Place;
use super::port::{Datagrams, Key, LoginNote, Outbox, Side};
use crate::edge::EdgeKey;
use crate::fsm::Fsm;
use crate::limits::Limits;
use throng_protostate::allocated;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has not logged in.
    Stranger,
    /// The provider is asked.
    Asked {
        /// The number that the answer has to repeat.
        stub_id: u32,
        /// The remaining time to log in. While it waits for us, none is used up.
        patience: Option<Duration>,
    },
    /// It has logged in.
    Member,
}

/// The edge of a client's connection, and the edge's number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) edge: EdgeKey,
    pub(crate) client: u64,
}

/// A connection of a server or a client.
pub(crate) struct Connection {
    pub(crate) key: Key,
    /// The number under which the protocol knows it.
    pub(crate) id: u32,
    /// The number under which states remember what it wrote. No other connection has or had it: a new connection that
    /// replaces a writer does not count as that writer.
    pub(crate) writer: u32,
    pub(crate) side: Side,
    pub(crate) address: SocketAddr,
    pub(crate) stage: Stage,
    pub(crate) fsm: Fsm,
    /// Its name, once it was confirmed.
    pub(crate) identifier: String,
    /// The edge that it came through.
    pub(crate) behind: Option<Behind>,
    outbox: Box<dyn Outbox>,
    /// Entries for the outbox, until the end of the step.
    out: Vec<u8>,
    /// Bytes given to the outbox so far.
    flushed_bytes: u64,
    /// For state that may get lost on its way, once there is some.
    pub(crate) movement: Option<Box<Movement>>,
    /// Channels that it owns.
    pub(crate) owned: FxHashSet<ChannelIndex>,
    /// Channels that it has created and that still exist.
    pub(crate) created: FxHashSet<ChannelIndex>,
    pub(crate) failed_logins: u32,
    /// It gets answers to refused messages.
    pub(crate) wants_refusals: bool,
    /// Clients' messages to it, as the owner of channels, that it has not read yet.
    pub(crate) from_clients: FromClients,
    /// Memory of the states of the channels that it has created.
    pub(crate) state_bytes: u64,
    /// Messages that its state machine forbids.
    pub(crate) violations: Tally,
    /// Malformed messages.
    pub(crate) malformed: Tally,
    /// Requests that cost more than they weigh.
    pub(crate) requests: Allowance,
    /// When it is closed, unless it has logged in by then.
    pub(crate) patience_end: Option<Time>,
    /// State that is sent when there is room.
    backlog: Backlog,
    /// Channels that it still has to receive since it has come back, by id; after the last, the end of recovery.
    pub(crate) recovery: Option<VecDeque<u32>>,
    /// Notices about the subscribers of its channels that wait for room.
    pub(super) news: NewsList,
    /// Of a client that may come back.
    pub(super) ends: RecentEnds,
    /// It is on the list of connections that are checked again and again.
    pub(crate) is_watched: bool,
    /// Since when it takes less than it is given.
    pub(crate) slow_since: Option<Time>,
    /// Since when it has received nothing newer than the waiting data.
    pub(crate) behind_since: Option<Time>,
    /// Since when messages wait for the next state.
    pub(crate) held_since: Option<Time>,
    /// It is on the list of those for whom messages wait, or waited.
    pub(crate) is_listed: bool,
    /// It is to be ended at the end of the step.
    pub(crate) is_ending: bool,
    pub(crate) is_closing: bool,
}

/// How state gets to a connection.
pub(crate) struct Ways<'a> {
    /// The data to send at the end of the step.
    pub(crate) out: &'a mut Vec<u8>,
    /// Decides which entries may be lost.
    pub(crate) movement: Option<MovementTurn<'a>>,
    backlog: &'a mut Backlog,
    room_bytes: usize,
}

impl Ways<'_> {
    /// Puts a frame off if there is no room for it now, to be sent in slices before anything newer. Returns whether it
    /// did.
    pub(crate) fn puts_off(&mut self, channel: ChannelIndex, frame: &Arc<Frame>) -> bool {
        let is_late = !self.backlog.is_empty() || self.out.len() + frame.bytes.len() > self.room_bytes;
        if is_late {
            self.backlog.push(channel, Arc::clone(frame));
        }
        is_late
    }
}

/// This many things per second: those of one second may come at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    /// Charged cost that has not drained, in millionths.
    level: u64,
    since: Time,
}

impl Allowance {
    /// Takes one, if it is there.
    pub(crate) fn take(&mut self, now: Time, per_s: u32) -> bool {
        let is_there = self.has(now, per_s);
        if is_there {
            self.charge(Cost::ONE);
        }
        is_there
    }

    /// Whether one is there.
    pub(crate) fn has(&mut self, now: Time, per_s: u32) -> bool {
        let drained = now.micros_since(self.since).saturating_mul(per_s.into());
        self.since = now;
        self.level = self.level.saturating_sub(drained);
        self.level + 1_000_000 <= u64::from(per_s) * 1_000_000
    }

    /// Charges the real cost, even beyond the allowance: after an expensive request the peer waits until it is paid
    /// for.
    pub(crate) fn charge(&mut self, cost: Cost) {
        self.level = self.level.saturating_add(cost.0);
    }
}

/// The cost of a request, in millionths of an ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost(u64);

impl Cost {
    /// An ordinary request.
    pub(crate) const ONE: Cost = Cost(1_000_000);

    /// One for each `unit` of `amount`, and parts of it.
    pub(crate) fn each(amount: u64, unit: u64) -> Cost {
        Cost(amount.saturating_mul(1_000_000) / unit)
    }

    pub(crate) fn and(self, other: Cost) -> Cost {
        Cost(self.0.saturating_add(other.0))
    }
}

/// How much of what waits for a connection clients have sent.
#[derive(Debug, Default)]
pub(crate) struct FromClients {
    /// In the order in which it was handed over: the byte after it, counted from the first one, and how much it is.
    flushed: VecDeque<(u64, u64)>,
    /// The content of `flushed`.
    flushed_bytes: u64,
    /// The data that was not handed over yet.
    fresh_bytes: u64,
}

/// Number of separate stretches of client messages. Beyond, the last ones count as one: as long as the last byte of it
/// waits, all of it does.
const STRETCHES_MAX: usize = 64;

impl FromClients {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.fresh_bytes += bytes as u64;
    }

    /// Everything so far was handed over; `end` is the byte after it.
    fn hand_over(&mut self, end: u64) {
        let bytes = std::mem::take(&mut self.fresh_bytes);
        if bytes == 0 {
            return;
        }
        self.flushed_bytes += bytes;
        let is_full = self.flushed.len() >= STRETCHES_MAX;
        match self.flushed.back_mut().filter(|_| is_full) {
            Some(last) => *last = (end, last.1 + bytes),
            None => self.flushed.push_back((end, bytes)),
        }
    }

    /// Bytes that wait, if everything before the byte `taken` was taken.
    fn waiting_bytes(&mut self, taken: u64) -> u64 {
        while let Some(&(end, bytes)) = self.flushed.front()
            && end <= taken
        {
            self.flushed.pop_front();
            self.flushed_bytes -= bytes;
        }
        self.flushed_bytes + self.fresh_bytes
    }
}

/// Counted mistakes: this many within a window of time are too many; slower mistakes are forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Counted violations that are not forgotten, in millionths.
    level: u64,
    since: Time,
}

impl Tally {
    /// Counts one. Returns whether the count has reached `limit` within `window`; 0 means no limit. In a whole window
    /// `limit` counts are forgotten.
    pub fn add(&mut self, now: Time, limit: u32, window: Duration) -> bool {
        let per_window = u64::from(limit) * 1_000_000;
        let elapsed_us = u128::from(now.micros_since(self.since));
        let forgotten = elapsed_us * u128::from(per_window) / window.as_micros().max(1);
        self.since = now;
        self.level = self.level.saturating_sub(u64::try_from(forgotten).unwrap_or(u64::MAX)).saturating_add(1_000_000);
        limit > 0 && self.level > per_window - 1_000_000
    }
}

/// A server's buffer is kept up to this many bytes.
const KEPT_SERVER_BYTES: usize = 64 << 10;

impl Connection {
    pub(crate) fn new(
        key: Key,
        (id, writer): (u32, u32),
        side: Side,
        address: SocketAddr,
        outbox: Box<dyn Outbox>,
        fsm: Fsm,
    ) -> Connection {
        Connection {
            key,
            id,
            writer,
            side,
            address,
            stage: Stage::Stranger,
            fsm,
            identifier: String::new(),
            behind: None,
            outbox,
            out: Vec::new(),
            flushed_bytes: 0,
            movement: None,
            owned: FxHashSet::default(),
            created: FxHashSet::default(),
            failed_logins: 0,
            wants_refusals: false,
            from_clients: FromClients::default(),
            state_bytes: 0,
            violations: Tally::default(),
            malformed: Tally::default(),
            requests: Allowance::default(),
            patience_end: None,
            backlog: Backlog::default(),
            recovery: None,
            news: NewsList::default(),
            ends: RecentEnds::default(),
            is_watched: false,
            slow_since: None,
            behind_since: None,
            held_since: None,
            is_listed: false,
            is_ending: false,
            is_closing: false,
        }
    }

    pub(crate) fn is_server(&self) -> bool {
        self.side == Side::Server
    }

    pub(crate) fn is_member(&self) -> bool {
        self.stage == Stage::Member
    }

    /// Whether its mistakes are forgiven: those of a server that has logged in.
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_server() && self.is_member()
    }

    /// The hub's name of it.
    pub(crate) fn hub_id(&self) -> ConnectionId {
        ConnectionId { index: self.key.index, generation: self.key.generation }
    }

    pub(crate) fn place(&self) -> Place {
        Place::of(self.key)
    }

    /// Lets it in.
    pub(crate) fn admit(&mut self) {
        self.stage = Stage::Member;
        self.fsm.authenticated();
        self.outbox.admitted();
    }

    pub(crate) fn note_login(&self, note: LoginNote) {
        self.outbox.note_login(note);
    }

    /// Queues one message.
    pub(crate) fn send(&mut self, header: Header, body: &impl prost::Message) {
        put_body(&mut self.out, header, body);
    }

    /// Queues one message whose body is encoded already.
    pub(crate) fn send_bytes(&mut self, header: Header, body: &[u8]) {
        put_message(&mut self.out, header, body);
    }

    /// Queues entries that are encoded already.
    pub(crate) fn send_entries(&mut self, entries: &[u8]) {
        self.out.extend_from_slice(entries);
    }

    /// Bytes of state that may be queued in one step, far from where the connection would be ended.
    pub(crate) fn room_bytes(&self, limits: &Limits) -> usize {
        (self.hard_bytes(limits) / 2).saturating_sub(self.queued_bytes())
    }

    /// Bytes that go out at the end of the step.
    pub(crate) fn out_bytes(&self) -> usize {
        self.out.len()
    }

    /// The ways that state can go.
    pub(crate) fn ways(&mut self, limits: &Limits, buffers: &Buffers) -> Ways<'_> {
        buffers.exchange(&mut self.out);
        // Nothing overtakes what waits.
        let room_bytes = if self.has_backlog() { 0 } else { self.room_bytes(limits) };
        let lanes = self.movement.as_deref_mut().zip(self.outbox.datagrams());
        let movement = lanes.map(|(movement, datagrams)| movement.turn(datagrams, self.flushed_bytes));
        Ways { out: &mut self.out, movement, backlog: &mut self.backlog, room_bytes }
    }

    /// The way for things that may get lost, if it has one.
    pub(crate) fn datagrams(&self) -> Option<&dyn Datagrams> {
        self.outbox.datagrams()
    }

    /// Hands what was queued to the shell, and the buffer to the next one.
    pub(crate) fn flush(&mut self, buffers: &Buffers) -> usize {
        let bytes = self.hand_over();
        buffers.take_back(&mut self.out);
        bytes
    }

    /// Hands messages to the shell. Servers are sent many in each step, so they keep what they are put together in.
    pub(crate) fn flush_messages(&mut self, buffers: &Buffers) -> usize {
        if !self.is_server() {
            return self.flush(buffers);
        }
        let bytes = self.hand_over();
        self.out.shrink_to(KEPT_SERVER_BYTES);
        bytes
    }

    fn hand_over(&mut self) -> usize {
        let bytes = self.out.len();
        self.held_since = None;
        if bytes > 0 && !self.is_closing {
            self.flushed_bytes += bytes as u64;
            self.from_clients.hand_over(self.flushed_bytes);
            self.outbox.send(&mut self.out);
        }
        self.out.clear();
        if self.is_closing { 0 } else { bytes }
    }

    /// Whether state waits to be sent in slices, or channel by channel.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty() || self.recovery.is_some()
    }

    /// Whether there is room for another notice about a subscriber in what goes out at the end of the step.
    pub(crate) fn has_room_for_news(&self, limits: &Limits) -> bool {
        self.queued_bytes() + self.out.len() < self.soft_bytes(limits)
    }

    /// Bytes of memory that are kept for the state that waits.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.backlog.kept_bytes()
    }

    /// The same, and of the notices that wait, and of the ends that are remembered.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.backlog_bytes() + self.news.bytes() + self.ends.bytes()
    }

    /// Bytes of memory of its name, here and in the table of names.
    pub(crate) fn name_bytes(&self) -> u64 {
        2 * allocated(self.identifier.len()) as u64
    }

    /// Queues as much of the state that waits as keeps the connection from being slow. The bytes queued.
    pub(crate) fn feed(&mut self, limits: &Limits) -> usize {
        let before = self.out.len();
        let room = self.soft_bytes(limits).saturating_sub(self.queued_bytes() + before);
        self.backlog.take(room, &mut self.out);
        self.out.len() - before
    }

    /// State of this channel is not wanted any more.
    pub(crate) fn forget_state_of(&mut self, channel: ChannelIndex) {
        self.backlog.forget(channel);
    }

    /// Whether more waits for it than may wait while it is given more.
    pub(crate) fn is_slow(&self, limits: &Limits) -> bool {
        self.queued_bytes() > self.soft_bytes(limits)
    }

    /// Whether it does not take what it is given, and is not watched for that. It is from now on.
    pub(crate) fn falls_behind(&mut self, limits: &Limits, now: Time) -> bool {
        let is_slow = self.is_slow(limits);
        let is_behind = is_slow || self.has_backlog() || !self.news.is_empty() || self.is_overdue(limits);
        if !is_behind || self.is_watched {
            return false;
        }
        self.is_watched = true;
        self.slow_since = is_slow.then_some(now);
        self.behind_since = Some(now);
        true
    }

    /// Whether more waits for it than may wait at all.
    pub(crate) fn is_overdue(&self, limits: &Limits) -> bool {
        self.queued_bytes() > self.hard_bytes(limits)
    }

    fn soft_bytes(&self, limits: &Limits) -> usize {
        match self.side {
            Side::Server => limits.server_queue_soft_bytes as usize,
            Side::Client => limits.queue_soft_bytes as usize,
        }
    }

    pub(super) fn hard_bytes(&self, limits: &Limits) -> usize {
        match self.side {
            Side::Server => limits.server_queue_hard_bytes as usize,
            Side::Client => limits.queue_hard_bytes as usize,
        }
    }

    /// Whether it has taken less than it was given for too long, or by too much; by which limit.
    pub(crate) fn has_stalled(&self, limits: &Limits, now: Time) -> Option<&'static str> {
        let is_over = |since: Option<Time>, ms: u32| {
            since.is_some_and(|since| now.since(since) > Duration::from_millis(ms.into()))
        };
        if self.is_overdue(limits) || is_over(self.slow_since, limits.max_slow_ms) {
            return Some("queue_bytes");
        }
        is_over(self.behind_since, limits.max_backlog_ms).then_some("backlog_ms")
    }

    /// Whether there is room for one more message of a client among what waits for it. Clients have a separate share,
    /// far below the bound at which the connection would be closed: only a peer that does not read is to blame for
    /// that.
    pub(crate) fn has_room_for_clients(&mut self, limits: &Limits) -> bool {
        let share = match self.side {
            Side::Server => limits.server_queue_client_bytes,
            Side::Client => limits.server_queue_client_bytes.min(limits.queue_hard_bytes / 4),
        };
        let share = u64::from(share);
        if self.from_clients.fresh_bytes + self.from_clients.flushed_bytes < share {
            return true;
        }
        let taken = self.flushed_bytes.saturating_sub(self.outbox.queued_bytes() as u64);
        self.from_clients.waiting_bytes(taken) < share
    }

    /// The bytes that the kernel has not accepted yet.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.outbox.queued_bytes()
    }

    /// Queued data is not sent: the connection has to end at once.
    pub(crate) fn abandon(&self) {
        self.outbox.abandon();
    }

    /// Says good-bye: what is queued goes out, then the connection ends. The bytes that were queued.
    pub(crate) fn close(&mut self) -> usize {
        if self.is_closing {
            return 0;
        }
        let bytes = self.hand_over();
        self.is_closing = true;
        self.outbox.close();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    #[test]
    fn so_many_mistakes_in_a_window_are_too_many() {
        let mut tally = Tally::default();
        let now = Time::from_secs(1_000);
        let verdicts = [(); 4].map(|()| tally.add(now, 3, WINDOW));
        assert_eq!(verdicts, [false, false, true, true]);
    }

    #[test]
    fn mistakes_that_are_made_slowly_are_forgotten() {
        let mut tally = Tally::default();
        let mut now = Time::from_secs(1_000);
        for _ in 0..10_000 {
            assert!(!tally.add(now, 10, WINDOW));
            now = now.after(Duration::from_millis(1_200));
        }
        assert!((0..8).all(|_| !tally.add(now, 10, WINDOW)));
        assert!((0..2).any(|_| tally.add(now, 10, WINDOW)), "the slow ones have left next to nothing");
    }

    #[test]
    fn without_limit_there_are_never_too_many() {
        let mut tally = Tally::default();
        assert!((0..1_000).all(|_| !tally.add(Time(5), 0, WINDOW)));
    }
}
