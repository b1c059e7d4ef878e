//! The costs of some storms in frames, segments and bytes, as a table.
//!
//! The other tests say what must arrive. This one says what it takes: a change that sends more, shares less, repeats
//! more often or keeps more in memory changes the table. If the new table is better, or the change is worth its price,
//! replace `ledger.txt` by what the test prints.

use crate::storm::{Storm, StormOptions};

const EXPECTED: &str = include_str!("ledger.txt");

fn storms() -> [(&'static str, StormOptions); 6] {
    let plain = StormOptions { clients: 4, ..StormOptions::default() };
    [
        ("no loss", StormOptions { loss: 0.0, ..plain.clone() }),
        ("one packet in three is lost", StormOptions { loss: 0.3, ..plain.clone() }),
        ("losses in bursts", StormOptions { burst_ticks: 12, ..plain.clone() }),
        ("100 bytes per tick", StormOptions { budget_bytes: 100, retention_ticks: 8, ..plain.clone() }),
        ("a memory of 4 ticks", StormOptions { budget_bytes: 220, retention_ticks: 4, ..plain.clone() }),
        ("delivered packets are taken for lost", StormOptions { spurious_loss: 0.3, loss: 0.1, ..plain }),
    ]
}

#[test]
fn each_storm_costs_what_the_ledger_says() {
    let tables: String =
        storms().into_iter().map(|(name, options)| format!("{name}\n{}\n", Storm::new(7, options).ledger())).collect();
    let (found, expected) = (tables.trim_end(), EXPECTED.trim_end());
    for (number, (line, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, expected, "line {} of ledger.txt; the new tables:\n{tables}", number + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "the new tables:\n{tables}");
}
