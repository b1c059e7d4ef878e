//! Level 5: entities, groups and handover.

use super::stage::world::{Cut, ENTITY, FIRST, middle, of_type, sphere, standing};
use super::stage::{Peer, Stage, every};
use prost::Message as _;
use throng_channeld::proto::unrealpb::{ActorState, FRepMovement, FVector, SpatialChannelData};
use throng_channeld::proto::{
    AddEntityGroupMessage, Any, AuthMessage, ChannelDataAccess, ChannelDataHandoverMessage, ChannelSubscriptionOptions,
    CreateChannelResultMessage, CreateEntityChannelMessage, EntityGroupType, RemoveChannelMessage,
    RemoveEntityGroupMessage, SubscribedToChannelResultMessage, TransformState, UnsubscribedFromChannelMessage,
    UnsubscribedFromChannelResultMessage, Vector4f,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway_engine::port::{EndCause, Side};

const TWO: Cut = Cut { cells: [4, 1, 0], servers: [2, 1, 0], border: 0 };

fn handovers(messages: &[Message]) -> Vec<(ChannelDataHandoverMessage, SpatialChannelData)> {
    of_type::<ChannelDataHandoverMessage>(messages, message_type::CHANNEL_DATA_HANDOVER)
        .into_iter()
        .map(|(channel, notice)| {
            assert_eq!(channel, notice.dst_channel_id);
            let data = notice.data.clone().expect("data");
            assert_eq!(data.full_name(), "unrealpb.SpatialChannelData");
            (notice, SpatialChannelData::decode(data.value).expect("a cell's data"))
        })
        .collect()
}

fn access(messages: &[Message], channel: u32, id: u32) -> Option<ChannelDataAccess> {
    of_type::<SubscribedToChannelResultMessage>(messages, message_type::SUB_TO_CHANNEL)
        .into_iter()
        .filter(|(at, result)| *at == channel && result.conn_id == id)
        .map(|(_, result)| result.sub_options.expect("options").data_access())
        .next_back()
}

fn group(stage: &mut Stage, owner: &Peer, entity: u32, kind: EntityGroupType, members: &[u32]) {
    let add = AddEntityGroupMessage { r#type: kind.into(), entities_to_add: members.to_vec() };
    stage.say(owner, Header::new(entity, message_type::ENTITY_GROUP_ADD), &add);
}

fn free(stage: &mut Stage, owner: &Peer, entity: u32, kind: EntityGroupType, members: &[u32]) {
    let free = RemoveEntityGroupMessage { r#type: kind.into(), entities_to_remove: members.to_vec() };
    stage.say(owner, Header::new(entity, message_type::ENTITY_GROUP_REMOVE), &free);
}

fn cell_of(stage: &Stage, entity: u32) -> u32 {
    stage.place_of(entity).expect("it exists").1.expect("it is in a cell") - FIRST
}

fn owner_of(stage: &Stage, entity: u32) -> u32 {
    stage.place_of(entity).expect("it exists").0.expect("it is owned")
}

#[test]
fn an_entity_made_globally_belongs_to_who_owns_the_cell_that_it_stands_in() {
    let mut stage = Stage::world(TWO, &[]);
    let master = stage.master();
    let servers = stage.spatial_servers(TWO);
    stage.read(&master);
    stage.create_entity(&master, 0, ENTITY, Some(standing(middle(3, 0))));
    let told = stage.read(&master);
    let answer = told.iter().find(|message| message.stub_id == 6).expect("an answer with the stub");
    let result: CreateChannelResultMessage = answer.decode().expect("a result");
    assert_eq!((answer.msg_type, result.channel_id, result.owner_conn_id), (15, ENTITY, servers[1].id));
    assert_eq!(result.channel_type, 5);
    assert!(access(&told, ENTITY, master.id).is_some(), "its creator subscribes");
    let at_owner = stage.read(&servers[1]);
    assert_eq!(access(&at_owner, ENTITY, servers[1].id), Some(ChannelDataAccess::WriteAccess));
    assert_eq!((cell_of(&stage, ENTITY), owner_of(&stage, ENTITY)), (3, servers[1].id));
    stage.create_entity(&servers[0], FIRST, ENTITY + 1, None);
    assert_eq!((cell_of(&stage, ENTITY + 1), owner_of(&stage, ENTITY + 1)), (0, servers[0].id));
    stage.create_entity(&master, 0, ENTITY + 2, None);
    assert_eq!(stage.place_of(ENTITY + 2), Some((Some(master.id), None)), "nobody knows where it is");
    stage.walk(&master, ENTITY + 2, middle(1, 0));
    assert_eq!(cell_of(&stage, ENTITY + 2), 1, "now it is known");
}

#[test]
fn an_entity_needs_an_id_of_its_own_a_creator_with_the_right_and_room() {
    let mut stage = Stage::world(TWO, &["-limit", "max_server_channels=2", "-limit", "max_metadata_bytes=10"]);
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST, ENTITY, None);
    stage.create_entity(&servers[1], FIRST + 2, ENTITY, None);
    assert_eq!(stage.refused("channel_exists"), 1);
    assert_eq!(stage.read(&servers[1]), [], "an empty answer would be GLOBAL's");
    stage.create_entity(&servers[0], FIRST, ENTITY - 1, None);
    assert_eq!(stage.refused("not_allowed"), 1, "the id of no entity");
    let client = stage.client();
    stage.create_entity(&client, FIRST, ENTITY + 5, None);
    assert_eq!(stage.refused("not_allowed"), 2);
    stage.create_entity(&servers[0], ENTITY, ENTITY + 6, None);
    assert_eq!(stage.refused("wrong_channel"), 1);
    stage.create_entity(&servers[0], FIRST, ENTITY + 7, None);
    stage.create_entity(&servers[0], FIRST, ENTITY + 8, None);
    assert_eq!(stage.refused("channels_created"), 1);
    let named = CreateEntityChannelMessage { entity_id: ENTITY + 9, metadata: "x".repeat(11), ..Default::default() };
    stage.say(&servers[1], Header::new(FIRST + 2, message_type::CREATE_ENTITY_CHANNEL), &named);
    assert_eq!(stage.refused("metadata_bytes"), 1);
}

#[test]
fn at_a_border_between_servers_the_owner_changes_and_everybody_hears_what_concerns_them() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let [stays, goes, comes] = [stage.client(), stage.client(), stage.client()];
    stage.set_interest(&servers[0], &stays, sphere([20.0, 1.0, 5.0], 8.0)); // cells 1 and 2
    stage.set_interest(&servers[0], &goes, sphere(middle(1, 0), 3.0));
    stage.set_interest(&servers[1], &comes, sphere(middle(2, 0), 3.0));
    stage.create_entity(&servers[0], FIRST + 1, ENTITY, Some(standing(middle(1, 0))));
    for client in [&stays, &goes] {
        stage.subscribe(&servers[0], client, ENTITY, every(50));
    }
    stage.pass(200);
    for peer in [&servers[0], &servers[1], &stays, &goes, &comes] {
        stage.read(peer);
    }
    stage.walk_for(&servers[0], ENTITY, middle(2, 0), goes.id);
    assert_eq!((cell_of(&stage, ENTITY), owner_of(&stage, ENTITY)), (2, servers[1].id));

    let mut old = stage.read(&servers[0]);
    old.retain(|message| message.msg_type != message_type::CHANNEL_DATA_UPDATE);
    let kinds: Vec<u32> = old.iter().map(|message| message.msg_type).collect();
    assert_eq!(kinds, [message_type::UNSUB_FROM_CHANNEL, message_type::CHANNEL_DATA_HANDOVER]);
    let left: UnsubscribedFromChannelResultMessage = old[0].decode().expect("a result");
    assert_eq!((old[0].channel_id, left.conn_id), (ENTITY, servers[0].id));
    let (notice, data) = handovers(&old).remove(0);
    assert_eq!((notice.src_channel_id, notice.dst_channel_id), (FIRST + 1, FIRST + 2));
    assert_eq!(notice.context_conn_id, goes.id, "on whose behalf");
    assert_eq!(data.entities[&ENTITY].entity_data, None, "who sees it go gets its id");

    let new = stage.read(&servers[1]);
    assert_eq!(access(&new, ENTITY, servers[1].id), Some(ChannelDataAccess::WriteAccess));
    let (_, data) = handovers(&new).remove(0);
    let state = data.entities[&ENTITY].entity_data.clone().expect("all of it for who has to simulate it");
    let state = TransformState::decode(state.value).expect("a transform");
    assert_eq!(state.position.expect("a position").x, 25.0);

    let (at_stays, at_goes, at_comes) = (stage.read(&stays), stage.read(&goes), stage.read(&comes));
    assert_eq!(handovers(&at_stays)[0].1.entities[&ENTITY].entity_data, None, "it has it already");
    assert_eq!(handovers(&at_goes)[0].1.entities[&ENTITY].entity_data, None);
    assert!(handovers(&at_comes)[0].1.entities[&ENTITY].entity_data.is_some());
    assert_eq!(access(&at_comes, ENTITY, comes.id), Some(ChannelDataAccess::ReadAccess));
    assert_eq!(handovers(&at_stays).len() + handovers(&at_goes).len() + handovers(&at_comes).len(), 3, "once each");
    assert_eq!(stage.engine.counters().handovers, 1);
    stage.audit();

    // The new owner's updates arrive, also at a new subscriber.
    stage.walk(&servers[1], ENTITY, [26.0, 1.0, 5.0]);
    stage.pass(100);
    let seen = stage.updates::<TransformState>(&comes, ENTITY);
    assert_eq!(seen.last().and_then(|state| state.position).map(|position| position.x), Some(26.0));
}

#[test]
fn a_client_that_moves_its_own_entity_is_the_context_of_the_handover() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let player = stage.client();
    stage.create_entity(&servers[0], FIRST + 1, ENTITY, Some(standing(middle(1, 0))));
    let write = ChannelSubscriptionOptions { data_access: Some(2), ..Default::default() };
    stage.subscribe(&servers[0], &player, ENTITY, write);
    stage.read(&servers[1]);
    stage.walk(&player, ENTITY, middle(2, 0));
    let messages = stage.read(&servers[1]);
    assert_eq!(handovers(&messages)[0].0.context_conn_id, player.id);
    assert_eq!(owner_of(&stage, ENTITY), servers[1].id);
}

