//! A session is recorded by one gateway and played against another.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::lines::NOBODY;
use prost::Message as _;
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::proto::unrealpb::{FVector, SpawnObjectMessage};
use throng_channeld::proto::{
    Any, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    SubscribedToChannelMessage,
};
use throng_channeld::replay::ReplayWriter;
use throng_channeld::{Header, message_type, put_message};
use throng_gateway::serve::Gateway;
use throng_gateway::settings;
use throng_gateway_engine::port::Side;

fn gateway(more: &[&str]) -> Gateway {
    let words =
        [&["-dev", "-cfsm=client_authoratative_fsm.json", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http="], more]
            .concat();
    Gateway::from_settings(settings::load(&words).expect("sound"), 7, 0).expect("loopback has free ports")
}

fn replay(file: &Path, to: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_throng"))
        .args(["gateway-replay", file.to_str().expect("text"), "--to", to])
        .args(more)
        .output()
        .expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The room that the recorded client opens: the first channel after GLOBAL.
const ROOM: u32 = 1;

const UPDATES: u32 = 10;

/// One update of the room. Each has the number; only some have a place, and not always all of it.
fn update(number: u32) -> SpawnObjectMessage {
    let location = FVector {
        x: number.is_multiple_of(2).then_some(number as f32),
        y: number.is_multiple_of(3).then_some(-0.5 * number as f32),
        z: (number == 4).then_some(0.25),
    };
    let location = (location != FVector::default()).then_some(location);
    SpawnObjectMessage { channel_id: Some(number), location, ..Default::default() }
}

/// The room after all updates, without any help of a gateway: the rules of protobuf's merge.
fn expected() -> SpawnObjectMessage {
    let mut state = SpawnObjectMessage::default();
    for number in 1..=UPDATES {
        state.merge(update(number).encode_to_vec().as_slice()).expect("a message of that type");
    }
    state
}

/// The room as a client sees it who comes to the gateway and reads until the last update is there.
fn read_room(gateway: SocketAddr) -> SpawnObjectMessage {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut reader = Client::connect(gateway, ClientOptions::default()).expect("open");
    reader.authenticate("eve", "secret", deadline).expect("let in");
    let mut state = SpawnObjectMessage::default();
    let mut ask_at = Instant::now();
    let mut is_in = false;
    while state.channel_id != Some(UPDATES) {
        assert!(Instant::now() < deadline, "the room stays at {state:?}");
        if !is_in && Instant::now() >= ask_at {
            // A channel that is not there yet is refused in silence.
            let options = ChannelSubscriptionOptions { fan_out_interval_ms: Some(20), ..Default::default() };
            let subscribe = SubscribedToChannelMessage { conn_id: reader.connection_id(), sub_options: Some(options) };
            reader.send(Header::new(ROOM, message_type::SUB_TO_CHANNEL), &subscribe).expect("connected");
            ask_at += Duration::from_millis(50);
        }
        let Some(message) = reader.poll(Instant::now() + Duration::from_millis(20)).expect("connected") else {
            continue;
        };
        if message.channel_id == ROOM && message.msg_type == message_type::SUB_TO_CHANNEL {
            is_in = true;
        } else if message.channel_id == ROOM && message.msg_type == message_type::CHANNEL_DATA_UPDATE {
            let update: ChannelDataUpdateMessage = message.decode().expect("an update");
            let data = update.data.expect("it has data");
            state.merge(&*data.value).expect("a message of that type");
        }
    }
    state
}

/// Records a client that logs in, opens a room and writes to it, 20 ms apart. Returns the room as another client saw it.
fn record(folder: &Path) -> (PathBuf, SpawnObjectMessage) {
    let gateway = gateway(&["-erp", &format!("-rspd={}", folder.display())]);
    let mut client = Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("open");
    client.authenticate("ada", "secret", Instant::now() + Duration::from_secs(20)).expect("let in");
    let create = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), ..Default::default() };
    client.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
    for number in 1..=UPDATES {
        std::thread::sleep(Duration::from_millis(20));
        let data = Some(Any::pack(&update(number)));
        let update = ChannelDataUpdateMessage { data, context_conn_id: 0 };
        client.send(Header::new(ROOM, message_type::CHANNEL_DATA_UPDATE), &update).expect("connected");
    }
    let seen = read_room(gateway.addresses()[1]);
    client.close();
    gateway.shut_down();
    let mut files: Vec<PathBuf> = fs::read_dir(folder).expect("there").flatten().map(|entry| entry.path()).collect();
    // The second connection is the reader's.
    files.sort_by_key(|file| fs::metadata(file).expect("there").len());
    (files.pop().expect("a recording"), seen)
}

#[test]
fn r22_a_recording_leads_to_the_same_state_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, seen) = record(folder.path());
    assert_eq!(seen, expected(), "at the gateway that recorded it");
    let gateway = gateway(&[]);
    let to = gateway.addresses()[1];
    let reader = std::thread::spawn(move || read_room(to));
    let (code, said, progress) = replay(&file, &to.to_string(), &["--speed", "2"]);
    assert_eq!(code, Some(0), "{said}\n{progress}");
    assert!(progress.contains("12 packets, 12 messages"), "{progress}");
    assert!(said.contains("12 packets, 12 messages sent"), "{said}");
    assert_eq!(reader.join().expect("it read the room"), expected(), "at the gateway that heard the recording");
}

