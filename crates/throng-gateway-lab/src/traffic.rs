//! The contents of messages: actors as the Unreal plugin replicates them, and calls.
//!
//! An actor's state is movement of six floats, of which two are a time stamp: `angularVelocity`, which a walking player
//! has no use for, holds microseconds of the machine's clock in two parts that a 32-bit float holds exactly. So the
//! stamp survives a gateway that merges and encodes the state again.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, MessageOptions};
use throng_channeld::proto::unrealpb::{ActorState, FRepMovement, FVector, RemoteFunctionMessage, UnrealObjectRef};
use throng_channeld::proto::{Any, ChannelDataUpdateMessage, DESCRIPTORS, ServerForwardMessage};
use throng_wire::Time;

use crate::light::{Fields, Value};
use crate::load::{CM_PER_M, entity_of};
use crate::motion::Walker;

/// Type of the global channel's state.
pub(super) const GLOBAL_TYPE: &str = "tpspb.TestRepChannelData";
/// Type of an entity channel's state.
pub(super) const ENTITY_TYPE: &str = "tpspb.EntityChannelData";
const TYPE_PREFIX: &str = "type.googleapis.com/";

const STAMP_LOW_BITS: u32 = 20;
const STAMP_HIGH_BITS: u32 = 24;
/// Bytes of a call's parameters: as many as a packed move has.
const CALL_BYTES: usize = 48;

/// State of a channel for all: the part of it that is used here.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TestRepChannelData {
    #[prost(btree_map = "uint32, message", tag = "2")]
    pub(super) actor_states: BTreeMap<u32, ActorState>,
}

/// State of an entity's channel: the part of it that is used here.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EntityChannelData {
    #[prost(message, optional, tag = "1")]
    pub(super) obj_ref: Option<UnrealObjectRef>,
    #[prost(message, optional, tag = "2")]
    pub(super) actor_state: Option<ActorState>,
}

/// A descriptor set with both types and those that they are made of.
pub(super) fn descriptors() -> Vec<u8> {
    let field = |number: i32, name: &str, type_name: &str| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional as i32),
        r#type: Some(Type::Message as i32),
        type_name: Some(type_name.to_owned()),
        ..FieldDescriptorProto::default()
    };
    let message = |name: &str, fields: Vec<FieldDescriptorProto>, nested: Vec<DescriptorProto>| DescriptorProto {
        name: Some(name.to_owned()),
        field: fields,
        nested_type: nested,
        ..DescriptorProto::default()
    };
    let key = FieldDescriptorProto { r#type: Some(Type::Uint32 as i32), type_name: None, ..field(1, "key", "") };
    let options = Some(MessageOptions { map_entry: Some(true), ..MessageOptions::default() });
    let value = field(2, "value", ".unrealpb.ActorState");
    let entry = DescriptorProto { options, ..message("ActorStatesEntry", vec![key, value], Vec::new()) };
    let states = FieldDescriptorProto {
        label: Some(Label::Repeated as i32),
        ..field(2, "actorStates", ".tpspb.TestRepChannelData.ActorStatesEntry")
    };
    let object = field(1, "objRef", ".unrealpb.UnrealObjectRef");
    let state = field(2, "actorState", ".unrealpb.ActorState");
    let file = FileDescriptorProto {
        name: Some("gateway_bench.proto".to_owned()),
        package: Some("tpspb".to_owned()),
        dependency: vec!["unreal.proto".to_owned()],
        message_type: vec![
            message("TestRepChannelData", vec![states], vec![entry]),
            message("EntityChannelData", vec![object, state], Vec::new()),
        ],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    // Descriptor sets one behind the other are one set.
    let mut bytes = DESCRIPTORS.to_vec();
    bytes.extend(FileDescriptorSet { file: vec![file] }.encode_to_vec());
    bytes
}

/// Where an actor is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pose {
    pub(super) x_m: f32,
    pub(super) y_m: f32,
    pub(super) z_m: f32,
    pub(super) yaw: f32,
}

impl Pose {
    pub(super) fn of(walker: &Walker) -> Pose {
        Pose { x_m: walker.x_m, y_m: walker.y_m, z_m: walker.z_m, yaw: walker.yaw }
    }

    /// Where an actor was last; the yaw is not taken.
    pub(super) fn of_actor(actor: &ActorState) -> Pose {
        let location = actor.replicated_movement.as_ref().and_then(|movement| movement.location).unwrap_or_default();
        let metres = |axis: Option<f32>| axis.unwrap_or_default() / CM_PER_M;
        Pose { x_m: metres(location.x), y_m: metres(location.y), z_m: metres(location.z), yaw: 0.0 }
    }

    pub(super) fn location(&self) -> FVector {
        vector(self.x_m * CM_PER_M, self.y_m * CM_PER_M, self.z_m * CM_PER_M)
    }

