//! An edge's side of its home: see [`edge`](crate::edge).
//!
//! ```text
//!   open, receive, closed ---> records ---> poll_up
//!   hear ---> entries for a connection ------------------> its outbox
//!        ---> changes ---> copies of channels --+
//!        ---> who reads them ------ the hub ----+--------> outboxes
//! ```
//!
//! The hub, the logs of channels and the connections are those of any engine. All decisions are the home's.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use rustc_hash::FxHashMap;
use throng_channeld::proto::{ChannelDataMergeOptions, ChannelType};
use throng_channeld::{Message, Messages, PacketError, entry_len, message_type, put_message};
use throng_replica::{ChannelIndex, StreamStart, StreamSubscription, Variant};
use throng_wire::{Tick, Time};

use super::Engine;
use super::channel::{Access, Subscriber, Wanted};
use super::connection::{Connection, Stage};
use super::log::state_limits;
use super::place::Place;
use super::port::{EndCause, Key, LoginNote, Outbox, Side};
use super::refusal::Refusal;
use crate::edge::records::{
    DOWN, FIRST_TURN, FrameField, FrameFields, IS_LAST, Records, SAID, TURN, UP, UP_IS_LAST, put_number,
};
use crate::edge::{Down, EdgeFault, FRAME_FULL_BYTES, Slack, TURN_MAX_TICKS, Up, down, like_tick, up};
use crate::fsm::Fsm;
use crate::limits::Limits;
use crate::settings::EngineSettings;
use throng_protostate::{MergeError, MergeOptions};

/// The data of an edge about its home.
pub(super) struct Home {
    /// There is a path to it. The ticks by which the edge is ahead of it.
    ahead: Option<u64>,
    slack: Option<Slack>,
    /// The home's turn whose changes have come: readers here have theirs, too.
    turn: Option<Tick>,
    records: Records,
    /// How updates of the copies are merged, by channel.
    terms: FxHashMap<u32, Terms>,
    farewell: Farewell,
}

/// How the home merges updates of a state.
#[derive(Clone)]
struct Terms {
    options: MergeOptions,
    type_url: Arc<str>,
    /// Bytes that the state may have, if it has no schema: the copy loses what the state at home loses.
    state_bytes: Option<usize>,
}

/// The numbers of a frame of the home, which stand anywhere in it: see [`DownFrame`](crate::edge::DownFrame).
#[derive(Default)]
struct FrameHead {
    turn: Option<u64>,
    is_last: bool,
    first_turn: Option<u64>,
}

impl FrameHead {
    fn read(frame: &Bytes) -> Result<FrameHead, EdgeFault> {
        let mut head = FrameHead::default();
        for field in FrameFields::new(DOWN, frame.clone()) {
            match field? {
                FrameField::Number(TURN, turn) => head.turn = Some(turn),
                FrameField::Number(IS_LAST, is_last) => head.is_last = is_last != 0,
                FrameField::Number(FIRST_TURN, turn) => head.first_turn = Some(turn),
                FrameField::Number(..) | FrameField::Record(_) => {}
            }
        }
        Ok(head)
    }
}

/// Bytes of the end of a frame for the home.
const LAST_BYTES: usize = 2;

/// How far the edge has said good-bye to its home.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Farewell {
    #[default]
    NotBegun,
    /// The edge is to send its last frame.
    Due,
    Sent,
    /// The home's last frame has come.
    Answered,
}

/// The limits of requests, states and channels are the home's: an edge that had smaller ones could not follow it. Here each of them is
/// as large as it may be set at all, so that a home that makes no sense is noticed.
pub(super) fn settings_of_edge(settings: Arc<EngineSettings>) -> Arc<EngineSettings> {
    let mut own = EngineSettings::clone(&settings);
    let Limits { max_state_bytes, max_channels, max_field_masks, max_field_mask_bytes, max_mask_sets, .. } =
        Limits::LARGEST;
    let limits = &mut own.limits;
    (limits.max_state_bytes, limits.max_channels) = (max_state_bytes, max_channels);
    (limits.max_field_masks, limits.max_field_mask_bytes) = (max_field_masks, max_field_mask_bytes);
    limits.max_mask_sets = max_mask_sets;
    Arc::new(own)
}

