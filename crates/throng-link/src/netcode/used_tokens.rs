//! Which connect tokens have been shown to this server, from where, and which of them have led to a connection.

use super::aead::TAG_LEN;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

type TokenTag = [u8; TAG_LEN];

struct Use {
    address: SocketAddr,
    is_spent: bool,
}

/// The table's answer about a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Never seen, or seen only from this address: it is accepted.
    Ours,
    /// Shown from another address before.
    Elsewhere,
    /// Has led to a connection already.
    Spent,
}

/// At most `len_max` tokens, recognised by their tags. When it is full the one that expires first gives way: what has
/// expired needs no memory, because it is refused anyway.
///
/// *Anyway* must hold when the wall clock is set back, too. So the table keeps the latest expiry of a spent token that it
/// has forgotten: whatever expires no later might be that token, and is refused by whatever clock.
pub(super) struct UsedTokens {
    len_max: usize,
    forgotten_unix_s: u64,
    uses: BTreeMap<TokenTag, Use>,
    by_expiry: BTreeSet<(u64, TokenTag)>,
}

impl UsedTokens {
    pub(super) fn new(len_max: usize) -> UsedTokens {
        UsedTokens { len_max: len_max.max(1), forgotten_unix_s: 0, uses: BTreeMap::new(), by_expiry: BTreeSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.uses.len()
    }

    /// Whether a token that expires then may have been spent and forgotten.
    pub(super) fn may_be_forgotten(&self, tag: &TokenTag, expire_unix_s: u64) -> bool {
        expire_unix_s <= self.forgotten_unix_s && !self.uses.contains_key(tag)
    }

    /// Whether a token has led to a connection.
    pub(super) fn is_spent(&self, tag: &TokenTag) -> bool {
        self.uses.get(tag).is_some_and(|used| used.is_spent)
    }

    /// Claims an authentic token for an address, and forgets what has expired.
    ///
    /// The second value tells how many tokens had to give way although they can still be used: 0 or 1.
    pub(super) fn claim(
        &mut self,
        tag: &TokenTag,
        address: SocketAddr,
        expire_unix_s: u64,
        now_unix_s: u64,
    ) -> (Claim, u64) {
        if let Some(known) = self.uses.get(tag) {
            let claim = match known {
                Use { is_spent: true, .. } => Claim::Spent,
                Use { address: first, .. } if *first != address => Claim::Elsewhere,
                Use { .. } => Claim::Ours,
            };
            return (claim, 0);
        }
        self.forget_expired(now_unix_s);
        let is_full = self.uses.len() >= self.len_max;
        if is_full {
            self.forget_first();
        }
        self.uses.insert(*tag, Use { address, is_spent: false });
        self.by_expiry.insert((expire_unix_s, *tag));
        (Claim::Ours, u64::from(is_full))
    }

    /// Marks a token as spent. It cannot be claimed again, from whatever address.
    ///
    /// Its claim may have given way to others. Then one of those in the table gives way to it: tells how many, 0 or 1, could
    /// still be used.
    pub(super) fn spend(&mut self, tag: &TokenTag, address: SocketAddr, expire_unix_s: u64, now_unix_s: u64) -> u64 {
        self.uses.insert(*tag, Use { address, is_spent: true });
        self.by_expiry.insert((expire_unix_s, *tag));
        self.forget_expired(now_unix_s);
        let is_too_full = self.uses.len() > self.len_max;
        if is_too_full {
            self.forget_first();
        }
        u64::from(is_too_full)
    }

    fn forget_expired(&mut self, now_unix_s: u64) {
        while self.by_expiry.first().is_some_and(|&(expiry, _)| expiry <= now_unix_s) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((expiry, tag)) = self.by_expiry.pop_first()
            && self.uses.remove(&tag).is_some_and(|used| used.is_spent)
        {
            self.forgotten_unix_s = self.forgotten_unix_s.max(expiry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn a_token_belongs_to_the_first_address_that_shows_it_until_it_is_spent() {
        let mut used = UsedTokens::new(4);
        assert_eq!(used.claim(&[1; 16], address(1), 50, 10), (Claim::Ours, 0));
        assert_eq!(used.claim(&[1; 16], address(1), 50, 11), (Claim::Ours, 0));
        assert_eq!(used.claim(&[1; 16], address(2), 50, 11), (Claim::Elsewhere, 0));
        assert_eq!(used.spend(&[1; 16], address(1), 50, 11), 0);
        assert_eq!(used.claim(&[1; 16], address(1), 50, 11), (Claim::Spent, 0));
        assert_eq!(used.claim(&[1; 16], address(2), 50, 11), (Claim::Spent, 0));
        assert_eq!((used.len(), used.by_expiry.len()), (1, 1));
    }

    #[test]
    fn a_spent_token_that_was_forgotten_is_not_taken_for_a_new_one() {
        let mut used = UsedTokens::new(2);
        used.claim(&[1; 16], address(1), 50, 10);
        used.spend(&[1; 16], address(1), 50, 10);
        used.claim(&[2; 16], address(2), 70, 60); // the first has expired and is forgotten
        assert_eq!(used.len(), 1);
        assert!(used.may_be_forgotten(&[1; 16], 50) && used.may_be_forgotten(&[9; 16], 49));
        assert!(!used.may_be_forgotten(&[9; 16], 51) && !used.may_be_forgotten(&[2; 16], 70));
    }

    #[test]
    fn a_token_that_was_only_shown_raises_no_doubt_about_others() {
        let mut used = UsedTokens::new(1);
        used.claim(&[1; 16], address(1), 50, 10);
        used.claim(&[2; 16], address(2), 60, 10);
        assert!(!used.may_be_forgotten(&[1; 16], 50));
    }

    #[test]
    fn the_first_to_expire_gives_way_and_the_expired_are_forgotten_for_free() {
        let mut used = UsedTokens::new(2);
        used.claim(&[1; 16], address(1), 60, 10);
        used.claim(&[2; 16], address(2), 50, 10);
        assert_eq!(used.claim(&[3; 16], address(3), 70, 10), (Claim::Ours, 1));
        assert_eq!(used.claim(&[1; 16], address(9), 60, 10).0, Claim::Elsewhere);
        assert_eq!(used.claim(&[4; 16], address(4), 90, 60), (Claim::Ours, 0));
        assert_eq!((used.len(), used.by_expiry.len()), (2, 2));
        // A token whose claim gave way is spent: another one gives way, or one that has expired.
        assert_eq!(used.spend(&[1; 16], address(1), 95, 60), 1);
        assert_eq!(used.spend(&[2; 16], address(2), 99, 90), 0);
        assert_eq!((used.len(), used.by_expiry.len()), (2, 2));
    }
}
