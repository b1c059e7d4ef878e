//! The output of a peer's program: one line of JSON for each row.

use serde::Serialize;

use crate::arguments::Arguments;
use crate::check::Ages;
use crate::lockstep::Terms;
use crate::spread::Spread;
use crate::stopwatch::Lap;

/// One peer on one workload, in one run. Times are of the server's thread.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    peer: String,
    version: String,
    workload: String,
    players: u32,
    ticks: u32,
    /// "Values written" to "packets ready", over the ticks of this run.
    ms_per_tick: Spread,
    /// Of the mean.
    us_per_client: f64,
    /// Not in `ms_per_tick`: writing the values. A mean, as all that follow.
    assign_ms_per_tick: f64,
    /// Not in `ms_per_tick`: taking in what clients sent.
    receive_ms_per_tick: f64,
    /// Work of all clients, on the other processor.
    client_us_per_client: f64,
    /// Of "values written" to "packets ready".
    allocations_per_tick: Option<f64>,
    /// Bytes that the peer hands to its network.
    bytes_per_client_tick: f64,
    packets_per_client_tick: f64,
    state_age_ticks: f64,
    state_age_ticks_max: u64,
    checked: bool,
    notes: String,
}

/// Measurements of a run.
pub(crate) struct Measured {
    pub(crate) laps: Vec<Lap>,
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) client_ns: u64,
    pub(crate) ages: Ages,
}

impl Measured {
    /// The rows: one, and a second if the peer encrypts.
    pub(crate) fn rows(&self, arguments: &Arguments, terms: &Terms) -> Vec<Row> {
        let mut rows = vec![self.row(arguments, terms, terms.peer, terms.notes, |lap| lap.replicate_ns)];
        if self.laps.iter().all(|lap| lap.sealing_ns.is_some()) {
            let name = format!("{}, not sealed", terms.peer);
            let notes = "the same run, less the time its own meter gives to encrypting";
            let ns = |lap: &Lap| lap.replicate_ns - lap.sealing_ns.unwrap_or(0).min(lap.replicate_ns);
            rows.push(self.row(arguments, terms, &name, notes, ns));
        }
        rows
    }

    fn row(&self, arguments: &Arguments, terms: &Terms, peer: &str, notes: &str, ns: impl Fn(&Lap) -> u64) -> Row {
        let ms_per_tick = spread_ms(&self.laps, ns);
        let ticks = self.laps.len() as f64;
        let client_ticks = ticks * f64::from(arguments.players);
        Row {
            peer: peer.to_owned(),
            version: terms.version.clone(),
            workload: arguments.workload.name(),
            players: arguments.players,
            ticks: arguments.ticks,
            ms_per_tick,
            us_per_client: ms_per_tick.mean * 1e3 / f64::from(arguments.players),
            assign_ms_per_tick: spread_ms(&self.laps, |lap| lap.assign_ns).mean,
            receive_ms_per_tick: spread_ms(&self.laps, |lap| lap.receive_ns).mean,
            client_us_per_client: self.client_ns as f64 / 1e3 / client_ticks,
            allocations_per_tick: Some(self.laps.iter().map(|lap| lap.allocations).sum::<u64>() as f64 / ticks),
            bytes_per_client_tick: self.bytes as f64 / client_ticks,
            packets_per_client_tick: self.packets as f64 / client_ticks,
            state_age_ticks: self.ages.sum_ticks as f64 / self.ages.count.max(1) as f64,
            state_age_ticks_max: self.ages.max_ticks,
            checked: true,
            notes: notes.to_owned(),
        }
    }
}

fn spread_ms(laps: &[Lap], ns: impl Fn(&Lap) -> u64) -> Spread {
    Spread::of(laps.iter().map(|lap| ns(lap) as f64 / 1e6).collect())
}
