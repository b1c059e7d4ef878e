//! One budget for all memory that peers can make the gateway use.
//!
//! ```text
//!   engine        states, channels, subscriptions, frames that wait: as the engine counts them
//!   queues        what waits to be written to peers; over KCP and the link, what has not arrived
//!   inbound       beginnings of frames and messages, segments ahead of a lost one, packets that wait to be taken apart
//!   waiting       what waits for the engine
//!   connections   what one costs that says nothing, by its transport
//!   recordings    what waits for the disk
//!   sockets       what the kernel keeps for peers who do not read
//! ```
//! All but the last are memory of the process, and of its resident size; containers also count the last. Each part is
//! counted where it grows and shrinks. When seven eighths are used, clients can add nothing: no connections, no
//! channels, subscriptions or updates. The last eighth is for world servers, because without them there is no world.
//! Above the whole, the connections with the longest queues are disconnected, the longest queue first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throng_gateway_engine::Pressure;
use throng_gateway_engine::port::Side;

/// A part of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// States, channels, subscriptions.
    Engine,
    /// Data that waits to be written to peers.
    Queues,
    /// Beginnings of frames, and packets that wait to be taken apart.
    Inbound,
    /// Data that waits for the engine.
    Waiting,
    /// Connections that say nothing.
    Connections,
    /// Recordings that wait for the disk.
    Recordings,
    /// The kernel's memory for peers that do not read.
    Sockets,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 7] =
        [Part::Engine, Part::Queues, Part::Inbound, Part::Waiting, Part::Connections, Part::Recordings, Part::Sockets];

    /// A stable name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            Part::Engine => "engine",
            Part::Queues => "queues",
            Part::Inbound => "inbound",
            Part::Waiting => "waiting",
            Part::Connections => "connections",
            Part::Recordings => "recordings",
            Part::Sockets => "sockets",
        }
    }
}

/// Of the budget, so much is for world servers alone: one part of these.
const RESERVE_PARTS: u64 = 8;

/// The budget, and what is used of it.
#[derive(Debug)]
pub struct Memory {
    limit_bytes: AtomicU64,
    parts: [AtomicU64; Part::ALL.len()],
}

/// Without a bound, for what stands alone.
impl Default for Memory {
    fn default() -> Memory {
        Memory::new(u64::MAX)
    }
}

impl Memory {
    pub(crate) fn new(limit_bytes: u64) -> Memory {
        Memory { limit_bytes: AtomicU64::new(limit_bytes), parts: Default::default() }
    }

    /// Another budget from now on.
    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// The budget.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// The use of one part.
    pub fn part_bytes(&self, part: Part) -> u64 {
        self.parts[part as usize].load(Ordering::Relaxed)
    }

    /// The whole use.
    pub fn used_bytes(&self) -> u64 {
        Part::ALL.into_iter().map(|part| self.part_bytes(part)).sum()
    }

    /// The peers that can add nothing more.
    pub(crate) fn pressure(&self) -> Pressure {
        let (used, limit) = (self.used_bytes(), self.limit_bytes());
        match used {
            _ if used > limit => Pressure::Everybody,
            _ if used > limit - limit / RESERVE_PARTS => Pressure::Clients,
            _ => Pressure::Nobody,
        }
    }

    /// Whether something new may be begun for this side.
    pub(crate) fn has_room(&self, side: Side) -> bool {
        match self.pressure() {
            Pressure::Nobody => true,
            Pressure::Clients => side == Side::Server,
            Pressure::Everybody => false,
        }
    }

    /// The use beyond the budget.
    pub(crate) fn surplus_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.limit_bytes())
    }

    /// Reports the use of a part that is counted elsewhere.
    pub(crate) fn set_part(&self, part: Part, bytes: u64) {
        self.parts[part as usize].store(bytes, Ordering::Relaxed);
    }

    fn add(&self, part: Part, bytes: u64) {
        self.parts[part as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, part: Part, bytes: u64) {
        self.parts[part as usize].fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// So much is part of what a connection costs.
const ABOUT_BYTES: u64 = 4 << 10;

/// Counted bytes. They are given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    memory: Arc<Memory>,
    part: Part,
    bytes: u64,
}

impl Holding {
    pub(crate) fn new(memory: &Arc<Memory>, part: Part, bytes: usize) -> Holding {
        let mut holding = Holding { memory: Arc::clone(memory), part, bytes: 0 };
        holding.set(bytes);
        holding
    }

    /// Another holding of the same part.
    pub(crate) fn of(&self, bytes: usize) -> Holding {
        Holding::new(&self.memory, self.part, bytes)
    }

    /// The same to some KiB, for what changes all the time. Nothing is exact.
    pub(crate) fn set_about(&mut self, bytes: usize) {
        if bytes == 0 || (bytes as u64).abs_diff(self.bytes) >= ABOUT_BYTES {
            self.set(bytes);
        }
    }

    /// It is so much now.
    pub(crate) fn set(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        match bytes.cmp(&self.bytes) {
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => self.memory.add(self.part, bytes - self.bytes),
            std::cmp::Ordering::Less => self.memory.sub(self.part, self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Three quarters of what the process may have: of its control group, or else of the machine. Without either, 2 GiB.
pub(crate) fn usual_limit_bytes() -> u64 {
    throng_machine::memory_limit_bytes().unwrap_or(UNKNOWN_MACHINE_BYTES) / 4 * 3
}

const UNKNOWN_MACHINE_BYTES: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_all_the_time_is_counted_to_some_kib() {
        let memory = Arc::new(Memory::new(100_000));
        let mut holding = Holding::new(&memory, Part::Queues, 0);
        holding.set_about(4_000);
        assert_eq!(memory.used_bytes(), 0);
        holding.set_about(9_000);
        holding.set_about(11_000);
        assert_eq!(memory.used_bytes(), 9_000);
        holding.set_about(0);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn what_is_held_is_counted_as_long_as_it_is_held() {
        let memory = Arc::new(Memory::new(1_000));
        let mut first = Holding::new(&memory, Part::Queues, 100);
        let second = Holding::new(&memory, Part::Inbound, 50);
        first.set(300);
        assert_eq!((memory.used_bytes(), memory.part_bytes(Part::Queues)), (350, 300));
        first.set(10);
        drop(second);
        assert_eq!(memory.used_bytes(), 10);
        drop(first);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn the_last_eighth_is_for_world_servers() {
        let memory = Arc::new(Memory::new(800));
        memory.set_part(Part::Engine, 700);
        assert!(memory.has_room(Side::Client) && memory.has_room(Side::Server));
        memory.set_part(Part::Engine, 701);
        assert!(!memory.has_room(Side::Client) && memory.has_room(Side::Server));
        memory.set_part(Part::Engine, 801);
        assert!(!memory.has_room(Side::Client) && !memory.has_room(Side::Server));
        assert_eq!(memory.surplus_bytes(), 1);
    }

    #[test]
    fn without_a_number_the_budget_is_what_the_machine_has() {
        let limit_bytes = usual_limit_bytes();
        assert!(limit_bytes >= 64 << 20, "{limit_bytes}");
    }
}
