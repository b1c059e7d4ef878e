//! `throng top`: what a gateway does now, from its page of metrics; with `--live`, what a load does (`live.rs`).
//!
//! ```text
//!   a thread of its own: GET /metrics every interval --> Answer --> Watch: figures of the last interval, history --> view
//!                                                                      ^
//!                                                         keys --------'
//! ```
//! Everything shown is the difference of two pages, so a view that starts late is as right as one that was there from
//! the start. A gateway that does not answer is asked again at every interval.

mod figures;
mod history;
mod live;
mod page;
mod panels;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ureq::Agent;

use crate::exit::Outcome;
use figures::Figures;
use history::History;
use page::Page;

/// How long a gateway may take for its page.
const ANSWER: Duration = Duration::from_secs(2);
/// The longest page that is read. A gateway's has some 10 KiB.
const PAGE_MAX_BYTES: u64 = 4 << 20;
/// Pages that may wait for the screen. Then the thread that asks waits too.
const WAITING_PAGES: usize = 4;
/// How long a key may wait for its effect.
const KEYS: Duration = Duration::from_millis(100);
/// Time between two redraws without events, so that the waiting time for a gateway that does not answer is updated.
const REDRAW: Duration = Duration::from_secs(1);

pub(crate) const LONG_ABOUT: &str = "\
Watch a running gateway, or a load, in the terminal.

Shows connections, channels, traffic, time of engine steps, lag of subscribers, and dropped and refused messages with \
their reasons, each over the last interval, with curves of the last two minutes. q quits, p pauses.

  throng top                                             the gateway on this machine
  throng top --metrics http://10.0.0.5:8080/metrics      another gateway
  throng top --live 127.0.0.1:8090                       the load that `throng lab serve` shows there
  throng top --once                                      one interval as plain text, for scripts; exit code 1 if no
                                                         gateway answers";

/// Arguments of `throng top`.
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Address of the gateway's metrics page
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080/metrics")]
    metrics: String,
    /// Watch a load instead of a gateway: the one that the live page at this address shows
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["metrics", "interval"], value_parser = crate::args::address)]
    live: Option<std::net::SocketAddr>,
    /// Seconds between two updates, 0.1 to 60
    #[arg(long, value_name = "S", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Print one interval as plain text and exit
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=60.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a number of seconds from 0.1 to 60 is expected".to_owned())
}

