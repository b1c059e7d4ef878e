//! A sidecar of the tests' own, after `sdk.proto` and `beta.proto` of Agones 1.61: which paths there are, what they do to the
//! GameServer, and which errors they have. Agones gives counters and lists plain errors, which HTTP says as 500 with a text.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// The state of the GameServer resource.
#[derive(Debug)]
pub(crate) struct GameServer {
    pub(crate) state: String,
    /// All states in order.
    pub(crate) history: Vec<String>,
    pub(crate) health: u64,
    /// The most values that a list had.
    pub(crate) most_values: usize,
    /// Count and capacity.
    pub(crate) counters: BTreeMap<String, (i64, i64)>,
    /// Values and capacity.
    pub(crate) lists: BTreeMap<String, (BTreeSet<String>, usize)>,
    /// The feature of Agones with this name is on.
    pub(crate) has_counts_and_lists: bool,
    /// A file, and whether it was there when the shutdown was asked for.
    pub(crate) file: Option<(PathBuf, bool)>,
}

impl GameServer {
    /// A GameServer whose Fleet declares a counter and a list `matches`.
    pub(crate) fn new(capacity: usize) -> GameServer {
        let name = || "matches".to_owned();
        GameServer {
            state: "Scheduled".to_owned(),
            history: Vec::new(),
            health: 0,
            most_values: 0,
            counters: BTreeMap::from([(name(), (0, capacity as i64))]),
            lists: BTreeMap::from([(name(), (BTreeSet::new(), capacity))]),
            has_counts_and_lists: true,
            file: None,
        }
    }

    /// Carries out a request. The status and the body of its answer.
    pub(crate) fn handle(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        match self.carry_out(method, path, body) {
            Ok(()) => (200, "{}".to_owned()),
            Err((status, message)) => {
                let code = if status == 500 { 2 } else { 5 };
                (status, serde_json::json!({ "code": code, "message": message, "details": [] }).to_string())
            }
        }
    }

    fn carry_out(&mut self, method: &str, path: &str, body: &str) -> Result<(), (u16, String)> {
        let body = serde_json::from_str::<Value>(body).map_err(|error| (400, error.to_string()))?;
        let no_path = || (404, "Not Found".to_owned());
        if path.starts_with("/v1beta1/") && !self.has_counts_and_lists {
            return plain("CountsAndLists not enabled");
        }
        match (method, path) {
            ("POST", "/ready") => self.go("Ready"),
            ("POST", "/allocate") => self.go("Allocated"),
            ("POST", "/shutdown") => {
                self.file.iter_mut().for_each(|(path, is_there)| *is_there = path.exists());
                self.go("Shutdown")
            }
            ("POST", "/health") => {
                self.health += 1;
                Ok(())
            }
            ("PATCH", _) => {
                let name = path.strip_prefix("/v1beta1/counters/").ok_or_else(no_path)?;
                // google.protobuf.Int64Value is a text in JSON.
                let count = body.get("count").and_then(Value::as_str).and_then(|text| text.parse::<i64>().ok());
                let count = count.ok_or((400, "no count".to_owned()))?;
                let Some((current, capacity)) = self.counters.get_mut(name) else {
                    return plain(&format!("counter not found: {name}"));
                };
                if !(0..=*capacity).contains(&count) {
                    let rule = "out of range. Count must be within range [0,Capacity]";
                    return plain(&format!("{rule}. Found Count: {count}, Capacity: {capacity}"));
                }
                *current = count;
                Ok(())
            }
            ("POST", _) => {
                let rest = path.strip_prefix("/v1beta1/lists/").ok_or_else(no_path)?;
                let (name, act) = rest.split_once(':').ok_or_else(no_path)?;
                let value = body.get("value").and_then(Value::as_str).ok_or((400, "no value".to_owned()))?;
                let Some(list) = self.lists.get_mut(name) else {
                    return plain(&format!("list not found: {name}"));
                };
                let result = change_list(list, name, act, value);
                self.most_values = self.most_values.max(list.0.len());
                result
            }
            _ => Err((405, "Method Not Allowed".to_owned())),
        }
    }

    fn go(&mut self, state: &str) -> Result<(), (u16, String)> {
        self.state = state.to_owned();
        self.history.push(state.to_owned());
        Ok(())
    }
}

/// An error without a code of gRPC, which is UNKNOWN.
fn plain(message: &str) -> Result<(), (u16, String)> {
    Err((500, message.to_owned()))
}

/// The room is looked at before the value, as Agones does.
fn change_list(
    (values, capacity): &mut (BTreeSet<String>, usize),
    name: &str,
    act: &str,
    value: &str,
) -> Result<(), (u16, String)> {
    match act {
        "addValue" if values.len() >= *capacity => {
            let size = values.len();
            plain(&format!("out of range. No available capacity. Current Capacity: {capacity}, List Size: {size}"))
        }
        "addValue" if values.contains(value) => {
            plain(&format!("already exists. Value: {value} already in List: {name}"))
        }
        "addValue" => {
            values.insert(value.to_owned());
            Ok(())
        }
        "removeValue" if values.remove(value) => Ok(()),
        "removeValue" => plain(&format!("not found. Value: {value} not found in List: {name}")),
        _ => Err((404, "Not Found".to_owned())),
    }
}

/// The sidecar on a port of this machine, until the process ends.
pub(crate) struct FakeSidecar {
    pub(crate) port: u16,
    pub(crate) server: Arc<Mutex<GameServer>>,
}

impl FakeSidecar {
    pub(crate) fn start(capacity: usize) -> FakeSidecar {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it is bound").port();
        let server = Arc::new(Mutex::new(GameServer::new(capacity)));
        let theirs = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = theirs.clone();
                std::thread::spawn(move || serve(stream, &server));
            }
        });
        FakeSidecar { port, server }
    }
}

/// Answers requests of one connection, which may stay open.
fn serve(stream: TcpStream, server: &Mutex<GameServer>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            if header.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, body) = server.lock().ok()?.handle(&method, &path, std::str::from_utf8(&body).ok()?);
        let length = body.len();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        writer.write_all((head + &body).as_bytes()).ok()?;
    }
}
