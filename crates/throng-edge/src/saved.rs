//! States of players that the servers of a world tell each other, so that one that takes a dead one's players over goes on with them.
//!
//! ```text
//! subject   world.NAME.saved.3    states of the players of server 3, in rounds; a round may take several messages
//! message   [fencing number of its server: u64][round: u32][state]...
//! state     [client id: u64][ms since its server has the player: u32][length: u16][bytes of the game]
//! ```
//!
//! Numbers are little endian. A message counts only if its sender is the member that holds the lease of this server, and names the
//! lease's fencing number. One state is kept of each client: that of the server to which the player came last. So a late message of
//! its former server changes nothing. A state is out of date when its server has told two rounds without it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use throng::Time;
use throng_bus::{Command, Fence, Message, Pattern, Subject, SubscriptionId};

use crate::room::Room;
use crate::roster::{Roster, WorldName};

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(1);
/// The states of a server that has said nothing for longer are of no use to anybody.
const KEPT: Duration = Duration::from_secs(30);
/// Bytes of one message, if it has more than one state.
const MESSAGE_BYTES: usize = 16 << 10;
/// The states of so many holders of one lease are kept: a server may die again and again.
const LIVES: usize = 4;
const HEAD_BYTES: usize = 12;
const STATE_HEAD_BYTES: usize = 14;

/// A server for as long as it has held its lease.
#[derive(Clone, Copy, Debug)]
struct Life {
    fence: Fence,
    /// Its newest round.
    round: u32,
    /// Its states are of use until then, if it says nothing more.
    until: Time,
    /// The server was heard here, and not only another one that told of it.
    is_heard: bool,
}

/// The state of a client's player.
#[derive(Debug)]
struct Kept {
    /// The number of its server.
    number: u16,
    fence: Fence,
    round: u32,
    /// Its server has the player since then, by the clock of this one.
    since: Time,
    state: Vec<u8>,
}

