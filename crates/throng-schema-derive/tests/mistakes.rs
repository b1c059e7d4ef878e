//! Wrong attributes are compile errors at the field, which name it and say what is allowed.
//!
//! The test is in this crate because it compiles all dependencies of its crate once more: here these are few.
//!
//! `TRYBUILD=overwrite cargo test -p throng-schema-derive --test mistakes` writes the expected messages again.

#[test]
fn wrong_attributes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
