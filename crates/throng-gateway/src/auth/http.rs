//! An HTTP service decides.
//!
//! ```text
//! POST <url>   {"playerIdentifierToken": "ada", "loginToken": "...", "side": "CLIENT", "address": "203.0.113.1:5000"}
//!
//! 200, 204     accepted
//! 404          the player is not known
//! 401, 403     the login token is wrong
//! other        the service cannot decide now: not let in, and not held against the player
//! ```

use std::time::Duration;

use serde::Serialize;
use ureq::Agent;

use super::{Credentials, Provider, Unavailable};
use crate::engine::port::AuthVerdict;

/// Asks an HTTP service.
#[derive(Debug)]
pub struct HttpProvider {
    agent: Agent,
    url: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    player_identifier_token: &'a str,
    login_token: &'a str,
    side: &'static str,
    address: String,
}

impl HttpProvider {
    /// How long an answer may take, if nothing else is said.
    pub const TIMEOUT: Duration = Duration::from_secs(3);

    /// Asks `url`, and waits for up to `timeout`.
    pub fn new(url: String, timeout: Duration) -> HttpProvider {
        let config = Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false).max_redirects(0);
        HttpProvider { agent: config.build().into(), url }
    }
}

impl Provider for HttpProvider {
    fn check(&self, credentials: &Credentials) -> Result<AuthVerdict, Unavailable> {
        let question = Question {
            player_identifier_token: &credentials.player_identifier_token,
            login_token: &credentials.login_token,
            side: credentials.side.tag(),
            address: credentials.address.to_string(),
        };
        let answer = self.agent.post(&self.url).send_json(&question);
        match answer.map_err(|error| Unavailable(error.to_string()))?.status().as_u16() {
            200 | 204 => Ok(AuthVerdict::Accepted),
            404 => Ok(AuthVerdict::InvalidIdentifier),
            401 | 403 => Ok(AuthVerdict::InvalidLogin),
            status => Err(Unavailable(format!("status {status}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::super::tests::credentials;
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
            let provider = HttpProvider::new(url, Duration::from_secs(5));
            assert_eq!(provider.check(&credentials("ada", "secret")).ok(), verdict, "{status}");
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
        let provider = HttpProvider::new(url, Duration::from_millis(50));
        assert!(provider.check(&credentials("ada", "secret")).is_err());
    }
}
