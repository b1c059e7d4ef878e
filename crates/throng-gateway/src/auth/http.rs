//! An authentication provider that asks an HTTP service.
//!
//! ```text
//! POST <url>   {"playerIdentifierToken": "ada", "loginToken": "...", "side": "CLIENT", "address": "203.0.113.1:5000"}
//!
//! 200, 204     accepted
//! 404          the player is not known
//! 401, 403     the login token is wrong
//! other        the service cannot decide now: the login fails, but does not count against the player
//! ```
//! Questions are tasks of the existing runtime, over persistent connections: a slow service costs memory for each
//! question, but no thread.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use tokio::time::timeout;
use tokio_rustls::rustls;

use super::{Check, Credentials, Decision, Provider, ProviderError, Unavailable};
use throng_gateway_engine::port::AuthVerdict;

/// Asks an HTTP service.
#[derive(Clone, Debug)]
pub struct HttpProvider {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    timeout: Duration,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    player_identifier_token: &'a str,
    login_token: &'a str,
    side: &'static str,
    address: String,
}

/// Idle connections to the service that are kept.
const KEPT_CONNECTIONS: usize = 64;
const KEPT_FOR: Duration = Duration::from_secs(30);

impl HttpProvider {
    /// How long an answer may take, if nothing else is said.
    pub const TIMEOUT: Duration = Duration::from_secs(3);

    /// Asks `url`, and waits for up to `timeout`.
    ///
    /// # Errors
    /// It is no address of a service.
    pub fn new(url: &str, timeout: Duration) -> Result<HttpProvider, ProviderError> {
        let uri: Uri = url.parse().map_err(|_| ProviderError::Url(url.to_owned()))?;
        if uri.authority().is_none() {
            return Err(ProviderError::Url(url.to_owned()));
        }
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(ProviderError::Tls)?
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(KEPT_CONNECTIONS)
            .pool_idle_timeout(KEPT_FOR)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(HttpProvider { client, uri, timeout })
    }

    async fn ask(self, credentials: Credentials) -> Decision {
        let question = Question {
            player_identifier_token: &credentials.player_identifier_token,
            login_token: &credentials.login_token,
            side: credentials.side.tag(),
            address: credentials.address.to_string(),
        };
        let failed = |error: &dyn std::error::Error| Unavailable(error.to_string());
        let body = serde_json::to_vec(&question).map_err(|error| failed(&error))?;
        let request = Request::post(self.uri).header(CONTENT_TYPE, "application/json").body(Full::from(body));
        let answer = self.client.request(request.map_err(|error| failed(&error))?);
        let answer = timeout(self.timeout, answer).await.map_err(|late| failed(&late))?;
        // The body of the answer is not read: the connection ends with it.
        match answer.map_err(|error| failed(&error))?.status().as_u16() {
            200 | 204 => Ok(AuthVerdict::Accepted),
            404 => Ok(AuthVerdict::InvalidIdentifier),
            401 | 403 => Ok(AuthVerdict::InvalidLogin),
            status => Err(Unavailable(format!("status {status}"))),
        }
    }
}

impl Provider for HttpProvider {
    fn check(&self, credentials: Credentials) -> Check {
        Check::later(self.clone().ask(credentials))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::super::tests::{credentials, decide};
    use super::*;

    /// A service that answers once, and says what it was asked.
    fn service(status: &'static str) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/check", listener.local_addr().expect("bound"));
        let asked = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("one question");
            let (mut request, mut bytes) = (Vec::new(), [0; 1_024]);
            while !request.ends_with(b"}") {
                let count = stream.read(&mut bytes).expect("a question");
                request.extend_from_slice(&bytes[..count]);
            }
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("an answer");
            String::from_utf8(request).expect("text")
        });
        (url, asked)
    }

    fn provider(url: &str, timeout: Duration) -> HttpProvider {
        HttpProvider::new(url, timeout).expect("an address")
    }

    #[test]
    fn the_status_is_the_verdict() {
        for (status, verdict) in [
            ("200 OK", Some(AuthVerdict::Accepted)),
            ("404 Not Found", Some(AuthVerdict::InvalidIdentifier)),
            ("401 Unauthorized", Some(AuthVerdict::InvalidLogin)),
            ("302 Found", None),
            ("500 Internal Server Error", None),
        ] {
            let (url, asked) = service(status);
            let provider = provider(&url, Duration::from_secs(20));
            assert_eq!(decide(&provider, credentials("ada", "secret")).ok(), verdict, "{status}");
            let asked = asked.join().expect("it was asked");
            assert!(asked.starts_with("POST /check HTTP/1.1"), "{asked}");
            let body: serde_json::Value =
                serde_json::from_str(&asked[asked.find('{').expect("a body")..]).expect("JSON");
            assert_eq!(body["playerIdentifierToken"], "ada");
            assert_eq!((&body["loginToken"], &body["side"]), (&"secret".into(), &"CLIENT".into()));
        }
    }

    #[test]
    fn a_service_that_does_not_answer_in_time_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let provider = provider(&url, Duration::from_millis(50));
        assert!(decide(&provider, credentials("ada", "secret")).is_err());
    }

    #[test]
    fn what_is_no_address_of_a_service_is_said_at_the_start() {
        for wrong in ["http://", "https:///check", "http://a b/", "/check"] {
            assert!(HttpProvider::new(wrong, HttpProvider::TIMEOUT).is_err(), "{wrong}");
        }
    }
}
