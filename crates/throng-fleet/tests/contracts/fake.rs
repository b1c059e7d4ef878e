//! A sidecar of the tests' own, after `sdk.proto` and `beta.proto` of Agones 1.61: which paths there are, what they do to the
//! GameServer, and which errors they have, as HTTP says them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
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
        }
    }

    /// Carries out a request. The status of its answer.
    pub(crate) fn handle(&mut self, method: &str, path: &str, body: &str) -> u16 {
        let Ok(body) = serde_json::from_str::<Value>(body) else { return 400 };
        match (method, path) {
            ("POST", "/ready") => self.go("Ready"),
            ("POST", "/allocate") => self.go("Allocated"),
            ("POST", "/shutdown") => self.go("Shutdown"),
            ("POST", "/health") => {
                self.health += 1;
                200
            }
            ("PATCH", _) => {
                let Some(name) = path.strip_prefix("/v1beta1/counters/") else { return 404 };
                // google.protobuf.Int64Value is a text in JSON.
                let count = body.get("count").and_then(Value::as_str).and_then(|text| text.parse::<i64>().ok());
                let (Some(count), Some((current, capacity))) = (count, self.counters.get_mut(name)) else { return 404 };
                if !(0..=*capacity).contains(&count) {
                    return 400; // OUT_OF_RANGE
                }
                *current = count;
                200
            }
            ("POST", _) => {
                let Some((name, act)) = path.strip_prefix("/v1beta1/lists/").and_then(|rest| rest.split_once(':'))
                else {
                    return 404;
                };
                let (Some(value), Some(list)) = (body.get("value").and_then(Value::as_str), self.lists.get_mut(name))
                else {
                    return 404; // NOT_FOUND
                };
                let status = change_list(list, act, value);
                self.most_values = self.most_values.max(list.0.len());
                status
            }
            _ => 405,
        }
    }

    fn go(&mut self, state: &str) -> u16 {
        self.state = state.to_owned();
        self.history.push(state.to_owned());
        200
    }
}

fn change_list((values, capacity): &mut (BTreeSet<String>, usize), act: &str, value: &str) -> u16 {
    match act {
        "addValue" if values.contains(value) => 409,    // ALREADY_EXISTS
        "addValue" if values.len() >= *capacity => 400, // OUT_OF_RANGE
        "addValue" => {
            values.insert(value.to_owned());
            200
        }
        "removeValue" if values.remove(value) => 200,
        _ => 404,
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
        let status = server.lock().ok()?.handle(&method, &path, std::str::from_utf8(&body).ok()?);
        let answer = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}");
        writer.write_all(answer.as_bytes()).ok()?;
    }
}
