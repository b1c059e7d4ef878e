//! Level 1: frames, logging in, and what a connection may say when.

use std::sync::Arc;

use super::stage::{Stage, open_settings, settings, settings_with};
use throng_channeld::proto::auth_result_message::AuthResult;
use throng_channeld::proto::{
    AuthMessage, AuthResultMessage, ChannelType, CreateChannelMessage, DisconnectMessage, ListChannelMessage,
    ServerForwardMessage, SubscribedToChannelMessage,
};
use throng_channeld::{Dialect, FrameReader, Header, Messages, PacketWriter, message_type};
use throng_gateway_engine::port::{AuthVerdict, Side};

fn auth(name: &str) -> AuthMessage {
    AuthMessage { player_identifier_token: name.into(), login_token: "secret".into(), ..Default::default() }
}

const AUTH: Header = Header { channel_id: 0, broadcast: 0, stub_id: 0, msg_type: message_type::AUTH };

/// The answer to a login; none if there was no answer.
fn auth_results(stage: &mut Stage, peer: &super::stage::Peer) -> Vec<(u32, AuthResultMessage)> {
    let messages = stage.read_type(peer, message_type::AUTH);
    messages.iter().map(|message| (message.stub_id, message.decode().expect("an AuthResultMessage"))).collect()
}

#[test]
fn a_login_is_answered_byte_for_byte_in_both_dialects() {
    // AuthMessage{1: "ada", 2: "pw"} in a MessagePack{3: stub 5, 4: type 1, 5: body} in a Packet{1: ..}.
    let login = [0x0A, 15, 0x18, 5, 0x20, 1, 0x2A, 9, 0x0A, 3, b'a', b'd', b'a', 0x12, 2, b'p', b'w'];
    // AuthResultMessage{2: 1}: successful is 0, which is not written.
    let answer = [0x0A, 8, 0x18, 5, 0x20, 1, 0x2A, 2, 0x10, 1];
    for (dialect, third) in [(Dialect::Fixed, 0), (Dialect::Legacy, 0x4E)] {
        let mut stage = Stage::new(open_settings());
        let peer = stage.connect(Side::Client);
        let mut reader = FrameReader::new();
        reader.push(&[0x43, 0x48, third, login.len() as u8, 0]).expect("room");
        reader.push(&login).expect("room");
        let frame = reader.next_frame().expect("a frame").expect("all of it");
        assert_eq!(reader.dialect(), dialect);
        for message in Messages::new(frame.payload) {
            stage.receive(&peer, message.expect("a message"));
        }
        stage.settle();
        let entries = std::mem::take(&mut peer.line.lock().unwrap().bytes);
        let mut sent = Vec::new();
        PacketWriter::new().write(reader.dialect(), &entries, &mut sent);
        assert_eq!(sent, [&[0x43, 0x48, third, answer.len() as u8, 0], &answer[..]].concat(), "{dialect:?}");
    }
}

#[test]
fn the_master_is_told_of_everybody_who_is_let_in_without_a_stub() {
    let mut stage = Stage::new(open_settings());
    let master = stage.master();
    let client = stage.connect(Side::Client);
    stage.say(&client, AUTH.with_stub(9), &auth("ada"));
    let to_client = auth_results(&mut stage, &client);
    let to_master = auth_results(&mut stage, &master);
    let [(9, ref answer)] = to_client[..] else { panic!("{to_client:?}") };
    assert_eq!((answer.result(), answer.conn_id), (AuthResult::Successful, 2));
    assert_eq!(to_master, [(0, *answer)]);
}

