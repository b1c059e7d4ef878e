//! Access to others: level, role and action.

use super::stage::{Peer, Stage, every, settings_with};
use throng_channeld::proto::{
    ChannelType, RemoveChannelMessage, SubscribedToChannelMessage, UnsubscribedFromChannelMessage,
};
use throng_channeld::{Header, message_type};
use throng_gateway_engine::port::Side;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Owner,
    Master,
    OtherServer,
    SubscribedServer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Subscribe,
    Unsubscribe,
    Remove,
}

const ROLES: [Role; 4] = [Role::Owner, Role::Master, Role::OtherServer, Role::SubscribedServer];
const ACTIONS: [Action; 3] = [Action::Subscribe, Action::Unsubscribe, Action::Remove];

fn may(level: u32, role: Role) -> bool {
    match level {
        0 => false,
        1 => role == Role::Owner,
        2 => role == Role::Owner || role == Role::Master,
        _ => true,
    }
}

/// Channel types with one level for each action.
fn levels([sub, unsub, remove]: [u32; 3], kind: u32) -> String {
    format!(r#"{{"{kind}": {{"ACLSettings": {{"Sub": {sub}, "Unsub": {unsub}, "Remove": {remove}}}}}}}"#)
}

fn stage(types: &str) -> Stage {
    let arguments = ["-dev", "-chs=types.json", "-cfsm=client_authoratative_fsm.json"];
    Stage::new(settings_with(&arguments, &[("types.json", types)]))
}

struct Scene {
    stage: Stage,
    room: u32,
    actors: Vec<(Role, Peer)>,
    /// Is subscribed, and acted upon.
    inside: Peer,
    /// Is not.
    outside: Peer,
}

impl Scene {
    fn new(types: &str, kind: ChannelType) -> Scene {
        let mut stage = stage(types);
        let actors: Vec<(Role, Peer)> =
            ROLES.map(|role| (role, if role == Role::Master { stage.master() } else { stage.server() })).to_vec();
        let of = |role: Role| actors.iter().find(|actor| actor.0 == role).expect("each role is there").1.clone();
        let room = stage.create(&of(Role::Owner), kind, None);
        let subscribed = of(Role::SubscribedServer);
        let (inside, outside) = (stage.client(), stage.client());
        for peer in [&subscribed, &inside] {
            stage.subscribe(peer, peer, room, every(20));
        }
        for peer in actors.iter().map(|actor| &actor.1).chain([&inside, &outside]) {
            stage.read(peer);
        }
        Scene { stage, room, actors, inside, outside }
    }

    fn actor(&self, role: Role) -> Peer {
        self.actors.iter().find(|actor| actor.0 == role).expect("each role is there").1.clone()
    }

    /// Acts, and tells whether it had an effect on whom it is about.
    fn has_effect(&mut self, actor: &Peer, action: Action) -> bool {
        let (header, target) = match action {
            Action::Subscribe => (Header::new(self.room, message_type::SUB_TO_CHANNEL), self.outside.clone()),
            Action::Unsubscribe => (Header::new(self.room, message_type::UNSUB_FROM_CHANNEL), self.inside.clone()),
            Action::Remove => (Header::new(0, message_type::REMOVE_CHANNEL), self.inside.clone()),
        };
        let conn_id = target.id;
        match action {
            Action::Subscribe => {
                self.stage.say(actor, header, &SubscribedToChannelMessage { conn_id, sub_options: None })
            }
            Action::Unsubscribe => self.stage.say(actor, header, &UnsubscribedFromChannelMessage { conn_id }),
            Action::Remove => self.stage.say(actor, header, &RemoveChannelMessage { channel_id: self.room }),
        }
        let told = self.stage.read_type(&target, header.msg_type);
        assert!(told.len() <= 1);
        !told.is_empty()
    }
}

#[test]
fn the_matrix_of_levels_roles_and_actions_holds() {
    let mut cases = 0;
    for level in 0..=3 {
        for role in ROLES {
            for action in ACTIONS {
                // The other two actions have the level that says the opposite.
                let opposite = if may(level, role) { 0 } else { 3 };
                let all = ACTIONS.map(|other| if other == action { level } else { opposite });
                let mut scene = Scene::new(&levels(all, 3), ChannelType::Subworld);
                let actor = scene.actor(role);
                assert_eq!(scene.has_effect(&actor, action), may(level, role), "level {level}, {role:?}, {action:?}");
                assert_eq!(scene.stage.refused("not_allowed"), u64::from(!may(level, role)));
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 48);
}

#[test]
fn a_client_removes_rooms_by_the_same_levels() {
    for level in 0..=3 {
        for is_owner in [true, false] {
            let mut stage = stage(&levels([0, 0, level], 2));
            let (_, owner, other) = (stage.master(), stage.client(), stage.client());
            let room = stage.create(&owner, ChannelType::Private, None);
            let actor = if is_owner { &owner } else { &other };
            stage.say(actor, Header::new(0, message_type::REMOVE_CHANNEL), &RemoveChannelMessage { channel_id: room });
            let expected = if is_owner { level >= 1 } else { level == 3 };
            assert_eq!(stage.refused("not_allowed") == 0, expected, "level {level}, owner {is_owner}");
        }
    }
}

#[test]
fn nobody_needs_a_level_to_act_on_itself() {
    for side in [Side::Server, Side::Client] {
        let mut stage = stage(&levels([0, 0, 0], 3));
        let owner = stage.server();
        let room = stage.create(&owner, ChannelType::Subworld, None);
        let peer = stage.join_as(side, "somebody");
        let subscribe = SubscribedToChannelMessage { conn_id: peer.id, sub_options: None };
        assert_eq!(stage.ask(&peer, Header::new(room, message_type::SUB_TO_CHANNEL), &subscribe).len(), 1);
        let unsubscribe = UnsubscribedFromChannelMessage { conn_id: peer.id };
        assert_eq!(stage.ask(&peer, Header::new(room, message_type::UNSUB_FROM_CHANNEL), &unsubscribe).len(), 1);
        assert_eq!(stage.refused("not_allowed"), 0);
    }
}

#[test]
fn a_client_acts_on_itself_alone_however_open_the_channel_is() {
    let mut scene = Scene::new(&levels([3, 3, 3], 3), ChannelType::Subworld);
    let intruder = scene.stage.client();
    assert!(!scene.has_effect(&intruder, Action::Subscribe));
    assert!(!scene.has_effect(&intruder, Action::Unsubscribe));
}

#[test]
fn a_type_that_the_settings_do_not_name_has_the_levels_of_global() {
    for (level, role, expected) in
        [(3, Role::OtherServer, true), (2, Role::Master, true), (2, Role::OtherServer, false), (1, Role::Owner, true)]
    {
        for action in ACTIONS {
            for kind in [ChannelType::Test, ChannelType::Private] {
                let mut scene = Scene::new(&levels([level; 3], 1), kind);
                let actor = scene.actor(role);
                assert_eq!(scene.has_effect(&actor, action), expected, "{level} {role:?} {action:?} {kind:?}");
            }
        }
    }
}

#[test]
fn levels_follow_ownership() {
    let mut scene = Scene::new(&levels([1, 1, 1], 3), ChannelType::Subworld);
    let owner = scene.actor(Role::Owner);
    let leave = UnsubscribedFromChannelMessage { conn_id: owner.id };
    scene.stage.say(&owner, Header::new(scene.room, message_type::UNSUB_FROM_CHANNEL), &leave);
    for action in ACTIONS {
        assert!(!scene.has_effect(&owner, action), "it owns nothing any more: {action:?}");
    }
}