#[test]
fn inside_of_one_servers_cells_the_owner_stays() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(standing(middle(0, 0))));
    stage.read(&servers[0]);
    stage.walk(&servers[0], ENTITY, middle(1, 0));
    assert_eq!((cell_of(&stage, ENTITY), owner_of(&stage, ENTITY)), (1, servers[0].id));
    let messages = stage.read(&servers[0]);
    assert_eq!(handovers(&messages)[0].1.entities[&ENTITY].entity_data, None);
    assert!(messages.iter().all(|message| message.msg_type != message_type::UNSUB_FROM_CHANNEL));
    stage.walk(&servers[0], ENTITY, [-5.0, 1.0, 5.0]);
    assert_eq!(cell_of(&stage, ENTITY), 1, "outside of the world is nowhere to go");
}

#[test]
fn an_old_owner_that_sees_the_border_goes_on_reading() {
    let cut = Cut { border: 1, ..TWO };
    let mut stage = Stage::world(cut, &[]);
    let servers = stage.spatial_servers(cut);
    stage.create_entity(&servers[0], FIRST + 1, ENTITY, Some(standing(middle(1, 0))));
    stage.read(&servers[0]);
    stage.walk(&servers[0], ENTITY, middle(2, 0));
    let messages = stage.read(&servers[0]);
    assert_eq!(access(&messages, ENTITY, servers[0].id), Some(ChannelDataAccess::ReadAccess));
    stage.walk(&servers[1], ENTITY, middle(3, 0));
    assert_eq!(cell_of(&stage, ENTITY), 3);
}

