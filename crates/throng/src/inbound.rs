//! Incoming datagrams: the door for unknown addresses, and the table of connections.
//!
//! Datagrams of connections are handled at once. Those of unknown addresses wait until all received datagrams were
//! read, so a flood of join requests does not delay a player's input. The number of waiting datagrams and of
//! decryptions per second is limited; further ones are dropped and counted, and honest clients ask again after 100 ms.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng_link::netcode::{
    Accepted, Admission, Denial, Door, DropReason, Held, House, Movable, Now, ServerHandshake, Welcome,
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

/// The connections, by index and by client. The [`Door`] knows them by address.
pub(crate) struct Peers {
    pub(crate) slots: Vec<Option<Box<Peer>>>,
    by_client: HashMap<u64, u32>,
    free: Vec<u32>,
    seats_used: usize,
}

impl Peers {
    pub(crate) fn new(max_clients: u32) -> Peers {
        Peers {
            slots: (0..max_clients).map(|_| None).collect(),
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

    /// Number of clients in the table.
    pub(crate) fn clients_len(&self) -> usize {
        self.by_client.len()
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

    /// Takes a connection out. The door has to [forget](Door::forget) it.
    pub(crate) fn remove(&mut self, index: usize) -> Option<Box<Peer>> {
        let peer = self.slots[index].take()?;
        let index = index as u32;
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

/// The layer between the driver and the connections.
pub(crate) struct Inbound {
    /// One of the replies is a packet of a connection.
    has_answered: bool,
    /// The tables of addresses hold indices of connections.
    pub(crate) door: Door<u32>,
    session_options: Arc<SessionOptions>,
    client_packets_per_s: u32,
    /// One for each thread.
    pub(crate) intakes: Vec<Intake>,
    shares: Shares,
    /// Datagrams that wait in the intakes, and their bytes.
    kept: usize,
    kept_bytes: usize,
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
            door: Door::new(door),
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
        match self.door.owner_of(from, datagram) {
            Some(peer) => {
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
            None => self.door.keep(from, datagram),
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

    /// Looks at the datagrams of strangers.
    pub(crate) fn serve_strangers(
        &mut self,
        now: Now,
        (peers, moment): (&mut Peers, Moment),
        replication: &mut impl Replication,
    ) {
        let mut household = Household {
            moment,
            peers,
            replication,
            intake: &mut self.intakes[0],
            session_options: &self.session_options,
            client_packets_per_s: self.client_packets_per_s,
            replies: &mut self.replies,
            spare: &mut self.spare,
            replaced: &mut self.replaced,
            denied: &mut self.denied,
            denials_untold: &mut self.denials_untold,
        };
        self.door.serve(now, usize::MAX, &mut household);
        self.take_up(0, peers);
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

/// The server, as the door needs it to let strangers in.
struct Household<'a, R> {
    moment: Moment,
    peers: &'a mut Peers,
    replication: &'a mut R,
    intake: &'a mut Intake,
    session_options: &'a Arc<SessionOptions>,
    client_packets_per_s: u32,
    replies: &'a mut Vec<(SocketAddr, Vec<u8>)>,
    spare: &'a mut Vec<Vec<u8>>,
    #[expect(clippy::vec_box, reason = "a peer lives in a box; to move it out and back in would copy it twice")]
    replaced: &'a mut Vec<Box<Peer>>,
    denied: &'a mut Vec<ServerEvent>,
    denials_untold: &'a mut u64,
}

impl<R: Replication> House for Household<'_, R> {
    type Id = u32;

    fn in_seat(&self, seat: u32) -> Option<u32> {
        self.peers.slots.get(seat as usize)?.as_ref().map(|_| seat)
    }

    fn seats(&self) -> (Option<u32>, u32) {
        self.peers.seats()
    }

    fn held(&self, client_id: u64) -> Option<Held> {
        self.peers.of_client(client_id).map(Peer::held)
    }

    fn admit(&self, _from: SocketAddr) -> Admission {
        Admission::Granted
    }

    fn movable(&mut self, index: u32) -> Option<Movable<'_>> {
        self.peers.slots.get_mut(index as usize)?.as_mut().map(|peer| peer.movable())
    }

    fn welcome(
        &mut self,
        now: Time,
        from: SocketAddr,
        accepted: Accepted,
        _former: Option<u32>,
    ) -> Option<Welcome<u32>> {
        let seat = accepted.client_index as usize;
        let mut gone = None;
        if accepted.is_replacement
            && let Some(old) = self.peers.remove(seat)
        {
            gone = Some((old.id.index, old.address));
            self.replication.disconnect(old.id);
            self.replaced.push(old);
        }
        let options = Arc::clone(self.session_options);
        let session = Session::new(options, now).expect("options were checked at the start");
        let id = self.replication.connect(seat);
        self.peers.insert(Peer::new(id, from, accepted, session, (self.client_packets_per_s, now)));
        Some(Welcome { id: id.index, gone })
    }

    /// Old tokens are not reported: a request that was duplicated in the network, or recorded, has one.
    fn denied(&mut self, client_id: u64, denial: Denial) {
        if matches!(denial, Denial::TokenSpent | Denial::TokenExpired) {
            return;
        }
        match self.denied.len() < DENIALS_TOLD_MAX {
            true => self.denied.push(ServerEvent::Denied { client_id, denial }),
            false => *self.denials_untold += 1,
        }
    }

    fn moved(&mut self, now: Time, index: u32, to: SocketAddr, round_trip: Duration) {
        if let Some(peer) = self.peers.slots[index as usize].as_mut().filter(|peer| peer.address != to) {
            peer.address = to;
            peer.session.on_new_path(now, Some(round_trip));
        }
    }

    fn hear(&mut self, index: u32, datagram: &mut [u8]) -> Option<Result<(), DropReason>> {
        let peer = self.peers.slots[index as usize].as_mut()?;
        let opened = peer.open(self.moment.now, datagram);
        Some(opened.map(|packet| self.intake.settle_packet(self.moment, self.moment.now, packet, peer)))
    }

    fn answer(&mut self, to: SocketAddr, datagram: &mut Vec<u8>) {
        let empty = self.spare.pop().unwrap_or_default();
        self.replies.push((to, std::mem::replace(datagram, empty)));
    }
}
