//! The server's side of one connection: its subscriptions, what is due, what is in flight.
//!
//! The replication part of a packet is a sequence of pieces, ended by the packet's end or by a zero byte (padding):
//!
//! ```text
//! [subscription << 2 | has_name << 1 | has_age : varint]   the number is 1 or more, so the first byte is never 0
//! [age : varint]            if has_age: ticks from the segment's tick to the packet's tick; 0 without it
//! [name][opened : varint]   if has_name: which channel this is, and ticks from its opening to the packet's tick
//! [length : varint]         bytes of the body; 0 means: this subscription has ended
//! [body]                    a segment, the same bytes for every subscriber
//! ```
//!
//! No piece has number 0, so two of its first bytes mean something else: 1 begins shared pieces (`shared_view.rs`), and 2
//! a record of the objects that the client owns (`own.rs`).
//!
//! The name travels with every piece until a packet that carried it is acknowledged, so no piece depends on another.
//!
//! # Shares
//!
//! Each subscription with data is in a queue, in order of priority: the intervals that it has waited, times its weight.
//! The first one in the queue writes its *share* of the packet: up to [`SHARE_BYTES`], lost segments first, then its
//! frame. A longer frame continues with the next share, for which the subscription waits in the queue again. So data
//! that fill a connection for a second delay other data by one packet at a time.
//!
//! ```text
//! queue       own cell | join of 70 kB | near cell | near cell | far cell
//! packet 1    own, join .............................
//! packet 2    near, near, far, join ................     room is left: another share for data that wait
//! ```
//!
//! A lost segment is sent again unchanged only if it is a part of a long frame, or if another frame was sent since. If
//! not, the subscription goes back to its point before the loss. It gets the next frame for subscriptions at that point,
//! which holds the lost changes and newer ones.
//!
//! A segment that does not fit into the rest of a packet lets smaller ones pass, and goes first in the next packet.
//!
//! **The longest wait.** Let `r = weight / interval` be the rate of a subscription, `s` the bytes of one share (its
//! frame, at most [`SHARE_BYTES`] and the rest of a segment), and `B` the bytes per tick. When the sum of `s * r` over
//! all is more than `B`, priorities rise until it is not: to `p = sum(s * r) / B` intervals. No subscription waits much
//! longer than `p / r` ticks.

mod open;
mod priority;
mod settle;
mod sharing;
mod standings;
mod turn;

use std::collections::VecDeque;
use std::sync::Arc;

use throng_wire::{BitWriter, Tick};

use crate::frame::{Frame, Segment};
use crate::hub::{ChannelState, Outgoing, Planner, Registry, Turns};
use crate::own::OwnRecords;
use crate::piece::{PacketRecords, Piece, PieceWriter, give_back, make_room};
use crate::reader::{Reader, Regular};
use crate::send_ticks::SendTicks;
use crate::shared_view::SharedViews;
use crate::subscription::{Stage, Subscription};
pub(crate) use priority::Ranks;
use sharing::Sharing;
use standings::Standings;
use turn::{Next, next_frame};

/// A subscription of one connection, by its number on the wire. Numbers are used again, but not before the end of the
/// former use is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionId(pub(crate) u16);

impl SubscriptionId {
    /// The number: 1 to 16,383.
    pub fn number(self) -> u16 {
        self.0
    }

    /// The subscription of that number. One that does not exist does no harm.
    pub fn from_number(number: u16) -> SubscriptionId {
        SubscriptionId(number)
    }
}

/// The server's record of one connection.
#[derive(Debug)]
pub struct Connection {
    /// Its ticks: in all others nothing is planned or written.
    pub(crate) ticks: SendTicks,
    /// The tick that was planned is one of its ticks.
    is_its_tick: bool,
    /// It has been regular for so long that it has nothing more to tidy up.
    rests: bool,
    /// When it rests, it gives back the memory of its lists.
    saves_memory: bool,
    /// The last plan that looked at it.
    looked_at: Tick,
    /// Indexed by subscription number; number 0 is never used.
    subscriptions: Vec<Subscription>,
    /// Of those subscriptions that no view serves.
    standings: Standings,
    free: Vec<u16>,
    limit: usize,
    /// The subscriptions that may write in this tick, in the order of writing.
    due: VecDeque<Due>,
    /// Those of `due` that did not fit into the packet at hand; empty between packets.
    passed: Vec<Due>,
    /// The subscription that was passed over first in the last packet: it goes first in the next. 0 for none.
    first: u16,
    /// See [`Connection::needs_full_packet`].
    needs_full_packet: bool,
    /// The last plan did not ask for everything that was due.
    is_cut: bool,
    /// The last plan was made in order of priority, and so is `due`.
    is_in_order: bool,
    /// The priority of the last subscription that the last plan asked for, if it left some out; 0 if not.
    cut_score: u64,
    /// The usual size of a share, in sixteenths of a byte. Measured for this connection alone, so that the data sent to
    /// one client do not depend on other clients.
    usual_sixteenths: u32,
    /// The frames of subscriptions in [`Stage::Sending`]: few, since only a full packet or a share's end leaves one.
    sending: Vec<Sending>,
    /// Lost segments that have to be sent again, by subscription.
    resends: Vec<Resend>,
    closes: VecDeque<u16>,
    records: PacketRecords,
    counters: ConnectionCounters,
    name: Vec<u8>,
    sharing: Sharing,
    /// The records of the client's own objects, beside all subscriptions.
    pub(crate) own: OwnRecords,
}

