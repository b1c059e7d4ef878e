//! The recorder of one match: from the first scope of a frame to the collector.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use throng_meter::{MAX_SUBSYSTEMS, TickRecord};

use crate::clock::{cpu_after_frame, cpu_before_frame};
use crate::{Clock, Scopes};

/// Most frames that wait for the collector. Later ones are lost, and counted. 2 s at 128 Hz.
pub const WAITING_FRAMES_MAX: usize = 256;

/// Most borders of spans that wait for the collector: 64 spans for each waiting frame. A frame beyond that keeps its
/// times and loses its spans, and they are counted.
const WAITING_BORDERS_MAX: usize = 128 * WAITING_FRAMES_MAX;

/// Frames that a recorder keeps while the collector takes others.
const OWN_FRAMES_MAX: usize = 16;

/// Most borders of spans of one frame and those that the recorder keeps.
const OWN_BORDERS_MAX: usize = 8_192;

/// The part of a match that a frame belongs to, as `buy` or `live`: a label of figures and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase(&'static str);

impl Phase {
    /// A phase of this name.
    pub const fn new(name: &'static str) -> Phase {
        Phase(name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// A finished frame, without the times of its subsystems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTimes {
    /// The number of the tick.
    pub tick: u64,
    /// The phase of the match.
    pub phase: Phase,
    /// When the frame began, in nanoseconds of the [`Clock`].
    pub start_ns: u64,
    /// From begin to end.
    pub wall_ns: u64,
    /// How long the thread ran in that time; `None` where the system does not tell it. After a busy pause of less than
    /// 20 µs since this thread's last frame, the pause counts too.
    pub cpu_ns: Option<u64>,
    /// How long after its planned time the frame began, as the runtime said with [`Frame::note_lateness_ns`].
    pub late_ns: u64,
}

impl FrameTimes {
    /// How long the thread did not run during the frame, because it was stopped, slept, waited or was preempted.
    pub fn not_running_ns(&self) -> Option<u64> {
        self.cpu_ns.map(|cpu_ns| self.wall_ns - cpu_ns.min(self.wall_ns))
    }
}

/// A frame on its way to the collector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) times: FrameTimes,
    /// Borders of its spans.
    pub(crate) borders: u32,
    /// Spans that are missing among them.
    pub(crate) skipped: u32,
}

/// Frames, one after the other: heads, then for each head its subsystems' times, and its borders.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) heads: Vec<Head>,
    pub(crate) parts_ns: Vec<u64>,
    pub(crate) borders: Vec<u64>,
    pub(crate) lost_frames: u64,
}

impl Batch {
    /// Room for as many frames as may wait, of `subsystems` each.
    pub(crate) fn new(subsystems: usize) -> Batch {
        Batch {
            heads: Vec::with_capacity(WAITING_FRAMES_MAX),
            parts_ns: Vec::with_capacity(WAITING_FRAMES_MAX * subsystems),
            borders: Vec::with_capacity(WAITING_BORDERS_MAX),
            lost_frames: 0,
        }
    }

    fn push(&mut self, mut head: Head, parts_ns: &[u64], borders: &[u64]) {
        if self.heads.len() == WAITING_FRAMES_MAX {
            self.lost_frames += 1;
            return;
        }
        if self.borders.len() + borders.len() <= WAITING_BORDERS_MAX {
            self.borders.extend_from_slice(borders);
        } else {
            head.skipped += head.borders / 2;
            head.borders = 0;
        }
        self.heads.push(head);
        self.parts_ns.extend_from_slice(parts_ns);
    }

    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.parts_ns.clear();
        self.borders.clear();
        self.lost_frames = 0;
    }
}

/// The state that a recorder and the collector share.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    waiting: Mutex<Batch>,
    pub(crate) has_ended: AtomicBool,
}

impl Line {
    pub(crate) fn new(name: &str, subsystems: usize) -> Line {
        Line { name: name.to_owned(), waiting: Mutex::new(Batch::new(subsystems)), has_ended: AtomicBool::new(false) }
    }

