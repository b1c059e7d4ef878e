//! `#[derive(ReplicateEnum)]`.

use crate::attribute::{Errors, entries};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, LitStr, Path, Result};

/// Most variants of an enum.
const MAX_VARIANTS: usize = 65_536;

pub(crate) fn expand(input: &DeriveInput, schema: &str) -> Result<TokenStream> {
    let data = checked(input)?;
    let schema = schema_path(input, schema)?;
    let ident = &input.ident;
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let names = variants.iter().map(|variant| variant.unraw().to_string());
    let codes: Vec<u32> = (0..variants.len() as u32).collect();
    let (first, _) = variants.split_first().ok_or_else(|| no_variants(input))?;
    Ok(quote! {
        #[automatically_derived]
        impl #schema::ReplicateEnum for #ident {
            const VARIANTS: &'static [&'static str] = &[#(#names),*];

            #[inline]
            fn code(&self) -> u32 {
                match self {
                    #(#ident::#variants => #codes,)*
                }
            }

            #[inline]
            fn from_code(code: u32) -> #ident {
                match code {
                    #(#codes => #ident::#variants,)*
                    _ => #ident::#first,
                }
            }
        }
    })
}

fn checked(input: &DeriveInput) -> Result<&DataEnum> {
    let name = &input.ident;
    let Data::Enum(data) = &input.data else {
        return Err(Error::new(name.span(), format!("`{name}` is no enum: ReplicateEnum takes enums without data")));
    };
    let mut errors = Errors::default();
    if !input.generics.params.is_empty() {
        errors.push(Error::new(input.generics.span(), format!("`{name}` is generic: ReplicateEnum takes plain enums")));
    }
    for variant in data.variants.iter().filter(|variant| !variant.fields.is_empty()) {
        let message = format!("variant `{}` holds data: only the number of a variant is sent", variant.ident);
        errors.push(Error::new(variant.span(), message));
    }
    if data.variants.is_empty() {
        errors.push(no_variants(input));
    }
    if data.variants.len() > MAX_VARIANTS {
        errors.push(Error::new(name.span(), format!("`{name}` has more than {MAX_VARIANTS} variants")));
    }
    errors.into_result().map(|()| data)
}

fn no_variants(input: &DeriveInput) -> Error {
    Error::new(input.ident.span(), format!("`{}` has no variants: there is nothing to send", input.ident))
}

/// Where `throng_schema` is found: `#[replicate(crate = "...")]`, or the path `otherwise`.
fn schema_path(input: &DeriveInput, otherwise: &str) -> Result<Path> {
    let mut errors = Errors::default();
    let mut path = syn::parse_str(otherwise)?;
    for entry in entries(&input.attrs, &mut errors) {
        match entry.value.as_ref().and_then(|value| value.text()) {
            Some(text) if entry.word == "crate" => path = LitStr::new(&text, entry.word.span()).parse()?,
            _ => errors.push(entry.error(format_args!("unknown word `{}`: allowed is crate = \"...\"", entry.word))),
        }
    }
    errors.into_result().map(|()| path)
}
