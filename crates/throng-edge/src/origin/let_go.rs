//! States of players whom a server has let go, until another server has them for certain: the edge that carries one may die on the way.
//!
//! A state is of use once the connection of its edge has ended here. Before that, the edge may still deliver it, and the player would
//! be there twice. It is of use for a short time only: the player may have arrived, and left for good, without anybody who could
//! say so here.

use rustc_hash::FxHashMap;
use throng::Tick;

use super::PlayerId;
use crate::room::Room;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct LetGo {
    by_client: FxHashMap<u64, Kept>,
    room: Room,
}

#[derive(Debug)]
struct Kept {
    player: PlayerId,
    /// It was on its way to this origin.
    to: u16,
    state: Vec<u8>,
    /// The edge of the player is gone, and the state is kept until then.
    until: Option<Tick>,
}

impl LetGo {
    /// The state of a player leaves for another server. False if there is no room to keep it.
    pub(crate) fn keep(&mut self, client_id: u64, (player, to): (PlayerId, u16), state: &[u8]) -> bool {
        self.forget(client_id);
        let has_room = self.room.take(state.len());
        if has_room {
            self.by_client.insert(client_id, Kept { player, to, state: state.to_vec(), until: None });
        }
        has_room
    }

    /// The edge that carries the state of this player has gone.
    pub(crate) fn lose_edge(&mut self, client_id: u64, player: PlayerId, until: Tick) {
        if let Some(kept) = self.by_client.get_mut(&client_id).filter(|kept| kept.player == player) {
            kept.until = Some(until);
        }
    }

    /// Another server has this player for certain, or it has left for good.
    pub(crate) fn end(&mut self, client_id: u64, player: PlayerId) {
        if self.by_client.get(&client_id).is_some_and(|kept| kept.player == player) {
            self.forget(client_id);
        }
    }

    /// A newer state of the client is known.
    pub(crate) fn forget(&mut self, client_id: u64) {
        self.remove(client_id);
    }

    fn remove(&mut self, client_id: u64) -> Option<Vec<u8>> {
        let kept = self.by_client.remove(&client_id)?;
        self.room.give_back(kept.state.len());
        Some(kept.state)
    }

    /// To which origin the player of a client was let go, and whether its edge has gone since.
    pub(crate) fn find(&self, client_id: u64) -> Option<(u16, bool)> {
        self.by_client.get(&client_id).map(|kept| (kept.to, kept.until.is_some()))
    }

    /// The state of a player whose edge has gone. It is given once.
    pub(crate) fn take(&mut self, client_id: u64) -> Option<Vec<u8>> {
        let (_, edge_is_gone) = self.find(client_id)?;
        if edge_is_gone { self.remove(client_id) } else { None }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_client.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_client.is_empty() && self.room == Room::default()
    }

    /// Forgets those whose time is over.
    pub(crate) fn sweep(&mut self, now: Tick) {
        let LetGo { by_client, room } = self;
        by_client.retain(|_, kept| {
            let stays = kept.until.is_none_or(|until| until.is_newer_than(now));
            if !stays {
                room.give_back(kept.state.len());
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use throng::ConnectionId;

    use super::*;
    use crate::room::STATES_MAX;

    fn player(session: u32) -> PlayerId {
        PlayerId { edge: ConnectionId { index: 3, generation: 1 }, session }
    }

    #[test]
    fn a_state_is_given_once_and_only_after_its_edge_has_gone() {
        let mut kept = LetGo::default();
        assert!(kept.keep(7, (player(1), 4), b"hero"));
        assert_eq!((kept.find(7), kept.take(7), kept.find(8)), (Some((4, false)), None, None));
        kept.lose_edge(7, player(2), Tick(50));
        assert_eq!(kept.find(7), Some((4, false)), "another player of the client had this edge");
        kept.lose_edge(7, player(1), Tick(50));
        assert_eq!(kept.find(7), Some((4, true)));
        kept.end(7, player(2));
        assert_eq!((kept.take(7).as_deref(), kept.take(7)), (Some(&b"hero"[..]), None));
        assert!(kept.is_empty());
    }

    #[test]
    fn a_state_goes_with_its_time_or_when_another_server_has_the_player() {
        let mut kept = LetGo::default();
        for client_id in 0..4 {
            assert!(kept.keep(client_id, (player(client_id as u32), 1), b"hero"));
        }
        kept.lose_edge(0, player(0), Tick(50));
        kept.lose_edge(1, player(1), Tick(51));
        kept.end(2, player(2));
        kept.sweep(Tick(50));
        let found: Vec<_> = (0..4).map(|client_id| kept.find(client_id)).collect();
        assert_eq!(found, [None, Some((1, true)), None, Some((1, false))], "the edge of the last one carries it still");
        assert_eq!((kept.room.states, kept.room.bytes), (2, 8));
        kept.forget(1);
        kept.forget(3);
        assert!(kept.is_empty());
    }

    #[test]
    fn states_have_room_up_to_64_mib() {
        let mut kept = LetGo::default();
        let state = vec![7; 1 << 20];
        let of = |client_id: u64| (player(client_id as u32), 1);
        assert!((0..64).all(|client_id| kept.keep(client_id, of(client_id), &state)));
        assert!(!kept.keep(64, of(64), b"x") && kept.keep(63, of(63), b"a shorter one"));
        assert!(kept.keep(64, of(64), b"x"));
        let mut kept = LetGo::default();
        assert!((0..STATES_MAX as u64).all(|client_id| kept.keep(client_id, of(client_id), b"")));
        assert!(!kept.keep(u64::MAX, of(1), b""));
    }
}
