//! Samples of who ran, from the files of threads.

use throng_doctor::{Sampler, Usage};

use crate::fixture::Machine;

fn used(window: &[Usage], names: &[String]) -> Vec<(String, f64)> {
    let mut used: Vec<(String, f64)> =
        window.iter().map(|usage| (names[usage.program].clone(), usage.used_ms)).collect();
    used.sort_by(|a, b| a.0.cmp(&b.0));
    used
}

#[test]
fn each_window_has_what_the_threads_ran_in_it() {
    let machine = Machine::empty();
    machine.describe(
        "
proc/10/comm = agent
proc/10/task/10/schedstat = 5000000 0 1
proc/10/task/11/schedstat = 7000000 0 1
proc/20/comm = old
proc/20/task/20/stat = 20 (o) l d) S 1 20 20 0 -1 0 0 0 0 0 30 10 0 0 20 0 1 0 100 0 0
proc/99/comm = own
proc/99/task/99/schedstat = 1 0 1
",
    );
    let mut sampler = Sampler::new(machine.host(), 99);
    sampler.sample(0.0).unwrap();
    machine.describe(
        "
proc/10/task/10/schedstat = 9000000 0 2
proc/10/task/12/schedstat = 1500000 0 1
proc/20/task/20/stat = 20 (o) l d) S 1 20 20 0 -1 0 0 0 0 0 31 11 0 0 20 0 1 0 100 0 0
proc/30/comm = sh
proc/30/task/30/schedstat = 250000 0 1
proc/99/task/99/schedstat = 90000000 0 1
",
    );
    sampler.sample(0.1).unwrap();
    machine.describe("proc/30/comm = backup\nproc/30/task/30/schedstat = 1250000 0 1\nproc/20 -");
    sampler.sample(0.2).unwrap();
    let (windows, names) = sampler.finish();
    assert_eq!(windows.iter().map(|window| window.end_s).collect::<Vec<_>>(), [0.1, 0.2]);
    let is = |name: &str, used_ms| (name.to_owned(), used_ms);
    assert_eq!(used(&windows[0].usage, &names), [is("agent", 5.5), is("old", 20.0), is("sh", 0.25)]);
    assert_eq!(used(&windows[1].usage, &names), [is("backup", 1.0)]);
}

#[test]
fn an_id_that_is_used_again_is_another_thread() {
    let machine = Machine::empty();
    machine.describe("proc/10/comm = first\nproc/10/task/10/schedstat = 80000000 0 1");
    let mut sampler = Sampler::new(machine.host(), 1);
    sampler.sample(0.0).unwrap();
    machine.describe("proc/10/comm = second\nproc/10/task/10/schedstat = 3000000 0 1");
    sampler.sample(0.1).unwrap();
    let (windows, names) = sampler.finish();
    assert_eq!(used(&windows[0].usage, &names), [("second".to_owned(), 3.0)]);
}

#[test]
fn a_thread_that_could_not_be_looked_at_before_does_not_count_with_its_whole_life() {
    let machine = Machine::empty();
    // So many processes are looked at, and the one behind them is not.
    machine.describe(
        "
proc/{1000-9191}/comm = idle
proc/90000/comm = old
proc/90000/task/90000/schedstat = 3600000000000 0 1
",
    );
    let mut sampler = Sampler::new(machine.host(), 1);
    sampler.sample(0.0).unwrap();
    machine.describe("proc/1000 -");
    sampler.sample(0.5).unwrap();
    machine.describe("proc/90000/task/90000/schedstat = 3600004000000 0 1\nproc/90001/comm = new");
    machine.describe("proc/1001 -\nproc/90001/task/90001/schedstat = 900000000 0 1");
    sampler.sample(1.0).unwrap();
    let (windows, names) = sampler.finish();
    assert!(windows[0].usage.is_empty(), "{windows:?}");
    let is = |name: &str, used_ms| (name.to_owned(), used_ms);
    assert_eq!(used(&windows[1].usage, &names), [is("new", 500.0), is("old", 4.0)], "at most the whole window");
}

#[test]
fn a_thread_that_only_runs_or_waits_never_sleeps() {
    let machine = Machine::empty();
    let mut sampler = Sampler::new(machine.host(), 1);
    for round in 0..=6_u64 {
        let (spins, naps, once) =
            (60_000_000 * round, 90_000_000 * round, if round == 3 { 0 } else { 40_000_000 * round });
        machine.describe(&format!(
            "
proc/10/comm = spinner
proc/10/task/10/schedstat = {spins} {once} 1
proc/20/comm = worker
proc/20/task/20/schedstat = {naps} 0 1
proc/30/comm = spinner
proc/30/task/30/schedstat = 0 0 1
proc/30/task/31/schedstat = {spins} {} 1
",
            40_000_000 * round
        ));
        sampler.sample(0.1 * round as f64).unwrap();
        assert!(round >= 5 || sampler.never_slept().is_empty(), "after {round} windows");
    }
    assert_eq!(sampler.never_slept().into_iter().collect::<Vec<_>>(), [30]);
}
