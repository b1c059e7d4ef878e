//! Samples of who used the processors.

use std::collections::{HashMap, HashSet};

use crate::host::{Host, ReadError, printable};
use crate::neighbours::{Usage, Window};
use crate::programs::PROCESSES_MAX;

/// The most threads that are looked at.
const THREADS_MAX: usize = 32_768;
/// The most names of programs.
const NAMES_MAX: usize = 8_192;
/// The kernel's unit of time in `/proc/PID/stat`.
const TICK_NS: u64 = 10_000_000;
/// A thread that ran or waited for a processor for this share of a window did not sleep in it.
const AWAKE_SHARE: f64 = 0.95;

/// Reads how long each thread has run, window by window.
#[derive(Debug)]
pub struct Sampler {
    host: Host,
    /// This process, which is no neighbour.
    own: u32,
    threads: HashMap<u32, Thread>,
    programs: HashMap<String, usize>,
    windows: Vec<Window>,
    last_s: Option<f64>,
    /// Whether there were more threads at the last sample than are looked at.
    was_cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: u32,
    ran_ns: u64,
    waited_ns: u64,
    windows: u32,
    awake: u32,
    round: usize,
}

impl Sampler {
    /// A sampler that leaves out the process `own`.
    pub fn new(host: Host, own: u32) -> Sampler {
        let (threads, programs, windows) = (HashMap::new(), HashMap::new(), Vec::new());
        Sampler { host, own, threads, programs, windows, last_s: None, was_cut: false }
    }

    /// Reads all threads. The first call only begins the first window, each other one ends a window at `now_s`.
    ///
    /// # Errors
    ///
    /// `/proc` cannot be read.
    pub fn sample(&mut self, now_s: f64) -> Result<(), ReadError> {
        let begin_s = self.last_s.replace(now_s);
        let round = self.windows.len() + usize::from(begin_s.is_some());
        let window_ns = (now_s - begin_s.unwrap_or(now_s)) * 1e9;
        let mut used: HashMap<usize, u64> = HashMap::new();
        let mut left = THREADS_MAX;
        let pids = self.host.numbered("/proc", "")?;
        let mut is_cut = pids.len() > PROCESSES_MAX;
        for pid in pids.into_iter().take(PROCESSES_MAX) {
            if pid == self.own {
                continue;
            }
            // Processes and threads that end meanwhile are left out.
            let Ok(threads) = self.host.numbered(&format!("/proc/{pid}/task"), "") else { continue };
            let program = self.program(pid);
            for tid in threads {
                if left == 0 {
                    is_cut = true;
                    break;
                }
                let Some([ran_ns, waited_ns]) = times(&self.host, pid, tid) else { continue };
                left -= 1;
                let new = Thread { pid, ran_ns: 0, waited_ns: 0, windows: 0, awake: 0, round };
                let known = self.threads.get(&tid).copied().filter(|known| known.pid == pid && known.ran_ns <= ran_ns);
                let before = known.unwrap_or(new);
                let ran = match known {
                    Some(known) => ran_ns - known.ran_ns,
                    // It may have run for days before it was looked at. Else it is new, and has run in this window alone.
                    None if self.was_cut => 0,
                    None => ran_ns.min(window_ns as u64),
                };
                let busy = (ran + waited_ns.saturating_sub(before.waited_ns)) as f64;
                let is_awake = known.is_some() && busy >= AWAKE_SHARE * window_ns;
                let thread = Thread {
                    ran_ns,
                    waited_ns,
                    windows: before.windows + u32::from(known.is_some()),
                    awake: before.awake + u32::from(is_awake),
                    round,
                    ..before
                };
                self.threads.insert(tid, thread);
                if ran > 0 {
                    *used.entry(program).or_default() += ran;
                }
            }
        }
        self.threads.retain(|_, thread| thread.round == round);
        self.was_cut = is_cut;
        if begin_s.is_some() {
            let usage = used.into_iter().map(|(program, ns)| Usage { program, used_ms: ns as f64 / 1e6 });
            self.windows.push(Window { end_s: now_s, usage: usage.collect() });
        }
        Ok(())
    }

    /// The index of a process's name. A process has the name of its parent until it starts its program.
    fn program(&mut self, pid: u32) -> usize {
        let name = self.host.text(&format!("/proc/{pid}/comm"));
        let name = name.map_or_else(|_| format!("process {pid}"), |name| printable(&name, 15));
        let count = self.programs.len();
        let name = if count < NAMES_MAX { name } else { "others".to_owned() };
        *self.programs.entry(name).or_insert(count)
    }

    /// Processes that run still and have a thread that never slept, in at least five windows: it computes, or waits busily.
    pub fn never_slept(&self) -> HashSet<u32> {
        const WINDOWS_MIN: u32 = 5;
        let never = |thread: &&Thread| thread.windows >= WINDOWS_MIN && thread.awake == thread.windows;
        self.threads.values().filter(never).map(|thread| thread.pid).collect()
    }

    /// The windows, and the names of the programs that they count.
    pub fn finish(self) -> (Vec<Window>, Vec<String>) {
        let mut names: Vec<(usize, String)> = self.programs.into_iter().map(|(name, index)| (index, name)).collect();
        names.sort_unstable();
        (self.windows, names.into_iter().map(|(_, name)| name).collect())
    }
}

/// Nanoseconds for which a thread ran and waited for a processor. Without scheduler statistics, ticks in which it ran.
fn times(host: &Host, pid: u32, tid: u32) -> Option<[u64; 2]> {
    let folder = format!("/proc/{pid}/task/{tid}");
    if let Ok(text) = host.text(&format!("{folder}/schedstat")) {
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        return Some([numbers.next()?, numbers.next()?]);
    }
    let text = host.text(&format!("{folder}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some([ticks(11)?.saturating_add(ticks(12)?).saturating_mul(TICK_NS), 0])
}
