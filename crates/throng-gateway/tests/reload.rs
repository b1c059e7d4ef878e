//! SIGHUP's work: everything that the files say now, or nothing of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::serving::{eventually, soon};
use tempfile::TempDir;
use throng_channeld::client::{Client, ClientError, ClientOptions};
use throng_channeld::proto::{Any, ChannelType, CreateChannelMessage, ServerForwardMessage};
use throng_channeld::{Broadcast, Header, message_type};
use throng_gateway::serve::{Gateway, Reason};
use throng_gateway::settings::{self, Settings};
use throng_gateway_engine::port::Side;

/// A gateway and the folder with its files.
struct Site {
    folder: TempDir,
    settings: Settings,
    gateway: Gateway,
}

/// A gateway with settings of a test; they may name files of the folder as `FOLDER/name`.
fn gateway(folder: &Path, words: &[&str]) -> (Settings, Gateway) {
    let whole = |word: &&str| word.replace("FOLDER", &folder.display().to_string());
    let settings = settings::load(words.iter().map(whole).collect::<Vec<_>>()).expect("sound arguments");
    (settings.clone(), Gateway::from_settings(settings, 7, 0).expect("everything is there"))
}

fn read_again(settings: &Settings, gateway: &Gateway) {
    gateway.reload(Arc::new(settings.reload().expect("sound files"))).expect("the engine runs");
}

