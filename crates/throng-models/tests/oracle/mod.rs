//! The expected state of each client of an older model, computed the slow way from the server's objects.

use std::collections::BTreeMap;

use throng::replica::{Layers, Placement};
use throng::schema::{FieldMask, Kind, Quantiser};
use throng::{
    ChannelKey, Client, ConnectionId, Decoder, Facet, GridOptions, ObjectId, ObjectView, Replicated, Replication,
    Server,
};
use throng_models::{Graph, Legacy, RecordDecoder, SharedState};
use throng_testkit::Homes;

use super::harness::Contender;
use super::harness::oracle::{Audience, Verdict};

/// The largest effect of rounding on a distance.
const SLACK_M: f64 = 0.01;
/// How much farther an object stays in sight than it comes into it, with some slack.
const LEAVE_FACTOR: f64 = 1.101;

/// Makes models contenders: they have no trait in common that says where an object is placed.
macro_rules! contenders {
    ($($model:ty),*) => {
        $(impl Contender for $model {
            type Decoder = RecordDecoder;
            const FORGETS: bool = false;

            fn hears_place(
                grid: (u8, &GridOptions),
                audience: &Audience,
                position_m: [f64; 3],
                _: &Homes,
            ) -> Verdict {
                by_place(position_m.map(rounded), grid, audience)
            }

            fn compare(
                server: &Server<Self>,
                grids: &[GridOptions],
                audience: &Audience,
                connection: ConnectionId,
                client: &Client<RecordDecoder>,
            ) -> Result<(), String> {
                let placement = |id| server.replication().placement(id).expect("the object exists");
                compare(server.replication(), placement, (grids, audience), connection, client)
            }
        })*
    };
}

contenders!(Legacy, Graph, SharedState);

fn compare(
    model: &impl Replication,
    placement: impl Fn(ObjectId) -> Placement,
    (grids, audience): (&[GridOptions], &Audience),
    connection: ConnectionId,
    client: &Client<RecordDecoder>,
) -> Result<(), String> {
    let Some(decoder) = client.replica() else { return Err("is not connected".to_owned()) };
    let mut seen: BTreeMap<ObjectId, ObjectView<'_>> = decoder.views().map(|view| (view.id, view)).collect();
    for id in model.objects() {
        let object = model.object(id).expect("it was just named");
        let kind = model.schema().kind(object.kind);
        let verdict = verdict(kind, &object, (id, placement(id)), (grids, audience), connection);
        match (seen.remove(&id), verdict) {
            (Some(view), Verdict::Must | Verdict::May) => {
                check_fields(kind, &object, &view, object.owner == Some(connection))
                    .map_err(|names| format!("{id} ({}) differs in {names}", kind.name))?;
            }
            (None, Verdict::Must) => return Err(format!("does not see {id} ({})", kind.name)),
            (Some(_), Verdict::MustNot) => return Err(format!("still sees {id} ({})", kind.name)),
            (None, Verdict::May | Verdict::MustNot) => {}
        }
    }
    match seen.keys().next() {
        Some(id) => Err(format!("still sees {id}, which has ended")),
        None => Ok(()),
    }
}

fn verdict(
    kind: &Kind,
    object: &Replicated<'_>,
    (id, placement): (ObjectId, Placement),
    (grids, audience): (&[GridOptions], &Audience),
    connection: ConnectionId,
) -> Verdict {
    if object.owner == Some(connection) {
        return Verdict::Must;
    }
    let key = match placement {
        Placement::Cell(grid) => {
            return by_place(position_of(kind, object), (grid, &grids[usize::from(grid)]), audience);
        }
        Placement::Entity => ChannelKey::Entity { object: id, facet: Facet::Public },
        Placement::Channel(key) => key,
    };
    let hears = key == ChannelKey::Owner(connection) || audience.channels.contains(&key);
    if hears { Verdict::Must } else { Verdict::MustNot }
}

fn by_place(position_m: [f64; 3], (grid, options): (u8, &GridOptions), audience: &Audience) -> Verdict {
    let axes = if options.shape.layers == Layers::Single { 2 } else { 3 };
    let cell = std::array::from_fn(|axis| match axis < axes {
        true => (position_m[axis] / options.shape.cell_m[axis]).floor() as i32,
        false => 0,
    });
    if audience.channels.contains(&ChannelKey::Cell { grid, cell }) {
        return Verdict::Must;
    }
    let Some(viewpoint_m) = audience.viewpoint else { return Verdict::MustNot };
    let distance_m = (0..axes).map(|axis| (position_m[axis] - viewpoint_m[axis]).powi(2)).sum::<f64>().sqrt();
    let reach_m = options.rings.last().expect("a grid has rings").radius_m;
    match distance_m {
        near if near < reach_m - SLACK_M => Verdict::Must,
        far if far > reach_m * LEAVE_FACTOR + SLACK_M => Verdict::MustNot,
        _ => Verdict::May,
    }
}

/// As the wire has it: in steps of a hundredth, and in single precision.
fn rounded(metres: f64) -> f64 {
    f64::from(((metres / 0.01).round() * 0.01) as f32)
}

/// As the models know it: in single precision.
fn position_of(kind: &Kind, object: &Replicated<'_>) -> [f64; 3] {
    let Some(field) = kind.position.map(|field| &kind.fields[field]) else { return [0.0; 3] };
    let Quantiser::Position { step } = field.quantiser else { unreachable!("a position has steps") };
    let words = &object.values.words[usize::from(field.word)..];
    std::array::from_fn(|axis| f64::from((f64::from(words[axis] as i32) * step) as f32))
}

/// The fields that its role may see are sent and equal the server's; the other role's fields are not checked.
fn check_fields(kind: &Kind, object: &Replicated<'_>, view: &ObjectView<'_>, is_owner: bool) -> Result<(), String> {
    let (fields, other): (FieldMask, Facet) = match is_owner {
        true => (kind.own_mask() & !kind.skip_owner_mask(), Facet::Others),
        false => (kind.facet_mask(Facet::Public) | kind.facet_mask(Facet::Others), Facet::Owner),
    };
    let followed = if view.facets[other.index()] { kind.facet_mask(other) } else { 0 };
    let differs = kind.compare(object.values, view.values) & fields & !kind.initial_only_mask();
    let wrong = differs | (fields & !view.known_fields) | followed;
    if wrong == 0 {
        return Ok(());
    }
    Err(kind.fields_of(wrong).map(|(_, field)| field.name).collect::<Vec<_>>().join(", "))
}
