//! `throng top --live`: a load that a live page shows, in the terminal. It reads the same stream as the page.
//!
//! ```text
//!  crowd  120 of 300 players  30 Hz                                     connected, 12 s
//!  frame   p50 2.79 ms   p99 5.00 ms   longest 5.00 ms   over budget 0   missed ticks 0
//!  data 53 kbit/s each   age near p99 62 ms   generator 0.13 cores
//!  ▂▃▂▅▂▁...                                                            frame p99, budget 33.3 ms
//!  write      0.71 ms  ████████
//!  2 s: the measured part begins
//! ```

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use ratatui::Frame;
use ratatui::crossterm::event;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline};
use throng_live::{Event, Hello, Message, Sample, View};
use throng_report::printable;

use super::{KEYS, Screen, is_end};
use crate::exit::{Failure, Outcome};

/// Samples of the curve.
const CURVE: usize = 240;
/// Events at the foot.
const MARKS: usize = 8;
/// A load that is there sends a sample in this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Cells of the longest bar.
const BAR_CELLS: f64 = 40.0;

/// Shows the newest load until the user has seen enough.
pub(super) fn watch(address: SocketAddr, once: bool) -> Outcome {
    let mut view = View::open(address).map_err(|error| Failure::Run(error.into()))?;
    let mut shown = Shown::default();
    if once {
        return print_once(&mut view, &mut shown, address);
    }
    if !std::io::stdout().is_terminal() {
        refuse!("the output is not a terminal: use --once");
    }
    let stop = crate::stop_on_interrupt()?;
    let mut screen = Screen::enter().context("cannot draw on the terminal")?;
    while !stop.load(Ordering::Relaxed) {
        // Points come in between, and are for pages.
        let until = Instant::now() + KEYS;
        while Instant::now() < until
            && let Some(event) = view.next(KEYS).map_err(|error| Failure::Run(error.into()))?
        {
            shown.take(event);
        }
        screen.terminal.draw(|frame| draw(frame, &shown)).context("cannot draw on the terminal")?;
        while event::poll(Duration::ZERO).context("cannot read keys")? {
            if is_end(&event::read().context("cannot read keys")?) {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_once(view: &mut View, shown: &mut Shown, address: SocketAddr) -> Outcome {
    let until = Instant::now() + PATIENCE;
    let mut is_past = true;
    while Instant::now() < until {
        match view.next(Duration::from_millis(100)).map_err(|error| Failure::Run(error.into()))? {
            Some(event) => {
                let is_sample = matches!(event.message, Message::Sample(_));
                shown.take(event);
                // The past comes at once; the first sample after a pause is new.
                if is_sample && !is_past && shown.is_there {
                    out!("{}", plain(shown));
                    return Ok(ExitCode::SUCCESS);
                }
            }
            None => is_past = false,
        }
    }
    Err(Failure::Run(anyhow!("no load is shown at {address}: start one with --live {address}")))
}

/// The newest load, and the last events of all.
#[derive(Default)]
struct Shown {
    hellos: VecDeque<(u64, Hello)>,
    feed: Option<u64>,
    is_there: bool,
    sample: Option<Sample>,
    p99_us: VecDeque<u64>,
    marks: VecDeque<String>,
}

impl Shown {
    fn take(&mut self, event: Event) {
        let Event { feed, at_s, message } = event;
        match message {
            Message::Hello(hello) => {
                self.hellos.push_back((feed, hello));
                if self.hellos.len() > CURVE {
                    self.hellos.pop_front();
                }
            }
            Message::Sample(sample) if self.feed.is_none_or(|shown| shown <= feed) => {
                if self.feed.replace(feed) != Some(feed) {
                    self.p99_us.clear();
                }
                self.is_there = true;
                push(&mut self.p99_us, CURVE, (sample.frame_p99_ms * 1e3) as u64);
                self.sample = Some(sample);
            }
            Message::Mark(mark) => push(&mut self.marks, MARKS, printable(&format!("{at_s:.0} s: {}", mark.text))),
            Message::End => {
                self.is_there &= self.feed != Some(feed);
                if let Some(hello) = self.hello(feed) {
                    let text = printable(&format!("{at_s:.0} s: {} has ended", hello.workload));
                    push(&mut self.marks, MARKS, text);
                }
            }
            Message::Sample(_) | Message::Points(_) => {}
        }
    }

    fn hello(&self, feed: u64) -> Option<&Hello> {
        self.hellos.iter().rev().find(|(number, _)| *number == feed).map(|(_, hello)| hello)
    }

    fn load(&self) -> Option<(&Hello, &Sample)> {
        Some((self.hello(self.feed?)?, self.sample.as_ref()?))
    }
}

fn push<T>(list: &mut VecDeque<T>, most: usize, value: T) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(value);
}

/// The first lines: what the load is, its frames, its data.
fn headline(hello: &Hello, sample: &Sample) -> [String; 3] {
    let Sample { wanted, connected, frame_p50_ms: p50, frame_p99_ms: p99, frame_max_ms: longest, .. } = sample;
    let of = if wanted == connected { String::new() } else { format!(" of {wanted}") };
    let rate = if hello.tick_hz > 0 { format!("   {} Hz", hello.tick_hz) } else { String::new() };
    let breaches = sample.breaches;
    let missed = sample.missed_ticks.map_or(String::new(), |ticks| format!("   missed ticks {ticks}"));
    let rest = [
        sample.kbit_per_s.map(|kbit| format!("data {kbit:.0} kbit/s each")),
        sample.near_age_p99_ms.map(|ms| format!("age near p99 {ms:.0} ms")),
        sample.generator_cores.map(|cores| format!("generator {cores:.2} cores")),
    ];
    [
        format!("{}   {connected}{of} {}{rate}   {:.0} s", hello.workload, hello.unit, sample.time_s),
        format!("frame   p50 {p50:.2} ms   p99 {p99:.2} ms   longest {longest:.2} ms   over budget {breaches}{missed}"),
        rest.into_iter().flatten().collect::<Vec<_>>().join("   "),
    ]
    .map(|line| printable(&line))
}

/// Name, mean and budget of each subsystem.
fn parts(hello: &Hello, sample: &Sample) -> impl Iterator<Item = (String, f64, Option<f64>)> {
    hello.subsystems.iter().map(|part| {
        let ms = sample.subsystems_ms.get(&part.name).copied().unwrap_or(0.0);
        (printable(&part.name), ms, part.budget_ms)
    })
}

fn plain(shown: &Shown) -> String {
    let Some((hello, sample)) = shown.load() else { return String::new() };
    let mut text = headline(hello, sample).join("\n") + "\n";
    for (name, ms, budget) in parts(hello, sample) {
        let budget = budget.map_or(String::new(), |budget| format!(" of {budget} ms"));
        text += &format!("{name:<14} {ms:>8.3} ms{budget}\n");
    }
    text
}

fn draw(frame: &mut Frame<'_>, shown: &Shown) {
    let Some((hello, sample)) = shown.load() else {
        let text = "no load yet: start one with --live, for example throng crowd --live ADDR      q quits";
        return frame.render_widget(Paragraph::new(text), frame.area());
    };
    let part_rows = hello.subsystems.len() as u16;
    let rows = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(6),
        Constraint::Length(part_rows + 1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .split(frame.area());
    let [title, frames, rest] = headline(hello, sample);
    let state = if shown.is_there { Span::raw("") } else { Span::raw("   has ended").red() };
    let frames_line = match hello.budget_ms.is_some_and(|budget| sample.frame_p99_ms > budget) {
        true => Line::raw(frames).red(),
        false => Line::raw(frames),
    };
    let head = vec![Line::from(vec![Span::raw(title).bold(), state]), frames_line, Line::raw(rest)];
    frame.render_widget(Paragraph::new(head), rows[0]);

    let budget = hello.budget_ms.map_or(String::new(), |budget| format!(", budget {budget:.1} ms"));
    let width = usize::from(rows[1].width);
    let curve: Vec<u64> = shown.p99_us.iter().copied().skip(shown.p99_us.len().saturating_sub(width)).collect();
    let highest = curve.iter().copied().max().unwrap_or(0) as f64 / 1e3;
    let block = Block::new().title(format!("frame p99, highest {highest:.2} ms{budget}"));
    frame.render_widget(Sparkline::default().block(block).data(curve).style(Style::new().fg(Color::Cyan)), rows[1]);

    let longest = parts(hello, sample).map(|(_, ms, _)| ms).fold(1e-9, f64::max);
    let bars = parts(hello, sample).map(|(name, ms, budget)| {
        let is_over = budget.is_some_and(|budget| ms > budget);
        let cells = (ms / longest * BAR_CELLS).round().clamp(0.0, BAR_CELLS) as usize;
        let bar = Span::raw("█".repeat(cells)).fg(if is_over { Color::Red } else { Color::Blue });
        let budget = budget.map_or(String::new(), |budget| format!(" of {budget} ms"));
        Line::from(vec![Span::raw(format!("{name:<14} {ms:>8.3} ms{budget}  ")), bar])
    });
    frame.render_widget(Paragraph::new(bars.collect::<Vec<_>>()), rows[2]);
    let marks: Vec<Line<'_>> = shown.marks.iter().rev().map(|mark| Line::raw(&**mark)).collect();
    frame.render_widget(Paragraph::new(marks), rows[3]);
    frame.render_widget(Paragraph::new("q quits").dim(), rows[4]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use throng_live::{Mark, Subsystem};

    fn event(feed: u64, message: Message) -> Event {
        Event { feed, at_s: 2.4, message }
    }

    fn hello(workload: &str) -> Message {
        let subsystems = vec![Subsystem { name: "write".to_owned(), budget_ms: Some(1.0) }];
        let (workload, unit) = (workload.to_owned(), "players".to_owned());
        Message::Hello(Hello { workload, unit, tick_hz: 30, budget_ms: Some(33.3), subsystems, ..Hello::default() })
    }

    fn sample(connected: u32) -> Message {
        let subsystems_ms = [("write".to_owned(), 1.5)].into();
        Message::Sample(Sample { wanted: 300, connected, frame_p99_ms: 5.0, subsystems_ms, ..Sample::default() })
    }

    #[test]
    fn the_newest_load_is_shown_and_older_ones_do_not_come_back() {
        let mut shown = Shown::default();
        for (feed, message) in [(1, hello("first")), (2, hello("second")), (2, sample(120)), (1, sample(9))] {
            shown.take(event(feed, message));
        }
        assert_eq!(plain(&shown).lines().next(), Some("second   120 of 300 players   30 Hz   0 s"));
        assert!(plain(&shown).contains("write             1.500 ms of 1 ms"), "{}", plain(&shown));
        shown.take(event(1, Message::End));
        assert!(shown.is_there);
        shown.take(event(2, Message::End));
        assert!(!shown.is_there && shown.marks.back().is_some_and(|mark| mark == "2 s: second has ended"));
    }

    #[test]
    fn no_terminal_obeys_what_a_load_says() {
        let sly = "\u{1b}[2J\u{9b}2J\r\n";
        let mut shown = Shown::default();
        let subsystems = vec![Subsystem { name: sly.to_owned(), budget_ms: None }];
        let (workload, unit) = (sly.to_owned(), sly.to_owned());
        shown.take(event(1, Message::Hello(Hello { workload, unit, subsystems, ..Hello::default() })));
        shown.take(event(1, sample(3)));
        shown.take(event(1, Message::Mark(Mark { text: sly.to_owned() })));
        shown.take(event(1, Message::End));
        assert_eq!(shown.marks, ["2 s: ?[2J?2J??", "2 s: ?[2J?2J?? has ended"]);
        let text = plain(&shown);
        assert!(text.starts_with("?[2J?2J??   3 of 300 ?[2J?2J??   0 s\n") && text.contains("\n?[2J?2J?? "), "{text}");
        assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text}");
    }

    #[test]
    fn whatever_the_size_of_the_terminal_it_can_be_drawn() {
        let mut shown = Shown::default();
        let fill = |shown: &mut Shown| {
            shown.take(event(1, hello("crowd")));
            (0..1_000).for_each(|number| shown.take(event(1, sample(number))));
            (0..100).for_each(|_| shown.take(event(1, Message::Mark(Mark { text: "a step".to_owned() }))));
        };
        for (width, height) in [(100, 30), (20, 5), (1, 1)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &Shown::default())).unwrap();
            fill(&mut shown);
            terminal.draw(|frame| draw(frame, &shown)).unwrap();
            if width == 100 {
                let text: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
                for part in ["999 of 300 players", "budget 33.3 ms", "write", "2 s: a step"] {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        }
        assert_eq!((shown.p99_us.len(), shown.marks.len()), (CURVE, MARKS));
    }
}