impl Site {
    fn open() -> Site {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        write(folder.path(), "tokens.json", r#"{"tokens": {"ada": "old"}}"#);
        write(folder.path(), "limits.json", r#"{"max_client_messages_per_s": 1, "client_burst_messages": 1}"#);
        certify(folder.path());
        let words = [
            "-sa=127.0.0.1:0".to_owned(),
            "-ca=127.0.0.1:0".to_owned(),
            "-http=".to_owned(),
            "-listen=client,tls,127.0.0.1:0".to_owned(),
            format!("-cert={}", path("chain.pem")),
            format!("-key={}", path("key.pem")),
            format!("-auth=tokens:{}", path("tokens.json")),
            format!("-limits={}", path("limits.json")),
        ];
        let settings = settings::load(&words).expect("sound arguments");
        let gateway = Gateway::from_settings(settings.clone(), 7, 0).expect("everything is there");
        Site { folder, settings, gateway }
    }

    fn write(&self, name: &str, text: &str) {
        write(self.folder.path(), name, text);
    }

    fn reload(&self) -> Result<(), &'static str> {
        let settings = self.settings.reload().map_err(|error| error.tag())?;
        self.gateway.reload(Arc::new(settings)).map_err(|error| error.tag())
    }

    fn log_in(&self, token: &str) -> Result<Client, ClientError> {
        let mut client = Client::connect(self.gateway.addresses()[1], ClientOptions::default())?;
        client.authenticate("ada", token, soon())?;
        Ok(client)
    }

    /// A reload is an event like others: those before it are dealt with first.
    fn is_known(&self, token: &str) -> bool {
        self.log_in(token).is_ok()
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("it can be written");
}

fn certify(folder: &Path) {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    write(folder, "chain.pem", &certified.cert.pem());
    write(folder, "key.pem", &certified.signing_key.serialize_pem());
}

#[test]
fn tokens_limits_and_certificates_are_taken_over_together_or_not_at_all() {
    let site = Site::open();
    assert!(site.is_known("old") && !site.is_known("new"));
    site.write("tokens.json", r#"{"tokens": {"ada": "new"}}"#);
    for (broken, text, tag) in [
        ("chain.pem", "no certificate", "tls_config"),
        ("limits.json", r#"{"max_client_messages_per_s": 0}"#, "settings_content"),
        ("tokens.json", "no tokens", "tokens_format"),
    ] {
        let sound = fs::read_to_string(site.folder.path().join(broken)).expect("it was written");
        site.write(broken, text);
        let refused = site.reload().expect_err("a file is broken");
        assert_eq!(refused, tag, "{broken}");
        assert!(site.is_known("old") && !site.is_known("new"), "{broken}: everything stays");
        site.write(broken, &sound);
    }
    certify(site.folder.path());
    site.reload().expect("everything is sound");
    assert!(site.is_known("new") && !site.is_known("old"));
    site.gateway.shut_down();
}

#[test]
fn an_edge_that_starts_with_the_files_of_now_is_let_in_after_a_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    write(folder, "key", &"ab".repeat(32));
    write(folder, "chs.json", r#"{"1": {"TickIntervalMs": 10}}"#);
    let home = ["-dev", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http=", "-edges=127.0.0.1:0"];
    let (settings, home) = gateway(folder, &[&home[..], &["-edgekey=FOLDER/key", "-chs=FOLDER/chs.json"]].concat());
    write(folder, "chs.json", r#"{"1": {"TickIntervalMs": 20}}"#);
    let way = format!("-home={}", home.edges_address().expect("there is a door for edges"));
    let edge = ["-dev", "-ca=127.0.0.1:0", "-http=", "-edgekey=FOLDER/key", "-chs=FOLDER/chs.json", &way];
    let (_, edge) = gateway(folder, &edge);
    eventually("the edge has newer files than the home", || home.counters().edges_refused.load(Ordering::Relaxed) > 0);
    read_again(&settings, &home);
    eventually("the edge is let in", || edge.report().is_some_and(|report| report.is_linked == Some(true)));
    edge.shut_down();
    home.shut_down();
}

#[test]
fn the_longest_snapshot_changes_with_the_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let limit = |bytes: u32| write(folder.path(), "limits.json", &format!(r#"{{"max_snapshot_bytes": {bytes}}}"#));
    limit(1 << 20);
    let words = ["-dev", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http=", "-limits=FOLDER/limits.json"];
    let snapshot = ["-snapshot=FOLDER/state", "-snapshot-every=10ms"];
    let (settings, gateway) = gateway(folder.path(), &[&words[..], &snapshot].concat());
    let mut world = Client::connect(gateway.addresses()[0], ClientOptions::default()).expect("the door is open");
    world.authenticate("world", "", soon()).expect("servers are let in");
    for number in 1..=20 {
        // A string of 4,000 bytes.
        let value = [&[0x0A, 0xA0, 0x1F][..], &[b'x'; 4_000]].concat().into();
        let data = Some(Any { type_url: "x/text".into(), value });
        let create = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), data, ..Default::default() };
        world.send(Header::new(0, message_type::CREATE_CHANNEL).with_stub(number), &create).expect("connected");
    }
    let snapshots = &gateway.counters().snapshots;
    let long = || snapshots.bytes.load(Ordering::Relaxed) > 80_000;
    eventually("one has all channels", long);
    limit(65_536);
    read_again(&settings, &gateway);
    eventually("the next one is too long", || snapshots.failed.load(Ordering::Relaxed) > 0);
    limit(1 << 20);
    read_again(&settings, &gateway);
    let written = snapshots.written.load(Ordering::Relaxed);
    eventually("they are written again", || snapshots.written.load(Ordering::Relaxed) > written);
    gateway.shut_down();
}

#[test]
fn new_rules_hold_for_clients_that_several_engines_know_already() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = |list: &str| {
        let states = [
            r#"{"Name": "INIT", "MsgTypeWhitelist": "1"}"#,
            &format!(r#"{{"Name": "OPEN", "MsgTypeWhitelist": "{list}"}}"#),
        ];
        let way = r#"{"FromState": "INIT", "ToState": "OPEN", "MsgType": 1}"#;
        let text = format!(r#"{{"States": [{}], "InitState": "INIT", "Transitions": [{way}]}}"#, states.join(", "));
        write(folder.path(), "fsm.json", &text);
    };
    rules("2-65535");
    let words = ["-dev", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http=", "-unreal=false", "-engine-threads=2"];
    let (settings, gateway) = gateway(folder.path(), &[&words[..], &["-cfsm=FOLDER/fsm.json"]].concat());
    let mut client = Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("the door is open");
    client.authenticate("ada", "", soon()).expect("let in");
    let mut say = || client.send_bytes(Header::new(0, 200), b"").expect("connected");
    let count = || {
        let counters = gateway.report().expect("the engine answers").counters;
        (counters.of(Side::Client).messages_in, counters.refused.get("state_machine").copied().unwrap_or(0))
    };
    say();
    eventually("it is sorted, and allowed", || count().0 == 2);
    rules("2-99");
    read_again(&settings, &gateway);
    say();
    eventually("it is forbidden now", || count().1 == 1);
    rules("2-65535");
    read_again(&settings, &gateway);
    say();
    eventually("it is allowed again", || count().0 == 3);
    assert_eq!(count().1, 1);
    gateway.shut_down();
}

/// A part of a test of `beside`.
pub(crate) fn rates_change_for_those_who_are_inside_too() {
    let site = Site::open();
    let mut client = site.log_in("old").expect("let in");
    for _ in 0..1_000 {
        client.send_bytes(Header::new(0, message_type::UNREAL_RPC), b"").expect("connected");
    }
    let come = || site.gateway.report().expect("the engine answers").counters.of(Side::Client).messages_in;
    let too_fast = || site.gateway.counters().of(Side::Client).refused(Reason::TooFast);
    eventually("it has to wait", || too_fast() > 0);
    assert!(come() < 200, "one in a second, after a batch");
    site.write("limits.json", r#"{"max_client_messages_per_s": 100000, "client_burst_messages": 1000}"#);
    site.reload().expect("everything is sound");
    eventually("all have come", || come() >= 1_001);
    site.gateway.shut_down();
}

/// A part of a test of `beside`.
pub(crate) fn what_may_wait_changes_for_those_who_are_inside_too() {
    const MESSAGES: usize = 200;
    let bound = |mib: u32| format!(r#"{{"queue_hard_bytes": {}, "queue_soft_bytes": 65536}}"#, mib << 20);
    let site = Site::open();
    site.write("limits.json", &bound(1));
    site.reload().expect("everything is sound");
    let mut client = site.log_in("old").expect("let in");
    let mut world = Client::connect(site.gateway.addresses()[0], ClientOptions::default()).expect("the door is open");
    world.authenticate("world", "", soon()).expect("servers are let in");
    let header = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..Header::new(0, message_type::UNREAL_RPC) };
    let payload = vec![7; 50_000].into();
    let message = ServerForwardMessage { client_conn_id: client.connection_id(), payload };
    let sent = || site.gateway.report().expect("the engine answers").counters.of(Side::Server).messages_in;
    let too_slow = || site.gateway.counters().of(Side::Client).refused(Reason::TooSlow);

    site.write("limits.json", &bound(32));
    site.reload().expect("everything is sound");
    // 10 MB wait for a client that does not read: more than it was allowed when it came.
    for _ in 0..MESSAGES {
        world.send(header, &message).expect("connected");
    }
    eventually("all are sent", || sent() > MESSAGES as u64);
    for _ in 0..MESSAGES / 2 {
        client.wait_for(message_type::UNREAL_RPC, soon()).expect("nothing is lost, and it is still inside");
    }
    assert_eq!(too_slow(), 0);

    site.write("limits.json", &bound(1));
    site.reload().expect("everything is sound");
    for _ in 0..MESSAGES {
        world.send(header, &message).expect("connected");
    }
    let members = || site.gateway.report().map(|report| report.occupancy.clients);
    eventually("it is ended", || members() == Some(0));
    site.gateway.shut_down();
}
