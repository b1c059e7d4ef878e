//! The contracts of the replication core, each in a module of its own.

mod any_bytes;
mod convergence;
mod dormant_channels;
mod emptied_channel;
mod figures;
mod histories;
#[path = "../../throng-testkit/src/homes.rs"]
#[allow(unreachable_pub, reason = "a part of the test kit, which depends on this crate")]
mod homes;
mod late_records;
mod ledger;
mod limits;
mod long_life;
mod owners;
mod reckoned;
mod storm;
mod turns;
mod verdicts;
