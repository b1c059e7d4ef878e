//! The table for people.

use crate::rows::{Row, Spread};

/// The table, with what is measured stated above it.
pub(crate) fn print(rows: &[Row]) {
    println!(
        "Server, one thread, from \"values written\" to \"packets ready\"; every client checked. See bench/peers/README.md."
    );
    println!(
        "ms/tick: mean of the ticks without the slowest 1 %, median of the rounds [lowest, highest]; median and p99: of the ticks."
    );
    println!(
        "receive and assign come on top of it, sum is all three; client: work of one client, on the other processor."
    );
    let mut of = None;
    for row in rows {
        if of != Some((&row.workload, row.players)) {
            of = Some((&row.workload, row.players));
            println!();
            println!("{} with {}", row.workload, row.players);
            println!(
                "  {:<24} {:>8} {:>23} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>7} {:>5}",
                "peer",
                "version",
                "ms/tick",
                "median",
                "p99",
                "best",
                "us/client",
                "receive",
                "assign",
                "sum",
                "us client",
                "allocs",
                "bytes/cl",
                "packets",
                "age"
            );
        }
        println!("{}", line(row));
    }
}

fn line(row: &Row) -> String {
    if !row.checked {
        return format!("  {:<24} {}", row.peer, row.notes);
    }
    let Spread { mean, median, p99, min, max } = row.ms_per_tick;
    let allocations = row.allocations_per_tick.map_or("-".to_owned(), |count| format!("{count:.0}"));
    format!(
        "  {:<24} {:>8} {:>23} {:>8.3} {:>8.3} {:>8.3} {:>9.2} {:>8.3} {:>8.3} {:>8.3} {:>9.2} {:>8} {:>8.0} {:>7.1} {:>5.2}",
        row.peer,
        row.version,
        format!("{mean:.3} [{min:.3}, {max:.3}]"),
        median,
        p99,
        row.fastest_tick_ms,
        row.us_per_client,
        row.receive_ms_per_tick,
        row.assign_ms_per_tick,
        row.receive_ms_per_tick + row.assign_ms_per_tick + mean,
        row.client_us_per_client,
        allocations,
        row.bytes_per_client_tick,
        row.packets_per_client_tick,
        row.state_age_ticks,
    )
}
