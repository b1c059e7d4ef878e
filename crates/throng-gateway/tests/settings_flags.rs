//! channeld's command line, in all the ways in which Go lets people write it.

use std::io;

use throng_channeld::proto::ChannelType;
use throng_gateway::settings::{AuthProvider, LogLevel, Network, Settings, SettingsError, load_with, usage};
use throng_gateway_engine::settings::MovementTypes;

fn load(line: &str) -> Result<Settings, SettingsError> {
    load_with(line.split_whitespace(), &|_| Err(io::Error::new(io::ErrorKind::NotFound, "no such file")))
}

fn refused(line: &str) -> String {
    load(line).unwrap_err().to_string()
}

#[test]
fn an_empty_line_means_what_channeld_means_by_it() {
    let settings = load("").unwrap();
    assert_eq!((settings.server.network, settings.server.address.as_str()), (Network::Tcp, ":11288"));
    assert_eq!((settings.client.network, settings.client.address.as_str()), (Network::Tcp, ":12108"));
    assert!(!settings.engine.development && settings.engine.server_bypass_auth);
    assert!(!settings.client_waits_for_master, "channeld says yes here, and its command does not heed it");
    assert!(!settings.engine.server_recovery && !settings.record_clients && !settings.engine.advises_snappy);
    assert_eq!((settings.engine.spatial_channel_start, settings.engine.entity_channel_start), (0x1_0000, 0x8_0000));
    assert_eq!((settings.engine.connection_id_bits, settings.log_level), (31, LogLevel::Info));
    let limits = settings.engine.limits;
    assert_eq!((limits.max_unauthenticated_ms, limits.max_failed_auth, limits.max_fsm_violations), (5_000, 5, 10));
    assert_eq!(settings.http_address, "127.0.0.1:8080");
}

#[test]
fn all_of_channeld_s_flags_are_taken() {
    let settings = load(
        "-dev -loglevel -1 -logfile logs/{time}.log -profile cpu -profilepath p -sn ws -sa 0.0.0.0:1/path -srb 1 -swb 2 \
         -sfsm config/server_authoratative_fsm.json -sba=false -scr -scrt 9000 -cn kcp -ca :2 -crb 3 -cwb 4 \
         -cfsm x/client_authoratative_fsm.json -cwm=false -erp -rspd records -ct 1 -scs 0x20000 -ecs 0x90000 -mcb 13 \
         -cat 1000 -mfaa 2 -mfd 3 -chs config/channel_settings_ue.json",
    )
    .unwrap();
    assert!(
        settings.engine.development
            && settings.engine.server_recovery
            && settings.record_clients
            && settings.engine.advises_snappy
    );
    assert!(!settings.engine.server_bypass_auth && !settings.client_waits_for_master);
    assert_eq!((settings.server.network, settings.client.network), (Network::WebSocket, Network::Kcp));
    assert_eq!((settings.server.host_and_port(), settings.server.path()), ("0.0.0.0:1", Some("/path")));
    assert_eq!((settings.client.host_and_port(), settings.client.path()), (":2", None));
    assert_eq!((settings.engine.spatial_channel_start, settings.engine.entity_channel_start), (0x2_0000, 0x9_0000));
    assert_eq!((settings.engine.server_recovery_ms, settings.engine.connection_id_bits), (Some(9_000), 13));
    let limits = settings.engine.limits;
    assert_eq!((limits.max_unauthenticated_ms, limits.max_failed_auth, limits.max_fsm_violations), (1_000, 2, 3));
    assert_eq!(settings.engine.channel_types.of(5).tick_interval_ms, 33);
    assert_eq!(settings.auth, AuthProvider::Everybody, "-dev without a provider");
    for flag in ["-srb", "-swb", "-crb", "-cwb", "config/server_authoratative_fsm.json"] {
        assert!(settings.notes.iter().any(|note| note.to_string().starts_with(flag)), "{flag} has no note");
    }
}