#[test]
fn a_refused_login_gets_the_reason_and_may_be_repeated() {
    let mut stage = Stage::new(settings(&["-auth=none", "-limit", "max_failed_auth=3"]));
    let master = stage.master();
    let client = stage.connect(Side::Client);
    for (verdict, result) in
        [(AuthVerdict::InvalidIdentifier, AuthResult::InvalidPit), (AuthVerdict::InvalidLogin, AuthResult::InvalidLt)]
    {
        stage.verdict = verdict;
        stage.say(&client, AUTH.with_stub(4), &auth("ada"));
        let answers = auth_results(&mut stage, &client);
        assert_eq!(answers.iter().map(|(stub, answer)| (*stub, answer.result())).collect::<Vec<_>>(), [(4, result)]);
        stage.say_bytes(&client, Header::new(0, 100), "hello");
        assert_eq!(stage.read(&master), [], "a stranger reaches nobody, and the master does not hear of it");
    }
    assert!(!client.is_closed());
    stage.say(&client, AUTH, &auth("ada"));
    assert!(client.is_closed(), "three times is enough");
    assert_eq!(stage.refused("login_failed"), 3);
}

#[test]
fn a_login_is_told_the_compression_that_the_operator_advises() {
    for (words, advice) in [(&["-dev"][..], 0), (&["-dev", "-ct=1"], 1), (&["-dev", "-ct=0"], 0)] {
        let mut stage = Stage::new(settings(words));
        let mut client = stage.connect(Side::Client);
        assert_eq!(stage.authenticate(&mut client, "ada").compression_type, advice, "{words:?}");
    }
}

#[test]
fn servers_are_believed_unless_they_are_to_be_asked() {
    for (bypass, asked) in [("-sba=true", 0), ("-sba=false", 1)] {
        let mut stage = Stage::new(settings(&["-auth=none", bypass]));
        let server = stage.connect(Side::Server);
        stage.receive(&server, message(AUTH, &auth("world")));
        stage.engine.advance(stage.now);
        let mut questions = 0;
        while let Some(request) = stage.engine.poll_auth() {
            questions += 1;
            assert_eq!((request.player_identifier_token.as_str(), request.login_token.as_str()), ("world", "secret"));
            stage.engine.authenticated(stage.now, request.key, AuthVerdict::Accepted);
        }
        stage.engine.advance(stage.now);
        assert_eq!(questions, asked, "{bypass}");
        assert_eq!(auth_results(&mut stage, &server).len(), 1);
    }
}

fn message(header: Header, body: &impl prost::Message) -> throng_channeld::Message {
    let Header { channel_id, broadcast, stub_id, msg_type } = header;
    throng_channeld::Message { channel_id, broadcast, stub_id, msg_type, body: body.encode_to_vec().into() }
}

#[test]
fn an_answer_that_comes_too_late_or_twice_does_no_harm() {
    let mut stage = Stage::new(settings(&["-auth=none"]));
    let (gone, twice) = (stage.connect(Side::Client), stage.connect(Side::Client));
    for peer in [&gone, &twice] {
        stage.receive(peer, message(AUTH, &auth("ada")));
        stage.receive(peer, message(AUTH, &auth("ada")));
    }
    stage.drop_connection(&gone, throng_gateway_engine::port::EndCause::Lost);
    for peer in [&gone, &twice, &twice] {
        stage.engine.authenticated(stage.now, peer.key, AuthVerdict::Accepted);
    }
    stage.settle();
    assert_eq!(auth_results(&mut stage, &twice).len(), 1);
    assert_eq!(stage.engine.counters().of(Side::Client).admitted, 1);
}

