//! Room for states of players, which other processes send as many of as they like.

/// States at most: of those that other servers have told, of those in a round, and of players whom this server has let go.
pub(crate) const STATES_MAX: usize = 65_536;
/// Their bytes at most.
pub(crate) const STATES_BYTES_MAX: usize = 64 << 20;

/// The states that have room now, and their bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) states: usize,
    pub(crate) bytes: usize,
}

impl Room {
    /// False if there is none for one more state of so many bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.states < STATES_MAX && self.bytes + bytes <= STATES_BYTES_MAX;
        if fits {
            (self.states, self.bytes) = (self.states + 1, self.bytes + bytes);
        }
        fits
    }

    pub(crate) fn give_back(&mut self, bytes: usize) {
        (self.states, self.bytes) = (self.states - 1, self.bytes - bytes);
    }
}
