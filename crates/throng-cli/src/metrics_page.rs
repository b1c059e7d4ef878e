//! The page with the metrics of matches, or of a crowd, while they are played.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::http::header;
use axum::routing::get;
use throng_http::{BoundedListener, ListenerCounters, ListenerLimits};
use throng_lab::run::LiveMetrics as CrowdMetrics;
use throng_range::LiveMetrics;
use throng_report::ArgumentError;

/// The metrics of matches, shown at the address.
///
/// # Errors
/// The address cannot be used, or there is no thread.
pub(crate) fn of_matches(address: SocketAddr) -> Result<LiveMetrics> {
    let metrics = LiveMetrics::default();
    let shown = metrics.clone();
    serve(address, move || shown.text())?;
    Ok(metrics)
}

/// The metrics of a crowd, shown at the address.
///
/// # Errors
/// The address cannot be used, or there is no thread.
pub(crate) fn of_crowd(address: SocketAddr) -> Result<CrowdMetrics> {
    let metrics = CrowdMetrics::new()?;
    let shown = metrics.clone();
    serve(address, move || shown.text())?;
    Ok(metrics)
}

/// Answers `GET /metrics` with `text` until this process ends, on a thread of its own.
fn serve(address: SocketAddr, text: impl Fn() -> String + Clone + Send + Sync + 'static) -> Result<()> {
    let cannot = || ArgumentError(format!("--metrics {address}: metrics cannot be shown there"));
    let listener = TcpListener::bind(address).with_context(cannot)?;
    listener.set_nonblocking(true).with_context(cannot)?;
    let counters = Arc::<ListenerCounters>::default();
    let closed = Arc::clone(&counters);
    let answer = move || {
        let text = text() + &closed.exposition();
        async move { ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text) }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().with_context(cannot)?;
    let serving = async move {
        let limits = ListenerLimits::default();
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        // It ends with an error only if the listener does, and then nobody is left to get the error.
        let _ =
            axum::serve(BoundedListener::new(listener, limits, counters), Router::new().route("/metrics", get(answer)))
                .await;
    };
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    thread.spawn(move || runtime.block_on(serving)).with_context(cannot)?;
    Ok(())
}
