//! After any bytes from a server, a client holds no more than it may, reports the error, and can still be used.

#[path = "../../../fuzz/bodies/choices.rs"]
mod choices;
#[path = "../../../fuzz/bodies/genuine.rs"]
mod genuine;
#[path = "../../../fuzz/bodies/kinds.rs"]
mod kinds;
#[path = "../../../fuzz/bodies/segment.rs"]
mod segment;

use proptest::prelude::*;
use throng_replica::{ApplyError, ClientOptions, LIMBO_SLACK_TICKS, ReplicaClient, SegmentError};
use throng_wire::{BitWriter, ObjectId, Tick};

proptest! {
    #![proptest_config(throng_seeds::cases(512))]

    #[test]
    fn r20_a_client_stands_any_packets(input in prop::collection::vec(any::<u8>(), 0..900)) {
        segment::run(&kinds::schema(), &input);
        segment::run(&kinds::coded_schema(), &input);
    }

    #[test]
    fn a_client_stands_bent_packets(input in prop::collection::vec(any::<u8>(), 0..1200)) {
        genuine::run_bent(&kinds::schema(), &input);
        genuine::run_bent(&kinds::coded_schema(), &input);
    }

    #[test]
    fn genuine_packets_are_never_refused(input in prop::collection::vec(any::<u8>(), 0..1200)) {
        genuine::run_unbent(&kinds::schema(), &input);
        genuine::run_unbent(&kinds::coded_schema(), &input);
    }
}

const SLOT_BITS: u32 = 20;
/// The numbers of the kinds in [`kinds::schema`].
const EVERYTHING: u64 = 0;
const SCORE: u64 = 1;
const OBJECT: ObjectId = ObjectId { index: 7, generation: 1 };

fn client(options: ClientOptions) -> ReplicaClient {
    ReplicaClient::new(kinds::schema(), &[], options).expect("no grids")
}

/// A piece for subscription 1, which was opened at tick 0.
fn piece(packet_tick: u64, tick: u64, body: &[u8]) -> Vec<u8> {
    piece_since(0, packet_tick, tick, body)
}

/// A piece for subscription 1, with the name of a global channel.
fn piece_since(opened: u64, packet_tick: u64, tick: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = BitWriter::new(&mut bytes);
    w.write_varint(1 << 2 | 2 | 1);
    w.write_varint(packet_tick - tick);
    w.write_bytes(&[0, 0]);
    w.write_varint(packet_tick - opened);
    w.write_varint(body.len() as u64);
    w.write_bytes(body);
    w.finish();
    bytes
}