/// The number of a connection for the home.
fn number_of(key: Key) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

fn key_of(number: u64) -> Key {
    Key { index: number as u32, generation: (number >> 32) as u32 }
}

impl Default for Home {
    fn default() -> Home {
        Home {
            ahead: None,
            slack: None,
            turn: None,
            records: Records::new(UP),
            terms: FxHashMap::default(),
            farewell: Farewell::default(),
        }
    }
}

impl Home {
    /// Where to tell it something, if there is a path to it.
    fn records(&mut self) -> Option<&mut Records> {
        (self.ahead.is_some() && self.farewell == Farewell::NotBegun).then_some(&mut self.records)
    }

    /// Tells the home something about a connection, if there is a path to it.
    fn say(&mut self, key: Key, what: up::What) {
        if let Some(records) = self.records() {
            records.push(&Up { client: number_of(key), what: Some(what) });
        }
    }

    /// This process ends. For the home its clients are lost, so that they may go on at another edge.
    pub(super) fn leave(&mut self) {
        self.ahead = None;
        self.records.clear();
    }

    /// A tick of the home, here.
    fn here(&self, home_tick: u64) -> Tick {
        Tick(home_tick.saturating_add(self.ahead.unwrap_or_default()))
    }

    /// The turn whose changes have come since this was last asked.
    pub(super) fn take_turn(&mut self) -> Option<Tick> {
        self.turn.take()
    }

    /// The next frame for it.
    fn take_frame(&mut self) -> Option<Bytes> {
        let says_farewell = self.farewell == Farewell::Due;
        if self.ahead.is_none() || (self.records.is_empty() && !says_farewell) {
            return None;
        }
        let mut frame = Vec::with_capacity(self.records.len().min(2 * FRAME_FULL_BYTES) + LAST_BYTES);
        self.records.move_to(&mut frame);
        if says_farewell && self.records.is_empty() {
            self.farewell = Farewell::Sent;
            put_number(UP_IS_LAST, 1, &mut frame);
        }
        Some(frame.into())
    }
}

impl Engine {
    /// From now on this engine holds connections of clients for another one. To be called before anything else.
    pub fn set_edge(&mut self) {
        self.home = Some(Box::default());
        self.settings = settings_of_edge(Arc::clone(&self.settings));
    }

    /// There is a path to the home, which is at this tick. Clients can come now. Turns are late by `slack_ticks` beside the
    /// home's at first; with 0 the path takes no time, and the edge's clock is left as it is.
    pub fn linked(&mut self, now: Time, (home_tick, slack_ticks): (u64, u32)) {
        self.unlinked(now);
        let first = like_tick(home_tick, self.fanout.change_tick(&self.clock).0.saturating_add(slack_ticks.into()));
        self.clock.begin_at(now, Tick(first.saturating_sub(slack_ticks.into())));
        self.fanout.note_plan(now);
        let slack = (slack_ticks > 0).then(Slack::default);
        self.home = Some(Box::new(Home { ahead: Some(first - home_tick), slack, ..Home::default() }));
    }

    /// This edge ends soon: its home is to let its clients go on at another edge. The edge serves its clients until
    /// [`has_left`](Self::has_left), but passes nothing more on to the home, and nobody else can come.
    pub fn leave(&mut self, now: Time) {
        self.clock.set(now);
        if let Some(home) = &mut self.home
            && home.farewell == Farewell::NotBegun
        {
            home.farewell = Farewell::Due;
        }
    }

    /// Whether the home has let all clients go, or there is no path to it.
    pub fn has_left(&self) -> bool {
        self.home.as_ref().is_none_or(|home| home.ahead.is_none() || home.farewell == Farewell::Answered)
    }

