//! State machines of connections: channeld's three, and those that people write.

use std::sync::Arc;

use throng_gateway_engine::config_file::FileError;
use throng_gateway_engine::fsm::{Fsm, Machine};

fn parse(text: &str) -> Result<Machine, FileError> {
    Machine::parse("fsm.json", text.as_bytes(), &mut Vec::new())
}

fn open(machine: Machine) -> Fsm {
    let mut fsm = Fsm::new(Arc::new(machine));
    assert_eq!(fsm.state(), "INIT");
    assert!(fsm.accepts(1) && !(2..=70_000).any(|msg_type| fsm.accepts(msg_type)) && !fsm.accepts(0));
    fsm.received(1);
    assert_eq!(fsm.state(), "INIT", "being asked who one is lets nobody in");
    fsm.authenticated();
    assert_eq!(fsm.state(), "OPEN");
    fsm
}

#[test]
fn the_shipped_machines_take_what_channeld_s_take() {
    type Takes = fn(u32) -> bool;
    let expected: [(Machine, Takes); 3] = [
        (Machine::server(), |msg_type| (2..=65_535).contains(&msg_type)),
        (Machine::client(), |msg_type| msg_type == 7 || (99..=65_535).contains(&msg_type)),
        (Machine::client_authoritative(), |msg_type| (3..=8).contains(&msg_type) || (15..=65_535).contains(&msg_type)),
    ];
    for (machine, takes) in expected {
        let fsm = open(machine);
        for msg_type in (0..70_000).chain([u32::MAX]) {
            assert_eq!(fsm.accepts(msg_type), takes(msg_type), "{msg_type}");
        }
    }
}

#[test]
fn a_client_by_default_cannot_subscribe_itself() {
    let fsm = open(Machine::client());
    assert!(!fsm.accepts(6) && fsm.accepts(7));
}

#[test]
fn a_transition_is_followed_and_the_last_state_is_the_last() {
    let machine = parse(
        r#"{ "States": [ { "Name": "A", "MsgTypeWhitelist": "1-3" }, { "Name": "B", "MsgTypeWhitelist": "2,5" },
                         { "Name": "C", "MsgTypeWhitelist": "0-99999", "MsgTypeBlacklist": "5, 7-9" } ],
             "Transitions": [ { "FromState": "B", "ToState": "A", "MsgType": 5 },
                              { "FromState": "A", "ToState": "C", "MsgType": 3 } ],
             "InitState": "B" }"#,
    )
    .unwrap();
    let mut fsm = Fsm::new(Arc::new(machine));
    assert_eq!(fsm.state(), "B");
    fsm.received(3);
    assert_eq!(fsm.state(), "B");
    fsm.received(5);
    assert_eq!(fsm.state(), "A");
    fsm.received(3);
    assert_eq!(fsm.state(), "C");
    assert!(fsm.accepts(4) && !fsm.accepts(5) && !fsm.accepts(8) && fsm.accepts(99_999) && !fsm.accepts(100_000));
    fsm.authenticated();
    assert_eq!(fsm.state(), "C");
}

#[test]
fn a_machine_read_again_is_entered_in_the_state_of_the_same_name() {
    let mut fsm = open(Machine::client());
    let other = r#"{ "States": [ { "Name": "OPEN", "MsgTypeWhitelist": "50" }, { "Name": "X" } ] }"#;
    fsm.reload(Arc::new(parse(other).unwrap()));
    assert!(fsm.state() == "OPEN" && fsm.accepts(50) && !fsm.accepts(7));
    fsm.reload(Arc::new(parse(r#"{ "States": [ { "Name": "Y", "MsgTypeWhitelist": "3" } ] }"#).unwrap()));
    assert!(fsm.state() == "Y" && fsm.accepts(3));
}

#[test]
fn a_machine_that_makes_no_sense_is_refused_with_line_and_key() {
    for (text, complaint) in [
        ("{}", "the file: there is no list \"States\""),
        ("{ \"States\": [] }", "States: 1 to 256 states"),
        ("{ \"States\": [\n{} ] }", "line 2: States[0]: the state has no \"Name\""),
        ("{ \"States\": [ {\"Name\": \"A\"},\n {\"Name\": \"A\"} ] }", "line 2: States[1].Name: another state has this name"),
        ("{ \"States\": [ {\"Name\": \"A\",\n \"MsgTypeWhitelist\": \"1,x\"} ] }", "line 2: States[0].MsgTypeWhitelist: \"x\" is neither"),
        ("{ \"States\": [ {\"Name\": \"A\", \"MsgTypeWhitelist\": \"9-1\"} ] }", "ends before it begins"),
        ("{ \"States\": [ {\"Name\": \"A\"} ],\n \"InitState\": \"B\" }", "line 2: InitState: there is no state \"B\""),
        (
            "{ \"States\": [ {\"Name\": \"A\"} ], \"Transitions\": [ {\"FromState\": \"A\", \"ToState\": \"B\", \"MsgType\": 1} ] }",
            "Transitions[0].ToState: there is no state \"B\"",
        ),
        (
            "{ \"States\": [ {\"Name\": \"A\"} ], \"Transitions\": [ {\"FromState\": \"A\", \"ToState\": \"A\"} ] }",
            "Transitions[0]: the transition has no \"MsgType\"",
        ),
        (
            "{ \"States\": [ {\"Name\": \"A\"} ], \"Transitions\": [ {\"FromState\": \"A\", \"ToState\": \"A\", \"MsgType\": 1},\n
              {\"FromState\": \"A\", \"ToState\": \"A\", \"MsgType\": 1} ] }",
            "line 3: Transitions[1]: another transition leaves this state",
        ),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(complaint), "{text}: {error}");
    }
}

#[test]
fn a_connection_s_place_is_small() {
    assert_eq!(size_of::<Fsm>(), 16);
}
