//! Positions with `predict`: when they are sent, what is sent, and where clients see the objects.

use std::sync::Arc;

use throng_replica::{
    ChannelKey, ClientOptions, GridShape, Inline, Layers, Placement, ReplicaClient, Replicator, ReplicatorOptions,
};
use throng_schema::{Facet, Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId};

const GRID: GridShape = GridShape { cell_m: [10.0; 3], layers: Layers::Single, up: throng_replica::Up::Z };
/// A velocity of 1 m/s is 5 steps in a tick, and exact.
const TICK_INTERVAL_US: u32 = 50_000;
const TICK_S: f64 = 0.05;

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Cart {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    position: [f64; 3],
    #[replicate(fixed(min = -50.0, max = 50.0, step = 0.1))]
    velocity: [f64; 3],
    #[replicate(integer)]
    load: u16,
}

/// A server and a client to which all packets come, unless a test keeps them.
struct Play {
    server: Replicator,
    client: ReplicaClient,
    connection: ConnectionId,
    sequence: u64,
}

impl Play {
    fn new() -> Play {
        let schema = Arc::new(Schema::builder().kind::<Cart>().build().expect("a good kind"));
        let options = ReplicatorOptions { tick_interval_us: TICK_INTERVAL_US, ..ReplicatorOptions::default() };
        let mut server = Replicator::new(Arc::clone(&schema), options);
        server.add_grid(GRID).expect("a good grid");
        let options = ClientOptions { tick_interval_us: TICK_INTERVAL_US, ..ClientOptions::default() };
        let client = ReplicaClient::new(schema, &[GRID], options).expect("a good grid");
        let connection = server.hub().connect().expect("room");
        server.admit(connection);
        for x in -3..3 {
            let key = ChannelKey::Cell { grid: 0, cell: [x, 0, 0] };
            let channel = server.channel(key).expect("room");
            server.hub().subscribe(connection, channel, 1, 1).expect("room");
        }
        server.begin_tick();
        Play { server, client, connection, sequence: 0 }
    }

    fn spawn(&mut self, cart: &Cart) -> ObjectId {
        let kind = self.server.store().schema().kind_id::<Cart>().expect("in the schema");
        self.server.spawn(kind, Placement::Cell(0), None, |to| cart.quantise(to)).expect("room")
    }

    fn set(&mut self, id: ObjectId, cart: &Cart) {
        self.server.update(id, |to| cart.quantise(to)).expect("room");
    }

    /// Ends the tick. Returns its packets.
    fn write(&mut self) -> Vec<Vec<u8>> {
        self.server.plan();
        self.server.encode(&Inline);
        let (outgoing, slots) = self.server.writers();
        let mut connection = slots[self.connection.index as usize].writer().expect("it stays");
        connection.begin_objects(outgoing, 5_000);
        let mut packets = Vec::new();
        while connection.has_more_objects() {
            self.sequence += 1;
            let mut packet = vec![0; 1_100];
            let written = connection.write_objects(outgoing, self.sequence, &mut packet);
            packet.truncate(written);
            packets.push(packet);
        }
        packets
    }

    /// Ends the tick, whose packets arrive. Returns their bytes.
    fn tick(&mut self) -> usize {
        let (packets, tick) = (self.write(), self.server.now());
        self.client.apply(tick, &[]).expect("a packet without replication");
        packets.iter().for_each(|packet| self.client.apply(tick, packet).expect("genuine"));
        let first = self.sequence + 1 - packets.len() as u64;
        (first..=self.sequence).for_each(|sequence| self.server.hub().delivered(self.connection, sequence));
        self.server.begin_tick();
        packets.iter().map(Vec::len).sum()
    }

    /// Where the client sees an object, in steps.
    fn sees(&self, id: ObjectId) -> [i32; 3] {
        let object = self.client.object(id).expect("it is in sight");
        self.client.reckoned(object).expect("it is not its own").now()
    }

    /// The position and velocity that the client was told last.
    fn told(&self, id: ObjectId) -> Cart {
        let object = self.client.object(id).expect("it is in sight");
        let mut cart = Cart::default();
        cart.apply(object.known_fields(), object.values());
        cart
    }
}

