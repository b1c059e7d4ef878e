//! Noisy neighbours: the programs that ran when frames were late.
//!
//! Time is cut into windows. A window is slow if a frame in it was late. For each program, its processor use in slow
//! windows is compared with that in the others by the rank-sum test (Mann and Whitney 1947, with the correction for
//! ties). Ranks take no notice of how much a program uses, so a busy program that runs all the time is innocent, and a
//! rare one that runs only in slow windows is not. On a crowded machine nearly all windows are slow, so the test is
//! repeated with the slowest fifth, tenth and so on, and the clearest result counts.

use std::collections::BTreeMap;

use serde::Serialize;

/// A late frame is late by at least so much.
const LATE_US_MIN: f64 = 300.0;
/// A frame is late if it is later than the median by so many median deviations.
const DEVIATIONS: f64 = 8.0;
/// The smallest certainty of a suspect, in standard deviations. Some hundred programs are tested in several ways.
const Z_MIN: f64 = 5.0;
/// The smallest score of a suspect.
const SCORE_MIN: f64 = 0.2;
/// A program that ran for less than this share of the lateness does not explain it.
const EXPLAINED_MIN: f64 = 0.05;
/// A suspect ran in so many slow windows. Fewer happen by chance, however certain the test is.
const MEETINGS_MIN: usize = 4;
/// The slowest windows that are compared with the others: one of so many.
const SLOWEST: [usize; 4] = [5, 10, 20, 50];

/// A frame of a tick loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// When it was due, in seconds since the start.
    pub due_s: f64,
    /// How long after that it ended, in microseconds.
    pub late_us: f64,
}

/// The processor time that a program used in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// An index into [`Samples::programs`].
    pub program: usize,
    /// Processor time of all its threads, in milliseconds.
    pub used_ms: f64,
}

/// A window with the programs that ran in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Its end, in seconds since the start. It begins at the end of the one before.
    pub end_s: f64,
    /// The programs that ran; the others used nothing.
    pub usage: Vec<Usage>,
}

/// Frames and processor use of some time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// The frames in any order.
    pub frames: Vec<Frame>,
    /// The windows in order of time.
    pub windows: Vec<Window>,
    /// Names of the programs.
    pub programs: Vec<String>,
}

/// A program that ran when frames were late.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    /// Its name.
    pub name: String,
    /// 1: it ran more in every slow window than in any other; 0: no relation.
    pub score: f64,
    /// How certain that is, in standard deviations.
    pub z: f64,
    /// The number of the slowest windows for which that is clearest.
    pub slowest: usize,
    /// Processor time in one of them, mean, in milliseconds.
    pub slow_ms: f64,
    /// Processor time in another window, mean, in milliseconds.
    pub other_ms: f64,
    /// Seconds between its bursts, if they are regular.
    pub period_s: Option<f64>,
}

/// The programs that ran when frames were late, the most suspect first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranking {
    /// All frames.
    pub frames: usize,
    /// Frames that were late.
    pub late_frames: usize,
    /// A frame is late beyond this, in microseconds.
    pub late_us: f64,
    /// The median of all frames, in microseconds.
    pub median_us: f64,
    /// All windows.
    pub windows: usize,
    /// Windows with a late frame.
    pub slow_windows: usize,
    /// The suspects.
    pub suspects: Vec<Suspect>,
}

/// Finds the programs that ran when frames were late.
pub fn rank(samples: &Samples) -> Ranking {
    let frames = || samples.frames.iter().filter(|frame| frame.due_s.is_finite() && frame.late_us.is_finite());
    let mut late: Vec<f64> = frames().map(|frame| frame.late_us).collect();
    let median_us = median(&mut late);
    let mut deviations: Vec<f64> = late.iter().map(|us| (us - median_us).abs()).collect();
    let late_us = median_us + (DEVIATIONS * median(&mut deviations)).max(LATE_US_MIN);
    let late: Vec<Frame> = frames().copied().filter(|frame| frame.late_us > late_us).collect();
    let excess_us = excess_us(&samples.windows, &late, median_us);
    let slow_windows = excess_us.iter().filter(|excess_us| **excess_us > 0.0).count();
    let excess_ms = late.iter().map(|frame| (frame.late_us - median_us) / 1e3).sum::<f64>() / late.len().max(1) as f64;
    let cuts = cuts(&excess_us, slow_windows);

    // Processes of one name count as one: an agent may start a new one for each round.
    let mut names: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (index, window) in samples.windows.iter().enumerate() {
        for usage in &window.usage {
            let Some(name) = samples.programs.get(usage.program) else { continue };
            let used = names.entry(name).or_insert_with(|| vec![0.0; samples.windows.len()]);
            used[index] += if usage.used_ms.is_finite() { usage.used_ms } else { 0.0 };
        }
    }
    let suspect = |(name, used): (&str, Vec<f64>)| {
        let tested = cuts.iter().filter_map(|is_slow| Some((rank_sum(&used, is_slow)?, is_slow)));
        let ((score, z), is_slow) = tested.max_by(|a, b| a.0.1.total_cmp(&b.0.1))?;
        let (slow_ms, other_ms) = (mean(&used, is_slow, true), mean(&used, is_slow, false));
        let meetings = used.iter().zip(is_slow).filter(|(used, is_slow)| **is_slow && **used > other_ms).count();
        let is_suspect = score >= SCORE_MIN
            && z >= Z_MIN
            && meetings >= MEETINGS_MIN
            && slow_ms - other_ms >= EXPLAINED_MIN * excess_ms;
        let slowest = is_slow.iter().filter(|is_slow| **is_slow).count();
        let period_s = period_s(&samples.windows, &used);
        is_suspect.then(|| Suspect { name: name.to_owned(), score, z, slowest, slow_ms, other_ms, period_s })
    };
    let mut suspects: Vec<Suspect> = names.into_iter().filter_map(suspect).collect();
    suspects.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ranking {
        frames: samples.frames.len(),
        late_frames: late.len(),
        late_us,
        median_us,
        windows: samples.windows.len(),
        slow_windows,
        suspects,
    }
}

