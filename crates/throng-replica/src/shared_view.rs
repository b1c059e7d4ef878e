//! Shared views: what several connections see alike is planned and put into pieces once for all of them.
//!
//! Connections with the same subscriptions, at the same intervals and in the same ticks, are *members* of a shared view.
//! The view has a turn for each of its channels, as a connection has. Its pieces are written one behind the other, once in
//! a tick, and each member copies them into its packets: as many into each as fit.
//!
//! ```text
//! view      | piece | piece | piece | piece | piece | piece |      written once
//!             \___________________/   \_________________/
//! member 1    own | these three | and these two, the next packet   copied
//! member 2    these four | and ...
//! ```
//!
//! Nothing in these pieces depends on the member. A channel is named by its offset from the view's middle cell, not by
//! the connection's own number of the subscription:
//!
//! ```text
//! [1]                            no piece begins with a 1: shared pieces follow
//! [grid << 2 | plane : varint]   the two axes of offsets: 0 x and y, 1 x and z, 2 y and z
//! [x][y][z]                      the middle, a cell of this grid, as `key.rs` writes its numbers
//! pieces, each
//!   [offset : 8]                 1 to 225: 1 + (a + 7) + 15 * (b + 7), the cell that is a and b cells from the middle
//!                                226: a name follows
//!   [name]                       if the offset is 226
//!   [length : varint][body]      a segment of this packet's tick
//! [0]                            the shared pieces end; or the packet does
//! ```
//!
//! A client that does not know the channel ignores such a piece.
//!
//! **A frame may be given to every subscription that stands at or after the frame's beginning.** So a member need not
//! know where it stands in each channel: it stands where the view stands, or later. A subscription that does not, because
//! it is new or its interval has changed, is an *exception*: it has its own turns, until one of them has brought it to
//! where the view stands. The rules for each connection are in `sharing.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use throng_wire::{BitWriter, ShortTick, Tick};

use crate::frame::{Frame, Since, Variant};
use crate::hub::{ChannelState, Part, Registry, Request, Scene};
use crate::key::{ChannelKey, ChannelName, encode_cell};
use crate::lattice;
use crate::send_ticks::SendTicks;
use crate::subscription::Subscription;

/// The byte that shared pieces begin with.
pub(crate) const SHARED: u8 = 1;

/// The byte that ends them.
pub(crate) const SHARED_END: u8 = 0;

/// Cells up to so far from the middle have an offset of one byte.
const NEAR_CELLS: i32 = 7;

/// Offsets along one axis.
const NEAR_SIDE: i32 = 2 * NEAR_CELLS + 1;

/// Instead of an offset: a name follows.
const NAMED: u8 = (NEAR_SIDE * NEAR_SIDE + 1) as u8;

/// The axes of offsets.
const PLANES: [[usize; 2]; 3] = [[0, 1], [0, 2], [1, 2]];

/// Views without members that keep their memory, and more spare pieces than there are views.
const SPARE_VIEWS: usize = 64;

/// Pieces whose memory is not used for so many plans are given back, half of them at a time, but for as many as
/// [`SPARE_VIEWS`].
const UNUSED_PLANS: u32 = 64;

/// A group of connections that has lasted for so many ticks gets a view: others look alike by chance, and part soon.
const LASTING_TICKS: u32 = 8;

/// No view.
const NO_VIEW: u32 = u32::MAX;

/// The things that the members of a view have in common: the sum of the numbers of their subscriptions, and their ticks. Two
/// different sets have the same sum by chance only, once in 2^128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ViewKey {
    pub(crate) sum: u128,
    pub(crate) ticks: SendTicks,
}

/// Where a view with these ticks stands after `newest` in a channel whose every turn it has had, and when it is due again.
/// Turns after the last tick of its own have not been served, although they may lie before `newest`.
fn stand(ticks: SendTicks, newest: Tick, interval_ticks: u16, phase: u32) -> (Tick, Tick) {
    let own = ticks.until(newest);
    let since = ticks.from(lattice::last_turn(own, interval_ticks, phase));
    (since, ticks.from(lattice::next_turn(own, interval_ticks, phase)))
}

