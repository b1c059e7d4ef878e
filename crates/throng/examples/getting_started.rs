//! The program that docs/getting-started.md builds in steps: the code of that page, and nothing else.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use throng::prelude::*;

#[derive(Default, Replicate)]
struct Pack {
    #[replicate(integer(min = 0, max = 999))]
    ammunition: u16,
}

#[derive(Default, Replicate)]
struct Fighter {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer(min = 0, max = 100))]
    health: u8,
    #[replicate(nested, owner_only)]
    pack: Pack,
}

#[derive(Default, Replicate)]
struct Chat {
    #[replicate(text(max_bytes = 80))]
    text: String,
}

#[derive(Default, Replicate)]
struct Steering {
    #[replicate(angle(bits = 9))]
    direction: f32,
}

type Failure = Box<dyn Error + Send + Sync>;

fn schema() -> Result<Arc<Schema>, Failure> {
    Ok(Arc::new(Schema::builder().kind::<Fighter>().kind::<Chat>().kind::<Steering>().build()?))
}

/// A number for this game and its version.
const PROTOCOL_ID: u64 = 1;

fn server() -> Result<(Server, TokenIssuer), Failure> {
    let grids = vec![GridOptions::new(Up::Z)];
    let options = ServerOptions { grids, ..ServerOptions::new(PROTOCOL_ID, random_key()) };
    let issuer = options.token_issuer();
    Ok((Server::bind("127.0.0.1:0".parse()?, schema()?, options)?, issuer))
}

/// A reliable, ordered lane: the first of the three default lanes.
const LANE: u8 = 0;

fn play_tick(server: &mut Server) -> Result<(), Failure> {
    while let Some(event) = server.poll_event() {
        match event {
            ServerEvent::Connected { connection, client_id: player, .. } => {
                let position = [player as f32, 0.0, 1.0];
                let pack = Pack { ammunition: 30 };
                let fighter = Fighter { position, health: 100, pack };
                server.spawn_owned(fighter, Placement::Cell(0), Some(connection))?;
            }
            ServerEvent::Message { message, .. } => {
                if let Some(chat) = message.get::<Chat>() {
                    server.broadcast(LANE, &chat)?;
                }
            }
            ServerEvent::Disconnected { connection, .. } => {
                let left: Vec<ObjectId> = server.owned(connection).collect();
                left.into_iter().for_each(|id| server.despawn(id));
            }
            _ => {}
        }
    }
    while let Some((connection, input)) = server.poll_input() {
        let fighter = server.owned_objects::<Fighter>(connection).next().map(|(id, _)| id);
        if let (Some(id), Some(steering)) = (fighter, server.read_input::<Steering>(&input)) {
            let fighter = server.get_mut::<Fighter>(id).ok_or("it was found just now")?;
            fighter.position[0] += steering.direction.cos() * 0.1;
            fighter.position[1] += steering.direction.sin() * 0.1;
        }
        server.acknowledge_input(connection, input.number);
    }
    let eyes: Vec<_> = server.objects::<Fighter>().map(|(id, fighter)| (id, fighter.position)).collect();
    for (id, position) in eyes {
        if let Some(connection) = server.owner(id) {
            server.set_viewpoint(connection, position.map(f64::from));
        }
    }
    Ok(())
}

/// One frame of a client: it handles its events, and acts.
fn play_frame(client: &mut Client, now: Time, heard: &mut Vec<String>) -> Result<(), Failure> {
    client.update(now)?;
    while let Some(event) = client.poll_event() {
        match event {
            ClientEvent::Connected { connection, .. } => {
                client.send(LANE, &Chat { text: format!("{connection} says hello") })?;
            }
            ClientEvent::Message { message, .. } => match message.kind() {
                Some(Chat::KIND) => heard.extend(message.get::<Chat>().map(|chat| chat.text)),
                other => println!("a message of kind {other:?}"),
            },
            _ => {}
        }
    }
    if client.is_connected() {
        client.send_typed_input(&Steering { direction: 0.0 })?;
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Failure> {
    let (mut server, issuer) = server()?;
    let (address, clock) = (server.local_address(), Clock::start());
    let thread = std::thread::spawn(move || {
        let mut has_begun = false;
        server.run(&clock, |server, _now| {
            play_tick(server)?;
            has_begun |= server.connection_count() > 0;
            let is_over = has_begun && server.connection_count() == 0;
            Ok::<_, Failure>(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    });

    let join = |player| {
        let token = issuer.issue(player, &[address])?;
        let client = Client::connect(token, schema()?, ClientOptions::default(), clock.now())?;
        Ok::<_, Failure>((client, Vec::new()))
    };
    let mut players = [join(1)?, join(2)?, join(3)?];
    for _frame in 0..120 {
        for (client, heard) in &mut players {
            play_frame(client, clock.now(), heard)?;
        }
        std::thread::sleep(Duration::from_millis(16));
    }
    for (mut client, heard) in players {
        let (_, me) = client.owned_objects::<Fighter>().next().ok_or("a player has a fighter")?;
        let others = client.objects::<Fighter>().count() - 1;
        println!("at {:.1} m, sees {others} others, heard {} chats", me.position[0], heard.len());
        client.close_after_flush(clock.now(), "good night", Duration::from_secs(2));
        while !client.is_over() {
            client.update(clock.now())?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    thread.join().map_err(|_| "the server's thread panicked")?
}
