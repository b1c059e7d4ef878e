//! A nats-server of a test's own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// It listens within this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// The variable that names the program.
const VARIABLE: &str = "THRONG_NATS_SERVER";

/// A running nats-server with JetStream in a temporary folder. It ends when this is dropped, also by a failing test.
pub struct NatsServer {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl NatsServer {
    /// Starts one with more arguments, or says loudly that there is none to start: then the test cannot play this part.
    ///
    /// # Panics
    /// It cannot be started, or does not listen.
    pub fn start(arguments: &[&str]) -> Option<NatsServer> {
        let Some(program) = find() else {
            eprintln!(
                "\n!!! NOT TESTED over NATS: there is no nats-server. Install it with\n!!! \
                 go install github.com/nats-io/nats-server/v2@v2.15.2, or name the program in {VARIABLE}\n"
            );
            return None;
        };
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut server = NatsServer { program, folder, port, arguments, child: None };
        server.run();
        Some(server)
    }

    /// Its address, as clients name it.
    pub fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts it, again with the same store. Members wait for it themselves.
    ///
    /// # Panics
    /// It cannot be started, or does not listen.
    pub fn run(&mut self) {
        let child = Command::new(&self.program)
            .args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-js", "-sd"])
            .arg(self.folder.path())
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server can be started");
        self.child = Some(child);
        let end = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < end, "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// As `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let go = std::env::var_os("GOPATH").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go"));
    let installed = [go, home].into_iter().flatten().map(|folder| folder.join("bin"));
    std::env::split_paths(&folders)
        .chain(installed)
        .map(|folder| folder.join("nats-server"))
        .find(|file| file.is_file())
}
