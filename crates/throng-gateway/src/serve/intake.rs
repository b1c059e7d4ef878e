//! From the bytes of one connection to messages for the engine: framed, decompressed, checked, and rate-limited.
//!
//! ```text
//!   bytes --> rate --> frame --> unpack --> messages --> batch --> rate --> engine
//!                                                          '--- full: handed over, and the next one begun
//! ```
//! With several engines, each message goes to the engine of its channel. Until the peer has logged in, the first engine
//! takes everything, and passes on what is for others. Then the intake asks the first engine for the connection's
//! [session](Session), behind everything that was said so far, and waits for it: nothing is overtaken.
//!
//! One packet may hold a quarter of a million messages. They reach the engine in batches of a bounded size, and the
//! rate limit is checked before each batch: a peer that sends too much waits exactly until it is below the limit again.
//! Only its own connection is not read meanwhile.
//!
//! Before login, a peer may use [`stranger_bytes`](super::options::DoorLimits::stranger_bytes) in all. If a packet does
//! not fit, it is refused if nothing came before. Otherwise it waits until the peer has logged in: some peers send more
//! data behind their login without waiting for the answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use throng_channeld::{CompressionError, Frame, FrameError, FrameReader, Message, Messages, decompress};
use throng_wire::Time;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::counters::{Reason, add};
use super::door::Door;
use super::end::End;
use super::event::{Batch, Event, To};
use super::manner::Manner;
use super::memory::{Holding, Part};
use super::options::DoorLimits;
use super::outbox::Queue;
use super::rate::Rate;
use super::ration::Party;
use super::record::Recording;
use throng_gateway_engine::port::{Key, Side};
use throng_gateway_engine::shards::{Route, Session};

/// The most messages that the engine is handed at once.
const BATCH_MESSAGES: usize = 64;
/// Bytes of messages after which a batch is handed over. One message may be longer.
const BATCH_BYTES: usize = 64 << 10;
/// A buffer of so much is part of what a connection costs.
const FREE_BYTES: usize = 4 << 10;
/// The longest sleep in one piece: after it, limits that have changed meanwhile count.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How long a peer that has said more than a stranger may is waited for. No provider takes longer to decide, and the
/// engine's own patience is mostly shorter.
const ADMISSION_MAX: Duration = Duration::from_secs(60);

/// The reading half of a connection.
pub(crate) struct Intake {
    door: Arc<Door>,
    party: Party<'static>,
    key: Key,
    queue: Arc<Queue>,
    manner: Arc<Manner>,
    /// As of the last change: all connections of a door read them, so each has a copy of its own.
    limits: Arc<DoorLimits>,
    changes: watch::Receiver<Arc<DoorLimits>>,
    reader: FrameReader,
    messages: Rate,
    bytes: Rate,
    /// The bytes of a peer before login, uncompressed. `None` once it is none any more.
    stranger_bytes: Option<usize>,
    batch: Batch,
    batch_bytes: usize,
    /// With several engines, once it has logged in: sorts what it says.
    session: Option<Box<Session>>,
    /// Settings were read again, and the session has the rules of before.
    is_session_old: bool,
    recording: Option<Recording>,
    /// The packets that it sent before it was logged in: strangers leave no file.
    unrecorded: Vec<(Time, Bytes)>,
    has_recorded: bool,
    /// The memory of its buffer and of the packet that is being parsed.
    holding: Holding,
}

impl Intake {
    /// Of a connection that came through this door from this address; the engine knows it by this key and this number.
    pub(crate) fn new(
        door: &Arc<Door>,
        (key, connection, address): (Key, u32, SocketAddr),
        queue: &Arc<Queue>,
        manner: &Arc<Manner>,
    ) -> Intake {
        let door = Arc::clone(door);
        let now = door.now();
        let mut changes = door.follow_limits();
        let limits = Arc::clone(&changes.borrow_and_update());
        Intake {
            reader: FrameReader::with_limit(limits.payload_bytes.min(limits.stranger_bytes)),
            messages: Rate::new(limits.messages_per_s, limits.burst_messages, now),
            bytes: Rate::new(limits.bytes_per_s, limits.burst_bytes, now),
            limits,
            changes,
            stranger_bytes: Some(0),
            batch: Batch::new(),
            batch_bytes: 0,
            session: None,
            is_session_old: false,
            recording: None,
            unrecorded: Vec::new(),
            has_recorded: false,
            holding: Holding::new(door.memory(), Part::Inbound, 0),
            party: Party { connection: Some(connection), ..Party::of(door.side, address) },
            door,
            key,
            queue: Arc::clone(queue),
            manner: Arc::clone(manner),
        }
    }