#[test]
fn grouped_entities_move_together_and_locked_ones_stay_until_they_are_free() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    for number in 0..4 {
        stage.create_entity(&servers[0], FIRST + number % 2, ENTITY + number, Some(standing(middle(number % 2, 0))));
    }
    group(&mut stage, &servers[0], ENTITY, EntityGroupType::Handover, &[ENTITY + 1, ENTITY + 2]);
    stage.walk(&servers[0], ENTITY, middle(2, 0));
    for number in 0..3 {
        assert_eq!((cell_of(&stage, ENTITY + number), owner_of(&stage, ENTITY + number)), (2, servers[1].id));
    }
    assert_eq!(cell_of(&stage, ENTITY + 3), 1);
    stage.audit();
    // A lock without a handover group holds, too.
    group(&mut stage, &servers[0], ENTITY + 3, EntityGroupType::Lock, &[ENTITY + 3]);
    stage.walk(&servers[0], ENTITY + 3, middle(3, 0));
    assert_eq!(cell_of(&stage, ENTITY + 3), 1);
    let free = RemoveEntityGroupMessage { r#type: EntityGroupType::Lock.into(), entities_to_remove: vec![ENTITY + 3] };
    stage.say(&servers[0], Header::new(ENTITY + 3, message_type::ENTITY_GROUP_REMOVE), &free);
    assert_eq!((cell_of(&stage, ENTITY + 3), owner_of(&stage, ENTITY + 3)), (3, servers[1].id), "made up for at once");
    // A locked entity holds back all of its group.
    group(&mut stage, &servers[1], ENTITY + 1, EntityGroupType::Lock, &[ENTITY + 1]);
    stage.walk(&servers[1], ENTITY, middle(3, 0));
    assert_eq!([0, 1, 2].map(|number| cell_of(&stage, ENTITY + number)), [2, 2, 2]);
    group(&mut stage, &servers[0], ENTITY, EntityGroupType::Handover, &[ENTITY + 3]);
    assert_eq!(stage.refused("not_allowed"), 1, "not its owner");
    stage.audit();
}

