//! The screen.
//!
//! ```text
//!  throng top   http://127.0.0.1:8080/metrics   every 1 s                      q quit p pause
//!  Gateway --------------------- Channels ------------------------------------------------
//!  Traffic -------------------------------------------------------------------------------
//!  Engine ---------------------- Dropped and refused -------------------------------------
//!  Last two minutes ----------------------------------------------------------------------
//! ```

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Sparkline, Wrap};

use super::figures::Figures;
use super::history::{Columns, History};
use super::panels::{self, Panel};
use super::{Sight, Watch};

const BAD: Style = Style::new().fg(Color::Red);
const FAINT: Style = Style::new().fg(Color::DarkGray);
const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const CURVE: Style = Style::new().fg(Color::Cyan);

/// Columns for the name of a curve, and for its newest and largest value.
const NAME_COLUMNS: u16 = 15;
const VALUE_COLUMNS: u16 = 30;

pub(super) fn draw(frame: &mut Frame, watch: &Watch) {
    let sight = watch.shown();
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
    frame.render_widget(title(watch), head);
    frame.render_widget(Line::styled("q quit p pause ", FAINT).alignment(Alignment::Right), head);
    match &sight.figures {
        Some(figures) => draw_figures(frame, body, figures, sight),
        None => draw_nobody(frame, body, watch),
    }
}

fn title(watch: &Watch) -> Line<'_> {
    let interval = format!("  every {} s", watch.interval.as_secs_f64());
    let mut spans = vec![Span::styled(" throng top  ", TITLE), Span::raw(&watch.url), Span::styled(interval, FAINT)];
    if watch.frozen.is_some() {
        spans.push(Span::styled("  paused", BAD));
    }
    Line::from(spans)
}

fn draw_nobody(frame: &mut Frame, area: Rect, watch: &Watch) {
    let text = trouble(watch.shown()).map_or("connecting to the gateway ...".to_owned(), |trouble| {
        let hint = "Is the gateway running, and is this its -http address? This view continues as soon as it answers.";
        format!("{trouble}\n\n{hint}")
    });
    let block = Block::bordered().title("Gateway");
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }).block(block), area);
}

fn trouble(sight: &Sight) -> Option<String> {
    let (text, since) = sight.trouble.as_ref()?;
    Some(format!("no answer for {} s: {text}; trying again", since.elapsed().as_secs()))
}

fn draw_figures(frame: &mut Frame, area: Rect, figures: &Figures, sight: &Sight) {
    let warning = trouble(sight);
    let rows = [
        Constraint::Length(u16::from(warning.is_some())),
        Constraint::Length(6),
        Constraint::Length(4),
        Constraint::Length(9),
        Constraint::Min(0),
    ];
    let [note, top, traffic, middle, bottom] = Layout::vertical(rows).areas(area);
    let halves = [Constraint::Length(45), Constraint::Min(0)];
    let [top_left, top_right] = Layout::horizontal(halves).areas(top);
    let [middle_left, middle_right] = Layout::horizontal(halves).areas(middle);
    if let Some(warning) = &warning {
        frame.render_widget(Line::styled(format!(" {warning}"), BAD), note);
    }
    // Without new data, the last data stays on the screen.
    let style = if warning.is_some() { FAINT } else { Style::new() };
    let panels = [
        (panels::gateway(figures), top_left),
        (panels::channels(figures), top_right),
        (panels::traffic(figures), traffic),
        (panels::engine(figures), middle_left),
        (panels::drops(figures), middle_right),
    ];
    for (panel, area) in panels {
        draw_panel(frame, area, panel, style);
    }
    draw_history(frame, bottom, &sight.history);
}

