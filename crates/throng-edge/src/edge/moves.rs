//! Players who move from one origin to another, as the edge sees it. The steps are drawn in `talk.rs`.

use std::time::Duration;

use rustc_hash::FxHashMap;
use throng::{ConnectionId, ObjectId, Tick, Time};

use super::{BATCHES_MAX, Copied, Edge, EdgeCounters, Link, Player};
use crate::talk::{
    Arrival, Former, GOES_ON, HasAnswer, LET_GO_ONLY, STATE_MAX, ToOrigin, Up, read_continues, read_leaves,
    split_object,
};

/// Messages of one client that are held back while it moves.
const MESSAGES_MAX: usize = 256;
/// A move that takes longer than this many ticks is the end of the client's connection: its origin has stopped half way.
const MOVE_TICKS: u32 = 300;
/// A client that has been at its new origin for so long, and has got no object there, is not on its way any longer. A silent origin
/// counts as lost before, after the 10 s of a usual token. One that has just started is closed for 10 s from when it reaches the store.
const ARRIVE_PATIENCE: Duration = Duration::from_secs(30);
/// A client joins the origin of its entry if the others have not said after so many ticks whether they have its player.
const SEEK_TICKS: u32 = 30;
/// Objects of which it is known that they go on, and as what, before they have come.
const CONTINUING_MAX: usize = 65_536;

/// How far a client is on its way to another origin.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// Its origin has it.
    #[default]
    Home,
    /// It has just come, and these origins have not said yet whether they have its player.
    Sought(Held, Search),
    /// It leaves its origin, which has all that came before.
    Held(Held),
    /// Its new origin was told of it; the objects of the former one are shown until the new one has some.
    Moving {
        /// The number of the former origin; `None` if that is gone.
        from: Option<usize>,
        /// When it was first seen to be on its way.
        since: Option<Time>,
    },
}

/// The origins that were asked for the player of a client, and their answers.
#[derive(Debug)]
pub(super) struct Search {
    entry: usize,
    /// Those that have not answered.
    asked: Vec<usize>,
    /// Those that do not have the player.
    without: Vec<usize>,
    /// Those that have let go of the player; to which other one, and whether nobody can deliver it there any more.
    let_go: Vec<(usize, usize, bool)>,
    /// One has the player.
    is_found: bool,
    /// All origins were asked.
    is_whole: bool,
}

impl Search {
    /// Takes an answer. Returns whether the origin has the player, and the search is over: the one of the entry is joined also without that.
    fn hear(&mut self, origin: usize, answer: HasAnswer) -> bool {
        let before = self.asked.len();
        self.asked.retain(|asked| *asked != origin);
        let is_asked = self.asked.len() < before;
        match answer {
            HasAnswer::Not if is_asked => self.without.push(origin),
            HasAnswer::Here if is_asked => self.is_found = true,
            // Also after the end of the search, in the same tick: it has to be told where the player is.
            HasAnswer::LetGo { to, edge_is_gone } if self.let_go.iter().all(|(known, ..)| *known != origin) => {
                self.let_go.push((origin, to.into(), edge_is_gone));
            }
            _ => {}
        }
        let is_over = is_asked && answer == HasAnswer::Here && origin != self.entry;
        if is_over {
            self.asked.clear();
        }
        is_over
    }

    /// The origin whose kept state the client goes on with: all have answered, none has the player, and the one to which it was on the way
    /// says that it did not come. Of two such origins one has an old state, so the client begins anew then.
    fn keeper(&self) -> Option<usize> {
        let mut lost = self.let_go.iter().filter(|(_, to, edge_is_gone)| *edge_is_gone && self.without.contains(to));
        let keeper = lost.next().map(|&(origin, ..)| origin);
        let is_sure = self.is_whole && self.asked.is_empty() && !self.is_found && lost.next().is_none();
        keeper.filter(|_| is_sure)
    }
}

/// The inputs and messages of a client whose origin has let go of it, or is not known yet.
#[derive(Debug)]
pub(super) struct Held {
    to: usize,
    since: Tick,
    inputs: Vec<(u32, Vec<u8>)>,
    messages: Vec<(u8, Vec<u8>)>,
}

