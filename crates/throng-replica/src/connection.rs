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
//! The name travels with every piece until a packet that carried it is acknowledged, so no piece depends on another.

use std::collections::VecDeque;
use std::sync::Arc;

use throng_wire::{BitWriter, Tick};

use crate::encode::ENTRY_MAX_BYTES;
use crate::frame::{Frame, Since, Variant};
use crate::hub::{ChannelState, Outgoing, Planner, Reader, Turns};
use crate::key::KEY_MAX_BYTES;
use crate::limits::LimitReached;
use crate::subscription::{Stage, Subscription};

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
    /// Indexed by subscription number; number 0 is never used.
    subscriptions: Vec<Subscription>,
    /// When each is due next: apart from the rest, because it is scanned every tick.
    due_at: Vec<Tick>,
    free: Vec<u16>,
    limit: usize,
    /// What is due this tick, in the order in which it is written.
    due: Vec<Due>,
    cursor: usize,
    /// The frames of the subscriptions in [`Stage::Sending`]: few, since only a full packet leaves one behind.
    sending: Vec<Sending>,
    resends: VecDeque<Piece>,
    closes: VecDeque<u16>,
    records: PacketRecords,
    counters: ConnectionCounters,
    name: Vec<u8>,
}

/// What one connection was sent. Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Segments written for the first time.
    pub segments: u64,
    /// Bytes of those, with what stands before each.
    pub object_bytes: u64,
    /// Object updates and introductions in them.
    pub object_updates: u64,
    /// Segments written again after a loss.
    pub resent_segments: u64,
    /// Bytes of those.
    pub resent_bytes: u64,
    /// Segments lost and not sent again because later frames say all they said.
    pub superseded_segments: u64,
    /// Bytes that end subscriptions.
    pub control_bytes: u64,
    /// Times a frame was put off because something old was not delivered yet.
    pub held_back: u64,
    /// The longest that a subscription with something to say has waited beyond the tick when it was due, in ticks.
    pub longest_wait_ticks: u32,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    score: u32,
    request: u32,
    subscription: u16,
}

/// Subscriptions whose next turn is looked at together.
const DUE_BLOCK: usize = 16;

/// What has no turn is not looked at for so many ticks: long, but far from where ticks wrap around.
const NO_TURN_TICKS: u32 = 1 << 20;

/// Instead of a request: go on with the frame that was begun earlier.
const CONTINUE: u32 = u32::MAX;

/// A frame of which a part is sent.
#[derive(Debug)]
struct Sending {
    subscription: u16,
    next_segment: u32,
    frame: Arc<Frame>,
}

/// A segment that is to be sent, or was.
#[derive(Debug)]
struct Piece {
    /// `None`: the end of the subscription.
    frame: Option<Arc<Frame>>,
    opened: Tick,
    segment: u32,
    subscription: u16,
    parity: bool,
    named: bool,
}

impl Reader for Connection {
    fn with_limit(limit: usize) -> Connection {
        Connection {
            subscriptions: vec![Subscription::default()],
            due_at: vec![Tick(0)],
            free: Vec::new(),
            limit: limit.min(0x3FFF),
            due: Vec::new(),
            cursor: 0,
            sending: Vec::new(),
            resends: VecDeque::new(),
            closes: VecDeque::new(),
            records: PacketRecords::default(),
            counters: ConnectionCounters::default(),
            name: Vec::new(),
        }
    }

    fn open_channels(&self) -> impl Iterator<Item = u32> + '_ {
        self.subscriptions.iter().filter(|s| s.is_open()).map(|s| s.channel)
    }

    fn plan<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) {
        self.due.clear();
        self.cursor = 0;
        let mut candidates = std::mem::take(&mut planner.candidates);
        self.find_candidates(planner.now, &mut candidates);
        fetch(&self.subscriptions, candidates.iter().copied());
        for &number in &candidates {
            self.plan_turn(usize::from(number), planner);
        }
        planner.candidates = candidates;
    }

    fn is_asleep(&self, number: u16, channel: u32) -> bool {
        let subscription = self.subscriptions.get(usize::from(number));
        subscription.is_some_and(|s| s.stage == Stage::Asleep && s.channel == channel)
    }

    fn wake(&mut self, number: u16, unchanged_at: Tick, now: Tick, turns: Turns) {
        let subscription = &mut self.subscriptions[usize::from(number)];
        subscription.stage = Stage::Open;
        subscription.since = subscription.since.newest(unchanged_at);
        self.due_at[usize::from(number)] = subscription.next_turn(now.before(1), turns.phase);
    }
}

