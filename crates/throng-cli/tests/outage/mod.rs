//! A gateway that can be killed and started again, and players that reconnect.

pub(crate) mod player;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use player::View;
use tempfile::TempDir;
use throng_channeld::client::{Client, ClientOptions};

/// Players of a test.
pub(crate) const PLAYERS: usize = 6;

/// Time until the next attempt after a refused login.
const RETRY: Duration = Duration::from_millis(50);

/// Everything here takes a second or two; a machine that is busy may take longer.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// `throng gateway` in a process of its own.
pub(crate) struct GatewayProcess {
    pub(crate) servers: SocketAddr,
    pub(crate) clients: SocketAddr,
    arguments: Vec<String>,
    process: Child,
    _folder: TempDir,
}

impl GatewayProcess {
    /// Starts it with a world of two cells that one server owns.
    pub(crate) fn start(more: &[&str]) -> GatewayProcess {
        let folder = tempfile::tempdir().expect("a folder for the settings");
        let spatial = folder.path().join("spatial.json");
        std::fs::write(&spatial, world::SPATIAL).expect("the folder is ours");
        let [servers, clients] = own_addresses();
        let mut arguments: Vec<String> = [
            "gateway",
            "-dev",
            "-chs=ue",
            "-cfsm=client_non_authoratative_fsm.json",
            "-http=",
            "-limit",
            "max_new_connections_per_address_per_s=0",
        ]
        .map(str::to_owned)
        .into();
        arguments.extend([format!("-sa={servers}"), format!("-ca={clients}"), format!("-scc={}", spatial.display())]);
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        let process = run(&arguments);
        GatewayProcess { servers, clients, arguments, process, _folder: folder }
    }

    /// SIGKILL: it has no time for anything.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Another one with the same settings, at the same addresses.
    pub(crate) fn restart(&mut self) {
        self.process = run(&self.arguments);
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // An error here means that it was already killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(arguments: &[String]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

/// Addresses that nobody else takes between two lives of a gateway: on a host of the machine's own network that no other
/// process has, because it is made of this one's number.
fn own_addresses() -> [SocketAddr; 2] {
    static GATEWAYS: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 128 | high, middle, low);
    let port = 20_000 + 2 * GATEWAYS.fetch_add(1, Ordering::Relaxed);
    [port, port + 1].map(|port| (host, port).into())
}

/// A connection that has logged in, after as many attempts as needed; `None` if `stop` is set first.
pub(crate) fn come_in(address: SocketAddr, name: &str, stop: &AtomicBool) -> Option<(Client, bool)> {
    while !stop.load(Ordering::Relaxed) {
        let client = Client::connect(address, ClientOptions::default());
        let admitted = client.and_then(|mut client| {
            let answer = client.authenticate(name, "secret", Instant::now() + Duration::from_secs(5))?;
            Ok((client, answer.should_recover))
        });
        if let Ok(admitted) = admitted {
            return Some(admitted);
        }
        thread::sleep(RETRY);
    }
    None
}

/// Players, each in a thread of its own.
pub(crate) struct Players {
    views: Vec<Arc<Mutex<View>>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Players {
    pub(crate) fn join(gateway: &GatewayProcess) -> Players {
        let stop = Arc::new(AtomicBool::new(false));
        let views: Vec<Arc<Mutex<View>>> = (0..PLAYERS).map(|_| Arc::default()).collect();
        let play = |(number, view): (usize, &Arc<Mutex<View>>)| {
            let (view, stop, address) = (Arc::clone(view), Arc::clone(&stop), gateway.clients);
            thread::spawn(move || player::play(address, &format!("player{number}"), &view, &stop))
        };
        let threads = views.iter().enumerate().map(play).collect();
        Players { views, threads, stop }
    }

    /// Waits until it holds for each of them.
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&View) -> bool) {
        let deadline = soon();
        for view in &self.views {
            while !holds(&view.lock().expect("no player has failed")) {
                let view = || view.lock().expect("no player has failed");
                assert!(Instant::now() < deadline, "{what}: not in time: {:?}", view());
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// The newest step of each entity that any of them has seen.
    pub(crate) fn newest(&self) -> BTreeMap<u32, u32> {
        let mut newest = BTreeMap::new();
        for view in &self.views {
            for (&entity, &step) in &view.lock().expect("no player has failed").steps {
                let known = newest.entry(entity).or_insert(step);
                *known = step.max(*known);
            }
        }
        newest
    }

    /// Ends the game; what each of them has seen.
    pub(crate) fn end(mut self) -> Vec<View> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("no player has failed");
        }
        self.views.iter().map(|view| view.lock().expect("no player has failed").clone()).collect()
    }
}

impl Drop for Players {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