#[test]
fn what_a_lock_held_goes_where_it_stands_however_the_lock_ends() {
    let ends: [fn(&mut Stage, &Peer); 4] = [
        |stage, owner| free(stage, owner, ENTITY + 1, EntityGroupType::Lock, &[ENTITY + 1]),
        |stage, owner| free(stage, owner, ENTITY, EntityGroupType::Handover, &[ENTITY + 1]),
        |stage, owner| {
            let remove = RemoveChannelMessage { channel_id: ENTITY + 3 };
            stage.say(owner, Header::new(0, message_type::REMOVE_CHANNEL), &remove);
        },
        |stage, owner| {
            let remove = RemoveChannelMessage { channel_id: ENTITY + 1 };
            stage.say(owner, Header::new(0, message_type::REMOVE_CHANNEL), &remove);
        },
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let mut stage = Stage::world(TWO, &[]);
        let servers = stage.spatial_servers(TWO);
        for entity in 0..4 {
            stage.create_entity(&servers[0], FIRST + 1, ENTITY + entity, Some(standing(middle(1, 0))));
        }
        group(&mut stage, &servers[0], ENTITY, EntityGroupType::Handover, &[ENTITY + 1, ENTITY + 2]);
        group(&mut stage, &servers[0], ENTITY + 3, EntityGroupType::Lock, &[ENTITY + 1]);
        stage.walk(&servers[0], ENTITY, middle(2, 0));
        assert_eq!((cell_of(&stage, ENTITY), cell_of(&stage, ENTITY + 2)), (1, 1), "{number}");
        end(&mut stage, &servers[0]);
        for entity in [ENTITY, ENTITY + 2] {
            assert_eq!((cell_of(&stage, entity), owner_of(&stage, entity)), (2, servers[1].id), "{number}");
        }
        stage.audit();
    }
}

#[test]
fn who_is_in_no_world_is_in_no_group() {
    let mut stage = Stage::world(TWO, &["-limit", "max_grouped_entities=4"]);
    let servers = stage.spatial_servers(TWO);
    for entity in [ENTITY, ENTITY + 1] {
        stage.create_entity(&servers[0], FIRST + 1, entity, Some(standing(middle(1, 0))));
    }
    for kind in [EntityGroupType::Handover, EntityGroupType::Lock] {
        group(&mut stage, &servers[0], ENTITY, kind, &[ENTITY + 7, ENTITY + 8]);
    }
    assert_eq!(stage.refused("unknown_channel"), 2);
    stage.create_entity(&servers[0], FIRST + 1, ENTITY + 7, Some(standing(middle(1, 0))));
    stage.walk(&servers[0], ENTITY, middle(2, 0));
    stage.walk(&servers[0], ENTITY + 7, middle(3, 0));
    assert_eq!([0, 7].map(|number| cell_of(&stage, ENTITY + number)), [2, 3], "each for itself");
    group(&mut stage, &servers[0], ENTITY + 1, EntityGroupType::Lock, &[ENTITY, ENTITY + 1, ENTITY + 7]);
    assert_eq!(stage.refused("entity_groups_full"), 0, "there is room");
}

#[test]
fn an_entity_whose_creator_may_not_read_it_so_does_not_come_into_being() {
    let mut stage = Stage::world(TWO, &[]);
    let master = stage.master();
    let curious = stage.connect(Side::Server);
    let auth = AuthMessage { player_identifier_token: "w".into(), wants_refusals: true, ..Default::default() };
    stage.say(&curious, Header::new(0, message_type::AUTH), &auth);
    stage.ask_for_cells(&curious);
    stage.read(&master);
    let sub_options = ChannelSubscriptionOptions {
        data_field_masks: (0..33).map(|number| format!("field{number}")).collect(),
        ..Default::default()
    };
    let create = CreateEntityChannelMessage {
        entity_id: ENTITY,
        data: Some(standing(middle(0, 0))),
        sub_options: Some(sub_options),
        ..Default::default()
    };
    let header = Header::new(FIRST, message_type::CREATE_ENTITY_CHANNEL).with_stub(9);
    let told: Vec<(u32, u32)> = stage.ask(&curious, header, &create).iter().map(|m| (m.msg_type, m.stub_id)).collect();
    assert_eq!(told, [(message_type::REFUSED, 9)]);
    assert_eq!(stage.read(&master), []);
    assert_eq!((stage.place_of(ENTITY), stage.refused("field_masks")), (None, 1));
    stage.audit();
}

