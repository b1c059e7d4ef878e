//! The world servers of a run, all in one thread: stand-ins that speak to a gateway as the Unreal plugin does.
//!
//! A master owns the global channel and is notified of each login. In the spatial scene nine more own the cells; a
//! client's entity belongs to the server of the cell that it stands in, and follows the gateway's word when it changes.
//! 30 times a second each server writes one update for each channel with something new, and answers its clients' calls.

mod arrival;
mod frame;
mod interest;
mod player;
mod report;
mod stage;

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use throng_machine::clock;
use throng_machine::piped::answer;
use throng_wire::Time;

use crate::control::{Command, Commands, Line};
use crate::link::{RETRY, Reader, Rounds, SCRATCH_BYTES};
use crate::load::Load;
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
    readers: Vec<Reader>,
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
                self.readers.iter().for_each(|reader| self.rounds.forget(reader));
                self.readers.clear();
                self.stage.lose_gateway();
                Ok(())
            }
            exchanged => exchanged,
        }
    }

    fn connect(&mut self) -> io::Result<()> {
        let now = clock::now();
        if now < self.next_connect || !self.stage.wants_server(self.readers.len()) {
            return Ok(());
        }
        let reader = match Reader::connect(self.stage.load.servers) {
            Err(_) if self.stage.load.outlives_gateway() => {
                self.next_connect = now.after(RETRY);
                return Ok(());
            }
            reader => reader?,
        };
        self.rounds.watch(&reader, self.readers.len())?;
        self.readers.push(reader);
        self.stage.log_in();
        Ok(())
    }

    /// Takes in what has come, plays, and sends.
    fn exchange(&mut self) -> io::Result<()> {
        let stage = &mut self.stage;
        for &server in &self.ready {
            let before = (self.readers[server].messages, self.readers[server].bytes);
            self.readers[server].read(&mut self.scratch, |message| stage.take(server, &message))?;
            stage.counts.messages_in += self.readers[server].messages - before.0;
            stage.counts.bytes_in += self.readers[server].bytes - before.1;
            stage.check().map_err(io::Error::other)?;
        }
        stage.advance(clock::now());
        for (reader, server) in self.readers.iter_mut().zip(&mut stage.servers) {
            stage.counts.bytes_out += reader.send(&mut server.outgoing)?;
        }
        Ok(())
    }
}

fn histogram() -> Histogram<u32> {
    // Up to a minute in microseconds: the bounds are constants that the library accepts.
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("sound bounds")
}
