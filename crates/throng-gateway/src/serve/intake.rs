//! From the bytes of one connection to messages for the engine: framed, unpacked, checked, and not too fast.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use throng_channeld::{CompressionError, FrameError, FrameReader, Messages, decompress};
use tokio::time::sleep;

use super::counters::{Reason, add};
use super::door::{Door, End, Manner};
use super::event::Batch;
use super::rate::Rate;
use super::record::Recording;
use crate::engine::port::Key;

/// The reading half of a connection.
pub(crate) struct Intake {
    door: Arc<Door>,
    key: Key,
    manner: Arc<Manner>,
    reader: FrameReader,
    messages: Rate,
    bytes: Rate,
    recording: Option<Recording>,
}

impl Intake {
    pub(crate) fn new(door: Arc<Door>, key: Key, manner: Arc<Manner>) -> Intake {
        let now = door.now();
        Intake {
            reader: FrameReader::with_limit(door.limits.payload_bytes),
            messages: Rate::new(door.limits.messages_per_s, door.limits.burst_messages, now),
            bytes: Rate::new(door.limits.bytes_per_s, door.limits.burst_bytes, now),
            recording: door.recorder().and_then(|recorder| recorder.begin(now)),
            door,
            key,
            manner,
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

    /// Hands what has come to the engine, `bytes` of it new. Waits for room there, and as long as the peer is too fast.
    pub(crate) async fn take(&mut self, bytes: usize) -> Result<(), End> {
        add(&self.door.counters().bytes_in, bytes);
        let batch = self.frames().map_err(End::Refused)?;
        self.hand_over(batch, bytes).await
    }

    /// The same for a transport that keeps packets apart by itself: one payload, not packed.
    pub(crate) async fn take_payload(&mut self, payload: Bytes) -> Result<(), End> {
        let bytes = payload.len();
        add(&self.door.counters().bytes_in, bytes);
        add(&self.door.counters().packets_in, 1);
        if let Some(recording) = &mut self.recording {
            recording.write(self.door.now(), &payload);
        }
        let mut batch = Batch::new();
        read_packet(payload, &mut batch).map_err(End::Refused)?;
        self.hand_over(batch, bytes).await
    }

    async fn hand_over(&mut self, batch: Batch, bytes: usize) -> Result<(), End> {
        let now = self.door.now();
        let wait = self.messages.take(now, batch.len()).max(self.bytes.take(now, bytes));
        if !batch.is_empty() {
            let held_bytes = bytes + batch.len() * size_of::<throng_channeld::Message>();
            self.door.events().messages(self.key, batch, held_bytes).await.map_err(|_| End::Gone)?;
        }
        if let Some(wait) = wait {
            self.door.counters().refuse(Reason::TooFast);
            sleep(wait.min(WAIT_MAX)).await;
        }
        Ok(())
    }

    fn frames(&mut self) -> Result<Batch, Reason> {
        let counters = self.door.counters();
        let mut batch = Batch::new();
        while let Some(frame) = self.reader.next_frame().map_err(reason_of_frame)? {
            self.manner.learn(self.reader.dialect(), frame.compression);
            let payload = decompress(frame.compression, frame.payload, self.door.limits.unpacked_bytes);
            let payload = payload.map_err(reason_of_payload)?;
            if let Some(recording) = &mut self.recording {
                recording.write(self.door.now(), &payload);
            }
            read_packet(payload, &mut batch)?;
            add(&counters.packets_in, 1);
        }
        if self.reader.buffered_bytes() > 0 {
            add(&counters.packets_frag, 1);
        }
        Ok(batch)
    }
}

/// Nobody is kept waiting for longer in one piece, so that a clock that jumps does not silence a peer.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// All of a packet's messages, or none.
fn read_packet(payload: Bytes, batch: &mut Batch) -> Result<(), Reason> {
    for message in Messages::new(payload) {
        batch.push(message.map_err(|_| Reason::BadPacket)?);
    }
    Ok(())
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
