//! The page with the metrics of matches while they are played.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result};
use axum::Router;
use axum::http::header;
use axum::routing::get;
use throng_range::LiveMetrics;

/// Answers `GET /metrics` until this process ends, on a thread of its own.
///
/// # Errors
/// The address cannot be used, or there is no thread.
pub(crate) fn serve(address: SocketAddr) -> Result<LiveMetrics> {
    let cannot = || format!("--metrics {address}: metrics cannot be shown there");
    let listener = TcpListener::bind(address).with_context(cannot)?;
    listener.set_nonblocking(true).with_context(cannot)?;
    let metrics = LiveMetrics::default();
    let shown = metrics.clone();
    let answer = move || {
        let text = shown.text();
        async move { ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text) }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().with_context(cannot)?;
    let serving = async move {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        // It ends with an error only if the listener does, and then nobody is left to get the error.
        let _ = axum::serve(listener, Router::new().route("/metrics", get(answer))).await;
    };
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    thread.spawn(move || runtime.block_on(serving)).with_context(cannot)?;
    Ok(metrics)
}
