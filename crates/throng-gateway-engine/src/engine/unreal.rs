//! The messages of Unreal's plugin about objects, as far as the gateway has to understand them.
//!
//! `SPAWN` with a position in the world goes to the cell there, whatever channel it was sent on, and puts the object on
//! the cell's list; `DESTROY` takes it off, and removes its channel. Only servers' messages have this effect: a
//! client's message with these numbers goes to the channel's owner like any other.

use bytes::{Buf, Bytes};
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use throng_channeld::proto::unrealpb::{
    ChannelRecoveryData, DestroyObjectMessage, SpawnObjectMessage, UnrealObjectRef,
};
use throng_channeld::proto::{Any, ChannelType, ServerForwardMessage};
use throng_channeld::{Message, message_type};
use throng_replica::ChannelIndex;

use super::Engine;
use super::entity::OUTSIDE;

use super::refusal::Refusal;
use super::unborn::{UNBORN_MAX, UNBORN_REFERENCE_MAX_BYTES};
use super::writers::GATEWAY;
use crate::spatial::Position;

/// `SpawnObjectMessage.obj`.
const OBJECT_FIELD: u32 = 1;

/// Where the state of an entity's channel keeps the reference of the object.
const OBJECT_REFERENCE: &str = "objRef";
const OBJECT_REFERENCE_TYPE: &str = "unrealpb.UnrealObjectRef";

/// References in one recovery message.
const REFERENCES_MAX_BYTES: usize = 20_000;

/// Bytes around a reference: its id, tags and lengths.
const REFERENCE_OVERHEAD_BYTES: usize = 16;

/// The key of `SpawnObjectMessage.channelId`: field 2, a number.
const CHANNEL_ID_KEY: u8 = 2 << 3;