fn cart(position: [f64; 3], velocity: [f64; 3]) -> Cart {
    Cart { position, velocity, load: 0 }
}

fn walk(cart: &mut Cart) {
    (0..3).for_each(|axis| cart.position[axis] += cart.velocity[axis] * TICK_S);
}

fn steps(cart: &Cart) -> [i32; 3] {
    cart.position.map(|metres| (metres * 100.0).round() as i32)
}

fn apart(one: [i32; 3], other: [i32; 3]) -> u32 {
    one.iter().zip(other).map(|(one, other)| one.abs_diff(other)).max().unwrap_or(0)
}

#[test]
fn objects_that_move_straight_send_nothing_and_are_seen_to_move() {
    let mut play = Play::new();
    let mut carts: Vec<Cart> = (0..20).map(|n| cart([0.0, f64::from(n) * 0.3, 0.0], [1.0, 0.2, -0.4])).collect();
    let ids: Vec<ObjectId> = carts.iter().map(|cart| play.spawn(cart)).collect();
    assert!(play.tick() > 200, "they are introduced");
    play.tick();
    let mut bytes = 0;
    for _ in 0..100 {
        for (cart, &id) in carts.iter_mut().zip(&ids) {
            walk(cart);
            play.set(id, cart);
        }
        bytes += play.tick();
        for (cart, &id) in carts.iter().zip(&ids) {
            assert_eq!(play.sees(id), steps(cart));
        }
    }
    assert_eq!(bytes, 0, "in 100 ticks of 20 objects");
}

#[test]
fn other_fields_of_an_object_that_moves_straight_are_sent_without_its_position() {
    let mut play = Play::new();
    let mut cart = cart([1.0, 1.0, 0.0], [1.0, 0.0, 0.0]);
    let id = play.spawn(&cart);
    play.tick();
    walk(&mut cart);
    cart.load = 7;
    play.set(id, &cart);
    let ticks = play.server.store().field_ticks(id.index).to_vec();
    assert!(ticks[2].is_newer_than(ticks[0]) && ticks[0] == ticks[1], "{ticks:?}");
    play.tick();
    let told = play.told(id);
    assert_eq!((told.load, told.position, play.sees(id)), (7, [1.0, 1.0, 0.0], steps(&cart)));
}

#[test]
fn a_turn_and_a_stop_state_the_position_with_the_velocity() {
    let mut play = Play::new();
    let mut cart = cart([1.0, 1.0, 0.0], [3.0, 0.0, 0.0]);
    let id = play.spawn(&cart);
    for velocity in [[3.0, 0.0, 0.0], [0.0, -2.0, 0.0], [0.0; 3], [0.1, 0.0, 0.0], [0.0; 3]] {
        cart.velocity = velocity;
        for tick in 0..10 {
            walk(&mut cart);
            play.set(id, &cart);
            let bytes = play.tick();
            assert_eq!(play.sees(id), steps(&cart));
            assert_eq!(play.told(id).velocity, velocity);
            if tick == 0 {
                assert_eq!(steps(&play.told(id)), steps(&cart));
            } else {
                assert_eq!(bytes, 0, "tick {tick} with velocity {velocity:?}");
            }
        }
    }
}

#[test]
fn a_jump_is_told_and_a_step_within_the_error_is_not() {
    let mut play = Play::new();
    let mut cart = cart([1.0, 1.0, 0.0], [1.0, 0.0, 0.0]);
    let id = play.spawn(&cart);
    play.tick();
    play.tick();
    let mut moved = |cart: &mut Cart, metres: [f64; 3]| {
        walk(cart);
        (0..3).for_each(|axis| cart.position[axis] += metres[axis]);
        play.set(id, cart);
        let bytes = play.tick();
        (bytes > 0, apart(play.sees(id), steps(cart)))
    };
    walk(&mut cart);
    assert_eq!(moved(&mut cart, [5.0, 0.0, 0.0]), (true, 0), "a jump");
    assert_eq!(moved(&mut cart, [0.0, 0.02, 0.0]), (false, 2), "two steps beside its way");
    assert_eq!(moved(&mut cart, [0.0, 0.0, -0.02]), (false, 2), "and two steps below it");
    assert_eq!(moved(&mut cart, [0.0, 0.01, 0.0]), (true, 0), "a third step");
    assert_eq!(moved(&mut cart, [-0.02, 0.0, 0.0]), (false, 2), "two steps behind");
    assert_eq!(moved(&mut cart, [-0.01, 0.0, 0.0]), (true, 0), "three steps behind");
}

