//! The gateway's settings at start: the command line, and the files that it names.
//!
//! Flags and files are channeld's, read unchanged, with some of our own beside them. Everything is checked here, once,
//! so that the rest of the gateway only gets valid settings. An error names the flag, or the file with line and key.
//! Odd settings are noted, see [`Settings::notes`].
//!
//! ```
//! use throng_gateway::settings::{Settings, load_with};
//!
//! let none = |file: &str| Err(std::io::Error::new(std::io::ErrorKind::NotFound, file.to_string()));
//! let settings: Settings = load_with(["-dev", "-ca=:12108", "--mcb", "13", "-chs", "ue"], &none)?;
//! assert_eq!(settings.engine.connection_id_bits, 13);
//! assert_eq!(settings.engine.channel_types.of(5).default_fan_out_interval_ms, 50); // entities
//! # Ok::<(), throng_gateway::settings::SettingsError>(())
//! ```

mod error;
mod flags;
mod options;

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use throng_gateway_engine::channel_types::ChannelTypes;
use throng_gateway_engine::config_file::{MAX_FILE_BYTES, Note};
use throng_gateway_engine::fsm::Machine;
use throng_gateway_engine::limits::Limits;
use throng_gateway_engine::settings::{EngineSettings, MovementTypes};
use throng_gateway_engine::spatial::SpatialConfig;

pub use error::SettingsError;
pub use options::{AuthProvider, Listener, LogFormat, LogLevel, Network, Profile};

/// All settings of the gateway.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The settings of the engine.
    pub engine: EngineSettings,
    /// `-loglevel`
    pub log_level: LogLevel,
    /// `-logformat`
    pub log_format: LogFormat,
    /// `-logfile`, with `{time}` in it as it was written.
    pub log_file: Option<String>,
    /// `-profile`
    pub profile: Option<Profile>,
    /// `-profilepath`
    pub profile_path: String,

    /// `-sn`, `-sa`: where servers come in.
    pub server: Listener,
    /// `-listen server,...`
    pub more_servers: Vec<Listener>,
    /// `-sfsm`
    pub server_fsm: Option<String>,

    /// `-cn`, `-ca`: where clients come in.
    pub client: Listener,
    /// `-listen client,...`
    pub more_clients: Vec<Listener>,
    /// `-cfsm`
    pub client_fsm: Option<String>,
    /// `-cwm`: clients are listened to once GLOBAL has an owner.
    pub client_waits_for_master: bool,

    /// `-erp`: what clients send is recorded.
    pub record_clients: bool,
    /// `-rspd`: where recordings go; the current folder if there is none.
    pub recording_folder: Option<String>,
    /// `-scc`
    pub spatial_file: Option<String>,
    /// `-chs`: a file, or the name of a preset.
    pub channel_settings_file: Option<String>,

    /// `-http`: where health and metrics are served; empty for nowhere.
    pub http_address: String,
    /// `-admin`: where the page for operators of this machine is served; empty for nowhere.
    pub admin_address: String,
    /// `-cert`
    pub tls_certificate: Option<String>,
    /// `-key`
    pub tls_key: Option<String>,
    /// `-throngkey`
    pub link_key: Option<String>,
    /// `-throngoldkey`
    pub link_old_key: Option<String>,
    /// `-throngaddress`: where clients find the doors of the `throng` network, `host:port`; empty for where they listen.
    pub link_addresses: Vec<String>,
    /// `-origins`: origins of browsers that may connect; empty for all.
    pub origins: Vec<String>,
    /// `-edges`: where edges come.
    pub edges: Option<String>,
    /// `-home`: the gateway that this one is an edge of, `host:port`.
    pub home: Option<String>,
    /// `-edgekey`
    pub edge_key: Option<String>,
    /// `-auth`
    pub auth: AuthProvider,
    /// `-auth` was given.
    pub(super) names_auth: bool,
    /// `-descriptors`
    pub descriptor_files: Vec<String>,
    /// `-threads`: threads that encode; 0 for one per core.
    pub threads: u32,
    /// `-engine-threads`: engines with a thread each, which share the channels out.
    pub engine_threads: u32,
    /// `-snapshot`: the file that the gateway writes itself to, and starts from.
    pub snapshot_file: Option<String>,
    /// `-snapshot-every`: the time between two snapshots; zero for one at the end only.
    pub snapshot_every: Duration,
    /// `-snapshot-discard`: a file that cannot be used is put aside.
    pub snapshot_discard: bool,
    /// `-limits`
    pub limits_file: Option<String>,

    /// Odd settings for the log.
    pub notes: Vec<Note>,
    /// Limits that flags name: they outdo the file.
    limit_flags: Vec<(String, i64)>,
}

