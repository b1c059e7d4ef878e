//! The cost that each peer may cause for others: servers, other clients, and the gateway itself.

use std::sync::Arc;

use crate::stage::world::{Cut, ENTITY, FIRST, forwarded, middle, sphere, standing};
use crate::stage::{Peer, Stage, every, settings};
use prost::Message as _;
use throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject;
use throng_channeld::proto::unrealpb::{DestroyObjectMessage, SpawnObjectMessage, UnrealObjectRef};
use throng_channeld::proto::{
    Any, AuthMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage, ListChannelMessage,
    RemoveChannelMessage, UnsubscribedFromChannelMessage,
};
use throng_channeld::{Header, message_type};
use throng_gateway_engine::port::{EndCause, Side};

const CREATE: Header = Header { channel_id: 0, broadcast: 0, stub_id: 0, msg_type: message_type::CREATE_CHANNEL };

fn stage_with(limits: &[&str]) -> Stage {
    let mut words = vec!["-dev", "-chs=hifi", "-cfsm=client_authoratative_fsm.json"];
    limits.iter().for_each(|limit| words.extend(["-limit", *limit]));
    Stage::new(settings(&words))
}

fn create_message(metadata: &str) -> CreateChannelMessage {
    CreateChannelMessage { channel_type: ChannelType::Test.into(), metadata: metadata.into(), ..Default::default() }
}

/// This many bytes of state, in pieces that fit into messages.
fn large(bytes: usize) -> Any {
    let piece = || GuidCachedObject { path_name: "x".repeat(50_000), ..Default::default() };
    Any::pack(&UnrealObjectRef { context: (0..bytes / 50_000).map(|_| piece()).collect(), ..Default::default() })
}

#[test]
fn clients_that_flood_a_server_lose_their_messages_and_not_the_server() {
    let mut stage = stage_with(&[
        "server_queue_client_bytes=65536",
        "server_queue_soft_bytes=524288",
        "server_queue_hard_bytes=1048576",
    ]);
    let owner = stage.master();
    let clients: Vec<Peer> = (0..50).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
    stage.read(&owner);
    owner.stop_reading();
    for _ in 0..100 {
        for client in &clients {
            stage.say_bytes(client, Header::new(0, 100), vec![7; 1_000]);
        }
        stage.pass(5);
    }
    assert!(!owner.is_closed(), "nobody but itself could end it");
    assert!(owner.waiting() < 200_000, "{} bytes wait", owner.waiting());
    assert!(stage.refused("owner_queue") > 4_000);
    // The clients' messages from meanwhile are lost; new ones arrive.
    owner.read_on();
    stage.read(&owner);
    stage.say_bytes(&clients[0], Header::new(0, 101), vec![1]);
    assert_eq!(stage.read_type(&owner, 101).len(), 1);
}

#[test]
fn clients_that_come_and_go_all_the_time_do_not_end_the_owner_either() {
    let limits = [
        "server_queue_client_bytes=16384",
        "server_queue_soft_bytes=131072",
        "server_queue_hard_bytes=262144",
        "max_client_requests_per_s=100000",
    ];
    let mut stage = stage_with(&limits);
    let owner = stage.master();
    let room = stage.create(&owner, ChannelType::Test, None);
    let client = stage.client();
    stage.read(&owner);
    owner.stop_reading();
    for _ in 0..20_000 {
        stage.subscribe(&client, &client, room, every(20));
        let leave = UnsubscribedFromChannelMessage::default();
        stage.say(&client, Header::new(room, message_type::UNSUB_FROM_CHANNEL), &leave);
    }
    stage.pass(100);
    assert!(!owner.is_closed() && owner.waiting() < 65_536, "{} bytes wait", owner.waiting());
    assert!(stage.refused("owner_queue") > 10_000);
}

