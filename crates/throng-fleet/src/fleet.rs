//! The requests of a process to its sidecar, and their time.
//!
//! The requests are those of `sdk.proto` and `beta.proto` of Agones 1.61, in their mapping to HTTP and JSON:
//!
//! ```text
//! POST  /ready, /health, /allocate, /shutdown       {}
//! PATCH /v1beta1/counters/NAME                      {"count": "3"}
//! POST  /v1beta1/lists/NAME:addValue, :removeValue  {"value": "match-1"}
//! ```
//!
//! Each request states what should be, so one whose answer is lost is said again.

use std::collections::BTreeSet;
use std::time::Duration;

use throng_wire::Time;

/// Most matches of a process.
pub const MATCHES_MAX: usize = 1_000;
/// Most bytes of a match's name.
pub const MATCH_NAME_BYTES_MAX: usize = 64;

/// The settings of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetOptions {
    /// The counter of the Fleet with the number of matches. `None`: there is none.
    pub counter: Option<String>,
    /// The list of the Fleet with the names of matches. `None`: there is none.
    pub list: Option<String>,
    /// The time between two signs of life: at most half of the Fleet's `periodSeconds`.
    pub health_every: Duration,
    /// The time after a request that failed, or was refused for the first time.
    pub retry_after: Duration,
    /// The longest time after which a counter or list that is refused is tried again. The time doubles with each refusal.
    pub refused_retry_max: Duration,
}

impl Default for FleetOptions {
    /// A counter and a list `matches`; a sign of life every 2 s.
    fn default() -> FleetOptions {
        FleetOptions {
            counter: Some("matches".to_owned()),
            list: Some("matches".to_owned()),
            health_every: Duration::from_secs(2),
            retry_after: Duration::from_secs(1),
            refused_retry_max: Duration::from_secs(30),
        }
    }
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// POST.
    Post,
    /// PATCH.
    Patch,
}

/// A request to the sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: String,
    /// Its body, JSON.
    pub body: String,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was carried out.
    Done,
    /// The value is in the list already.
    Exists,
    /// There is no such value, list or counter.
    Missing,
    /// With another error of the sidecar.
    Error,
    /// Without an answer.
    Nothing,
}

impl Reply {
    /// Reads an answer of HTTP: its status, and of an error the beginning of its body.
    ///
    /// The errors of Agones for counters and lists have no code of gRPC, so HTTP has 500 for all of them: their texts tell
    /// them apart.
    pub fn read(status: u16, body: &str) -> Reply {
        match status {
            200..=299 => Reply::Done,
            409 => Reply::Exists,
            404 => Reply::Missing,
            _ if body.contains("already exists") => Reply::Exists,
            _ if body.contains("not found") => Reply::Missing,
            _ => Reply::Error,
        }
    }
}

/// The state of the process for Agones, as far as it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetState {
    /// It was not told yet that the process can play.
    #[default]
    Starting,
    /// It may be allocated, or ended when the fleet shrinks.
    Ready,
    /// It plays.
    Allocated,
    /// It was asked to end the process.
    Ended,
}

/// The counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetCounters {
    /// Requests that succeeded.
    pub done: u64,
    /// Requests without an answer, and those for the state with an error of the sidecar.
    pub failed: u64,
    /// Requests that the Fleet's counter or list refused: it is full, not declared, or off.
    pub refused: u64,
    /// Matches left out because of [`MATCHES_MAX`] or [`MATCH_NAME_BYTES_MAX`].
    pub left_out: u64,
}

/// One process in a fleet.
///
/// In each pass: [`Fleet::handle_reply`] for the request under way, your changes, [`Fleet::poll_request`]. One request is under way at
/// a time.
#[derive(Debug)]
pub struct Fleet {
    options: FleetOptions,
    state: FleetState,
    /// A change of the state was said, and the answer was lost.
    is_unsure: bool,
    wanted: BTreeSet<String>,
    told: BTreeSet<String>,
    /// Names that may be in the list or not: the answer was lost, or was a refusal.
    unsure: BTreeSet<String>,
    /// `None` if the answer was lost.
    told_count: Option<usize>,
    can_play: bool,
    is_draining: bool,
    open: Option<Call>,
    health_at: Time,
    next_at: Time,
    /// The waits of [`Call::Count`], [`Call::Add`] and [`Call::Remove`], each by itself.
    waits: [Wait; 3],
    counters: FleetCounters,
}

