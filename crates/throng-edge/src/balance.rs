//! How servers and edges agree on borders, without a stop.
//!
//! ```text
//! server A (decides)             edges                               server B
//!   report: new borders  ---->   look by them, and by the old ones
//!                                pass the report on         ---->    knows the new borders
//!                                say that they look         ---->    is ready: all edges look
//!   knows that B is ready <----  pass the report on         <----    report: ready
//!   hands over to B, and so does every server that knows it
//! ```
//!
//! Borders only say where a character should be. The edge of its player decides where it is ([`Origin::hand_over`]), so it
//! has one server at every moment, whatever borders anybody believes in. Two things remain:
//!
//! - **Nothing is invisible.** A server hands over by borders only to a server that is ready: all of *its* edges have said that they look
//!   at it by these borders. The edges look by the old ones too until all servers know the new ones, and wherever a server says that it
//!   has objects. So a character that its server keeps for a while is seen.
//! - **One opinion in the end.** The server with the lowest number that is heard decides, and a newer version replaces an older one.
//!   Two servers that do not hear each other may both decide; what they say differs in the version, and all follow the newest as soon
//!   as they hear it.
//!
//! A report, little endian:
//!
//! ```text
//! [tick: u64][version: u64][ready: u64][cuts between the servers: u16 each][steps with objects, each: step u16, objects u16]
//! ```
//!
//! Reports of other servers are not trusted: what makes no sense is refused and counted, and nothing grows with what they say.
//!
//! [`Origin::hand_over`]: crate::Origin::hand_over

use rustc_hash::FxHashMap;
use throng::{ConnectionId, Tick};

use crate::borders::{Borders, BordersVersion, Division, Planner, PlannerOptions};
use crate::edge::Edge;
use crate::origin::{Origin, OriginEvent};

/// A version that is ahead by more changes than this is refused: 24 days of changes each half second. A hostile edge that says 120 of
/// them in a second uses up all versions in six days.
const AHEAD_MAX: u64 = 1 << 22;
/// Borders of before by which an edge still looks.
const FORMER_MAX: usize = 8;
const HEAD_BYTES: usize = 24;
const LOAD_BYTES: usize = 4;

/// The report of a server to the others and to all edges.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BorderReport {
    /// Its own tick: a report that comes through another edge may be older, or the same.
    tick: u64,
    borders: Borders,
    /// All edges look at it by this version.
    ready: BordersVersion,
    /// The steps that have objects, in order, and how many.
    load: Vec<(u16, u16)>,
}

impl BorderReport {
    fn bytes(&self) -> Vec<u8> {
        let numbers = [self.tick, self.borders.version().0, self.ready.0];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let load = self.load.iter().flat_map(|&(step, objects)| [step, objects]);
        self.borders
            .inner()
            .iter()
            .copied()
            .chain(load)
            .for_each(|short| bytes.extend_from_slice(&short.to_le_bytes()));
        bytes
    }

