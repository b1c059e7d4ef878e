//! The values of the command line, as types.

use ipnet::IpNet;

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// `tcp`
    Tcp,
    /// `kcp`
    Kcp,
    /// `ws`, `websocket`
    WebSocket,
    /// `tls`: TCP, encrypted.
    Tls,
    /// `wss`: WebSocket, encrypted.
    SecureWebSocket,
    /// `throng`: our own link over UDP, always encrypted.
    Throng,
}

impl Network {
    /// The name on the command line, and in metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            Network::Tcp => "tcp",
            Network::Kcp => "kcp",
            Network::WebSocket => "ws",
            Network::Tls => "tls",
            Network::SecureWebSocket => "wss",
            Network::Throng => "throng",
        }
    }

    /// Whether it takes a certificate.
    pub fn needs_certificate(self) -> bool {
        matches!(self, Network::Tls | Network::SecureWebSocket)
    }
}

/// Where connections come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its protocol.
    pub network: Network,
    /// `host:port/path`. Without host: all interfaces. The path is for WebSocket.
    pub address: String,
    /// Where proxies stand that say for whom they speak (PROXY protocol, version 1 or 2). Empty: peers come themselves.
    pub proxies: Vec<IpNet>,
}

impl Listener {
    /// Host and port, the host possibly empty, for all interfaces.
    pub fn host_and_port(&self) -> &str {
        self.address.split('/').next().unwrap_or_default()
    }

    /// The path with its leading slash, if the address has one.
    pub fn path(&self) -> Option<&str> {
        self.address.find('/').map(|at| &self.address[at..])
    }
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// `text`: for people.
    #[default]
    Text,
    /// `json`: an object for each line.
    Json,
}

/// The level of the log. Ordered: each level contains the ones behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// -3: every message.
    VeryVerbose,
    /// -2: every connection's doings.
    Verbose,
    /// -1: what helps to find mistakes.
    Debug,
    /// 0: what an operator wants to know.
    Info,
    /// 1: what should not be.
    Warn,
    /// 2: what does not work.
    Error,
    /// 3: what ends the process.
    Fatal,
}

impl LogLevel {
    pub(super) fn from_number(number: i64) -> LogLevel {
        match number {
            ..=-3 => LogLevel::VeryVerbose,
            -2 => LogLevel::Verbose,
            -1 => LogLevel::Debug,
            0 => LogLevel::Info,
            1 => LogLevel::Warn,
            2 => LogLevel::Error,
            3.. => LogLevel::Fatal,
        }
    }
}

/// The kind of profile for `-profile`. The first is done; the others are understood, noted, and left to the tools of
/// the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// `cpu`
    Processor,
    /// `mem`
    Memory,
    /// `goroutine`
    Threads,
}

/// Decides whether a connection may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthProvider {
    /// Nobody: every login fails. The default without `-dev` and `-auth`.
    Nobody,
    /// Every login is accepted: for development. The default with `-dev` and without `-auth`.
    Everybody,
    /// A file of identifiers and tokens.
    Tokens(String),
    /// A service that is asked, at this address.
    Http(String),
}