#[test]
fn clients_fill_their_share_of_the_memory_and_the_world_goes_on() {
    let limits = [
        "max_total_state_bytes=8388608",
        "reserved_server_state_bytes=4194304",
        "max_client_state_bytes=1048576",
        "max_client_requests_per_s=100000",
    ];
    let mut stage = stage_with(&limits);
    let world = stage.master();
    let of_world = stage.create(&world, ChannelType::Test, Some(large(100_000)));
    for number in 0..20 {
        let client = stage.join_as(Side::Client, &format!("c{number}"));
        let rooms: Vec<u32> = (0..4).map(|_| stage.create(&client, ChannelType::Test, None)).collect();
        for &room in rooms.iter().cycle().take(40) {
            stage.update(&client, room, large(100_000));
        }
    }
    assert!(stage.refused("client_state_bytes") > 0, "each has a share");
    assert!(stage.refused("client_states_bytes") > 0, "and all of them together");
    assert!(stage.engine.state_bytes() < 5 << 20, "{} bytes", stage.engine.state_bytes());
    for _ in 0..20 {
        stage.update(&world, of_world, large(100_000));
    }
    assert_eq!(stage.refused("total_state_bytes"), 0, "the world's own share is there");
}

#[test]
fn a_client_that_removes_its_rooms_has_their_memory_back() {
    let mut stage = stage_with(&["max_client_state_bytes=1048576"]);
    let client = stage.client();
    let empty = stage.engine.state_bytes();
    for _ in 0..5 {
        let room = stage.create(&client, ChannelType::Private, None);
        stage.update(&client, room, large(800_000));
        assert!(stage.engine.state_bytes() > empty + 800_000);
        stage.say(&client, Header::new(0, message_type::REMOVE_CHANNEL), &RemoveChannelMessage { channel_id: room });
        stage.pass(1_000);
        assert_eq!(stage.engine.state_bytes(), empty);
    }
    assert_eq!(stage.refused("client_state_bytes"), 0);
}

#[test]
fn metadata_counts_as_memory_of_who_created_the_channel() {
    let mut stage = stage_with(&["max_client_state_bytes=10000"]);
    let client = stage.client();
    let empty = stage.engine.state_bytes();
    let private =
        CreateChannelMessage { channel_type: ChannelType::Private.into(), ..create_message(&"m".repeat(3_000)) };
    for _ in 0..5 {
        stage.say(&client, CREATE, &private);
    }
    assert_eq!(stage.refused("client_state_bytes"), 2, "three fit");
    let bytes = stage.engine.state_bytes() - empty;
    assert!((9_000..9_200).contains(&bytes), "{bytes}");
    let rooms = (1..=3).map(|room| RemoveChannelMessage { channel_id: room });
    rooms.for_each(|room| stage.say(&client, Header::new(0, message_type::REMOVE_CHANNEL), &room));
    assert_eq!(stage.engine.state_bytes(), empty);
    // The share is free again.
    stage.say(&client, CREATE, &private);
    assert_eq!(stage.refused("client_state_bytes"), 2);
}

#[test]
fn metadata_of_the_world_counts_as_memory() {
    let mut stage = stage_with(&["max_total_state_bytes=1048576"]);
    let world = stage.server();
    let empty = stage.engine.state_bytes();
    let global = CreateChannelMessage {
        channel_type: ChannelType::Global.into(),
        metadata: "g".repeat(4_000),
        ..Default::default()
    };
    stage.say(&world, CREATE, &global);
    let bytes = stage.engine.state_bytes() - empty;
    assert!((4_000..4_100).contains(&bytes), "{bytes}");
    for _ in 0..300 {
        stage.say(&world, CREATE, &create_message(&"m".repeat(4_000)));
    }
    assert!(stage.refused("total_state_bytes") > 30);
    assert!(stage.engine.state_bytes() <= 1_048_576);
}

