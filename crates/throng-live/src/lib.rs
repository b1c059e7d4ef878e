//! The live stream of loads that run: figures, marks and moving points. One stream, which a web page and terminals read.
//!
//! ```text
//!  a crowd, a match, a search                throng lab serve                       browser, throng top, curl -N
//!  --------------------------                ----------------                       ----------------------------
//!  Feed: sample, points, mark   --POST /feed, a line of JSON each-->  Hub  --GET /live, server-sent events-->  page
//!    never waits: newest wins                                         keeps the last minutes
//!  Feed::wanted  <--GET /commands, a line of JSON each--              POST /set  <-- the load that somebody wants
//! ```
//!
//! A load pays for a bounded copy of some figures ten times in a second, and for its points only while somebody looks. A load
//! does not notice a hub that is slow or gone. A viewer that is slow loses the oldest events, and is told how many.
//!
//! ```
//! use std::time::Duration;
//! use throng_live::{Feed, Hello, Hub, HubOptions, Message, Sample, View};
//!
//! let hub = Hub::start(&HubOptions::default())?;
//! let mut view = View::open(hub.address())?;
//!
//! let mut feed = Feed::connect(hub.address(), Hello { workload: "my server".to_owned(), ..Hello::default() })?;
//! feed.sample(Sample { time_s: 1.0, connected: 100, ..Sample::default() });
//!
//! let hello = view.next(Duration::from_secs(5))?.expect("the load is there");
//! assert!(matches!(hello.message, Message::Hello(hello) if hello.workload == "my server"));
//! let sample = view.next(Duration::from_secs(5))?.expect("it has a sample");
//! assert!(matches!(sample.message, Message::Sample(sample) if sample.connected == 100));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [docs/live.md](https://github.com/throng/throng/blob/main/docs/live.md) has every message with its units.
#![forbid(unsafe_code)]

/// The variable in which programs that another one starts find the address of its live page.
pub const VARIABLE: &str = "THRONG_LIVE";

mod client;
mod exposition;
mod feed;
mod guard;
mod history;
mod hub;
mod message;
mod pages;
mod view;

pub use feed::{Feed, FeedError};
pub use hub::{Hub, HubCounters, HubError, HubOptions};
pub use message::{
    Command, Event, FORMAT, Hello, LINE_BYTES_MAX, Load, Map, Mark, Message, POINTS_MAX, Point, Points, Sample,
    Subsystem,
};
pub use view::{View, ViewError};