    /// For the collector, which only swaps what is inside.
    pub(crate) fn waiting(&self) -> MutexGuard<'_, Batch> {
        // Nothing that may panic runs under the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting_if_free(&self) -> Option<MutexGuard<'_, Batch>> {
        match self.waiting.try_lock() {
            Ok(waiting) => Some(waiting),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Measures the frames of one match, on whichever thread it runs.
///
/// [`Telemetry::recorder`](crate::Telemetry::recorder) makes one. It allocates then, and never again. It never waits for
/// the collector or for a reader: if one of them holds the lock for the moment, frames are handed over with a later one.
/// Its records stay when it is dropped.
#[derive(Debug)]
pub struct Recorder {
    pub(crate) line: Arc<Line>,
    is_on: bool,
    subsystems: usize,
    scopes: Scopes,
    /// Finished frames that the collector does not have yet.
    heads: Vec<Head>,
    parts_ns: Vec<u64>,
    lost_frames: u64,
    /// A curve for each subsystem, of frames that were measured elsewhere.
    #[cfg(feature = "tracy")]
    plots: Vec<tracy_client::PlotName>,
}

impl Recorder {
    pub(crate) fn new(line: Arc<Line>, clock: Clock, subsystems: usize) -> Recorder {
        Recorder {
            line,
            is_on: true,
            subsystems,
            scopes: Scopes::new(clock, OWN_BORDERS_MAX),
            heads: Vec::with_capacity(OWN_FRAMES_MAX),
            parts_ns: Vec::with_capacity(OWN_FRAMES_MAX * subsystems),
            lost_frames: 0,
            #[cfg(feature = "tracy")]
            plots: Vec::new(),
        }
    }

    #[cfg(feature = "tracy")]
    pub(crate) fn set_names(&mut self, names: Arc<throng_meter::Subsystems>) {
        self.scopes.names = names;
    }

    /// Switches measuring on or off, from the next frame on. On at first.
    pub fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// Begins the frame of `tick`. It ends when the result is finished or dropped, also by a panic.
    #[must_use = "the frame ends when it is dropped"]
    pub fn begin(&mut self, tick: u64, phase: Phase) -> Frame<'_> {
        let cpu_ns = if self.is_on { cpu_before_frame(&self.scopes.clock) } else { None };
        self.scopes.begin(tick, self.is_on);
        let first_border = self.scopes.borders.len();
        Frame { recorder: self, phase, late_ns: 0, cpu_ns, first_border, has_ended: false, thread: PhantomData }
    }

    /// Takes a frame that was measured elsewhere, as by a `throng` server: exclusive times by [index](throng_meter::Subsystem::index)
    /// that add up to `times.wall_ns`. It has no spans, and counts as entered by no scope.
    pub fn add(&mut self, times: FrameTimes, parts_ns: &[u64; MAX_SUBSYSTEMS]) {
        if self.heads.len() == OWN_FRAMES_MAX {
            self.lost_frames += 1;
        } else {
            self.heads.push(Head { times, borders: 0, skipped: 0 });
            self.parts_ns.extend_from_slice(&parts_ns[..self.subsystems]);
        }
        #[cfg(feature = "tracy")]
        self.plot(parts_ns);
        self.hand_over();
    }

    /// Tracy gets a point of a curve for each subsystem, in milliseconds: the places of its work within the frame are not known.
    #[cfg(feature = "tracy")]
    fn plot(&mut self, parts_ns: &[u64; MAX_SUBSYSTEMS]) {
        let Some(client) = tracy_client::Client::running() else { return };
        if self.plots.is_empty() {
            // Tracy keeps names for ever. A recorder makes them once.
            let names = &self.scopes.names;
            let plot = |part| tracy_client::PlotName::new_leak(names.name(part).to_owned());
            self.plots = names.iter().map(plot).collect();
        }
        self.plots
            .iter()
            .zip(parts_ns)
            .filter(|(_, ns)| **ns > 0)
            .for_each(|(plot, ns)| client.plot(*plot, *ns as f64 / 1e6));
        client.frame_mark();
    }

    /// The newest frame that was measured, with the times of its subsystems.
    pub fn last(&self) -> &TickRecord {
        self.scopes.meter.record()
    }

    /// Hands all finished frames to the collector, if it does not hold the lock.
    fn hand_over(&mut self) {
        let Some(mut waiting) = self.line.waiting_if_free() else { return };
        waiting.lost_frames += std::mem::take(&mut self.lost_frames);
        let mut borders = &self.scopes.borders[..];
        for (head, parts_ns) in self.heads.drain(..).zip(self.parts_ns.chunks_exact(self.subsystems)) {
            let (own, later) = borders.split_at(head.borders as usize);
            waiting.push(head, parts_ns, own);
            borders = later;
        }
        drop(waiting);
        self.parts_ns.clear();
        self.scopes.borders.clear();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Not in a frame any more: the last frames may wait for the lock.
        while !self.heads.is_empty() {
            self.hand_over();
            std::thread::yield_now();
        }
        self.line.has_ended.store(true, Ordering::Release);
    }
}

/// A frame that runs. Gives access to its [`Scopes`].
///
/// It stays on the thread that began it, because it measures that thread's processor time.
#[derive(Debug)]
pub struct Frame<'a> {
    recorder: &'a mut Recorder,
    phase: Phase,
    late_ns: u64,
    cpu_ns: Option<u64>,
    first_border: usize,
    has_ended: bool,
    thread: PhantomData<*const ()>,
}