/// Counters of the data sent to one connection. Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Segments written for the first time.
    pub segments: u64,
    /// Bytes of those, with what stands before each.
    pub object_bytes: u64,
    /// Object updates and introductions in them.
    pub object_updates: u64,
    /// Those of them that were copied from a shared view.
    pub shared_segments: u64,
    /// Segments written again after a loss.
    pub resent_segments: u64,
    /// Bytes of those.
    pub resent_bytes: u64,
    /// Segments lost and not sent again because later frames say all they said.
    pub superseded_segments: u64,
    /// Frames that were lost before another was sent. The next frame contains their data.
    pub frames_taken_back: u64,
    /// Bytes that end subscriptions.
    pub control_bytes: u64,
    /// Times a frame was postponed because something old was not delivered yet.
    pub held_back: u64,
    /// The longest that a subscription with something to say has waited beyond the tick when it was due, in ticks.
    pub longest_wait_ticks: u32,
}

/// A subscription that may write in this tick.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// Known while these are sorted.
    score: u64,
    request: u32,
    subscription: u16,
    /// Ticks since it was due, at most 65,535: so that writing need not look it up.
    late_ticks: u16,
}

/// The end of a share: why no more was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Everything is written.
    Done,
    /// There is more, for the next share.
    Over,
    /// Something is written, and more does not fit into the rest of the packet.
    Full,
    /// Nothing is written: it does not fit into the rest of the packet.
    NoRoom,
}

/// The most bytes of one share: half of a packet, so that a full packet has room for others beside a long frame. A
/// segment that begins within the share is written whole.
const SHARE_BYTES: u32 = 580;

/// This many are passed over, in the search for something that fits into the rest of a packet, before it is sent as it is.
const PASSED_MAX: usize = 4;

/// With less room than this in a packet nothing more is tried.
const LEAST_ROOM_BYTES: usize = 12;
/// A connection without lost segments keeps room for so many.
const RESENDS_KEPT: usize = 64;
/// A piece that is longer than this may not fit beside messages, which may take half of every packet.
const HALF_PACKET_BYTES: usize = 480;

/// The least bytes before a segment: its subscription, and its length.
const PIECE_HEAD_BYTES: usize = 2;

/// This many ends of subscriptions go before everything else in a packet; more of them, behind everything else.
const CLOSES_FIRST: usize = 16;

/// A member of a shared view that has wanted nothing else for so many ticks rests: it ends standings that its view has passed.
/// If memory is short, it gives back that of long lists, which are for a join, a step into the next cell, or a loss. A runner needs
/// them again before.
const RESTS_AFTER_TICKS: u32 = 12;

/// Subscriptions are fetched from memory together when there are so many.
const FETCH_LEAST: usize = 3;

/// A subscription without a turn is not checked for this many ticks.
const NO_TURN_TICKS: u32 = 1 << 20;

/// Instead of a request: continue with the frame that was begun earlier.
const CONTINUE: u32 = u32::MAX;

/// Instead of a request: there is no frame, only what was lost.
const NOTHING: u32 = u32::MAX - 1;

/// A frame of which a part is sent.
#[derive(Debug)]
struct Sending {
    subscription: u16,
    next_segment: u32,
    /// The tick since which it waits for its next share.
    waits_since: Tick,
    /// Bytes of it that were written in this share.
    share_bytes: u32,
    frame: Arc<Frame>,
}

/// A segment that was lost.
#[derive(Debug)]
struct Resend {
    subscription: u16,
    /// `None` once it is written.
    piece: Option<Piece>,
    /// The tick since which it waits for its share.
    waits_since: Tick,
}

impl Reader for Connection {
    fn new(limit: usize, saves_memory: bool) -> Connection {
        Connection {
            ticks: SendTicks::default(),
            is_its_tick: false,
            rests: false,
            saves_memory,
            looked_at: Tick(0),
            subscriptions: vec![Subscription::default()],
            standings: Standings::default(),
            free: Vec::new(),
            limit: limit.min(0x3FFF),
            due: VecDeque::new(),
            passed: Vec::new(),
            first: 0,
            needs_full_packet: false,
            is_cut: false,
            is_in_order: false,
            cut_score: 0,
            usual_sixteenths: 0,
            sending: Vec::new(),
            resends: Vec::new(),
            closes: VecDeque::new(),
            records: PacketRecords::default(),
            counters: ConnectionCounters::default(),
            name: Vec::new(),
            sharing: Sharing::default(),
            own: OwnRecords::default(),
        }
    }

