//! The keys of clients that have sent a valid token but have not proved their address yet.

use super::aead::{Key, TAG_LEN};
use super::packet::CHALLENGE_BODY_LEN;
use super::server::{Now, is_expired};
use super::suite::Suite;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use throng_wire::Time;

/// A repeated request is answered again after so long at the earliest. Honest clients ask four times less often.
const REPEAT_AFTER: Duration = Duration::from_millis(25);

/// The server's record between a request and its response.
pub(super) struct Pending {
    pub(super) client_id: u64,
    pub(super) suite: Suite,
    pub(super) client_to_server: Key,
    pub(super) server_to_client: Key,
    pub(super) token_tag: [u8; TAG_LEN],
    pub(super) timeout_s: i32,
    pub(super) expire_unix_s: u64,
    /// The first challenge that was sent to the address under this token, and when: the answer to an older one was
    /// recorded somewhere.
    pub(super) first_challenge: u64,
    pub(super) challenged_at: Time,
    /// The body of the last challenge: a repeated request gets it again, without another decryption.
    pub(super) challenge: Box<[u8; CHALLENGE_BODY_LEN]>,
    /// When the last request was answered.
    pub(super) answered_at: Time,
    /// Until when a response is accepted; `None` for tokens without a timeout.
    pub(super) deadline: Option<Time>,
}

impl Pending {
    /// The last answer has left just now.
    pub(super) fn is_answered(&self, now: Time) -> bool {
        now.since(self.answered_at) < REPEAT_AFTER
    }
}

/// At most `len_max` addresses with their keys; when it is full the oldest gives way.
///
/// Ordered maps instead of hash maps: addresses are chosen by peers, and lookups must not degrade whatever they choose.
pub(super) struct PendingTable {
    len_max: usize,
    by_address: BTreeMap<SocketAddr, (u64, Pending)>,
    by_age: BTreeMap<u64, SocketAddr>,
    next_age: u64,
}

impl PendingTable {
    pub(super) fn new(len_max: usize) -> PendingTable {
        PendingTable { len_max: len_max.max(1), by_address: BTreeMap::new(), by_age: BTreeMap::new(), next_age: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Remembers `pending` as the youngest, instead of what was known about the address. Returns whether the oldest
    /// other address had to give way.
    ///
    /// If the same token was pending there, answers to its earlier challenges are still good.
    pub(super) fn insert(&mut self, address: SocketAddr, mut pending: Pending) -> bool {
        if let Some(before) = self.remove(address)
            && before.token_tag == pending.token_tag
        {
            (pending.first_challenge, pending.challenged_at) = (before.first_challenge, before.challenged_at);
        }
        let is_full = self.by_address.len() >= self.len_max;
        if is_full && let Some((_, oldest)) = self.by_age.pop_first() {
            self.by_address.remove(&oldest);
        }
        let age = self.next_age;
        self.next_age += 1;
        self.by_age.insert(age, address);
        self.by_address.insert(address, (age, pending));
        is_full
    }

    /// The entry of the address, unless its deadline has passed or its token has expired: then it is removed.
    pub(super) fn find(&mut self, address: SocketAddr, now: Now) -> Option<&Pending> {
        let (_, pending) = self.by_address.get(&address)?;
        let is_late = pending.deadline.is_some_and(|deadline| deadline <= now.time);
        if is_late || is_expired(pending.expire_unix_s, now) {
            self.remove(address);
        }
        self.by_address.get(&address).map(|(_, pending)| pending)
    }

    /// Whether anything is known about the address.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.by_address.contains_key(&address)
    }

    /// The address has asked again with the same token and is answered: it counts as the youngest, and its time starts
    /// again.
    pub(super) fn renew(&mut self, address: SocketAddr, now: Time, deadline: Option<Time>) {
        if let Some((age, pending)) = self.by_address.get_mut(&address) {
            self.by_age.remove(age);
            *age = self.next_age;
            self.by_age.insert(self.next_age, address);
            self.next_age += 1;
            (pending.answered_at, pending.deadline) = (now, deadline);
        }
    }

    /// Forgets the address and returns what was known about it.
    pub(super) fn remove(&mut self, address: SocketAddr) -> Option<Pending> {
        let (age, pending) = self.by_address.remove(&address)?;
        self.by_age.remove(&age);
        Some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(deadline_s: u64) -> Pending {
        Pending {
            client_id: 1,
            suite: Suite::default(),
            client_to_server: Key::new([1; 32]),
            server_to_client: Key::new([2; 32]),
            token_tag: [0; TAG_LEN],
            timeout_s: 5,
            expire_unix_s: 100,
            first_challenge: 0,
            challenged_at: Time(0),
            challenge: Box::new([0; CHALLENGE_BODY_LEN]),
            answered_at: Time(0),
            deadline: Some(Time::from_secs(deadline_s)),
        }
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn at(millis: u64) -> Now {
        Now { unix_s: 0, time: Time::from_millis(millis) }
    }

    #[test]
    fn the_oldest_gives_way_and_asking_again_makes_young() {
        let mut table = PendingTable::new(2);
        assert!(!table.insert(address(1), pending(9)));
        assert!(!table.insert(address(2), pending(9)));
        table.renew(address(1), Time(0), None);
        assert!(table.insert(address(3), pending(9)));
        assert_eq!(table.len(), 2);
        let known: Vec<u16> = (1..=3).filter(|&p| table.find(address(p), at(0)).is_some()).collect();
        assert_eq!(known, [1, 3]);
        assert_eq!(table.by_age.len(), 2);
    }

    #[test]
    fn a_deadline_is_kept() {
        let mut table = PendingTable::new(2);
        table.insert(address(1), pending(9));
        assert!(table.find(address(1), at(8_999)).is_some());
        assert!(table.find(address(1), at(9_000)).is_none());
        assert_eq!((table.len(), table.by_age.len()), (0, 0));
    }
}
