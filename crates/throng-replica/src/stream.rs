//! Subscriptions of a connection whose path is ordered and loses nothing: TCP, or a reliable lane.
//!
//! Written data has arrived, or the connection is over. So nothing is remembered about what was sent: a subscription is
//! where it stands in its channel's log, and when its next turn is. A path that cannot take more now is
//! [paused](Stream::pause); its subscriptions stay where they are, and the frames after the pause hold the newest state
//! once, however long it took.
//!
//! A subscription whose frames may get lost on their way [keeps track](Stream::keep_track) of what has arrived: see
//! `track.rs`.
//!
//! No frame can help a subscription before the horizon of a channel that [has forgotten](ChannelState::has_forgotten)
//! removals: it is not served any more, and [returned](Stream::take_outdated) so that the caller can restart it.
//!
//! Turns lie on a lattice of the subscription's own: `anchor + n * interval`, moved up to the channel's grid. Turns that
//! were missed are skipped, not made up for.

mod track;

use std::ops::Range;
use std::sync::Arc;

use throng_wire::{ConnectionId, Tick};

use crate::connection::SubscriptionId;
use crate::frame::{Frame, Since, Variant};
use crate::hub::{ChannelIndex, ChannelState, Due, Hub, Outgoing, Planner, Turns};
use crate::limits::LimitReached;
use crate::reader::{Reader, Regular};
use track::Tracks;

/// The subscriptions of one connection.
#[derive(Debug)]
pub struct Stream {
    /// By number; number 0 is never used.
    entries: Vec<Entry>,
    /// When each has its next turn: apart from the rest, because it is scanned.
    due_at: Vec<Tick>,
    /// No turn comes before this tick.
    next_due: Tick,
    free: Vec<u16>,
    limit: usize,
    /// The due subscriptions, in the hub's list.
    due: Range<u32>,
    /// Numbers of subscriptions that are served no more.
    outdated: Vec<u16>,
    is_paused: bool,
    /// Every subscription has a turn at the next plan.
    is_hurried: bool,
    /// Of subscriptions whose frames may get lost; takes no memory if there are none.
    tracks: Tracks,
}

/// The data and the time of a subscription's next update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSubscription {
    /// Ticks between turns, at least 1.
    pub interval_ticks: u32,
    /// The turns are at this tick plus 1, 2, 3 ... intervals. May lie in the past.
    pub anchor: Tick,
    /// The content of the first turn.
    pub start: StreamStart,
    /// In which form frames are wanted.
    pub variant: Variant,
    /// The number under which the subscriber writes. It has no turns for changes that it alone has made.
    pub skips: Option<u32>,
}

/// The content of a subscription's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStart {
    /// Everything that the channel holds.
    Everything,
    /// Only later changes.
    Changes,
    /// Nothing, ever: the subscription only takes a number.
    Nothing,
}

/// 32 bytes, and 8 in `due_at`: connections with a thousand of them are common.
#[derive(Clone, Copy, Debug)]
struct Entry {
    channel: u32,
    /// The writer whose changes it knows.
    skips: u32,
    /// Everything up to this tick has been sent.
    since: Tick,
    anchor: Tick,
    interval_ticks: u32,
    variant: Variant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Free,
    /// Nothing was sent yet, and everything is wanted.
    Fresh,
    Open,
    /// The channel had nothing new at the last turn, and wakes the subscription when it has.
    Asleep,
    /// Never has a turn.
    Mute,
    /// Neither does this one: it missed a removal that is no longer remembered.
    Outdated,
}

/// The turn of a subscription that has none.
const NEVER: Tick = Tick(u64::MAX);

/// The longest interval.
const INTERVAL_MAX_TICKS: u32 = 1 << 29;

/// No writer has this number.
const NOBODY: u32 = u32::MAX;

const FREE: Entry = Entry {
    channel: 0,
    skips: NOBODY,
    since: Tick(0),
    anchor: Tick(0),
    interval_ticks: 1,
    variant: Variant(0),
    stage: Stage::Free,
};

impl Entry {
    fn is_open(&self) -> bool {
        self.stage != Stage::Free
    }