    /// The path to the home is over: so are all connections.
    pub fn unlinked(&mut self, now: Time) {
        self.clock.set(now);
        let channels: Vec<u32> = self.home.as_mut().map_or_else(Vec::new, |home| {
            home.ahead = None;
            home.terms.drain().map(|(id, _)| id).collect()
        });
        channels.into_iter().for_each(|id| self.forget_copy(id));
        let keys: Vec<Key> = self.connections.iter().map(|connection| connection.key).collect();
        keys.into_iter().for_each(|key| self.connections.end_for(key, EndCause::Ours));
        if let Some(home) = &mut self.home {
            home.records.clear();
        }
    }

    /// Whether this engine holds connections for another one.
    pub fn is_edge(&self) -> bool {
        self.home.is_some()
    }

    /// Whether there is a path to the home.
    pub fn is_linked(&self) -> bool {
        self.home.as_ref().is_some_and(|home| home.ahead.is_some())
    }

    /// The next frame for the home. To be polled until `None`.
    pub fn poll_up(&mut self) -> Option<Bytes> {
        self.home.as_mut()?.take_frame()
    }

    pub(super) fn open_for_home(
        &mut self,
        side: Side,
        address: SocketAddr,
        outbox: Box<dyn Outbox>,
    ) -> Result<Key, Refusal> {
        let is_open =
            self.home.as_ref().is_some_and(|home| home.ahead.is_some() && home.farewell == Farewell::NotBegun);
        if side == Side::Server || !is_open {
            return Err(self.counters.refuse(Refusal::Limit("no_home")));
        }
        let key = self.fanout.connect().map_err(|refusal| self.counters.refuse(refusal))?;
        let fsm = Fsm::new(Arc::clone(&self.settings.client_machine));
        // The home gives both numbers, when it has logged in.
        let numbers = (0, super::writers::NOBODY);
        self.connections.add_unnumbered(Connection::new(key, numbers, side, address, outbox, fsm));
        self.counters.side(side).opened += 1;
        self.say_up(key, up::What::Opened(address.to_string()));
        Ok(key)
    }

    fn say_up(&mut self, key: Key, what: up::What) {
        if let Some(home) = &mut self.home {
            home.say(key, what);
        }
    }

    /// A tick of the home, here.
    fn here(&self, home_tick: u64) -> Tick {
        self.home.as_ref().map_or(Tick(home_tick), |home| home.here(home_tick))
    }

    /// Passes a client's message on to the home.
    pub(super) fn pass_up(&mut self, from: Place, message: &Message) {
        let key = self.connections.at(from).key;
        if let Some(records) = self.home.as_mut().and_then(|home| home.records()) {
            let length = entry_len(message.header(), message.body.len() as u32);
            records.push_bytes(number_of(key), SAID, length, |out| put_message(out, message.header(), &message.body));
        }
    }

    pub(super) fn tell_home_of_end(&mut self, index: Place, cause: EndCause) {
        if self.home.is_none() {
            return;
        }
        let key = self.connections.at(index).key;
        self.say_up(key, up::What::Closed(up::Cause::from(cause).into()));
    }

    /// A frame of the home has come.
    ///
    /// # Errors
    /// It does not fit what came before. The records before the fault have taken effect. The path has to be closed.
    pub fn hear_home(&mut self, now: Time, frame: Bytes) -> Result<(), EdgeFault> {
        self.clock.set(now);
        let head = FrameHead::read(&frame)?;
        let dated = self.keep_time(&head)?;
        for field in FrameFields::new(DOWN, frame) {
            if let FrameField::Record(record) = field? {
                self.hear_record(record, dated)?;
            }
        }
        if head.is_last {
            self.fan_out_for_the_last_time();
            // A home that ends by itself closes the path soon.
            if let Some(home) = self.home.as_mut().filter(|home| home.farewell == Farewell::Sent) {
                home.farewell = Farewell::Answered;
            }
        }
        Ok(())
    }