impl Held {
    fn new(to: usize, since: Tick) -> Held {
        Held { to, since, inputs: Vec::new(), messages: Vec::new() }
    }

    /// False if there is no room.
    pub(super) fn input(&mut self, number: u32, bytes: &[u8]) -> bool {
        let has_room = self.inputs.len() < BATCHES_MAX;
        if has_room {
            self.inputs.push((number, bytes.to_vec()));
        }
        has_room
    }

    /// False if there is no room.
    pub(super) fn message(&mut self, lane: u8, bytes: &[u8]) -> bool {
        let has_room = self.messages.len() < MESSAGES_MAX;
        if has_room {
            self.messages.push((lane, bytes.to_vec()));
        }
        has_room
    }
}

impl Held {
    fn drop_all(self, counters: &mut EdgeCounters) {
        counters.inputs_dropped += self.inputs.len() as u64;
        counters.messages_dropped += self.messages.len() as u64;
    }

    /// All of it goes to the origin that has the client now, which knows the client already.
    fn pass_on(self, player: &mut Player, link: &mut Link) {
        let session = player.session;
        for (lane, body) in self.messages {
            link.say(ToOrigin { step: Up::Say as u8, session, lane, body, ..ToOrigin::default() });
        }
        for (number, bytes) in self.inputs {
            link.input(player, number, &bytes);
        }
    }
}

/// An object that goes on as one of another origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Continuing {
    former: Former,
    /// The number of its origin from now on.
    origin: usize,
    object: ObjectId,
    /// It is not waited for any longer then.
    until: Tick,
}

/// Objects that their servers have let go of, by number of the server and object: where each may go on, and until when.
pub(super) type Leaving = FxHashMap<(usize, ObjectId), (usize, Tick)>;

impl Edge {
    /// An origin lets go of a client. False if that makes no sense.
    pub(super) fn begin_move(&mut self, from: usize, connection: ConnectionId, body: &[u8]) -> bool {
        let Ok(to) = <[u8; 2]>::try_from(body).map(|bytes| usize::from(u16::from_le_bytes(bytes))) else {
            return false;
        };
        let since = self.server.current_tick();
        let has_home = to != from && self.links.get(to).is_some_and(Link::has_room);
        let Some(player) = self.players[connection.index as usize].as_mut() else { return false };
        // A client that has just come here may still be shown its former object.
        let can_go = match player.stage {
            Stage::Home => has_home,
            Stage::Moving { .. } => false,
            Stage::Held(_) | Stage::Sought(..) => return false,
        };
        let step = if can_go { Up::Free } else { Up::Stay };
        if can_go {
            player.stage = Stage::Held(Held::new(to, since));
        }
        // After all that the client has sent so far.
        self.links[from].say(ToOrigin { step: step as u8, session: player.session, ..ToOrigin::default() });
        true
    }

    /// The state of a client has left its origin: the next one gets it. False if that makes no sense.
    pub(super) fn move_on(&mut self, from: usize, connection: ConnectionId, body: &[u8]) -> bool {
        // A longer state would arrive without its end.
        let Some((object, state)) = split_object(body).filter(|(_, state)| state.len() <= STATE_MAX) else {
            return false;
        };
        let tick = self.server.current_tick();
        let Some(player) = self.players[connection.index as usize].as_mut() else { return false };
        let Stage::Held(held) = &mut player.stage else { return false };
        let held = std::mem::replace(held, Held::new(from, Tick(0)));
        player.stage = Stage::Home;
        let to = if self.links[held.to].is_live { held.to } else { from };
        if to == from {
            self.counters.returned += 1;
        } else {
            player.stage = Stage::Moving { from: Some(from), since: None };
        }
        player.origin = to;
        player.own.clear();
        player.waits_since = Some(tick);
        let former = Former { origin: from as u16, object };
        let token_ends_s = player.token_ends_s;
        let body = Arrival { user_data: &player.user_data, token_ends_s, former, state }.bytes();
        let (session, number) = (player.session, player.client_id);
        let link = &mut self.links[to];
        link.say(ToOrigin { step: Up::Arrive as u8, session, number, body, ..ToOrigin::default() });
        // The state that has arrived includes what the former origin has taken. So the next batch acknowledges all of it.
        link.owes_batch |= !player.sent.is_empty();
        player.sent.iter_mut().for_each(|(batch, _)| *batch = link.batch);
        held.pass_on(player, link);
        true
    }

