//! How a program reads from a hub.

use std::io::Read;
use std::time::Duration;

use ureq::Agent;

/// A hub has so long to take a connection, and to begin its answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// Goes straight to the hub: through no proxy, and to no other address that an answer names.
pub(crate) fn agent() -> Agent {
    Agent::config_builder().timeout_connect(Some(CONNECT_PATIENCE)).max_redirects(0).proxy(None).build().into()
}

/// The answer to a request, which has no end.
pub(crate) fn open(agent: &Agent, url: &str) -> Result<impl Read + Send + 'static, ureq::Error> {
    let request = agent.get(url).config().timeout_recv_response(Some(CONNECT_PATIENCE)).build();
    Ok(request.call()?.into_body().into_reader())
}