    /// The first turn after `now`: a point of the lattice, moved up to the channel's grid. A turn that comes a little
    /// late does not cost the next one: points count by where they are moved to.
    fn next_turn(&self, now: Tick, turns: Turns) -> Tick {
        let passed = on_grid(now, turns);
        let newest = self.anchor.newest(on_lattice(self, passed));
        Tick(newest.after(self.interval_ticks).0.next_multiple_of(turns.grid_ticks.into()))
    }
}

/// The newest point of the channel's grid that is not after `now`.
fn on_grid(now: Tick, turns: Turns) -> Tick {
    Tick(now.0 - now.0 % u64::from(turns.grid_ticks))
}

impl Reader for Stream {
    const SAYS_WHEN: bool = true;

    fn next_plan(&self) -> Option<Tick> {
        if self.is_paused || self.subscription_count() == 0 {
            return None;
        }
        // A reader without a turn is not visited before something about it changes.
        if self.is_hurried { Some(Tick(0)) } else { (self.next_due != NEVER).then_some(self.next_due) }
    }

    fn forget_due(&mut self) {
        self.due = 0..0;
    }

    fn new(limit: usize, _saves_memory: bool) -> Stream {
        Stream {
            entries: vec![FREE],
            due_at: vec![Tick(0)],
            next_due: Tick(0),
            free: Vec::new(),
            limit: limit.min(usize::from(u16::MAX) - 1),
            due: 0..0,
            outdated: Vec::new(),
            is_paused: false,
            is_hurried: false,
            tracks: Tracks::default(),
        }
    }

    fn open_channels(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().filter(|entry| entry.is_open()).map(|entry| entry.channel)
    }

    fn plan<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) -> Regular {
        self.due = 0..0;
        let now = planner.now;
        let is_hurried = std::mem::take(&mut self.is_hurried);
        if self.is_paused || self.entries.len() == 1 {
            return Regular::default();
        }
        if is_hurried {
            self.make_all_due(now);
        }
        if !self.next_due.is_newer_than(now) {
            self.next_due = NEVER;
            let begin = planner.part.dues().len() as u32;
            for number in 1..self.entries.len() {
                if !self.due_at[number].is_newer_than(now) {
                    self.turn(number, planner);
                }
                if self.next_due.is_newer_than(self.due_at[number]) {
                    self.next_due = self.due_at[number];
                }
            }
            self.due = begin..planner.part.dues().len() as u32;
        }
        Regular::default()
    }

    fn is_asleep(&self, number: u16, channel: u32) -> bool {
        let entry = self.entries.get(usize::from(number));
        entry.is_some_and(|entry| entry.stage == Stage::Asleep && entry.channel == channel)
    }

    fn wake(&mut self, number: u16, unchanged_at: Tick, changed_at: Tick, turns: Turns) {
        let entry = &mut self.entries[usize::from(number)];
        entry.stage = Stage::Open;
        entry.since = entry.since.newest(unchanged_at);
        let due_at = entry.next_turn(changed_at.before(1), turns);
        self.set_due(usize::from(number), due_at);
    }
}

impl Stream {
    /// Whether the last plan found something that was not drained yet.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Number of open subscriptions.
    pub fn subscription_count(&self) -> usize {
        self.entries.len() - 1 - self.free.len()
    }

    /// The first tick at which one of them has a turn, as far as is known at `now`: a subscription that waits for a change
    /// may get one earlier. `None` if there is none for long, or if the path is paused.
    pub fn next_turn(&self, now: Tick) -> Option<Tick> {
        let is_soon = self.next_due < now.after(INTERVAL_MAX_TICKS);
        (is_soon && !self.is_paused && self.subscription_count() > 0).then_some(self.next_due)
    }

    /// Ticks between the turns of a subscription, if it is open.
    pub fn interval_ticks(&self, id: SubscriptionId) -> Option<u32> {
        let entry = self.entries.get(usize::from(id.0)).filter(|entry| entry.is_open())?;
        Some(entry.interval_ticks)
    }

    /// Whether a change in some channel may give one of them a turn.
    pub fn waits_for_change(&self) -> bool {
        !self.is_paused && self.entries.iter().any(|entry| entry.stage == Stage::Asleep)
    }

