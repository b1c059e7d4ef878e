//! The summary of a peer's schema.

use throng_schema::{Schema, Summary};

/// A summary that is accepted is exactly what its kinds are written as, and can be compared and printed.
pub(crate) fn run(schema: &Schema, input: &[u8]) {
    let summary = match Summary::decode(input) {
        Ok(summary) => summary,
        Err(error) => return assert!(!error.tag().is_empty()),
    };
    let mut written = Vec::new();
    summary.encode(&mut written);
    assert_eq!(written, input);
    for difference in schema.differences(&summary) {
        let sentence = difference.to_string();
        assert!(!sentence.contains('\n'), "{sentence:?} forges a line in a log");
    }
    assert!(summary.differences(&summary).is_empty());
}
