//! Shared parts of the crates' behaviour tests: simulated network conditions, modelled TCP downloads, taps on the
//! network, audits, a search for secrets in bytes, the cells of moving objects, and a naive replication to compare with.
//!
//! Everything runs on virtual time and on seeds, which come from `throng_seeds`; but for tokens, which real doors compare
//! with the clock, and a real nats-server.
//!
//! ```
//! assert_eq!(throng_testkit::find_bits(&[0b0001_0110], &[0b1011], 4), Some(1));
//! ```
#![forbid(unsafe_code)]

mod audit;
mod bulk;
mod homes;
mod intercepted;
mod kinds;
mod naive;
mod nats;
mod secret;
mod tap;
mod token;
mod weather;

pub use audit::{BudgetAudit, UDP_IPV4_HEADER_BYTES};
pub use bulk::{Bulk, Control};
pub use homes::Homes;
pub use intercepted::Intercepted;
pub use kinds::{Beacon, Chat, Mode, Parcel, Score, Steering, Walker, schema};
pub use naive::{NaiveReplica, NaiveSender, NaiveSight, NaiveState};
pub use nats::NatsServer;
pub use secret::{find_bits, find_shifted};
pub use tap::{Tap, Wire};
pub use token::{token_now, token_options_now};
pub use weather::storm;