    fn hear_record(&mut self, record: Bytes, dated: Tick) -> Result<(), EdgeFault> {
        let Down { client, what } = Down::decode(record).map_err(|_| EdgeFault::Malformed)?;
        let place = self.connections.place(key_of(client));
        match (what.ok_or(EdgeFault::Malformed)?, place) {
            (down::What::Channel(channel), _) => self.copy_channel(&channel)?,
            (down::What::Changes(changes), _) => self.copy_changes(changes, dated)?,
            (down::What::Forget(id), _) => self.forget_copy(id),
            (down::What::Entries(entries), Some(place)) => {
                self.connections.at_mut(place).send_entries(&entries);
                match are_of_users(entries) {
                    true => self.has_forwarded(place),
                    false => self.connections.put_dirty(place),
                }
            }
            (down::What::ToMany(many), _) => {
                for client in many.clients {
                    if let Some(place) = self.connections.place(key_of(client)) {
                        self.connections.at_mut(place).send_entries(&many.entries);
                        self.has_forwarded(place);
                    }
                }
            }
            (down::What::Admitted(admitted), Some(place)) => self.admit_for_home(place, &admitted),
            (down::What::Login(note), Some(place)) => {
                if let Some(note) = LoginNote::from_number(note) {
                    self.connections.at(place).note_login(note);
                }
            }
            (down::What::Close(is_abandoned), Some(place)) => {
                if is_abandoned {
                    self.connections.at(place).abandon();
                }
                self.connections.dismiss(key_of(client));
            }
            (down::What::Reads(reads), Some(place)) => self.begin_reading(place, &reads)?,
            (down::What::ReadsOtherwise(reads), Some(place)) => self.read_otherwise(place, &reads),
            (down::What::ReadsNot(id), Some(place)) => {
                if let Some(channel) = self.channels.find(id) {
                    self.unsubscribe(place, channel);
                }
            }
            // It has gone, and the home did not know that yet.
            (_, None) => {}
        }
        Ok(())
    }

    /// Returns the tick of the changes in a frame: no reader misses the turn that they are for. If all changes for a turn of the home
    /// have come with it, readers have it with the next step. Turns that no frame is about have their time by the clock, which is set a
    /// little back or forward, so that frames come before it.
    fn keep_time(&mut self, frame: &FrameHead) -> Result<Tick, EdgeFault> {
        let (tick, unplanned) = (self.clock.tick(), self.fanout.first_unplanned());
        let Some(home) = self.home.as_mut().filter(|home| home.ahead.is_some()) else { return Ok(unplanned) };
        let (first, turn) = match (frame.first_turn, frame.turn) {
            (Some(first), turn) => (home.here(first), home.here(turn.unwrap_or(first))),
            (None, None) => return Ok(self.fanout.change_tick(&self.clock)),
            (None, Some(_)) => return Err(EdgeFault::Malformed),
        };
        let is_near = turn <= tick.newest(unplanned).after(TURN_MAX_TICKS);
        if !is_near || !(turn.before(TURN_MAX_TICKS)..=turn).contains(&first) {
            return Err(EdgeFault::Malformed);
        }
        if frame.turn.is_some() {
            home.turn = Some(turn);
            if let Some(slack) = &mut home.slack {
                // A frame for a turn that the edge has had is late, whatever the clock says.
                let reached = if unplanned.is_newer_than(first) { tick.newest(unplanned) } else { tick };
                let back = slack.note(tick.0, reached.0 as i64 - first.0 as i64);
                self.clock.put_off(back);
            }
        }
        Ok(first.newest(unplanned))
    }

    fn admit_for_home(&mut self, place: Place, admitted: &down::Admitted) {
        let connection = self.connections.at_mut(place);
        connection.writer = admitted.writer;
        if connection.stage != Stage::Member {
            connection.admit();
            let side = connection.side;
            self.counters.side(side).admitted += 1;
        }
        self.connections.renumber(place, admitted.connection);
    }

