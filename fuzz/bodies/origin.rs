//! A game whose edges say anything, in any order.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use throng::net::{Condition, MemoryNetwork};
use throng::{
    CloseCause, ConnectionId, GridOptions, Key, ObjectId, Placement, Replicate, Schema, Server, ServerEvent,
    ServerOptions, Time, Up,
};
use throng_bus::MemberId;
use throng_edge::{
    Balance, BalanceOptions, Division, Origin, OriginEvent, OriginOptions, PlayerId, STATE_MAX, ToEdge, ToOrigin,
    WorldName, edge_user_data,
};

use super::choices::Choices;

const PLAYERS_MAX: usize = 3;
const EVENTS_MAX: usize = 12;
const EDGES: usize = 2;
const NOW: Time = Time(1_000_000);

#[derive(Clone, Default, Replicate)]
struct Hero {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
}

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let kinds = Schema::builder().kind::<Hero>().kind::<ToOrigin>().kind::<ToEdge>();
    Arc::new(kinds.build().expect("these kinds are possible"))
});

/// How far a player is, as the game has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Here,
    Asked,
    Free,
    Released,
    Away,
}

struct Game {
    server: Server,
    origin: Origin,
    /// The origin tells nothing yet.
    is_closed: bool,
    players: BTreeMap<PlayerId, (Stage, Option<ObjectId>)>,
    edges: [Option<ConnectionId>; EDGES],
    generation: u32,
    /// Of this server, for what edges say of borders.
    balance: Balance,
}

/// The game is told of players who come, leave and move by the steps in their order alone, and never of more than it allows.
pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut game = Game::new(choices.below(4) as u32, choices.below(2) == 0);
    while !choices.is_empty() {
        game.step(&mut choices);
    }
}

impl Game {
    fn new(keep_ticks: u32, is_closed: bool) -> Game {
        let network = MemoryNetwork::new(Condition::NONE, 1).expect("a good condition");
        let driver = Box::new(network.endpoint(([10, 0, 0, 1], 40_000).into()).expect("a free address"));
        let grids = vec![GridOptions::new(Up::Z)];
        let options = ServerOptions { grids, ..ServerOptions::new(1, Key::new([7; 32])) };
        let server = Server::new(driver, SCHEMA.clone(), options).expect("good options");
        let options =
            OriginOptions { players_max: PLAYERS_MAX, events_max: EVENTS_MAX, keep_ticks, ..OriginOptions::default() };
        let (mut origin, players) = (Origin::new(options), BTreeMap::new());
        origin.set_open(!is_closed);
        let division = Division::new(3, 12, 2).expect("there are steps for all");
        let world = WorldName::new("any").expect("it is a name");
        let balance = Balance::new(BalanceOptions::new(world, division, 0), MemberId(1));
        Game { server, origin, is_closed, players, edges: [None; EDGES], generation: 0, balance }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let edge = choices.below(EDGES);
        match choices.below(8) {
            0 => self.connect(edge),
            1 => self.disconnect(edge),
            2 => self.act(choices),
            3 => {
                self.is_closed &= choices.below(3) > 0;
                self.origin.set_open(!self.is_closed);
                self.poll();
            }
            _ => self.hear(edge, choices),
        }
    }

    fn connect(&mut self, edge: usize) {
        if self.edges[edge].is_none() {
            self.generation += 1;
            let connection = ConnectionId { index: edge as u32, generation: self.generation };
            let user_data = Box::new(edge_user_data());
            self.take(ServerEvent::Connected { connection, client_id: edge as u64, user_data });
            self.edges[edge] = Some(connection);
        }
    }

    fn disconnect(&mut self, edge: usize) {
        if let Some(connection) = self.edges[edge].take() {
            self.take(ServerEvent::Disconnected { connection, client_id: edge as u64, cause: CloseCause::IdleTimeout });
            self.poll();
            let mut gone = self.players.iter().filter(|(player, _)| player.edge == connection);
            assert!(gone.all(|(_, (stage, _))| *stage == Stage::Away), "all have left, or are kept");
        }
    }

    fn take(&mut self, event: ServerEvent) {
        assert!(self.origin.take(&mut self.server, event, NOW).is_none(), "it is an edge's");
    }

