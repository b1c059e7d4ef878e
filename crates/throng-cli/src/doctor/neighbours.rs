//! `throng doctor --neighbours`: a tick loop on each processor, and samples of who else ran.

use std::collections::HashSet;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use throng_doctor::{
    Frame, Host, Program, Ranking, Sampler, Samples, Topology, allowed_cpus, cpu_list, programs, rank,
};

use super::DoctorArguments;
use super::load::cpu_set;
use crate::exit::Outcome;

const TICK: Duration = Duration::from_nanos(1_000_000_000 / 128);
/// The shortest window. Windows are longer where there are so many threads that reading them takes more than a tenth of a
/// processor.
const WINDOW: Duration = Duration::from_millis(100);
const READING_SHARE_MAX: u32 = 10;
/// The most processors with a loop.
const LOOPS_MAX: usize = 64;
/// Rounds of the work of a frame: some 0.2 ms.
const ROUNDS: u64 = 30_000;
const SUSPECTS_SHOWN: usize = 10;

/// A list of processors.
#[derive(Clone, Debug)]
pub(crate) struct Cpus(Vec<u32>);

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Cpus, String> {
        let number = |word: &str| word.parse::<u32>().ok().filter(|cpu| *cpu < 8_192);
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(number(first)?..=number(last)?)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        let mut cpus: Vec<u32> = ranges.into_iter().flatten().flatten().collect();
        cpus.sort_unstable();
        cpus.dedup();
        if cpus.is_empty() { Err("a list of processors is expected, as 1 or 0,2-3".to_owned()) } else { Ok(Cpus(cpus)) }
    }
}

pub(crate) fn find(arguments: &DoctorArguments, host: &Host, stop: &AtomicBool) -> Outcome {
    let allowed = allowed_cpus(host).context("cannot read the processors that this process may use")?;
    let mut cpus = arguments.cpus.as_ref().map_or_else(|| allowed.clone(), |cpus| cpus.0.clone());
    if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        refuse!("--cpus: this process may not use CPU {cpu}, only {}", cpu_list(&allowed));
    }
    if let Some(note) = keep_loops(&mut cpus) {
        errln!("{note}");
    }
    let seconds = Duration::from_secs(arguments.seconds.into());
    errln!("looking for {} s at who runs when frames are late; press Ctrl-C to look no longer", arguments.seconds);
    let (frames, sampler) = observe(host, &cpus, seconds, stop)?;
    let never_slept = sampler.never_slept();
    let (windows, names) = sampler.finish();
    let ranking = rank(&Samples { frames, windows, programs: names });
    let online = Topology::read(host).map_or(0, |topology| topology.cpus.len());
    let mut per_cpu = programs(host, online).context("cannot list the programs")?;
    per_cpu.retain(|program| program.per_cpu.is_some() || never_slept.contains(&program.pid));
    per_cpu.retain(|program| program.pid != std::process::id());
    if arguments.json {
        let show = |program: &Program| {
            let mut value = serde_json::to_value(program).unwrap_or_default();
            value["never_slept"] = never_slept.contains(&program.pid).into();
            value
        };
        let programs: Vec<_> = per_cpu.iter().map(show).collect();
        crate::out::json(&serde_json::json!({ "format": 1, "cpus": cpus, "ranking": ranking, "programs": programs }))?;
    } else {
        out!("{}", text(&ranking, &cpus));
        out!("{}", listed(&per_cpu, &never_slept));
    }
    Ok(ExitCode::SUCCESS)
}

/// Leaves the processors that get a loop, and tells if those are not all.
fn keep_loops(cpus: &mut Vec<u32>) -> Option<String> {
    let all = cpus.len();
    cpus.truncate(LOOPS_MAX);
    let note = || format!("only {LOOPS_MAX} of {all} CPUs get a loop: {}; choose others with --cpus", cpu_list(cpus));
    (all > LOOPS_MAX).then(note)
}

/// The frames of all loops, and the sampler with its windows.
fn observe(host: &Host, cpus: &[u32], length: Duration, stop: &AtomicBool) -> Result<(Vec<Frame>, Sampler)> {
    let is_over = AtomicBool::new(false);
    let begin = Instant::now();
    thread::scope(|scope| {
        let is_over = &is_over;
        let loops: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || frames(cpu, begin, is_over))).collect();
        let sampling = scope.spawn(move || sample(Sampler::new(host.clone(), std::process::id()), begin, is_over));
        while begin.elapsed() < length && !stop.load(Ordering::Relaxed) && !sampling.is_finished() {
            thread::sleep(Duration::from_millis(50));
        }
        is_over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for frames in loops {
            all.extend(frames.join().map_err(|_| anyhow!("a loop failed"))??);
        }
        Ok((all, sampling.join().map_err(|_| anyhow!("the sampling failed"))??))
    })
}

