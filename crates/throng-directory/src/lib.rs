//! The directory: which member is the home of each channel, cell, entity and session.
//!
//! ```text
//!  store   member.<id>        a lease for each member: all its homes end with it
//!          home.channel.7     owner, the owner's term; its revision is the home's fencing number
//!          state.channel.7    the checkpoint, which only the newest owner can write
//!
//!  nobody --claim--> Serving --move_to: frozen--> the other member serves, with the state
//!                       \--the lease ends--> nobody, until another claims it and begins with the checkpoint
//! ```
//!
//! A member serves a home while [`Directory::fence`] says so. No two do at one moment, as long as clocks differ in speed by less
//! than the margin of the lease; and a member that was stopped cannot write with its old number. A move is one write to the
//! store: before it the source serves, after it the target. [`Directory`] has no sockets and no clock. It takes the events of a
//! [`throng_bus::Bus`], and returns commands for it.
//!
//! ```
//! use throng_bus::{Bus, Limits, LocalHub, MemberId};
//! use throng_directory::{Directory, DirectoryOptions, HomeChange, HomeKey};
//! use throng_wire::Time;
//!
//! let mut bus = LocalHub::new().join(MemberId(1), Limits::default());
//! let mut directory = Directory::new(MemberId(1), DirectoryOptions::default());
//! let key = HomeKey::Channel(7);
//! let mut is_home = false;
//!
//! for step in 0..10 {
//!     let now = Time::from_millis(step * 10); // your clock
//!     bus.handle_timeout(now);
//!     while let Some(event) = bus.poll_event(now) {
//!         directory.handle_event(now, &event);
//!     }
//!     directory.handle_timeout(now);
//!     while let Some(change) = directory.poll_change() {
//!         is_home |= matches!(change, HomeChange::Claimed { .. });
//!     }
//!     if directory.term(now).is_some() && !is_home {
//!         let _ = directory.claim(key, now); // an error means that it is under way
//!     }
//!     while let Some(command) = directory.poll_command(now) {
//!         if let Err(error) = bus.handle_command(now, command.clone()) {
//!             directory.handle_refusal(now, &command, error);
//!         }
//!     }
//! }
//! assert!(is_home);
//! ```
#![forbid(unsafe_code)]

mod claim;
mod directory;
mod key;
mod moves;
mod record;
mod release;

pub use claim::CLAIM_ATTEMPTS_MAX;
pub use directory::{Directory, DirectoryError, DirectoryOptions, HOMES_MAX, HomeChange};
pub use key::HomeKey;
pub use moves::{
    ARRIVALS_MAX, ARRIVING_BYTES_MAX, PART_ATTEMPTS_MAX, PART_BYTES_MAX, PART_PATIENCE, PARTS_MAX, RETRY_AFTER,
};
pub use record::Home;
