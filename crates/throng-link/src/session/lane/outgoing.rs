//! The sending half of a lane.

use std::collections::VecDeque;

use super::super::error::SendError;
use super::super::options::{LaneKind, LaneOptions};
use super::buffers::{Buffers, FIRST_MESSAGES};
use super::entry::{Entry, PIECE_BYTES, Part, PieceRun, piece_count};
use super::{RELIABLE_WINDOW, SendTally};

/// A message that has not been delivered in full.
#[derive(Debug)]
struct Message {
    /// Given back as soon as all pieces are delivered.
    bytes: Vec<u8>,
    length: u32,
    /// The first piece that was never sent.
    next_piece: u16,
    /// Pieces without *delivered* verdict.
    undelivered: u16,
}

/// Messages on their way out, oldest first.
#[derive(Debug)]
pub(super) struct Outgoing {
    messages: VecDeque<Message>,
    /// Number of the front message.
    base: u32,
    /// Messages from the front on whose pieces have all been sent once.
    begun_to: usize,
    /// Pieces whose packet was lost. A piece is never here twice, and never here while it is under way.
    resend: VecDeque<PieceRun>,
    queued_bytes: usize,
    /// Of an unreliable lane: the number of the newest message that was begun in parts. Whole ones and dropped ones need none, so that
    /// a number comes again only after 65,536 that have filled packets.
    parted: u16,
    /// Messages so far, at most [`FIRST_MESSAGES`] and one.
    pushed: u8,
    /// Virtual time of the fair share: what the lane has sent, divided by its weight.
    pub(super) pass: u64,
}

impl Outgoing {
    pub(super) fn new(first_message: u32) -> Outgoing {
        Outgoing {
            messages: VecDeque::new(),
            base: first_message,
            begun_to: 0,
            resend: VecDeque::new(),
            queued_bytes: 0,
            parted: (first_message as u16).wrapping_sub(1),
            pushed: 0,
            pass: 0,
        }
    }