    /// Asks all origins whether they have the player of a client that has just come, if there is one beside the origin of its entry.
    pub(super) fn seek(&mut self, session: u32, (client_id, token_ends_s): (u64, u64), entry: usize) -> Stage {
        if !self.links.iter().enumerate().any(|(number, link)| number != entry && link.is_live) {
            return Stage::Home;
        }
        let is_whole = self.links.iter().all(|link| link.is_live);
        let live = self.links.iter_mut().enumerate().filter(|(_, link)| link.is_live);
        let asked: Vec<usize> = live
            .map(|(number, link)| {
                let (step, body) = (Up::Seek as u8, token_ends_s.to_le_bytes().to_vec());
                link.say(ToOrigin { step, session, number: client_id, body, ..ToOrigin::default() });
                number
            })
            .collect();
        let search = Search { entry, asked, without: Vec::new(), let_go: Vec::new(), is_found: false, is_whole };
        Stage::Sought(Held::new(entry, self.server.current_tick()), search)
    }

    /// An origin says whether it has the player that is sought. False if that makes no sense.
    pub(super) fn hear_has(&mut self, origin: usize, connection: ConnectionId, body: &[u8]) -> bool {
        let Some(player) = self.players[connection.index as usize].as_mut() else { return false };
        let Some(answer) = HasAnswer::read(body) else { return false };
        // A late answer changes nothing for the client. An origin that keeps a state has to know that the player is at another one.
        if let Stage::Sought(held, search) = &mut player.stage {
            if search.hear(origin, answer) {
                held.to = origin;
            }
        } else if matches!(answer, HasAnswer::LetGo { .. }) && player.origin != origin {
            self.links[origin].tell_elsewhere(player.elsewhere(LET_GO_ONLY));
        }
        true
    }

    /// Clients of which it is known where their players are, or which have waited long enough, join there.
    pub(super) fn end_searches(&mut self) {
        let Edge { server, links, players, counters, options, .. } = self;
        let now = server.current_tick();
        for player in players.iter_mut().flatten() {
            let Stage::Sought(held, search) = &mut player.stage else { continue };
            if !search.asked.is_empty() && now.since(held.since) <= SEEK_TICKS {
                continue;
            }
            let mut held = std::mem::replace(held, Held::new(0, now));
            let keeper = search.keeper().filter(|&origin| links[origin].is_live && !(options.is_gone)(origin));
            held.to = keeper.unwrap_or(held.to);
            // The client is not to get a state that another origin has kept when it comes again.
            let let_go = std::mem::take(&mut search.let_go);
            (player.stage, player.origin) = (Stage::Home, held.to);
            for (origin, ..) in let_go {
                if origin != held.to && links[origin].is_live {
                    links[origin].tell_elsewhere(player.elsewhere(LET_GO_ONLY));
                }
            }
            let link = &mut links[held.to];
            if link.is_live {
                let lane = if keeper.is_some() { GOES_ON } else { 0 };
                link.say(ToOrigin { lane, ..player.join(now) });
                held.pass_on(player, link);
            } else {
                held.drop_all(counters);
            }
        }
    }

    /// The new origin has given an object to a client: the former one can forget it. A client that gets none in time is sent away, or joins
    /// another origin if the new one is gone (`leave_the_gone`). One that is sent away and comes again goes on with the state that the former
    /// origin still has, if that keeps players.
    pub(super) fn end_moves(&mut self, now: Time) {
        let Edge { server, links, players, options, counters, .. } = self;
        let tick = server.current_tick();
        let (mut late, mut unmet) = (Vec::new(), Vec::new());
        for player in players.iter_mut().flatten() {
            match &mut player.stage {
                &mut Stage::Moving { from, .. } if !player.own.is_empty() => {
                    player.stage = Stage::Home;
                    counters.moved += 1;
                    leave_former(links, player, from, true);
                }
                Stage::Moving { from, since } => {
                    if now.since(*since.get_or_insert(now)) <= ARRIVE_PATIENCE {
                        continue;
                    }
                    let from = *from;
                    if !(options.is_gone)(player.origin) {
                        player.stage = Stage::Home;
                        leave_former(links, player, from, false);
                        unmet.push(player.connection);
                        continue;
                    }
                    // It keeps the former origin as long as there is no other one.
                    let entry = (options.entry)(player.client_id, &player.user_data);
                    if entry != player.origin && links.get(entry).is_some_and(|link| link.is_live) {
                        player.stage = Stage::Home;
                        leave_former(links, player, from, true);
                    }
                }
                &mut Stage::Held(Held { since, .. }) if tick.since(since) > MOVE_TICKS => late.push(player.connection),
                _ => {}
            }
        }
        for connection in late {
            self.server.disconnect(connection, now, "the server did not hand you over in time");
        }
        for connection in unmet {
            self.server.disconnect(connection, now, "your next server gave you nothing in time");
        }
    }