    /// `None` if it makes no sense in this world.
    fn read(body: &[u8], division: &Division) -> Option<BorderReport> {
        let (head, rest) = body.split_at_checked(HEAD_BYTES)?;
        let (numbers, _) = head.as_chunks::<8>();
        let [tick, version, ready] = <[[u8; 8]; 3]>::try_from(numbers).ok()?.map(u64::from_le_bytes);
        let (version, ready) = (BordersVersion(version), BordersVersion(ready));
        let cuts_bytes = 2 * (usize::from(division.servers()) - 1);
        let (cuts, load) = rest.split_at_checked(cuts_bytes)?;
        let inner: Vec<u16> = cuts.as_chunks::<2>().0.iter().map(|cut| u16::from_le_bytes(*cut)).collect();
        let (load, rest) = load.as_chunks::<LOAD_BYTES>();
        let pair = |[a, b, c, d]: &[u8; LOAD_BYTES]| (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
        let load: Vec<(u16, u16)> = load.iter().map(pair).collect();
        let is_sound = rest.is_empty()
            && ready <= version
            && version.server() < division.servers()
            && load.is_sorted_by(|a, b| a.0 < b.0)
            && load.last().is_none_or(|&(step, _)| step < division.steps());
        let borders = Borders::new(division, version, &inner)?;
        is_sound.then_some(BorderReport { tick, borders, ready, load })
    }
}

fn is_too_far_ahead(told: BordersVersion, known: BordersVersion) -> bool {
    told.count().saturating_sub(known.count()) > AHEAD_MAX
}

/// Options of a [`Balance`].
#[derive(Clone, Debug, PartialEq)]
pub struct BalanceOptions {
    /// The measures of the world.
    pub division: Division,
    /// The number of this server at the edges.
    pub number: u16,
    /// A server reports after so many ticks, or as soon as it has something new to say.
    pub report_ticks: u32,
    /// The server that decides plans after so many ticks.
    pub plan_ticks: u32,
    /// A server that is not heard for so many ticks is gone: the others take over its strip.
    pub silent_ticks: u32,
    /// When borders move, and how far at once.
    pub planner: PlannerOptions,
}

impl BalanceOptions {
    /// For this server: it reports after 10 ticks, plans after 15, and gives up a server after 90.
    pub fn new(division: Division, number: u16) -> BalanceOptions {
        let planner = PlannerOptions::default();
        BalanceOptions { division, number, report_ticks: 10, plan_ticks: 15, silent_ticks: 90, planner }
    }
}

/// Counters of a [`Balance`] or a [`BorderWatch`], since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalanceCounters {
    /// Reports of other servers that were newer than what was known.
    pub reports: u64,
    /// Reports that make no sense.
    pub refused: u64,
    /// Borders that this server has decided.
    pub plans: u64,
}

/// Another server, as far as it was heard.
#[derive(Clone, Debug, Default)]
struct OtherServer {
    /// The newest tick that it has told.
    tick: Option<u64>,
    ready: BordersVersion,
    load: Vec<(u16, u16)>,
    heard: Tick,
}

/// The borders as a server knows them, beside its [`Origin`](crate::Origin): give it each event, call
/// [`settle`](Balance::settle) in each tick, and hand over characters as [`goes_to`](Balance::goes_to) says.
///
/// ```
/// # use throng::Tick;
/// # use throng_edge::{Balance, BalanceOptions, Division, Origin, OriginEvent};
/// # fn tick(balance: &mut Balance, origin: &mut Origin, now: Tick, heroes: &[(throng_edge::PlayerId, u16)]) {
/// while let Some(event) = origin.poll_event() {
///     if balance.take(&event, now) {
///         continue;
///     }
///     // Everything else, as without it.
/// }
/// balance.settle(origin, now, heroes.iter().map(|&(_, step)| step));
/// for &(player, step) in heroes {
///     if let Some(server) = balance.goes_to(step) {
///         // An error says that it is on its way already.
///         let _ = origin.hand_over(player, server);
///     }
/// }
/// # }
/// ```
pub struct Balance {
    options: BalanceOptions,
    borders: Borders,
    planner: Planner,
    /// Whether it may decide.
    plans: bool,
    /// By connection: the version by which an edge looks at this server, and when it said so.
    edges: FxHashMap<ConnectionId, (BordersVersion, Tick)>,
    /// When it got the borders that it has.
    adopted: Tick,
    now: Tick,
    /// By number; nothing comes for the own one.
    others: Vec<OtherServer>,
    /// When it reported last, and with which versions.
    reported: Option<(Tick, BordersVersion, BordersVersion)>,
    planned: Tick,
    /// The newest sign of life of any edge. While edges say nothing, no server is known to be silent.
    sign: Tick,
    counters: BalanceCounters,
}

impl Balance {
    /// The world begins with strips of equal width, and with all servers there.
    pub fn new(options: BalanceOptions, now: Tick) -> Balance {
        let other = OtherServer { heard: now, ..OtherServer::default() };
        Balance {
            borders: Borders::equal(&options.division),
            planner: Planner::new(options.division, options.planner),
            plans: true,
            edges: FxHashMap::default(),
            adopted: now,
            now,
            others: vec![other; options.division.servers().into()],
            reported: None,
            planned: now,
            sign: now,
            counters: BalanceCounters::default(),
            options,
        }
    }

