//! The derive macros of `throng-schema`, which exports and documents them.
//!
//! ```text
//! attribute tokens -- attribute.rs --> entries -- declaration.rs, quantiser.rs --> declarations -- expand.rs --> code
//! ```
//!
//! Everything that can be known from the tokens is checked here, all mistakes of a type are reported at once, and each
//! message names the field and what is allowed. Checks that need types are left to the traits of
//! `throng_schema::arithmetic`.
#![forbid(unsafe_code)]

mod attribute;
mod declaration;
mod enumeration;
mod expand;
mod quantiser;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Where the generated code finds `throng-schema` unless `#[replicate(crate = "...")]` says otherwise.
const SCHEMA: &str = "::throng_schema";
/// The same for programs that use the library, which re-exports it.
const SCHEMA_IN_THRONG: &str = "::throng::schema";

/// Derives `throng_schema::Replicate` for a struct with named fields.
#[doc = include_str!("attributes.md")]
#[proc_macro_derive(Replicate, attributes(replicate))]
pub fn derive_replicate(input: TokenStream) -> TokenStream {
    replicate(&parse_macro_input!(input as DeriveInput), SCHEMA)
}

/// The same as [`Replicate`] for programs that depend on `throng`, which exports it under that name.
#[doc = include_str!("attributes.md")]
#[proc_macro_derive(ReplicateInThrong, attributes(replicate))]
pub fn derive_replicate_in_throng(input: TokenStream) -> TokenStream {
    replicate(&parse_macro_input!(input as DeriveInput), SCHEMA_IN_THRONG)
}

/// Derives `throng_schema::ReplicateEnum` for an enum without data, so that it can be a field with the quantiser
/// `enumeration`. Codes count the variants in order of declaration, whatever their discriminants are.
///
/// `#[replicate(crate = "path")]` on the enum says where `throng-schema` is found, where it is under another name.
#[proc_macro_derive(ReplicateEnum, attributes(replicate))]
pub fn derive_replicate_enum(input: TokenStream) -> TokenStream {
    replicate_enum(&parse_macro_input!(input as DeriveInput), SCHEMA)
}

/// The same as [`ReplicateEnum`] for programs that depend on `throng`, which exports it under that name.
///
/// An enum with it can be a field with the quantiser `enumeration`. Codes count the variants in order of declaration,
/// whatever their discriminants are. `#[replicate(crate = "path")]` on the enum says where `throng-schema` is found, where
/// `throng` is under another name.
#[proc_macro_derive(ReplicateEnumInThrong, attributes(replicate))]
pub fn derive_replicate_enum_in_throng(input: TokenStream) -> TokenStream {
    replicate_enum(&parse_macro_input!(input as DeriveInput), SCHEMA_IN_THRONG)
}

fn replicate(input: &DeriveInput, schema: &str) -> TokenStream {
    let declaration = declaration::Declaration::of(input, schema);
    let code = declaration.map(|declaration| expand::expand(&declaration));
    code.unwrap_or_else(|error| error.into_compile_error()).into()
}

fn replicate_enum(input: &DeriveInput, schema: &str) -> TokenStream {
    enumeration::expand(input, schema).unwrap_or_else(|error| error.into_compile_error()).into()
}