/// The number of a subscription in [`ViewKey::sum`].
pub(crate) fn number_of(channel: u32, interval_ticks: u16) -> u128 {
    let word = u64::from(channel) << 16 | u64::from(interval_ticks);
    u128::from(mixed(word)) << 64 | u128::from(mixed(word ^ 0x9E37_79B9_7F4A_7C15))
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

/// All shared views of a hub.
#[derive(Debug, Default)]
pub struct SharedViews {
    groups: FxHashMap<ViewKey, Group>,
    views: Vec<SharedView>,
    free: Vec<u32>,
    /// Pieces whose memory is used again.
    spare: Vec<Arc<SharedPieces>>,
    /// The fewest of them that there were in the last plans, and how many plans these were.
    least_spare: (usize, u32),
    /// Pieces that packet records may still need.
    lent: VecDeque<Arc<SharedPieces>>,
    /// The views that have pieces: those of the last plan.
    planned: Vec<u32>,
    /// Scratch: channels of subscriptions that a client has not closed yet.
    pub(crate) closing: Vec<u32>,
    /// No connection may be a member.
    pub(crate) is_off: bool,
}

/// The connections with one key.
#[derive(Clone, Copy, Debug)]
struct Group {
    connections: u32,
    /// When the first of them came.
    since: Tick,
    /// Their view, if some of them are members of one.
    view: u32,
}

#[derive(Debug, Default)]
pub(crate) struct SharedView {
    key: Option<ViewKey>,
    members: u32,
    ticks: SendTicks,
    /// In order of [`Seen::place`]: the most frequent ones first.
    channels: Vec<Seen>,
    /// The offsets, or names, of all channels as they are written.
    codes: Vec<u8>,
    /// The bytes before the pieces.
    head: Vec<u8>,
    planned: Option<Tick>,
    /// Some member takes its pieces of this tick.
    wanted: Option<Tick>,
    /// The pieces of the last plan are written.
    is_written: bool,
    /// The frames of this tick.
    due: Vec<(u16, u32)>,
    /// Those of the last plan. The next plan takes them away: a member that has not taken them by then does so first.
    pieces: Option<Arc<SharedPieces>>,
    /// Bytes of a tick, of which few ticks have more.
    usual_bytes: usize,
}

/// A channel of a view. A view has some hundred of them, and few members.
#[derive(Clone, Copy, Debug)]
struct Seen {
    channel: u32,
    /// Where its code ends in [`SharedView::codes`].
    code_end: u32,
    /// Everything up to this tick has been written.
    since: ShortTick,
    /// `since` before the last plan.
    since_before: ShortTick,
    due_at: ShortTick,
    interval_ticks: u16,
}

const _: () = assert!(size_of::<Seen>() == 24);

impl Seen {
    /// Its place among the channels of a view.
    fn place(&self) -> u64 {
        place_of(self.channel, self.interval_ticks)
    }
}

fn place_of(channel: u32, interval_ticks: u16) -> u64 {
    u64::from(interval_ticks) << 32 | u64::from(channel)
}

/// The pieces of one view in one tick.
#[derive(Debug, Default)]
pub(crate) struct SharedPieces {
    pub(crate) tick: Tick,
    head: Vec<u8>,
    bytes: Vec<u8>,
    pieces: Vec<SharedPiece>,
    /// Members that do not know the fate of these pieces after this tick get no more of them: see
    /// [`ChannelState::retention_ticks`].
    pub(crate) deadline: Tick,
}

/// One segment.
#[derive(Debug)]
pub(crate) struct SharedPiece {
    /// Where it ends in [`SharedPieces::bytes`].
    end: u32,
    pub(crate) channel: u32,
    pub(crate) segment: u32,
    /// Where the view stood before.
    pub(crate) since: ShortTick,
    /// Object updates in this piece and those before it.
    updates: u32,
    pub(crate) frame: Arc<Frame>,
}

impl SharedPieces {
    /// The number of pieces.
    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of the pieces from `first` on.
    pub(crate) fn bytes_from(&self, first: u32) -> usize {
        self.bytes.len() - self.start(first as usize)
    }

    /// The pieces from `first` up to `end`.
    pub(crate) fn range(&self, first: u32, end: u32) -> &[SharedPiece] {
        &self.pieces[first as usize..end as usize]
    }

    /// Object updates in the pieces from `first` up to `end`.
    pub(crate) fn updates(&self, first: u32, end: u32) -> u32 {
        let until = |piece: u32| piece.checked_sub(1).map_or(0, |last| self.pieces[last as usize].updates);
        until(end) - until(first)
    }

    /// Copies the pieces from `first` on that fit, with the head before them and the end behind them. Returns the bytes
    /// and one past the last piece; 0 bytes if not one fits.
    pub(crate) fn copy(&self, first: u32, room: &mut [u8]) -> (usize, u32) {
        let start = self.start(first as usize);
        let Some(body_room) = room.len().checked_sub(self.head.len() + 1) else { return (0, first) };
        let count = self.pieces[first as usize..].partition_point(|piece| piece.end as usize - start <= body_room);
        if count == 0 {
            return (0, first);
        }
        let end = first as usize + count;
        let body = &self.bytes[start..self.start(end)];
        let (head, rest) = room.split_at_mut(self.head.len());
        head.copy_from_slice(&self.head);
        rest[..body.len()].copy_from_slice(body);
        rest[body.len()] = SHARED_END;
        (head.len() + body.len() + 1, end as u32)
    }

    fn start(&self, piece: usize) -> usize {
        piece.checked_sub(1).map_or(0, |last| self.pieces[last].end as usize)
    }

    fn clear(&mut self) {
        self.head.clear();
        self.bytes.clear();
        self.pieces.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.pieces.capacity() * size_of::<SharedPiece>()
    }
}

impl SharedViews {
    pub(crate) fn view(&self, view: u32) -> &SharedView {
        &self.views[view as usize]
    }

    /// Views that have members.
    pub(crate) fn count(&self) -> usize {
        self.views.len() - self.free.len()
    }

    /// Bytes of memory, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let waiting = self.spare.iter().chain(&self.lent).map(|pieces| pieces.memory_bytes());
        self.views.iter().map(SharedView::memory_bytes).sum::<usize>() + waiting.sum::<usize>()
    }

    /// One more connection has this key.
    pub(crate) fn register(&mut self, key: ViewKey, now: Tick) {
        self.groups.entry(key).or_insert(Group { connections: 0, since: now, view: NO_VIEW }).connections += 1;
    }

    pub(crate) fn deregister(&mut self, key: ViewKey) {
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.connections -= 1;
        if group.connections == 0 {
            self.groups.remove(&key);
        }
    }

    /// The number of a view's bytes in a tick, of which few ticks have more.
    pub(crate) fn usual_bytes(&self, view: u32) -> usize {
        self.views[view as usize].usual_bytes
    }

    /// A member of a view less. If it was the last, `each` is given the channels of the view, which ends.
    pub(crate) fn leave(&mut self, number: u32, each: impl FnMut(u32)) {
        let view = &mut self.views[number as usize];
        view.members -= 1;
        if view.members == 0 {
            if let Some(group) = view.key.take().and_then(|key| self.groups.get_mut(&key)) {
                group.view = NO_VIEW;
            }
            view.channels.iter().map(|seen| seen.channel).for_each(each);
            view.end();
            let pieces = view.pieces.take();
            if self.free.len() >= SPARE_VIEWS {
                *view = SharedView::default();
            }
            self.free.push(number);
            self.put_back(pieces);
        }
    }

    /// Empty pieces without other holders.
    fn take_pieces(&mut self) -> Arc<SharedPieces> {
        self.spare.pop().unwrap_or_default()
    }

    fn put_back(&mut self, pieces: Option<Arc<SharedPieces>>) {
        let Some(mut pieces) = pieces else { return };
        match Arc::get_mut(&mut pieces) {
            Some(unused) => {
                unused.clear();
                if self.spare.len() < self.views.len() + SPARE_VIEWS {
                    self.spare.push(pieces);
                }
            }
            None => self.lent.push_back(pieces),
        }
    }

    /// Takes back pieces that nobody holds any more, so that their frames can be used again.
    pub(crate) fn reclaim(&mut self) {
        for _ in 0..self.lent.len().min(2 * self.views.len() + SPARE_VIEWS) {
            let oldest = self.lent.pop_front();
            self.put_back(oldest);
        }
        let (least, plans) = &mut self.least_spare;
        (*least, *plans) = (self.spare.len().min(*least), *plans + 1);
        if *plans > UNUSED_PLANS {
            let surplus = least.saturating_sub(SPARE_VIEWS);
            self.spare.truncate(self.spare.len() - surplus.min(self.spare.len()).div_ceil(2));
            self.least_spare = (usize::MAX, 0);
        }
    }

    /// Takes the pieces of the last plan away from their views. A member that has yet to write them holds them by now.
    pub(crate) fn release(&mut self) {
        let mut planned = std::mem::take(&mut self.planned);
        for number in planned.drain(..) {
            let pieces = self.views[number as usize].pieces.take();
            self.put_back(pieces);
        }
        self.planned = planned;
    }

    /// Some member takes the view's pieces of `now`, so they are to be planned: there is room for them.
    pub(crate) fn begin_plan(&mut self, number: u32, now: Tick) {
        if self.views[number as usize].wanted.replace(now) == Some(now) {
            return;
        }
        self.planned.push(number);
        let pieces = self.take_pieces();
        self.views[number as usize].pieces = Some(pieces);
    }

    /// The frames that a member of the view is given in this tick.
    pub(crate) fn due_count(&self, number: u32) -> u64 {
        self.views[number as usize].due.len() as u64
    }

    /// All views, also those that were not planned in this tick.
    pub(crate) fn all_mut(&mut self) -> &mut [SharedView] {
        &mut self.views
    }

    /// The view for connections with this key, if there is one or should be.
    fn find(&self, key: ViewKey, now: Tick) -> Option<Found> {
        let group = self.groups.get(&key).filter(|_| !self.is_off)?;
        let is_worth_it = group.connections > 1 && now.since(group.since) >= LASTING_TICKS;
        match group.view {
            NO_VIEW if !is_worth_it => None,
            NO_VIEW => Some(Found::ToMake),
            view => Some(Found::Made(view)),
        }
    }
}

