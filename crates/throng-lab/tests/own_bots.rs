//! Bots of one's own play a run. This test has no harness, because its program is the bots' process too.

#[expect(dead_code, reason = "the example's main is not called")]
#[path = "../examples/corner.rs"]
mod corner;

fn main() {
    if let Some(played) = corner::play_bots() {
        return played.expect("the bots play");
    }
    let runs = tempfile::tempdir().expect("there is a temporary folder");
    let summary = corner::play(runs.path()).expect("the run is played");
    assert_eq!((summary.bots.connected, summary.bots.disconnects), (20, 0), "{:?}", summary.head.invalid_reasons);
    assert_eq!((summary.bots.state_mismatches, summary.bots.bad_inputs), (0, 0));
    // Bots that wander in this area are 12 m apart on average; these are all in one corner.
    let neighbours = &summary.neighbours;
    assert!(neighbours.near.samples > 100, "{neighbours:?}");
    assert_eq!((neighbours.middle.samples, neighbours.far.samples), (0, 0), "{neighbours:?}");
    println!("own bots: ok");
}
