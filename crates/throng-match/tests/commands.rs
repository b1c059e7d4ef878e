//! Commands reach the game in order, once, and no faster than a player may send them.

use throng::{ConnectionId, MAX_INPUT_BYTES, Tick};
use throng_match::{CommandCounters, CommandLimits, Inbox, Refusal, Seat, Seats};

use crate::balls::{Balls, Rules, World, server_options};

const ME: ConnectionId = ConnectionId { index: 0, generation: 0 };
const YOU: ConnectionId = ConnectionId { index: 1, generation: 0 };

fn two() -> Seats {
    let mut seats = Seats::open(2);
    seats.join(1, ME);
    seats.join(2, YOU);
    seats
}

/// The commands that a step would see: seat, number and first byte of each command.
fn delivered(inbox: &mut Inbox, seats: &Seats) -> Vec<(u16, u32, u8)> {
    let seen = |input: &throng_match::TickInput<'_>| {
        input.commands.iter().map(|command| (command.seat.0, command.number, command.bytes[0])).collect()
    };
    inbox.deliver(Tick(1), seats, seen)
}

#[test]
fn commands_come_in_the_order_of_seats_and_numbers_whatever_the_order_of_arrival() {
    let (seats, mut inbox) = (two(), Inbox::new(2, CommandLimits::default()));
    for (connection, number) in [(YOU, 5), (ME, 9), (YOU, 6), (ME, 10)] {
        inbox.push(&seats, connection, number, &[number as u8]).expect("it is new");
    }
    assert_eq!(delivered(&mut inbox, &seats), [(0, 9, 9), (0, 10, 10), (1, 5, 5), (1, 6, 6)]);
    assert_eq!(delivered(&mut inbox, &seats), [], "each comes once");
}

#[test]
fn old_and_repeated_commands_are_refused_and_counted_also_where_numbers_wrap_around() {
    let (seats, mut inbox) = (two(), Inbox::new(2, CommandLimits { per_tick: 8, burst: 100 }));
    let mut push = |number| inbox.push(&seats, ME, number, &[1]);
    assert_eq!(push(u32::MAX - 1), Ok(Seat(0)));
    assert_eq!(push(u32::MAX - 1), Err(Refusal::Stale), "twice");
    assert_eq!(push(1), Ok(Seat(0)), "three later");
    assert_eq!(push(u32::MAX), Err(Refusal::Stale), "out of order");
    assert_eq!(push(1 + (1 << 31)), Err(Refusal::Stale), "as far ahead as behind");
    assert_eq!(push(2), Ok(Seat(0)));
    assert_eq!(inbox.counters(), CommandCounters { taken: 3, stale: 3, ..CommandCounters::default() });
    let numbers: Vec<u32> = delivered(&mut inbox, &seats).iter().map(|command| command.1).collect();
    assert_eq!(numbers, [u32::MAX - 1, 1, 2]);
}

#[test]
fn a_tick_takes_so_many_commands_of_a_seat_and_no_more() {
    let (seats, mut inbox) = (two(), Inbox::new(2, CommandLimits { per_tick: 3, burst: 100 }));
    let taken = (0..10).filter(|&number| inbox.push(&seats, ME, number, &[0]).is_ok()).count();
    assert_eq!(taken, 3);
    assert_eq!(inbox.push(&seats, YOU, 0, &[0]), Ok(Seat(1)), "the other seat loses nothing");
    assert_eq!(inbox.counters(), CommandCounters { taken: 4, tick_full: 7, ..CommandCounters::default() });
    // All of them are acknowledged, so that the client does not wait for the refused ones.
    let mut acknowledged = Vec::new();
    inbox.acknowledge(|connection, number| acknowledged.push((connection, number)));
    assert_eq!(acknowledged, [(ME, 9), (YOU, 0)]);
    inbox.acknowledge(|_, _| panic!("there is nothing new"));
}

#[test]
fn a_player_that_sends_too_fast_gets_one_command_per_tick_in_the_long_run() {
    let (seats, mut inbox) = (two(), Inbox::new(2, CommandLimits { per_tick: 4, burst: 12 }));
    let (mut number, mut taken, mut honest) = (0, 0, 0);
    for _ in 0..1_000 {
        for _ in 0..2 {
            number += 1;
            taken += usize::from(inbox.push(&seats, ME, number, &[0]).is_ok());
        }
        honest += usize::from(inbox.push(&seats, YOU, number, &[0]).is_ok());
        delivered(&mut inbox, &seats);
    }
    assert_eq!(honest, 1_000, "an honest player loses nothing");
    assert!((1_000..=1_000 * 17 / 16 + 12).contains(&taken), "{taken} of 2,000");
    assert_eq!(inbox.counters().too_fast, 2_000 - taken as u64);
    // After a silence, a burst comes through.
    for _ in 0..20 {
        delivered(&mut inbox, &seats);
    }
    let burst: usize = (0..4)
        .map(|_| {
            let taken = (0..4).filter(|_| {
                number += 1;
                inbox.push(&seats, ME, number, &[0]).is_ok()
            });
            let taken = taken.count();
            delivered(&mut inbox, &seats);
            taken
        })
        .sum();
    assert!((12..=16).contains(&burst), "{burst}");
}

