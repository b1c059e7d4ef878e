//! A world in cells on the stage: servers that own them, entities that walk, and what the gateway says is where.

use std::collections::{BTreeMap, BTreeSet};

use throng_channeld::proto::{
    Any, ChannelDataAccess, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    CreateEntityChannelMessage, ServerForwardMessage, SpatialInfo, TransformState, UpdateSpatialInterestMessage,
    Vector3f,
};
use throng_channeld::proto::{SpatialInterestQuery, spatial_interest_query::SphereAoi};
use throng_channeld::{Header, Message, message_type};
use throng_gateway::settings::load_with;
use throng_gateway_engine::port::Side;
use throng_gateway_engine::settings::EngineSettings;

use super::{Peer, StageOf};

/// The first cell.
pub(crate) const FIRST: u32 = 0x1_0000;

/// The first entity.
pub(crate) const ENTITY: u32 = 0x8_0000;

/// Cells are cubes of this many metres, from 0 on.
pub(crate) const CELL_M: f32 = 10.0;

/// How a world is cut, along x, z and y. No layers: a flat one.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) cells: [u32; 3],
    pub(crate) servers: [u32; 3],
    pub(crate) border: u32,
}

pub(crate) fn flat(cells: [u32; 2], servers: [u32; 2], border: u32) -> Cut {
    Cut { cells: [cells[0], cells[1], 0], servers: [servers[0], servers[1], 0], border }
}

impl Cut {
    pub(crate) fn server_count(&self) -> u32 {
        self.servers.iter().map(|&servers| servers.max(1)).product()
    }

    pub(crate) fn cell_count(&self) -> u32 {
        self.cells.iter().map(|&cells| cells.max(1)).product()
    }

    fn file(&self) -> String {
        let ([columns, rows, layers], [server_columns, server_rows, server_layers]) = (self.cells, self.servers);
        let kind = if layers == 0 { "StaticGrid2D" } else { "StaticGrid3D" };
        let layered = match layers {
            0 => String::new(),
            _ => format!(
                r#", "WorldOffsetY": 0, "GridLayerHeight": {CELL_M}, "GridLayers": {layers}, "ServerLayers": {server_layers}"#
            ),
        };
        format!(
            r#"{{ "SpatialControllerType": "{kind}", "Config": {{
                "WorldOffsetX": 0, "WorldOffsetZ": 0, "GridWidth": {CELL_M}, "GridHeight": {CELL_M},
                "GridCols": {columns}, "GridRows": {rows}, "ServerCols": {server_columns},
                "ServerRows": {server_rows}, "ServerInterestBorderSize": {}{layered} }} }}"#,
            self.border
        )
    }
}

/// Settings of a world, for Unreal's channels, with `more` words.
pub(crate) fn world_settings(cut: Cut, more: &[&str]) -> EngineSettings {
    let mut words = vec!["-dev", "-cfsm=client_authoratative_fsm.json", "-chs=ue", "-scc=world.json"];
    words.extend(more);
    let read = |file: &str| match file {
        "world.json" => Ok(cut.file().into_bytes()),
        _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
    };
    load_with(words, &read).expect("the words are sound").engine
}

/// The middle of a cell of a flat world.
pub(crate) fn middle(column: u32, row: u32) -> [f32; 3] {
    [(column as f32 + 0.5) * CELL_M, 1.0, (row as f32 + 0.5) * CELL_M]
}

/// The state of an entity that stands at x, y, z. A coordinate of 0 is none: it is not written.
pub(crate) fn standing([x, y, z]: [f32; 3]) -> Any {
    Any::pack(&TransformState { position: Some(Vector3f { x, y, z }), ..Default::default() })
}

pub(crate) fn sphere([x, y, z]: [f32; 3], radius: f64) -> SpatialInterestQuery {
    let center = Some(SpatialInfo { x: x.into(), y: y.into(), z: z.into() });
    SpatialInterestQuery { sphere_aoi: Some(SphereAoi { center, radius }), ..Default::default() }
}

/// Messages of one type, decoded, with the channels that they came on.
pub(crate) fn of_type<M: prost::Message + Default>(messages: &[Message], msg_type: u32) -> Vec<(u32, M)> {
    let of_type = messages.iter().filter(|message| message.msg_type == msg_type);
    of_type.map(|message| (message.channel_id, message.decode().expect("the type of the message"))).collect()
}

/// A message of the game as a server sends it.
pub(crate) fn forwarded(client: u32, payload: impl Into<bytes::Bytes>) -> ServerForwardMessage {
    ServerForwardMessage { client_conn_id: client, payload: payload.into() }
}