impl Connection {
    /// What was sent so far.
    pub fn counters(&self) -> ConnectionCounters {
        self.counters
    }

    /// Number of open subscriptions.
    pub fn subscription_count(&self) -> usize {
        self.open_channels().count()
    }

    /// Packets whose fate is not known yet.
    pub fn packets_in_flight(&self) -> usize {
        self.records.packets.len()
    }

    /// Bytes of memory that the connection holds, about.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Connection>()
            + self.subscriptions.capacity() * (size_of::<Subscription>() + size_of::<Tick>())
            + self.due.capacity() * size_of::<Due>()
            + self.resends.capacity() * size_of::<Piece>()
            + self.records.pieces.capacity() * size_of::<Piece>()
            + self.records.packets.capacity() * size_of::<PacketRecord>()
    }

    pub(crate) fn subscribe(
        &mut self,
        channel: u32,
        interval_ticks: u16,
        weight: u8,
        opened: Tick,
    ) -> Result<SubscriptionId, LimitReached> {
        let subscription = Subscription::open(channel, interval_ticks, weight, opened);
        let number = match self.free.pop() {
            Some(number) => {
                self.subscriptions[usize::from(number)] = subscription;
                self.due_at[usize::from(number)] = opened;
                number
            }
            None if self.subscriptions.len() <= self.limit => {
                self.subscriptions.push(subscription);
                self.due_at.push(opened);
                (self.subscriptions.len() - 1) as u16
            }
            None => return Err(LimitReached::Subscriptions(self.limit)),
        };
        Ok(SubscriptionId(number))
    }

    /// Changes how often a subscription is served, from its next turn on.
    pub fn set_rate(&mut self, id: SubscriptionId, interval_ticks: u16, weight: u8) {
        let index = usize::from(id.0);
        let Some(subscription) = self.subscriptions.get_mut(index).filter(|s| s.is_open()) else { return };
        let sooner = interval_ticks < subscription.interval_ticks;
        subscription.interval_ticks = interval_ticks.max(1);
        subscription.weight = weight.max(1);
        if sooner && subscription.stage == Stage::Open {
            // What has become near must not wait for the turn of what was far.
            self.due_at[index] = subscription.since.after(u32::from(subscription.interval_ticks));
        }
    }

    /// Ends a subscription; returns its channel if it was open.
    pub(crate) fn unsubscribe(&mut self, id: SubscriptionId) -> Option<u32> {
        let subscription = self.subscriptions.get_mut(usize::from(id.0)).filter(|s| s.is_open())?;
        if subscription.stage == Stage::Sending {
            self.sending.retain(|sending| sending.subscription != id.0);
        }
        subscription.stage = Stage::Closing;
        self.closes.push_back(id.0);
        Some(subscription.channel)
    }

    /// The subscriptions whose next turn is not after `now`.
    fn find_candidates(&self, now: Tick, candidates: &mut Vec<u16>) {
        candidates.clear();
        for (block, due_at) in self.due_at.chunks(DUE_BLOCK).enumerate() {
            // Without a branch for each, so that a whole block is compared at once.
            if due_at.iter().fold(false, |any, due_at| any | !due_at.is_newer_than(now)) {
                let numbers = (block * DUE_BLOCK..).map(|number| number as u16);
                let due = numbers.zip(due_at).filter(|(number, due_at)| *number > 0 && !due_at.is_newer_than(now));
                candidates.extend(due.map(|(number, _)| number));
            }
        }
    }

    /// The turn of one subscription has come.
    fn plan_turn<S: ChannelState>(&mut self, number: usize, planner: &mut Planner<'_, S>) {
        let (now, subscription) = (planner.now, &mut self.subscriptions[number]);
        if !matches!(subscription.stage, Stage::Fresh | Stage::Open | Stage::Sending) {
            self.due_at[number] = now.after(NO_TURN_TICKS);
            return;
        }
        match next_frame(subscription, planner) {
            Next::Frame(request) => {
                let wait_ticks = now.since(self.due_at[number]);
                self.counters.longest_wait_ticks = self.counters.longest_wait_ticks.max(wait_ticks);
                self.due.push(Due { score: subscription.score(wait_ticks), request, subscription: number as u16 });
            }
            Next::HeldBack => self.counters.held_back += 1,
            Next::Nothing => {
                subscription.stage = Stage::Asleep;
                self.due_at[number] = now.after(NO_TURN_TICKS);
                planner.sleep(subscription.channel, number as u16);
            }
        }
    }

    /// Puts what is due in order for a tick in which `budget_bytes` may be written. In order of priority if that is
    /// not enough for all, else in order of number, which costs nothing.
    pub fn begin_write<S: ChannelState>(&mut self, outgoing: Outgoing<'_, S>, budget_bytes: usize) {
        let mut wanted_bytes = 0;
        for due in &self.due {
            wanted_bytes += match due.request {
                CONTINUE => budget_bytes,
                request => outgoing.frame(request).bytes.len() + 4,
            };
        }
        if wanted_bytes > budget_bytes {
            self.due.sort_unstable_by(|a, b| b.score.cmp(&a.score).then(a.subscription.cmp(&b.subscription)));
        }
        fetch(&self.subscriptions, self.due.iter().map(|due| due.subscription));
    }

    /// Whether there is anything left to write this tick.
    pub fn has_more(&self) -> bool {
        self.cursor < self.due.len() || !self.resends.is_empty() || !self.closes.is_empty()
    }

    /// Writes as many pieces into `room` as fit, and remembers that packet `sequence` carries them. Returns the bytes
    /// written; 0 when nothing is left or the next piece does not fit.
    ///
    /// `sequence` must be greater than at every call before. Allocates only while buffers grow to their working size.
    pub fn write_packet<S: ChannelState>(
        &mut self,
        outgoing: Outgoing<'_, S>,
        sequence: u64,
        room: &mut [u8],
    ) -> usize {
        let mut out = PieceWriter { buffer: room, len: 0 };
        let first = self.records.end();
        let full =
            self.write_closes(&mut out) || self.write_resends(outgoing, &mut out) || self.write_due(outgoing, &mut out);
        debug_assert!(full || !self.has_more());
        if out.len > 0 {
            self.records.packets.push_back(PacketRecord { sequence, first, end: self.records.end(), settled: false });
        }
        out.len
    }

    fn write_closes(&mut self, out: &mut PieceWriter<'_>) -> bool {
        while let Some(&number) = self.closes.front() {
            if out.room() < CLOSE_MAX_BYTES {
                return true;
            }
            self.closes.pop_front();
            let before = out.len;
            out.put_varint(u64::from(number) << 2);
            out.put_varint(0);
            self.counters.control_bytes += (out.len - before) as u64;
            let opened = self.subscriptions[usize::from(number)].opened;
            self.records.push(Piece {
                frame: None,
                opened,
                segment: 0,
                subscription: number,
                parity: false,
                named: false,
            });
        }
        false
    }

    fn write_resends<S: ChannelState>(&mut self, outgoing: Outgoing<'_, S>, out: &mut PieceWriter<'_>) -> bool {
        while let Some(mut piece) = self.resends.pop_front() {
            let subscription = &mut self.subscriptions[usize::from(piece.subscription)];
            if !subscription.is_incarnation(piece.opened) {
                continue;
            }
            let frame = piece.frame.as_ref().expect("only segments are sent again");
            if frame.segments[piece.segment as usize].is_superseded() {
                subscription.flight.settle(piece.parity);
                self.counters.superseded_segments += 1;
                continue;
            }
            let before = out.len;
            let name = name_of(subscription, outgoing, &mut self.name);
            if !out.put_segment(piece.subscription, frame, piece.segment, name, subscription.opened, outgoing.now) {
                self.resends.push_front(piece);
                return true;
            }
            piece.named = !subscription.flight.announced;
            self.counters.resent_segments += 1;
            self.counters.resent_bytes += (out.len - before) as u64;
            self.records.push(piece);
        }
        false
    }

    fn write_due<S: ChannelState>(&mut self, outgoing: Outgoing<'_, S>, out: &mut PieceWriter<'_>) -> bool {
        while let Some(due) = self.due.get(self.cursor).copied() {
            let index = usize::from(due.subscription);
            let subscription = &mut self.subscriptions[index];
            let (frame, mut next_segment) = match subscription.stage {
                Stage::Sending => {
                    let place = self.sending.iter().position(|sending| sending.subscription == due.subscription);
                    let begun = self.sending.swap_remove(place.expect("a frame that was begun is kept"));
                    subscription.stage = Stage::Open;
                    (begun.frame, begun.next_segment)
                }
                _ => {
                    let frame = Arc::clone(outgoing.frame(due.request));
                    subscription.begin_frame(frame.tick);
                    (frame, 0)
                }
            };
            while let Some(segment) = frame.segments.get(next_segment as usize) {
                let before = out.len;
                let name = name_of(subscription, outgoing, &mut self.name);
                let (number, opened) = (due.subscription, subscription.opened);
                if !out.put_segment(number, &frame, next_segment, name, opened, outgoing.now) {
                    subscription.stage = Stage::Sending;
                    self.sending.push(Sending { subscription: number, next_segment, frame });
                    return true;
                }
                self.counters.segments += 1;
                self.counters.object_updates += u64::from(segment.updates);
                self.counters.object_bytes += (out.len - before) as u64;
                self.records.push(Piece {
                    frame: Some(Arc::clone(&frame)),
                    opened,
                    segment: next_segment,
                    subscription: number,
                    parity: subscription.flight.depart(),
                    named: !subscription.flight.announced,
                });
                next_segment += 1;
            }
            let phase = outgoing.channels[subscription.channel as usize].turns.phase;
            subscription.end_frame(frame.tick);
            self.due_at[index] = subscription.next_turn(outgoing.now, phase);
            self.cursor += 1;
        }
        false
    }

    pub(crate) fn delivered(&mut self, sequence: u64) {
        let (subscriptions, free) = (&mut self.subscriptions, &mut self.free);
        fetch(subscriptions, self.records.pieces_of(sequence).map(|piece| piece.subscription));
        self.records.settle(sequence, |piece| {
            let subscription = &mut subscriptions[usize::from(piece.subscription)];
            if piece.frame.is_none() {
                if subscription.stage == Stage::Closing && subscription.opened == piece.opened {
                    subscription.stage = Stage::Free;
                    free.push(piece.subscription);
                }
            } else if subscription.is_incarnation(piece.opened) {
                subscription.flight.announced |= piece.named;
                subscription.flight.settle(piece.parity);
            }
        });
    }

    pub(crate) fn lost(&mut self, sequence: u64, mut is_superseded: impl FnMut(u32, &Frame, usize) -> bool) {
        let (subscriptions, closes, resends) = (&mut self.subscriptions, &mut self.closes, &mut self.resends);
        let counters = &mut self.counters;
        self.records.settle(sequence, |piece| {
            let subscription = &mut subscriptions[usize::from(piece.subscription)];
            let Some(frame) = &piece.frame else {
                if subscription.stage == Stage::Closing && subscription.opened == piece.opened {
                    closes.push_back(piece.subscription);
                }
                return;
            };
            if !subscription.is_incarnation(piece.opened) {
                return;
            }
            let segment = &frame.segments[piece.segment as usize];
            if !segment.is_superseded() {
                if !is_superseded(subscription.channel, frame, piece.segment as usize) {
                    resends.push_back(piece);
                    return;
                }
                segment.mark_superseded();
            }
            subscription.flight.settle(piece.parity);
            counters.superseded_segments += 1;
        });
    }
}

