//! The hub's view of a channel's state: due changes, encoded as complete messages of the protocol.
//!
//! ```text
//! segment   0A len  08 channel  20 08  2A len  0A len  0A len type_url  12 len value
//!           entry   MessagePack: a state update; body: ChannelDataUpdateMessage{data: Any}
//! ```
//!
//! A segment is one message. A state that does not fit into one is cut into several, to be merged in order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustc_hash::FxHashSet;
use throng_channeld::proto::{Any, ChannelType};
use throng_channeld::{Header, begin_message, message_type};
use throng_replica::{ChannelState, Frame, FramePart, Since, Variant};
use throng_wire::Tick;

use super::meters::{ChannelMeters, Stopwatch};
use super::refusal::Refusal;
use super::writers::{GATEWAY, NOBODY};
use crate::limits::Limits;
use throng_protostate::{
    Chunk, Chunks, DataState, FieldMask, MergeError, MergeOptions, Merged, Schema, Schemas, StateLimits, allocated,
    put_varint, varint_len,
};

/// Value bytes of one message: with everything around it, it fits into a packet of 65,535 bytes.
const VALUE_MAX_BYTES: usize = 60_000;

/// The size that a state may reach.
pub(super) fn state_limits(limits: &Limits) -> StateLimits {
    let bytes = usize::try_from(limits.max_state_bytes).unwrap_or(usize::MAX);
    StateLimits { state_bytes: bytes, unit_bytes: VALUE_MAX_BYTES, ..StateLimits::default() }
}

/// The state of one channel; none before the first write.
#[derive(Debug)]
pub(crate) struct ChannelLog {
    id: u32,
    kind: ChannelType,
    /// Updates merged since anybody was served, and the tick of the first of them.
    waiting: AtomicU32,
    waiting_since: AtomicU64,
    data: Option<Box<DataState>>,
    /// Somebody stands at the tick of the last change, so no other change may be dated to it.
    is_sealed: AtomicBool,
    /// The last writer. Since [`others_until`](Self::others_until), nobody else has written. `NOBODY`: it is not known.
    last_writer: u32,
    /// The tick of the newest change by anybody else.
    others_until: Tick,
}

/// The forms in which subscribers may want frames: field masks, by the number of their [`Variant`]; and what encoders
/// use again and again.
#[derive(Debug)]
pub(crate) struct Forms {
    forms: Vec<Form>,
    /// By the name of the schema, then by paths; without the first, which is everything. Peers choose the paths: std's
    /// keyed hash.
    known: HashMap<String, HashMap<Vec<String>, Variant>>,
    /// Unused numbers.
    free: Vec<u16>,
    /// Memory of the paths.
    bytes: u64,
    scratch: Mutex<Vec<Chunks>>,
    /// Counters and times of encodings.
    pub(super) meters: Arc<ChannelMeters>,
    pub(super) stopwatch: Stopwatch,
}

#[derive(Debug)]
struct Form {
    paths: Vec<String>,
    mask: Option<FieldMask>,
}

/// Different field masks that are known at once.
const FORMS_MAX: usize = 4_096;
const _: () = assert!(FORMS_MAX <= u16::MAX as usize, "a variant is numbered by 16 bits");

impl Default for Forms {
    fn default() -> Forms {
        let everything = Form { paths: Vec::new(), mask: None };
        Forms {
            forms: vec![everything],
            known: HashMap::new(),
            free: Vec::new(),
            bytes: 0,
            scratch: Mutex::default(),
            meters: Arc::default(),
            stopwatch: Stopwatch::default(),
        }
    }
}

impl Forms {
    /// The form that shows only the fields at these paths of messages with this schema, if a subscriber has asked for
    /// it.
    pub(super) fn find(&self, paths: &[String], schema: Option<&Schema>) -> Option<Variant> {
        self.known.get(schema_name(schema))?.get(paths).copied()
    }

