//! `throng` with a run store, as its users have one: folders, and a server that speaks S3.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use serde_json::Value;
use throng_report::{RunFile, RunHead};

const KEY: &str = "the-key";
const SECRET: &str = "the-secret";

/// Serves the folders in `root` as buckets until this process ends.
fn serve(root: &Path) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(FileSystem::new(root).expect("a folder"));
    builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
    let service = builder.build().into_shared();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            while let Ok((stream, _)) = listener.accept().await {
                let serving =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
                tokio::spawn(serving);
            }
        });
    });
    address
}

/// The folder of a run whose `send` takes so long, with 20 MB of another file.
fn run(parent: &Path, name: &str, revision: &str, send_us: f64) -> PathBuf {
    let folder = parent.join(name);
    fs::create_dir_all(&folder).expect("it can be made");
    let started_at = format!("2026-01-31T12:00:00Z {name}");
    let (workload, revision) = ("crowd 1000".to_owned(), revision.to_owned());
    let mut head = RunHead { workload, revision, valid: true, started_at, ..RunHead::default() };
    head.environment.cpu = "a cpu".to_owned();
    let figures = serde_json::json!({
        "server": { "us_per_connection": { "send": send_us, "encode": 0.8 }, "frame_ms": { "p50": 5.25 } },
    });
    RunFile::write(&folder, &head.with(figures)).expect("it can be written");
    folder
}

struct Lab {
    folder: tempfile::TempDir,
    server: SocketAddr,
}

impl Lab {
    fn throng(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
        command.args(arguments).current_dir(self.folder.path());
        command.env("AWS_ENDPOINT_URL", format!("http://{}", self.server)).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_REGION", "us-east-1").env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
    }

    /// Its output, after its exit code was checked.
    fn prints(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.throng(arguments);
        let (text, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}{words}");
        assert!(!words.contains("panicked"), "{words}");
        if code == 0 { text.into_owned() } else { words.into_owned() }
    }
}

#[test]
fn runs_go_to_an_object_store_are_listed_compared_and_never_overwritten() {
    let buckets = tempfile::tempdir().expect("a folder");
    fs::create_dir(buckets.path().join("bucket")).expect("it can be made");
    let lab = Lab { folder: tempfile::tempdir().expect("a folder"), server: serve(buckets.path()) };
    let (before, after) = ("s3://bucket/throng/before", "s3://bucket/throng/after");
    for index in 0..6 {
        for (place, revision, send_us) in [(before, "b", 2.0), (after, "a", 2.2)] {
            let name = format!("20260131-12000{index}-crowd");
            let wobble = 1.0 + 0.002 * f64::from(index);
            let folder = run(&lab.folder.path().join(revision), &name, &format!("{revision}{index}"), send_us * wobble);
            if index == 0 {
                fs::write(folder.join("trace.json"), vec![b' '; 20_000_000]).expect("it can be written");
            }
            lab.prints(0, &["lab", "upload", folder.to_str().expect("UTF-8"), "--store", place, "-q"]);
        }
    }
    let kept = buckets.path().join("bucket/throng/before/20260131-120000-crowd");
    assert_eq!(fs::metadata(kept.join("trace.json")).expect("it came in parts").len(), 20_000_000);
    // Listed by the index, which is made again if it is lost.
    let listed = lab.prints(0, &["lab", "runs", before]);
    assert_eq!(listed.lines().count(), 6, "{listed}");
    assert!(listed.contains("20260131-120003-crowd  crowd 1000  b3  a cpu  frame, median 5.250 ms"), "{listed}");
    let lines = lab.prints(0, &["lab", "runs", before, "--json"]);
    let first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&first["name"], &first["valid"]), (&"20260131-120000-crowd".into(), &true.into()));
    fs::write(buckets.path().join("bucket/throng/before/index.jsonl"), "damaged\n").expect("it can be written");
    let output = lab.throng(&["lab", "runs", before]);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("the index has 1 damaged line;") && notes.contains("the index lacks 6 runs;"), "{notes}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), listed);
    assert_eq!(lab.prints(0, &["lab", "runs", before, "--json", "--rebuild"]), lines);
    assert_eq!(lab.prints(0, &["lab", "runs", before, "--json"]), lines);
    // Read from there.
    let compared = lab.prints(4, &["lab", "compare", before, after, "--gate"]);
    assert!(compared.is_empty(), "{compared}");
    let one = format!("{before}/20260131-120000-crowd");
    let compared = lab.prints(0, &["lab", "compare", &one, "a", "--json"]);
    assert!(compared.contains("\"first\": [\n    \"b0\"\n  ]"), "{compared}");
    let trend = lab.prints(0, &["lab", "trend", before]);
    assert!(trend.contains("crowd 1000 on a cpu: 6 revisions, 6 runs\n  no change"), "{trend}");
    let page = lab.prints(2, &["report", &one]);
    assert!(
        page.contains("summary.json") && lab.folder.path().join("runs/20260131-120000-crowd/summary.json").is_file()
    );
    let pages = lab.prints(0, &["lab", "report", before]);
    assert!(pages.contains("index.html"), "{pages}");
    assert_eq!(
        fs::read_dir(lab.folder.path().join("runs")).expect("runs").count(),
        7,
        "six runs, and the list of them"
    );
    // Refused.
    let taken = lab.prints(2, &["lab", "upload", "b/20260131-120000-crowd", "--store", before]);
    assert!(taken.contains("is there already, and was not changed"), "{taken}");
    let nowhere = lab.prints(2, &["lab", "compare", &format!("{before}/20260131-129999-crowd"), before]);
    assert!(nowhere.contains("has no run"), "{nowhere}");
    let bucket = lab.prints(1, &["lab", "upload", "b/20260131-120000-crowd", "--store", "s3://none/x"]);
    assert!(bucket.contains("s3://none/x") && bucket.lines().count() == 1, "{bucket}");
    // Wrong keys are an answer, and no reason to try again.
    let mut command = lab.command(&["lab", "runs", before]);
    let output = command.env("AWS_SECRET_ACCESS_KEY", "another").output().expect("it starts");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains(before), "{words}");
    let lab = Lab { server: ([127, 0, 0, 1], 9).into(), ..lab };
    let silent = lab.prints(1, &["lab", "runs", before]);
    assert!(silent.contains(before) && silent.lines().count() == 1, "{silent}");
}

