//! The contracts of the drivers, each in a module of its own.

mod conditioned_driver;
mod conditioner;
mod memory_network;
mod udp_loopback;