#[test]
fn references_of_objects_count_as_memory_until_they_are_destroyed() {
    let mut stage = Stage::world(TWO, &["-limit", "max_total_state_bytes=1048576"]);
    let server = stage.spatial_servers(TWO).remove(0);
    let header = |msg_type: u32| Header { broadcast: 4, ..Header::new(FIRST, msg_type) };
    let spawn = |entity: u32, bytes: usize| {
        let object =
            UnrealObjectRef { net_guid: Some(entity), class_path: Some("p".repeat(bytes)), ..Default::default() };
        SpawnObjectMessage { obj: Some(object), ..Default::default() }
    };
    for number in 0..60 {
        stage.create_entity(&server, FIRST, ENTITY + number, None);
    }
    let before = stage.engine.state_bytes();
    let name = |stage: &mut Stage, number: u32, bytes: usize| {
        let payload = spawn(ENTITY + number, bytes).encode_to_vec();
        stage.say(&server, header(message_type::UNREAL_SPAWN), &forwarded(0, payload));
    };
    name(&mut stage, 0, 10_000);
    let one = stage.engine.state_bytes() - before;
    assert!(one >= 10_000, "{one}");
    name(&mut stage, 0, 10_000);
    assert_eq!(stage.engine.state_bytes() - before, one, "it is known already");
    for number in 1..60 {
        name(&mut stage, number, 40_000);
    }
    assert!(stage.refused("total_state_bytes") > 0);
    for number in 0..60 {
        let gone = DestroyObjectMessage { net_id: ENTITY + number, reason: 0 };
        stage.say(&server, header(message_type::UNREAL_DESTROY), &forwarded(0, gone.encode_to_vec()));
    }
    // Cells remember for a while who has left them.
    stage.pass(60_000);
    let after = stage.engine.state_bytes();
    assert!(after < before + 1_000, "{after} after {before}");
}

#[test]
fn clients_do_not_take_the_last_numbers_of_channels() {
    let limits = [
        "max_client_channels=100000",
        "max_client_subscriptions=65534",
        "max_client_requests_per_s=1000000",
        "reserved_server_channel_ids=30000",
    ];
    let mut stage = stage_with(&limits);
    let (server, client) = (stage.master(), stage.client());
    for _ in 0..40_000 {
        stage.engine.receive(
            stage.now,
            client.key,
            throng_channeld::Message {
                channel_id: 0,
                broadcast: 0,
                stub_id: 0,
                msg_type: message_type::CREATE_CHANNEL,
                body: create_message("").encode_to_vec().into(),
            },
        );
    }
    stage.settle();
    stage.read(&client);
    assert_eq!(stage.engine.occupancy().channels[&(ChannelType::Test as u32)], 65_535 - 30_000);
    assert_eq!(stage.refused("channel_ids"), 40_000 - 35_535);
    assert_eq!(stage.create(&server, ChannelType::Test, None), 35_536);
}

#[test]
fn a_list_has_few_short_filters_and_a_long_answer_costs_more_than_one_request() {
    let mut stage = stage_with(&[]);
    let (server, client) = (stage.master(), stage.client());
    for number in 0..200 {
        stage.say(&server, CREATE, &create_message(&format!("{number} {}", "m".repeat(4_000))));
    }
    stage.read(&server);
    let list = Header::new(0, message_type::LIST_CHANNEL);
    for filters in [vec!["a".to_owned(); 17], vec!["x".repeat(65)]] {
        let wanted = ListChannelMessage { metadata_filters: filters, ..Default::default() };
        assert_eq!(stage.ask(&client, list, &wanted), []);
    }
    assert_eq!(stage.refused("list_filters"), 2);
    // 800 kB for 20 bytes: so often, and no more.
    stage.pass(2_000);
    stage.read(&client);
    let mut answers = 0;
    for _ in 0..100 {
        answers += usize::from(!stage.ask(&client, list, &ListChannelMessage::default()).is_empty());
        stage.pass(10);
    }
    assert!((2..=6).contains(&answers), "{answers} lists in a second");
    // A list of little costs little.
    stage.pass(5_000);
    let short = ListChannelMessage { type_filter: ChannelType::Global.into(), ..Default::default() };
    let answers = (0..45).filter(|_| !stage.ask(&client, list, &short).is_empty()).count();
    assert_eq!(answers, 45);
}

