//! Virtual time, simulated network, oracle world, generators.
