//! The contracts of rewinding, each in a module of its own.

mod duels;
mod histories;
mod hostile;
mod logs;
mod parts;
mod rates;
mod shots;
mod support;
#[path = "../../../fuzz/bodies/verdict_log.rs"]
mod verdict_log;
