//! States of players that the servers of a world tell each other, so that one that takes a dead one's players over goes on with them.
//!
//! ```text
//! subject   world.NAME.saved.3    states of the players of server 3, in rounds; a round may take several messages
//! message   [fencing number of its server: u64][round: u32][state]...
//! state     [client id: u64][length: u16][bytes of the game]
//! ```
//!
//! Numbers are little endian. A message counts only if its sender is the member that holds the lease of this server, and names the
//! lease's fencing number. One state is kept of each client: the one that was told last, whichever server told it. It is out of date
//! when its server has told two rounds without it.
//!
//! Messages of two servers can come in another order than they were told in. So a state that another server told shortly before is kept
//! beside it: if that one was the newer one, the other server's next rounds are without the player.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use throng::Time;
use throng_bus::{Command, Fence, Message, Pattern, Subject, SubscriptionId};

use crate::roster::{Roster, WorldName};

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(1);
/// The states of a server that has said nothing for longer are of no use to anybody.
const KEPT: Duration = Duration::from_secs(30);
/// Most states that are kept, and most that are told in a round.
const STATES_MAX: usize = 65_536;
/// Most bytes of the states that are kept, and of those of a round.
const STATES_BYTES_MAX: usize = 64 << 20;
/// Bytes of one message, if it has more than one state.
const MESSAGE_BYTES: usize = 16 << 10;
/// Holders of one lease whose states are kept: the one of now, and those before it, as of a server that dies again and again.
const LIVES: usize = 4;
/// Messages of two servers that come within this time may have been told in the other order.
const OVERTAKEN: Duration = Duration::from_millis(500);
const HEAD_BYTES: usize = 12;
const STATE_HEAD_BYTES: usize = 10;

/// A server for as long as it has held its lease.
#[derive(Clone, Copy, Debug)]
struct Life {
    fence: Fence,
    /// Its newest round.
    round: u32,
    /// Its states are of use until then, if it says nothing more.
    until: Time,
}

/// A state of a client's player.
#[derive(Debug)]
struct Kept {
    /// The number of its server.
    number: u16,
    fence: Fence,
    round: u32,
    heard: Time,
    state: Vec<u8>,
}

impl Kept {
    fn is_of_life(&self, other: &Kept) -> bool {
        (self.number, self.fence) == (other.number, other.fence)
    }
}

/// The states of a client's player.
#[derive(Debug)]
struct Player {
    /// The one that came last.
    last: Kept,
    /// One of another server, which may be newer all the same.
    other: Option<Kept>,
}

/// States of one server whose lease has ended.
pub(crate) struct Lost<'a> {
    pub(crate) number: u16,
    pub(crate) fence: Fence,
    /// For so long they are of use.
    pub(crate) left: Duration,
    pub(crate) states: States<'a>,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Saved {
    name: WorldName,
    subscription: SubscriptionId,
    /// By number of the server, the newest first.
    lives: Vec<Vec<Life>>,
    by_client: FxHashMap<u64, Player>,
    room: Room,
    swept: Time,
    round: u32,
    told: Option<Time>,
    /// States that found no room, here, in a round or on the bus.
    pub(crate) dropped: u64,
}