#[test]
fn commands_without_a_seat_and_of_a_former_connection_do_not_count() {
    let (mut seats, mut inbox) = (two(), Inbox::new(2, CommandLimits::default()));
    let stranger = ConnectionId { index: 9, generation: 0 };
    assert_eq!(inbox.push(&seats, stranger, 1, &[0]), Err(Refusal::NoSeat));
    inbox.push(&seats, ME, 500, &[1]).expect("it is new");
    // The player comes back: numbers begin again, and the command of the old connection is forgotten.
    let again = ConnectionId { index: 0, generation: 1 };
    seats.join(1, again);
    inbox.push(&seats, again, 3, &[2]).expect("it is new");
    assert_eq!(inbox.push(&seats, ME, 501, &[0]), Err(Refusal::NoSeat));
    assert_eq!(delivered(&mut inbox, &seats), [(0, 3, 2)]);
    // A player that has left in the meantime gives no more commands.
    inbox.push(&seats, again, 4, &[2]).expect("it is new");
    seats.leave(again);
    assert_eq!(delivered(&mut inbox, &seats), []);
}

#[test]
fn joining_and_leaving_are_told_once_and_a_quick_reconnect_is_both() {
    let (mut seats, mut inbox) = (Seats::open(2), Inbox::new(2, CommandLimits::default()));
    let mut changes = |seats: &Seats| {
        inbox.deliver(Tick(1), seats, |input| (input.joined.to_vec(), input.left.to_vec(), input.latencies.len()))
    };
    seats.join(1, ME);
    assert_eq!(changes(&seats), (vec![Seat(0)], vec![], 0));
    assert_eq!(changes(&seats), (vec![], vec![], 0));
    seats.join(1, ConnectionId { index: 3, generation: 1 });
    assert_eq!(changes(&seats), (vec![Seat(0)], vec![Seat(0)], 0));
    seats.join(2, YOU);
    seats.leave(YOU);
    assert_eq!(changes(&seats), (vec![], vec![], 0), "it came and went between two ticks");
    seats.leave(ConnectionId { index: 3, generation: 1 });
    assert_eq!(changes(&seats), (vec![], vec![Seat(0)], 0));
}

#[test]
fn round_trips_are_rounded_and_end_with_the_connection() {
    let (mut seats, mut inbox) = (two(), Inbox::new(2, CommandLimits::default()));
    let known = |inbox: &mut Inbox, seats: &Seats| -> Vec<(u16, u32)> {
        inbox
            .deliver(Tick(1), seats, |input| input.latencies.iter().map(|known| (known.seat.0, known.rtt_us)).collect())
    };
    assert_eq!(known(&mut inbox, &seats), []);
    inbox.set_latency(Seat(1), 30_149);
    inbox.set_latency(Seat(0), 50);
    inbox.set_latency(Seat(7), 50);
    assert_eq!(known(&mut inbox, &seats), [(0, 100), (1, 30_100)]);
    inbox.set_latency(Seat(0), u64::MAX);
    assert_eq!(known(&mut inbox, &seats)[0].1 % 100, 0);
    seats.leave(ME);
    assert_eq!(known(&mut inbox, &seats), [(1, 30_100)]);
    assert!(!inbox.has_latency(Seat(0)));
}

#[test]
fn commands_of_any_bytes_arrive_as_they_were_sent() {
    let (seats, mut inbox) = (two(), Inbox::new(2, CommandLimits::default()));
    let long = [7; MAX_INPUT_BYTES + 9];
    for (number, bytes) in [&[][..], &[0, 255, 1], &long].into_iter().enumerate() {
        inbox.push(&seats, ME, number as u32, bytes).expect("it is new");
    }
    inbox.deliver(Tick(1), &seats, |input| {
        let bytes: Vec<&[u8]> = input.commands.iter().map(|command| command.bytes).collect();
        assert_eq!(bytes, [&[][..], &[0, 255, 1], &long[..MAX_INPUT_BYTES]]);
    });
}

#[test]
fn a_client_that_floods_the_match_is_counted_and_the_others_play_on() {
    // The server hands on all that came, so that the match's own limits are what holds.
    let server = throng::ServerOptions { inputs_per_tick: 64, ..server_options() };
    let mut world = World::new(Balls::new(3, 10_000), Rules { server, ..Rules::default() });
    world.come_all(2);
    world.idle(30);
    let flood: [&[u8]; 6] = [&[1, 1]; 6];
    for _ in 0..300 {
        world.step(|client| if client == 0 { &flood } else { &[&[1, 1]] });
    }
    let counters = world.game.counters();
    assert!(counters.commands.too_fast + counters.commands.tick_full > 300, "{counters:?}");
    // Both players have about one command per tick.
    assert!((590..=2 * 300 * 17 / 16 + 32).contains(&counters.commands.taken), "{counters:?}");
    assert_eq!(world.game.seats().connected_count(), 2);
}
