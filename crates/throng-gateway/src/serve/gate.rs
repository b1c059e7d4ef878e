//! Limits at a door: connections in all, connections from one address, and bans.
//!
//! An address that misbehaves gathers strikes, which are forgotten one after the other. Too many are a ban. Strikes of
//! connections that have not logged in do not count while another connection from the same address is logged in: many
//! people may share it, behind one router or in one school.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use throng_wire::Time;

use crate::place::place_of;

use super::counters::Reason;
use super::options::DoorLimits;
use super::rate::Rate;
use crate::recent::{BanCounts, Recent};
use throng_gateway_engine::{Census, Tally};

/// A door's entries for addresses, each in [bounded space](Recent).
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Arc<DoorLimits>,
    open: usize,
    /// Hashed with the standard library's keyed hash: peers choose their addresses.
    inside: HashMap<IpAddr, Inside>,
    strikes: Recent<IpAddr, Tally>,
    /// The end of an address's ban.
    bans: Recent<IpAddr, Time>,
    census: Census,
    /// Bans that were forgotten before their end, because there were too many.
    bans_forgotten: u64,
    arrivals: Recent<IpAddr, Rate>,
}

/// The connections from one address.
#[derive(Debug, Default)]
struct Inside {
    connections: usize,
    members: Members,
}

/// The number of logged-in connections from one address: each connection's queue counts itself when it logs in, and
/// uncounts itself when it ends.
pub(crate) type Members = Arc<AtomicUsize>;

/// A connection that counts for its address.
#[derive(Debug)]
pub(crate) struct Claim {
    place: IpAddr,
    pub(crate) members: Members,
}

/// A banned address, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ban {
    /// The address; of IPv6 the first 64 bits.
    pub(crate) address: IpAddr,
    /// For how long from now.
    pub(crate) left: Duration,
}

const SECOND: Duration = Duration::from_secs(1);

impl Gate {
    pub(crate) fn new(limits: Arc<DoorLimits>) -> Gate {
        let remembered = limits.remembered;
        Gate {
            open: 0,
            inside: HashMap::new(),
            strikes: Recent::new(remembered, limits.ban),
            bans: Recent::new(remembered, limits.ban),
            census: Census::default(),
            bans_forgotten: 0,
            arrivals: Recent::new(remembered, SECOND),
            limits,
        }
    }

    /// Other limits from now on. Existing connections stay.
    pub(crate) fn set_limits(&mut self, limits: Arc<DoorLimits>) {
        self.strikes.set_bounds(limits.remembered, limits.ban);
        self.bans.set_bounds(limits.remembered, limits.ban);
        self.arrivals.set_bounds(limits.remembered, SECOND);
        self.limits = limits;
    }

    /// Whether there is room for another connection.
    pub(crate) fn has_room(&self) -> bool {
        self.open < self.limits.connections
    }

    /// Admits a connection whose address does not count yet. Each has to [`leave`](Gate::leave).
    pub(crate) fn enter(&mut self) -> Result<(), Reason> {
        if !self.has_room() {
            return Err(Reason::TooManyConnections);
        }
        self.open += 1;
        Ok(())
    }

    /// Gives back what [`enter`](Gate::enter) and [`claim`](Gate::claim) took.
    pub(crate) fn leave(&mut self, claim: Option<&Claim>) {
        self.open = self.open.saturating_sub(1);
        let Some(Claim { place, .. }) = claim else { return };
        if let Some(inside) = self.inside.get_mut(place) {
            inside.connections -= 1;
            if inside.connections == 0 {
                self.inside.remove(place);
            }
        }
    }

    /// Counts a connection for its address, or says why the address may have no more. `None`: this address is not counted.
    pub(crate) fn claim(&mut self, now: Time, address: IpAddr) -> Result<Option<Claim>, Reason> {
        let place = place_of(address);
        if !self.counts(place) {
            return Ok(None);
        }
        if self.bans.get(&place).is_some_and(|until| until > now) && self.members(place) == 0 {
            return Err(Reason::Banned);
        }
        if !self.may_arrive(now, place) {
            return Err(Reason::ArrivesTooFast);
        }
        let limit = self.limits.connections_per_address;
        let inside = self.inside.entry(place).or_default();
        if limit > 0 && inside.connections >= limit {
            return Err(Reason::TooManyFromAddress);
        }
        inside.connections += 1;
        Ok(Some(Claim { place, members: Arc::clone(&inside.members) }))
    }