    /// Stops or continues serving: a path that is busy gets no more. Takes effect at the next plan.
    pub fn pause(&mut self, is_paused: bool) {
        if self.is_paused && !is_paused {
            self.next_due = Tick(0);
        }
        self.is_paused = is_paused;
    }

    /// Bytes of the frames that are due.
    pub fn due_bytes<S: ChannelState>(&self, outgoing: Outgoing<'_, S>) -> usize {
        outgoing.dues(&self.due).iter().map(|due| outgoing.frame(due.request).bytes.len()).sum()
    }

    /// The channels of subscriptions that the last plans have found before the horizon and that are not served any
    /// more. The caller has to end and restart them, after it has made the subscriber discard its copy.
    pub fn take_outdated(&mut self) -> impl Iterator<Item = ChannelIndex> + '_ {
        let entries = &self.entries;
        let still = |&number: &u16| entries[usize::from(number)].stage == Stage::Outdated;
        self.outdated.drain(..).filter(still).map(|number| ChannelIndex(entries[usize::from(number)].channel))
    }

    /// Hands out each frame that is due, in order of subscription number, with the tick up to which the subscriber had
    /// been sent everything and by how many ticks its turn is late. Each counts as sent.
    ///
    /// To be called once after each plan: a frame that is not handed out is asked for again at the next.
    pub fn drain<S: ChannelState>(
        &mut self,
        outgoing: Outgoing<'_, S>,
        mut each: impl FnMut(ChannelIndex, &Arc<Frame>, (Since, u32)),
    ) {
        for due in outgoing.dues(&std::mem::take(&mut self.due)) {
            let number = usize::from(due.number);
            let entry = &mut self.entries[number];
            let since = match entry.stage {
                Stage::Free => continue,
                Stage::Fresh => Since::Start,
                _ => Since::Tick(self.tracks.base(number, entry.since)),
            };
            let frame = outgoing.frame(due.request);
            let turns = outgoing.channels[entry.channel as usize].turns;
            entry.stage = Stage::Open;
            self.tracks.sent(number, entry.since, frame.tick);
            entry.since = frame.tick;
            entry.anchor = entry.anchor.newest(on_lattice(entry, on_grid(outgoing.now, turns)));
            let due_at = entry.next_turn(outgoing.now, turns);
            let channel = ChannelIndex(entry.channel);
            let late_ticks = outgoing.now.since(self.due_at[number]);
            self.set_due(number, due_at);
            each(channel, frame, (since, late_ticks));
        }
    }

    fn channel(&self, id: SubscriptionId) -> Option<u32> {
        let entry = self.entries.get(usize::from(id.0)).filter(|entry| entry.is_open())?;
        Some(entry.channel)
    }

    /// The due update of one subscription.
    fn turn<S: ChannelState>(&mut self, number: usize, planner: &mut Planner<'_, S>) {
        let now = planner.now;
        let entry = &mut self.entries[number];
        if !matches!(entry.stage, Stage::Fresh | Stage::Open) {
            self.due_at[number] = NEVER;
            return;
        }
        let state = planner.state(entry.channel);
        let is_fresh = entry.stage == Stage::Fresh;
        let nothing_new = match is_fresh {
            true => state.is_empty(),
            false => !state.has_news_for(entry.skips, entry.since),
        };
        if nothing_new {
            entry.since = entry.since.newest(now);
            entry.stage = Stage::Asleep;
            self.due_at[number] = NEVER;
            planner.sleep(entry.channel, number as u16);
            return;
        }
        let base = self.tracks.base(number, entry.since);
        let is_outdated = state.horizon().is_newer_than(base);
        if !is_fresh && is_outdated && state.has_forgotten() {
            entry.stage = Stage::Outdated;
            self.due_at[number] = NEVER;
            self.outdated.push(number as u16);
            return;
        }
        let too_old = is_fresh || is_outdated;
        let since = if too_old { Since::Start } else { Since::Tick(base) };
        let request = planner.request(entry.channel, since, entry.variant);
        planner.part.push_due(Due { number: number as u16, request });
        // The turn is over when the frame is drained.
        self.next_due = now;
    }

    fn make_all_due(&mut self, now: Tick) {
        for (due_at, entry) in self.due_at.iter_mut().zip(&self.entries) {
            if matches!(entry.stage, Stage::Fresh | Stage::Open) && due_at.is_newer_than(now) {
                *due_at = now;
            }
        }
        self.next_due = now;
    }

    fn set_due(&mut self, number: usize, due_at: Tick) {
        self.due_at[number] = due_at;
        if self.next_due.is_newer_than(due_at) {
            self.next_due = due_at;
        }
    }

    fn open(
        &mut self,
        (channel, last_change): (u32, Tick),
        turns: Turns,
        wanted: StreamSubscription,
        now: Tick,
    ) -> Option<SubscriptionId> {
        let entry = Entry {
            channel,
            skips: wanted.skips.unwrap_or(NOBODY),
            // Changes merged since the last plan are not new to a reader that asks for changes only.
            since: now.newest(last_change),
            anchor: wanted.anchor,
            interval_ticks: wanted.interval_ticks.clamp(1, INTERVAL_MAX_TICKS),
            variant: wanted.variant,
            stage: match wanted.start {
                StreamStart::Everything => Stage::Fresh,
                StreamStart::Changes => Stage::Open,
                StreamStart::Nothing => Stage::Mute,
            },
        };
        let number = match self.free.pop() {
            Some(number) => usize::from(number),
            None if self.entries.len() <= self.limit => {
                self.entries.push(FREE);
                self.due_at.push(Tick(0));
                self.entries.len() - 1
            }
            None => return None,
        };
        self.entries[number] = entry;
        self.tracks.forget(number);
        // The first turn is one interval after the anchor, or the next to come if that is past.
        let first = wanted.anchor.after(entry.interval_ticks);
        let due_at = if first.is_newer_than(now) { entry.next_turn(first.before(1), turns) } else { now.after(1) };
        self.set_due(number, due_at);
        Some(SubscriptionId(number as u16))
    }

    fn change(&mut self, id: SubscriptionId, (interval_ticks, variant): (u32, Variant), turns: Turns, now: Tick) {
        let number = usize::from(id.0);
        let entry = &mut self.entries[number];
        let sooner = interval_ticks < entry.interval_ticks;
        entry.interval_ticks = interval_ticks.clamp(1, INTERVAL_MAX_TICKS);
        entry.variant = variant;
        if sooner && matches!(entry.stage, Stage::Open | Stage::Fresh) {
            // An object that has come near must not wait for the turn of a far one.
            let due_at = entry.next_turn(now, turns);
            if self.due_at[number].is_newer_than(due_at) {
                self.set_due(number, due_at);
            }
        }
    }

    fn close(&mut self, id: SubscriptionId) -> Option<u32> {
        let entry = self.entries.get_mut(usize::from(id.0)).filter(|entry| entry.is_open())?;
        entry.stage = Stage::Free;
        let channel = entry.channel;
        self.due_at[usize::from(id.0)] = NEVER;
        self.free.push(id.0);
        Some(channel)
    }
}