impl Saved {
    pub(crate) fn new(name: WorldName, servers: u16, subscription: SubscriptionId) -> Saved {
        Saved {
            name,
            subscription,
            lives: vec![Vec::new(); servers.into()],
            by_client: FxHashMap::default(),
            room: Room::default(),
            swept: Time(0),
            round: 0,
            told: None,
            dropped: 0,
        }
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

    /// Whether it is the subject of messages with states.
    pub(crate) fn is_round(&self, subject: &Subject) -> bool {
        self.name.saved_number(subject).is_some()
    }

    /// A message that the bus has not taken is given up. False if it is not one of states.
    pub(crate) fn handle_given_up(&mut self, subject: &Subject, payload: &[u8]) -> bool {
        let is_ours = self.is_round(subject);
        if is_ours {
            self.dropped += read(payload).map_or(0, |(_, _, states)| states.len() as u64);
        }
        is_ours
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
        let (mut room, dropped) = (Room::default(), &mut self.dropped);
        let messages = pack(
            &head,
            states.filter(|(_, state)| {
                let fits = state.as_ref().len() <= usize::from(u16::MAX) && room.take(state.as_ref().len());
                *dropped += u64::from(!fits);
                fits
            }),
        );
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
        if usize::from(number) >= self.lives.len() {
            return false;
        }
        self.note_life(number, Life { fence, round, until: now.after(KEPT) });
        for (client_id, state) in states {
            self.keep(client_id, Kept { number, fence, round, heard: now, state: state.to_vec() });
        }
        if now.since(self.swept) >= EVERY {
            self.sweep(now);
        }
        true
    }

    /// A server lives, or has lived until a moment ago. The newest lives of a server stay known.
    fn note_life(&mut self, number: u16, life: Life) {
        let lives = &mut self.lives[usize::from(number)];
        match lives.iter_mut().find(|known| known.fence == life.fence) {
            Some(known) => *known = life,
            None => lives.push(life),
        }
        lives.sort_unstable_by_key(|life| std::cmp::Reverse(life.fence));
        lives.truncate(LIVES);
    }

    /// Keeps a state in the place of those before it.
    fn keep(&mut self, client_id: u64, kept: Kept) {
        let Saved { by_client, room, .. } = self;
        let former = by_client.remove(&client_id).map(|Player { last, other }| [Some(last), other]);
        let mut beside = None;
        for former in former.into_iter().flatten().flatten() {
            let may_be_newer = !former.is_of_life(&kept) && kept.heard.since(former.heard) < OVERTAKEN;
            if may_be_newer && beside.is_none() {
                beside = Some(former);
            } else {
                room.give_back(former.state.len());
            }
        }
        let mut has_room = room.take(kept.state.len());
        if !has_room && let Some(former) = beside.take() {
            room.give_back(former.state.len());
            has_room = room.take(kept.state.len());
        }
        if has_room {
            by_client.insert(client_id, Player { last: kept, other: beside });
        } else {
            self.dropped += 1;
        }
    }

    fn forget(&mut self, client_id: u64) -> Option<Player> {
        let player = self.by_client.remove(&client_id)?;
        [Some(&player.last), player.other.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|kept| self.room.give_back(kept.state.len()));
        Some(player)
    }

    /// Forgets what is out of date.
    fn sweep(&mut self, now: Time) {
        self.swept = now;
        let Saved { lives, by_client, room, .. } = self;
        let mut check = |kept: &Kept| {
            let is_current = is_current(lives, kept, now);
            if !is_current {
                room.give_back(kept.state.len());
            }
            is_current
        };
        by_client.retain(|_, Player { last, other }| {
            other.take_if(|other| !check(other));
            let is_current = check(last);
            match other.take() {
                Some(other) if !is_current => {
                    *last = other;
                    true
                }
                kept => {
                    *other = kept;
                    is_current
                }
            }
        });
    }

    /// The state of a client's player at a server whose lease has ended. It is given once.
    pub(crate) fn take(&mut self, now: Time, client_id: u64, roster: &Roster) -> Option<Vec<u8>> {
        let player = self.by_client.get(&client_id)?;
        let lost = lost_state(&self.lives, player, now, roster)?;
        let is_last = std::ptr::eq(lost, &player.last);
        let Player { last, other } = self.forget(client_id)?;
        Some(if is_last { last.state } else { other?.state })
    }

    /// All states that [`take`](Saved::take) would give, by server.
    pub(crate) fn lost(&self, now: Time, roster: &Roster) -> Vec<Lost<'_>> {
        let mut by_life: BTreeMap<(u16, Fence), States<'_>> = BTreeMap::new();
        for (&client_id, player) in &self.by_client {
            if let Some(lost) = lost_state(&self.lives, player, now, roster) {
                by_life.entry((lost.number, lost.fence)).or_default().push((client_id, &lost.state));
            }
        }
        let of = |((number, fence), states)| {
            let life = self.lives[usize::from(number)].iter().find(|life| life.fence == fence);
            Lost { number, fence, left: life.map_or(Duration::ZERO, |life| life.until.since(now)), states }
        };
        by_life.into_iter().map(of).collect()
    }

