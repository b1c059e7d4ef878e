//! The example of docs/match.md runs to its result, and replays.

#[path = "../examples/hill.rs"]
mod hill;

#[test]
fn the_program_of_the_page_plays_and_replays_a_match() {
    hill::main().expect("it runs");
}