#[test]
fn connection_ids_count_up_in_development_and_fit_their_bits_otherwise() {
    let mut stage = Stage::new(open_settings());
    let ids: Vec<u32> = (0..5).map(|_| stage.client().id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    let first = stage.client();
    stage.drop_connection(&first, throng_gateway_engine::port::EndCause::PeerClosed);
    assert_eq!(stage.client().id, first.id + 1, "none is used again");

    let mut stage = Stage::new(settings(&["-auth=all", "-mcb=13"]));
    let mut ids: Vec<u32> = (0..1_000).map(|_| stage.client().id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() == 1_000 && ids[0] > 0 && ids[999] < 1 << 13);
}

/// Whether the state machine lets a type through, told by what was counted.
fn passes(stage: &mut Stage, peer: &super::stage::Peer, msg_type: u32) -> bool {
    let before = stage.refused("state_machine");
    stage.say_bytes(peer, Header::new(40_000, msg_type), "");
    stage.refused("state_machine") == before
}

#[test]
fn each_side_says_what_its_machine_lets_through_and_nothing_else() {
    type Takes = fn(u32) -> bool;
    let types = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, 23, 98, 99, 100, 65_535, 65_536, u32::MAX];
    let cases: [(&[&str], Side, Takes); 3] = [
        (&["-dev", "-limit", "max_fsm_violations=0"], Side::Server, |t| (2..=65_535).contains(&t)),
        (&["-dev", "-limit", "max_fsm_violations=0"], Side::Client, |t| t == 7 || (99..=65_535).contains(&t)),
        (&["-dev", "-limit", "max_fsm_violations=0", "-cfsm=client_authoratative_fsm.json"], Side::Client, |t| {
            (3..=8).contains(&t) || (15..=65_535).contains(&t)
        }),
    ];
    for (arguments, side, takes) in cases {
        let mut stage = Stage::new(settings(arguments));
        let stranger = stage.connect(side);
        for msg_type in types.into_iter().filter(|&msg_type| msg_type != 1) {
            assert!(!passes(&mut stage, &stranger, msg_type), "{side:?} stranger {msg_type}");
        }
        let member = stage.join_as(side, "member");
        for msg_type in types {
            assert_eq!(passes(&mut stage, &member, msg_type), takes(msg_type), "{side:?} {msg_type}");
        }
        assert!(!stranger.is_closed() && !member.is_closed());
    }
}

const THREE_STATES: &str = r#"{
    "States": [ { "Name": "INIT", "MsgTypeWhitelist": "1" },
                { "Name": "LOBBY", "MsgTypeWhitelist": "100, 200" },
                { "Name": "GAME", "MsgTypeWhitelist": "100-300", "MsgTypeBlacklist": "150" } ],
    "Transitions": [ { "FromState": "LOBBY", "ToState": "GAME", "MsgType": 200 } ] }"#;

#[test]
fn transitions_are_followed_and_machines_are_read_again() {
    let arguments = ["-dev", "-cfsm=game.json", "-limit", "max_fsm_violations=0"];
    let mut stage = Stage::new(settings_with(&arguments, &[("game.json", THREE_STATES)]));
    let (player, guest) = (stage.client(), stage.client());
    assert!(!passes(&mut stage, &player, 250));
    assert!(passes(&mut stage, &player, 200), "it opens the game");
    assert!(passes(&mut stage, &player, 250) && !passes(&mut stage, &player, 150));

    let narrow = THREE_STATES.replace("100-300", "200-210");
    stage.engine.reload(Arc::new(settings_with(&arguments, &[("game.json", &narrow)])));
    assert!(!passes(&mut stage, &player, 250) && passes(&mut stage, &player, 210), "still in the game, by new rules");
    assert!(!passes(&mut stage, &guest, 210) && passes(&mut stage, &guest, 100), "still in the lobby");
}

#[test]
fn a_client_that_violates_its_state_machine_too_often_is_banned_for_a_while() {
    let limits = ["-dev", "-limit", "max_fsm_violations=3", "-limit", "block_ms=60000"];
    let mut stage = Stage::new(settings(&limits));
    let rude = stage.join_as(Side::Client, "rude");
    for _ in 0..3 {
        assert!(!rude.is_closed());
        stage.say_bytes(&rude, Header::new(0, 3), "");
    }
    assert!(rude.is_closed());
    let mut again = stage.connect(Side::Client);
    assert_eq!(stage.authenticate(&mut again, "rude").result(), AuthResult::InvalidPit);
    assert_eq!(stage.refused("blocked"), 1);
    stage.join_as(Side::Client, "somebody else");
    stage.pass(60_000);
    stage.join_as(Side::Client, "rude");
}

#[test]
fn a_ban_that_is_forgotten_for_another_one_is_counted() {
    let limits = ["-dev", "-limit", "max_fsm_violations=1", "-limit", "max_blocked=2"];
    let mut stage = Stage::new(settings(&limits));
    for (number, name) in ["first", "second", "third"].into_iter().enumerate() {
        let rude = stage.join_as(Side::Client, name);
        stage.say_bytes(&rude, Header::new(0, 3), "");
        assert!(rude.is_closed());
        assert_eq!(stage.refused("bans"), u64::from(number == 2));
    }
    stage.join_as(Side::Client, "first");
}