impl Frame<'_> {
    /// The frame began `late_ns` nanoseconds after its planned time.
    pub fn note_lateness_ns(&mut self, late_ns: u64) {
        self.late_ns = late_ns;
    }

    /// The phase changed: it names the whole frame.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Ends the frame. All times are 0 if the recorder is off.
    pub fn finish(mut self) -> FrameTimes {
        self.end()
    }

    fn end(&mut self) -> FrameTimes {
        self.has_ended = true;
        let recorder = &mut *self.recorder;
        let scopes = &mut recorder.scopes;
        if !scopes.is_on() {
            return self.times(&TickRecord::default(), None);
        }
        scopes.end();
        let record = scopes.meter.record();
        let cpu_ns = cpu_after_frame(&scopes.clock, record.start_ns + record.total_ns);
        let cpu_ns = self.cpu_ns.zip(cpu_ns).map(|(before, after)| after.saturating_sub(before));
        let times = self.times(self.recorder.scopes.meter.record(), cpu_ns);
        self.keep(times);
        self.recorder.hand_over();
        times
    }

    fn times(&self, record: &TickRecord, cpu_ns: Option<u64>) -> FrameTimes {
        FrameTimes {
            tick: record.tick,
            phase: self.phase,
            start_ns: record.start_ns,
            wall_ns: record.total_ns,
            cpu_ns: cpu_ns.map(|cpu_ns| cpu_ns.min(record.total_ns)),
            late_ns: self.late_ns,
        }
    }

    fn keep(&mut self, times: FrameTimes) {
        let recorder = &mut *self.recorder;
        let scopes = &mut recorder.scopes;
        if recorder.heads.len() == OWN_FRAMES_MAX {
            recorder.lost_frames += 1;
            scopes.borders.truncate(self.first_border);
            return;
        }
        let borders = (scopes.borders.len() - self.first_border) as u32;
        recorder.heads.push(Head { times, borders, skipped: scopes.skipped });
        recorder.parts_ns.extend_from_slice(&scopes.meter.record().subsystem_ns[..recorder.subsystems]);
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end();
        }
    }
}

impl Deref for Frame<'_> {
    type Target = Scopes;

    fn deref(&self) -> &Scopes {
        &self.recorder.scopes
    }
}

impl DerefMut for Frame<'_> {
    fn deref_mut(&mut self) -> &mut Scopes {
        &mut self.recorder.scopes
    }
}

#[cfg(test)]
mod tests {
    use throng_meter::Subsystem;

    use super::*;

    const LIVE: Phase = Phase::new("live");

    fn play(recorder: &mut Recorder, ticks: std::ops::Range<u64>) {
        for tick in ticks {
            let mut frame = recorder.begin(tick, LIVE);
            frame.time(Subsystem::AI, |scopes| scopes.time(Subsystem::PHYSICS, |_| {}));
            frame.finish();
        }
    }

    fn ticks(batch: &Batch) -> Vec<u64> {
        batch.heads.iter().map(|head| head.times.tick).collect()
    }

    #[test]
    fn a_frame_does_not_wait_for_the_collector_and_comes_with_a_later_one() {
        let line = Arc::new(Line::new("m", 30));
        let mut recorder = Recorder::new(line.clone(), Clock::system(), 30);
        let held = line.waiting();
        play(&mut recorder, 0..10);
        assert!(held.heads.is_empty());
        drop(held);
        play(&mut recorder, 10..12);
        {
            let waiting = line.waiting();
            assert_eq!(ticks(&waiting), (0..12).collect::<Vec<_>>());
            assert_eq!((waiting.borders.len(), waiting.parts_ns.len(), waiting.lost_frames), (12 * 4, 12 * 30, 0));
            // Sixteen frames are kept, the rest are lost.
            play(&mut recorder, 12..40);
        }
        play(&mut recorder, 40..41);
        let waiting = line.waiting();
        assert_eq!(ticks(&waiting), (0..28).collect::<Vec<_>>());
        assert_eq!((waiting.borders.len(), waiting.lost_frames), (28 * 4, 13));
    }

    #[test]
    fn frames_beyond_the_room_for_spans_keep_their_sums() {
        let line = Arc::new(Line::new("m", 30));
        let mut recorder = Recorder::new(line.clone(), Clock::system(), 30);
        for tick in 0..20 {
            let mut frame = recorder.begin(tick, LIVE);
            (0..1_500).for_each(|_| frame.time(Subsystem::AI, |_| {}));
            frame.finish();
        }
        let waiting = line.waiting();
        let spans: Vec<_> = waiting.heads.iter().map(|head| (head.borders / 2, head.skipped)).collect();
        assert_eq!(spans[..10], [(1_500, 0); 10]);
        assert_eq!(spans[10..], [(0, 1_500); 10]);
        assert_eq!(waiting.parts_ns.len(), 20 * 30);
    }
}
