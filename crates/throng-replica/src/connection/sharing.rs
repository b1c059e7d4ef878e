//! The part of a connection in a shared view, and when it has none.
//!
//! In the regular case a connection is a view, plus its exceptions:
//!
//! ```text
//!             a set that others have too, most of it where the view stands
//! by itself ----------------------------------------------------------------> member -----.
//!           <----------------------------------------------------------------   ^         | another set
//!             a set that nobody else has; too little budget; too long           '---------' that others have
//!             without news from the client
//! ```
//!
//! A member's subscriptions are in [`Stage::Shared`], or exceptions with turns of their own (`standings.rs`). An exception becomes shared
//! when it stands where the view stands, and the client is known to have the channel's name.
//!
//! **Why that is safe.** Shared pieces come to a client that may not have received what was sent to it before. The same
//! can happen with its own frames, and the same rules help: a lost piece is sent again unless it has been overtaken; and
//! no piece is sent while something undelivered is older than the channel keeps slots free
//! ([`ChannelState::retention_ticks`]), counted for all shared pieces together. A channel that the client has been told
//! to close, without having acknowledged it, would be taken for its former use: until then there is no membership.

use std::sync::Arc;

use throng_wire::Tick;

use super::standings::NEVER;
use super::{Connection, Resend};
use crate::frame::Frame;
use crate::hub::{BESIDE_BYTES, ChannelState, Planner, Registry, Scene};
use crate::piece::{Piece, SharedRange};
use crate::reader::Regular;
use crate::shared_view::{SharedPieces, SharedView, SharedViews, ViewKey, number_of};
use crate::subscription::{Stage, Subscription};

/// A connection that could not afford its view is by itself for so many ticks.
const ALONE_TICKS: u32 = 16;

/// A connection asks again after so many ticks whether others have the same subscriptions.
const ASKS_AGAIN_TICKS: u32 = 4;

/// Cells of which a step into the next cell changes the ring, about.
const CHANGED_AT_ONCE: usize = 32;

/// A connection with more exceptions than this part of its subscriptions is by itself: they are written twice.
const EXCEPTIONS_PART: usize = 2;

/// The part of a connection in a shared view.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// The sum of [`number_of`] each open subscription that views may serve, and how many these are.
    sum: u128,
    count: usize,
    /// A subscription has ended since the last plan. Another one of the same channel makes the sum what it was, and the
    /// client would take shared pieces for those of the former one.
    pub(super) has_closed: bool,
    /// The key that [`SharedViews::register`] knows it by.
    registered: Option<ViewKey>,
    /// It is a member of this view.
    view: Option<u32>,
    /// It has been a member before.
    was_member: bool,
    /// The open subscriptions of a member that are not shared.
    pub(super) exceptions: Vec<u16>,
    /// Shared subscriptions that have got another interval since the last plan.
    changed: Vec<u16>,
    /// The view's pieces of this tick, as far as they are not written, from the piece with this number on.
    pub(super) pieces: Option<Arc<SharedPieces>>,
    pub(super) next_piece: u32,
    /// The tick in which the view was planned for it, and from which it has not taken the pieces yet.
    planned: Option<Tick>,
    alone_until: Tick,
    /// No shared pieces under way have an earlier deadline.
    deadline: Tick,
    /// No shared subscription has anything undelivered, from the time before it was shared, that becomes too old before.
    former_deadline: Tick,
    /// Something undelivered is too old for any more frames of channels that views serve.
    pub(super) is_overdue: bool,
    /// That of the channels which views may serve: see [`ChannelState::retention_ticks`].
    pub(super) retention_ticks: u32,
}

impl Sharing {
    /// See [`Connection::fetch`].
    pub(super) fn fetch(&self) -> u64 {
        let lengths = self.count ^ self.exceptions.len() ^ self.changed.len();
        lengths as u64 ^ u64::from(self.next_piece) ^ self.deadline.0 ^ self.alone_until.0
    }

    pub(super) fn add(&mut self, subscription: &Subscription) {
        if subscription.may_share() {
            self.sum = self.sum.wrapping_add(number_of(subscription.channel, subscription.interval_ticks));
            self.count += 1;
        }
    }

