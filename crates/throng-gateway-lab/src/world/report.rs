//! The world servers' reports.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use throng_machine::clock;
use throng_wire::Time;

use super::stage::{Counts, Stage};
use crate::ledger::Arrived;
use crate::times::{histogram, quantile_ms};

/// The world's report of each second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorldProgress {
    /// All servers are there, and clients may come.
    pub(crate) is_ready: bool,
    pub(crate) live_players: u32,
    /// Subscriptions that are still to be made.
    pub(crate) pending: u64,
    /// Calls so far.
    pub(crate) calls: u64,
    /// Frames per second of a server, the mean of them.
    pub(crate) frame_hz: f64,
    pub(crate) ideal_per_s: f64,
    pub(crate) handovers_per_s: f64,
    pub(crate) messages_in_per_s: f64,
    pub(crate) messages_out_per_s: f64,
    pub(crate) bytes_in_per_s: f64,
    pub(crate) bytes_out_per_s: f64,
    pub(crate) cpu_cores: f64,
}

fn in_time_ratio(due: u64, lost: u64) -> Option<f64> {
    (due > 0).then(|| 1.0 - lost as f64 / due as f64)
}

/// The counters of the world in the measured part; calls in all of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorldReport {
    pub(crate) seconds: f64,
    pub(crate) servers: u32,
    pub(crate) frame_hz: f64,
    pub(crate) stalled_frames: u64,
    /// The share of frames for which this process was not too late; `None` if none was due.
    pub(crate) in_time_ratio: Option<f64>,
    pub(crate) ideal_updates: f64,
    pub(crate) handovers: u64,
    pub(crate) resubscriptions: u64,
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) call_p50_ms: Option<f64>,
    pub(crate) call_p99_ms: Option<f64>,
    pub(crate) calls: BTreeMap<u32, Arrived>,
    pub(crate) handovers_of_run: u64,
    /// Of one server of several that has died: from its death until it had everything back, in milliseconds.
    pub(crate) restart_ms: Option<f64>,
    /// As in [`Death`](super::recovery::Death).
    pub(crate) off_m_max: Option<f32>,
    /// The connections of those whose server has died.
    pub(crate) orphans: BTreeSet<u32>,
    /// Players that two servers have, and those that nobody has, at the end; `None` if there is one server.
    pub(crate) owners: Option<[u32; 2]>,
    pub(crate) cpu_cores: f64,
}

/// The measured part, and the last second.
pub(super) struct Window {
    second: Mark,
    began: Mark,
    ended: Option<Mark>,
    /// Whether the world has been reported as ready; this is reported at once.
    has_said_ready: bool,
}

#[derive(Clone, Copy)]
struct Mark {
    at: Time,
    cpu_s: f64,
    messages_out: u64,
    counts: Counts,
}

impl Window {
    pub(super) fn new(now: Time) -> Window {
        let mark = Mark { at: now, cpu_s: clock::process_cpu_s(), messages_out: 0, counts: Counts::default() };
        Window { second: mark, began: mark, ended: None, has_said_ready: false }
    }

    /// Whether the measured part is over.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }
}

impl Stage {
    fn mark(&self) -> Mark {
        Mark {
            at: clock::now(),
            cpu_s: clock::process_cpu_s(),
            messages_out: self.counts.messages_out
                + self.servers.iter().map(|server| server.outgoing.messages()).sum::<u64>(),
            counts: self.counts,
        }
    }

    pub(super) fn measure(&mut self) {
        self.call_us = histogram();
        self.window.began = self.mark();
    }

    pub(super) fn settle(&mut self) {
        self.window.ended = Some(self.mark());
    }

    pub(super) fn take_progress(&mut self) -> Option<WorldProgress> {
        let before = self.window.second;
        let elapsed_s = clock::now().since(before.at).as_secs_f64();
        let is_news = self.is_ready && !self.window.has_said_ready;
        if elapsed_s < 1.0 && !is_news {
            return None;
        }
        self.window.has_said_ready = self.is_ready;
        let elapsed_s = elapsed_s.max(1e-3);
        let now = self.mark();
        self.window.second = now;
        let per_s = |count: u64| count as f64 / elapsed_s;
        Some(WorldProgress {
            is_ready: self.is_ready,
            live_players: self.players.iter().filter(|player| player.is_live).count() as u32,
            pending: (self.queue.len() + self.unanswered) as u64,
            calls: now.counts.calls,
            frame_hz: per_s(now.counts.frames - before.counts.frames) / self.servers.len().max(1) as f64,
            ideal_per_s: (now.counts.ideal - before.counts.ideal) / elapsed_s,
            handovers_per_s: per_s(now.counts.handovers - before.counts.handovers),
            messages_in_per_s: per_s(now.counts.messages_in - before.counts.messages_in),
            messages_out_per_s: per_s(now.messages_out - before.messages_out),
            bytes_in_per_s: per_s(now.counts.bytes_in - before.counts.bytes_in),
            bytes_out_per_s: per_s(now.counts.bytes_out - before.counts.bytes_out),
            cpu_cores: (now.cpu_s - before.cpu_s) / elapsed_s,
        })
    }

    pub(super) fn report(&self) -> WorldReport {
        let (began, ended) = (self.window.began, self.window.ended.unwrap_or_else(|| self.mark()));
        let (before, after) = (began.counts, ended.counts);
        let seconds = ended.at.since(began.at).as_secs_f64().max(1e-9);
        let servers = self.servers.len().max(1);
        WorldReport {
            seconds,
            servers: self.servers.len() as u32,
            frame_hz: (after.frames - before.frames) as f64 / seconds / servers as f64,
            stalled_frames: after.stalled - before.stalled,
            in_time_ratio: in_time_ratio(after.due - before.due, after.lost - before.lost),
            ideal_updates: after.ideal - before.ideal,
            handovers: after.handovers - before.handovers,
            resubscriptions: after.resubscriptions - before.resubscriptions,
            messages_in: after.messages_in - before.messages_in,
            messages_out: ended.messages_out - began.messages_out,
            bytes_in: after.bytes_in - before.bytes_in,
            bytes_out: after.bytes_out - before.bytes_out,
            call_p50_ms: quantile_ms(&self.call_us, 0.5),
            call_p99_ms: quantile_ms(&self.call_us, 0.99),
            calls: self.ledger.arrived(),
            handovers_of_run: self.counts.handovers,
            restart_ms: self.death.restart.map(|restart| restart.as_secs_f64() * 1e3),
            off_m_max: self.death.off_m_max,
            orphans: self.death.orphans.clone(),
            owners: (servers > 1).then(|| self.owners()),
            cpu_cores: (ended.cpu_s - began.cpu_s) / seconds,
        }
    }
}