/// Reads a byte of each of these subscriptions, so that the processor fetches them all at once instead of waiting for
/// memory at each in turn when it is worked on: with a thousand connections, none of them is in a near cache.
fn fetch(subscriptions: &[Subscription], numbers: impl Iterator<Item = u16>) {
    let sum = numbers.fold(0u8, |sum, number| sum.wrapping_add(subscriptions[usize::from(number)].weight));
    std::hint::black_box(sum);
}

/// What the turn of a subscription brings.
enum Next {
    /// This request's frame, or [`CONTINUE`].
    Frame(u32),
    /// Something old must be delivered first.
    HeldBack,
    /// The channel has not changed.
    Nothing,
}

fn next_frame<S: ChannelState>(subscription: &mut Subscription, planner: &mut Planner<'_, S>) -> Next {
    if subscription.stage == Stage::Sending {
        return Next::Frame(CONTINUE);
    }
    let now = planner.now;
    let state = planner.state(subscription.channel);
    let is_fresh = subscription.stage == Stage::Fresh;
    let nothing_new = match is_fresh {
        true => state.is_empty(),
        false => !state.last_change().is_newer_than(subscription.since),
    };
    if nothing_new {
        subscription.since = now;
        return Next::Nothing;
    }
    if subscription.is_held_back(now, state.retention_ticks()) {
        return Next::HeldBack;
    }
    let too_old = is_fresh || state.horizon().is_newer_than(subscription.since);
    let since = if too_old { Since::Start } else { Since::Tick(subscription.since) };
    Next::Frame(planner.request(subscription.channel, since, Variant::default()))
}

