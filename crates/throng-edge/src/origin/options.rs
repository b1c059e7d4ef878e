//! The options of an origin.

/// Options of an origin.
#[derive(Clone, Debug)]
pub struct OriginOptions {
    /// The lane of the messages between edges and origin, counted as in [`ServerOptions::lanes`](throng::ServerOptions::lanes): a
    /// reliable, ordered one that the game uses for nothing else. Its messages may have at least [`LANE_BYTES_MIN`](crate::LANE_BYTES_MIN)
    /// bytes ([`LaneOptions::message_bytes`](throng::LaneOptions::message_bytes)): an edge refuses another one at its start.
    /// [`EdgeOptions::lane`](crate::EdgeOptions::lane) is the same number: an edge that speaks on another lane is sent away, and told why.
    pub lane: u8,
    /// The rate limit of one edge, in bytes per second. Its packets to the origin are bounded by the same: one for each 600 bytes, and
    /// never fewer than any client's [`ServerOptions::client_packets_per_s`](throng::ServerOptions::client_packets_per_s).
    pub edge_bytes_per_s: u32,
    /// Players of one edge.
    pub players_max: usize,
    /// Events that wait to be polled. Inputs and messages beyond are dropped and counted.
    pub events_max: usize,
    /// A player whose edge dies, or who does not answer any more, is kept for so many ticks: whoever connects with its client id to
    /// any edge until then goes on as this player. 0: it leaves at once. All servers of a world have the same. A client id has one player in
    /// any case: a client that connects with the id of a player who is here, through any edge, ends the former connection.
    pub keep_ticks: u32,
}

impl Default for OriginOptions {
    /// Lane 0, 100 Mbit/s, 16,384 players of each edge, a million events, nobody kept.
    fn default() -> OriginOptions {
        OriginOptions { lane: 0, edge_bytes_per_s: 12_500_000, players_max: 16_384, events_max: 1 << 20, keep_ticks: 0 }
    }
}
