//! Tables in Markdown.

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

/// A shell command as a code block's line.
pub(super) fn command(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let is_plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=.,:/".contains(c));
        if is_plain { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    std::iter::once("throng".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
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
        assert_eq!(command(&cells(["compare", "--runs", "my runs"])), "throng compare --runs 'my runs'");
    }
}