#[test]
fn a_measurement_sends_its_run_and_says_how_to_send_it_later() {
    let lab = Lab { folder: tempfile::tempdir().expect("a folder"), server: ([127, 0, 0, 1], 9).into() };
    crate::lab::load_file(lab.folder.path(), 0.85);
    let hold = ["lab", "run", "shell.toml", "--hold", "1s", "--amounts", "100", "-q", "--store"];
    lab.prints(0, &[&hold[..], &["store"]].concat());
    let listed = lab.prints(0, &["lab", "runs", "store"]);
    assert!(
        listed.contains("-capacity  shell by holds of 100, cpu 0.85  ") && listed.contains("capacity 100.0 units"),
        "{listed}"
    );
    let index = fs::read_to_string(lab.folder.path().join("store/index.jsonl")).expect("there is an index");
    assert_eq!(index.lines().count(), 1);
    // A wrong place costs no run.
    let wrong = lab.prints(2, &[&hold[..], &["ftp://there"]].concat());
    assert!(wrong.contains("use a folder"), "{wrong}");
    fs::write(lab.folder.path().join("file"), "").expect("it can be written");
    lab.prints(2, &[&hold[..], &["file"]].concat());
    let runs = fs::read_dir(lab.folder.path().join("runs")).expect("runs").flatten();
    assert_eq!(runs.filter(|entry| entry.path().is_dir()).count(), 1);
    // The summary of a run in a store is damaged: it is left out, and named.
    let damaged = run(&lab.folder.path().join("store"), "20260101-000000-crowd", "x", 1.0);
    fs::write(damaged.join("summary.json"), "{").expect("it can be written");
    let output = lab.throng(&["lab", "runs", "store"]);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("20260101-000000-crowd is left out") && output.status.success(), "{notes}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), listed);
}

#[test]
fn a_measurement_that_is_interrupted_is_undecided_and_sends_what_it_has() {
    let lab = Lab { folder: tempfile::tempdir().expect("a folder"), server: ([127, 0, 0, 1], 9).into() };
    let load = "about = \"a shell\"\nunit = \"clients\"\ncommand = [\"sh\", \"-c\", \": >begun; exec sleep 50 # {amount}\"]\n\
        start = 1\nmost = 1\n[[limits]]\nname = \"cpu\"\nabout = \"share\"\nat_most = 0.85\nlevel = \"cpu\"\n";
    fs::write(lab.folder.path().join("slow.toml"), load).expect("it can be written");
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_throng")).args([
        "lab",
        "run",
        "slow.toml",
        "--hold",
        "50s",
        "--store",
        "store",
        "-q",
    ]);
    command.current_dir(lab.folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut measurement = command.spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(40);
    while !lab.folder.path().join("begun").exists() {
        assert!(Instant::now() < until, "the load does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = measurement.id();
    let kill = |signals: &str| {
        let script = format!("for signal in {signals}; do kill -$signal {id}; done");
        assert!(Command::new("sh").args(["-c", &script]).status().expect("a shell").success());
    };
    // Its terminal is closed.
    kill("HUP");
    std::thread::sleep(Duration::from_millis(500));
    assert!(measurement.try_wait().expect("it is looked at").is_none(), "nohup is of no use");
    // Two signals at once are one request. A second request would end the program without its report.
    kill("TERM INT");
    assert_eq!(measurement.wait().expect("it ends").code(), Some(3));
    let index = fs::read_to_string(lab.folder.path().join("store/index.jsonl")).expect("there is an index");
    assert_eq!(index.lines().count(), 1);
}