    /// Number of the front message, or of the next one.
    pub(super) fn first_undelivered(&self) -> u32 {
        self.base
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Whether something can be written now.
    pub(super) fn is_due(&self) -> bool {
        !self.resend.is_empty() || self.begun_to < self.messages.len().min(RELIABLE_WINDOW)
    }

    pub(super) fn push(
        &mut self,
        options: &LaneOptions,
        content: &[u8],
        buffers: &mut Buffers,
        tally: &mut SendTally,
    ) -> Result<u32, SendError> {
        if content.len() > options.message_bytes {
            return Err(SendError::TooLarge { bytes: content.len(), limit: options.message_bytes });
        }
        while !self.has_room(options, content.len()) {
            if options.kind != LaneKind::Unreliable || !self.drop_oldest(buffers) {
                return Err(SendError::QueueFull);
            }
            tally.dropped += 1;
        }
        let number = self.base.wrapping_add(self.messages.len() as u32);
        self.queued_bytes += content.len();
        self.pushed = self.pushed.saturating_add(1).min(FIRST_MESSAGES + 1);
        self.messages.push_back(Message {
            bytes: buffers.filled(content),
            length: content.len() as u32,
            next_piece: 0,
            undelivered: piece_count(content.len()) as u16,
        });
        Ok(number)
    }

    fn has_room(&self, options: &LaneOptions, bytes: usize) -> bool {
        self.messages.len() < options.queue_messages && self.queued_bytes + bytes <= options.queue_bytes
    }

    /// Drops all messages of an unreliable lane. Returns how many.
    pub(super) fn drop_all(&mut self, buffers: &mut Buffers) -> u64 {
        let dropped = self.messages.len() as u64;
        while self.drop_oldest(buffers) {}
        dropped
    }

    /// Drops the oldest message, begun or not: its rest would come too late.
    fn drop_oldest(&mut self, buffers: &mut Buffers) -> bool {
        let Some(message) = self.messages.pop_front() else { return false };
        self.queued_bytes -= message.length as usize;
        self.base = self.base.wrapping_add(1);
        buffers.give_back(message.bytes);
        true
    }

    /// Appends one entry of at most `room` bytes: pieces to be sent again before new ones. Returns the pieces in it.
    pub(super) fn write(
        &mut self,
        kind: LaneKind,
        lane: u8,
        room: usize,
        out: &mut Vec<u8>,
        buffers: &mut Buffers,
    ) -> Option<PieceRun> {
        let is_resend = !self.resend.is_empty();
        let wanted = self.next_run(lane)?;
        let message = &self.messages[wanted.number.wrapping_sub(self.base) as usize];
        let run = fit(kind, wanted, message.bytes.len(), room)?;
        let mut entry = entry(kind, run, &message.bytes);
        if kind == LaneKind::Unreliable && entry.part.is_some() {
            self.parted = self.parted.wrapping_add(u16::from(run.first == 0));
            entry.number = Some(self.parted);
        }
        entry.write(out);
        if is_resend {
            self.take_from_resend(run.count);
        } else {
            self.take_from_new(kind, run.count, buffers);
        }
        Some(run)
    }

    fn next_run(&self, lane: u8) -> Option<PieceRun> {
        if let Some(&run) = self.resend.front() {
            return Some(run);
        }
        if self.begun_to >= RELIABLE_WINDOW {
            return None;
        }
        let message = self.messages.get(self.begun_to)?;
        let count = piece_count(message.bytes.len()) as u16 - message.next_piece;
        let number = self.base.wrapping_add(self.begun_to as u32);
        Some(PieceRun { lane, number, first: message.next_piece, count })
    }

    fn take_from_resend(&mut self, count: u16) {
        if let Some(run) = self.resend.front_mut() {
            run.first += count;
            run.count -= count;
            if run.count == 0 {
                self.resend.pop_front();
            }
        }
    }

    fn take_from_new(&mut self, kind: LaneKind, count: u16, buffers: &mut Buffers) {
        let message = &mut self.messages[self.begun_to];
        message.next_piece += count;
        if usize::from(message.next_piece) < piece_count(message.length as usize) {
            return;
        }
        if kind == LaneKind::Unreliable {
            self.drop_oldest(buffers);
        } else {
            self.begun_to += 1;
        }
    }

    /// The packet with these pieces has arrived.
    pub(super) fn on_delivered(&mut self, run: PieceRun, buffers: &mut Buffers) {
        let Some(message) = self.messages.get_mut(run.number.wrapping_sub(self.base) as usize) else { return };
        message.undelivered = message.undelivered.saturating_sub(run.count);
        if message.undelivered == 0 {
            buffers.give_back(std::mem::take(&mut message.bytes));
        }
        while self.messages.front().is_some_and(|message| message.undelivered == 0) {
            self.drop_oldest(buffers);
            self.begun_to -= 1;
        }
        if self.messages.is_empty() && self.pushed <= FIRST_MESSAGES {
            self.messages = VecDeque::new();
        }
    }

    /// The packet with these pieces is lost. Returns the bytes that will be sent again.
    pub(super) fn on_lost(&mut self, run: PieceRun) -> usize {
        let Some(message) = self.messages.get(run.number.wrapping_sub(self.base) as usize) else { return 0 };
        self.resend.push_back(run);
        run.range(message.length as usize).len()
    }
}

/// As much of a run as fits in `room` together with its head.
fn fit(kind: LaneKind, run: PieceRun, message_bytes: usize, room: usize) -> Option<PieceRun> {
    let is_whole = run.range(message_bytes).len() == message_bytes;
    let has_number = kind != LaneKind::Unreliable;
    if is_whole && Entry::head_bytes(has_number, None, message_bytes) + message_bytes <= room {
        return Some(run);
    }
    let head_bytes = Entry::head_bytes(true, Some(message_bytes), room);
    let content_room = room.checked_sub(head_bytes)?;
    let mut count = run.count.min((content_room / PIECE_BYTES).min(usize::from(u16::MAX)) as u16);
    // The last piece of a message may be short enough where a full one is not.
    let one_more = PieceRun { count: count + 1, ..run };
    if count < run.count && one_more.range(message_bytes).len() <= content_room {
        count += 1;
    }
    let run = PieceRun { count, ..run };
    let length = run.range(message_bytes).len();
    (count > 0 && length < message_bytes).then_some(run)
}

fn entry(kind: LaneKind, run: PieceRun, message: &[u8]) -> Entry<'_> {
    let bytes = &message[run.range(message.len())];
    let number = Some(run.number as u16);
    if bytes.len() == message.len() {
        let number = number.filter(|_| kind != LaneKind::Unreliable);
        return Entry { lane: run.lane, number, part: None, bytes };
    }
    Entry { lane: run.lane, number, part: Some(Part { first: run.first, message_bytes: message.len() as u32 }), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_never_exceeds_its_room() {
        for kind in [LaneKind::ReliableOrdered, LaneKind::Unreliable] {
            for message_bytes in [0usize, 1, 126, 127, 128, 255, 256, 257, 300, 512, 513, 1180, 5000] {
                let message = vec![1; message_bytes];
                let run = PieceRun { lane: 0, number: 0, first: 0, count: piece_count(message_bytes) as u16 };
                for room in 0..1200 {
                    let Some(run) = fit(kind, run, message_bytes, room) else { continue };
                    let mut out = Vec::new();
                    entry(kind, run, &message).write(&mut out);
                    assert!(out.len() <= room, "{} bytes of {message_bytes} in {room}", out.len());
                }
                assert!(fit(kind, run, message_bytes, 280).is_some(), "{message_bytes} bytes never begin");
            }
        }
    }
}
