//! Three hundred joins on each of two bad networks.

use std::time::Duration;

use super::stage::{Fates, Kind, Stage};
use throng::net::{Condition, MemoryNetwork};
use throng_seeds::for_seeds;

/// Over some paths nothing passes for ten seconds: such a connection ends, and both games get an event. Of 300, this many.
const ENDED_MAX: u32 = 1;

fn join_on(preset: &str) {
    let (mut joins, mut ended) = (0, 0);
    for_seeds(300, |seed| {
        let condition: Condition = preset.parse().map_err(|_| "no such preset")?;
        let network = MemoryNetwork::new(condition, seed).map_err(|error| error.to_string())?;
        let kind = if seed % 2 == 0 { Kind::WithDriver } else { Kind::Core };
        let mut stage = Stage::new(&network, kind, Fates::default());
        stage.play(Duration::from_secs(30)).map_err(|fault| format!("{preset}: {fault}"))?;
        joins += 1;
        ended += u32::from(stage.ended().is_some());
        Ok(())
    });
    assert!(ended <= ENDED_MAX * joins / 300 + 1, "{ended} of {joins} connections ended");
}

#[test]
fn of_300_joins_over_a_phone_no_first_word_is_lost() {
    join_on("4g");
}

#[test]
fn of_300_joins_over_a_bad_link_no_first_word_is_lost() {
    join_on("bad");
}
