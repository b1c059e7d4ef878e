//! The clients' reports.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng_machine::clock;

use super::{Crowd, Phase};
use crate::times::quantile_ms;

/// The clients' report of each second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClientsProgress {
    /// Connected clients.
    pub(crate) connected: u32,
    /// Clients that are subscribed to their channels.
    pub(crate) joined: u32,
    pub(crate) updates_per_s: f64,
    pub(crate) messages_in_per_s: f64,
    pub(crate) messages_out_per_s: f64,
    pub(crate) bytes_in_per_s: f64,
    pub(crate) bytes_out_per_s: f64,
    pub(crate) latency_p50_ms: Option<f64>,
    pub(crate) latency_p99_ms: Option<f64>,
    pub(crate) cpu_cores: f64,
    /// A connection that ended, if one did.
    pub(crate) end: Option<String>,
}

/// The counters of the clients in the measured part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClientsReport {
    pub(crate) seconds: f64,
    pub(crate) joined: u32,
    /// Connections that ended early, with their reasons.
    pub(crate) ends: BTreeMap<String, u32>,
    /// Clients that have lost their connection and have no other one yet.
    pub(crate) returning: u32,
    pub(crate) updates: u64,
    /// Updates per second, by client, in rising order; of the time in which the client was to play, if that is a second or more.
    pub(crate) update_hz: Vec<f64>,
    /// The longest time without an update, by client, in rising order.
    pub(crate) silence_ms: Vec<f64>,
    /// The longest time without an answer of its server, by client, in rising order.
    pub(crate) unanswered_ms: Vec<f64>,
    /// New states of actors that the decoding clients saw, and how many clients decoded.
    pub(crate) actor_states: u64,
    pub(crate) samples: u32,
    pub(crate) latency_ms: Option<[f64; 3]>,
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) acknowledgements: u64,
    pub(crate) handovers: u64,
    /// Calls or updates that were due, and those that could be sent.
    pub(crate) due: u64,
    pub(crate) sent: u64,
    /// Calls of the whole run, by connection id.
    pub(crate) calls: BTreeMap<u32, u32>,
    pub(crate) garbled: u64,
    pub(crate) cpu_cores: f64,
    /// How late the rounds were, 99th percentile; `None` without a round.
    pub(crate) late_p99_ms: Option<f64>,
}

impl Crowd {
    pub(super) fn take_progress(&mut self) -> Option<ClientsProgress> {
        let now = clock::now();
        let elapsed_s = now.since(self.second.since).as_secs_f64();
        if elapsed_s < 1.0 {
            return None;
        }
        let (sums, cpu_s) = (self.sums(), clock::process_cpu_s());
        let gained = sums.minus(self.second.sums);
        let per_s = |count: u64| count as f64 / elapsed_s;
        let progress = ClientsProgress {
            connected: self.clients.iter().filter(|client| client.is_open()).count() as u32,
            joined: self.joined(),
            updates_per_s: per_s(gained.updates),
            messages_in_per_s: per_s(gained.messages_in),
            messages_out_per_s: per_s(gained.messages_out),
            bytes_in_per_s: per_s(gained.bytes_in),
            bytes_out_per_s: per_s(gained.bytes_out),
            latency_p50_ms: quantile_ms(&self.seen.second_us, 0.5),
            latency_p99_ms: quantile_ms(&self.seen.second_us, 0.99),
            cpu_cores: (cpu_s - self.second.cpu_s) / elapsed_s,
            end: self.ends.keys().next().cloned(),
        };
        self.seen.second_us.reset();
        (self.second.since, self.second.cpu_s, self.second.sums) = (now, cpu_s, sums);
        Some(progress)
    }

    pub(super) fn report(&mut self) -> ClientsReport {
        if self.phase != Phase::Settling {
            self.settle();
        }
        let window = &self.window;
        let seconds = window.ended.since(window.began).as_secs_f64().max(1e-9);
        let times = self.wanted.times.iter().map(Duration::as_secs_f64);
        let mut update_hz: Vec<f64> = window
            .updates
            .iter()
            .zip(times)
            // All of a run that is shorter than that were to play all the time.
            .filter(|(_, time_s)| *time_s >= seconds.min(1.0))
            .map(|(&updates, time_s)| updates as f64 / time_s.max(1e-9))
            .collect();
        update_hz.sort_by(f64::total_cmp);
        let [silence_ms, unanswered_ms] = [0, 1].map(|kind| {
            let mut sorted: Vec<f64> = window.silences.iter().map(|of| of[kind].as_secs_f64() * 1e3).collect();
            sorted.sort_by(f64::total_cmp);
            sorted
        });
        let ages = &self.seen.age_us;
        let latency = [0.5, 0.99, 1.0].map(|share| quantile_ms(ages, share));
        ClientsReport {
            seconds,
            joined: self.joined(),
            ends: self.ends.clone(),
            returning: self.returning.len() as u32,
            updates: window.sums.updates,
            update_hz,
            silence_ms,
            unanswered_ms,
            actor_states: window.sums.actor_states,
            samples: self.clients.iter().filter(|client| client.is_sample()).count() as u32,
            latency_ms: latency[0].zip(latency[1]).zip(latency[2]).map(|((p50, p99), max)| [p50, p99, max]),
            messages_in: window.sums.messages_in,
            messages_out: window.sums.messages_out,
            bytes_in: window.sums.bytes_in,
            bytes_out: window.sums.bytes_out,
            acknowledgements: window.sums.acknowledgements,
            handovers: self.clients.iter().map(|client| client.counts.handovers).sum(),
            due: window.sums.due,
            sent: window.sums.sent,
            calls: self.clients.iter().map(|client| client.calls()).filter(|(_, calls)| *calls > 0).collect(),
            garbled: self.clients.iter().map(|client| client.reader().garbled).sum(),
            cpu_cores: window.cpu_s / seconds,
            late_p99_ms: quantile_ms(&window.late_us, 0.99),
        }
    }

    fn joined(&self) -> u32 {
        self.clients.iter().filter(|client| client.is_joined()).count() as u32
    }
}