/// The newest point of the entry's lattice that is not after `now`; `now` if the lattice begins later.
fn on_lattice(entry: &Entry, now: Tick) -> Tick {
    let passed = now.0.saturating_sub(entry.anchor.0) % u64::from(entry.interval_ticks);
    Tick(now.0 - passed)
}

impl<S: ChannelState> Hub<S, Stream> {
    /// Subscribes a connection to a channel. Changes made before are not among those that
    /// [`StreamStart::Changes`] brings; so that later ones are, they have to be of a later tick than
    /// [`ChannelState::last_change`] is now.
    pub fn subscribe(
        &mut self,
        id: ConnectionId,
        channel: ChannelIndex,
        wanted: StreamSubscription,
    ) -> Result<SubscriptionId, LimitReached> {
        let (now, turns, limit) = (self.now(), self.turns(channel), self.limits().subscriptions_per_connection);
        let last_change = self.state(channel).last_change();
        let Some(stream) = self.connection_mut(id) else { return Err(LimitReached::UnknownConnection) };
        match stream.open((channel.0, last_change), turns, wanted, now) {
            Some(subscription) => {
                self.count_subscriber(channel.0, 1);
                Ok(subscription)
            }
            None => Err(self.refuse(LimitReached::Subscriptions(limit))),
        }
    }