/// Shows a gateway until the user has seen enough.
pub(crate) fn watch(arguments: &TopArguments) -> Outcome {
    if let Some(address) = arguments.live {
        return live::watch(address, arguments.once);
    }
    let source = Source::new(&arguments.metrics);
    if arguments.once {
        return print_once(&source, arguments.interval);
    }
    if !std::io::stdout().is_terminal() {
        refuse!("the output is not a terminal: use --once");
    }
    let stop = crate::stop_on_interrupt()?;
    let mut watch = Watch::new(&arguments.metrics, arguments.interval);
    let answers = source.ask_every(arguments.interval)?;
    let mut screen = Screen::enter().context("cannot draw on the terminal")?;
    let mut drawn_at: Option<Instant> = None;
    while !watch.is_over && !stop.load(Ordering::Relaxed) {
        let mut has_news = drawn_at.is_none_or(|at| at.elapsed() >= REDRAW);
        for answer in answers.try_iter() {
            watch.take(answer);
            has_news = true;
        }
        if has_news {
            screen.terminal.draw(|frame| view::draw(frame, &watch)).context("cannot draw on the terminal")?;
            drawn_at = Some(Instant::now());
        }
        if event::poll(KEYS).context("cannot read keys")? {
            watch.handle_event(&event::read().context("cannot read keys")?);
            drawn_at = None;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_once(source: &Source, interval: Duration) -> Outcome {
    let first = source.ask();
    let before = first.page.map_err(|trouble| anyhow!(nobody(&source.url, &trouble)))?;
    thread::sleep(interval);
    let second = source.ask();
    let now = second.page.map_err(|trouble| anyhow!(nobody(&source.url, &trouble)))?;
    let figures = Figures::between(Some((&before, second.at - first.at)), &now);
    out!("{}", panels::plain(&figures));
    Ok(ExitCode::SUCCESS)
}

/// The error message for a page of metrics that is not there. Something else may answer at the address.
fn nobody(url: &str, trouble: &str) -> String {
    format!(
        "no metrics of a gateway at {url} ({trouble}): start it, or name its page with --metrics, as http://127.0.0.1:8080/metrics"
    )
}

/// Where pages come from.
#[derive(Clone)]
struct Source {
    agent: Agent,
    url: String,
}

/// The result of a request for a page.
struct Answer {
    at: Instant,
    page: Result<Page, String>,
}

impl Source {
    fn new(url: &str) -> Source {
        let agent = Agent::config_builder().timeout_global(Some(ANSWER)).build().into();
        Source { agent, url: url.to_owned() }
    }

    fn ask(&self) -> Answer {
        let page = self.text().map_err(|error| error.to_string()).and_then(|text| Page::parse(&text));
        Answer { at: Instant::now(), page }
    }

    fn text(&self) -> Result<String, ureq::Error> {
        let mut response = self.agent.get(&self.url).call()?;
        response.body_mut().with_config().limit(PAGE_MAX_BYTES).read_to_string()
    }

    /// Asks on a thread of its own, so that keys have an effect while a gateway hesitates. It ends with the receiver.
    fn ask_every(self, interval: Duration) -> Result<Receiver<Answer>> {
        let (sender, answers) = sync_channel(WAITING_PAGES);
        let ask = move || {
            loop {
                let due = Instant::now() + interval;
                if sender.send(self.ask()).is_err() {
                    return;
                }
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        };
        thread::Builder::new().name("metrics".into()).spawn(ask).context("cannot start a thread")?;
        Ok(answers)
    }
}

/// The state of a gateway at one moment.
#[derive(Clone)]
struct Sight {
    /// `None` until it has answered for the first time.
    figures: Option<Figures>,
    history: History,
    /// The last error, and since when requests have failed.
    trouble: Option<(String, Instant)>,
}

/// A gateway that is watched.
struct Watch {
    url: String,
    interval: Duration,
    current: Sight,
    /// The content shown while the view is paused; `current` is still updated.
    frozen: Option<Sight>,
    previous: Option<(Page, Instant)>,
    is_over: bool,
}

impl Watch {
    fn new(url: &str, interval: Duration) -> Watch {
        let current = Sight { figures: None, history: History::new(interval), trouble: None };
        Watch { url: url.to_owned(), interval, current, frozen: None, previous: None, is_over: false }
    }

    fn take(&mut self, answer: Answer) {
        match answer.page {
            Ok(page) => {
                let before = self.previous.as_ref().map(|(before, at)| (before, answer.at - *at));
                let figures = Figures::between(before, &page);
                self.current.history.push(&figures);
                self.current.figures = Some(figures);
                self.current.trouble = None;
                self.previous = Some((page, answer.at));
            }
            Err(trouble) => {
                let since = self.current.trouble.as_ref().map_or(answer.at, |(_, since)| *since);
                self.current.trouble = Some((trouble, since));
                self.current.history.push(&Figures::default());
                // The gateway that answers again may be another process, which counts from zero.
                self.previous = None;
            }
        }
    }

    fn shown(&self) -> &Sight {
        self.frozen.as_ref().unwrap_or(&self.current)
    }

    fn handle_event(&mut self, event: &Event) {
        self.is_over |= is_end(event);
        if event.as_key_press_event().is_some_and(|key| key.code == KeyCode::Char('p')) {
            self.frozen = match self.frozen {
                Some(_) => None,
                None => Some(self.current.clone()),
            }
        }
    }
}

/// Whether the user has seen enough.
fn is_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release && (matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || is_ctrl_c)
}

/// The terminal in our hands; dropped, it is the user's again, whatever has happened.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn enter() -> std::io::Result<Screen> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                ratatui::restore();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    fn answer(at: Instant, messages_out: u64) -> Answer {
        let text = format!("messages_out{{connType=\"CLIENT\"}} {messages_out}\nconnection_num{{type=\"CLIENT\"}} 3\n");
        Answer { at, page: Page::parse(&text) }
    }

    fn messages_out(sight: &Sight) -> Option<f64> {
        sight.figures.as_ref().and_then(|figures| figures.clients.messages_out)
    }

    fn press(watch: &mut Watch, code: KeyCode, modifiers: KeyModifiers) {
        watch.handle_event(&Event::Key(KeyEvent::new(code, modifiers)));
    }

    #[test]
    fn rates_are_over_the_time_between_two_answers() {
        let start = Instant::now();
        let mut watch = Watch::new("http://gateway", Duration::from_secs(1));
        watch.take(answer(start, 1_000));
        assert_eq!(messages_out(watch.shown()), None);
        watch.take(answer(start + Duration::from_secs(2), 1_500));
        assert_eq!(messages_out(watch.shown()), Some(250.0));
    }

    #[test]
    fn a_gateway_that_was_away_is_not_compared_with_what_it_was() {
        let start = Instant::now();
        let mut watch = Watch::new("http://gateway", Duration::from_secs(1));
        watch.take(answer(start, 1_000));
        for second in 1..3 {
            let at = start + Duration::from_secs(second);
            watch.take(Answer { at, page: Err("refused".to_owned()) });
        }
        let trouble = watch.current.trouble.clone();
        assert_eq!(trouble, Some(("refused".to_owned(), start + Duration::from_secs(1))));
        watch.take(answer(start + Duration::from_secs(3), 1_700));
        assert_eq!(messages_out(watch.shown()), None);
        assert!(watch.current.trouble.is_none());
    }

    #[test]
    fn a_paused_view_stands_still_and_goes_on_where_the_gateway_is() {
        let start = Instant::now();
        let mut watch = Watch::new("http://gateway", Duration::from_secs(1));
        for (second, count) in [(0, 0), (1, 10), (2, 30)] {
            watch.take(answer(start + Duration::from_secs(second), count));
            if second == 1 {
                press(&mut watch, KeyCode::Char('p'), KeyModifiers::NONE);
            }
        }
        assert_eq!(messages_out(watch.shown()), Some(10.0));
        press(&mut watch, KeyCode::Char('p'), KeyModifiers::NONE);
        assert_eq!(messages_out(watch.shown()), Some(20.0));
    }

    #[test]
    fn q_and_ctrl_c_end_it_and_c_does_not() {
        for (code, modifiers, ends) in [
            (KeyCode::Char('q'), KeyModifiers::NONE, true),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, true),
            (KeyCode::Char('c'), KeyModifiers::NONE, false),
        ] {
            let mut watch = Watch::new("http://gateway", Duration::from_secs(1));
            press(&mut watch, code, modifiers);
            assert_eq!(watch.is_over, ends, "{code:?} {modifiers:?}");
        }
    }

    #[test]
    fn an_interval_is_a_tenth_of_a_second_to_a_minute() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "0.01", "61", "-1", "NaN", "inf", "one"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
