//! The last seconds of one recorder, in full.

use std::collections::VecDeque;

use crate::recorder::Head;

/// Most frames that are kept of a recorder, however long it plays them: 64 s at 128 Hz.
pub const HISTORY_FRAMES_MAX: usize = 8_192;

/// Most borders of spans that are kept of a recorder: 8 MiB.
const HISTORY_BORDERS_MAX: usize = 1 << 20;

/// Frames with the times of their subsystems and their spans, oldest first.
#[derive(Debug)]
pub(crate) struct History {
    keep_ns: u64,
    subsystems: usize,
    heads: VecDeque<Head>,
    parts_ns: VecDeque<u64>,
    borders: VecDeque<u64>,
}

/// One frame of a history.
#[derive(Clone, Debug)]
pub(crate) struct FullFrame {
    pub(crate) head: Head,
    pub(crate) parts_ns: Vec<u64>,
    pub(crate) borders: Vec<u64>,
}

impl History {
    /// Keeps frames that ended less than `keep_ns` nanoseconds before the newest began.
    pub(crate) fn new(keep_ns: u64, subsystems: usize) -> History {
        History { keep_ns, subsystems, heads: VecDeque::new(), parts_ns: VecDeque::new(), borders: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, head: Head, parts_ns: &[u64], borders: &[u64]) {
        self.heads.push_back(head);
        self.parts_ns.extend(parts_ns);
        self.borders.extend(borders);
        let from_ns = head.times.start_ns.saturating_sub(self.keep_ns);
        while let Some(oldest) = self.heads.front() {
            let is_recent = oldest.times.start_ns + oldest.times.wall_ns >= from_ns;
            if is_recent && self.heads.len() <= HISTORY_FRAMES_MAX && self.borders.len() <= HISTORY_BORDERS_MAX {
                break;
            }
            self.borders.drain(..oldest.borders as usize);
            self.parts_ns.drain(..self.subsystems);
            self.heads.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    /// The frames that began at `from_ns` or later, newest first.
    pub(crate) fn newest_first(&self, from_ns: u64) -> impl Iterator<Item = FullFrame> + '_ {
        let (mut parts_end, mut borders_end) = (self.parts_ns.len(), self.borders.len());
        let frames = self.heads.iter().rev().map(move |&head| {
            let (parts_begin, borders_begin) = (parts_end - self.subsystems, borders_end - head.borders as usize);
            let frame = FullFrame {
                head,
                parts_ns: self.parts_ns.range(parts_begin..parts_end).copied().collect(),
                borders: self.borders.range(borders_begin..borders_end).copied().collect(),
            };
            (parts_end, borders_end) = (parts_begin, borders_begin);
            frame
        });
        frames.take_while(move |frame| frame.head.times.start_ns >= from_ns)
    }
}
