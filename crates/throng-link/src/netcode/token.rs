//! Connect tokens: what a backend makes, a client carries, and a server trusts. All integers little-endian.
//!
//! ```text
//! connect token, 2048 bytes               private section before sealing, 1024 bytes
//!   version             13                  client id              8
//!   protocol id          8                  timeout in seconds     4 (i32, none if <= 0)
//!   created, unix s      8                  number of servers      4 (1 to 32)
//!   expires, unix s      8                  server addresses       7 or 19 each
//!   nonce               24                  client-to-server key  32
//!   private section   1024 (sealed)         server-to-client key  32
//!   timeout in seconds   4                  user data            256
//!   number of servers    4                  zeros, up to 1008
//!   server addresses     7 or 19 each       tag                   16
//!   client-to-server    32
//!   server-to-client    32
//!   zeros, up to 2048
//! ```
//!
//! The version names the cipher of the connection's packets ([`Suite`]). The private section is sealed with
//! XChaCha20-Poly1305 under the private key of the protocol; version, protocol id and time of expiry are authenticated with it.

use super::aead::{self, Key, TAG_LEN, TOKEN_NONCE_LEN};
use super::fields::{ADDRESS_LEN_MAX, FieldReader, FieldWriter};
use super::suite::{Suite, VERSION_LEN};
use super::{CONNECT_TOKEN_LEN, KEY_LEN, PRIVATE_TOKEN_LEN, SERVERS_MAX, USER_DATA_LEN};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use zeroize::Zeroizing;

/// Bytes of the private section that are encrypted; the tag follows them.
const PRIVATE_BODY_LEN: usize = PRIVATE_TOKEN_LEN - TAG_LEN;
/// Longer lifetimes count as this one, which still fits into microseconds.
const LIFETIME_MAX_S: u64 = u64::MAX / 1_000_000;
const SERVERS_LEN_MAX: usize = 4 + SERVERS_MAX * ADDRESS_LEN_MAX;
const PUBLIC_HEAD_LEN: usize = VERSION_LEN + 8 + 8 + 8 + TOKEN_NONCE_LEN + PRIVATE_TOKEN_LEN + 4;
const _: () = assert!(8 + 4 + SERVERS_LEN_MAX + 2 * KEY_LEN + USER_DATA_LEN <= PRIVATE_BODY_LEN);
const _: () = assert!(PUBLIC_HEAD_LEN + SERVERS_LEN_MAX + 2 * KEY_LEN <= CONNECT_TOKEN_LEN);

/// Why a connect token could not be made, read or trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The number of servers is not in 1..=32. Our misuse when making, the backend's fault when reading.
    #[error("a connect token names 1 to {SERVERS_MAX} servers, not {count}")]
    ServerCount {
        /// The number that was given or read.
        count: usize,
    },
    /// The token would expire before it was created.
    #[error("the connect token expires at {expire_unix_s}, before it was created at {create_unix_s}")]
    ExpiresBeforeCreation {
        /// Seconds since 1970.
        create_unix_s: u64,
        /// Seconds since 1970.
        expire_unix_s: u64,
    },
    /// The token was made for another version of the standard, or is no token at all.
    #[error(
        "this is not a connect token of netcode 1.02, or its cipher is not known here: update this program, or let the backend \
         choose ChaCha20-Poly1305"
    )]
    Version,
    /// An address is neither IPv4 nor IPv6.
    #[error("the connect token holds an address that is neither IPv4 nor IPv6")]
    Address,
    /// The private section was not sealed with this private key for this protocol id and time of expiry.
    #[error("the connect token was not sealed with the key of this server")]
    NotAuthentic,
}

impl TokenError {
    /// A short stable name, for metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            TokenError::ServerCount { .. } => "server_count",
            TokenError::ExpiresBeforeCreation { .. } => "expires_before_creation",
            TokenError::Version => "version",
            TokenError::Address => "address",
            TokenError::NotAuthentic => "not_authentic",
        }
    }
}

