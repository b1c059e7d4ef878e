//! The world as the test made it: the values that it set, and the placement and the owner that it chose. The state that
//! a client should hold follows from that alone; the server is not asked.

use std::collections::BTreeMap;
use std::f32::consts::TAU;

use throng::{ChannelKey, Client, ConnectionId, Decoder, Facet, GridOptions, ObjectId, ObjectView, Placement, Server};
use throng_testkit::{Beacon, Homes, Score, Walker};

use super::Contender;
use super::oracle::{Audience, Verdict};

/// Half a step of a position, with some slack for single precision.
const POSITION_ERROR_M: f32 = 0.006;
/// Half a step of an angle of 9 bits, with some slack.
const ANGLE_ERROR: f32 = TAU / 1024.0 * 1.01;

/// The values of an object.
#[derive(Clone, Debug)]
pub enum Thing {
    Walker(Walker),
    Score(Score),
    Beacon(Beacon),
}

impl Thing {
    fn position(&self) -> [f32; 3] {
        match self {
            Thing::Walker(walker) => walker.position,
            Thing::Beacon(beacon) => beacon.position,
            Thing::Score(_) => [0.0; 3],
        }
    }

    /// The first difference from what a client has. Private fields of others have to be empty.
    fn differs<D: Decoder>(&self, client: &Client<D>, view: &ObjectView<'_>, follows: [bool; 2]) -> Option<String> {
        let id = view.id;
        let (is_same, seen) = match self {
            Thing::Walker(truth) => {
                let seen = client.get::<Walker>(id);
                (seen.as_ref().is_some_and(|seen| is_same_walker(truth, seen, follows)), format!("{seen:?}"))
            }
            Thing::Score(truth) => {
                let seen = client.get::<Score>(id);
                (seen.as_ref() == Some(truth), format!("{seen:?}"))
            }
            Thing::Beacon(truth) => {
                let seen = client.get::<Beacon>(id);
                let is_same = |seen: &Beacon| seen.number == truth.number && is_near(truth.position, seen.position);
                (seen.as_ref().is_some_and(is_same), format!("{seen:?}"))
            }
        };
        (!is_same).then(|| format!("the game has {self:?} for {id}, not {seen}"))
    }
}

fn is_near(truth: [f32; 3], seen: [f32; 3]) -> bool {
    (0..3).all(|axis| (seen[axis] - truth[axis]).abs() < POSITION_ERROR_M)
}

/// `follows`: whether the client belongs to the owner, and whether it forgets what it may not know any more.
fn is_same_walker(truth: &Walker, seen: &Walker, [is_own, forgets]: [bool; 2]) -> bool {
    let around = (seen.yaw - truth.yaw).rem_euclid(TAU);
    let public = is_near(truth.position, seen.position)
        && (seen.health, seen.mode, &seen.name, seen.target, seen.team)
            == (truth.health, truth.mode, &truth.name, truth.target, truth.team);
    let owners = (seen.ammunition, &seen.secret) == (truth.ammunition, &truth.secret);
    let knows_nothing = (seen.ammunition, seen.secret.is_empty()) == (0, true);
    public
        && seen.server_only.is_empty()
        && match is_own {
            true => owners && (seen.rumour.is_empty() || !forgets),
            // The owner predicts the yaw.
            false => {
                seen.rumour == truth.rumour && around.min(TAU - around) < ANGLE_ERROR && (knows_nothing || !forgets)
            }
        }
}

/// One object, as the test made it.
#[derive(Clone, Debug)]
struct Made {
    thing: Thing,
    placement: Placement,
    owner: Option<ConnectionId>,
    /// Of an object in a cell: its cells, as of the last tick.
    homes: Option<Homes>,
    /// Where it was in the last tick.
    position: [f32; 3],
}

/// Everything that the test made.
#[derive(Clone, Debug)]
pub struct Truth {
    grids: Vec<GridOptions>,
    made: BTreeMap<ObjectId, Made>,
}

impl Truth {
    /// An empty world with these grids.
    pub fn new(grids: Vec<GridOptions>) -> Truth {
        Truth { grids, made: BTreeMap::new() }
    }

    /// Puts an object into the world.
    pub fn spawn<R: Contender>(
        &mut self,
        server: &mut Server<R>,
        thing: Thing,
        placement: Placement,
        owner: Option<ConnectionId>,
    ) -> ObjectId {
        let id = match thing.clone() {
            Thing::Walker(walker) => server.spawn_owned(walker, placement, owner),
            Thing::Score(score) => server.spawn_owned(score, placement, owner),
            Thing::Beacon(beacon) => server.spawn_owned(beacon, placement, owner),
        }
        .expect("room");
        let position = thing.position();
        let homes = self.homes(placement, position);
        let before = self.made.insert(id, Made { thing, placement, owner, homes, position });
        assert!(before.is_none(), "{id} was given twice");
        id
    }

    /// Ends an object.
    pub fn despawn<R: Contender>(&mut self, server: &mut Server<R>, id: ObjectId) {
        server.despawn(id);
        self.made.remove(&id);
    }