enum Found {
    Made(u32),
    ToMake,
}

impl SharedView {
    /// Whether its members have these ticks.
    pub(crate) fn has_ticks(&self, ticks: SendTicks) -> bool {
        self.ticks == ticks
    }

    /// Where the view stood in the channel of a subscription before the plan of `now`, or stands if there was none.
    pub(crate) fn since_before(&self, subscription: &Subscription, now: Tick) -> Option<Tick> {
        let place = place_of(subscription.channel, subscription.interval_ticks);
        match self.channels.binary_search_by_key(&place, Seen::place) {
            Ok(found) => Some(self.stood(&self.channels[found], now)),
            // Its interval may just have changed.
            Err(_) => self.since_before_at_any_interval(subscription.channel, now),
        }
    }

    fn since_before_at_any_interval(&self, channel: u32, now: Tick) -> Option<Tick> {
        let mut rest = &self.channels[..];
        while let Some(first) = rest.first() {
            let end = rest.partition_point(|seen| seen.interval_ticks == first.interval_ticks);
            let (class, after) = rest.split_at(end);
            if let Ok(found) = class.binary_search_by_key(&channel, |seen| seen.channel) {
                return Some(self.stood(&class[found], now));
            }
            rest = after;
        }
        None
    }

    fn stood(&self, seen: &Seen, now: Tick) -> Tick {
        let since = if self.planned == Some(now) || !self.is_written { seen.since_before } else { seen.since };
        since.until(now)
    }

