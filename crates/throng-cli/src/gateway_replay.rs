//! `throng gateway-replay`: plays a recorded session against a gateway, once or many times at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use throng_channeld::client::{Client, ClientError, ClientOptions};
use throng_channeld::proto::AuthResultMessage;
use throng_channeld::proto::auth_result_message::AuthResult;
use throng_channeld::replay::{Recorded, ReplayError, ReplayReader};
use throng_channeld::{message_type, put_message};

use crate::exit::{self, Failure, Outcome};
use crate::number::number;

const LONG_ABOUT: &str = "\
Replays a recorded session against a gateway.

`throng gateway -erp -rspd DIR` writes one .cpr file for each client: the client's packets from its login on, with the \
time between them. channeld's own recordings have the same format. The target gateway has to accept the recorded login, \
because it is replayed like all other packets. Ids of connections and channels are those of the recording; the gateway \
refuses messages whose ids do not exist there.

  throng gateway-replay session.cpr --to 127.0.0.1:12108
  throng gateway-replay session.cpr --to 127.0.0.1:12108 --speed 4 --connections 200";

/// How long the gateway may take to answer a login.
const LOGIN: Duration = Duration::from_secs(10);
/// Time to wait for further messages after the last packet.
const LINGER: Duration = Duration::from_millis(300);
/// Longest time between two checks whether a connection has to stop.
const STEP: Duration = Duration::from_millis(200);
const STACK_BYTES: usize = 256 << 10;

/// Arguments of `throng gateway-replay`.
#[derive(Debug, Args)]
#[command(long_about = LONG_ABOUT)]
pub(crate) struct GatewayReplayArguments {
    /// The recording: a .cpr file
    #[arg(value_name = "FILE.cpr")]
    file: PathBuf,
    /// The gateway's TCP address for clients
    #[arg(long, value_name = "ADDR", value_parser = crate::args::address)]
    to: SocketAddr,
    /// Speed factor: 2 replays twice as fast as recorded
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = number(0.01f64..=1_000.0))]
    speed: f64,
    /// Number of connections that replay it at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1u32..=4_000))]
    connections: u32,
    /// Allow a gateway on another machine: confirms that you own it and may put it under load
    #[arg(long)]
    i_own_this_target: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// The contents of a recording.
#[derive(Debug, Default)]
struct Survey {
    packets: u64,
    messages: u64,
    bytes: u64,
    length: Duration,
    /// It ends within a packet: the recording was cut off.
    is_cut: bool,
}

/// The sums of all connections so far.
#[derive(Debug, Default)]
struct Done {
    let_in: AtomicU64,
    packets: AtomicU64,
    messages: AtomicU64,
    received: AtomicU64,
    /// The longest that a packet went out later than it should have.
    late_micros: AtomicU64,
    ended: AtomicU64,
}

