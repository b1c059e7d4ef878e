use serde::Serialize;

use crate::place::{Places, place};
use crate::{Costs, Layout, Scenario};

/// The load of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessLoad {
    /// Cores of the machine that the costs were measured on.
    pub cores: f64,
    /// Bytes per second that it receives.
    pub in_bytes_per_s: f64,
    /// Bytes per second that it sends.
    pub out_bytes_per_s: f64,
}

/// The load of one subject: a zone with players.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SubjectLoad {
    /// Players of the zone.
    pub players: u32,
    /// Edges that read it.
    pub edges: u32,
    /// Bytes per second that its home publishes.
    pub published_bytes_per_s: f64,
    /// Bytes per second that the bus delivers to all its edges.
    pub delivered_bytes_per_s: f64,
}

/// The loads of all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// Players that were placed.
    pub players: u32,
    /// Homes: what the bus costs them, without the game's own work.
    pub homes: Vec<ProcessLoad>,
    /// Bus servers.
    pub bus_servers: Vec<ProcessLoad>,
    /// Edges.
    pub edges: Vec<ProcessLoad>,
    /// Zones with players.
    #[serde(skip)]
    pub subjects: Vec<SubjectLoad>,
    /// Bytes per second that leave for players.
    pub player_bytes_per_s: f64,
}

impl Load {
    /// Cores of all processes together.
    pub fn cores(&self) -> f64 {
        [&self.homes, &self.bus_servers, &self.edges].into_iter().flatten().map(|load| load.cores).sum()
    }
}

/// The load of each process if the scenario is played with this layout. Zone n belongs to home n, counted around; homes and edges
/// are connected to the bus servers in turn.
pub fn simulate(scenario: &Scenario, layout: &Layout) -> Load {
    let places = place(&scenario.world, layout);
    let mut sum = Sum::new(scenario, layout);
    let mut subjects = Vec::new();
    for (zone, players) in places.zones.iter().enumerate().filter(|(_, players)| **players > 0) {
        subjects.push(sum.add_zone(zone as u32, *players, &places));
    }
    let mut player_bytes_per_s = 0.0;
    for (edge, players) in sum.load.edges.iter_mut().zip(&places.edges) {
        let (world, costs, players) = (&scenario.world, &scenario.costs, f64::from(*players));
        edge.cores += players * (world.reads_per_s * costs.delivery_ns + costs.player_ns_per_s) / 1e9;
        edge.out_bytes_per_s += players * world.read_bytes_per_s;
        edge.in_bytes_per_s += players * world.input_bytes_per_player_per_s;
        player_bytes_per_s += players * world.read_bytes_per_s;
    }
    Load { players: places.zones.iter().sum(), subjects, player_bytes_per_s, ..sum.load }
}

struct Sum<'a> {
    scenario: &'a Scenario,
    load: Load,
}

impl Sum<'_> {
    fn new<'a>(scenario: &'a Scenario, layout: &Layout) -> Sum<'a> {
        let idle = ProcessLoad { cores: scenario.costs.idle_cores, ..ProcessLoad::default() };
        let idles = |count: u32| vec![idle; count.max(1) as usize];
        let (homes, edges) = (idles(layout.homes), idles(layout.edges));
        let bus_servers = vec![ProcessLoad::default(); layout.bus_servers.max(1) as usize];
        Sum { scenario, load: Load { homes, bus_servers, edges, ..Load::default() } }
    }

    fn add_zone(&mut self, zone: u32, players: u32, places: &Places) -> SubjectLoad {
        let world = &self.scenario.world;
        let home = zone as usize % self.load.homes.len();
        let home_server = home % self.load.bus_servers.len();
        let update = Flow {
            per_s: world.zone_updates_per_s,
            bytes: world.update_bytes_per_player * f64::from(players),
            costs: &self.scenario.costs,
        };
        update.publish(&mut self.load.homes[home]);
        update.enter(&mut self.load.bus_servers[home_server]);
        let mut has_it = vec![false; self.load.bus_servers.len()];
        has_it[home_server] = true;
        let mut edges = 0;
        for ((_, edge), readers) in places.readers.range((zone, 0)..=(zone, u32::MAX)) {
            edges += 1;
            let (edge, server) = (*edge as usize, *edge as usize % self.load.bus_servers.len());
            if !std::mem::replace(&mut has_it[server], true) {
                update.leave(&mut self.load.bus_servers[home_server]);
                update.enter(&mut self.load.bus_servers[server]);
            }
            update.leave(&mut self.load.bus_servers[server]);
            update.receive(&mut self.load.edges[edge]);
            let bytes_per_s = world.input_bytes_per_player_per_s * f64::from(*readers);
            let input = Flow {
                per_s: world.input_messages_per_s,
                bytes: if world.input_messages_per_s > 0.0 { bytes_per_s / world.input_messages_per_s } else { 0.0 },
                costs: &self.scenario.costs,
            };
            input.publish(&mut self.load.edges[edge]);
            input.enter(&mut self.load.bus_servers[server]);
            if server != home_server {
                input.leave(&mut self.load.bus_servers[server]);
                input.enter(&mut self.load.bus_servers[home_server]);
            }
            input.leave(&mut self.load.bus_servers[home_server]);
            input.receive(&mut self.load.homes[home]);
        }
        let published_bytes_per_s = update.bytes_per_s();
        let delivered_bytes_per_s = published_bytes_per_s * f64::from(edges);
        SubjectLoad { players, edges, published_bytes_per_s, delivered_bytes_per_s }
    }
}

/// Messages of one kind.
struct Flow<'a> {
    per_s: f64,
    bytes: f64,
    costs: &'a Costs,
}

impl Flow<'_> {
    fn bytes_per_s(&self) -> f64 {
        self.per_s * (self.bytes + self.costs.message_overhead_bytes)
    }

    fn cores(&self, cost: crate::MessageCost) -> f64 {
        self.per_s * cost.of(self.bytes) / 1e9
    }

    fn publish(&self, load: &mut ProcessLoad) {
        load.cores += self.cores(self.costs.publish);
        load.out_bytes_per_s += self.bytes_per_s();
    }

    fn receive(&self, load: &mut ProcessLoad) {
        load.cores += self.cores(self.costs.receive);
        load.in_bytes_per_s += self.bytes_per_s();
    }

    fn enter(&self, load: &mut ProcessLoad) {
        load.cores += self.cores(self.costs.bus_in);
        load.in_bytes_per_s += self.bytes_per_s();
    }

    fn leave(&self, load: &mut ProcessLoad) {
        load.cores += self.cores(self.costs.bus_out);
        load.out_bytes_per_s += self.bytes_per_s();
    }
}
