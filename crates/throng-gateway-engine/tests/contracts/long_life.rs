//! A gateway that has run for weeks sends what a gateway sends that was started a moment ago.

use crate::counting::held_bytes;
use crate::stage::world::{Cut, of_type};
use crate::stage::{Peer, Stage, every, open_settings};
use throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState, UnrealObjectRef};
use throng_channeld::proto::{
    Any, AuthMessage, ChannelDataAccess, ChannelDataMergeOptions, ChannelDataRecoveryMessage,
    ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
};
use throng_channeld::{Header, message_type};
use throng_gateway_engine::port::{EndCause, Side};

const DAY_MS: u64 = 86_400_000;

/// Where 32 bits of milliseconds could be thought to be half full and full, and a little more.
const HALF_MS: u64 = 1 << 31;
const FULL_MS: u64 = 1 << 32;

/// The rest that others are compared with: removals are forgotten in it, as in longer ones.
const SHORT_MS: u64 = 600_000;

/// The entity that a list grows in.
const LEDGER: u32 = 1_000;

fn state(id: u32, signed: &str, appended: &[u32]) -> Any {
    let context = appended.iter().map(|&outer_guid| GuidCachedObject { net_guid: 1, outer_guid, ..Default::default() });
    let class_path = (!signed.is_empty()).then(|| signed.to_owned());
    let object = UnrealObjectRef { class_path, context: context.collect(), ..Default::default() };
    let entity = SpatialEntityState { obj_ref: Some(object), ..Default::default() };
    Any::pack(&SpatialChannelData { entities: [(id, entity)].into() })
}

fn removal(id: u32) -> Any {
    let entity = SpatialEntityState { removed: true, ..Default::default() };
    Any::pack(&SpatialChannelData { entities: [(id, entity)].into() })
}

fn writing(interval_ms: u32) -> ChannelSubscriptionOptions {
    ChannelSubscriptionOptions {
        data_access: Some(ChannelDataAccess::WriteAccess.into()),
        skip_self_update_fan_out: Some(true),
        ..every(interval_ms)
    }
}

/// A gateway with a channel in use, one that was never written to, and their readers.
struct Life {
    stage: Stage,
    owner: Peer,
    /// Reads and writes the channel in use; is not told its own words.
    writer: Peer,
    /// Reads, often and seldom, both channels.
    readers: [Peer; 2],
    used: u32,
    silent: u32,
    round: u32,
}

impl Life {
    fn begin() -> Life {
        let mut stage = Stage::new(open_settings());
        let owner = stage.server();
        let options = ChannelDataMergeOptions { should_check_removable_map_field: true, ..Default::default() };
        let mut ids = Vec::new();
        for _ in 0..2 {
            let create = CreateChannelMessage {
                channel_type: ChannelType::Test.into(),
                merge_options: Some(options),
                ..Default::default()
            };
            stage.say(&owner, Header::new(0, message_type::CREATE_CHANNEL).with_stub(9), &create);
            let told = stage.read(&owner);
            let answer = told.iter().find(|message| message.stub_id == 9).expect("an answer");
            let answer: throng_channeld::proto::CreateChannelResultMessage = answer.decode().expect("a result");
            ids.push(answer.channel_id);
        }
        let (used, silent) = (ids[0], ids[1]);
        let writer = stage.client();
        stage.subscribe(&owner, &writer, used, writing(20));
        let readers = [20, 1_000].map(|interval_ms| {
            let reader = stage.client();
            stage.subscribe(&owner, &reader, used, every(interval_ms));
            stage.subscribe(&owner, &reader, silent, every(interval_ms));
            reader
        });
        let mut life = Life { stage, owner, writer, readers, used, silent, round: 0 };
        life.write(state(1, "stays", &[]));
        life.write(state(2, "goes", &[]));
        life.write(state(LEDGER, "", &[1, 2]));
        life.stage.pass(2_000);
        life.write(removal(2));
        life.stage.pass(2_000);
        life
    }

    fn write(&mut self, data: Any) {
        self.stage.update(&self.owner, self.used, data);
    }

    /// Nothing happens for this long, and nothing is sent.
    fn rest(&mut self, ms: u64) {
        let _ = self.heard();
        self.stage.pass(ms);
        assert!(self.heard().iter().all(Vec::is_empty), "a quiet gateway is quiet");
    }

    /// A writer writes, a subscriber comes; counts the messages for each.
    fn wake(&mut self) -> Vec<Vec<u8>> {
        self.round += 1;
        let round = self.round;
        // Not at the moment of a turn: whether it has passed would depend on the last event.
        self.stage.pass(7);
        self.stage.update(&self.writer, self.used, state(1, &format!("own words {round}"), &[]));
        self.stage.pass(50);
        self.write(state(LEDGER, "", &[10 * round, 10 * round + 1]));
        self.stage.pass(30);
        self.write(state(3, &format!("comes {round}"), &[]));
        self.stage.update(&self.owner, self.silent, state(7, &format!("first {round}"), &[round]));
        self.stage.pass(2_000);
        let newcomer = self.stage.client();
        self.stage.subscribe(&self.owner, &newcomer, self.used, every(20));
        self.stage.subscribe(&self.owner, &newcomer, self.silent, every(20));
        self.stage.pass(1_000);
        self.write(removal(3));
        self.stage.pass(3_000);
        let mut heard = self.heard();
        heard.push(std::mem::take(&mut newcomer.line.lock().unwrap().bytes));
        self.stage.drop_connection(&newcomer, EndCause::Lost);
        self.stage.pass(993);
        heard
    }

