//! The example runs.

#[path = "../examples/frames.rs"]
mod frames;

#[test]
fn the_example_of_a_game_runs() {
    frames::main().expect("it runs");
}
