//! Where the server's tick goes.

use std::time::Instant;

use crate::allocation;

/// A part of the server's tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Handing the clients' packets to the library and letting it work on them.
    Receive,
    /// Writing the new values to where the library looks for them.
    Assign,
    /// From "values written" to "packets ready". This is the number in the table.
    Replicate,
}

const PARTS: usize = 3;

/// One hand, that points at one part at a time.
///
/// Made once; starts and ends with the tick.
#[derive(Debug, Default)]
pub struct Stopwatch {
    ns: [u64; PARTS],
    allocations: [u64; PARTS],
    /// Of `Part::Replicate`: what a variant of the peer would not have to do.
    sealing_ns: Option<u64>,
    since: Option<(Part, Instant, u64)>,
}

/// One tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    pub(crate) receive_ns: u64,
    pub(crate) assign_ns: u64,
    pub(crate) replicate_ns: u64,
    pub(crate) sealing_ns: Option<u64>,
    pub(crate) allocations: u64,
}

impl Stopwatch {
    /// From now on, time belongs to this part.
    pub fn enter(&mut self, part: Part) {
        self.stop();
        self.since = Some((part, Instant::now(), allocation::of_this_thread()));
    }

    /// From now on, time belongs to nobody.
    pub fn stop(&mut self) {
        if let Some((part, start, allocations)) = self.since.take() {
            self.ns[part as usize] += start.elapsed().as_nanos() as u64;
            self.allocations[part as usize] += allocation::of_this_thread() - allocations;
        }
    }

    /// So much of the tick's `Part::Replicate` went into encrypting packets: shown in a row of its own without.
    pub fn note_sealing(&mut self, ns: u64) {
        *self.sealing_ns.get_or_insert(0) += ns;
    }

    pub(crate) fn take_lap(&mut self) -> Lap {
        self.stop();
        let done = std::mem::take(self);
        Lap {
            receive_ns: done.ns[Part::Receive as usize],
            assign_ns: done.ns[Part::Assign as usize],
            replicate_ns: done.ns[Part::Replicate as usize],
            sealing_ns: done.sealing_ns,
            allocations: done.allocations[Part::Replicate as usize],
        }
    }
}
