//! The page's generated blocks: what stands between two marks is replaced, and everything around them is left alone.
//!
//! ```text
//! ## A heading, and words of its author
//!
//! <!-- generated: losses -->
//! the text here is written again
//! <!-- end: losses -->
//!
//! More words.
//! ```

/// A block's name, and the text between its marks.
pub(super) type Block = (&'static str, String);

/// A page with every block, for where there is none yet.
pub(super) const SKELETON: &str = "\
# Models and peers, measured

<!-- generated: origin -->
<!-- end: origin -->

## What is demanded

<!-- generated: demands -->
<!-- end: demands -->

## Published findings, looked for here

<!-- generated: findings -->
<!-- end: findings -->

## The models beside each other

<!-- generated: models -->
<!-- end: models -->

## Open peers

<!-- generated: peers -->
<!-- end: peers -->

## What we lose at

<!-- generated: losses -->
<!-- end: losses -->

## Runs that do not count

<!-- generated: spoilt -->
<!-- end: spoilt -->
";

/// The page with these blocks in place of what it has between their marks. An error if a mark of the page is missing,
/// doubled or in the wrong order.
pub(super) fn replaced(page: &str, blocks: &[Block]) -> Result<String, String> {
    let mut page = page.to_owned();
    for (name, text) in blocks {
        let [begin, end] = [format!("<!-- generated: {name} -->\n"), format!("<!-- end: {name} -->")];
        if let Some(mark) = [&begin, &end].into_iter().find(|mark| page.matches(mark.as_str()).count() != 1) {
            return Err(format!("`{}` must stand in it once, on a line of its own", mark.trim_end()));
        }
        let (head, rest) = page.split_once(&begin).unwrap_or_default();
        let Some((_, tail)) = rest.split_once(&end) else {
            return Err(format!("`{end}` must come after `{}`", begin.trim_end()));
        };
        page = format!("{head}{begin}\n{}\n\n{end}{tail}", text.trim());
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Mine\n\n<!-- generated: losses -->\nold\n<!-- end: losses -->\n\nMy words.\n";

    #[test]
    fn a_block_is_replaced_and_the_words_around_it_stay() {
        let page = replaced(PAGE, &[("losses", "new\n".to_owned())]).unwrap();
        assert_eq!(page, "# Mine\n\n<!-- generated: losses -->\n\nnew\n\n<!-- end: losses -->\n\nMy words.\n");
        assert_eq!(replaced(&page, &[("losses", "new".to_owned())]).unwrap(), page, "twice is as once");
    }

    #[test]
    fn a_page_without_the_marks_is_refused_with_what_is_missing() {
        let refused = |page: &str| replaced(page, &[("losses", String::new())]).unwrap_err();
        assert!(refused("# Mine\n").contains("generated: losses"));
        assert!(refused(&PAGE.replace("<!-- end", "<!-- and")).contains("end: losses"));
        assert!(refused(&PAGE.repeat(2)).contains("once"));
        let turned = "<!-- end: losses -->\n<!-- generated: losses -->\n";
        assert!(refused(turned).contains("must come after"));
    }
}
