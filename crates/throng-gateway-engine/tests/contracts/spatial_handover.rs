//! Handovers: the steps of one, and the invariants in a storm of them with crashes.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use proptest::prelude::*;
use throng_gateway_engine::group::{EntityGroupLimits, EntityGroups, GroupKind, Movable};
use throng_gateway_engine::spatial::{
    Action, Axis, Damping, Grant, Grid, HandoverPlan, HandoverRefusal, HandoverView, Handovers, Position,
};

const FIRST: u32 = 0x1_0000;

/// Connections: servers below this, clients from here on.
const CLIENTS: u32 = 1_000_000;

#[derive(Debug, Default)]
struct Cell {
    owner: u32,
    listed: BTreeSet<u32>,
    subscribers: BTreeSet<u32>,
}

#[derive(Debug)]
struct Entity {
    owner: u32,
    at: Position,
    subscribers: BTreeMap<u32, Grant>,
}

/// The notices to connections about a plan: by receiver, the entities and whether their data came along.
type Told = BTreeMap<u32, Vec<(u32, bool)>>;

/// A gateway's picture of the world, and the servers that come and go.
#[derive(Debug, Default)]
struct World {
    cells: BTreeMap<u32, Cell>,
    entities: BTreeMap<u32, Entity>,
    /// Servers that are there.
    present: BTreeSet<u32>,
}

impl HandoverView for World {
    type Connection = u32;

    fn cell_owner(&self, cell: u32) -> Option<u32> {
        self.cells.get(&cell).map(|cell| cell.owner).filter(|owner| self.present.contains(owner))
    }

    fn cell_subscribers(&self, cell: u32, subscribers: &mut Vec<u32>) {
        subscribers.extend(self.cells.get(&cell).into_iter().flat_map(|cell| &cell.subscribers));
    }

    fn sees_cell(&self, connection: u32, cell: u32) -> bool {
        self.cells.get(&cell).is_some_and(|cell| cell.subscribers.contains(&connection))
    }

    fn cell_listing(&self, entity: u32) -> Option<Option<u32>> {
        self.entities.get(&entity)?;
        Some(self.cells.iter().find(|(_, cell)| cell.listed.contains(&entity)).map(|(channel, _)| *channel))
    }

    fn entity_owner(&self, entity: u32) -> Option<u32> {
        Some(self.entities.get(&entity)?.owner).filter(|owner| self.present.contains(owner))
    }

    fn grant(&self, entity: u32, connection: u32) -> Option<Grant> {
        self.entities.get(&entity)?.subscribers.get(&connection).copied()
    }
}

impl World {
    fn lists_of(&self, entity: u32) -> usize {
        self.cells.values().filter(|cell| cell.listed.contains(&entity)).count()
    }

    /// Carries out a plan, step by step.
    fn carry_out(&mut self, plan: &HandoverPlan<u32>) -> Told {
        let mut told = Told::new();
        for action in plan.actions() {
            match action {
                Action::Unsubscribe { connection, entity } => {
                    let subscribers = &mut self.entities.get_mut(entity).unwrap().subscribers;
                    assert!(subscribers.remove(connection).is_some(), "was not subscribed");
                }
                Action::Own { connection, entity } => {
                    assert!(self.present.contains(connection), "a new owner that is not there");
                    let owner = std::mem::replace(&mut self.entities.get_mut(entity).unwrap().owner, *connection);
                    assert_ne!(owner, *connection, "owned already");
                }
                Action::Unlist { cell, entity } => assert!(self.cells.get_mut(cell).unwrap().listed.remove(entity)),
                Action::List { cell, entity } => {
                    assert_eq!(self.lists_of(*entity), 0, "on two lists at one time");
                    self.cells.get_mut(cell).unwrap().listed.insert(*entity);
                }
                Action::Subscribe { connection, entity, grant } => {
                    let before = self.entities.get_mut(entity).unwrap().subscribers.insert(*connection, *grant);
                    assert_ne!(before, Some(*grant), "a subscription that changes nothing");
                }
                Action::Announce(notice) => {
                    let with_data = plan.with_data(notice);
                    let entities = plan.entities(notice).iter();
                    let list = entities.map(|&entity| (entity, with_data.contains(&entity)));
                    told.entry(notice.connection).or_default().extend(list);
                }
            }
        }
        told
    }