impl Engine {
    /// Where a server's message really goes, and with what content, if it is one that concerns the gateway.
    pub(super) fn intercept(
        &mut self,
        channel: ChannelIndex,
        message: &Message,
    ) -> Result<Option<(ChannelIndex, Message)>, Refusal> {
        match message.msg_type {
            _ if !self.settings.unreal => Ok(None),
            message_type::UNREAL_SPAWN => self.on_spawn(channel, message),
            message_type::UNREAL_DESTROY => {
                self.on_destroy(message)?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn on_spawn(
        &mut self,
        channel: ChannelIndex,
        message: &Message,
    ) -> Result<Option<(ChannelIndex, Message)>, Refusal> {
        // Not every user of this number is Unreal: what does not read as a spawn is passed on as it is.
        let Ok(forward) = ServerForwardMessage::decode(message.body.clone()) else { return Ok(None) };
        let Ok(spawn) = SpawnObjectMessage::decode(forward.payload.clone()) else { return Ok(None) };
        let Some(entity) = spawn.obj.as_ref().and_then(|object| object.net_guid) else { return Ok(None) };
        let object = raw_field(&forward.payload, OBJECT_FIELD);
        if let Some(object) = &object {
            self.note_object(entity, object);
        }
        let Some(location) = spawn.location else {
            let cell = self.channels.at(channel);
            if cell.kind == ChannelType::Spatial && self.entities.has(entity) {
                let id = cell.id;
                self.list(id, entity);
            }
            return Ok(None);
        };
        let axis = |value: Option<f32>| f64::from(value.unwrap_or_default());
        // Unreal's z is up; the grid's y.
        let position = Position { x: axis(location.x), y: axis(location.z), z: axis(location.y) };
        let Some(id) = self.cell_at(position) else {
            if self.world.is_some() {
                // The message is passed on as it is.
                self.counters.refuse(OUTSIDE);
            }
            return Ok(None);
        };
        let Some(cell) = self.channels.find(id) else { return Ok(None) };
        if !self.entities.has(entity)
            && self.expect_entity(entity)
            && let Some(object) = &object
        {
            self.note_object(entity, object);
        }
        self.spawn_in(id, entity, forward.client_conn_id);
        // The last of several values of a field counts: so the rest stays as it was sent, byte for byte.
        let mut payload = forward.payload.to_vec();
        payload.push(CHANNEL_ID_KEY);
        prost::encoding::encode_varint(id.into(), &mut payload);
        let body = ServerForwardMessage { client_conn_id: forward.client_conn_id, payload: payload.into() };
        let routed = Message { channel_id: id, body: body.encode_to_vec().into(), ..message.clone() };
        Ok(Some((cell, routed)))
    }

    /// An object has appeared in a cell. One that another server's cell lists goes over to this one's.
    fn spawn_in(&mut self, cell: u32, entity: u32, context: u32) {
        let Some(known) = self.entities.get(entity) else { return };
        let decides = |cell: u32| self.channels.named(cell).and_then(|cell| cell.owner);
        match known.cell() {
            Some(former) if former != cell && decides(former) != decides(cell) && self.channels.has(entity) => {
                self.hand_over(entity, former, cell, context);
            }
            _ => self.list(cell, entity),
        }
    }

    /// Makes room for the data of an object whose channel does not exist yet. Returns whether there is room.
    fn expect_entity(&mut self, entity: u32) -> bool {
        // As many as there may be channels for.
        if self.entities.unborn.len() >= self.settings.limits.max_channels as usize {
            self.counters.refuse(Refusal::Limit("spawned_objects"));
            return false;
        }
        self.entities.unborn.insert(entity, self.clock.now().after(UNBORN_MAX));
        self.entities.get_or_add(entity);
        true
    }

    /// Objects whose channels have not come in time are on no list any more.
    pub(super) fn give_up_the_unborn(&mut self) {
        while let Some(entity) = self.entities.unborn.take_late(self.clock.now()) {
            self.counters.refuse(Refusal::Limit("spawned_objects"));
            self.forget_entity(entity);
        }
    }

    /// Keeps how an object is named, in the state of its channel as well.
    fn note_object(&mut self, entity: u32, object: &Bytes) {
        if self.entities.unborn.contains(entity) && object.len() > UNBORN_REFERENCE_MAX_BYTES {
            self.counters.refuse(Refusal::Limit("spawned_objects"));
            return;
        }
        if self.keep_object(entity, object) {
            self.tell_object(entity);
        }
    }

    /// Writes the reference of an object into the state of its channel, if that has a field for it: `objRef`.
    pub(super) fn tell_object(&mut self, entity: u32) {
        let object = self.entities.object_of(entity);
        let Some(channel) = self.channels.find(entity).filter(|_| !object.is_empty()) else { return };
        let Some(schema) = self.fanout.hub.state(channel).data().and_then(|data| data.schema().cloned()) else {
            return;
        };
        let Some(number) = schema.message_field(OBJECT_REFERENCE, OBJECT_REFERENCE_TYPE) else { return };
        self.change_state(channel, &schema, |data, tick| data.set_message(number, &object, GATEWAY, tick));
    }

    /// The channel is removed when the message has been passed on: see [`Engine::after_forward`].
    fn on_destroy(&mut self, message: &Message) -> Result<(), Refusal> {
        let Some(id) = destroyed(message) else { return Ok(()) };
        if let Some(cell) = self.entities.cell_of(id) {
            self.unlist(cell, id);
        }
        Ok(())
    }

    /// The meaning of a message after it has been passed on.
    pub(super) fn after_forward(&mut self, message: &Message) {
        if message.msg_type != message_type::UNREAL_DESTROY || !self.settings.unreal {
            return;
        }
        let Some(id) = destroyed(message) else { return };
        if self.entities.unborn.remove(id) {
            self.forget_entity(id);
        }
        if let Some(channel) = self.channels.find(id)
            && self.channels.at(channel).kind == ChannelType::Entity
        {
            self.remove_channel(channel);
        }
    }

    /// The data that a recovered Unreal server needs to find the objects of a channel again, in pieces that fit into a
    /// message.
    pub(super) fn object_references(&self, channel: ChannelIndex) -> Vec<Any> {
        let channel = self.channels.at(channel);
        let entities = match channel.kind {
            ChannelType::Entity => vec![channel.id],
            ChannelType::Spatial => self.listed_in(channel.id),
            _ => Vec::new(),
        };
        let (mut pieces, mut piece, mut bytes) = (Vec::new(), ChannelRecoveryData::default(), 0);
        for entity in entities {
            let object = self.entities.object_of(entity);
            if object.is_empty() {
                continue;
            }
            if bytes > 0 && bytes + object.len() > REFERENCES_MAX_BYTES {
                pieces.push(Any::pack(&std::mem::take(&mut piece)));
                bytes = 0;
            }
            bytes += object.len() + REFERENCE_OVERHEAD_BYTES;
            if let Ok(object) = UnrealObjectRef::decode(object) {
                piece.obj_refs.insert(entity, object);
            }
        }
        if !piece.obj_refs.is_empty() {
            pieces.push(Any::pack(&piece));
        }
        pieces
    }
}

fn destroyed(message: &Message) -> Option<u32> {
    let forward = ServerForwardMessage::decode(message.body.clone()).ok()?;
    Some(DestroyObjectMessage::decode(forward.payload).ok()?.net_id)
}

/// The bytes of the last occurrence of a length-delimited field, as they were sent.
fn raw_field(message: &Bytes, number: u32) -> Option<Bytes> {
    let mut rest = message.clone();
    let mut found = None;
    while rest.has_remaining() {
        let (field, wire) = decode_key(&mut rest).ok()?;
        let skipped = match wire {
            WireType::Varint => {
                decode_varint(&mut rest).ok()?;
                0
            }
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut rest).ok()?).ok()?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        if skipped > rest.remaining() {
            return None;
        }
        let bytes = rest.split_to(skipped);
        if field == number && wire == WireType::LengthDelimited {
            found = Some(bytes);
        }
    }
    found
}
