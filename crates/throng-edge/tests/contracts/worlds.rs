//! Servers and edges of one world on a simulated bus: delay, partition, crash, restart, leases that run out, clocks of different speed.
//!
//! The oracle looks from outside: at the store's own log, at the leases of all processes at each step, and at what each process takes for
//! the borders.

use std::collections::BTreeMap;
use std::time::Duration;

use throng::{ConnectionId, Time};
use throng_bus::sim::{SimBus, SimNet, SimStore, SimWrite, Weather};
use throng_bus::{
    Bus, Command, CommandError, Event, Expect, Fence, Fenced, FencedWrites, Holder, Limits, LocalHub, MemberId,
    Revision, Ticket,
};
use throng_edge::{
    Balance, BalanceOptions, BorderWatch, BordersVersion, Division, OriginEvent, PlannerOptions, WorldName,
    WorldProblem,
};
use throng_seeds::{for_seeds, is_partial};

const SERVERS: u16 = 4;
const EDGES: usize = 2;
const STEPS: u16 = 64;
const PLAYERS: usize = 24;
const STEP: Duration = Duration::from_millis(50);
/// For so long, a decider that hears nothing of the store may plan by what it knew: three renewals, and the way to the store.
const STALE: Duration = Duration::from_millis(1_700);

fn world() -> WorldName {
    WorldName::new("storm").unwrap()
}

fn division() -> Division {
    Division::new(SERVERS, STEPS, 2).unwrap()
}

struct Process {
    bus: SimBus,
    balance: Balance,
    /// Of its connections to the edges.
    generation: u32,
    /// Whether it has each edge.
    has_edge: [bool; EDGES],
    /// The version that each edge has said last.
    told: [BordersVersion; EDGES],
    sleeps_until: Time,
}

struct EdgeProcess {
    bus: SimBus,
    watch: BorderWatch,
}

/// A player, whose home its edge decides.
struct Player {
    step: u16,
    home: u16,
    /// Of its home: with another one, that is another process.
    generation: u32,
}

struct Stage {
    net: SimNet,
    rng: fastrand::Rng,
    servers: Vec<Option<Process>>,
    edges: Vec<EdgeProcess>,
    players: Vec<Player>,
    /// No connection between this server and any edge.
    is_unlinked: [bool; SERVERS as usize],
    members: u64,
    /// The borders of each version, as any process has ever known them.
    seen: BTreeMap<BordersVersion, Vec<u16>>,
}

impl Stage {
    fn new(seed: u64, weather: Weather) -> Stage {
        let net = SimNet::new(seed, weather);
        let mut stage = Stage {
            rng: fastrand::Rng::with_seed(seed),
            servers: (0..SERVERS).map(|_| None).collect(),
            edges: Vec::new(),
            players: Vec::new(),
            is_unlinked: [false; SERVERS as usize],
            members: 0,
            seen: BTreeMap::new(),
            net,
        };
        (0..SERVERS).for_each(|number| stage.start(number));
        for _ in 0..EDGES {
            let bus = stage.join();
            stage.edges.push(EdgeProcess { bus, watch: BorderWatch::new(world(), division()) });
        }
        for _ in 0..PLAYERS {
            let step = stage.rng.u16(0..STEPS);
            let home = stage.edges[0].watch.borders().home(step);
            stage.players.push(Player { step, home, generation: u32::from(home) + 1 });
        }
        stage
    }

    fn join(&mut self) -> SimBus {
        self.members += 1;
        self.net.join(MemberId(self.members), Limits::default())
    }

    /// A new process for a number.
    fn start(&mut self, number: u16) {
        self.servers[usize::from(number)] = Some(self.new_process(number, division()));
    }

    /// A process that is none of the world's servers yet.
    fn new_process(&mut self, number: u16, division: Division) -> Process {
        let bus = self.join();
        let planner = PlannerOptions { spare_load: 1, moved_load: 6, ..PlannerOptions::default() };
        let address = Some(([10, 0, 0, 1], 4_000 + self.members as u16).into());
        let options = BalanceOptions { planner, address, ..BalanceOptions::new(world(), division, number) };
        let balance = Balance::new(options, bus.member());
        let (has_edge, told) = ([false; EDGES], [BordersVersion::default(); EDGES]);
        let generation = self.members as u32;
        Process { bus, balance, generation, has_edge, told, sleeps_until: Time(0) }
    }

    fn balance_mut(&mut self, number: u16) -> &mut Balance {
        &mut self.servers[usize::from(number)].as_mut().unwrap().balance
    }

    fn process(&self, number: u16) -> Option<&Process> {
        self.servers[usize::from(number)].as_ref()
    }

    /// Whether edges reach a process.
    fn is_reached(&self, number: u16) -> bool {
        self.process(number).is_some_and(|it| it.sleeps_until <= self.net.now())
            && !self.is_unlinked[usize::from(number)]
    }

    fn pass(&mut self) {
        self.net.pass(STEP);
        let now = self.net.now();
        for number in 0..SERVERS {
            self.link(number);
            let steps: Vec<u16> = self.steps_of(number);
            if let Some(process) = self.servers[usize::from(number)].as_mut().filter(|it| it.sleeps_until <= now) {
                process.run(&steps);
            }
            self.hand_over(number);
        }
        for edge in &mut self.edges {
            let now = edge.bus.clock();
            edge.watch.listen(&mut edge.bus, now);
        }
        self.rejoin();
    }

