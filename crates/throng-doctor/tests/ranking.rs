//! The finder of noisy neighbours on synthetic samples.

use throng_doctor::{Frame, Ranking, Samples, Usage, Window, rank};

const WINDOWS: usize = 300;
const WINDOW_S: f64 = 0.1;
/// Busy programs that have nothing to do with late frames, the last one with bursts of its own.
const INNOCENT: usize = 20;

/// Half a minute at 128 Hz with innocent programs. `waker` says whether the program named so ran in a window, and
/// `late` whether a frame was late in it.
fn samples(seed: u64, waker: impl Fn(usize) -> bool, late: impl Fn(usize) -> bool) -> Samples {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut programs: Vec<String> = (0..INNOCENT).map(|index| format!("busy-{index}")).collect();
    programs.push("waker".to_owned());
    let mut all = Samples { programs, ..Samples::default() };
    for window in 0..WINDOWS {
        let mut usage = Vec::new();
        for program in 0..INNOCENT {
            let is_idle = program % 3 == 1 && random.bool();
            let burst_ms = if program == INNOCENT - 1 && window % 30 == 7 { 80.0 } else { 0.0 };
            let used_ms = if is_idle { 0.0 } else { 40.0 * random.f64() } + burst_ms;
            usage.push(Usage { program, used_ms });
        }
        if waker(window) {
            usage.push(Usage { program: INNOCENT, used_ms: 10.0 + 5.0 * random.f64() });
        }
        all.windows.push(Window { end_s: (window + 1) as f64 * WINDOW_S, usage });
        for tick in 0..12 {
            let due_s = (window as f64 + (f64::from(tick) + 0.3) / 13.0) * WINDOW_S;
            let excess_us = if late(window) && tick == 5 { 3_000.0 } else { 0.0 };
            all.frames.push(Frame { due_s, late_us: 250.0 + 30.0 * random.f64() + excess_us });
        }
    }
    all
}

fn names(ranking: &Ranking) -> Vec<&str> {
    ranking.suspects.iter().map(|suspect| suspect.name.as_str()).collect()
}

#[test]
fn a_program_that_wakes_every_five_seconds_is_found_among_busy_innocents() {
    throng_seeds::for_seeds(20, |seed| {
        let wakes = |window: usize| window % 50 == 13;
        let ranking = rank(&samples(seed, wakes, wakes));
        assert_eq!(names(&ranking), ["waker"], "seed {seed}");
        let suspect = &ranking.suspects[0];
        assert!(
            (suspect.score - 1.0).abs() < 1e-9 && suspect.other_ms == 0.0 && suspect.slow_ms >= 10.0,
            "{suspect:?}"
        );
        assert!((suspect.period_s.unwrap() - 5.0).abs() < 0.01, "{suspect:?}");
        assert_eq!((ranking.slow_windows, ranking.late_frames, ranking.windows), (6, 6, WINDOWS));
        assert!((3_000.0..3_300.0).contains(&(ranking.late_us + 3_000.0 - 300.0)), "{}", ranking.late_us);
    });
}

#[test]
fn it_is_found_although_half_of_the_late_frames_have_another_cause() {
    throng_seeds::for_seeds(20, |seed| {
        let wakes = |window: usize| window % 10 == 3;
        let ranking = rank(&samples(seed, wakes, |window| wakes(window) || window % 10 == 8));
        assert_eq!(names(&ranking), ["waker"], "seed {seed}");
        assert!((0.45..0.6).contains(&ranking.suspects[0].score), "{:?}", ranking.suspects[0]);
    });
}

#[test]
fn it_is_found_on_a_machine_whose_windows_are_all_slow() {
    throng_seeds::for_seeds(20, |seed| {
        let wakes = |window: usize| window % 50 == 13;
        let mut all = samples(seed, wakes, |_| true);
        let mut random = fastrand::Rng::with_seed(seed);
        for frame in all.frames.iter_mut().filter(|frame| frame.late_us > 1_000.0) {
            let is_waker = wakes((frame.due_s / WINDOW_S) as usize);
            frame.late_us += 2_000.0 * random.f64() + if is_waker { 3_000.0 } else { 0.0 };
        }
        let ranking = rank(&all);
        assert_eq!((names(&ranking), ranking.slow_windows), (vec!["waker"], WINDOWS), "seed {seed}");
    });
}

