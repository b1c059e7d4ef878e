//! The gateway without sockets, on virtual time: the conformance levels L1 to L7, and what it promises beyond them.
#![expect(clippy::duplicate_mod, reason = "the same tests run with and without an edge")]

mod access;
mod at_an_edge;
mod bounds;
mod budgets;
mod channel_meters;
#[path = "../../../../fuzz/bodies/choices.rs"]
mod choices;
mod conformance_l1;
mod conformance_l2;
mod conformance_l3;
mod conformance_l4;
mod conformance_l5;
mod conformance_l6;
mod conformance_l7;
mod costs;
#[path = "../../../throng-protostate/tests/contracts/counting.rs"]
mod counting;
mod delivery;
mod drop_in;
#[path = "../../../../fuzz/bodies/edge.rs"]
mod edge_body;
mod edge_storm;
mod edges;
mod fan_out;
mod fsm_machines;
mod handover_storm;
mod hold;
mod large_states;
mod layouts;
mod long_life;
mod memory;
mod movement;
mod operators;
mod owner_notices;
mod pressure;
mod shards;
mod slow_logins;
#[path = "../../../../fuzz/bodies/snapshot.rs"]
mod snapshot_body;
mod snapshots;
mod spatial_grid;
mod spatial_handover;
mod spatial_interest;
mod stage;
#[path = "../../../throng-protostate/tests/contracts/support.rs"]
mod state_support;
mod weaknesses;
