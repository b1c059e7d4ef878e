//! A lease has at most one holder at every moment, and no write with an old number is done: under crash, delay, partition,
//! late commands, and clocks of different speed. The oracle asks every member at every step, and reads the store's own log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use throng_bus::sim::{SimBus, SimNet, Weather};
use throng_bus::{
    Bus, Command, Entry, Event, Expect, Fence, Fenced, FencedError, FencedWrites, Holder, Lease, LeaseChange,
    LeaseOptions, Limits, MemberId, Revision, StoreError, WriteId,
};
use throng_wire::Time;

use crate::subject;

const KEY: &str = "lease.world";
const GUARDED: &str = "world.state";

struct Member {
    bus: SimBus,
    lease: Lease,
    writes: FencedWrites,
    /// The number that the member last saw. A member that was stopped uses it without asking again.
    remembered: Option<Fence>,
    /// Until this true time, the member is stopped.
    sleeps_until: Time,
    pending: BTreeMap<WriteId, Fence>,
}

impl Member {
    fn new(net: &SimNet, id: u64) -> Member {
        let bus = net.join(MemberId(id), Limits::default());
        let lease = Lease::new(subject(KEY), MemberId(id), "note".into(), LeaseOptions::default(), 1);
        let writes = FencedWrites::new(MemberId(id), 2);
        Member { bus, lease, writes, remembered: None, sleeps_until: Time(0), pending: BTreeMap::new() }
    }

    fn run(&mut self) {
        let now = self.bus.clock();
        self.bus.handle_timeout(now);
        while let Some(event) = self.bus.poll_event(now) {
            self.lease.handle_event(now, &event);
            self.writes.handle_event(&event);
        }
        self.lease.handle_timeout(now);
        while let Some(command) = self.lease.poll_command(now) {
            if self.bus.handle_command(now, command).is_err() {
                self.lease.handle_refusal(now);
            }
        }
        while let Some(command) = self.writes.poll_command() {
            if let Err(error) = self.bus.handle_command(now, command.clone()) {
                self.writes.handle_refusal(&command, error);
            }
        }
    }

    fn holds(&self) -> Option<Fence> {
        self.lease.fence(self.bus.clock())
    }
}

#[derive(Default)]
struct Figures {
    taken: u64,
    refused: u64,
    done: u64,
}

struct Storm {
    rng: fastrand::Rng,
    net: SimNet,
    members: Vec<Member>,
    next_id: u64,
    is_up: bool,
    newest: Fence,
    figures: Figures,
    done: BTreeSet<(MemberId, WriteId)>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut rng = fastrand::Rng::with_seed(seed);
        let weather = Weather {
            delay: Duration::from_micros(100)..Duration::from_millis([5, 50, 400][rng.usize(0..3)]),
            // Two clocks drift apart by at most 10 % of 5 s: half of the margin of 1 s.
            drift_ppm: 50_000,
            server_drift_ppm: 50_000,
            lost_answers: if seed % 2 == 1 { 0.05 } else { 0.0 },
            ..Weather::default()
        };
        let net = SimNet::new(seed, weather);
        let members = (1..=4).map(|id| Member::new(&net, id)).collect();
        let figures = Figures::default();
        Storm { rng, net, members, next_id: 5, is_up: true, newest: Fence(0), figures, done: BTreeSet::new() }
    }

    fn fault(&mut self) {
        let index = self.rng.usize(0..self.members.len());
        let id = self.members[index].bus.member();
        match self.rng.u8(0..200) {
            0 | 1 => self.net.reset(id),
            2 | 3 => self.net.cut(id, true),
            4..=8 => self.net.cut(id, false),
            9 => {
                self.is_up = !self.is_up;
                self.net.run_server(self.is_up);
            }
            10..=12 if !self.is_up => {
                self.is_up = true;
                self.net.run_server(true);
            }
            13 => {
                self.members[index] = Member::new(&self.net, self.next_id);
                self.next_id += 1;
            }
            14 | 15 => {
                let pause = Duration::from_millis(self.rng.u64(100..9_000));
                self.members[index].sleeps_until = self.net.now().after(pause);
            }
            16 => self.net.jump_server_clock(Duration::from_millis(self.rng.u64(0..100))),
            _ => {}
        }
    }

    /// The members run, and act: those that were stopped use the number that they remember.
    fn step(&mut self) -> Result<(), String> {
        let now = self.net.now();
        for member in &mut self.members {
            if now >= member.sleeps_until {
                member.run();
                member.remembered = member.holds().or(member.remembered);
            }
            if self.rng.u8(0..8) == 0
                && let Some(fence) = member.remembered
                && let Some(id) = member.writes.write(subject(GUARDED), "state".into(), fence)
            {
                member.pending.insert(id, fence);
            }
            while let Some(change) = member.lease.poll_change() {
                if let LeaseChange::Taken(fence) = change {
                    self.figures.taken += 1;
                    if fence <= self.newest {
                        return Err(format!("{fence:?} was taken after {:?}", self.newest));
                    }
                    self.newest = fence;
                }
            }
            while let Some((id, result)) = member.writes.poll_result() {
                match result {
                    Ok(_) => {
                        self.done.insert((member.bus.member(), id));
                        self.figures.done += 1;
                    }
                    Err(FencedError::Old { newest }) => {
                        let fence = member.pending.remove(&id).expect("it was begun");
                        if newest <= fence {
                            return Err(format!("{fence:?} was refused because of {newest:?}"));
                        }
                        self.figures.refused += 1;
                    }
                    Err(_) => {}
                }
            }
        }
        let holders: Vec<_> = self.members.iter().filter_map(|m| Some((m.bus.member(), m.holds()?))).collect();
        if holders.len() > 1 { Err(format!("at {now:?} the lease is held by {holders:?}")) } else { Ok(()) }
    }

    fn run(mut self) -> Result<Figures, String> {
        for _ in 0..600 {
            self.fault();
            self.net.pass(Duration::from_millis(self.rng.u64(1..80)));
            self.step()?;
        }
        self.net.run_server(true);
        for member in &mut self.members {
            self.net.cut(member.bus.member(), false);
            member.sleeps_until = Time(0);
        }
        for _ in 0..600 {
            self.net.pass(Duration::from_millis(20));
            self.step()?;
        }
        if self.members.iter().all(|member| member.holds().is_none()) {
            return Err("12 s after the last fault nobody holds the lease".to_owned());
        }
        self.check_log()?;
        Ok(self.figures)
    }

    /// The store's log: numbers of guarded writes never fall, and no write was done twice or is missing.
    fn check_log(&self) -> Result<(), String> {
        let (mut newest, mut seen, mut granted) = (Fence(0), BTreeSet::new(), BTreeSet::new());
        for write in self.net.writes() {
            let Some(value) = &write.value else { continue };
            if write.key == subject(KEY) {
                granted.insert(Holder::read(value, write.revision).ok_or("a lease cannot be read")?.fence);
                continue;
            }
            let found = Fenced::read(value, write.revision).ok_or("a guarded entry cannot be read")?;
            if found.fence < newest {
                return Err(format!("a write with {:?} was done after one with {newest:?}", found.fence));
            }
            if !granted.contains(&found.fence) {
                return Err(format!("{:?} was never granted", found.fence));
            }
            newest = found.fence;
            if !seen.insert((found.member, WriteId(found.id))) {
                return Err(format!("write {} of {:?} was done twice", found.id, found.member));
            }
        }
        let missing = self.done.difference(&seen).next();
        missing.map_or(Ok(()), |write| Err(format!("{write:?} was confirmed, and is not in the log")))
    }
}

