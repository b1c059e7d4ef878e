//! Budget files: their keys, and the errors of wrong ones.

use std::path::Path;

use throng_telemetry::{FrameBudgets, Subsystem, Subsystems};

fn parse(text: &str) -> Result<FrameBudgets, throng_telemetry::BudgetFileError> {
    FrameBudgets::parse(text, Path::new("budgets.toml"), &Subsystems::new())
}

fn refused(text: &str) -> String {
    let error = parse(text).expect_err(text);
    format!("{}: {error}", error.tag())
}

const KNOWN: &str = "receive, open, settle, simulate, interest, quantise, plan, encode, write, seal, send, replication, \
                     fog_of_war, network, animation, gameplay, movement, equippable, character, physics, ai, other";

#[test]
fn a_file_names_budgets_in_milliseconds() {
    let mut subsystems = Subsystems::new();
    let bullets = subsystems.add("bullets").expect("a new name");
    let text = "frame_ms = 2.34\nslow_frame_ms = 4\n[subsystem_ms]\nphysics = 0.25\nbullets = 0\n";
    let budgets = FrameBudgets::parse(text, Path::new("b"), &subsystems).expect("a good file");
    assert_eq!((budgets.frame_ns, budgets.slow_ns()), (Some(2_340_000), Some(4_000_000)));
    let limits = [Subsystem::PHYSICS, bullets, Subsystem::AI].map(|part| budgets.subsystems.limit_ns(part));
    assert_eq!(limits, [Some(250_000), Some(0), None]);
    assert_eq!(parse("frame_ms = 1").expect("a good file").slow_ns(), Some(1_000_000));
    assert_eq!(parse("").expect("no budgets at all"), FrameBudgets::default());
}

#[test]
fn errors_name_the_file_the_line_and_what_there_is() {
    let head = "[subsystem_ms]\nphysics = 1.0\n";
    let cases = [
        ("fog = 1", format!("unknown_subsystem: budgets.toml:3: there is no subsystem \"fog\"; there are {KNOWN}")),
        ("ai = -0.5", "value: budgets.toml:3: ai = -0.5 is no budget: use milliseconds from 0 to 60000".into()),
        ("ai = nan", "value: budgets.toml:3: ai = NaN is no budget: use milliseconds from 0 to 60000".into()),
        ("\n\nai = inf", "value: budgets.toml:5: ai = inf is no budget: use milliseconds from 0 to 60000".into()),
        ("ai = 60000.1", "value: budgets.toml:3: ai = 60000.1 is no budget: use milliseconds from 0 to 60000".into()),
        ("ai = \"1\"", "malformed: budgets.toml:3: invalid type: string \"1\", expected f64".into()),
        ("physics = 2", "malformed: budgets.toml:3: duplicate key".into()),
        ("ai 1", "malformed: budgets.toml:3: key with no value, expected `=`".into()),
    ];
    for (line, expected) in cases {
        assert_eq!(refused(&format!("{head}{line}\n")), expected);
    }
    let unknown_key = "malformed: budgets.toml:1: unknown key `frame_us`: did you mean `frame_ms`?";
    assert_eq!(refused("frame_us = 3\n"), unknown_key);
    let no_limit = "value: budgets.toml:2: slow_frame_ms = -1 is no budget: use milliseconds from 0 to 60000";
    assert_eq!(refused("frame_ms = 1\nslow_frame_ms = -1\n"), no_limit);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = FrameBudgets::read(Path::new("/no/budgets.toml"), &Subsystems::new()).expect_err("there is none");
    assert_eq!(error.tag(), "unreadable");
    assert_eq!(error.to_string(), "/no/budgets.toml: cannot be read: No such file or directory (os error 2)");
}

#[test]
fn no_text_is_worse_than_refused() {
    let pieces =
        ["[subsystem_ms]", "\n", "physics", "fog", " = ", "1", "-", ".", "nan", "\"", "[", "]", "é", "{", "frame_ms"];
    throng_seeds::for_seeds(2_000, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let text: String = (0..random.usize(..12)).map(|_| pieces[random.usize(..pieces.len())]).collect();
        let lines = 1 + text.matches('\n').count();
        if let Err(error) = parse(&text) {
            let message = error.to_string();
            let line = message.strip_prefix("budgets.toml:").and_then(|rest| rest.split(':').next()?.parse().ok());
            assert!(line.is_some_and(|line: usize| (1..=lines).contains(&line)), "{text:?}: {message}");
        }
    });
}
