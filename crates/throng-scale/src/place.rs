use std::collections::BTreeMap;

use crate::{Layout, Placement, World};

/// The place of each player.
#[derive(Debug)]
pub(crate) struct Places {
    /// Players of each zone.
    pub(crate) zones: Vec<u32>,
    /// Players of each edge.
    pub(crate) edges: Vec<u32>,
    /// Players of each zone on each edge that has some: by zone, then edge.
    pub(crate) readers: BTreeMap<(u32, u32), u32>,
}

/// Places all players. The number of draws is that of the players.
pub(crate) fn place(world: &World, layout: &Layout) -> Places {
    let mut random = fastrand::Rng::with_seed(world.seed);
    let zones = fill_zones(world, &mut random);
    let mut edges = vec![0; layout.edges.max(1) as usize];
    let mut readers = BTreeMap::new();
    let mut put = |zone: usize, edge: usize, players: u32| {
        edges[edge] += players;
        *readers.entry((zone as u32, edge as u32)).or_default() += players;
    };
    match world.placement {
        Placement::ByZone => {
            let room = world.players.div_ceil(layout.edges.max(1));
            let (mut edge, mut left) = (0, room);
            for (zone, players) in zones.iter().enumerate() {
                let mut rest = *players;
                while rest > 0 {
                    if left == 0 {
                        (edge, left) = (edge + 1, room);
                    }
                    let some = rest.min(left);
                    put(zone, edge, some);
                    (rest, left) = (rest - some, left - some);
                }
            }
        }
        Placement::Random => {
            for (zone, players) in zones.iter().enumerate() {
                for _ in 0..*players {
                    put(zone, random.usize(..layout.edges.max(1) as usize), 1);
                }
            }
        }
    }
    Places { zones, edges, readers }
}

/// Each player draws a zone by popularity, and goes on to the next one with room.
fn fill_zones(world: &World, random: &mut fastrand::Rng) -> Vec<u32> {
    let mut sum = 0.0;
    let weights = (1..=world.zones).map(|rank| f64::from(rank).powf(-world.popularity));
    let ends: Vec<f64> = weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    let mut zones = vec![0; world.zones as usize];
    // Where to go on from a full zone; followed and shortened as in a union of sets, so that full zones cost nothing.
    let mut next: Vec<u32> = (0..=world.zones).collect();
    for _ in 0..world.players {
        let point = random.f64() * sum;
        let drawn = ends.partition_point(|end| *end <= point).min(ends.len() - 1);
        let mut zone = with_room(&mut next, drawn as u32);
        if zone == world.zones {
            zone = with_room(&mut next, 0);
        }
        zones[zone as usize] += 1;
        if zones[zone as usize] == world.zone_players_max {
            next[zone as usize] = zone + 1;
        }
    }
    zones
}

/// The first zone from `zone` on that has room, or the number of zones.
fn with_room(next: &mut [u32], zone: u32) -> u32 {
    let mut end = zone;
    while next[end as usize] != end {
        end = next[end as usize];
    }
    let mut at = zone;
    while next[at as usize] != end && at != end {
        at = std::mem::replace(&mut next[at as usize], end);
    }
    end
}
