//! Every message of the protocol, byte for byte. The bytes were written down by hand from the table of field numbers
//! and types and protobuf's encoding rules; no encoder made them.

use std::fmt::Debug;

use throng_channeld::proto::auth_result_message::AuthResult;
use throng_channeld::proto::list_channel_result_message::ChannelInfo;
use throng_channeld::proto::replaypb::{ReplayPacket, ReplaySession};
use throng_channeld::proto::spatial_interest_query::{BoxAoi, ConeAoi, SphereAoi, SpotsAoi};
use throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject;
use throng_channeld::proto::unrealpb::*;
use throng_channeld::proto::*;
use throng_channeld::{Dialect, FrameReader, Header, Messages, PacketWriter, message_type, put_body};

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect()
}

/// The message is written so, and read so.
fn is<M: prost::Message + Default + PartialEq + Debug>(message: M, hex: &str) {
    assert_eq!(message.encode_to_vec(), bytes(hex), "{message:?}");
    assert_eq!(M::decode(&bytes(hex)[..]).expect("it is sound"), message);
}

const ONE: &str = "00 00 00 00 00 00 F0 3F";
const HALF: &str = "00 00 00 00 00 00 E0 3F";
const MINUS_ONE: &str = "FF FF FF FF FF FF FF FF FF 01";

fn any() -> Any {
    Any { type_url: "t/x.Y".into(), value: bytes("08 01").into() }
}

const ANY: &str = "0A 05 74 2F 78 2E 59 12 02 08 01";

#[test]
fn coming_in_and_going() {
    is(
        AuthMessage { player_identifier_token: "ada".into(), login_token: "x".into(), ..Default::default() },
        "0A 03 61 64 61 12 01 78",
    );
    is(
        AuthResultMessage {
            result: AuthResult::InvalidLt.into(),
            conn_id: 300,
            compression_type: CompressionType::Snappy.into(),
            should_recover: true,
        },
        "08 02 10 AC 02 18 01 20 01",
    );
    is(DisconnectMessage { conn_id: 3 }, "08 03");
}

#[test]
fn options_tell_absent_from_zero() {
    is(ChannelSubscriptionOptions::default(), "");
    is(
        ChannelSubscriptionOptions {
            data_access: Some(ChannelDataAccess::WriteAccess.into()),
            data_field_masks: vec!["a".into(), "bc".into()],
            fan_out_interval_ms: Some(20),
            fan_out_delay_ms: Some(-1),
            skip_self_update_fan_out: Some(false),
            skip_first_fan_out: Some(true),
            reliable_fan_out: Some(true),
        },
        &format!("08 02 12 01 61 12 02 62 63 18 14 20 {MINUS_ONE} 28 00 30 01 A0 06 01"),
    );
    is(
        ChannelDataMergeOptions {
            should_replace_list: true,
            list_size_limit: 5,
            truncate_top: true,
            should_check_removable_map_field: true,
        },
        "08 01 10 05 18 01 20 01",
    );
}

#[test]
fn channels_are_created_listed_and_removed() {
    is(
        CreateChannelMessage {
            channel_type: ChannelType::Private.into(),
            metadata: "m".into(),
            sub_options: Some(ChannelSubscriptionOptions { fan_out_interval_ms: Some(50), ..Default::default() }),
            data: Some(any()),
            merge_options: Some(ChannelDataMergeOptions { should_replace_list: true, ..Default::default() }),
        },
        &format!("08 02 12 01 6D 1A 02 18 32 22 0B {ANY} 2A 02 08 01"),
    );
    is(
        CreateChannelResultMessage {
            channel_type: ChannelType::Global.into(),
            metadata: "m".into(),
            owner_conn_id: 1,
            channel_id: 0x1_0000,
        },
        "08 01 12 01 6D 18 01 20 80 80 04",
    );
    is(
        CreateSpatialChannelsResultMessage {
            spatial_channel_id: vec![0x1_0000, 0x1_0001],
            metadata: String::new(),
            owner_conn_id: 3,
        },
        "0A 06 80 80 04 81 80 04 18 03",
    );
    is(RemoveChannelMessage { channel_id: 1 }, "08 01");
    is(
        ListChannelMessage { type_filter: ChannelType::Entity.into(), metadata_filters: vec!["a".into()] },
        "08 05 12 01 61",
    );
    let info = ChannelInfo { channel_id: 1, channel_type: ChannelType::Test4.into(), metadata: "m".into() };
    is(ListChannelResultMessage { channels: vec![info] }, "0A 07 08 01 10 68 1A 01 6D");
}

#[test]
fn subscriptions_begin_and_end() {
    is(SubscribedToChannelMessage { conn_id: 2, sub_options: Some(Default::default()) }, "08 02 12 00");
    is(
        SubscribedToChannelResultMessage {
            conn_id: 2,
            sub_options: Some(ChannelSubscriptionOptions {
                data_access: Some(ChannelDataAccess::ReadAccess.into()),
                ..Default::default()
            }),
            conn_type: ConnectionType::Client.into(),
            channel_type: ChannelType::Entity.into(),
        },
        "08 02 12 02 08 01 18 02 20 05",
    );
    is(UnsubscribedFromChannelMessage { conn_id: 2 }, "08 02");
    is(
        UnsubscribedFromChannelResultMessage {
            conn_id: 2,
            conn_type: ConnectionType::Server.into(),
            channel_type: ChannelType::Spatial.into(),
        },
        "08 02 10 01 18 04",
    );
}