#[test]
fn a_recording_is_played_by_many_connections_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, _) = record(folder.path());
    let gateway = gateway(&[]);
    let (code, said, progress) =
        replay(&file, &gateway.addresses()[1].to_string(), &["--connections", "5", "--speed", "4"]);
    assert_eq!(code, Some(0), "{said}\n{progress}");
    assert!(said.contains("5 connections") && said.contains("0 ended early") && said.contains("5 let in"), "{said}");
    assert!(said.contains("60 packets, 60 messages sent"), "{said}");
    assert_eq!(gateway.report().expect("it answers").counters.of(Side::Client).messages_in, 60);
}

#[test]
fn mistakes_are_said_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("picture.cpr"), b"PNG").expect("written");
    fs::write(path("empty.cpr"), b"").expect("written");
    for (name, says) in [("absent.cpr", "cannot read"), ("picture.cpr", "not a recording"), ("empty.cpr", "-erp")] {
        let (code, _, complaint) = replay(&path(name), "127.0.0.1:1", &[]);
        assert_eq!(code, Some(2), "{complaint}");
        assert!(complaint.contains(name) && complaint.contains(says) && complaint.lines().count() == 1, "{complaint}");
    }
    let (code, _, complaint) = replay(&path("empty.cpr"), "192.0.2.1:1", &[]);
    assert!(code == Some(2) && complaint.contains("--i-own-this-target"), "{complaint}");
}

#[test]
fn a_gateway_that_is_not_there_or_does_not_let_the_player_in_is_said_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = ReplayWriter::new(Vec::new(), 1 << 20);
    let mut packet = Vec::new();
    put_message(&mut packet, Header::new(0, message_type::AUTH), b"\x0A\x03ada");
    writer.write(0, &packet).expect("it fits");
    let path = folder.path().join("short.cpr");
    let mut bytes = writer.finish().expect("memory");
    bytes.extend_from_slice(&[0x0A, 9, 0x12]);
    fs::write(&path, bytes).expect("written");
    let tokens = folder.path().join("tokens.json");
    fs::write(&tokens, r#"{"tokens": {"ada": "secret"}}"#).expect("written");
    let gateway = gateway(&[&format!("-auth=tokens:{}", tokens.display())]);
    let (code, said, progress) = replay(&path, &gateway.addresses()[1].to_string(), &["--connections", "2"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("2 x the gateway refused the recorded login"), "{said}");
    assert!(progress.contains("the last packet is incomplete"), "{progress}");
    let (code, said, _) = replay(&path, NOBODY, &[]);
    assert!(code == Some(1) && said.contains("1 ended early"), "{said}");
    drop(File::open(&path).expect("it is left as it was"));
}
