//! Players who move from one origin to another, as the edge sees it. The steps are drawn in `talk.rs`.

use rustc_hash::FxHashMap;
use throng::{ConnectionId, ObjectId, Tick, Time};

use super::{BATCHES_MAX, Copied, Edge, EdgeCounters, Link, Player};
use crate::talk::{Arrival, Former, InputOf, ToOrigin, Up, push_input, read_continues, read_leaves, split_object};

/// Messages of one client that are held back while it moves.
const MESSAGES_MAX: usize = 256;
/// A move that takes longer than this many ticks is the end of the client's connection: its origin has stopped half way.
const MOVE_TICKS: u32 = 300;
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
    Sought(Held, Vec<usize>),
    /// It leaves its origin, which has all that came before.
    Held(Held),
    /// Its new origin was told of it; the objects of the former one are shown until the new one has some.
    Moving {
        /// The number of the former origin.
        from: usize,
    },
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
            player.sent.push_back((link.batch, number));
            push_input(&mut link.inputs, InputOf { session, number, bytes: &bytes });
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
        let Some((object, state)) = split_object(body) else { return false };
        let Some(player) = self.players[connection.index as usize].as_mut() else { return false };
        let Stage::Held(held) = &mut player.stage else { return false };
        let held = std::mem::replace(held, Held::new(from, Tick(0)));
        player.stage = Stage::Home;
        let to = if self.links[held.to].is_live { held.to } else { from };
        if to == from {
            self.counters.returned += 1;
        } else {
            player.stage = Stage::Moving { from };
        }
        player.origin = to;
        player.own.clear();
        player.waits_since = None;
        let former = Former { origin: from as u16, object };
        let body = Arrival { user_data: &player.user_data, former, state }.bytes();
        let (session, number) = (player.session, player.client_id);
        let link = &mut self.links[to];
        link.say(ToOrigin { step: Up::Arrive as u8, session, number, body, ..ToOrigin::default() });
        // The state that has arrived includes what the former origin has taken. So the next batch acknowledges all of it.
        link.owes_batch |= !player.sent.is_empty();
        player.sent.iter_mut().for_each(|(batch, _)| *batch = link.batch);
        held.pass_on(player, link);
        true
    }

    /// Asks all origins but the one of its entry whether they have the player of a client that has just come.
    pub(super) fn seek(&mut self, session: u32, client_id: u64, entry: usize) -> Stage {
        let others = self.links.iter_mut().enumerate().filter(|(number, link)| *number != entry && link.is_live);
        let asked: Vec<usize> = others
            .map(|(number, link)| {
                link.say(ToOrigin { step: Up::Seek as u8, session, number: client_id, ..ToOrigin::default() });
                number
            })
            .collect();
        if asked.is_empty() { Stage::Home } else { Stage::Sought(Held::new(entry, self.server.current_tick()), asked) }
    }

    /// An origin says whether it has the player that is sought. False if that makes no sense.
    pub(super) fn hear_has(&mut self, origin: usize, connection: ConnectionId, body: &[u8]) -> bool {
        let Some(player) = self.players[connection.index as usize].as_mut() else { return false };
        let &[has @ (0 | 1)] = body else { return false };
        // An answer that comes too late says nothing any more.
        if let Stage::Sought(held, asked) = &mut player.stage {
            let before = asked.len();
            asked.retain(|asked| *asked != origin);
            if has == 1 && asked.len() < before {
                held.to = origin;
                asked.clear();
            }
        }
        true
    }

    /// Clients of which it is known where their players are, or which have waited long enough, join there.
    pub(super) fn end_searches(&mut self) {
        let Edge { server, links, players, counters, .. } = self;
        let now = server.current_tick();
        for player in players.iter_mut().flatten() {
            let Stage::Sought(held, asked) = &mut player.stage else { continue };
            if !asked.is_empty() && now.since(held.since) <= SEEK_TICKS {
                continue;
            }
            let held = std::mem::replace(held, Held::new(0, now));
            (player.stage, player.origin) = (Stage::Home, held.to);
            let link = &mut links[held.to];
            if link.is_live {
                link.say(player.join(now));
                held.pass_on(player, link);
            } else {
                held.drop_all(counters);
            }
        }
    }

    /// The new origin has given an object to a client: the former one can forget it.
    pub(super) fn end_moves(&mut self, now: Time) {
        let (tick, mut late) = (self.server.current_tick(), Vec::new());
        for player in self.players.iter_mut().flatten() {
            match player.stage {
                Stage::Moving { from } if !player.own.is_empty() => {
                    player.stage = Stage::Home;
                    self.counters.moved += 1;
                    leave(&mut self.links[from], player, true);
                }
                Stage::Held(Held { since, .. }) if tick.since(since) > MOVE_TICKS => late.push(player.connection),
                _ => {}
            }
        }
        for connection in late {
            self.server.disconnect(connection, now, "the server did not hand you over in time");
        }
    }

    /// An origin is gone: what was on the way from it and to it.
    pub(super) fn lose_moves(&mut self, gone: usize) {
        for player in self.players.iter_mut().flatten() {
            match std::mem::take(&mut player.stage) {
                Stage::Held(held) if player.origin == gone => held.drop_all(&mut self.counters),
                Stage::Moving { from } if player.origin == gone => leave(&mut self.links[from], player, true),
                Stage::Moving { from } if from == gone => {}
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
