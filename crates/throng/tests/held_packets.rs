//! Packets for a client whose path is the bound are spread over the time between two ticks, and never change their order.

use std::time::Duration;

use throng::net::{Condition, RateLimit};
use throng::{LaneKind, LaneOptions, Time};
use throng_link::netcode::{Opener, PacketKind};
use throng_testkit::{Chat, Parcel};

use crate::harness::{World, WorldOptions, ear};

const TICK: Duration = Duration::from_millis(100);
/// Of the path to each client; the limit is twice as much.
const PATH_BYTES_PER_S: u64 = 60_000;

fn options(threads: usize) -> WorldOptions {
    let mut options = WorldOptions::new(3);
    options.server.tick_interval = TICK;
    options.server.client_bytes_per_s = 2 * PATH_BYTES_PER_S as u32;
    options.server.threads = threads;
    options
}

/// Clients on narrow paths, to which more is sent than these carry.
struct Narrow {
    world: World,
    ears: Vec<Opener>,
    numbers: Vec<u64>,
    /// When each packet of state or messages was sent, to which client, and how long it is.
    sent: Vec<(Time, usize, usize)>,
}

impl Narrow {
    fn new(options: WorldOptions, guests: usize) -> Narrow {
        let mut world = World::with_guests(options, guests);
        let bytes_per_s = u64::from(world.options().server.client_bytes_per_s) / 2;
        let rate = Some(RateLimit { bytes_per_s, queue_bytes: bytes_per_s / 5 });
        for guest in 0..guests {
            world.set_way_to(guest, Condition { delay_us: 10_000, rate, ..Condition::NONE });
        }
        let ears = world.guests.iter().map(|guest| ear(&guest.token)).collect();
        let mut narrow = Narrow { world, ears, numbers: vec![0; guests], sent: Vec::new() };
        for _ in 0..80 {
            narrow.step(TICK);
        }
        narrow.world.tap.open();
        narrow
    }

    /// A step with as many messages as there is room for. Packets leave in the order of their numbers.
    fn step(&mut self, duration: Duration) {
        for guest in 0..self.ears.len() {
            let connection = self.world.connection(guest);
            let chat = Chat { number: 0, text: "x".repeat(800) };
            while self.world.server.send(connection, 0, &chat).is_ok() {}
        }
        self.world.step_with_drains(duration);
        for mut wire in self.world.tap.take() {
            let Some(guest) = self.world.guests.iter().position(|guest| guest.address == wire.to) else { continue };
            let length = wire.bytes.len();
            let opened = self.ears[guest].open(&mut wire.bytes).expect("it is for this client");
            if opened.kind == PacketKind::Payload {
                let before = std::mem::replace(&mut self.numbers[guest], opened.sequence);
                assert!(opened.sequence > before, "{} leaves after {before}, at {:?}", opened.sequence, wire.at);
                self.sent.push((wire.at, guest, length));
            }
        }
    }
}

#[test]
fn packets_for_a_narrow_path_leave_one_by_one_between_ticks_whatever_the_number_of_threads() {
    for threads in [1, 3] {
        let mut narrow = Narrow::new(options(threads), 4);
        narrow.sent.clear();
        for _ in 0..50 {
            narrow.step(TICK);
        }
        for guest in 0..4 {
            let times: Vec<Time> = narrow.sent.iter().filter(|sent| sent.1 == guest).map(|sent| sent.0).collect();
            let at_once = times.chunk_by(|one, next| one == next).map(<[Time]>::len).max().unwrap_or(0);
            println!("{threads} threads, client {guest}: {} packets, at most {at_once} at once", times.len());
            assert!(times.len() >= 80, "{threads} threads: {} packets in 5 s", times.len());
            let between = times
                .iter()
                .filter(|at| at.0 % TICK.as_micros() as u64 != narrow.world.now.0 % TICK.as_micros() as u64);
            assert!(between.count() * 3 >= times.len(), "{threads} threads: most packets leave with a tick");
            assert!(at_once <= 2, "{threads} threads: {at_once} packets at once");
        }
    }
}

#[test]
fn no_packet_waits_for_longer_than_two_ticks_however_late_the_next_one_is() {
    let mut options = options(1);
    options.server.tick_interval = Duration::from_millis(20);
    let mut narrow = Narrow::new(options, 1);
    // The ticks before and after this one are late.
    narrow.step(Duration::from_millis(240));
    narrow.sent.clear();
    let from = narrow.world.now;
    narrow.step(Duration::from_millis(240));
    let waits: Vec<Duration> = narrow.sent.iter().map(|sent| sent.0.since(from)).collect();
    let between: Vec<_> = waits.iter().filter(|wait| **wait < Duration::from_millis(240)).collect();
    assert!(between.iter().any(|wait| !wait.is_zero()), "nothing waits: {waits:?}");
    assert!(between.iter().all(|wait| **wait <= Duration::from_millis(40)), "{waits:?}");
}

#[test]
fn an_answer_between_two_ticks_does_not_overtake_packets_that_wait() {
    const RATE_BYTES_PER_S: u32 = 4_800_000;
    const PARCEL_BYTES: usize = 100_000;
    let mut options = options(1);
    let lane = LaneOptions {
        message_bytes: PARCEL_BYTES + 100,
        queue_bytes: 20 * PARCEL_BYTES,
        ..LaneOptions::new(LaneKind::ReliableOrdered)
    };
    options.server.lanes[1] = lane;
    options.client.lanes[1] = lane;
    options.client.bytes_per_s = RATE_BYTES_PER_S;
    // About twenty packets in each tick.
    options.server.client_bytes_per_s = 500_000;
    options.server.client_packets_per_s = 10_000;
    let mut narrow = Narrow::new(options, 1);
    // With so many packets of the client in one tick, some are answered before the next.
    const ANSWERED_EARLY: u64 = 300;
    let sent_by_client =
        |narrow: &Narrow| narrow.world.guests[0].client.link_statistics().expect("connected").counters.packets_sent;
    let (mut with_answers, mut waited) = (0, 0);
    for number in 0..600 {
        let (before, parcel) = (sent_by_client(&narrow), Parcel { number, content: vec![7; PARCEL_BYTES] });
        while narrow.world.guests[0].client.send(1, &parcel).is_ok() {}
        narrow.sent.clear();
        narrow.step(TICK);
        if sent_by_client(&narrow) - before >= ANSWERED_EARLY {
            with_answers += 1;
            waited += narrow.sent.iter().filter(|sent| sent.0 != narrow.world.now).count();
        }
        if with_answers == 50 {
            break;
        }
    }
    let sent = sent_by_client(&narrow);
    assert_eq!(with_answers, 50, "the client sent only {sent} packets");
    assert!(waited > 50, "{waited} packets waited");
}
