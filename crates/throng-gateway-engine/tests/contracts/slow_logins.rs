//! A slow provider, or one that cannot decide: no waiting player is at fault.

use prost::Message as _;
use throng_channeld::proto::AuthMessage;
use throng_channeld::proto::AuthResultMessage;
use throng_channeld::proto::auth_result_message::AuthResult;
use throng_channeld::{Message, message_type};
use throng_gateway_engine::port::{AuthVerdict, Side};

use crate::stage::{Peer, Stage, settings};

fn stage() -> Stage {
    Stage::new(settings(&["-dev", "-auth=tokens:none", "-limit", "max_unauthenticated_ms=5000"]))
}

/// Logs in; the provider has the question and has not answered.
fn say_who(stage: &mut Stage, peer: &Peer) {
    let auth =
        AuthMessage { player_identifier_token: "ada".into(), login_token: "secret".into(), ..Default::default() };
    let message = Message {
        channel_id: 0,
        broadcast: 0,
        stub_id: 0,
        msg_type: message_type::AUTH,
        body: auth.encode_to_vec().into(),
    };
    stage.engine.receive(stage.now, peer.key, message);
    stage.engine.advance(stage.now);
    assert_eq!(stage.engine.poll_auth().expect("it is asked").key, peer.key);
}

fn decide(stage: &mut Stage, peer: &Peer, verdict: AuthVerdict) -> AuthResult {
    stage.engine.authenticated(stage.now, peer.key, verdict);
    stage.engine.advance(stage.now);
    let answers = stage.read_type(peer, message_type::AUTH);
    answers.last().expect("it is answered").decode::<AuthResultMessage>().expect("sound").result()
}

/// Time passes without questions to the stage's own provider.
fn pass(stage: &mut Stage, ms: u64) {
    for _ in 0..ms / 100 {
        stage.now = stage.now.after(std::time::Duration::from_millis(100));
        stage.engine.advance(stage.now);
    }
}

#[test]
fn a_player_who_waits_for_the_provider_is_not_dismissed_however_long_that_takes() {
    let mut stage = stage();
    let peer = stage.connect(Side::Client);
    pass(&mut stage, 4_000);
    say_who(&mut stage, &peer);
    pass(&mut stage, 60_000);
    assert!(!peer.is_closed());
    assert_eq!(decide(&mut stage, &peer, AuthVerdict::Accepted), AuthResult::Successful);
    pass(&mut stage, 60_000);
    assert!(!peer.is_closed());
    assert_eq!(stage.refused("unauthenticated"), 0);
}

#[test]
fn after_a_wrong_token_only_the_remaining_time_is_left() {
    let mut stage = stage();
    let peer = stage.connect(Side::Client);
    pass(&mut stage, 3_000);
    say_who(&mut stage, &peer);
    pass(&mut stage, 10_000);
    assert_eq!(decide(&mut stage, &peer, AuthVerdict::InvalidLogin), AuthResult::InvalidLt);
    pass(&mut stage, 1_800);
    assert!(!peer.is_closed());
    pass(&mut stage, 400);
    assert!(peer.is_closed());
    assert_eq!(stage.refused("login_failed"), 1);
}

#[test]
fn an_outage_of_the_provider_is_no_failed_login_however_often_a_player_tries() {
    let mut stage = stage();
    let peer = stage.connect(Side::Client);
    for _ in 0..20 {
        say_who(&mut stage, &peer);
        assert_eq!(decide(&mut stage, &peer, AuthVerdict::Unavailable), AuthResult::InvalidLt);
        pass(&mut stage, 3_000);
        assert!(!peer.is_closed(), "it has time for another try");
    }
    assert_eq!((stage.refused("login_undecided"), stage.refused("login_failed")), (20, 0));
    say_who(&mut stage, &peer);
    assert_eq!(decide(&mut stage, &peer, AuthVerdict::Accepted), AuthResult::Successful);
}
