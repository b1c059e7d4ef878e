//! Memory that the gateway has freed goes back to the system.
//!
//! The allocator keeps what is freed, for later. After a flood that is as much as the flood was, and nobody else on the
//! machine has it. So whenever the process takes noticeably more than is counted, the allocator is asked to give it back;
//! less and less often as long as that is in vain.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use throng_gateway::process::resident_bytes;
use throng_gateway::serve::{Memory, Part};

use crate::allocation::{give_back, keep_little};

const EVERY: Duration = Duration::from_millis(500);
/// So much may gather.
const SPARE_BYTES: u64 = 8 << 20;
/// Or this part of what is used.
const SPARE_PARTS: u64 = 16;
/// After questions that were in vain, so many looks are left out at most: a minute.
const LEFT_OUT_MAX: u32 = 120;

/// Watches the process as long as there is a budget, on a thread of its own.
pub(crate) fn watch(memory: &Arc<Memory>) {
    keep_little();
    let memory = Arc::downgrade(memory);
    // Without it the gateway serves as well; it only takes more memory.
    let _ = thread::Builder::new().name("memory".into()).spawn(move || look_after(&memory));
}

fn look_after(memory: &Weak<Memory>) {
    let mut spare = Spare::default();
    loop {
        thread::sleep(EVERY);
        let Some(memory) = memory.upgrade() else { return };
        let used = || memory.used_bytes().saturating_sub(memory.part_bytes(Part::Sockets));
        let Some(resident) = resident_bytes() else { return };
        if spare.is_due(resident, used()) {
            give_back();
            let Some(left) = resident_bytes() else { return };
            spare.note_given_back(resident.saturating_sub(left));
        }
    }
}

/// Memory of the process that nothing counts.
#[derive(Debug, Default)]
struct Spare {
    /// The least of it so far: the program, its threads, what it does not count.
    least_bytes: Option<u64>,
    /// Looks that are still to be left out, and how many it will be the next time.
    left_out: u32,
    next_left_out: u32,
}

impl Spare {
    /// Whether enough has gathered to ask for it.
    fn is_due(&mut self, resident_bytes: u64, used_bytes: u64) -> bool {
        let spare_bytes = resident_bytes.saturating_sub(used_bytes);
        let least_bytes = self.least_bytes.map_or(spare_bytes, |least| least.min(spare_bytes));
        self.least_bytes = Some(least_bytes);
        if self.left_out > 0 {
            self.left_out -= 1;
            return false;
        }
        spare_bytes > least_bytes + SPARE_BYTES.max(used_bytes / SPARE_PARTS)
    }

    /// So much has come of the question.
    fn note_given_back(&mut self, bytes: u64) {
        self.next_left_out = match bytes >= SPARE_BYTES / 2 {
            true => 0,
            false => (self.next_left_out * 2).clamp(1, LEFT_OUT_MAX),
        };
        self.left_out = self.next_left_out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_gathers_is_asked_for() {
        let mut spare = Spare::default();
        assert!(!spare.is_due(20 * MIB, 0), "the program itself");
        assert!(!spare.is_due(120 * MIB, 100 * MIB), "what is used");
        assert!(!spare.is_due(125 * MIB, 100 * MIB), "a little");
        assert!(spare.is_due(125 * MIB, 90 * MIB));
        spare.note_given_back(10 * MIB);
        assert!(spare.is_due(125 * MIB, 90 * MIB), "it has helped, so it may help again");
    }

    #[test]
    fn questions_in_vain_become_few() {
        let mut spare = Spare::default();
        spare.is_due(20 * MIB, 0);
        let mut questions = 0;
        for _ in 0..7_200 {
            if spare.is_due(60 * MIB, 0) {
                questions += 1;
                spare.note_given_back(0);
            }
        }
        assert!((60..80).contains(&questions), "{questions} in an hour");
    }
}
