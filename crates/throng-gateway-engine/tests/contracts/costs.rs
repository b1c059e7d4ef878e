//! The cost of one operation does not depend on the number of other objects.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::stage::world::{Cut, ENTITY, FIRST, middle, standing};
use crate::stage::{Peer, Stage, settings};
use throng_channeld::proto::{ChannelType, CreateChannelMessage, RemoveChannelMessage};
use throng_channeld::{Message, message_type};
use throng_gateway_engine::group::{EntityGroups, GroupKind};
use throng_gateway_engine::port::{EndCause, Side};

/// Hands a message over without letting the gateway do anything else.
fn receive(stage: &mut Stage, from: &Peer, msg_type: u32, body: &impl prost::Message) {
    let body = body.encode_to_vec().into();
    let message = Message { channel_id: 0, broadcast: 0, stub_id: 0, msg_type, body };
    stage.engine.receive(stage.now, from.key, message);
}

fn create_many(stage: &mut Stage, owner: &Peer, count: u32) {
    let create = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), ..Default::default() };
    (0..count).for_each(|_| receive(stage, owner, message_type::CREATE_CHANNEL, &create));
    stage.settle();
    stage.read(owner);
}

/// The time that it takes to remove some channels of the first numbers.
fn removal(stage: &mut Stage, owner: &Peer, channels: u32) -> Duration {
    let begin = Instant::now();
    for channel_id in 1..=channels {
        receive(stage, owner, message_type::REMOVE_CHANNEL, &RemoveChannelMessage { channel_id });
    }
    let took = begin.elapsed();
    stage.settle();
    stage.read(owner);
    took
}

/// The least of some times: what else the machine does makes them longer.
fn best(mut measure: impl FnMut() -> Duration) -> f64 {
    (0..3).map(|_| measure()).min().expect("three").as_secs_f64()
}

/// Things are thirty times as many, or more. Where each is looked at, it takes thirty times as long; where none is, the
/// larger tables are farther away, in memory that others use as well.
const RATIO_MAX: f64 = 10.0;

const REMOVED: u32 = 2_000;

#[test]
fn to_remove_a_channel_costs_the_same_however_many_its_owner_has() {
    let of = |channels: u32| {
        best(|| {
            let mut stage = Stage::new(settings(&["-dev", "-chs=hifi"]));
            let owner = stage.server();
            create_many(&mut stage, &owner, channels);
            removal(&mut stage, &owner, REMOVED)
        })
    };
    let ratio = of(60_000) / of(REMOVED);
    assert!(ratio < RATIO_MAX, "{ratio} times");
}

#[test]
fn to_remove_an_entity_costs_the_same_however_many_are_locked() {
    let of = |locked: u32| {
        best(|| {
            let mut groups = EntityGroups::default();
            let all: Vec<u32> = (REMOVED..REMOVED + locked).collect();
            groups.add(REMOVED, GroupKind::Lock, &all).expect("there is room");
            let mut took = Duration::ZERO;
            // Many times, because once takes too little of the clock.
            for _ in 0..10 {
                (0..REMOVED).for_each(|entity| groups.add(entity, GroupKind::Lock, &[entity]).expect("there is room"));
                let begin = Instant::now();
                for entity in 0..REMOVED {
                    groups.entity_gone(entity);
                }
                took += begin.elapsed();
            }
            took
        })
    };
    let ratio = of(100_000) / of(1);
    assert!(ratio < RATIO_MAX, "{ratio} times");
}

#[test]
fn to_remove_a_channel_costs_the_same_however_many_servers_are_waited_for() {
    let of = |lost: u32| {
        best(|| {
            let mut stage = Stage::new(settings(&["-dev", "-chs=hifi", "-scr"]));
            for number in 0..lost {
                let server = stage.join_as(Side::Server, &format!("s{number}"));
                stage.drop_connection(&server, EndCause::Lost);
            }
            let owner = stage.server();
            create_many(&mut stage, &owner, REMOVED);
            removal(&mut stage, &owner, REMOVED)
        })
    };
    let ratio = of(4_000) / of(1);
    assert!(ratio < RATIO_MAX, "{ratio} times");
}

const CUT: Cut = Cut { cells: [2, 1, 0], servers: [2, 1, 0], border: 0 };

#[test]
fn a_server_that_takes_its_cells_back_costs_the_same_however_many_entities_are_elsewhere() {
    let of = |elsewhere: u32| {
        best(|| {
            let mut stage = Stage::world(CUT, &["-scr", "-limit", "max_server_channels=131072"]);
            let servers = stage.spatial_servers(CUT);
            for number in 0..elsewhere {
                stage.create_entity(&servers[0], FIRST, ENTITY + number, Some(standing(middle(0, 0))));
                stage.read(&servers[0]);
            }
            stage.pass(1_000);
            let begin = Instant::now();
            for _ in 0..50 {
                stage.drop_connection(&servers[1], EndCause::Lost);
                let back = stage.connect(Side::Server);
                let again = Peer { id: servers[1].id, ..back };
                let auth =
                    throng_channeld::proto::AuthMessage { player_identifier_token: "w1".into(), ..Default::default() };
                receive(&mut stage, &again, message_type::AUTH, &auth);
                stage.settle();
                stage.drop_connection(&again, EndCause::Lost);
            }
            begin.elapsed()
        })
    };
    let ratio = of(8_000) / of(10);
    assert!(ratio < RATIO_MAX, "{ratio} times");
}

#[test]
fn tables_by_what_peers_say_have_a_keyed_hash() {
    fn visit(folder: &Path, faults: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                visit(&path, faults);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("text");
            for fast in ["FxHashMap<", "FxHashSet<"] {
                for (at, _) in text.match_indices(fast) {
                    let rest = &text[at + fast.len()..];
                    // The key ends with the first comma or bracket outside of a pair.
                    let key = match rest.strip_prefix('(') {
                        Some(pair) => pair.split(')').next(),
                        None => rest.split([',', '>']).next(),
                    };
                    let key = key.unwrap_or_default();
                    let is_said = ["String", "str", "IpAddr", "SocketAddr", "Bytes", "Vec<u8>", "LostKey", "Who"];
                    if !key.starts_with("&'static") && is_said.iter().any(|said| key.contains(said)) {
                        faults.push(format!("{}: {fast}{key}", path.display()));
                    }
                }
            }
        }
    }
    let mut faults = Vec::new();
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut faults);
    assert_eq!(faults, Vec::<String>::new(), "peers who choose what is hashed could make tables slow");
}
