//! Wrong attributes are compile errors at the field, which name it and say what is allowed.
//!
//! `TRYBUILD=overwrite cargo test -p throng-schema --test mistakes` writes the expected messages again.

#[test]
fn wrong_attributes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
