//! Level 3: messages of the game, and who gets them.

use super::stage::{Peer, Stage, every, grid_file, open_settings, settings_with};
use throng_channeld::proto::{
    ChannelType, CreateChannelMessage, ServerForwardMessage, SubscribedToChannelMessage, UnsubscribedFromChannelMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway_engine::port::{EndCause, Side};

const GAME: u32 = 142;

fn header(channel_id: u32, broadcast: u32) -> Header {
    Header { channel_id, broadcast, stub_id: 31, msg_type: GAME }
}

fn forward(client_conn_id: u32) -> ServerForwardMessage {
    ServerForwardMessage { client_conn_id, payload: "payload".into() }
}

/// The user messages that each of these received.
fn received(stage: &mut Stage, peers: &[&Peer]) -> Vec<Vec<Message>> {
    stage.let_go();
    peers.iter().map(|peer| stage.read_type(peer, GAME)).collect()
}

/// Those that received exactly one message, by place.
fn reached(stage: &mut Stage, peers: &[&Peer]) -> Vec<usize> {
    let received = received(stage, peers);
    assert!(received.iter().all(|messages| messages.len() <= 1), "nobody is told twice");
    (0..peers.len()).filter(|&place| !received[place].is_empty()).collect()
}

/// A room with an owner, two more servers and two clients; one server and one client besides are not in it.
struct Room {
    stage: Stage,
    id: u32,
    /// Owner, server, server, client, client; then a server and a client that do not subscribe.
    peers: Vec<Peer>,
}

const OWNER: usize = 0;
const MEMBERS: usize = 5;
const OUTSIDE_SERVER: usize = 5;
const OUTSIDE_CLIENT: usize = 6;

impl Room {
    fn new() -> Room {
        let mut stage = Stage::new(open_settings());
        let sides = [Side::Server, Side::Server, Side::Server, Side::Client, Side::Client, Side::Server, Side::Client];
        let peers: Vec<Peer> = sides.map(|side| stage.join_as(side, "somebody")).to_vec();
        let id = stage.create(&peers[OWNER], ChannelType::Test, None);
        for peer in &peers[1..MEMBERS] {
            stage.subscribe(peer, peer, id, every(20));
        }
        let mut room = Room { stage, id, peers };
        room.reached();
        room
    }

    fn reached(&mut self) -> Vec<usize> {
        reached(&mut self.stage, &self.peers.iter().collect::<Vec<_>>())
    }
}

fn is_server(place: usize) -> bool {
    place <= 2 || place == OUTSIDE_SERVER
}

#[test]
fn the_truth_table_of_broadcasts_holds_for_every_sender_and_flag() {
    let mut room = Room::new();
    let mut cases = 0;
    for sender in [OWNER, 1, OUTSIDE_SERVER] {
        for flags in 2..64 {
            let has = |flag: u32| flags & flag != 0;
            let expected: Vec<usize> = (0..MEMBERS)
                .filter(|&place| !(has(4) && place == sender))
                .filter(|&place| !(has(8) && place == OWNER))
                .filter(|&place| !has(16) || is_server(place))
                .filter(|&place| !(has(32) && is_server(place)))
                .collect();
            room.stage.say(&room.peers[sender], header(room.id, flags), &forward(4_711));
            assert_eq!(room.reached(), expected, "sender {sender}, flags {flags}");
            cases += 1;
        }
    }
    assert_eq!(cases, 186);
}

#[test]
fn a_server_that_names_nobody_speaks_to_the_owner() {
    let mut room = Room::new();
    for sender in [OWNER, 1, OUTSIDE_SERVER] {
        room.stage.say(&room.peers[sender], header(room.id, 0), &forward(room.peers[4].id));
        assert_eq!(room.reached(), [OWNER], "{sender}");
    }
}

#[test]
fn a_single_connection_is_reached_wherever_it_is() {
    let mut room = Room::new();
    for target in 0..room.peers.len() {
        let named = room.peers[target].id;
        room.stage.say(&room.peers[1], header(room.id, 1), &forward(named));
        assert_eq!(room.reached(), [target]);
    }
    room.stage.say(&room.peers[1], header(room.id, 1), &forward(0));
    assert_eq!(room.reached(), [OWNER], "0 is the owner");
    room.stage.say(&room.peers[1], header(room.id, 1), &forward(4_711));
    assert_eq!(room.reached(), [0; 0]);
    assert_eq!(room.stage.refused("unknown_connection"), 1);
}

#[test]
fn a_client_reaches_the_owner_and_nobody_else_whatever_it_asks_for() {
    let mut room = Room::new();
    for sender in [3, OUTSIDE_CLIENT] {
        for flags in 0..128 {
            room.stage.say_bytes(&room.peers[sender], header(room.id, flags), "raw bytes");
            assert_eq!(room.reached(), [OWNER], "sender {sender}, flags {flags}");
        }
    }
}

#[test]
fn a_client_cannot_pretend_to_be_somebody_else() {
    let mut room = Room::new();
    // Its message is wrapped, even if it is a wrapper itself.
    room.stage.say(&room.peers[3], header(room.id, 1), &forward(room.peers[4].id));
    let [message] = &room.stage.read_type(&room.peers[OWNER], GAME)[..] else { panic!("one message") };
    let wrapped: ServerForwardMessage = message.decode().expect("a wrapper");
    assert_eq!(wrapped.client_conn_id, room.peers[3].id);
    let inside = <ServerForwardMessage as prost::Message>::decode(wrapped.payload).expect("what it sent");
    assert_eq!(inside, forward(room.peers[4].id));
}

#[test]
fn headers_and_bodies_travel_unchanged_and_copies_carry_no_stub() {
    let mut room = Room::new();
    room.stage.say_bytes(&room.peers[3], header(room.id, 0), &b"\xFF\x00raw"[..]);
    let [to_owner] = &room.stage.read_type(&room.peers[OWNER], GAME)[..] else { panic!("one message") };
    assert_eq!((to_owner.channel_id, to_owner.stub_id, to_owner.msg_type), (room.id, 31, GAME));
    let wrapped: ServerForwardMessage = to_owner.decode().expect("a wrapper");
    assert_eq!((wrapped.client_conn_id, &wrapped.payload[..]), (room.peers[3].id, &b"\xFF\x00raw"[..]));
    // The answer goes back under the stub of the question.
    let answer = forward(room.peers[3].id);
    room.stage.say(&room.peers[OWNER], header(room.id, 1), &answer);
    room.stage.let_go();
    let [to_client] = &room.stage.read_type(&room.peers[3], GAME)[..] else { panic!("one message") };
    assert_eq!((to_client.stub_id, to_client.broadcast), (31, 1));
    assert_eq!(to_client.decode::<ServerForwardMessage>().expect("a wrapper"), answer);
    room.stage.say(&room.peers[OWNER], header(room.id, 2), &answer);
    for copy in received(&mut room.stage, &[&room.peers[1].clone(), &room.peers[4].clone()]).concat() {
        assert_eq!((copy.stub_id, copy.broadcast, copy.channel_id), (0, 2, room.id));
        assert_eq!(copy.decode::<ServerForwardMessage>().expect("a wrapper"), answer);
    }
}

#[test]
fn without_an_owner_there_is_nobody_to_ask() {
    let mut room = Room::new();
    room.stage.drop_connection(&room.peers[OWNER], EndCause::PeerClosed);
    room.stage.say_bytes(&room.peers[3], header(room.id, 2), "hello?");
    room.stage.say(&room.peers[1], header(room.id, 0), &forward(0));
    room.stage.say(&room.peers[1], header(room.id, 1), &forward(0));
    assert_eq!(room.reached(), [0; 0]);
    assert_eq!(room.stage.refused("no_owner"), 3);
    room.stage.say(&room.peers[1], header(room.id, 2), &forward(0));
    assert_eq!(room.reached(), [1, 2, 3, 4], "broadcasts need no owner");
}

#[test]
fn what_a_server_broadcasts_has_to_be_wrapped() {
    let mut room = Room::new();
    for flags in [1, 2, 64] {
        room.stage.say_bytes(&room.peers[OWNER], header(room.id, flags), &b"\xFF\xFF"[..]);
    }
    assert_eq!(room.reached(), [0; 0]);
    assert_eq!(room.stage.refused("malformed"), 3);
}

#[test]
fn a_client_gets_broadcasts_as_long_as_it_is_connected() {
    let mut room = Room::new();
    let leave = UnsubscribedFromChannelMessage { conn_id: 0 };
    room.stage.say(&room.peers[3], Header::new(room.id, message_type::UNSUB_FROM_CHANNEL), &leave);
    let enter = SubscribedToChannelMessage { conn_id: 0, sub_options: None };
    room.stage.say(&room.peers[OUTSIDE_CLIENT], Header::new(room.id, message_type::SUB_TO_CHANNEL), &enter);
    room.stage.drop_connection(&room.peers[1], EndCause::Lost);
    room.stage.say(&room.peers[OWNER], header(room.id, 2), &forward(0));
    assert_eq!(room.reached(), [OWNER, 2, 4, OUTSIDE_CLIENT]);
}

/// A world of 5 times 5 cells with one server, and a client in every cell.
struct World {
    stage: Stage,
    server: Peer,
    /// A second server that sees the cell in the middle.
    observer: Peer,
    clients: Vec<Peer>,
}

const FIRST_CELL: u32 = 0x1_0000;
const COLUMNS: u32 = 5;
const MIDDLE: u32 = FIRST_CELL + 12;

impl World {
    fn new() -> World {
        let grid = grid_file((COLUMNS, COLUMNS), (1, 1));
        let arguments = ["-dev", "-cfsm=client_authoratative_fsm.json", "-scc=grid.json"];
        let mut stage = Stage::new(settings_with(&arguments, &[("grid.json", &grid)]));
        let (server, observer) = (stage.server(), stage.server());
        let create = CreateChannelMessage { channel_type: ChannelType::Spatial.into(), ..Default::default() };
        stage.say(&server, Header::new(0, message_type::CREATE_CHANNEL), &create);
        stage.subscribe(&observer, &observer, MIDDLE, every(20));
        let clients: Vec<Peer> = (0..COLUMNS * COLUMNS).map(|_| stage.client()).collect();
        for (client, cell) in clients.iter().zip(FIRST_CELL..) {
            stage.subscribe(client, client, cell, every(20));
        }
        World { stage, server, observer, clients }
    }

    /// The receivers: cells of clients, and whether server and observer got it.
    fn reached(&mut self) -> (Vec<u32>, bool, bool) {
        let clients = reached(&mut self.stage, &self.clients.iter().collect::<Vec<_>>());
        let servers = reached(&mut self.stage, &[&self.server.clone(), &self.observer.clone()]);
        (clients.into_iter().map(|place| place as u32).collect(), servers.contains(&0), servers.contains(&1))
    }
}

#[test]
fn adjacent_broadcasts_reach_three_times_three_cells_once_each() {
    let mut world = World::new();
    world.reached();
    for flags in 64..128 {
        for sender in [world.server.clone(), world.observer.clone()] {
            let has = |flag: u32| flags & flag != 0;
            let named = &world.clients[6].clone();
            world.stage.say(&sender, header(MIDDLE, flags), &forward(named.id));
            let around = [6, 7, 8, 11, 12, 13, 16, 17, 18];
            let clients: Vec<u32> =
                around.into_iter().filter(|&cell| cell != 6 && !has(16) && !(has(8) && cell == 12)).collect();
            // The server owns all cells, so it is in the neighbours too; the observer sees the middle only.
            let server = !(has(32) || has(4) && sender.id == world.server.id);
            let observer = !(has(32) || has(8) || has(4) && sender.id == world.observer.id);
            assert_eq!(world.reached(), (clients, server, observer), "flags {flags}, sender {}", sender.id);
        }
    }
}

#[test]
fn adjacent_broadcasts_end_at_the_edge_of_the_world() {
    let mut world = World::new();
    world.reached();
    world.stage.say(&world.server, header(FIRST_CELL, 64), &forward(0));
    assert_eq!(world.reached().0, [0, 1, 5, 6]);
    world.stage.say(&world.server, header(FIRST_CELL + 24, 64), &forward(0));
    assert_eq!(world.reached().0, [18, 19, 23, 24]);
    world.stage.say(&world.server, header(0, 64), &forward(0));
    assert_eq!(world.reached(), (vec![], false, false), "GLOBAL has no neighbours");
    assert_eq!(world.stage.refused("wrong_channel"), 1);
}
