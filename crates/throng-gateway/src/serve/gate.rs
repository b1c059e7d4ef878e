//! Who may come through a door: how many in all, how many from one address, and who not for a while.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use throng_wire::Time;

use super::counters::Reason;
use super::options::DoorLimits;

/// The book of a door.
///
/// It remembers a bounded number of addresses. Beyond, those whose time is over are forgotten first, and then nothing
/// new is remembered.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Arc<DoorLimits>,
    open: usize,
    /// Hashed with the standard library's keyed hash: peers choose their addresses.
    by_address: HashMap<IpAddr, usize>,
    strikes: HashMap<IpAddr, Strikes>,
    /// How many came in a second, and when that second ends.
    arrivals: HashMap<IpAddr, (u32, Time)>,
}

#[derive(Clone, Copy, Debug)]
struct Strikes {
    count: u32,
    /// When they are forgotten, or until when the address is shut out.
    until: Time,
}

impl Gate {
    pub(crate) fn new(limits: Arc<DoorLimits>) -> Gate {
        Gate { limits, open: 0, by_address: HashMap::new(), strikes: HashMap::new(), arrivals: HashMap::new() }
    }

    /// Other limits from now on. Who is inside stays.
    pub(crate) fn set_limits(&mut self, limits: Arc<DoorLimits>) {
        self.limits = limits;
    }

    /// Lets a connection in, or says why not. Each that is let in has to [`leave`](Gate::leave).
    pub(crate) fn enter(&mut self, now: Time, address: IpAddr) -> Result<(), Reason> {
        let place = place_of(address);
        if self.open >= self.limits.connections {
            return Err(Reason::TooManyConnections);
        }
        if self.counts(place) {
            if self.is_banned(now, place) {
                return Err(Reason::Banned);
            }
            if !self.has_time(now, place) {
                return Err(Reason::ArrivesTooFast);
            }
            let (open, limit) = (self.by_address.entry(place).or_default(), self.limits.connections_per_address);
            if limit > 0 && *open >= limit {
                return Err(Reason::TooManyFromAddress);
            }
            *open += 1;
        }
        self.open += 1;
        Ok(())
    }

    /// A connection that was let in has ended.
    pub(crate) fn leave(&mut self, address: IpAddr) {
        self.open = self.open.saturating_sub(1);
        let place = place_of(address);
        if let Some(open) = self.by_address.get_mut(&place) {
            *open -= 1;
            if *open == 0 {
                self.by_address.remove(&place);
            }
        }
    }

    /// A connection from this address has misbehaved.
    pub(crate) fn strike(&mut self, now: Time, address: IpAddr) {
        let place = place_of(address);
        if self.limits.strikes == 0 || !self.counts(place) {
            return;
        }
        if self.strikes.len() >= self.limits.remembered {
            self.strikes.retain(|_, strikes| strikes.until > now);
            if self.strikes.len() >= self.limits.remembered {
                return;
            }
        }
        let fresh = Strikes { count: 0, until: now };
        let strikes = self.strikes.entry(place).or_insert(fresh);
        if strikes.until <= now {
            *strikes = fresh;
        }
        strikes.count += 1;
        strikes.until = now.after(self.limits.ban);
    }

    /// Whether the address may come now, or has come too often in this second.
    fn has_time(&mut self, now: Time, place: IpAddr) -> bool {
        if self.limits.arrivals_per_s == 0 {
            return true;
        }
        if self.arrivals.len() >= self.limits.remembered {
            self.arrivals.retain(|_, &mut (_, end)| end > now);
            if self.arrivals.len() >= self.limits.remembered {
                return true;
            }
        }
        let second = now.after(Duration::from_secs(1));
        let arrivals = self.arrivals.entry(place).or_insert((0, second));
        if arrivals.1 <= now {
            *arrivals = (0, second);
        }
        arrivals.0 = arrivals.0.saturating_add(1);
        arrivals.0 <= self.limits.arrivals_per_s
    }

    fn is_banned(&mut self, now: Time, place: IpAddr) -> bool {
        let Some(strikes) = self.strikes.get(&place) else { return false };
        if strikes.until <= now {
            self.strikes.remove(&place);
            return false;
        }
        strikes.count >= self.limits.strikes && self.limits.strikes > 0
    }

    fn counts(&self, place: IpAddr) -> bool {
        self.limits.counts_loopback || !place.is_loopback()
    }
}