    /// A connection with this claim has misbehaved, before or after login. Returns whether its address is banned now.
    pub(crate) fn strike(&mut self, now: Time, claim: Option<&Claim>, is_member: bool) -> bool {
        let Some(&Claim { place, .. }) = claim else { return false };
        if self.limits.strikes == 0 || self.members(place) > usize::from(is_member) {
            return false;
        }
        let mut strikes = self.strikes.get(&place).unwrap_or_default();
        let is_too_often = strikes.add(now, self.limits.strikes, self.limits.ban);
        if is_too_often {
            self.strikes.remove(&place);
            self.ban(now, place);
        } else {
            self.strikes.insert(now, place, strikes);
        }
        is_too_often
    }

    fn ban(&mut self, now: Time, place: IpAddr) {
        let until = now.after(self.limits.ban);
        let former = self.bans.replace(now, place, until, |forgotten| {
            self.census.remove(forgotten);
            self.bans_forgotten += u64::from(forgotten > now);
        });
        former.into_iter().for_each(|former| self.census.remove(former));
        self.census.add(now, until);
    }

    /// The banned addresses.
    pub(crate) fn bans(&self, now: Time) -> impl Iterator<Item = Ban> {
        let shut_out = self.bans.iter().filter(move |&(_, &until)| until > now);
        shut_out.map(move |(&address, until)| Ban { address, left: until.since(now) })
    }

    /// How many addresses are banned, and how many bans were forgotten.
    pub(crate) fn ban_counts(&mut self, now: Time) -> BanCounts {
        BanCounts { present: self.census.present(now), forgotten: self.bans_forgotten }
    }

    /// Forgives an address. Returns whether there was anything to forgive.
    pub(crate) fn unban(&mut self, address: IpAddr) -> bool {
        let place = place_of(address);
        let ban = self.bans.remove(&place);
        ban.into_iter().for_each(|until| self.census.remove(until));
        self.strikes.remove(&place).is_some() | ban.is_some()
    }

    /// The number of logged-in connections from an address.
    fn members(&self, place: IpAddr) -> usize {
        self.inside.get(&place).map_or(0, |inside| inside.members.load(Ordering::Relaxed))
    }

    /// Whether the address may come now, or has come too often in this second.
    fn may_arrive(&mut self, now: Time, place: IpAddr) -> bool {
        let per_s = self.limits.arrivals_per_s;
        if per_s == 0 {
            return true;
        }
        let mut rate = self.arrivals.get(&place).unwrap_or_else(|| Rate::new(per_s, per_s, now));
        rate.set(per_s, per_s, now);
        let may = rate.try_take(now, 1);
        self.arrivals.insert(now, place, rate);
        may
    }

