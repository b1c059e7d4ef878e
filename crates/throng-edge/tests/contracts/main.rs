//! Contracts of edges, on a network in memory and in virtual time.

mod any_bytes;
mod balance;
mod converge;
mod ends;
mod hostile;
mod inputs;
mod moves;
#[path = "../../examples/one_edge.rs"]
mod one_edge;
mod over_bus;
mod over_bus_storms;
mod readers;
mod recalls;
mod returns;
mod stage;
mod worlds;

#[test]
fn the_example_runs() {
    one_edge::main().unwrap();
}
