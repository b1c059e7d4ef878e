//! Frames on the path between a gateway and one of its edges, both ways: the same at both ends.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use throng_gateway_engine::edge::{EdgeFault, EdgeOutbox as _, PathSide};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::counters::{ShellCounters, add};
use super::edge_path::{PathOutbox, frame_reader, read_frame, write_frames};
use super::event::{Event, Events};

/// The other end may take nothing more and have sent its last frame before. It is read for so long.
const REST: Duration = Duration::from_secs(1);

/// How a path has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathEnd {
    /// The other end has sent its last frame.
    #[error("it has ended in good order")]
    Orderly,
    /// It has not: it was killed, or is out of reach.
    #[error("the path was cut: {0}")]
    Cut(io::Error),
    /// The engine has closed the path.
    #[error("the path was closed here: {0}")]
    Fault(EdgeFault),
    /// This gateway ends.
    #[error("this gateway ends")]
    Ours,
}

/// Carries frames until the path ends: those of `outbox` to the other end, and those of the other end to the engine, as the
/// events that `heard` makes of them. `other` is what the other end is.
pub(crate) async fn carry(
    stream: TcpStream,
    outbox: &PathOutbox,
    (events, counters): (&Events, &ShellCounters),
    other: PathSide,
    heard: impl Fn(Bytes, OwnedSemaphorePermit) -> Event,
) -> PathEnd {
    let (reader, writer) = stream.into_split();
    let mut reader = frame_reader(reader);
    let had_last = AtomicBool::new(false);
    let read = async {
        while let Some(frame) = read_frame(&mut reader).await? {
            had_last.fetch_or(other.is_last(&frame), Ordering::Relaxed);
            let Ok(room) = events.room(frame.len()).await else { return Ok(PathEnd::Ours) };
            if events.send(heard(frame, room)).is_err() {
                return Ok(PathEnd::Ours);
            }
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends without a last word"))
    };
    let mut read = pin!(read);
    let ended = tokio::select! {
        ended = &mut read => ended,
        written = write_frames(&outbox.0, writer) => {
            if written.is_err() {
                let _ = timeout(REST, read).await;
            }
            written.map(|()| PathEnd::Ours)
        }
    };
    let ended = match ended {
        _ if had_last.load(Ordering::Relaxed) => PathEnd::Orderly,
        Ok(ended) => ended,
        Err(error) => PathEnd::Cut(error),
    };
    close(outbox, counters, ended)
}

/// Throws away the frames that wait, and takes no more. Counts how the path has ended. If the engine has closed it before, that is how.
pub(crate) fn close(outbox: &PathOutbox, counters: &ShellCounters, ended: PathEnd) -> PathEnd {
    let ended = outbox.0.fault().map_or(ended, PathEnd::Fault);
    match ended {
        PathEnd::Fault(_) => add(&counters.edge_faults, 1),
        PathEnd::Cut(_) => add(&counters.edge_paths_cut, 1),
        PathEnd::Orderly | PathEnd::Ours => {}
    }
    outbox.close(EdgeFault::Slow);
    ended
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use throng_gateway_engine::edge::{DownFrame, UpFrame};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::super::edge_path::PathQueue;
    use super::super::event::events;
    use super::*;

    /// How a path has ended whose other end has sent these bytes, and how many were cut.
    async fn end_of(other: PathSide, bytes: &[u8]) -> (PathEnd, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let mut far = TcpStream::connect(listener.local_addr().expect("it is bound")).await.expect("it listens");
        let (mut near, _) = listener.accept().await.expect("it has come");
        far.write_all(bytes).await.expect("there is room");
        // It is closed while something waits in it to be read: the kernel resets the connection, and nothing can be written to it.
        near.write_all(b"unread").await.expect("there is room");
        far.readable().await.expect("it is open");
        drop(far);
        let (counters, (events, _inlets)) = (ShellCounters::default(), events(1 << 20, Default::default(), 1));
        let outbox = PathOutbox(PathQueue::new(&counters.memory));
        outbox.send(Bytes::from_static(b"more"));
        let heard = |frame, room| Event::HomeSaid { frame, _room: room };
        let end = timeout(Duration::from_secs(20), carry(near, &outbox, (&events, &counters), other, heard));
        (end.await.expect("the path has ended"), counters.edge_paths_cut.load(Ordering::Relaxed))
    }

    fn framed(frame: Vec<u8>) -> Vec<u8> {
        [&(frame.len() as u32).to_le_bytes()[..], &frame].concat()
    }

    #[tokio::test]
    async fn a_path_that_is_cut_between_two_frames_is_told_from_one_that_ends_in_good_order() {
        let down = |is_last| framed(DownFrame { turn: Some(7), is_last, ..DownFrame::default() }.encode_to_vec());
        let up = |is_last| framed(UpFrame { is_last, ..UpFrame::default() }.encode_to_vec());
        for (other, whole, last) in [(PathSide::Home, down(false), down(true)), (PathSide::Edge, up(false), up(true))] {
            for cut in [&[][..], &whole, &last[..last.len() - 1]] {
                let (end, count) = end_of(other, cut).await;
                assert!(matches!(end, PathEnd::Cut(_)) && count == 1, "{end}");
            }
            // Whether the write fails before the last frame is read is chance.
            for _ in 0..20 {
                let (end, count) = end_of(other, &[&whole[..], &last].concat()).await;
                assert!(matches!(end, PathEnd::Orderly) && count == 0, "{end}");
            }
        }
    }
}
