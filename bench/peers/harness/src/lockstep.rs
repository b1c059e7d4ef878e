//! Server and clients, tick by tick.

use std::process::exit;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::TICK_US;
use crate::arguments::Arguments;
use crate::check::{Ages, History, check_all};
use crate::losses::Losses;
use crate::packets::Packets;
use crate::report::Measured;
use crate::stopwatch::Stopwatch;
use crate::world::World;

/// Ticks in which all clients must have connected.
const CONNECT_TICKS: u32 = 600;

/// The peer's server.
pub trait Server {
    /// Plays one tick. `world` has this tick's values; they are the last tick's if nothing moves. The parts of the work
    /// switch the stopwatch; it starts and ends stopped.
    fn tick(&mut self, tick: u32, world: &World, incoming: &Packets, outgoing: &mut Packets, stopwatch: &mut Stopwatch);

    /// Whether all clients are connected and may see their objects.
    fn is_ready(&self) -> bool;
}

/// All of the peer's clients.
pub trait Clients {
    /// Takes in what the server sent in this tick, and answers.
    fn tick(&mut self, tick: u32, incoming: &Packets, outgoing: &mut Packets);

    /// Calls `found` with every object that a client holds.
    fn look(&mut self, client: u32, found: &mut dyn FnMut(u32, crate::Value));
}

/// The description of the peer, and how to run it.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The row's name.
    pub peer: &'static str,
    /// Of the library.
    pub version: String,
    /// Notes for readers of the table.
    pub notes: &'static str,
    /// It reads the real clock for its resends and pings, so its ticks must be 33 ms apart in real time.
    pub is_paced: bool,
}

enum Order {
    /// A tick's packets, and whether the world moves on before it.
    Tick { packets: Packets, moves: bool, is_measured: bool },
    /// Look whether everything is right.
    Check,
}

struct Answer {
    packets: Packets,
    client_ns: u64,
}

/// Runs the workload, checks it, prints the rows. Ends the program with code 1 if any client ever holds anything wrong, or not
/// everything at the end.
pub fn run<S: Server, C: Clients>(
    arguments: &Arguments,
    terms: &Terms,
    server: S,
    clients: impl FnOnce() -> C + Send + 'static,
) {
    let (to_clients, orders) = channel();
    let (answer, answers) = channel();
    let of_clients = arguments.clone();
    let thread = thread::spawn(move || {
        pin(1);
        serve_orders(&of_clients, clients(), &orders, &answer)
    });
    pin(0);
    let mut play = Play {
        server,
        terms,
        to_clients,
        answers,
        outgoing: Packets::default(),
        spare: Packets::default(),
        arguments,
        due: Instant::now(),
        losses: Losses::new(arguments.loss_percent),
    };
    let mut measured = play.play();
    drop(play);
    match thread.join() {
        Ok(Ok(ages)) => measured.ages = ages,
        Ok(Err(wrong)) => fail(terms, arguments, &wrong),
        Err(_) => fail(terms, arguments, "the clients' thread panicked"),
    }
    for row in measured.rows(arguments, terms) {
        println!("{}", serde_json::to_string(&row).expect("numbers and texts"));
    }
}

fn fail(terms: &Terms, arguments: &Arguments, wrong: &str) -> ! {
    eprintln!("{} on {} with {}: {wrong}", terms.peer, arguments.workload.name(), arguments.players);
    exit(1)
}

/// A processor for each side, if there are two: a server whose caches are taken by its clients is not what is measured.
fn pin(number: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if cores.len() > 1 {
        core_affinity::set_for_current(cores[number]);
    }
}

struct Play<'a, S> {
    server: S,
    terms: &'a Terms,
    arguments: &'a Arguments,
    to_clients: Sender<Order>,
    answers: Receiver<Answer>,
    /// The server's packets. They stay with its processor: a buffer that the clients have read would have to be fetched back
    /// while the next tick is timed, which no socket asks for.
    outgoing: Packets,
    /// Packets on their way to the clients.
    spare: Packets,
    due: Instant,
    losses: Losses,
}