/// A loop as that of a match: absolute deadlines, missed ones are skipped.
fn frames(cpu: u32, begin: Instant, is_over: &AtomicBool) -> Result<Vec<Frame>> {
    rustix::thread::sched_setaffinity(None, &cpu_set(&[cpu])).with_context(|| format!("cannot use CPU {cpu}"))?;
    // Where this is refused, all frames are later by the same time.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut frames = Vec::new();
    let mut due = TICK;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_sub(begin.elapsed()));
        black_box((0..ROUNDS).fold(u64::from(cpu), |state, round| black_box(state.rotate_left(5) ^ round)));
        let late_us = begin.elapsed().saturating_sub(due).as_nanos() as f64 / 1e3;
        frames.push(Frame { due_s: due.as_secs_f64(), late_us });
        due += TICK;
        while due < begin.elapsed() {
            due += TICK;
        }
    }
    Ok(frames)
}

fn sample(mut sampler: Sampler, begin: Instant, is_over: &AtomicBool) -> Result<Sampler> {
    let mut due = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_sub(begin.elapsed()));
        let start = (begin.elapsed(), processor_time());
        sampler.sample(start.0.as_secs_f64()).context("cannot read the processes")?;
        due = start.0 + WINDOW.max((processor_time() - start.1) * READING_SHARE_MAX);
    }
    Ok(sampler)
}

/// The time for which this thread has run. Waits for a processor do not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

fn text(ranking: &Ranking, cpus: &[u32]) -> String {
    let Ranking { frames, late_frames, windows, slow_windows, .. } = ranking;
    let (median_ms, late_ms) = (ranking.median_us / 1e3, ranking.late_us / 1e3);
    let head = format!(
        "{frames} frames at 128 Hz on CPUs {}, median {median_ms:.2} ms after their deadline: {late_frames} later than \
         {late_ms:.2} ms, in {slow_windows} of {windows} windows\n",
        cpu_list(cpus)
    );
    let mut text = throng_doctor::wrapped("", &head);
    if ranking.suspects.is_empty() {
        text.push_str(if ranking.late_frames == 0 {
            "No frame was late.\n"
        } else {
            "No program ran in slow windows more than in others; look at steal and irq of `throng doctor`.\n"
        });
        return text;
    }
    text.push_str("\nPrograms that ran in the slowest windows; score 1: in each of them, and more than in any other\n");
    text.push_str("  score  certainty  slowest     in these  otherwise    every  program\n");
    for suspect in ranking.suspects.iter().take(SUSPECTS_SHOWN) {
        let every = suspect.period_s.map_or("-".to_owned(), |period_s| format!("{period_s:.1} s"));
        text.push_str(&format!(
            "  {:5.2}  {:3.0} sigma  {:7}  {:8.1} ms  {:6.1} ms  {every:>7}  {}\n",
            suspect.score, suspect.z, suspect.slowest, suspect.slow_ms, suspect.other_ms, suspect.name
        ));
    }
    text
}

fn listed(programs: &[Program], never_slept: &HashSet<u32>) -> String {
    let mut text = String::new();
    for program in programs {
        let threads = program.per_cpu.as_ref().map(|threads| format!("one thread `{threads}` for each CPU"));
        let busy =
            never_slept.contains(&program.pid).then(|| "a thread never slept: it computes, or waits busily".to_owned());
        let what: Vec<String> = threads.into_iter().chain(busy).collect();
        text.push_str(&throng_doctor::wrapped(
            &format!("  {:<15} {:>7}  ", program.name, program.pid),
            &what.join("; "),
        ));
    }
    if text.is_empty() { text } else { format!("\nPrograms with a thread for each CPU, or that never sleep\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_without_a_loop_are_told() {
        let mut cpus: Vec<u32> = (2..66).collect();
        assert_eq!((keep_loops(&mut cpus), cpus.len()), (None, 64));
        cpus.push(66);
        let note = keep_loops(&mut cpus).unwrap();
        assert_eq!(note, "only 64 of 65 CPUs get a loop: 2-65; choose others with --cpus");
        assert_eq!(cpus, (2..66).collect::<Vec<u32>>());
    }
}