    /// The pieces of a tick, if it is that of the last plan.
    pub(crate) fn pieces_of(&self, tick: Tick) -> Option<&Arc<SharedPieces>> {
        self.pieces.as_ref().filter(|pieces| pieces.tick == tick && pieces.count() > 0)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<SharedView>()
            + self.channels.capacity() * size_of::<Seen>()
            + self.due.capacity() * size_of::<(u16, u32)>()
            + self.codes.capacity()
            + self.head.capacity()
            + self.pieces.as_ref().map_or(0, |pieces| pieces.memory_bytes())
    }

    /// Whether it stands after another view in a channel that both have with the same interval.
    pub(crate) fn is_ahead_of(&self, other: &SharedView, now: Tick) -> bool {
        let mut theirs = other.channels.iter().peekable();
        self.channels.iter().any(|seen| {
            while theirs.next_if(|their| their.place() < seen.place()).is_some() {}
            let their = theirs.next_if(|their| their.place() == seen.place());
            their.is_some_and(|their| self.stood(seen, now).is_newer_than(other.stood(their, now)))
        })
    }

    /// Forgets everything but its memory.
    fn end(&mut self) {
        self.channels.clear();
        self.codes.clear();
        self.due.clear();
        (self.planned, self.wanted, self.is_written) = (None, None, true);
        self.usual_bytes = 0;
    }

