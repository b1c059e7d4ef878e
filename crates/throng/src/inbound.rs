//! Incoming datagrams: the door for unknown addresses, and the table of connections.
//!
//! Datagrams of connections are handled at once. Those of unknown addresses wait until all received datagrams were
//! read, so a flood of join requests does not delay a player's input. The number of waiting datagrams and of
//! decryptions per second is limited; further ones are dropped and counted, and honest clients ask again after 100 ms.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

use throng_link::netcode::{
    Accepted, Admission, Denial, DropReason, Now, Outcome, Seats, ServerHandshake, Strangers, is_response, move_seat,
    plain_address,
};
use throng_link::session::{Session, SessionOptions};
use throng_wire::{ConnectionId, Tick, Time};

use crate::event::ServerEvent;
use crate::intake::{Intake, Moment, Shares};
use crate::outbound::{Helpers, work_on};
use crate::peer::Peer;
use crate::replication::Replication;

/// Most denials that one call of receive reports to the game.
const DENIALS_TOLD_MAX: usize = 64;

/// Datagrams of connections that are kept before they are opened, for one thread, and for several. Those of a connection are
/// always the same thread's, and neighbours tend to send one after the other: among few datagrams, one thread would have all.
const KEPT_MAX: [usize; 2] = [32, 16_384];

/// Bytes of datagrams that are kept, whatever their number: anybody can send long ones that name a connection's address.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Fewer datagrams than this are opened by the server's own thread alone.
const SHARED_MIN: usize = 32;

/// The connections, by index, by address and by client.
pub(crate) struct Peers {
    pub(crate) slots: Vec<Option<Box<Peer>>>,
    by_address: HashMap<AddressKey, u32>,
    /// Possible new addresses of connections: at most one for each.
    by_candidate: HashMap<AddressKey, u32>,
    by_client: HashMap<u64, u32>,
    free: Vec<u32>,
    seats_used: usize,
}