    /// Where bytes are read into.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        self.reader.room()
    }

    /// Appends bytes that came otherwise.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.reader.push(bytes).map_err(|_| End::Refused(Reason::FrameTooLong))
    }

    /// A control frame of the transport, which the gateway may have to answer: it counts as a message and by its bytes, so that
    /// nobody sends them faster than messages, and a stranger no more of them.
    pub(crate) async fn take_control(&mut self, bytes: usize) -> Result<(), End> {
        add(&self.door.counters().bytes_in, bytes);
        self.pace(1, bytes).await;
        if bytes > self.unpacked_bytes() {
            return Err(End::Refused(Reason::Stranger));
        }
        if let Some(said) = &mut self.stranger_bytes {
            *said += bytes;
        }
        Ok(())
    }

    /// Hands what has come to the engine, `bytes` of it new. Waits for room there, and as long as the peer is too fast.
    ///
    /// All that came before a fault counts, however the peer's bytes came in pieces.
    pub(crate) async fn take(&mut self, bytes: usize) -> Result<(), End> {
        add(&self.door.counters().bytes_in, bytes);
        self.pace(0, bytes).await;
        let taken = self.take_frames().await;
        self.hand_over().await?;
        taken?;
        self.count_buffer()
    }

    async fn take_frames(&mut self) -> Result<(), End> {
        while let Some(frame) = self.next_frame().await? {
            self.manner.learn(self.reader.dialect(), frame.compression);
            let frame_bytes = frame.payload.len();
            let packet = self.unpack(frame).await?;
            self.count_held(packet.len());
            // Bytes cost more once they are unpacked: they are parsed, merged and passed on.
            self.pace(0, packet.len().saturating_sub(frame_bytes)).await;
            self.take_packet(packet).await?;
        }
        if self.reader.buffered_bytes() > 0 {
            add(&self.door.counters().packets_frag, 1);
        }
        Ok(())
    }

    /// Counts what is held while the connection waits: the buffer, and the packet that is being taken apart.
    fn count_held(&mut self, packet_bytes: usize) -> usize {
        let buffered_bytes = self.reader.buffered_bytes() + packet_bytes;
        let counted_bytes = if buffered_bytes > FREE_BYTES { buffered_bytes } else { 0 };
        self.holding.set(counted_bytes);
        counted_bytes
    }

    /// Counts what waits for the rest of its frame. No client begins a long one while there is no memory for it. A world
    /// server is never ended for that: there are few, and the world hangs on each.
    fn count_buffer(&mut self) -> Result<(), End> {
        let counted_bytes = self.count_held(0);
        let is_client = self.door.side == Side::Client;
        match is_client && counted_bytes > 0 && !self.door.memory().has_room(Side::Client) {
            true => Err(End::Refused(Reason::NoMemory)),
            false => Ok(()),
        }
    }

    /// The same for a transport with separate packets: one payload, not compressed.
    pub(crate) async fn take_payload(&mut self, payload: Bytes) -> Result<(), End> {
        add(&self.door.counters().bytes_in, payload.len());
        self.count_held(payload.len());
        self.pace(0, payload.len()).await;
        if payload.len() > self.unpacked_bytes() {
            self.await_admission(Reason::FrameTooLong, payload.len()).await?;
        }
        let taken = self.take_packet(payload).await;
        self.hand_over().await?;
        self.count_held(0);
        taken
    }

    /// The next frame that has come whole. One that is too long for a stranger waits for admission.
    async fn next_frame(&mut self) -> Result<Option<Frame>, End> {
        loop {
            let limit_bytes = self.unpacked_bytes().min(self.limits.payload_bytes);
            self.reader.set_limit(limit_bytes);
            match self.reader.next_frame() {
                Ok(frame) => return Ok(frame),
                Err(FrameError::TooLong { payload_bytes, .. }) if payload_bytes <= self.limits.payload_bytes => {
                    self.await_admission(Reason::FrameTooLong, 0).await?;
                }
                Err(error) => return Err(End::Refused(reason_of_frame(error))),
            }
        }
    }

    /// The same for what a frame unpacks to.
    async fn unpack(&mut self, frame: Frame) -> Result<Bytes, End> {
        loop {
            match decompress(frame.compression, frame.payload.clone(), self.unpacked_bytes()) {
                Ok(packet) => return Ok(packet),
                Err(CompressionError::TooLong { declared_bytes, .. })
                    if declared_bytes <= self.limits.unpacked_bytes =>
                {
                    self.await_admission(Reason::UnpackedTooLong, frame.payload.len()).await?;
                }
                Err(error) => return Err(End::Refused(reason_of_payload(error))),
            }
        }
    }

    /// The longest packet that may come next.
    fn unpacked_bytes(&mut self) -> usize {
        if self.queue.is_admitted() {
            self.stranger_bytes = None;
        }
        let limits = &self.limits;
        match self.stranger_bytes {
            Some(said) => limits.stranger_bytes.saturating_sub(said).min(limits.unpacked_bytes),
            None => limits.unpacked_bytes,
        }
    }

    /// Waits for the login of a peer that has sent all that it may send before login. A peer that has sent nothing yet
    /// is refused for `reason`, because it cannot log in any more. `packet_bytes` are held meanwhile beside the buffer.
    async fn await_admission(&mut self, reason: Reason, packet_bytes: usize) -> Result<(), End> {
        if matches!(self.stranger_bytes, Some(0) | None) {
            return Err(End::Refused(reason));
        }
        self.hand_over().await?;
        self.count_held(packet_bytes);
        timeout(ADMISSION_MAX, self.queue.admitted()).await.map_err(|_| End::Refused(Reason::Stranger))
    }

    /// Takes a packet apart. Messages before a malformed one count; the connection ends with the malformed one.
    async fn take_packet(&mut self, packet: Bytes) -> Result<(), End> {
        add(&self.door.counters().packets_in, 1);
        self.record(&packet);
        if let Some(said) = &mut self.stranger_bytes {
            *said += packet.len();
        }
        for (number, message) in Messages::new(packet).enumerate() {
            let message = message.map_err(|_| End::Refused(Reason::BadPacket))?;
            if number == 1 {
                add(&self.door.counters().packets_comb, 1);
            }
            self.batch_bytes += message.body.len() + size_of::<Message>();
            self.batch.push(message);
            if self.batch.len() >= BATCH_MESSAGES || self.batch_bytes >= BATCH_BYTES {
                self.hand_over().await?;
            }
        }
        Ok(())
    }

    /// Hands the batch to the engine, when the rate lets it pass and there is room.
    async fn hand_over(&mut self) -> Result<(), End> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.pace(self.batch.len(), 0).await;
        let (batch, bytes) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.batch_bytes));
        if self.door.events().engine_count() > 1 {
            // In memory of its own: with one engine, the task of a connection has no room for it.
            return Box::pin(self.hand_over_sorted(batch, bytes)).await;
        }
        self.door.events().messages(To::First, self.key, (batch, bytes)).await.map_err(|_| End::Gone)
    }

    async fn hand_over_sorted(&mut self, batch: Batch, bytes: usize) -> Result<(), End> {
        match self.is_sorted().await? {
            true => self.sort(batch).await,
            false => self.door.events().messages(To::First, self.key, (batch, bytes)).await.map_err(|_| End::Gone),
        }
    }

    /// Whether the peer has a session. It gets one once it has logged in, and new rules for it when the engine has new settings: the
    /// engine heard of these before the door did.
    async fn is_sorted(&mut self) -> Result<bool, End> {
        let is_old = std::mem::take(&mut self.is_session_old);
        if is_old || self.session.is_none() && self.queue.is_admitted() {
            let (reply, answer) = oneshot::channel();
            self.door.events().send(Event::Fence { key: self.key, reply }).map_err(|_| End::Gone)?;
            let newer = answer.await.map_err(|_| End::Gone)?;
            match (&mut self.session, newer) {
                (Some(session), Some(newer)) => session.take_rules_of(&newer),
                // The engine has ended the connection.
                (Some(_), None) => {}
                (None, newer) => self.session = newer.map(Box::new),
            }
        }
        Ok(self.session.is_some())
    }

    /// Hands each message to its engine: those for one engine together, in their order.
    async fn sort(&mut self, batch: Batch) -> Result<(), End> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let events = self.door.events();
        let mut parts: SmallVec<[(Batch, usize); 4]> = SmallVec::new();
        parts.resize_with(events.engine_count(), Default::default);
        let mut add = |engine: usize, message: Message| {
            if let Some((part, bytes)) = parts.get_mut(engine) {
                *bytes += message.body.len() + size_of::<Message>();
                part.push(message);
            }
        };
        for message in batch {
            match session.route(&message) {
                Route::To(engine) => add(engine as usize, message),
                Route::ToAll => (0..events.engine_count()).for_each(|engine| add(engine, message.clone())),
                Route::Forbidden => events.send(Event::Violated { key: self.key }).map_err(|_| End::Gone)?,
            }
        }
        for (engine, part) in (0..).zip(parts) {
            if !part.0.is_empty() {
                events.messages(To::Sorted(engine), self.key, part).await.map_err(|_| End::Gone)?;
            }
        }
        Ok(())
    }

    /// Waits until so much more may pass. The caller drops it when the connection or the gateway ends.
    async fn pace(&mut self, messages: usize, bytes: usize) {
        self.follow_limits();
        let mut now = self.door.now();
        self.messages.take(now, messages);
        self.bytes.take(now, bytes);
        let mut is_counted = false;
        while let Some(wait) = self.messages.wait(now).max(self.bytes.wait(now)) {
            if !std::mem::replace(&mut is_counted, true) {
                self.door.refuse(&self.party, Reason::TooFast);
            }
            sleep(wait.min(SLEEP_MAX)).await;
            self.follow_limits();
            now = self.door.now();
        }
    }

    fn follow_limits(&mut self) {
        if self.changes.has_changed().unwrap_or(false) {
            self.limits = Arc::clone(&self.changes.borrow_and_update());
            self.is_session_old = self.session.is_some();
            let (limits, now) = (&self.limits, self.door.now());
            self.messages.set(limits.messages_per_s, limits.burst_messages, now);
            self.bytes.set(limits.bytes_per_s, limits.burst_bytes, now);
        }
    }

    /// Recordings begin with the first packet, and are written once the peer has logged in.
    fn record(&mut self, packet: &Bytes) {
        // An empty packet costs a stranger none of its bytes, and would take memory here.
        if packet.is_empty() || self.door.recorder().is_none() {
            return;
        }
        self.unrecorded.push((self.door.now(), packet.clone()));
        self.write_recording();
    }

    fn write_recording(&mut self) {
        let Some(&(began, _)) = self.unrecorded.first().filter(|_| self.queue.is_admitted()) else { return };
        if !std::mem::replace(&mut self.has_recorded, true) {
            self.recording = self.door.recorder().and_then(|recorder| recorder.begin(began));
        }
        for (now, packet) in self.unrecorded.drain(..) {
            if let Some(recording) = &mut self.recording {
                recording.write(now, &packet);
            }
        }
    }
}