    /// Makes the view of these subscriptions, which stands where a subscription stands that has had all its turns.
    fn begin<S: ChannelState>(
        &mut self,
        key: ViewKey,
        subscriptions: impl Iterator<Item = (u32, u16)>,
        scene: Scene<'_, S>,
    ) {
        let newest = scene.now.before(1);
        (self.key, self.ticks, self.is_written) = (Some(key), key.ticks, true);
        self.channels.extend(subscriptions.map(|(channel, interval_ticks)| {
            let phase = scene.turns(channel).phase;
            let (since, due_at) = stand(self.ticks, newest, interval_ticks, phase);
            let (since, due_at) = (since.short(), due_at.short());
            Seen { channel, interval_ticks, code_end: 0, since, since_before: since, due_at }
        }));
        self.channels.shrink_to(self.channels.len() + self.channels.len() / 8);
        self.channels.sort_unstable_by_key(Seen::place);
        self.name_channels(scene);
    }

    /// Writes the head and the codes of all channels.
    fn name_channels<S: ChannelState>(&mut self, scene: Scene<'_, S>) {
        let middle = Middle::of(self.channels.iter().map(|seen| scene.key(seen.channel).name()));
        self.head.clear();
        self.head.push(SHARED);
        put_varint(&mut self.head, usize::from(middle.grid) << 2 | usize::from(middle.plane));
        write_with(&mut self.head, |w| encode_cell(middle.cell, w));
        for seen in &mut self.channels {
            let name = scene.key(seen.channel).name();
            match middle.offset_of(name) {
                Some(offset) => self.codes.push(offset),
                None => {
                    self.codes.push(NAMED);
                    put_name(&mut self.codes, name);
                }
            }
            seen.code_end = self.codes.len() as u32;
        }
    }

    /// Asks for the frames of the channels that have their turn, if some member takes them.
    pub(crate) fn plan<S: ChannelState>(&mut self, scene: Scene<'_, S>, part: &mut Part) {
        let now = scene.now;
        if self.wanted != Some(now) {
            return;
        }
        self.due.clear();
        let mut deadline = Tick(u64::MAX);
        let was_written = self.is_written || self.planned.is_none();
        for (number, seen) in self.channels.iter_mut().enumerate() {
            if !was_written {
                (seen.since, seen.due_at) = (seen.since_before, now.short());
            }
            seen.since_before = seen.since;
            if seen.due_at.near(now).is_newer_than(now) {
                continue;
            }
            let state = scene.state(seen.channel);
            let stands_at = seen.since.until(now);
            if state.last_change().is_newer_than(stands_at) {
                deadline = deadline.min(stands_at.after(state.retention_ticks()));
                let (since, variant) = match state.horizon().is_newer_than(stands_at) {
                    false => (Since::Tick(stands_at), Variant::default()),
                    true => state.catch_up(stands_at),
                };
                self.due.push((number as u16, part.request_for_view(seen.channel, since, variant)));
            }
            seen.since = now.short();
            let phase = scene.turns(seen.channel).phase;
            seen.due_at = self.ticks.from(lattice::next_turn(now, seen.interval_ticks, phase)).short();
        }
        (self.planned, self.is_written) = (Some(now), false);
        if let Some(pieces) = self.pieces.as_mut().and_then(Arc::get_mut) {
            (pieces.tick, pieces.deadline) = (now, deadline);
        }
    }

