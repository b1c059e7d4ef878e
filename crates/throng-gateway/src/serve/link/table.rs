//! The clients of a door: by number, by address, by seat and by the number in their token.

use std::collections::HashMap;
use std::net::SocketAddr;

use throng_link::netcode::Held;

use super::super::datagrams::PeerId;
use super::peer::{Peer, SEATS_MAX};

/// All of them. Hashed with the standard library's keyed hash: peers choose their addresses.
#[derive(Default)]
pub(super) struct Peers {
    peers: HashMap<PeerId, Peer>,
    by_address: HashMap<SocketAddr, PeerId>,
    /// Addresses that connections may have moved to: one for each at most.
    by_candidate: HashMap<SocketAddr, PeerId>,
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
        self.peers.get_mut(&id)
    }

    /// The connection at this address.
    pub(super) fn at(&self, address: SocketAddr) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// The connection that may have moved to this address.
    pub(super) fn candidate_at(&self, address: SocketAddr) -> Option<PeerId> {
        self.by_candidate.get(&address).copied()
    }

    /// The connection with this seat.
    pub(super) fn in_seat(&self, seat: u32) -> Option<PeerId> {
        self.by_seat.get(&seat).copied()
    }

    /// The seat of a client that is connected.
    pub(super) fn held(&self, client_id: u64) -> Option<Held> {
        self.peers.get(self.by_client.get(&client_id)?).map(Peer::held)
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
        self.by_address.insert(peer.address, id);
        let older = self.by_client.insert(peer.client_id, id);
        self.peers.insert(id, peer);
        older
    }

    pub(super) fn remove(&mut self, id: PeerId) -> Option<Peer> {
        let peer = self.peers.remove(&id)?;
        forget(&mut self.by_address, &peer.address, id);
        if let Some(candidate) = peer.candidate {
            forget(&mut self.by_candidate, &candidate.address, id);
        }
        if forget(&mut self.by_seat, &peer.seat, id) {
            self.free_seats.push(peer.seat);
        }
        forget(&mut self.by_client, &peer.client_id, id);
        Some(peer)
    }

    /// A connection may be at another address than before: it was asked to prove it. `former` is where it may have been
    /// before that.
    pub(super) fn note_candidate(&mut self, id: PeerId, former: Option<SocketAddr>, address: SocketAddr) {
        if let Some(former) = former {
            forget(&mut self.by_candidate, &former, id);
        }
        self.by_candidate.insert(address, id);
    }

    /// A connection has proved that it is at `address`. Returns whether its address has changed.
    pub(super) fn arrive(&mut self, id: PeerId, address: SocketAddr) -> bool {
        forget(&mut self.by_candidate, &address, id);
        let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.address != address) else { return false };
        forget(&mut self.by_address, &peer.address, id);
        // The former connection of the address no longer has it.
        self.by_address.insert(address, id);
        peer.address = address;
        true
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