    /// Gives an object away.
    pub fn set_owner<R: Contender>(&mut self, server: &mut Server<R>, id: ObjectId, owner: Option<ConnectionId>) {
        server.set_owner(id, owner).expect("room");
        self.made.get_mut(&id).expect("it is there").owner = owner;
    }

    /// Places an object elsewhere.
    pub fn set_placement<R: Contender>(&mut self, server: &mut Server<R>, id: ObjectId, placement: Placement) {
        server.set_placement(id, placement).expect("room");
        let position = self.made[&id].position;
        let fresh = self.homes(placement, position);
        let made = self.made.get_mut(&id).expect("it is there");
        made.placement = placement;
        made.homes = match (made.homes.take(), fresh) {
            (Some(mut homes), Some(_)) => {
                homes.settle(position);
                Some(homes)
            }
            (_, fresh) => fresh,
        };
    }

    /// Changes a walker in the server and here.
    pub fn change_walker<R: Contender>(&mut self, server: &mut Server<R>, id: ObjectId, change: impl Fn(&mut Walker)) {
        let Some(Made { thing: Thing::Walker(walker), .. }) = self.made.get_mut(&id) else { panic!("{id}: no walker") };
        change(walker);
        change(server.get_mut::<Walker>(id).expect("it is there"));
    }

    /// Changes a score in the server and here.
    pub fn change_score<R: Contender>(&mut self, server: &mut Server<R>, id: ObjectId, change: impl Fn(&mut Score)) {
        let Some(Made { thing: Thing::Score(score), .. }) = self.made.get_mut(&id) else { panic!("{id}: no score") };
        change(score);
        change(server.get_mut::<Score>(id).expect("it is there"));
    }

    /// Changes a beacon in the server and here.
    pub fn change_beacon<R: Contender>(&mut self, server: &mut Server<R>, id: ObjectId, change: impl Fn(&mut Beacon)) {
        let Some(Made { thing: Thing::Beacon(beacon), .. }) = self.made.get_mut(&id) else { panic!("{id}: no beacon") };
        change(beacon);
        change(server.get_mut::<Beacon>(id).expect("it is there"));
    }

    /// The changes of this tick are done.
    pub fn end_tick(&mut self) {
        for made in self.made.values_mut() {
            made.position = made.thing.position();
            if let Some(homes) = &mut made.homes {
                homes.note(made.position);
            }
        }
    }

    /// The first difference between what a client holds and what it should hold.
    pub fn compare<R: Contender>(
        &self,
        audience: &Audience,
        connection: ConnectionId,
        client: &Client<R::Decoder>,
    ) -> Result<(), String> {
        let Some(decoder) = client.replica() else { return Err("is not connected".to_owned()) };
        let mut held: BTreeMap<ObjectId, ObjectView<'_>> = decoder.views().map(|view| (view.id, view)).collect();
        for (&id, made) in &self.made {
            let is_own = made.owner == Some(connection);
            let verdict = self.verdict::<R>(id, made, audience, connection);
            let view = match (held.remove(&id), verdict) {
                (None, Verdict::Must) => return Err(format!("does not see {id}, which is {made:?}")),
                (Some(_), Verdict::MustNot) => return Err(format!("sees {id}, which is {made:?}")),
                (None, Verdict::May | Verdict::MustNot) => continue,
                (Some(view), Verdict::May | Verdict::Must) => view,
            };
            if matches!(made.thing, Thing::Walker(_)) && view.is_own() != is_own {
                return Err(format!("{id} is its own: {is_own}, it thinks: {}", view.is_own()));
            }
            if let Some(difference) = made.thing.differs(client, &view, [is_own, R::FORGETS]) {
                return Err(difference);
            }
        }
        match held.keys().next() {
            Some(id) => Err(format!("sees {id}, which the game has ended")),
            None => Ok(()),
        }
    }

    fn verdict<R: Contender>(
        &self,
        id: ObjectId,
        made: &Made,
        audience: &Audience,
        connection: ConnectionId,
    ) -> Verdict {
        let key = match (made.placement, &made.homes) {
            _ if made.owner == Some(connection) => return Verdict::Must,
            (Placement::Cell(grid), Some(homes)) => {
                let options = (grid, &self.grids[usize::from(grid)]);
                return R::hears_place(options, audience, made.position.map(f64::from), homes);
            }
            (Placement::Entity, _) => ChannelKey::Entity { object: id, facet: Facet::Public },
            (Placement::Channel(key), _) => key,
            (Placement::Cell(_), None) => unreachable!("an object in a cell has homes"),
        };
        match key == ChannelKey::Owner(connection) || audience.channels.contains(&key) {
            true => Verdict::Must,
            false => Verdict::MustNot,
        }
    }

    fn homes(&self, placement: Placement, position: [f32; 3]) -> Option<Homes> {
        let Placement::Cell(grid) = placement else { return None };
        let shape = &self.grids[usize::from(grid)].shape;
        let axes = if shape.layers == throng::replica::Layers::Single { 2 } else { 3 };
        Some(Homes::new(shape.cell_m, axes, position))
    }
}