    /// The same, new if need be.
    pub(super) fn add(&mut self, paths: &[String], schema: Option<&Schema>) -> Result<Variant, Refusal> {
        if let Some(known) = self.find(paths, schema) {
            return Ok(known);
        }
        let mask = FieldMask::resolve(paths, schema).map_err(|error| Refusal::Data(error.tag()))?;
        let form = Form { paths: paths.to_vec(), mask };
        let place = match self.free.pop() {
            Some(place) => {
                self.forms[usize::from(place)] = form;
                place
            }
            None if self.forms.len() < FORMS_MAX => {
                self.forms.push(form);
                self.forms.len() as u16 - 1
            }
            None => return Err(Refusal::Limit("masks")),
        };
        self.bytes += form_bytes(paths);
        let of_schema = self.known.entry(schema_name(schema).to_owned()).or_default();
        of_schema.insert(paths.to_vec(), Variant(place));
        Ok(Variant(place))
    }

    /// Bytes of memory of the paths that peers have asked for: in the form, in the table and in the mask.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is no room for another form.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.forms.len() >= FORMS_MAX
    }

    /// Forgets all forms but the first, which is everything, and those in `used`.
    pub(super) fn retain(&mut self, used: &FxHashSet<Variant>) {
        self.free.clear();
        for place in 1..self.forms.len() as u16 {
            if !used.contains(&Variant(place)) {
                let former =
                    std::mem::replace(&mut self.forms[usize::from(place)], Form { paths: Vec::new(), mask: None });
                self.bytes -= form_bytes(&former.paths);
                self.free.push(place);
            }
        }
        self.known.retain(|_, of_schema| {
            of_schema.retain(|_, variant| used.contains(variant));
            !of_schema.is_empty()
        });
    }

    /// The paths of a form.
    pub(super) fn paths(&self, variant: Variant) -> &[String] {
        self.forms.get(usize::from(variant.0)).map_or(&[], |form| &form.paths)
    }

    fn mask(&self, variant: Variant) -> Option<&FieldMask> {
        self.forms.get(usize::from(variant.0))?.mask.as_ref()
    }

    fn with_scratch<T>(&self, use_it: impl FnOnce(&mut Chunks) -> T) -> T {
        let lock = || self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = lock().pop().unwrap_or_default();
        let result = use_it(&mut scratch);
        lock().push(scratch);
        result
    }
}

/// A path is kept twice; the mask made of it takes less than another copy.
fn form_bytes(paths: &[String]) -> u64 {
    let path_bytes = |path: &String| 3 * (size_of::<String>() + allocated(path.len())) as u64;
    paths.iter().map(path_bytes).sum()
}

fn schema_name(schema: Option<&Schema>) -> &str {
    schema.map_or("", |schema| schema.name())
}

impl ChannelLog {
    pub(super) fn new(id: u32, kind: ChannelType) -> ChannelLog {
        ChannelLog {
            id,
            kind,
            waiting: AtomicU32::new(0),
            waiting_since: AtomicU64::new(0),
            data: None,
            is_sealed: AtomicBool::new(false),
            last_writer: NOBODY,
            others_until: Tick(0),
        }
    }

    pub(super) fn data(&self) -> Option<&DataState> {
        self.data.as_deref()
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Bytes of memory that the state takes.
    pub(super) fn size_bytes(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.size_bytes())
    }

