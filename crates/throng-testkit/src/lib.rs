//! Shared parts of the crates' behaviour tests: seeds that replay, simulated network conditions, modelled TCP
//! downloads, taps on the network, audits, a search for secrets in bytes, and a naive replication to compare with.
//!
//! Everything runs on virtual time and on seeds. The only thing taken from the environment is the seed to replay:
//!
//! ```text
//! seed 17: client 2 does not see #4.1
//! play it again with THRONG_SEED=17 cargo test -p throng --test convergence
//! ```
//!
//! ```
//! use throng_testkit::{for_seeds, find_bits};
//!
//! for_seeds("cargo test -p throng-testkit", 3, |seed| {
//!     let mut rng = fastrand::Rng::with_seed(seed);
//!     if rng.u32(..10) < 10 { Ok(()) } else { Err("out of range".to_owned()) }
//! });
//! assert_eq!(find_bits(&[0b0001_0110], &[0b1011], 4), Some(1));
//! ```
#![forbid(unsafe_code)]

mod audit;
mod bulk;
mod intercepted;
mod kinds;
mod naive;
mod secret;
mod seeds;
mod tap;
mod weather;

pub use audit::{BudgetAudit, UDP_IPV4_HEADER_BYTES};
pub use bulk::{Bulk, Control};
pub use intercepted::Intercepted;
pub use kinds::{Beacon, Chat, Mode, Parcel, Score, Steering, Walker, schema};
pub use naive::{NaiveReplica, NaiveSender, NaiveSight, NaiveState};
pub use secret::{find_bits, find_shifted};
pub use seeds::{for_seeds, seeds};
pub use tap::{Tap, Wire};
pub use weather::storm;