#[test]
fn an_object_that_the_game_leaves_where_it_is_does_not_run_away() {
    let mut play = Play::new();
    let stuck = cart([1.0, 1.0, 0.0], [0.3, 0.0, 0.0]);
    let (id, standing) = (play.spawn(&stuck), play.spawn(&cart([2.0, 1.0, 0.0], [0.0; 3])));
    let touched = play.spawn(&stuck);
    play.tick();
    for _ in 0..100 {
        // The game touches one of the three, and changes none.
        play.set(touched, &stuck);
        play.tick();
        for id in [id, touched] {
            assert!(apart(play.sees(id), steps(&stuck)) <= 3, "{:?}", play.sees(id));
        }
        assert_eq!(play.sees(standing), [200, 100, 0]);
    }
    let ticks = [id, standing].map(|id| play.server.store().field_ticks(id.index)[0]);
    assert!(ticks[0].is_newer_than(ticks[1]), "{ticks:?}");
    play.server.despawn(id);
    play.server.despawn(touched);
    play.tick();
    assert_eq!(play.tick(), 0, "the end of the one that was stuck ends its statements");
}

#[test]
fn an_object_changes_its_cell_where_it_is_though_nothing_is_stated() {
    let mut play = Play::new();
    let mut cart = cart([1.0, 1.0, 0.0], [4.0, 0.0, 0.0]);
    let id = play.spawn(&cart);
    play.tick();
    let first = play.server.store().field_ticks(id.index)[0];
    let mut homes = vec![play.server.home(id, Facet::Public)];
    for tick in 0..80 {
        walk(&mut cart);
        // Within the error, beside its way: the new cell says where the former one has said that it goes.
        cart.position[1] = if tick % 20 < 10 { 1.02 } else { 0.98 };
        play.set(id, &cart);
        play.tick();
        assert_eq!(play.sees(id), [steps(&cart)[0], 100, 0]);
        homes.push(play.server.home(id, Facet::Public));
    }
    homes.dedup();
    assert_eq!(homes.len(), 2, "16 m in cells of 10 m");
    assert_eq!(play.server.store().field_ticks(id.index)[0], first);
}

#[test]
fn a_segment_that_is_sent_again_counts_from_its_own_tick() {
    let mut play = Play::new();
    let mut cart = cart([1.0, 1.0, 0.0], [1.0, 0.0, 0.0]);
    let id = play.spawn(&cart);
    play.tick();
    cart.velocity = [0.0, 2.0, 0.0];
    walk(&mut cart);
    play.set(id, &cart);
    let lost = play.write();
    assert_eq!(lost.len(), 1);
    let sequence = play.sequence;
    play.server.begin_tick();
    for _ in 0..5 {
        walk(&mut cart);
        play.set(id, &cart);
        play.tick();
        assert_ne!(play.sees(id), steps(&cart), "the turn is not known yet");
    }
    play.server.lost(play.connection, sequence);
    walk(&mut cart);
    play.set(id, &cart);
    assert!(play.tick() > 0);
    assert_eq!(play.sees(id), steps(&cart));
}

#[test]
fn an_owner_has_its_object_exactly_and_gives_it_back_to_what_its_channel_told() {
    let mut play = Play::new();
    let mut cart = cart([1.0, 1.0, 0.0], [1.0, 0.0, 0.0]);
    let id = play.spawn(&cart);
    play.tick();
    let is_reckoned = |play: &Play| play.client.reckoned(play.client.object(id).expect("in sight")).is_some();
    play.server.set_owner(id, Some(play.connection)).expect("it exists");
    for tick in 0..20 {
        walk(&mut cart);
        // Within the error, beside the way that the channel has told.
        cart.position[1] = if tick % 2 == 0 { 1.02 } else { 1.0 };
        play.set(id, &cart);
        assert!(play.tick() > 0, "the owner is told of each step");
        assert_eq!(steps(&play.told(id)), steps(&cart));
        assert!(!is_reckoned(&play));
    }
    cart.position[1] = 1.02;
    walk(&mut cart);
    play.set(id, &cart);
    play.tick();
    play.server.set_owner(id, None).expect("it exists");
    for _ in 0..20 {
        walk(&mut cart);
        play.set(id, &cart);
        play.tick();
        assert!(is_reckoned(&play));
        let seen = play.sees(id);
        assert_eq!([seen[0], seen[1] + 2, seen[2]], steps(&cart), "along the way that the channel has told");
    }
}