    /// Whether a type is expected, and nothing was written yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.is_empty())
    }

    /// Forgets the state, and of what type it was.
    pub(super) fn clear(&mut self) {
        self.data = None;
        self.last_writer = NOBODY;
    }

    /// The state after a restart: whoever comes now knows nothing of it, and what is changed from now on is newer.
    pub(super) fn set_data(&mut self, data: Option<DataState>) {
        self.data = data.map(Box::new);
        self.last_writer = NOBODY;
        self.seal();
    }

    /// Begins with the empty state of a type, unless there is a state.
    pub(super) fn begin_empty(
        &mut self,
        name: &str,
        (schema, options, limits): (Option<Arc<Schema>>, MergeOptions, StateLimits),
        tick: Tick,
    ) {
        let type_url = format!("type.googleapis.com/{name}");
        self.data.get_or_insert_with(|| Box::new(DataState::new(schema, &type_url, options, limits, tick.before(1))));
    }

    /// How updates are merged from now on.
    pub(super) fn set_options(&mut self, options: MergeOptions) {
        if let Some(data) = &mut self.data {
            data.set_options(options);
        }
    }

    pub(super) fn type_url(&self) -> &str {
        self.data.as_ref().map_or("", |data| data.type_url())
    }

    /// Appends everything of a state update but the value of its data, which follows and has `value_bytes`.
    pub(super) fn begin_update(&self, value_bytes: usize, out: &mut Vec<u8>) {
        begin_update(self.id, self.type_url(), value_bytes, out);
    }

    /// Merges an update that makes the state grow by at most `room_bytes`. The first one decides of what type the state is.
    pub(super) fn merge(
        &mut self,
        update: &Any,
        room_bytes: usize,
        rules: (&Schemas, MergeOptions, StateLimits),
        writer: u32,
        tick: Tick,
    ) -> Result<Merged, MergeError> {
        let is_new = self.data.is_none();
        self.change(&update.type_url, rules, (writer, tick), |data, tick| {
            let taken_bytes = if is_new { data.size_bytes() } else { 0 };
            let left_bytes = room_bytes.checked_sub(taken_bytes).ok_or(MergeError::NoRoom { room_bytes })?;
            data.merge_within(left_bytes, (&update.value, &update.type_url), writer, tick)
        })
    }

    /// Merges changes of the state at home into this copy. `repeated` are the fields that are lists there.
    ///
    /// # Errors
    /// The copy cannot become what the home has.
    pub(super) fn merge_copy(
        &mut self,
        (type_url, value): (&str, &Bytes),
        repeated: &[u32],
        rules: (&Schemas, MergeOptions, StateLimits),
        writer: u32,
        tick: Tick,
    ) -> Result<Merged, MergeError> {
        self.change(type_url, rules, (writer, tick), |data, tick| {
            data.merge_joined((value, type_url), repeated, writer, tick)
        })
    }

    /// Merges an update of `writer` that came at tick `came_at`, by `merge`, which gets the state and the tick of the change. If there is no state,
    /// and the update is merged, one of this type begins.
    fn change(
        &mut self,
        type_url: &str,
        (schemas, options, limits): (&Schemas, MergeOptions, StateLimits),
        (writer, came_at): (u32, Tick),
        merge: impl FnOnce(&mut DataState, Tick) -> Result<Merged, MergeError>,
    ) -> Result<Merged, MergeError> {
        let tick = self.date(came_at);
        let before = self.last_change();
        let merged = match &mut self.data {
            Some(data) => {
                data.set_state_bytes_limit(limits.state_bytes);
                merge(data, tick)?
            }
            None => {
                let schema = schemas.find(type_url).cloned();
                let mut data = DataState::new(schema, type_url, options, limits, tick.before(1));
                let merged = merge(&mut data, tick)?;
                self.data = Some(Box::new(data));
                merged
            }
        };
        self.unseal();
        if self.last_writer != writer {
            (self.last_writer, self.others_until) = (writer, before);
        }
        if merged.dropped > 0 {
            // It has changed what others wrote.
            self.last_writer = NOBODY;
        }
        let waiting = self.waiting.get_mut();
        if *waiting == 0 {
            *self.waiting_since.get_mut() = came_at.0;
        }
        *waiting = waiting.saturating_add(1);
        Ok(merged)
    }

    /// Counts an encoding for subscribers at `since`: the updates that have waited for it.
    fn count_waiting(&self, meters: &ChannelMeters, since: Tick, now: Tick) {
        let waiting = self.waiting.swap(0, Ordering::Relaxed);
        if waiting == 0 {
            return;
        }
        // Updates from before the first reader have not waited for anybody.
        let began = Tick(self.waiting_since.load(Ordering::Relaxed)).newest(since);
        let lag_ms = now.since(began);
        let meters = meters.of(self.kind);
        meters.lag.record(u64::from(lag_ms) * 1_000, waiting.into());
        meters.depth.record(waiting.into(), 1);
    }

    /// From now on a subscriber knows everything up to the last change: later changes are dated later, if need be a
    /// little ahead of the clock.
    pub(super) fn seal(&self) {
        self.is_sealed.store(true, Ordering::Relaxed);
    }

    /// The tick of a change that is made at `tick`.
    pub(super) fn date(&self, tick: Tick) -> Tick {
        let last = self.data.as_ref().map_or(tick.before(1), |data| data.last_change());
        match self.is_sealed.load(Ordering::Relaxed) {
            true => tick.newest(last.after(1)),
            false => tick.newest(last),
        }
    }

    /// A change was made, at the tick that [`date`](Self::date) gave.
    pub(super) fn unseal(&mut self) {
        *self.is_sealed.get_mut() = false;
    }

    /// The state that a gateway keeps itself, made empty if there is none. It is about to change it.
    pub(super) fn data_or_new(&mut self, schema: &Arc<Schema>, limits: StateLimits, tick: Tick) -> &mut DataState {
        self.last_writer = GATEWAY;
        self.data.get_or_insert_with(|| {
            let options = MergeOptions { remove_map_entries: true, ..MergeOptions::default() };
            Box::new(DataState::new(Some(Arc::clone(schema)), "", options, limits, tick.before(1)))
        })
    }

    /// The whole state, as values that are merged in order.
    pub(super) fn full_in_pieces(&self, max_value_bytes: usize) -> Vec<Bytes> {
        let Some(data) = &self.data else { return Vec::new() };
        let mut chunks = Chunks::new();
        data.encode(None, None, None, max_value_bytes, &mut chunks);
        chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk.value)).collect()
    }

    /// The whole state as one value; `None` before the first write.
    pub(super) fn full(&self) -> Option<Any> {
        let data = self.data.as_ref()?;
        let mut value = Vec::new();
        data.write_full(&mut value);
        Some(Any { type_url: data.type_url().to_owned(), value: value.into() })
    }

    pub(super) fn forget(&mut self, until: Tick) {
        if let Some(data) = &mut self.data {
            data.forget(until);
        }
    }

    /// The changes after `point`, for a copy of the state at an edge that has everything before. `None` if there are none.
    /// Further changes will be later than the returned point. `updates` are the updates since `point`, if all are known. They
    /// are *exact* if a copy that merges them is as the state is.
    pub(super) fn changes_for_edge(
        &self,
        point: Option<Tick>,
        forms: &Forms,
        (updates, is_exact): (Option<Vec<(u32, Bytes)>>, bool),
    ) -> Option<ChangesForEdge> {
        let data = self.data.as_ref()?;
        let last = data.last_change();
        if point.is_some_and(|point| !last.is_newer_than(point)) {
            return None;
        }
        self.seal();
        let outdated = |&point: &Tick| data.has_forgotten() && data.horizon().is_newer_than(point);
        let since = point.filter(|point| !outdated(point));
        let values = match (since, updates) {
            // Passed on as it came, it need not be encoded.
            (Some(_), Some(updates)) if is_exact && updates.len() == 1 => updates,
            (since, updates) => forms.with_scratch(|chunks| {
                data.encode(since, None, None, VALUE_MAX_BYTES, chunks);
                let is_parted = |since| chunks.mixed_writers().is_empty() && !data.has_returned_since(since);
                match (since, updates) {
                    (Some(since), _) if is_parted(since) => by_parts(chunks),
                    (Some(_), Some(updates)) => updates,
                    _ => unnamed(chunks),
                }
            }),
        };
        let repeated_fields = data.repeated_fields().collect();
        Some(ChangesForEdge { point: last, is_whole: since.is_none(), values, repeated_fields })
    }

    /// Appends, as messages, what changed without what `reader` wrote itself; how many messages it took.
    pub(super) fn encode_for(
        &self,
        forms: &Forms,
        (since, variant): (Since, Variant),
        reader: u32,
        out: &mut Vec<u8>,
    ) -> u32 {
        let Some(data) = &self.data else { return 0 };
        forms.with_scratch(|chunks| {
            data.encode(tick_of(since), forms.mask(variant), Some(reader), VALUE_MAX_BYTES, chunks);
            for chunk in chunks.iter() {
                put_value(self.id, data.type_url(), chunk.value, out);
            }
            chunks.len() as u32
        })
    }
}