#[test]
fn nonsense_is_counted_and_a_client_that_goes_on_with_it_is_sent_away() {
    let mut stage = Stage::new(open_settings());
    let (server, client) = (stage.master(), stage.client());
    for number in 1..=10 {
        assert!(!client.is_closed());
        for peer in [&server, &client] {
            stage.say_bytes(peer, Header::new(0, message_type::SUB_TO_CHANNEL), &b"\xFF\xFF"[..]);
        }
        assert_eq!(stage.refused("malformed"), 2 * number);
    }
    assert!(client.is_closed() && !server.is_closed());
}

#[test]
fn types_without_a_meaning_and_channels_that_do_not_exist_are_dropped_and_counted() {
    let mut stage = Stage::new(open_settings());
    let server = stage.master();
    let unknown = [2, 12, 13, 18, 19, 20, 21, 22, 23, 24, 50, 98];
    for msg_type in unknown {
        stage.say_bytes(&server, Header::new(0, msg_type), "");
    }
    assert_eq!(stage.refused("unknown_type"), unknown.len() as u64);
    for msg_type in [message_type::SUB_TO_CHANNEL, message_type::CHANNEL_DATA_UPDATE, 100, 65_535] {
        stage.say_bytes(&server, Header::new(77, msg_type), "");
    }
    assert_eq!(stage.refused("unknown_channel"), 4);
    assert_eq!(stage.read(&server), []);
}

#[test]
fn what_concerns_all_is_said_on_channel_0_only() {
    let mut stage = Stage::new(open_settings());
    let server = stage.master();
    let room = stage.create(&server, ChannelType::Subworld, None);
    let create = CreateChannelMessage { channel_type: ChannelType::Test.into(), ..Default::default() };
    stage.say(&server, Header::new(room, message_type::CREATE_CHANNEL), &create);
    stage.say(&server, Header::new(room, message_type::LIST_CHANNEL), &ListChannelMessage::default());
    stage.say(&server, Header::new(room, message_type::DISCONNECT), &DisconnectMessage { conn_id: server.id });
    stage.say_bytes(&server, Header::new(room, message_type::QUERY_SPATIAL_CHANNEL), "");
    stage.say_bytes(&server, Header::new(room, message_type::DEBUG_GET_SPATIAL_REGIONS), "");
    assert_eq!(stage.refused("wrong_channel"), 5);
    assert!(!server.is_closed());
}

#[test]
fn servers_may_end_connections_and_clients_none_but_their_own() {
    let everything = r#"{"States": [{"Name": "INIT", "MsgTypeWhitelist": "1"},
                                    {"Name": "OPEN", "MsgTypeWhitelist": "2-65535"}]}"#;
    let mut stage = Stage::new(settings_with(&["-dev", "-cfsm=all.json"], &[("all.json", everything)]));
    let (server, a, b) = (stage.server(), stage.client(), stage.client());
    let header = Header::new(0, message_type::DISCONNECT);
    stage.say(&a, header, &DisconnectMessage { conn_id: b.id });
    assert!(!b.is_closed());
    assert_eq!(stage.refused("not_allowed"), 1);
    stage.say(&server, header, &DisconnectMessage { conn_id: b.id });
    assert!(b.is_closed() && !a.is_closed());
    stage.say(&a, header, &DisconnectMessage { conn_id: a.id });
    assert!(a.is_closed());
    stage.say(&server, header, &DisconnectMessage { conn_id: 4_711 });
    assert_eq!(stage.refused("unknown_connection"), 1);
}

