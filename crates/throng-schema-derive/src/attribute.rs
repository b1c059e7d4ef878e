//! The grammar inside `#[replicate(...)]`: entries between commas, each one of
//!
//! ```text
//! word            word = value            word(word = value, ...)          value: literal, or - literal
//! ```

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Ident, Lit, Result, Token, parenthesized, token};

/// One entry of an attribute.
pub(crate) struct Entry {
    pub(crate) word: Ident,
    /// The value behind `=`.
    pub(crate) value: Option<Value>,
    /// The content of the parentheses.
    pub(crate) parameters: Vec<Parameter>,
}

/// One `word = value` in parentheses.
pub(crate) struct Parameter {
    pub(crate) word: Ident,
    pub(crate) value: Value,
}

/// A literal with its sign.
pub(crate) struct Value {
    negative: bool,
    literal: Lit,
}

/// The entries of all `#[replicate(...)]` among `attributes`; mistakes are added to `errors`.
pub(crate) fn entries(attributes: &[Attribute], errors: &mut Errors) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("replicate")) {
        match attribute.parse_args_with(Punctuated::<Entry, Token![,]>::parse_terminated) {
            Ok(parsed) => {
                for entry in parsed {
                    if entries.iter().any(|earlier| earlier.word == entry.word) {
                        errors.push(entry.error(format_args!("`{}` is given twice", entry.word)));
                    }
                    entries.push(entry);
                }
            }
            Err(error) => errors.push(error),
        }
    }
    entries
}

impl Entry {
    /// An error at this entry.
    pub(crate) fn error(&self, message: impl std::fmt::Display) -> Error {
        Error::new(self.word.span(), message)
    }

    /// Whether the entry is a word alone.
    pub(crate) fn is_bare(&self) -> bool {
        self.value.is_none() && self.parameters.is_empty()
    }
}

impl Value {
    pub(crate) fn span(&self) -> Span {
        self.literal.span()
    }

    /// The number, if it is one.
    pub(crate) fn real(&self) -> Option<f64> {
        let magnitude: f64 = match &self.literal {
            Lit::Float(literal) => literal.base10_parse().ok()?,
            Lit::Int(literal) => literal.base10_parse::<u64>().ok()? as f64,
            _ => return None,
        };
        Some(if self.negative { -magnitude } else { magnitude })
    }

    /// The whole number, if it is one.
    pub(crate) fn whole(&self) -> Option<i128> {
        let Lit::Int(literal) = &self.literal else { return None };
        let magnitude = i128::from(literal.base10_parse::<u64>().ok()?);
        Some(if self.negative { -magnitude } else { magnitude })
    }

    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<String> {
        match &self.literal {
            Lit::Str(literal) if !self.negative => Some(literal.value()),
            _ => None,
        }
    }
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> Result<Entry> {
        let mut entry = Entry { word: input.call(Ident::parse_any)?, value: None, parameters: Vec::new() };
        if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            entry.value = Some(input.parse()?);
        } else if input.peek(token::Paren) {
            let inner;
            parenthesized!(inner in input);
            entry.parameters = Punctuated::<Parameter, Token![,]>::parse_terminated(&inner)?.into_iter().collect();
        }
        Ok(entry)
    }
}

impl Parse for Parameter {
    fn parse(input: ParseStream<'_>) -> Result<Parameter> {
        let word = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        Ok(Parameter { word, value: input.parse()? })
    }
}

impl Parse for Value {
    fn parse(input: ParseStream<'_>) -> Result<Value> {
        let negative = input.parse::<Option<Token![-]>>()?.is_some();
        let literal = input.parse().map_err(|error| {
            Error::new(error.span(), "expected a literal number or text: what the wire looks like is written out")
        })?;
        Ok(Value { negative, literal })
    }
}

/// The mistakes of a type, to be shown together.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Keeps the error of a result, gives its value.
    pub(crate) fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn into_result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