/// The bytes that name the subscription's channel, empty once the client is known to have them.
fn name_of<'a, S: ChannelState>(
    subscription: &Subscription,
    outgoing: Outgoing<'_, S>,
    scratch: &'a mut Vec<u8>,
) -> &'a [u8] {
    scratch.clear();
    if !subscription.flight.announced {
        let mut w = BitWriter::new(scratch);
        outgoing.channels[subscription.channel as usize].key.name().encode(&mut w);
        w.finish();
    }
    scratch
}

/// A subscription number in three bytes and a zero length.
const CLOSE_MAX_BYTES: usize = 4;

/// Room that a packet must offer so that any piece fits: the longest segment with the longest head before it.
pub const PIECE_MAX_BYTES: usize = 3 + 5 + KEY_MAX_BYTES + 5 + 2 + ENTRY_MAX_BYTES + 32;

struct PieceWriter<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl PieceWriter<'_> {
    fn room(&self) -> usize {
        self.buffer.len() - self.len
    }

    fn put_segment(&mut self, number: u16, frame: &Frame, segment: u32, name: &[u8], opened: Tick, now: Tick) -> bool {
        let body = frame.segment_bytes(segment as usize);
        let age = now.since(frame.tick);
        let head = u64::from(number) << 2 | u64::from(!name.is_empty()) << 1 | u64::from(age > 0);
        let opened_ago = u64::from(now.since(opened));
        let mut needed = varint_len(head) + varint_len(body.len() as u64) + body.len();
        if age > 0 {
            needed += varint_len(u64::from(age));
        }
        if !name.is_empty() {
            needed += name.len() + varint_len(opened_ago);
        }
        if needed > self.room() {
            return false;
        }
        self.put_varint(head);
        if age > 0 {
            self.put_varint(u64::from(age));
        }
        if !name.is_empty() {
            self.put(name);
            self.put_varint(opened_ago);
        }
        self.put_varint(body.len() as u64);
        self.put(body);
        true
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.buffer[self.len] = value as u8 | 0x80;
            self.len += 1;
            value >>= 7;
        }
        self.buffer[self.len] = value as u8;
        self.len += 1;
    }
}