impl Drop for Intake {
    /// Its login may have been all that it said.
    fn drop(&mut self) {
        self.write_recording();
    }
}

fn reason_of_frame(error: FrameError) -> Reason {
    match error {
        FrameError::TooLong { .. } => Reason::FrameTooLong,
        _ => Reason::BadFrame,
    }
}

fn reason_of_payload(error: CompressionError) -> Reason {
    match error {
        CompressionError::TooLong { .. } => Reason::UnpackedTooLong,
        _ => Reason::BadCompression,
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Recorder, RecordingOptions};
    use super::*;

    #[test]
    fn empty_packets_of_strangers_take_no_memory_for_a_recording() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = RecordingOptions { folder: folder.path().into(), session_bytes: 1 << 20, sessions: 1 };
        let recorder = Recorder::new(options, Arc::default()).expect("the folder can be made");
        let mut door = Door::alone(Side::Client);
        Arc::get_mut(&mut door).expect("nobody else has it").shared.recorder = Some(Arc::clone(&recorder));
        let queue = Queue::new(Arc::default(), None, (door.memory(), 0));
        let peer = (Key { index: 1, generation: 1 }, 1, SocketAddr::from(([203, 0, 113, 1], 9)));
        let mut intake = Intake::new(&door, peer, &queue, &Arc::default());
        (0..1_000).for_each(|_| intake.record(&Bytes::new()));
        assert_eq!(intake.unrecorded.capacity(), 0);
        intake.record(&Bytes::from_static(b"a"));
        assert_eq!(intake.unrecorded.len(), 1);
        recorder.finish();
    }
}