    /// Changes how often a subscription is served, and in which form. The sent data stays as it is: a form that shows
    /// more than the former one does not show earlier changes.
    pub fn change(&mut self, id: ConnectionId, subscription: SubscriptionId, interval_ticks: u32, variant: Variant) {
        let now = self.now();
        let stream = self.connection(id);
        let Some(channel) = stream.and_then(|stream| stream.channel(subscription)) else { return };
        let turns = self.turns(ChannelIndex(channel));
        if let Some(stream) = self.connection_mut(id) {
            stream.change(subscription, (interval_ticks, variant), turns, now);
        }
    }

    /// From now on a subscription has no turns for what this writer alone has written: see [`StreamSubscription::skips`].
    pub fn skip(&mut self, id: ConnectionId, subscription: SubscriptionId, writer: Option<u32>) {
        let entry = self.connection_mut(id).and_then(|stream| stream.entries.get_mut(usize::from(subscription.0)));
        if let Some(entry) = entry.filter(|entry| entry.is_open()) {
            entry.skips = writer.unwrap_or(NOBODY);
        }
    }

    /// From its next turn on, the turns of a subscription are counted from `anchor`: before [`Hub::change`], if another end
    /// has changed it too and both are to count alike.
    pub fn count_turns_from(&mut self, id: ConnectionId, subscription: SubscriptionId, anchor: Tick) {
        let entry = self.connection_mut(id).and_then(|stream| stream.entries.get_mut(usize::from(subscription.0)));
        if let Some(entry) = entry.filter(|entry| entry.is_open()) {
            entry.anchor = anchor;
        }
    }

    /// Gives every subscription a turn at the next plan, so that every reader that is not paused is up to date then.
    /// For the last plan before the connections end.
    pub fn hurry(&mut self) {
        self.readers_mut().for_each(|stream| stream.is_hurried = true);
    }

