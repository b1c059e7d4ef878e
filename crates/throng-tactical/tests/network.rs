//! A client knows what its player may know, and nothing else.

use std::sync::Arc;

use glam::{Vec3, vec3};
use throng::net::{Condition, MemoryNetwork};
use throng::{Client, ClientEvent, ClientOptions, Server, ServerEvent, Tick, Time};
use throng_match::{Game, Scopes, Seat, SeatCommand, Seats, TickInput};
use throng_tactical::client::Eyes;
use throng_tactical::command::{Buttons, Choice, Command, Item};
use throng_tactical::kinds::{self, BombNote, Feed, Figure, HitMark, MateNote, News, ShotFired, SmokeNote, WallNote};
use throng_tactical::senses::{BombSeen, RoundPhase};
use throng_tactical::{Arena, Rules, SenseRoom, Tactical};

use crate::support::{course, quick};

/// A match on a network in memory, with a client for each seat.
struct Table {
    game: Tactical,
    server: Server,
    seats: Seats,
    clients: Vec<Client>,
    eyes: Vec<Eyes>,
    events: Vec<Vec<ClientEvent>>,
    tick: u64,
    now: Time,
    step_us: u64,
    room: SenseRoom,
}

impl Table {
    fn new(arena: Arena, rules: Rules, network: &str) -> Table {
        let schema = kinds::schema().unwrap();
        let key = throng::random_key();
        let options = kinds::server_options(&rules, key);
        let issuer = options.token_issuer();
        let network = MemoryNetwork::new(network.parse::<Condition>().unwrap(), 7).unwrap();
        let address = "10.0.0.1:40000".parse().unwrap();
        let server = Server::new(Box::new(network.endpoint(address).unwrap()), Arc::clone(&schema), options).unwrap();
        let ids: Vec<u64> = (0..rules.seats() as u64).collect();
        let client = |id: &u64| {
            let driver = Box::new(network.endpoint(format!("10.0.1.{id}:50000").parse().unwrap()).unwrap());
            let token = issuer.issue(*id, &[address]).unwrap();
            Client::new(driver, token, Arc::clone(&schema), ClientOptions::default(), Time(0)).unwrap()
        };
        let clients: Vec<Client> = ids.iter().map(client).collect();
        let mut table = Table {
            game: Tactical::new(arena.clone(), rules, 1).unwrap(),
            server,
            seats: Seats::reserved(&ids),
            eyes: vec![Eyes::new(arena); clients.len()],
            events: vec![Vec::new(); clients.len()],
            clients,
            tick: 0,
            now: Time(0),
            step_us: 1_000_000 / u64::from(rules.tick_hz),
            room: SenseRoom::default(),
        };
        while table.seats.connected_count() < table.clients.len() {
            table.step(|_, _| None);
            assert!(table.tick < 2_000, "they do not connect");
        }
        table
    }

    /// A tick of the server and all clients; `play` says what a seat sends for its senses.
    fn step(&mut self, play: impl Fn(Seat, &throng_tactical::senses::Senses<'_>) -> Option<Command>) {
        self.now = Time(self.now.0 + self.step_us);
        self.server.receive(self.now).unwrap();
        let mut joined = Vec::new();
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Connected { connection, client_id, .. } = event {
                joined.extend(self.seats.join(client_id, connection));
            }
        }
        let mut inputs = Vec::new();
        while let Some((connection, input)) = self.server.poll_input() {
            inputs.push((self.seats.seat(connection).unwrap(), input));
        }
        inputs.sort_by_key(|(seat, _)| *seat);
        let commands: Vec<SeatCommand<'_>> = inputs
            .iter()
            .map(|(seat, input)| SeatCommand { seat: *seat, number: input.number, bytes: input.bytes() })
            .collect();
        self.tick = self.server.current_tick().0;
        let input = TickInput { tick: Tick(self.tick), joined: &joined, commands: &commands, ..TickInput::default() };
        self.game.step(&input, &mut Scopes::off());
        self.game.publish(&mut self.server, &self.seats, &mut Scopes::off()).unwrap();
        self.server.tick(self.now);
        for (seat, client) in self.clients.iter_mut().enumerate() {
            client.update(self.now).unwrap();
            while let Some(event) = client.poll_event() {
                self.eyes[seat].hear(&event);
                self.events[seat].push(event);
            }
            let command = self.eyes[seat].look(client).and_then(|senses| play(Seat(seat as u16), &senses));
            if let Some(command) = command {
                client.send_input(&command.encode()).unwrap();
            }
        }
    }

    fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.step(|_, senses| Some(senses.command()));
        }
    }

    fn until(&mut self, phase: RoundPhase) {
        let limit = self.tick + 20_000;
        while self.game.round_phase() != phase {
            self.steps(1);
            assert!(self.tick < limit);
        }
    }

    /// Seats whose characters a client has in its memory.
    fn figures(&self, client: usize) -> Vec<u8> {
        let mut seats: Vec<u8> = self.clients[client].objects::<Figure>().map(|(_, figure)| figure.seat).collect();
        seats.sort_unstable();
        seats
    }

    fn messages<T: throng::schema::traits::Replicate>(&self, client: usize) -> Vec<T> {
        let message = |event: &ClientEvent| match event {
            ClientEvent::Message { message, .. } => message.get::<T>(),
            _ => None,
        };
        self.events[client].iter().filter_map(message).collect()
    }
}

/// On the course nothing hides anybody; 1 m behind the thin wall somebody is hidden from those right before it.
fn apart(table: &mut Table) {
    for seat in 0..5 {
        table.game.put(Seat(seat), vec3(18.5, 0.0, 0.2 * f32::from(seat) - 0.4), 16_384);
        table.game.put(Seat(5 + seat), vec3(21.5, 0.0, 0.2 * f32::from(seat) - 0.4), 16_384);
    }
}

#[test]
fn the_senses_of_a_client_are_those_of_its_player() {
    let mut table = Table::new(course(), quick(), "lan");
    table.until(RoundPhase::Live);
    for round in 0..120u16 {
        table.step(|seat, senses| {
            let mut command = senses.command();
            (command.forward, command.yaw) = (127, seat.0 * 6_000 + round * 50);
            Some(command)
        });
    }
    // Everybody stands, so that the delay of the network makes no difference.
    for _ in 0..200 {
        table.step(|seat, senses| Some(Command { yaw: seat.0 * 5_000, ..senses.command() }));
    }
    for seat in 0..10 {
        let there = table.game.senses(Seat(seat), &mut table.room).unwrap();
        let index = usize::from(seat);
        let here = table.eyes[index].look(&table.clients[index]).unwrap();
        assert!(here.tick <= there.tick && there.tick.since(here.tick) < 8);
        assert_eq!((here.me.seat, here.me.team, here.phase, here.round), (Seat(seat), there.me.team, there.phase, 1));
        assert!(here.me.position.distance(there.me.position) < 0.02);
        let (mut a, b) = (here.me, there.me);
        (a.position, a.velocity, a.eye_height) = (b.position, b.velocity, b.eye_height);
        assert_eq!(a, b, "everything else is equal");
        let mates = |senses: &throng_tactical::senses::Senses<'_>| {
            senses.mates.iter().map(|mate| (mate.seat, mate.health, mate.has_bomb, mate.weapon)).collect::<Vec<_>>()
        };
        assert_eq!(mates(&here), mates(&there));
        let enemies = |senses: &throng_tactical::senses::Senses<'_>| {
            senses.enemies.iter().map(|enemy| enemy.seat).collect::<Vec<_>>()
        };
        assert_eq!(enemies(&here), enemies(&there));
        for (a, b) in here.enemies.iter().zip(there.enemies) {
            assert!(a.feet.distance(b.feet) < 0.05, "{a:?} {b:?}");
        }
        assert_eq!((here.bomb, here.sites, here.score), (there.bomb, there.sites, there.score));
        assert!(here.phase_ticks_left.abs_diff(there.phase_ticks_left) < 8);
        assert_eq!(matches!(here.bomb, BombSeen::Carried(_)), seat < 5, "defenders do not know who carries it");
    }
}

