//! Borders between servers that share a world: where they are, and where they should be for a load.
//!
//! ```text
//!   step     0         cut 1   cut 2  cut 3             steps
//!   server   |    0      |   1   |  2   |       3         |
//!            ---------------------------------------------  one axis of the world
//! ```
//!
//! The world is cut into strips along one axis, in the order of the servers' numbers. Borders lie at steps, which are all equally
//! long. A step may be shorter than a cell of a grid: so a single crowded cell can be divided too.
//!
//! Nothing here knows a clock or a network. [`Planner`] says where borders should be, and [`Balance`](crate::Balance) agrees on them.

use std::ops::Range;

/// The most servers that share a world.
pub const BORDER_SERVERS_MAX: u16 = 64;
/// The most steps of a world.
pub const BORDER_STEPS_MAX: u16 = 1_024;

/// The measures of a divided world. All its servers and edges have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    servers: u16,
    steps: u16,
    min_steps: u16,
}

impl Division {
    /// A world of so many steps for so many servers, of which each has at least `min_steps` in the long run. `None` if there are none
    /// of them, more than [`BORDER_SERVERS_MAX`] and [`BORDER_STEPS_MAX`], or too few steps for all.
    pub fn new(servers: u16, steps: u16, min_steps: u16) -> Option<Division> {
        let is_possible = (1..=BORDER_SERVERS_MAX).contains(&servers)
            && steps <= BORDER_STEPS_MAX
            && min_steps >= 1
            && u32::from(servers) * u32::from(min_steps) <= u32::from(steps);
        is_possible.then_some(Division { servers, steps, min_steps })
    }

    /// Servers that share the world.
    pub fn servers(&self) -> u16 {
        self.servers
    }

    /// Steps of the world.
    pub fn steps(&self) -> u16 {
        self.steps
    }
}

/// Which borders these are. A newer version counts. It is the number of their write in the store of the bus, and
/// a base, in case that the store was lost; 0 for the borders of a world that begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BordersVersion(pub u64);

/// The borders of a world: each step has exactly one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Borders {
    version: BordersVersion,
    /// From 0 to the number of steps: server `n` has the steps from `cuts[n]` to before `cuts[n + 1]`, which may be none.
    cuts: Vec<u16>,
}

impl Borders {
    /// Strips of equal width: the borders of a world that begins.
    pub fn equal(division: &Division) -> Borders {
        let (servers, steps) = (u32::from(division.servers), u32::from(division.steps));
        // At most the number of steps.
        let cuts = (0..=servers).map(|server| (server * steps / servers) as u16).collect();
        Borders { version: BordersVersion::default(), cuts }
    }

    /// Borders between the servers at these steps. `None` if they are not as many as the world has, or out of order, or out of it.
    pub fn new(division: &Division, version: BordersVersion, inner: &[u16]) -> Option<Borders> {
        let mut cuts = Vec::with_capacity(inner.len() + 2);
        cuts.push(0);
        cuts.extend_from_slice(inner);
        cuts.push(division.steps);
        let is_sound = cuts.len() == usize::from(division.servers) + 1 && cuts.is_sorted();
        is_sound.then_some(Borders { version, cuts })
    }

    /// Which ones these are.
    pub fn version(&self) -> BordersVersion {
        self.version
    }

    /// The same borders under another version.
    pub(crate) fn renamed(self, version: BordersVersion) -> Borders {
        Borders { version, ..self }
    }

    /// The steps at which a server ends and the next one begins, in the order of the servers.
    pub fn inner(&self) -> &[u16] {
        &self.cuts[1..self.cuts.len() - 1]
    }

    /// The server of a step. Steps beyond the world belong to the server of the last one.
    pub fn home(&self, step: u16) -> u16 {
        let step = step.min(self.cuts[self.cuts.len() - 1].saturating_sub(1));
        // The first cut is 0 and the last one is beyond the step, so the number is that of a server. Of several servers that begin
        // here, the last one has the step: the others have none.
        (self.cuts.partition_point(|&cut| cut <= step) - 1) as u16
    }

    /// The steps of a server; none of one that is not there.
    pub fn strip(&self, server: u16) -> Range<u16> {
        let server = usize::from(server);
        match (self.cuts.get(server), self.cuts.get(server + 1)) {
            (Some(&from), Some(&to)) => from..to,
            _ => 0..0,
        }
    }

