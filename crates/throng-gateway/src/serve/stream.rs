//! Connections that are streams of bytes: TCP, TLS over it, KCP.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use throng_channeld::{PacketWriter, Packets, frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use super::counters::SideCounters;
use super::direct::Direct;
use super::end::End;
use super::intake::Intake;
use super::life::{Ended, Opened, Pass};
use super::manner::Manner;
use super::outbox::Queue;
use super::pieces;
use super::write_behind::write_behind;
use throng_gateway_engine::port::Side;

/// The life of a connection, until it is over for the engine. `None`: the engine had no room for it. `at_end` is what it
/// means that nothing more can be read.
pub(crate) async fn serve<R, W>(pass: Pass, reader: &mut R, mut writer: W, at_end: End) -> Option<Ended>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let opened = pass.open().await?;
    let door = Arc::clone(&opened.pass.door);
    let mut intake = opened.intake();
    let out = Out { queue: Arc::clone(&opened.queue), manner: Arc::clone(&opened.manner), counters: door.counters() };
    let read = pin!(read(reader, &mut intake, at_end));
    let write = pin!(write(&mut writer, &out));
    Some(Opened::run(opened, read, write).await)
}

/// The same over a socket, to the end of which belongs that the peer closes it too.
pub(crate) async fn serve_to_the_end<R, W>(pass: Pass, mut reader: R, writer: W)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    // Sessions of TLS have an end of their own.
    if let Some(ended) = serve(pass, &mut reader, writer, End::PeerClosed).await {
        ended.linger(discard(&mut reader, ended.patience())).await;
    }
}

/// The same for a socket that the engine's threads write to themselves.
pub(crate) async fn serve_socket(pass: Pass, stream: TcpStream) {
    let (mut reader, writer) = stream.into_split();
    let Some(opened) = pass.open().await else { return };
    opened.queue.attach(Direct::new(writer, opened.pass.door.side_counters(), Arc::clone(&opened.manner)));
    let ended = {
        let mut intake = opened.intake();
        let queue = Arc::clone(&opened.queue);
        let read = pin!(read(&mut reader, &mut intake, end_without_farewell(opened.pass.door.side)));
        let write = pin!(write_behind(&queue));
        Opened::run(opened, read, write).await
    };
    ended.linger(discard(&mut reader, ended.patience())).await;
}

/// The meaning of the end of a connection without sessions. The kernel of a process that is killed ends its connections
/// in the same way as one that closes them: a server may come back. For clients that makes no difference.
pub(crate) fn end_without_farewell(side: Side) -> End {
    match side {
        Side::Server => End::Lost,
        Side::Client => End::PeerClosed,
    }
}

/// Reads to the end, or until nothing comes for so long, and throws away what comes.
async fn discard<R: AsyncRead + Unpin>(reader: &mut R, silence: Duration) {
    // Not in the task itself, which would have room for them all the time.
    let mut bytes = vec![0; DISCARDED_BYTES];
    while matches!(timeout(silence, reader.read(&mut bytes)).await, Ok(Ok(1..))) {}
}

/// Bytes that are thrown away at once.
const DISCARDED_BYTES: usize = 1 << 10;

async fn read<R: AsyncRead + Unpin>(reader: &mut R, intake: &mut Intake, at_end: End) -> End {
    loop {
        let result = match reader.read_buf(intake.room()).await {
            Ok(0) => return at_end,
            Ok(bytes) => intake.take(bytes).await,
            Err(error) => return end_of(&error),
        };
        if let Err(end) = result {
            return end;
        }
    }
}

/// The output data, the way to write it, and its counters.
pub(crate) struct Out<'a> {
    pub(crate) queue: Arc<Queue>,
    pub(crate) manner: Arc<Manner>,
    pub(crate) counters: &'a SideCounters,
}

impl Out<'_> {
    /// Notes that a frame of `bytes` has gone out, with `entry_bytes` of what the engine gave.
    pub(crate) fn count(&self, bytes: usize, entry_bytes: usize) {
        self.queue.written(entry_bytes);
        self.counters.count_sent(1, bytes);
    }

    /// Notes what could not be sent, because it fits into no packet.
    pub(crate) fn count_dropped(&self, dropped: usize, entry_bytes: usize) {
        self.queue.written(entry_bytes);
        self.counters.count_dropped(dropped);
    }
}

async fn write<W: AsyncWrite + Unpin>(writer: &mut W, out: &Out<'_>) -> End {
    let (mut frames, mut packets_out) = (Vec::new(), PacketWriter::new());
    while let Some(entries) = out.queue.next().await {
        packets_out.follow(out.manner.compression());
        let mut packets = Packets::new(&entries, frame::MAX_PAYLOAD_BYTES);
        let mut left = entries.len();
        while packets_out.write_next(out.manner.dialect(), &mut packets, &mut frames) {
            out.queue.hold(pieces::held_bytes(&frames) + packets_out.held_bytes());
            if let Err(error) = out.queue.writing(writer.write_all(&frames)).await {
                return end_of(&error);
            }
            out.count(frames.len(), left - packets.rest().len());
            left = packets.rest().len();
            frames.clear();
        }
        out.count_dropped(packets.dropped(), left);
        if let Err(error) = out.queue.writing(writer.flush()).await {
            return end_of(&error);
        }
        if frames.capacity() > KEPT_BYTES {
            frames = Vec::new();
            out.queue.hold(packets_out.held_bytes());
        }
    }
    // The peer may read what has gone out before it sees the end.
    let _ = writer.shutdown().await;
    End::Done
}

/// A buffer that grew beyond this is given back.
const KEPT_BYTES: usize = 4 << 10;

fn end_of(error: &io::Error) -> End {
    // Of TLS also that the connection has ended and the session has not, as if the process was killed.
    debug!(%error, "a connection has failed");
    End::Lost
}
