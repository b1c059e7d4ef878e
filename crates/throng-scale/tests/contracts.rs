//! Forecasts, compared with sums that are made in other ways.

use proptest::prelude::*;
use throng_scale::{Layout, Part, Placement, Scenario, plan, simulate};

const FILE: &str = include_str!("../../../docs/benchmarks/unit-costs.toml");

fn scenario() -> Scenario {
    Scenario::parse(FILE).expect("the file of the documents is sound")
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()) + 1e-9
}

proptest! {
    #![proptest_config(throng_seeds::cases(64))]

    /// The oracle adds up by subjects; the library by processes.
    #[test]
    fn what_is_sent_is_received(
        players in 1u32..3_000, homes in 1u32..9, bus_servers in 1u32..6, edges in 1u32..40, popularity in 0.0..2.0f64,
        is_random: bool, seed: u64,
    ) {
        let mut scenario = scenario().with_players(players).unwrap();
        scenario.world.popularity = popularity;
        scenario.world.placement = if is_random { Placement::Random } else { Placement::ByZone };
        scenario.world.seed = seed;
        let layout = Layout { homes, bus_servers, edges };
        let load = simulate(&scenario, &layout);
        prop_assert_eq!(&load, &simulate(&scenario, &layout), "the same again");
        prop_assert_eq!(load.players, players);
        prop_assert_eq!(load.subjects.iter().map(|subject| subject.players).sum::<u32>(), players);
        prop_assert!(load.subjects.iter().all(|subject| subject.players <= scenario.world.zone_players_max));
        prop_assert!(load.subjects.iter().all(|subject| subject.edges <= edges.min(subject.players)));

        let (world, overhead) = (&scenario.world, scenario.costs.message_overhead_bytes);
        let players_f = f64::from(players);
        let pairs: f64 = load.subjects.iter().map(|subject| f64::from(subject.edges)).sum();
        let inputs = players_f * world.input_bytes_per_player_per_s + pairs * world.input_messages_per_s * overhead;
        let published: f64 = load.homes.iter().map(|load| load.out_bytes_per_s).sum();
        let of_subjects: f64 = load.subjects.iter().map(|subject| subject.published_bytes_per_s).sum();
        prop_assert!(close(published, of_subjects));
        prop_assert!(close(load.homes.iter().map(|load| load.in_bytes_per_s).sum(), inputs));
        let delivered: f64 = load.subjects.iter().map(|subject| subject.delivered_bytes_per_s).sum();
        let read: f64 = load.edges.iter().map(|load| load.in_bytes_per_s).sum();
        prop_assert!(close(read, delivered + players_f * world.input_bytes_per_player_per_s));
        // Between the servers of the bus, what one sends the other receives.
        let (bus_in, bus_out) = load.bus_servers.iter().fold((0.0, 0.0), |(entered, left), load| {
            (entered + load.in_bytes_per_s, left + load.out_bytes_per_s)
        });
        let between = bus_in - published - inputs;
        prop_assert!(close(bus_out, delivered + inputs + between));
        prop_assert!(bus_servers > 1 || close(between, 0.0));
    }

    #[test]
    fn any_file_is_a_scenario_or_a_reason(text in ".{0,200}", at in 0..FILE.len(), put in "[-0-9a-z.=\\[\\]\n]{0,6}") {
        let _ = Scenario::parse(&text);
        let mut changed = FILE.to_owned();
        if changed.is_char_boundary(at) {
            changed.insert_str(at, &put);
        }
        // A file that is taken can be played.
        if let Ok(scenario) = Scenario::parse(&changed) && let Ok(small) = scenario.with_players(500) {
            let load = simulate(&small, &Layout { homes: 2, bus_servers: 2, edges: 2 });
            prop_assert!(load.cores().is_finite());
        }
    }
}

#[test]
fn an_edge_by_zone_reads_few_zones_and_a_random_one_reads_all() {
    let mut scenario = scenario().with_players(20_000).unwrap();
    let layout = Layout { homes: 10, bus_servers: 3, edges: 40 };
    let pairs = |scenario: &Scenario| {
        simulate(scenario, &layout).subjects.iter().map(|subject| u64::from(subject.edges)).sum::<u64>()
    };
    let zones = u64::from(scenario.world.zones);
    // A zone is cut only where an edge is full.
    assert!((zones..zones + 40).contains(&pairs(&scenario)), "{}", pairs(&scenario));
    scenario.world.placement = Placement::Random;
    // Nearly as many as there are players: 20,000 of them, 40 edges, 50 in a zone, so each second edge or more has a reader.
    assert!(pairs(&scenario) > 10 * zones, "{}", pairs(&scenario));
}

#[test]
fn a_plan_holds_its_limits_and_one_process_fewer_does_not() {
    let scenario = scenario().with_players(50_000).unwrap();
    let plan = plan(&scenario);
    assert!(plan.holds, "{plan:?}");
    assert!(plan.fullest.2 <= 1.0);
    let most = |edges: u32| {
        let load = simulate(&scenario, &Layout { edges, ..plan.layout });
        load.edges.iter().map(|load| load.cores).fold(0.0, f64::max)
    };
    let limit = scenario.limits.edge_cores * scenario.limits.utilisation * scenario.machine.speed;
    assert!(most(plan.layout.edges) <= limit);
    assert!(most(plan.layout.edges * 9 / 10) > limit, "a tenth of the edges is not needed");
}

#[test]
fn machines_are_counted_by_their_own_network() {
    let mut scenario = scenario().with_players(200_000).unwrap();
    let mut machines = |network_bytes_per_s: Option<f64>| {
        scenario.machine.network_bytes_per_s = network_bytes_per_s;
        plan(&scenario).machines
    };
    // 3 GB/s go to players, and some more over the bus. A process carries 1.25 GB/s, of which it may use 70 %.
    let as_one_process = machines(None);
    assert!(as_one_process >= 4, "{as_one_process}");
    assert_eq!(machines(Some(1.25e9)), as_one_process);
    assert!(machines(Some(1.25e8)) >= 9 * as_one_process);
    // 134 cores, of 72 each, of which it may use 70 %.
    assert_eq!(machines(Some(1.25e12)), 3, "the cores are the limit");
}

#[test]
fn a_zone_that_no_home_can_carry_is_named() {
    let mut scenario = scenario().with_players(10_000).unwrap();
    scenario.costs.publish.ns = 1e9;
    let plan = plan(&scenario);
    assert!(!plan.holds);
    assert_eq!(plan.fullest.0, Part::Homes);
    assert_eq!(plan.layout.homes, scenario.world.zones, "each zone has a home of its own, and that does not help");
}

#[test]
fn each_figure_that_is_out_of_range_is_named() {
    for (key, wrong) in [
        ("players = 1000000", "players = 0"),
        ("players = 1000000", "players = 10000001"),
        ("popularity = 0.5", "popularity = nan"),
        ("utilisation = 0.7", "utilisation = 0.0"),
        ("speed = 1.0", "speed = inf"),
        ("zones = 20000", "zones = 10"),
        ("seed = 1", "sead = 1"),
    ] {
        let changed = FILE.replace(key, wrong);
        assert_ne!(changed, FILE, "{key} is in the file");
        let error = Scenario::parse(&changed).expect_err(wrong);
        let name = wrong.split(' ').next().unwrap();
        assert!(error.to_string().contains(name), "{error}");
        assert!(["text", "range", "too_few_zones"].contains(&error.tag()));
    }
}