    fn load_of(&self, server: u16, load: &[u32]) -> u64 {
        let Range { start, end } = self.strip(server);
        load.iter().take(end.into()).skip(start.into()).map(|&load| u64::from(load)).sum()
    }
}

/// Options of a [`Planner`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannerOptions {
    /// Borders begin to move when the server with the most load has more than so many times the mean.
    pub begins_at: f64,
    /// They move on until it has at most so many times the mean.
    pub ends_at: f64,
    /// Borders stay while the server with the most load has at most so much more than the mean: nobody moves for a few players.
    pub spare_load: u32,
    /// A plan hands over at most so much load, if borders can move in such small parts.
    pub moved_load: u32,
}

impl Default for PlannerOptions {
    /// Borders begin to move at 1.25 times the mean, and end at 1.1 times; 8 more than the mean are nothing; a plan moves 64.
    fn default() -> PlannerOptions {
        PlannerOptions { begins_at: 1.25, ends_at: 1.1, spare_load: 8, moved_load: 64 }
    }
}

/// Says where borders should be. It is a pure function of the borders, the load and whether it has just moved them:
///
/// - Each server that is alive has the same load, as far as steps and the least width allow. One that is not has nothing.
/// - The borders for a load do not depend on where borders are. So they come to rest under a load that stays, and never swing.
/// - Each plan goes a part of the way there ([`PlannerOptions::moved_load`]): a world that has to hand over half of its players does
///   not do it in one tick.
#[derive(Clone, Debug)]
pub struct Planner {
    division: Division,
    options: PlannerOptions,
    is_moving: bool,
}

impl Planner {
    /// A planner that has not moved anything.
    pub fn new(division: Division, options: PlannerOptions) -> Planner {
        Planner { division, options, is_moving: false }
    }

    /// The next borders; `None` if they stay as they are. They have the version of the present ones, until they are written. `load` is
    /// that of each step, `alive` tells for each server whether it is there. Missing ones are 0 and false.
    pub fn plan(&mut self, borders: &Borders, load: &[u32], alive: &[bool]) -> Option<Borders> {
        let load = &load[..load.len().min(self.division.steps.into())];
        let (living, gone) = self.sorted(alive);
        if living.is_empty() {
            return None;
        }
        let is_whole = gone.iter().all(|&server| borders.strip(server).is_empty())
            && living.iter().all(|&server| borders.strip(server).len() >= self.division.min_steps.into());
        if is_whole && !self.is_uneven(borders, load, &living) {
            self.is_moving = false;
            return None;
        }
        let now = between_living(borders, &living);
        let wanted = self.wanted(&now, load, living.len());
        let between = self.part_of_the_way(&now, &wanted, load);
        let inner = spread_out(&between, &living, &self.division);
        let next = Borders::new(&self.division, borders.version, &inner)?;
        self.is_moving = next.cuts != borders.cuts;
        self.is_moving.then_some(next)
    }

    /// The next borders if only servers that are not alive lose what they have, to their neighbours; `None` if they have nothing. As
    /// [`plan`](Planner::plan) otherwise.
    pub fn plan_without_gone(&self, borders: &Borders, alive: &[bool]) -> Option<Borders> {
        let (living, gone) = self.sorted(alive);
        if living.is_empty() || gone.iter().all(|&server| borders.strip(server).is_empty()) {
            return None;
        }
        let inner = spread_out(&between_living(borders, &living), &living, &self.division);
        Borders::new(&self.division, borders.version, &inner)
    }

    /// The servers that are alive, and the others.
    fn sorted(&self, alive: &[bool]) -> (Vec<u16>, Vec<u16>) {
        let is_alive = |server: &u16| alive.get(usize::from(*server)).copied().unwrap_or(false);
        (0..self.division.servers).partition(is_alive)
    }

    fn is_uneven(&self, borders: &Borders, load: &[u32], living: &[u16]) -> bool {
        let loads = living.iter().map(|&server| borders.load_of(server, load));
        let most = loads.max().unwrap_or(0) as f64;
        let mean = load.iter().map(|&load| u64::from(load)).sum::<u64>() as f64 / living.len() as f64;
        let factor = if self.is_moving { self.options.ends_at } else { self.options.begins_at };
        most > mean * factor && most > mean + f64::from(self.options.spare_load)
    }

