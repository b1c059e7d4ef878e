//! The task that writes what the engine's threads leave over.

use std::io;

use throng_channeld::{Packets, frame};
use tokio::io::AsyncWriteExt;

use super::direct::Direct;
use super::end::End;
use super::outbox::Queue;

/// Writes what the engine's threads leave over, until the connection is to end.
pub(crate) async fn write_behind(queue: &Queue) -> End {
    while let Some(mut direct) = queue.backlog().await {
        if write_all(&mut direct, queue).await.is_err() {
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

/// Writes the rest and all that waits, however long the peer takes.
async fn write_all(direct: &mut Direct, queue: &Queue) -> io::Result<()> {
    queue.writing(direct.socket.write_all(&direct.rest)).await?;
    queue.written(direct.rest.len());
    direct.rest = Vec::new();
    while let Some(entries) = queue.take() {
        write_entries(direct, &entries, queue).await?;
    }
    direct.rest = Vec::new();
    Ok(())
}

async fn write_entries(direct: &mut Direct, entries: &[u8], queue: &Queue) -> io::Result<()> {
    direct.packets_out.follow(direct.manner.compression());
    let mut packets = Packets::new(entries, frame::MAX_PAYLOAD_BYTES);
    let mut left = entries.len();
    loop {
        direct.rest.clear();
        direct.rest.reserve_exact(left.min(frame::MAX_PAYLOAD_BYTES) + frame::HEADER_BYTES);
        if !direct.packets_out.write_next(direct.manner.dialect(), &mut packets, &mut direct.rest) {
            break;
        }
        queue.hold(direct.held_bytes());
        direct.counters.get().count_sent(1, direct.rest.len());
        queue.writing(direct.socket.write_all(&direct.rest)).await?;
        queue.written(left - packets.rest().len());
        left = packets.rest().len();
    }
    queue.written(left);
    direct.counters.get().count_dropped(packets.dropped());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use throng_channeld::{Compression, Dialect};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::serve::counters::ShellCounters;
    use crate::serve::manner::Manner;
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
        queue.attach(Direct::new(writer, Arc::<ShellCounters>::default().at(Side::Client), Arc::clone(&manner)));
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