impl ChannelState for ChannelLog {
    type Context = Forms;

    fn last_change(&self) -> Tick {
        self.data.as_ref().map_or(Tick(0), |data| data.last_change())
    }

    fn has_news_for(&self, writer: u32, since: Tick) -> bool {
        let is_alone = writer == self.last_writer && writer != NOBODY;
        let newest = if is_alone { self.others_until } else { self.last_change() };
        newest.is_newer_than(since)
    }

    fn horizon(&self) -> Tick {
        self.data.as_ref().map_or(Tick(0), |data| data.horizon())
    }

    fn has_forgotten(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.has_forgotten())
    }

    fn retention_ticks(&self) -> u32 {
        u32::MAX
    }

    fn is_empty(&self) -> bool {
        // An empty state of a known type has to be sent too.
        self.data.is_none()
    }

    fn encode(&self, forms: &Forms, since: Since, now: Tick, frame: &mut Frame) {
        let Some(data) = &self.data else { return };
        let begin_ns = forms.stopwatch.read_ns();
        if let Since::Tick(since) = since {
            self.count_waiting(&forms.meters, since, now);
        }
        if data.last_change().is_newer_than(now) {
            // Dated ahead, see `date`: that is the point of every reader of this frame.
            frame.tick = data.last_change();
            self.seal();
        }
        forms.with_scratch(|chunks| {
            data.encode(tick_of(since), forms.mask(frame.variant), None, VALUE_MAX_BYTES, chunks);
            // For an unknown type, any bytes may be an element of a list.
            frame.says_once = chunks.appends() || data.schema().is_none();
            if since == Since::Start && chunks.is_empty() {
                let start = frame.bytes.len();
                put_value(self.id, data.type_url(), &[], &mut frame.bytes);
                frame.push_segment(start, 0, 1);
            }
            for (number, chunk) in chunks.iter().enumerate() {
                let start = frame.bytes.len();
                put_value(self.id, data.type_url(), chunk.value, &mut frame.bytes);
                frame.push_segment(start, 0, 1);
                push_parts(frame, number as u32, chunk);
            }
            if let Some(last) = chunks.len().checked_sub(1) {
                // An empty part marks a writer whose bytes cannot be cut out.
                let end = frame.bytes.len() as u32;
                let mixed = chunks.mixed_writers().iter();
                frame.parts.extend(mixed.map(|&writer| FramePart { segment: last as u32, writer, start: end, end }));
            }
        });
        if let Some(took_us) = forms.stopwatch.micros_since(begin_ns) {
            forms.meters.of(self.kind).tick.record(took_us, 1);
        }
    }

    fn is_superseded(&self, _forms: &Forms, _frame: &Frame, _segment: usize) -> bool {
        // Streams lose nothing.
        false
    }
}