#[test]
fn innocents_are_not_accused() {
    const RUNS: usize = 200;
    /// Programs that run in so many windows of the 300, wherever.
    const RARE: [usize; 8] = [1, 2, 4, 6, 8, 12, 20, 40];
    let mut accused = Vec::new();
    for run in 0..RUNS {
        let mut random = fastrand::Rng::with_seed(run as u64);
        let is_late: Vec<bool> = (0..WINDOWS).map(|_| random.u8(..) < 12).collect();
        let is_crowded = run % 2 == 0;
        let mut all = samples(run as u64, |_| false, |window| is_crowded || is_late[window]);
        all.frames.iter_mut().for_each(|frame| frame.late_us *= 1.0 + random.f64());
        for windows in RARE {
            let program = all.programs.len();
            all.programs.push(format!("rare-{windows}"));
            for _ in 0..windows {
                all.windows[random.usize(..WINDOWS)].usage.push(Usage { program, used_ms: 20.0 });
            }
        }
        accused.extend(rank(&all).suspects);
    }
    assert!(accused.len() <= 2, "of {} innocent programs: {accused:?}", RUNS * (INNOCENT + RARE.len()));
}

#[test]
fn a_program_that_hardly_ran_does_not_explain_late_frames() {
    let wakes = |window: usize| window % 50 == 13;
    let mut all = samples(1, wakes, wakes);
    for usage in all.windows.iter_mut().flat_map(|window| &mut window.usage) {
        if usage.program == INNOCENT {
            usage.used_ms = 0.1;
        }
    }
    assert!(names(&rank(&all)).is_empty());
}

#[test]
fn processes_of_one_name_count_together() {
    let wakes = |window: usize| window % 50 == 13;
    let mut all = samples(1, |_| false, wakes);
    for (index, window) in (0..WINDOWS).filter(|window| wakes(*window)).enumerate() {
        all.programs.push("script".to_owned());
        all.windows[window].usage.push(Usage { program: INNOCENT + 1 + index, used_ms: 9.0 });
    }
    assert_eq!(names(&rank(&all)), ["script"]);
}

#[test]
fn late_frames_count_for_the_window_in_which_they_were_due_and_that_in_which_they_ended() {
    let mut all = samples(1, |window| [40, 41, 80, 81].contains(&window), |_| false);
    all.frames.push(Frame { due_s: 4.095, late_us: 9_000.0 });
    all.frames.push(Frame { due_s: 8.095, late_us: 9_000.0 });
    let ranking = rank(&all);
    assert_eq!((ranking.late_frames, ranking.slow_windows), (2, 4));
    assert_eq!(names(&ranking), ["waker"]);
    let thrice = samples(1, |window| [40, 80, 120].contains(&window), |window| [40, 80, 120].contains(&window));
    assert!(names(&rank(&thrice)).is_empty(), "three meetings may be chance");
}

#[test]
fn nothing_and_nonsense_are_no_suspects() {
    assert!(rank(&Samples::default()).suspects.is_empty());
    let quiet = rank(&samples(1, |_| true, |_| false));
    assert_eq!((quiet.late_frames, quiet.suspects.len()), (0, 0));
    let mut odd = samples(1, |window| window % 50 == 13, |window| window % 50 == 13);
    odd.frames.push(Frame { due_s: f64::NAN, late_us: f64::NAN });
    odd.frames.push(Frame { due_s: -1e300, late_us: f64::INFINITY });
    odd.windows[3].usage.push(Usage { program: 999, used_ms: 1.0 });
    odd.windows[4].usage.push(Usage { program: INNOCENT, used_ms: f64::NAN });
    assert_eq!(names(&rank(&odd)), ["waker"]);
}