/// Why a connection did not play to the end.
#[derive(Debug, thiserror::Error)]
enum Early {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    File(#[from] ReplayError),
    #[error("the gateway refused the recorded login: {0:?}")]
    NotLetIn(AuthResult),
    #[error("interrupted")]
    Interrupted,
}

/// Replays the recording, and prints the result.
pub(crate) fn replay(arguments: &GatewayReplayArguments) -> Outcome {
    throng_lab::bots::check_target(arguments.to, arguments.i_own_this_target).map_err(Failure::usage)?;
    let survey = survey(&arguments.file).map_err(Failure::Usage)?;
    say_what_it_is(arguments, &survey);
    let stop = crate::stop_on_interrupt()?;
    let (done, begin) = (Done::default(), Instant::now());
    let ends = thread::scope(|scope| -> anyhow::Result<BTreeMap<String, u64>> {
        let mut players = Vec::new();
        for number in 0..arguments.connections {
            let player = thread::Builder::new().name(format!("player-{number}")).stack_size(STACK_BYTES);
            let player = player.spawn_scoped(scope, || {
                let result = play(arguments, &done, &stop);
                done.ended.fetch_add(1, Ordering::Relaxed);
                result
            });
            match player {
                Ok(player) => players.push(player),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(anyhow!(error))
                        .context(format!("could start only {number} threads; lower --connections"));
                }
            }
        }
        if !arguments.quiet && std::io::stderr().is_terminal() {
            show_progress(arguments, &survey, &done);
        }
        let mut ends = BTreeMap::new();
        for player in players {
            let result = player.join().map_err(|_| anyhow!("a connection's thread has panicked"))?;
            if let Err(error) = result {
                *ends.entry(error.to_string()).or_insert(0) += 1;
            }
        }
        Ok(ends)
    })?;
    show_summary(arguments, &done, begin.elapsed(), &ends);
    Ok(if ends.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// Reads the whole recording before anything is played.
fn survey(path: &Path) -> anyhow::Result<Survey> {
    let name = path.display();
    let mut survey = Survey::default();
    for recorded in open(path).with_context(|| format!("cannot read {name}"))? {
        match recorded {
            Ok(recorded) => {
                survey.packets += 1;
                survey.messages += recorded.messages().count() as u64;
                survey.bytes += recorded.packet.len() as u64;
                survey.length = survey.length.saturating_add(offset(&recorded));
            }
            Err(ReplayError::Cut) => survey.is_cut = true,
            Err(error) => return Err(error).with_context(|| format!("{name}, after {} packets", survey.packets)),
        }
    }
    match survey.packets {
        0 => Err(anyhow!("{name} holds no packets: give a .cpr file that a gateway has written with -erp")),
        _ => Ok(survey),
    }
}

fn open(path: &Path) -> std::io::Result<ReplayReader<BufReader<File>>> {
    Ok(ReplayReader::new(BufReader::new(File::open(path)?)))
}

/// A clock that was set back while the session was recorded counts as one that stood still.
fn offset(recorded: &Recorded) -> Duration {
    Duration::from_nanos(u64::try_from(recorded.offset_ns).unwrap_or(0))
}

/// One connection, from the first packet of the recording to the last.
fn play(arguments: &GatewayReplayArguments, done: &Done, stop: &AtomicBool) -> Result<(), Early> {
    let mut client = Client::connect(arguments.to, ClientOptions::default())?;
    let (begin, mut at, mut entries) = (Instant::now(), Duration::ZERO, Vec::new());
    for recorded in open(&arguments.file).map_err(ReplayError::from)? {
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(ReplayError::Cut) => break,
            Err(error) => return Err(error.into()),
        };
        at = at.saturating_add(offset(&recorded));
        let due = begin + at.div_f64(arguments.speed);
        listen_until(&mut client, due, done, stop)?;
        let late = Instant::now().saturating_duration_since(due);
        done.late_micros.fetch_max(late.as_micros() as u64, Ordering::Relaxed);
        say(&mut client, &recorded, &mut entries, done)?;
    }
    listen_until(&mut client, Instant::now() + LINGER, done, stop)
}

/// Sends a packet. After one with a login, waits for the answer.
fn say(client: &mut Client, recorded: &Recorded, entries: &mut Vec<u8>, done: &Done) -> Result<(), Early> {
    entries.clear();
    let (mut messages, mut logs_in) = (0, false);
    for message in recorded.messages().map_while(Result::ok) {
        put_message(entries, message.header(), &message.body);
        messages += 1;
        logs_in |= message.msg_type == message_type::AUTH;
    }
    client.send_entries(entries)?;
    done.packets.fetch_add(1, Ordering::Relaxed);
    done.messages.fetch_add(messages, Ordering::Relaxed);
    if !logs_in {
        return Ok(());
    }
    let answer: AuthResultMessage =
        client.wait_for(message_type::AUTH, Instant::now() + LOGIN)?.decode().map_err(ClientError::from)?;
    match answer.result() {
        AuthResult::Successful => done.let_in.fetch_add(1, Ordering::Relaxed),
        refused => return Err(Early::NotLetIn(refused)),
    };
    Ok(())
}

/// Counts what the gateway sends until then.
fn listen_until(client: &mut Client, until: Instant, done: &Done, stop: &AtomicBool) -> Result<(), Early> {
    loop {
        let step = until.min(Instant::now() + STEP);
        while client.poll(step)?.is_some() {
            done.received.fetch_add(1, Ordering::Relaxed);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Early::Interrupted);
        }
        if Instant::now() >= until {
            return Ok(());
        }
    }
}

fn say_what_it_is(arguments: &GatewayReplayArguments, survey: &Survey) {
    let Survey { packets, messages, bytes, length, is_cut } = survey;
    errln!(
        "{}: {packets} packets, {messages} messages, {bytes} bytes, {:.1} s{}",
        arguments.file.display(),
        length.as_secs_f64(),
        if *is_cut { "; the last packet is incomplete and is left out" } else { "" }
    );
}

fn show_progress(arguments: &GatewayReplayArguments, survey: &Survey, done: &Done) {
    let all = survey.packets * u64::from(arguments.connections);
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    while load(&done.ended) < u64::from(arguments.connections) {
        thread::sleep(STEP * 5);
        let (packets, received) = (load(&done.packets), load(&done.received));
        errln!("{} logged in, {packets} of {all} packets sent, {received} messages received", load(&done.let_in));
    }
}

fn show_summary(arguments: &GatewayReplayArguments, done: &Done, took: Duration, ends: &BTreeMap<String, u64>) {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let early: u64 = ends.values().sum();
    outln!("{} connections to {}, {early} ended early", arguments.connections, arguments.to);
    for (reason, count) in ends {
        outln!("  {count} x {reason}");
    }
    outln!("  {} let in", load(&done.let_in));
    outln!("  {} packets, {} messages sent in {:.1} s", load(&done.packets), load(&done.messages), took.as_secs_f64());
    outln!("  {} messages received", load(&done.received));
    outln!("  at most {:.1} ms late", load(&done.late_micros) as f64 / 1_000.0);
}