    fn pass_for(
        &mut self,
        duration: Duration,
        mut each: impl FnMut(&mut Stage) -> Result<(), String>,
    ) -> Result<(), String> {
        let end = self.net.now().after(duration);
        while self.net.now() < end {
            self.pass();
            self.check_step()?;
            each(self)?;
        }
        Ok(())
    }

    fn steps_of(&self, number: u16) -> Vec<u16> {
        let generation = self.process(number).map(|process| process.generation);
        let own = self.players.iter().filter(|it| it.home == number && Some(it.generation) == generation);
        own.map(|player| player.step).collect()
    }

    /// Edges connect, lose their connection, and say by which borders they look.
    fn link(&mut self, number: u16) {
        let is_reached = self.is_reached(number);
        let Some(process) = &mut self.servers[usize::from(number)] else { return };
        let now = process.bus.clock();
        for (index, edge) in self.edges.iter().enumerate() {
            let connection = ConnectionId { index: index as u32, generation: process.generation };
            let version = edge.watch.borders().version();
            match (process.has_edge[index], is_reached) {
                (false, true) => {
                    process.balance.take(&OriginEvent::EdgeJoined(connection), now);
                    (process.has_edge[index], process.told[index]) = (true, BordersVersion::default());
                }
                (true, false) if self.is_unlinked[usize::from(number)] => {
                    process.balance.take(&OriginEvent::EdgeLeft(connection), now);
                    process.has_edge[index] = false;
                }
                (true, true) if process.told[index] != version => {
                    process.balance.take(&OriginEvent::Looks { edge: connection, version: version.0 }, now);
                    process.told[index] = version;
                }
                _ => {}
            }
        }
    }

    /// A server hands over by its borders, and the edge passes it on if it reaches the other one.
    fn hand_over(&mut self, number: u16) {
        if !self.is_reached(number) {
            return;
        }
        let Some(process) = self.process(number) else { return };
        let generation = process.generation;
        let moves: Vec<(usize, u16)> = (0..PLAYERS)
            .filter(|&index| (self.players[index].home, self.players[index].generation) == (number, generation))
            .filter_map(|index| Some((index, process.balance.goes_to(self.players[index].step)?)))
            .collect();
        for (index, to) in moves {
            if let Some(generation) = self.process(to).filter(|_| self.is_reached(to)).map(|it| it.generation) {
                (self.players[index].home, self.players[index].generation) = (to, generation);
            }
        }
    }

    /// Players whose process is gone join the server of their place, and those whose server has started again join it.
    fn rejoin(&mut self) {
        for index in 0..PLAYERS {
            let Player { home, generation, step } = self.players[index];
            let is_same = self.process(home).is_some_and(|process| process.generation == generation);
            if is_same && self.is_reached(home) {
                continue;
            }
            let watch = &self.edges[index % EDGES].watch;
            let is_gone = watch.is_gone(home.into()) || (self.is_reached(home) && !is_same);
            let to = if watch.is_gone(home.into()) { watch.borders().home(step) } else { home };
            if let Some(process) = self.process(to).filter(|_| is_gone && self.is_reached(to)) {
                (self.players[index].generation, self.players[index].home) = (process.generation, to);
            }
        }
    }

    /// Holds at every moment.
    fn check_step(&mut self) -> Result<(), String> {
        let holders = self.servers.iter().flatten().filter(|it| it.balance.deciding(it.bus.clock()).is_some()).count();
        if holders > 1 {
            return Err(format!("{holders} servers decide at {:?}", self.net.now()));
        }
        let known = self.servers.iter().flatten().map(|process| process.balance.borders());
        for borders in known.chain(self.edges.iter().map(|edge| edge.watch.borders())) {
            let first = self.seen.entry(borders.version()).or_insert_with(|| borders.inner().to_vec());
            if first[..] != *borders.inner() {
                return Err(format!("{borders:?} and {first:?}"));
            }
        }
        Ok(())
    }

    /// Holds of the store's own log.
    fn check_log(&self) -> Result<(), String> {
        let log = self.net.writes();
        let mut writers: BTreeMap<Fence, MemberId> = BTreeMap::new();
        let mut newest = Fence(0);
        let mut cuts: Option<Vec<u16>> = None;
        let mut versions = BTreeMap::from([(BordersVersion(0), self.strips(&[]))]);
        for write in log.iter().filter(|write| write.key == world().borders_key()) {
            let value = write.value.as_ref().ok_or("borders were removed")?;
            let fenced = Fenced::read(value, write.revision).ok_or(format!("{write:?} has no fencing number"))?;
            let by = write.by.ok_or("borders have ended")?;
            if *writers.entry(fenced.fence).or_insert(by) != by || fenced.fence < newest {
                return Err(format!("{write:?} after {newest:?}, {writers:?}"));
            }
            newest = fenced.fence;
            let is_taken =
                |it: &SimWrite| it.key == world().decider_key() && it.revision.0 == fenced.fence.0 && it.by == Some(by);
            if !log.iter().any(is_taken) {
                return Err(format!("{write:?} by one who never got the lease"));
            }
            let (base, cuts_after) = fenced.content.split_at(fenced.content.len().min(8));
            if base.iter().any(|byte| *byte != 0) {
                return Err(format!("{write:?} has a base, and the store was never older"));
            }
            let next = self.strips(cuts_after);
            let before = cuts.replace(next.clone()).unwrap_or_else(|| self.strips(&[]));
            for number in 0..SERVERS {
                let width = |cuts: &[u16]| cuts[usize::from(number) + 1] - cuts[usize::from(number)];
                if width(&before) > 0 && width(&next) == 0 && self.has_lease(&log, number, write.at) {
                    let leases: Vec<String> = log
                        .iter()
                        .filter(|it| it.key == world().server_key(number) || it.key == world().decider_key())
                        .filter(|it| it.at <= write.at && it.value.is_none() | (write.at.since(it.at) < 2 * STALE))
                        .map(|it| format!("{:?} {} {}", it.at, it.key, it.value.is_some()))
                        .collect();
                    return Err(format!("{number} is declared gone at {:?} with {leases:#?}", write.at));
                }
            }
            versions.insert(BordersVersion(write.revision.0), next);
        }
        for (version, inner) in &self.seen {
            let written = versions.get(version).ok_or(format!("{version:?} was never written"))?;
            if written[1..written.len() - 1] != inner[..] {
                return Err(format!("{version:?} was written as {written:?}, and known as {inner:?}"));
            }
        }
        Ok(())
    }

