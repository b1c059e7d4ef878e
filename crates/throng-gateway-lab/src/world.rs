//! The world servers of a run, all in one thread: stand-ins that speak to a gateway as the Unreal plugin does.
//!
//! A master owns the global channel and is notified of each login. In the spatial scene nine more own the cells; a
//! client's entity belongs to the server of the cell that it stands in, and follows the gateway's word when it changes.
//! 30 times a second each server writes one update for each channel with something new, and answers its clients' calls.

mod arrival;
mod frame;
mod interest;
mod player;
mod recovery;
mod report;
mod stage;

use std::io;
use std::time::Duration;

use throng_machine::clock;
use throng_machine::piped::answer;
use throng_wire::Time;

use crate::control::{Command, Commands, Line};
use crate::link::{RETRY, Reader, Rounds, SCRATCH_BYTES};
use crate::load::Load;
use recovery::DOWN;
pub(super) use report::{WorldProgress, WorldReport};
use stage::Stage;

/// A server looks at its sockets this often.
const ROUND: Duration = Duration::from_millis(1);

/// The world's type of line.
pub(super) type WorldLine = Line<WorldProgress, WorldReport>;

/// Serves until told to stop.
pub(super) fn serve(load: Load) -> io::Result<()> {
    let commands = Commands::listen();
    let mut world = World::new(load)?;
    loop {
        world.round()?;
        if let Some(progress) = world.stage.take_progress() {
            answer(&WorldLine::Progress(progress));
        }
        match commands.poll() {
            Some(Command::Players(number)) => world.stage.wanted = number,
            Some(Command::Go) => world.stage.begin(clock::now()),
            Some(Command::Kill) => world.kill(),
            Some(Command::Measure) => world.stage.measure(),
            Some(Command::Settle) => world.stage.settle(),
            Some(Command::Stop) => break,
            None => {}
        }
    }
    answer(&WorldLine::Done(Box::new(world.stage.report())));
    Ok(())
}

struct World {
    rounds: Rounds,
    /// By server; the place of one that is dead is empty.
    readers: Vec<Option<Reader>>,
    next_connect: Time,
    ready: Vec<usize>,
    scratch: Vec<u8>,
    stage: Stage,
}

impl World {
    fn new(load: Load) -> io::Result<World> {
        Ok(World {
            rounds: Rounds::new(ROUND)?,
            readers: Vec::new(),
            next_connect: clock::now(),
            ready: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            stage: Stage::new(load),
        })
    }

    fn round(&mut self) -> io::Result<()> {
        self.connect()?;
        self.ready.clear();
        self.rounds.wait(&mut self.ready)?;
        match self.exchange() {
            Err(error) if self.stage.load.outlives_gateway() && error.kind() != io::ErrorKind::Other => {
                self.readers.iter().flatten().for_each(|reader| self.rounds.forget(reader));
                self.readers.clear();
                self.stage.lose_gateway();
                Ok(())
            }
            exchanged => exchanged,
        }
    }

    fn connect(&mut self) -> io::Result<()> {
        let now = clock::now();
        let dead = self.readers.iter().position(Option::is_none);
        let server = dead.unwrap_or(self.readers.len());
        if now < self.next_connect || dead.is_none() && !self.stage.wants_server(server) {
            return Ok(());
        }
        let reader = match Reader::connect(self.stage.load.servers) {
            Err(_) if self.stage.load.outlives_gateway() => {
                self.next_connect = now.after(RETRY);
                return Ok(());
            }
            reader => reader?,
        };
        self.rounds.watch(&reader, server)?;
        match self.readers.get_mut(server) {
            Some(place) => *place = Some(reader),
            None => self.readers.push(Some(reader)),
        }
        self.stage.log_in(server);
        Ok(())
    }

    /// One of several servers dies, and comes back after a while. Its socket is closed as the kernel closes those of a killed process:
    /// with all that waits in it.
    fn kill(&mut self) {
        let server = self.stage.victim();
        if let Some(reader) = self.readers.get_mut(server).and_then(Option::take) {
            self.rounds.forget(&reader);
            self.stage.lose_server(server);
            self.next_connect = clock::now().after(DOWN);
        }
    }

    /// Takes in what has come, plays, and sends.
    fn exchange(&mut self) -> io::Result<()> {
        let stage = &mut self.stage;
        for &server in &self.ready {
            let Some(reader) = &mut self.readers[server] else { continue };
            let before = (reader.messages, reader.bytes);
            reader.read(&mut self.scratch, |message| stage.take(server, &message))?;
            stage.counts.messages_in += reader.messages - before.0;
            stage.counts.bytes_in += reader.bytes - before.1;
            stage.check().map_err(io::Error::other)?;
        }
        stage.advance(clock::now());
        for (reader, server) in self.readers.iter_mut().zip(&mut stage.servers) {
            match reader {
                Some(reader) => stage.counts.bytes_out += reader.send(&mut server.outgoing)?,
                None => server.outgoing.clear(),
            }
        }
        Ok(())
    }
}