    /// The first tick at which some subscription has a turn: until then nothing has to be planned, unless a channel in
    /// which a subscription waits for a change [has changed](Hub::is_disturbed). `None` if no subscription has a turn
    /// for long.
    pub fn next_turn(&self) -> Option<Tick> {
        self.next_plan()
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, id: ConnectionId, subscription: SubscriptionId) {
        let Some(stream) = self.connection_mut(id) else { return };
        if let Some(channel) = stream.close(subscription) {
            self.count_subscriber(channel, -1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Inline;
    use crate::key::ChannelKey;
    use crate::limits::HubLimits;

    /// A counter: a frame is the tick up to which its reader stood and the value now.
    #[derive(Default)]
    struct Counter {
        value: u8,
        changed: Tick,
        forgotten: Tick,
    }

    impl ChannelState for Counter {
        type Context = ();

        fn last_change(&self) -> Tick {
            self.changed
        }

        fn horizon(&self) -> Tick {
            self.forgotten
        }

        fn has_forgotten(&self) -> bool {
            self.forgotten != Tick(0)
        }

        fn retention_ticks(&self) -> u32 {
            u32::MAX
        }

        fn is_empty(&self) -> bool {
            self.value == 0
        }

        fn encode(&self, (): &(), _since: Since, _now: Tick, frame: &mut Frame) {
            frame.bytes.push(self.value);
            frame.push_segment(0, 0, 1);
        }

        fn is_superseded(&self, (): &(), _frame: &Frame, _segment: usize) -> bool {
            false
        }
    }

    struct Scene {
        hub: Hub<Counter, Stream>,
        channel: ChannelIndex,
        reader: ConnectionId,
    }

    fn scene(interval_ticks: u32, start: StreamStart) -> Scene {
        scene_at(Tick(0), interval_ticks, start)
    }

    fn scene_at(anchor: Tick, interval_ticks: u32, start: StreamStart) -> Scene {
        let mut hub: Hub<Counter, Stream> = Hub::new(HubLimits::default(), Tick(0));
        let channel = hub.channel_or_insert(ChannelKey::Custom(7), Counter::default).expect("there is room");
        let reader = hub.connect().expect("there is room");
        let wanted = StreamSubscription { interval_ticks, anchor, start, variant: Variant(0), skips: None };
        hub.subscribe(reader, channel, wanted).expect("there is room");
        Scene { hub, channel, reader }
    }

    impl Scene {
        fn write(&mut self, value: u8) {
            let changed = self.hub.now().after(1);
            *self.hub.state_mut(self.channel) = Counter { value, changed, forgotten: Tick(0) };
        }

        /// Plans at `now`; what came, with by how many ticks its turn was late.
        fn plan(&mut self, now: Tick) -> Vec<(u8, u32)> {
            self.hub.plan(now);
            self.hub.encode(&(), &Inline);
            let (outgoing, slots) = self.hub.writers();
            let mut stream = slots[self.reader.index as usize].writer().expect("it is connected");
            let mut got = Vec::new();
            stream.drain(outgoing, |_, frame, (_, late)| got.push((frame.bytes[0], late)));
            got
        }

        /// Goes to `now`, tick by tick; what came, with when.
        fn run_to(&mut self, now: u64) -> Vec<(u64, u8)> {
            let mut got = Vec::new();
            while self.hub.now().0 < now {
                let tick = self.hub.now().after(1);
                got.extend(self.plan(tick).into_iter().map(|(value, _)| (tick.0, value)));
            }
            got
        }
    }

    #[test]
    fn a_subscription_takes_32_bytes_and_8() {
        assert_eq!((size_of::<Entry>(), size_of::<Tick>()), (32, 8));
    }

    #[test]
    fn changes_come_at_the_turns_of_the_subscription() {
        let mut scene = scene(50, StreamStart::Everything);
        assert_eq!(scene.run_to(59), [], "an empty channel has nothing to say");
        scene.write(1);
        assert_eq!(scene.run_to(119), [(100, 1)]);
        scene.write(2);
        assert_eq!(scene.run_to(239), [(150, 2)]);
        scene.write(3);
        assert_eq!(scene.run_to(400), [(250, 3)]);
    }

    #[test]
    fn a_pause_merges_what_was_missed() {
        let mut scene = scene(10, StreamStart::Changes);
        scene.hub.connection_mut(scene.reader).expect("it is connected").pause(true);
        for value in 1..=9 {
            scene.write(value);
            let now = scene.hub.now().0;
            assert_eq!(scene.run_to(now + 10), []);
        }
        scene.hub.connection_mut(scene.reader).expect("it is connected").pause(false);
        assert_eq!(scene.run_to(200).iter().map(|&(_, value)| value).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn a_subscription_that_missed_a_forgotten_removal_is_not_served_until_it_is_restarted() {
        let mut scene = scene(10, StreamStart::Everything);
        scene.write(1);
        assert_eq!(scene.run_to(20).len(), 1);
        scene.hub.connection_mut(scene.reader).expect("it is connected").pause(true);
        scene.write(2);
        scene.run_to(100);
        scene.hub.state_mut(scene.channel).forgotten = Tick(90);
        scene.hub.connection_mut(scene.reader).expect("it is connected").pause(false);
        assert_eq!(scene.run_to(150), []);
        let outdated = |scene: &mut Scene| -> Vec<ChannelIndex> {
            scene.hub.connection_mut(scene.reader).expect("it is connected").take_outdated().collect()
        };
        assert_eq!(outdated(&mut scene), [scene.channel]);
        assert_eq!(outdated(&mut scene), []);
        scene.hub.unsubscribe(scene.reader, SubscriptionId(1));
        let wanted = StreamSubscription {
            interval_ticks: 10,
            anchor: Tick(0),
            start: StreamStart::Everything,
            variant: Variant(0),
            skips: None,
        };
        scene.hub.subscribe(scene.reader, scene.channel, wanted).expect("there is room");
        assert_eq!(scene.run_to(200).iter().map(|&(_, value)| value).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn turns_lie_on_the_grid_of_the_channel_without_losing_rate() {
        let mut scene = scene(50, StreamStart::Changes);
        scene.hub.set_turn_grid(scene.channel, 33);
        let mut came = Vec::new();
        for value in 1..=200 {
            scene.write(value);
            let now = scene.hub.now().0;
            came.extend(scene.run_to(now + 10));
        }
        assert!(came.iter().skip(1).all(|(tick, _)| tick % 33 == 0), "{came:?}");
        assert!((38..=41).contains(&came.len()), "2,000 ticks at an interval of 50: {}", came.len());
    }

    #[test]
    fn a_turn_that_comes_late_does_not_cost_the_next_one() {
        // Its points lie one tick after the grid: moved up, and past when the turn before is over.
        let mut scene = scene_at(Tick(1), 20, StreamStart::Changes);
        scene.hub.set_turn_grid(scene.channel, 20);
        let mut served = 0;
        for turn in 1..=50u8 {
            scene.write(turn);
            // Planned 3 ticks after the grid, never on it.
            served += scene.plan(Tick(u64::from(turn) * 20 + 3)).len();
        }
        assert!(served >= 48, "{served} of 50");
    }

    #[test]
    fn a_turn_between_a_change_and_the_plan_is_not_missed_by_who_has_waited_for_a_change() {
        let mut scene = scene(50, StreamStart::Changes);
        // The turn at 50 finds nothing, so it waits.
        scene.run_to(98);
        scene.write(1);
        // Turns are at 100 and 150, and nobody plans at 100.
        assert_eq!(scene.plan(Tick(103)), [(1, 3)]);
        scene.write(2);
        assert_eq!(scene.run_to(160), [(150, 2)], "the next one is at its time");
    }

    #[test]
    fn a_change_that_is_dated_after_the_plan_does_not_cost_the_turn_of_the_plan() {
        let mut scene = scene(50, StreamStart::Changes);
        scene.run_to(99);
        *scene.hub.state_mut(scene.channel) = Counter { value: 1, changed: Tick(101), forgotten: Tick(0) };
        assert_eq!(scene.run_to(120), [(100, 1)]);
    }

    #[test]
    fn nobody_who_waits_costs_a_turn() {
        let mut scene = scene(20, StreamStart::Changes);
        scene.run_to(100);
        assert_eq!(scene.hub.next_turn(), None);
        scene.write(1);
        assert!(scene.hub.is_disturbed());
        assert_eq!(scene.run_to(140).len(), 1);
    }

    #[test]
    fn in_a_hurry_everybody_has_a_turn_once() {
        let mut scene = scene(1_000, StreamStart::Changes);
        scene.run_to(100);
        scene.write(1);
        scene.hub.hurry();
        assert_eq!(scene.run_to(110), [(101, 1)]);
        scene.write(2);
        assert_eq!(scene.run_to(1_010), [(1_000, 2)]);
        scene.hub.connection_mut(scene.reader).expect("it is connected").pause(true);
        scene.write(3);
        scene.hub.hurry();
        assert_eq!(scene.run_to(1_020), [], "a path that has enough to do");
    }

    #[test]
    fn a_shorter_interval_takes_effect_at_once() {
        let mut scene = scene(1_000, StreamStart::Changes);
        scene.write(1);
        assert_eq!(scene.run_to(100), []);
        scene.hub.change(scene.reader, SubscriptionId(1), 20, Variant(0));
        let stream = scene.hub.connection_mut(scene.reader).expect("it is connected");
        assert_eq!([1, 2].map(|number| stream.interval_ticks(SubscriptionId(number))), [Some(20), None]);
        assert_eq!(scene.run_to(130), [(120, 1)]);
    }

    #[test]
    fn a_connection_that_never_was_costs_no_memory() {
        let mut scene = scene(10, StreamStart::Changes);
        let nobody = ConnectionId { index: u32::MAX, generation: 0 };
        assert!(scene.hub.connection_mut(nobody).is_none());
        scene.hub.disconnect(nobody);
        scene.write(1);
        assert_eq!(scene.run_to(40).len(), 1);
    }

    #[test]
    fn slots_are_given_out_again_the_first_of_them_first() {
        let mut hub: Hub<Counter, Stream> = Hub::new(HubLimits::default(), Tick(0));
        assert!(hub.saves_memory(), "nobody has told a hub by itself how many readers there will be");
        let readers: Vec<ConnectionId> = (0..5).map(|_| hub.connect().expect("there is room")).collect();
        [3, 1, 3].iter().for_each(|&index: &usize| hub.disconnect(readers[index]));
        assert_eq!(hub.connect_at(7).index, 7);
        let mut next = || hub.connect().expect("there is room").index;
        assert_eq!([next(), next(), next(), next(), next()], [1, 3, 5, 6, 8]);
    }

    /// Readers come, leave between a plan and its writing, and are replaced in the same slot; frames are taken late or
    /// not at all.
    #[test]
    fn readers_that_come_and_go_get_their_own_frames_and_everybody_gets_the_newest() {
        throng_seeds::for_seeds(40, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut hub: Hub<Counter, Stream> = Hub::new(HubLimits::default(), Tick(0));
            let keys = [1, 2, 3].map(ChannelKey::Custom);
            let channels = keys.map(|key| hub.channel_or_insert(key, Counter::default).expect("there is room"));
            let mut last = [0u8; 3];
            // By slot: the reader's channel, and the last value it got.
            let mut readers = std::collections::BTreeMap::<u32, (ConnectionId, usize, u8)>::new();
            for step in 0..400u32 {
                let is_calm = step >= 300;
                if !is_calm && random.u8(..2) == 0 {
                    let at = random.usize(..3);
                    last[at] = last[at].wrapping_add(1);
                    let changed = hub.now().after(1);
                    *hub.state_mut(channels[at]) = Counter { value: last[at], changed, forgotten: Tick(0) };
                }
                let tick = hub.now().after(if random.u8(..9) == 0 { 1_500 } else { random.u32(1..6) });
                hub.plan(tick);
                hub.encode(&(), &Inline);
                if !is_calm && random.u8(..3) == 0 {
                    let leaving = readers.keys().copied().nth(random.usize(..8));
                    if let Some((id, ..)) = leaving.and_then(|leaving| readers.remove(&leaving)) {
                        hub.disconnect(id);
                    }
                }
                if !is_calm && readers.len() < 6 {
                    let (id, at) = (hub.connect().expect("there is room"), random.usize(..3));
                    let interval_ticks = random.u32(1..40);
                    let (anchor, start) = (hub.now(), StreamStart::Everything);
                    let wanted = StreamSubscription { interval_ticks, anchor, start, variant: Variant(0), skips: None };
                    hub.subscribe(id, channels[at], wanted).expect("there is room");
                    readers.insert(id.index, (id, at, 0));
                }
                if !is_calm && random.u8(..6) == 0 {
                    continue;
                }
                let (outgoing, slots) = hub.visited_writers();
                for (index, slot) in slots {
                    let Some(mut stream) = slot.writer() else { continue };
                    let known = readers.get_mut(&(index as u32)).expect("nobody else is there");
                    stream.drain(outgoing, |_, frame, _| {
                        assert_eq!(frame.bytes[0], last[known.1], "a frame of its own channel, and of now");
                        known.2 = frame.bytes[0];
                    });
                }
            }
            for (id, at, got) in readers.values() {
                assert_eq!(*got, last[*at], "{id:?}");
            }
        });
    }

    #[test]
    fn a_stream_has_as_many_subscriptions_as_there_are_numbers() {
        let mut stream = Stream::new(usize::MAX, false);
        let wanted = StreamSubscription {
            interval_ticks: 10,
            anchor: Tick(0),
            start: StreamStart::Everything,
            variant: Variant(0),
            skips: None,
        };
        let turns = Turns { phase: 0, grid_ticks: 1 };
        let mut open = || stream.open((0, Tick(0)), turns, wanted, Tick(0)).map(|id| id.0);
        assert!((1..u16::MAX).all(|number| open() == Some(number)));
        assert_eq!(open(), None);
    }
}
