//! A session is recorded by one gateway and played against another.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lines::NOBODY;
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::replay::ReplayWriter;
use throng_channeld::{Header, message_type, put_message};
use throng_gateway::engine::port::Side;
use throng_gateway::serve::Gateway;
use throng_gateway::settings;

fn gateway(more: &[&str]) -> Gateway {
    let words = [&["-dev", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http="], more].concat();
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

/// Records a client that logs in and says ten things, 20 ms apart.
fn record(folder: &Path) -> PathBuf {
    let gateway = gateway(&["-erp", &format!("-rspd={}", folder.display())]);
    let mut client = Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("open");
    client.authenticate("ada", "secret", Instant::now() + Duration::from_secs(20)).expect("let in");
    for number in 0..10u8 {
        std::thread::sleep(Duration::from_millis(20));
        client.send_bytes(Header::new(0, message_type::UNREAL_RPC), &[number]).expect("connected");
    }
    while gateway.report().expect("the engine answers").counters.of(Side::Client).messages_in < 11 {
        std::thread::sleep(Duration::from_millis(5));
    }
    client.close();
    gateway.shut_down();
    let files: Vec<PathBuf> = fs::read_dir(folder).expect("there").flatten().map(|entry| entry.path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn r22_what_one_gateway_recorded_another_one_hears() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = record(folder.path());
    let gateway = Arc::new(gateway(&[]));
    let to = gateway.addresses()[1].to_string();
    let (code, said, progress) = replay(&file, &to, &["--connections", "5", "--speed", "2"]);
    assert_eq!(code, Some(0), "{said}\n{progress}");
    assert!(progress.contains("11 packets, 11 messages"), "{progress}");
    assert!(said.contains("5 connections") && said.contains("0 ended early") && said.contains("5 let in"), "{said}");
    assert!(said.contains("55 packets, 55 messages sent"), "{said}");
    assert_eq!(gateway.report().expect("it answers").counters.of(Side::Client).messages_in, 55);
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
