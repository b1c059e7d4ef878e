//! How servers and edges agree on borders, without a stop.
//!
//! ```text
//! server A (holds the deciding lease)         the bus                     edges                   server B
//!   plans, writes with its fencing number ->  world.NAME.borders  ---->   look by them, and by
//!                                                                         the old ones
//!                                                                 ------------------------------> knows them
//!                                                                         say that they look ---> is ready: all its
//!                                                                         (over their connection) edges look
//!   hands over to B, as all who hear it   <-  world.NAME.load.B   <------------------------------ report: ready
//! ```
//!
//! Borders only say where a character should be. The edge of its player decides where it is ([`Origin::hand_over`]), so it
//! has one server at every moment, whatever borders anybody believes in. The rest is this:
//!
//! - **One process has a number.** A server holds the lease of its number, with a fencing number. Without it, it takes nobody over, hands nobody
//!   over, reports nothing and decides nothing. The players it has stay until their edges move them.
//! - **One decides.** The holder of the deciding lease writes the borders. It puts its fencing number on the entry before it plans, so no
//!   write of an earlier one comes later. The store gives each write its version.
//! - **Gone is who has no lease.** A server whose lease has ended for a while has no strip in the next plan. One that starts again meanwhile
//!   has its strip as before.
//! - **Nothing is invisible.** A server hands over by borders only to a server that is ready: all of *its* edges have said that they look
//!   at it by these borders. The edges look by the old ones too until all servers know the new ones, and wherever a server says that it
//!   has objects. So a character that its server keeps for a while is seen.
//!
//! [`Origin::hand_over`]: crate::Origin::hand_over

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use rustc_hash::FxHashMap;
use throng::{ConnectionId, Time};
use throng_bus::{
    Bus, Command, CommandError, Event, Fence, FencedError, FencedWrite, FencedWrites, Lease, LeaseOptions, MemberId,
    Revision, SubscriptionId, WatchId, WriteId,
};

use crate::borders::{Borders, BordersVersion, Division, Planner, PlannerOptions};
use crate::origin::{Origin, OriginEvent};
use crate::recall::Recall;
use crate::roster::{
    BordersEntry, LoadReport, Roster, SeatOf, WorldName, WorldProblem, address_note, borders_bytes, version_of,
};
use crate::saved::Saved;

/// A server that cannot read the borders of most others leaves deciding to them for so long at least. They take the free lease
/// within a second.
const STEP_BACK_MIN: Duration = Duration::from_secs(10);
/// The time doubles so often: to more than five minutes.
const STEP_BACK_DOUBLED: u32 = 5;
/// A server without a holder for so long, as far as the decider knows, is gone, also if the decider has never seen it: it may have died
/// before the decider started. A cluster manager starts a process that is on its way within this time.
const START_UP: Duration = Duration::from_secs(30);

/// Options of a [`Balance`].
#[derive(Clone, Debug, PartialEq)]
pub struct BalanceOptions {
    /// The world, the same for all its servers and edges.
    pub world: WorldName,
    /// The measures of the world, the same for all.
    pub division: Division,
    /// The number of this server at the edges.
    pub number: u16,
    /// Where edges reach this server. They find it here if it starts again somewhere else.
    pub address: Option<SocketAddr>,
    /// A server reports after this time, or as soon as it has something new to say.
    pub report_every: Duration,
    /// The server that decides plans after this time.
    pub plan_every: Duration,
    /// A server whose lease has ended is gone after this time: the others take over its strip. Longer than between two attempts to get a
    /// lease, so that one that has started again has it anew by then.
    pub gone_after: Duration,
    /// Nobody is handed over to a server that has reported nothing for this time: it may have died. Longer than some reports take.
    pub silent_after: Duration,
    /// An edge that does not look by new borders is not waited for any longer after this time, and a server that has no edge loses its
    /// strip to others that have some.
    pub edge_patience: Duration,
    /// The leases of servers, and the one to decide. All servers have the same.
    pub lease: LeaseOptions,
    /// When borders move, and how far at once.
    pub planner: PlannerOptions,
    /// The first of three desks for tickets on this member's bus, see [`Tickets`](throng_bus::Tickets).
    pub desk: u16,
}