/// A segment of one run. Each entry's fields are zero bits.
fn segment(range: Option<(u64, u64)>, kind_and_facet: (u64, u64), entries: &[(u64, Option<ObjectId>, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = BitWriter::new(&mut bytes);
    w.write(u64::from(SLOT_BITS), 5);
    w.write_bool(range.is_some());
    w.write(0, 2);
    if let Some((first, end)) = range {
        w.write(first, 24);
        w.write(end, 24);
    }
    if !entries.is_empty() {
        w.write_varint(kind_and_facet.0 << 2 | kind_and_facet.1);
        w.write(entries.len() as u64 - 1, 8);
    }
    for &(slot, introduced, field_bits) in entries {
        w.write(slot, SLOT_BITS);
        w.write_bool(introduced.is_some());
        if let Some(id) = introduced {
            // The short forms of index and generation: see docs/wire-format.md, 3.3.
            if id.is_none() {
                // 2^32 - 1 + 1,024, and 2^32 - 2 + 1: so many further bits, and all but the highest of the number.
                w.write((1 << 22) - 1, 23);
                w.write(1_023, 32);
                w.write((1 << 31) - 1, 32);
                w.write((1 << 31) - 1, 31);
            } else {
                w.write(0, 1);
                w.write(id.index.into(), 10);
                w.write(0, 1);
            }
        }
        (0..field_bits).for_each(|_| w.write(0, 1));
    }
    w.finish();
    bytes
}

fn tombstone(slot: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = BitWriter::new(&mut bytes);
    w.write(u64::from(SLOT_BITS), 5);
    w.write(0b10, 3);
    w.write(0, 8);
    w.write(slot, SLOT_BITS);
    w.write(0, 3);
    w.finish();
    bytes
}

/// Points and a flag.
const SCORE_BITS: u32 = 18;

#[test]
fn an_update_and_the_introduction_after_it_must_be_of_one_kind() {
    let mut client = client(ClientOptions::default());
    let update = segment(None, (SCORE, 0), &[(0, None, 2)]);
    assert_eq!(client.apply(Tick(10), &piece(10, 10, &update)), Ok(()));
    // All zero is a good value of every field of this kind but the quaternions, which are not public.
    let introduction = segment(None, (EVERYTHING, 0), &[(0, Some(OBJECT), 1_000)]);
    assert_eq!(client.apply(Tick(11), &piece(11, 11, &introduction)), Err(ApplyError::KindChanged(0)));
    assert_eq!(client.occupancy().objects, 1, "nothing is left of the refused introduction");
    let introduction = segment(None, (SCORE, 0), &[(0, Some(OBJECT), SCORE_BITS)]);
    assert_eq!(client.apply(Tick(12), &piece(12, 12, &introduction)), Ok(()));
    assert!(client.object(OBJECT).is_some());
}

#[test]
fn a_slot_that_passes_to_another_facet_of_its_object_takes_the_home_along() {
    let mut client = client(ClientOptions::default());
    for (tick, facet, bits, in_sight) in [(10, 2, 0, 0), (11, 0, SCORE_BITS, 1), (12, 2, 0, 0)] {
        let introduction = segment(None, (SCORE, facet), &[(0, Some(OBJECT), bits)]);
        assert_eq!(client.apply(Tick(tick), &piece(tick, tick, &introduction)), Ok(()));
        assert_eq!(client.object_count(), in_sight, "an object is in sight while its public facet is");
    }
    assert_eq!(client.apply(Tick(13), &piece(13, 13, &tombstone(0))), Ok(()));
    assert_eq!(client.object_count(), 0);
    // It is remembered until late packets are too late.
    assert_eq!(client.apply(Tick(14 + u64::from(LIMBO_SLACK_TICKS)), &[]), Ok(()));
    assert_eq!(client.occupancy().objects, 0);
}

#[test]
fn coming_and_going_within_a_tick_does_not_grow_what_is_held() {
    let mut client = client(ClientOptions::default());
    for tick in 0..10_000 {
        let introduction = segment(None, (SCORE, 0), &[(0, Some(OBJECT), SCORE_BITS)]);
        let packet = [piece(100_000, 2 * tick, &introduction), piece(100_000, 2 * tick + 1, &tombstone(0))].concat();
        assert_eq!(client.apply(Tick(100_000), &packet), Ok(()));
    }
    let held = client.occupancy();
    assert!(held.waits < 32 && held.objects <= 1 && held.events < 64, "{held:?}");
}

/// A client with an object in the last of its slots, and a piece that makes it look at all of them for the object. It was
/// introduced later than the piece says, and stays.
fn wide_client(slots: usize) -> (ReplicaClient, Vec<u8>) {
    let mut client = client(ClientOptions { slots, ..ClientOptions::default() });
    let last = segment(None, (SCORE, 0), &[(slots as u64 - 1, Some(OBJECT), SCORE_BITS)]);
    assert_eq!(client.apply(Tick(11), &piece(11, 11, &last)), Ok(()));
    assert_eq!((client.occupancy().slots, client.object_count()), (slots, 1));
    (client, piece(11, 10, &segment(Some((0, 0xFF_FFFF)), (SCORE, 0), &[])))
}

#[test]
fn a_packet_cannot_make_a_client_walk_its_slots_without_end() {
    let slots = 1 << 16;
    let limit = Err(ApplyError::Limit { what: "slots to look at in a few packets", limit: 4 * slots });
    let (mut client, all) = wide_client(slots);
    // It has looked at all of them once to make them.
    assert_eq!(client.apply(Tick(11), &all.repeat(3)), Ok(()));
    assert_eq!(client.apply(Tick(11), &all), limit);
    let (mut client, all) = wide_client(slots);
    assert_eq!(client.apply(Tick(11), &all.repeat(4)), limit);
    assert_eq!(client.object_count(), 1);
}

#[test]
fn many_small_packets_cannot_make_a_client_walk_its_slots_without_end() {
    let slots = 1 << 16;
    let (mut client, all) = wide_client(slots);
    let visited = (0..100).filter(|_| client.apply(Tick(11), &all).is_ok()).count() * slots;
    // The burst that nobody pays for, less what has made the slots, and what 100 packets pay for.
    assert!((2 * slots..=3 * slots + 100 * 4_096).contains(&visited), "{visited} slots");
    // Some packets later it looks at them again.
    (0..16).for_each(|_| assert_eq!(client.apply(Tick(11), &[]), Ok(())));
    assert_eq!(client.apply(Tick(11), &all), Ok(()));
    assert_eq!(client.object_count(), 1);
}

#[test]
fn an_empty_channel_is_not_gone_through() {
    let slots = 1 << 16;
    let mut client = client(ClientOptions { slots, ..ClientOptions::default() });
    let entry = (slots as u64 - 1, Some(OBJECT), SCORE_BITS);
    assert_eq!(client.apply(Tick(10), &piece(10, 10, &segment(None, (SCORE, 0), &[entry]))), Ok(()));
    let all = piece(11, 11, &segment(Some((0, 0xFF_FFFF)), (SCORE, 0), &[]));
    // The first one finds the object, and there is nothing else to be found.
    assert_eq!(client.apply(Tick(11), &all.repeat(60)), Ok(()));
    assert_eq!(client.object_count(), 0);
    // The next object is found again.
    assert_eq!(client.apply(Tick(12), &piece(12, 12, &segment(None, (SCORE, 0), &[entry]))), Ok(()));
    assert_eq!(client.object_count(), 1);
    let all = piece(13, 13, &segment(Some((0, 0xFF_FFFF)), (SCORE, 0), &[]));
    assert_eq!(client.apply(Tick(13), &all), Ok(()));
    assert_eq!(client.object_count(), 0);
}

#[test]
fn a_packet_cannot_make_a_client_add_and_drop_slots_without_end() {
    let slots = 1 << 16;
    let mut client = client(ClientOptions { slots, ..ClientOptions::default() });
    let last = tombstone(slots as u64 - 1);
    let open_and_close = |tick| {
        let close = [1 << 2 | 1, 100 - tick as u8, 0];
        [piece_since(tick, 100, tick, &last), close.to_vec()].concat()
    };
    assert_eq!(client.apply(Tick(100), &(1..5).flat_map(open_and_close).collect::<Vec<u8>>()), Ok(()));
    assert_eq!(client.occupancy().slots, 0);
    let refused = client.apply(Tick(100), &(11..16).flat_map(open_and_close).collect::<Vec<u8>>());
    assert_eq!(refused, Err(ApplyError::Limit { what: "slots to look at in a few packets", limit: 4 * slots }));
    assert_eq!(client.occupancy().slots, 0);
}

#[test]
fn a_complete_segment_lists_its_slots_in_rising_order() {
    let entry = |slot| (slot, Some(ObjectId { index: slot as u32, generation: 1 }), SCORE_BITS);
    for (slots, refused) in [([3, 5], None), ([5, 3], Some(3)), ([3, 3], Some(3)), ([3, 8], Some(8)), ([1, 3], Some(1))]
    {
        let body = segment(Some((2, 8)), (SCORE, 0), &slots.map(entry));
        let applied = client(ClientOptions::default()).apply(Tick(10), &piece(10, 10, &body));
        assert_eq!(applied, refused.map_or(Ok(()), |slot| Err(SegmentError::SlotOrder(slot).into())), "{slots:?}");
    }
}

#[test]
fn nobody_is_not_introduced() {
    let body = segment(None, (SCORE, 0), &[(0, Some(ObjectId::NONE), SCORE_BITS)]);
    let applied = client(ClientOptions::default()).apply(Tick(10), &piece(10, 10, &body));
    assert_eq!(applied, Err(SegmentError::NoObject.into()));
}

#[test]
fn late_news_of_a_former_occupant_of_another_kind_means_nothing() {
    let mut client = client(ClientOptions::default());
    let introduction = segment(None, (SCORE, 0), &[(0, Some(OBJECT), SCORE_BITS)]);
    assert_eq!(client.apply(Tick(10), &piece(10, 10, &introduction)), Ok(()));
    let update = segment(None, (EVERYTHING, 0), &[(0, None, 100)]);
    assert_eq!(client.apply(Tick(11), &piece(11, 5, &update)), Ok(()));
    assert_eq!(client.apply(Tick(12), &piece(12, 11, &update)), Err(ApplyError::KindChanged(0)));
}

#[test]
fn nothing_is_from_before_the_first_tick() {
    let mut client = client(ClientOptions::default());
    let body = segment(None, (SCORE, 0), &[(0, Some(OBJECT), SCORE_BITS)]);
    let age = 10;
    assert_eq!(client.apply(Tick(age), &piece(age, 0, &body)), Ok(()));
    assert_eq!(client.apply(Tick(age), &piece(age + 1, 0, &body)), Err(ApplyError::Age(age + 1)));
}

#[test]
fn no_piece_is_older_and_no_subscription_was_opened_earlier_than_a_server_can_say() {
    let body = segment(None, (SCORE, 0), &[(0, Some(OBJECT), SCORE_BITS)]);
    let (now, oldest, first) = (1 << 40, (1 << 40) - (1 << 30), (1 << 40) - u64::from(u32::MAX));
    let apply =
        |opened, tick| client(ClientOptions::default()).apply(Tick(now), &piece_since(opened, now, tick, &body));
    assert_eq!(apply(first, oldest), Ok(()));
    assert_eq!(apply(first, oldest - 1), Err(ApplyError::Age((1 << 30) + 1)));
    assert_eq!(apply(first - 1, oldest), Err(ApplyError::Age(1 << 32)));
}

#[test]
fn there_is_no_subscription_0() {
    let mut client = client(ClientOptions::default());
    let body = segment(None, (SCORE, 0), &[(0, Some(OBJECT), SCORE_BITS)]);
    let mut packet = piece(10, 10, &body);
    packet[0] = 2 | 1;
    assert_eq!(client.apply(Tick(10), &packet), Err(ApplyError::NoSubscription));
    // The same number, written longer than need be.
    for head in [0, 1, 2, 3] {
        let long = [&[0x80 | head, 0][..], &packet[1..]].concat();
        assert_eq!(client.apply(Tick(10), &long), Err(ApplyError::NoSubscription), "{head}");
    }
    assert_eq!(client.channels().count(), 0);
}

#[test]
fn a_client_counts_the_bytes_of_all_packets_that_it_read() {
    let mut client = client(ClientOptions::default());
    let first = piece(10, 10, &segment(None, (SCORE, 0), &[(0, Some(OBJECT), SCORE_BITS)]));
    let second = piece(11, 10, &segment(None, (SCORE, 0), &[(0, None, 2)]));
    for (tick, packet) in [(10, &first), (11, &second)] {
        assert_eq!(client.apply(Tick(tick), packet), Ok(()));
    }
    assert_eq!(client.counters().bytes, (first.len() + second.len()) as u64);
    // A refused one counts as well, as what was applied of it does.
    let third = [first.clone(), vec![2 | 1]].concat();
    assert_eq!(client.apply(Tick(10), &third), Err(ApplyError::NoSubscription));
    let counters = client.counters();
    assert_eq!(counters.bytes, (first.len() + second.len() + third.len()) as u64);
    assert_eq!(counters.segments, 3);
}

#[test]
fn every_error_of_a_packet_has_a_tag_of_its_own_for_metrics() {
    let errors = [
        (ApplyError::UnknownGrid(1), "unknown_grid"),
        (ApplyError::Age(1), "age"),
        (ApplyError::NoSubscription, "no_subscription"),
        (ApplyError::UnknownKind, "unknown_kind"),
        (ApplyError::NotIntroduced(1), "not_introduced"),
        (ApplyError::KindChanged(1), "kind_changed"),
        (ApplyError::Limit { what: "slots", limit: 1 }, "limit"),
        (SegmentError::NoObject.into(), "segment"),
    ];
    for (error, tag) in errors {
        assert_eq!(error.tag(), tag, "{error}");
    }
}
