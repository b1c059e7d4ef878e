//! The settings of the engine.
//!
//! They are values only: a shell reads command lines and files, checks them, and fills this in.

use std::sync::Arc;
use std::time::Duration;

use throng_channeld::proto::ChannelType;

use crate::channel_types::ChannelTypes;
use crate::fsm::Machine;
use crate::limits::Limits;
use crate::port::Side;
use crate::spatial::SpatialConfig;

/// All settings that the engine looks at.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// `-dev`: connection ids count from 1 and are not used again.
    pub development: bool,
    /// `-sba`: servers log in without the provider being asked.
    pub server_bypass_auth: bool,
    /// `-scr`: lost servers can come back.
    pub server_recovery: bool,
    /// `-scrt`: for how long, in ms; 0 and `None` for ever.
    pub server_recovery_ms: Option<u32>,
    /// `-clientrights`
    pub client_rights: ClientRights,
    /// Whether the provider of authentication sees something that only the bearer of a name knows.
    pub proves_names: bool,
    /// `-ct`: peers are advised to send snappy.
    pub advises_snappy: bool,
    /// `-scs`: the first spatial channel.
    pub spatial_channel_start: u32,
    /// `-ecs`: the first entity channel; above the first spatial one.
    pub entity_channel_start: u32,
    /// `-mcb`: bits of connection ids, 1 to 32.
    pub connection_id_bits: u32,
    /// `-movement`: channel types whose state may get lost on its way to clients of the link.
    pub movement: MovementTypes,
    /// `-unreal`: spawn and destroy messages of Unreal servers are looked into.
    pub unreal: bool,
    /// The limits of requests, from the file and the flags.
    pub limits: Limits,
    /// How channels of each type behave.
    pub channel_types: ChannelTypes,
    /// The message types that servers may send in each state.
    pub server_machine: Arc<Machine>,
    /// The message types that clients may send in each state.
    pub client_machine: Arc<Machine>,
    /// How the world is cut, if it is.
    pub spatial: Option<SpatialConfig>,
}

impl EngineSettings {
    /// The bits that ids of connections may have.
    pub(crate) fn connection_id_mask(&self) -> u32 {
        u32::MAX >> (32 - self.connection_id_bits.clamp(8, 32))
    }

    /// How long the gateway waits for a new connection's login, if not for ever.
    pub(crate) fn login_patience(&self) -> Option<Duration> {
        let ms = self.limits.max_unauthenticated_ms;
        (ms > 0).then(|| Duration::from_millis(ms.into()))
    }

    /// How long a lost connection is waited for; the inner `None`: for ever, the outer one: not at all.
    pub(crate) fn recovery_patience(&self, side: Side) -> Option<Option<Duration>> {
        let (is_on, ms, zero_is_forever) = match side {
            Side::Server => (self.server_recovery, self.server_recovery_ms.unwrap_or(0), true),
            Side::Client => (true, self.limits.client_resume_ms, false),
        };
        let timeout = (ms > 0).then(|| Duration::from_millis(ms.into()));
        (is_on && (timeout.is_some() || zero_is_forever)).then_some(timeout)
    }
}

impl Default for EngineSettings {
    /// The settings of an empty command line.
    fn default() -> EngineSettings {
        EngineSettings {
            development: false,
            server_bypass_auth: true,
            server_recovery: false,
            server_recovery_ms: None,
            client_rights: ClientRights::default(),
            proves_names: false,
            advises_snappy: false,
            spatial_channel_start: 0x1_0000,
            entity_channel_start: 0x8_0000,
            connection_id_bits: 31,
            movement: MovementTypes::default(),
            unreal: true,
            limits: Limits::default(),
            channel_types: ChannelTypes::default(),
            server_machine: Arc::new(Machine::server()),
            client_machine: Arc::new(Machine::client()),
            spatial: None,
        }
    }
}

/// The rights of clients, for messages that their state machine allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRights {
    /// Create channels of their own: rooms.
    pub create: bool,
    /// Subscribe themselves with write access.
    pub write: bool,
    /// Become the owner of GLOBAL.
    pub own_global: bool,
    /// Create entities, and set their groups.
    pub entity: bool,
}

impl ClientRights {
    /// Nothing of it.
    pub const NONE: ClientRights = ClientRights { create: false, write: false, own_global: false, entity: false };
}

impl Default for ClientRights {
    /// Rooms and write access, as clients that replicate through a gateway without a server need; neither GLOBAL nor
    /// entities.
    fn default() -> ClientRights {
        ClientRights { create: true, write: true, ..ClientRights::NONE }
    }
}

/// The channel types whose state may get lost on its way, on transports that have a way for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovementTypes(u16);

impl MovementTypes {
    /// None: all state is reliable.
    pub const NONE: MovementTypes = MovementTypes(0);

    /// With one more type.
    #[must_use]
    pub const fn with(self, kind: ChannelType) -> MovementTypes {
        MovementTypes(self.0 | 1 << MovementTypes::bit(kind))
    }

    /// Whether it is one of them.
    pub const fn contains(self, kind: ChannelType) -> bool {
        self.0 >> MovementTypes::bit(kind) & 1 == 1
    }

    /// Numbers are 0 to 5, and from 100 on for tests.
    const fn bit(kind: ChannelType) -> u32 {
        let number = kind as u32;
        if number < 8 { number } else { 8 + number % 8 }
    }
}

impl Default for MovementTypes {
    /// SPATIAL and ENTITY.
    fn default() -> MovementTypes {
        MovementTypes::NONE.with(ChannelType::Spatial).with(ChannelType::Entity)
    }
}