#[test]
fn a_lease_has_one_holder_and_old_numbers_write_nothing() {
    let (mut all, mut seeds) = (Figures::default(), 0);
    throng_seeds::for_seeds(1_000, |seed| {
        let figures = Storm::new(seed).run()?;
        seeds += 1;
        all.taken += figures.taken;
        all.refused += figures.refused;
        all.done += figures.done;
        Ok(())
    });
    if !throng_seeds::is_partial() {
        assert!(all.taken > 2 * seeds, "the lease moves too rarely to prove anything: {} in {seeds}", all.taken);
        assert!(all.refused > seeds / 2, "hardly an old number was tried: {} in {seeds}", all.refused);
        assert!(all.done > 10 * seeds, "hardly anything was written: {} in {seeds}", all.done);
    }
}

#[test]
fn a_released_lease_goes_to_another_at_once() {
    let net = SimNet::new(1, Weather::default());
    let (mut first, mut second) = (Member::new(&net, 1), Member::new(&net, 2));
    let pass = |first: &mut Member, second: &mut Member, steps: u32| {
        for _ in 0..steps {
            net.pass(Duration::from_millis(10));
            first.run();
            second.run();
        }
    };
    pass(&mut first, &mut second, 100);
    let (mut holder, mut other) = if first.holds().is_some() { (first, second) } else { (second, first) };
    assert!(holder.holds().is_some() && other.holds().is_none());
    holder.lease.release();
    assert_eq!(holder.holds(), None);
    pass(&mut holder, &mut other, 120);
    assert!(other.holds().is_some() && holder.holds().is_none());
}