    /// The next origin of a client ends it before it has given it anything: the former one may keep its state.
    pub(super) fn end_refused_move(&mut self, origin: usize, connection: ConnectionId) {
        let Edge { links, players, .. } = self;
        let Some(player) = players[connection.index as usize].as_mut().filter(|player| player.origin == origin) else {
            return;
        };
        let is_given = links[origin].awaited.iter().any(|(_, session)| *session == player.session);
        if let Stage::Moving { from, .. } = player.stage
            && !is_given
        {
            player.stage = Stage::Home;
            leave_former(links, player, from, false);
        }
    }

    /// An origin is gone: what was on the way from it and to it.
    pub(super) fn lose_moves(&mut self, gone: usize) {
        for player in self.players.iter_mut().flatten() {
            match std::mem::take(&mut player.stage) {
                Stage::Held(held) if player.origin == gone => held.drop_all(&mut self.counters),
                Stage::Moving { from, .. } if player.origin == gone => {
                    leave_former(&mut self.links, player, from, true)
                }
                // It has let go of the player, and has not heard that it has arrived.
                Stage::Moving { from: Some(from), since } if from == gone => {
                    self.links[from].tell_elsewhere(player.elsewhere(LET_GO_ONLY));
                    player.stage = Stage::Moving { from: None, since };
                }
                stage => player.stage = stage,
            }
        }
        self.continuing.retain(|continuing| continuing.origin != gone);
        self.leaving.retain(|&(from, _), &mut (to, _)| from != gone && to != gone);
    }

    /// An origin says where one of its objects may go on. False if that makes no sense.
    pub(super) fn hear_leaves(&mut self, origin: usize, body: &[u8]) -> bool {
        let Some((object, to)) = read_leaves(body) else { return false };
        let is_sound = usize::from(to) < self.links.len() && self.leaving.len() < CONTINUING_MAX;
        if is_sound {
            let until = self.server.current_tick().after(MOVE_TICKS);
            self.leaving.insert((origin, object), (to.into(), until));
        }
        is_sound
    }

    /// An origin says as what an object goes on. False if that makes no sense.
    pub(super) fn hear_continues(&mut self, origin: usize, body: &[u8]) -> bool {
        let Some((former, object)) = read_continues(body) else { return false };
        let is_sound = usize::from(former.origin) < self.links.len() && self.continuing.len() < CONTINUING_MAX;
        if is_sound {
            let until = self.server.current_tick().after(MOVE_TICKS);
            self.continuing.push(Continuing { former, origin, object, until });
        }
        is_sound
    }

    /// Objects that have come and are known to go on do so in the copy that clients have already.
    pub(super) fn continue_objects(&mut self) {
        let Edge { server, links, leaving, continuing, copied, options, .. } = self;
        let now = server.current_tick();
        leaving.retain(|_, &mut (_, until)| until.is_newer_than(now));
        continuing.retain(|&Continuing { former, origin, object, until }| {
            let shown = links[origin].client.replica().and_then(|replica| throng::Decoder::view(replica, object));
            let Some(kind) = shown.map(|shown| shown.kind) else { return until.is_newer_than(now) };
            let from = usize::from(former.origin);
            if leaving.get(&(from, former.object)).is_none_or(|&(to, _)| to != origin) {
                return until.is_newer_than(now);
            }
            leaving.remove(&(from, former.object));
            // An edge that has never shown the former one shows a new one.
            let Some(known) = links[from].mirror.give_up(former.object) else { return false };
            if known.kind != kind || !links[origin].mirror.adopt(object, known) {
                server.despawn(known.here);
            } else if options.tells_copies {
                copied.push_back(Copied { origin, there: object, here: known.here });
            }
            false
        });
    }
}