    pub(super) fn remove(&mut self, subscription: &Subscription) {
        if subscription.may_share() {
            self.sum = self.sum.wrapping_sub(number_of(subscription.channel, subscription.interval_ticks));
            self.count -= 1;
        }
    }

    /// A member has another subscription.
    pub(super) fn note_exception(&mut self, number: u16) {
        if self.view.is_some() && !self.exceptions.contains(&number) {
            self.exceptions.push(number);
        }
    }

    /// A shared subscription of a member has another interval.
    pub(super) fn note_changed(&mut self, number: u16) {
        if self.view.is_some() && !self.changed.contains(&number) {
            self.changed.push(number);
        }
    }

    pub(super) fn is_member(&self) -> bool {
        self.view.is_some()
    }

    /// Whether there are shared pieces to write. When a subscription has ended, the client must not be sent pieces of its channel
    /// behind its end, so nothing shared is written until the next plan, which takes up what is left.
    pub(super) fn has_more(&self) -> bool {
        self.pieces.is_some() && !self.has_closed
    }

    /// Not all shared pieces of the last plan are written.
    fn is_late(&self) -> bool {
        self.pieces.is_some()
    }

    /// Gives back the memory of exceptions that there were at once when the client joined.
    pub(super) fn give_back(&mut self) {
        if self.exceptions.capacity() > CHANGED_AT_ONCE && self.exceptions.len() < CHANGED_AT_ONCE {
            self.exceptions.shrink_to(CHANGED_AT_ONCE / 2);
        }
    }

    /// Bytes of memory beyond the struct's own, about. The view's pieces are the view's.
    pub(super) fn memory_bytes(&self) -> usize {
        (self.exceptions.capacity() + self.changed.capacity()) * size_of::<u16>()
    }

    /// The view was planned for it at `tick`.
    pub(super) fn take_up(&mut self, tick: Tick) {
        self.planned = Some(tick);
    }

    /// The view's pieces are taken and written.
    pub(super) fn is_written(&self) -> bool {
        self.pieces.is_none() && self.planned.is_none()
    }

    /// No shared pieces under way become too old before.
    pub(super) fn deadline(&self) -> Tick {
        self.deadline
    }

    /// The shared pieces that are not written yet.
    pub(super) fn bytes_left(&self) -> usize {
        self.pieces.as_ref().filter(|_| !self.has_closed).map_or(0, |pieces| pieces.bytes_from(self.next_piece))
    }
}

impl Connection {
    /// Becomes a member of the view of its set, or leaves that of its former set.
    pub(super) fn register_shared<S: ChannelState>(&mut self, was_short: bool, registry: &mut Registry<'_, S>) {
        let (key, now) = (self.view_key(), registry.now);
        let has_closed = std::mem::take(&mut self.sharing.has_closed);
        if self.sharing.registered != key {
            if let Some(key) = key {
                registry.views.register(key, now);
            }
            if !key.is_some_and(|key| self.move_membership(key, registry)) {
                self.leave_membership(registry);
            }
            if let Some(before) = std::mem::replace(&mut self.sharing.registered, key) {
                registry.views.deregister(before);
            }
        } else if has_closed {
            self.leave_membership(registry);
        } else {
            // They have the intervals again that the view knows.
            self.sharing.changed.clear();
        }
        let Some(key) = key.filter(|_| !self.sharing.is_member() && !was_short) else { return };
        let is_waiting = self.sharing.alone_until.is_newer_than(now);
        if registry.allowance_bytes > BESIDE_BYTES && !is_waiting && !self.is_overdue(registry.scene().0) {
            match registry.has_view(key) {
                true => self.begin_membership(key, registry),
                false => self.sharing.alone_until = now.after(ASKS_AGAIN_TICKS),
            }
        }
    }

    /// The set of its subscriptions that views may serve, if there are any.
    fn view_key(&self) -> Option<ViewKey> {
        let key = ViewKey { sum: self.sharing.sum, ticks: self.ticks };
        Some(key).filter(|_| self.sharing.count > 0)
    }

