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

/// Derives `throng_schema::Replicate` for a struct with named fields. See the front page of `throng-schema`.
#[proc_macro_derive(Replicate, attributes(replicate))]
pub fn derive_replicate(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let code = declaration::Declaration::of(&input).map(|declaration| expand::expand(&declaration));
    code.unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Derives `throng_schema::ReplicateEnum` for an enum without data.
#[proc_macro_derive(ReplicateEnum, attributes(replicate))]
pub fn derive_replicate_enum(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    enumeration::expand(&input).unwrap_or_else(|error| error.into_compile_error()).into()
}