    fn copy_channel(&mut self, channel: &down::Channel) -> Result<(), EdgeFault> {
        let options = MergeOptions {
            replace_lists: channel.replaces_lists,
            list_size_limit: channel.list_size_limit,
            truncate_top: channel.truncates_top,
            remove_map_entries: channel.removes_map_entries,
            merge_map_entries: channel.merges_map_entries,
        };
        let kind = ChannelType::try_from(channel.kind).map_err(|_| EdgeFault::Change)?;
        let known = self.channels.find(channel.id);
        let index = match known {
            Some(index) => index,
            None => self.add_channel(channel.id, kind, String::new()).map_err(|_| EdgeFault::Change)?,
        };
        self.fanout.hub.set_turn_grid(index, channel.turn_ticks.max(1));
        self.channels.at_mut(index).merge = ChannelDataMergeOptions {
            should_replace_list: options.replace_lists,
            list_size_limit: options.list_size_limit,
            truncate_top: options.truncate_top,
            should_check_removable_map_field: options.remove_map_entries,
        };
        self.fanout.hub.state_mut(index).set_options(options);
        let has_bound = channel.state_bytes > 0 && self.schemas.find(&channel.type_url).is_none();
        let state_bytes = has_bound.then(|| usize::try_from(channel.state_bytes).unwrap_or(usize::MAX));
        let terms = Terms { options, type_url: channel.type_url.as_str().into(), state_bytes };
        if let Some(home) = &mut self.home
            && home.terms.insert(channel.id, terms).is_none()
        {
            // GLOBAL is there from the beginning, with a state of its own.
            self.clear_copy(index);
        }
        Ok(())
    }

    fn clear_copy(&mut self, index: ChannelIndex) {
        let before = self.fanout.hub.state(index).size_bytes() as u64;
        self.fanout.hub.state_mut(index).clear();
        self.state_was_changed(index, before);
    }

    fn copy_changes(&mut self, changes: down::Changes, dated: Tick) -> Result<(), EdgeFault> {
        let index = self.channels.find(changes.channel).ok_or(EdgeFault::Change)?;
        let terms = self.home.as_ref().and_then(|home| home.terms.get(&changes.channel).cloned());
        let terms = terms.ok_or(EdgeFault::Change)?;
        let had_data = self.fanout.hub.state(index).data().is_some();
        if changes.is_whole && had_data {
            self.clear_copy(index);
        }
        for down::Value { writer, value } in &changes.values {
            self.merge_copy(index, (value, &changes.repeated_fields), &terms, (*writer, dated))?;
        }
        if !had_data {
            self.resolve_masks_anew(index);
        } else if changes.is_whole {
            self.read_anew(index);
        }
        Ok(())
    }

    fn merge_copy(
        &mut self,
        index: ChannelIndex,
        (value, repeated): (&Bytes, &[u32]),
        &Terms { options, ref type_url, state_bytes }: &Terms,
        (writer, tick): (u32, Tick),
    ) -> Result<(), EdgeFault> {
        let mut limits = state_limits(&self.settings.limits);
        limits.state_bytes = state_bytes.map_or(limits.state_bytes, |bytes| bytes.min(limits.state_bytes));
        let before = self.fanout.hub.state(index).size_bytes() as u64;
        let state = self.fanout.hub.state_mut(index);
        let mut merged = state.merge_copy((type_url, value), repeated, (&self.schemas, options, limits), writer, tick);
        if merged == Err(MergeError::WrongType) && state.is_untouched() {
            // A type that was only expected gives way to the one that comes.
            state.clear();
            merged = state.merge_copy((type_url, value), repeated, (&self.schemas, options, limits), writer, tick);
        }
        self.state_was_changed(index, before);
        merged.map(|_| ()).map_err(|_| EdgeFault::Change)
    }

    /// All readers of a channel begin again: their copies are void.
    fn read_anew(&mut self, index: ChannelIndex) {
        let readers: Vec<(Place, Subscriber)> = self.channels.at(index).subscribers.iter().collect();
        for (place, reader) in readers {
            let wanted = self.fanout.granted(&self.connections, place, reader);
            self.subscribe_anew(place, index, (wanted, reader.since));
        }
    }

