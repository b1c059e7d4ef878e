//! Messages as large as a lane can be configured to carry, both ways, within the budget of either end.

use crate::harness::storm::burst_bytes;
use crate::harness::{World, WorldOptions};
use throng::net::Condition;
use throng::{ChannelKey, ClientEvent, LaneKind, LaneOptions, Placement, ServerEvent};
use throng_link::session::{MAX_PACKETS_PER_FLUSH, MAX_RELIABLE_MESSAGE_BYTES};
use throng_testkit::{BudgetAudit, Parcel};

/// The bytes before the content of a parcel: its kind, its number, the length.
const HEAD_BYTES: usize = 8;

/// A world whose first lane carries the largest messages, at this rate both ways.
fn world(seed: u64, rate_bytes_per_s: u32) -> World {
    let mut options = WorldOptions::new(seed);
    let lane = LaneOptions {
        message_bytes: MAX_RELIABLE_MESSAGE_BYTES,
        queue_bytes: MAX_RELIABLE_MESSAGE_BYTES + (1 << 20),
        ..LaneOptions::new(LaneKind::ReliableOrdered)
    };
    options.server.lanes[0] = lane;
    options.client.lanes[0] = lane;
    options.server.client_bytes_per_s = rate_bytes_per_s;
    options.client.bytes_per_s = rate_bytes_per_s;
    World::with_guests(options, 1)
}

fn parcel(number: u32, bytes: usize) -> Parcel {
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    Parcel { number, content: (0..bytes).map(|_| random.u8(..)).collect() }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Up,
    Down,
}

/// Parcels that have come at the other end, in order.
fn received(world: &World, way: Way) -> Vec<Parcel> {
    match way {
        Way::Up => world
            .events
            .iter()
            .filter_map(|event| match event {
                ServerEvent::Message { message, .. } => message.get(),
                _ => None,
            })
            .collect(),
        Way::Down => world.guests[0]
            .events
            .iter()
            .filter_map(|event| match event {
                ClientEvent::Message { message, .. } => message.get(),
                _ => None,
            })
            .collect(),
    }
}

fn send(world: &mut World, way: Way, parcel: &Parcel) {
    let connection = world.connection(0);
    let result = match way {
        Way::Up => world.guests[0].client.send(0, parcel),
        Way::Down => world.server.send(connection, 0, parcel),
    };
    result.expect("a place in the queue");
}

#[test]
fn four_mebibytes_arrive_at_ten_percent_loss_and_no_update_sends_more_than_its_share() {
    const RATE: u32 = 256_000;
    for way in [Way::Up, Way::Down] {
        let mut world = world(7, RATE);
        let sizes = [MAX_RELIABLE_MESSAGE_BYTES - HEAD_BYTES, 900_000, 10_000];
        for (number, bytes) in sizes.into_iter().enumerate() {
            send(&mut world, way, &parcel(number as u32, bytes));
        }
        world.set_condition(Condition { delay_us: 30_000, loss: 0.1, ..Condition::NONE });
        world.tap.open();
        world.client_tap.open();
        let mut audits = [BudgetAudit::new(RATE), BudgetAudit::new(RATE)];
        let mut most = [0; 2];
        let mut ticks = 0;
        while received(&world, way).len() < sizes.len() && ticks < 3_000 {
            world.step();
            ticks += 1;
            for (index, tap) in [&world.client_tap, &world.tap].into_iter().enumerate() {
                let sent = tap.take();
                most[index] = most[index].max(sent.len());
                sent.iter().for_each(|wire| audits[index].note(wire.at, wire.bytes.len()));
            }
        }
        let bursts = audits.map(|audit| audit.burst_bytes());
        let sent = audits.map(|audit| audit.total_bytes());
        println!("{way:?}: {ticks} ticks, bursts {bursts:?}, sent {sent:?}, at once {most:?}");
        let got = received(&world, way);
        assert_eq!(got.len(), sizes.len(), "{way:?}: {ticks} ticks");
        for (number, (parcel_got, bytes)) in got.iter().zip(sizes).enumerate() {
            assert!(*parcel_got == parcel(number as u32, bytes), "{way:?}: parcel {number} was changed");
        }
        assert!(bursts.iter().all(|&burst| burst <= burst_bytes(RATE)), "{way:?}: {bursts:?}");
        assert!(most.iter().all(|&most| most <= usize::from(MAX_PACKETS_PER_FLUSH)), "{way:?}: {most:?} at once");
        // One in ten is sent again, and again; heads and headers take a tenth.
        let bytes: usize = sizes.iter().sum();
        let index = if way == Way::Up { 0 } else { 1 };
        assert!(sent[index] < bytes as u64 * 14 / 10, "{way:?}: {} bytes for {bytes}", sent[index]);
    }
}

#[test]
fn a_client_without_a_driver_gives_a_bounded_number_of_datagrams_at_once() {
    let mut world = world(3, 4_000_000);
    // The rate begins low and doubles; then a pause saves up as much as may leave at once.
    send(&mut world, Way::Up, &parcel(0, 3_000_000));
    world.steps(150);
    assert_eq!(received(&world, Way::Up).len(), 1, "the first has arrived");
    send(&mut world, Way::Up, &parcel(1, 2_000_000));
    let now = world.now.after(std::time::Duration::from_millis(1));
    let mut datagram = Vec::new();
    let polled = std::iter::from_fn(|| world.guests[0].client.poll_transmit(now, &mut datagram).then_some(()));
    assert_eq!(polled.take(1_000).count(), usize::from(MAX_PACKETS_PER_FLUSH));
}

#[test]
fn a_kind_that_is_too_long_for_a_packet_is_no_object() {
    let mut world = world(1, 64_000);
    let refused = world.server.spawn(Parcel::default(), Placement::Channel(ChannelKey::Global(0)));
    let error = refused.expect_err("it cannot be replicated");
    assert_eq!(error.tag(), "entry_too_long");
    let text = error.to_string();
    assert!(text.contains("Parcel") && text.contains("send it as a message"), "{text}");
    // Nothing of it is left.
    assert_eq!(throng::Replication::objects(world.server.replication()).count(), 0);
    world.steps(10);
}
