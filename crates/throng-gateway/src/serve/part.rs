//! Parts of a snapshot, as an engine's thread makes them between two events.

use std::sync::mpsc::{Sender, SyncSender};
use std::time::Duration;

use throng_gateway_engine::Engine;
use throng_gateway_engine::snapshot::Part;

use super::clock::Clock;
use super::counters::ShellCounters;

/// Bytes of one part: a fraction of a millisecond of an engine's time.
const PART_BYTES: usize = 32 << 10;

/// To an engine: a part is wanted.
pub(crate) struct PartRequest {
    pub(super) begins: bool,
    pub(super) reply: Sender<(Part, Duration)>,
}

impl PartRequest {
    /// Makes the part. The writer that asked for it may be gone.
    pub(crate) fn answer(self, engine: &mut Engine, clock: Clock, counters: &ShellCounters) {
        let begin = clock.now();
        if self.begins {
            engine.begin_snapshot();
        }
        let part = engine.snapshot_part(PART_BYTES);
        let took_us = clock.now().micros_since(begin);
        counters.snapshots.part.record(took_us, 1);
        let _ = self.reply.send((part, Duration::from_micros(took_us)));
    }
}

/// Where the last parts go.
#[derive(Clone)]
pub(crate) struct LastParts(pub(super) SyncSender<Part>);

impl LastParts {
    /// All parts of an engine that does nothing more. Without somebody who takes them it ends at once.
    pub(crate) fn send_all(self, engine: &mut Engine) {
        engine.begin_snapshot();
        loop {
            let part = engine.snapshot_part(PART_BYTES);
            let is_last = part.is_last();
            if self.0.send(part).is_err() || is_last {
                return;
            }
        }
    }
}
