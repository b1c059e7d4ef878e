use serde::Serialize;

use crate::{Layout, Load, ProcessLoad, Scenario, simulate};

/// Rounds in which processes are added. Each adds at least a process of a kind that has too few, and nearly always all that it needs.
const ROUNDS_MAX: u32 = 60;
/// The most homes and edges.
const PROCESSES_MAX: u32 = 100_000;

/// A kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Owners of zones.
    Homes,
    /// Servers of the bus.
    BusServers,
    /// Those that players connect to.
    Edges,
}

/// The resource that a process has too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Processor time.
    Cores,
    /// The network, one way.
    Network,
}

/// The processes that a scenario needs.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Processes.
    pub layout: Layout,
    /// Their loads.
    #[serde(skip)]
    pub load: Load,
    /// The part nearest to its limit, which limit, and the share of it that is used: 1 is all that may be used.
    pub fullest: (Part, Bound, f64),
    /// Whether all parts are within their limits. If not, more processes of the fullest part do not help.
    pub holds: bool,
    /// Machines for all processes.
    pub machines: u64,
    /// The price of one player for one hour: machines, and bytes to players.
    pub price_per_player_hour: f64,
}

/// Adds processes until all are within their limits, or until that does not help.
pub fn plan(scenario: &Scenario) -> Plan {
    let mut layout = Layout { homes: 1, bus_servers: 1, edges: 1 };
    let mut load = simulate(scenario, &layout);
    let mut holds = false;
    for _ in 0..ROUNDS_MAX {
        let uses = uses(scenario, &load);
        holds = uses.iter().all(|(_, _, share)| *share <= 1.0);
        let mut is_larger = false;
        for (part, _, share) in uses.into_iter().filter(|(_, _, share)| *share > 1.0) {
            let (count, most) = match part {
                Part::Homes => (&mut layout.homes, scenario.world.zones.min(PROCESSES_MAX)),
                Part::BusServers => (&mut layout.bus_servers, scenario.limits.bus_servers_max),
                Part::Edges => (&mut layout.edges, scenario.world.players.min(PROCESSES_MAX)),
            };
            // Twice at most: what one process costs the others comes out only in the next round.
            let wanted = (f64::from(*count) * share.min(2.0)).ceil() as u32;
            let wanted = wanted.max(*count + 1).min(most);
            is_larger |= wanted > *count;
            *count = wanted.max(*count);
        }
        if !is_larger {
            break;
        }
        load = simulate(scenario, &layout);
    }
    let fullest = uses(scenario, &load).into_iter().max_by(|a, b| a.2.total_cmp(&b.2));
    let fullest = fullest.unwrap_or((Part::Homes, Bound::Cores, 0.0));
    let machines = machines(scenario, &load);
    let hour = machines as f64 * scenario.machine.price_per_hour
        + load.player_bytes_per_s * 3_600.0 / 1e9 * scenario.machine.price_per_gb_out;
    let price_per_player_hour = hour / f64::from(load.players.max(1));
    Plan { layout, load, fullest, holds, machines, price_per_player_hour }
}

/// The fullest process of each part: which limit, and the share of it.
fn uses(scenario: &Scenario, load: &Load) -> [(Part, Bound, f64); 3] {
    let limits = &scenario.limits;
    let fullest = |part, processes: &[ProcessLoad], cores: f64| {
        let most = |figure: fn(&ProcessLoad) -> f64| processes.iter().map(figure).fold(0.0, f64::max);
        let of_cores = most(|load| load.cores) / (cores * limits.utilisation * scenario.machine.speed);
        let bytes_per_s = most(|load| load.in_bytes_per_s.max(load.out_bytes_per_s));
        let of_network = bytes_per_s / (limits.network_bytes_per_s * limits.utilisation);
        match of_cores >= of_network {
            true => (part, Bound::Cores, of_cores),
            false => (part, Bound::Network, of_network),
        }
    };
    [
        fullest(Part::Homes, &load.homes, limits.home_cores),
        fullest(Part::BusServers, &load.bus_servers, limits.bus_cores),
        fullest(Part::Edges, &load.edges, limits.edge_cores),
    ]
}

/// By cores or by the network, whichever needs more. Bytes that leave one machine may enter another.
fn machines(scenario: &Scenario, load: &Load) -> u64 {
    let (limits, machine) = (&scenario.limits, &scenario.machine);
    let by_cores = load.cores() / (machine.cores * machine.speed * limits.utilisation);
    let processes = [&load.homes, &load.bus_servers, &load.edges].into_iter().flatten();
    let out_bytes_per_s: f64 = processes.map(|load| load.out_bytes_per_s).sum();
    let network_bytes_per_s = machine.network_bytes_per_s.unwrap_or(limits.network_bytes_per_s);
    let by_network = out_bytes_per_s / (network_bytes_per_s * limits.utilisation);
    by_cores.max(by_network).ceil().max(1.0) as u64
}