/// The backend's choices for one connection.
#[derive(Debug, Clone)]
pub struct ConnectTokenOptions {
    /// Names the game and its version: servers refuse tokens for another protocol.
    pub protocol_id: u64,
    /// Names the player: a server takes each client id at most once at a time.
    pub client_id: u64,
    /// Now, in seconds since 1970.
    pub create_unix_s: u64,
    /// The expiry of the token, in seconds since 1970, exclusive. Tens of seconds are usual.
    pub expire_unix_s: u64,
    /// The cipher of the connection's packets. With [`Suite::default`], the token works with every implementation of the standard.
    pub suite: Suite,
    /// Seconds without an authentic packet after which either side gives up; none at or below 0.
    pub timeout_s: i32,
    /// The servers to try, in this order; 1 to 32.
    pub servers: Vec<SocketAddr>,
    /// Anything the server should know about the player; sealed, so that the client cannot read or change it.
    pub user_data: [u8; USER_DATA_LEN],
}

/// The right to connect, as the client holds it.
///
/// Contains the keys of the connection: anybody who has the bytes can connect as the player. Good for one
/// [`ClientHandshake`](super::ClientHandshake): a second one with the same token would use nonces twice. That is why it
/// cannot be cloned.
pub struct ConnectToken {
    suite: Suite,
    protocol_id: u64,
    create_unix_s: u64,
    expire_unix_s: u64,
    timeout_s: i32,
    servers: Vec<SocketAddr>,
    pub(super) nonce: [u8; TOKEN_NONCE_LEN],
    pub(super) private_section: Box<[u8; PRIVATE_TOKEN_LEN]>,
    pub(super) client_to_server: Key,
    pub(super) server_to_client: Key,
}

