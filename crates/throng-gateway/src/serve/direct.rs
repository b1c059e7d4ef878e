//! A socket to which the engine's threads write directly, as long as the kernel accepts everything at once.
//!
//! A task for writing would have to be woken, which costs about as much as the write, and needs its own buffers for
//! each connection. So the task has the socket only while data is left over. Compression is always left to the task:
//! the engine would do it for one connection after the other.
//!
//! ```text
//!  Queue::send -- nothing waits --> Direct::write -- all taken: done
//!       |                               |
//!       | something waits               | some left: rest of a frame, entries
//!       v                               v
//!    pieces of the queue   <------------+     the task takes the socket with the rest, then piece after piece,
//!                                             writes all of it, and gives the socket back
//! ```

use std::cell::RefCell;
use std::sync::Arc;

use throng_channeld::{Compression, PacketWriter, Packets, frame};
use tokio::net::tcp::OwnedWriteHalf;

use super::counters::DoorCounters;
use super::manner::Manner;
use super::pieces;

/// The writing half of a TCP connection, and what is spoken over it.
pub(crate) struct Direct {
    pub(super) socket: OwnedWriteHalf,
    pub(super) counters: DoorCounters,
    pub(super) manner: Arc<Manner>,
    pub(super) packets_out: PacketWriter,
    /// The end of a frame of which the kernel has taken the beginning.
    pub(super) rest: Vec<u8>,
}

thread_local! {
    /// Where frames are put together: no connection needs memory of its own for that.
    static FRAME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Direct {
    pub(crate) fn new(socket: OwnedWriteHalf, counters: DoorCounters, manner: Arc<Manner>) -> Direct {
        Direct { socket, counters, manner, packets_out: PacketWriter::new(), rest: Vec::new() }
    }

    /// Whether what is written now costs no more than the write, and does not have to wait.
    pub(crate) fn is_prompt(&self) -> bool {
        self.rest.is_empty() && self.manner.compression() == Compression::None
    }

    /// Bytes of a frame that wait to be written.
    pub(crate) fn rest_bytes(&self) -> usize {
        self.rest.len()
    }

    /// Memory of the buffers for writing, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        pieces::held_bytes(&self.rest) + self.packets_out.held_bytes()
    }

    /// Writes what the kernel takes now, and says how many bytes of `entries` are dealt with. It has to be
    /// [prompt](Self::is_prompt); afterwards there may be a rest. Never waits. A socket that has failed takes nothing: the
    /// task will meet the error.
    pub(crate) fn write(&mut self, entries: &[u8]) -> usize {
        let mut packets = Packets::new(entries, frame::MAX_PAYLOAD_BYTES);
        FRAME.with_borrow_mut(|frame| {
            frame.clear();
            while self.packets_out.write_next(self.manner.dialect(), &mut packets, frame) {
                self.counters.get().count_sent(1, frame.len());
                let taken = self.try_write(frame);
                if taken < frame.len() {
                    self.rest.extend_from_slice(&frame[taken..]);
                    break;
                }
                frame.clear();
            }
        });
        self.counters.get().count_dropped(packets.dropped());
        match self.rest.is_empty() {
            true => entries.len(),
            false => entries.len() - packets.rest().len(),
        }
    }

    fn try_write(&self, frame: &[u8]) -> usize {
        let mut taken = 0;
        while taken < frame.len() {
            match self.socket.try_write(&frame[taken..]) {
                Ok(bytes) if bytes > 0 => taken += bytes,
                _ => break,
            }
        }
        taken
    }
}