#[test]
fn state_is_updated_and_recovered() {
    is(ChannelDataUpdateMessage { data: Some(any()), context_conn_id: 9 }, &format!("0A 0B {ANY} 10 09"));
    is(
        ChannelDataRecoveryMessage {
            channel_id: 1,
            channel_type: ChannelType::Subworld.into(),
            metadata: "m".into(),
            owner_conn_id: 2,
            sub_time: -1,
            sub_options: Some(Default::default()),
            channel_data: Some(Any::default()),
            recovery_data: Some(Any::default()),
        },
        &format!("08 01 10 03 1A 01 6D 20 02 28 {MINUS_ONE} 32 00 3A 00 42 00"),
    );
    is(EndRecoveryMesssage {}, "");
    is(ChannelOwnerLostMessage {}, "");
    is(ChannelOwnerRecoveredMessage {}, "");
}

#[test]
fn the_world_is_cut_into_cells() {
    let x = SpatialInfo { x: 1.0, ..Default::default() };
    is(SpatialInfo { x: 1.0, y: -2.0, z: 0.5 }, &format!("09 {ONE} 11 00 00 00 00 00 00 00 C0 19 {HALF}"));
    is(QuerySpatialChannelMessage { spatial_info: vec![x] }, &format!("0A 09 09 {ONE}"));
    is(QuerySpatialChannelResultMessage { channel_id: vec![0x1_0000, 0] }, "0A 04 80 80 04 00");
    is(SpatialChannelsReadyMessage { server_index: 1, server_count: 4 }, "08 01 10 04");
    is(
        ChannelDataHandoverMessage {
            src_channel_id: 0x1_0000,
            dst_channel_id: 0x1_0001,
            context_conn_id: 7,
            data: Some(Any::default()),
        },
        "08 80 80 04 10 81 80 04 18 07 22 00",
    );
    let region = SpatialRegion {
        min: Some(SpatialInfo::default()),
        max: Some(SpatialInfo::default()),
        channel_id: 0x1_0000,
        server_index: 2,
    };
    is(region, "0A 00 12 00 18 80 80 04 20 02");
    is(SpatialRegionsUpdateMessage { regions: vec![region] }, "0A 0A 0A 00 12 00 18 80 80 04 20 02");
}

#[test]
fn interest_has_four_shapes() {
    let center = Some(SpatialInfo::default());
    let query = SpatialInterestQuery {
        spots_aoi: Some(SpotsAoi { spots: vec![SpatialInfo::default()], dists: vec![1, 2] }),
        box_aoi: Some(BoxAoi { center, extent: center }),
        sphere_aoi: Some(SphereAoi { center, radius: 1.0 }),
        cone_aoi: Some(ConeAoi { center, direction: center, angle: 0.5, radius: 1.0 }),
    };
    is(
        query,
        &format!("0A 06 0A 00 12 02 01 02 12 04 0A 00 12 00 1A 0B 0A 00 11 {ONE} 22 16 0A 00 12 00 19 {HALF} 21 {ONE}"),
    );
    is(UpdateSpatialInterestMessage { conn_id: 2, query: Some(Default::default()) }, "08 02 12 00");
}

