//! Peeker's advantage: how much earlier one who steps out of cover sees than is seen.

/// The delays between a player who steps out (the *enemy*) and a player who waits (*I*). All in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeekPath {
    /// Time of a frame of the enemy's client: a step is sent when the frame that shows it is done.
    pub enemy_client_frame_ms: f64,
    /// From the enemy's client to the server.
    pub enemy_one_way_ms: f64,
    /// Time of a tick of the server: the longest that an input waits for its tick.
    pub server_frame_ms: f64,
    /// From the server to my client.
    pub own_one_way_ms: f64,
    /// How far behind the newest state my client shows the world.
    pub interpolation_ms: f64,
}

impl PeekPath {
    /// By how many milliseconds the enemy sees me before I see the enemy:
    ///
    /// ```text
    /// enemy's client frame + enemy's one way + server frame + own one way + interpolation delay
    /// ```
    ///
    /// It is an upper bound: an input waits for its tick by one server frame at most, and by half of one on average
    /// ([`PeekPath::mean_advantage_ms`]). Source: the formula published for VALORANT's netcode in May 2020.
    pub fn advantage_ms(&self) -> f64 {
        self.enemy_client_frame_ms
            + self.enemy_one_way_ms
            + self.server_frame_ms
            + self.own_one_way_ms
            + self.interpolation_ms
    }

    /// The mean of the advantage, over inputs that arrive evenly between two ticks.
    pub fn mean_advantage_ms(&self) -> f64 {
        self.advantage_ms() - self.server_frame_ms / 2.0
    }
}
