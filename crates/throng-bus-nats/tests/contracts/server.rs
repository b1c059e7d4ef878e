//! A nats-server of the test's own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// The variable that names the program.
const VARIABLE: &str = "THRONG_NATS_SERVER";

/// A running nats-server with JetStream in a temporary folder. It ends when this is dropped, also by a failing test.
pub(crate) struct NatsServer {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl NatsServer {
    /// Starts one, or says loudly that there is none to start.
    pub(crate) fn start(arguments: &[&str]) -> Option<NatsServer> {
        let Some(program) = find() else {
            eprintln!(
                "\n!!! SKIPPED: there is no nats-server. Install it with\n!!! \
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

    pub(crate) fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts it, again with the same store. Members wait for it themselves.
    pub(crate) fn run(&mut self) {
        let child = Command::new(&self.program)
            .args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-js", "-sd"])
            .arg(self.folder.path())
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server can be started");
        self.child = Some(child);
        let end = std::time::Instant::now() + crate::PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(std::time::Instant::now() < end, "nats-server does not listen");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// As `kill -9` does.
    pub(crate) fn kill(&mut self) {
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