#[test]
fn entities_are_created_and_grouped() {
    is(
        CreateEntityChannelMessage {
            entity_id: 0x8_0000,
            metadata: "m".into(),
            sub_options: Some(Default::default()),
            data: Some(Any::default()),
            merge_options: Some(Default::default()),
            is_well_known: true,
        },
        "08 80 80 20 12 01 6D 1A 00 22 00 2A 00 30 01",
    );
    is(
        AddEntityGroupMessage { r#type: EntityGroupType::Lock.into(), entities_to_add: vec![1, 300] },
        "08 01 12 03 01 AC 02",
    );
    is(
        RemoveEntityGroupMessage { r#type: EntityGroupType::Handover.into(), entities_to_remove: vec![1, 300] },
        "12 03 01 AC 02",
    );
}

#[test]
fn messages_of_games_are_wrapped() {
    is(ServerForwardMessage { client_conn_id: 5, payload: "hi".into() }, "08 05 12 02 68 69");
    let pack = MessagePack { channel_id: 0x1_0000, broadcast: 2, stub_id: 3, msg_type: 100, msg_body: "x".into() };
    is(pack.clone(), "08 80 80 04 10 02 18 03 20 64 2A 01 78");
    is(Packet { messages: vec![pack, MessagePack::default()] }, "0A 0D 08 80 80 04 10 02 18 03 20 64 2A 01 78 0A 00");
    is(
        TransformState {
            removed: true,
            position: Some(Vector3f { x: 1.0, ..Default::default() }),
            rotation: Some(Vector4f { w: 1.0, ..Default::default() }),
            scale: Some(Vector3f::default()),
        },
        "08 01 12 05 0D 00 00 80 3F 1A 05 25 00 00 80 3F 22 00",
    );
}

#[test]
fn unreal_objects_appear_move_and_disappear() {
    is(FVector { x: Some(1.0), y: None, z: Some(0.0) }, "0D 00 00 80 3F 1D 00 00 00 00");
    is(
        UnrealObjectRef {
            net_guid: Some(5),
            context: vec![GuidCachedObject { net_guid: 1, path_name: "p".into(), outer_guid: 2 }],
            net_guid_bunch: Some("b".into()),
            bunch_bits_num: Some(8),
            class_path: Some("c".into()),
            owning_conn_id: Some(3),
        },
        "08 05 12 07 08 01 12 01 70 18 02 1A 01 62 20 08 32 01 63 38 03",
    );
    let object = UnrealObjectRef::default;
    is(
        RemoteFunctionMessage {
            target_obj: Some(object()),
            function_name: "f".into(),
            params_payload: "p".into(),
            redirection_counter: 1,
            sub_object_path: "s".into(),
        },
        "0A 00 12 01 66 1A 01 70 20 01 2A 01 73",
    );
    is(
        SpawnObjectMessage {
            obj: Some(object()),
            channel_id: Some(0x1_0000),
            local_role: Some(1),
            location: Some(FVector::default()),
        },
        "0A 00 10 80 80 04 18 01 2A 00",
    );
    is(DestroyObjectMessage { net_id: 0x8_0000, reason: 2 }, "08 80 80 20 10 02");
    let state = SpatialEntityState { obj_ref: Some(object()), removed: true, entity_data: Some(Any::default()) };
    is(state.clone(), "0A 00 10 01 1A 00");
    is(SpatialChannelData { entities: [(7, state)].into() }, "0A 0A 08 07 12 06 0A 00 10 01 1A 00");
    let known = UnrealObjectRef { net_guid: Some(7), ..object() };
    is(ChannelRecoveryData { obj_refs: [(7, known)].into() }, "0A 06 08 07 12 02 08 07");
}

#[test]
fn unreal_actors_have_their_replicated_part() {
    let vector = Some(FVector::default());
    let movement = FRepMovement {
        linear_velocity: vector,
        angular_velocity: vector,
        location: vector,
        rotation: vector,
        b_simulated_physic_sleep: Some(true),
        b_rep_physics: Some(false),
    };
    is(movement, "0A 00 12 00 1A 00 22 00 28 01 30 00");
    is(
        ActorState {
            removed: true,
            owning_conn_id: Some(2),
            b_replicate_movement: Some(true),
            local_role: Some(1),
            remote_role: Some(2),
            owner: Some(UnrealObjectRef::default()),
            b_hidden: Some(false),
            b_tear_off: Some(true),
            b_can_be_damaged: Some(true),
            instigator: Some(UnrealObjectRef::default()),
            replicated_movement: Some(FRepMovement::default()),
        },
        "08 01 10 02 18 01 20 01 28 02 32 00 38 00 40 01 48 01 52 00 5A 00",
    );
}

#[test]
fn sessions_are_recorded() {
    let packet = Packet { messages: vec![MessagePack { msg_type: 1, ..Default::default() }] };
    let recorded = ReplayPacket { offset_time: 1_000_000, packet: Some(packet) };
    is(recorded.clone(), "08 C0 84 3D 12 04 0A 02 20 01");
    is(ReplaySession { packets: vec![recorded] }, "0A 0A 08 C0 84 3D 12 04 0A 02 20 01");
}

#[test]
fn a_first_packet_has_two_forms() {
    let auth = AuthMessage { player_identifier_token: "ada".into(), login_token: "x".into(), ..Default::default() };
    let mut entries = Vec::new();
    put_body(&mut entries, Header::new(0, message_type::AUTH), &auth);
    let packet = "0A 0C 20 01 2A 08 0A 03 61 64 61 12 01 78";
    assert_eq!(entries, bytes(packet));
    for (dialect, head) in [(Dialect::Fixed, "43 48 00 0E 00"), (Dialect::Legacy, "43 48 4E 0E 00")] {
        let frame = bytes(&format!("{head} {packet}"));
        let mut out = Vec::new();
        PacketWriter::new().write(dialect, &entries, &mut out);
        assert_eq!(out, frame);
        let mut reader = FrameReader::new();
        reader.push(&frame).expect("it is short");
        let payload = reader.next_frame().expect("sound").expect("whole").payload;
        assert_eq!(reader.dialect(), dialect);
        let message = Messages::new(payload).next().expect("one").expect("sound");
        assert_eq!(message.decode::<AuthMessage>().expect("it is one"), auth);
    }
}

#[test]
fn types_are_named_as_the_others_name_them() {
    let packed = Any::pack(&SpatialChannelData::default());
    assert_eq!(packed.type_url, "type.googleapis.com/unrealpb.SpatialChannelData");
    assert_eq!(packed.full_name(), "unrealpb.SpatialChannelData");
    assert_eq!(Any::pack(&AuthMessage::default()).full_name(), "channeldpb.AuthMessage");
}
