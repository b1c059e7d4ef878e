//! The page for operators on this machine: tables of connections and channels, and kick, unban, reload.
//!
//! ```text
//!   GET  /                          the gateway: memory, channels, what waits; a button that reads the settings again
//!   GET  /connections  /channels  /cells  /entities      tables, 100 rows at a time: ?from=<place>
//!   GET  /bans                      banned addresses and names
//!   GET  /api/<any of these>        the same as JSON; /api/overview is the first page, and holds the token
//!   POST /kick    connection=<number>&token=<token>
//!   POST /unban   address=<address>&token=<token>, or side=<SERVER or CLIENT>&player=<name>&token=<token>
//!   POST /reload  token=<token>
//! ```
//! It is for a loopback address only and has no login: anybody who can open connections there may use all of it. It
//! does defend against other web pages in the operator's browser. A request must name this machine as its host, so that
//! no foreign name that was bent to 127.0.0.1 reads anything. Every action needs the token, which is created at each
//! start and is part of the forms, and a browser must show that the request comes from here.
//!
//! The engine answers in bounded slices between other work, so a large table is never one long step.

mod page;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Form, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use throng_http::BoundedListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::info;

use super::door::Door;
use super::event::{Ask, Event, Report};
use super::http::Pages;
use super::memory::Part;
use crate::auth::is_same;
use throng_gateway_engine::port::Side;
use throng_gateway_engine::{Row, Subject};

/// Rows of one page.
const ROWS: usize = 100;
/// Places of a table that one engine has at most: so many lie between the numbers of two engines' first places.
const ENGINE_ROWS: usize = 1 << 24;

/// Slices that the engine is asked for to fill one page. Empty slots are skipped quickly; a page may be short.
const SLICES: usize = 256;
/// Bans of each kind on the page.
const BANS: usize = 200;
/// How long the engine may take for a slice, and a reload for its files.
const ANSWER: Duration = Duration::from_secs(5);

/// Somebody wants the settings to be read again. The answer says how that went.
pub(crate) type ReloadRequest = oneshot::Sender<String>;

/// The data that the pages need.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) pages: Pages,
    pub(crate) reload: mpsc::Sender<ReloadRequest>,
    /// Only somebody who has read a page knows it.
    pub(crate) token: Arc<str>,
}