    pub(super) fn distance_m(&self, other: &Pose) -> f32 {
        (self.x_m - other.x_m).hypot(self.y_m - other.y_m)
    }
}

fn vector(x: f32, y: f32, z: f32) -> FVector {
    FVector { x: Some(x), y: Some(y), z: Some(z) }
}

/// An actor's movement at a time.
pub(super) fn actor(pose: &Pose, now: Time) -> ActorState {
    let low = now.0 & ((1 << STAMP_LOW_BITS) - 1);
    let high = now.0 >> STAMP_LOW_BITS & ((1 << STAMP_HIGH_BITS) - 1);
    let movement = FRepMovement {
        angular_velocity: Some(FVector { x: Some(high as f32), y: Some(low as f32), z: None }),
        location: Some(pose.location()),
        rotation: Some(FVector { x: None, y: Some(pose.yaw.to_degrees()), z: None }),
        ..FRepMovement::default()
    };
    ActorState { replicated_movement: Some(movement), ..ActorState::default() }
}

/// A reference to a client's actor.
pub(super) fn object_of(connection: u32) -> UnrealObjectRef {
    let owning_conn_id = Some(connection);
    UnrealObjectRef { net_guid: Some(entity_of(connection)), owning_conn_id, ..UnrealObjectRef::default() }
}

/// Data under a type's name.
pub(super) fn any(type_name: &str, data: &impl prost::Message) -> Any {
    Any { type_url: format!("{TYPE_PREFIX}{type_name}"), value: data.encode_to_vec().into() }
}

/// An update of the global channel.
pub(super) fn global_update(actors: BTreeMap<u32, ActorState>) -> ChannelDataUpdateMessage {
    let data = any(GLOBAL_TYPE, &TestRepChannelData { actor_states: actors });
    ChannelDataUpdateMessage { data: Some(data), ..ChannelDataUpdateMessage::default() }
}

/// An update of an entity's channel.
pub(super) fn entity_update(actor: ActorState) -> ChannelDataUpdateMessage {
    let data = any(ENTITY_TYPE, &EntityChannelData { obj_ref: None, actor_state: Some(actor) });
    ChannelDataUpdateMessage { data: Some(data), ..ChannelDataUpdateMessage::default() }
}

/// Calls `each` with key and stamp of every actor in an update's body. In an entity's channel the key is 0.
pub(super) fn stamps(body: &[u8], mut each: impl FnMut(u32, u64)) {
    let data = Fields(body).last(1).map_or(&[][..], Value::bytes);
    let Some(type_url) = Fields(data).last(1).map(Value::bytes) else { return };
    let state = Fields(data).last(2).map_or(&[][..], Value::bytes);
    let is_entity = type_url.ends_with(ENTITY_TYPE.as_bytes());
    for (_, value) in Fields(state).filter(|(field, _)| *field == 2) {
        let (key, actor) = match is_entity {
            true => (0, Some(value)),
            false => (Fields(value.bytes()).number(1), Fields(value.bytes()).last(2)),
        };
        if let Some(stamp) = actor.and_then(|actor| stamp_of(actor.bytes())) {
            each(key, stamp);
        }
    }
}

fn stamp_of(actor: &[u8]) -> Option<u64> {
    let movement = Fields(actor).last(11)?.bytes();
    let stamp = Fields(Fields(movement).last(2)?.bytes());
    let (high, low) = (stamp.last(1)?.float(), stamp.last(2)?.float());
    Some((high as u64) << STAMP_LOW_BITS | low as u64)
}

/// Microseconds from a stamp to a moment; `None` if the stamp is of the future, which it is only when it is wrong.
pub(super) fn age_us(stamp: u64, now: Time) -> Option<u64> {
    let bits = STAMP_LOW_BITS + STAMP_HIGH_BITS;
    let age = now.0.wrapping_sub(stamp) & ((1 << bits) - 1);
    (age < 1 << (bits - 1)).then_some(age)
}

/// A client's call of its server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Call {
    /// 0, 1, 2 and so on for each client.
    pub(super) number: u32,
    pub(super) pose: Pose,
    /// When it was made.
    pub(super) made_at: Time,
}

impl Call {
    /// The body of a client's message.
    pub(super) fn encode(&self, connection: u32) -> RemoteFunctionMessage {
        let mut params = Vec::with_capacity(CALL_BYTES);
        params.extend_from_slice(&self.number.to_le_bytes());
        params.extend_from_slice(&self.made_at.0.to_le_bytes());
        for value in [self.pose.x_m, self.pose.y_m, self.pose.z_m, self.pose.yaw] {
            params.extend_from_slice(&value.to_le_bytes());
        }
        params.resize(CALL_BYTES, 0);
        function(connection, "ServerMovePacked", params)
    }