    /// All cuts of an entry's content.
    fn strips(&self, content: &[u8]) -> Vec<u16> {
        let cuts: Vec<u16> = content.as_chunks::<2>().0.iter().map(|cut| u16::from_le_bytes(*cut)).collect();
        match cuts.is_empty() {
            true => (0..=SERVERS).map(|number| number * (STEPS / SERVERS)).collect(),
            false => [0].into_iter().chain(cuts).chain([STEPS]).collect(),
        }
    }

    /// Whether somebody has held the lease of a number until a moment, for longer than a decider can know nothing of it.
    fn has_lease(&self, log: &[SimWrite], number: u16, at: Time) -> bool {
        let of_it = log.iter().filter(|write| write.key == world().server_key(number) && write.at <= at);
        let since = of_it.fold(None, |since, write| write.value.as_ref().and(since.or(Some(write.at))));
        since.is_some_and(|since| at.since(since) > STALE)
    }

    /// Everybody is there again, and all agree.
    fn check_agreement(&self) -> Result<(), String> {
        let processes: Vec<&Process> = self.servers.iter().flatten().collect();
        let deciders = processes.iter().filter(|it| it.balance.deciding(it.bus.clock()).is_some()).count();
        let holding = processes.iter().filter(|it| it.balance.fence(it.bus.clock()).is_some()).count();
        if (deciders, holding) != (1, usize::from(SERVERS)) {
            return Err(format!("{deciders} decide, {holding} hold their leases"));
        }
        let borders = processes[0].balance.borders();
        let all = processes.iter().map(|it| it.balance.borders());
        if let Some(other) = all.chain(self.edges.iter().map(|edge| edge.watch.borders())).find(|it| *it != borders) {
            return Err(format!("{borders:?} and {other:?}"));
        }
        if let Some(number) = (0..SERVERS).find(|&number| borders.strip(number).len() < 2) {
            return Err(format!("{number} has no strip: {borders:?}"));
        }
        let is_home = |player: &&Player| {
            let process = self.process(player.home).map(|process| process.generation);
            process == Some(player.generation) && player.home == borders.home(player.step)
        };
        let served = self.players.iter().filter(is_home).count();
        if served < PLAYERS {
            return Err(format!("{served} of {PLAYERS} players are where they should be"));
        }
        Ok(())
    }

    /// The same, and nobody has heard anything from the others that makes no sense.
    fn check_end(&self) -> Result<(), String> {
        let counters = self.servers.iter().flatten().map(|it| it.balance.counters());
        match counters.into_iter().find(|counters| counters.refused != counters.forged) {
            Some(counters) => Err(format!("{counters:?}")),
            None => self.check_agreement(),
        }
    }

    /// A member of the bus writes any borders with a fencing number.
    fn overwrite(&mut self, content: &[u8], fence: Fence) {
        let mut bus = self.join();
        let mut writes = FencedWrites::new(bus.member(), 1);
        writes.write(world().borders_key(), content.to_vec().into(), fence).unwrap();
        self.carry_out(&mut writes, &mut bus);
    }

    /// A write of a member that is no server happens.
    fn carry_out(&mut self, writes: &mut FencedWrites, bus: &mut SimBus) {
        for _ in 0..6 {
            self.pass();
            let now = bus.clock();
            while let Some(event) = bus.poll_event(now) {
                writes.handle_event(&event);
            }
            while let Some(command) = writes.poll_command() {
                bus.handle_command(now, command).unwrap();
            }
        }
        assert!(writes.poll_result().unwrap().1.is_ok());
    }

    /// Somebody removes the entry of the borders.
    fn remove_borders(&mut self) {
        let mut bus = self.join();
        self.pass();
        let now = bus.clock();
        bus.poll_event(now);
        let (ticket, key) = (Ticket(1), world().borders_key());
        bus.handle_command(now, Command::Delete { ticket, key, expect: Expect::Anything }).unwrap();
    }

    /// The number of the server that decides.
    fn decider(&self) -> Option<u16> {
        let decides =
            |it: &Option<Process>| it.as_ref().is_some_and(|it| it.balance.deciding(it.bus.clock()).is_some());
        self.servers.iter().position(decides).map(|number| number as u16)
    }