    /// The borders between `servers` that are alive for a load: each at the step where its share of the load is reached. Of several
    /// such steps it is the one nearest to where the border is.
    fn wanted(&self, now: &[u16], load: &[u32], servers: usize) -> Vec<u16> {
        let (steps, least) = (usize::from(self.division.steps), usize::from(self.division.min_steps));
        let mut before = vec![0_u64; steps + 1];
        for step in 0..steps {
            before[step + 1] = before[step] + u64::from(load.get(step).copied().unwrap_or(0));
        }
        let total = before[steps];
        let mut wanted: Vec<u16> = Vec::with_capacity(now.len());
        for (number, &now) in now.iter().enumerate() {
            // The strips on both sides have room.
            let first = wanted.last().map_or(0, |&cut| usize::from(cut)) + least;
            let last = steps - (servers - 1 - number) * least;
            let now = usize::from(now).clamp(first, last);
            let share = |cut: usize| before[cut] * servers as u64;
            let error = |cut: usize| share(cut).abs_diff(total * (number as u64 + 1));
            let best = (first..=last).min_by_key(|&cut| (error(cut), cut.abs_diff(now)));
            // At most the number of steps.
            wanted.push(best.unwrap_or(now) as u16);
        }
        wanted
    }

    /// As far from here to there as load may be moved, and at least the first part of it.
    fn part_of_the_way(&self, from: &[u16], to: &[u16], load: &[u32]) -> Vec<u16> {
        let ways = from.iter().zip(to).map(|(from, to)| i64::from(*to) - i64::from(*from));
        let ways: Vec<i64> = ways.collect();
        let longest = ways.iter().map(|way| way.abs()).max().unwrap_or(0);
        // All borders have gone the same part of their way, so no strip becomes narrower than it was or will be.
        let at = |part: i64| -> Vec<u16> {
            let cuts = from.iter().zip(&ways).map(|(&from, way)| {
                let way = (way * part).div_euclid(longest.max(1));
                (i64::from(from) + way).clamp(0, self.division.steps.into()) as u16
            });
            cuts.collect()
        };
        // The more of the way, the more is moved: of the parts that move little enough, the last one.
        let (mut fits, mut exceeds) = (1, longest + 1);
        while exceeds - fits > 1 {
            let middle = fits + (exceeds - fits) / 2;
            if moved(from, &at(middle), load) <= u64::from(self.options.moved_load) {
                fits = middle;
            } else {
                exceeds = middle;
            }
        }
        at(fits)
    }
}

/// The load of the steps that have another server.
fn moved(from: &[u16], to: &[u16], load: &[u32]) -> u64 {
    let home = |cuts: &[u16], step: usize| cuts.partition_point(|&cut| usize::from(cut) <= step);
    let moved = load.iter().enumerate().filter(|(step, load)| **load > 0 && home(from, *step) != home(to, *step));
    moved.map(|(_, &load)| u64::from(load)).sum()
}

/// The borders between servers that are alive. The strip of one that is not is divided between its neighbours.
fn between_living(borders: &Borders, living: &[u16]) -> Vec<u16> {
    let between = |pair: &[u16]| {
        let (end, begin) = (borders.strip(pair[0]).end, borders.strip(pair[1]).start);
        end + (begin - end) / 2
    };
    living.windows(2).map(between).collect()
}

