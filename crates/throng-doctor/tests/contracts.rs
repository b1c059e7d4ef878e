//! The promises of the crate, module by module, on machines that are folders.

mod fixture;
mod hostile;
mod machines;
mod processes;
mod ranking;
mod sampling;
mod settings;
mod trials;
