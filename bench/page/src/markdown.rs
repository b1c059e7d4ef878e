//! Tables and commands in Markdown.

use std::path::Path;

/// A table with its header. Columns of figures are aligned to the right; bars in a cell are escaped.
pub(super) fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| cell.trim().replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let is_figure =
        |cell: &String| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "+-–".contains(c));
    let is_of_figures = |place: usize| place > 0 && rows.iter().all(|row| row.get(place).is_some_and(is_figure));
    let rule: String = (0..header.len()).map(|place| if is_of_figures(place) { "|---:" } else { "|---" }).collect();
    let mut text = line(header) + &rule + "|\n";
    rows.iter().for_each(|row| text += &line(row));
    text
}

/// A shell command as a code block's line, to be given in the folder `root`: paths in it are relative to that. Options that
/// say only where the output goes are left out.
pub(super) fn command(words: &[String], root: &Path) -> String {
    line_of("throng", words, root)
}

/// The command that runs this program with these arguments.
pub(super) fn program(words: &[String], root: &Path) -> String {
    line_of("cargo run -p throng-page --", words, root)
}

fn line_of(program: &str, words: &[String], root: &Path) -> String {
    let mut measured = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--runs" => drop(words.next()),
            "--json" | "--quiet" => {}
            word if word.starts_with("--runs=") => {}
            word => measured.push(relative(word, root)),
        }
    }
    let quoted = measured.iter().map(|word| {
        let is_plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=.,:/".contains(c));
        if is_plain { (*word).to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    std::iter::once(program.to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// A path without the folder that it is relative to; other words, and paths elsewhere, as they are.
pub(super) fn relative<'a>(word: &'a str, root: &Path) -> &'a str {
    Path::new(word).strip_prefix(root).ok().and_then(Path::to_str).filter(|rest| !rest.is_empty()).unwrap_or(word)
}

/// Words for a list's row.
pub(super) fn cells<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_its_columns_whatever_its_cells_hold() {
        let text = table(&cells(["what", "a|b", "who"]), &[cells(["  x", "1", "me"]), cells(["y", "–", "you"])]);
        assert_eq!(text, "| what | a\\|b | who |\n|---|---:|---|\n| x | 1 | me |\n| y | – | you |\n");
    }

    #[test]
    fn a_command_can_be_pasted() {
        let words = cells(["crowd", "--scenario", "/src/throng/my lab/x.toml", "--pin", "--runs", "/tmp/x", "--json"]);
        assert_eq!(command(&words, Path::new("/src/throng")), "throng crowd --scenario 'my lab/x.toml' --pin");
        assert_eq!(relative("/elsewhere/x.toml", Path::new("/src/throng")), "/elsewhere/x.toml");
    }
}