/// The first page.
#[derive(Clone, Debug, Serialize)]
struct Overview {
    version: &'static str,
    servers: usize,
    clients: usize,
    channels: Vec<(String, usize)>,
    memory: Vec<(&'static str, u64)>,
    memory_limit_bytes: u64,
    state_bytes: u64,
    state_limit_bytes: u64,
    auth_asked: usize,
    auth_waiting: usize,
    awaited: usize,
    bans: usize,
    token: String,
}

/// A table, as far as it fits onto a page.
#[derive(Clone, Debug, Serialize)]
struct Table {
    rows: Vec<Row>,
    /// Where the next page begins, if there is one.
    next: Option<usize>,
}

/// Bans, and the seconds that they still last.
#[derive(Clone, Debug, Serialize)]
struct Bans {
    /// Addresses that misbehaved.
    addresses: Vec<(IpAddr, u64)>,
    /// Addresses that guessed at one player's token too often.
    guessers: Vec<(IpAddr, u64)>,
    /// Doors and names.
    names: Vec<(&'static str, String, u64)>,
}

#[derive(Debug, Default, Deserialize)]
struct From {
    #[serde(default)]
    from: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wanted {
    token: String,
    connection: Option<u32>,
    address: Option<IpAddr>,
    side: String,
    player: Option<String>,
}

/// Answers until the runtime ends.
pub(crate) async fn serve(listener: BoundedListener, admin: Admin) {
    let router = Router::new()
        .route("/", get(overview_page))
        .route("/bans", get(bans_page))
        .route("/{table}", get(table_page))
        .route("/api/overview", get(overview_json))
        .route("/api/bans", get(bans_json))
        .route("/api/{table}", get(table_json))
        .route("/kick", post(kick))
        .route("/unban", post(unban))
        .route("/reload", post(reload))
        .layer(from_fn(guard))
        .with_state(admin);
    // It ends with an error only if the listener does, and then nobody is left to get the error.
    let _ = axum::serve(listener, router).await;
}

/// 128 random bits, in hex.
pub(crate) fn new_token() -> Result<Arc<str>, getrandom::Error> {
    let bits = (u128::from(getrandom::u64()?) << 64) | u128::from(getrandom::u64()?);
    Ok(format!("{bits:032x}").into())
}

/// Lets requests through that are meant for this machine, and come from its own pages if they change something.
async fn guard(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !is_here(host) {
        return (StatusCode::MISDIRECTED_REQUEST, "ask for this page at 127.0.0.1 or localhost\n").into_response();
    }
    if request.method() != axum::http::Method::GET && !is_of_this_page(headers, host) {
        return (StatusCode::FORBIDDEN, "this came from another page\n").into_response();
    }
    let mut response = next.run(request).await;
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether a host, perhaps with a port, is this machine.
fn is_here(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains(':') => name,
        _ => host,
    };
    let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Browsers say from which page a form comes. Programs say nothing.
fn is_of_this_page(headers: &HeaderMap, host: &str) -> bool {
    match headers.get(header::ORIGIN) {
        None => true,
        Some(origin) => origin.to_str().is_ok_and(|origin| origin.strip_prefix("http://") == Some(host)),
    }
}

fn subject_of(table: &str) -> Option<Subject> {
    Some(match table {
        "connections" => Subject::Connections,
        "channels" => Subject::Channels,
        "cells" => Subject::Cells,
        "entities" => Subject::Entities,
        _ => return None,
    })
}

impl Admin {
    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Response> {
        self.ask_engine(0, ask).await
    }

    async fn ask_engine<T>(&self, engine: usize, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Response> {
        let busy =
            || (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer: it is very busy\n").into_response();
        let (reply, answer) = oneshot::channel();
        self.pages.events.send_to(engine, Event::Admin(ask(reply))).map_err(|_| busy())?;
        timeout(ANSWER, answer).await.ok().and_then(Result::ok).ok_or_else(busy)
    }

    async fn table(&self, subject: Subject, mut from: usize) -> Result<Table, Response> {
        let mut table = Table { rows: Vec::new(), next: Some(from) };
        // The first engine knows all connections; of channels each has its part.
        let engines = match subject {
            Subject::Connections => 1,
            _ => self.pages.events.engine_count(),
        };
        for _ in 0..SLICES {
            let rows = ROWS - table.rows.len();
            let (engine, place) = (from / ENGINE_ROWS, from % ENGINE_ROWS);
            if engine >= engines {
                table.next = None;
                break;
            }
            let slice = self.ask_engine(engine, |reply| Ask::Slice { subject, from: place, rows, reply }).await?;
            table.rows.extend(slice.rows);
            let behind = (engine + 1 < engines).then_some((engine + 1) * ENGINE_ROWS);
            table.next = slice.next.map(|next| engine * ENGINE_ROWS + next).or(behind);
            match table.next {
                Some(next) if table.rows.len() < ROWS => from = next,
                _ => break,
            }
        }
        Ok(table)
    }

    async fn bans(&self) -> Result<Bans, Response> {
        let (guessers, names) = self.ask(|reply| Ask::Bans { limit: BANS, reply }).await?;
        let doors = Door::of_sides(&self.pages.health.doors);
        let mut addresses: Vec<(IpAddr, u64)> =
            doors.flat_map(|door| door.bans(BANS)).map(|ban| (ban.address, ban.left.as_secs())).collect();
        addresses.sort_unstable();
        addresses.dedup_by_key(|(address, _)| *address);
        let names = names.into_iter().map(|name| (name.side.tag(), name.player, name.left.as_secs()));
        let guessers = guessers.into_iter().map(|(address, left)| (address, left.as_secs()));
        Ok(Bans { addresses, guessers: guessers.collect(), names: names.collect() })
    }

    async fn overview(&self) -> Result<Overview, Response> {
        let report = super::http::report(&self.pages).await;
        let Report { occupancy, auth_pending: [asked, waiting], .. } =
            report.ok_or_else(|| StatusCode::SERVICE_UNAVAILABLE.into_response())?;
        let memory = &self.pages.counters.memory;
        Ok(Overview {
            version: env!("CARGO_PKG_VERSION"),
            servers: occupancy.servers,
            clients: occupancy.clients,
            channels: occupancy.channels.iter().map(|(&kind, &count)| (kind_name(kind), count)).collect(),
            memory: Part::ALL.map(|part| (part.tag(), memory.part_bytes(part))).to_vec(),
            memory_limit_bytes: memory.limit_bytes(),
            state_bytes: occupancy.state_bytes,
            state_limit_bytes: occupancy.state_limit_bytes,
            auth_asked: asked,
            auth_waiting: waiting,
            awaited: occupancy.awaited,
            bans: Door::ban_counts(&self.pages.health.doors).present,
            token: self.token.to_string(),
        })
    }

    /// The answer to who does not know the token.
    fn refusal(&self, wanted: &Wanted) -> Option<Response> {
        let text = "the token is missing, or of an earlier start: load the page again\n";
        (!is_same(&self.token, &wanted.token)).then(|| (StatusCode::FORBIDDEN, text).into_response())
    }
}

fn kind_name(kind: u32) -> String {
    let known = throng_channeld::proto::ChannelType::try_from(kind as i32);
    known.map_or_else(|_| kind.to_string(), |kind| kind.as_str_name().to_owned())
}

async fn overview_page(State(admin): State<Admin>) -> Result<Html<String>, Response> {
    Ok(Html(page::overview(&admin.overview().await?)))
}

async fn overview_json(State(admin): State<Admin>) -> Result<Response, Response> {
    Ok(Json(admin.overview().await?).into_response())
}

async fn table_page(
    State(admin): State<Admin>,
    Path(table): Path<String>,
    Query(From { from }): Query<From>,
) -> Result<Html<String>, Response> {
    let subject = subject_of(&table).ok_or_else(|| StatusCode::NOT_FOUND.into_response())?;
    let found = admin.table(subject, from).await?;
    Ok(Html(page::table(&table, (&found, from), &admin.token)))
}

async fn table_json(
    State(admin): State<Admin>,
    Path(table): Path<String>,
    Query(From { from }): Query<From>,
) -> Result<Response, Response> {
    let subject = subject_of(&table).ok_or_else(|| StatusCode::NOT_FOUND.into_response())?;
    Ok(Json(admin.table(subject, from).await?).into_response())
}

async fn bans_page(State(admin): State<Admin>) -> Result<Html<String>, Response> {
    Ok(Html(page::bans(&admin.bans().await?, &admin.token)))
}

async fn bans_json(State(admin): State<Admin>) -> Result<Response, Response> {
    Ok(Json(admin.bans().await?).into_response())
}

async fn kick(State(admin): State<Admin>, Form(wanted): Form<Wanted>) -> Result<Response, Response> {
    if let Some(refusal) = admin.refusal(&wanted) {
        return Err(refusal);
    }
    let missing = || (StatusCode::BAD_REQUEST, "which connection: connection=<number>\n").into_response();
    let connection = wanted.connection.ok_or_else(missing)?;
    let is_there = admin.ask(|reply| Ask::Kick { connection, reply }).await?;
    info!(target: "security", connection, is_there, "an operator kicks a connection");
    match is_there {
        true => Ok(Redirect::to("/connections").into_response()),
        false => Err((StatusCode::NOT_FOUND, "there is no such connection any more\n").into_response()),
    }
}

async fn unban(State(admin): State<Admin>, Form(wanted): Form<Wanted>) -> Result<Response, Response> {
    if let Some(refusal) = admin.refusal(&wanted) {
        return Err(refusal);
    }
    let was_banned = match (wanted.address, wanted.player) {
        (Some(address), _) => {
            let at_doors = Door::of_sides(&admin.pages.health.doors).filter(|door| door.unban(address)).count();
            info!(target: "security", %address, "an operator forgives an address");
            admin.ask(|reply| Ask::UnbanAddress { address, reply }).await? | (at_doors > 0)
        }
        (None, Some(player)) => {
            let side = if wanted.side == Side::Server.tag() { Side::Server } else { Side::Client };
            info!(target: "security", side = side.tag(), ?player, "an operator forgives a name");
            admin.ask(|reply| Ask::UnbanName { side, player, reply }).await?
        }
        (None, None) => {
            return Err((StatusCode::BAD_REQUEST, "whom: address=<address>, or side and player\n").into_response());
        }
    };
    match was_banned {
        true => Ok(Redirect::to("/bans").into_response()),
        false => Err((StatusCode::NOT_FOUND, "nobody of that address or name is shut out\n").into_response()),
    }
}

async fn reload(State(admin): State<Admin>, Form(wanted): Form<Wanted>) -> Result<Response, Response> {
    if let Some(refusal) = admin.refusal(&wanted) {
        return Err(refusal);
    }
    let nobody = || (StatusCode::SERVICE_UNAVAILABLE, "nobody here reads settings again\n").into_response();
    let (reply, answer) = oneshot::channel();
    admin.reload.try_send(reply).map_err(|_| nobody())?;
    let said = timeout(ANSWER, answer).await.ok().and_then(Result::ok).ok_or_else(nobody)?;
    Ok(Html(page::said(&said)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_this_machine() {
        for here in ["127.0.0.1", "127.0.0.1:8081", "localhost", "LocalHost:1", "[::1]:8081", "[::1]"] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in
            ["", "evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "192.0.2.1:80", ":80"]
        {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn forms_of_other_pages_are_not_ours() {
        let is_ours = |origin: &'static str| {
            let headers = HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static(origin))]);
            is_of_this_page(&headers, "127.0.0.1:8081")
        };
        assert!(is_ours("http://127.0.0.1:8081") && is_of_this_page(&HeaderMap::new(), "127.0.0.1:8081"));
        for other in ["null", "http://evil.example", "http://127.0.0.1:8082", "https://127.0.0.1:8081"] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn no_two_starts_have_one_token() {
        let [first, second] = [(); 2].map(|()| new_token().expect("there is chance"));
        assert!(first.len() == 32 && first != second);
    }
}
