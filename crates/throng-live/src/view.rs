//! A viewer's end of the stream, for programs that are no browser.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::client;
use crate::message::{Event, LINE_BYTES_MAX};

/// Events that may wait. Then the hub has to.
const WAITING_MAX: usize = 64;

/// Why the stream cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// There is no hub, or it refuses.
    #[error("there is no live page at {address} ({reason}): start one with `throng lab serve --address {address}`")]
    NoHub {
        /// The address.
        address: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// The hub has ended.
    #[error("the live page has ended")]
    Ended,
    /// There is no thread for it.
    #[error("cannot start the thread that reads from the live page: {0}")]
    Thread(std::io::Error),
}

impl ViewError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            ViewError::NoHub { .. } => "no-hub",
            ViewError::Ended => "ended",
            ViewError::Thread(_) => "thread",
        }
    }
}

/// The events of a hub, as they come.
#[derive(Debug)]
pub struct View {
    events: Receiver<Event>,
}

impl View {
    /// Begins to look at a hub.
    ///
    /// # Errors
    /// There is no hub at this address.
    pub fn open(address: SocketAddr) -> Result<View, ViewError> {
        let no_hub = |error: ureq::Error| ViewError::NoHub { address, reason: error.to_string() };
        let body = client::open(&client::agent(), &format!("http://{address}/live")).map_err(no_hub)?;
        let (send, events) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("live-view".to_owned());
        thread.spawn(move || read(body, &send)).map_err(ViewError::Thread)?;
        Ok(View { events })
    }

    /// The next event; `None` if none comes in this time.
    ///
    /// # Errors
    /// [`ViewError::Ended`].
    pub fn next(&mut self, patience: Duration) -> Result<Option<Event>, ViewError> {
        match self.events.recv_timeout(patience) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(ViewError::Ended),
        }
    }
}

/// Reads server-sent events: of each, the line that begins with `data:`.
fn read(body: impl Read, send: &SyncSender<Event>) {
    let mut body = BufReader::new(body);
    let mut line = Vec::new();
    loop {
        line.clear();
        match body.by_ref().take(2 * LINE_BYTES_MAX as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // The data of `lost` are a number, and no event.
        let Some(event) = line.strip_prefix(b"data:").and_then(|data| serde_json::from_slice(data).ok()) else {
            continue;
        };
        if send.send(event).is_err() {
            return;
        }
    }
}