    fn restored(&self) -> u64 {
        self.servers.iter().flatten().map(|process| process.balance.counters().restored).sum()
    }

    fn goes(&self, to: u16) -> bool {
        let servers = self.servers.iter().flatten();
        servers.flat_map(|it| (0..STEPS).filter_map(|step| it.balance.goes_to(step))).any(|it| it == to)
    }

    fn plans(&self) -> u64 {
        self.servers.iter().flatten().map(|process| process.balance.counters().plans).sum()
    }

    /// Something happens now and then.
    fn trouble(&mut self) {
        let number = self.rng.u16(0..SERVERS);
        let member = self.process(number).map(|process| process.bus.member());
        let edge = self.edges[self.rng.usize(0..EDGES)].bus.member();
        match self.rng.u8(0..100) {
            0..3 => self.servers[usize::from(number)] = None,
            3..6 if member.is_none() => self.start(number),
            6..8 => {
                let until = self.net.now().after(Duration::from_millis(self.rng.u64(100..5_000)));
                if let Some(process) = &mut self.servers[usize::from(number)] {
                    process.sleeps_until = until;
                }
            }
            8..10 => member.into_iter().for_each(|member| self.net.cut(member, true)),
            10..14 => self.heal(),
            14..16 => member.into_iter().for_each(|member| self.net.reset(member)),
            16 => self.net.cut(edge, true),
            17 => self.net.run_server(false),
            18..22 => self.net.run_server(true),
            // The crowd moves on.
            22..26 => {
                let place = self.rng.u16(0..STEPS - 8);
                let rng = &mut self.rng;
                self.players.iter_mut().filter(|_| rng.bool()).for_each(|player| player.step = place + player.step % 8);
            }
            _ => {}
        }
    }

    fn heal(&mut self) {
        (1..=self.members).for_each(|member| self.net.cut(MemberId(member), false));
    }
}

impl Process {
    fn run(&mut self, steps: &[u16]) {
        let now = self.bus.clock();
        self.bus.handle_timeout(now);
        while let Some(event) = self.bus.poll_event(now) {
            self.balance.handle_event(now, &event);
        }
        self.balance.step(now, steps.iter().copied());
        while let Some(command) = self.balance.poll_command(now) {
            if let Err(error) = self.bus.handle_command(now, command.clone()) {
                self.balance.handle_refusal(now, &command, error);
                break;
            }
        }
    }
}

pub(crate) fn calm() -> Weather {
    Weather { delay: Duration::from_millis(1)..Duration::from_millis(20), ..Weather::default() }
}

#[test]
fn who_resigns_leaves_both_leases_free_at_once() {
    let mut stage = Stage::new(1, calm());
    stage.pass_for(Duration::from_secs(3), |_| Ok(())).unwrap();
    let number = stage.decider().unwrap();
    stage.balance_mut(number).resign();
    // To and fro twice: the entries are removed, and another server takes the one of the decider.
    stage.pass_for(Duration::from_millis(200), |_| Ok(())).unwrap();
    assert!(stage.decider().is_some_and(|other| other != number), "{:?}", stage.decider());
    let is_removed = |key| stage.net.writes().iter().rfind(|write| write.key == key).unwrap().value.is_none();
    assert!(is_removed(world().server_key(number)));
    stage.pass_for(Duration::from_secs(2), |_| Ok(())).unwrap();
    assert!(stage.servers.iter().flatten().all(|it| it.balance.borders().strip(number).is_empty()));
}

#[test]
fn one_decides_each_version_is_agreed_and_nobody_with_a_lease_is_gone_in_any_storm() {
    let (mut plans, mut seeds) = (0, 0);
    for_seeds(300, |seed| {
        let weather = Weather {
            delay: Duration::from_millis(1)..Duration::from_millis(60),
            twice: 0.05,
            lost: 0.05,
            lost_answers: 0.03,
            drift_ppm: 50_000,
            server_drift_ppm: 50_000,
            ..Weather::default()
        };
        let mut stage = Stage::new(seed, weather);
        stage.pass_for(Duration::from_secs(14), |stage| {
            stage.trouble();
            Ok(())
        })?;
        stage.net.run_server(true);
        stage.heal();
        stage.net.set_weather(|weather| (weather.lost, weather.lost_answers, weather.twice) = (0.0, 0.0, 0.0));
        for number in 0..SERVERS {
            match &mut stage.servers[usize::from(number)] {
                Some(process) => process.sleeps_until = Time(0),
                None => stage.start(number),
            }
        }
        stage.pass_for(Duration::from_secs(14), |_| Ok(()))?;
        // Borders may just have moved on.
        for _ in 0..40 {
            if stage.check_end().is_ok() {
                break;
            }
            stage.pass();
            stage.check_step()?;
        }
        (plans, seeds) = (plans + stage.plans(), seeds + 1);
        stage.check_log()?;
        stage.check_end()
    });
    assert!(is_partial() || plans > 3 * seeds, "the storms say little: {plans} plans in {seeds} seeds");
}