impl<const EDGE: bool> StageOf<EDGE> {
    pub(crate) fn world(cut: Cut, more: &[&str]) -> Self {
        Self::new(world_settings(cut, more))
    }

    /// A server under a name that takes the next free server slot. Its messages are left to be read.
    pub(crate) fn spatial_server(&mut self, name: &str) -> Peer {
        let server = self.join_as(Side::Server, name);
        self.ask_for_cells(&server);
        server
    }

    pub(crate) fn ask_for_cells(&mut self, server: &Peer) {
        let create = CreateChannelMessage { channel_type: ChannelType::Spatial.into(), ..Default::default() };
        self.say(server, Header::new(0, message_type::CREATE_CHANNEL).with_stub(5), &create);
    }

    /// All servers of a world, by name `w0`, `w1`..., with nothing left to read.
    pub(crate) fn spatial_servers(&mut self, cut: Cut) -> Vec<Peer> {
        let servers: Vec<Peer> =
            (0..cut.server_count()).map(|number| self.spatial_server(&format!("w{number}"))).collect();
        for server in &servers {
            self.read(server);
        }
        servers
    }

    /// Makes an entity; its creator may write.
    pub(crate) fn create_entity(&mut self, from: &Peer, through: u32, entity_id: u32, data: Option<Any>) {
        let sub_options = ChannelSubscriptionOptions {
            data_access: Some(ChannelDataAccess::WriteAccess.into()),
            ..Default::default()
        };
        let create =
            CreateEntityChannelMessage { entity_id, sub_options: Some(sub_options), data, ..Default::default() };
        self.say(from, Header::new(through, message_type::CREATE_ENTITY_CHANNEL).with_stub(6), &create);
    }

    /// Moves an entity, on behalf of no connection.
    pub(crate) fn walk(&mut self, from: &Peer, entity: u32, to: [f32; 3]) {
        self.update(from, entity, standing(to));
    }

    /// The same, on behalf of a client.
    pub(crate) fn walk_for(&mut self, from: &Peer, entity: u32, to: [f32; 3], client: u32) {
        let update = ChannelDataUpdateMessage { data: Some(standing(to)), context_conn_id: client };
        self.say(from, Header::new(entity, message_type::CHANNEL_DATA_UPDATE), &update);
    }

    pub(crate) fn set_interest(&mut self, from: &Peer, target: &Peer, query: SpatialInterestQuery) {
        let update = UpdateSpatialInterestMessage { conn_id: target.id, query: Some(query) };
        self.say(from, Header::new(FIRST, message_type::UPDATE_SPATIAL_INTEREST), &update);
    }

    /// The connection id of an entity's owner, if it is there, and the cell that lists the entity.
    pub(crate) fn place_of(&self, entity: u32) -> Option<(Option<u32>, Option<u32>)> {
        let known = self.engine.entities().find(|known| known.channel == entity)?;
        Some((known.owner, known.cell))
    }

    /// The invariants at every moment; returns the number of entities.
    ///
    /// Every entity has one owner, present or awaited, unless the slot of its cell's server is free; it is on the list
    /// of the cell of its position, if that exists, and on no other; and the owner of an entity owns its cell.
    pub(crate) fn audit(&self) -> usize {
        let cells: BTreeMap<u32, _> = self.engine.cells().map(|cell| (cell.channel, cell)).collect();
        let mut expected: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut count = 0;
        for entity in self.engine.entities() {
            count += 1;
            let at = entity.cell.unwrap_or_else(|| panic!("{entity:?} is in no cell"));
            let cell = cells.get(&at);
            expected.entry(at).or_default().insert(entity.channel);
            match cell {
                None => assert_eq!(entity.owner, None, "{entity:?} is owned outside of the world"),
                Some(cell) => {
                    assert_eq!((entity.owner, entity.is_awaited), (cell.owner, cell.is_awaited), "{entity:?} {cell:?}");
                    assert!(entity.owner.is_some() != entity.is_awaited, "{entity:?} has one owner: {cell:?}");
                }
            }
        }
        for (id, cell) in &cells {
            let listed: BTreeSet<u32> = cell.entities.iter().copied().collect();
            assert_eq!(listed.len(), cell.entities.len(), "cell {id} lists somebody twice");
            let expected = expected.remove(id).unwrap_or_default();
            assert_eq!(listed, expected, "cell {id}");
        }
        count
    }
}
