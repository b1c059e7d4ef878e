//! Connect tokens from this process's own clock and random numbers.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Instant;

use throng_link::netcode::{ConnectToken, ConnectTokenOptions, Key, Suite, TokenError, USER_DATA_LEN};

use crate::server::{random, unix_s};

/// Issues connect tokens, in place of a matchmaking backend: for games without one, and for tests.
///
/// ```
/// # use throng::{TokenIssuer, USER_DATA_LEN, random_key};
/// let issuer = TokenIssuer::new(1, random_key());
/// assert_eq!((issuer.lifetime_s, issuer.timeout_s), (30, 10)); // the defaults
///
/// // The backend's data about the player; the server finds it in `ServerEvent::Connected`.
/// let mut user_data = [0; USER_DATA_LEN];
/// user_data[..3].copy_from_slice(b"red");
/// let token = issuer.issue_with(7, &["10.0.0.1:40000".parse()?], &user_data)?;
/// # let _ = token;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenIssuer {
    /// Names the game and its version; the same as the server's.
    pub protocol_id: u64,
    /// The key shared with the servers.
    pub private_key: Key,
    /// The cipher of the connections: by default the one that is [faster here](fastest_suite). For clients of other netcode
    /// libraries, it has to be [`Suite::ChaCha20Poly1305`].
    pub suite: Suite,
    /// Seconds for which a token is valid. Servers add 10 s, because clocks differ.
    pub lifetime_s: u64,
    /// Seconds of silence after which either side gives up; 0 leaves it to the idle timeouts of both, which count if they
    /// are shorter.
    pub timeout_s: i32,
}

impl TokenIssuer {
    /// An issuer of tokens that are good for 30 seconds.
    pub fn new(protocol_id: u64, private_key: Key) -> TokenIssuer {
        TokenIssuer { protocol_id, private_key, suite: fastest_suite(), lifetime_s: 30, timeout_s: 10 }
    }

    /// A token for one connection of this client to one of these servers, which are tried in this order.
    ///
    /// # Errors
    /// None, or more than 32 servers.
    pub fn issue(&self, client_id: u64, servers: &[SocketAddr]) -> Result<ConnectToken, TokenError> {
        self.issue_with(client_id, servers, &[0; USER_DATA_LEN])
    }

    /// The same, with data about the player for the server, which finds `user_data` in
    /// [`ServerEvent::Connected`](crate::ServerEvent::Connected). The client can neither read nor change it.
    ///
    /// # Errors
    /// As [`TokenIssuer::issue`].
    pub fn issue_with(
        &self,
        client_id: u64,
        servers: &[SocketAddr],
        user_data: &[u8; USER_DATA_LEN],
    ) -> Result<ConnectToken, TokenError> {
        let create_unix_s = unix_s();
        let options = ConnectTokenOptions {
            protocol_id: self.protocol_id,
            client_id,
            create_unix_s,
            expire_unix_s: create_unix_s.saturating_add(self.lifetime_s),
            suite: self.suite,
            timeout_s: self.timeout_s,
            servers: servers.to_vec(),
            user_data: *user_data,
        };
        ConnectToken::generate(&options, &self.private_key, &mut random)
    }
}

/// The cipher that seals full packets faster on this processor: measured when it is asked for first, in about a millisecond.
pub fn fastest_suite() -> Suite {
    static FASTEST: OnceLock<Suite> = OnceLock::new();
    *FASTEST.get_or_init(|| {
        let start = Instant::now();
        Suite::faster(|| start.elapsed())
    })
}

/// A key from the system's random numbers.
pub fn random_key() -> Key {
    Key::generate(&mut random)
}