/// One that starts again within the life of its lease has its strip as before.
#[test]
fn a_server_that_starts_again_at_once_is_never_gone() {
    for_seeds(40, |seed| {
        let delay = Duration::from_millis(20)..Duration::from_millis(80);
        let mut stage = Stage::new(seed, Weather { delay, ..calm() });
        stage.pass_for(Duration::from_millis(5_000 + seed * 23), |_| Ok(()))?;
        let [first, second] = [0, 1].map(|index| stage.edges[index].watch.address(2));
        let fence = stage.edges[0].watch.fence(2).ok_or("nobody has its number")?;
        stage.servers[2] = None;
        stage.pass_for(Duration::from_secs(1), |_| Ok(()))?;
        stage.start(2);
        stage.pass_for(Duration::from_secs(8), |stage| {
            let is_gone = stage.edges.iter().any(|edge| edge.watch.is_gone(2));
            if is_gone { Err("the server was declared gone".to_owned()) } else { Ok(()) }
        })?;
        let new = stage.edges[1].watch.address(2);
        if first.is_none() || first != second || new.is_none() || new == first {
            return Err(format!("{first:?}, {second:?}, and then {new:?}"));
        }
        if stage.edges[0].watch.fence(2).is_none_or(|new| new <= fence) {
            return Err(format!("no higher number than {fence:?}"));
        }
        stage.check_log()?;
        stage.check_end()
    });
}

/// The others have its strip soon, and it has one again when it comes back.
#[test]
fn a_server_that_dies_loses_its_strip_within_five_seconds_also_if_it_was_the_one_that_decides() {
    for_seeds(4, |seed| {
        let mut stage = Stage::new(seed, calm());
        stage.pass_for(Duration::from_secs(5), |_| Ok(()))?;
        let decider = stage.decider().ok_or("nobody decides")?;
        let number = if seed % 2 == 0 { decider } else { (decider + 1) % SERVERS };
        // Borders that do not follow the load follow the dead all the same.
        let follows_load = seed < 2;
        stage.servers.iter_mut().flatten().for_each(|it| it.balance.set_planning(follows_load));
        stage.servers[usize::from(number)] = None;
        stage.pass_for(Duration::from_millis(4_700), |_| Ok(()))?;
        if !stage.edges.iter().all(|edge| edge.watch.is_gone(number.into())) {
            return Err(format!("{number} is not gone after 4.7 s"));
        }
        if !follows_load {
            let before = stage.edges[0].watch.borders().clone();
            stage.players.iter_mut().for_each(|player| player.step = 60);
            stage.pass_for(Duration::from_secs(3), |_| Ok(()))?;
            if *stage.edges[0].watch.borders() != before {
                return Err("borders have moved by load".to_owned());
            }
        }
        stage.servers.iter_mut().flatten().for_each(|it| it.balance.set_planning(true));
        stage.start(number);
        stage.pass_for(Duration::from_secs(6), |_| Ok(()))?;
        stage.check_log()?;
        stage.check_end()
    });
}

/// The store keeps what it has; everybody who holds a lease goes on after it has come back, and nobody was gone.
#[test]
fn the_death_of_the_store_and_its_return_make_nobody_gone() {
    let mut stage = Stage::new(5, calm());
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    stage.net.run_server(false);
    stage.pass_for(Duration::from_secs(6), |_| Ok(())).unwrap();
    let held =
        |stage: &Stage| stage.servers.iter().flatten().filter(|it| it.balance.fence(it.bus.clock()).is_some()).count();
    assert_eq!(held(&stage), 0, "their leases have run out");
    stage.net.run_server(true);
    let nobody_is_gone = |stage: &mut Stage| {
        let is_gone = (0..SERVERS).any(|number| stage.edges.iter().any(|edge| edge.watch.is_gone(number.into())));
        if is_gone { Err("a server was declared gone".to_owned()) } else { Ok(()) }
    };
    stage.pass_for(Duration::from_secs(2), nobody_is_gone).unwrap();
    assert_eq!(held(&stage), SERVERS.into());
    stage.pass_for(Duration::from_secs(4), nobody_is_gone).unwrap();
    stage.check_log().unwrap();
    stage.check_end().unwrap();
}

/// Its disk was lost, or a copy of it was put back: numbers of writes begin again at lower ones. Borders move on all the same, and
/// one that has just come agrees with all others.
#[test]
fn borders_move_on_when_the_store_comes_back_older_or_empty() {
    for (is_empty, restarts) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut stage = Stage::new(21, calm());
        stage.pass_for(Duration::from_secs(2), |_| Ok(())).unwrap();
        let copy = if is_empty { SimStore::default() } else { stage.net.copy_store() };
        // The load goes to and fro, and borders with it.
        let crowd = |stage: &mut Stage, from: u16| {
            (0..).zip(&mut stage.players).for_each(|(number, player)| player.step = from + number % 16);
        };
        for from in [48, 0, 48, 0] {
            crowd(&mut stage, from);
            stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
        }
        let before = stage.edges[0].watch.borders().clone();
        let version = before.version();
        stage.net.run_server(false);
        stage.pass_for(Duration::from_secs(1), |_| Ok(())).unwrap();
        stage.net.put_store(copy);
        stage.net.run_server(true);
        if restarts {
            // This one has known nothing before. Perhaps it decides.
            let number = stage.decider().unwrap_or_default();
            stage.start(number);
        }
        let (plans, written) = (stage.plans(), stage.net.writes().len());
        let case = format!("empty: {is_empty}, restarts: {restarts}");
        // All agree also if there is no reason to move borders.
        stage.servers.iter_mut().flatten().for_each(|it| it.balance.set_planning(false));
        stage.pass_for(Duration::from_secs(8), |_| Ok(())).unwrap();
        stage.check_agreement().unwrap_or_else(|error| panic!("{error}, {case}"));
        let borders = stage.edges[0].watch.borders();
        assert_eq!((borders.inner(), borders.version() > version), (before.inner(), true), "{case}");
        stage.servers.iter_mut().flatten().for_each(|it| it.balance.set_planning(true));
        crowd(&mut stage, 48);
        stage.pass_for(Duration::from_secs(10), |_| Ok(())).unwrap();
        let now = stage.edges[0].watch.borders().version();
        assert!(now > version && stage.plans() > plans, "{now:?} after {version:?}, {case}");
        assert!(stage.net.writes()[written..].iter().all(|write| write.revision.0 < version.0), "older, {case}");
        stage.check_agreement().unwrap_or_else(|error| panic!("{error}, {case}"));
    }
}