#[test]
fn an_object_that_is_given_away_is_on_a_way_that_was_told_also_if_its_owner_knows_more() {
    let mut play = Play::new();
    let mut cart = cart([1.0, 1.0, 0.0], [1.0, 0.0, 0.0]);
    let id = play.spawn(&cart);
    play.server.set_owner(id, Some(play.connection)).expect("it exists");
    for _ in 0..40 {
        walk(&mut cart);
        play.set(id, &cart);
        play.tick();
    }
    let mut straight = cart.clone();
    cart.velocity = [0.0, 8.0, 0.0];
    // The turn is in a packet that is late, and then in a record alone.
    for is_late in [true, false, false] {
        walk(&mut cart);
        walk(&mut straight);
        play.set(id, &cart);
        match is_late {
            true => {
                play.write();
                play.server.begin_tick();
            }
            false => _ = play.tick(),
        }
    }
    assert_eq!(play.told(id).velocity, cart.velocity);
    play.server.set_owner(id, None).expect("it exists");
    walk(&mut cart);
    walk(&mut straight);
    play.set(id, &cart);
    play.tick();
    assert_eq!(play.sees(id), steps(&straight), "the new velocity does not count from where it went the old way");
}

#[test]
fn a_former_owner_that_hears_of_the_channel_late_goes_along_the_way_that_the_channel_tells() {
    let mut play = Play::new();
    let mut cart = cart([35.0, 1.0, 0.0], [1.0, 0.0, 0.0]);
    let id = play.spawn(&cart);
    play.server.set_owner(id, Some(play.connection)).expect("it exists");
    play.tick();
    // The cell that it lives in is subscribed from now on, and the first segment is late.
    let channel = play.server.home(id, Facet::Public).expect("it has one");
    play.server.hub().subscribe(play.connection, channel, 1, 1).expect("room");
    let (late, tick) = (play.write(), play.server.now());
    play.server.begin_tick();
    walk(&mut cart);
    cart.position[1] = 1.02;
    play.set(id, &cart);
    play.tick();
    assert_eq!(steps(&play.told(id)), steps(&cart));
    play.server.set_owner(id, None).expect("it exists");
    walk(&mut cart);
    play.set(id, &cart);
    play.tick();
    assert!(play.client.object(id).is_none(), "it is in no channel that the client has heard of");
    late.iter().for_each(|packet| play.client.apply(tick, packet).expect("genuine"));
    assert_eq!(play.sees(id), [steps(&cart)[0], 100, 0]);
}

#[test]
fn at_the_ends_of_the_world_nothing_overflows() {
    let end = f64::from(i32::MAX) * 0.01;
    let mut play = Play::new();
    let channel = play.server.channel(ChannelKey::Global(0)).expect("room");
    play.server.hub().subscribe(play.connection, channel, 1, 1).expect("room");
    let mut cart = cart([end - 1.0, -end + 1.0, 0.0], [50.0, -50.0, 0.0]);
    let id = play.spawn(&cart);
    play.server.set_placement(id, Placement::Channel(ChannelKey::Global(0))).expect("room");
    for _ in 0..10 {
        play.tick();
        walk(&mut cart);
        // The quantiser ends there too.
        play.set(id, &cart);
    }
    play.tick();
    assert_eq!(play.sees(id)[..2], [i32::MAX, i32::MIN]);
    play.server.skip_ticks(1 << 60);
    play.server.begin_tick();
    play.client.apply(play.server.now(), &[]).expect("a packet without replication");
    assert_eq!(play.sees(id), [i32::MAX, i32::MIN, 0]);
    play.tick();
    assert_eq!(play.sees(id), [i32::MAX, i32::MIN, 0]);
}