fn draw_panel(frame: &mut Frame, area: Rect, panel: Panel, style: Style) {
    let block = Block::new().borders(Borders::TOP).border_style(FAINT).title(Span::styled(panel.title, TITLE));
    let hidden = panel.lines.len().saturating_sub(usize::from(block.inner(area).height));
    let line = |line: panels::Line| Line::styled(format!(" {}", line.text), if line.is_bad { BAD } else { style });
    let lines: Vec<Line> = panel.lines.into_iter().map(line).collect();
    let block =
        if hidden > 0 { block.title(Line::styled(format!("{hidden} more"), FAINT).right_aligned()) } else { block };
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_history(frame: &mut Frame, area: Rect, history: &History) {
    let block = Block::new().borders(Borders::TOP).border_style(FAINT).title(Span::styled("Last two minutes", TITLE));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let columns = [Constraint::Length(NAME_COLUMNS), Constraint::Min(0), Constraint::Length(VALUE_COLUMNS)];
    let [_, middle, _] = Layout::horizontal(columns).areas(inner);
    let curves = history.columns(middle.width.into());
    let height = (inner.height / curves.len() as u16).clamp(1, 3);
    for (index, curve) in (0..inner.height / height).zip(curves) {
        let row = Rect { y: inner.y + index * height, height, ..inner };
        let [name, middle, value] = Layout::horizontal(columns).areas(row);
        let text = format!(" {:>9}  at most {:>9}", curve.latest, curve.largest);
        frame.render_widget(Line::raw(format!(" {}", curve.name)), bottom_of(name));
        frame.render_widget(Line::raw(text), bottom_of(value));
        frame.render_widget(Sparkline::default().data(curve.heights).max(Columns::HEIGHT).style(CURVE), middle);
    }
}

fn bottom_of(area: Rect) -> Rect {
    Rect { y: area.y + area.height.saturating_sub(1), height: area.height.min(1), ..area }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::{Answer, Page};
    use super::*;

    fn screen(watch: &Watch, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, watch)).unwrap();
        let cells = terminal.backend().buffer().content();
        let row = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n";
        cells.chunks(width.into()).map(row).collect()
    }

    fn watched(pages: &[&str]) -> Watch {
        let mut watch = Watch::new("http://127.0.0.1:8080/metrics", Duration::from_secs(1));
        let start = Instant::now();
        for (second, page) in (0..).zip(pages) {
            watch.take(Answer { at: start + Duration::from_secs(second), page: Page::parse(page) });
        }
        watch
    }

    const BEFORE: &str = "connection_num{type=\"CLIENT\"} 40\nmessages_out{connType=\"CLIENT\"} 1000\n\
                          channel_num{type=\"ENTITY\"} 12\ngateway_drops_total{reason=\"unknown_channel\"} 1\n";
    const NOW: &str = "connection_num{type=\"CLIENT\"} 41\nmessages_out{connType=\"CLIENT\"} 1700\n\
                       channel_num{type=\"ENTITY\"} 13\ngateway_drops_total{reason=\"unknown_channel\"} 4\n";

    #[test]
    fn a_terminal_of_80_by_24_holds_everything() {
        let text = screen(&watched(&[BEFORE, NOW]), 80, 24);
        for part in ["clients        41", "ENTITY         13", "clients", "700", "unknown_channel", "3/s", "lag p99"] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn a_gateway_that_is_not_there_is_said_to_be_not_there() {
        let mut watch = watched(&[]);
        watch.take(Answer { at: Instant::now(), page: Err("connection refused".to_owned()) });
        let text = screen(&watch, 80, 24);
        assert!(text.contains("no answer for 0 s: connection refused; trying again"), "{text}");
    }

    #[test]
    fn a_gateway_that_went_away_leaves_its_last_figures() {
        let mut watch = watched(&[BEFORE, NOW]);
        watch.take(Answer { at: Instant::now(), page: Err("connection refused".to_owned()) });
        let text = screen(&watch, 80, 28);
        assert!(text.contains("connection refused") && text.contains("clients        41"), "{text}");
    }

    #[test]
    fn no_terminal_is_too_small() {
        let watch = watched(&[BEFORE, NOW]);
        for (width, height) in [(1, 1), (3, 40), (200, 2), (20, 10), (300, 100)] {
            screen(&watch, width, height);
        }
    }
}
