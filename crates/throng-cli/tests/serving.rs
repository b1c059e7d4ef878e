//! A server and its bots as two commands, as on two machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lines::{SIGINT, lines_of};

const PATIENCE: Duration = Duration::from_secs(60);

fn throng(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A port that was free a moment ago.
fn free_address() -> String {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A process that does not outlive the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(process: &Child, signal: u32) {
    let sent = Command::new("kill").args([format!("-{signal}"), process.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn folders(runs: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn summary(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("summary.json")).unwrap()).unwrap()
}

/// The server has the figures of both sides, also of bots that died in mid-run.
pub(crate) fn a_server_keeps_the_report_of_bots_that_have_left_and_of_those_that_died() {
    let runs = tempfile::tempdir().unwrap();
    let address = free_address();
    let serve = ["serve", "--listen", &address, "--players", "20", "--runs", runs.path().to_str().unwrap()];
    let mut server = Running(throng(&serve).spawn().unwrap());
    let said = lines_of(server.0.stderr.take().unwrap());
    let hear = |word: &str| {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = said.recv_timeout(left).unwrap_or_else(|error| panic!("{error}: nothing about {word}"));
            if line.contains(word) {
                return line;
            }
        }
    };
    hear("serving");
    let bots = ["bots", "--connect", &address, "--players", "20", "--warmup", "0", "--seconds"];
    let played = throng(&[&bots[..], &["2", "--json"]].concat()).output().unwrap();
    let report: Value = serde_json::from_slice(&played.stdout).unwrap();
    let page = hear("report: ");
    let folder = folders(runs.path()).pop().unwrap();
    assert!(page.contains(folder.to_str().unwrap()), "{page}");
    assert_eq!(report["kept_in"].as_str(), folder.file_name().unwrap().to_str());
    let whole = summary(&folder);
    // The server has kept the bots' figures, and the bots have compared their state with the server's.
    assert_eq!((&whole["bots"]["connected"], &whole["bots"]["state_mismatches"]), (&20.into(), &0.into()), "{whole:#}");
    assert!(report["objects_compared"].as_u64().is_some_and(|objects| objects >= 200), "{report:#}");
    for figure in ["objects_compared", "cpu_cores", "inputs_sent_ratio", "input_delay_p99_ms"] {
        let [kept, told] = [&whole["bots"], &report].map(|of| of[figure].as_f64().unwrap());
        // The summary has six digits.
        assert!((kept - told).abs() <= told.abs() * 1e-5, "{figure}: {kept} of {told}");
    }
    assert_eq!(whole["neighbours"]["near"]["samples"], report["neighbours"]["near"]["samples"]);
    // 60 ticks in 2 s. On a machine that does other things too, fewer; more would be those of another time.
    assert!(whole["server"]["ticks"].as_u64().is_some_and(|ticks| (20..=75).contains(&ticks)), "{whole:#}");
    assert!(whole["server"]["frame_ms"]["p99"].as_f64() > Some(0.0) && folder.join("report.html").is_file());
    assert!(folder.join("frames.parquet").is_file());

    let mut dying = Running(throng(&[&bots[..], &["60"]].concat()).stderr(Stdio::null()).spawn().unwrap());
    hear("bots measure for 60 s");
    std::thread::sleep(Duration::from_millis(1_200));
    dying.0.kill().unwrap();
    dying.0.wait().unwrap();
    hear("report: ");
    let partial = summary(&folders(runs.path())[1]);
    assert_eq!(partial["bots"]["missing"], true);
    let reasons = partial["invalid_reasons"].to_string();
    assert!(reasons.contains("the bots left without a report"), "{reasons}");
    assert!(partial["server"]["ticks"].as_u64() > Some(20), "{partial:#}");

    signal(&server.0, SIGINT);
    assert!(server.0.wait().unwrap().success());
}
