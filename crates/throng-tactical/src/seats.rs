//! Seats: which player of a match is on which connection.

use throng::ConnectionId;

use crate::Seat;

/// Most seats of a match.
pub const SEATS_MAX: u16 = 256;

/// The seats of a match. A player is the client id of a token, and keeps its seat until the match ends.
///
/// ```
/// use throng::ConnectionId;
/// use throng_match::{Seat, Seats};
///
/// let mut seats = Seats::open(2);
/// let first = ConnectionId { index: 0, generation: 0 };
/// assert_eq!(seats.join(4_711, first), Some(Seat(0)));
/// assert_eq!(seats.leave(first), Some(Seat(0)));
///
/// // The player is back on another connection.
/// let second = ConnectionId { index: 0, generation: 1 };
/// assert_eq!(seats.join(4_711, second), Some(Seat(0)));
/// assert_eq!((seats.connection(Seat(0)), seats.seat(second)), (Some(second), Some(Seat(0))));
/// ```
#[derive(Clone, Debug)]
pub struct Seats {
    players: Vec<Option<u64>>,
    connections: Vec<Option<ConnectionId>>,
    /// Connected seats by connection, sorted.
    by_connection: Vec<(ConnectionId, Seat)>,
}

impl Seats {
    /// Seats that the first `count` players take, at most [`SEATS_MAX`]. A player gets the lowest free seat.
    pub fn open(count: u16) -> Seats {
        Seats::of(vec![None; count.min(SEATS_MAX).into()])
    }

    /// Seats for these client ids alone, in this order, at most [`SEATS_MAX`].
    pub fn reserved(client_ids: &[u64]) -> Seats {
        Seats::of(client_ids.iter().copied().map(Some).take(SEATS_MAX.into()).collect())
    }

    fn of(players: Vec<Option<u64>>) -> Seats {
        let count = players.len();
        Seats { players, connections: vec![None; count], by_connection: Vec::with_capacity(count) }
    }

    /// A player is on this connection now. Returns its seat; `None` if it has none and none is free. A former
    /// connection of the player loses the seat.
    pub fn join(&mut self, client_id: u64, connection: ConnectionId) -> Option<Seat> {
        let own = self.players.iter().position(|&player| player == Some(client_id));
        let index = own.or_else(|| self.players.iter().position(Option::is_none))?;
        let seat = Seat(index as u16);
        if let Some(former) = self.connections[index] {
            self.leave(former);
        }
        self.leave(connection);
        self.players[index] = Some(client_id);
        self.connections[index] = Some(connection);
        let place = self.by_connection.partition_point(|&(other, _)| other < connection);
        self.by_connection.insert(place, (connection, seat));
        Some(seat)
    }

    /// A connection has ended. Returns the seat that it had.
    pub fn leave(&mut self, connection: ConnectionId) -> Option<Seat> {
        let place = self.by_connection.binary_search_by_key(&connection, |&(other, _)| other).ok()?;
        let (_, seat) = self.by_connection.remove(place);
        self.connections[seat.index()] = None;
        Some(seat)
    }

    /// The connection of a seat; `None` if its player is not connected, or the seat does not exist.
    pub fn connection(&self, seat: Seat) -> Option<ConnectionId> {
        self.connections.get(seat.index()).copied().flatten()
    }

    /// The seat of a connection.
    pub fn seat(&self, connection: ConnectionId) -> Option<Seat> {
        let place = self.by_connection.binary_search_by_key(&connection, |&(other, _)| other).ok()?;
        Some(self.by_connection[place].1)
    }

    /// The client id of a seat's player, connected or not.
    pub fn client_id(&self, seat: Seat) -> Option<u64> {
        self.players.get(seat.index()).copied().flatten()
    }

    /// All connected seats, in the order of seats.
    pub fn connected(&self) -> impl Iterator<Item = (Seat, ConnectionId)> + '_ {
        let seat = |(index, connection): (usize, &Option<ConnectionId>)| Some((Seat(index as u16), (*connection)?));
        self.connections.iter().enumerate().filter_map(seat)
    }

    /// Number of connected seats.
    pub fn connected_count(&self) -> usize {
        self.by_connection.len()
    }

    /// Number of seats.
    pub fn count(&self) -> u16 {
        self.players.len() as u16
    }
}