    /// Writes the pieces of this tick.
    pub(crate) fn write(&mut self, (requests, numbers): (&[Request], &[u32]), now: Tick) {
        if self.planned != Some(now) || self.is_written {
            return;
        }
        let pieces = self.pieces.as_mut().and_then(Arc::get_mut);
        let pieces = pieces.expect("the pieces of this tick have no other holder yet");
        self.is_written = true;
        let frame_of = |request: u32| &requests[numbers[request as usize] as usize].frame;
        let needed = self.due.iter().map(|&(_, request)| frame_of(request));
        let (bytes, count) = needed.fold((0, 0), |(bytes, count), frame| {
            (bytes + frame.bytes.len() + SHARED_HEAD_BYTES * frame.segments.len(), count + frame.segments.len())
        });
        make_room_for(&mut pieces.bytes, bytes, ROOM_STEPS.0);
        make_room_for(&mut pieces.pieces, count, ROOM_STEPS.1);
        pieces.head.extend(&self.head);
        let mut updates = 0;
        for &(number, request) in &self.due {
            let frame = frame_of(request);
            let seen = &self.channels[usize::from(number)];
            let code_start = number.checked_sub(1).map_or(0, |last| self.channels[usize::from(last)].code_end);
            for (place, segment) in frame.segments.iter().enumerate() {
                let body = frame.segment_bytes(place);
                pieces.bytes.extend(&self.codes[code_start as usize..seen.code_end as usize]);
                put_varint(&mut pieces.bytes, body.len());
                pieces.bytes.extend(body);
                updates += segment.updates;
                pieces.pieces.push(SharedPiece {
                    end: pieces.bytes.len() as u32,
                    channel: seen.channel,
                    segment: place as u32,
                    since: seen.since_before,
                    updates,
                    frame: Arc::clone(frame),
                });
            }
        }
        let bytes = pieces.bytes.len();
        self.usual_bytes = bytes.max(self.usual_bytes - self.usual_bytes / 16);
    }
}

/// Room for bytes, and for pieces, is made in steps of so many.
const ROOM_STEPS: (usize, usize) = (512, 16);

/// The bytes before most pieces: an offset and a length.
const SHARED_HEAD_BYTES: usize = 3;

/// Makes room for so much and a little more. Doubled, it would be half empty in most views.
fn make_room_for<T>(list: &mut Vec<T>, needed: usize, step: usize) {
    if list.capacity() < needed {
        list.reserve_exact((needed + needed / 4).next_multiple_of(step));
    }
}

impl<S: ChannelState> Registry<'_, S> {
    /// The view for a connection with this key and these subscriptions. It gets a member more.
    pub(crate) fn join_view<'s>(
        &mut self,
        key: ViewKey,
        subscriptions: impl Iterator<Item = &'s Subscription>,
    ) -> Option<u32> {
        let number = match self.views.find(key, self.now)? {
            Found::Made(number) => number,
            Found::ToMake => self.make_view(key, subscriptions),
        };
        self.views.views[number as usize].members += 1;
        Some(number)
    }

    fn make_view<'s>(&mut self, key: ViewKey, subscriptions: impl Iterator<Item = &'s Subscription>) -> u32 {
        let (scene, views) = self.views_mut();
        let number = views.free.pop().unwrap_or_else(|| {
            views.views.push(SharedView::default());
            views.views.len() as u32 - 1
        });
        let mut view = std::mem::take(&mut views.views[number as usize]);
        view.begin(key, subscriptions.map(|s| (s.channel, s.interval_ticks)), scene);
        for seen in &view.channels {
            // A channel of a view is not removed, so its number means the same as long as the view lives.
            self.count_subscriber(seen.channel);
        }
        self.views.views[number as usize] = view;
        if let Some(group) = self.views.groups.get_mut(&key) {
            group.view = number;
        }
        number
    }

    /// Whether connections with this key have a view, or should have one.
    pub(crate) fn has_view(&self, key: ViewKey) -> bool {
        self.views.find(key, self.now).is_some()
    }
}

