//! Frames: the changes of a channel from one tick to another, encoded once for all subscriptions at that point.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throng_wire::Tick;

/// Where a subscription stands in a channel's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// It has nothing, or something too old: the frame must hold everything.
    Start,
    /// It has been sent everything up to and including this tick.
    Tick(Tick),
}

/// In which of several forms a frame is wanted: what it means is up to the channel's state. 0 is the ordinary one. Small,
/// because each subscription has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variant(pub u16);

/// The changes of one channel in `(since, tick]`, cut into segments. Immutable once encoded; shared by reference.
#[derive(Debug, Default)]
pub struct Frame {
    /// The tick whose state this is.
    pub tick: Tick,
    /// In which form it was asked for.
    pub variant: Variant,
    /// Bytes of all segments, one behind the other.
    pub bytes: Vec<u8>,
    /// The pieces, in order.
    pub segments: Vec<Segment>,
    /// The entries of the segments, for the supersession check: see [`Segment::first_entry`].
    pub entries: Vec<FrameEntry>,
    /// The writers of byte ranges, for readers that leave out their own writes. Empty if the state does not say.
    pub parts: Vec<FramePart>,
    /// Whether it says something that must not be said twice, as "append this". A reader's path that may have to repeat
    /// itself has to know.
    pub says_once: bool,
    pub(crate) scratch: Vec<u64>,
    pub(crate) words: Vec<u32>,
}

/// A piece of a frame that fits in a packet and decodes on its own.
#[derive(Debug)]
pub struct Segment {
    /// First byte in [`Frame::bytes`].
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
    /// First entry in [`Frame::entries`].
    pub first_entry: u32,
    /// One past the last entry.
    pub end_entry: u32,
    /// How many objects it introduces or updates; tombstones do not count.
    pub updates: u32,
    superseded: AtomicBool,
}

/// One statement of a segment about one slot of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEntry {
    /// The slot.
    pub slot: u32,
    /// The fields written. 0 for what only this segment can say (an introduction, a tombstone).
    pub mask: u64,
}

