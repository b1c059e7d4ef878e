//! Every example runs headless and prints what it promises.
//!
//! The examples are compiled into this test. A `println!` of our own, which their modules find first, keeps the lines.

use std::cell::RefCell;
use std::time::Duration;

thread_local! {
    /// Each test has a thread of its own, and so has each example.
    static PRINTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

macro_rules! println {
    ($($arguments:tt)*) => {
        crate::PRINTED.with_borrow_mut(|lines| lines.push(format!($($arguments)*)))
    };
}

#[path = "../examples/arena.rs"]
mod arena;
#[path = "../examples/bad_network.rs"]
mod bad_network;
#[path = "../examples/getting_started.rs"]
mod getting_started;
#[path = "../examples/interest.rs"]
mod interest;
#[path = "../examples/messages.rs"]
mod messages;
#[path = "../examples/owner.rs"]
mod owner;
#[path = "../examples/prediction.rs"]
mod prediction;
#[path = "../examples/quick_start.rs"]
mod quick_start;
#[path = "../examples/restart.rs"]
mod restart;

fn printed(example: fn() -> Result<(), Box<dyn std::error::Error>>) -> Vec<String> {
    let result = example();
    let lines = PRINTED.take();
    assert!(result.is_ok(), "{result:?} after {lines:#?}");
    lines
}

/// The number before `what` in a line.
fn number(line: &str, what: &str) -> u64 {
    let before = line.split(what).next().filter(|before| before.len() < line.len());
    let word = before.and_then(|before| before.split_whitespace().last());
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number before {what:?} in {line:?}"))
}

#[test]
fn quick_start_shows_an_object_that_moves() {
    let lines = printed(quick_start::main);
    assert_eq!(lines.iter().filter(|line| line.starts_with("there is #")).count(), 1, "{lines:#?}");
    let moves: Vec<&String> = lines.iter().filter(|line| line.contains(" m with 30 shots")).collect();
    // Real sockets and a real clock: most of 60 ticks, but not a known number of them.
    assert!(moves.len() > 10, "{lines:#?}");
    assert!(moves.windows(2).all(|pair| pair[0] != pair[1]), "{lines:#?}");
}

#[test]
fn the_program_of_getting_started_shows_three_players_to_each_other() {
    let lines = printed(|| getting_started::main().map_err(|error| error as Box<dyn std::error::Error>));
    assert_eq!(lines.len(), 3, "{lines:#?}");
    // Real sockets and a real clock: the players come one after the other, and hear who comes after them.
    assert!(lines.iter().all(|line| line.contains("sees 2 others") && number(line, " chats") > 0), "{lines:#?}");
}

#[test]
fn everything_in_the_arena_comes_true() {
    let lines =
        printed(|| arena::play(60, Duration::from_secs(2)).map_err(|error| error as Box<dyn std::error::Error>));
    assert!(lines.len() > 10, "{lines:#?}");
    let last = lines.last().expect("lines");
    assert!(number(last, " players") == 60 && number(last, " hits") > 0, "{last}");
}

#[test]
fn a_world_goes_on_after_its_process() {
    let lines = printed(restart::main);
    let [first, own @ ..] = &lines[..] else { panic!("{lines:#?}") };
    assert_eq!(first, "the world goes on after tick 89 with 2 objects");
    // One of them finds twice as much as the other one.
    let gold: Vec<u64> = own.iter().map(|line| number(line, " gold")).collect();
    assert!(gold.len() == 2 && gold[0] > 70 && gold[1] == 2 * gold[0], "{lines:#?}");
    assert!(own.iter().all(|line| line.ends_with("sees 2 players")), "{lines:#?}");
}

#[test]
fn messages_arrive_once_and_in_order() {
    let lines = printed(messages::main);
    let wanted = (1..=10).map(|n| format!("answer {n}: {n} squared is {}", n * n));
    assert_eq!(lines, wanted.chain(["10 answers of 10, in order".to_owned()]).collect::<Vec<_>>());
}

#[test]
fn what_is_far_is_sent_seldom() {
    let lines = printed(interest::main);
    let updates: Vec<u64> = lines.iter().map(|line| number(line, " updates")).collect();
    let [near, middle, far, unseen] = updates[..] else { panic!("{lines:#?}") };
    assert!((280..300).contains(&near), "{lines:#?}");
    assert!((54..60).contains(&middle), "{lines:#?}");
    assert!((8..=10).contains(&far), "{lines:#?}");
    assert_eq!(unseen, 0);
}

#[test]
fn an_audience_knows_its_fields_and_no_others() {
    let lines = printed(owner::main);
    let without_tick = |line: &String| match line.strip_prefix("tick ").and_then(|rest| rest.split_once(": ")) {
        Some((_, rest)) => rest.to_owned(),
        None => line.clone(),
    };
    assert_eq!(
        lines.iter().map(without_tick).collect::<Vec<_>>(),
        [
            "client 0 owns it",
            "client 0: Ada is mine, ammunition 30, yaw 3.0",
            "client 1: Ada is not mine, ammunition 0, yaw 1.5",
            "client 0 owns it no longer",
            "client 1 owns it",
            "client 0: Ada is not mine, ammunition 0, yaw 1.5",
            "client 1: Ada is mine, ammunition 30, yaw 1.5",
        ]
    );
}

#[test]
fn prediction_and_server_meet() {
    let lines = printed(prediction::main);
    assert!(lines[0].ends_with("0 inputs are still pending"), "{lines:#?}");
    assert_eq!(lines[1], "after 100 inputs: server 10.00 m, client 10.00 m");
}

#[test]
fn a_bad_network_changes_nothing_in_the_end() {
    let lines = printed(bad_network::main);
    assert_eq!(lines[0], "0 of 100 particles differ");
    assert!(number(&lines[1], " of ") > 0, "the network was good: {lines:#?}");
    assert!(number(&lines[2], " segments") > 0, "nothing was sent again: {lines:#?}");
}