impl BalanceOptions {
    /// For this server: it reports after a third of a second and plans after half a second. A lease ends after 3 s, of which its holder
    /// uses 2, and its server is gone 0.8 s later. Nobody is handed over to a server that was silent for 1 s. An edge is waited for for 3 s.
    pub fn new(world: WorldName, division: Division, number: u16) -> BalanceOptions {
        BalanceOptions {
            world,
            division,
            number,
            address: None,
            report_every: Duration::from_millis(330),
            plan_every: Duration::from_millis(500),
            gone_after: Duration::from_millis(800),
            silent_after: Duration::from_secs(1),
            edge_patience: Duration::from_secs(3),
            lease: LeaseOptions {
                duration: Duration::from_secs(3),
                margin: Duration::from_secs(1),
                renew_every: Duration::from_millis(400),
            },
            planner: PlannerOptions::default(),
            desk: 0xFE00,
        }
    }
}

/// Counters of a [`Balance`], since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalanceCounters {
    /// Reports of servers, also its own.
    pub reports: u64,
    /// Entries and reports on the bus, and words of edges, that make no sense.
    pub refused: u64,
    /// Of those, reports whose sender does not hold the lease of the server that they are about.
    pub forged: u64,
    /// Borders that this server has decided and written.
    pub plans: u64,
    /// Borders that it could not write, because another one decides by now.
    pub overruled: u64,
    /// Borders that it has written again, because their entry was removed or was that of another world.
    pub restored: u64,
    /// Messages with states of players, and questions for them, that make no sense, or whose sender does not hold the lease that it
    /// names. One that overtakes the news of its lease is one of them, too.
    pub states_refused: u64,
    /// States of players that found no room.
    pub states_dropped: u64,
    /// How often no other server has answered when this one asked for [states](Balance::take_saved) at its start: 0 or 1.
    pub recalls_unanswered: u64,
}

impl BalanceCounters {
    /// All of them with stable names, for metrics.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        let BalanceCounters {
            reports,
            refused,
            forged,
            plans,
            overruled,
            restored,
            states_refused,
            states_dropped,
            recalls_unanswered,
        } = *self;
        [
            ("reports", reports),
            ("refused", refused),
            ("forged", forged),
            ("plans", plans),
            ("overruled", overruled),
            ("restored", restored),
            ("states_refused", states_refused),
            ("states_dropped", states_dropped),
            ("recalls_unanswered", recalls_unanswered),
        ]
    }
}

/// How far a server is with deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deciding {
    /// It does not.
    No,
    /// Its number is being put on the entry.
    Fencing(Fence, WriteId),
    /// No earlier one can write. It plans when it knows the version of its last write.
    Sure(Fence, Decided),
    /// A plan is being written.
    Writing(Fence, WriteId),
    /// The borders that are known here are being written again.
    Restoring(Fence, WriteId),
}

/// The last write of the one who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decided {
    version: BordersVersion,
    revision: Revision,
}

impl Decided {
    fn of(done: &FencedWrite) -> Decided {
        Decided { version: version_of(&done.content, done.revision), revision: done.revision }
    }
}

impl Deciding {
    fn fence(self) -> Option<Fence> {
        match self {
            Deciding::No => None,
            Deciding::Fencing(fence, _)
            | Deciding::Sure(fence, _)
            | Deciding::Writing(fence, _)
            | Deciding::Restoring(fence, _) => Some(fence),
        }
    }

    fn write(self) -> Option<WriteId> {
        match self {
            Deciding::Fencing(_, write) | Deciding::Writing(_, write) | Deciding::Restoring(_, write) => Some(write),
            Deciding::No | Deciding::Sure(..) => None,
        }
    }
}