impl ConnectToken {
    /// Makes a token with fresh keys. `random` fills a buffer with unpredictable bytes.
    ///
    /// # Errors
    ///
    /// [`TokenError::ServerCount`] and [`TokenError::ExpiresBeforeCreation`], both the caller's fault.
    pub fn generate(
        options: &ConnectTokenOptions,
        private_key: &Key,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<ConnectToken, TokenError> {
        check_servers(options.servers.len())?;
        check_times(options.create_unix_s, options.expire_unix_s)?;
        let mut nonce = [0; TOKEN_NONCE_LEN];
        random(&mut nonce);
        let private = PrivateToken {
            suite: options.suite,
            client_id: options.client_id,
            timeout_s: options.timeout_s,
            servers: options.servers.clone(),
            client_to_server: Key::generate(random),
            server_to_client: Key::generate(random),
            user_data: options.user_data,
        };
        Ok(ConnectToken {
            suite: options.suite,
            protocol_id: options.protocol_id,
            create_unix_s: options.create_unix_s,
            expire_unix_s: options.expire_unix_s,
            timeout_s: options.timeout_s,
            servers: options.servers.clone(),
            nonce,
            private_section: private.seal(options.protocol_id, options.expire_unix_s, &nonce, private_key),
            client_to_server: private.client_to_server,
            server_to_client: private.server_to_client,
        })
    }

    /// Reads a token.
    ///
    /// # Errors
    ///
    /// Every kind but [`TokenError::NotAuthentic`]: whether the sealed section is genuine, only a server can tell.
    pub fn from_bytes(bytes: &[u8; CONNECT_TOKEN_LEN]) -> Result<ConnectToken, TokenError> {
        let (head, rest) = bytes.split_first_chunk::<PUBLIC_HEAD_LEN>().expect("a token is longer than its head");
        let mut r = FieldReader::new(head);
        let suite = r.array().and_then(Suite::from_version).ok_or(TokenError::Version)?;
        let mut head = || {
            let (protocol_id, create_unix_s, expire_unix_s) = (r.u64()?, r.u64()?, r.u64()?);
            Some((protocol_id, create_unix_s, expire_unix_s, r.array()?, Box::new(r.array()?), r.u32()? as i32))
        };
        let (protocol_id, create_unix_s, expire_unix_s, nonce, private_section, timeout_s) =
            head().expect("the head has room for its fields");
        check_times(create_unix_s, expire_unix_s)?;
        let (servers, client_to_server, server_to_client) = read_servers_and_keys(&mut FieldReader::new(rest))?;
        Ok(ConnectToken {
            suite,
            protocol_id,
            create_unix_s,
            expire_unix_s,
            timeout_s,
            servers,
            nonce,
            private_section,
            client_to_server,
            server_to_client,
        })
    }

    /// The token's bytes, to be sent to the client on a secure way.
    pub fn to_bytes(&self) -> [u8; CONNECT_TOKEN_LEN] {
        let mut bytes = [0; CONNECT_TOKEN_LEN];
        let mut w = FieldWriter::new(&mut bytes);
        w.bytes(&self.suite.version());
        w.u64(self.protocol_id);
        w.u64(self.create_unix_s);
        w.u64(self.expire_unix_s);
        w.bytes(&self.nonce);
        w.bytes(&self.private_section[..]);
        w.u32(self.timeout_s as u32);
        write_servers_and_keys(&mut w, &self.servers, &self.client_to_server, &self.server_to_client);
        bytes
    }

    /// The cipher of the connection's packets.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The protocol that the token is for.
    pub fn protocol_id(&self) -> u64 {
        self.protocol_id
    }

    /// When the token was made, in seconds since 1970 by the backend's clock.
    pub fn create_unix_s(&self) -> u64 {
        self.create_unix_s
    }

    /// The expiry of the token, in seconds since 1970 by the backend's clock.
    pub fn expire_unix_s(&self) -> u64 {
        self.expire_unix_s
    }

    /// The lifetime of the token, counted from its making; at most 500,000 years. Independent of the client's clock.
    pub fn lifetime(&self) -> Duration {
        Duration::from_secs(self.expire_unix_s.saturating_sub(self.create_unix_s).min(LIFETIME_MAX_S))
    }

    /// How long a connection may be silent; `None` for ever.
    pub fn timeout(&self) -> Option<Duration> {
        super::timeout_of(self.timeout_s)
    }

    /// The servers to try, in this order; 1 to 32.
    pub fn servers(&self) -> &[SocketAddr] {
        &self.servers
    }
}

impl fmt::Debug for ConnectToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectToken")
            .field("protocol_id", &self.protocol_id)
            .field("create_unix_s", &self.create_unix_s)
            .field("expire_unix_s", &self.expire_unix_s)
            .field("timeout_s", &self.timeout_s)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

/// The private section of a connect token, as the server reads it.
#[derive(Debug, Clone)]
pub struct PrivateToken {
    /// The cipher of the connection's packets. Authenticated with the section, not a part of it.
    pub suite: Suite,
    /// Names the player.
    pub client_id: u64,
    /// Seconds of silence after which either side gives up; none at or below 0.
    pub timeout_s: i32,
    /// The servers that may take this client; 1 to 32.
    pub servers: Vec<SocketAddr>,
    /// Key of the packets from client to server.
    pub client_to_server: Key,
    /// Key of the packets from server to client.
    pub server_to_client: Key,
    /// The backend's data about the player.
    pub user_data: [u8; USER_DATA_LEN],
}

impl PrivateToken {
    /// Decrypts `section` in place and reads it. Its last 16 bytes, the tag, stay as they are.
    ///
    /// # Errors
    ///
    /// [`TokenError::NotAuthentic`] for a peer's forgery; any other kind means a faulty backend.
    pub fn open(
        section: &mut [u8; PRIVATE_TOKEN_LEN],
        (suite, protocol_id): (Suite, u64),
        expire_unix_s: u64,
        nonce: &[u8; 24],
        private_key: &Key,
    ) -> Result<PrivateToken, TokenError> {
        let (body, tag) = section.split_last_chunk_mut::<TAG_LEN>().expect("the section is longer than a tag");
        aead::open_token(private_key, nonce, &additional_data(suite, protocol_id, expire_unix_s), body, tag)
            .map_err(|_| TokenError::NotAuthentic)?;
        PrivateToken::from_bytes(suite, section)
    }

    /// Reads a decrypted private section.
    ///
    /// # Errors
    ///
    /// [`TokenError::ServerCount`] and [`TokenError::Address`].
    pub fn from_bytes(suite: Suite, section: &[u8; PRIVATE_TOKEN_LEN]) -> Result<PrivateToken, TokenError> {
        let mut r = FieldReader::new(section);
        let mut head = || Some((r.u64()?, r.u32()? as i32));
        let (client_id, timeout_s) = head().expect("the section is longer than its head");
        let (servers, client_to_server, server_to_client) = read_servers_and_keys(&mut r)?;
        let user_data = r.array().expect("the section has room for 32 servers, keys and user data");
        Ok(PrivateToken { suite, client_id, timeout_s, servers, client_to_server, server_to_client, user_data })
    }

