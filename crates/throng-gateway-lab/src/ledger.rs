//! Whether each numbered message has arrived exactly once.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Numbers that one sender may be missing before the oldest are given up.
const MISSING_MAX: usize = 100_000;

/// The numbers that have arrived from each sender; a sender counts 0, 1, 2 and so on.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    senders: BTreeMap<u32, Sender>,
}

#[derive(Debug, Default)]
struct Sender {
    next: u64,
    missing: BTreeSet<u64>,
    given_up: u64,
    doubled: u64,
    out_of_order: u64,
}

/// The numbers that have arrived from one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrived {
    /// Different numbers.
    pub(super) numbers: u64,
    /// Arrivals of numbers that had arrived already.
    pub(super) doubled: u64,
    /// Arrivals after a higher number.
    pub(super) out_of_order: u64,
    /// The most numbers in a row that have not arrived, before one that has.
    pub(super) longest_gap: u64,
}

impl Ledger {
    /// A number has arrived.
    pub(super) fn take(&mut self, sender: u32, number: u32) {
        let sender = self.senders.entry(sender).or_default();
        let number = u64::from(number);
        if number >= sender.next {
            // The set stays small even if a number is wrong.
            let skipped = number - sender.next;
            let kept = skipped.min(MISSING_MAX.saturating_sub(sender.missing.len()) as u64);
            sender.missing.extend(number - kept..number);
            sender.given_up += skipped - kept;
            sender.next = number + 1;
        } else if sender.missing.remove(&number) {
            sender.out_of_order += 1;
        } else {
            sender.doubled += 1;
        }
    }

    /// A sender has gone, and what has arrived from it.
    pub(super) fn forget(&mut self, sender: u32) {
        self.senders.remove(&sender);
    }

    /// By sender.
    pub(super) fn arrived(&self) -> BTreeMap<u32, Arrived> {
        let arrived = |sender: &Sender| Arrived {
            numbers: sender.next - sender.missing.len() as u64 - sender.given_up,
            doubled: sender.doubled,
            out_of_order: sender.out_of_order,
            longest_gap: longest_row(&sender.missing),
        };
        self.senders.iter().map(|(&id, sender)| (id, arrived(sender))).collect()
    }
}

/// The length of the longest row of successive numbers.
fn longest_row(numbers: &BTreeSet<u64>) -> u64 {
    let (mut longest, mut row, mut next) = (0, 0, None);
    for &number in numbers {
        row = if next == Some(number) { row + 1 } else { 1 };
        next = Some(number + 1);
        longest = longest.max(row);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(numbers: &[u32]) -> Arrived {
        let mut ledger = Ledger::default();
        numbers.iter().for_each(|&number| ledger.take(5, number));
        ledger.arrived()[&5]
    }

    #[test]
    fn a_gap_is_a_loss_until_it_is_filled() {
        assert_eq!(after(&[0, 1, 2]), Arrived { numbers: 3, ..Arrived::default() });
        assert_eq!(after(&[0, 3]).numbers, 2);
        assert_eq!(after(&[2, 0, 1]), Arrived { numbers: 3, out_of_order: 2, ..Arrived::default() });
    }

    #[test]
    fn a_second_arrival_is_a_double_wherever_it_comes_from() {
        assert_eq!(after(&[0, 0, 1, 0]), Arrived { numbers: 2, doubled: 2, ..Arrived::default() });
        assert_eq!(after(&[2, 1, 1]), Arrived { numbers: 2, doubled: 1, out_of_order: 1, longest_gap: 1 });
    }

    #[test]
    fn a_number_from_nowhere_costs_no_memory() {
        let arrived = after(&[0, u32::MAX]);
        assert_eq!(arrived.numbers, 2);
    }

    #[test]
    fn the_longest_row_of_missing_numbers_is_known() {
        assert_eq!(after(&[0, 1, 5, 6, 8, 11]).longest_gap, 3);
        assert_eq!(after(&[3, 4]).longest_gap, 3, "from the first one on");
        assert_eq!(after(&[0, 1, 5, 3]).longest_gap, 1);
        assert_eq!(after(&[0, 1, 2]).longest_gap, 0);
    }
}