#[test]
fn an_entity_is_its_cells_owners_who_has_no_room_to_read_it() {
    let mut stage = Stage::world(TWO, &["-limit", "max_server_subscriptions=2"]);
    let master = stage.master();
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&master, 0, ENTITY, Some(standing(middle(3, 0))));
    assert!(stage.read(&master).iter().any(|message| message.stub_id == 6), "it is made");
    assert_eq!((cell_of(&stage, ENTITY), owner_of(&stage, ENTITY)), (3, servers[1].id));
    assert_eq!(stage.refused("server_subscriptions"), 1);
    stage.audit();
}

#[test]
fn an_entity_stays_listed_while_nobody_could_own_it_there_and_goes_when_somebody_can() {
    let mut stage = Stage::world(TWO, &["-scr", "-scrt=60000"]);
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST + 1, ENTITY, Some(standing(middle(1, 0))));
    stage.drop_connection(&servers[1], EndCause::Lost);
    stage.walk(&servers[0], ENTITY, middle(2, 0));
    assert_eq!((cell_of(&stage, ENTITY), owner_of(&stage, ENTITY)), (1, servers[0].id));
    assert_eq!(stage.refused("handover_no_owner"), 1);
    stage.audit();
    let back = stage.join_as(Side::Server, "w1");
    assert_eq!(back.id, servers[1].id);
    assert_eq!((cell_of(&stage, ENTITY), owner_of(&stage, ENTITY)), (2, back.id), "without another update");
    stage.audit();
}

#[test]
fn an_entity_that_jitters_on_a_border_waits_for_the_next_second_and_then_is_where_it_belongs() {
    let mut stage = Stage::world(TWO, &["-limit", "max_entity_handovers_per_s=5"]);
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST + 1, ENTITY, Some(standing(middle(1, 0))));
    for step in 0..20 {
        let to = middle(2 - step % 2, 0);
        stage.walk(&servers[0], ENTITY, to);
    }
    assert_eq!(stage.engine.counters().handovers, 5);
    assert!(stage.refused("entity_handovers_per_s") > 0);
    stage.walk(&servers[0], ENTITY, middle(3, 0));
    stage.audit();
    let before = cell_of(&stage, ENTITY);
    assert_ne!(before, 3);
    stage.pass(1_001);
    assert_eq!((cell_of(&stage, ENTITY), owner_of(&stage, ENTITY)), (3, servers[1].id));
    stage.audit();
}

#[test]
fn the_handovers_of_a_second_are_limited_and_all_are_made_up_for() {
    let mut stage = Stage::world(TWO, &["-limit", "max_handovers_per_s=10"]);
    let servers = stage.spatial_servers(TWO);
    for number in 0..35 {
        stage.create_entity(&servers[0], FIRST + 1, ENTITY + number, Some(standing(middle(1, 0))));
        stage.walk(&servers[0], ENTITY + number, middle(2, 0));
    }
    let arrived = |stage: &Stage| (0..35).filter(|number| cell_of(stage, ENTITY + number) == 2).count();
    assert_eq!(arrived(&stage), 10);
    assert_eq!(stage.refused("handovers_per_s"), 25);
    for expected in [20, 30, 35] {
        stage.pass(1_000);
        assert_eq!(arrived(&stage), expected);
        stage.audit();
    }
    let refused = stage.refused("handovers_per_s");
    stage.pass(5_000);
    assert_eq!(stage.refused("handovers_per_s"), refused, "nobody waits any more");
}

#[test]
fn a_group_whose_handover_takes_more_than_the_rest_of_a_second_waits_for_the_next_one() {
    let mut stage = Stage::world(TWO, &["-limit", "max_handover_actions_per_s=100"]);
    let servers = stage.spatial_servers(TWO);
    let first: Vec<u32> = (1..41).map(|number| ENTITY + number).collect();
    let second: Vec<u32> = (41..81).map(|number| ENTITY + number).collect();
    for &entity in [ENTITY].iter().chain(&first).chain(&second) {
        stage.create_entity(&servers[0], FIRST + 1, entity, Some(standing(middle(1, 0))));
    }
    for members in [&first, &second] {
        group(&mut stage, &servers[0], members[0], EntityGroupType::Handover, &members[1..]);
    }
    for mover in [ENTITY, first[0], second[0]] {
        stage.walk(&servers[0], mover, middle(2, 0));
    }
    let has_moved = |stage: &Stage, all: &[u32]| all.iter().all(|&entity| cell_of(stage, entity) == 2);
    assert!(has_moved(&stage, &[ENTITY]) && !has_moved(&stage, &first) && !has_moved(&stage, &second));
    assert_eq!(stage.refused("handover_actions_per_s"), 2);
    // Each is more than a second's worth, and has a second for itself.
    stage.pass(1_000);
    assert!(has_moved(&stage, &first) && !has_moved(&stage, &second));
    stage.pass(1_000);
    assert!(has_moved(&stage, &second));
    stage.audit();
}