    fn seal(
        &self,
        protocol_id: u64,
        expire_unix_s: u64,
        nonce: &[u8; TOKEN_NONCE_LEN],
        private_key: &Key,
    ) -> Box<[u8; PRIVATE_TOKEN_LEN]> {
        // The plain text holds keys, so it is wiped; the sealed section is copied out of it.
        let mut section = Zeroizing::new([0; PRIVATE_TOKEN_LEN]);
        let (body, tag) = section.split_last_chunk_mut::<TAG_LEN>().expect("the section is longer than a tag");
        let mut w = FieldWriter::new(body);
        w.u64(self.client_id);
        w.u32(self.timeout_s as u32);
        write_servers_and_keys(&mut w, &self.servers, &self.client_to_server, &self.server_to_client);
        w.bytes(&self.user_data);
        *tag = aead::seal_token(private_key, nonce, &additional_data(self.suite, protocol_id, expire_unix_s), body);
        Box::new(*section)
    }
}

fn additional_data(suite: Suite, protocol_id: u64, expire_unix_s: u64) -> [u8; VERSION_LEN + 16] {
    let mut bytes = [0; VERSION_LEN + 16];
    let mut w = FieldWriter::new(&mut bytes);
    w.bytes(&suite.version());
    w.u64(protocol_id);
    w.u64(expire_unix_s);
    bytes
}

fn read_servers_and_keys(r: &mut FieldReader<'_>) -> Result<(Vec<SocketAddr>, Key, Key), TokenError> {
    let count = r.u32().expect("the server count stands at a fixed place") as usize;
    check_servers(count)?;
    let servers = (0..count).map(|_| r.address()).collect::<Option<Vec<_>>>().ok_or(TokenError::Address)?;
    let mut key = || r.array().map(Key::new).expect("a token has room for 32 servers and both keys");
    Ok((servers, key(), key()))
}

fn write_servers_and_keys(w: &mut FieldWriter<'_>, servers: &[SocketAddr], to_server: &Key, to_client: &Key) {
    w.u32(servers.len() as u32);
    servers.iter().for_each(|&server| w.address(server));
    w.bytes(to_server.as_bytes());
    w.bytes(to_client.as_bytes());
}

fn check_servers(count: usize) -> Result<(), TokenError> {
    if (1..=SERVERS_MAX).contains(&count) { Ok(()) } else { Err(TokenError::ServerCount { count }) }
}

fn check_times(create_unix_s: u64, expire_unix_s: u64) -> Result<(), TokenError> {
    if create_unix_s <= expire_unix_s {
        return Ok(());
    }
    Err(TokenError::ExpiresBeforeCreation { create_unix_s, expire_unix_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ConnectTokenOptions {
        ConnectTokenOptions {
            protocol_id: 7,
            client_id: 8,
            create_unix_s: 100,
            expire_unix_s: 130,
            suite: Suite::default(),
            timeout_s: 5,
            servers: vec!["127.0.0.1:40000".parse().unwrap(), "[::1]:50000".parse().unwrap()],
            user_data: [9; USER_DATA_LEN],
        }
    }

    fn random(seed: u64) -> impl FnMut(&mut [u8]) {
        let mut rng = fastrand::Rng::with_seed(seed);
        move |bytes| rng.fill(bytes)
    }

    #[test]
    fn a_token_survives_its_bytes_and_the_server_reads_what_the_backend_wrote() {
        let key = Key::new([3; KEY_LEN]);
        let token = ConnectToken::generate(&options(), &key, &mut random(1)).unwrap();
        let bytes = token.to_bytes();
        let read = ConnectToken::from_bytes(&bytes).unwrap();
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!((read.protocol_id(), read.create_unix_s(), read.expire_unix_s()), (7, 100, 130));
        assert_eq!(read.lifetime(), Duration::from_secs(30));
        assert_eq!(read.timeout(), Some(Duration::from_secs(5)));
        assert_eq!(read.servers(), options().servers);

        let private =
            PrivateToken::open(&mut read.private_section.clone(), (Suite::default(), 7), 130, &read.nonce, &key)
                .unwrap();
        assert_eq!((private.client_id, private.timeout_s), (8, 5));
        assert_eq!(private.servers, options().servers);
        assert_eq!(private.user_data, options().user_data);
        assert_eq!(private.client_to_server.as_bytes(), read.client_to_server.as_bytes());
        assert_eq!(private.server_to_client.as_bytes(), read.server_to_client.as_bytes());
    }

    #[test]
    fn the_longest_token_fits() {
        let servers = vec!["[1:2:3:4:5:6:7:8]:9".parse().unwrap(); SERVERS_MAX];
        let token =
            ConnectToken::generate(&ConnectTokenOptions { servers, ..options() }, &Key::new([3; 32]), &mut random(2))
                .unwrap();
        let read = ConnectToken::from_bytes(&token.to_bytes()).unwrap();
        assert_eq!(read.servers(), token.servers());
        let mut section = read.private_section.clone();
        let private =
            PrivateToken::open(&mut section, (Suite::default(), 7), 130, &read.nonce, &Key::new([3; 32])).unwrap();
        assert_eq!(private.user_data, options().user_data);
    }

    #[test]
    fn wrong_options_are_refused() {
        let make = |options| ConnectToken::generate(&options, &Key::new([3; 32]), &mut random(3)).unwrap_err();
        assert_eq!(make(ConnectTokenOptions { servers: vec![], ..options() }), TokenError::ServerCount { count: 0 });
        let servers = vec![options().servers[0]; SERVERS_MAX + 1];
        assert_eq!(make(ConnectTokenOptions { servers, ..options() }), TokenError::ServerCount { count: 33 });
        let late = ConnectTokenOptions { create_unix_s: 131, ..options() };
        assert_eq!(make(late).tag(), "expires_before_creation");
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let good = ConnectToken::generate(&options(), &Key::new([3; 32]), &mut random(4)).unwrap().to_bytes();
        let read = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            ConnectToken::from_bytes(&bytes).map(|_| ())
        };
        assert_eq!(read(0, good[0]), Ok(()));
        assert_eq!(read(11, b'1'), Err(TokenError::Version));
        assert_eq!(read(28, 1).unwrap_err().tag(), "expires_before_creation");
        assert_eq!(read(PUBLIC_HEAD_LEN, 0), Err(TokenError::ServerCount { count: 0 }));
        assert_eq!(read(PUBLIC_HEAD_LEN + 3, 255).unwrap_err().tag(), "server_count");
        assert_eq!(read(PUBLIC_HEAD_LEN + 4, 0), Err(TokenError::Address));
        assert_eq!(read(PUBLIC_HEAD_LEN + 4, 3), Err(TokenError::Address));
    }

    #[test]
    fn a_section_moved_to_another_suite_protocol_or_expiry_is_not_authentic() {
        let key = Key::new([3; KEY_LEN]);
        let token = ConnectToken::generate(&options(), &key, &mut random(5)).unwrap();
        let open = |suite, protocol_id, expire_unix_s, key: &Key| {
            let mut section = token.private_section.clone();
            PrivateToken::open(&mut section, (suite, protocol_id), expire_unix_s, &token.nonce, key).map(|_| ())
        };
        let standard = Suite::default();
        assert_eq!(open(standard, 7, 130, &key), Ok(()));
        assert_eq!(
            open(Suite::Aes256Gcm, 7, 130, &key),
            Err(TokenError::NotAuthentic),
            "another cipher than the backend chose"
        );
        assert_eq!(open(standard, 8, 130, &key), Err(TokenError::NotAuthentic));
        assert_eq!(open(standard, 7, 131, &key), Err(TokenError::NotAuthentic));
        assert_eq!(open(standard, 7, 130, &Key::new([4; KEY_LEN])), Err(TokenError::NotAuthentic));
    }

    #[test]
    fn a_printed_token_holds_no_key() {
        let token = ConnectToken::generate(&options(), &Key::new([3; 32]), &mut random(6)).unwrap();
        assert!(!format!("{token:?}").contains("key"), "{token:?}");
        assert!(!format!("{token:?}").contains("private"), "{token:?}");
    }
}