#[test]
fn of_profiles_only_that_of_the_processor_is_taken() {
    assert!(load("-dev -profile cpu").unwrap().notes.iter().all(|note| !note.to_string().contains("-profile")));
    for other in ["mem", "goroutine"] {
        let settings = load(&format!("-dev -profile {other}")).unwrap();
        assert!(settings.notes.iter().any(|note| note.to_string().contains("has no effect")), "{other}");
    }
    assert!(load("-dev -profile heap").is_err());
}

#[test]
fn one_dash_or_two_an_equals_sign_or_a_word() {
    for line in [
        "-mcb=13",
        "--mcb=13",
        "-mcb 13",
        "--mcb 13",
        "-mcb=0xD",
        "-mcb=0b1101",
        "-mcb=015",
        "-mcb=1_3",
        "-mcb 7 -mcb 13",
    ] {
        assert_eq!(load(line).unwrap().engine.connection_id_bits, 13, "{line}");
    }
    for (line, is_on) in
        [("-dev", true), ("--dev=T", true), ("-dev=1", true), ("-dev=False", false), ("-dev -dev=0", false)]
    {
        assert_eq!(load(line).unwrap().engine.development, is_on, "{line}");
    }
    assert_eq!(load("-loglevel=-3").unwrap().log_level, LogLevel::VeryVerbose);
}

#[test]
fn a_complaint_names_the_flag() {
    for (line, text) in [
        ("-mcb", "-mcb needs a value"),
        ("-mcb=33", "-mcb=33: expected a whole number from 1 to 32"),
        ("-mcb=x", "-mcb=x: expected a whole number from 1 to 32"),
        ("-mcb=1__3", "-mcb=1__3: expected a whole number from 1 to 32"),
        ("-dev=maybe", "-dev=maybe: expected true or false"),
        ("-cn=udp", "-cn=udp: expected tcp, kcp, ws, tls, wss or throng"),
        ("-ca=nowhere", "-ca=nowhere: expected an address"),
        ("-nope", "there is no flag -nope"),
        ("-dev true -sn ws", "\"true\" is not a flag"),
        ("-dev -- x", "\"x\" is not a flag"),
        ("-", "there is no flag -"),
        ("-limit=max_fun=3", "-limit=max_fun=3: expected the name of a limit"),
        ("-limit=min_interval_ms=0", "-limit=min_interval_ms=0: expected a whole number from 1 to 60000"),
        ("-scc=none.json", "-scc: cannot read none.json: no such file"),
        ("-sfsm=none.json", "-sfsm: cannot read none.json: no such file"),
        ("-scs=0x90000", "-scs and -ecs contradict each other"),
        ("-cn=wss", "tls needs -cert and -key"),
        ("-cn=throng", "throng needs -throngkey"),
        ("-edges=:1", "-edges needs -edgekey"),
        ("-dev -auth=none", "-auth=none and -dev contradict each other"),
        ("-listen=client,wss", "-listen=client,wss: expected side, network and address"),
        ("-clientrights=all", "-clientrights=all: expected create, write"),
    ] {
        let complaint = refused(line);
        assert!(complaint.starts_with(text), "{line}: {complaint}");
    }
    assert!(matches!(load("-dev -help"), Err(SettingsError::HelpWanted)));
}

#[test]
fn a_flag_that_needs_another_one_says_so() {
    for (line, words) in [
        ("-dev -edgekey=k", "-edgekey has no effect without -edges or -home"),
        ("-dev -snapshot-discard", "-snapshot-discard has no effect without -snapshot"),
        ("-dev -snapshot-every=5s", "-snapshot-every has no effect without -snapshot"),
        ("-dev -throngoldkey=k", "-throngoldkey has no effect without a door of the network throng"),
        ("-dev -cert=c -key=k", "-cert has no effect without a door of the network tls or wss"),
    ] {
        let settings = load(line).unwrap();
        assert!(settings.notes.iter().any(|note| note.to_string() == words), "{line}: {:?}", settings.notes);
    }
    let all = load("-dev -edges=:1 -edgekey=k -snapshot=s -snapshot-every=5s -cn=wss -cert=c -key=k").unwrap();
    assert!(all.notes.iter().all(|note| !note.to_string().contains("no effect")), "{:?}", all.notes);
}