    /// The invariants between any two steps.
    fn check_owners(&self) {
        for (id, entity) in &self.entities {
            let owner = entity.owner;
            let cells = self.cells.values().filter(|cell| cell.listed.contains(id)).collect::<Vec<_>>();
            assert_eq!(cells.len(), 1, "entity {id} is listed {} times", cells.len());
            assert_eq!(cells[0].owner, owner, "entity {id} does not belong to the owner of its cell");
            let writers: Vec<_> = entity.subscribers.iter().filter(|(_, grant)| **grant == Grant::Write).collect();
            let expected = usize::from(self.present.contains(&owner));
            assert_eq!(writers.len(), expected, "entity {id} has {} writers", writers.len());
            assert!(writers.iter().all(|(connection, _)| **connection == owner));
        }
    }
}

/// Two cells of two servers, 1 and 2; a client that sees both, one that sees the first, one that sees the second.
fn two_cells() -> World {
    let mut world = World { present: [1, 2].into(), ..World::default() };
    let (left, both, right) = (CLIENTS, CLIENTS + 1, CLIENTS + 2);
    let cell = |owner: u32, clients: [u32; 2]| Cell {
        owner,
        subscribers: [owner].into_iter().chain(clients).collect(),
        ..Cell::default()
    };
    world.cells.insert(10, cell(1, [left, both]));
    world.cells.insert(11, cell(2, [right, both]));
    world
}

impl World {
    fn spawn(&mut self, id: u32, cell: u32) {
        let owner = self.cells[&cell].owner;
        let mut subscribers: BTreeMap<u32, Grant> =
            self.cells[&cell].subscribers.iter().map(|&connection| (connection, Grant::Read)).collect();
        subscribers.insert(owner, Grant::Write);
        self.entities.insert(id, Entity { owner, at: Position::default(), subscribers });
        self.cells.get_mut(&cell).unwrap().listed.insert(id);
    }
}