/// An origin can forget a client, or keep it for a while if it is not over.
pub(super) fn leave(link: &mut Link, player: &Player, is_over: bool) {
    if link.is_live {
        let (session, number) = (player.session, is_over.into());
        link.say(ToOrigin { step: Up::Leave as u8, session, number, ..ToOrigin::default() });
    }
}

/// The same for the former origin of a client on its way, if that is not gone.
pub(super) fn leave_former(links: &mut [Link], player: &Player, from: Option<usize>, is_over: bool) {
    if let Some(from) = from {
        leave(&mut links[from], player, is_over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(to: u16) -> HasAnswer {
        HasAnswer::LetGo { to, edge_is_gone: true }
    }

    /// The keeper after these answers, of origins 0 to 3 with the entry 3.
    fn keeper(answers: &[(usize, HasAnswer)]) -> Option<usize> {
        let (asked, is_whole) = ((0..4).collect(), true);
        let mut search = Search { entry: 3, asked, without: Vec::new(), let_go: Vec::new(), is_found: false, is_whole };
        for &(origin, answer) in answers {
            search.hear(origin, answer);
        }
        search.keeper()
    }

    #[test]
    fn a_kept_state_is_used_only_if_all_say_that_the_player_is_nowhere() {
        use HasAnswer::{Here, Not};
        let still_carried = HasAnswer::LetGo { to: 1, edge_is_gone: false };
        for turned in 0..4 {
            let of = |mut answers: [(usize, HasAnswer); 4]| {
                answers.rotate_left(turned);
                keeper(&answers)
            };
            assert_eq!(of([(0, gone(1)), (1, Not), (2, Not), (3, Not)]), Some(0));
            assert_eq!(of([(3, gone(1)), (1, Not), (2, Not), (0, Not)]), Some(3), "the one of the entry");
            assert_eq!(of([(0, gone(1)), (1, gone(2)), (2, Not), (3, Not)]), Some(1), "the last on the way");
            assert_eq!(of([(0, gone(1)), (1, Not), (2, gone(3)), (3, Not)]), None, "one of them is old");
            assert_eq!(of([(0, still_carried), (1, Not), (2, Not), (3, Not)]), None);
            assert_eq!(of([(0, gone(9)), (1, Not), (2, Not), (3, Not)]), None);
            for has in 1..4 {
                let answer = |origin| (origin, if origin == has { Here } else { Not });
                assert_eq!(of([(0, gone(1)), answer(1), answer(2), answer(3)]), None, "server {has} has it");
            }
        }
        assert_eq!(keeper(&[(0, gone(1)), (1, Not), (3, Not)]), None, "one has not answered");
        assert_eq!(
            keeper(&[(0, gone(1)), (0, Not), (1, Not), (2, Not), (2, Here), (3, Not)]),
            Some(0),
            "each answers once"
        );
        let asked = vec![0, 1, 3];
        let mut search =
            Search { entry: 3, asked, without: Vec::new(), let_go: Vec::new(), is_found: false, is_whole: false };
        for (origin, answer) in [(0, gone(1)), (1, Not), (3, Not)] {
            search.hear(origin, answer);
        }
        assert_eq!(search.keeper(), None, "one could not be asked");
    }

    #[test]
    fn another_server_than_that_of_the_entry_ends_the_search() {
        let (asked, is_whole) = ((0..4).collect(), true);
        let mut search = Search { entry: 3, asked, without: Vec::new(), let_go: Vec::new(), is_found: false, is_whole };
        assert!(!search.hear(3, HasAnswer::Here) && search.asked.len() == 3);
        assert!(search.hear(1, HasAnswer::Here) && search.asked.is_empty());
        for _ in 0..2 {
            assert!(!search.hear(0, gone(1)) && !search.hear(2, HasAnswer::Here), "they come too late");
        }
        assert_eq!((search.let_go, search.is_found), (vec![(0, 1, true)], true));
    }
}
