//! What clients are sent.

use throng::Server;
use throng_match::{GameError, Seats};

use crate::tactical::Tactical;

/// What has been published so far.
#[derive(Debug)]
pub(crate) struct Publication {}

impl Publication {
    pub(crate) fn new(_seats: usize) -> Publication {
        Publication {}
    }
}

impl Tactical {
    pub(crate) fn publish_once(&mut self, _server: &mut Server, _seats: &Seats) -> Result<(), GameError> {
        Ok(())
    }
}
