//! The table of names: what is in it, what a game may add.

use throng_meter::{MAX_SUBSYSTEMS, Subsystem, Subsystems};

#[test]
fn every_table_has_the_stages_of_a_server_and_the_parts_of_a_game() {
    let subsystems = Subsystems::new();
    let names: Vec<&str> = subsystems.iter().map(|subsystem| subsystems.name(subsystem)).collect();
    let expected = "receive open settle simulate interest quantise plan encode write seal send replication fog_of_war \
                    network animation gameplay movement equippable character physics ai other";
    assert_eq!(names.join(" "), expected);
    for subsystem in subsystems.iter() {
        assert_eq!(subsystems.find(subsystems.name(subsystem)), Some(subsystem));
        assert_eq!(subsystem.built_in_name(), subsystems.name(subsystem));
        assert!(subsystem.index() < subsystems.count());
    }
    assert_eq!(subsystems.find("Encode"), None);
    assert!(Subsystem::STAGES.iter().all(|&stage| subsystems.iter().any(|subsystem| subsystem == stage)));
}

#[test]
fn a_game_adds_its_own_until_the_table_is_full() {
    let mut subsystems = Subsystems::new();
    let bullets = subsystems.add("bullets").expect("a new name");
    assert_eq!((subsystems.name(bullets), subsystems.find("bullets")), ("bullets", Some(bullets)));
    assert_eq!((bullets.built_in_name(), Subsystems::new().name(bullets)), ("unknown", "unknown"));
    assert_eq!(subsystems.iter().last(), Some(Subsystem::OTHER));
    for number in subsystems.count()..MAX_SUBSYSTEMS {
        let added = subsystems.add(&format!("own_{number}")).expect("room");
        assert_eq!(added.index(), number);
    }
    let error = subsystems.add("late").expect_err("64 are in it");
    assert_eq!(
        (error.tag(), error.to_string().as_str()),
        ("full", "no room for the subsystem \"late\": a table holds 64")
    );
}

#[test]
fn names_that_no_metric_can_have_are_refused() {
    let mut subsystems = Subsystems::new();
    for name in ["", "Bullets", "fog of war", "1st", "_x", "b-c", "ünder", "x\n", &"a".repeat(33)] {
        assert_eq!(subsystems.add(name).expect_err(name).tag(), "name", "{name}");
    }
    assert_eq!(subsystems.add("physics").expect_err("it is there").tag(), "taken");
    assert!(subsystems.add(&"a".repeat(32)).is_ok());
}