    /// Keeps states that another server has kept. False if they make no sense. Those that were told here are newer.
    pub(crate) fn keep_lost(&mut self, now: Time, lost: &Lost<'_>, roster: &Roster) -> bool {
        let &Lost { number, fence, left, ref states } = lost;
        let is_over = roster.seat(number).is_some_and(|seat| seat.fence().is_none_or(|holds| holds > fence));
        if !is_over || usize::from(number) >= self.lives.len() || left > KEPT {
            return false;
        }
        let known = self.lives[usize::from(number)].iter().find(|life| life.fence == fence).copied();
        let life = known.unwrap_or(Life { fence, round: 0, until: now.after(left) });
        self.note_life(number, life);
        for &(client_id, state) in states {
            if !self.by_client.contains_key(&client_id) {
                self.keep(client_id, Kept { number, fence, round: life.round, heard: now, state: state.to_vec() });
            }
        }
        true
    }
}

/// Whether its server may still have had the player when it was heard last, and that is not long ago.
fn is_current(lives: &[Vec<Life>], kept: &Kept, now: Time) -> bool {
    let life = lives[usize::from(kept.number)].iter().find(|life| life.fence == kept.fence);
    life.is_some_and(|life| life.round.wrapping_sub(kept.round) <= 1 && now <= life.until)
}

/// The newest state of a player whom no living server has.
fn lost_state<'a>(lives: &[Vec<Life>], player: &'a Player, now: Time, roster: &Roster) -> Option<&'a Kept> {
    let current = || {
        [Some(&player.last), player.other.as_ref()].into_iter().flatten().filter(|kept| is_current(lives, kept, now))
    };
    let is_over = |kept: &&Kept| roster.seat(kept.number).and_then(|seat| seat.fence()) != Some(kept.fence);
    current().all(|kept| is_over(&kept)).then(|| current().next())?
}

/// The room for states: of those that are kept, and of those in a round.
#[derive(Debug, Default)]
struct Room {
    states: usize,
    bytes: usize,
}

impl Room {
    /// False if there is none for one more state of so many bytes.
    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.states < STATES_MAX && self.bytes + bytes <= STATES_BYTES_MAX;
        if fits {
            (self.states, self.bytes) = (self.states + 1, self.bytes + bytes);
        }
        fits
    }

    fn give_back(&mut self, bytes: usize) {
        (self.states, self.bytes) = (self.states - 1, self.bytes - bytes);
    }
}

/// The client id and the bytes of the game, of each state of a message.
pub(crate) type States<'a> = Vec<(u64, &'a [u8])>;

/// Messages that begin with `head`, with all states. At least one.
pub(crate) fn pack<S: AsRef<[u8]>>(head: &[u8], states: impl Iterator<Item = (u64, S)>) -> Vec<Vec<u8>> {
    let (mut messages, mut message) = (Vec::new(), head.to_vec());
    for (client_id, state) in states {
        let state = state.as_ref();
        debug_assert!(state.len() <= usize::from(u16::MAX), "longer ones are dropped before");
        if message.len() > head.len() && message.len() + STATE_HEAD_BYTES + state.len() > MESSAGE_BYTES {
            messages.push(std::mem::replace(&mut message, head.to_vec()));
        }
        message.extend_from_slice(&client_id.to_le_bytes());
        message.extend_from_slice(&(state.len() as u16).to_le_bytes());
        message.extend_from_slice(state);
    }
    messages.push(message);
    messages
}

/// The states of a message after its head; `None` if they make no sense.
pub(crate) fn unpack(mut rest: &[u8]) -> Option<States<'_>> {
    let mut states = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(STATE_HEAD_BYTES)?;
        let client_id = u64::from_le_bytes(*head.first_chunk()?);
        let length = u16::from_le_bytes(*head.last_chunk()?);
        let (state, after) = after.split_at_checked(length.into())?;
        states.push((client_id, state));
        rest = after;
    }
    Some(states)
}