#[test]
fn a_client_has_nothing_of_hidden_enemies_in_its_memory() {
    let mut table = Table::new(course(), quick(), "lan");
    table.until(RoundPhase::Live);
    apart(&mut table);
    table.steps(80);
    for client in 0..5 {
        assert_eq!(table.figures(client), [0, 1, 2, 3, 4], "client {client}");
        assert_eq!(table.figures(5 + client), [5, 6, 7, 8, 9], "client {client}");
    }
    (0..10).for_each(|client| assert_eq!(of_enemies(&table, client), [""; 0], "client {client}"));
    // Nothing of a shot behind the wall either.
    for events in &mut table.events {
        events.clear();
    }
    table.step(|seat, senses| (seat.0 == 5).then(|| Command { buttons: Buttons::FIRE, ..senses.command() }));
    table.steps(20);
    assert_eq!(table.messages::<ShotFired>(0).len(), 0);
    assert_eq!(table.messages::<ShotFired>(6).len(), 1, "team mates see it");
    // An enemy who steps out is there whole.
    table.game.put(Seat(7), vec3(21.5, 0.0, 12.0), 16_384);
    table.steps(30);
    assert!(table.figures(0).contains(&7) && !table.figures(0).contains(&6), "{:?}", table.figures(0));
    let shown = table.clients[0].objects::<Figure>().find(|(_, figure)| figure.seat == 7).unwrap().1;
    assert!(Vec3::from_array(shown.position).distance(vec3(21.5, 0.0, 12.0)) < 0.02 && shown.is_alive);
    assert_eq!(shown.private, kinds::Private::default(), "nothing of what is for its player alone");
    assert!(table.game.publish_counters().shown > 0 && table.game.publish_counters().subscriptions_refused == 0);
}

/// Everything of enemies that a client has in its memory, by the names of its kinds. All see where the bomb was planted
/// and the board: these two are the rules of the game.
fn of_enemies(table: &Table, client: usize) -> Vec<&'static str> {
    let memory = &table.clients[client];
    let is_enemy = |seat: u8| (seat < 5) != (client < 5);
    let counts = [
        ("Figure", memory.objects::<Figure>().filter(|(_, figure)| is_enemy(figure.seat)).count()),
        ("MateNote", memory.objects::<MateNote>().filter(|(_, note)| is_enemy(note.seat)).count()),
        ("BombNote", memory.objects::<BombNote>().filter(|(_, note)| note.is_being_defused && client < 5).count()),
        ("WallNote", memory.objects::<WallNote>().count()),
        ("SmokeNote", memory.objects::<SmokeNote>().count()),
    ];
    counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect()
}

#[test]
fn an_enemy_who_comes_into_sight_is_there_whole_from_the_first_packet() {
    let mut table = Table::new(course(), quick(), "lan");
    table.until(RoundPhase::Live);
    apart(&mut table);
    let stand = |table: &mut Table| table.step(|_, senses| Some(Command { yaw: 16_384, ..senses.command() }));
    (0..80).for_each(|_| stand(&mut table));
    assert!(!table.figures(0).contains(&7));
    // It stands, so that the delay of the network makes no difference.
    table.game.put(Seat(7), vec3(21.5, 0.0, 12.0), 16_384);
    let mut steps = 0;
    while !table.figures(0).contains(&7) {
        stand(&mut table);
        steps += 1;
        assert!(steps < 20, "it does not come");
    }
    let here = table.clients[0].objects::<Figure>().find(|(_, figure)| figure.seat == 7).unwrap().1;
    let id = table.game.figure(Seat(7)).unwrap();
    let mut truth = table.server.get::<Figure>(id).unwrap().clone();
    truth.private = kinds::Private::default();
    assert!(truth.yaw == 16_384 >> 4 && truth.is_alive);
    assert!(Vec3::from_array(here.position).distance(Vec3::from_array(truth.position)) < 0.02);
    let position = here.position;
    assert_eq!(here, Figure { position, velocity: here.velocity, crouch: here.crouch, ..truth.clone() });
    assert!(Vec3::from_array(here.velocity).distance(Vec3::from_array(truth.velocity)) < 0.1);
}

#[test]
fn a_wall_and_a_smoke_of_hidden_seats_reach_no_enemy_until_they_are_seen() {
    let mut table = Table::new(course(), Rules { buy_s: 2.0, money: 9_000, ..quick() }, "lan");
    table.steps(20);
    for (seat, item) in [(5, Item::Wall), (6, Item::Smoke)] {
        table.step(|own, senses| {
            Some(Command { choice: Choice::Buy(item), ..senses.command() }).filter(|_| own.0 == seat)
        });
    }
    table.until(RoundPhase::Live);
    apart(&mut table);
    table.steps(80);
    for (seat, buttons) in [(5, Buttons::WALL), (6, Buttons::SMOKE)] {
        table.step(|own, senses| Some(Command { buttons, yaw: 16_384, ..senses.command() }).filter(|_| own.0 == seat));
    }
    for _ in 0..120 {
        table.steps(1);
        for client in 0..5 {
            assert_eq!(of_enemies(&table, client), [""; 0], "client {client}");
        }
    }
    for client in 5..10 {
        assert_eq!(of_enemies(&table, client), ["WallNote", "SmokeNote"], "client {client}: the own team knows them");
    }
    // Somebody who steps out sees them, and keeps them while they stand. The others still know nothing.
    table.game.put(Seat(0), vec3(18.5, 0.0, 12.0), 16_384);
    table.steps(30);
    assert_eq!(of_enemies(&table, 0), ["Figure", "WallNote", "SmokeNote"]);
    table.game.put(Seat(0), vec3(18.5, 0.0, -0.4), 16_384);
    table.steps(60);
    assert_eq!(of_enemies(&table, 0), ["WallNote", "SmokeNote"]);
    assert_eq!(of_enemies(&table, 1), [""; 0]);
    let there = table.game.senses(Seat(0), &mut table.room).unwrap();
    assert_eq!((there.walls.len(), there.smokes.len()), (1, 1), "its senses are what its client has");
    table.steps(14 * 128);
    assert_eq!(of_enemies(&table, 5), [""; 0], "they are gone");
}

