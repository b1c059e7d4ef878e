//! Tables in Markdown.

/// A table with its header. Names stand on the left, figures on the right; bars in a cell are escaped.
pub(super) fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| cell.trim().replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: String = (0..header.len()).map(|place| if place == 0 { "|---" } else { "|---:" }).collect();
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
        let text = table(&cells(["what", "a|b"]), &[cells(["  x", "1"])]);
        assert_eq!(text, "| what | a\\|b |\n|---|---:|\n| x | 1 |\n");
    }

    #[test]
    fn a_command_can_be_pasted() {
        assert_eq!(command(&cells(["compare", "--runs", "my runs"])), "throng compare --runs 'my runs'");
    }
}
