use super::{Cipher, Fault, Model, NetPreset, Profile, Scenario, Scratch};

/// The settings that the command line overrides in a scenario. `None` leaves the scenario's own value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Number of bots.
    pub players: Option<u32>,
    /// Ticks per second. Ring intervals are in ticks and therefore change their length in seconds with it.
    pub tick_hz: Option<u32>,
    /// Inputs per bot and second.
    pub input_hz: Option<u32>,
    /// Side of the area, which becomes a square.
    pub area_m: Option<f32>,
    /// Send budget per client.
    pub budget_kbit_per_s: Option<u32>,
    /// Link conditioner preset.
    pub net: Option<NetPreset>,
    /// How many players play at each moment.
    pub profile: Option<Profile>,
    /// Length of the measured part.
    pub seconds: Option<u32>,
    /// Length of the part before it.
    pub warmup_seconds: Option<u32>,
    /// Objects that never change.
    pub idle_objects: Option<u32>,
    /// Threads of the server.
    pub server_threads: Option<u32>,
    /// Processes between server and clients.
    pub edges: Option<u32>,
    /// Servers that share the area.
    pub servers: Option<u32>,
    /// Snapshots of the server's state in a second.
    pub truth_hz: Option<u32>,
    /// Faults of the run; none leaves the scenario's.
    pub faults: Vec<Fault>,
    /// Seed of world and bots.
    pub seed: Option<u64>,
    /// Pin server and bots to cores of their own; false leaves the scenario's value.
    pub pin: bool,
    /// Cipher of the packets.
    pub cipher: Option<Cipher>,
    /// Replication model of the server.
    pub model: Option<Model>,
    /// Where the model `shared-state` has its lists.
    pub scratch: Option<Scratch>,
    /// Give the model `shared-state` baselines; false leaves the scenario's value.
    pub baselines: bool,
    /// A slowdown of all send calls.
    pub send_slowdown_percent: Option<u32>,
}

impl Overrides {
    /// Writes every value that was given over the scenario's.
    pub(super) fn put_over(&self, scenario: &mut Scenario) {
        put(&mut scenario.players, self.players);
        put(&mut scenario.tick_hz, self.tick_hz);
        put(&mut scenario.input_hz, self.input_hz);
        put(&mut scenario.area_m, self.area_m.map(|side| [side, side]));
        put(&mut scenario.budget_kbit_per_s, self.budget_kbit_per_s);
        put(&mut scenario.net, self.net);
        put(&mut scenario.profile, self.profile);
        put(&mut scenario.seconds, self.seconds);
        put(&mut scenario.warmup_seconds, self.warmup_seconds);
        put(&mut scenario.idle_objects, self.idle_objects);
        put(&mut scenario.server_threads, self.server_threads);
        put(&mut scenario.edges, self.edges);
        put(&mut scenario.servers, self.servers);
        put(&mut scenario.truth_hz, self.truth_hz);
        put(&mut scenario.seed, self.seed);
        put(&mut scenario.cipher, self.cipher);
        put(&mut scenario.model, self.model);
        put(&mut scenario.scratch, self.scratch);
        put(&mut scenario.send_slowdown_percent, self.send_slowdown_percent);
        if !self.faults.is_empty() {
            scenario.faults.clone_from(&self.faults);
        }
        scenario.pin |= self.pin;
        scenario.baselines |= self.baselines;
    }
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