/// States of one round of a server whose lease has ended.
pub(crate) struct Lost<'a> {
    pub(crate) number: u16,
    pub(crate) fence: Fence,
    /// The newest round of that server.
    pub(crate) newest: u32,
    pub(crate) round: u32,
    /// For so long they are of use.
    pub(crate) left: Duration,
    pub(crate) states: States<'a>,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Saved {
    name: WorldName,
    subscription: SubscriptionId,
    /// By number of the server.
    lives: Vec<Vec<Life>>,
    by_client: FxHashMap<u64, Kept>,
    /// The players of this server: since when, and the newest round with them.
    own: FxHashMap<u64, (Time, u32)>,
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
            own: FxHashMap::default(),
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
        let Saved { own, dropped, round, .. } = self;
        let mut room = Room::default();
        let states = states.filter_map(|(client_id, state)| {
            let length = state.as_ref().len();
            if length > usize::from(u16::MAX) || !room.take(length) {
                *dropped += 1;
                return None;
            }
            let (since, told) = own.entry(client_id).or_insert((now, *round));
            *told = *round;
            Some((client_id, now.since(*since), state))
        });
        let messages = pack(&head, states);
        self.own.retain(|_, (_, told)| *told == self.round);
        let subject = self.name.saved_subject(number);
        let publish = |message| Command::Publish { subject: subject.clone(), payload: Bytes::from(message) };
        messages.into_iter().map(publish).collect()
    }

    /// A player of the client has just come to this server. It may have been here before.
    pub(crate) fn begin(&mut self, client_id: u64) {
        self.own.remove(&client_id);
    }

    /// Takes a message. False if it makes no sense, or its sender may not tell it.
    pub(crate) fn hear(&mut self, now: Time, message: &Message, roster: &Roster) -> bool {
        let Some(number) = self.name.saved_number(&message.subject) else { return false };
        let Some((fence, round, states)) = read(&message.payload) else { return false };
        if !roster.is_from(number, message, fence) || usize::from(number) >= self.lives.len() {
            return false;
        }
        self.note_life(now, number, Life { fence, round, until: now.after(KEPT), is_heard: true });
        for (client_id, had, state) in states {
            let since = before(now, had);
            self.keep(now, client_id, Kept { number, fence, round, since, state: state.to_vec() });
        }
        if now.since(self.swept) >= EVERY {
            self.sweep(now);
        }
        true
    }

    /// Notes the newest round of a server's lease. The newest leases stay known.
    fn note_life(&mut self, now: Time, number: u16, life: Life) {
        let lives = &mut self.lives[usize::from(number)];
        if let Some(known) = lives.iter_mut().find(|known| known.fence == life.fence) {
            *known = life;
            return;
        }
        lives.retain(|life| now <= life.until);
        if lives.len() >= LIVES {
            let oldest = lives.iter().enumerate().min_by_key(|(_, life)| (life.is_heard, life.fence));
            let place = oldest.map_or(0, |(place, _)| place);
            lives.remove(place);
        }
        lives.push(life);
    }

    /// Keeps a state, unless another server has the player since a later time.
    fn keep(&mut self, now: Time, client_id: u64, mut kept: Kept) {
        let is_newer = self.by_client.get(&client_id).is_none_or(|known| {
            let is_later = match (known.number == kept.number, kept.fence.cmp(&known.fence)) {
                (false, _) => kept.since >= known.since,
                (true, Ordering::Equal) => !is_before(kept.round, known.round),
                (true, order) => order == Ordering::Greater,
            };
            is_later || !is_current(&self.lives, known, now)
        });
        if !is_newer {
            return;
        }
        if let Some(known) = self.forget(client_id)
            && (known.number, known.fence) == (kept.number, kept.fence)
        {
            // Messages take different times.
            kept.since = known.since.min(kept.since);
        }
        if self.room.take(kept.state.len()) {
            self.by_client.insert(client_id, kept);
        } else {
            self.dropped += 1;
        }
    }

    fn forget(&mut self, client_id: u64) -> Option<Kept> {
        let kept = self.by_client.remove(&client_id)?;
        self.room.give_back(kept.state.len());
        Some(kept)
    }

    /// Forgets what is out of date.
    fn sweep(&mut self, now: Time) {
        self.swept = now;
        let Saved { lives, by_client, room, .. } = self;
        by_client.retain(|_, kept| {
            let is_current = is_current(lives, kept, now);
            if !is_current {
                room.give_back(kept.state.len());
            }
            is_current
        });
    }

    /// The state of a client's player at a server whose lease has ended. It is given once.
    pub(crate) fn take(&mut self, now: Time, client_id: u64, roster: &Roster) -> Option<Vec<u8>> {
        let kept = self.by_client.get(&client_id)?;
        if !is_over(kept, roster) || !is_current(&self.lives, kept, now) {
            return None;
        }
        self.forget(client_id).map(|kept| kept.state)
    }

    /// All states that [`take`](Saved::take) would give, by server and round, but for those beyond so many bytes.
    pub(crate) fn lost(&self, now: Time, roster: &Roster, mut bytes_max: usize) -> Vec<Lost<'_>> {
        let mut rounds: BTreeMap<(u16, Fence, u32), States<'_>> = BTreeMap::new();
        for (&client_id, kept) in &self.by_client {
            if is_over(kept, roster) && is_current(&self.lives, kept, now) && kept.state.len() <= bytes_max {
                bytes_max -= kept.state.len();
                let states = rounds.entry((kept.number, kept.fence, kept.round)).or_default();
                states.push((client_id, now.since(kept.since), &kept.state));
            }
        }
        let of = |((number, fence, round), states)| {
            let life = life_of(&self.lives, number, fence);
            let (newest, until) = life.map_or((round, now), |life| (life.round, life.until));
            Lost { number, fence, newest, round, left: until.since(now), states }
        };
        rounds.into_iter().map(of).collect()
    }

    /// Keeps states that another server has kept, unless newer ones are known here. False if there can be no such states.
    pub(crate) fn keep_lost(&mut self, now: Time, lost: &Lost<'_>) -> bool {
        let &Lost { number, fence, newest, round, left, ref states } = lost;
        let Some(lives) = self.lives.get_mut(usize::from(number)) else { return false };
        if left > KEPT || newest.wrapping_sub(round) > 1 {
            return false;
        }
        let until = now.after(left);
        if let Some(life) = lives.iter_mut().find(|life| life.fence == fence) {
            // Messages may have been lost on the way to one of the two.
            if is_before(life.round, newest) {
                life.round = newest;
            }
            life.until = life.until.max(until);
        } else {
            lives.retain(|life| now <= life.until);
            if lives.len() >= LIVES {
                return true;
            }
            lives.push(Life { fence, round: newest, until, is_heard: false });
        }
        for &(client_id, had, state) in states {
            self.keep(now, client_id, Kept { number, fence, round, since: before(now, had), state: state.to_vec() });
        }
        true
    }
}

