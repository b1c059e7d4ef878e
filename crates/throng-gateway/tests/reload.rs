//! SIGHUP's work: everything that the files say now, or nothing of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::serving::{eventually, soon};
use tempfile::TempDir;
use throng_channeld::client::{Client, ClientError, ClientOptions};
use throng_channeld::proto::ServerForwardMessage;
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

/// A part of a test of `side_by_side`.
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

/// A part of a test of `side_by_side`.
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