    /// Stays a member of its view if that is possible, and takes what the view is sent.
    pub(super) fn plan_shared<S: ChannelState>(&mut self, was_short: bool, planner: &mut Planner<'_, S>) {
        let (now, scene) = (planner.now, planner.scene());
        self.sharing.is_overdue = self.is_overdue(scene);
        let Some(view) = self.sharing.view else { return };
        let is_late = self.sharing.is_late();
        let is_short = was_short || is_late || !planner.can_afford(view);
        if is_short || self.sharing.is_overdue || planner.views.is_off || !self.has_sound_exceptions(scene) {
            self.end_membership(planner);
            self.sharing.alone_until = now.after(if is_short { ALONE_TICKS } else { 1 });
            return;
        }
        self.share_exceptions(planner.views.view(view), scene);
        planner.take_view(view);
        self.sharing.planned = Some(now);
    }

    /// The regular case, as this plan finds it: until when later plans need not look at this connection.
    pub(super) fn regular(&self) -> Regular {
        let sharing = &self.sharing;
        let is_settled = sharing.registered == self.view_key() && !sharing.has_closed;
        let asks_at = match (is_settled, sharing.view) {
            (false, _) => Tick(0),
            (true, None) => sharing.alone_until,
            (true, Some(_)) => Tick(u64::MAX),
        };
        let is_quiet = self.resends.is_empty() && !self.is_cut && !sharing.is_overdue && is_settled;
        let Some(view) = sharing.view.filter(|_| is_quiet && sharing.changed.is_empty()) else {
            return Regular::irregular(asks_at);
        };
        let mut until = sharing.deadline.min(sharing.former_deadline);
        for &number in &sharing.exceptions {
            let subscription = &self.subscriptions[usize::from(number)];
            if subscription.may_share() && subscription.is_open() {
                // It may become shared in any tick.
                return Regular::irregular(asks_at);
            }
            until = until.min(self.standings.due_at(subscription).before(1));
        }
        Regular::new(until, view, self.ticks)
    }

