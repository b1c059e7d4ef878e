//! The clients of a door: by number, by seat and by the number in their token. The link's own
//! [`Door`](throng_link::netcode::Door) knows them by address.

use std::collections::HashMap;

use throng_link::netcode::Held;

use super::super::datagrams::PeerId;
use super::peer::{Peer, SEATS_MAX};

/// All of them. Hashed with the standard library's keyed hash: peers choose some of these numbers.
#[derive(Default)]
pub(super) struct Peers {
    peers: HashMap<PeerId, Box<Peer>>,
    by_seat: HashMap<u32, PeerId>,
    by_client: HashMap<u64, PeerId>,
    free_seats: Vec<u32>,
    /// Seats that were given out so far.
    seats: u32,
    /// Numbers that were given out so far.
    ids: u64,
}

impl Peers {
    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(&id).map(|peer| &mut **peer)
    }

    /// Takes a peer out to be served by a thread. It keeps its seat, and has to be given [back](Self::give_back).
    pub(super) fn lend(&mut self, id: PeerId) -> Option<Box<Peer>> {
        self.peers.remove(&id)
    }

    pub(super) fn give_back(&mut self, id: PeerId, peer: Box<Peer>) {
        self.peers.insert(id, peer);
    }

    /// The connection with this seat.
    pub(super) fn in_seat(&self, seat: u32) -> Option<PeerId> {
        self.by_seat.get(&seat).copied()
    }

    /// The seat of a client that is connected.
    pub(super) fn held(&self, client_id: u64) -> Option<Held> {
        self.peers.get(self.by_client.get(&client_id)?).map(|peer| peer.held())
    }

    /// A seat for a newcomer.
    pub(super) fn free_seat(&self) -> Option<u32> {
        self.free_seats.last().copied().or_else(|| (self.seats < SEATS_MAX).then_some(self.seats))
    }

    /// A number for a newcomer.
    pub(super) fn next_id(&mut self) -> PeerId {
        self.ids += 1;
        PeerId(self.ids)
    }

    /// Adds a newcomer, which has been told its seat. The older connection of the same client, if there is one: it has lost
    /// its seat, and ends.
    pub(super) fn insert(&mut self, id: PeerId, peer: Peer) -> Option<PeerId> {
        if self.by_seat.insert(peer.seat, id).is_none() {
            match self.free_seats.iter().rposition(|&seat| seat == peer.seat) {
                Some(index) => _ = self.free_seats.swap_remove(index),
                None => self.seats = self.seats.max(peer.seat.saturating_add(1)),
            }
        }
        let older = self.by_client.insert(peer.client_id, id);
        self.peers.insert(id, Box::new(peer));
        older
    }

    /// Takes one out. The door has to forget it.
    pub(super) fn remove(&mut self, id: PeerId) -> Option<Box<Peer>> {
        let peer = self.peers.remove(&id)?;
        if forget(&mut self.by_seat, &peer.seat, id) {
            self.free_seats.push(peer.seat);
        }
        forget(&mut self.by_client, &peer.client_id, id);
        Some(peer)
    }
}

/// Removes an entry, unless it belongs to another peer by now. Returns whether it was removed.
fn forget<K: std::hash::Hash + Eq>(table: &mut HashMap<K, PeerId>, key: &K, id: PeerId) -> bool {
    let is_its = table.get(key) == Some(&id);
    if is_its {
        table.remove(key);
    }
    is_its
}