impl<S: Server> Play<'_, S> {
    fn play(&mut self) -> Measured {
        let arguments = self.arguments;
        let mut world = World::new(arguments.workload, arguments.players);
        let mut measured = Measured { laps: Vec::new(), bytes: 0, packets: 0, client_ns: 0, ages: Ages::default() };
        let mut stopwatch = Stopwatch::default();
        let mut incoming = Packets::default();
        let mut tick = 0;
        while !self.server.is_ready() {
            if tick == CONNECT_TICKS {
                fail(self.terms, arguments, "not all clients could connect");
            }
            incoming = self.tick(tick, &world, incoming, &mut stopwatch, [false, false], &mut measured);
            stopwatch.take_lap();
            tick += 1;
        }
        for measure in 0..arguments.warmup_ticks + arguments.ticks + arguments.settle_ticks {
            let moves = measure < arguments.warmup_ticks + arguments.ticks;
            let is_measured = moves && measure >= arguments.warmup_ticks;
            if moves {
                world.step();
            }
            incoming = self.tick(tick, &world, incoming, &mut stopwatch, [moves, is_measured], &mut measured);
            let lap = stopwatch.take_lap();
            if is_measured {
                measured.laps.push(lap);
            }
            tick += 1;
        }
        // A thread that has found an error has already ended, and returns the error when it is joined.
        let _ = self.to_clients.send(Order::Check);
        let _ = self.answers.recv();
        measured
    }

    fn tick(
        &mut self,
        tick: u32,
        world: &World,
        mut incoming: Packets,
        stopwatch: &mut Stopwatch,
        [moves, is_measured]: [bool; 2],
        measured: &mut Measured,
    ) -> Packets {
        if self.terms.is_paced || self.arguments.is_paced {
            self.due += Duration::from_micros(TICK_US);
            thread::sleep(self.due.saturating_duration_since(Instant::now()));
            self.due = self.due.max(Instant::now() - Duration::from_micros(TICK_US));
        }
        self.outgoing.clear();
        self.server.tick(tick, world, &incoming, &mut self.outgoing, stopwatch);
        stopwatch.stop();
        if is_measured {
            measured.bytes += self.outgoing.bytes() as u64;
            measured.packets += self.outgoing.len() as u64;
        }
        let mut packets = std::mem::take(&mut self.spare);
        packets.copy_from(&self.outgoing);
        if moves {
            packets.lose(|| self.losses.is_next_lost());
        }
        incoming.clear();
        self.spare = incoming;
        let _ = self.to_clients.send(Order::Tick { packets, moves, is_measured });
        match self.answers.recv() {
            Ok(mut answer) => {
                if moves {
                    answer.packets.lose(|| self.losses.is_next_lost());
                }
                if is_measured {
                    measured.client_ns += answer.client_ns;
                }
                answer.packets
            }
            Err(_) => Packets::default(),
        }
    }
}

fn serve_orders(
    arguments: &Arguments,
    mut clients: impl Clients,
    orders: &Receiver<Order>,
    answers: &Sender<Answer>,
) -> Result<Ages, String> {
    let mut world = World::new(arguments.workload, arguments.players);
    let mut history = History::new(&world);
    let mut ages = Ages::default();
    let mut spare = Packets::default();
    let mut tick = 0;
    while let Ok(order) = orders.recv() {
        let Order::Tick { packets, moves, is_measured } = order else { break };
        if moves {
            world.step();
            history.push(&world);
        }
        let start = Instant::now();
        spare.clear();
        clients.tick(tick, &packets, &mut spare);
        let client_ns = start.elapsed().as_nanos() as u64;
        if is_measured && tick % 4 == 0 {
            history.sample(tick, &mut clients, arguments.players, &mut ages)?;
        }
        if answers.send(Answer { packets: spare, client_ns }).is_err() {
            break;
        }
        spare = packets;
        tick += 1;
    }
    check_all(&world, &mut clients)?;
    Ok(ages)
}