    /// A member that has other ticks than its view leaves at once: the view goes on without it.
    pub(super) fn leave_for_other_ticks<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) {
        if self.sharing.is_member() && self.sharing.registered.is_some_and(|key| key.ticks != self.ticks) {
            self.end_membership(planner);
        }
    }

    /// Takes the view's pieces that were planned for it, if it has not taken them: in the tick of the plan, and before the next plan
    /// takes them away from the view.
    pub(super) fn take_shared(&mut self, views: &SharedViews) {
        if let (Some(view), Some(tick)) = (self.sharing.view, self.sharing.planned.take()) {
            self.sharing.pieces = views.view(view).pieces_of(tick).cloned();
            self.sharing.next_piece = 0;
        }
    }

    /// Whether something undelivered is too old.
    fn is_overdue<S: ChannelState>(&mut self, scene: Scene<'_, S>) -> bool {
        let now = scene.now;
        if now.is_newer_than(self.sharing.former_deadline) && self.sharing.is_member() {
            let deadlines = self.subscriptions.iter().filter(|s| s.stage == Stage::Shared).filter_map(|s| {
                let basis = self.standings.of(s).flight.oldest_basis()?.until(now);
                Some(basis.after(scene.state(s.channel).retention_ticks()))
            });
            self.sharing.former_deadline = deadlines.min().unwrap_or(Tick(u64::MAX));
            if now.is_newer_than(self.sharing.former_deadline) {
                return true;
            }
        }
        if now.is_newer_than(self.sharing.deadline) {
            self.sharing.deadline = self.records.shared_deadline().unwrap_or(Tick(u64::MAX));
        }
        now.is_newer_than(self.sharing.deadline)
    }

    /// The client would take pieces of a channel for those of a subscription that it has not closed yet.
    fn could_mistake(&self, channels: &mut Vec<u32>) -> bool {
        let closing = self.subscriptions.iter().filter(|subscription| subscription.stage == Stage::Closing);
        channels.clear();
        channels.extend(closing.map(|subscription| subscription.channel));
        channels.sort_unstable();
        let mut open = self.subscriptions.iter().filter(|subscription| subscription.is_open());
        !channels.is_empty() && open.any(|open| channels.binary_search(&open.channel).is_ok())
    }

    /// A member becomes one of another view, if there is one for its new set. The channels that are in both, at one
    /// interval, stay shared: views with the same ticks stand at the same turn of each class. False if nothing has changed.
    fn move_membership<S: ChannelState>(&mut self, key: ViewKey, registry: &mut Registry<'_, S>) -> bool {
        let (Some(from), Some(before)) = (self.sharing.view, self.sharing.registered) else { return false };
        let is_late = self.sharing.is_late() || self.sharing.planned.is_some();
        let exceptions = self.sharing.exceptions.len() + self.sharing.changed.len();
        let has_few = exceptions * EXCEPTIONS_PART <= self.sharing.count;
        let can_move = before.ticks == key.ticks && !is_late && has_few && registry.has_view(key);
        if !can_move || self.could_mistake(&mut registry.views.closing) {
            return false;
        }
        let open = self.subscriptions.iter().filter(|subscription| subscription.is_open() && subscription.may_share());
        let Some(view) = registry.join_view(key, open) else { return false };
        let (scene, views) = registry.scene();
        if views.view(view).is_ahead_of(views.view(from), scene.now) {
            // The changes between the two would be missing.
            registry.leave_view(view);
            return false;
        }
        let changed = std::mem::take(&mut self.sharing.changed);
        for &number in &changed {
            if self.subscriptions[usize::from(number)].stage == Stage::Shared {
                self.stand_alone(usize::from(number), views.view(from), scene);
                self.sharing.exceptions.push(number);
            }
        }
        self.sharing.changed = changed;
        self.sharing.changed.clear();
        registry.leave_view(from);
        self.sharing.view = Some(view);
        true
    }

    /// A shared subscription is by itself from now on: it stands where the view stands.
    fn stand_alone<S: ChannelState>(&mut self, number: usize, seen: &SharedView, scene: Scene<'_, S>) {
        let (now, subscription) = (scene.now, &mut self.subscriptions[number]);
        subscription.stage = Stage::Open;
        let standing = self.standings.begin(number as u16, subscription);
        // It stands at its first frame, or later.
        standing.since = standing.since.newest(subscription.opened.until(now));
        if let Some(since) = seen.since_before(subscription, now) {
            standing.since = standing.since.newest(since);
        }
        let phase = scene.turns(subscription.channel).phase;
        let sooner = standing.since.after(u32::from(subscription.interval_ticks)).newest(now);
        let turn = subscription.next_turn(now.before(1), phase).min(sooner);
        // In other ticks than those of the view, the next one after its turn may be too late.
        let due_at = if seen.has_ticks(self.ticks) { self.ticks.from(turn) } else { self.ticks.until(turn) };
        self.standings.set_due_at(subscription, due_at);
    }

    /// Becomes a member, if most subscriptions stand where the view stands.
    fn begin_membership<S: ChannelState>(&mut self, key: ViewKey, registry: &mut Registry<'_, S>) {
        let could_mistake = self.could_mistake(&mut registry.views.closing);
        let open = self.subscriptions.iter().filter(|subscription| subscription.is_open() && subscription.may_share());
        let unready = open.clone().filter(|subscription| !is_ready(subscription)).count();
        if could_mistake || unready * EXCEPTIONS_PART > self.sharing.count {
            return;
        }
        let Some(view) = registry.join_view(key, open) else { return };
        let (scene, views) = registry.scene();
        self.sharing.view = Some(view);
        self.sharing.former_deadline = Tick(0);
        self.find_exceptions(views.view(view), scene);
        let shareable = |number: &&u16| self.subscriptions[usize::from(**number)].may_share();
        let exceptions = self.sharing.exceptions.iter().filter(shareable).count();
        if exceptions * EXCEPTIONS_PART > self.sharing.count || !self.has_sound_exceptions(scene) {
            self.leave_membership(registry);
            self.sharing.alone_until = registry.now.after(1);
        } else if !std::mem::replace(&mut self.sharing.was_member, true) {
            // Room for a step into the next cell, so that no tick has to make it.
            self.sharing.changed.reserve(CHANGED_AT_ONCE);
            if !self.saves_memory {
                self.sharing.exceptions.reserve_exact(2 * CHANGED_AT_ONCE);
            }
        }
    }

    /// Shares what stands where the view stands. All other open subscriptions are exceptions.
    fn find_exceptions<S: ChannelState>(&mut self, seen: &SharedView, scene: Scene<'_, S>) {
        let mut exceptions = std::mem::take(&mut self.sharing.exceptions);
        exceptions.clear();
        let numbers = 0..self.subscriptions.len() as u16;
        exceptions.extend(numbers.filter(|&number| self.stays_exception(number, seen, scene)));
        self.sharing.exceptions = exceptions;
    }

    /// Exceptions that stand where the view stands are exceptions no longer.
    fn share_exceptions<S: ChannelState>(&mut self, seen: &SharedView, scene: Scene<'_, S>) {
        let mut exceptions = std::mem::take(&mut self.sharing.exceptions);
        exceptions.retain(|&number| self.stays_exception(number, seen, scene));
        self.sharing.exceptions = exceptions;
    }

    /// Whether a subscription is open and stands elsewhere than the view, which serves it if not.
    fn stays_exception<S: ChannelState>(&mut self, number: u16, seen: &SharedView, scene: Scene<'_, S>) -> bool {
        let (subscription, now) = (&mut self.subscriptions[usize::from(number)], scene.now);
        if !subscription.is_open() || subscription.stage == Stage::Shared {
            return false;
        }
        if !is_ready(subscription) {
            return true;
        }
        if !subscription.may_share() {
            return true;
        }
        let Some(since) = seen.since_before(subscription, now) else { return true };
        let state = scene.state(subscription.channel);
        let standing = self.standings.of_mut(subscription);
        let is_behind = since.is_newer_than(standing.since) && state.last_change().is_newer_than(standing.since);
        let lacks = is_behind || standing.is_held_back(subscription.stage, now, state.retention_ticks());
        if !lacks {
            if !standing.since.is_newer_than(since) || standing.since.short() == subscription.opened {
                // The view knows it, or it is the first frame's: see `stand_alone`.
                standing.since = Tick(0);
            }
            if standing.flight.oldest_basis().is_some() {
                self.sharing.former_deadline = Tick(0);
            }
            let is_idle = standing.is_idle();
            subscription.stage = Stage::Shared;
            self.standings.set_due_at(subscription, NEVER);
            if is_idle {
                self.standings.end(subscription);
            }
        }
        lacks
    }

    /// Whether the client may be given shared pieces of channels in which it stands elsewhere: it must not be so far behind
    /// that a slot may mean something else to it.
    fn has_sound_exceptions<S: ChannelState>(&self, scene: Scene<'_, S>) -> bool {
        self.sharing.exceptions.iter().all(|&number| {
            let subscription = &self.subscriptions[usize::from(number)];
            let stands_by_itself =
                subscription.is_open() && !matches!(subscription.stage, Stage::Fresh | Stage::Shared);
            if !stands_by_itself || !subscription.may_share() {
                return true;
            }
            let (standing, retention_ticks) =
                (self.standings.of(subscription), scene.state(subscription.channel).retention_ticks());
            scene.now.since(standing.since) <= retention_ticks
                && !standing.is_held_back(subscription.stage, scene.now, retention_ticks)
        })
    }

    fn leave_membership<S: ChannelState>(&mut self, registry: &mut Registry<'_, S>) {
        let Some(view) = self.sharing.view.take() else { return };
        let (scene, views) = registry.scene();
        self.stand_alone_after(views.view(view), scene);
        registry.leave_view(view);
    }

    fn end_membership<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) {
        let Some(view) = self.sharing.view.take() else { return };
        self.stand_alone_after(planner.views.view(view), planner.scene());
        planner.leave_view(view);
    }

    /// Each subscription stands where the view stood, or before what the view said and was not written.
    fn stand_alone_after<S: ChannelState>(&mut self, seen: &SharedView, scene: Scene<'_, S>) {
        for number in 0..self.subscriptions.len() {
            if self.subscriptions[number].stage == Stage::Shared {
                self.stand_alone(number, seen, scene);
            }
        }
        let untaken = self.sharing.planned.take().and_then(|tick| seen.pieces_of(tick).cloned());
        if untaken.is_some() {
            (self.sharing.pieces, self.sharing.next_piece) = (untaken, 0);
        }
        if let Some(pieces) = self.sharing.pieces.take() {
            for piece in pieces.range(self.sharing.next_piece, pieces.count() as u32) {
                let Some(number) = self.number_of_open(piece.channel, pieces.tick, scene.now) else { continue };
                let subscription = &mut self.subscriptions[number];
                if subscription.stage == Stage::Open {
                    let standing = self.standings.of_mut(subscription);
                    standing.since = standing.since.min(piece.since.until(pieces.tick));
                    let due_at = self.standings.due_at(subscription).min(self.ticks.from(scene.now));
                    self.standings.set_due_at(subscription, due_at);
                }
            }
        }
        self.sharing.exceptions.clear();
        self.sharing.changed.clear();
    }

    /// The connection ends. Returns the channels of a view that has no members any more.
    pub(super) fn forget_views(&mut self, views: &mut SharedViews) -> Vec<u32> {
        if let Some(key) = self.sharing.registered.take() {
            views.deregister(key);
        }
        let mut channels = Vec::new();
        if let Some(view) = self.sharing.view.take() {
            views.leave(view, |channel| channels.push(channel));
        }
        channels
    }

    /// The subscription of a channel that was open at `tick` and still is. Without one, the channel's number may mean
    /// another channel by now.
    fn number_of_open(&self, channel: u32, tick: Tick, now: Tick) -> Option<usize> {
        let number = self.subscriptions.iter().position(|s| s.channel == channel && s.is_open())?;
        let subscription = &self.subscriptions[number];
        let was_open = subscription.stage != Stage::Fresh && !subscription.opened.until(now).is_newer_than(tick);
        was_open.then_some(number)
    }

    /// Copies shared pieces into a packet, as many as fit.
    pub(super) fn write_shared(&mut self, room: &mut [u8]) -> (usize, Option<SharedRange>) {
        let Some(pieces) = self.sharing.pieces.as_ref().filter(|_| !self.sharing.has_closed) else { return (0, None) };
        let first = self.sharing.next_piece;
        let (bytes, end) = pieces.copy(first, room);
        if bytes == 0 {
            return (0, None);
        }
        self.counters.segments += u64::from(end - first);
        self.counters.shared_segments += u64::from(end - first);
        self.counters.object_updates += u64::from(pieces.updates(first, end));
        self.counters.object_bytes += bytes as u64;
        self.sharing.deadline = self.sharing.deadline.min(pieces.deadline);
        self.sharing.next_piece = end;
        // The last packet takes over the reference: to count one more and one less is a walk to another core's cache.
        let is_all = end as usize == pieces.count();
        let pieces = if is_all { self.sharing.pieces.take() } else { self.sharing.pieces.clone() };
        (bytes, pieces.map(|pieces| SharedRange { first, end, pieces }))
    }

    /// Shared pieces are lost: those that have not been overtaken are sent again, to this connection alone.
    pub(super) fn lose_shared(
        &mut self,
        range: &SharedRange,
        now: Tick,
        is_superseded: &mut impl FnMut(u32, &Frame, usize) -> bool,
    ) {
        let tick = range.pieces.tick;
        for shared in range.pieces.range(range.first, range.end) {
            let segment = &shared.frame.segments[shared.segment as usize];
            if segment.is_superseded() {
                self.counters.superseded_segments += 1;
                continue;
            }
            // The state of the channel is asked for only while the number means the channel of the piece.
            let Some(number) = self.number_of_open(shared.channel, tick, now) else { continue };
            if is_superseded(shared.channel, &shared.frame, shared.segment as usize) {
                segment.mark_superseded();
                self.counters.superseded_segments += 1;
                continue;
            }
            let subscription = &mut self.subscriptions[number];
            let since = shared.since;
            let piece = Piece {
                frame: Some(Arc::clone(&shared.frame)),
                opened: subscription.opened,
                since,
                segment: shared.segment,
                subscription: number as u16,
                parity: self.standings.begin(number as u16, subscription).flight.rejoin(since),
                named: !subscription.is_announced(),
            };
            self.sharing.former_deadline = Tick(0);
            let waits_since = since.until(now);
            self.resends.push(Resend { subscription: number as u16, piece: Some(piece), waits_since });
        }
    }
}

/// Whether the client has the channel, and is not being sent a frame that began earlier.
fn is_ready(subscription: &Subscription) -> bool {
    matches!(subscription.stage, Stage::Open | Stage::Asleep | Stage::Shared) && subscription.is_announced()
}
