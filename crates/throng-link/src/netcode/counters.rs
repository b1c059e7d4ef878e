use super::denial::Denial;
use super::seal::OpenError;
use std::fmt;

/// Why a datagram was dropped, on either side. The order is that of [`DropReason::ALL`] and of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum DropReason {
    /// Too short for header and tag, or empty.
    TooShort,
    /// The standard knows no packet of this kind.
    UnknownKind,
    /// A kind that this side does not take, or not now.
    UnexpectedKind,
    /// The sequence number has no length from 1 to 8.
    SequenceLength,
    /// No packet of this kind has this length.
    BodyLength,
    /// Received before, or older than the replay window.
    Replayed,
    /// Not sealed with the right key for this protocol, or changed on the way.
    NotAuthentic,
    /// So many packets were forged that the connection's key must not be used any more.
    KeyWornOut,
    /// A request that is not 1078 bytes long.
    RequestLength,
    /// A request for another version of the standard.
    RequestVersion,
    /// A request for another protocol id.
    RequestProtocol,
    /// The connect token has expired.
    TokenExpired,
    /// The connect token was not made with our private key, or was changed.
    TokenNotAuthentic,
    /// The connect token is authentic but malformed: the backend is faulty.
    TokenMalformed,
    /// The connect token is for other servers.
    TokenForOtherServer,
    /// The connect token was shown from another address before.
    TokenUsedElsewhere,
    /// A packet from an address that has not shown a token, whose handshake is too old, or whose connection is gone.
    UnknownAddress,
    /// The challenge token is not one of ours, or is another client's.
    ChallengeNotAuthentic,
    /// The challenge token answers a challenge for another connect token.
    ChallengeForOtherToken,
    /// The client's handshake was over.
    HandshakeOver,
    /// A request, a wish to move or the answer to a challenge that was not looked at because too many had come.
    TooManyRequests,
    /// The answer to a challenge that is too old or older than one that was answered, or to a wish that is no newer than one
    /// that has moved the connection.
    ChallengeOutdated,
    /// A wish to move that names no connection, or an answer of a connection that has not asked to move.
    MoveNotOurs,
    /// A packet from a connected address that was not looked at, because more came than one client may send.
    TooManyPackets,
    /// The response of a client that is to be [admitted later](super::Admission::Later).
    AdmittedLater,
    /// A request that came again less than 25 ms after the answer to the one before.
    RepeatedTooSoon,
    /// A datagram that is of no connection, while the server lets nobody in.
    DoorClosed,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [DropReason; 27] = [
        DropReason::TooShort,
        DropReason::UnknownKind,
        DropReason::UnexpectedKind,
        DropReason::SequenceLength,
        DropReason::BodyLength,
        DropReason::Replayed,
        DropReason::NotAuthentic,
        DropReason::KeyWornOut,
        DropReason::RequestLength,
        DropReason::RequestVersion,
        DropReason::RequestProtocol,
        DropReason::TokenExpired,
        DropReason::TokenNotAuthentic,
        DropReason::TokenMalformed,
        DropReason::TokenForOtherServer,
        DropReason::TokenUsedElsewhere,
        DropReason::UnknownAddress,
        DropReason::ChallengeNotAuthentic,
        DropReason::ChallengeForOtherToken,
        DropReason::HandshakeOver,
        DropReason::TooManyRequests,
        DropReason::ChallengeOutdated,
        DropReason::MoveNotOurs,
        DropReason::TooManyPackets,
        DropReason::AdmittedLater,
        DropReason::RepeatedTooSoon,
        DropReason::DoorClosed,
    ];

    /// A short stable name, for metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            DropReason::TooShort => "too_short",
            DropReason::UnknownKind => "unknown_kind",
            DropReason::UnexpectedKind => "unexpected_kind",
            DropReason::SequenceLength => "sequence_length",
            DropReason::BodyLength => "body_length",
            DropReason::Replayed => "replayed",
            DropReason::NotAuthentic => "not_authentic",
            DropReason::KeyWornOut => "key_worn_out",
            DropReason::RequestLength => "request_length",
            DropReason::RequestVersion => "request_version",
            DropReason::RequestProtocol => "request_protocol",
            DropReason::TokenExpired => "token_expired",
            DropReason::TokenNotAuthentic => "token_not_authentic",
            DropReason::TokenMalformed => "token_malformed",
            DropReason::TokenForOtherServer => "token_for_other_server",
            DropReason::TokenUsedElsewhere => "token_used_elsewhere",
            DropReason::UnknownAddress => "unknown_address",
            DropReason::ChallengeNotAuthentic => "challenge_not_authentic",
            DropReason::ChallengeForOtherToken => "challenge_for_other_token",
            DropReason::HandshakeOver => "handshake_over",
            DropReason::TooManyRequests => "too_many_requests",
            DropReason::ChallengeOutdated => "challenge_outdated",
            DropReason::MoveNotOurs => "move_not_ours",
            DropReason::TooManyPackets => "too_many_packets",
            DropReason::AdmittedLater => "admitted_later",
            DropReason::RepeatedTooSoon => "repeated_too_soon",
            DropReason::DoorClosed => "door_closed",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tag())
    }
}