/// Its lease is alive and nobody declares it gone, but it is of no use to anybody.
#[test]
fn a_server_that_no_edge_reaches_gives_its_strip_to_those_that_some_reach() {
    let mut stage = Stage::new(6, calm());
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    stage.is_unlinked[1] = true;
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    assert!(stage.process(0).unwrap().balance.borders().strip(1).is_empty());
    stage.is_unlinked[1] = false;
    stage.pass_for(Duration::from_secs(6), |_| Ok(())).unwrap();
    stage.check_end().unwrap();
}

#[test]
fn a_report_for_another_server_and_borders_of_an_old_decider_are_refused_and_counted() {
    let mut stage = Stage::new(7, calm());
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    let before = stage.process(0).unwrap().balance.counters();
    // A member of the bus that holds no lease, and one that holds the one of another server.
    let mut stranger = stage.join();
    stage.pass();
    let holder = {
        let log = stage.net.writes();
        let write = log.iter().rfind(|write| write.key == world().server_key(3) && write.value.is_some()).unwrap();
        Holder::read(write.value.as_ref().unwrap(), write.revision).unwrap()
    };
    // All in one step of a world that has 64.
    let forged = [holder.fence.0.to_le_bytes(), [255; 8], [255; 8]].concat();
    let forged: Vec<u8> = [forged, vec![1, 0, 63, 0, 255, 255]].concat();
    let second = stage.servers[2].as_mut().unwrap();
    for bus in [&mut stranger, &mut second.bus] {
        let now = bus.clock();
        bus.poll_event(now);
        bus.publish(now, &world().load_subject(3), forged.clone().into()).unwrap();
    }
    stage.pass_for(Duration::from_secs(1), |_| Ok(())).unwrap();
    let after = stage.process(0).unwrap().balance.counters();
    assert_eq!((after.forged, after.refused), (before.forged + 2, before.refused + 2));
    assert_eq!(stage.edges[0].watch.counters().forged, 2);
    // Somebody decides by now whom the decider has not heard of. It stops, with a count.
    let mut writes = FencedWrites::new(stranger.member(), 1);
    writes.handle_event(&Event::Connected);
    writes.fence(world().borders_key(), Fence(stage.net.writes().last().unwrap().revision.0)).unwrap();
    stage.carry_out(&mut writes, &mut stranger);
    let plans = stage.plans();
    stage.players.iter_mut().for_each(|player| player.step = 60);
    stage.pass_for(Duration::from_secs(2), |_| Ok(())).unwrap();
    let overruled: u64 = stage.servers.iter().flatten().map(|it| it.balance.counters().overruled).sum();
    assert!(overruled > 0 && stage.plans() == plans, "{overruled} refused, {} plans", stage.plans() - plans);
}

/// As the pages say: a version is the number of a write.
#[test]
fn a_version_is_the_number_of_its_write() {
    let mut stage = Stage::new(8, calm());
    stage.pass_for(Duration::from_secs(3), |_| Ok(())).unwrap();
    let log = stage.net.writes();
    let newest = log.iter().rfind(|write| write.key == world().borders_key()).unwrap().revision;
    assert_eq!(Revision(stage.edges[0].watch.borders().version().0), newest);
}

/// A character that goes to such a server would be seen by nobody at the edge.
#[test]
fn nobody_is_handed_over_to_a_server_while_one_of_its_edges_looks_by_older_borders() {
    let mut stage = Stage::new(9, calm());
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    let edge = stage.edges[0].bus.member();
    stage.net.cut(edge, true);
    let version = |stage: &Stage| stage.servers.iter().flatten().map(|it| it.balance.borders().version()).min();
    let before = version(&stage);
    stage.players.iter_mut().for_each(|player| player.step = 60);
    let goes = |stage: &Stage| {
        let servers = stage.servers.iter().flatten();
        servers.flat_map(|it| (0..STEPS).filter_map(|step| it.balance.goes_to(step))).count()
    };
    let mut ticks_with_news = 0;
    // An edge that does not follow is waited for for 3 s.
    stage
        .pass_for(Duration::from_millis(2_500), |stage| {
            let is_new = version(stage) > before;
            ticks_with_news += u32::from(is_new);
            if is_new && goes(stage) > 0 { Err("somebody is to be handed over".to_owned()) } else { Ok(()) }
        })
        .unwrap();
    assert!(ticks_with_news > 20, "all servers have new borders for more than a second");
    stage.heal();
    stage.pass_for(Duration::from_secs(6), |_| Ok(())).unwrap();
    stage.check_end().unwrap();
}