    fn open_channels(&self) -> impl Iterator<Item = u32> + '_ {
        self.subscriptions.iter().filter(|s| s.is_open()).map(|s| s.channel)
    }

    fn register<S: ChannelState>(&mut self, registry: &mut Registry<'_, S>) {
        if self.ticks.contains(registry.now) {
            self.register_shared(self.was_short(), registry);
        }
    }

    fn fetch_plan(&self) -> u64 {
        let lengths = self.due.len() ^ self.resends.len() ^ self.subscriptions.len();
        lengths as u64 ^ self.sharing.fetch() ^ self.standings.fetch()
    }

    fn plan<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) -> Regular {
        self.is_its_tick = self.ticks.contains(planner.now);
        self.take_shared(planner.views);
        match self.is_its_tick {
            true => self.plan_tick(planner),
            false => self.leave_for_other_ticks(planner),
        }
        (self.looked_at, self.rests) = (planner.now, false);
        self.regular()
    }

    fn take_up(&mut self, tick: Tick) {
        self.is_its_tick = true;
        self.sharing.take_up(tick);
        if !self.rests && tick.since(self.looked_at) >= RESTS_AFTER_TICKS {
            self.rest(tick);
        }
    }

    fn written_until(&self) -> Option<Tick> {
        (self.due.is_empty() && self.sharing.is_written()).then_some(self.sharing.deadline())
    }

    fn leave(&mut self, views: &mut SharedViews) -> Vec<u32> {
        self.forget_views(views)
    }

    fn is_asleep(&self, number: u16, channel: u32) -> bool {
        let subscription = self.subscriptions.get(usize::from(number));
        subscription.is_some_and(|s| s.stage == Stage::Asleep && s.channel == channel)
    }

    fn forget_sleep(&mut self, number: u16, channel: u32) {
        if let Some(subscription) = self.subscriptions.get_mut(usize::from(number)).filter(|s| s.channel == channel) {
            subscription.end_sleep();
        }
    }

    fn wake(&mut self, number: u16, unchanged_at: Tick, changed_at: Tick, turns: Turns) {
        let subscription = &mut self.subscriptions[usize::from(number)];
        subscription.stage = Stage::Open;
        let standing = self.standings.of_mut(subscription);
        standing.since = standing.since.newest(unchanged_at);
        let due_at = self.ticks.from(subscription.next_turn(changed_at.before(1), turns.phase));
        self.standings.set_due_at(subscription, due_at);
    }
}