#[test]
fn the_steps_come_in_channeld_s_order() {
    let mut world = two_cells();
    world.spawn(500, 10);
    let mut handovers = Handovers::new();
    let plan = handovers.plan(&world, 10, 11, &[500]).unwrap().clone();
    let (left, both, right) = (CLIENTS, CLIENTS + 1, CLIENTS + 2);
    let steps: Vec<String> = plan
        .actions()
        .iter()
        .map(|action| match action {
            Action::Announce(notice) => format!("tell {} {:?}", notice.connection, plan.with_data(notice)),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        steps,
        [
            "Unsubscribe { connection: 1, entity: 500 }".to_string(),
            "Own { connection: 2, entity: 500 }".into(),
            "Unlist { cell: 10, entity: 500 }".into(),
            "List { cell: 11, entity: 500 }".into(),
            "tell 1 []".into(),
            format!("tell {left} []"),
            "Subscribe { connection: 2, entity: 500, grant: Write }".into(),
            "tell 2 [500]".into(),
            format!("tell {both} []"),
            format!("Subscribe {{ connection: {right}, entity: 500, grant: Read }}"),
            format!("tell {right} [500]"),
        ]
    );
    assert_eq!(plan.moved(), [500]);
    world.carry_out(&plan);
    world.check_owners();
}

#[test]
fn an_old_owner_that_sees_the_destination_stays_as_a_reader() {
    let mut world = two_cells();
    world.cells.get_mut(&11).unwrap().subscribers.insert(1);
    world.spawn(500, 10);
    let plan = Handovers::new().plan(&world, 10, 11, &[500]).unwrap().clone();
    let told = world.carry_out(&plan);
    assert_eq!(world.entities[&500].subscribers[&1], Grant::Read);
    assert_eq!(world.entities[&500].subscribers[&2], Grant::Write);
    assert_eq!(told[&1], [(500, false)], "it has the data already");
    world.check_owners();
}

#[test]
fn within_one_server_ownership_does_not_change() {
    let mut world = two_cells();
    world.cells.get_mut(&11).unwrap().owner = 1;
    world.cells.get_mut(&11).unwrap().subscribers.insert(1);
    world.spawn(500, 10);
    // An entity that another server owns, as static ones that the master has made.
    world.spawn(501, 10);
    world.present.insert(9);
    world.entities.get_mut(&501).unwrap().owner = 9;
    let plan = Handovers::new().plan(&world, 10, 11, &[500, 501]).unwrap().clone();
    assert!(!plan.actions().iter().any(|action| matches!(action, Action::Own { .. } | Action::Unsubscribe { .. })));
    world.carry_out(&plan);
    assert_eq!((world.entities[&500].owner, world.entities[&501].owner), (1, 9));
}

#[test]
fn an_owner_that_comes_home_keeps_what_it_owns() {
    let mut world = two_cells();
    world.spawn(500, 10);
    world.entities.get_mut(&500).unwrap().owner = 2;
    let plan = Handovers::new().plan(&world, 10, 11, &[500]).unwrap().clone();
    assert!(!plan.actions().iter().any(|action| matches!(action, Action::Own { .. })));
}

#[test]
fn the_owner_of_the_destination_is_told_even_if_it_has_unsubscribed_from_its_own_cell() {
    let mut world = two_cells();
    world.cells.get_mut(&11).unwrap().subscribers.remove(&2);
    world.spawn(500, 10);
    let plan = Handovers::new().plan(&world, 10, 11, &[500]).unwrap().clone();
    let told = world.carry_out(&plan);
    assert_eq!(told[&2], [(500, true)]);
    assert_eq!(world.entities[&500].subscribers[&2], Grant::Write);
    world.check_owners();
}

#[test]
fn a_group_that_is_spread_over_cells_comes_together_on_one_list() {
    let mut world = two_cells();
    world.cells.insert(12, Cell { owner: 2, subscribers: [2, CLIENTS + 7].into(), ..Cell::default() });
    for (id, cell) in [(500, 10), (501, 12), (502, 11), (503, 10)] {
        world.spawn(id, cell);
    }
    let plan = Handovers::new().plan(&world, 10, 11, &[500, 501, 502, 503, 999]).unwrap().clone();
    assert_eq!(plan.moved(), [500, 503, 501], "who is there and who does not exist are passed over");
    let told = world.carry_out(&plan);
    assert_eq!(world.cells[&11].listed, [500, 501, 502, 503].into());
    assert_eq!(told[&(CLIENTS + 7)], [(501, false)], "who saw one of them go is told of that one");
    assert_eq!(told[&(CLIENTS + 2)], [(500, true), (503, true), (501, true)]);
    world.check_owners();
}

#[test]
fn nothing_goes_to_a_cell_whose_owner_is_not_there() {
    let mut world = two_cells();
    world.spawn(500, 10);
    world.present.remove(&2);
    let mut handovers = Handovers::new();
    assert_eq!(handovers.plan(&world, 10, 11, &[500]).err(), Some(HandoverRefusal::NoOwner { destination: 11 }));
    world.present.insert(2);
    assert!(handovers.plan(&world, 10, 11, &[500]).is_ok());
    assert_eq!(handovers.plan(&world, 11, 10, &[]).err(), Some(HandoverRefusal::Nothing));
    assert_eq!(handovers.plan(&world, 10, 10, &[500]).err(), Some(HandoverRefusal::Nothing));
}

#[test]
fn a_new_owner_of_a_cell_takes_over_who_has_no_owner() {
    let mut world = two_cells();
    world.spawn(500, 10);
    world.spawn(501, 10);
    world.present = [3, 9].into();
    world.entities.get_mut(&501).unwrap().owner = 9;
    let plan = Handovers::new().adopt(&world, 3, &[500, 501, 500, 77]).clone();
    assert_eq!(
        plan.actions(),
        [
            Action::Own { connection: 3, entity: 500 },
            Action::Subscribe { connection: 3, entity: 500, grant: Grant::Write },
        ]
    );
}

/// Entities that walk at random over a random grid, in groups that change, with servers that crash and come back, or
/// are replaced.
struct Storm {
    rng: Rng,
    grid: Grid,
    world: World,
    groups: EntityGroups,
    handovers: Handovers<u32>,
    /// The connection that is each server of the grid.
    servers: Vec<u32>,
    next_connection: u32,
    moved: usize,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut rng = Rng::with_seed(seed);
        let axis = |rng: &mut Rng| {
            let cells = rng.u32(1..7);
            Axis { offset_m: -20.0, cell_m: 10.0, cells, servers: rng.u32(1..=cells) }
        };
        let ground = [axis(&mut rng), axis(&mut rng)];
        let layers = rng.bool().then(|| axis(&mut rng));
        let grid = Grid::new(ground, layers, FIRST..0x8_0000, rng.u32(0..3), Damping::default()).unwrap();
        let servers: Vec<u32> = (1..=grid.servers()).collect();
        let mut world = World { present: servers.iter().copied().collect(), ..World::default() };
        for channel in grid.channels() {
            let owner = servers[grid.server_of(channel).unwrap() as usize];
            world.cells.insert(channel, Cell { owner, ..Cell::default() });
        }
        let next_connection = grid.servers() + 1;
        let groups = EntityGroups::new(EntityGroupLimits { members_per_group: 6, entities: 50 });
        let mut storm =
            Storm { rng, grid, world, groups, handovers: Handovers::new(), servers, next_connection, moved: 0 };
        for server in 0..storm.servers.len() as u32 {
            storm.subscribe_server(server);
        }
        for client in CLIENTS..CLIENTS + 5 {
            storm.look_around(client);
        }
        for id in 0..20 {
            let at = storm.somewhere();
            storm.world.spawn(0x8_0000 + id, storm.grid.channel_at(at).unwrap());
            storm.world.entities.get_mut(&(0x8_0000 + id)).unwrap().at = at;
        }
        storm
    }

    fn subscribe_server(&mut self, server: u32) {
        let connection = self.servers[server as usize];
        for channel in self.grid.cells_of(server).chain(self.grid.border_of(server)) {
            self.world.cells.get_mut(&channel).unwrap().subscribers.insert(connection);
        }
    }

    fn look_around(&mut self, client: u32) {
        let at = self.somewhere();
        let centre = self.grid.channel_at(at).unwrap();
        for (channel, cell) in &mut self.world.cells {
            cell.subscribers.remove(&client);
            if *channel == centre || self.grid.adjacent(centre).any(|near| near == *channel) {
                cell.subscribers.insert(client);
            }
        }
    }

    fn somewhere(&mut self) -> Position {
        let channel = self.rng.u32(self.grid.channels());
        let [min, max] = self.grid.bounds(channel).unwrap();
        let rng = &mut self.rng;
        let mut between = |low: f64, high: f64| low + rng.f64() * 0.999 * (high - low);
        let y = if self.grid.has_layers() { between(min.y, max.y) } else { 0.0 };
        Position { x: between(min.x, max.x), y, z: between(min.z, max.z) }
    }

    fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..70 => self.walk(),
            70..78 => self.regroup(),
            78..86 => {
                let client = CLIENTS + self.rng.u32(0..5);
                self.look_around(client);
            }
            86..91 => self.crash(),
            91..98 => self.come_back(),
            _ => self.replace(),
        }
        self.world.check_owners();
    }

    fn some_entity(&mut self) -> u32 {
        0x8_0000 + self.rng.u32(0..20)
    }

    fn walk(&mut self) {
        let id = self.some_entity();
        let at = if self.rng.u32(0..10) == 0 {
            self.somewhere()
        } else {
            let here = self.world.entities[&id].at;
            let rng = &mut self.rng;
            let mut by = || rng.f64() * 8.0 - 4.0;
            Position { x: here.x + by(), y: here.y + by(), z: here.z + by() }
        };
        let Some(destination) = self.grid.channel_at(at) else { return };
        self.world.entities.get_mut(&id).unwrap().at = at;
        let source = self.world.cell_listing(id).unwrap().unwrap();
        if source != destination {
            self.hand_over(id, source, destination);
        }
    }

    fn hand_over(&mut self, id: u32, source: u32, destination: u32) {
        let movable = self.groups.movable_with(id);
        let entities = match movable {
            Movable::Locked => return,
            Movable::Alone => std::slice::from_ref(&id),
            Movable::Together(all) => all,
        };
        let had: BTreeMap<u32, Vec<u32>> = entities
            .iter()
            .map(|entity| (*entity, self.world.entities[entity].subscribers.keys().copied().collect()))
            .collect();
        let lists: BTreeMap<u32, u32> =
            entities.iter().map(|&entity| (entity, self.world.cell_listing(entity).unwrap().unwrap())).collect();
        let before: BTreeMap<u32, BTreeSet<u32>> =
            self.world.cells.iter().map(|(channel, cell)| (*channel, cell.subscribers.clone())).collect();
        let plan = match self.handovers.plan(&self.world, source, destination, entities) {
            Ok(plan) => plan,
            Err(HandoverRefusal::NoOwner { .. }) => {
                assert!(!self.world.present.contains(&self.world.cells[&destination].owner));
                return;
            }
            Err(other) => panic!("{other}"),
        };
        let told = self.world.carry_out(plan);
        self.moved += plan.moved().len();
        assert!(entities.iter().all(|entity| self.world.cells[&destination].listed.contains(entity)));
        for &entity in plan.moved() {
            check_notices(entity, &had[&entity], &before[&lists[&entity]], &before[&destination], &told);
            for connection in &before[&destination] {
                assert!(self.world.entities[&entity].subscribers.contains_key(connection));
            }
        }
    }

    fn regroup(&mut self) {
        let (entity, other, third) = (self.some_entity(), self.some_entity(), self.some_entity());
        let kind = if self.rng.u32(0..4) == 0 { GroupKind::Lock } else { GroupKind::Handover };
        if self.rng.bool() {
            let _ = self.groups.add(entity, kind, &[other, third]); // a full group is refused
        } else {
            self.groups.remove(entity, kind, &[other, third]);
            self.groups.remove(entity, GroupKind::Lock, &[entity]);
        }
    }

    /// A server is lost: it is subscribed to nothing, its cells and entities wait for it.
    fn crash(&mut self) {
        let connection = self.servers[self.rng.usize(0..self.servers.len())];
        self.world.present.remove(&connection);
        self.world.cells.values_mut().for_each(|cell| {
            cell.subscribers.remove(&connection);
        });
        self.world.entities.values_mut().for_each(|entity| {
            entity.subscribers.remove(&connection);
        });
    }

    /// A lost server returns: it gets back what no other server has taken.
    fn come_back(&mut self) {
        let server = self.rng.usize(0..self.servers.len());
        let connection = self.servers[server];
        if self.world.present.insert(connection) {
            self.subscribe_server(server as u32);
            for entity in self.world.entities.values_mut().filter(|entity| entity.owner == connection) {
                entity.subscribers.insert(connection, Grant::Write);
            }
        }
    }

    /// A lost server does not return: another connection takes its place, and what has no owner.
    fn replace(&mut self) {
        let server = self.rng.usize(0..self.servers.len());
        let old = self.servers[server];
        if self.world.present.contains(&old) {
            return;
        }
        let connection = self.next_connection;
        self.next_connection += 1;
        self.servers[server] = connection;
        self.world.present.insert(connection);
        self.subscribe_server(server as u32);
        for channel in self.grid.cells_of(server as u32) {
            let cell = self.world.cells.get_mut(&channel).unwrap();
            cell.owner = connection;
            let listed: Vec<u32> = cell.listed.iter().copied().collect();
            let plan = self.handovers.adopt(&self.world, connection, &listed);
            self.world.carry_out(plan);
        }
    }
}

