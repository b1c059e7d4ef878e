//! The load, which world servers and clients share, and its constants.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Frames of a world server, and calls of a client, per second.
pub(super) const FRAME_HZ: u32 = 30;
/// Channel ticks and fan-out of the 50 Hz preset, in milliseconds.
pub(super) const FAN_OUT_MS: u32 = 20;
/// Radius of a client's sphere of interest, in metres.
pub(super) const INTEREST_M: f32 = 30.0;
/// An entity is subscribed by clients within the first distance, until they are beyond the second; metres.
pub(super) const NEAR_M: (f32, f32) = (40.0, 44.0);
/// Cells along each side of the world, and world servers.
pub(super) const GRID_CELLS: u32 = 15;
/// Spatial servers along each side of the world.
pub(super) const GRID_SERVERS: u32 = 3;
/// Unreal counts in centimetres.
pub(super) const CM_PER_M: f32 = 100.0;
/// Connection ids have this many bits: Unreal puts them on top of its object ids.
pub(super) const CONNECTION_BITS: u32 = 13;
/// The first bands of distance in metres with their intervals in milliseconds; what is beyond has the last interval.
pub(super) const LOD_BANDS: [(f32, u32); 3] = [(10.0, 50), (50.0, 100), (f32::INFINITY, 1_000)];

/// Clients of one world server with a single channel: one update of all of them has to fit into a packet.
pub(super) const SINGLE_CLIENTS_MAX: u32 = 1_200;

/// The scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scene {
    /// One global channel; each client writes its own actor into it 30 times a second.
    SingleRelay,
    /// One global channel; clients call their server 30 times a second, which writes all actors in one update a frame.
    SingleUnreal,
    /// 15 x 15 cells of 20 m, 3 x 3 servers, an entity channel for each client, handovers.
    Spatial,
    /// One server, an entity channel for each client, all subscribed by all at a rate that falls with distance.
    EntityLod,
}

impl Scene {
    /// A stable name, used for folders.
    pub fn name(self) -> &'static str {
        match self {
            Scene::SingleRelay => "single-relay",
            Scene::SingleUnreal => "single-unreal",
            Scene::Spatial => "spatial",
            Scene::EntityLod => "entity-lod",
        }
    }

    /// Updates per second that a client of a single channel should get; `None` where that depends on who is near.
    pub(super) fn single_hz(self) -> Option<f64> {
        match self {
            Scene::SingleRelay => Some(1_000.0 / f64::from(FAN_OUT_MS)),
            Scene::SingleUnreal => Some(f64::from(FRAME_HZ)),
            Scene::Spatial | Scene::EntityLod => None,
        }
    }

    /// How many world servers there are: one, or a master and those of the cells.
    pub(super) fn servers(self) -> u32 {
        if self == Scene::Spatial { 1 + GRID_SERVERS * GRID_SERVERS } else { 1 }
    }

    /// Whether clients call their server.
    pub(super) fn has_calls(self) -> bool {
        self != Scene::SingleRelay
    }

    /// Whether each client has a channel of its own.
    pub(super) fn has_entities(self) -> bool {
        matches!(self, Scene::Spatial | Scene::EntityLod)
    }
}

/// The process that is killed in mid-run with SIGKILL, and started again. One world server of several has no process of its own: it
/// loses its connection and all that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Victim {
    /// The world server; one of nine in the scene spatial.
    Server,
    /// The process of all world servers of the scene spatial.
    Servers,
    /// The gateway.
    Gateway,
    /// One of the gateway's edges.
    Edge,
}

impl Victim {
    /// A stable name.
    pub fn name(self) -> &'static str {
        match self {
            Victim::Server => "server",
            Victim::Servers => "servers",
            Victim::Gateway => "gateway",
            Victim::Edge => "edge",
        }
    }

    /// Whether it is a world server that shares its process with others.
    pub(super) fn is_one_of_several(self, scene: Scene) -> bool {
        self == Victim::Server && scene.servers() > 1
    }

    /// In a sentence: which of them.
    pub(super) fn said(self) -> &'static str {
        match self {
            Victim::Server => "one server is",
            Victim::Servers => "all servers are",
            Victim::Gateway => "the gateway is",
            Victim::Edge => "one edge is",
        }
    }
}

/// How clients reach the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A stream for each client, not encrypted.
    #[default]
    Tcp,
    /// Throng's own link: encrypted datagrams.
    Throng,
}

impl Transport {
    /// The name of the gateway's network.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Throng => "throng",
        }
    }

    /// Behind the clients' number, where a run is described: nothing for the usual one.
    pub(super) fn said(self) -> &'static str {
        match self {
            Transport::Tcp => "",
            Transport::Throng => " over throng",
        }
    }

    /// The same for a run with so many edges.
    pub(super) fn said_with(self, edges: u32) -> String {
        let edges = match edges {
            0 => String::new(),
            1 => " at an edge".to_owned(),
            edges => format!(" at {edges} edges"),
        };
        format!("{}{edges}", self.said())
    }
}

/// The key of connect tokens for gateways that are started for a run. They listen on this machine only, for as long as the run.
pub(super) const TOKEN_KEY: [u8; 32] = [0x7b; 32];

/// Where the load goes, and how much of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) scene: Scene,
    /// The most clients that play at once.
    pub(super) clients: u32,
    /// Those that play until the measured part begins.
    pub(super) first: u32,
    /// The gateway's address for world servers.
    pub(super) servers: SocketAddr,
    /// The addresses for clients: the gateway's, or those of its edges.
    pub(super) players: Vec<SocketAddr>,
    /// How clients get there.
    pub(super) transport: Transport,
    /// The process that will be killed, if any: then peers that lose their connection connect again.
    pub(super) victim: Option<Victim>,
}

impl Load {
    /// Whether a connection that breaks is made again.
    pub(super) fn outlives_gateway(&self) -> bool {
        matches!(self.victim, Some(Victim::Gateway | Victim::Edge))
    }

    /// Where a client connects for the first time, and where it connects when that has failed `losses` times.
    pub(super) fn door_of(&self, client: u32, losses: u32) -> SocketAddr {
        let count = self.players.len().max(1);
        let place = (client as usize + losses as usize) % count;
        self.players.get(place).copied().unwrap_or(self.servers)
    }
}

/// The channel of a client's own actor, and its key in a shared channel: as Unreal makes object ids.
pub(super) fn entity_of(connection: u32) -> u32 {
    connection << (32 - CONNECTION_BITS) | 1
}

/// The connection whose actor this is.
pub(super) fn connection_of(entity: u32) -> u32 {
    entity >> (32 - CONNECTION_BITS)
}
