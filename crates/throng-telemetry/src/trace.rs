//! Frames as a trace: Chrome's trace event format, which Perfetto and `chrome://tracing` open.
//!
//! Source: "Trace Event Format", Google, 2016. All events are complete ones (`"ph":"X"`), times in microseconds with three
//! decimals, so nanoseconds are exact:
//!
//! ```text
//! {"displayTimeUnit":"ns","otherData":{...},"traceEvents":[
//!   {"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"match 1"}},
//!   {"name":"frame","ph":"X","pid":1,"tid":1,"ts":12.000,"dur":400.000,"args":{"tick":1,"phase":"live",...}},
//!   {"name":"physics","ph":"X","pid":1,"tid":1,"ts":13.000,"dur":20.000}, ...
//! ]}
//! ```

use std::fmt::Write;

use serde_json::{Map, Value};
use throng_meter::{Subsystem, Subsystems};

use crate::history::FullFrame;
use crate::scopes::{END, OFFSET_BITS};

/// No span takes more bytes in a trace: a name of 32 bytes, four numbers, and what is around them.
const SPAN_BYTES_MAX: usize = 160;

/// A text that grows by frames up to a bound.
pub(crate) struct Trace<'a> {
    subsystems: &'a Subsystems,
    text: String,
    bytes_max: usize,
}

impl<'a> Trace<'a> {
    /// An empty trace of at most `bytes_max` bytes.
    pub(crate) fn new(subsystems: &'a Subsystems, bytes_max: usize) -> Trace<'a> {
        Trace { subsystems, text: String::new(), bytes_max }
    }

    /// Gives the frames of the recorder of this number a name.
    pub(crate) fn name(&mut self, number: usize, name: &str) {
        let name = Value::from(name);
        self.event(format_args!(
            "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{number},\"args\":{{\"name\":{name}}}}}"
        ));
    }

    /// Adds a frame with its spans, if there is room for all of it.
    pub(crate) fn add(&mut self, number: usize, frame: &FullFrame) -> bool {
        let subsystem_bytes = 64 * self.subsystems.count();
        let spans = if frame.borders.is_empty() { self.subsystems.count() } else { frame.borders.len() / 2 };
        let needed = 512 + subsystem_bytes + SPAN_BYTES_MAX * spans;
        if self.text.len() + needed > self.bytes_max {
            return false;
        }
        self.add_frame(number, frame);
        if frame.borders.is_empty() {
            self.add_parts(number, frame);
        } else {
            self.add_spans(number, frame);
        }
        true
    }

    fn add_frame(&mut self, number: usize, frame: &FullFrame) {
        let times = frame.head.times;
        let or_null = |ns: Option<u64>| ns.map_or_else(|| "null".to_owned(), |ns| Micros(ns).to_string());
        let mut parts = String::new();
        for subsystem in self.subsystems.iter() {
            let ns = frame.parts_ns[subsystem.index()];
            if ns > 0 {
                let comma = if parts.is_empty() { "" } else { "," };
                let _ = write!(parts, "{comma}\"{}\":{}", self.subsystems.name(subsystem), Micros(ns));
            }
        }
        self.event(format_args!(
            "{{\"name\":\"frame\",\"ph\":\"X\",\"pid\":1,\"tid\":{number},\"ts\":{},\"dur\":{},\"args\":{{\"tick\":{},\
             \"phase\":{},\"late_us\":{},\"cpu_us\":{},\"not_running_us\":{},\"spans_skipped\":{},\"self_us\":{{{parts}}}}}}}",
            Micros(times.start_ns),
            Micros(times.wall_ns),
            times.tick,
            Value::from(times.phase.name()),
            Micros(times.late_ns),
            or_null(times.cpu_ns),
            or_null(times.not_running_ns()),
            frame.head.skipped,
        ));
    }

    fn add_spans(&mut self, number: usize, frame: &FullFrame) {
        let times = frame.head.times;
        let names: Vec<_> = self.subsystems.iter().map(|part| (part.index(), self.subsystems.name(part))).collect();
        let mut open = Vec::new();
        // A span that a forgotten scope left open ends with its frame.
        let left_open = frame.borders.len();
        let ends = std::iter::repeat_n(END << OFFSET_BITS | times.wall_ns, left_open);
        for border in frame.borders.iter().copied().chain(ends) {
            let (subsystem, offset_ns) = (border >> OFFSET_BITS, border & ((1 << OFFSET_BITS) - 1));
            if subsystem != END {
                open.push((subsystem as usize, offset_ns));
                continue;
            }
            let Some((index, begin_ns)) = open.pop() else { continue };
            let name = names.iter().find(|(place, _)| *place == index).map_or("unknown", |(_, name)| name);
            self.event(format_args!(
                "{{\"name\":\"{name}\",\"ph\":\"X\",\"pid\":1,\"tid\":{number},\"ts\":{},\"dur\":{}}}",
                Micros(times.start_ns + begin_ns),
                Micros(offset_ns.saturating_sub(begin_ns)),
            ));
        }
    }

    /// The parts of a frame without spans, one after the other: their lengths are right, and their places are not known.
    fn add_parts(&mut self, number: usize, frame: &FullFrame) {
        let others = self.subsystems.iter().filter(|part| !Subsystem::STAGES.contains(part));
        let mut begin_ns = frame.head.times.start_ns;
        for part in Subsystem::STAGES.into_iter().chain(others) {
            let ns = frame.parts_ns[part.index()];
            if ns > 0 {
                self.event(format_args!(
                    "{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{number},\"ts\":{},\"dur\":{}}}",
                    self.subsystems.name(part),
                    Micros(begin_ns),
                    Micros(ns),
                ));
            }
            begin_ns += ns;
        }
    }

    fn event(&mut self, event: std::fmt::Arguments<'_>) {
        let comma = if self.text.is_empty() { "" } else { ",\n" };
        let _ = write!(self.text, "{comma}{event}");
    }

    /// The whole file. `about` is kept for the reader.
    pub(crate) fn finish(self, about: Map<String, Value>) -> String {
        let about = Value::Object(about);
        format!("{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":[\n{}\n]}}\n", self.text)
    }
}

/// Nanoseconds, shown as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}