impl Default for Settings {
    /// The settings of an empty command line.
    fn default() -> Settings {
        Settings {
            engine: EngineSettings::default(),
            log_level: LogLevel::Info,
            log_format: LogFormat::Text,
            log_file: None,
            profile: None,
            profile_path: "profiles".into(),
            server: Listener { network: Network::Tcp, address: ":11288".into(), proxies: Vec::new() },
            more_servers: Vec::new(),
            server_fsm: None,
            client: Listener { network: Network::Tcp, address: ":12108".into(), proxies: Vec::new() },
            more_clients: Vec::new(),
            client_fsm: None,
            client_waits_for_master: false,
            record_clients: false,
            recording_folder: None,
            spatial_file: None,
            channel_settings_file: None,
            http_address: "127.0.0.1:8080".into(),
            admin_address: String::new(),
            tls_certificate: None,
            tls_key: None,
            link_key: None,
            link_old_key: None,
            link_addresses: Vec::new(),
            origins: Vec::new(),
            edges: None,
            home: None,
            edge_key: None,
            auth: AuthProvider::Nobody,
            names_auth: false,
            descriptor_files: Vec::new(),
            threads: 0,
            engine_threads: 1,
            snapshot_file: None,
            snapshot_every: Duration::from_secs(30),
            snapshot_discard: false,
            limits_file: None,
            notes: Vec::new(),
            limit_flags: Vec::new(),
        }
    }
}

/// Reads a file whole, or as much of it as shows that it is too large.
pub type ReadFile<'r> = &'r dyn Fn(&str) -> io::Result<Vec<u8>>;

/// Reads the words after the program's name, and the files that they name.
///
/// # Errors
/// The first complaint. [`SettingsError::HelpWanted`] asks for [`usage`].
pub fn load<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Result<Settings, SettingsError> {
    load_with(words, &read_file)
}

/// As [`load`], with another way of reading files.
///
/// # Errors
/// As [`load`].
pub fn load_with<S: AsRef<str>>(
    words: impl IntoIterator<Item = S>,
    read: ReadFile<'_>,
) -> Result<Settings, SettingsError> {
    let words: Vec<S> = words.into_iter().collect();
    let mut settings = Settings::default();
    flags::parse(&words, &mut settings)?;
    settings.settle()?;
    settings.read_files(read)?;
    Ok(settings)
}

/// All flags and limits, to be printed for `-help`.
pub fn usage() -> String {
    flags::usage()
}

impl Settings {
    /// Reads all files again, by the same flags. The world stays as it was cut: if its file has changed, that is noted.
    ///
    /// # Errors
    /// As [`load`]; `self` is still good then.
    pub fn reload(&self) -> Result<Settings, SettingsError> {
        self.reload_with(&read_file)
    }

    /// As [`reload`](Self::reload), with another way of reading files.
    ///
    /// # Errors
    /// As [`load`].
    pub fn reload_with(&self, read: ReadFile<'_>) -> Result<Settings, SettingsError> {
        let mut settings = Settings { notes: Vec::new(), ..self.clone() };
        settings.read_files(read)?;
        if settings.engine.spatial != self.engine.spatial {
            let file = settings.spatial_file.as_deref().unwrap_or_default();
            settings.notes.push(Note { text: format!("{file} has changed: the world is cut anew at the next start") });
            settings.engine.spatial = self.engine.spatial.clone();
        }
        Ok(settings)
    }