fn life_of(lives: &[Vec<Life>], number: u16, fence: Fence) -> Option<&Life> {
    lives[usize::from(number)].iter().find(|life| life.fence == fence)
}

/// Its server had this lease, and has it no longer.
fn is_over(kept: &Kept, roster: &Roster) -> bool {
    roster.fence(kept.number) != Some(kept.fence)
}

/// Whether its server may still have had the player when it was heard last, and that is not long ago.
fn is_current(lives: &[Vec<Life>], kept: &Kept, now: Time) -> bool {
    let life = life_of(lives, kept.number, kept.fence);
    life.is_some_and(|life| life.round.wrapping_sub(kept.round) <= 1 && now <= life.until)
}

/// Rounds are counted on after the largest number.
fn is_before(round: u32, other: u32) -> bool {
    (round.wrapping_sub(other) as i32) < 0
}

fn before(now: Time, duration: Duration) -> Time {
    Time(now.0.saturating_sub(duration.as_micros() as u64))
}

/// The client id, for how long its server has the player, and the bytes of the game, of each state.
pub(crate) type States<'a> = Vec<(u64, Duration, &'a [u8])>;

/// Messages that begin with `head`, with all states. At least one.
pub(crate) fn pack<S: AsRef<[u8]>>(head: &[u8], states: impl Iterator<Item = (u64, Duration, S)>) -> Vec<Vec<u8>> {
    let (mut messages, mut message) = (Vec::new(), head.to_vec());
    for (client_id, had, state) in states {
        let state = state.as_ref();
        debug_assert!(state.len() <= usize::from(u16::MAX), "longer ones are dropped before");
        if message.len() > head.len() && message.len() + STATE_HEAD_BYTES + state.len() > MESSAGE_BYTES {
            messages.push(std::mem::replace(&mut message, head.to_vec()));
        }
        message.extend_from_slice(&client_id.to_le_bytes());
        message.extend_from_slice(&u32::try_from(had.as_millis()).unwrap_or(u32::MAX).to_le_bytes());
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
        let had = u32::from_le_bytes(*head[8..].first_chunk()?);
        let length = u16::from_le_bytes(*head.last_chunk()?);
        let (state, after) = after.split_at_checked(length.into())?;
        states.push((client_id, Duration::from_millis(had.into()), state));
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
    use crate::room::{STATES_BYTES_MAX, STATES_MAX};

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
        let mut roster =
            Roster::new(WorldName::new("w").unwrap(), Division::new(3, 90, 3).unwrap(), SubscriptionId(1), WatchId(1));
        lease(&mut roster, SERVER.0, Some(SERVER.1));
        (silent(), silent(), roster)
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

    /// An end that has told and heard nothing.
    pub(crate) fn silent() -> Saved {
        Saved::new(WorldName::new("w").unwrap(), 3, SubscriptionId(9))
    }

    /// All messages that member 5 has told come, and are taken.
    pub(crate) fn hear(to: &mut Saved, roster: &Roster, ms: u64, told: Vec<Command>) {
        assert!(told.iter().all(|command| to.hear(at(ms), &message(5, command), roster)));
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
        hear(&mut to, &roster, 20, told);
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
        let anew = silent().tell(at(3_500), (1, Fence(8)), nobody());
        hear(&mut to, &roster, 3_500, anew);
        let mut state = |id| to.take(at(4_000), id, &roster);
        assert_eq!([1, 2, 3].map(&mut state), [None, Some(vec![2]), Some(vec![3])]);
    }

    /// It went from server 1 to server 2 before server 1 died.
    #[test]
    fn a_player_whom_a_living_server_has_is_not_given_as_a_dead_one_had_it() {
        let (mut from, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let mut second = silent();
        for (saved, server, state) in [(&mut from, SERVER, 7), (&mut second, (2, Fence(9)), 8)] {
            let told = saved.tell(at(10), server, [(1, [state; 4])].into_iter());
            hear(&mut to, &roster, 10, told);
        }
        lease(&mut roster, 1, None);
        assert_eq!(to.take(at(20), 1, &roster), None);
        lease(&mut roster, 2, None);
        assert_eq!(to.take(at(20), 1, &roster), Some(vec![8; 4]));
    }

    /// It went from server 1 to server 2, which dies before its next round. The last message of server 1 comes late.
    #[test]
    fn a_late_message_of_the_former_server_changes_nothing() {
        let (mut from, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let mut second = silent();
        let told = from.tell(at(0), SERVER, [(1, [6; 4])].into_iter());
        hear(&mut to, &roster, 0, told);
        let late = from.tell(at(1_000), SERVER, [(1, [7; 4])].into_iter());
        let told = second.tell(at(1_100), (2, Fence(9)), [(1, [8; 4])].into_iter());
        hear(&mut to, &roster, 1_100, told);
        hear(&mut to, &roster, 1_300, late);
        lease(&mut roster, 2, None);
        assert_eq!(to.take(at(1_400), 1, &roster), Some(vec![8; 4]));

        // It comes back to server 1, which has told a round without it.
        lease(&mut roster, 2, Some(Fence(10)));
        let told = second.tell(at(2_200), (2, Fence(10)), [(1, [9; 4])].into_iter());
        hear(&mut to, &roster, 2_200, told);
        for (ms, states) in [(2_000, vec![]), (3_000, vec![(1, [10; 4])])] {
            let told = from.tell(at(ms), SERVER, states.into_iter());
            hear(&mut to, &roster, ms + 300, told);
        }
        lease(&mut roster, 2, None);
        assert_eq!(to.take(at(3_400), 1, &roster), None, "a living server has it");
        lease(&mut roster, 1, None);
        assert_eq!(to.take(at(3_400), 1, &roster), Some(vec![10; 4]));
    }

    /// It went to server 2 and back between two rounds of server 1.
    #[test]
    fn a_player_who_is_back_within_a_second_is_the_living_servers() {
        let (mut from, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let mut second = silent();
        for (ms, state) in [(0, 1), (1_000, 3)] {
            let told = from.tell(at(ms), SERVER, [(1, [state; 4])].into_iter());
            hear(&mut to, &roster, ms, told);
            let told = second.tell(at(ms + 500), (2, Fence(9)), [(1, [2; 4])].into_iter().take(usize::from(ms == 0)));
            hear(&mut to, &roster, ms + 500, told);
            from.begin(1);
        }
        let told = from.tell(at(2_000), SERVER, [(1, [4; 4])].into_iter());
        hear(&mut to, &roster, 2_000, told);
        lease(&mut roster, 2, None);
        assert_eq!(to.take(at(2_100), 1, &roster), None);
        lease(&mut roster, 1, None);
        assert_eq!(to.take(at(2_100), 1, &roster), Some(vec![4; 4]));
    }

    #[test]
    fn the_earliest_news_of_a_stay_counts_and_a_state_out_of_date_gives_way() {
        let (_, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let told = |number: u16, fence: u64, round: u32, had_ms: u64| {
            let head = [&fence.to_le_bytes()[..], &round.to_le_bytes()].concat();
            let states = [(1, Duration::from_millis(had_ms), [number as u8; 4])];
            let subject = Subject::new(&format!("world.w.saved.{number}")).unwrap();
            let payload = pack(&head, states.into_iter()).remove(0).into();
            message(5, &Command::Publish { subject, payload })
        };
        // The second round of server 1 is slow: by it, the player would have come there after it came to server 2.
        assert!(to.hear(at(0), &told(1, 7, 1, 0), &roster));
        assert!(to.hear(at(1_700), &told(1, 7, 2, 1_000), &roster));
        assert!(to.hear(at(1_800), &told(2, 9, 1, 1_200), &roster));
        assert_eq!(to.by_client[&1].number, 2);
        // Server 1 says that it has had the player for longer: that counts only when server 2 has told two rounds without it.
        assert!(to.hear(at(2_000), &told(1, 7, 3, 2_000), &roster));
        assert_eq!(to.by_client[&1].number, 2);
        to.lives[2].iter_mut().for_each(|life| life.round = 3);
        assert!(to.hear(at(3_000), &told(1, 7, 4, 3_000), &roster));
        assert_eq!(to.by_client[&1].number, 1);
    }

    #[test]
    fn the_newest_round_of_a_lost_server_is_that_which_anybody_has_heard_and_heard_lives_stay() {
        let (mut from, mut to, mut roster) = world();
        let told = from.tell(at(0), SERVER, [(1, [7; 4])].into_iter());
        hear(&mut to, &roster, 0, told);
        let left = Duration::from_secs(20);
        let lost =
            |fence, round| Lost { number: 1, fence: Fence(fence), newest: round, round, left, states: Vec::new() };
        // Lives that others tell of give way first, whatever their numbers are.
        assert!((0..3).all(|number| to.keep_lost(at(10), &lost(100 + number, 1))));
        lease(&mut roster, 1, Some(Fence(50)));
        let anew = from.tell(at(2_000), (1, Fence(50)), nobody());
        hear(&mut to, &roster, 2_000, anew);
        assert!(to.lives[1].iter().any(|life| life.fence == SERVER.1));
        // This server has heard the first round only: the player is not in the last two.
        assert!(to.keep_lost(at(2_000), &lost(7, 3)));
        assert_eq!(to.take(at(2_010), 1, &roster), None);
    }

    /// Server 1 died with the player's state of before, and the player left server 2 in an orderly manner.
    #[test]
    fn a_player_that_has_left_its_last_server_is_not_given_as_a_former_one_had_it() {
        let (mut from, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let mut second = silent();
        let told = from.tell(at(0), SERVER, [(1, [7; 4])].into_iter());
        hear(&mut to, &roster, 0, told);
        lease(&mut roster, 1, None);
        for (ms, states) in [(400, vec![(1, [8; 4])]), (1_400, vec![]), (2_400, vec![])] {
            let told = second.tell(at(ms), (2, Fence(9)), states.into_iter());
            hear(&mut to, &roster, ms, told);
        }
        lease(&mut roster, 2, None);
        assert_eq!(to.take(at(2_500), 1, &roster), None);
    }

    /// Somebody who holds a lease tells of many lives of another server.
    #[test]
    fn lives_that_another_server_tells_of_do_not_drive_out_those_that_were_heard() {
        let (mut from, mut to, mut roster) = world();
        let told = from.tell(at(0), SERVER, [(1, [7; 4])].into_iter());
        hear(&mut to, &roster, 0, told);
        let lost = |fence, ms| Lost {
            number: 1,
            fence: Fence(fence),
            newest: 1,
            round: 1,
            left: Duration::from_millis(ms),
            states: vec![(2, Duration::ZERO, &[1; 4])],
        };
        assert!((0..100).all(|number| to.keep_lost(at(10), &lost(1_000 + number, 500))));
        assert_eq!(to.lives[1].len(), LIVES);
        lease(&mut roster, 1, None);
        assert_eq!(to.take(at(20), 1, &roster), Some(vec![7; 4]));
        // Those of before are over, so there is room for another one.
        assert!(to.keep_lost(at(600), &lost(2_000, 500)) && to.take(at(700), 2, &roster).is_some());
        assert!(!to.keep_lost(at(600), &Lost { newest: 3, ..lost(2_001, 500) }), "it is out of date");
    }

    #[test]
    fn the_memory_of_old_states_is_given_back() {
        let (mut from, mut to, mut roster) = world();
        lease(&mut roster, 2, Some(Fence(9)));
        let told = from.tell(at(0), SERVER, (0..100).map(|id| (id, [1; 50])));
        hear(&mut to, &roster, 0, told);
        assert_eq!((to.by_client.len(), to.room.states, to.room.bytes), (100, 100, 5_000));
        let mut second = silent();
        for (ms, left) in [(29_000, 100), (31_000, 0)] {
            let told = second.tell(at(ms), (2, Fence(9)), nobody());
            hear(&mut to, &roster, ms, told);
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
        let mut second = silent();
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