fn varint_len(value: u64) -> usize {
    ((64 - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

/// What each packet in flight carries, in order of sequence.
#[derive(Debug, Default)]
struct PacketRecords {
    packets: VecDeque<PacketRecord>,
    pieces: VecDeque<Option<Piece>>,
    /// Number of the first of `pieces`, counted from the connection's start.
    base: u64,
}

#[derive(Debug)]
struct PacketRecord {
    sequence: u64,
    first: u64,
    end: u64,
    settled: bool,
}

impl PacketRecords {
    fn end(&self) -> u64 {
        self.base + self.pieces.len() as u64
    }

    fn push(&mut self, piece: Piece) {
        self.pieces.push_back(Some(piece));
    }

    /// What packet `sequence` carried.
    fn pieces_of(&self, sequence: u64) -> impl Iterator<Item = &Piece> {
        let found = self.packets.binary_search_by_key(&sequence, |packet| packet.sequence);
        let packet = found.ok().map(|index| &self.packets[index]).filter(|packet| !packet.settled);
        let range =
            packet.map_or(0..0, |packet| (packet.first - self.base) as usize..(packet.end - self.base) as usize);
        self.pieces.range(range).flatten()
    }

    /// Hands out what packet `sequence` carried, once, and forgets it.
    fn settle(&mut self, sequence: u64, mut each: impl FnMut(Piece)) {
        let Ok(index) = self.packets.binary_search_by_key(&sequence, |packet| packet.sequence) else { return };
        let packet = &mut self.packets[index];
        if std::mem::replace(&mut packet.settled, true) {
            return;
        }
        for number in packet.first..packet.end {
            if let Some(piece) = self.pieces[(number - self.base) as usize].take() {
                each(piece);
            }
        }
        while self.packets.front().is_some_and(|packet| packet.settled) {
            let packet = self.packets.pop_front().expect("just looked at");
            while self.base < packet.end {
                self.pieces.pop_front();
                self.base += 1;
            }
        }
    }
}