/// By how much the late frames of each window were late. A frame belongs to the window in which it was due, and to that in
/// which it ended.
fn excess_us(windows: &[Window], late: &[Frame], median_us: f64) -> Vec<f64> {
    let mut excess_us = vec![0.0; windows.len()];
    for frame in late {
        let place = |time_s: f64| windows.partition_point(|window| window.end_s <= time_s);
        let [due, end] = [frame.due_s, frame.due_s + frame.late_us / 1e6].map(place);
        for index in due..=end.max(due) {
            if let Some(excess) = excess_us.get_mut(index) {
                *excess += frame.late_us - median_us;
            }
        }
    }
    excess_us
}

/// The slow windows, and the slowest ones among them.
fn cuts(excess_us: &[f64], slow_windows: usize) -> Vec<Vec<bool>> {
    let mut order: Vec<usize> = (0..excess_us.len()).collect();
    order.sort_by(|&a, &b| excess_us[b].total_cmp(&excess_us[a]));
    let counts = SLOWEST.iter().map(|part| excess_us.len() / part);
    let counts = counts.filter(|count| (MEETINGS_MIN..slow_windows).contains(count)).chain([slow_windows]);
    let cut = |count: usize| {
        let mut is_slow = vec![false; excess_us.len()];
        order[..count].iter().for_each(|&index| is_slow[index] = true);
        is_slow
    };
    counts.map(cut).collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn mean(used: &[f64], is_slow: &[bool], of_slow: bool) -> f64 {
    let of: Vec<f64> = used.iter().zip(is_slow).filter(|(_, slow)| **slow == of_slow).map(|(used, _)| *used).collect();
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

/// The score from -1 to 1 and its z. `None` if there is nothing to compare.
fn rank_sum(used: &[f64], is_slow: &[bool]) -> Option<(f64, f64)> {
    let mut order: Vec<usize> = (0..used.len()).collect();
    order.sort_by(|&a, &b| used[a].total_cmp(&used[b]));
    let all = used.len() as f64;
    let slow = is_slow.iter().filter(|slow| **slow).count() as f64;
    let other = all - slow;
    let (mut sum, mut ties, mut begin) = (0.0, 0.0, 0);
    while begin < order.len() {
        let end = begin + order[begin..].iter().take_while(|&&index| used[index] == used[order[begin]]).count();
        let (count, rank) = ((end - begin) as f64, (begin + end + 1) as f64 / 2.0);
        sum += rank * order[begin..end].iter().filter(|&&index| is_slow[index]).count() as f64;
        ties += count.powi(3) - count;
        begin = end;
    }
    let wins = sum - slow * (slow + 1.0) / 2.0;
    let variance = slow * other / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    let is_comparable = slow >= 1.0 && other >= 1.0 && variance > 0.0;
    is_comparable.then(|| (2.0 * wins / (slow * other) - 1.0, (wins - slow * other / 2.0) / variance.sqrt()))
}

/// The time between bursts, if there are at least four and most of their distances are alike.
fn period_s(windows: &[Window], used: &[f64]) -> Option<f64> {
    const BURSTS_MIN: usize = 4;
    let most = used.iter().copied().fold(0.0, f64::max);
    let is_burst = |index: usize| used[index] > most / 3.0;
    let begins = (0..used.len()).filter(|&index| is_burst(index) && (index == 0 || !is_burst(index - 1)));
    let begins: Vec<f64> = begins.map(|index| windows[index].end_s).collect();
    let mut distances: Vec<f64> = begins.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let period_s = median(&mut distances);
    let window_s = windows.last().map_or(0.0, |window| window.end_s / windows.len() as f64);
    let tolerance_s = (0.1 * period_s).max(1.5 * window_s);
    let alike = distances.iter().filter(|distance| (**distance - period_s).abs() <= tolerance_s).count();
    // Bursts in each second or third window have no period that these windows show.
    let is_regular = begins.len() >= BURSTS_MIN && 4 * alike >= 3 * distances.len() && period_s > 3.0 * window_s;
    is_regular.then_some(period_s)
}
