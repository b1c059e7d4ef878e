//! An arena: 200 bots run, shoot, chat, hide, leave, crash and come back, over real sockets on this machine.
//!
//! One thread runs the server, the other all bots. The bots check what they see: the run fails if data did not reach a
//! bot that must have it, or reached a bot that must not. docs/getting-started.md builds the first half of it in steps.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed};
use std::time::Duration;

use throng::USER_DATA_LEN;
use throng::prelude::*;

type Failure = Box<dyn Error + Send + Sync>;

/// A number for this game and its version.
const PROTOCOL_ID: u64 = 1;
/// Side of the square arena, in metres.
const SIDE_M: f32 = 80.0;
/// A reliable, ordered lane, as in `default_lanes`.
const LANE: u8 = 0;
/// The range of an explosion.
const BLAST_M: f64 = 15.0;
/// The channel of public objects without a position.
const SCOREBOARD: ChannelKey = ChannelKey::Global(0);

#[derive(Clone, Default, Replicate)]
struct Pack {
    #[replicate(integer(min = 0, max = 9_999))]
    ammunition: u16,
}

#[derive(Default, Replicate)]
struct Fighter {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer(min = 0, max = 100))]
    health: u8,
    #[replicate(integer(min = 0, max = 1), initial_only)]
    team: u8,
    #[replicate(object)]
    hit_by: Option<ObjectId>,
    #[replicate(nested, owner_only)]
    pack: Pack,
    #[replicate(skip)]
    player: u64,
}

#[derive(Default, Replicate)]
struct Shot {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(skip)]
    step: [f32; 2],
    #[replicate(skip)]
    ticks_left: u8,
    #[replicate(skip)]
    shooter: ObjectId,
}

#[derive(Default, Replicate)]
struct Score {
    #[replicate(integer)]
    player: u64,
    #[replicate(integer)]
    hits: u32,
}

#[derive(Default, Replicate)]
struct Flag {
    #[replicate(integer(min = 0, max = 1))]
    team: u8,
}

#[derive(Default, Replicate)]
struct Ball {}

#[derive(Default, Replicate)]
struct Chat {
    #[replicate(text(max_bytes = 80))]
    text: String,
}

#[derive(Default, Replicate)]
struct Explosion {
    #[replicate(position(step = 0.01))]
    place: [f32; 3],
}

#[derive(Default, Replicate)]
struct Steering {
    #[replicate(angle(bits = 9))]
    direction: f32,
    #[replicate(bool)]
    is_firing: bool,
}

fn team_channel(team: u8) -> ChannelKey {
    ChannelKey::Custom(u32::from(team))
}

/// The server's data beside its objects.
#[derive(Default)]
struct Notes {
    chats: Vec<String>,
    refused: String,
}