#[test]
fn money_and_ammunition_are_for_the_owner_and_health_for_the_team() {
    let mut table = Table::new(course(), Rules { buy_s: 2.0, ..quick() }, "lan");
    table.steps(20);
    table.step(|seat, senses| {
        let choice = if seat.0 == 1 { Choice::Buy(Item::Smoke) } else { Choice::Nothing };
        Some(Command { choice, ..senses.command() })
    });
    table.steps(30);
    let figure = |client: usize, seat: u8| {
        table.clients[client].objects::<Figure>().find(|(_, figure)| figure.seat == seat).map(|(_, figure)| figure)
    };
    let own = figure(1, 1).unwrap().private;
    assert_eq!((own.money, own.charges, own.ammunition), (600, [1, 0, 0], 12));
    assert_eq!(figure(0, 1).unwrap().private, kinds::Private::default());
    assert_eq!(table.clients[0].objects::<kinds::MateNote>().count(), 5);
    assert!(table.clients[0].objects::<kinds::MateNote>().all(|(_, note)| note.seat < 5 && note.health == 100));
}

#[test]
fn what_happens_is_told_to_those_whom_it_concerns() {
    let mut table = Table::new(course(), quick(), "lan");
    table.until(RoundPhase::Live);
    table.game.put(Seat(0), vec3(-50.0, 0.0, 20.0), 16_384);
    table.game.put(Seat(5), vec3(-44.0, 0.0, 20.0), 49_152);
    table.steps(40);
    for round in 0..400u32 {
        table.step(|seat, senses| {
            let mut command = senses.command();
            if seat.0 == 0 && round % 30 == 0 {
                let target = senses.enemies.iter().find(|enemy| enemy.seat.0 == 5)?.feet;
                command.look_along(target + vec3(0.0, 1.3, 0.0) - senses.me.eye());
                command.buttons = Buttons::FIRE;
            }
            Some(command)
        });
        if !table.game.senses(Seat(5), &mut table.room).unwrap().me.is_alive {
            break;
        }
    }
    table.steps(30);
    let marks = table.messages::<HitMark>(0);
    assert!(marks.len() >= 4 && marks.iter().all(|mark| (mark.by, mark.target) == (0, 5)), "{marks:?}");
    assert_eq!(table.messages::<HitMark>(5).len(), marks.len());
    assert_eq!(table.messages::<HitMark>(6).len(), 0);
    assert_eq!(table.messages::<ShotFired>(0).len(), marks.len());
    assert_eq!(table.messages::<ShotFired>(5).len(), marks.len(), "the last one, too, which killed it");
    for client in 0..10 {
        let died = |feed: &Feed| feed.news == News::Died && (feed.by, feed.about) == (Some(0), Some(5));
        assert_eq!(table.messages::<Feed>(client).iter().filter(|feed| died(feed)).count(), 1, "client {client}");
    }
    assert!(!table.figures(0).contains(&5), "the dead are out of sight");
    let senses = table.eyes[0].look(&table.clients[0]).unwrap();
    assert!(senses.enemies.iter().all(|enemy| enemy.seat.0 != 5), "and nobody remembers them");
}

#[test]
fn on_a_lossy_network_every_client_gets_everything() {
    let mut table = Table::new(course(), quick(), "wifi");
    table.until(RoundPhase::Live);
    table.steps(60);
    for client in 0..10 {
        assert_eq!(table.figures(client).len(), 10, "on open ground everybody sees everybody");
        let senses = table.eyes[client].look(&table.clients[client]).unwrap();
        assert_eq!((senses.mates.len(), senses.enemies.len()), (4, 5));
    }
}