    fn heard(&mut self) -> Vec<Vec<u8>> {
        let all = [&self.owner, &self.writer].into_iter().chain(&self.readers);
        all.map(|peer| std::mem::take(&mut peer.line.lock().unwrap().bytes)).collect()
    }
}

/// Says shortly where two lives differ.
fn assert_same(old: &[Vec<Vec<u8>>], fresh: &[Vec<Vec<u8>>], when: &str) {
    let lengths = |life: &[Vec<Vec<u8>>]| -> Vec<Vec<usize>> {
        life.iter().map(|round| round.iter().map(Vec::len).collect()).collect()
    };
    let round = old.iter().zip(fresh).position(|(old, fresh)| old != fresh);
    assert!(round.is_none(), "{when}, round {round:?}: bytes {:?}, not {:?}", lengths(old), lengths(fresh));
}

/// The data that each got after each of these rests.
fn heard_after(rests_ms: &[u64]) -> Vec<Vec<Vec<u8>>> {
    let mut life = Life::begin();
    let after = |&rest_ms: &u64| {
        life.rest(rest_ms);
        life.wake()
    };
    rests_ms.iter().map(after).collect()
}

#[test]
fn after_weeks_of_rest_everybody_is_sent_what_a_fresh_gateway_sends() {
    let fresh = heard_after(&[SHORT_MS]);
    assert!(fresh[0][1..].iter().all(|bytes| !bytes.is_empty()), "everybody but the owner is told something");
    let days = [1, 24, 25, 26, 37, 49, 50, 60].map(|days| days * DAY_MS);
    let edges = [HALF_MS - 10_000, HALF_MS, HALF_MS + 10_000, FULL_MS - 10_000, FULL_MS, FULL_MS + 10_000];
    for rest_ms in days.into_iter().chain(edges.map(|ms| ms / 1_000 * 1_000)) {
        assert_same(&heard_after(&[rest_ms]), &fresh, &format!("after {rest_ms} ms"));
    }
}

#[test]
fn a_subscriber_that_sleeps_for_weeks_gets_every_change_once() {
    for days in [25, 50] {
        let fresh = heard_after(&[SHORT_MS; 4]);
        assert_same(&heard_after(&[days * DAY_MS; 4]), &fresh, &format!("{days} days each"));
    }
}

#[test]
fn sixty_days_of_a_write_each_six_hours_are_told_as_a_quiet_minute_is() {
    assert_same(&heard_after(&[6 * 3_600_000; 240]), &heard_after(&[SHORT_MS; 240]), "four rounds a day");
}

#[test]
fn after_sixty_days_the_gateway_holds_what_it_held_after_one() {
    let mut life = Life::begin();
    // Words of one length.
    life.round = 100;
    let mut day = || {
        for _ in 0..4 {
            life.rest(6 * 3_600_000);
            life.wake();
        }
        // A state that grows because its writers make it grow is given up.
        life.write(removal(LEDGER));
        life.stage.update(&life.owner, life.silent, removal(7));
        life.stage.pass(SHORT_MS);
        let _ = life.heard();
        (life.stage.engine.memory_bytes(), held_bytes())
    };
    let (counted, held) = day();
    let (counted_later, held_later) = (1..60).map(|_| day()).last().expect("59 days");
    assert_eq!(counted_later, counted, "as the gateway counts");
    assert_eq!(held_later, held, "as the allocator counts");
}

#[test]
fn a_server_that_recovers_after_fifty_days_is_told_when_it_subscribed() {
    let cut = Cut { cells: [2, 1, 0], servers: [1, 1, 0], border: 0 };
    let mut stage = Stage::world(cut, &["-scr", "-scrt=10000"]);
    let _master = stage.master();
    stage.pass(50 * DAY_MS);
    let servers = stage.spatial_servers(cut);
    let channel = stage.create(&servers[0], ChannelType::Test, Some(state(1, "it", &[])));
    stage.subscribe(&servers[0], &servers[0], channel, every(50));
    let subscribed_ms = stage.now.0 / 1_000 - 1_000_000;
    stage.pass(50 * DAY_MS);
    stage.drop_connection(&servers[0], EndCause::Lost);
    let back = stage.connect(Side::Server);
    let auth = AuthMessage { player_identifier_token: "w0".into(), login_token: "new".into(), ..Default::default() };
    stage.say(&back, Header::new(0, message_type::AUTH), &auth);
    let told = stage.read(&back);
    let channels = of_type::<ChannelDataRecoveryMessage>(&told, message_type::RECOVERY_CHANNEL_DATA);
    let (_, recovered) = channels.into_iter().find(|&(id, _)| id == channel).expect("the channel that it owned");
    assert_eq!(recovered.sub_time as u64 / 1_000_000, subscribed_ms);
}