/// The borders between all servers: those that are not alive have nothing.
fn spread_out(between: &[u16], living: &[u16], division: &Division) -> Vec<u16> {
    let cut_before = |server: u16| {
        // Servers that are alive before this one.
        let before = living.partition_point(|&alive| alive < server);
        match before {
            0 => 0,
            _ => between.get(before - 1).copied().unwrap_or(division.steps),
        }
    };
    (1..division.servers).map(cut_before).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_seeds::for_seeds;

    fn division(servers: u16, steps: u16, min_steps: u16) -> Division {
        Division::new(servers, steps, min_steps).unwrap()
    }

    /// Each step has one server, and each server the steps of its strip.
    fn check_partition(borders: &Borders, division: &Division) -> Result<(), String> {
        for step in 0..division.steps() {
            let having: Vec<u16> = (0..division.servers()).filter(|&it| borders.strip(it).contains(&step)).collect();
            if having != [borders.home(step)] {
                return Err(format!("step {step} is of {having:?} and {}", borders.home(step)));
            }
        }
        Ok(())
    }

    fn largest(borders: &Borders, load: &[u32], division: &Division) -> u64 {
        (0..division.servers()).map(|server| borders.load_of(server, load)).max().unwrap()
    }

    #[test]
    fn a_world_that_cannot_be_divided_is_refused() {
        for (servers, steps, min_steps) in [(0, 10, 1), (65, 1_000, 1), (2, 1_025, 1), (2, 10, 0), (4, 11, 3)] {
            assert_eq!(Division::new(servers, steps, min_steps), None, "{servers}, {steps}, {min_steps}");
        }
        let most = division(64, 1_024, 16);
        assert_eq!(Borders::equal(&most).strip(63), 1_008..1_024);
        let three = division(3, 10, 1);
        for inner in [&[1][..], &[1, 2, 3], &[5, 4], &[1, 11]] {
            assert_eq!(Borders::new(&three, BordersVersion(7), inner), None, "{inner:?}");
        }
    }

    #[test]
    fn steps_beyond_the_world_and_servers_without_a_strip_are_no_trouble() {
        let four = division(4, 100, 1);
        let borders = Borders::new(&four, BordersVersion(1), &[0, 40, 40]).unwrap();
        assert_eq!([0, 39, 40, 99, 100, 60_000].map(|step| borders.home(step)), [1, 1, 3, 3, 3, 3]);
        assert_eq!([0, 1, 2, 3, 4].map(|server| borders.strip(server)), [0..0, 0..40, 40..40, 40..100, 0..0]);
        let none = Borders::new(&four, BordersVersion(1), &[30, 60, 100]).unwrap();
        assert_eq!((none.home(99), none.home(200)), (2, 2));
    }

    #[test]
    fn three_hundred_of_four_hundred_players_in_one_place_are_divided_among_four_servers() {
        let four = division(4, 100, 3);
        // 300 in the steps 8 to 19, 100 everywhere.
        let load: Vec<u32> = (0..100).map(|step| 1 + if (8..20).contains(&step) { 25 } else { 0 }).collect();
        let mut planner = Planner::new(four, PlannerOptions::default());
        let mut borders = Borders::equal(&four);
        assert_eq!(largest(&borders, &load, &four), 325);
        let mut plans = 0;
        while let Some(next) = planner.plan(&borders, &load, &[true; 4]) {
            let homes = |borders: &Borders| (0..100).map(|step| borders.home(step)).collect::<Vec<_>>();
            let pairs = homes(&borders).into_iter().zip(homes(&next)).zip(&load);
            let moved: u32 = pairs.filter(|((before, after), _)| before != after).map(|(_, load)| load).sum();
            assert!(moved <= 64, "{moved} players move at once");
            borders = next;
            plans += 1;
        }
        assert!((4..=12).contains(&plans), "{plans} plans");
        assert!(largest(&borders, &load, &four) <= 116, "{borders:?}");
    }

    #[test]
    fn borders_stay_for_a_few_players_and_for_a_load_that_cannot_be_divided() {
        let two = division(2, 10, 1);
        let mut planner = Planner::new(two, PlannerOptions::default());
        let equal = Borders::equal(&two);
        assert_eq!(planner.plan(&equal, &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[true; 2]), None);
        assert_eq!(planner.plan(&equal, &[], &[true; 2]), None);
        assert_eq!(planner.plan(&equal, &[900; 10], &[]), None);
        // All in one step: a border beside it is as good as it gets, and stays there.
        let one = [0, 0, 0, 500, 0, 0, 0, 0, 0, 0];
        let borders = planner.plan(&equal, &one, &[true; 2]).unwrap_or(equal);
        for _ in 0..20 {
            assert_eq!(planner.plan(&borders, &one, &[true; 2]), None);
        }
    }

    #[test]
    fn a_server_that_is_gone_has_nothing_and_one_that_comes_back_gets_its_share() {
        let four = division(4, 100, 3);
        let mut planner = Planner::new(four, PlannerOptions::default());
        let load = [4; 100];
        let alive = [true, false, true, true];
        let mut borders = planner.plan(&Borders::equal(&four), &load, &alive).unwrap();
        assert!(borders.strip(1).is_empty(), "at once: {borders:?}");
        assert!((0..100).all(|step| borders.home(step) != 1));
        while let Some(next) = planner.plan(&borders, &load, &alive) {
            borders = next;
        }
        assert!(largest(&borders, &load, &four) <= 148, "{borders:?}");
        for _ in 0..50 {
            borders = planner.plan(&borders, &load, &[true; 4]).unwrap_or(borders);
        }
        assert!((88..=112).contains(&borders.load_of(1, &load)), "{borders:?}");
        // Without regard to load, its neighbours share its strip, and nobody else has another one.
        let inner = |cuts: &[u16]| Borders::new(&four, BordersVersion(1), cuts).unwrap();
        let before = inner(&[10, 30, 80]);
        assert_eq!(planner.plan_without_gone(&before, &alive), Some(inner(&[20, 20, 80])));
        assert_eq!(planner.plan_without_gone(&before, &[true, true, true, false]), Some(inner(&[10, 30, 100])));
        assert_eq!(planner.plan_without_gone(&inner(&[20, 20, 80]), &alive), None);
        assert_eq!(planner.plan_without_gone(&before, &[false; 4]), None);
        // The first alone is left.
        let alone = planner.plan(&borders, &load, &[true, false, false, false]).unwrap();
        assert_eq!(alone.strip(0), 0..100);
        let last = planner.plan(&borders, &load, &[false, false, false, true]).unwrap();
        assert_eq!(last.strip(3), 0..100);
    }

    /// Loads that jump, servers that come and go, and then a load that stays.
    #[test]
    fn a_storm_of_loads_always_leaves_a_partition_that_comes_to_rest_when_the_load_does() {
        for_seeds(60, |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let servers = rng.u16(1..=8);
            let min_steps = rng.u16(1..=4);
            let steps = servers * min_steps + rng.u16(0..200);
            let division = division(servers, steps, min_steps);
            let mut planner = Planner::new(division, PlannerOptions::default());
            let mut borders = Borders::equal(&division);
            let mut load = vec![0; steps.into()];
            let mut alive = vec![true; servers.into()];
            for _ in 0..60 {
                match rng.u8(0..4) {
                    0 => load.iter_mut().for_each(|load| *load = rng.u32(0..6)),
                    1 => load[rng.usize(0..usize::from(steps))] += rng.u32(0..400),
                    2 => load.iter_mut().for_each(|load| *load /= 2),
                    _ => alive[rng.usize(0..usize::from(servers))] ^= rng.u8(0..4) == 0,
                }
                if let Some(next) = planner.plan(&borders, &load, &alive) {
                    if next == borders {
                        return Err(format!("{next:?} is no change"));
                    }
                    borders = next;
                }
                check_partition(&borders, &division)?;
            }
            alive.fill(true);
            let mut plans = 0;
            while let Some(next) = planner.plan(&borders, &load, &alive) {
                (borders, plans) = (next, plans + 1);
                check_partition(&borders, &division)?;
                if plans > 2_000 {
                    return Err(format!("borders do not come to rest: {borders:?}"));
                }
            }
            if let Some(narrow) = (0..servers).find(|&server| borders.strip(server).len() < min_steps.into()) {
                return Err(format!("the strip of {narrow} is too narrow: {borders:?}"));
            }
            // It stays at rest.
            if let Some(next) = (0..20).find_map(|_| planner.plan(&borders, &load, &alive)) {
                return Err(format!("{borders:?} move on to {next:?}"));
            }
            // Nobody has much more than its share, but for steps and strips that cannot be divided.
            let total: u64 = load.iter().map(|&load| u64::from(load)).sum();
            let densest: u64 =
                load.windows(min_steps.into()).map(|strip| strip.iter().map(|&it| u64::from(it)).sum()).max().unwrap();
            let most = largest(&borders, &load, &division);
            let allowed = (total as f64 / f64::from(servers) * 1.25).max(total as f64 / f64::from(servers) + 8.0)
                + densest as f64;
            if most as f64 > allowed {
                return Err(format!("{most} of {total} for one of {servers}: {borders:?}"));
            }
            Ok(())
        });
    }
}
