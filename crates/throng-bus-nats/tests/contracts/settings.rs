//! Wrong settings are one clear line.

use std::net::TcpListener;
use std::time::Duration;

use throng_bus::{Cluster, Limits, MemberId};
use throng_bus_nats::{NatsBus, NatsOptions, Secret};

use crate::options;
use throng_testkit::NatsServer;

fn refusal(options: NatsOptions) -> (&'static str, String) {
    let error = NatsBus::start(options).expect_err("the settings are wrong");
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text:?}");
    (error.tag(), text)
}

#[test]
fn a_wrong_name_another_cluster_and_another_version_are_told_apart() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let with = |name: &str, id: u64, creates: bool| NatsOptions {
        cluster: Cluster::new(name, id).unwrap(),
        creates,
        ..options(&server, 1)
    };
    drop(NatsBus::start(with("live-eu", 7, true)).expect("it is made"));
    drop(NatsBus::start(with("live-eu", 7, false)).expect("it is there"));
    let (tag, text) = refusal(with("life-eu", 7, false));
    assert_eq!(tag, "unknown");
    assert!(text.contains("`life-eu`") && text.contains("there are live-eu"), "{text}");
    for creates in [false, true] {
        let (tag, text) = refusal(with("live-eu", 8, creates));
        assert_eq!(tag, "taken");
        assert!(text.contains("0000000000000007") && text.contains("another name"), "{text}");
    }
    let mut foreign = Cluster::new("live-us", 1).unwrap().value().to_vec();
    foreign[6] = 200;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    drop(NatsBus::start(with("live-us", 1, true)).expect("it is made"));
    runtime.block_on(async {
        let context = async_nats::jetstream::new(async_nats::connect(server.address()).await.unwrap());
        context.get_key_value("throng-live-us").await.unwrap().put("cluster", foreign.into()).await.unwrap();
    });
    let (tag, text) = refusal(with("live-us", 1, true));
    assert_eq!(tag, "version");
    assert!(text.contains("version 200") && text.contains("needs 1"), "{text}");
}

#[test]
fn a_server_that_is_not_there_or_lets_nobody_in_is_named() {
    let Some(server) = NatsServer::start(&["--auth", "secret"]) else { return };
    let (tag, text) = refusal(options(&server, 1));
    assert_eq!(tag, "not_allowed", "{text}");
    drop(NatsBus::start(NatsOptions { secret: Secret::Token("secret".to_owned()), ..options(&server, 1) }).unwrap());

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cluster = Cluster::new("test", 1).unwrap();
    let nobody = NatsOptions {
        patience: Duration::from_secs(2),
        ..NatsOptions::new(&format!("nats://127.0.0.1:{port}"), cluster, MemberId(1))
    };
    let (tag, text) = refusal(nobody);
    assert_eq!(tag, "unreachable");
    assert!(text.contains(&port.to_string()) && text.contains("start nats-server"), "{text}");
    assert_eq!(format!("{:?}", Secret::Token("secret".to_owned())), "Token(..)");
}

#[test]
fn a_server_that_takes_only_shorter_messages_is_refused_at_the_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "max_payload: 65536").unwrap();
    let Some(server) = NatsServer::start(&["-c", file.path().to_str().unwrap()]) else { return };
    let of =
        |payload_bytes| NatsOptions { limits: Limits { payload_bytes, ..Limits::default() }, ..options(&server, 1) };
    let (tag, text) = refusal(of(65_281));
    assert_eq!(tag, "payload");
    assert!(text.contains("65536 bytes") && text.contains("65537: raise max_payload"), "{text}");
    drop(NatsBus::start(of(65_280)).expect("the longest message fits"));
}