/// The cell that the offsets of a view count from.
struct Middle {
    grid: u8,
    cell: [i32; 3],
    plane: u8,
}

impl Middle {
    /// The middle of all cells of one grid, in the plane in which they lie.
    fn of(names: impl Iterator<Item = ChannelName>) -> Middle {
        let mut first = None;
        let (mut least, mut most) = ([i32::MAX; 3], [i32::MIN; 3]);
        for name in names {
            if let ChannelName::Cell { grid, cell } = name
                && *first.get_or_insert(grid) == grid
            {
                for axis in 0..3 {
                    least[axis] = least[axis].min(cell[axis]);
                    most[axis] = most[axis].max(cell[axis]);
                }
            }
        }
        let Some(grid) = first else { return Middle { grid: 0, cell: [0; 3], plane: 0 } };
        let cell = std::array::from_fn(|axis| ((i64::from(least[axis]) + i64::from(most[axis])).div_euclid(2)) as i32);
        let flat = (0..3).rev().min_by_key(|&axis| i64::from(most[axis]) - i64::from(least[axis])).unwrap_or(2);
        Middle { grid, cell, plane: 2 - flat as u8 }
    }

    /// The offset of a channel, if it is a near cell in the plane.
    fn offset_of(&self, name: ChannelName) -> Option<u8> {
        let ChannelName::Cell { grid, cell } = name else { return None };
        let [a, b] = PLANES[usize::from(self.plane)];
        let flat = 2 - usize::from(self.plane);
        let away = |axis: usize| i64::from(cell[axis]) - i64::from(self.cell[axis]);
        let near = i64::from(NEAR_CELLS);
        let is_near = grid == self.grid && away(flat) == 0 && away(a).abs() <= near && away(b).abs() <= near;
        is_near.then(|| (1 + away(a) + near + i64::from(NEAR_SIDE) * (away(b) + near)) as u8)
    }
}

/// The middle of shared pieces as a client reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadMiddle {
    pub(crate) grid: u8,
    pub(crate) cell: [i32; 3],
    pub(crate) plane: u8,
}

impl ReadMiddle {
    /// The channel at an offset. `None` for what is no offset, and for cells that cannot exist.
    pub(crate) fn name_at(&self, offset: u8) -> Option<ChannelName> {
        let [a, b] = *PLANES.get(usize::from(self.plane))?;
        let offset = i32::from(offset).checked_sub(1).filter(|offset| (0..NEAR_SIDE * NEAR_SIDE).contains(offset))?;
        let mut cell = self.cell;
        cell[a] = cell[a].checked_add(offset % NEAR_SIDE - NEAR_CELLS)?;
        cell[b] = cell[b].checked_add(offset / NEAR_SIDE - NEAR_CELLS)?;
        Some(ChannelName::Cell { grid: self.grid, cell })
    }

    /// Whether a name follows instead of an offset.
    pub(crate) fn is_named(offset: u8) -> bool {
        offset == NAMED
    }
}

/// Whether a channel of this kind may be served by views: it has many readers as a rule.
pub(crate) fn may_share(key: ChannelKey) -> bool {
    matches!(key, ChannelKey::Global(_) | ChannelKey::Cell { .. } | ChannelKey::Custom(_))
}

fn put_name(out: &mut Vec<u8>, name: ChannelName) {
    write_with(out, |w| name.encode(w));
}