/// The borders as a server knows them, beside its [`Origin`](crate::Origin) and its member of the bus: give it each event of the origin, call
/// [`settle`](Balance::settle) in each tick, and hand over characters as [`goes_to`](Balance::goes_to) says.
///
/// ```
/// # use throng::Time;
/// # use throng_bus::Bus;
/// # use throng_edge::{Balance, Origin, OriginEvent};
/// # fn tick(balance: &mut Balance, bus: &mut dyn Bus, origin: &mut Origin, now: Time, heroes: &[(throng_edge::PlayerId, u16)]) {
/// // First: it closes the origin of a server that has just started.
/// balance.settle(bus, origin, now, heroes.iter().map(|&(_, step)| step));
/// while let Some(event) = origin.poll_event() {
///     if balance.take(&event, now) {
///         continue;
///     }
///     // Everything else, as without it.
/// }
/// for &(player, step) in heroes {
///     if let Some(server) = balance.goes_to(step) {
///         // An error says that it is on its way already.
///         let _ = origin.hand_over(player, server);
///     }
/// }
/// # }
/// ```
///
/// [`settle`](Balance::settle) takes all events of the bus. A program that has more to do with its bus gives each event to
/// [`handle_event`](Balance::handle_event), calls [`step`](Balance::step), and carries out what [`poll_command`](Balance::poll_command)
/// says.
#[derive(Debug)]
pub struct Balance {
    options: BalanceOptions,
    roster: Roster,
    /// The lease of its number.
    seat: Lease,
    /// The lease to decide.
    decider: Lease,
    member: MemberId,
    /// It leaves deciding to the others until then.
    steps_back_until: Option<Time>,
    /// How often in a row it has left deciding to the others.
    stepped_back: u32,
    writes: FencedWrites,
    deciding: Deciding,
    planner: Planner,
    /// Whether it may decide.
    plans: bool,
    /// By connection: the version by which an edge looks at this server, and when it said so.
    edges: FxHashMap<ConnectionId, (BordersVersion, Time)>,
    /// When it got the borders that it has.
    adopted: Time,
    now: Time,
    /// When it reported last, and with which numbers.
    reported: Option<(Time, Reported)>,
    planned: Time,
    report: Option<Command>,
    /// Subscriptions of all that it hears, but for borders and leases.
    subscriptions: VecDeque<Command>,
    saved: Saved,
    /// Messages with the states of this server's players.
    states: VecDeque<Command>,
    recall: Recall,
    counters: BalanceCounters,
}

/// The part of a report that others wait for.
type Reported = (Fence, BordersVersion, BordersVersion, usize);

impl Balance {
    /// A server that holds nothing yet, on the bus of this member, in a world with strips of equal width. On the member's bus, nothing else
    /// may use the subscriptions `u32::MAX - 1` to `u32::MAX - 3`, the watch `u32::MAX - 1`, and the desks of [`BalanceOptions::desk`].
    pub fn new(mut options: BalanceOptions, member: MemberId) -> Balance {
        options.lease = options.lease.made_sound();
        let BalanceOptions { world, division, number, address, lease, desk, .. } = options.clone();
        let note = address_note(address);
        let saved = Saved::new(world.clone(), division.servers(), SubscriptionId(u32::MAX - 2));
        let recall = Recall::new(world.clone(), number, division.servers(), SubscriptionId(u32::MAX - 3));
        Balance {
            subscriptions: VecDeque::from([saved.subscribe(), recall.subscribe()]),
            saved,
            states: VecDeque::new(),
            recall,
            seat: Lease::new(world.server_key(number), member, note, lease, desk),
            decider: decider_lease(&options, member),
            member,
            steps_back_until: None,
            stepped_back: 0,
            writes: FencedWrites::new(member, desk.wrapping_add(2)),
            roster: Roster::new(world, division, SubscriptionId(u32::MAX - 1), WatchId(u32::MAX - 1)),
            deciding: Deciding::No,
            planner: Planner::new(division, options.planner),
            plans: true,
            edges: FxHashMap::default(),
            adopted: Time(0),
            now: Time(0),
            reported: None,
            planned: Time(0),
            report: None,
            counters: BalanceCounters::default(),
            options,
        }
    }

    /// Whether this server moves borders by load when it is its turn to decide. At first it does: a game whose players are still coming
    /// may want to wait. The strip of a server that is gone goes to others all the same; the strip of one that was never seen does so
    /// after 30 s.
    pub fn set_planning(&mut self, plans: bool) {
        self.plans = plans;
    }

    /// Why borders do not follow the servers; `None` if they do, as far as the store says. Worth a line in a log.
    pub fn problem(&self) -> Option<WorldProblem> {
        self.roster.problem()
    }

    /// The borders as they are known here.
    pub fn borders(&self) -> &Borders {
        self.roster.borders()
    }