/// The wait for the next try of a figure that was refused, or got no answer.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    until: Time,
    /// Refusals since the last success.
    refusals: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Health,
    Ready,
    Allocate,
    Shutdown,
    Count(usize),
    Add(String),
    Remove(String),
}

impl Fleet {
    /// A process that has said nothing yet.
    pub fn new(options: FleetOptions) -> Fleet {
        Fleet {
            options,
            state: FleetState::Starting,
            is_unsure: false,
            wanted: BTreeSet::new(),
            told: BTreeSet::new(),
            unsure: BTreeSet::new(),
            told_count: None,
            can_play: false,
            is_draining: false,
            open: None,
            health_at: Time(0),
            next_at: Time(0),
            waits: [Wait::default(); 3],
            counters: FleetCounters::default(),
        }
    }

    /// The state for Agones, as far as it was told.
    pub fn state(&self) -> FleetState {
        self.state
    }

    /// The counters.
    pub fn counters(&self) -> FleetCounters {
        self.counters
    }

    /// The process can play from now on: everything that it needs is there. Until then, only signs of life are said.
    pub fn set_ready(&mut self) {
        self.can_play = true;
    }

    /// The matches that are played now; a process that plays is ready. Names beyond [`MATCHES_MAX`] and names that are too long or empty are left out.
    pub fn set_matches(&mut self, names: impl IntoIterator<Item = String>) {
        self.wanted.clear();
        for name in names {
            let is_name = !name.is_empty() && name.len() <= MATCH_NAME_BYTES_MAX;
            if is_name && self.wanted.len() < MATCHES_MAX {
                self.wanted.insert(name);
            } else {
                self.counters.left_out += 1;
            }
        }
        self.can_play |= !self.wanted.is_empty();
    }

    /// No further match begins here: when the last one is over, Agones is asked to end the process.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// The next request, unless one is under way.
    pub fn poll_request(&mut self, now: Time) -> Option<Request> {
        if self.open.is_some() {
            return None;
        }
        let call = self.next_call(now)?;
        let request = self.request(&call);
        self.doubt(now, &call);
        self.open = Some(call);
        Some(request)
    }

    /// Takes the end of the request under way.
    pub fn handle_reply(&mut self, now: Time, reply: Reply) {
        let Some(call) = self.open.take() else { return };
        match (reply, call) {
            (Reply::Done, call) => {
                self.counters.done += 1;
                if matches!(call, Call::Remove(_)) {
                    // There is room in a list that was full.
                    let [_, add, _] = &mut self.waits;
                    *add = Wait::default();
                }
                self.succeed(call);
            }
            // It was said before, and the answer was lost. A list that is missing has no value to remove.
            (Reply::Exists, call @ Call::Add(_)) | (Reply::Missing, call @ Call::Remove(_)) => self.succeed(call),
            // A figure waits by itself: everything else goes on.
            (reply, call @ (Call::Count(_) | Call::Add(_) | Call::Remove(_))) => self.put_off(now, &call, reply),
            (_, Call::Health) => self.counters.failed += 1,
            _ => {
                self.counters.failed += 1;
                self.next_at = now.after(self.options.retry_after);
            }
        }
    }

    fn wait_of(&mut self, call: &Call) -> Option<&mut Wait> {
        let [count, add, remove] = &mut self.waits;
        match call {
            Call::Count(_) => Some(count),
            Call::Add(_) => Some(add),
            Call::Remove(_) => Some(remove),
            Call::Health | Call::Ready | Call::Allocate | Call::Shutdown => None,
        }
    }

    /// Waits before a figure is tried again. A refusal may pass, as when the sidecar is busy, or stay.
    fn put_off(&mut self, now: Time, call: &Call, reply: Reply) {
        let (first, most) = (self.options.retry_after, self.options.refused_retry_max);
        let Some(wait) = self.wait_of(call) else { return };
        if reply == Reply::Nothing {
            wait.until = now.after(first);
            self.counters.failed += 1;
        } else {
            let doubled = first.saturating_mul(1_u32.checked_shl(wait.refusals).unwrap_or(u32::MAX));
            wait.until = now.after(doubled.min(most));
            wait.refusals += 1;
            self.counters.refused += 1;
        }
    }

