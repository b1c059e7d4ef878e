//! Those who are not connected, and connections whose address has changed: served when connections have been. The link's
//! [`Door`](throng_link::netcode::Door) decides; this is what it needs of the gateway.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throng_link::netcode::{Accepted, Admission, Denial, DropReason, Held, House, Movable, Now, Welcome};
use throng_link::session::{Session, SessionOptions};
use throng_wire::Time;
use tokio::sync::mpsc::channel;

use super::super::counters::Reason;
use super::super::datagrams::{DatagramQueue, PeerId};
use super::super::door::Door;
use super::super::life::Pass;
use super::super::memory::{Holding, Part};
use super::super::wake::WakeList;
use super::agenda::Agenda;
use super::crew::Hand;
use super::movement::Movement;
use super::peer::{Peer, SEATS_MAX};
use super::table::Peers;
use super::{Post, serve};

/// Packets that wait between a session and its connection's task, in each direction.
const WAITING_PACKETS: usize = 16;
/// Strangers that are looked at before connections get another turn, for each of the threads for which datagrams are received:
/// as many as can come in a turn. Each costs a decryption, some 2 µs.
const STRANGERS_PER_TURN: usize = 64;

impl Post {
    pub(super) fn serve_strangers(&mut self) {
        let time = self.door.now();
        let now = Now { unix_s: unix_s(), time };
        let most = STRANGERS_PER_TURN * self.crew.len();
        let is_closing = *self.closing.borrow();
        let mut household = Household {
            door: &self.door,
            sessions: &self.sessions,
            wake: &self.wake,
            peers: &mut self.peers,
            agenda: &mut self.agenda,
            awake: &mut self.awake,
            stopped: &mut self.stopped,
            hand: self.crew.own(),
            entered: Cell::new(None),
            now: time,
            is_closing,
        };
        self.entrance.serve(now, most, &mut household);
    }
}

/// The gateway, as the door needs it to let strangers in.
struct Household<'a> {
    door: &'a Arc<Door>,
    sessions: &'a Arc<SessionOptions>,
    wake: &'a Arc<WakeList<PeerId>>,
    peers: &'a mut Peers,
    agenda: &'a mut Agenda,
    awake: &'a mut Vec<PeerId>,
    stopped: &'a mut HashSet<PeerId>,
    hand: &'a mut Hand,
    now: Time,
    /// The client that was just admitted.
    entered: Cell<Option<Pass>>,
    is_closing: bool,
}

impl House for Household<'_> {
    type Id = PeerId;

    fn is_open(&self) -> bool {
        !self.is_closing
    }

    fn in_seat(&self, seat: u32) -> Option<PeerId> {
        self.peers.in_seat(seat)
    }

    fn seats(&self) -> (Option<u32>, u32) {
        (self.peers.free_seat(), SEATS_MAX)
    }

    fn held(&self, client_id: u64) -> Option<Held> {
        self.peers.held(client_id)
    }

    fn admit(&self, from: SocketAddr) -> Admission {
        match self.door.admit(from) {
            Ok(pass) => {
                self.entered.set(Some(pass));
                Admission::Granted
            }
            Err(reason) if is_passing(reason) => Admission::Later,
            Err(_) => Admission::Denied,
        }
    }

    fn movable(&mut self, id: PeerId) -> Option<Movable<'_>> {
        self.peers.get_mut(id).map(Peer::movable)
    }

    /// A client has proved its address and its token, and the gateway has room for it.
    fn welcome(
        &mut self,
        now: Time,
        from: SocketAddr,
        accepted: Accepted,
        former: Option<PeerId>,
    ) -> Option<Welcome<PeerId>> {
        let pass = self.entered.take()?;
        let session = Session::new(Arc::clone(self.sessions), now).expect("the options were checked at the start");
        let (inbound, packets_in) = channel(WAITING_PACKETS);
        let (packets_out, outbound) = channel(WAITING_PACKETS);
        let id = self.peers.next_id();
        let memory = self.door.memory();
        let datagrams = DatagramQueue::new(id, Arc::clone(self.wake), Holding::new(memory, Part::Queues, 0));
        let received = Holding::new(memory, Part::Inbound, 0);
        let movement = Movement::new(Arc::clone(&datagrams));
        tokio::spawn(serve(pass, (packets_in, packets_out), datagrams, (Arc::clone(self.wake), id)));
        // Another peer has proved this address: the former peer is gone.
        let gone = former.and_then(|former| {
            let mut peer = self.peers.remove(former)?;
            self.agenda.cancel(former, &mut peer.appointed);
            self.stopped.remove(&former);
            Some((former, peer.address))
        });
        let peer = Peer::new(accepted, (from, now), (session, received), (inbound, outbound), movement);
        let older = self.peers.insert(id, peer);
        if let Some((older, peer)) = older.and_then(|older| Some((older, self.peers.get_mut(older)?))) {
            peer.close_replaced(now);
            self.awake.push(older);
        }
        self.awake.push(id);
        Some(Welcome { id, gone })
    }

    /// The counters of the link say it.
    fn denied(&mut self, _client_id: u64, _denial: Denial) {}

    fn moved(&mut self, now: Time, id: PeerId, to: SocketAddr, round_trip: Duration) {
        if let Some(peer) = self.peers.get_mut(id).filter(|peer| peer.address != to) {
            peer.address = to;
            peer.has_moved(now, round_trip);
        }
        self.awake.push(id);
    }

    fn hear(&mut self, id: PeerId, datagram: &mut [u8]) -> Option<Result<(), DropReason>> {
        let heard = self.peers.get_mut(id)?.hear((self.now, self.now), datagram, &mut self.hand.outlet);
        Some(heard.map(|has_room| {
            self.hand.too_fast += usize::from(!has_room);
            self.awake.push(id);
        }))
    }

    fn answer(&mut self, to: SocketAddr, datagram: &mut Vec<u8>) {
        self.hand.outlet.send(self.now, datagram, to);
    }
}

/// Whether a client that is refused for this reason may come in a moment: it waits, as over TCP.
fn is_passing(reason: Reason) -> bool {
    matches!(reason, Reason::Busy | Reason::ArrivesTooFast | Reason::NoMaster)
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
