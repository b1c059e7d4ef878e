use serde::{Deserialize, Serialize};
use throng_file::{friendly, line_of};

/// Everything that a forecast depends on, as a TOML file says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The game: players, zones, rates.
    pub world: World,
    /// The costs of single acts.
    pub costs: Costs,
    /// The limits of one process.
    pub limits: Limits,
    /// The machines that are rented, and their price.
    pub machine: Machine,
}

/// The game: players, zones, rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// Players at once.
    pub players: u32,
    /// Places that have a subject of their own on the bus.
    pub zones: u32,
    /// The most players of one zone. A player who finds a full one goes to the next.
    pub zone_players_max: u32,
    /// Exponent of the zones' popularity: the n-th is visited in proportion to n^-popularity. 0: all alike.
    pub popularity: f64,
    /// Which edge a player connects to.
    pub placement: Placement,
    /// Messages that a zone with players publishes per second.
    pub zone_updates_per_s: f64,
    /// Bytes of such a message for each player in the zone.
    pub update_bytes_per_player: f64,
    /// Messages with inputs that an edge sends per second to each zone that it reads.
    pub input_messages_per_s: f64,
    /// Bytes of inputs of a player per second.
    pub input_bytes_per_player_per_s: f64,
    /// Updates that a player is sent per second.
    pub reads_per_s: f64,
    /// Bytes that a player is sent per second, everything included.
    pub read_bytes_per_s: f64,
    /// The beginning of everything random.
    pub seed: u64,
}

/// Which edge a player connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// One with players of the same zone, if it has room: the backend knows the zones when it issues tokens.
    ByZone,
    /// Any, as behind a load balancer.
    Random,
}

/// The costs of single acts, in nanoseconds of processor time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// A process that publishes a message.
    pub publish: MessageCost,
    /// A process that receives a message.
    pub receive: MessageCost,
    /// A bus server that takes a message.
    pub bus_in: MessageCost,
    /// A bus server that passes a message to one process or server.
    pub bus_out: MessageCost,
    /// Bytes of a message on the wire beside its payload.
    pub message_overhead_bytes: f64,
    /// An edge that sends one update to one player.
    pub delivery_ns: f64,
    /// An edge, for each player and second, updates apart.
    pub player_ns_per_s: f64,
    /// Cores of a process that does nothing but be a member of the bus.
    pub idle_cores: f64,
}

/// The cost of a message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageCost {
    /// Of an empty one.
    pub ns: f64,
    /// For each 1,024 bytes more.
    pub kib_ns: f64,
}

impl MessageCost {
    /// The cost of a message of so many bytes.
    pub fn of(self, bytes: f64) -> f64 {
        self.ns + self.kib_ns * bytes / 1_024.0
    }
}

/// The limits of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Cores that the bus may take of a home; the rest is for the game.
    pub home_cores: f64,
    /// Cores of a bus server.
    pub bus_cores: f64,
    /// Cores of an edge.
    pub edge_cores: f64,
    /// The share of those cores, and of the network, that may be used on average.
    pub utilisation: f64,
    /// Bytes per second that the network of one process carries, each way.
    pub network_bytes_per_s: f64,
    /// The most bus servers in one cluster, each connected with each.
    pub bus_servers_max: u32,
}

/// The machines that are rented, and their price. Both are inputs: prices change, and differ from place to place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name, for the table.
    pub name: String,
    /// Its cores.
    pub cores: f64,
    /// Bytes per second that its network carries, each way; without this key, as much as that of one process in [`Limits`].
    #[serde(default)]
    pub network_bytes_per_s: Option<f64>,
    /// How much faster one of its cores is than one of those that the costs were measured on.
    pub speed: f64,
    /// Its price for an hour.
    pub price_per_hour: f64,
    /// The price of 10^9 bytes that leave the data centre.
    pub price_per_gb_out: f64,
}

/// How many processes of each kind there are. At least 1 of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Processes that own zones.
    pub homes: u32,
    /// Servers of the bus.
    pub bus_servers: u32,
    /// Processes that players connect to.
    pub edges: u32,
}

/// A scenario cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The text is no TOML of this form.
    #[error("line {line}: {message}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// The mistake there.
        message: String,
    },
    /// A figure is out of its range.
    #[error("`{key}` is {value}: it has to be {range}")]
    Range {
        /// Where.
        key: &'static str,
        /// Its value.
        value: f64,
        /// The values that are allowed.
        range: &'static str,
    },
    /// The players do not fit into the zones.
    #[error("{players} players do not fit into {zones} zones of {each}: raise `zones` or `zone_players_max`")]
    TooFewZones {
        /// Players.
        players: u32,
        /// Zones.
        zones: u32,
        /// The most players of one zone.
        each: u32,
    },
}