/// The changes that a copy at an edge lacks.
pub(super) struct ChangesForEdge {
    /// The copy knows everything up to this tick then.
    pub(super) point: Tick,
    /// This is the whole state.
    pub(super) is_whole: bool,
    /// By whom, and what: to be merged in order.
    pub(super) values: Vec<(u32, Bytes)>,
    /// The fields that are lists, of those that have no schema.
    pub(super) repeated_fields: Vec<u32>,
}

/// Everything, as if the gateway had written it: each reader gets all of it. At least one value, to tell the type.
fn unnamed(chunks: &Chunks) -> Vec<(u32, Bytes)> {
    let mut values: Vec<(u32, Bytes)> =
        chunks.iter().map(|chunk| (GATEWAY, Bytes::copy_from_slice(chunk.value))).collect();
    if values.is_empty() {
        values.push((GATEWAY, Bytes::new()));
    }
    values
}

/// The stretches of each writer, in their order. Bytes of no part are the gateway's.
fn by_parts(chunks: &Chunks) -> Vec<(u32, Bytes)> {
    let mut values = Vec::new();
    for chunk in chunks.iter() {
        let mut parts = chunk.parts.to_vec();
        parts.sort_unstable_by_key(|part| part.start);
        let mut put = |writer: u32, bytes: &[u8]| {
            if !bytes.is_empty() {
                values.push((writer, Bytes::copy_from_slice(bytes)));
            }
        };
        let mut at = 0;
        for part in parts {
            let range = part.range();
            put(GATEWAY, &chunk.value[at..range.start]);
            at = range.end;
            put(part.writer, &chunk.value[range]);
        }
        put(GATEWAY, &chunk.value[at..]);
    }
    values
}