    /// Its counters.
    pub fn counters(&self) -> BalanceCounters {
        let heard = self.roster.counters();
        let refused = self.counters.refused + heard.refused;
        let (states_dropped, recalls_unanswered) = (self.saved.dropped, self.recall.unanswered);
        let (reports, forged) = (heard.reports, heard.forged);
        BalanceCounters { reports, refused, forged, states_dropped, recalls_unanswered, ..self.counters }
    }

    /// The fencing number of this server, while it holds the lease of its number at `now`. Ask anew before each act for its strip.
    pub fn fence(&self, now: Time) -> Option<Fence> {
        self.seat.fence(now)
    }

    /// The fencing number of the borders, while this server is the one that decides at `now`.
    pub fn deciding(&self, now: Time) -> Option<Fence> {
        self.decider.fence(now).filter(|_| self.seat.fence(now).is_some())
    }

    /// Gives up its leases, for good: an orderly end. The others take over its strip after [`BalanceOptions::gone_after`], unless another
    /// process takes the number, and one of them decides at once. The commands for that come with the next
    /// [`settle`](Balance::settle) or [`poll_command`](Balance::poll_command): end the bus after it.
    pub fn resign(&mut self) {
        self.seat.release();
        self.decider.release();
        self.steps_back_until = None;
    }

    /// The server to which something at a step belongs, if that is another one and it can be handed over there now.
    pub fn goes_to(&self, step: u16) -> Option<u16> {
        let to = self.borders().home(step);
        let version = self.borders().version();
        let takes = |seat: &SeatOf| {
            seat.holder.is_some()
                && seat.is_ready(version)
                && self.now.since(seat.reported) <= self.options.silent_after
        };
        let goes = to != self.options.number
            && self.fence(self.now).is_some()
            && self.roster.is_current()
            && self.roster.seat(to).is_some_and(takes);
        goes.then_some(to)
    }