#[test]
fn strangers_hear_nothing_of_what_members_say() {
    let mut stage = Stage::new(open_settings());
    let server = stage.master();
    let stranger = stage.connect(Side::Client);
    // It is the second connection, so it has the second id.
    let subscribe = SubscribedToChannelMessage { conn_id: 2, sub_options: None };
    stage.say(&server, Header::new(0, message_type::SUB_TO_CHANNEL), &subscribe);
    let forward = ServerForwardMessage { client_conn_id: 2, payload: "psst".into() };
    stage.say(&server, Header { broadcast: 1, ..Header::new(0, 100) }, &forward);
    stage.pass(100);
    assert_eq!(stage.read(&stranger), []);
    assert_eq!(stage.refused("unknown_connection"), 2);
}

#[test]
fn tokens_are_bounded_and_the_refusal_is_answered() {
    let mut stage = Stage::new(settings(&["-dev", "-limit", "max_token_bytes=16"]));
    let mut peer = stage.connect(Side::Client);
    assert_eq!(stage.authenticate(&mut peer, &"x".repeat(17)).result(), AuthResult::InvalidPit);
    assert_eq!(stage.refused("token_bytes"), 1);
    assert_eq!(stage.authenticate(&mut peer, &"x".repeat(16)).result(), AuthResult::Successful);
}

#[test]
fn no_bytes_from_anybody_end_the_gateway() {
    throng_seeds::for_seeds(400, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let arguments = ["-dev", "-cfsm=client_authoratative_fsm.json", "-clientrights=create,write,own-global,entity"];
        let grid = super::stage::grid_file((4, 4), (2, 1));
        let mut all = arguments.to_vec();
        all.extend(["-scc=grid.json", "-limit", "max_malformed=0", "-limit", "max_fsm_violations=0"]);
        let mut stage = Stage::new(settings_with(&all, &[("grid.json", &grid)]));
        let mut peers = [stage.server(), stage.server(), stage.client(), stage.client(), stage.connect(Side::Client)];
        for step in 0..400 {
            let from = random.usize(..peers.len());
            let channel = *random.choice(&[0, 0, 1, 2, 0x1_0000, 0x1_0001, 0x8_0000, 0x8_0001, 9]).expect("some");
            let header = Header {
                channel_id: channel,
                broadcast: random.u32(..130),
                stub_id: random.u32(..3),
                msg_type: if random.bool() { random.u32(..25) } else { random.u32(98..108) },
            };
            let body = some_body(&mut random, peers[from].id);
            stage.say_bytes(&peers[from], header, body);
            stage.pass(random.u64(..30));
            if peers[from].is_closed() || step % 97 == 0 {
                stage.drop_connection(&peers[from], throng_gateway_engine::port::EndCause::Lost);
                let side = if random.bool() { Side::Client } else { Side::Server };
                peers[from] = stage.join_as(side, &format!("seed {seed} step {step}"));
            }
        }
        // A new connection is served.
        let client = stage.client();
        assert!(client.id > 0, "seed {seed}");
    });
}

/// Sometimes noise, sometimes what looks like a message: small fields with numbers, strings and messages.
fn some_body(random: &mut fastrand::Rng, id: u32) -> Vec<u8> {
    fn fields(random: &mut fastrand::Rng, id: u32, depth: u32, out: &mut Vec<u8>) {
        for _ in 0..random.u32(..5) {
            let number = random.u8(1..8);
            match random.u32(..4) {
                0 => out.extend([number << 3, random.u8(..128)]),
                1 => out.extend([number << 3, id as u8 & 0x7F]),
                2 if depth < 4 => {
                    let mut inner = Vec::new();
                    fields(random, id, depth + 1, &mut inner);
                    inner.truncate(120);
                    out.extend([number << 3 | 2, inner.len() as u8]);
                    out.extend(inner);
                }
                _ => {
                    let text = *random.choice(&["", "unrealpb.SpatialChannelData", "a.B", "1.2"]).expect("some");
                    out.extend([number << 3 | 2, text.len() as u8]);
                    out.extend(text.as_bytes());
                }
            }
        }
    }
    let mut body = Vec::new();
    match random.u32(..4) {
        0 => body.extend((0..random.usize(..40)).map(|_| random.u8(..))),
        _ => fields(random, id, 0, &mut body),
    }
    body
}
