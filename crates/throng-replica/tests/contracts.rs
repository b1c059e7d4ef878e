//! The contracts of the replication core, each in a module of its own.

mod any_bytes;
mod convergence;
mod dormant_channels;
mod emptied_channel;
mod histories;
mod late_records;
mod limits;
mod long_life;
mod owners;
mod storm;
mod turns;
mod verdicts;