    /// When to call [`Fleet::poll_request`] again at the latest.
    pub fn next_timeout(&self) -> Time {
        self.health_at
    }

    fn next_call(&self, now: Time) -> Option<Call> {
        if self.state == FleetState::Ended {
            return None;
        }
        if now >= self.health_at {
            return Some(Call::Health);
        }
        if now < self.next_at {
            return None;
        }
        let plays = !self.wanted.is_empty();
        if self.state == FleetState::Starting {
            return match (self.is_draining, plays) {
                (true, false) => Some(Call::Shutdown),
                _ => self.can_play.then_some(Call::Ready),
            };
        }
        if plays && (self.is_unsure || self.state != FleetState::Allocated) {
            return Some(Call::Allocate);
        }
        if !plays && !self.is_draining && (self.is_unsure || self.state != FleetState::Ready) {
            return Some(Call::Ready);
        }
        self.next_figure(now).or_else(|| (self.is_draining && !plays).then_some(Call::Shutdown))
    }

    fn next_figure(&self, now: Time) -> Option<Call> {
        let count = self.wanted.len();
        let [may_count, may_add, may_remove] = self.waits.map(|wait| now >= wait.until);
        if self.options.counter.is_some() && self.told_count != Some(count) && may_count {
            return Some(Call::Count(count));
        }
        self.options.list.as_ref()?;
        // Removed first, so that a list that is full has room.
        let gone = self.told.union(&self.unsure).find(|name| !self.wanted.contains(*name));
        if let Some(name) = gone.filter(|_| may_remove) {
            return Some(Call::Remove(name.clone()));
        }
        // Names that the sidecar does not remove leave no room for others: a list holds no more anyway.
        let has_room = self.told.len() + self.unsure.len() < MATCHES_MAX;
        let mut new = self.wanted.difference(&self.told).filter(|name| has_room || self.unsure.contains(*name));
        new.next().filter(|_| may_add).map(|name| Call::Add(name.clone()))
    }

    /// Until the answer comes, nobody knows whether a request was carried out.
    fn doubt(&mut self, now: Time, call: &Call) {
        match call {
            Call::Health => self.health_at = now.after(self.options.health_every),
            Call::Ready | Call::Allocate | Call::Shutdown => self.is_unsure = true,
            Call::Count(_) => self.told_count = None,
            Call::Add(name) | Call::Remove(name) => {
                self.told.remove(name);
                self.unsure.insert(name.clone());
            }
        }
    }

    fn request(&self, call: &Call) -> Request {
        let list = self.options.list.as_deref().unwrap_or_default();
        let post =
            |path: String, body: serde_json::Value| Request { method: Method::Post, path, body: body.to_string() };
        let plain = |path: &str| post(path.to_owned(), serde_json::json!({}));
        match call {
            Call::Health => plain("/health"),
            Call::Ready => plain("/ready"),
            Call::Allocate => plain("/allocate"),
            Call::Shutdown => plain("/shutdown"),
            Call::Count(count) => {
                let counter = self.options.counter.as_deref().unwrap_or_default();
                // JSON of protobuf writes numbers of 64 bits as texts.
                let body = serde_json::json!({ "count": count.to_string() }).to_string();
                Request { method: Method::Patch, path: format!("/v1beta1/counters/{counter}"), body }
            }
            Call::Add(name) => post(format!("/v1beta1/lists/{list}:addValue"), serde_json::json!({ "value": name })),
            Call::Remove(name) => {
                post(format!("/v1beta1/lists/{list}:removeValue"), serde_json::json!({ "value": name }))
            }
        }
    }

    fn succeed(&mut self, call: Call) {
        if let Some(wait) = self.wait_of(&call) {
            *wait = Wait::default();
        }
        match call {
            Call::Health => {}
            Call::Ready => self.enter(FleetState::Ready),
            Call::Allocate => self.enter(FleetState::Allocated),
            Call::Shutdown => self.enter(FleetState::Ended),
            Call::Count(count) => self.told_count = Some(count),
            Call::Add(name) => {
                self.unsure.remove(&name);
                self.told.insert(name);
            }
            Call::Remove(name) => {
                self.unsure.remove(&name);
            }
        }
    }

    fn enter(&mut self, state: FleetState) {
        (self.state, self.is_unsure) = (state, false);
    }
}
