//! A gateway's own metrics, in Prometheus' text format.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(300);
const MAX_BYTES: u64 = 4 << 20;

/// The gateway's own figures at one moment; missing figures are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Scraped {
    /// The longest of its last channel ticks, in milliseconds. Of ours the last step: that is all channels together, with
    /// what other gateways count as a channel's tick, merging and copying, which our turns of channels are without.
    pub(super) channel_tick_ms: Option<f64>,
    pub(super) connections: Option<f64>,
    pub(super) channels: Option<f64>,
}

/// Asks for `/metrics`. Nothing if there is no answer in time.
pub(super) fn scrape(address: SocketAddr) -> Option<Scraped> {
    get(address, "/metrics").map(|answer| read(&answer))
}

/// Whether the page `/readyz` says that clients are welcome.
pub(super) fn is_ready(address: SocketAddr) -> bool {
    get(address, "/readyz").is_some()
}

/// A page, with its headers, if it comes in time and its status is 200.
fn get(address: SocketAddr, page: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {page} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.lines().next()?.contains(" 200 ").then_some(answer)
}

fn read(text: &str) -> Scraped {
    let values = |name: &'static str| text.lines().filter_map(move |line| value_of(line, name));
    let sum = |name| values(name).reduce(|a, b| a + b);
    Scraped {
        channel_tick_ms: values("gateway_last_step_seconds")
            .next()
            .map(|last_s| last_s * 1e3)
            .or_else(|| values("channel_tick_duration").reduce(f64::max)),
        connections: sum("connection_num"),
        channels: sum("channel_num"),
    }
}

/// The value of a sample of this very name.
fn value_of(line: &str, name: &str) -> Option<f64> {
    let rest = line.strip_prefix(name)?;
    let value = match rest.strip_prefix('{') {
        Some(labels) => labels.rsplit_once('}')?.1,
        None => rest.strip_prefix(' ')?,
    };
    value.split_whitespace().next()?.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_their_whole_name() {
        let text = "HTTP/1.0 200 OK\r\n\r\n# TYPE channel_tick_duration gauge\n\
            channel_tick_duration{type=\"GLOBAL\"} 0.5\nchannel_tick_duration{type=\"ENTITY\"} 1.75\n\
            channel_tick_duration_seconds 9\nconnection_num{type=\"CLIENT\"} 150\nconnection_num{type=\"SERVER\"} 1\n\
            channel_num 4 1700000000\n";
        let expected = Scraped { channel_tick_ms: Some(1.75), connections: Some(151.0), channels: Some(4.0) };
        assert_eq!(read(text), expected);
        assert_eq!(read("nothing here"), Scraped::default());
        let of_ours = "gateway_last_step_seconds 0.003\nchannel_tick_duration{type=\"GLOBAL\"} 0.5\n";
        assert_eq!(read(of_ours).channel_tick_ms, Some(3.0));
    }
}