/// An entity in the second cell with this many bytes more.
fn blob(bytes: usize) -> Any {
    // A field that no schema knows travels with the rest.
    let mut any = standing(middle(1, 0));
    let mut value = any.value.to_vec();
    prost::encoding::encode_key(900, prost::encoding::WireType::LengthDelimited, &mut value);
    prost::encoding::encode_varint(bytes as u64, &mut value);
    value.resize(value.len() + bytes, 7);
    any.value = value.into();
    any
}

#[test]
fn a_large_group_of_large_entities_is_told_at_a_pace_that_a_client_can_take() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let members: Vec<u32> = (0..200).map(|number| ENTITY + number).collect();
    for &entity in &members {
        stage.create_entity(&servers[0], FIRST + 1, entity, Some(blob(25_000)));
    }
    group(&mut stage, &servers[0], ENTITY, EntityGroupType::Handover, &members);
    let client = stage.client();
    stage.subscribe(&servers[1], &client, FIRST + 2, super::stage::every(20));
    stage.pass(100);
    stage.read(&client);
    stage.walk(&servers[0], ENTITY, middle(2, 0));
    let at_once: usize = client.line.lock().unwrap().bytes.len();
    assert!(at_once < 600_000, "5 MB of state, of which {at_once} bytes come as messages");
    let messages = stage.read(&client);
    let mut told: Vec<u32> = Vec::new();
    for (_, data) in handovers(&messages) {
        let with_data = data.entities.iter().filter(|(_, state)| state.entity_data.is_some());
        told.extend(with_data.map(|(&entity, _)| entity));
    }
    assert!(!told.is_empty());
    stage.pass(2_000);
    let updates = stage.read_type(&client, message_type::CHANNEL_DATA_UPDATE);
    told.extend(updates.iter().filter(|m| m.body.len() > 25_000).map(|message| message.channel_id));
    told.sort_unstable();
    assert_eq!(told, members, "each once, in one way or the other");
}

#[test]
fn a_notice_of_more_than_a_packet_comes_in_parts_and_what_is_larger_still_as_an_update() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let members: Vec<u32> = (0..12).map(|number| ENTITY + number).collect();
    for &entity in &members {
        let bytes = if entity == ENTITY { 50_000 } else { 15_000 };
        stage.create_entity(&servers[0], FIRST + 1, entity, Some(blob(bytes)));
    }
    group(&mut stage, &servers[0], ENTITY, EntityGroupType::Handover, &members);
    stage.read(&servers[1]);
    stage.walk(&servers[0], ENTITY, middle(2, 0));
    let messages = stage.read(&servers[1]);
    let notices = handovers(&messages);
    assert!(notices.len() > 3 && messages.iter().all(|message| message.body.len() < 60_000));
    let mut told = Vec::new();
    for (_, data) in &notices {
        for (&entity, state) in &data.entities {
            told.push(entity);
            let bytes = state.entity_data.as_ref().map_or(0, |data| data.value.len());
            assert_eq!(bytes > 15_000, entity != ENTITY, "{entity}: {bytes}");
        }
    }
    told.sort_unstable();
    assert_eq!(told, members, "each once");
    stage.pass(200);
    let updates = stage.read_type(&servers[1], message_type::CHANNEL_DATA_UPDATE);
    let bytes: usize = updates.iter().filter(|m| m.channel_id == ENTITY).map(|m| m.body.len()).sum();
    assert!(bytes > 50_000, "its state follows: {bytes} bytes");
    stage.audit();
}