/// Its lease lives on for 3 s, and it may be dead.
#[test]
fn nobody_is_handed_over_to_a_server_that_has_been_silent_for_a_second() {
    let mut stage = Stage::new(10, calm());
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    assert!(stage.goes(2));
    stage.servers[2] = None;
    stage.pass_for(Duration::from_millis(1_200), |_| Ok(())).unwrap();
    assert!(stage.edges[0].watch.fence(2).is_some(), "it has its lease");
    assert!(!stage.goes(2) && stage.goes(1), "the others take over");
}

/// Its edges still reach it, and it moves its players on. Nobody can say where they are.
#[test]
fn a_server_that_is_cut_off_from_the_bus_alone_is_looked_for_everywhere() {
    let mut stage = Stage::new(11, calm());
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    let homes = |stage: &Stage| {
        let mut homes = Vec::new();
        stage.edges[0].watch.homes(STEPS - 1, STEPS - 1, &mut homes);
        homes
    };
    assert!(stage.players.iter().any(|player| player.home == 0) && !homes(&stage).contains(&0));
    let member = stage.process(0).unwrap().bus.member();
    stage.net.cut(member, true);
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    assert!(stage.edges[0].watch.is_gone(0) && homes(&stage).contains(&0), "{:?}", homes(&stage));
    stage.heal();
    stage.pass_for(Duration::from_secs(8), |_| Ok(())).unwrap();
    assert!(!homes(&stage).contains(&0), "it says again where they are");
}

/// They are those of a world with another number of servers, which has ended, or nobody knows who removed them.
#[test]
fn borders_of_another_world_and_removed_ones_are_written_again_and_the_world_goes_on() {
    for is_removed in [false, true] {
        let mut stage = Stage::new(12, calm());
        if is_removed {
            stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
            stage.remove_borders();
        } else {
            stage.overwrite(&[0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 40, 0], Fence(0));
            let foreign = WorldProblem::Foreign { servers: SERVERS, steps: STEPS };
            assert_eq!(stage.edges[0].watch.problem(), Some(foreign));
        }
        let planned = stage.plans();
        stage.servers.iter_mut().flatten().for_each(|it| it.balance.set_planning(false));
        stage.pass_for(Duration::from_secs(3), |_| Ok(())).unwrap();
        assert_eq!(stage.restored(), 1, "removed: {is_removed}");
        assert_eq!(stage.edges[0].watch.problem(), None);
        assert_eq!(stage.plans(), planned, "what is written again is no plan");
        stage.servers.iter_mut().flatten().for_each(|it| it.balance.set_planning(true));
        let before = (stage.plans(), stage.edges[0].watch.borders().inner().to_vec());
        stage.players.iter_mut().for_each(|player| player.step = 60);
        stage.pass_for(Duration::from_secs(3), |_| Ok(())).unwrap();
        assert!(stage.plans() > before.0 && *stage.edges[0].watch.borders().inner() != before.1);
        // One that has just come knows them too, and they follow the load and the dead.
        let gone = (stage.decider().unwrap() + 1) % SERVERS;
        stage.servers[usize::from(gone)] = None;
        stage.pass_for(Duration::from_millis(4_700), |_| Ok(())).unwrap();
        assert!(stage.edges.iter().all(|edge| edge.watch.is_gone(gone.into())));
        stage.start(gone);
        stage.pass_for(Duration::from_secs(8), |_| Ok(())).unwrap();
        let borders = stage.process(gone).unwrap().balance.borders().clone();
        assert!(stage.edges.iter().all(|edge| *edge.watch.borders() == borders) && !borders.strip(gone).is_empty());
        assert_eq!(stage.restored(), 1);
    }
}

/// Its settings are wrong, and it says so: the others decide.
#[test]
fn a_server_with_other_numbers_than_all_the_others_leaves_deciding_to_them() {
    let mut stage = Stage::new(13, calm());
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    let mut odd = stage.new_process(4, Division::new(5, STEPS, 2).unwrap());
    let mut pass = |stage: &mut Stage| {
        stage.pass();
        odd.run(&[]);
        (odd.balance.deciding(odd.bus.clock()).is_some(), odd.balance.problem().is_some())
    };
    // It gets its turn at some time.
    let mut has_decided = false;
    for number in (0..SERVERS).cycle().take(60) {
        stage.servers[usize::from(number)] = None;
        has_decided = (0..90).any(|_| pass(&mut stage).0);
        stage.start(number);
        if has_decided {
            break;
        }
    }
    assert!(has_decided);
    for _ in 0..160 {
        pass(&mut stage);
    }
    assert_eq!(pass(&mut stage), (false, true));
    assert!(stage.decider().is_some());
    let before = stage.plans();
    stage.players.iter_mut().for_each(|player| player.step = 60);
    for _ in 0..60 {
        pass(&mut stage);
    }
    assert!(stage.plans() > before, "the others move borders");
    // It has left deciding to them for a while, and not for good.
    (0..SERVERS).for_each(|number| stage.servers[usize::from(number)] = None);
    assert!((0..500).any(|_| pass(&mut stage).0), "nobody else is left");
}