impl ScenarioError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            ScenarioError::Text { .. } => "text",
            ScenarioError::Range { .. } => "range",
            ScenarioError::TooFewZones { .. } => "too_few_zones",
        }
    }
}

impl Scenario {
    /// The most players: each one is placed.
    pub const PLAYERS_MAX: u32 = 10_000_000;
    /// The most zones.
    pub const ZONES_MAX: u32 = 1_000_000;

    /// Reads the text of a file, and checks each figure.
    ///
    /// # Errors
    /// It is no TOML of this form, or a figure is out of its range.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let scenario: Scenario = toml::from_str(text).map_err(|error| ScenarioError::Text {
            line: line_of(text, error.span().unwrap_or_default().start),
            message: friendly(error.message()),
        })?;
        scenario.checked()
    }

    /// The same for another number of players. Zones shrink or grow with them, so that they stay as full.
    ///
    /// # Errors
    /// The number is out of its range.
    pub fn with_players(&self, players: u32) -> Result<Scenario, ScenarioError> {
        let mut scenario = self.clone();
        let zones = f64::from(self.world.zones) * f64::from(players) / f64::from(self.world.players);
        scenario.world.players = players;
        scenario.world.zones = (zones.ceil() as u32).max(1);
        scenario.checked()
    }

    fn checked(self) -> Result<Scenario, ScenarioError> {
        let range = |is_in: bool, key, value, range| match is_in {
            true => Ok(()),
            false => Err(ScenarioError::Range { key, value, range }),
        };
        let count = |key, value: u32, most: u32, text| range((1..=most).contains(&value), key, f64::from(value), text);
        let (world, costs, limits, machine) = (&self.world, &self.costs, &self.limits, &self.machine);
        count("players", world.players, Self::PLAYERS_MAX, "1 to 10,000,000")?;
        count("zones", world.zones, Self::ZONES_MAX, "1 to 1,000,000")?;
        count("zone_players_max", world.zone_players_max, Self::PLAYERS_MAX, "1 to 10,000,000")?;
        count("bus_servers_max", limits.bus_servers_max, 1_000, "1 to 1,000")?;
        range((0.0..=4.0).contains(&world.popularity), "popularity", world.popularity, "0 to 4")?;
        range((0.01..=1.0).contains(&limits.utilisation), "utilisation", limits.utilisation, "0.01 to 1")?;
        for (key, value) in [
            ("zone_updates_per_s", world.zone_updates_per_s),
            ("update_bytes_per_player", world.update_bytes_per_player),
            ("input_messages_per_s", world.input_messages_per_s),
            ("input_bytes_per_player_per_s", world.input_bytes_per_player_per_s),
            ("reads_per_s", world.reads_per_s),
            ("read_bytes_per_s", world.read_bytes_per_s),
            ("publish.ns", costs.publish.ns),
            ("publish.kib_ns", costs.publish.kib_ns),
            ("receive.ns", costs.receive.ns),
            ("receive.kib_ns", costs.receive.kib_ns),
            ("bus_in.ns", costs.bus_in.ns),
            ("bus_in.kib_ns", costs.bus_in.kib_ns),
            ("bus_out.ns", costs.bus_out.ns),
            ("bus_out.kib_ns", costs.bus_out.kib_ns),
            ("message_overhead_bytes", costs.message_overhead_bytes),
            ("delivery_ns", costs.delivery_ns),
            ("player_ns_per_s", costs.player_ns_per_s),
            ("idle_cores", costs.idle_cores),
            ("price_per_hour", machine.price_per_hour),
            ("price_per_gb_out", machine.price_per_gb_out),
        ] {
            range((0.0..=1e12).contains(&value), key, value, "0 to 10^12")?;
        }
        for (key, value) in [
            ("home_cores", limits.home_cores),
            ("bus_cores", limits.bus_cores),
            ("edge_cores", limits.edge_cores),
            ("network_bytes_per_s", limits.network_bytes_per_s),
            ("network_bytes_per_s", machine.network_bytes_per_s.unwrap_or(limits.network_bytes_per_s)),
            ("cores", machine.cores),
            ("speed", machine.speed),
        ] {
            range((1e-3..=1e12).contains(&value), key, value, "0.001 to 10^12")?;
        }
        if u64::from(world.zones) * u64::from(world.zone_players_max) < u64::from(world.players) {
            let (players, zones, each) = (world.players, world.zones, world.zone_players_max);
            return Err(ScenarioError::TooFewZones { players, zones, each });
        }
        Ok(self)
    }
}