impl Connection {
    /// Plans one of its ticks.
    fn plan_tick<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) {
        let was_short = self.was_short();
        self.plan_shared(was_short, planner);
        self.due.clear();
        self.sort_resends();
        self.forget_closed_first();
        let begins_to_be_short = was_short && !std::mem::replace(&mut self.is_in_order, was_short);
        self.is_cut = was_short;
        if begins_to_be_short {
            self.sleep_where_nothing_is_new(planner);
        }
        if planner.allowance_bytes == 0 {
            return;
        }
        if was_short {
            self.is_cut = self.plan_in_order(planner);
            return;
        }
        self.find_candidates(planner.now, &mut planner.part.candidates);
        if planner.part.candidates.len() >= FETCH_LEAST {
            fetch((&self.subscriptions, &self.standings), planner.part.candidates.iter().copied());
        }
        for place in 0..planner.part.candidates.len() {
            self.plan_turn(usize::from(planner.part.candidates[place]), false, planner);
        }
    }

    /// The subscription that is to go first may have ended after it was passed over.
    fn forget_closed_first(&mut self) {
        if self.first != 0 && !self.subscriptions[usize::from(self.first)].is_open() {
            (self.first, self.needs_full_packet) = (0, false);
        }
    }

    /// Most cells in sight of a connection are empty. If each waited for a turn of its own to find that out, a connection without room
    /// for all would weigh hundreds of them in every tick until then.
    fn sleep_where_nothing_is_new<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) {
        for number in 0..self.subscriptions.len() {
            let subscription = &self.subscriptions[number];
            let is_new = |since: Tick| planner.state(subscription.channel).last_change().is_newer_than(since);
            if subscription.stage == Stage::Open && !is_new(self.standings.of(subscription).since) {
                self.fall_asleep(number, planner);
            }
        }
    }

    /// Its last tick had no room for everything.
    fn was_short(&self) -> bool {
        self.is_cut || !self.due.is_empty()
    }

    /// Reads a little of every part, so that the processor fetches the whole connection at once instead of waiting for memory
    /// at each part in turn. The value means nothing. For a caller that is about to write to many connections: it calls this
    /// for all of them, then [`Connection::fetch_behind`] for all.
    pub fn fetch(&self) -> u64 {
        let lengths = self.due.len() ^ self.passed.len() ^ self.sending.len() ^ self.resends.len() ^ self.closes.len();
        let counted = self.counters.segments ^ self.counters.object_bytes ^ self.counters.superseded_segments;
        let flags = u64::from(self.first) ^ u64::from(self.usual_sixteenths);
        lengths as u64 ^ counted ^ flags ^ self.records.fetch() ^ self.sharing.fetch() ^ self.own.fetch()
    }

    /// As [`Connection::fetch`], for what lies behind pointers.
    pub fn fetch_behind(&self) -> u64 {
        self.records.fetch_behind() ^ self.own.fetch_behind()
    }

    /// Counters so far.
    pub fn counters(&self) -> ConnectionCounters {
        self.counters
    }

    /// The channels of its open subscriptions, with their intervals in ticks.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        self.subscriptions.iter().filter(|s| s.is_open()).map(|s| (s.channel, s.interval_ticks))
    }

    /// Whether there is room for another subscription.
    pub fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// The number of subscriptions for which there is room.
    pub fn room(&self) -> usize {
        // Number 0 is in the table, and is no subscription.
        self.free.len() + (self.limit + 1).saturating_sub(self.subscriptions.len())
    }

    /// Number of open subscriptions.
    pub fn subscription_count(&self) -> usize {
        self.open_channels().count()
    }

    /// Packets whose fate is not known yet.
    pub fn packets_in_flight(&self) -> usize {
        self.records.len()
    }

    /// Bytes of memory that the connection holds, about.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Connection>()
            + self.subscriptions.capacity() * size_of::<Subscription>()
            + self.standings.memory_bytes()
            + (self.due.capacity() + self.passed.capacity()) * size_of::<Due>()
            + self.resends.capacity() * size_of::<Resend>()
            + self.sending.capacity() * size_of::<Sending>()
            + (self.free.capacity() + self.closes.capacity()) * size_of::<u16>()
            + self.sharing.memory_bytes()
            + self.records.memory_bytes()
            + self.own.memory_bytes()
    }

    /// Ends what a member of a view does not need while its view serves it.
    fn rest(&mut self, now: Tick) {
        self.rests = true;
        self.standings.end_passed(&mut self.subscriptions, now, self.ticks);
        if self.saves_memory {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        give_back(&mut self.due);
        give_back(&mut self.sending);
        give_back(&mut self.resends);
        self.records.give_back();
        self.standings.give_back(&mut self.subscriptions);
        self.sharing.give_back();
    }

    /// Changes how often a subscription is served, from its next turn on. Its weight stays what it is.
    pub fn set_interval(&mut self, id: SubscriptionId, interval_ticks: u16) {
        let index = usize::from(id.0);
        let is_another = |s: &&mut Subscription| s.is_open() && s.interval_ticks != interval_ticks.max(1);
        let Some(subscription) = self.subscriptions.get_mut(index).filter(is_another) else { return };
        let sooner = interval_ticks < subscription.interval_ticks;
        self.sharing.remove(subscription);
        subscription.set_interval(interval_ticks, self.sharing.retention_ticks);
        self.standings.set_pace(subscription);
        self.sharing.add(subscription);
        if subscription.stage == Stage::Shared {
            self.sharing.note_changed(id.0);
        }
        if sooner && subscription.stage == Stage::Open {
            // An object that has come near must not wait for the turn of a far one.
            let since = self.standings.of(subscription).since;
            let due_at = self.ticks.from(since.after(u32::from(subscription.interval_ticks)));
            self.standings.set_due_at(subscription, due_at);
        }
    }

    /// Plans and writes in every `interval_ticks`-th tick only, in those whose number is `offset` more than a multiple.
    ///
    /// A client whose nearest ring has an interval of two ticks then gets one long batch of packets in every second tick
    /// instead of a short one in each: half the system calls, and half the visits of its memory. With a different
    /// `offset` for each connection, the clients spread over the ticks.
    ///
    /// A subscription that was due in the next of the former ticks is due in the last of the new ones before that, so that it does not
    /// wait for longer than the interval.
    pub fn set_send_interval(&mut self, interval_ticks: u16, offset: u32) {
        let ticks = SendTicks::new(interval_ticks, offset);
        if std::mem::replace(&mut self.ticks, ticks) != ticks {
            self.standings.bring_forward(ticks);
        }
    }

    /// Changes the priority of a subscription: with twice the weight it waits half as long when the budget is short.
    pub fn set_weight(&mut self, id: SubscriptionId, weight: u8) {
        if let Some(subscription) = self.subscriptions.get_mut(usize::from(id.0)).filter(|s| s.is_open()) {
            subscription.weight = weight.max(1);
            self.standings.set_pace(subscription);
        }
    }

    /// Whether there is an open subscription of this channel.
    pub(crate) fn is_subscribed(&self, channel: u32) -> bool {
        self.subscriptions.iter().any(|subscription| subscription.channel == channel && subscription.is_open())
    }

    /// The subscriptions whose next turn is not after `now`, and those of which something was lost.
    fn find_candidates(&self, now: Tick, candidates: &mut Vec<u16>) {
        candidates.clear();
        self.find_due(now, candidates);
        for lost in self.resends.chunk_by(|a, b| a.subscription == b.subscription) {
            let number = lost[0].subscription;
            if self.standings.due_at(&self.subscriptions[usize::from(number)]).is_newer_than(now) {
                candidates.push(number);
            }
        }
    }

    fn find_due(&self, now: Tick, candidates: &mut Vec<u16>) {
        if !self.sharing.is_member() {
            return self.standings.find_due(now, candidates);
        }
        let is_due = |number: &u16| self.standings.due_at(&self.subscriptions[usize::from(*number)]) <= now;
        candidates.extend(self.sharing.exceptions.iter().copied().filter(is_due));
    }

    /// The turn of one subscription has come. Returns how many bytes it will take, about.
    fn plan_turn<S: ChannelState>(&mut self, number: usize, is_short: bool, planner: &mut Planner<'_, S>) -> usize {
        let now = planner.now;
        let subscription = &mut self.subscriptions[number];
        let (mut request, mut bytes) = (NOTHING, 0);
        if self.standings.due_at(subscription).is_newer_than(now) {
            // It is not due, and only lost segments are written.
        } else if !matches!(subscription.stage, Stage::Fresh | Stage::Open | Stage::Sending) {
            self.standings.set_due_at(subscription, now.after(NO_TURN_TICKS));
        } else {
            let is_overdue = self.sharing.is_overdue && subscription.could_share();
            match next_frame((subscription, self.standings.of(subscription)), is_overdue, planner) {
                Next::Frame(next) => {
                    request = next;
                    if is_short && subscription.stage == Stage::Fresh {
                        sleep_if_empty((number as u16, subscription), planner);
                    }
                    bytes = match request {
                        CONTINUE => SHARE_BYTES as usize,
                        _ => (self.usual_sixteenths / 16) as usize + 1,
                    };
                }
                Next::HeldBack => self.counters.held_back += 1,
                Next::Nothing => self.fall_asleep(number, planner),
            }
        }
        let subscription = &self.subscriptions[number];
        let late_ticks = now.since(self.standings.due_at(subscription)).min(u16::MAX.into()) as u16;
        let mut lost_bytes = 0;
        if !self.resends.is_empty() {
            lost_bytes = self.resends_of(number as u16).map(Resend::body_bytes).sum();
        }
        if request == NOTHING && lost_bytes == 0 {
            return 0;
        }
        make_room(&mut self.due);
        self.due.push_back(Due { score: 0, request, subscription: number as u16, late_ticks });
        bytes + lost_bytes.min(SHARE_BYTES as usize)
    }

    /// The channel has nothing new for the subscription, and wakes it when it has.
    fn fall_asleep<S: ChannelState>(&mut self, number: usize, planner: &mut Planner<'_, S>) {
        let subscription = &mut self.subscriptions[number];
        subscription.stage = Stage::Asleep;
        self.standings.of_mut(subscription).since = planner.now;
        self.standings.set_due_at(subscription, planner.now.after(NO_TURN_TICKS));
        // Its channel may remember it from before it was shared.
        if subscription.begin_sleep() {
            planner.sleep(subscription.channel, number as u16);
        }
    }

    /// The lost segments of one subscription.
    fn resends_of(&self, number: u16) -> impl Iterator<Item = &Resend> {
        let from = self.resends.partition_point(|resend| resend.subscription < number);
        self.resends[from..].iter().take_while(move |resend| resend.subscription == number)
    }

    /// Sorts what was lost by subscription, and forgets what has been written since or is of no use any more.
    fn sort_resends(&mut self) {
        if self.resends.is_empty() {
            self.resends.shrink_to(RESENDS_KEPT);
        } else {
            let subscriptions = &self.subscriptions;
            self.resends.retain(|resend| {
                let subscription = &subscriptions[usize::from(resend.subscription)];
                resend.piece.as_ref().is_some_and(|piece| subscription.is_incarnation(piece.opened))
            });
            self.resends.sort_by_key(|resend| resend.subscription);
        }
    }

    pub(crate) fn has_resends(&self) -> bool {
        !self.resends.is_empty()
    }

    /// Sorts the due subscriptions for a tick in which `budget_bytes` may be written: by priority if the budget may be
    /// too small for all. If not, or if the plan was made by priority, they keep the order of the plan, which costs nothing.
    pub fn begin_write<S: ChannelState>(&mut self, outgoing: Outgoing<'_, S>, budget_bytes: usize) {
        if !self.begin_tick(outgoing.now) {
            return;
        }
        self.take_shared(outgoing.views);
        if self.due.len() >= FETCH_LEAST {
            fetch((&self.subscriptions, &self.standings), self.due.iter().map(|due| due.subscription));
        }
        if self.due.len() < 2 || self.is_in_order {
            return;
        }
        let budget_bytes = budget_bytes.saturating_sub(self.sharing.bytes_left());
        let due = self.due.make_contiguous();
        let mut wanted_bytes = 0;
        for due in &*due {
            wanted_bytes += match due.request {
                // How much that will be is not worth finding out: the order matters as soon as there is one of these.
                CONTINUE | NOTHING => budget_bytes,
                request => outgoing.frame(request).bytes.len() + 4,
            };
        }
        if wanted_bytes > budget_bytes || !self.resends.is_empty() || self.first != 0 {
            for place in 0..self.due.len() {
                self.due[place].score = self.score(self.due[place].subscription, outgoing.now);
            }
            let due = self.due.make_contiguous();
            due.sort_unstable_by(|a, b| b.score.cmp(&a.score).then(a.subscription.cmp(&b.subscription)));
        }
    }

    /// Whether there is anything left to write this tick.
    pub fn has_more(&self) -> bool {
        self.is_its_tick && (!self.due.is_empty() || !self.closes.is_empty() || self.sharing.has_more())
    }

    /// Whether this is a tick in which something may be written to the connection.
    pub(crate) fn is_its_tick(&self) -> bool {
        self.is_its_tick
    }

    /// Finds out whether `now` is such a tick.
    pub(crate) fn begin_tick(&mut self, now: Tick) -> bool {
        self.is_its_tick = self.ticks.contains(now);
        self.is_its_tick
    }

    /// Whether what goes first in the next packet is long, or did not fit into the last one although it stood first there:
    /// give it a whole packet, in which nothing else stands before it.
    pub fn needs_full_packet(&self) -> bool {
        self.needs_full_packet
    }

    /// Writes as many pieces into `room` as fit, and remembers that packet `sequence` carries them. Returns the bytes
    /// written; 0 when nothing is left or nothing that is left fits.
    ///
    /// `sequence` must be greater than at every call before. Allocates only while buffers grow to their working size.
    pub fn write_packet<S: ChannelState>(
        &mut self,
        outgoing: Outgoing<'_, S>,
        sequence: u64,
        room: &mut [u8],
    ) -> usize {
        let mut out = PieceWriter { buffer: room, len: 0, missed_bytes: 0 };
        let first = self.records.end();
        self.write_closes(&mut out, CLOSES_FIRST);
        self.write_shares(outgoing, &mut out);
        let mut shared = None;
        // Behind the exceptions: these say what changed in a channel before that which the view says of it.
        if self.due.is_empty() {
            let (bytes, range) = self.write_shared(&mut out.buffer[out.len..]);
            (out.len, shared) = (out.len + bytes, range);
        }
        self.write_closes(&mut out, usize::MAX);
        if out.len > 0 {
            self.records.push_packet(sequence, first, shared);
        }
        out.len
    }

    fn write_closes(&mut self, out: &mut PieceWriter<'_>, most: usize) {
        for _ in 0..most {
            if out.room() < CLOSE_MAX_BYTES {
                return;
            }
            let Some(number) = self.closes.pop_front() else { return };
            let before = out.len;
            out.put_varint(u64::from(number) << 2);
            out.put_varint(0);
            self.counters.control_bytes += (out.len - before) as u64;
            let opened = self.subscriptions[usize::from(number)].opened;
            self.records.push(Piece {
                frame: None,
                opened,
                since: opened,
                segment: 0,
                subscription: number,
                parity: false,
                named: false,
            });
        }
    }

    fn write_shares<S: ChannelState>(&mut self, outgoing: Outgoing<'_, S>, out: &mut PieceWriter<'_>) {
        loop {
            if self.first == 0 && self.passed.is_empty() && self.resends.is_empty() {
                self.write_plain(outgoing, out);
            }
            if out.room() < LEAST_ROOM_BYTES {
                break;
            }
            let Some(due) = self.due.pop_front() else { break };
            let is_first = self.first == due.subscription || out.len == 0 && self.passed.is_empty();
            let end = match self.is_too_long(due, outgoing, out) {
                true => End::NoRoom,
                false => self.write_share(due, outgoing, out),
            };
            if end == End::NoRoom && self.passed.is_empty() {
                (self.first, self.needs_full_packet) =
                    (due.subscription, is_first || out.missed_bytes > HALF_PACKET_BYTES);
            } else if end != End::NoRoom && self.first == due.subscription {
                (self.first, self.needs_full_packet) = (0, false);
            }
            match end {
                End::Done => continue,
                // When all others have written their shares and there is room left, it writes another.
                End::Over => self.due.push_back(due),
                End::Full | End::NoRoom => self.passed.push(due),
            }
            if self.passed.len() == PASSED_MAX {
                break;
            }
        }
        while let Some(due) = self.passed.pop() {
            self.due.push_front(due);
        }
    }

    /// Whether a share consists of one segment that does not fit. Does not look at the subscription, so it may miss some.
    fn is_too_long<S: ChannelState>(&self, due: Due, outgoing: Outgoing<'_, S>, out: &mut PieceWriter<'_>) -> bool {
        if due.request >= NOTHING || !self.resends.is_empty() {
            return false;
        }
        let frame = outgoing.frame(due.request);
        let [_] = &frame.segments[..] else { return false };
        out.missed_bytes = frame.segment_bytes(0).len() + PIECE_HEAD_BYTES;
        out.missed_bytes > out.room()
    }

    /// Writes what most packets hold, up to the first thing that is not of that kind: new frames of one segment each, of
    /// channels that the client knows, for which there is ample room.
    fn write_plain<S: ChannelState>(&mut self, outgoing: Outgoing<'_, S>, out: &mut PieceWriter<'_>) {
        let now = outgoing.now;
        while let Some(&Due { request, subscription: number, late_ticks, .. }) = self.due.front() {
            let index = usize::from(number);
            let subscription = &mut self.subscriptions[index];
            if request >= NOTHING || subscription.stage != Stage::Open || !subscription.is_announced() {
                return;
            }
            let frame = outgoing.frame(request);
            let [segment] = &frame.segments[..] else { return };
            let before = out.len;
            if !out.put_plain(number, frame.segment_bytes(0)) {
                return;
            }
            self.due.pop_front();
            let bytes = (out.len - before) as u32;
            self.counters.longest_wait_ticks = self.counters.longest_wait_ticks.max(late_ticks.into());
            self.counters.segments += 1;
            self.counters.object_updates += u64::from(segment.updates);
            self.counters.object_bytes += u64::from(bytes);
            let standing = self.standings.of_mut(subscription);
            let since = standing.since.short();
            standing.begin_frame(subscription, now);
            self.records.push(Piece {
                frame: Some(Arc::clone(frame)),
                opened: subscription.opened,
                since,
                segment: 0,
                subscription: number,
                parity: standing.flight.depart(),
                named: false,
            });
            self.usual_sixteenths += bytes.min(SHARE_BYTES);
            self.usual_sixteenths -= self.usual_sixteenths / 16;
            let phase = outgoing.channels[subscription.channel as usize].turns.phase;
            end_frame((subscription, &mut self.standings), now, (now, self.ticks, phase));
            if out.room() < LEAST_ROOM_BYTES {
                return;
            }
        }
    }

    /// Writes the share of one subscription.
    fn write_share<S: ChannelState>(&mut self, due: Due, outgoing: Outgoing<'_, S>, out: &mut PieceWriter<'_>) -> End {
        if !self.resends.is_empty() {
            let end = self.write_resends(due.subscription, outgoing, out);
            if end != End::Done {
                return end;
            }
        }
        if due.request == NOTHING || !self.subscriptions[usize::from(due.subscription)].is_open() {
            return End::Done;
        }
        self.write_frame(due, outgoing, out)
    }

    fn write_resends<S: ChannelState>(
        &mut self,
        number: u16,
        outgoing: Outgoing<'_, S>,
        out: &mut PieceWriter<'_>,
    ) -> End {
        let from = self.resends.partition_point(|resend| resend.subscription < number);
        let mut lost = self.resends[from..].iter_mut().take_while(|resend| resend.subscription == number);
        let mut is_written = false;
        while let Some(resend) = lost.next() {
            let Some(piece) = &mut resend.piece else { continue };
            let subscription = &mut self.subscriptions[usize::from(number)];
            let frame = piece.frame.as_ref().expect("only segments are sent again");
            let before = out.len;
            let name = name_of(subscription, outgoing, &mut self.name);
            if !out.put_segment(number, frame, piece.segment, name, piece.opened, outgoing.now) {
                if is_written {
                    // This was its share: the rest of its data, lost or new, waits for the next.
                    std::iter::once(resend).chain(lost).for_each(|resend| resend.waits_since = outgoing.now);
                    self.wait_again(number, outgoing.now);
                    return End::Full;
                }
                return End::NoRoom;
            }
            piece.named = !subscription.is_announced();
            self.counters.resent_segments += 1;
            self.counters.resent_bytes += (out.len - before) as u64;
            self.records.extend(resend.piece.take());
            is_written = true;
        }
        End::Done
    }

    /// The subscription has had a share without its frame.
    fn wait_again(&mut self, number: u16, now: Tick) {
        for sending in self.sending.iter_mut().filter(|sending| sending.subscription == number) {
            (sending.waits_since, sending.share_bytes) = (now, 0);
        }
        let subscription = &self.subscriptions[usize::from(number)];
        self.standings.set_due_at(subscription, self.standings.due_at(subscription).newest(now));
    }

    fn write_frame<S: ChannelState>(&mut self, due: Due, outgoing: Outgoing<'_, S>, out: &mut PieceWriter<'_>) -> End {
        let (number, index) = (due.subscription, usize::from(due.subscription));
        let subscription = &mut self.subscriptions[index];
        let begun = match subscription.stage {
            Stage::Sending => {
                let place = self.sending.iter().position(|sending| sending.subscription == number);
                Some(self.sending.swap_remove(place.expect("a frame that was begun is kept")))
            }
            _ => None,
        };
        let (frame, mut next_segment, mut share_bytes, mut waits_since) = match &begun {
            Some(begun) => (&begun.frame, begun.next_segment, begun.share_bytes, begun.waits_since),
            None => (outgoing.frame(due.request), 0, 0, self.standings.due_at(subscription)),
        };
        let before_all = out.len;
        while let Some(segment) = frame.segments.get(next_segment as usize) {
            let is_over = share_bytes >= SHARE_BYTES;
            let before = out.len;
            let name = name_of(subscription, outgoing, &mut self.name);
            // A use of a number begins with its first frame.
            let is_fresh = subscription.stage == Stage::Fresh;
            let (opened, since) = match is_fresh {
                true => (frame.tick.short(), frame.tick.short()),
                false => (subscription.opened, self.standings.of(subscription).since.short()),
            };
            if is_over || !out.put_segment(number, frame, next_segment, name, opened, outgoing.now) {
                if is_over {
                    (waits_since, share_bytes) = (outgoing.now, 0);
                }
                if next_segment > 0 {
                    let frame = Arc::clone(frame);
                    subscription.stage = Stage::Sending;
                    self.sending.push(Sending { subscription: number, next_segment, waits_since, share_bytes, frame });
                }
                return match is_over {
                    true => End::Over,
                    false => {
                        if out.len > before_all {
                            End::Full
                        } else {
                            End::NoRoom
                        }
                    }
                };
            }
            if next_segment == 0 {
                let wait_ticks = outgoing.now.since(waits_since);
                self.counters.longest_wait_ticks = self.counters.longest_wait_ticks.max(wait_ticks);
                self.standings.of_mut(subscription).begin_frame(subscription, frame.tick);
            }
            self.counters.segments += 1;
            self.counters.object_updates += u64::from(segment.updates);
            self.counters.object_bytes += (out.len - before) as u64;
            self.records.push(Piece {
                frame: Some(Arc::clone(frame)),
                opened,
                since,
                segment: next_segment,
                subscription: number,
                parity: self.standings.of_mut(subscription).flight.depart(),
                named: !subscription.is_announced(),
            });
            share_bytes += (out.len - before) as u32;
            next_segment += 1;
        }
        self.usual_sixteenths += share_bytes.min(SHARE_BYTES);
        self.usual_sixteenths -= self.usual_sixteenths / 16;
        let phase = outgoing.channels[subscription.channel as usize].turns.phase;
        end_frame((subscription, &mut self.standings), frame.tick, (outgoing.now, self.ticks, phase));
        End::Done
    }
}