/// Every viewer of the entity's leaving or coming gets one notice, with its data exactly if it comes and was not known.
fn check_notices(entity: u32, had: &[u32], source: &BTreeSet<u32>, destination: &BTreeSet<u32>, told: &Told) {
    for connection in source | destination {
        let expected = destination.contains(&connection) && !had.contains(&connection);
        let notices: Vec<bool> =
            told[&connection].iter().filter(|(told, _)| *told == entity).map(|told| told.1).collect();
        assert_eq!(notices, [expected], "connection {connection}, entity {entity}");
    }
    for (connection, notices) in told {
        let is_concerned = source.contains(connection) || destination.contains(connection);
        assert!(is_concerned || notices.iter().all(|(told, _)| *told != entity), "{connection} is told of {entity}");
    }
}

#[test]
fn in_a_storm_with_crashes_every_entity_has_one_owner_and_is_on_one_list() {
    let mut moved = 0;
    throng_seeds::for_seeds(100, |seed| {
        let mut storm = Storm::new(seed);
        (0..1_000).for_each(|_| storm.step());
        moved += storm.moved;
    });
    assert!(moved > 20_000 || throng_seeds::is_partial(), "only {moved} entities moved: that is no storm");
}

proptest! {
    #![proptest_config(throng_seeds::cases(100))]

    #[test]
    fn a_storm_from_any_seed_does_no_harm(seed: u64) {
        let mut storm = Storm::new(seed);
        (0..300).for_each(|_| storm.step());
    }
}
