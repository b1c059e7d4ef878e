//! The pages for monitoring: `/healthz`, `/readyz`, `/metrics`.
//!
//! The first two are for probes: they read atomics, cost nothing, and never wait. Their answers lead to a restart, and
//! a restart loses the world in memory: so a gateway that is only busy is alive and ready.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use throng_http::BoundedListener;
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use super::clock::Clock;
use super::counters::ShellCounters;
use super::door::Door;
use super::event::{Event, Events, Report};
use super::health::Heart;

/// Figures of an engine that does not answer for so long are those of the last time.
const ANSWER: Duration = Duration::from_secs(2);

/// Makes the text of `/metrics`, in Prometheus' format.
pub type RenderMetrics = Arc<dyn Fn(&Report, &ShellCounters) -> String + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) events: Events,
    pub(crate) counters: Arc<ShellCounters>,
    pub(crate) render: RenderMetrics,
    pub(crate) health: Health,
    /// The engine's last figures.
    pub(crate) last: Arc<Mutex<Option<Report>>>,
}

/// The data for probes.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) clock: Clock,
    /// By engine.
    pub(crate) hearts: Arc<[Arc<Heart>]>,
    pub(crate) stuck_after: Duration,
    /// Ends when the engine's thread does.
    pub(crate) engine_end: watch::Receiver<()>,
    pub(crate) leaving: watch::Receiver<bool>,
    pub(crate) doors: Arc<[Arc<Door>]>,
}

impl Health {
    /// Why this process should be replaced by another one, if it should.
    fn illness(&self) -> Option<&'static str> {
        if self.engine_end.has_changed().is_err() {
            return Some("the engine has ended\n");
        }
        let is_stuck = |heart: &Arc<Heart>| heart.silence(self.clock.now()) > self.stuck_after;
        self.hearts.iter().any(is_stuck).then_some("the engine is stuck\n")
    }

    /// Why no client should be sent here now, if so.
    fn reluctance(&self) -> Option<&'static str> {
        if *self.leaving.borrow() {
            return Some("shutting down\n");
        }
        if self.doors.iter().any(|door| door.shared.lacks_home.load(Ordering::Relaxed)) {
            return Some("there is no path to the home\n");
        }
        let lacks_place = |door: &Arc<Door>| door.shared.lacks_place.load(Ordering::Relaxed);
        let is_full = |door: &Arc<Door>| !door.has_room() || !door.memory().has_room(door.side) || lacks_place(door);
        let is_full = self.doors.iter().any(is_full);
        self.illness().or(is_full.then_some("there is no room for another connection\n"))
    }
}

/// Answers until the runtime ends.
pub(crate) async fn serve(listener: BoundedListener, pages: Pages) {
    let router = Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .with_state(pages);
    // It ends with an error only if the listener does, and then nobody is left to get the error.
    let _ = axum::serve(listener, router).await;
}

/// The engine's thread is alive.
async fn health(State(pages): State<Pages>) -> Response {
    said(pages.health.illness())
}

/// New connections are welcome.
async fn readiness(State(pages): State<Pages>) -> Response {
    said(pages.health.reluctance())
}

fn said(trouble: Option<&'static str>) -> Response {
    match trouble {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, trouble).into_response(),
    }
}

async fn metrics(State(pages): State<Pages>) -> Response {
    let Some(mut report) = report(&pages).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the engine has not answered yet\n").into_response();
    };
    report.banned_addresses = Door::ban_counts(&pages.health.doors);
    pages.events.count_waiting();
    let text = (pages.render)(&report, &pages.counters);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// The engine's figures, or the previous ones if it is busy.
pub(crate) async fn report(pages: &Pages) -> Option<Report> {
    let last = || pages.last.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(Some(report)) = timeout(ANSWER, of_all_engines(&pages.events)).await {
        *last() = Some(report.clone());
        return Some(report);
    }
    last().clone()
}

/// The figures of all engines. `None` if one of them has ended.
pub(crate) async fn of_all_engines(events: &Events) -> Option<Report> {
    let mut all: Option<Report> = None;
    for answer in events.ask_all(Event::Report) {
        let report = answer.await.ok()?;
        match &mut all {
            Some(all) => all.add(&report),
            None => all = Some(report),
        }
    }
    all
}
