//! What operators look at: `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::{Duration, timeout};

use super::counters::ShellCounters;
use super::event::{Event, Events, Report};

/// An engine that does not answer for so long is not healthy.
const ANSWER: Duration = Duration::from_secs(2);

/// Makes the text of `/metrics`, in Prometheus' format.
pub type RenderMetrics = Arc<dyn Fn(&Report, &ShellCounters) -> String + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) events: Events,
    pub(crate) counters: Arc<ShellCounters>,
    pub(crate) render: RenderMetrics,
    pub(crate) closing: watch::Receiver<bool>,
}

/// Answers until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, pages: Pages) {
    let router = Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .with_state(pages);
    // It ends with an error only if the listener does, and then there is nobody left to tell.
    let _ = axum::serve(listener, router).await;
}

/// The engine's thread is alive and keeps up.
async fn health(State(pages): State<Pages>) -> Response {
    match report(&pages).await {
        Some(_) => (StatusCode::OK, "ok\n").into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n").into_response(),
    }
}

/// New connections are welcome.
async fn readiness(State(pages): State<Pages>) -> Response {
    if *pages.closing.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response();
    }
    health(State(pages)).await
}

async fn metrics(State(pages): State<Pages>) -> Response {
    let Some(report) = report(&pages).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n").into_response();
    };
    let text = (pages.render)(&report, &pages.counters);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn report(pages: &Pages) -> Option<Report> {
    let (reply, answer) = oneshot::channel();
    pages.events.send(Event::Report(reply)).ok()?;
    timeout(ANSWER, answer).await.ok()?.ok()
}