#[test]
fn w8_without_a_provider_nobody_is_let_in_and_the_log_says_so() {
    let settings = load("").unwrap();
    assert_eq!(settings.auth, AuthProvider::Nobody);
    assert!(settings.notes.iter().any(|note| note.to_string().contains("-auth")));
    assert_eq!(load("-auth=all").unwrap().auth, AuthProvider::Everybody);
    assert_eq!(load("-auth tokens:who.txt").unwrap().auth, AuthProvider::Tokens("who.txt".into()));
    assert_eq!(load("-auth http://127.0.0.1:1/a").unwrap().auth, AuthProvider::Http("http://127.0.0.1:1/a".into()));
}

#[test]
fn our_own_flags_add_listeners_rights_and_descriptors() {
    let settings = load(
        "-listen client,wss,:1/ws -listen server,tls,:2 -cert c.pem -key k.pem -clientrights= -descriptors a -descriptors b \
         -origins https://a.example,https://b.example -http= -unreal=false -threads 3",
    )
    .unwrap();
    let clients: Vec<_> = settings.client_listeners().map(|listener| listener.network.tag()).collect();
    assert_eq!(clients, ["tcp", "wss"]);
    let servers: Vec<_> = settings.server_listeners().map(|listener| listener.host_and_port()).collect();
    assert_eq!(servers, [":11288", ":2"]);
    assert!(!settings.engine.client_rights.create && !settings.engine.client_rights.write && !settings.engine.unreal);
    assert_eq!(settings.descriptor_files, ["a", "b"]);
    assert_eq!(settings.origins, ["https://a.example", "https://b.example"]);
    assert!(settings.http_address.is_empty() && settings.threads == 3);
}

#[test]
fn movement_names_channel_types() {
    let types = |line| load(line).unwrap().engine.movement;
    assert_eq!(types(""), MovementTypes::NONE.with(ChannelType::Spatial).with(ChannelType::Entity));
    assert_eq!(types("-movement none"), MovementTypes::NONE);
    assert_eq!(
        types("-movement=subworld,entity"),
        MovementTypes::NONE.with(ChannelType::Subworld).with(ChannelType::Entity)
    );
    assert!(!types("-movement=spatial").contains(ChannelType::Test), "test types have bits of their own");
    assert!(load("-movement=walls").is_err());
}

#[test]
fn w12_and_w13_clients_neither_own_global_nor_create_entities_unless_told_so() {
    let rights = load("").unwrap().engine.client_rights;
    assert!(!rights.own_global && !rights.entity);
    let rights = load("-clientrights=own-global,entity").unwrap().engine.client_rights;
    assert!(rights.own_global && rights.entity && !rights.create);
}

#[test]
fn the_help_has_a_line_for_each_flag_and_limit() {
    let text = usage();
    for flag in ["-dev ", "-scrt ", "-mfaa ", "-chs ", "-limit ", "-listen ", "max_radius = 1000000"] {
        assert!(text.contains(flag), "{flag}");
    }
}

#[test]
fn snapshots_have_a_file_and_a_time_between_them_as_go_writes_it() {
    let settings = load("").unwrap();
    assert_eq!((settings.snapshot_file, settings.snapshot_every.as_secs()), (None, 30));
    assert!(!settings.snapshot_discard);
    for (text, ms) in [("0", 0), ("500ms", 500), ("2s", 2_000), ("5m", 300_000), ("24h", 86_400_000)] {
        let settings = load(&format!("-snapshot state -snapshot-every {text} -snapshot-discard")).unwrap();
        assert_eq!(settings.snapshot_every.as_millis(), ms, "{text}");
        assert!(settings.snapshot_discard && settings.snapshot_file.as_deref() == Some("state"));
    }
    for text in ["", "5", "s", "1.5s", "-1s", "25h", "1d", "99999999999999999999h"] {
        let told = refused(&format!("-snapshot-every={text}"));
        assert_eq!(told, format!("-snapshot-every={text}: expected a time such as 500ms, 30s, 5m or 1h, up to 24h"));
    }
}