impl Resend {
    fn body_bytes(&self) -> usize {
        let segment =
            self.piece.as_ref().and_then(|piece| Some(&piece.frame.as_ref()?.segments[piece.segment as usize]));
        segment.map_or(0, Segment::len_bytes)
    }
}

/// Lets a subscription that is sent nothing yet fall asleep when its first frame is written, if the channel is empty and nothing comes
/// until then.
fn sleep_if_empty<S: ChannelState>((number, subscription): (u16, &mut Subscription), planner: &mut Planner<'_, S>) {
    if planner.state(subscription.channel).is_empty() && subscription.begin_sleep() {
        planner.sleep(subscription.channel, number);
    }
}

/// The frame of `tick` is written to its end: the subscription waits for its next turn, or for a change of its channel.
#[inline]
fn end_frame(
    (subscription, standings): (&mut Subscription, &mut Standings),
    tick: Tick,
    (now, ticks, phase): (Tick, SendTicks, u32),
) {
    standings.of_mut(subscription).end_frame(subscription, tick);
    let due_at = match subscription.stage {
        Stage::Asleep => now.after(NO_TURN_TICKS),
        _ => ticks.from(subscription.next_turn(now, phase)),
    };
    standings.set_due_at(subscription, due_at);
}

/// Reads a byte of each of these subscriptions, so that the processor fetches them all at once instead of waiting for
/// memory at each in turn when it is worked on: with a thousand connections, none of them is in a near cache.
fn fetch((subscriptions, standings): (&[Subscription], &Standings), numbers: impl Iterator<Item = u16>) {
    let sum = numbers.fold(0, |sum, number| sum ^ standings.of(&subscriptions[usize::from(number)]).since.0);
    std::hint::black_box(sum);
}

/// The bytes that name the subscription's channel, empty once the client is known to have them.
fn name_of<'a, S: ChannelState>(
    subscription: &Subscription,
    outgoing: Outgoing<'_, S>,
    scratch: &'a mut Vec<u8>,
) -> &'a [u8] {
    scratch.clear();
    if !subscription.is_announced() {
        let mut w = BitWriter::new(scratch);
        outgoing.channels[subscription.channel as usize].key.name().encode(&mut w);
        w.finish();
    }
    scratch
}

/// A subscription number in three bytes and a zero length.
const CLOSE_MAX_BYTES: usize = 4;