    /// Whether this server decides on borders when it is its turn. At first it does: a game whose players are still coming may want to
    /// wait.
    pub fn set_planning(&mut self, plans: bool) {
        self.plans = plans;
    }

    /// The borders as they are known here.
    pub fn borders(&self) -> &Borders {
        &self.borders
    }

    /// Its counters.
    pub fn counters(&self) -> BalanceCounters {
        self.counters
    }

    /// The server to which something at a step belongs, if that is another one and it can be handed over there now.
    pub fn goes_to(&self, step: u16) -> Option<u16> {
        let to = self.borders.home(step);
        let is_ready = |other: &OtherServer| other.ready >= self.borders.version();
        (to != self.options.number && self.others.get(usize::from(to)).is_some_and(is_ready)).then_some(to)
    }

    /// Takes an event that is about borders or edges. Returns whether it was about borders: then it concerns nobody else.
    pub fn take(&mut self, event: &OriginEvent, now: Tick) -> bool {
        self.now = now;
        if let OriginEvent::Told { .. }
        | OriginEvent::Looks { .. }
        | OriginEvent::Joined { .. }
        | OriginEvent::Input { .. }
        | OriginEvent::Message { .. } = event
        {
            self.sign = now;
        }
        match event {
            OriginEvent::EdgeJoined(edge) => {
                if self.edges.is_empty() {
                    // It could not hear anybody until now.
                    self.others.iter_mut().for_each(|other| (other.heard, other.tick) = (now, None));
                }
                // It begins as everybody does: with the borders of the beginning.
                self.edges.insert(*edge, (BordersVersion::default(), now));
                false
            }
            OriginEvent::EdgeLeft(edge) => {
                self.edges.remove(edge);
                false
            }
            OriginEvent::Looks { edge, version } => {
                // It may know newer borders than this server.
                match self.edges.get_mut(edge) {
                    Some(looks) => *looks = (BordersVersion(*version), now),
                    None => self.counters.refused += 1,
                }
                true
            }
            OriginEvent::Told { from, body, .. } => {
                let is_sound = self.hear(*from, body, now);
                self.counters.refused += u64::from(!is_sound);
                true
            }
            _ => false,
        }
    }

    /// Takes the report of another server. False if it makes no sense.
    fn hear(&mut self, from: u16, body: &[u8], now: Tick) -> bool {
        let Some(report) = BorderReport::read(body, &self.options.division) else { return false };
        if from == self.options.number || is_too_far_ahead(report.borders.version(), self.borders.version()) {
            return false;
        }
        let silent_ticks = self.options.silent_ticks;
        let Some(other) = self.others.get_mut(usize::from(from)) else { return false };
        // A server that comes back after a silence counts its ticks anew.
        let is_back = now.since(other.heard) > silent_ticks;
        if !is_back && other.tick.is_some_and(|known| known >= report.tick) {
            return true;
        }
        self.counters.reports += 1;
        *other = OtherServer { tick: Some(report.tick), ready: report.ready, load: report.load, heard: now };
        if report.borders.version() > self.borders.version() {
            (self.borders, self.adopted) = (report.borders, now);
        }
        true
    }

    /// All edges look at this server by this version, but for those that are left behind: an edge that never says how it looks would
    /// keep everybody where they are.
    fn ready(&self) -> BordersVersion {
        let version = self.borders.version();
        let looking = self.edges.values().filter(|looks| !self.is_left_behind(looks));
        let least = looking.map(|&(looks, _)| looks).min();
        least.unwrap_or(if self.edges.is_empty() { BordersVersion::default() } else { version }).min(version)
    }

    /// Edges that do not follow the borders: their clients do not see all of the objects that have moved to another server.
    pub fn left_behind(&self) -> usize {
        self.edges.values().filter(|looks| self.is_left_behind(looks)).count()
    }

    fn is_left_behind(&self, &(looks, since): &(BordersVersion, Tick)) -> bool {
        let waits = self.now.since(self.adopted).min(self.now.since(since));
        looks < self.borders.version() && waits > self.options.silent_ticks
    }

    /// Whether the others have taken over its part of the world, because they did not hear it for a while.
    pub fn has_no_part(&self) -> bool {
        self.borders.strip(self.options.number).is_empty()
    }

