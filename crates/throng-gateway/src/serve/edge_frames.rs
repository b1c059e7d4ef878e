//! Frames on the path between a gateway and one of its edges, both ways: the same at both ends.

use bytes::Bytes;
use throng_gateway_engine::edge::{EdgeFault, EdgeOutbox as _};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::counters::{ShellCounters, add};
use super::edge_path::{PathError, PathOutbox, frame_reader, read_frame, write_frames};
use super::event::{Event, Events};

/// Carries frames until the path ends: those of `outbox` to the other end, and those of the other end to the engine, as the
/// events that `heard` makes of them. Returns why it has ended, and the fault if the engine has closed it.
pub(crate) async fn carry(
    stream: TcpStream,
    outbox: &PathOutbox,
    (events, counters): (&Events, &ShellCounters),
    heard: impl Fn(Bytes, OwnedSemaphorePermit) -> Event,
) -> (Result<(), PathError>, Option<EdgeFault>) {
    let (reader, writer) = stream.into_split();
    let mut reader = frame_reader(reader);
    let read = async {
        while let Some(frame) = read_frame(&mut reader).await? {
            let Ok(room) = events.room(frame.len()).await else { break };
            if events.send(heard(frame, room)).is_err() {
                break;
            }
        }
        Ok::<(), PathError>(())
    };
    let ended = tokio::select! {
        ended = read => ended,
        ended = write_frames(&outbox.0, writer) => ended.map_err(PathError::from),
    };
    (ended, close(outbox, counters))
}

/// Throws away the frames that wait, and takes no more. Returns the fault for which the path was closed before, if there was one.
pub(crate) fn close(outbox: &PathOutbox, counters: &ShellCounters) -> Option<EdgeFault> {
    let fault = outbox.0.fault();
    add(&counters.edge_faults, usize::from(fault.is_some()));
    outbox.close(EdgeFault::Slow);
    fault
}