    fn forget_copy(&mut self, id: u32) {
        if let Some(home) = &mut self.home {
            home.terms.remove(&id);
        }
        let Some(index) = self.channels.find(id) else { return };
        let readers: Vec<Place> = self.channels.at(index).subscribers.places().collect();
        for reader in readers {
            self.unsubscribe(reader, index);
        }
        match id {
            throng_channeld::GLOBAL_CHANNEL => self.clear_copy(index),
            _ => self.remove_channel(index),
        }
    }

    fn begin_reading(&mut self, place: Place, reads: &down::Reads) -> Result<(), EdgeFault> {
        let index = self.channels.find(reads.channel).ok_or(EdgeFault::Change)?;
        let variant = match reads.masks.is_empty() {
            true => Variant::default(),
            false => self.form_of(index, &reads.masks).map_err(|_| EdgeFault::Change)?,
        };
        let wanted = wanted_of(reads, variant);
        let start = match reads.begins_with_changes {
            true => StreamStart::Changes,
            false => StreamStart::Everything,
        };
        if start == StreamStart::Changes {
            self.fanout.hub.state(index).seal();
        }
        self.unsubscribe(place, index);
        let (anchor, skips) = (self.here(reads.anchor), self.skipped_by(place, wanted));
        let subscription = StreamSubscription { interval_ticks: wanted.interval_ms, anchor, start, variant, skips };
        let hub = self.connections.hub_id(place);
        let id = self.fanout.hub.subscribe(hub, index, subscription).map_err(|_| EdgeFault::Change)?;
        let may_lose = self.settings.movement.contains(self.channels.at(index).kind);
        self.fanout.begin_lane(self.connections.at_mut(place), may_lose, (id, wanted));
        let subscriber = Subscriber::new(id, wanted, self.clock.tick());
        self.channels.at_mut(index).subscribers.insert(place, subscriber);
        Ok(())
    }

    fn read_otherwise(&mut self, place: Place, reads: &down::Reads) {
        let Some(index) = self.channels.find(reads.channel) else { return };
        let Some(former) = self.channels.at(index).subscriber(place).copied() else { return };
        let wanted = wanted_of(reads, former.variant);
        let granted = self.fanout.granted(&self.connections, place, former);
        if granted.reliable != wanted.reliable {
            let may_lose = self.settings.movement.contains(self.channels.at(index).kind);
            self.fanout.change_lane(self.connections.at_mut(place), may_lose, (former.id, wanted));
        }
        if granted.interval_ms != wanted.interval_ms {
            let (hub, anchor) = (self.connections.hub_id(place), self.here(reads.anchor));
            self.fanout.hub.count_turns_from(hub, former.id, anchor);
            self.fanout.hub.change(hub, former.id, wanted.interval_ms, wanted.variant);
        }
        let skips = self.skipped_by(place, wanted);
        self.fanout.hub.skip(self.connections.hub_id(place), former.id, skips);
        let subscriber = Subscriber::new(former.id, wanted, former.since);
        self.channels.at_mut(index).subscribers.insert(place, subscriber);
    }
}

/// Whether entries are messages of the game, all of them: these may [wait](super::hold) for state that is due soon.
fn are_of_users(entries: Bytes) -> bool {
    let is_of_user = |message: Result<Message, PacketError>| {
        message.is_ok_and(|message| message.msg_type >= message_type::USER_SPACE_START)
    };
    Messages::new(entries).all(is_of_user)
}

fn wanted_of(reads: &down::Reads, variant: Variant) -> Wanted {
    Wanted {
        interval_ms: reads.interval_ms.max(1),
        delay_ms: reads.delay_ms,
        variant,
        access: if reads.may_write { Access::Write } else { Access::Read },
        skip_self: reads.skips_self,
        skip_first: reads.begins_with_changes,
        reliable: reads.is_reliable,
    }
}
