//! The expected state of each client, computed the slow way from the server's store.

use std::collections::{BTreeMap, BTreeSet};

use throng::FieldMask;
use throng::schema::Values;
use throng::{ChannelKey, Channels, ConnectionId, Facet, GridOptions, LooksFrom, ObjectId, Server};
use throng_testkit::Homes;

/// The largest effect of rounding on a distance.
const ROUNDING_M: f64 = 0.01;

/// The test's calls to the server about one client.
#[derive(Clone, Debug, Default)]
pub struct Audience {
    /// Subscribed to by hand.
    pub channels: BTreeSet<ChannelKey>,
    /// Where it looks from.
    pub viewpoint: Option<[f64; 3]>,
}

/// Whether something has to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Must,
    /// Between where a ring ends and where its margin does.
    May,
    MustNot,
}

impl Audience {
    /// Whether this audience gets what lives in a channel.
    pub fn hears(&self, key: ChannelKey, connection: ConnectionId, grids: &[GridOptions]) -> Verdict {
        if key == ChannelKey::Owner(connection) || self.channels.contains(&key) {
            return Verdict::Must;
        }
        match key {
            ChannelKey::Cell { grid, cell } => self.looks_into(&grids[usize::from(grid)], cell),
            _ => Verdict::MustNot,
        }
    }

    /// Whether the rings around its viewpoint reach a cell.
    fn looks_into(&self, options: &GridOptions, cell: [i32; 3]) -> Verdict {
        let Some(viewpoint) = self.viewpoint else { return Verdict::MustNot };
        let reach_m = options.rings.last().expect("a grid has rings").radius_m;
        let (distance_m, slack_m) = distance_to_cell(options, cell, viewpoint);
        if distance_m < reach_m {
            Verdict::Must
        } else if distance_m > reach_m + slack_m {
            Verdict::MustNot
        } else {
            Verdict::May
        }
    }
}

/// Sub-cells along each axis from which the server looks ([`throng_interest::RingOptions`]).
const SUBCELLS: [f64; 3] = [4.0, 4.0, 2.0];

/// The step of all positions of the tests' kinds.
const STEP_M: f64 = 0.01;

/// How far the cell is, and by how much farther it may be and still be seen: the server measures from the nearest point of the
/// viewer's sub-cell; a cell that is held stays so for a margin, the diagonal of a sub-cell in the plane; and an object may
/// stray out of its cell, as far as the numbers reach that its positions are written in. If clients look from cells, there are
/// no sub-cells and no margin; but a viewer keeps the cell that it has left for a sixteenth of the cell, on either side.
fn distance_to_cell(options: &GridOptions, cell: [i32; 3], viewpoint: [f64; 3]) -> (f64, f64) {
    let is_single = options.shape.layers == throng::replica::Layers::Single;
    let (mut distance, mut diagonal, mut plane, mut stray) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for axis in 0..if is_single { 2 } else { 3 } {
        let size = options.shape.cell_m[axis];
        let low = f64::from(cell[axis]) * size;
        let outside = (low - viewpoint[axis]).max(viewpoint[axis] - low - size).max(0.0);
        distance += outside * outside;
        match options.looks_from {
            LooksFrom::Cell => diagonal += (size * 1.125).powi(2),
            LooksFrom::Position => {
                diagonal += (size / SUBCELLS[axis]).powi(2);
                if axis < 2 {
                    plane += (size / SUBCELLS[axis]).powi(2);
                }
            }
        }
        let numbers = ((size / STEP_M) as u64 + 1).next_power_of_two() as f64;
        stray += ((numbers * STEP_M - size) / 2.0).powi(2);
    }
    (distance.sqrt(), diagonal.sqrt() + plane.sqrt() + stray.sqrt())
}

fn distance_m(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// A client's expected state of one object.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    pub id: ObjectId,
    /// Whether it should hold it at all.
    pub verdict: Verdict,
    /// Whether it should know that it owns it.
    pub is_owner: bool,
    /// The fields that must be as at the server.
    pub fields: FieldMask,
    /// The fields that this client must not know any more.
    pub forbidden: FieldMask,
}