#[test]
fn subscribing_to_a_large_channel_again_and_again_is_charged() {
    let mut stage = stage_with(&["max_state_bytes=16777216"]);
    let (owner, client) = (stage.server(), stage.client());
    let room = stage.create(&owner, ChannelType::Test, None);
    for _ in 0..40 {
        stage.update(&owner, room, large(200_000));
    }
    let mut whole = 0;
    for _ in 0..200 {
        stage.subscribe(&client, &client, room, every(5));
        let before = stage.engine.counters().frames;
        stage.pass(5);
        whole += stage.engine.counters().frames - before;
        let leave = UnsubscribedFromChannelMessage::default();
        stage.say(&client, Header::new(room, message_type::UNSUB_FROM_CHANNEL), &leave);
    }
    assert!((2..=14).contains(&whole), "encoded {whole} times in a second");
    assert!(stage.refused("client_requests") > 100);
    // A crowd of small ones at once is what clients do.
    let crowd: Vec<u32> = (0..1_000).map(|_| stage.create(&owner, ChannelType::Test, None)).collect();
    let newcomer = stage.client();
    let refused = stage.refused("client_requests");
    crowd.iter().for_each(|&channel| stage.subscribe(&newcomer, &newcomer, channel, every(20)));
    assert_eq!(stage.refused("client_requests"), refused);
}

const TWO: Cut = Cut { cells: [4, 1, 0], servers: [1, 1, 0], border: 0 };

#[test]
fn a_client_that_carries_its_entity_to_and_fro_pays_for_the_crowd_that_sees_it() {
    let mut stage = Stage::world(TWO, &["-limit", "max_entity_handovers_per_s=1000"]);
    let server = stage.spatial_servers(TWO).remove(0);
    let crowd: Vec<Peer> = (0..50).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
    for (number, client) in crowd.iter().enumerate() {
        // Half of them see one side of the border only.
        stage.set_interest(&server, client, sphere(middle((number % 2) as u32, 0), 3.0));
    }
    let walker = stage.client();
    stage.create_entity(&server, FIRST, ENTITY, Some(standing(middle(0, 0))));
    let write = ChannelSubscriptionOptions { data_access: Some(2), ..every(50) };
    stage.subscribe(&server, &walker, ENTITY, write);
    let before = stage.engine.counters().handovers;
    for step in 0..1_000u32 {
        stage.walk(&walker, ENTITY, middle(step % 2, 0));
        stage.pass(1);
    }
    let moves = stage.engine.counters().handovers - before;
    assert!((1..200).contains(&moves), "{moves} handovers in a second");
    assert!(stage.refused("client_requests") > 0);
    stage.pass(3_000);
    stage.audit();
}

#[test]
fn a_player_is_not_shut_out_by_who_misbehaves_under_its_name() {
    let mut stage = Stage::new(settings(&["-dev"]));
    let vandal = stage.join_as(Side::Client, "ada");
    for _ in 0..20 {
        stage.say_bytes(&vandal, Header::new(0, message_type::CREATE_CHANNEL), Vec::new());
    }
    assert!(vandal.is_closed());
    let login = |stage: &mut Stage, address: &str| {
        let peer = stage.connect_from(Side::Client, address);
        let auth = AuthMessage { player_identifier_token: "ada".into(), ..Default::default() };
        let told = stage.ask(&peer, Header::new(0, message_type::AUTH), &auth);
        told[0].decode::<throng_channeld::proto::AuthResultMessage>().expect("an answer").result
    };
    assert_ne!(login(&mut stage, "127.0.0.1:40001"), 0, "not from where it came from");
    assert_eq!(login(&mut stage, "198.51.100.7:40000"), 0, "the player herself");
}

#[test]
fn lost_connections_that_are_waited_for_count_as_memory_until_they_are_given_up() {
    let mut stage = stage_with(&["client_resume_ms=60000", "max_unauthenticated_ms=0"]);
    let owner = stage.master();
    let rooms: Vec<u32> = (0..500).map(|_| stage.create(&owner, ChannelType::Subworld, None)).collect();
    let empty = stage.engine.memory_bytes();
    for number in 0..20 {
        let client = stage.join_as(Side::Client, &format!("{number} {}", "n".repeat(4_000)));
        rooms.iter().for_each(|&room| stage.subscribe(&owner, &client, room, every(1_000)));
        stage.drop_connection(&client, EndCause::Lost);
    }
    stage.pass(2_000);
    let kept = stage.engine.memory_bytes() - empty;
    // Names of 4 KB in three tables, and 500 subscriptions of at least 24 bytes each.
    assert!((20 * (12_000 + 500 * 24)..20 * (14_000 + 500 * 100)).contains(&kept), "{kept} bytes");
    stage.read(&owner);
    stage.pass(62_000);
    assert_eq!(stage.engine.memory_bytes(), empty);
}

