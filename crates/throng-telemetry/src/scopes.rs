//! Scopes: which subsystem runs now.
//!
//! A span's border in the list of a frame, 64 bits:
//!
//! ```text
//!  bits 56..64   subsystem, or 255: the newest open span ends
//!  bits  0..56   nanoseconds since the frame began
//! ```

use std::fmt;
use std::ops::{Deref, DerefMut};

use throng_meter::{Subsystem, TickMeter};

use crate::Clock;

/// Bits for nanoseconds.
pub(crate) const OFFSET_BITS: u32 = 56;
/// In place of a subsystem: the end of a span.
pub(crate) const END: u64 = 0xff;

/// Where frame code says which subsystem it belongs to. A frame has one; the game passes it on as `&mut Scopes`.
///
/// Time is exclusive: while a nested scope is open, the time belongs to its subsystem alone. Nothing here allocates.
///
/// ```
/// use throng_telemetry::{Scopes, Subsystem};
///
/// fn simulate(scopes: &mut Scopes) {
///     let mut scopes = scopes.enter(Subsystem::MOVEMENT); // until the end of this block
///     scopes.time(Subsystem::PHYSICS, |_| 1 + 1);         // nested
/// }
///
/// simulate(&mut Scopes::off());
/// ```
#[derive(Debug)]
pub struct Scopes {
    pub(crate) clock: Clock,
    is_on: bool,
    pub(crate) meter: TickMeter,
    /// Borders of spans: of this frame, and of earlier ones that the collector has not taken yet. Never grows beyond its
    /// capacity.
    pub(crate) borders: Vec<u64>,
    /// Borders for which there is room, besides the ends of open spans.
    room: usize,
    /// Open spans without room in the list: always the innermost.
    open_skipped: u32,
    /// Spans of this frame without room.
    pub(crate) skipped: u32,
    #[cfg(feature = "tracy")]
    pub(crate) names: std::sync::Arc<throng_meter::Subsystems>,
}

impl Scopes {
    /// Scopes that measure nothing: for tests of a game's code.
    pub fn off() -> Scopes {
        Scopes::new(Clock::system(), 0)
    }

    pub(crate) fn new(clock: Clock, borders: usize) -> Scopes {
        Scopes {
            clock,
            is_on: false,
            meter: TickMeter::new(),
            borders: Vec::with_capacity(borders),
            room: 0,
            open_skipped: 0,
            skipped: 0,
            #[cfg(feature = "tracy")]
            names: Default::default(),
        }
    }

    /// From now on the time is `subsystem`'s, until the scope is dropped. The subsystem before goes on then.
    #[inline]
    #[must_use = "the scope ends when it is dropped"]
    pub fn enter(&mut self, subsystem: Subsystem) -> Scope<'_> {
        if self.is_on {
            self.push(subsystem);
        }
        Scope {
            #[cfg(feature = "tracy")]
            _zone: self.zone(subsystem),
            scopes: self,
        }
    }

    /// Runs `work` in a scope of `subsystem`.
    #[inline]
    pub fn time<T>(&mut self, subsystem: Subsystem, work: impl FnOnce(&mut Scopes) -> T) -> T {
        let mut scope = self.enter(subsystem);
        work(&mut scope)
    }

    /// Claims `ns` nanoseconds of the time since the last border of a scope for `subsystem`: for work that measures itself,
    /// as a `throng` server does. More than has passed is scaled down.
    #[inline]
    pub fn claim(&mut self, subsystem: Subsystem, ns: u64) {
        if self.is_on {
            self.meter.claim(subsystem, ns);
        }
    }

    /// Whether scopes are measured in this frame.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub(crate) fn begin(&mut self, tick: u64, is_on: bool) {
        self.is_on = is_on;
        self.room = self.borders.capacity() - self.borders.len();
        (self.open_skipped, self.skipped) = (0, 0);
        if is_on {
            self.meter.begin(tick, self.clock.now_ns());
        }
    }

    pub(crate) fn end(&mut self) {
        if self.is_on {
            self.meter.end(self.clock.now_ns());
        }
        self.is_on = false;
    }

    // Not inlined: a scope that is off is then a test and a jump, and nothing is moved out of its way.
    #[inline(never)]
    fn push(&mut self, subsystem: Subsystem) {
        let now_ns = self.clock.now_ns();
        self.meter.push(subsystem, now_ns);
        self.note_begin(subsystem);
    }

    #[inline(never)]
    fn leave(&mut self) {
        let now_ns = self.clock.now_ns();
        self.meter.pop(now_ns);
        self.note_end();
    }

    /// Time since the frame began, as the meter counts it.
    #[inline]
    fn offset(&self) -> u64 {
        (self.meter.now_ns() - self.meter.record().start_ns) & ((1 << OFFSET_BITS) - 1)
    }

    #[inline]
    fn note_begin(&mut self, subsystem: Subsystem) {
        // Room for its end too, so that every span in the list is complete.
        if self.room >= 2 {
            self.room -= 2;
            let border = (subsystem.index() as u64) << OFFSET_BITS | self.offset();
            self.borders.push(border);
        } else {
            self.skip();
        }
    }

    #[cold]
    fn skip(&mut self) {
        self.skipped += 1;
        self.open_skipped += 1;
    }

    #[inline]
    fn note_end(&mut self) {
        if self.open_skipped == 0 {
            let border = END << OFFSET_BITS | self.offset();
            self.borders.push(border);
        } else {
            self.open_skipped -= 1;
        }
    }

    #[cfg(feature = "tracy")]
    fn zone(&self, subsystem: Subsystem) -> Option<tracy_client::Span> {
        let client = tracy_client::Client::running().filter(|_| self.is_on)?;
        Some(client.span_alloc(Some(self.names.name(subsystem)), "", file!(), line!(), 0))
    }
}

/// A subsystem runs until this is dropped. Gives access to the [`Scopes`], for nested scopes.
pub struct Scope<'a> {
    #[cfg(feature = "tracy")]
    _zone: Option<tracy_client::Span>,
    scopes: &'a mut Scopes,
}

impl Scope<'_> {
    /// Ends this scope and opens one of `subsystem` in its place, with a single look at the clock: half the cost of two
    /// scopes in a row.
    #[inline]
    #[must_use = "the scope ends when it is dropped"]
    pub fn then(mut self, subsystem: Subsystem) -> Self {
        self.switch(subsystem);
        self
    }

    #[inline]
    fn switch(&mut self, subsystem: Subsystem) {
        let scopes = &mut *self.scopes;
        if scopes.is_on {
            let now_ns = scopes.clock.now_ns();
            scopes.meter.enter(subsystem, now_ns);
            scopes.note_end();
            scopes.note_begin(subsystem);
        }
        #[cfg(feature = "tracy")]
        {
            self._zone = None;
            self._zone = self.scopes.zone(subsystem);
        }
    }
}

impl Drop for Scope<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.scopes.is_on {
            self.scopes.leave();
        }
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scope").field(&self.scopes).finish()
    }
}

impl Deref for Scope<'_> {
    type Target = Scopes;

    fn deref(&self) -> &Scopes {
        self.scopes
    }
}

impl DerefMut for Scope<'_> {
    fn deref_mut(&mut self) -> &mut Scopes {
        self.scopes
    }
}