/// A client's expected state.
pub fn sights(server: &Server, grids: &[GridOptions], audience: &Audience, connection: ConnectionId) -> Vec<Sight> {
    let replicator = server.replicator();
    let store = replicator.store();
    let channel = |id, facet| replicator.home(id, facet).map(|home| replicator.hub_ref().key(home));
    let sight = |id: ObjectId| {
        let kind = store.schema().kind(store.kind_id(id.index));
        let public = channel(id, Facet::Public).map(|key| audience.hears(key, connection, grids));
        let is_owner = replicator.owner(id) == Some(connection);
        // A client receives its own objects wherever they are, and predicts some of them.
        let verdict = if is_owner { Verdict::Must } else { public.unwrap_or(Verdict::MustNot) };
        let (seen, forbidden) = match is_owner {
            true => (kind.own_mask() & !kind.skip_owner_mask(), kind.facet_mask(Facet::Others)),
            false => (kind.facet_mask(Facet::Public) | kind.facet_mask(Facet::Others), kind.facet_mask(Facet::Owner)),
        };
        let fields = if verdict == Verdict::Must { seen } else { 0 };
        Sight { id, verdict, is_owner, fields, forbidden }
    };
    store.ids().map(sight).collect()
}

impl super::Contender for Channels {
    type Decoder = throng::replica::ReplicaClient;
    const FORGETS: bool = true;

    /// It is sent with the cell in which it lives, and within the rings' reach in any case.
    fn hears_place(
        (grid, options): (u8, &GridOptions),
        audience: &Audience,
        position_m: [f64; 3],
        homes: &Homes,
    ) -> Verdict {
        let reach_m = options.rings.last().expect("a grid has rings").radius_m;
        if audience.viewpoint.is_some_and(|from_m| distance_m(from_m, position_m) < reach_m - ROUNDING_M) {
            return Verdict::Must;
        }
        let mut verdicts =
            homes.cells().map(|cell| match audience.channels.contains(&ChannelKey::Cell { grid, cell }) {
                true => Verdict::Must,
                false => audience.looks_into(options, cell),
            });
        let first = verdicts.next().expect("it lives somewhere");
        if verdicts.all(|verdict| verdict == first) { first } else { Verdict::May }
    }

    fn compare(
        server: &Server,
        grids: &[GridOptions],
        audience: &Audience,
        connection: ConnectionId,
        client: &throng::Client,
    ) -> Result<(), String> {
        compare(server, grids, audience, connection, client)
    }
}

/// The first difference between what a client holds and what it should hold.
pub fn compare(
    server: &Server,
    grids: &[GridOptions],
    audience: &Audience,
    connection: ConnectionId,
    client: &throng::Client,
) -> Result<(), String> {
    let Some(replica) = client.replica() else { return Err("is not connected".to_owned()) };
    let store = server.replicator().store();
    let mut seen = BTreeMap::new();
    for object in replica.objects() {
        seen.insert(object.id(), object);
    }
    for Sight { id, verdict, is_owner, fields, forbidden } in sights(server, grids, audience, connection) {
        let kind = store.schema().kind(store.kind_id(id.index));
        let Some(object) = seen.remove(&id) else {
            match verdict {
                Verdict::Must => return Err(format!("does not see {id} ({})", kind.name)),
                Verdict::May | Verdict::MustNot => continue,
            }
        };
        if verdict == Verdict::MustNot {
            return Err(format!("still sees {id} ({})", kind.name));
        }
        let told = object.known_fields();
        let (empty_words, empty_blobs) = kind.empty_values();
        let empty = Values { words: &empty_words, blobs: &empty_blobs };
        let held = told & forbidden | kind.compare(object.values(), empty) & forbidden;
        if held != 0 {
            let names: Vec<&str> = kind.fields_of(held).map(|(_, field)| field.name).collect();
            return Err(format!("{id} ({}) still has {names:?}", kind.name));
        }
        if object.is_own() != is_owner || client.is_mine(id) != is_owner {
            return Err(format!("{id} ({}) is its own: {is_owner}, it thinks: {}", kind.name, object.is_own()));
        }
        if object.is_awaited() {
            return Err(format!("{id} ({}) is waited for", kind.name));
        }
        let predicted = if is_owner { kind.skip_owner_mask() } else { 0 };
        let lasting = (fields | told) & !predicted;
        let values: Values<'_> = store.values(id.index);
        let difference = kind.compare(values, object.values()) & lasting | (fields & !told);
        if difference != 0 {
            let names: Vec<&str> = kind.fields_of(difference).map(|(_, field)| field.name).collect();
            return Err(format!("{id} ({}) differs in {names:?}", kind.name));
        }
    }
    match seen.keys().next() {
        Some(id) => Err(format!("still sees {id}, which has ended")),
        None => Ok(()),
    }
}
