//! The door of a server together with the addresses of its connections: which datagram is for whom, who comes in, and who
//! has moved. Every server of the link has one, whatever drives its sockets and threads.
//!
//! ```text
//!  datagram --> owner_of --> a connection: its owner opens it, on whatever thread
//!                   |
//!                   +--> nobody: keep --> serve, after the connections
//!                                           |-- names a seat: does that connection move here?
//!                                           |-- answers a challenge: of a connection, or of a newcomer
//!                                           +-- anything else: a newcomer's request, or noise
//! ```

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use throng_wire::Time;

use super::counters::{DropReason, NetcodeCounters};
use super::denial::Denial;
use super::moving::{Movable, MoveStep, is_response, move_seat};
use super::plain_address;
use super::server::{Accepted, Admission, Held, Now, Outcome, Seats, ServerHandshake};
use super::strangers::Strangers;

/// The connections behind a [`Door`]: the server that owns them.
pub trait House {
    /// The server's name of a connection.
    type Id: Copy + PartialEq;

    /// Whether newcomers are looked at. If not, they get no answer, and are counted.
    fn is_open(&self) -> bool {
        true
    }

    /// The connection in this seat.
    fn in_seat(&self, seat: u32) -> Option<Self::Id>;

    /// The seat for the next client, if there is one, and how many seats there are.
    fn seats(&self) -> (Option<u32>, u32);

    /// The seat that the client with this id has, if it is connected.
    fn held(&self, client_id: u64) -> Option<Held>;

    /// Whether a client that has proved its address and for which there is a seat comes in.
    fn admit(&self, from: SocketAddr) -> Admission;

    /// The parts of a connection that a change of address needs. `None`: it is gone.
    fn movable(&mut self, id: Self::Id) -> Option<Movable<'_>>;

    /// A client has come in. `former` is the connection that was at this address so far, and is nowhere now. Returns the
    /// new connection, if the server takes it, and the one that is over because of it.
    fn welcome(
        &mut self,
        now: Time,
        from: SocketAddr,
        accepted: Accepted,
        former: Option<Self::Id>,
    ) -> Option<Welcome<Self::Id>>;

    /// A client was denied.
    fn denied(&mut self, client_id: u64, denial: Denial);

    /// A connection is at `to`, where it may have been already: the client has proved it, with this round trip.
    fn moved(&mut self, now: Time, id: Self::Id, to: SocketAddr, round_trip: Duration);

    /// A datagram of a connection that had waited, because it could have been for the door. `None`: the connection is gone.
    ///
    /// # Errors
    /// It is dropped, and counted for this reason.
    fn hear(&mut self, id: Self::Id, datagram: &mut [u8]) -> Option<Result<(), DropReason>>;

    /// Sends an answer. The buffer may be exchanged for another one.
    fn answer(&mut self, to: SocketAddr, datagram: &mut Vec<u8>);
}

/// A client that has come in.
#[derive(Clone, Copy, Debug)]
pub struct Welcome<I> {
    /// Its connection.
    pub id: I,
    /// The connection that is over because of it: its name, and where it was.
    pub gone: Option<(I, SocketAddr)>,
}

/// A server's door and the table of its connections' addresses.
#[derive(Debug)]
pub struct Door<I> {
    handshake: ServerHandshake,
    strangers: Strangers,
    /// Hashed with the standard library's keyed hash: peers choose their addresses.
    by_address: HashMap<AddressKey, I>,
    reply: Vec<u8>,
}

impl<I: Copy + PartialEq> Door<I> {
    /// A door without connections behind it.
    pub fn new(handshake: ServerHandshake) -> Door<I> {
        Door { strangers: handshake.queue(), handshake, by_address: HashMap::new(), reply: Vec::new() }
    }

    /// Counts of datagrams, by what became of them.
    pub fn counters(&self) -> &NetcodeCounters {
        self.handshake.counters()
    }

    /// The same. The server counts in them which datagrams of connections it has dropped, and why.
    pub fn counters_mut(&mut self) -> &mut NetcodeCounters {
        self.handshake.counters_mut()
    }

    /// The handshakes.
    pub fn handshake(&self) -> &ServerHandshake {
        &self.handshake
    }

    /// How many addresses of connections are known.
    pub fn addresses_len(&self) -> usize {
        self.by_address.len()
    }

    /// Datagrams of strangers that wait for [`serve`](Self::serve).
    pub fn waiting(&self) -> usize {
        self.strangers.len()
    }

