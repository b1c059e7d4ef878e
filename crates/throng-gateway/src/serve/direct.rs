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
use std::io;
use std::sync::Arc;

use throng_channeld::{Compression, PacketWriter, Packets, frame};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;

use super::door::{Door, End, Manner};
use super::outbox::Queue;
use super::pieces;

/// The writing half of a TCP connection, and what is spoken over it.
pub(crate) struct Direct {
    socket: OwnedWriteHalf,
    door: Arc<Door>,
    manner: Arc<Manner>,
    packets_out: PacketWriter,
    /// The end of a frame of which the kernel has taken the beginning.
    rest: Vec<u8>,
}

thread_local! {
    /// Where frames are put together: no connection needs memory of its own for that.
    static FRAME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Direct {
    pub(crate) fn new(socket: OwnedWriteHalf, door: Arc<Door>, manner: Arc<Manner>) -> Direct {
        Direct { socket, door, manner, packets_out: PacketWriter::new(), rest: Vec::new() }
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
                self.door.counters().count_sent(1, frame.len());
                let taken = self.try_write(frame);
                if taken < frame.len() {
                    self.rest.extend_from_slice(&frame[taken..]);
                    break;
                }
                frame.clear();
            }
        });
        self.door.counters().count_dropped(packets.dropped());
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

    /// Writes the rest and all that waits, however long the peer takes.
    async fn write_all(&mut self, queue: &Queue) -> io::Result<()> {
        queue.writing(self.socket.write_all(&self.rest)).await?;
        queue.written(self.rest.len());
        self.rest = Vec::new();
        while let Some(entries) = queue.take() {
            self.write_entries(&entries, queue).await?;
        }
        self.rest = Vec::new();
        Ok(())
    }

    async fn write_entries(&mut self, entries: &[u8], queue: &Queue) -> io::Result<()> {
        self.packets_out.follow(self.manner.compression());
        let mut packets = Packets::new(entries, frame::MAX_PAYLOAD_BYTES);
        let mut left = entries.len();
        loop {
            self.rest.clear();
            self.rest.reserve_exact(left.min(frame::MAX_PAYLOAD_BYTES) + frame::HEADER_BYTES);
            if !self.packets_out.write_next(self.manner.dialect(), &mut packets, &mut self.rest) {
                break;
            }
            queue.hold(self.held_bytes());
            self.door.counters().count_sent(1, self.rest.len());
            queue.writing(self.socket.write_all(&self.rest)).await?;
            queue.written(left - packets.rest().len());
            left = packets.rest().len();
        }
        queue.written(left);
        self.door.counters().count_dropped(packets.dropped());
        Ok(())
    }
}

/// Writes what the engine's threads leave over, until the connection is to end.
pub(crate) async fn write_behind(queue: &Queue) -> End {
    while let Some(mut direct) = queue.backlog().await {
        if direct.write_all(queue).await.is_err() {
            return End::Lost;
        }
        queue.attach(direct);
    }
    if let Some(mut direct) = queue.take_socket() {
        // The peer may read what has gone out before it sees the end.
        let _ = direct.socket.shutdown().await;
    }
    End::Done
}

#[cfg(test)]
mod tests {
    use throng_channeld::Dialect;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::serve::outbox::Outbox;
    use throng_gateway_engine::port::{Outbox as _, Side};

    /// An entry of a packet.
    const ENTRY: [u8; 4] = [10, 2, 8, 1];

    #[tokio::test]
    async fn what_has_to_be_compressed_is_left_to_the_task() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("it is bound")).await.expect("it listens");
        let (_reader, writer) = stream.into_split();
        let (queue, manner) =
            (Queue::new(Arc::new(1_000.into()), None, (&Arc::default(), 0)), Arc::<Manner>::default());
        queue.attach(Direct::new(writer, Door::alone(Side::Client), Arc::clone(&manner)));
        let outbox = Outbox(Arc::clone(&queue));
        manner.learn(Dialect::Fixed, Compression::None);
        outbox.send(&mut ENTRY.to_vec());
        assert_eq!(outbox.queued_bytes(), 0, "the kernel has it");
        manner.learn(Dialect::Fixed, Compression::Snappy);
        outbox.send(&mut ENTRY.to_vec());
        assert_eq!(outbox.queued_bytes(), ENTRY.len());
        let _direct = queue.backlog().await.expect("it waits for the task");
        assert_eq!(&queue.take().expect("it waits")[..], ENTRY);
    }
}
