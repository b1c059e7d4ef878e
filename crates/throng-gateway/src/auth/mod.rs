//! Who may come in: providers that know, and the desk that asks them.
//!
//! ```text
//!   engine: poll_auth()  -->  Desk  -->  at once: accept-all, tokens, fixed password, always-fail
//!                              |   \-->  by a worker: HTTP call-out, anything else that may block
//!   engine: authenticated() <--+--------------'
//! ```
//! Without a provider a gateway does not start, except for development. World servers are let in without question
//! unless the settings say otherwise; that is the engine's rule, the desk never sees them then.

mod book;
mod desk;
mod http;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::engine::port::{AuthVerdict, Side};
use crate::settings::{AuthProvider, Settings};

pub use desk::DeskLimits;
pub(crate) use desk::{Answer, Desk, Staff};
pub use http::HttpProvider;
pub use tokens::{TokenError, Tokens};

/// What a peer says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Which door it came through.
    pub side: Side,
    /// Where it comes from.
    pub address: std::net::SocketAddr,
    /// Who it says it is.
    pub player_identifier_token: String,
    /// What is to prove it.
    pub login_token: String,
}

/// A provider that could not decide. The peer is not let in; it is not at fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the authentication provider does not answer: {0}")]
pub struct Unavailable(pub String);

/// Knows who may come in.
pub trait Provider: Send + Sync {
    /// Decides. Must come to an end within a bound of its own if it [may block](Provider::may_block).
    ///
    /// # Errors
    /// It cannot decide now.
    fn check(&self, credentials: &Credentials) -> Result<AuthVerdict, Unavailable>;

    /// Whether deciding takes time: then a worker does it, and otherwise the engine's thread.
    fn may_block(&self) -> bool {
        true
    }
}

/// Lets everybody in. For development.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptAll;

impl Provider for AcceptAll {
    fn check(&self, _: &Credentials) -> Result<AuthVerdict, Unavailable> {
        Ok(AuthVerdict::Accepted)
    }

    fn may_block(&self) -> bool {
        false
    }
}

/// Lets nobody in.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysFail;

impl Provider for AlwaysFail {
    fn check(&self, _: &Credentials) -> Result<AuthVerdict, Unavailable> {
        Ok(AuthVerdict::InvalidLogin)
    }

    fn may_block(&self) -> bool {
        false
    }
}

/// Lets everybody in who knows the one password.
#[derive(Clone)]
pub struct FixedPassword(pub String);

impl Provider for FixedPassword {
    fn check(&self, credentials: &Credentials) -> Result<AuthVerdict, Unavailable> {
        Ok(match is_same(&self.0, &credentials.login_token) {
            true => AuthVerdict::Accepted,
            false => AuthVerdict::InvalidLogin,
        })
    }

    fn may_block(&self) -> bool {
        false
    }
}

/// Which provider to ask.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProviderOptions {
    /// [`AcceptAll`].
    AcceptAll,
    /// [`AlwaysFail`].
    AlwaysFail,
    /// [`FixedPassword`].
    FixedPassword(String),
    /// [`Tokens`] from a TOML or JSON file.
    Tokens(PathBuf),
    /// [`HttpProvider`].
    Http {
        /// What is asked.
        url: String,
        /// How long an answer may take.
        timeout: Duration,
    },
}

/// A provider that cannot be had. The operator is at fault.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// None was named, and this is not development.
    #[error(
        "nobody decides who may come in: name an authentication provider, as -auth tokens:FILE or -auth https://..., or \
         start with -dev to let everybody in"
    )]
    Missing,
    /// The file of tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenError),
}

impl ProviderError {
    /// A stable name for logs.
    pub fn tag(&self) -> &'static str {
        match self {
            ProviderError::Missing => "provider_missing",
            ProviderError::Tokens(error) => error.tag(),
        }
    }
}

/// The provider that the options name. None is [`AcceptAll`] in development, and an error otherwise.
///
/// # Errors
/// None is named, or it cannot be used.
pub fn provider(options: Option<&ProviderOptions>, is_dev: bool) -> Result<Arc<dyn Provider>, ProviderError> {
    Ok(match options {
        None if is_dev => Arc::new(AcceptAll),
        None => return Err(ProviderError::Missing),
        Some(ProviderOptions::AcceptAll) => Arc::new(AcceptAll),
        Some(ProviderOptions::AlwaysFail) => Arc::new(AlwaysFail),
        Some(ProviderOptions::FixedPassword(password)) => Arc::new(FixedPassword(password.clone())),
        Some(ProviderOptions::Tokens(path)) => Arc::new(Tokens::load(Path::new(path))?),
        Some(ProviderOptions::Http { url, timeout }) => Arc::new(HttpProvider::new(url.clone(), *timeout)),
    })
}

/// The provider that settings name.
///
/// # Errors
/// They name none, or it cannot be used.
pub fn from_settings(settings: &Settings) -> Result<Arc<dyn Provider>, ProviderError> {
    let timeout = Duration::from_millis(settings.limits.auth_timeout_ms.into());
    let options = match &settings.auth {
        AuthProvider::Nobody => None,
        AuthProvider::Everybody => Some(ProviderOptions::AcceptAll),
        AuthProvider::Tokens(file) => Some(ProviderOptions::Tokens(file.into())),
        AuthProvider::Http(url) => Some(ProviderOptions::Http { url: url.clone(), timeout }),
    };
    provider(options.as_ref(), settings.development)
}

/// Compares secrets in a time that says nothing about where they differ.
fn is_same(secret: &str, guess: &str) -> bool {
    let difference = secret.bytes().zip(guess.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    (secret.len() == guess.len()) & (std::hint::black_box(difference) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn credentials(player: &str, login: &str) -> Credentials {
        Credentials {
            side: Side::Client,
            address: std::net::SocketAddr::from(([203, 0, 113, 1], 1)),
            player_identifier_token: player.to_owned(),
            login_token: login.to_owned(),
        }
    }

    #[test]
    fn without_a_provider_only_development_starts() {
        let error = provider(None, false).err().expect("nobody would be checked");
        assert_eq!(error.tag(), "provider_missing");
        assert!(error.to_string().contains("-dev"));
        let provider = provider(None, true).expect("development");
        assert_eq!(provider.check(&credentials("any", "thing")), Ok(AuthVerdict::Accepted));
    }

    #[test]
    fn a_password_lets_in_whoever_knows_it() {
        let provider = provider(Some(&ProviderOptions::FixedPassword("open".into())), false).expect("it is one");
        assert_eq!(provider.check(&credentials("ada", "open")), Ok(AuthVerdict::Accepted));
        for wrong in ["", "ope", "opened", "Open"] {
            assert_eq!(provider.check(&credentials("ada", wrong)), Ok(AuthVerdict::InvalidLogin));
        }
    }
}
