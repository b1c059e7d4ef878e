//! Older replication models, written for comparison with ours and for nothing else.
//!
//! People choose a replication model by comparison. Here are the well-known ones, each as good as its idea allows, behind
//! the same seam as ours ([`throng::Replication`]): the same world, connections, sealing and sockets, so that what differs
//! in a measurement is the model. docs/models.md says what each does, from which public sources that is known, and what
//! was chosen where they are silent. Games should use [`throng::Channels`].
//!
//! | model | what a connection costs |
//! |---|---|
//! | [`Legacy`] | every object looked at, compared, written |
//! | [`Legacy`] with push marks | every object looked at; those touched compared and written |
//! | [`Graph`] | objects in the lists of its cell looked at; those touched compared and written |
//! | [`SharedState`] | objects that changed written, from masks and values that are worked out once |
#![forbid(unsafe_code)]

mod arena;
mod baseline;
mod bits;
mod comparison;
mod decoder;
mod due;
mod flight;
mod graph;
mod legacy;
mod link;
mod modelled;
mod record;
mod shared_state;
mod viewer;
mod world;

pub use comparison::Detection;
pub use decoder::RecordDecoder;
pub use graph::Graph;
pub use legacy::Legacy;
pub use modelled::Modelled;
pub use record::RecordError;
pub use shared_state::{Scratch, SharedState, SharedStateOptions};
