//! Messages to a client wait for state that is due soon, so that both take one write.

use super::stage::{Peer, Stage, every};
use throng_channeld::proto::unrealpb::SpawnObjectMessage;
use throng_channeld::proto::{Any, ChannelType, ListChannelMessage, ServerForwardMessage};
use throng_channeld::{Broadcast, Header, message_type};
use throng_gateway_engine::port::EndCause;

const CALL: u32 = 102;

struct Scene {
    stage: Stage,
    server: Peer,
    client: Peer,
    channel: u32,
}

/// A server, its channel, and a client that is subscribed to it, if there is an interval.
fn scene(arguments: &[&str], interval_ms: Option<u32>) -> Scene {
    let mut stage = Stage::new(super::stage::settings(arguments));
    let server = stage.master();
    let channel = stage.create(&server, ChannelType::Subworld, Some(number(0)));
    let client = stage.client();
    if let Some(interval_ms) = interval_ms {
        stage.subscribe(&server, &client, channel, every(interval_ms));
    }
    // Turns are 20 ms apart: the next one is not now.
    stage.pass(107);
    stage.read(&client);
    Scene { stage, server, client, channel }
}

fn number(value: u32) -> Any {
    Any::pack(&SpawnObjectMessage { channel_id: Some(value), ..Default::default() })
}

impl Scene {
    fn update(&mut self, value: u32) {
        self.stage.update(&self.server, self.channel, number(value));
    }

    /// The server sends a message to `to` alone.
    fn call(&mut self, to: &Peer) {
        let header = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..Header::new(self.channel, CALL) };
        let body = ServerForwardMessage { client_conn_id: to.id, payload: b"now".as_slice().into() };
        self.stage.say(&self.server, header, &body);
    }

    /// The client's messages since the last call: types, and the number of pieces.
    fn told(&mut self) -> (Vec<u32>, usize) {
        let writes = std::mem::take(&mut self.client.line.lock().unwrap().writes);
        let types = self.stage.read(&self.client).iter().map(|message| message.msg_type).collect();
        (types, writes)
    }
}

#[test]
fn a_message_goes_out_with_the_state_that_is_due_soon_in_one_write() {
    let mut scene = scene(&["-dev"], Some(20));
    scene.told();
    scene.update(1);
    scene.call(&scene.client.clone());
    assert_eq!(scene.told(), (vec![], 0));
    scene.stage.pass(20);
    assert_eq!(scene.told(), (vec![CALL, message_type::CHANNEL_DATA_UPDATE], 1));
}

#[test]
fn a_message_goes_out_with_the_first_state_although_more_is_due_soon() {
    let mut scene = scene(&["-dev", "-limit", "max_hold_ms=40"], Some(40));
    let (server, client) = (scene.server.clone(), scene.client.clone());
    let other = scene.stage.create(&server, ChannelType::Subworld, Some(number(0)));
    // Its turns lie between those of the first channel.
    scene.stage.pass(20);
    scene.stage.subscribe(&server, &client, other, every(40));
    scene.stage.pass(100);
    scene.told();
    for channel in [scene.channel, other] {
        scene.stage.update(&server, channel, number(1));
    }
    scene.call(&client);
    let mut told = Vec::new();
    for _ in 0..40 {
        scene.stage.pass(1);
        told.push(scene.told());
    }
    told.retain(|(types, _)| !types.is_empty());
    let state = message_type::CHANNEL_DATA_UPDATE;
    assert_eq!(told, [(vec![CALL, state], 1), (vec![state], 1)]);
}

#[test]
fn messages_for_which_no_state_is_due_soon_go_out_at_once() {
    for interval_ms in [None, Some(500)] {
        let mut scene = scene(&["-dev"], interval_ms);
        scene.told();
        scene.call(&scene.client.clone());
        assert_eq!(scene.told(), (vec![CALL], 1), "subscribed every {interval_ms:?} ms");
    }
}

