//! Contracts of edges, on a network in memory and in virtual time.

mod any_bytes;
mod balance;
mod converge;
mod ends;
mod hostile;
mod inputs;
mod moves;
mod over_bus;
mod over_bus_storms;
mod readers;
mod recalls;
mod returns;
mod stage;
mod worlds;
