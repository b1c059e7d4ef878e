//! The gateway without sockets: the engine, its states and settings, on virtual time.

mod access;
mod bounds;
mod budgets;
mod channel_meters;
#[path = "../../../fuzz/bodies/choices.rs"]
mod choices;
mod conformance_l1;
mod conformance_l2;
mod conformance_l3;
mod conformance_l4;
mod conformance_l5;
mod conformance_l6;
mod conformance_l7;
mod delivery;
mod drop_in;
mod fan_out;
mod fsm_machines;
mod handover_storm;
mod hold;
mod large_states;
mod layouts;
mod long_life;
mod movement;
mod settings_any_bytes;
mod settings_files;
mod settings_flags;
mod slow_logins;
mod spatial_grid;
mod spatial_handover;
mod spatial_interest;
mod stage;
mod state_behaviour;
mod state_properties;
mod state_support;
mod state_work;
mod weaknesses;