impl Peers {
    pub(crate) fn new(max_clients: u32) -> Peers {
        Peers {
            slots: (0..max_clients).map(|_| None).collect(),
            by_address: HashMap::new(),
            by_candidate: HashMap::new(),
            by_client: HashMap::new(),
            free: (0..max_clients).rev().collect(),
            seats_used: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Every connection has had an index below this.
    pub(crate) fn seats_used(&self) -> usize {
        self.seats_used
    }

    /// By address, by candidate, by client.
    pub(crate) fn table_lens(&self) -> [usize; 3] {
        [self.by_address.len(), self.by_candidate.len(), self.by_client.len()]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().flatten().map(|peer| &**peer)
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

    /// The connection that a table of addresses names.
    fn named(&mut self, index: u32) -> &mut Peer {
        self.slots[index as usize].as_mut().expect("the address table names connections only")
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<Box<Peer>> {
        let peer = self.slots[index].take()?;
        let index = index as u32;
        forget(&mut self.by_address, peer.address, index);
        if let Some(candidate) = peer.candidate {
            forget(&mut self.by_candidate, candidate.address, index);
        }
        if self.by_client.get(&peer.client_id) == Some(&index) {
            self.by_client.remove(&peer.client_id);
        }
        self.free.push(index);
        Some(peer)
    }

    fn insert(&mut self, peer: Peer) {
        let index = self.free.pop().expect("the door was told of a free seat");
        debug_assert_eq!(index, peer.id.index);
        self.seats_used = self.seats_used.max(index as usize + 1);
        // An address that belonged to another connection has been proved by this one since.
        self.by_address.insert(AddressKey::new(peer.address), index);
        self.by_client.insert(peer.client_id, index);
        self.slots[index as usize] = Some(Box::new(peer));
    }

    fn seats(&self) -> (Option<u32>, u32) {
        (self.free.last().copied(), self.slots.len() as u32)
    }

    fn of_client(&self, client_id: u64) -> Option<&Peer> {
        let index = *self.by_client.get(&client_id)?;
        self.slots[index as usize].as_deref()
    }
}

/// An address as the key of a table, without the fields of IPv6 that netcode does not compare. Of IPv4 it is hashed as one
/// number, in one step.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AddressKey(SocketAddr);

impl AddressKey {
    fn new(address: SocketAddr) -> AddressKey {
        AddressKey(plain_address(address))
    }
}

impl Hash for AddressKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self.0 {
            SocketAddr::V4(address) => {
                hasher.write_u64(u64::from(address.ip().to_bits()) << 16 | u64::from(address.port()));
            }
            SocketAddr::V6(address) => {
                hasher.write_u128(address.ip().to_bits());
                hasher.write_u16(address.port());
            }
        }
    }
}

/// Removes an address, unless it has another connection by now.
fn forget(table: &mut HashMap<AddressKey, u32>, address: SocketAddr, index: u32) {
    if table.get(&AddressKey::new(address)) == Some(&index) {
        table.remove(&AddressKey::new(address));
    }
}

/// The layer between the driver and the connections.
pub(crate) struct Inbound {
    /// One of the replies is a packet of a connection.
    has_answered: bool,
    pub(crate) door: ServerHandshake,
    session_options: Arc<SessionOptions>,
    client_packets_per_s: u32,
    /// One for each thread.
    pub(crate) intakes: Vec<Intake>,
    shares: Shares,
    /// Datagrams that wait in the intakes, and their bytes.
    kept: usize,
    kept_bytes: usize,
    strangers: Strangers,
    /// To strangers, and acknowledgements that cannot wait for the tick.
    replies: Vec<(SocketAddr, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// Connections whose clients have come back with a newer token, for an event to the game.
    #[expect(clippy::vec_box, reason = "a peer lives in a box; to move it out and back in would copy it twice")]
    pub(crate) replaced: Vec<Box<Peer>>,
    /// Clients that were refused, for an event to the game.
    pub(crate) denied: Vec<ServerEvent>,
    pub(crate) denials_untold: u64,
    /// The last tick that was sent to the clients.
    pub(crate) sent_tick: Tick,
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
}

impl Inbound {
    pub(crate) fn new(
        door: ServerHandshake,
        session_options: Arc<SessionOptions>,
        client_packets_per_s: u32,
        threads: usize,
    ) -> Inbound {
        Inbound {
            has_answered: false,
            session_options,
            client_packets_per_s,
            intakes: (0..threads).map(|_| Intake::default()).collect(),
            shares: Shares::new(0, threads),
            kept: 0,
            kept_bytes: 0,
            strangers: door.queue(),
            door,
            replies: Vec::new(),
            spare: Vec::new(),
            replaced: Vec::new(),
            denied: Vec::new(),
            denials_untold: 0,
            sent_tick: Tick(0),
            datagrams: 0,
            bytes: 0,
        }
    }

    /// Datagrams that come from now on are shared out like this. Nothing waits.
    pub(crate) fn begin(&mut self, shares: Shares) {
        self.shares = shares;
    }

    /// Keeps a datagram of a connection for [`settle`](Self::settle), which is called when there are enough of them, or one
    /// of a stranger for [`serve_strangers`](Self::serve_strangers).
    pub(crate) fn handle(
        &mut self,
        (arrived, from): (Time, SocketAddr),
        datagram: &[u8],
        (peers, moment): (&mut Peers, Moment),
        helpers: Option<&Helpers<'_>>,
    ) {
        self.datagrams += 1;
        self.bytes += datagram.len() as u64;
        match peers.by_address.get(&AddressKey::new(from)) {
            Some(&peer) if !self.is_for_door(from, datagram, peers) => {
                self.intakes[self.shares.thread_of(peer as usize)].keep(arrived, peer, datagram);
                self.kept += 1;
                self.kept_bytes += datagram.len();
                debug_assert!(
                    self.kept_bytes < KEPT_BYTES_MAX + usize::from(u16::MAX),
                    "one datagram above the bound at most"
                );
                if self.kept >= KEPT_MAX[usize::from(helpers.is_some())] || self.kept_bytes >= KEPT_BYTES_MAX {
                    self.settle(peers, moment, helpers);
                }
            }
            _ => {
                if let Err(reason) = self.strangers.keep(from, datagram) {
                    self.door.counters_mut().drop(reason);
                }
            }
        }
    }

    /// Whether one of the replies is a packet of a connection.
    pub(crate) fn take_answered(&mut self) -> bool {
        std::mem::take(&mut self.has_answered)
    }

    /// Opens the datagrams that wait, and hands their packets to the connections, those of each in the order in which they
    /// came.
    pub(crate) fn settle(&mut self, peers: &mut Peers, moment: Moment, helpers: Option<&Helpers<'_>>) {
        let shares = self.shares.divide(&mut peers.slots).zip(&mut self.intakes).filter(|(_, intake)| intake.len() > 0);
        let helpers = helpers.filter(|_| self.kept >= SHARED_MIN);
        work_on(shares, helpers, |((base, peers), intake)| intake.settle_datagrams(moment, base, peers));
        (self.kept, self.kept_bytes) = (0, 0);
        for thread in 0..self.intakes.len() {
            self.take_up(thread, peers);
        }
    }

    /// Takes what a thread has found out from datagrams.
    fn take_up(&mut self, thread: usize, peers: &Peers) {
        let intake = &mut self.intakes[thread];
        for reason in intake.dropped.drain(..) {
            self.door.counters_mut().drop(reason);
        }
        for (index, answer) in intake.answers.drain(..) {
            if let Some(peer) = &peers.slots[index as usize] {
                self.has_answered = true;
                self.replies.push((peer.address, answer));
            }
        }
    }

    /// Whether a datagram from a connected address may be that of a new client or of a connection that moves.
    fn is_for_door(&self, from: SocketAddr, datagram: &[u8], peers: &Peers) -> bool {
        datagram.first() == Some(&0)
            || move_seat(datagram).is_some()
            || (is_response(datagram)
                && (peers.by_candidate.contains_key(&AddressKey::new(from)) || self.door.is_pending(from)))
    }

    /// Looks at the datagrams of strangers.
    pub(crate) fn serve_strangers(
        &mut self,
        now: Now,
        (peers, moment): (&mut Peers, Moment),
        replication: &mut impl Replication,
    ) {
        let mut strangers = std::mem::take(&mut self.strangers);
        while let Some((from, datagram)) = strangers.take() {
            self.handle_stranger(now, (from, datagram), (peers, moment), replication);
        }
        self.strangers = strangers;
    }

    fn handle_stranger(
        &mut self,
        now: Now,
        (from, datagram): (SocketAddr, &mut [u8]),
        (peers, moment): (&mut Peers, Moment),
        replication: &mut impl Replication,
    ) {
        if let Some(seat) = move_seat(datagram) {
            return self.handle_move(now.time, from, seat, datagram, peers);
        }
        if !is_response(datagram) {
            return self.knock(now, from, datagram, peers, replication);
        }
        // An attempt to open a packet with the wrong key destroys it, and up to three connections may be meant.
        let original = datagram.to_vec();
        if peers.by_candidate.contains_key(&AddressKey::new(from)) && self.finish_move(now.time, from, datagram, peers)
        {
            return;
        }
        datagram.copy_from_slice(&original);
        match peers.by_address.get(&AddressKey::new(from)) {
            Some(&index) if !self.door.is_pending(from) => {
                self.settle_one(index, datagram, peers, moment);
            }
            _ => self.knock(now, from, datagram, peers, replication),
        }
    }

    /// Opens a datagram of a connection at once.
    fn settle_one(&mut self, index: u32, datagram: &mut [u8], peers: &mut Peers, moment: Moment) {
        let peer = peers.named(index);
        match peer.open(moment.now, datagram) {
            Ok(packet) => self.intakes[0].settle_packet(moment, moment.now, packet, peer),
            Err(reason) => self.door.counters_mut().drop(reason),
        }
        self.take_up(0, peers);
    }

    /// A request, a response, or noise.
    fn knock(
        &mut self,
        now: Now,
        from: SocketAddr,
        datagram: &mut [u8],
        peers: &mut Peers,
        replication: &mut impl Replication,
    ) {
        let mut reply = self.spare.pop().unwrap_or_default();
        let (free, max_clients) = peers.seats();
        let seats = Seats {
            free,
            max_clients,
            held: &|client_id| peers.of_client(client_id).map(Peer::held),
            admission: &|| Admission::Granted,
        };
        match self.door.handle(now, from, datagram, &seats, &mut reply) {
            Outcome::Accept(accepted) => self.accept(now.time, from, *accepted, peers, replication),
            Outcome::Reply => {}
            Outcome::Denied { client_id, denial } => self.note_denial(client_id, denial),
            Outcome::Ignored(_) => return self.spare.push(reply),
        }
        self.replies.push((from, reply));
    }

    /// Old tokens are not reported: a request that was duplicated in the network, or recorded, has one.
    fn note_denial(&mut self, client_id: u64, denial: Denial) {
        if matches!(denial, Denial::TokenSpent | Denial::TokenExpired) {
            return;
        }
        match self.denied.len() < DENIALS_TOLD_MAX {
            true => self.denied.push(ServerEvent::Denied { client_id, denial }),
            false => self.denials_untold += 1,
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
        let seat = accepted.client_index as usize;
        if accepted.is_replacement
            && let Some(old) = peers.remove(seat)
        {
            replication.disconnect(old.id);
            self.replaced.push(old);
        }
        let session = Session::new(Arc::clone(&self.session_options), now).expect("options were checked at the start");
        let id = replication.connect(seat);
        peers.insert(Peer::new(id, from, accepted, session, (self.client_packets_per_s, now)));
    }

    /// A connection may have moved to this address: asks it to prove that.
    fn handle_move(&mut self, now: Time, from: SocketAddr, seat: u32, datagram: &mut [u8], peers: &mut Peers) {
        let Some(peer) = peers.slots.get_mut(seat as usize).and_then(Option::as_mut) else {
            return self.door.counters_mut().drop(DropReason::MoveNotOurs);
        };
        let before = peer.candidate.map(|candidate| candidate.address);
        let mut reply = self.spare.pop().unwrap_or_default();
        if self.door.handle_move(now, from, datagram, &mut peer.movable(), &mut reply).is_err() {
            return self.spare.push(reply);
        }
        if let Some(before) = before {
            forget(&mut peers.by_candidate, before, seat);
        }
        peers.by_candidate.insert(AddressKey::new(from), seat);
        self.replies.push((from, reply));
    }

    /// Checks the answer to a challenge. Returns whether a connection has proved its new address with it.
    fn finish_move(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8], peers: &mut Peers) -> bool {
        let Some(&index) = peers.by_candidate.get(&AddressKey::new(from)) else { return false };
        let Some(peer) = &mut peers.slots[index as usize] else {
            peers.by_candidate.remove(&AddressKey::new(from));
            return false;
        };
        let Ok(round_trip) = self.door.handle_move_response(now, from, datagram, &mut peer.movable()) else {
            return false;
        };
        peers.by_candidate.remove(&AddressKey::new(from));
        if peer.address != from {
            forget(&mut peers.by_address, peer.address, index);
            peers.by_address.insert(AddressKey::new(from), index);
            peer.address = from;
            peer.session.on_new_path(now, Some(round_trip));
        }
        true
    }

    /// The replies to strangers and the early acknowledgements, to be sent now.
    pub(crate) fn drain_replies(&mut self, mut send: impl FnMut(SocketAddr, &[u8])) {
        for (to, mut reply) in self.replies.drain(..) {
            send(to, &reply);
            reply.clear();
            self.spare.push(reply);
        }
        self.spare.truncate(64);
    }
}