/// Bytes of a frame that go back to one writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePart {
    /// The segment in which they lie.
    pub segment: u32,
    /// The writer, in whatever numbers the state uses.
    pub writer: u32,
    /// First byte in [`Frame::bytes`].
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Frame {
    /// The bytes of segment `index`.
    pub fn segment_bytes(&self, index: usize) -> &[u8] {
        let segment = &self.segments[index];
        &self.bytes[segment.start as usize..segment.end as usize]
    }

    /// The entries of segment `index`.
    pub fn segment_entries(&self, index: usize) -> &[FrameEntry] {
        let segment = &self.segments[index];
        &self.entries[segment.first_entry as usize..segment.end_entry as usize]
    }

    /// Ends a segment that began at byte `start` and entry `first_entry` and holds `updates` objects.
    pub fn push_segment(&mut self, start: usize, first_entry: usize, updates: u32) {
        self.segments.push(Segment::new(start..self.bytes.len(), first_entry..self.entries.len(), updates));
    }

    /// A frame with room for what changes in a crowded cell: so many entries.
    pub(crate) fn of_a_crowd(entries: usize) -> Frame {
        Frame {
            tick: Tick(0),
            variant: Variant::default(),
            bytes: Vec::with_capacity(24 * entries),
            segments: Vec::with_capacity(2),
            entries: Vec::with_capacity(entries),
            parts: Vec::new(),
            says_once: false,
            scratch: Vec::with_capacity(entries),
            words: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.segments.clear();
        self.entries.clear();
        self.parts.clear();
        self.says_once = false;
        self.scratch.clear();
    }
}

impl Segment {
    pub(crate) fn new(bytes: Range<usize>, entries: Range<usize>, updates: u32) -> Segment {
        Segment {
            start: bytes.start as u32,
            end: bytes.end as u32,
            first_entry: entries.start as u32,
            end_entry: entries.end as u32,
            updates,
            superseded: AtomicBool::new(false),
        }
    }

    /// Whether an earlier check found that everything in here has been overtaken by later frames. Never taken back.
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_superseded(&self) {
        self.superseded.store(true, Ordering::Relaxed);
    }

    /// Bytes of the segment.
    pub fn len_bytes(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Frames in use and frames to be used again, so that a steady tick allocates nothing. Capacity that only a burst
/// needed is given back to the allocator, step by step.
#[derive(Debug, Default)]
pub(crate) struct FramePool {
    free: Vec<Arc<Frame>>,
    /// Those that have grown long: of a channel with many objects.
    long: Vec<Arc<Frame>>,
    lent: VecDeque<Arc<Frame>>,
    /// The most frames that were in use at once, where what is long ago counts less. In parts of [`FORGOTTEN_PART`], since a
    /// tick takes off less than one frame.
    usual_parts: usize,
}

/// This many unused frames are kept at most.
const FREE_FRAMES_MAX: usize = 65_536;

/// A frame that has grown beyond this, for a channel with a large state, is not kept.
const FREE_FRAME_BYTES_MAX: usize = 256 << 10;

/// The part of the usual number of frames that a tick with fewer takes off: after 700 such ticks it is the half.
const FORGOTTEN_PART: usize = 1_024;

/// A frame that has room for more bytes, or more entries, is long.
const LONG_FRAME: (usize, usize) = (1_024, 64);

/// Half as many again as the usual number are kept, and these: crowds come and go, and a steady tick is to allocate nothing.
const SPARE_FRAMES: usize = 64;

/// Spare frames are made beforehand when fewer are left than this part of those that are kept.
const SPARE_LEFT_PART: usize = 4;

/// Frames that are given back to the allocator in one tick.
const TRIMMED_PER_TICK: usize = 64;

impl FramePool {
    /// An empty frame without other holders, of the long ones if there are any and it has to be long.
    pub(crate) fn take(&mut self, is_long: bool, make: impl FnOnce() -> Frame) -> Arc<Frame> {
        let kept = match is_long {
            true => self.long.pop().or_else(|| self.free.pop()),
            false => self.free.pop().or_else(|| self.long.pop()),
        };
        kept.unwrap_or_else(|| Arc::new(make()))
    }

    /// Takes back a frame as soon as it is unused.
    pub(crate) fn take_back(&mut self, mut frame: Arc<Frame>) {
        match Arc::get_mut(&mut frame) {
            Some(unused) if unused.bytes.capacity() > FREE_FRAME_BYTES_MAX => {}
            Some(unused) => {
                unused.clear();
                let is_long = unused.bytes.capacity() > LONG_FRAME.0 || unused.entries.capacity() > LONG_FRAME.1;
                let kept = if is_long { &mut self.long } else { &mut self.free };
                if kept.len() < FREE_FRAMES_MAX {
                    kept.push(frame);
                }
            }
            None => self.lent.push_back(frame),
        }
    }

    /// Keeps frames for half as many again as have usually been in use at once: in the last tick `used`.
    pub(crate) fn trim(&mut self, used: usize) {
        let forgotten = self.usual_parts / FORGOTTEN_PART;
        self.usual_parts = (used * FORGOTTEN_PART).max(self.usual_parts - forgotten);
        let surplus = self.count().saturating_sub(self.usual() + self.spare());
        for _ in 0..surplus.min(TRIMMED_PER_TICK) {
            let longer = if self.long.len() > self.free.len() { &mut self.long } else { &mut self.free };
            longer.pop();
        }
    }

    /// Makes frames beforehand if few are spare, so that more than usual can be in use without an allocation. To be called after
    /// [`trim`](Self::trim).
    pub(crate) fn stock_up(&mut self, make: impl Fn() -> Frame) {
        let spare = self.count().saturating_sub(self.usual());
        if spare < self.spare() / SPARE_LEFT_PART {
            let lacking = (self.spare() - spare).min(FREE_FRAMES_MAX.saturating_sub(self.free.len()));
            self.free.extend((0..lacking).map(|_| Arc::new(make())));
        }
    }

    /// All frames: those in use, and those to be used again.
    fn count(&self) -> usize {
        self.free.len() + self.long.len() + self.lent.len()
    }

    fn usual(&self) -> usize {
        self.usual_parts.div_ceil(FORGOTTEN_PART)
    }

    /// How many frames are kept beyond the usual number.
    fn spare(&self) -> usize {
        self.usual() / 2 + SPARE_FRAMES
    }

    /// Checks up to `count` of the oldest frames and takes back the unused ones. A frame that is still held goes to the
    /// end of the queue, so one slow connection does not hide the others.
    pub(crate) fn reclaim(&mut self, count: usize) {
        for _ in 0..count.min(self.lent.len()) {
            let Some(frame) = self.lent.pop_front() else { return };
            self.take_back(frame);
        }
    }

    /// Frames that may still be in use.
    pub(crate) fn lent_count(&self) -> usize {
        self.lent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One tick that needs this many frames, all of which come back at its end.
    fn tick(pool: &mut FramePool, needed: usize) {
        let taken: Vec<Arc<Frame>> = (0..needed).map(|_| pool.take(false, Frame::default)).collect();
        taken.into_iter().for_each(|frame| pool.take_back(frame));
        pool.trim(needed);
    }

    #[test]
    fn a_steady_tick_finds_the_frames_of_the_last_one() {
        let mut pool = FramePool::default();
        for _ in 0..1_000 {
            tick(&mut pool, 100);
            assert_eq!(pool.free.len(), 100);
        }
    }

    #[test]
    fn what_a_burst_needed_is_given_back_in_time() {
        let mut pool = FramePool::default();
        tick(&mut pool, 4_000);
        (0..100).for_each(|_| tick(&mut pool, 10));
        assert!(pool.free.len() > 2_000, "not at once: the next burst may be near");
        (0..20_000).for_each(|_| tick(&mut pool, 10));
        assert_eq!(pool.free.len(), 10 + 10 / 2 + SPARE_FRAMES);
    }

    #[test]
    fn what_is_needed_now_and_then_is_kept_in_between() {
        for burst in [200, 1_000, 4_000] {
            let mut pool = FramePool::default();
            tick(&mut pool, burst);
            for _ in 0..10 {
                (0..300).for_each(|_| tick(&mut pool, 10));
                assert!(pool.free.len() >= burst, "{burst}: {}", pool.free.len());
                tick(&mut pool, burst);
            }
        }
    }

    /// The steady parts of a match: most ticks need 200 frames, later 500, and a stall of the network a third more.
    #[test]
    fn a_stocked_pool_makes_no_frame_for_a_tick_with_a_third_more_than_usual() {
        let mut pool = FramePool::default();
        let usual = |tick: u32| if tick < 500 { 190 } else { 490 };
        let stall = |tick: u32| if tick % 97 == 96 { usual(tick) / 3 } else { tick as usize * 7 % 20 };
        let needs = |tick: u32| usual(tick) + stall(tick);
        for number in 0..1_000 {
            let make = || {
                assert!(number < 2 || (500..502).contains(&number), "tick {number} needs a new frame");
                Frame::default()
            };
            let taken: Vec<Arc<Frame>> = (0..needs(number)).map(|_| pool.take(false, make)).collect();
            taken.into_iter().for_each(|frame| pool.take_back(frame));
            pool.trim(needs(number));
            pool.stock_up(make);
        }
    }

    #[test]
    fn a_frame_that_somebody_holds_comes_back_later() {
        let mut pool = FramePool::default();
        let frame = pool.take(false, Frame::default);
        let held = Arc::clone(&frame);
        pool.take_back(frame);
        pool.trim(1);
        pool.reclaim(10);
        assert_eq!((pool.lent_count(), pool.free.len()), (1, 0));
        drop(held);
        pool.reclaim(10);
        assert_eq!((pool.lent_count(), pool.free.len()), (0, 1));
    }

    #[test]
    fn long_frames_stay_among_themselves() {
        let mut pool = FramePool::default();
        let long = || Frame { bytes: Vec::with_capacity(LONG_FRAME.0 + 1), ..Frame::default() };
        for _ in 0..100 {
            let taken = [pool.take(true, long), pool.take(false, Frame::default), pool.take(false, Frame::default)];
            let rooms = taken.each_ref().map(|frame| frame.bytes.capacity() > LONG_FRAME.0);
            assert_eq!(rooms, [true, false, false]);
            taken.into_iter().for_each(|frame| pool.take_back(frame));
        }
        assert_eq!((pool.long.len(), pool.free.len()), (1, 2));
        // One more is better than none.
        let taken: Vec<_> = (0..3).map(|_| pool.take(false, || unreachable!("there are three"))).collect();
        drop(taken);
    }

    #[test]
    fn a_large_frame_is_not_kept() {
        let mut pool = FramePool::default();
        let large = || Frame { bytes: Vec::with_capacity(FREE_FRAME_BYTES_MAX + 1), ..Frame::default() };
        let frame = pool.take(true, large);
        pool.take_back(frame);
        assert!(pool.free.is_empty() && pool.long.is_empty());
    }

    #[test]
    fn segments_are_as_long_as_what_they_hold() {
        let mut frame = Frame::default();
        for bytes in [20, 7] {
            let start = frame.bytes.len();
            frame.bytes.resize(start + bytes, 1);
            frame.segments.push(Segment::new(start..frame.bytes.len(), 0..0, 1));
        }
        for (number, bytes) in [20, 7].into_iter().enumerate() {
            assert_eq!((frame.segments[number].len_bytes(), frame.segment_bytes(number).len()), (bytes, bytes));
        }
    }
}
