//! Seats belong to players, whichever connection they are on.

use throng::ConnectionId;
use throng_match::{SEATS_MAX, Seat, Seats};

fn connection(index: u32, generation: u32) -> ConnectionId {
    ConnectionId { index, generation }
}

#[test]
fn players_take_free_seats_in_order_and_keep_them() {
    let mut seats = Seats::open(3);
    assert_eq!(seats.join(70, connection(5, 0)), Some(Seat(0)));
    assert_eq!(seats.join(60, connection(2, 0)), Some(Seat(1)));
    assert_eq!(seats.leave(connection(5, 0)), Some(Seat(0)));
    assert_eq!(seats.leave(connection(5, 0)), None, "it has left already");
    // The seat of a player that left stays its own.
    assert_eq!(seats.join(50, connection(5, 1)), Some(Seat(2)));
    assert_eq!(seats.join(40, connection(9, 0)), None, "all seats have players");
    assert_eq!(seats.join(70, connection(9, 0)), Some(Seat(0)));
    let connected: Vec<_> = seats.connected().collect();
    assert_eq!(connected, [(Seat(0), connection(9, 0)), (Seat(1), connection(2, 0)), (Seat(2), connection(5, 1))]);
    assert_eq!((seats.count(), seats.connected_count(), seats.client_id(Seat(0))), (3, 3, Some(70)));
}

#[test]
fn a_new_connection_of_a_player_replaces_the_old_one() {
    let mut seats = Seats::open(2);
    seats.join(7, connection(0, 0));
    assert_eq!(seats.join(7, connection(1, 0)), Some(Seat(0)));
    assert_eq!((seats.seat(connection(0, 0)), seats.seat(connection(1, 0))), (None, Some(Seat(0))));
    assert_eq!(seats.leave(connection(0, 0)), None, "the end of the old connection changes nothing");
    assert_eq!(seats.connection(Seat(0)), Some(connection(1, 0)));
    assert_eq!(seats.connected_count(), 1);
}

#[test]
fn reserved_seats_are_for_their_players_alone() {
    let mut seats = Seats::reserved(&[30, 10]);
    assert_eq!(seats.join(20, connection(0, 0)), None);
    assert_eq!(seats.join(10, connection(0, 0)), Some(Seat(1)));
    assert_eq!(seats.client_id(Seat(0)), Some(30));
    assert_eq!(seats.connection(Seat(0)), None);
    assert_eq!(seats.connection(Seat(99)), None);
    assert_eq!(Seats::open(u16::MAX).count(), SEATS_MAX);
}