#[test]
fn all_clients_see_what_is_well_known_those_to_come_a_second_later() {
    let mut stage = Stage::world(TWO, &["-limit", "client_resume_ms=5000"]);
    let servers = stage.spatial_servers(TWO);
    let present = stage.join_as(Side::Client, "present");
    let well_known = CreateEntityChannelMessage {
        entity_id: ENTITY,
        data: Some(standing(middle(0, 0))),
        is_well_known: true,
        ..Default::default()
    };
    stage.read(&servers[1]);
    stage.say(&servers[0], Header::new(FIRST, message_type::CREATE_ENTITY_CHANNEL), &well_known);
    let told = stage.read(&present);
    assert_eq!(access(&told, ENTITY, present.id), Some(ChannelDataAccess::ReadAccess));
    assert_eq!(access(&stage.read(&servers[1]), ENTITY, servers[1].id), None, "servers are not");
    let mut late = stage.connect(Side::Client);
    stage.authenticate(&mut late, "late");
    let subscriptions = stage.engine.connections().find(|c| c.id == late.id).map(|c| c.subscriptions);
    assert_eq!(subscriptions, Some(1));
    stage.pass(980);
    assert_eq!(stage.updates::<TransformState>(&late, ENTITY).len(), 0);
    assert_eq!(stage.updates::<TransformState>(&present, ENTITY).len(), 1);
    stage.pass(120);
    assert_eq!(stage.updates::<TransformState>(&late, ENTITY).len(), 1);
    // A subscriber that comes back gets it once.
    stage.drop_connection(&present, EndCause::Lost);
    let back = stage.join_as(Side::Client, "present");
    assert_eq!(back.id, present.id);
    stage.pass(1_200);
    assert_eq!(stage.updates::<TransformState>(&back, ENTITY).len(), 1);
}

/// Whether it was present or away.
#[test]
fn a_client_that_comes_back_sees_what_has_become_well_known_and_not_what_was_taken_from_it() {
    let mut stage = Stage::world(TWO, &["-limit", "client_resume_ms=5000"]);
    let servers = stage.spatial_servers(TWO);
    let header = Header::new(FIRST, message_type::CREATE_ENTITY_CHANNEL);
    let well_known = |entity_id: u32| CreateEntityChannelMessage {
        entity_id,
        data: Some(standing(middle(0, 0))),
        is_well_known: true,
        ..Default::default()
    };
    (ENTITY..ENTITY + 3).for_each(|entity| stage.say(&servers[0], header, &well_known(entity)));
    let client = stage.join_as(Side::Client, "ada");
    let leave = UnsubscribedFromChannelMessage { conn_id: client.id };
    let take = |stage: &mut Stage, entity: u32| {
        stage.say(&servers[0], Header::new(entity, message_type::UNSUB_FROM_CHANNEL), &leave);
    };
    take(&mut stage, ENTITY);
    stage.drop_connection(&client, EndCause::Lost);
    take(&mut stage, ENTITY + 1);
    stage.say(&servers[0], header, &well_known(ENTITY + 3));
    stage.say(&servers[0], header, &well_known(ENTITY + 4));
    take(&mut stage, ENTITY + 4);
    let mut back = stage.connect(Side::Client);
    stage.authenticate(&mut back, "ada");
    assert_eq!(back.id, client.id);
    stage.pass(1_200);
    let updates = stage.read_type(&back, message_type::CHANNEL_DATA_UPDATE);
    let mut seen: Vec<u32> = updates.iter().map(|update| update.channel_id).collect();
    seen.sort_unstable();
    assert_eq!(seen, [ENTITY + 2, ENTITY + 3]);
    // One that begins anew sees all.
    let other = stage.join_as(Side::Client, "bob");
    let subscriptions = stage.engine.connections().find(|c| c.id == other.id).map(|c| c.subscriptions);
    assert_eq!(subscriptions, Some(5));
    stage.audit();
}

#[test]
fn clients_to_come_do_not_see_what_was_well_known_and_is_removed() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let create = |entity_id: u32, is_well_known: bool| CreateEntityChannelMessage {
        entity_id,
        data: Some(standing(middle(0, 0))),
        is_well_known,
        ..Default::default()
    };
    let header = Header::new(FIRST, message_type::CREATE_ENTITY_CHANNEL);
    stage.say(&servers[0], header, &create(ENTITY, true));
    let remove = RemoveChannelMessage { channel_id: ENTITY };
    stage.say(&servers[0], Header::new(0, message_type::REMOVE_CHANNEL), &remove);
    // It may get the place that the other one had.
    stage.say(&servers[0], header, &create(ENTITY + 1, false));
    let late = stage.join_as(Side::Client, "late");
    stage.pass(1_200);
    assert_eq!(stage.updates::<TransformState>(&late, ENTITY + 1).len(), 0);
    let subscriptions = stage.engine.connections().find(|c| c.id == late.id).map(|c| c.subscriptions);
    assert_eq!(subscriptions, Some(0));
    stage.audit();
}