#[test]
fn long_names_count_as_memory_while_their_bearers_are_connected() {
    let mut stage = stage_with(&[]);
    let empty = stage.engine.memory_bytes();
    let peers: Vec<Peer> =
        (0..10).map(|number| stage.join_as(Side::Client, &format!("{number} {}", "n".repeat(4_000)))).collect();
    stage.pass(2_000);
    let named = stage.engine.memory_bytes() - empty;
    assert!((80_000..90_000).contains(&named), "{named} bytes");
    peers.iter().for_each(|peer| stage.drop_connection(peer, EndCause::PeerClosed));
    stage.pass(2_000);
    assert_eq!(stage.engine.memory_bytes(), empty);
}

#[test]
fn field_masks_count_as_memory() {
    let mut stage = stage_with(&[]);
    let (owner, client) = (stage.master(), stage.client());
    let room = stage.create(&owner, ChannelType::Subworld, None);
    stage.pass(2_000);
    let empty = stage.engine.memory_bytes();
    let masks = |letter: &str| (0..32).map(|number| format!("{number}{}", letter.repeat(250))).collect();
    for letter in ["a", "b", "c", "d"] {
        let options = ChannelSubscriptionOptions { data_field_masks: masks(letter), ..every(50) };
        stage.subscribe(&owner, &client, room, options);
    }
    stage.pass(2_000);
    let masked = stage.engine.memory_bytes() - empty;
    assert!((60_000..130_000).contains(&masked), "{masked} bytes");
}

#[test]
fn a_new_limit_of_a_state_holds_for_the_channels_that_are_there_already() {
    let with_limit = |limit: &str| settings(&["-dev", "-cfsm=client_authoratative_fsm.json", "-limit", limit]);
    let mut stage = Stage::new(with_limit("max_state_bytes=1000000"));
    let owner = stage.master();
    let room = stage.create(&owner, ChannelType::Test, Some(large(400_000)));
    let is_taken = |stage: &mut Stage, limit: Option<&str>| {
        if let Some(limit) = limit {
            stage.engine.reload(Arc::new(with_limit(limit)));
        }
        let refused = stage.refused("too_large");
        stage.update(&owner, room, large(400_000));
        stage.refused("too_large") == refused
    };
    assert!(is_taken(&mut stage, None) && !is_taken(&mut stage, None), "two fit");
    assert!(is_taken(&mut stage, Some("max_state_bytes=1400000")), "a third does after a reload");
    assert!(!is_taken(&mut stage, None) && !is_taken(&mut stage, Some("max_state_bytes=1000000")));
}

#[test]
fn the_memory_of_what_was_removed_comes_back_when_nobody_can_need_the_removal_any_more() {
    let mut stage = Stage::world(TWO, &[]);
    let server = stage.spatial_servers(TWO).remove(0);
    let watcher = stage.client();
    stage.subscribe(&server, &watcher, FIRST, every(20));
    stage.create_entity(&server, FIRST, ENTITY + 900, Some(standing(middle(0, 0))));
    stage.pass(1_000);
    let empty = stage.engine.state_bytes();
    for number in 0..200 {
        stage.create_entity(&server, FIRST, ENTITY + number, None);
    }
    for number in 0..200 {
        let remove = RemoveChannelMessage { channel_id: ENTITY + number };
        stage.say(&server, Header::new(0, message_type::REMOVE_CHANNEL), &remove);
    }
    // For so long a slow reader may need them: two turns of a minute, and 150 s to read what came before.
    let kept_after = |stage: &mut Stage, seconds: u64| {
        for _ in 0..seconds {
            stage.walk(&server, ENTITY + 900, middle(0, 0));
            stage.pass(1_000);
        }
        stage.engine.state_bytes() - empty
    };
    let remembered = kept_after(&mut stage, 270);
    let kept = kept_after(&mut stage, 30);
    assert!(kept + 200 * 80 < remembered, "{kept} bytes of {remembered} for 200 removals");
}