/// The one that decides next has only its own knowledge, and everybody would take strips of equal width for newer ones.
#[test]
fn borders_that_are_removed_together_with_the_decider_are_written_again() {
    let mut stage = Stage::new(14, calm());
    stage.players.iter_mut().for_each(|player| player.step = 60);
    stage.pass_for(Duration::from_secs(8), |_| Ok(())).unwrap();
    stage.servers.iter_mut().flatten().for_each(|it| it.balance.set_planning(false));
    let before = stage.edges[0].watch.borders().clone();
    assert_ne!(before.inner(), [16, 32, 48]);
    let decider = stage.decider().unwrap();
    stage.servers[usize::from(decider)] = None;
    stage.remove_borders();
    stage.pass_for(Duration::from_millis(500), |_| Ok(())).unwrap();
    // Another process has the number before it is gone.
    stage.start(decider);
    stage.balance_mut(decider).set_planning(false);
    let keeps = |stage: &mut Stage| {
        let is_same = stage.edges.iter().all(|edge| edge.watch.borders().inner() == before.inner());
        if is_same { Ok(()) } else { Err(format!("{:?}", stage.edges[0].watch.borders())) }
    };
    stage.pass_for(Duration::from_secs(5), keeps).unwrap();
    assert!(stage.decider().is_some() && stage.edges[0].watch.borders().version() > before.version());
    assert_eq!(stage.restored(), 1);
}

/// It says that it knows borders that nobody else can read.
#[test]
fn one_server_that_knows_unreadable_borders_stops_no_decider() {
    let mut stage = Stage::new(15, calm());
    stage.pass_for(Duration::from_secs(5), |_| Ok(())).unwrap();
    let decider = stage.decider().unwrap();
    let wrong = (decider + 1) % SERVERS;
    stage.servers[usize::from(wrong)] = None;
    stage.pass_for(Duration::from_millis(3_500), |_| Ok(())).unwrap();
    // The same number in a world with five servers.
    let mut odd = stage.new_process(wrong, Division::new(5, STEPS, 2).unwrap());
    let mut pass = |stage: &mut Stage| {
        stage.pass();
        odd.run(&[]);
        odd.balance.fence(odd.bus.clock()).is_some()
    };
    assert!((0..40).any(|_| pass(&mut stage)));
    // As it would write them.
    let fence = stage.process(decider).unwrap().balance.deciding(stage.process(decider).unwrap().bus.clock()).unwrap();
    stage.overwrite(&[0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 20, 0, 40, 0, 50, 0], fence);
    for _ in 0..60 {
        pass(&mut stage);
    }
    assert_eq!(stage.decider(), Some(decider));
    assert!(stage.restored() > 0 && stage.edges[0].watch.problem().is_none());
}

/// It has never seen the lease of the dead one.
#[test]
fn a_server_that_died_before_the_decider_started_is_gone_after_a_start_up_time() {
    let mut stage = Stage::new(16, calm());
    (0..SERVERS).for_each(|number| stage.servers[usize::from(number)] = None);
    (0..SERVERS - 1).for_each(|number| stage.start(number));
    stage.servers.iter_mut().flatten().for_each(|it| it.balance.set_planning(false));
    stage.pass_for(Duration::from_secs(25), |_| Ok(())).unwrap();
    assert!(!stage.edges[0].watch.is_gone(3), "it may still start");
    stage.pass_for(Duration::from_secs(8), |_| Ok(())).unwrap();
    assert!(stage.edges.iter().all(|edge| edge.watch.is_gone(3)));
}

#[test]
fn states_that_the_bus_does_not_take_come_again_and_are_counted_once_when_they_are_given_up() {
    let mut bus = LocalHub::new().join(MemberId(1), Limits::default());
    let mut balance = Balance::new(BalanceOptions::new(world(), division(), 0), bus.member());
    let mut now = Time(0);
    let is_state =
        |command: &Command| matches!(command, Command::Publish { subject, .. } if subject.as_str().contains(".saved."));
    // A tick in which the bus takes states or does not. How many it has taken.
    let mut tick = |balance: &mut Balance, takes: bool| {
        now = now.after(STEP);
        bus.handle_timeout(now);
        while let Some(event) = bus.poll_event(now) {
            balance.handle_event(now, &event);
        }
        balance.step(now, std::iter::empty());
        balance.save(now, [(7, [1u8; 3]), (8, [2; 3])].into_iter());
        let mut taken = 0;
        while let Some(command) = balance.poll_command(now) {
            let is_full = is_state(&command) && !takes;
            let full = is_full.then_some(CommandError::Limit { limit: "outgoing" });
            if let Err(error) = full.map_or_else(|| bus.handle_command(now, command.clone()), Err) {
                balance.handle_refusal(now, &command, error);
                break;
            }
            taken += usize::from(is_state(&command));
        }
        (taken, balance.fence(now).is_some())
    };
    assert!((0..200).any(|_| tick(&mut balance, false).1), "it holds its lease");
    // For 900 ms: one round waits, and nothing is lost.
    (0..18).for_each(|_| assert_eq!(tick(&mut balance, false).0, 0));
    assert_eq!(balance.counters().states_dropped, 0);
    assert_eq!(tick(&mut balance, true).0, 1, "the round comes again");
    assert_eq!(balance.counters().states_dropped, 0);
    // Two rounds and a bit: each gives way to the next one, with its two states.
    (0..50).for_each(|_| assert_eq!(tick(&mut balance, false).0, 0));
    assert_eq!(balance.counters().states_dropped, 2 * 2);
}