/// A write that takes the lease may be under way when the lease is given up: it is done, and nobody holds the lease by it.
#[test]
fn a_lease_that_is_given_up_while_it_is_taken_is_never_held_and_its_entry_is_removed() {
    for is_answered in [true, false] {
        let mut lease = Lease::new(subject(KEY), MemberId(1), "note".into(), LeaseOptions::default(), 1);
        lease.handle_event(Time(0), &Event::Connected);
        let Some(Command::Put { ticket, value, .. }) = lease.poll_command(Time(0)) else { panic!("it takes it") };
        lease.release();
        assert_eq!(lease.poll_command(Time(1)), None);
        let revision = Revision(7);
        let result = if is_answered { Ok(revision) } else { Err(StoreError::Unknown) };
        lease.handle_event(Time(2), &Event::Written { ticket, result });
        if !is_answered {
            let Some(Command::Get { ticket, .. }) = lease.poll_command(Time(3)) else { panic!("it is in doubt") };
            lease.handle_event(Time(4), &Event::Got { ticket, result: Ok(Some(Entry { value, revision })) });
        }
        lease.handle_timeout(Time(5));
        assert_eq!((lease.fence(Time(5)), lease.poll_change()), (None, None));
        let removal = lease.poll_command(Time(5));
        let expected = Expect::Revision(revision);
        assert!(matches!(removal, Some(Command::Delete { expect, .. }) if expect == expected), "{removal:?}");
        assert_eq!(lease.poll_command(Time(9_000_000)), None);
    }
}

#[test]
fn a_bus_that_has_no_room_does_not_end_the_release_of_a_lease() {
    for is_in_doubt in [false, true] {
        let mut lease = Lease::new(subject(KEY), MemberId(1), "note".into(), LeaseOptions::default(), 1);
        lease.handle_event(Time(0), &Event::Connected);
        let Some(Command::Put { ticket, value, .. }) = lease.poll_command(Time(0)) else { panic!("it takes it") };
        let revision = Revision(7);
        let result = if is_in_doubt { Err(StoreError::Unknown) } else { Ok(revision) };
        lease.handle_event(Time(1), &Event::Written { ticket, result });
        lease.release();
        let later = Time(2).after(LeaseOptions::default().renew_every);
        if is_in_doubt {
            assert!(matches!(lease.poll_command(Time(2)), Some(Command::Get { .. })));
            lease.handle_refusal(Time(2));
            assert_eq!((lease.poll_command(Time(3)), lease.next_timeout()), (None, later));
            let Some(Command::Get { ticket, .. }) = lease.poll_command(later) else { panic!("it is in doubt") };
            lease.handle_event(later, &Event::Got { ticket, result: Ok(Some(Entry { value, revision })) });
        }
        let is_removal = |command: &Option<Command>| {
            let expected = Expect::Revision(revision);
            matches!(command, Some(Command::Delete { expect, .. }) if *expect == expected)
        };
        assert!(is_removal(&lease.poll_command(later)));
        lease.handle_refusal(later);
        assert_eq!(lease.poll_command(later), None);
        let last = later.after(LeaseOptions::default().renew_every);
        assert_eq!(lease.next_timeout(), last);
        assert!(is_removal(&lease.poll_command(last)));
        assert_eq!((lease.poll_command(Time(9_000_000)), lease.next_timeout()), (None, Time(u64::MAX)));
    }
}

#[test]
fn a_holder_that_is_alive_keeps_its_lease() {
    let net = SimNet::new(1, Weather { drift_ppm: 50_000, server_drift_ppm: 50_000, ..Weather::default() });
    let mut member = Member::new(&net, 1);
    let mut changes = Vec::new();
    for _ in 0..6_000 {
        net.pass(Duration::from_millis(10));
        member.run();
        changes.extend(std::iter::from_fn(|| member.lease.poll_change()));
    }
    assert_eq!(changes.len(), 1, "{changes:?}");
}

/// The connection goes on, and only answers of the store are lost: each question ends all the same.
#[test]
fn lost_answers_stop_neither_a_lease_nor_a_fenced_write() {
    let net = SimNet::new(1, Weather::default());
    let mut member = Member::new(&net, 1);
    let mut changes = Vec::new();
    let mut pass = |member: &mut Member, steps: u32| {
        for _ in 0..steps {
            net.pass(Duration::from_millis(10));
            member.run();
            changes.extend(std::iter::from_fn(|| member.lease.poll_change()));
        }
    };
    pass(&mut member, 100);
    let fence = member.holds().expect("nobody else wants it");
    net.set_weather(|weather| weather.lost_answers = 1.0);
    let write = member.writes.write(subject(GUARDED), "state".into(), fence).unwrap();
    pass(&mut member, 150);
    assert!(net.lost() > 1, "a renewal and a write have no answer");
    net.set_weather(|weather| weather.lost_answers = 0.0);
    pass(&mut member, 600);
    assert_eq!(changes, [LeaseChange::Taken(fence)], "it lasts longer than a few answers are lost");
    assert_eq!(member.holds(), Some(fence));
    let (written, result) = member.writes.poll_result().expect("it has ended");
    assert!(written == write && result.is_ok(), "{result:?}");
    assert!(member.bus.counters().timed_out > 1, "{:?}", member.bus.counters());
}

#[test]
fn a_forged_number_of_the_future_shuts_nobody_out() {
    let mut value = vec![1];
    value.extend([7u8; 8]);
    value.extend(u64::MAX.to_le_bytes());
    assert_eq!(Holder::read(&value.clone().into(), throng_bus::Revision(100)), None);
    value.extend([0; 8]);
    assert_eq!(Fenced::read(&value.into(), throng_bus::Revision(100)), None);
}
