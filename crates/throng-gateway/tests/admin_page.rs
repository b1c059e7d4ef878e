//! The page for operators: what it shows, what it does, and for whom it does nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::proto::{ChannelType, CreateChannelMessage, CreateEntityChannelMessage};
use throng_channeld::{Header, message_type};
use throng_gateway::auth::AcceptAll;
use throng_gateway::serve::{Gateway, Reason, ServeError, ServeOptions, Transport};
use throng_gateway::settings;

use crate::serving::{Serving, eventually, serve, serve_with, soon, wait_for_end};

fn with_page(options: &mut ServeOptions) {
    options.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// A request with these lines of its own.
fn request(serving: &Serving, method: &str, path: &str, lines: &str, body: &str) -> Answer {
    let address = serving.gateway.admin_address().expect("there is a page");
    let mut stream = TcpStream::connect(address).expect("open");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    let host = if lines.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    let length = body.len();
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\n{host}{lines}{form}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

fn get(serving: &Serving, path: &str) -> Answer {
    request(serving, "GET", path, "", "")
}

fn post(serving: &Serving, path: &str, body: &str) -> Answer {
    request(serving, "POST", path, "", body)
}

/// JSON, which may come in chunks: what is between the first and the last brace.
fn json(serving: &Serving, path: &str) -> Value {
    let Answer { status, body, .. } = get(serving, path);
    assert_eq!(status, 200, "{path}: {body}");
    let (begin, end) = (body.find('{').expect("an object"), body.rfind('}').expect("an object"));
    serde_json::from_str(&body[begin..=end]).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

fn token(serving: &Serving) -> String {
    json(serving, "/api/overview")["token"].as_str().expect("a token").to_owned()
}

fn joined(serving: &Serving, name: &str) -> Client {
    let mut client = serving.connect(ClientOptions::default());
    client.authenticate(name, "", soon()).expect("it is let in");
    client
}

#[test]
fn an_operator_sees_connections_and_channels_and_can_end_one() {
    let serving = serve(Transport::Tcp, with_page);
    let mut eve = joined(&serving, "eve <script>");
    let _ada = joined(&serving, "ada");
    let overview = json(&serving, "/api/overview");
    assert_eq!((&overview["servers"], &overview["clients"]), (&1.into(), &2.into()));
    let connections = json(&serving, "/api/connections");
    let rows = connections["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    let row = rows.iter().find(|row| row["player"] == "eve <script>").expect("she is there");
    assert_eq!((&row["side"], &row["stage"]), (&"CLIENT".into(), &"member".into()));
    assert_eq!(row["connection"].as_u64(), Some(eve.connection_id().into()));
    let channels = json(&serving, "/api/channels");
    assert_eq!((&channels["rows"][0]["kind"], &channels["next"]), (&"GLOBAL".into(), &Value::Null));
    let page = get(&serving, "/connections");
    assert!(page.body.contains("eve &lt;script&gt;") && !page.body.contains("<script>"), "{}", page.body);
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    for path in ["/", "/channels", "/cells", "/entities", "/bans"] {
        let page = get(&serving, path);
        assert!(page.status == 200 && page.body.contains("<!doctype html>"), "{path}");
    }
    let body = format!("connection={}&token={}", eve.connection_id(), token(&serving));
    assert_eq!(post(&serving, "/kick", &body).status, 303);
    wait_for_end(&mut eve);
    eventually("she is gone", || json(&serving, "/api/connections")["rows"].as_array().map(Vec::len) == Some(2));
    assert_eq!(post(&serving, "/kick", &body).status, 404);
    serving.end();
}

const TWO_CELLS: &str = r#"{ "SpatialControllerType": "StaticGrid2D", "Config": {
    "WorldOffsetX": 0, "WorldOffsetZ": 0, "GridWidth": 10, "GridHeight": 10, "GridCols": 2, "GridRows": 1,
    "ServerCols": 1, "ServerRows": 1, "ServerInterestBorderSize": 0 } }"#;

#[test]
fn an_operator_sees_cells_with_their_entities_and_who_owns_them() {
    const CELL: u32 = 0x1_0000;
    const ENTITY: u32 = 0x8_0000;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("world.json");
    std::fs::write(&file, TWO_CELLS).expect("written");
    let words = ["-chs=ue".to_owned(), format!("-scc={}", file.display())];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let serving = serve_with(Transport::Tcp, &words, Arc::new(AcceptAll), with_page);
    let mut world =
        Client::connect(serving.gateway.addresses()[0], ClientOptions::default()).expect("the door is open");
    world.authenticate("cells", "", soon()).expect("servers are let in");
    let create = CreateChannelMessage { channel_type: ChannelType::Spatial.into(), ..Default::default() };
    world.send(Header::new(0, message_type::CREATE_SPATIAL_CHANNEL), &create).expect("connected");
    world.wait_for(message_type::CREATE_SPATIAL_CHANNEL, soon()).expect("it owns the cells");
    let entity = CreateEntityChannelMessage { entity_id: ENTITY, ..Default::default() };
    world.send(Header::new(CELL, message_type::CREATE_ENTITY_CHANNEL), &entity).expect("connected");
    world.wait_for(message_type::CREATE_ENTITY_CHANNEL, soon()).expect("it owns the entity");
    let owner = Value::from(world.connection_id());
    let cells = json(&serving, "/api/cells");
    let cells = cells["rows"].as_array().expect("rows");
    let counts: Vec<[&Value; 3]> =
        cells.iter().map(|cell| [&cell["channel"], &cell["entities"], &cell["owner"]]).collect();
    assert_eq!(counts, [[&CELL.into(), &1.into(), &owner], [&(CELL + 1).into(), &0.into(), &owner]]);
    let entities = json(&serving, "/api/entities");
    let row = &entities["rows"][0];
    assert_eq!([&row["channel"], &row["cell"], &row["owner"]], [&ENTITY.into(), &CELL.into(), &owner]);
    for (path, shown) in [("/cells", CELL), ("/entities", ENTITY)] {
        let page = get(&serving, path);
        assert!(page.body.contains(&shown.to_string()), "{path}: {}", page.body);
    }
    drop(world);
    serving.end();
}

#[test]
fn tables_come_in_pages_of_a_bounded_size() {
    let serving = serve(Transport::Tcp, with_page);
    let _clients: Vec<Client> = (0..120).map(|number| joined(&serving, &format!("player {number}"))).collect();
    let first = json(&serving, "/api/connections");
    assert_eq!(first["rows"].as_array().map(Vec::len), Some(100));
    let next = first["next"].as_u64().expect("there is more");
    let second = json(&serving, &format!("/api/connections?from={next}"));
    assert_eq!((second["rows"].as_array().map(Vec::len), &second["next"]), (Some(21), &Value::Null));
    let beyond = json(&serving, "/api/connections?from=18446744073709551615");
    assert_eq!(beyond["rows"].as_array().map(Vec::len), Some(0));
    serving.end();
}

#[test]
fn a_ban_is_seen_and_can_be_forgiven() {
    let serving = serve(Transport::Tcp, |options| {
        with_page(options);
        let limits = &mut options.doors[1].limits;
        (limits.strikes, limits.counts_loopback) = (1, true);
    });
    let mut client = serving.connect(ClientOptions::default());
    client.send_raw(b"nonsense").expect("connected");
    wait_for_end(&mut client);
    wait_for_end(&mut serving.connect(ClientOptions::default()));
    serving.counts(Reason::Banned, 1);
    let bans = json(&serving, "/api/bans");
    assert_eq!(bans["addresses"][0][0], "127.0.0.1");
    let body = format!("address=127.0.0.1&token={}", token(&serving));
    assert_eq!(post(&serving, "/unban", &body).status, 303);
    assert_eq!(json(&serving, "/api/bans")["addresses"].as_array().map(Vec::len), Some(0));
    drop(joined(&serving, "ada"));
    assert_eq!(post(&serving, "/unban", &body).status, 404);
    serving.end();
}

#[test]
fn pages_of_others_can_neither_read_nor_do_anything() {
    let serving = serve(Transport::Tcp, with_page);
    let ada = joined(&serving, "ada");
    let kick = |token: &str| format!("connection={}&token={token}", ada.connection_id());
    let token = token(&serving);
    for (lines, body, status) in [
        ("", kick(""), 403),
        ("", kick("0123456789abcdef0123456789abcdef"), 403),
        ("Origin: http://evil.example\r\n", kick(&token), 403),
        ("Origin: null\r\n", kick(&token), 403),
        ("Host: evil.example\r\n", kick(&token), 421),
    ] {
        assert_eq!(request(&serving, "POST", "/kick", lines, &body).status, status, "{lines}");
    }
    for path in ["/", "/api/overview", "/connections"] {
        assert_eq!(request(&serving, "GET", path, "Host: evil.example:80\r\n", "").status, 421, "{path}");
    }
    assert_eq!(get(&serving, &format!("/kick?{}", kick(&token))).status, 405);
    assert_eq!(json(&serving, "/api/overview")["clients"], 1, "nobody was ended");
    serving.end();
}

#[test]
fn the_page_is_on_no_address_that_others_reach() {
    let settings = settings::load(["-dev", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http=", "-admin=0.0.0.0:0"]);
    let error = Gateway::from_settings(settings.expect("sound"), 1, 0).err().expect("it does not start");
    assert!(error.to_string().contains("-admin=0.0.0.0:0"), "{error}");
    assert!(matches!(error, throng_gateway::StartError::Serve(ServeError::AdminAddress(_))));
}