    /// A message of an edge with any content.
    fn hear(&mut self, edge: usize, choices: &mut Choices<'_>) {
        let Some(connection) = self.edges[edge] else { return };
        let (step, session, lane) = (choices.below(14) as u8, choices.below(5) as u32, choices.byte());
        let number = choices.below(4) as u64;
        // A join has 264 bytes, an arrival 274 and more, and a word that a player is elsewhere 8.
        let length = [0, 8, 9, 15, 264, 274, 288][choices.below(7)];
        let mut body = choices.bytes(length.min(16)).to_vec();
        body.resize(length, 1);
        // A join and an arrival say after the user data when the token ends, and a word that a player is elsewhere says nothing else.
        let place = if length == 8 { 0..8 } else { 256..264 };
        if let Some(token_ends_s) = body.get_mut(place) {
            token_ends_s.copy_from_slice(&(choices.below(3) as u64).to_le_bytes());
        }
        let talk = ToOrigin { step, session, number, lane, body };
        let bytes = self.server.encoded(&talk).expect("it is in the schema");
        let message = self.server.received(if choices.below(16) == 0 { vec![choices.byte(); 5] } else { bytes });
        let lane = u8::from(choices.below(16) == 0);
        self.take(ServerEvent::Message { connection, lane, message });
    }

    /// The game does something with a player.
    fn act(&mut self, choices: &mut Choices<'_>) {
        self.poll();
        let Some((&player, &(stage, object))) = self.players.iter().nth(choices.below(4)) else { return };
        match choices.below(3) {
            0 => {
                let asked = self.origin.hand_over(player, choices.byte().into());
                assert_eq!(asked.is_ok(), stage == Stage::Here);
                if asked.is_ok() {
                    self.players.insert(player, (Stage::Asked, object));
                }
            }
            1 => {
                let object = object.unwrap_or(ObjectId { index: 1, generation: 1 });
                assert!(self.origin.release(player, object, &vec![0; STATE_MAX + 1]).is_err());
                let released = self.origin.release(player, object, &[1, 2, 3]);
                assert_eq!(released.is_ok(), stage == Stage::Free);
                if released.is_ok() {
                    self.players.insert(player, (Stage::Released, Some(object)));
                }
            }
            _ => {
                let hero = self.server.spawn(Hero::default(), Placement::Cell(0)).expect("there is room");
                let given = self.origin.give(&mut self.server, player, hero);
                // The edge's connection is not the server's: the object cannot be given, but only to one who is here.
                assert!(given.is_err() || !matches!(stage, Stage::Released | Stage::Away));
                self.server.despawn(hero);
            }
        }
    }

    fn poll(&mut self) {
        let mut droppable = 0;
        while let Some(event) = self.origin.poll_event() {
            assert!(!self.is_closed, "{event:?}");
            let is_of_borders = self.balance.take(&event, NOW);
            match event {
                OriginEvent::Looks { .. } => droppable += usize::from(is_of_borders),
                OriginEvent::EdgeJoined(_) | OriginEvent::EdgeLeft(_) => {}
                OriginEvent::Joined { player, .. } => self.enter(player),
                OriginEvent::Arrived { player, state, .. } => {
                    assert!(state.len() <= STATE_MAX);
                    self.enter(player);
                }
                OriginEvent::Away(player) => {
                    let known = self.players.get_mut(&player).expect("it is there");
                    assert!(!matches!(known.0, Stage::Released | Stage::Away));
                    known.0 = Stage::Away;
                }
                OriginEvent::Returned { player, former } => {
                    let (stage, _) = self.players.remove(&former).expect("it was there");
                    assert_ne!(stage, Stage::Released);
                    self.enter(player);
                }
                OriginEvent::Left(player) => {
                    assert!(self.players.remove(&player).is_some(), "{player:?} was not there");
                }
                OriginEvent::Free { player, .. } => self.change(player, Stage::Free),
                OriginEvent::Stays(player) => self.change(player, Stage::Here),
                OriginEvent::Input { player, .. } | OriginEvent::Message { player, .. } => {
                    droppable += 1;
                    let stage = self.players.get(&player).map(|(stage, _)| *stage);
                    let is_here = stage.is_some_and(|stage| !matches!(stage, Stage::Released | Stage::Away));
                    assert!(is_here, "{player:?} {stage:?}");
                }
            }
        }
        assert!(droppable <= EVENTS_MAX);
        let here = self.players.values().filter(|(stage, _)| *stage != Stage::Away).count();
        assert!(self.is_closed || self.origin.players().count() == here);
        self.origin.before_tick(&mut self.server);
        self.server.tick(NOW);
    }

    fn enter(&mut self, player: PlayerId) {
        assert_eq!(self.players.insert(player, (Stage::Here, None)), None, "{player:?} was there already");
        let of_edge =
            self.players.iter().filter(|(known, (stage, _))| known.edge == player.edge && *stage != Stage::Away);
        let of_edge = of_edge.count();
        assert!(of_edge <= PLAYERS_MAX);
    }

    fn change(&mut self, player: PlayerId, stage: Stage) {
        let known = self.players.get_mut(&player).expect("it is there");
        assert_eq!(known.0, Stage::Asked);
        known.0 = stage;
    }
}
