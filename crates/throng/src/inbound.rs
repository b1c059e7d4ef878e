//! What comes in: the door for strangers, and the table of those who passed it.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use throng_link::netcode::{Accepted, Now, Outcome, Seats, ServerHandshake};
use throng_link::session::{Session, SessionOptions};
use throng_wire::{ConnectionId, Time};

use crate::peer::Peer;
use crate::replication::Replication;

/// Replies to strangers in one call of receive; further ones are dropped, as the network would.
const REPLIES_MAX: usize = 4_096;

/// The connections, by index and by address.
pub(crate) struct Peers {
    pub(crate) slots: Vec<Option<Box<Peer>>>,
    by_address: HashMap<SocketAddr, u32>,
    client_ids: HashSet<u64>,
    free: Vec<u32>,
}

impl Peers {
    pub(crate) fn new(max_clients: u32) -> Peers {
        Peers {
            slots: (0..max_clients).map(|_| None).collect(),
            by_address: HashMap::new(),
            client_ids: HashSet::new(),
            free: (0..max_clients).rev().collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_address.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.slots.iter_mut().flatten().map(|peer| &mut **peer)
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Peer> {
        self.slots.get(id.index as usize)?.as_deref().filter(|peer| peer.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Peer> {
        self.slots.get_mut(id.index as usize)?.as_deref_mut().filter(|peer| peer.id == id)
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<Box<Peer>> {
        let peer = self.slots[index].take()?;
        self.by_address.remove(&peer.address);
        self.client_ids.remove(&peer.client_id);
        self.free.push(index as u32);
        Some(peer)
    }

    fn insert(&mut self, peer: Peer) {
        let index = self.free.pop().expect("the door was told of a free seat");
        debug_assert_eq!(index, peer.id.index);
        self.by_address.insert(peer.address, index);
        self.client_ids.insert(peer.client_id);
        self.slots[index as usize] = Some(Box::new(peer));
    }
}

/// What stands between the driver and the connections.
pub(crate) struct Inbound {
    pub(crate) door: ServerHandshake,
    session_options: Arc<SessionOptions>,
    replies: Vec<(SocketAddr, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// Strangers' datagrams that were not looked at because too many replies were waiting.
    pub(crate) replies_dropped: u64,
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
}

impl Inbound {
    pub(crate) fn new(door: ServerHandshake, session_options: Arc<SessionOptions>) -> Inbound {
        Inbound {
            door,
            session_options,
            replies: Vec::new(),
            spare: Vec::new(),
            replies_dropped: 0,
            datagrams: 0,
            bytes: 0,
        }
    }

    /// Hands a datagram to the connection or the door that it is for.
    pub(crate) fn handle(
        &mut self,
        now: Now,
        from: SocketAddr,
        datagram: &mut [u8],
        peers: &mut Peers,
        replication: &mut impl Replication,
    ) {
        self.datagrams += 1;
        self.bytes += datagram.len() as u64;
        if let Some(&index) = peers.by_address.get(&from) {
            let peer = peers.slots[index as usize].as_mut().expect("the address table names connections only");
            if let Err(error) = peer.handle(now.time, datagram) {
                self.door.counters_mut().drop(error);
            }
            return;
        }
        self.handle_stranger(now, from, datagram, peers, replication);
    }

    fn handle_stranger(
        &mut self,
        now: Now,
        from: SocketAddr,
        datagram: &mut [u8],
        peers: &mut Peers,
        replication: &mut impl Replication,
    ) {
        if self.replies.len() == REPLIES_MAX {
            self.replies_dropped += 1;
            return;
        }
        let mut reply = self.spare.pop().unwrap_or_default();
        let seats = Seats {
            free: peers.free.last().copied(),
            max_clients: peers.slots.len() as u32,
            is_connected: &|client_id| peers.client_ids.contains(&client_id),
        };
        match self.door.handle(now, from, datagram, &seats, &mut reply) {
            Outcome::Accept(accepted) => {
                self.accept(now.time, from, *accepted, peers, replication);
                self.replies.push((from, reply));
            }
            Outcome::Reply => self.replies.push((from, reply)),
            Outcome::Ignored(_) => self.spare.push(reply),
        }
    }

    fn accept(
        &mut self,
        now: Time,
        from: SocketAddr,
        accepted: Accepted,
        peers: &mut Peers,
        replication: &mut impl Replication,
    ) {
        let session = Session::new(Arc::clone(&self.session_options), now).expect("options were checked at the start");
        let id = replication.connect(accepted.client_index as usize);
        peers.insert(Peer::new(id, from, accepted, session, now));
    }

    /// The replies to strangers, to be sent now.
    pub(crate) fn drain_replies(&mut self, mut send: impl FnMut(SocketAddr, &[u8])) {
        for (to, mut reply) in self.replies.drain(..) {
            send(to, &reply);
            reply.clear();
            self.spare.push(reply);
        }
        self.spare.truncate(64);
    }
}
