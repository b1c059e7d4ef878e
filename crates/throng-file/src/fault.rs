//! Faults of files that people write, each in one line.

/// The line of a text in which a byte lies, from 1.
pub fn line_of(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|&byte| byte == b'\n').count()
}

/// A parser's message in one line. Shortens "unknown field `a`, expected one of …" to the key that was probably meant.
pub fn friendly(message: &str) -> String {
    let one_line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut quoted = one_line.split('`').skip(1).step_by(2);
    if one_line.starts_with("unknown field") || one_line.starts_with("unknown variant") {
        let word = quoted.next().unwrap_or_default().to_owned();
        let allowed: Vec<&str> = quoted.collect();
        if allowed.is_empty() {
            return one_line;
        }
        let what = if one_line.starts_with("unknown field") { "unknown key" } else { "unknown value" };
        return match nearest(&word, &allowed) {
            Some(nearest) => format!("{what} `{word}`: did you mean `{nearest}`?"),
            None => format!("{what} `{word}`: allowed are {}", allowed.join(", ")),
        };
    }
    match one_line.strip_prefix("missing field ") {
        Some(field) => format!("the key {field} is missing"),
        None => one_line,
    }
}

/// The candidate that is at most a third of the word's letters away from `word`.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let limit = word.chars().count().div_ceil(3);
    let (distance, best) = candidates.iter().map(|&known| (edits(word, known), known)).min()?;
    (distance <= limit).then_some(best)
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_line_and_names_the_key_that_was_meant() {
        assert_eq!([0, 3, 4, 99].map(|byte| line_of("one\ntwo\n", byte)), [1, 1, 2, 3]);
        let unknown = "unknown field `frame_us`, expected one of `frame_ms`,\n`slow_frame_ms`";
        assert_eq!(friendly(unknown), "unknown key `frame_us`: did you mean `frame_ms`?");
        let none = "unknown field `x`, there are no fields";
        assert_eq!(friendly(none), none);
        assert_eq!(friendly("missing field `players`"), "the key `players` is missing");
    }

    #[test]
    fn edit_distance_counts_single_letters() {
        assert_eq!(edits("players", "players"), 0);
        assert_eq!(edits("plyers", "players"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
    }

    #[test]
    fn only_a_similar_word_is_suggested() {
        assert_eq!(nearest("tick", &["tick_hz", "players"]), None);
        assert_eq!(nearest("tik_hz", &["tick_hz", "players"]), Some("tick_hz"));
        assert_eq!(nearest("x", &[]), None);
    }
}