/// The game: everything between `receive` and `tick`.
fn play_tick(server: &mut Server, now: Time, notes: &mut Notes, is_over: bool) -> Result<ControlFlow<()>, Failure> {
    while let Some(event) = server.poll_event() {
        match event {
            ServerEvent::Connected { connection, client_id: player, user_data } => {
                admit(server, connection, player, user_data[0])?;
            }
            ServerEvent::Message { connection, message, .. } => {
                let Some(chat) = message.get::<Chat>() else { continue };
                if !obey(server, connection, &chat.text)? {
                    server.broadcast(LANE, &chat)?;
                    notes.chats.push(chat.text);
                }
            }
            ServerEvent::Refused { error, .. } => notes.refused = error.to_string(),
            _ => {}
        }
    }
    while let Some((connection, input)) = server.poll_input() {
        if let Some(steering) = server.read_input::<Steering>(&input) {
            steer(server, connection, &steering)?;
        }
        server.acknowledge_input(connection, input.number);
    }
    fly(server);
    let eyes: Vec<_> = server.objects::<Fighter>().map(|(id, fighter)| (id, fighter.position)).collect();
    for (id, position) in eyes {
        let owner = server.owner(id).ok_or("every fighter has an owner")?;
        server.set_viewpoint(owner, position.map(f64::from));
    }
    if is_over {
        server.shut_down(now, "the arena closes");
    }
    let is_done = is_over && server.connection_count() == 0;
    Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

/// A player joins, or comes back to its waiting fighter.
fn admit(server: &mut Server, connection: ConnectionId, player: u64, team: u8) -> Result<(), Failure> {
    server.subscribe(connection, SCOREBOARD, 10)?;
    server.subscribe(connection, team_channel(team), 1)?;
    let known = server.objects::<Fighter>().find(|(_, fighter)| fighter.player == player).map(|(id, _)| id);
    if let Some(fighter) = known {
        return Ok(server.set_owner(fighter, Some(connection))?);
    }
    let place = |number: u64| (number % 1_000) as f32 / 1_000.0 * SIDE_M;
    let pack = Pack { ammunition: 1_000 + player as u16 };
    let position = [place(player * 382), place(player * 617), 1.0];
    let fighter = Fighter { position, health: 100, team, pack, player, ..Fighter::default() };
    server.spawn_owned(fighter, Placement::Cell(0), Some(connection))?;
    server.spawn(Score { player, hits: 0 }, Placement::Channel(SCOREBOARD))?;
    Ok(())
}

/// Executes the command in a chat. False if there is none.
fn obey(server: &mut Server, from: ConnectionId, text: &str) -> Result<bool, Failure> {
    let Some((id, fighter)) = server.owned_objects::<Fighter>(from).next() else { return Ok(false) };
    let (place, team) = (fighter.position, fighter.team);
    match text {
        "/hide" => server.set_placement(id, Placement::Channel(team_channel(team)))?,
        "/teleport" => server.get_mut::<Fighter>(id).ok_or("just found")?.position = [SIDE_M * 3.0, 0.0, 1.0],
        "/explode" => drop(server.send_near(place.map(f64::from), BLAST_M, LANE, &Explosion { place })?),
        "/take" => {
            let (ball, _) = server.objects::<Ball>().next().ok_or("there is a ball")?;
            server.set_owner(ball, Some(from))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Moves the shots, and ends those that have hit a fighter or have flown for long.
fn fly(server: &mut Server) {
    let targets: Vec<_> = server.objects::<Fighter>().map(|(id, fighter)| (id, fighter.position)).collect();
    let mut ended = Vec::new();
    for (id, shot) in server.objects_mut::<Shot>() {
        (0..2).for_each(|axis| shot.position[axis] += shot.step[axis]);
        shot.ticks_left -= 1;
        let is_near = |at: [f32; 3]| (at[0] - shot.position[0]).hypot(at[1] - shot.position[1]) < 1.0;
        let hit = targets.iter().find(|&&(target, at)| target != shot.shooter && is_near(at));
        if hit.is_some() || shot.ticks_left == 0 {
            ended.push((id, shot.shooter, hit.map(|&(target, _)| target)));
        }
    }
    for (shot, shooter, hit) in ended {
        server.despawn(shot);
        let Some(target) = hit else { continue };
        if let Some(fighter) = server.get_mut::<Fighter>(target) {
            fighter.health = if fighter.health <= 10 { 100 } else { fighter.health - 10 };
            fighter.hit_by = Some(shooter);
        }
        let player = server.get::<Fighter>(shooter).map(|fighter| fighter.player);
        let score = server.objects::<Score>().find(|(_, score)| Some(score.player) == player).map(|(id, _)| id);
        if let Some(score) = score.and_then(|id| server.get_mut::<Score>(id)) {
            score.hits += 1;
        }
    }
}

fn steer(server: &mut Server, player: ConnectionId, steering: &Steering) -> Result<(), Failure> {
    let Some((id, _)) = server.owned_objects::<Fighter>(player).next() else { return Ok(()) };
    let fighter = server.get_mut::<Fighter>(id).ok_or("it was found just now")?;
    let (sin, cos) = steering.direction.sin_cos();
    for (axis, along) in [(0, cos), (1, sin)] {
        fighter.position[axis] = (fighter.position[axis] + along * 0.15).clamp(0.0, SIDE_M);
    }
    if steering.is_firing && fighter.pack.ammunition > 0 {
        fighter.pack.ammunition -= 1;
        let shot = Shot { position: fighter.position, step: [cos, sin], ticks_left: 20, shooter: id };
        server.spawn(shot, Placement::Cell(0))?;
    }
    Ok(())
}

/// A player: it steers, and records its events.
struct Bot {
    client: Client,
    player: u64,
    heard: Vec<String>,
    explosions: usize,
    shots_seen: usize,
    /// How often a ball became its own, and stopped being its own.
    balls: [usize; 2],
}

impl Bot {
    fn update(&mut self, now: Time) -> Result<(), Failure> {
        self.client.update(now)?;
        while let Some(event) = self.client.poll_event() {
            let is = |id, kind| usize::from(self.client.kind(id) == Some(kind));
            match event {
                ClientEvent::Message { message, .. } => match message.kind() {
                    Some(Chat::KIND) => self.heard.extend(message.get::<Chat>().map(|chat| chat.text)),
                    Some(Explosion::KIND) => self.explosions += 1,
                    _ => {}
                },
                ClientEvent::Spawned(id) => self.shots_seen += is(id, Shot::KIND),
                ClientEvent::Owned(id) => self.balls[0] += is(id, Ball::KIND),
                ClientEvent::Disowned(id) => self.balls[1] += is(id, Ball::KIND),
                _ => {}
            }
        }
        Ok(())
    }

    fn me(&self) -> Option<(ObjectId, Fighter)> {
        self.client.owned_objects::<Fighter>().next()
    }

    fn say(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.client.send(LANE, &Chat { text: text.to_owned() })?)
    }
}

/// Creates bots with their tokens.
struct Door {
    address: SocketAddr,
    issuer: TokenIssuer,
    clock: Clock,
}

impl Door {
    fn join(&self, player: u64, schema: Arc<Schema>) -> Result<Bot, Failure> {
        let mut user_data = [0; USER_DATA_LEN];
        user_data[0] = (player % 2) as u8;
        let token = self.issuer.issue_with(player, &[self.address], &user_data)?;
        let client = Client::connect(token, schema, ClientOptions::default(), self.clock.now())?;
        Ok(Bot { client, player, heard: Vec::new(), explosions: 0, shots_seen: 0, balls: [0; 2] })
    }

    /// Updates the bots until `what` is true, for 20 s at most.
    fn wait(&self, bots: &mut [Bot], what: &str, is_true: impl Fn(&[Bot]) -> bool) -> Result<(), Failure> {
        let end = self.clock.now().after(Duration::from_secs(20));
        while !is_true(bots) {
            if self.clock.now() > end {
                return Err(format!("this did not come true: {what}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
            bots.iter_mut().try_for_each(|bot| bot.update(self.clock.now()))?;
        }
        println!("{:5.1} s  {what}", self.clock.now().since(Time(0)).as_secs_f64());
        Ok(())
    }

    /// All bots run in circles and shoot.
    fn fight(&self, bots: &mut [Bot], lasts: Duration) -> Result<(), Failure> {
        let end = self.clock.now().after(lasts);
        for frame in (0_u16..).take_while(|_| self.clock.now() < end) {
            for bot in &mut *bots {
                let direction = f32::from(frame) * 0.1 + bot.player as f32;
                let is_firing = (u64::from(frame) + bot.player).is_multiple_of(10);
                bot.client.send_typed_input(&Steering { direction, is_firing })?;
                bot.update(self.clock.now())?;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(())
    }
}

/// Plays with this many bots, which fight for this long. Fails if a check fails.
pub(crate) fn play(count: u64, lasts: Duration) -> Result<(), Failure> {
    let objects = Schema::builder().kind::<Fighter>().kind::<Shot>().kind::<Score>().kind::<Flag>().kind::<Ball>();
    let schema = Arc::new(objects.kind::<Chat>().kind::<Explosion>().kind::<Steering>().build()?);
    let grids = vec![GridOptions::new(Up::Z)];
    let options = ServerOptions { grids, ..ServerOptions::new(PROTOCOL_ID, random_key()) };
    let (issuer, clock) = (options.token_issuer(), Clock::start());
    let mut server = Server::bind("127.0.0.1:0".parse()?, Arc::clone(&schema), options)?;
    let door = Door { address: server.local_address(), issuer, clock };
    server.spawn(Flag { team: 0 }, Placement::Channel(team_channel(0)))?;
    server.spawn(Flag { team: 1 }, Placement::Channel(team_channel(1)))?;
    server.spawn(Ball {}, Placement::Channel(SCOREBOARD))?;
    let (is_over, mut notes) = (Arc::new(AtomicBool::new(false)), Notes::default());
    let is_over_too = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || {
        server.run(&clock, |server, now| play_tick(server, now, &mut notes, is_over_too.load(Relaxed)))?;
        Ok::<_, Failure>((server, notes))
    });

    let join = |player| door.join(player, Arc::clone(&schema));
    let all = &mut (1..=count).map(join).collect::<Result<Vec<_>, _>>()?;
    door.wait(all, "all are in, and each has a fighter", |all| all.iter().all(|bot| bot.me().is_some()))?;
    door.fight(all, lasts)?;
    let no_shots = |bot: &Bot| bot.shots_seen > 0 && bot.client.objects::<Shot>().count() == 0;
    door.wait(all, "all have seen shots, and all shots have ended", |all| all.iter().all(no_shots))?;
    let knows = |bot: &Bot, id, fighter: &Fighter| bot.client.is_mine(id) == (fighter.pack.ammunition > 0);
    let knows_its_own = |bot: &Bot| bot.client.objects::<Fighter>().all(|(id, fighter)| knows(bot, id, &fighter));
    door.wait(all, "each knows its own ammunition and no other", |all| all.iter().all(knows_its_own))?;
    let flags = |bot: &Bot| bot.client.objects::<Flag>().map(|(_, flag)| u64::from(flag.team)).eq([bot.player % 2]);
    door.wait(all, "each sees the flag of its team and no other", |all| all.iter().all(flags))?;

    all[0].say("hello")?;
    door.wait(all, "all have heard a chat once", |all| all.iter().all(|bot| bot.heard == ["hello"]))?;
    let place_of = |bot: &Bot| bot.me().map_or([0.0; 3], |(_, fighter)| fighter.position);
    let at = place_of(&all[0]);
    all[0].say("/explode")?;
    let away_m = |bot: &Bot| f64::from((place_of(bot)[0] - at[0]).hypot(place_of(bot)[1] - at[1]));
    // A fighter within a centimetre of the edge may be hit or not.
    let feels = |bot: &Bot| (away_m(bot) - BLAST_M).abs() < 0.02 || (bot.explosions == 1) == (away_m(bot) < BLAST_M);
    door.wait(all, "those near an explosion felt it, and nobody else", |all| all.iter().all(feels))?;

    let (hidden, _) = all[0].me().ok_or("it has a fighter")?;
    all[0].say("/hide")?;
    let is_right = |bot: &Bot| bot.client.kind(hidden).is_some() == (bot.player % 2 == 1);
    door.wait(all, "a hidden player is seen by its own team alone", |all| all.iter().all(is_right))?;
    all[1].say("/teleport")?;
    let is_alone = |bot: &Bot| place_of(bot)[0] > SIDE_M && bot.client.objects::<Fighter>().count() == 1;
    door.wait(all, "a teleported player sees only the new place", |all| is_alone(&all[1]))?;
    all[2].say("/take")?;
    door.wait(all, "a player owns the ball", |all| all[2].balls == [1, 0])?;
    all[3].say("/take")?;
    door.wait(all, "the next player owns it", |all| all[2].balls == [1, 1] && all[3].balls == [1, 0])?;

    let fighters = [4, 5].map(|index| all[index].me().map(|(id, _)| id));
    all[4].say("good night")?;
    all[4].client.close_after_flush(clock.now(), "bedtime", Duration::from_secs(10));
    door.wait(all, "a player has left with a last word", |all| all[4].client.is_over() && all[3].heard.len() == 2)?;
    all[4] = join(5)?;
    all[5] = join(6)?; // the former one has crashed without a message
    let is_back = |all: &[Bot]| [4, 5].map(|index| all[index].me().map(|(id, _)| id)) == fighters;
    door.wait(all, "it and one that crashed are back, with their fighters", is_back)?;
    let ended_with = |bot: &Bot, text| bot.client.end_reason().is_some_and(|why| why.to_string().contains(text));
    all.push(join(count + 1)?);
    all.push(door.join(count + 2, Arc::new(Schema::builder().kind::<Chat>().build()?))?);
    let scores = |bot: &Bot| bot.client.objects::<Score>().count() as u64;
    door.wait(all, "a newcomer sees all scores", |all| scores(&all[count as usize]) == count + 1)?;
    door.wait(all, "a client of another game was told why not", |all| ended_with(&all[count as usize + 1], "Fighter"))?;
    all.pop();

    is_over.store(true, Relaxed);
    let is_told = |bot: &Bot| ended_with(bot, "the arena closes");
    door.wait(all, "all know that the arena closes", |all| all.iter().all(is_told))?;
    let (server, notes) = thread.join().map_err(|_| "the server's thread panicked")??;
    let hits: HashMap<_, _> = server.objects::<Score>().map(|(_, score)| (score.player, score.hits)).collect();
    let seen = |(_, score): (_, Score)| hits.get(&score.player) == Some(&score.hits);
    if let Some(bot) = all.iter().find(|bot| !bot.client.objects::<Score>().all(seen)) {
        return Err(format!("player {} saw other scores than the server kept", bot.player).into());
    }
    let hits = hits.values().sum::<u32>();
    if hits == 0 || notes.chats != ["hello", "good night"] || !notes.refused.contains("Fighter") {
        return Err(format!("{hits} hits, chats {:?}, refused: {}", notes.chats, notes.refused).into());
    }
    println!("{count} players, {hits} hits, {} ticks", server.current_tick().0);
    Ok(())
}

#[allow(dead_code, reason = "the test of the examples calls `play`")]
fn main() -> Result<(), Failure> {
    play(200, Duration::from_secs(4))
}