    /// Reads the body of the message that a server gets: who called, and with what.
    pub(super) fn decode(body: &[u8]) -> Option<(u32, Call)> {
        let caller = Fields(body).number(1);
        let params = Fields(Fields(body).last(2)?.bytes()).last(3)?.bytes();
        let number = u32::from_le_bytes(*params.first_chunk()?);
        let made_at = Time(u64::from_le_bytes(*params.get(4..)?.first_chunk()?));
        let float = |place: usize| Some(f32::from_le_bytes(*params.get(12 + 4 * place..)?.first_chunk()?));
        let pose = Pose { x_m: float(0)?, y_m: float(1)?, z_m: float(2)?, yaw: float(3)? };
        let is_sound = [pose.x_m, pose.y_m, pose.z_m, pose.yaw].iter().all(|value| value.is_finite());
        is_sound.then_some((caller, Call { number, pose, made_at }))
    }
}

/// A server's answer to a client's calls.
pub(super) fn acknowledgement(connection: u32, number: u32) -> ServerForwardMessage {
    let call = function(connection, "ClientAckGoodMove", number.to_le_bytes().to_vec());
    ServerForwardMessage { client_conn_id: connection, payload: call.encode_to_vec().into() }
}

/// The number of the call that an answer is for, as its client gets it.
pub(super) fn answered_call(body: &[u8]) -> Option<u32> {
    let call = Fields(Fields(body).last(2)?.bytes());
    Some(u32::from_le_bytes(*call.last(3)?.bytes().first_chunk()?))
}

fn function(connection: u32, name: &str, params: Vec<u8>) -> RemoteFunctionMessage {
    RemoteFunctionMessage {
        target_obj: Some(UnrealObjectRef { net_guid: Some(entity_of(connection)), ..UnrealObjectRef::default() }),
        function_name: name.to_owned(),
        params_payload: Bytes::from(params),
        ..RemoteFunctionMessage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(987_654_321_012);
    const POSE: Pose = Pose { x_m: 299.5, y_m: 0.25, z_m: 0.5, yaw: 6.0 };

    #[test]
    fn a_stamp_survives_in_every_kind_of_update() {
        let mut found = Vec::new();
        let actors = [(entity_of(5), actor(&POSE, NOW)), (entity_of(9), actor(&POSE, Time(NOW.0 + 7)))];
        stamps(&global_update(actors.into()).encode_to_vec(), |key, stamp| found.push((key, age_us(stamp, NOW))));
        assert_eq!(found, [(entity_of(5), Some(0)), (entity_of(9), None)]);
        found.clear();
        let later = Time(NOW.0 + 23_000);
        let body = entity_update(actor(&POSE, NOW)).encode_to_vec();
        stamps(&body, |key, stamp| found.push((key, age_us(stamp, later))));
        assert_eq!(found, [(0, Some(23_000))]);
    }

    #[test]
    fn the_descriptors_name_every_type() {
        let set = FileDescriptorSet::decode(&descriptors()[..]).unwrap();
        let named = |file: &FileDescriptorProto| {
            let package = file.package().to_owned();
            file.message_type.iter().map(|message| format!("{package}.{}", message.name())).collect::<Vec<_>>()
        };
        let names: Vec<String> = set.file.iter().flat_map(named).collect();
        for name in [GLOBAL_TYPE, ENTITY_TYPE, "unrealpb.ActorState", "unrealpb.UnrealObjectRef"] {
            assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
        }
        let files: Vec<&str> = set.file.iter().map(|file| file.name()).collect();
        let needed = set.file.iter().flat_map(|file| &file.dependency);
        needed.for_each(|name| assert!(files.contains(&name.as_str()), "{name}"));
    }

    #[test]
    fn an_actor_takes_45_to_60_bytes() {
        let one = global_update([(entity_of(5), actor(&POSE, NOW))].into()).encode_to_vec().len();
        let two = [(entity_of(5), actor(&POSE, NOW)), (entity_of(9), actor(&POSE, NOW))];
        let bytes = global_update(two.into()).encode_to_vec().len() - one;
        assert!((45..=60).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_call_arrives_as_it_was_made() {
        let call = Call { number: 77, pose: POSE, made_at: NOW };
        let payload = call.encode(5).encode_to_vec();
        assert!((70..=85).contains(&payload.len()), "{}", payload.len());
        let forwarded = ServerForwardMessage { client_conn_id: 5, payload: payload.into() };
        assert_eq!(Call::decode(&forwarded.encode_to_vec()), Some((5, call)));
        assert_eq!(Call::decode(&[]), None);
    }

    #[test]
    fn an_answer_names_its_call() {
        let body = acknowledgement(5, 77).encode_to_vec();
        assert_eq!(answered_call(&body), Some(77));
        assert_eq!((answered_call(&[]), answered_call(&body[..body.len() - 4])), (None, None));
    }
}