#[test]
fn what_happens_in_a_channel_of_others_holds_nobody_back() {
    for interval_ms in [None, Some(500)] {
        let mut scene = scene(&["-dev"], interval_ms);
        let other = scene.stage.client();
        scene.stage.subscribe(&scene.server.clone(), &other, scene.channel, every(20));
        // The other one sleeps until something happens; so does a subscriber of 500 ms until its turn.
        scene.stage.pass(203);
        scene.told();
        scene.update(1);
        scene.call(&scene.client.clone());
        assert_eq!(scene.told(), (vec![CALL], 1), "subscribed every {interval_ms:?} ms");
    }
}

#[test]
fn much_does_not_wait() {
    let mut scene = scene(&["-dev"], Some(20));
    scene.told();
    scene.update(1);
    let header = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..Header::new(scene.channel, CALL) };
    let body = ServerForwardMessage { client_conn_id: scene.client.id, payload: vec![7; 1_000].into() };
    let mut waiting = 0;
    for _ in 0..100 {
        scene.stage.say(&scene.server.clone(), header, &body);
        waiting = waiting + 1 - scene.told().0.len();
        assert!(waiting <= 4, "of a kilobyte each");
    }
}

#[test]
fn nobody_waits_for_a_channel_in_which_nothing_happens() {
    let mut scene = scene(&["-dev"], Some(20));
    scene.stage.pass(200);
    scene.told();
    scene.call(&scene.client.clone());
    assert_eq!(scene.told(), (vec![CALL], 1));
}

#[test]
fn no_message_waits_longer_than_the_limit_whatever_happens_meanwhile() {
    for limit_ms in [0, 7, 20] {
        let limit = format!("max_hold_ms={limit_ms}");
        let mut scene = scene(&["-dev", "-limit", &limit], Some(20));
        let mut longest_ms = 0;
        for round in 0..200 {
            scene.stage.pass(1 + round * 7 % 31);
            if round % 3 != 0 {
                scene.update(round as u32);
            }
            scene.told();
            scene.call(&scene.client.clone());
            let mut waited_ms = 0;
            while !scene.told().0.contains(&CALL) {
                scene.stage.pass(1);
                waited_ms += 1;
                assert!(waited_ms <= limit_ms, "round {round}");
            }
            longest_ms = longest_ms.max(waited_ms);
        }
        assert!(limit_ms == 0 || longest_ms > 0, "some have waited");
    }
}

#[test]
fn an_answer_of_the_gateway_takes_along_what_waits_before_it() {
    let mut scene = scene(&["-dev", "-cfsm=client_authoratative_fsm.json"], Some(20));
    scene.told();
    scene.update(1);
    scene.call(&scene.client.clone());
    scene.stage.say(&scene.client, Header::new(0, message_type::LIST_CHANNEL), &ListChannelMessage::default());
    assert_eq!(scene.told(), (vec![CALL, message_type::LIST_CHANNEL], 1));
    scene.stage.pass(20);
    assert_eq!(scene.told(), (vec![message_type::CHANNEL_DATA_UPDATE], 1));
}

#[test]
fn servers_are_told_at_once() {
    let mut scene = scene(&["-dev"], None);
    let other = scene.stage.server();
    scene.stage.subscribe(&scene.server.clone(), &other, scene.channel, every(20));
    scene.stage.pass(107);
    scene.stage.read(&other);
    scene.update(1);
    scene.call(&other);
    let told: Vec<u32> = scene.stage.read(&other).iter().map(|message| message.msg_type).collect();
    assert_eq!(told, [CALL]);
}

#[test]
fn what_waits_for_a_connection_that_ends_does_not_get_to_the_next_one() {
    let mut scene = scene(&["-dev"], Some(20));
    scene.update(1);
    scene.call(&scene.client.clone());
    scene.stage.drop_connection(&scene.client.clone(), EndCause::Lost);
    let next = scene.stage.client();
    scene.stage.pass(100);
    assert!(scene.stage.read(&next).is_empty());
    scene.call(&next);
    assert_eq!(scene.stage.read(&next).len(), 1, "and is told its own at once");
}