fn write_with(out: &mut Vec<u8>, write: impl FnOnce(&mut BitWriter<'_>)) {
    let mut w = BitWriter::new(out);
    write(&mut w);
    w.finish();
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_that_begins_stands_where_one_stands_that_has_been_there_all_the_time() {
        for (every, interval_ticks, phase) in
            (1..=4).flat_map(|every| (1..=9).map(move |interval| (every, interval))).flat_map(|(every, interval)| {
                [0, 1 << 29, 1 << 30, 3 << 30, u32::MAX].map(|phase| (every, interval, phase))
            })
        {
            let ticks = SendTicks::new(every, 1);
            let (mut since, mut due_at) = (Tick(0), Tick(0));
            for now in (100..200).map(Tick).filter(|&now| ticks.contains(now)) {
                // The first round brings it into step.
                if now.0 > 120 {
                    let begun = stand(ticks, now.before(1), interval_ticks, phase);
                    assert_eq!(
                        begun,
                        (since, due_at),
                        "{now:?}, every {every}, interval {interval_ticks}, phase {phase}"
                    );
                }
                if due_at <= now {
                    since = now;
                    due_at = ticks.from(lattice::next_turn(now, interval_ticks, phase));
                }
            }
        }
    }

    fn cell(x: i32, y: i32, z: i32) -> ChannelName {
        ChannelName::Cell { grid: 3, cell: [x, y, z] }
    }

    #[test]
    fn a_client_reads_the_offset_of_each_near_cell() {
        for flat in 0..3 {
            let names: Vec<ChannelName> = (-7..=7)
                .flat_map(|a| (-7..=7).map(move |b| (a, b)))
                .map(|(a, b)| {
                    let mut numbers = [a - 1_000, b + 500, 9];
                    numbers.rotate_right((flat + 1) % 3);
                    cell(numbers[0], numbers[1], numbers[2])
                })
                .collect();
            let middle = Middle::of(names.iter().copied());
            let read = ReadMiddle { grid: middle.grid, cell: middle.cell, plane: middle.plane };
            let mut offsets: Vec<u8> =
                names.iter().map(|&name| middle.offset_of(name).expect("a near cell in the plane")).collect();
            for (&offset, &name) in offsets.iter().zip(&names) {
                assert_eq!(read.name_at(offset), Some(name));
                assert!(offset != SHARED_END && !ReadMiddle::is_named(offset));
            }
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len(), names.len());
        }
    }

    #[test]
    fn what_is_not_near_has_no_offset() {
        let middle = Middle { grid: 3, cell: [0, 0, 0], plane: 0 };
        for name in [cell(8, 0, 0), cell(0, -8, 0), cell(0, 0, 1), ChannelName::Global(0), cell(i32::MIN, 0, 0)] {
            assert_eq!(middle.offset_of(name), None, "{name:?}");
        }
        let other = ChannelName::Cell { grid: 4, cell: [0; 3] };
        assert_eq!(middle.offset_of(other), None);
    }

    #[test]
    fn offsets_that_no_server_writes_are_no_cells() {
        let at = |cell, plane| ReadMiddle { grid: 0, cell, plane };
        assert_eq!(at([0; 3], 0).name_at(0), None);
        assert_eq!(at([0; 3], 0).name_at(NAMED), None);
        assert_eq!(at([0; 3], 0).name_at(255), None);
        assert_eq!(at([0; 3], 3).name_at(1), None);
        assert_eq!(at([i32::MIN; 3], 0).name_at(1), None);
        assert_eq!(at([i32::MAX; 3], 0).name_at(225), None);
    }

    #[test]
    fn the_sum_of_subscriptions_tells_sets_apart() {
        let sum = |set: &[(u32, u16)]| set.iter().fold(0u128, |sum, &(c, i)| sum.wrapping_add(number_of(c, i)));
        assert_eq!(sum(&[(1, 2), (3, 4)]), sum(&[(3, 4), (1, 2)]));
        assert_ne!(sum(&[(1, 2), (3, 4)]), sum(&[(1, 4), (3, 2)]));
        assert_ne!(sum(&[(1, 2)]), sum(&[(1, 2), (1, 2)]));
        assert_ne!(sum(&[(0, 1)]), 0);
    }
}
