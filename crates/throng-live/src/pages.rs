//! The page, its parts, and the runs that it lists. Everything is in the program: the page works without a network.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::hub::Shared;

/// Runs that are listed, the newest.
const RUNS_MAX: usize = 100;
/// For so long a request waits while as many others read as may.
const READ_PATIENCE: Duration = Duration::from_secs(2);
/// A file of a run is at most so long.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The report of a run has scripts, and may come from another machine. In a sandbox it has no origin of its own, so it can
/// neither read the stream nor set a load.
const SANDBOX: &str = "sandbox allow-scripts";
/// Files of a run that can be read, and what they are.
const FILES: [(&str, &str); 3] = [
    ("report.html", "text/html; charset=utf-8"),
    ("index.html", "text/html; charset=utf-8"),
    (throng_report::SUMMARY_FILE, "application/json"),
];

pub(crate) async fn page() -> Html<&'static str> {
    Html(include_str!("../assets/live.html"))
}

pub(crate) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", include_str!("../assets/live.js"))
}

pub(crate) async fn style() -> Response {
    asset("text/css; charset=utf-8", include_str!("../assets/live.css"))
}

pub(crate) async fn uplot_script() -> Response {
    asset("text/javascript; charset=utf-8", throng_report::UPLOT_SCRIPT)
}

pub(crate) async fn uplot_style() -> Response {
    asset("text/css; charset=utf-8", throng_report::UPLOT_STYLE)
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text).into_response()
}

/// A run in the list.
#[derive(Serialize)]
pub(crate) struct Run {
    name: String,
    /// Its page, or its figures if it has none.
    file: &'static str,
}

/// The runs of the folder, newest first: their names begin with the moment.
pub(crate) async fn runs(State(shared): State<Arc<Shared>>) -> Response {
    match reading(&shared, list).await {
        Ok((runs, _)) => Json(runs).into_response(),
        Err(refused) => refused,
    }
}

fn list(folder: Option<&FilePath>) -> Vec<Run> {
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let run = |path: PathBuf| {
        let file = FILES.iter().map(|(name, _)| *name).find(|file| path.join(file).is_file())?;
        Some(Run { name: path.file_name()?.to_str().filter(|name| is_name(name))?.to_owned(), file })
    };
    let mut runs: Vec<Run> = entries.filter_map(|entry| run(entry.path())).collect();
    runs.sort_by(|a, b| b.name.cmp(&a.name));
    runs.truncate(RUNS_MAX);
    runs
}

/// Reads in the folder of runs, on a thread that may wait. So many reads may be there at once, until their permits are dropped.
async fn reading<T: Send + 'static>(
    shared: &Arc<Shared>,
    read: impl FnOnce(Option<&FilePath>) -> T + Send + 'static,
) -> Result<(T, OwnedSemaphorePermit), Response> {
    let permit = tokio::time::timeout(READ_PATIENCE, Arc::clone(&shared.reads).acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        return Err(shared.refuse(StatusCode::SERVICE_UNAVAILABLE, "too many read runs already"));
    };
    let folder = shared.runs.clone();
    let read = tokio::task::spawn_blocking(move || (read(folder.as_deref()), permit));
    read.await.map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "the runs cannot be read\n").into_response())
}

/// A file until all of it is sent.
struct Sent {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

pub(crate) async fn file_of_run(
    State(shared): State<Arc<Shared>>,
    Path((run, file)): Path<(String, String)>,
) -> Response {
    let nothing = || (StatusCode::NOT_FOUND, "there is no such file of a run\n").into_response();
    let Some((name, kind)) = FILES.iter().find(|(name, _)| *name == file).filter(|_| is_name(&run)) else {
        return nothing();
    };
    let read = move |folder: &FilePath| {
        let path = folder.join(&run).join(name);
        // Links of the folder itself may lead anywhere, those below it may not leave it.
        let is_inside = path.canonicalize().ok().zip(folder.canonicalize().ok());
        let is_inside = is_inside.is_some_and(|(path, folder)| path.starts_with(folder));
        let is_short =
            is_inside && path.symlink_metadata().is_ok_and(|file| file.is_file() && file.len() <= FILE_BYTES_MAX);
        if is_short { std::fs::read(path).ok() } else { None }
    };
    match reading(&shared, |folder| folder.and_then(read)).await {
        Ok((Some(bytes), _permit)) => {
            let body = Body::from(Bytes::from_owner(Sent { bytes, _permit }));
            ([(CONTENT_TYPE, *kind), (CONTENT_SECURITY_POLICY, SANDBOX)], body).into_response()
        }
        Ok((None, _)) => nothing(),
        Err(refused) => refused,
    }
}

/// Whether a text names a folder here, and leads nowhere else.
fn is_name(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 200 && !text.starts_with('.') && text.bytes().all(is_fine)
}
