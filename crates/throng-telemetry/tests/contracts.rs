//! The contracts of telemetry, each in a module of its own.

mod breaches;
mod budget_files;
mod examples;
mod flight;
mod frames_add_up;
mod prometheus_text;
mod running;
mod tables;
mod threads;
