//! States of players that the servers of a world tell each other, so that one that takes a dead one's players over goes on with them.
//!
//! ```text
//! subject   world.NAME.saved.3    states of the players of server 3, in rounds; a round may take several messages
//! message   [fencing number of its server: u64][round: u32][state]...
//! state     [client id: u64][length: u16][bytes of the game]
//! ```
//!
//! Numbers are little endian. A message counts only if its sender is the member that holds the lease of this server, and names the
//! lease's fencing number. Of each server the newest round is kept and the one before it, as the newest may have come in part.

use std::mem::take;
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use throng::Time;
use throng_bus::{Command, Fence, Message, Pattern, SubscriptionId};

use crate::roster::{Roster, WorldName};

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(1);
/// A state that is older is of no use to anybody.
const KEPT: Duration = Duration::from_secs(30);
/// States that are kept of one round of a server.
const STATES_MAX: usize = 16_384;
/// Their bytes.
const STATES_BYTES_MAX: usize = 16 << 20;
/// Bytes of one message, if it has more than one state.
const MESSAGE_BYTES: usize = 16 << 10;
const HEAD_BYTES: usize = 12;
const STATE_HEAD_BYTES: usize = 10;

/// The states of one server.
#[derive(Debug, Default)]
struct Rounds {
    fence: Fence,
    round: u32,
    /// When the newest message came.
    heard: Time,
    newest: FxHashMap<u64, Vec<u8>>,
    newest_bytes: usize,
    before: FxHashMap<u64, Vec<u8>>,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Saved {
    name: WorldName,
    subscription: SubscriptionId,
    /// By number of the server.
    servers: Vec<Rounds>,
    round: u32,
    told: Option<Time>,
    /// States that found no room, here or in a message.
    pub(crate) dropped: u64,
}

impl Saved {
    pub(crate) fn new(name: WorldName, servers: u16, subscription: SubscriptionId) -> Saved {
        let servers = (0..servers).map(|_| Rounds::default()).collect();
        Saved { name, subscription, servers, round: 0, told: None, dropped: 0 }
    }

    /// The subscription of all servers' messages.
    pub(crate) fn subscribe(&self) -> Command {
        Command::Subscribe { subscription: self.subscription, pattern: self.pattern() }
    }

    fn pattern(&self) -> Pattern {
        self.name.pattern("saved.*")
    }

    pub(crate) fn is_ours(&self, subscription: SubscriptionId) -> bool {
        subscription == self.subscription
    }

    /// The messages with the states of this server, if it is time for a round.
    pub(crate) fn tell<S: AsRef<[u8]>>(
        &mut self,
        now: Time,
        (number, fence): (u16, Fence),
        states: impl Iterator<Item = (u64, S)>,
    ) -> Vec<Command> {
        if self.told.is_some_and(|told| now.since(told) < EVERY) {
            return Vec::new();
        }
        self.told = Some(now);
        self.round = self.round.wrapping_add(1);
        let head = [&fence.0.to_le_bytes()[..], &self.round.to_le_bytes()].concat();
        let (mut messages, mut message) = (Vec::new(), head.clone());
        for (client_id, state) in states {
            let state = state.as_ref();
            let Some(length) = u16::try_from(state.len()).ok() else {
                self.dropped += 1;
                continue;
            };
            if message.len() > HEAD_BYTES && message.len() + STATE_HEAD_BYTES + state.len() > MESSAGE_BYTES {
                messages.push(std::mem::replace(&mut message, head.clone()));
            }
            message.extend_from_slice(&client_id.to_le_bytes());
            message.extend_from_slice(&length.to_le_bytes());
            message.extend_from_slice(state);
        }
        messages.push(message);
        let subject = self.name.saved_subject(number);
        let publish = |message| Command::Publish { subject: subject.clone(), payload: Bytes::from(message) };
        messages.into_iter().map(publish).collect()
    }

