//! The views of operators and their actions, without a page.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::stage::world::{Cut, FIRST};
use crate::stage::{Stage, settings};
use throng_channeld::Header;
use throng_channeld::proto::Any;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState};
use throng_gateway_engine::port::Side;
use throng_gateway_engine::{BlockedName, Row, Slice, Subject};

fn cells(slice: &Slice) -> Vec<(u32, usize)> {
    let cell = |row: &Row| match row {
        Row::Cell(cell) => (cell.channel, cell.entities),
        row => panic!("{row:?} is no cell"),
    };
    slice.rows.iter().map(cell).collect()
}

#[test]
fn a_table_of_cells_with_many_entities_is_shown_in_several_slices_and_is_complete() {
    let mut stage = Stage::world(Cut { cells: [4, 1, 0], servers: [1, 1, 0], border: 0 }, &[]);
    let server = stage.spatial_server("only");
    // Three cells of four have more than half of what is counted for one slice.
    let listed = |cell: u32| if cell == FIRST + 3 { 0 } else { 11_000 };
    for cell in FIRST..FIRST + 4 {
        let entities = (0..listed(cell)).map(|number| (number, SpatialEntityState::default())).collect();
        stage.update(&server, cell, Any::pack(&SpatialChannelData { entities }));
    }
    let (mut seen, mut from, mut lengths) = (BTreeMap::new(), 0, Vec::new());
    loop {
        let slice = stage.engine.slice(Subject::Cells, from, 100);
        lengths.push(slice.rows.len());
        seen.extend(cells(&slice));
        let Some(next) = slice.next else { break };
        from = next;
    }
    assert_eq!(seen, (FIRST..FIRST + 4).map(|cell| (cell, listed(cell) as usize)).collect());
    assert_eq!(lengths, [2, 2], "after 22,000 entities the next slice begins");
    assert_eq!(cells(&stage.engine.slice(Subject::Cells, 0, 1)).len(), 1, "no slice has more rows than were asked for");
}

#[test]
fn a_banned_player_is_listed_with_the_time_that_is_left_and_may_come_back_when_an_operator_says_so() {
    let mut stage = Stage::new(settings(&["-dev", "-limit", "max_fsm_violations=1", "-limit", "block_ms=60000"]));
    let ban = |stage: &mut Stage| {
        let rude = stage.join_as(Side::Client, "rude");
        stage.say_bytes(&rude, Header::new(0, 3), "");
        assert!(rude.is_closed());
    };
    ban(&mut stage);
    stage.pass(20_000);
    let left = Duration::from_secs(40);
    let banned = BlockedName { side: Side::Client, player: "rude".to_owned(), left };
    assert_eq!(stage.engine.blocked_names(10), [banned]);
    assert_eq!(stage.engine.blocked_names(0), []);
    assert!(!stage.engine.unblock(Side::Server, "rude"), "that is another door");
    assert!(!stage.engine.unblock(Side::Client, "polite"));
    assert!(stage.engine.unblock(Side::Client, "rude"));
    assert!(!stage.engine.unblock(Side::Client, "rude"), "it is forgiven already");
    ban(&mut stage);
    stage.pass(59_999);
    assert_eq!(stage.engine.blocked_names(10).len(), 1);
    stage.pass(1);
    assert_eq!(stage.engine.blocked_names(10), [], "nobody is banned for no time");
}
