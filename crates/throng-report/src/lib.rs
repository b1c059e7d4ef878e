//! The page of a run: one HTML file that opens without a network; the head that the figures of every kind of run begin with; and
//! the table of all metrics that pages, terminals, comparisons and documents share.
//!
//! ```text
//!  summary.json --> RunHead ---.
//!               --> Figures --.|                                   .--> text and tables: readable without scripts
//!                             ++-> Page { tiles, sections, .. } --+
//!  Metric table  -------------'     (no HTML in it)        render '--> charts: numbers for page.js, drawn by uPlot
//! ```
//!
//! Nothing in a [`Page`] is HTML, so text from a file or from a peer cannot become markup.
//!
//! ```
//! use throng_report::{Kind, Page, Section, Table};
//!
//! let mut page = Page::new(Kind::Crowd, "crowd");
//! let mut table = Table::new("Bots", "who | how many");
//! table.push(["<b>connected</b>".into(), throng_report::Cell::number("100")]);
//! page.sections.push(Section::new("Clients").with(table));
//! let html = page.render().unwrap();
//! assert!(html.contains("&lt;b&gt;connected"));
//! ```

#![forbid(unsafe_code)]

mod figures;
mod folder;
mod json;
mod junit;
mod limits;
mod lines;
mod metric;
mod metrics;
mod page;
mod parts;
mod picture;
mod profile;
mod progress;
mod render;
mod room;
mod run;
mod text;
mod words;

pub use figures::Figures;
pub use folder::{ArgumentError, FolderError, RUNS_MAX, RunFolders, check_runs, new_folder, run_folders};
pub use json::to_json;
pub use junit::{Case, Outcome};
pub use limits::{JudgedLimit, LIMITS_FILE, LIMITS_MAX, LimitError, MetricLimit, Verdicts, check_limits};
pub use lines::{LineFile, SECONDS_FILE};
pub use metric::{Better, Kind, Metric, find, keys, metric, of_kind};
pub use page::{Bars, Chart, Curve, FrameHistogram, Frames, Histogram, Line};
pub use page::{Block, Cell, Limit, Page, Section, Table, Term, Tile, Validity, Verdict};
pub use parts::{explanation as explanation_of_part, ink};
pub use picture::{Mark, Picture, Shape};
pub use profile::Profile;
pub use progress::{Phases, ProgressLine};
pub use render::{RenderError, UPLOT_SCRIPT, UPLOT_STYLE, escaped};
pub use room::with_room;
pub use run::{Environment, RunFile, RunFileError, RunHead, SUMMARY_BYTES_MAX, SUMMARY_FILE, throttled};
pub use words::{bytes, counted, duration, figure, grouped, measuring, optional, printable};