    /// All listeners for servers. An edge has none: world servers go to its home.
    pub fn server_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.home.is_none().then_some(&self.server).into_iter().chain(&self.more_servers)
    }

    /// All listeners for clients.
    pub fn client_listeners(&self) -> impl Iterator<Item = &Listener> {
        std::iter::once(&self.client).chain(&self.more_clients)
    }

    /// Consequences of several flags together.
    fn settle(&mut self) -> Result<(), SettingsError> {
        if self.auth == AuthProvider::Nobody && self.engine.development {
            if self.names_auth {
                return Err(contradiction("-auth=none", "-dev", "with -dev everybody can log in"));
            }
            self.auth = AuthProvider::Everybody;
        }
        self.engine.proves_names = matches!(self.auth, AuthProvider::Tokens(_) | AuthProvider::Http(_));
        if self.auth == AuthProvider::Nobody && self.home.is_none() {
            let text =
                "there is no provider of authentication, so no client can log in: name one with -auth, or use -dev";
            self.notes.push(Note { text: text.into() });
        }
        if self.engine.entity_channel_start <= self.engine.spatial_channel_start {
            return Err(contradiction("-scs", "-ecs", "entity channels begin behind the spatial ones"));
        }
        let is_encrypted = |listener: &Listener| listener.network.needs_certificate();
        if self.server_listeners().chain(self.client_listeners()).any(is_encrypted)
            && (self.tls_certificate.is_none() || self.tls_key.is_none())
        {
            return Err(missing("tls", "-cert and -key", "the files with the certificate and its key"));
        }
        if self.server_listeners().any(|listener| listener.network == Network::Throng) {
            return Err(contradiction("throng", "-sn", "this network is for clients"));
        }
        if self.client_listeners().any(|listener| listener.network == Network::Throng) && self.link_key.is_none() {
            return Err(missing("throng", "-throngkey", "the file with the key that tokens are made with"));
        }
        let is_unproxied = |listener: &Listener| matches!(listener.network, Network::Kcp | Network::Throng);
        let wrong = |listener: &&Listener| is_unproxied(listener) && !listener.proxies.is_empty();
        if let Some(listener) = self.server_listeners().chain(self.client_listeners()).find(wrong) {
            let reason = "the PROXY protocol is for TCP, TLS and WebSocket here";
            return Err(contradiction(listener.network.tag(), "-sproxy, -cproxy, proxy=", reason));
        }
        self.check_engine_threads()?;
        self.check_edges()?;
        self.note_hidden_link();
        self.note_idle_flags();
        self.note_open_doors();
        Ok(())
    }

    /// Refuses settings that need all channels in one engine.
    fn check_engine_threads(&self) -> Result<(), SettingsError> {
        let listens_to_throng = self.client_listeners().any(|listener| listener.network == Network::Throng);
        let moves = listens_to_throng && self.engine.movement != MovementTypes::NONE;
        let whole = [
            (self.spatial_file.is_some(), "-scc", "a world of cells lives in one engine: leave one of them out"),
            (self.engine.server_recovery, "-scr", "a lost server is known to one engine: leave one of them out"),
            (self.engine.unreal, "-unreal", "Unreal's objects are known to one engine: add -unreal=false"),
            (moves, "throng", "unreliable state comes from one engine: add -movement=none"),
        ];
        match whole.into_iter().find(|(is_wanted, ..)| *is_wanted && self.engine_threads > 1) {
            Some((_, flag, reason)) => Err(contradiction("-engine-threads", flag, reason)),
            None => Ok(()),
        }
    }

    /// Refuses settings that an edge, or a gateway with edges, cannot have.
    fn check_edges(&self) -> Result<(), SettingsError> {
        let flag = match (&self.home, &self.edges) {
            (None, None) => return Ok(()),
            (Some(_), _) => "-home",
            (None, Some(_)) => "-edges",
        };
        if self.edge_key.is_none() {
            return Err(missing(flag, "-edgekey", "the file with the key that the home and its edges know"));
        }
        let is_edge = self.home.is_some();
        let wrong = [
            (is_edge && self.edges.is_some(), "-edges", "an edge has no edges of its own"),
            (self.engine_threads > 1, "-engine-threads", "edges need all channels in one engine"),
            (is_edge && !self.more_servers.is_empty(), "-listen server,...", "world servers connect to the home"),
            (is_edge && self.snapshot_file.is_some(), "-snapshot", "an edge has nothing to write down: its home has"),
            (is_edge && self.spatial_file.is_some(), "-scc", "the world is the home's"),
        ];
        match wrong.into_iter().find(|(is_wrong, ..)| *is_wrong) {
            Some((_, other, reason)) => Err(contradiction(flag, other, reason)),
            None => Ok(()),
        }
    }

    /// Flags that change nothing without another one.
    fn note_idle_flags(&mut self) {
        let listens = |is: fn(&Listener) -> bool| self.server_listeners().chain(self.client_listeners()).any(is);
        let is_encrypted = listens(|listener| listener.network.needs_certificate());
        let has_link = listens(|listener| listener.network == Network::Throng);
        let has_edges = self.edges.is_some() || self.home.is_some();
        let usual = Settings::default();
        let idle = [
            (self.edge_key.is_some() && !has_edges, "-edgekey", "-edges or -home"),
            (self.snapshot_discard && self.snapshot_file.is_none(), "-snapshot-discard", "-snapshot"),
            (
                self.snapshot_every != usual.snapshot_every && self.snapshot_file.is_none(),
                "-snapshot-every",
                "-snapshot",
            ),
            (self.link_old_key.is_some() && !has_link, "-throngoldkey", "a door of the network throng"),
            (self.tls_certificate.is_some() && !is_encrypted, "-cert", "a door of the network tls or wss"),
        ];
        for (_, flag, needed) in idle.into_iter().filter(|(is_idle, ..)| *is_idle) {
            self.notes.push(Note { text: format!("{flag} has no effect without {needed}") });
        }
    }

    /// Accepted peers that the operator may not have thought of.
    fn note_open_doors(&mut self) {
        let is_loopback = |place: &str| {
            let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
            let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
            host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
        };
        let is_open = self.client_listeners().any(|listener| !is_loopback(listener.host_and_port()));
        if self.auth == AuthProvider::Everybody && is_open && self.home.is_none() {
            let text = "the clients' door accepts every login, without authentication, from any machine: \
                        listen on loopback with -ca=127.0.0.1:12108, or name a provider with -auth";
            self.notes.push(Note { text: text.into() });
        }
        if let AuthProvider::Http(url) = &self.auth
            && let Some(rest) = url.strip_prefix("http://")
            && !is_loopback(rest.split('/').next().unwrap_or_default())
        {
            let text = format!("-auth={url} sends the players' tokens over the network unencrypted: use https://");
            self.notes.push(Note { text });
        }
    }

    /// A door on all interfaces has no address that a token could name.
    fn note_hidden_link(&mut self) {
        let is_everywhere = |listener: &Listener| {
            let (host, _) = listener.host_and_port().rsplit_once(':').unwrap_or_default();
            listener.network == Network::Throng && matches!(host, "" | "0.0.0.0" | "[::]")
        };
        if self.link_addresses.is_empty() && self.client_listeners().any(is_everywhere) {
            let text = "the throng network listens on all interfaces, but tokens must name one address: give the one that \
                        clients use with -throngaddress";
            self.notes.push(Note { text: text.into() });
        }
    }

    fn read_files(&mut self, read: ReadFile<'_>) -> Result<(), SettingsError> {
        self.read_limits(read)?;
        self.read_channel_settings(read)?;
        let notes = &mut self.notes;
        self.engine.server_machine = read_machine("sfsm", self.server_fsm.as_deref(), Machine::server, read, notes)?;
        self.engine.client_machine = read_machine("cfsm", self.client_fsm.as_deref(), Machine::client, read, notes)?;
        if let Some(file) = &self.spatial_file {
            let text = open("scc", file, read)?;
            let channels = self.engine.spatial_channel_start..self.engine.entity_channel_start;
            self.engine.spatial = Some(SpatialConfig::parse(file, &text, channels, notes)?);
        }
        Ok(())
    }

    fn read_limits(&mut self, read: ReadFile<'_>) -> Result<(), SettingsError> {
        self.engine.limits = Limits::default();
        if let Some(file) = &self.limits_file {
            let text = open("limits", file, read)?;
            self.engine.limits.read(file, &text, &mut self.notes)?;
        }
        for (name, value) in &self.limit_flags {
            // Checked when the flag was read: the range is the same.
            let _ = self.engine.limits.set(name, *value);
        }
        if self.engine_threads > 1 && self.engine.limits.client_resume_ms > 0 {
            let reason = "a lost client is known to one engine: set the limit to 0";
            return Err(contradiction("-engine-threads", "client_resume_ms", reason));
        }
        match self.engine.limits.contradiction() {
            Some((low, high)) => Err(contradiction(low, high, "the lower bound is above the upper one")),
            None => Ok(()),
        }
    }

    fn read_channel_settings(&mut self, read: ReadFile<'_>) -> Result<(), SettingsError> {
        let Some(file) = &self.channel_settings_file else {
            self.engine.channel_types = ChannelTypes::default();
            return Ok(());
        };
        let shipped = ChannelTypes::shipped(file);
        self.engine.channel_types = match (open("chs", file, read), shipped) {
            (Ok(text), _) => ChannelTypes::parse(file, &text, &self.engine.limits, &mut self.notes)?,
            (Err(_), Some(preset)) => {
                self.notes.push(built_in(file));
                preset
            }
            (Err(error), None) => return Err(error),
        };
        Ok(())
    }
}

