//! Runs every peer's program on every workload, interleaved and repeated, prints one table, and writes `results.json`.

mod peers;
mod print;
mod provenance;
mod rows;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use peers::{Case, PEERS, Peer, cases};
use print::print;
use provenance::Provenance;
use rows::{Results, Row};

const USAGE: &str = "\
bench/peers/run [options]
  --rounds N        runs of each peer on each workload (3)
  --quick           one round, short runs, dense at 25 and 100 and the sparse workloads
  --only NAME,...   peers whose names begin so: naive, throng, replicon, replicon-next, colyseus, naia, lightyear
  --paced           ticks 33 ms apart in real time for every peer: caches as cold as a game's
  --loss PERCENT    so many packets are lost both ways (20 at most); only peers that recover by themselves
  --realtime        each program under `chrt -r 10`
  --results DIR     where results.json goes (bench/peers/results)";

struct Options {
    rounds: u32,
    is_quick: bool,
    only: Option<Vec<String>>,
    is_realtime: bool,
    is_paced: bool,
    loss_percent: u32,
    results: PathBuf,
    /// Where the programs are.
    programs: PathBuf,
}

fn main() -> ExitCode {
    let Some(options) = Options::from_command_line() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let provenance = Provenance::now();
    let mut results = Results::default();
    for round in 0..options.rounds {
        for case in cases(options.is_quick) {
            for peer in PEERS.iter().filter(|peer| options.wants(peer)) {
                eprintln!(
                    "round {} of {}: {} on {} with {}",
                    round + 1,
                    options.rounds,
                    peer.name,
                    case.workload,
                    case.players
                );
                results.add(peer, &case, run(peer, &case, &options));
            }
        }
    }
    let rows = results.rows();
    print(&rows);
    let path = options.results.join("results.json");
    let written = std::fs::create_dir_all(&options.results).and_then(|()| {
        std::fs::write(&path, serde_json::to_string_pretty(&provenance.report(&rows)).expect("numbers and texts"))
    });
    match written {
        Ok(()) => eprintln!("written: {}", path.display()),
        Err(error) => eprintln!("{} cannot be written: {error}", path.display()),
    }
    match rows.iter().all(|row| row.checked) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// One run of a peer's program: its rows, or why there are none.
fn run(peer: &Peer, case: &Case, options: &Options) -> Result<Vec<Row>, String> {
    let program = peer.program(&options.programs);
    if !peer.is_built(&options.programs) {
        return Err(format!("{} was not built", peer.name));
    }
    let mut words: Vec<String> = Vec::new();
    if options.is_realtime {
        words.extend(["chrt", "-r", "10"].map(str::to_owned));
    }
    if peer.is_node() {
        words.push("node".to_owned());
    }
    words.push(program.display().to_string());
    words.extend(peer.arguments(case, options.is_quick));
    words.extend(options.is_paced.then(|| "--paced".to_owned()));
    if options.loss_percent > 0 {
        words.extend(["--loss".to_owned(), options.loss_percent.to_string()]);
    }
    let output =
        Command::new(&words[0]).args(&words[1..]).output().map_err(|error| format!("{}: {error}", words[0]))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(errors.lines().last().unwrap_or("it failed and said nothing").to_owned());
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).map_err(|error| format!("{error} in {line}"))).collect()
}

impl Options {
    fn from_command_line() -> Option<Options> {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let programs = std::env::current_exe().ok()?.parent()?.to_owned();
        let results = here.join("results");
        let mut options = Options {
            rounds: 3,
            is_quick: false,
            only: None,
            is_realtime: false,
            is_paced: false,
            loss_percent: 0,
            results,
            programs,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--rounds" => options.rounds = words.next()?.parse().ok().filter(|&rounds| rounds > 0)?,
                "--quick" => (options.is_quick, options.rounds) = (true, 1),
                "--only" => options.only = Some(words.next()?.split(',').map(str::to_owned).collect()),
                "--loss" => {
                    options.loss_percent = words.next()?.parse().ok().filter(|percent| (1..=20).contains(percent))?
                }
                "--paced" => options.is_paced = true,
                "--realtime" => options.is_realtime = true,
                "--results" => options.results = words.next()?.into(),
                _ => return None,
            }
        }
        Some(options)
    }

    fn wants(&self, peer: &Peer) -> bool {
        (peer.recovers || self.loss_percent == 0)
            && self.only.as_ref().is_none_or(|only| only.iter().any(|name| peer.name == name || peer.group == name))
    }
}