/// What counts as one address: of IPv6 the first 64 bits, which is what one subscriber gets.
fn place_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::port::Side;

    fn gate(change: impl FnOnce(&mut DoorLimits)) -> Gate {
        let mut limits = DoorLimits { connections: 4, connections_per_address: 2, ..DoorLimits::new(Side::Client) };
        change(&mut limits);
        Gate::new(Arc::new(limits))
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, last])
    }

    #[test]
    fn one_address_gets_its_share_and_no_more() {
        let (mut gate, now) = (gate(|_| {}), Time(0));
        assert_eq!(gate.enter(now, address(1)), Ok(()));
        assert_eq!(gate.enter(now, address(1)), Ok(()));
        assert_eq!(gate.enter(now, address(1)), Err(Reason::TooManyFromAddress));
        assert_eq!(gate.enter(now, address(2)), Ok(()));
        gate.leave(address(1));
        assert_eq!(gate.enter(now, address(1)), Ok(()));
        assert_eq!(gate.enter(now, address(3)), Ok(()));
        assert_eq!(gate.enter(now, address(4)), Err(Reason::TooManyConnections));
    }

    #[test]
    fn nothing_is_kept_of_those_who_left() {
        let mut gate = gate(|_| {});
        for last in 0..100 {
            assert_eq!(gate.enter(Time(0), address(last)), Ok(()));
            gate.leave(address(last));
        }
        assert!(gate.by_address.is_empty() && gate.open == 0);
    }

    #[test]
    fn neighbours_in_an_ipv6_network_are_one_address() {
        let mut gate = gate(|_| {});
        for last in 1..=2 {
            assert_eq!(gate.enter(Time(0), Ipv6Addr::new(0x2001, 0xDB8, 0, 1, 0, 0, 0, last).into()), Ok(()));
        }
        let third: IpAddr = Ipv6Addr::new(0x2001, 0xDB8, 0, 1, 9, 9, 9, 9).into();
        assert_eq!(gate.enter(Time(0), third), Err(Reason::TooManyFromAddress));
        let mapped: IpAddr = Ipv6Addr::from([0, 0, 0, 0, 0, 0xFFFF, 0xCB00, 0x7101]).into();
        assert_eq!(place_of(mapped), address(1));
    }

    #[test]
    fn this_machine_is_not_counted_unless_asked_for() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let mut lenient = gate(|limits| limits.connections = 100);
        assert!((0..50).all(|_| lenient.enter(Time(0), here).is_ok()));
        let mut strict = gate(|limits| limits.counts_loopback = true);
        assert_eq!((0..50).filter(|_| strict.enter(Time(0), here).is_ok()).count(), 2);
    }

    #[test]
    fn who_misbehaves_is_shut_out_for_a_while() {
        let mut gate = gate(|limits| (limits.strikes, limits.ban) = (3, Duration::from_secs(10)));
        let mut now = Time(0);
        for _ in 0..3 {
            assert_eq!(gate.enter(now, address(1)), Ok(()));
            gate.leave(address(1));
            gate.strike(now, address(1));
            now = now.after(Duration::from_secs(1));
        }
        assert_eq!(gate.enter(now, address(1)), Err(Reason::Banned));
        assert_eq!(gate.enter(now, address(2)), Ok(()));
        now = now.after(Duration::from_secs(10));
        assert_eq!(gate.enter(now, address(1)), Ok(()));
        assert!(gate.strikes.is_empty());
    }

    #[test]
    fn who_comes_too_fast_has_to_wait() {
        let mut gate = gate(|limits| (limits.arrivals_per_s, limits.connections_per_address) = (2, 0));
        let come = |gate: &mut Gate, now| {
            let entered = gate.enter(now, address(1));
            if entered.is_ok() {
                gate.leave(address(1));
            }
            entered
        };
        let now = Time::from_secs(1);
        assert_eq!([(); 3].map(|()| come(&mut gate, now)), [Ok(()), Ok(()), Err(Reason::ArrivesTooFast)]);
        assert_eq!(gate.enter(now, address(2)), Ok(()));
        assert_eq!(come(&mut gate, Time::from_secs(2)), Ok(()));
    }

    #[test]
    fn what_is_remembered_of_addresses_is_bounded() {
        let mut gate = gate(|limits| limits.remembered = 100);
        for number in 0..110 {
            gate.strike(Time(0), IpAddr::from(std::net::Ipv4Addr::from(number | 1u32 << 30)));
        }
        assert_eq!(gate.strikes.len(), 100);
        gate.strike(Time::from_secs(601), address(1));
        assert_eq!(gate.strikes.len(), 1);
    }
}