    fn is_alive(&self, number: u16) -> bool {
        let other = &self.others[usize::from(number)];
        number == self.options.number || self.sign.since(other.heard) <= self.options.silent_ticks
    }

    /// One tick. `steps` are those of all objects that this server has, also of such that another one is about to take over. Tells the
    /// other servers what there is to tell. Without a part of the world, it gives up the players who are away: others serve their clients.
    pub fn settle(&mut self, origin: &mut Origin, now: Tick, steps: impl Iterator<Item = u16>) {
        if let Some(report) = self.step(now, steps) {
            // It is never too long.
            let _ = origin.tell_servers(&report);
        }
        if self.has_no_part() {
            origin.give_up_kept();
        }
    }

    /// The half of [`settle`](Balance::settle) that knows no origin. Returns a report, if it is time for one: it goes to
    /// [`Origin::tell_servers`](crate::Origin::tell_servers).
    pub fn step(&mut self, now: Tick, steps: impl Iterator<Item = u16>) -> Option<Vec<u8>> {
        self.now = now;
        let is_planned = now.since(self.planned) >= self.options.plan_ticks && self.may_plan();
        let is_new = self.reported.is_none_or(|(at, version, ready)| {
            now.since(at) >= self.options.report_ticks || version != self.borders.version() || ready != self.ready()
        });
        if !is_planned && !is_new {
            return None;
        }
        let own = count(steps, &self.options.division);
        if is_planned {
            self.planned = now;
            self.plan(&own);
        }
        let load = own.iter().zip(0..).filter(|(objects, _)| **objects > 0);
        let load = load.map(|(&objects, step)| (step, u16::try_from(objects).unwrap_or(u16::MAX))).collect();
        self.reported = Some((now, self.borders.version(), self.ready()));
        Some(BorderReport { tick: now.0, borders: self.borders.clone(), ready: self.ready(), load }.bytes())
    }

    /// The lowest number that is alive decides, once everybody who is alive is ready for the borders that there are.
    fn may_plan(&self) -> bool {
        // One without edges is cut off: the others decide.
        let is_connected = !self.edges.is_empty() && self.ready() >= self.borders.version();
        let mut before = 0..self.options.number;
        let mut all = (0..self.options.division.servers()).filter(|&number| number != self.options.number);
        self.plans
            && is_connected
            && before.all(|number| !self.is_alive(number))
            && all.all(|number| {
                !self.is_alive(number) || self.others[usize::from(number)].ready >= self.borders.version()
            })
    }

    fn plan(&mut self, own: &[u32]) {
        let alive: Vec<bool> = (0..self.options.division.servers()).map(|number| self.is_alive(number)).collect();
        let mut load = own.to_vec();
        for (other, _) in self.others.iter().zip(&alive).filter(|(_, is_alive)| **is_alive) {
            for &(step, objects) in &other.load {
                // The report was checked: the world has this step.
                load[usize::from(step)] = load[usize::from(step)].saturating_add(objects.into());
            }
        }
        if let Some(borders) = self.planner.plan(&self.borders, &load, &alive, self.options.number) {
            (self.borders, self.adopted) = (borders, self.now);
            self.counters.plans += 1;
        }
    }
}

/// How many there are at each step. Objects beyond the world are at its end.
fn count(steps: impl Iterator<Item = u16>, division: &Division) -> Vec<u32> {
    let mut counted = vec![0; division.steps().into()];
    let last = division.steps() - 1;
    steps.for_each(|step| counted[usize::from(step.min(last))] += 1);
    counted
}

/// The borders as an edge knows them: from which servers it needs the objects of a place.
///
/// The functions [`EdgeOptions::homes`](crate::EdgeOptions::homes) and [`entry`](crate::EdgeOptions::entry) ask it, so it lies
/// behind an `Arc<RwLock<_>>`. Call [`follow`](BorderWatch::follow) after each [`Edge::receive`](crate::Edge::receive).
#[derive(Clone, Debug)]
pub struct BorderWatch {
    division: Division,
    newest: Borders,
    /// Borders by which some server may still hand over.
    former: Vec<Borders>,
    /// By number of the server: its newest report.
    reports: Vec<Option<BorderReport>>,
    counters: BalanceCounters,
}