    /// Takes a message. False if it makes no sense, or its sender may not tell it.
    pub(crate) fn hear(&mut self, now: Time, message: &Message, roster: &Roster) -> bool {
        let Some(number) = self.name.saved_number(&message.subject) else { return false };
        let Some((fence, round, states)) = read(&message.payload) else { return false };
        let holder = roster.seat(number).and_then(|seat| seat.holder.as_ref());
        if holder.is_none_or(|holder| (holder.member, holder.fence) != (message.publisher, fence)) {
            return false;
        }
        let Some(known) = self.servers.get_mut(usize::from(number)) else { return false };
        if known.fence != fence {
            *known = Rounds { fence, ..Rounds::default() };
        }
        if known.round != round {
            (known.round, known.before, known.newest_bytes) = (round, take(&mut known.newest), 0);
        }
        known.heard = now;
        for (client_id, state) in states {
            let has_room = known.newest.len() < STATES_MAX && known.newest_bytes + state.len() <= STATES_BYTES_MAX;
            if has_room {
                known.newest_bytes += state.len();
                known.newest.insert(client_id, state.to_vec());
            } else {
                self.dropped += 1;
            }
        }
        true
    }

    /// The state of a client's player at a server whose lease has ended. It is given once.
    pub(crate) fn take(&mut self, now: Time, client_id: u64, roster: &Roster) -> Option<Vec<u8>> {
        let mut newest: Option<(Time, Vec<u8>)> = None;
        for (known, seat) in self.servers.iter_mut().zip(roster.seats()) {
            if seat.fence() == Some(known.fence) || now.since(known.heard) > KEPT {
                continue;
            }
            let (state, before) = (known.newest.remove(&client_id), known.before.remove(&client_id));
            if let Some(state) = state.or(before)
                && newest.as_ref().is_none_or(|(heard, _)| *heard < known.heard)
            {
                newest = Some((known.heard, state));
            }
        }
        newest.map(|(_, state)| state)
    }
}

/// The client id and the bytes of the game, of each state of a message.
type States<'a> = Vec<(u64, &'a [u8])>;

/// The parts of a message; `None` if it makes no sense.
fn read(payload: &[u8]) -> Option<(Fence, u32, States<'_>)> {
    let (head, mut rest) = payload.split_at_checked(HEAD_BYTES)?;
    let (fence, round) = head.split_at(8);
    let fence = Fence(u64::from_le_bytes(fence.try_into().ok()?));
    let round = u32::from_le_bytes(round.try_into().ok()?);
    let mut states = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(STATE_HEAD_BYTES)?;
        let client_id = u64::from_le_bytes(*head.first_chunk()?);
        let length = u16::from_le_bytes(*head.last_chunk()?);
        let (state, after) = after.split_at_checked(length.into())?;
        states.push((client_id, state));
        rest = after;
    }
    Some((fence, round, states))
}

#[cfg(test)]
mod tests {
    use throng_bus::{Event, MemberId, Revision, Sequence, Subject, WatchId};

    use super::*;
    use crate::borders::Division;

    const SERVER: (u16, Fence) = (1, Fence(7));

    /// The lease of a server, or its end.
    fn lease(roster: &mut Roster, number: u16, fence: Option<Fence>) {
        let key = Subject::new(&format!("world.w.server.{number}")).unwrap();
        // A lease of member 5: version, member, no fence of its own, no note.
        let value = fence.map(|_| [&[1][..], &5_u64.to_le_bytes(), &0_u64.to_le_bytes()].concat().into());
        let revision = Revision(fence.map_or(1_000, |fence| fence.0));
        roster.handle_event(Time(1), &Event::Changed { watch: WatchId(1), key, revision, value });
    }

    /// Two ends, and a roster in which server 1 has the lease.
    fn world() -> (Saved, Saved, Roster) {
        let name = || WorldName::new("w").unwrap();
        let saved = || Saved::new(name(), 3, SubscriptionId(9));
        let mut roster = Roster::new(name(), Division::new(3, 90, 3).unwrap(), SubscriptionId(1), WatchId(1));
        lease(&mut roster, SERVER.0, Some(SERVER.1));
        (saved(), saved(), roster)
    }