#[test]
fn unreals_actors_and_layers_of_a_world_are_understood() {
    let cut = Cut { cells: [2, 2, 2], servers: [1, 1, 2], border: 0 };
    let mut stage = Stage::world(cut, &[]);
    let servers = stage.spatial_servers(cut);
    // Unreal's z is up, as is the grid's y.
    let actor = |x: f32, y: f32, z: f32| {
        let location = Some(FVector { x: Some(x), y: Some(y), z: Some(z) });
        let movement = FRepMovement { location, ..Default::default() };
        let state = ActorState { replicated_movement: Some(movement), ..Default::default() };
        let mut value = vec![0x0A];
        prost::encoding::encode_varint(state.encoded_len() as u64, &mut value);
        state.encode_raw(&mut value);
        Any { type_url: "type.googleapis.com/game.PawnChannelData".into(), value: value.into() }
    };
    stage.create_entity(&servers[0], 0, ENTITY, Some(actor(5.0, 15.0, 5.0)));
    assert_eq!((cell_of(&stage, ENTITY), owner_of(&stage, ENTITY)), (2, servers[0].id), "row 1 of the lower layer");
    stage.update(&servers[0], ENTITY, actor(5.0, 15.0, 15.0));
    assert_eq!((cell_of(&stage, ENTITY), owner_of(&stage, ENTITY)), (6, servers[1].id), "the layer above");
    stage.create_entity(&servers[0], 0, ENTITY + 1, Some(standing([15.0, 5.0, 5.0])));
    stage.walk(&servers[0], ENTITY + 1, [15.0, 15.0, 5.0]);
    assert_eq!((cell_of(&stage, ENTITY + 1), owner_of(&stage, ENTITY + 1)), (5, servers[1].id), "Unity's y is up");
    stage.audit();
}

#[test]
fn the_list_of_a_cell_tells_who_comes_and_who_goes_whenever_one_looks() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let (early, late) = (stage.client(), stage.client());
    stage.set_interest(&servers[0], &early, sphere(middle(1, 0), 3.0));
    for number in 0..3 {
        stage.create_entity(&servers[0], FIRST + 1, ENTITY + number, Some(standing(middle(1, 0))));
    }
    stage.pass(50);
    let first = stage.updates::<SpatialChannelData>(&early, FIRST + 1).remove(0);
    assert_eq!(first.entities.len(), 3);
    // Gone and other things changed within one window: the subscriber that knew it gets the removal.
    stage.walk(&servers[0], ENTITY, middle(2, 0));
    stage.create_entity(&servers[0], FIRST + 1, ENTITY + 9, Some(standing(middle(1, 0))));
    stage.pass(50);
    let changes = stage.updates::<SpatialChannelData>(&early, FIRST + 1);
    let removed = changes.iter().any(|data| data.entities.get(&ENTITY).is_some_and(|state| state.removed));
    assert!(removed, "{changes:?}");
    stage.set_interest(&servers[0], &late, sphere(middle(1, 0), 3.0));
    stage.pass(50);
    let mut known: Vec<u32> =
        stage.updates::<SpatialChannelData>(&late, FIRST + 1)[0].entities.keys().copied().collect();
    known.sort_unstable();
    assert_eq!(known, [ENTITY + 1, ENTITY + 2, ENTITY + 9], "who comes later never hears of who is gone");
    stage.audit();
}

#[test]
fn what_was_made_before_its_server_came_is_listed_and_reached_when_it_does() {
    let mut stage = Stage::world(TWO, &[]);
    let master = stage.master();
    stage.create_entity(&master, 0, ENTITY, Some(standing(middle(2, 0))));
    assert_eq!(stage.place_of(ENTITY), Some((Some(master.id), Some(FIRST + 2))));
    stage.spatial_servers(TWO);
    let cell = stage.engine.cells().find(|cell| cell.channel == FIRST + 2).expect("it exists");
    assert_eq!(cell.entities, [ENTITY]);
}

#[test]
fn a_game_that_keeps_its_own_state_in_cells_is_left_alone() {
    let mut stage = Stage::world(TWO, &["-chs=hifi"]);
    let server = stage.join_as(Side::Server, "own");
    let own = TransformState { rotation: Some(Vector4f::default()), ..Default::default() };
    let create = throng_channeld::proto::CreateChannelMessage {
        channel_type: 4,
        data: Some(Any::pack(&own)),
        ..Default::default()
    };
    stage.say(&server, Header::new(0, message_type::CREATE_SPATIAL_CHANNEL), &create);
    let client = stage.client();
    stage.set_interest(&server, &client, sphere(middle(0, 0), 3.0));
    stage.create_entity(&server, FIRST, ENTITY, Some(standing(middle(0, 0))));
    stage.pass(50);
    assert_eq!(stage.updates::<TransformState>(&client, FIRST), [own]);
    assert_eq!(cell_of(&stage, ENTITY), 0);
}
