//! A page as text: one screen of a terminal.

use crate::page::{Block, Cell, Page, Table, Verdict};
use crate::words::printable;

/// Columns of the screen.
const WIDTH: usize = 100;
/// Columns of the names of lines.
const NAMES: usize = 25;
/// So many reasons are told; the page has all.
const REASONS: usize = 3;

impl Page {
    /// The large figures, the tables that are [brief](Table::brief), limits and validity. Ends with a line break. Nothing in it is
    /// [obeyed by a terminal](printable) but the ends of lines.
    pub fn text(&self) -> String {
        self.lines().split_inclusive('\n').map(|line| printable(line.trim_end_matches('\n')) + "\n").collect()
    }

    fn lines(&self) -> String {
        // The moment is in the name of the folder.
        let revision = self.facts.get(1).map_or(String::new(), |revision| format!(", {revision}"));
        let mut text = format!("\n{}: {}{revision}\n{}\n", self.title, self.subtitle, "─".repeat(WIDTH));
        let tiles = self.tiles.iter().map(|tile| {
            let value = format!("{} {}", tile.value, tile.unit);
            vec![Cell::of(tile.term.clone()), Cell::from(value.trim_end()), Cell::from(&tile.note[..])]
        });
        text += &columns(&tiles.collect::<Vec<_>>());
        for section in &self.sections {
            for block in &section.blocks {
                if let Block::Table(table) = block
                    && table.is_brief
                {
                    let title = if table.title.is_empty() { &section.title } else { &table.title };
                    text += &brief(title, table);
                }
            }
        }
        let limits = self.limits.iter().map(|limit| {
            let term = Cell::of(limit.term.clone());
            vec![Cell::from(sign(limit.verdict)), term, Cell::from(&limit.limit[..]), Cell::from(&limit.value[..])]
        });
        text += &columns(&limits.collect::<Vec<_>>());
        text + &self.validity_text()
    }

    /// The same in Markdown, for a pull request or the summary of a build, without limits and validity.
    pub fn markdown(&self) -> String {
        let mut text = format!("\n**{}**\n\n{}\n", markdown_cell(&self.title), markdown_cell(&self.subtitle));
        for tile in &self.tiles {
            let note = if tile.note.is_empty() { String::new() } else { format!(" ({})", tile.note) };
            let fact = format!("{}: {} {}", tile.term.text, tile.value, tile.unit);
            text += &format!("\n- {}", markdown_cell(&format!("{}{note}", fact.trim_end())));
        }
        text += "\n";
        for block in self.sections.iter().flat_map(|section| &section.blocks) {
            match block {
                Block::Table(table) if table.is_brief && !table.head.is_empty() => text += &table.markdown(),
                _ => {}
            }
        }
        text
    }

    fn validity_text(&self) -> String {
        let (missed, limits) = (self.missed(), self.limits.len());
        let reasons = self.validity.iter().filter(|validity| !validity.is_valid).flat_map(|validity| &validity.reasons);
        let reasons: Vec<&String> = reasons.collect();
        if reasons.is_empty() {
            let missed = if missed > 0 { format!("; it misses {missed} of {limits} limits") } else { String::new() };
            return format!("\nvalid run{missed}\n");
        }
        let more = reasons.len().saturating_sub(REASONS);
        let more = (more > 0).then(|| format!("and {more} more reasons, see the report"));
        let lines = reasons.into_iter().take(REASONS).cloned().chain(more).map(|line| format!("  {line}\n"));
        format!("\nNOT VALID: do not quote these figures\n{}", lines.collect::<String>())
    }
}