    fn message(publisher: u64, command: &Command) -> Message {
        let Command::Publish { subject, payload } = command else { panic!("{command:?}") };
        let (subscription, publisher, sequence) = (SubscriptionId(9), MemberId(publisher), Sequence(1));
        Message {
            subscription,
            subject: subject.clone(),
            publisher,
            sequence,
            payload: payload.clone(),
            reply_to: None,
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn states_of_a_dead_server_are_given_once_and_those_of_a_living_one_never() {
        let (mut from, mut to, mut roster) = world();
        let states = (0..5_000).map(|id: u64| (id, id.to_le_bytes().repeat(3)));
        let told = from.tell(at(10), SERVER, states.clone());
        let is_short = |command: &Command| message(5, command).payload.len() <= MESSAGE_BYTES;
        assert!(told.len() > 2 && told.iter().all(is_short) && from.tell(at(900), SERVER, states.clone()).is_empty());
        assert!(told.iter().all(|command| to.hear(at(20), &message(5, command), &roster)));
        assert_eq!(to.take(at(30), 3, &roster), None, "it lives");
        lease(&mut roster, 1, None);
        for (id, state) in states {
            assert_eq!((to.take(at(40), id, &roster), to.take(at(40), id, &roster)), (Some(state), None));
        }
        assert_eq!((to.take(at(40), 9_999, &roster), to.dropped), (None, 0));
    }

    #[test]
    fn a_round_takes_the_place_of_the_one_before_the_last() {
        let (mut from, mut to, mut roster) = world();
        for (second, ids) in [(1, vec![1, 2, 3]), (2, vec![2, 3]), (3, vec![3])] {
            let states = ids.into_iter().map(|id| (id, vec![second as u8]));
            for command in from.tell(at(second * 1_000), SERVER, states) {
                assert!(to.hear(at(second * 1_000), &message(5, &command), &roster));
            }
        }
        // The same server begins anew: its former life is over.
        lease(&mut roster, 1, Some(Fence(8)));
        let mut state = |id| to.take(at(4_000), id, &roster);
        assert_eq!([1, 2, 3].map(&mut state), [None, Some(vec![2]), Some(vec![3])]);
    }

    #[test]
    fn old_states_and_those_of_others_are_not_taken() {
        let (mut from, mut to, mut roster) = world();
        let [command] = &from.tell(at(0), SERVER, [(1, [9; 4])].into_iter())[..] else { panic!("one message") };
        let right = message(5, command);
        for length in (0..right.payload.len()).filter(|length| *length != HEAD_BYTES) {
            let cut = Message { payload: right.payload.slice(..length), ..right.clone() };
            assert!(!to.hear(at(0), &cut, &roster), "{length} bytes");
        }
        let elsewhere = |subject: &str| Message { subject: Subject::new(subject).unwrap(), ..right.clone() };
        let wrong = ["world.w.saved.0", "world.w.saved.9", "world.v.saved.1", "world.w.load.1"].map(elsewhere);
        assert!(wrong.iter().all(|wrong| !to.hear(at(0), wrong, &roster)));
        assert!(!to.hear(at(0), &message(6, command), &roster), "of another member");
        let [old] = &from.tell(at(2_000), (1, Fence(6)), [(1, [8; 4])].into_iter())[..] else { panic!("one message") };
        assert!(!to.hear(at(0), &message(5, old), &roster), "of a former lease");
        assert!(to.hear(at(0), &right, &roster));
        lease(&mut roster, 1, None);
        assert_eq!(to.take(at(30_001), 1, &roster), None);
        assert_eq!(to.take(at(30_000), 1, &roster), Some(vec![9; 4]));
    }

    #[test]
    fn what_is_too_much_is_dropped_and_counted() {
        let (mut from, mut to, roster) = world();
        let states = (0..STATES_MAX as u64 + 10).map(|id| (id, [0_u8; 8]));
        for command in from.tell(at(0), SERVER, states) {
            assert!(to.hear(at(0), &message(5, &command), &roster));
        }
        assert_eq!((to.dropped, from.dropped), (10, 0));
        let long = usize::from(u16::MAX);
        let states = (0..300).map(|id| (id, vec![0; long])).chain([(1, vec![0; long + 1])]);
        for command in from.tell(at(1_000), SERVER, states) {
            let Command::Publish { payload, .. } = &command else { panic!("{command:?}") };
            assert!(payload.len() <= HEAD_BYTES + STATE_HEAD_BYTES + long);
            assert!(to.hear(at(0), &message(5, &command), &roster));
        }
        let fit = STATES_BYTES_MAX / long;
        assert_eq!((to.dropped, from.dropped), (10 + 300 - fit as u64, 1));
    }
}