/// The parts of a message of a round; `None` if it makes no sense.
fn read(payload: &[u8]) -> Option<(Fence, u32, States<'_>)> {
    let (head, rest) = payload.split_at_checked(HEAD_BYTES)?;
    let (fence, round) = head.split_at(8);
    let fence = Fence(u64::from_le_bytes(fence.try_into().ok()?));
    let round = u32::from_le_bytes(round.try_into().ok()?);
    Some((fence, round, unpack(rest)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use throng_bus::{Event, MemberId, Revision, Sequence, Subject, WatchId};

    use super::*;
    use crate::borders::Division;

    const SERVER: (u16, Fence) = (1, Fence(7));

    /// The lease of a server, or its end.
    pub(crate) fn lease(roster: &mut Roster, number: u16, fence: Option<Fence>) {
        let key = Subject::new(&format!("world.w.server.{number}")).unwrap();
        // A lease of member 5: version, member, no fence of its own, no note.
        let value = fence.map(|_| [&[1][..], &5_u64.to_le_bytes(), &0_u64.to_le_bytes()].concat().into());
        let revision = Revision(fence.map_or(1_000, |fence| fence.0));
        roster.handle_event(Time(1), &Event::Changed { watch: WatchId(1), key, revision, value });
    }

    /// Two ends, and a roster in which server 1 has the lease.
    pub(crate) fn world() -> (Saved, Saved, Roster) {
        let name = || WorldName::new("w").unwrap();
        let saved = || Saved::new(name(), 3, SubscriptionId(9));
        let mut roster = Roster::new(name(), Division::new(3, 90, 3).unwrap(), SubscriptionId(1), WatchId(1));
        lease(&mut roster, SERVER.0, Some(SERVER.1));
        (saved(), saved(), roster)
    }

    pub(crate) fn message(publisher: u64, command: &Command) -> Message {
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

    fn nobody() -> impl Iterator<Item = (u64, Vec<u8>)> {
        std::iter::empty()
    }

    pub(crate) fn at(ms: u64) -> Time {
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
        // The same server begins anew, and says so with a round of nobody: its former life is over, and not forgotten.
        lease(&mut roster, 1, Some(Fence(8)));
        let anew =
            Saved::new(WorldName::new("w").unwrap(), 3, SubscriptionId(9)).tell(at(3_500), (1, Fence(8)), nobody());
        assert!(anew.iter().all(|command| to.hear(at(3_500), &message(5, command), &roster)));
        let mut state = |id| to.take(at(4_000), id, &roster);
        assert_eq!([1, 2, 3].map(&mut state), [None, Some(vec![2]), Some(vec![3])]);
    }

    /// It went from server 1 to server 2 before server 1 died.
    #[test]
    fn a_player_whom_a_living_server_has_is_not_given_as_a_dead_one_had_it() {
        let (mut from, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let mut second = Saved::new(WorldName::new("w").unwrap(), 3, SubscriptionId(9));
        for (saved, server, state) in [(&mut from, SERVER, 7), (&mut second, (2, Fence(9)), 8)] {
            let told = saved.tell(at(10), server, [(1, [state; 4])].into_iter());
            assert!(told.iter().all(|command| to.hear(at(10), &message(5, command), &roster)));
        }
        lease(&mut roster, 1, None);
        assert_eq!(to.take(at(20), 1, &roster), None);
        lease(&mut roster, 2, None);
        assert_eq!(to.take(at(20), 1, &roster), Some(vec![8; 4]));
    }

    /// It went from server 1 to server 2, which dies before its next round. The last message of server 1 came late.
    #[test]
    fn a_late_message_of_the_former_server_does_not_replace_the_newer_state() {
        for (late_ms, gives) in [(40, Some(vec![8; 4])), (600, None)] {
            let (mut from, mut to, mut roster) = world();
            lease(&mut roster, 2, Some(Fence(9)));
            let mut second = Saved::new(WorldName::new("w").unwrap(), 3, SubscriptionId(9));
            let late = from.tell(at(0), SERVER, [(1, [7; 4])].into_iter());
            let newer = second.tell(at(0), (2, Fence(9)), [(1, [8; 4])].into_iter());
            for (ms, told) in [(10, newer), (10 + late_ms, late)] {
                assert!(told.iter().all(|command| to.hear(at(ms), &message(5, command), &roster)));
            }
            lease(&mut roster, 2, None);
            assert_eq!(to.take(at(800), 1, &roster), None, "server 1 may have it");
            for second in [1_000, 2_000] {
                let told = from.tell(at(second), SERVER, nobody());
                assert!(told.iter().all(|command| to.hear(at(second), &message(5, command), &roster)));
            }
            // A state that came much earlier than that of server 1 is of no player who was there since.
            assert_eq!(to.take(at(2_900), 1, &roster), gives, "{late_ms} ms late");
            to.sweep(at(40_000));
            assert_eq!((to.by_client.len(), to.room.states, to.room.bytes), (0, 0, 0));
        }
    }

    #[test]
    fn two_states_of_a_client_take_room_for_two_and_give_it_back() {
        let (mut from, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let mut second = Saved::new(WorldName::new("w").unwrap(), 3, SubscriptionId(9));
        let hear = |to: &mut Saved, ms: u64, told: Vec<Command>, roster: &Roster| {
            assert!(told.iter().all(|command| to.hear(at(ms), &message(5, command), roster)));
            (to.by_client.len(), to.room.states, to.room.bytes)
        };
        let told = from.tell(at(0), SERVER, (0..10).map(|id| (id, [1; 50])));
        assert_eq!(hear(&mut to, 0, told, &roster), (10, 10, 500));
        let told = second.tell(at(0), (2, Fence(9)), (0..4).map(|id| (id, [2; 30])));
        assert_eq!(hear(&mut to, 100, told, &roster), (10, 14, 620), "nobody knows which is the newer one");
        let told = second.tell(at(1_100), (2, Fence(9)), (0..3).map(|id| (id, [2; 30])));
        assert_eq!(hear(&mut to, 1_100, told, &roster), (10, 11, 470), "three are told again");
        lease(&mut roster, 2, None);
        assert_eq!(to.take(at(1_200), 0, &roster), Some(vec![2; 30]));
        assert_eq!((to.by_client.len(), to.room.states), (9, 10));
    }

    #[test]
    fn the_memory_of_old_states_is_given_back() {
        let (mut from, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let told = from.tell(at(0), SERVER, (0..100).map(|id| (id, [1; 50])));
        assert!(told.iter().all(|command| to.hear(at(0), &message(5, command), &roster)));
        assert_eq!((to.by_client.len(), to.room.states, to.room.bytes), (100, 100, 5_000));
        let mut second = Saved::new(WorldName::new("w").unwrap(), 3, SubscriptionId(9));
        for (ms, left) in [(29_000, 100), (31_000, 0)] {
            let told = second.tell(at(ms), (2, Fence(9)), nobody());
            assert!(told.iter().all(|command| to.hear(at(ms), &message(5, command), &roster)));
            assert_eq!((to.by_client.len(), to.room.states, to.room.bytes), (left, left, left * 50));
        }
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
        let (mut from, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let mut second = Saved::new(WorldName::new("w").unwrap(), 3, SubscriptionId(9));
        let hear = |to: &mut Saved, told: Vec<Command>| {
            let heard = told.iter().all(|command| to.hear(at(0), &message(5, command), &roster));
            assert!(heard);
        };
        let most = STATES_MAX as u64;
        hear(&mut to, from.tell(at(0), SERVER, (0..most + 10).map(|id| (id, [0_u8; 2]))));
        assert_eq!((from.dropped, to.dropped), (10, 0));
        // Those of known players take the places of theirs; there is none for others.
        hear(&mut to, second.tell(at(0), (2, Fence(9)), (most - 5..most + 7).map(|id| (id, [0_u8; 2]))));
        assert_eq!((second.dropped, to.dropped), (0, 7));
        let (mut from, mut to) = (world().0, world().1);
        let long = usize::from(u16::MAX);
        let told = from.tell(at(0), SERVER, (0..2_000).map(|id| (id, vec![0; long])).chain([(1, vec![0; long + 1])]));
        let fit = STATES_BYTES_MAX / long;
        assert_eq!((told.len(), from.dropped), (fit, 2_001 - fit as u64));
        let Command::Publish { subject, payload } = &told[0] else { panic!("a message") };
        hear(&mut to, told.clone());
        assert_eq!(to.dropped, 0);
        // A bus without room.
        assert!(to.handle_given_up(subject, payload));
        assert!(!to.handle_given_up(&Subject::new("world.w.load.1").unwrap(), payload));
        assert_eq!(to.dropped, 1);
    }
}