    /// Takes an event that is about borders or edges. Returns whether it was about borders: then it concerns nobody else.
    pub fn take(&mut self, event: &OriginEvent, now: Time) -> bool {
        self.now = self.now.max(now);
        match event {
            OriginEvent::EdgeJoined(edge) => {
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
            OriginEvent::Joined { client_id, .. } | OriginEvent::Arrived { client_id, .. } => {
                self.saved.begin(*client_id);
                false
            }
            _ => false,
        }
    }

    /// All edges look at this server by this version, but for those that are left behind: an edge that never says how it looks would
    /// keep everybody where they are.
    fn ready(&self) -> BordersVersion {
        let version = self.borders().version();
        let looking = self.edges.values().filter(|looks| !self.is_left_behind(looks));
        let least = looking.map(|&(looks, _)| looks).min();
        least.unwrap_or(if self.edges.is_empty() { BordersVersion::default() } else { version }).min(version)
    }

    /// Edges that do not follow the borders: their clients do not see all of the objects that have moved to another server.
    pub fn left_behind(&self) -> usize {
        self.edges.values().filter(|looks| self.is_left_behind(looks)).count()
    }

    fn is_left_behind(&self, &(looks, since): &(BordersVersion, Time)) -> bool {
        let waits = self.now.since(self.adopted).min(self.now.since(since));
        looks < self.borders().version() && waits > self.options.edge_patience
    }

    /// Whether the others have taken over its part of the world, because its lease had ended, or it had no edges.
    pub fn has_no_part(&self) -> bool {
        self.borders().strip(self.options.number).is_empty()
    }

    /// Tells the other servers the states of all players of this one by client id, once in a second: if this server dies, whoever takes
    /// its players over [goes on](Balance::take_saved) with them. Call it in each tick; the iterator is used only if it is time.
    /// A state of more than 65,535 bytes is dropped and counted.
    pub fn save<S: AsRef<[u8]>>(&mut self, now: Time, states: impl Iterator<Item = (u64, S)>) {
        let Some(fence) = self.fence(now) else { return };
        let told = self.saved.tell(now, (self.options.number, fence), states);
        if !told.is_empty() {
            // A round that the bus has not taken is of no use beside a newer one.
            let Balance { states, saved, .. } = self;
            states.retain(|command| match command {
                Command::Publish { subject, payload } => !saved.handle_given_up(subject, payload),
                _ => true,
            });
            self.states.extend(told);
        }
    }

    /// Whether this server may take players. It has held its lease, so no other process of its number does. And other servers have told
    /// it the states that they keep, or it sees no others, or two seconds have passed without an answer. Once it is ready it stays so.
    /// Until then [`settle`](Balance::settle) keeps its origin [closed](Origin::set_open), and it reports nothing.
    pub fn is_ready(&self) -> bool {
        self.recall.is_done()
    }

    /// The newest state of a player who has [joined](crate::OriginEvent::Joined) here, and was at a server that is gone, or at the process
    /// before this one. It is up to 30 s old, and in most cases up to one. It is given once.
    pub fn take_saved(&mut self, now: Time, client_id: u64) -> Option<Vec<u8>> {
        self.notice(now);
        self.saved.take(now, client_id, &self.roster)
    }

    /// One tick. `steps` are those of all objects that this server has, also of such that another one is about to take over. Takes what the bus
    /// says, and says what there is to say. Without a part of the world, it gives up the players who are away: others serve their clients.
    /// The origin is closed until this server [may take players](Balance::is_ready), so call it from the first tick on.
    pub fn settle(&mut self, bus: &mut dyn Bus, origin: &mut Origin, now: Time, steps: impl Iterator<Item = u16>) {
        bus.handle_timeout(now);
        while let Some(event) = bus.poll_event(now) {
            self.handle_event(now, &event);
        }
        self.step(now, steps);
        while let Some(command) = self.poll_command(now) {
            if let Err(error) = bus.handle_command(now, command.clone()) {
                self.handle_refusal(now, &command, error);
                break;
            }
        }
        if self.has_no_part() {
            origin.give_up_kept();
        }
        origin.set_open(self.is_ready());
    }

    /// Takes an event of the bus. Events of others are ignored.
    pub fn handle_event(&mut self, now: Time, event: &Event) {
        // A process that was stopped learns first that its time is over.
        self.notice(now);
        let known = self.borders().version();
        self.roster.handle_event(now, event);
        if self.borders().version() != known {
            self.adopted = now;
        }
        match event {
            // The borders that are being written were decided by old knowledge.
            Event::Disconnected => self.stop_deciding(),
            Event::Message(message) if self.saved.is_ours(message.subscription) => {
                let is_heard = self.saved.hear(now, message, &self.roster);
                self.counters.states_refused += u64::from(!is_heard);
            }
            Event::Message(message) if self.recall.is_ours(message.subscription) => {
                let fence = self.fence(now);
                let is_heard = self.recall.hear(now, message, fence, &mut self.saved, &self.roster);
                self.counters.states_refused += u64::from(!is_heard);
            }
            Event::Changed { value: None, .. } => {
                let is_free = self.roster.seat(self.options.number).is_some_and(|seat| seat.holder.is_none());
                if is_free {
                    self.seat.try_now(now);
                }
                if self.roster.decider().is_none() {
                    self.decider.try_now(now);
                }
            }
            _ => {}
        }
        self.seat.handle_event(now, event);
        self.decider.handle_event(now, event);
        self.writes.handle_event(event);
        self.notice(now);
    }

    /// Notices what has ended: leases by their time, and writes.
    fn notice(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.seat.handle_timeout(now);
        self.decider.handle_timeout(now);
        // Whether leases are held is asked when it matters.
        while self.seat.poll_change().is_some() || self.decider.poll_change().is_some() {}
        if self.deciding.fence().is_some() && self.deciding.fence() != self.deciding(now) {
            self.stop_deciding();
        }
        while let Some((write, result)) = self.writes.poll_result() {
            if self.deciding.write() != Some(write) {
                continue;
            }
            self.deciding = match (self.deciding, result) {
                (Deciding::Fencing(fence, _), Ok(done)) => Deciding::Sure(fence, Decided::of(&done)),
                (Deciding::Restoring(fence, _), Ok(done)) => {
                    self.counters.restored += 1;
                    Deciding::Sure(fence, Decided::of(&done))
                }
                (Deciding::Writing(fence, _), Ok(done)) => {
                    self.counters.plans += 1;
                    Deciding::Sure(fence, Decided::of(&done))
                }
                (_, Err(error)) => {
                    self.counters.overruled += u64::from(matches!(error, FencedError::Old { .. }));
                    Deciding::No
                }
                (deciding, Ok(_)) => deciding,
            };
        }
    }

    fn stop_deciding(&mut self) {
        if let Some(write) = self.deciding.write() {
            self.writes.abandon(write);
        }
        self.deciding = Deciding::No;
    }

    /// The half of [`settle`](Balance::settle) that knows no bus and no origin: reports and plans, if it is time for it. After it, open the
    /// origin if the server [may take players](Balance::is_ready), and otherwise close it.
    pub fn step(&mut self, now: Time, steps: impl Iterator<Item = u16>) {
        self.notice(now);
        let Some(fence) = self.fence(now) else { return self.recall.stop() };
        let is_planned = now.since(self.planned) >= self.options.plan_every && self.may_plan();
        let news = (fence, self.borders().version(), self.ready(), self.edges.len());
        self.recall.step(now, fence, &self.saved, &self.roster);
        let is_new =
            self.reported.is_none_or(|(at, reported)| now.since(at) >= self.options.report_every || reported != news);
        // A server whose origin is closed has no edges yet: nobody is to take it for one that edges do not reach.
        if self.is_ready() && (is_new || is_planned) {
            let own = count(steps, &self.options.division);
            if is_planned {
                self.planned = now;
                self.plan(&own);
            }
            self.report = Some(self.report_of(news, &own));
            self.reported = Some((now, news));
        }
        self.come_forward();
        self.begin_to_decide(now);
        self.restore_entry();
    }

    fn report_of(&self, (fence, knows, ready, edges): Reported, own: &[u32]) -> Command {
        let load = own.iter().zip(0..).filter(|(objects, _)| **objects > 0);
        let load = load.map(|(&objects, step)| (step, u16::try_from(objects).unwrap_or(u16::MAX))).collect();
        let edges = u16::try_from(edges).unwrap_or(u16::MAX);
        let report = LoadReport { fence, knows, ready, edges, load };
        Command::Publish { subject: self.options.world.load_subject(self.options.number), payload: report.bytes() }
    }

    /// The next command for the bus. If the bus refuses it, call [`handle_refusal`](Balance::handle_refusal), and poll no more in this tick:
    /// the same command may come next.
    pub fn poll_command(&mut self, now: Time) -> Option<Command> {
        let may_decide = self.fence(now).is_some() && self.roster.is_current() || self.decider.is_released();
        self.roster
            .poll_command()
            // Before its lease is known, and others answer.
            .or_else(|| self.subscriptions.pop_front())
            .or_else(|| self.seat.poll_command(now))
            // A server that has no number, or does not know who is there, leaves deciding to others.
            .or_else(|| if may_decide { self.decider.poll_command(now) } else { None })
            .or_else(|| self.writes.poll_command())
            .or_else(|| self.report.take())
            .or_else(|| self.recall.poll_command())
            .or_else(|| self.states.pop_front())
    }

    /// Says that the bus refused a command, and why: it is tried again.
    pub fn handle_refusal(&mut self, now: Time, command: &Command, error: CommandError) {
        match command {
            Command::Get { key, .. } | Command::Put { key, .. } | Command::Delete { key, .. } => {
                if *key == self.options.world.borders_key() {
                    self.writes.handle_refusal(command, error);
                } else if *key == self.options.world.decider_key() {
                    self.decider.handle_refusal(now);
                } else {
                    self.seat.handle_refusal(now);
                }
            }
            // The next round counts it, if it is still waiting then.
            Command::Publish { subject, .. } if self.saved.is_round(subject) => self.states.push_front(command.clone()),
            Command::Publish { .. } if self.recall.handle_refusal(command) => {}
            // The next report says more.
            Command::Publish { .. } => self.reported = None,
            Command::Subscribe { subscription, .. }
                if self.saved.is_ours(*subscription) || self.recall.is_ours(*subscription) =>
            {
                self.subscriptions.push_front(command.clone());
            }
            _ => self.roster.handle_refusal(command),
        }
    }

    /// The holder of the deciding lease begins with its number on the borders.
    fn begin_to_decide(&mut self, now: Time) {
        let Some(fence) = self.deciding(now).filter(|_| self.roster.is_current()) else { return };
        if self.deciding == Deciding::No && now.since(self.planned) >= self.options.plan_every {
            let is_missing = self.roster.entry() == BordersEntry::Missing;
            let is_unknowing = is_missing && self.borders().version() == BordersVersion::default();
            // One that knows the removed borders decides instead. If nobody has done so by the next time, there are none.
            if is_unknowing && self.stepped_back == 0 {
                let listed = self.roster.seat(self.options.number).map_or(now, |seat| seat.empty_since);
                let is_silent = |seat: &SeatOf| seat.holder.is_some() && seat.report.is_none();
                let knows = |report: &LoadReport| report.knows > BordersVersion::default();
                if self.roster.seats().any(|seat| seat.report.as_ref().is_some_and(knows)) {
                    return self.step_back();
                }
                if now.since(listed) <= self.options.report_every * 3 && self.roster.seats().any(is_silent) {
                    return;
                }
            }
            self.planned = now;
            // A number on an entry that was removed would make strips of equal width of it, and everybody would take them for new.
            if is_missing && !is_unknowing {
                self.restore(fence);
            } else if let Some(write) = self.writes.fence(self.options.world.borders_key(), fence) {
                self.deciding = Deciding::Fencing(fence, write);
            }
        }
    }

    /// The one who decides does so when everybody who is there is ready for the borders that there are.
    fn may_plan(&self) -> bool {
        let Deciding::Sure(_, Decided { version, .. }) = self.deciding else { return false };
        // One that has not heard of the store for a while may know old leases.
        let renewed_ago = |until: Time| self.usable().saturating_sub(until.since(self.now));
        let is_fresh =
            self.decider.until().is_some_and(|until| renewed_ago(until) <= self.options.lease.renew_every * 3);
        let known = self.borders().version();
        let is_ready = |number: u16| self.roster.seat(number).is_some_and(|seat| seat.is_ready(known));
        self.roster.is_current()
            && is_fresh
            && known >= version
            && known >= self.roster.newest_version()
            && (0..self.options.division.servers()).all(|number| !self.counts(number) || is_ready(number))
    }

    /// Borders that were removed, or that are of another world, are written again as they are known here. If most servers know
    /// the borders that make no sense here, this one has other numbers than they have: it leaves deciding to them for a while. A single
    /// server with wrong numbers stops nobody.
    fn restore_entry(&mut self) {
        let Deciding::Sure(fence, Decided { version, revision: write }) = self.deciding else { return };
        let entry = self.roster.entry_written();
        // Others have had time to report what they know.
        let is_settled = self.now.since(entry.at) > self.options.report_every * 3;
        let is_over = match self.roster.entry() {
            // Its own write may not have been told yet.
            BordersEntry::Missing => self.borders().version() >= version,
            BordersEntry::Foreign => entry.revision >= write && is_settled,
            // The store came back older than it was.
            BordersEntry::Readable => self.roster.is_old() && self.borders().version() >= version && is_settled,
            BordersEntry::NoBorders => false,
        };
        if !is_over || !self.roster.is_current() {
            return;
        }
        // This one does not know them. One that has not reported counts for nobody.
        let others = (0..).zip(self.roster.seats()).filter(|(number, _)| *number != self.options.number);
        let reports = others.filter_map(|(_, seat)| seat.report.as_ref());
        let (known, unknown) = reports.fold((0, 1), |(known, unknown), report| {
            match report.knows >= entry.version && report.knows > self.borders().version() {
                true => (known + 1, unknown),
                false => (known, unknown + 1),
            }
        });
        if self.roster.entry() == BordersEntry::Foreign && known > unknown {
            return self.step_back();
        }
        // It knows only what the store has. One that knows what was there before writes that.
        if self.roster.is_old() && self.borders().version() < self.roster.newest_version() && self.stepped_back == 0 {
            return self.step_back();
        }
        self.restore(fence);
    }

    fn restore(&mut self, fence: Fence) {
        let content = borders_bytes(self.roster.borders(), self.roster.next_base(fence));
        if let Some(write) = self.writes.write(self.options.world.borders_key(), content, fence) {
            self.deciding = Deciding::Restoring(fence, write);
        }
    }

    /// Leaves deciding to the others for a while, each time in a row for longer.
    fn step_back(&mut self) {
        self.stop_deciding();
        self.decider.release();
        let pause =
            STEP_BACK_MIN.max(self.options.lease.duration * 2) * (1 << self.stepped_back.min(STEP_BACK_DOUBLED));
        self.stepped_back += 1;
        self.steps_back_until = Some(self.now.after(pause));
    }

    /// It may decide again after its time, or as soon as it can read the borders.
    fn come_forward(&mut self) {
        let is_readable = self.roster.entry() == BordersEntry::Readable && !self.roster.is_old();
        if is_readable && self.deciding == Deciding::No {
            self.stepped_back = 0;
        }
        let is_time = |until: Time| self.now >= until || is_readable;
        // The end of the old lease is on its way until the roster knows of it.
        let is_free = self.roster.decider().is_none_or(|holder| holder.member != self.member);
        if self.roster.is_current() && is_free && self.steps_back_until.is_some_and(is_time) {
            self.steps_back_until = None;
            self.decider = decider_lease(&self.options, self.member);
            self.decider.handle_event(self.now, &Event::Connected);
        }
    }

    /// The time for which a holder uses its lease.
    fn usable(&self) -> Duration {
        self.options.lease.duration.saturating_sub(self.options.lease.margin)
    }

    /// Whether a server is there: somebody holds its lease, or held it a moment ago. One without edges is of no use while others have some.
    fn counts(&self, number: u16) -> bool {
        let Some(seat) = self.roster.seat(number) else { return false };
        let has_edges = |seat: &SeatOf| seat.report.as_ref().is_some_and(|report| report.edges > 0);
        let is_edgeless = seat.edgeless_since.is_some_and(|at| self.now.since(at) > self.options.edge_patience)
            && self.roster.seats().any(has_edges);
        match seat.holder {
            Some(_) => !is_edgeless,
            None => self.now.since(seat.empty_since) <= self.options.gone_after,
        }
    }

    fn plan(&mut self, own: &[u32]) {
        let Deciding::Sure(fence, _) = self.deciding else { return };
        let next = if self.plans { self.plan_by_load(own) } else { self.plan_without_gone() };
        if let Some(borders) = next {
            let content = borders_bytes(&borders, self.roster.next_base(fence));
            if let Some(write) = self.writes.write(self.options.world.borders_key(), content, fence) {
                self.deciding = Deciding::Writing(fence, write);
            }
        }
    }

    /// One that was never there may still start, for a while.
    fn plan_without_gone(&self) -> Option<Borders> {
        let is_over = |seat: &SeatOf| seat.was_held || self.now.since(seat.empty_since) > START_UP;
        let is_gone = |(number, seat): (u16, &SeatOf)| seat.holder.is_none() && !self.counts(number) && is_over(seat);
        let alive: Vec<bool> = (0..).zip(self.roster.seats()).map(|seat| !is_gone(seat)).collect();
        self.planner.plan_without_gone(self.roster.borders(), &alive)
    }

    fn plan_by_load(&mut self, own: &[u32]) -> Option<Borders> {
        let alive: Vec<bool> = (0..self.options.division.servers()).map(|number| self.counts(number)).collect();
        let mut load = own.to_vec();
        for (_, seat) in (0..).zip(self.roster.seats()).filter(|(number, _)| *number != self.options.number) {
            for &(step, objects) in seat.report.iter().flat_map(|report| &report.load) {
                // The report was checked: the world has this step.
                load[usize::from(step)] = load[usize::from(step)].saturating_add(objects.into());
            }
        }
        self.planner.plan(self.roster.borders(), &load, &alive)
    }
}

/// The lease to decide, not asked for yet.
fn decider_lease(options: &BalanceOptions, member: MemberId) -> Lease {
    let note = address_note(options.address);
    Lease::new(options.world.decider_key(), member, note, options.lease, options.desk.wrapping_add(1))
}

/// How many there are at each step. Objects beyond the world are at its end.
fn count(steps: impl Iterator<Item = u16>, division: &Division) -> Vec<u32> {
    let mut counted = vec![0; division.steps().into()];
    let last = division.steps() - 1;
    steps.for_each(|step| counted[usize::from(step.min(last))] += 1);
    counted
}