fn push_parts(frame: &mut Frame, segment: u32, chunk: Chunk<'_>) {
    let end = frame.bytes.len() as u32;
    let value = end - chunk.value.len() as u32;
    frame.parts.push(FramePart { segment, writer: NOBODY, start: value, end });
    frame.parts.extend(chunk.parts.iter().map(|part| FramePart {
        segment,
        writer: part.writer,
        start: value + part.start,
        end: value + part.end,
    }));
}

fn tick_of(since: Since) -> Option<Tick> {
    match since {
        Since::Start => None,
        Since::Tick(tick) => Some(tick),
    }
}

/// Appends one state update.
fn put_value(id: u32, type_url: &str, value: &[u8], out: &mut Vec<u8>) {
    begin_update(id, type_url, value.len(), out);
    out.extend_from_slice(value);
}

/// Appends everything of a state update but the value of its data, which follows and has `value_bytes`.
fn begin_update(id: u32, type_url: &str, value_bytes: usize, out: &mut Vec<u8>) {
    let head = |bytes: usize| if bytes == 0 { 0 } else { 1 + varint_len(bytes as u64) };
    let data_bytes = head(type_url.len()) + type_url.len() + head(value_bytes) + value_bytes;
    let body_bytes = 1 + varint_len(data_bytes as u64) + data_bytes;
    begin_message(out, Header::new(id, message_type::CHANNEL_DATA_UPDATE), body_bytes);
    out.push(0x0A);
    put_varint(out, data_bytes as u64);
    if !type_url.is_empty() {
        out.push(0x0A);
        put_varint(out, type_url.len() as u64);
        out.extend_from_slice(type_url.as_bytes());
    }
    if value_bytes > 0 {
        out.push(0x12);
        put_varint(out, value_bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use throng_channeld::Messages;
    use throng_channeld::proto::ChannelDataUpdateMessage;

    #[test]
    fn a_value_is_wrapped_as_prost_would() {
        for (type_url, value) in [("type.googleapis.com/a.B", &[8u8, 1][..]), ("", &[]), ("x", &[0; 300])] {
            let mut out = Vec::new();
            put_value(70_000, type_url, value, &mut out);
            let message = Messages::new(out.into()).next().expect("there is one").expect("it is well formed");
            assert_eq!((message.channel_id, message.msg_type), (70_000, 8));
            let update = ChannelDataUpdateMessage::decode(message.body.clone()).expect("it is well formed");
            let data = update.data.expect("it is there");
            assert_eq!((data.type_url.as_str(), &data.value[..]), (type_url, value));
        }
    }

    #[test]
    fn who_skips_a_writer_has_news_of_all_others_and_of_what_nobody_is_known_to_have_written() {
        let schemas = Schemas::default();
        let update = Any { type_url: "x".to_owned(), value: vec![8, 1].into() };
        let mut log = ChannelLog::new(1, ChannelType::Test);
        for (writer, tick) in [(1, 5), (2, 7), (2, 8)] {
            let rules = (&schemas, MergeOptions::default(), StateLimits::default());
            log.merge(&update, usize::MAX, rules, writer, Tick(tick)).expect("it fits");
        }
        let has_news = |log: &ChannelLog, since| [1, 2, 3, NOBODY].map(|writer| log.has_news_for(writer, Tick(since)));
        assert_eq!(has_news(&log, 4), [true; 4]);
        assert_eq!(has_news(&log, 5), [true, false, true, true]);
        assert_eq!(has_news(&log, 8), [false; 4]);
        let data = log.data.take();
        log.set_data(data.map(|data| *data));
        assert_eq!(has_news(&log, 7), [true; 4], "it is not known who wrote it before a restart");
    }

    #[test]
    fn a_writer_hears_of_its_own_update_that_pushed_out_what_another_one_wrote() {
        let schemas = Schemas::default();
        let limits = StateLimits { verbatim_occurrences: 1, ..StateLimits::default() };
        let merge = |log: &mut ChannelLog, value: &[u8], writer, tick| {
            let update = Any { type_url: "x".to_owned(), value: value.to_vec().into() };
            let rules = (&schemas, MergeOptions::default(), limits);
            log.merge(&update, usize::MAX, rules, writer, Tick(tick)).expect("it fits")
        };
        let has_news = |log: &ChannelLog, since| [1, 2, 3].map(|writer| log.has_news_for(writer, Tick(since)));
        let (one, another, number) = (b"\x0A\x05first", b"\x0A\x06second", b"\x10\x01");
        let mut log = ChannelLog::new(1, ChannelType::Test);
        assert_eq!(merge(&mut log, one, 1, 5).dropped, 0);
        assert_eq!(merge(&mut log, number, 2, 7).dropped, 0);
        assert_eq!(has_news(&log, 5), [true, false, true], "the second writer has changed nothing of the first one");
        assert_eq!(merge(&mut log, another, 2, 8).dropped, 1);
        assert_eq!(has_news(&log, 7), [true; 3], "what the first writer wrote is gone");
        merge(&mut log, number, 2, 9);
        assert_eq!((has_news(&log, 7), has_news(&log, 8)), ([true; 3], [true, false, true]));
    }

    #[test]
    fn an_update_waits_from_the_tick_at_which_it_came_also_if_its_change_is_dated_later() {
        let (schemas, meters) = (Schemas::default(), ChannelMeters::default());
        let update = Any { type_url: "x".to_owned(), value: vec![8, 1].into() };
        for is_copy in [false, true] {
            let mut log = ChannelLog::new(1, ChannelType::Test);
            let merge = |log: &mut ChannelLog, tick| {
                let rules = (&schemas, MergeOptions::default(), StateLimits::default());
                match is_copy {
                    true => log.merge_copy((&update.type_url, &update.value), &[], rules, 1, tick),
                    false => log.merge(&update, usize::MAX, rules, 1, tick),
                }
            };
            merge(&mut log, Tick(10)).expect("there is room");
            log.count_waiting(&meters, Tick(0), Tick(10));
            log.seal();
            merge(&mut log, Tick(10)).expect("there is room");
            assert_eq!((log.last_change(), *log.waiting_since.get_mut()), (Tick(11), 10));
        }
    }

    #[test]
    fn a_new_state_needs_room_for_itself_too() {
        let schemas = Schemas::default();
        let update = Any { type_url: "x".to_owned(), value: vec![8, 1].into() };
        let rules = || (&schemas, MergeOptions::default(), StateLimits::default());
        let mut log = ChannelLog::new(1, ChannelType::Test);
        log.begin_empty("x", (None, MergeOptions::default(), StateLimits::default()), Tick(1));
        let room_bytes = log.size_bytes();
        log.clear();
        let merged = log.merge(&update, room_bytes, rules(), 1, Tick(2));
        assert!(matches!(merged, Err(MergeError::NoRoom { .. })) && log.data().is_none(), "{merged:?}");
        log.merge(&update, 2 * room_bytes, rules(), 1, Tick(2)).expect("there is room");
    }

    #[test]
    fn subscribers_may_ask_for_4095_different_masks_and_for_new_ones_when_old_ones_are_not_used() {
        let mut forms = Forms::default();
        let paths = |number: usize| [format!("{}", number + 1)];
        for number in 0..FORMS_MAX - 1 {
            assert!(!forms.is_full(), "after {number} masks");
            assert!(forms.add(&paths(number), None).is_ok());
        }
        assert!(forms.is_full());
        assert_eq!(forms.add(&paths(FORMS_MAX), None), Err(Refusal::Limit("masks")));
        forms.retain(&(2..FORMS_MAX as u16).map(Variant).collect());
        assert!(!forms.is_full() && forms.find(&paths(0), None).is_none());
        assert_eq!(forms.add(&paths(FORMS_MAX), None), Ok(Variant(1)));
        assert!(forms.is_full());
    }
}