impl From<OpenError> for DropReason {
    fn from(error: OpenError) -> DropReason {
        match error {
            OpenError::TooShort => DropReason::TooShort,
            OpenError::UnknownKind => DropReason::UnknownKind,
            OpenError::UnexpectedKind => DropReason::UnexpectedKind,
            OpenError::SequenceLength => DropReason::SequenceLength,
            OpenError::BodyLength => DropReason::BodyLength,
            OpenError::Replayed => DropReason::Replayed,
            OpenError::NotAuthentic => DropReason::NotAuthentic,
            OpenError::KeyWornOut => DropReason::KeyWornOut,
        }
    }
}

/// Counters of a server's door: every datagram is counted once, by its outcome.
///
/// Drops at the openers of connections can be counted here too ([`NetcodeCounters::drop`]), so that one table tells
/// everything.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NetcodeCounters {
    /// Requests that were answered with a challenge.
    pub challenged: u64,
    /// Responses that led to a connection.
    pub accepted: u64,
    /// Connections that were accepted in place of an older one of the same client.
    pub replaced: u64,
    /// Wishes to move that were answered with a challenge.
    pub move_challenged: u64,
    /// Connections that have gone on from another address.
    pub moved: u64,
    /// Addresses forgotten before they could answer, because too many were pending.
    pub pending_evicted: u64,
    /// Connect tokens forgotten before they expired, because too many were in use.
    pub used_tokens_evicted: u64,
    denied: [u64; Denial::ALL.len()],
    dropped: [u64; DropReason::ALL.len()],
}

/// By name, and only what is not 0.
impl fmt::Debug for NetcodeCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries().filter(|(_, count)| *count > 0)).finish()
    }
}

impl NetcodeCounters {
    /// Counts a dropped datagram.
    pub fn drop(&mut self, reason: impl Into<DropReason>) {
        self.dropped[reason.into() as usize] += 1;
    }

    /// How many datagrams were dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &NetcodeCounters) {
        let NetcodeCounters {
            challenged,
            accepted,
            replaced,
            move_challenged,
            moved,
            pending_evicted,
            used_tokens_evicted,
            denied,
            dropped,
        } = other;
        self.challenged += challenged;
        self.accepted += accepted;
        self.replaced += replaced;
        self.move_challenged += move_challenged;
        self.moved += moved;
        self.pending_evicted += pending_evicted;
        self.used_tokens_evicted += used_tokens_evicted;
        for (sum, count) in self.denied.iter_mut().zip(denied).chain(self.dropped.iter_mut().zip(dropped)) {
            *sum += count;
        }
    }

    /// Counts a request or response that was answered with a denial.
    pub(super) fn deny(&mut self, denial: Denial) {
        self.denied[denial as usize] += 1;
    }

    /// How many requests and responses were answered with this denial.
    pub fn denied(&self, denial: Denial) -> u64 {
        self.denied[denial as usize]
    }

    /// How many requests and responses were answered with any denial.
    pub fn denied_total(&self) -> u64 {
        self.denied.iter().sum()
    }

    /// All counters by name, those with 0 included.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let outcomes = [
            ("challenged", self.challenged),
            ("accepted", self.accepted),
            ("replaced", self.replaced),
            ("move_challenged", self.move_challenged),
            ("moved", self.moved),
            ("pending_evicted", self.pending_evicted),
            ("used_tokens_evicted", self.used_tokens_evicted),
        ];
        let denied = Denial::ALL.into_iter().map(|denial| (denial.tag(), self.denied(denial)));
        outcomes.into_iter().chain(denied).chain(self.drops().map(|(reason, count)| (reason.tag(), count)))
    }

    /// How many datagrams were dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// The drops by reason, those with 0 included, in the order of [`DropReason::ALL`].
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().zip(self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_reason_has_its_own_counter_and_name() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        let names: BTreeSet<_> = DropReason::ALL.iter().map(|reason| reason.tag()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());

        let mut counters = NetcodeCounters::default();
        counters.drop(OpenError::Replayed);
        counters.drop(DropReason::UnknownAddress);
        counters.drop(DropReason::UnknownAddress);
        assert_eq!((counters.dropped(DropReason::Replayed), counters.dropped(DropReason::UnknownAddress)), (1, 2));
        assert_eq!((counters.dropped_total(), counters.drops().map(|(_, n)| n).sum::<u64>()), (3, 3));
    }

    #[test]
    fn merged_counters_are_sums() {
        let mut one =
            NetcodeCounters { challenged: 1, accepted: 2, replaced: 3, move_challenged: 4, ..Default::default() };
        (one.moved, one.pending_evicted, one.used_tokens_evicted) = (5, 6, 7);
        (one.denied, one.dropped) = (std::array::from_fn(|i| 8 + i as u64), std::array::from_fn(|i| 20 + i as u64));
        let mut sum = one.clone();
        sum.merge(&one);
        assert!(one.entries().zip(sum.entries()).all(|((_, one), (_, sum))| one > 0 && sum == 2 * one), "{sum:?}");
    }

    #[test]
    fn counters_print_their_names_and_nothing_that_is_0() {
        let mut counters = NetcodeCounters { accepted: 2, ..NetcodeCounters::default() };
        counters.drop(DropReason::TokenNotAuthentic);
        counters.deny(Denial::Full);
        assert_eq!(format!("{counters:?}"), r#"{"accepted": 2, "denied_full": 1, "token_not_authentic": 1}"#);
        let names: BTreeSet<_> = counters.entries().map(|(name, _)| name).collect();
        assert_eq!(names.len(), counters.entries().count(), "each name once");
    }
}