impl BorderWatch {
    /// Before anything was reported: strips of equal width.
    pub fn new(division: Division) -> BorderWatch {
        BorderWatch {
            division,
            newest: Borders::equal(&division),
            former: Vec::new(),
            reports: vec![None; division.servers().into()],
            counters: BalanceCounters::default(),
        }
    }

    /// The newest borders.
    pub fn borders(&self) -> &Borders {
        &self.newest
    }

    /// Its counters.
    pub fn counters(&self) -> BalanceCounters {
        self.counters
    }

    /// Takes what the origins of an edge have told, and says by which borders it looks from now on.
    pub fn follow(&mut self, edge: &mut Edge) {
        while let Some((origin, body)) = edge.poll_told() {
            self.take(origin, &body);
        }
        edge.say_looks(self.newest.version().0);
    }

    /// Takes what an origin has told, by its number.
    pub fn take(&mut self, origin: usize, body: &[u8]) {
        let report = BorderReport::read(body, &self.division);
        let report = report.filter(|report| !is_too_far_ahead(report.borders.version(), self.newest.version()));
        let (Some(report), Some(known)) = (report, self.reports.get_mut(origin)) else {
            self.counters.refused += 1;
            return;
        };
        self.counters.reports += 1;
        if report.borders.version() > self.newest.version() {
            let former = std::mem::replace(&mut self.newest, report.borders.clone());
            self.former.push(former);
            let too_many = self.former.len().saturating_sub(FORMER_MAX);
            self.former.drain(..too_many);
        }
        // It comes from the origin itself, in order.
        *known = Some(report);
        let newest = self.newest.version();
        let is_known = |report: &BorderReport| report.borders.version() >= newest;
        if self.reports.iter().flatten().all(is_known) {
            self.former.clear();
        }
    }

    /// An origin is gone, and what it has told with it.
    pub fn lose(&mut self, origin: usize) {
        if let Some(report) = self.reports.get_mut(origin) {
            *report = None;
        }
    }

    /// Whether a server has no part of the world by the newest borders: the others have not heard it for a while.
    pub fn is_gone(&self, origin: usize) -> bool {
        u16::try_from(origin).is_ok_and(|origin| self.newest.strip(origin).is_empty())
    }