fn read_machine(
    flag: &'static str,
    file: Option<&str>,
    usual: fn() -> Machine,
    read: ReadFile<'_>,
    notes: &mut Vec<Note>,
) -> Result<Arc<Machine>, SettingsError> {
    let Some(file) = file else { return Ok(Arc::new(usual())) };
    match (open(flag, file, read), Machine::shipped(file)) {
        (Ok(text), _) => Ok(Arc::new(Machine::parse(file, &text, notes)?)),
        (Err(_), Some(machine)) => {
            notes.push(built_in(file));
            Ok(Arc::new(machine))
        }
        (Err(error), None) => Err(error),
    }
}

fn built_in(file: &str) -> Note {
    Note { text: format!("{file} cannot be read: the gateway uses the built-in file of that name") }
}

fn missing(setting: &str, needed: &str, reason: &str) -> SettingsError {
    SettingsError::Missing { setting: setting.into(), needed: needed.into(), reason: reason.into() }
}

fn contradiction(first: &str, second: &str, reason: &str) -> SettingsError {
    SettingsError::Contradiction { first: first.into(), second: second.into(), reason: reason.into() }
}

fn open(flag: &'static str, file: &str, read: ReadFile<'_>) -> Result<Vec<u8>, SettingsError> {
    read(file).map_err(|error| SettingsError::Read { flag, file: file.into(), error })
}

fn read_file(file: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(file)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut text)?;
    Ok(text)
}