/// A text in a line of Markdown that does not end its cell.
pub(crate) fn markdown_cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// Names with values in running lines; a table with a head as one, with its note.
fn brief(title: &str, table: &Table) -> String {
    if table.head.len() > 2 {
        return format!("\n{title}\n{}{}", table.text(""), lines(&table.note));
    }
    let mut lines = vec![format!("{title:<NAMES$}")];
    if title.chars().count() >= NAMES {
        lines.push(" ".repeat(NAMES));
    }
    for row in &table.rows {
        let fact = row.iter().map(shown).collect::<Vec<_>>().join(" ");
        let line = &lines[lines.len() - 1];
        if line.chars().count() + fact.chars().count() > WIDTH {
            lines.push(" ".repeat(NAMES));
        }
        let last = lines.len() - 1;
        lines[last] += &format!("{fact}  ");
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Sentences in lines that fit.
fn lines(sentences: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in sentences.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < WIDTH - 2 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

/// Cells below each other; numbers stand to the right.
pub(crate) fn columns(rows: &[Vec<Cell>]) -> String {
    let width = |place: usize| rows.iter().filter_map(|row| Some(shown(row.get(place)?).chars().count())).max();
    let widths: Vec<usize> = (0..).map_while(width).collect();
    let line = |row: &Vec<Cell>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| match cell.is_number {
            true => format!("{:>width$}", shown(cell)),
            false => format!("{:<width$}", shown(cell)),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn shown(cell: &Cell) -> String {
    match cell.verdict {
        Some(Verdict::Missed) if !cell.term.text.starts_with('✗') => format!("✗ {}", printable(&cell.term.text)),
        _ => printable(&cell.term.text),
    }
}

fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "✓",
        Verdict::Missed => "✗",
        Verdict::Unknown => "–",
    }
}

#[cfg(test)]
mod tests {
    use crate::page::{Limit, Section, Tile, Validity};
    use crate::{Kind, RunHead};

    use super::*;

    #[test]
    fn a_page_is_a_screen_of_text_with_what_is_brief() {
        let mut page = RunHead::example(Kind::Crowd).page("crowd", "all kept up");
        page.subtitle = "9 players".to_owned();
        let mut facts = Table::new("Bytes", "");
        (0..20).for_each(|number| facts.push([Cell::from(format!("part {number}")), Cell::number("1 B")]));
        let mut bands = Table::new("", "distance | #age");
        bands.head.push(Cell::number("error"));
        bands.push([
            Cell::from("near"),
            Cell::number("7 ms"),
            Cell { is_number: true, ..Cell::verdict(Verdict::Missed, "9 m") },
        ]);
        let mut long = Table::new("Long", "x");
        long.push([Cell::from("not told")]);
        page.sections.push(Section::new("Distances").with(bands.brief()).with(facts.brief()).with(long));
        let limit =
            |verdict| Limit { term: "age".into(), limit: "≤ 5 ms".to_owned(), value: "7 ms".to_owned(), verdict };
        page.limits = vec![limit(Verdict::Missed), limit(Verdict::Kept)];
        page.validity = Some(Validity { is_valid: true, ..Validity::default() });
        let text = page.text();
        for part in [
            "crowd: 9 players, revision 0123456789ab\n",
            "\nDistances\ndistance   age  error\nnear      7 ms  ✗ 9 m\n",
            "✗  age  ≤ 5 ms  7 ms\n",
        ] {
            assert!(text.contains(part), "no {part} in:\n{text}");
        }
        assert!(text.ends_with("\nvalid run; it misses 1 of 2 limits\n") && !text.contains("not told"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH)
                && text.contains(&format!("\n{}part", " ".repeat(NAMES))),
            "{text}"
        );
        let (value, unit) = ("3".to_owned(), "ms".to_owned());
        page.tiles.push(Tile { term: "a|b".into(), value, unit, note: String::new(), verdict: None });
        assert_eq!(
            page.markdown(),
            "\n**crowd**\n\n9 players\n\n- a\\|b: 3 ms\n\n\
             | distance | age | error |\n|---|---:|---:|\n| near | 7 ms | 9 m |\n"
        );
        page.tiles[0].note = "\u{1b}[2J\rall\nkept".to_owned();
        page.subtitle = "9 \u{9b}2Jplayers\u{7}".to_owned();
        let text = page.text();
        assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text}");
        assert!(text.contains("?[2J?all?kept\n") && text.contains(": 9 ?2Jplayers?, revision"), "{text}");
        page.tiles.clear();
        page.validity = Some(Validity { reasons: vec!["late".to_owned(); 5], ..Validity::default() });
        assert!(page.text().ends_with("  late\n  late\n  late\n  and 2 more reasons, see the report\n"));
    }
}