    fn counts(&self, place: IpAddr) -> bool {
        self.limits.counts_loopback || !place.is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use throng_gateway_engine::port::Side;

    fn gate(change: impl FnOnce(&mut DoorLimits)) -> Gate {
        let mut limits = DoorLimits { connections: 4, connections_per_address: 2, ..DoorLimits::new(Side::Client) };
        change(&mut limits);
        Gate::new(Arc::new(limits))
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, last])
    }

    fn come(gate: &mut Gate, now: Time, address: IpAddr) -> Result<Option<Claim>, Reason> {
        gate.enter()?;
        gate.claim(now, address).inspect_err(|_| gate.leave(None))
    }

    /// Comes, misbehaves and goes.
    fn misbehave(gate: &mut Gate, now: Time, address: IpAddr) -> Result<(), Reason> {
        let claim = come(gate, now, address)?;
        gate.strike(now, claim.as_ref(), false);
        gate.leave(claim.as_ref());
        Ok(())
    }

    #[test]
    fn one_address_gets_its_share_and_no_more() {
        let (mut gate, now) = (gate(|_| {}), Time(0));
        let first = come(&mut gate, now, address(1)).expect("there is room");
        come(&mut gate, now, address(1)).expect("there is room");
        assert_eq!(come(&mut gate, now, address(1)).err(), Some(Reason::TooManyFromAddress));
        come(&mut gate, now, address(2)).expect("there is room");
        gate.leave(first.as_ref());
        come(&mut gate, now, address(1)).expect("there is room again");
        come(&mut gate, now, address(3)).expect("there is room");
        assert_eq!(come(&mut gate, now, address(4)).err(), Some(Reason::TooManyConnections));
    }

    #[test]
    fn nothing_is_kept_of_those_who_left() {
        let mut gate = gate(|_| {});
        for last in 0..100 {
            let claim = come(&mut gate, Time(0), address(last)).expect("there is room");
            gate.leave(claim.as_ref());
        }
        assert!(gate.inside.is_empty() && gate.open == 0);
    }

    #[test]
    fn neighbours_in_an_ipv6_network_are_one_address() {
        let mut gate = gate(|_| {});
        for last in 1..=2 {
            let address = Ipv6Addr::new(0x2001, 0xDB8, 0, 1, 0, 0, 0, last).into();
            come(&mut gate, Time(0), address).expect("there is room");
        }
        let third: IpAddr = Ipv6Addr::new(0x2001, 0xDB8, 0, 1, 9, 9, 9, 9).into();
        assert_eq!(come(&mut gate, Time(0), third).err(), Some(Reason::TooManyFromAddress));
        let mapped: IpAddr = Ipv6Addr::from([0, 0, 0, 0, 0, 0xFFFF, 0xCB00, 0x7101]).into();
        assert_eq!(place_of(mapped), address(1));
    }

    #[test]
    fn this_machine_is_not_counted_unless_asked_for() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let mut lenient = gate(|limits| limits.connections = 100);
        assert!((0..50).all(|_| come(&mut lenient, Time(0), here).is_ok()));
        let mut strict = gate(|limits| limits.counts_loopback = true);
        assert_eq!((0..50).filter(|_| come(&mut strict, Time(0), here).is_ok()).count(), 2);
    }

    #[test]
    fn an_address_that_misbehaves_is_banned_for_a_while() {
        let mut gate = gate(|limits| (limits.strikes, limits.ban) = (3, Duration::from_secs(10)));
        let mut now = Time::from_secs(1_000);
        for _ in 0..3 {
            assert_eq!(misbehave(&mut gate, now, address(1)), Ok(()));
            now = now.after(Duration::from_millis(500));
        }
        assert_eq!(come(&mut gate, now, address(1)).err(), Some(Reason::Banned));
        assert_eq!(gate.bans(now).map(|ban| ban.address).collect::<Vec<_>>(), [address(1)]);
        come(&mut gate, now, address(2)).expect("nobody else is shut out");
        now = now.after(Duration::from_secs(10));
        come(&mut gate, now, address(1)).expect("it is forgiven");
        assert_eq!(gate.ban_counts(now), BanCounts::default());
    }

    #[test]
    fn an_operator_can_forgive_before_the_time_is_over() {
        let mut gate = gate(|limits| limits.strikes = 1);
        let now = Time::from_secs(1_000);
        misbehave(&mut gate, now, address(1)).expect("once");
        assert_eq!(come(&mut gate, now, address(1)).err(), Some(Reason::Banned));
        assert_eq!(gate.ban_counts(now).present, 1);
        assert!(gate.unban(address(1)) && !gate.unban(address(1)));
        assert_eq!(gate.ban_counts(now).present, 0);
        come(&mut gate, now, address(1)).expect("it is forgiven");
    }

    #[test]
    fn an_address_that_misbehaves_seldom_is_never_banned() {
        let mut gate = gate(|limits| (limits.strikes, limits.ban) = (5, Duration::from_secs(300)));
        let mut now = Time::from_secs(1_000);
        for _ in 0..1_000 {
            assert_eq!(misbehave(&mut gate, now, address(1)), Ok(()));
            now = now.after(Duration::from_secs(90));
        }
    }

    #[test]
    fn strangers_cannot_have_an_address_shut_out_while_somebody_else_from_there_is_inside() {
        let mut gate = gate(|limits| (limits.strikes, limits.arrivals_per_s) = (3, 0));
        let now = Time::from_secs(1_000);
        let member = come(&mut gate, now, address(1)).expect("there is room").expect("it counts");
        member.members.fetch_add(1, Ordering::Relaxed);
        for _ in 0..100 {
            assert_eq!(misbehave(&mut gate, now, address(1)), Ok(()));
        }
        // The only member may be banned for its own faults.
        assert!((0..3).any(|_| gate.strike(now, Some(&member), true)));
        (0..3).for_each(|_| _ = gate.strike(now, Some(&member), true));
        assert_eq!(gate.ban_counts(now).present, 1, "a second ban of an address is no other one");
        member.members.fetch_sub(1, Ordering::Relaxed);
        gate.leave(Some(&member));
        assert_eq!(come(&mut gate, now, address(1)).err(), Some(Reason::Banned));
    }

    #[test]
    fn what_strangers_do_while_somebody_is_inside_is_not_remembered() {
        let mut gate = gate(|limits| (limits.strikes, limits.arrivals_per_s) = (3, 0));
        let now = Time::from_secs(1_000);
        let member = come(&mut gate, now, address(1)).expect("there is room").expect("it counts");
        member.members.fetch_add(1, Ordering::Relaxed);
        for _ in 0..100 {
            assert_eq!(misbehave(&mut gate, now, address(1)), Ok(()));
        }
        member.members.fetch_sub(1, Ordering::Relaxed);
        gate.leave(Some(&member));
        assert_eq!(gate.ban_counts(now), BanCounts::default());
        // All its strikes are left: three more are a ban, and not before.
        for _ in 0..3 {
            assert_eq!(misbehave(&mut gate, now, address(1)), Ok(()));
        }
        assert_eq!(come(&mut gate, now, address(1)).err(), Some(Reason::Banned));
    }

    #[test]
    fn a_ban_does_not_hold_while_somebody_from_there_is_inside() {
        let mut gate = gate(|limits| (limits.strikes, limits.arrivals_per_s) = (3, 0));
        let now = Time::from_secs(1_000);
        // It has not logged in yet when the others bring the ban about.
        let slow = come(&mut gate, now, address(1)).expect("there is room").expect("it counts");
        for _ in 0..3 {
            assert_eq!(misbehave(&mut gate, now, address(1)), Ok(()));
        }
        assert_eq!(come(&mut gate, now, address(1)).err(), Some(Reason::Banned));
        slow.members.fetch_add(1, Ordering::Relaxed);
        come(&mut gate, now, address(1)).expect("its friend may come");
    }

    #[test]
    fn connections_that_come_too_fast_have_to_wait() {
        let mut gate = gate(|limits| (limits.arrivals_per_s, limits.connections_per_address) = (2, 0));
        let come_and_go = |gate: &mut Gate, now| {
            let claim = come(gate, now, address(1))?;
            gate.leave(claim.as_ref());
            Ok(())
        };
        let now = Time::from_secs(1);
        assert_eq!([(); 3].map(|()| come_and_go(&mut gate, now)), [Ok(()), Ok(()), Err(Reason::ArrivesTooFast)]);
        come(&mut gate, now, address(2)).expect("others are not late");
        assert_eq!(come_and_go(&mut gate, Time::from_secs(2)), Ok(()));
    }

    #[test]
    fn what_is_remembered_of_addresses_is_bounded() {
        let mut gate = gate(|limits| (limits.remembered, limits.connections) = (100, 1_000));
        for number in 0..1_000 {
            let _ = misbehave(&mut gate, Time(0), IpAddr::from(std::net::Ipv4Addr::from(number | 1u32 << 30)));
        }
        assert!((50..=100).contains(&gate.strikes.iter().count()), "{}", gate.strikes.iter().count());
        assert!(gate.arrivals.iter().count() <= 100);
    }

    #[test]
    fn bans_that_are_forgotten_for_others_are_counted_and_those_that_end_are_not() {
        let mut gate = gate(|limits| (limits.remembered, limits.strikes) = (100, 1));
        let address = |number: u32| IpAddr::from(std::net::Ipv4Addr::from(number | 1 << 30));
        (0..120).for_each(|number| misbehave(&mut gate, Time(0), address(number)).expect("a new address"));
        assert_eq!(gate.ban_counts(Time(0)), BanCounts { present: 70, forgotten: 50 });
        let later = Time(0).after(gate.limits.ban);
        (0..120).for_each(|number| misbehave(&mut gate, later, address(number)).expect("its ban is over"));
        assert_eq!(gate.ban_counts(later).forgotten, 50 + 50, "the bans of before were over");
    }
}