    /// Pushes the numbers of all servers that have, or may soon have, objects between two steps, both included.
    pub fn homes(&self, first: u16, last: u16, homes: &mut Vec<usize>) {
        let last = last.min(self.division.steps() - 1);
        let first = first.min(last);
        let all = self.former.iter().chain([&self.newest]);
        for number in 0..self.division.servers() {
            let is_part = |borders: &Borders| {
                let strip = borders.strip(number);
                strip.start <= last && first < strip.end
            };
            let report = self.reports[usize::from(number)].as_ref();
            let has_objects = || {
                let load = report.map_or(&[][..], |report| &report.load);
                let from = load.partition_point(|&(step, _)| step < first);
                load.get(from).is_some_and(|&(step, _)| step <= last)
            };
            if all.clone().any(is_part) || has_objects() {
                homes.push(number.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn division() -> Division {
        Division::new(3, 90, 3).unwrap()
    }

    fn report(version: BordersVersion, inner: &[u16]) -> BorderReport {
        let borders = Borders::new(&division(), version, inner).unwrap();
        BorderReport { tick: 7, borders, ready: BordersVersion::default(), load: vec![(3, 9), (80, 1)] }
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_nonsense_is_not() {
        let sound = report(BordersVersion::default().next(2), &[20, 60]);
        let bytes = sound.bytes();
        assert_eq!(BorderReport::read(&bytes, &division()), Some(sound.clone()));
        for length in (0..bytes.len()).filter(|length| ![28, 32].contains(length)) {
            assert_eq!(BorderReport::read(&bytes[..length], &division()), None, "{length} bytes");
        }
        let bad = |change: fn(&mut BorderReport)| {
            let mut bad = sound.clone();
            change(&mut bad);
            BorderReport::read(&bad.bytes(), &division())
        };
        assert_eq!(bad(|report| report.ready = report.borders.version().next(0)), None);
        assert_eq!(bad(|report| report.load = vec![(4, 1), (4, 1)]), None);
        assert_eq!(bad(|report| report.load = vec![(90, 1)]), None);
        let mut bytes = sound.bytes();
        // A server that the world does not have, and cuts out of order.
        bytes[8] = 3;
        assert_eq!(BorderReport::read(&bytes, &division()), None);
        bytes[8] = 2;
        bytes[24] = 61;
        assert_eq!(BorderReport::read(&bytes, &division()), None);
    }

    fn told(from: u16, body: Vec<u8>) -> OriginEvent {
        OriginEvent::Told { edge: edge(0), from, body }
    }

    fn edge(index: u32) -> ConnectionId {
        ConnectionId { index, generation: 1 }
    }

    #[test]
    fn a_server_hands_over_only_to_one_at_which_all_edges_look() {
        let options = |number| BalanceOptions::new(division(), number);
        let mut servers = [0, 1, 2].map(|number| Balance::new(options(number), Tick(0)));
        for server in &mut servers {
            assert!(!server.take(&OriginEvent::EdgeJoined(edge(0)), Tick(0)));
            assert!(!server.take(&OriginEvent::EdgeJoined(edge(1)), Tick(0)));
        }
        // All are at the first server, and in the first third of it.
        let steps = || (0..90).map(|number| number / 9);
        let told_by_first = servers[0].step(Tick(20), steps()).unwrap();
        let version = servers[0].borders().version();
        assert_eq!((version.count(), version.server()), (1, 0));
        let cut = servers[0].borders().strip(0).end;
        assert_eq!((servers[0].goes_to(cut), servers[0].goes_to(0)), (None, None), "the second does not know it yet");
        assert!(servers[1].take(&told(0, told_by_first), Tick(21)));
        assert_eq!(servers[1].borders(), servers[0].borders());
        let is_ready_after = |servers: &mut [Balance; 3], edges: &[u32]| {
            for &index in edges {
                assert!(servers[1].take(&OriginEvent::Looks { edge: edge(index), version: version.0 }, Tick(22)));
            }
            let report = servers[1].step(Tick(22 + u64::from(edges[0])), std::iter::empty()).unwrap();
            servers[0].take(&told(1, report), Tick(23));
            servers[0].goes_to(cut) == Some(1)
        };
        assert!(!is_ready_after(&mut servers, &[0]), "one of two edges is not enough");
        assert!(is_ready_after(&mut servers, &[1]));
        // An edge that has just come does not look there yet.
        servers[1].take(&OriginEvent::EdgeJoined(edge(2)), Tick(30));
        let report = servers[1].step(Tick(31), std::iter::empty()).unwrap();
        servers[0].take(&told(1, report), Tick(32));
        assert_eq!(servers[0].goes_to(cut), None);
    }

    #[test]
    fn the_lowest_number_that_is_heard_decides_and_a_silent_server_loses_its_strip() {
        let mut second = Balance::new(BalanceOptions::new(division(), 1), Tick(0));
        second.take(&OriginEvent::EdgeJoined(edge(0)), Tick(0));
        let begin = report(BordersVersion::default(), &[30, 60]);
        for tick in 0..300 {
            if tick < 100 {
                second.take(&told(0, BorderReport { tick, ..begin.clone() }.bytes()), Tick(tick));
            }
            second.take(&told(2, BorderReport { tick, ..begin.clone() }.bytes()), Tick(tick));
            second.step(Tick(tick), std::iter::empty());
            assert_eq!(second.counters().plans > 0, tick >= 190, "in tick {tick}");
        }
        assert_eq!((second.borders().strip(0), second.borders().strip(1).start), (0..0, 0));
        // While no edge says anything, it is the edges that are silent.
        let mut deaf = Balance::new(BalanceOptions::new(division(), 1), Tick(0));
        deaf.take(&OriginEvent::EdgeJoined(edge(0)), Tick(0));
        (0..500).for_each(|tick| drop(deaf.step(Tick(tick), (0..90).map(|_| 0))));
        assert_eq!(deaf.counters().plans, 0);
        // One that comes back from a silence of its own hears the others first.
        deaf.take(&OriginEvent::EdgeLeft(edge(0)), Tick(500));
        deaf.take(&OriginEvent::EdgeJoined(edge(1)), Tick(600));
        deaf.take(&OriginEvent::Looks { edge: edge(1), version: 0 }, Tick(600));
        deaf.step(Tick(600), std::iter::empty());
        assert_eq!(deaf.counters().plans, 0);
        // Without edges, it is the one that is cut off.
        let mut alone = Balance::new(BalanceOptions::new(division(), 1), Tick(0));
        (0..500).for_each(|tick| drop(alone.step(Tick(tick), (0..90).map(|_| 0))));
        assert_eq!(alone.counters().plans, 0);
    }

    #[test]
    fn what_a_server_may_not_say_is_refused_and_counted() {
        let mut first = Balance::new(BalanceOptions::new(division(), 0), Tick(0));
        first.take(&OriginEvent::EdgeJoined(edge(0)), Tick(0));
        let version = |count: u64| BordersVersion(count << 16 | 1);
        let far = report(version(AHEAD_MAX + 1), &[1, 2]).bytes();
        let refused = [
            told(1, vec![1, 2, 3]),
            told(1, far.clone()),
            told(0, report(version(1), &[1, 2]).bytes()),
            told(3, report(version(1), &[1, 2]).bytes()),
            OriginEvent::Looks { edge: edge(9), version: 0 },
        ];
        for (number, event) in (1..).zip(&refused) {
            assert!(first.take(event, Tick(1)));
            assert_eq!(first.counters().refused, number, "{event:?}");
        }
        assert_eq!((first.borders().version(), first.counters().reports), (BordersVersion::default(), 0));
        // The same report through another edge, and one that was late, say nothing new.
        for tick in [7, 7, 6] {
            first.take(&told(1, BorderReport { tick, ..report(version(1), &[1, 2]) }.bytes()), Tick(1));
        }
        assert_eq!((first.counters().reports, first.counters().refused), (1, 5));
        let mut watch = BorderWatch::new(division());
        watch.take(1, &far);
        watch.take(3, &report(version(1), &[1, 2]).bytes());
        watch.take(0, &[7]);
        assert_eq!((watch.counters().refused, watch.borders().version()), (3, BordersVersion::default()));
    }

    #[test]
    fn an_edge_looks_by_old_and_new_borders_and_wherever_a_server_has_objects() {
        let mut watch = BorderWatch::new(division());
        let homes = |watch: &BorderWatch, first, last| {
            let mut homes = Vec::new();
            watch.homes(first, last, &mut homes);
            homes
        };
        assert_eq!(
            (homes(&watch, 0, 29), homes(&watch, 25, 30), homes(&watch, 500, 900)),
            (vec![0], vec![0, 1], vec![2])
        );
        let version = BordersVersion::default().next(0);
        let empty = |inner: &[u16], version| BorderReport { load: Vec::new(), ..report(version, inner) };
        watch.take(1, &empty(&[30, 60], BordersVersion::default()).bytes());
        watch.take(0, &empty(&[10, 20], version).bytes());
        assert_eq!((homes(&watch, 15, 15), homes(&watch, 25, 25)), (vec![0, 1], vec![0, 2]), "old and new");
        watch.take(1, &empty(&[10, 20], version).bytes());
        assert_eq!((homes(&watch, 15, 15), homes(&watch, 25, 25)), (vec![1], vec![2]), "all know the new ones");
        // A server still has somebody at the steps 3 and 80.
        watch.take(1, &report(version, &[10, 20]).bytes());
        assert_eq!(
            (homes(&watch, 2, 4), homes(&watch, 4, 6), homes(&watch, 80, 80)),
            (vec![0, 1], vec![0], vec![1, 2])
        );
        watch.lose(1);
        assert_eq!(homes(&watch, 2, 4), [0]);
        watch.take(0, &empty(&[10, 10], version.next(0)).bytes());
        assert_eq!([0, 1, 2].map(|origin| watch.is_gone(origin)), [false, true, false]);
    }
}
