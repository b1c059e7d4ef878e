//! Authentication: providers that decide, and the desk that asks them.
//!
//! ```text
//!   engine: poll_auth()  -->  Desk  -->  at once: accept-all, tokens, fixed password, always-fail
//!                              |   \-->  later, by a task: HTTP call-out, anything else that takes its time
//!   engine: authenticated() <--+--------------'
//! ```
//! Without a provider a gateway does not start, except for development. World servers log in without a question unless
//! the settings say otherwise; that is the engine's rule, the desk never sees them then.

mod book;
mod desk;
mod http;
mod tokens;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::settings::{AuthProvider, Settings};
use throng_gateway_engine::port::{AuthVerdict, Side};

pub use desk::DeskLimits;
pub(crate) use desk::{Answer, Desk};
pub use http::HttpProvider;
pub use tokens::{TokenError, Tokens};

/// The peer's own data about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Which door it came through.
    pub side: Side,
    /// Where it comes from.
    pub address: std::net::SocketAddr,
    /// Its claimed name.
    pub player_identifier_token: String,
    /// The proof of it: the login token.
    pub login_token: String,
}

/// A provider that could not decide. The login fails, but the peer is not at fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the authentication provider does not answer: {0}")]
pub struct Unavailable(pub String);

/// The final answer of a provider.
pub type Decision = Result<AuthVerdict, Unavailable>;

/// A provider's way to a decision. It begins when it is first polled.
pub type Deciding = Pin<Box<dyn Future<Output = Decision> + Send>>;

/// How a provider decides.
pub enum Check {
    /// It knows.
    Now(Decision),
    /// It has to ask another service. Must come to an end within a bound of its own. Polled by the gateway's runtime,
    /// which is tokio's.
    Later(Deciding),
}

impl Check {
    /// A decision that takes its time, without holding a thread.
    pub fn later(deciding: impl Future<Output = Decision> + Send + 'static) -> Check {
        Check::Later(Box::pin(deciding))
    }

    /// The same where it does hold a thread: one of the runtime's that may be held.
    pub fn blocking(decide: impl FnOnce() -> Decision + Send + 'static) -> Check {
        Check::later(async move {
            let decided = tokio::task::spawn_blocking(decide).await;
            decided.unwrap_or_else(|error| Err(Unavailable(error.to_string())))
        })
    }
}

/// Knows who may come in.
pub trait Provider: Send + Sync {
    /// Decides, now or later. It is the engine's thread that calls it: nothing here may wait.
    fn check(&self, credentials: Credentials) -> Check;
}

/// Lets everybody in. For development.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptAll;

impl Provider for AcceptAll {
    fn check(&self, _: Credentials) -> Check {
        Check::Now(Ok(AuthVerdict::Accepted))
    }
}

/// Refuses every login.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysFail;

impl Provider for AlwaysFail {
    fn check(&self, _: Credentials) -> Check {
        Check::Now(Ok(AuthVerdict::InvalidLogin))
    }
}

/// Lets everybody in who knows the one password.
#[derive(Clone)]
pub struct FixedPassword(pub String);

impl Provider for FixedPassword {
    fn check(&self, credentials: Credentials) -> Check {
        Check::Now(Ok(match is_same(&self.0, &credentials.login_token) {
            true => AuthVerdict::Accepted,
            false => AuthVerdict::InvalidLogin,
        }))
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
        /// The question.
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
        "no authentication provider: name one with -auth tokens:FILE or -auth https://..., or \
         use -dev to let everybody log in"
    )]
    Missing,
    /// The file of tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The address of a service is none.
    #[error("-auth={0}: this is not the address of a service, such as https://accounts.example/check")]
    Url(String),
    /// There is no cryptography to ask a service with.
    #[error("-auth: TLS cannot be used: {0}")]
    Tls(tokio_rustls::rustls::Error),
}

impl ProviderError {
    /// A stable name for logs.
    pub fn tag(&self) -> &'static str {
        match self {
            ProviderError::Missing => "provider_missing",
            ProviderError::Tokens(error) => error.tag(),
            ProviderError::Url(_) => "provider_url",
            ProviderError::Tls(_) => "provider_tls",
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
        Some(ProviderOptions::Http { url, timeout }) => Arc::new(HttpProvider::new(url, *timeout)?),
    })
}

/// The provider that settings name.
///
/// # Errors
/// They name none, or it cannot be used.
pub fn from_settings(settings: &Settings) -> Result<Arc<dyn Provider>, ProviderError> {
    let timeout = Duration::from_millis(settings.engine.limits.auth_timeout_ms.into());
    let options = match &settings.auth {
        AuthProvider::Nobody => None,
        AuthProvider::Everybody => Some(ProviderOptions::AcceptAll),
        AuthProvider::Tokens(file) => Some(ProviderOptions::Tokens(file.into())),
        AuthProvider::Http(url) => Some(ProviderOptions::Http { url: url.clone(), timeout }),
    };
    provider(options.as_ref(), settings.engine.development)
}

/// Compares secrets in a time that says nothing about where they differ.
pub(crate) fn is_same(secret: &str, guess: &str) -> bool {
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

    /// The answer of a provider, however long it takes.
    pub(super) fn decide(provider: &(impl Provider + ?Sized), credentials: Credentials) -> Decision {
        match provider.check(credentials) {
            Check::Now(decision) => decision,
            Check::Later(deciding) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(deciding)
            }
        }
    }

    #[test]
    fn without_a_provider_only_development_starts() {
        let error = provider(None, false).err().expect("nobody would be checked");
        assert_eq!(error.tag(), "provider_missing");
        assert!(error.to_string().contains("-dev"));
        let provider = provider(None, true).expect("development");
        assert_eq!(decide(&*provider, credentials("any", "thing")), Ok(AuthVerdict::Accepted));
    }

    #[test]
    fn a_password_lets_in_whoever_knows_it() {
        let provider = provider(Some(&ProviderOptions::FixedPassword("open".into())), false).expect("it is one");
        assert_eq!(decide(&*provider, credentials("ada", "open")), Ok(AuthVerdict::Accepted));
        for wrong in ["", "ope", "opened", "Open"] {
            assert_eq!(decide(&*provider, credentials("ada", wrong)), Ok(AuthVerdict::InvalidLogin));
        }
    }
}