    /// The connection that a datagram is for. `None`: it is for the door, and to be [kept](Self::keep).
    pub fn owner_of(&self, from: SocketAddr, datagram: &[u8]) -> Option<I> {
        let key = AddressKey::new(from);
        let &owner = self.by_address.get(&key)?;
        // A new client, or a connection that moves, may send from a connected address.
        let is_for_door = datagram.first() == Some(&0)
            || move_seat(datagram).is_some()
            || (is_response(datagram) && self.handshake.is_pending(from));
        (!is_for_door).then_some(owner)
    }

    /// Keeps a datagram for [`serve`](Self::serve); if too many wait, it is dropped and counted.
    pub fn keep(&mut self, from: SocketAddr, datagram: &[u8]) {
        if let Err(reason) = self.strangers.keep(from, datagram) {
            self.handshake.counters_mut().drop(reason);
        }
    }

    /// Looks at `most` of the datagrams that wait. Each costs a decryption, some 2 µs.
    pub fn serve<H: House<Id = I>>(&mut self, now: Now, most: usize, house: &mut H) {
        let mut strangers = std::mem::take(&mut self.strangers);
        for _ in 0..most {
            let Some((from, datagram)) = strangers.take() else { break };
            self.handle(now, (from, datagram), house);
        }
        self.strangers = strangers;
    }

    /// A connection is over.
    ///
    /// Its address stays if it has another connection by now.
    pub fn forget(&mut self, id: I, address: SocketAddr) {
        let key = AddressKey::new(address);
        if self.by_address.get(&key) == Some(&id) {
            self.by_address.remove(&key);
        }
    }

    fn handle<H: House<Id = I>>(&mut self, now: Now, (from, datagram): (SocketAddr, &mut [u8]), house: &mut H) {
        if let Some(seat) = move_seat(datagram) {
            return self.handle_move(now.time, (from, datagram), seat, house);
        }
        match self.by_address.get(&AddressKey::new(from)) {
            Some(&id) if is_response(datagram) && !self.handshake.is_pending(from) => {
                if let Err(reason) = house.hear(id, datagram).unwrap_or(Err(DropReason::UnknownAddress)) {
                    self.handshake.counters_mut().drop(reason);
                }
            }
            _ => self.knock(now, (from, datagram), house),
        }
    }

    /// A request, a response, or noise.
    fn knock<H: House<Id = I>>(&mut self, now: Now, (from, datagram): (SocketAddr, &mut [u8]), house: &mut H) {
        if !house.is_open() {
            return self.handshake.counters_mut().drop(DropReason::DoorClosed);
        }
        let (free, max_clients) = house.seats();
        let shared = &*house;
        let seats =
            Seats { free, max_clients, held: &|client_id| shared.held(client_id), admission: &|| shared.admit(from) };
        match self.handshake.handle(now, from, datagram, &seats, &mut self.reply) {
            Outcome::Ignored(_) => return,
            Outcome::Reply => {}
            Outcome::Denied { client_id, denial } => house.denied(client_id, denial),
            Outcome::Accept(accepted) => {
                let former = self.by_address.get(&AddressKey::new(from)).copied();
                let Some(Welcome { id, gone }) = house.welcome(now.time, from, *accepted, former) else { return };
                if let Some((gone, address)) = gone {
                    self.forget(gone, address);
                }
                // An address that belonged to another connection has been proved by this one since.
                self.by_address.insert(AddressKey::new(from), id);
            }
        }
        house.answer(from, &mut self.reply);
    }

    /// A connection may have moved to this address: asks it to prove that, or checks the proof.
    fn handle_move<H: House<Id = I>>(
        &mut self,
        now: Time,
        (from, datagram): (SocketAddr, &mut [u8]),
        seat: u32,
        house: &mut H,
    ) {
        let id = house.in_seat(seat);
        let Some((id, mut end)) = id.and_then(|id| Some((id, house.movable(id)?))) else {
            return self.handshake.counters_mut().drop(DropReason::MoveNotOurs);
        };
        let former = end.address;
        match self.handshake.handle_move(now, from, datagram, &mut end, &mut self.reply) {
            Err(_) => {}
            Ok(MoveStep::Challenged) => house.answer(from, &mut self.reply),
            Ok(MoveStep::Proved { round_trip }) => {
                self.forget(id, former);
                // The former connection of the address no longer has it.
                self.by_address.insert(AddressKey::new(from), id);
                house.moved(now, id, from, round_trip);
            }
        }
    }
}

/// An address as the key of a table, without the fields of IPv6 that netcode does not compare. Of IPv4 it is hashed as one
/// number, in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
