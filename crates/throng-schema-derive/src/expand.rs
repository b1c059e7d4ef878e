//! The code of a declaration: straight lines over constants, so that the compiler sees every scale and every index.
//!
//! Lengths of arrays in the types of fields name constants of the game. So all names of the block itself begin with `__THRONG_`.

use crate::declaration::{Condition, Declaration, FieldDeclaration, Predict, Shape};
use crate::quantiser::Quantiser;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, Path, Type};

/// The implementation of `Replicate`, and the constants of the fields.
pub(crate) fn expand(declaration: &Declaration<'_>) -> TokenStream {
    let Declaration { ident, name, schema, .. } = declaration;
    let fields: Vec<Code<'_>> = code_of_fields(declaration);
    let constants = fields.iter().map(Code::constants);
    let velocities = fields.iter().filter_map(|field| field.velocity_check(declaration));
    let masks = fields.iter().map(|field| field.mask_constant(declaration));
    let stores = fields.iter().map(Code::store);
    let loads = fields.iter().map(Code::load);
    let end = |what: &str| fields.last().map_or_else(|| quote!(0), |last| last.end(what));
    let (bits, words, blobs) = (end("BIT"), end("WORD"), end("BLOB"));
    let declared = declared(declaration, &fields);
    let (positions, is_public, has_prediction) = (positions(&fields), is_public(&fields), has_prediction(&fields));
    quote! {
        #[automatically_derived]
        const _: () = {
            #(#constants)*
            #(#velocities)*
            const __THRONG_FIELDS: usize = #bits;
            const __THRONG_WORDS: usize = #words;
            const __THRONG_BLOBS: usize = #blobs;
            const __THRONG_POSITIONS: usize = #positions;
            const __THRONG_SHAPED: &str = "the values are shaped like the kind";
            const _: () = ::std::assert!(
                __THRONG_FIELDS <= 64,
                "a kind has at most 64 fields, those of nested structs included"
            );
            const _: () = ::std::assert!(
                __THRONG_POSITIONS <= 1,
                "a kind has one position, those of nested structs included"
            );

            #[allow(dead_code)]
            impl #ident {
                #(#masks)*
            }

            impl #schema::Nested for #ident {
                const FIELDS: usize = __THRONG_FIELDS;
                const WORDS: usize = __THRONG_WORDS;
                const BLOBS: usize = __THRONG_BLOBS;
                const POSITIONS: usize = __THRONG_POSITIONS;
                const IS_PUBLIC: bool = #is_public;
                const HAS_PREDICTION: bool = #has_prediction;
            }

            impl #schema::Replicate for #ident {
                const KIND: &'static str = #name;

                fn kind() -> #schema::Kind {
                    #declared
                    #schema::Kind::new(#name, fields).expect("the derive checked the attributes")
                }

                #[inline]
                fn quantise(&self, to: #schema::ValuesMut<'_>) {
                    let _words: &mut [u32; __THRONG_WORDS] = to.words.first_chunk_mut().expect(__THRONG_SHAPED);
                    let _blobs: &mut [::std::vec::Vec<u8>; __THRONG_BLOBS] =
                        to.blobs.first_chunk_mut().expect(__THRONG_SHAPED);
                    #(#stores)*
                }

                #[inline]
                fn apply(&mut self, mask: #schema::FieldMask, from: #schema::Values<'_>) {
                    let _words: &[u32; __THRONG_WORDS] = from.words.first_chunk().expect(__THRONG_SHAPED);
                    let _blobs: &[::std::vec::Vec<u8>; __THRONG_BLOBS] =
                        from.blobs.first_chunk().expect(__THRONG_SHAPED);
                    let _ = mask;
                    #(#loads)*
                }
            }
        };
    }
}

fn code_of_fields<'a>(declaration: &'a Declaration<'a>) -> Vec<Code<'a>> {
    let code = |(index, field)| Code { field, schema: &declaration.schema, index };
    declaration.fields.iter().enumerate().map(code).collect()
}

/// The lines that make the list `fields` for the kind.
fn declared(declaration: &Declaration<'_>, fields: &[Code<'_>]) -> TokenStream {
    let schema = &declaration.schema;
    let has_nested = fields.iter().any(|field| field.field.quantiser.is_nested());
    if !has_nested {
        let declared = fields.iter().map(Code::declared);
        return quote!(let fields = ::std::vec![#(#declared),*];);
    }
    let added = fields.iter().map(|field| match field.field.quantiser.is_nested() {
        true => {
            let (name, ty, with) = (&field.field.name, field.field.ty, field.with());
            let inner = quote_spanned!(ty.span()=> <#ty as #schema::Replicate>::kind());
            quote!(fields.extend(#schema::nested_fields(#name, #inner, |field| field #with));)
        }
        false => {
            let declared = field.declared();
            quote!(fields.push(#declared);)
        }
    });
    // The names of nested fields are made once.
    quote! {
        static __THRONG_DECLARED: ::std::sync::OnceLock<::std::vec::Vec<#schema::Field>> = ::std::sync::OnceLock::new();
        let fields = __THRONG_DECLARED.get_or_init(|| {
            let mut fields = ::std::vec::Vec::new();
            #(#added)*
            fields
        });
        let fields = ::std::clone::Clone::clone(fields);
    }
}

fn positions(fields: &[Code<'_>]) -> TokenStream {
    let own = fields.iter().filter(|field| field.field.is_position()).count();
    let nested = fields.iter().filter(|field| field.field.quantiser.is_nested()).map(|field| field.nested("POSITIONS"));
    quote!(#own #(+ #nested)*)
}

fn is_public(fields: &[Code<'_>]) -> TokenStream {
    let own = fields.iter().all(|field| field.field.condition == Condition::Public);
    let nested = fields.iter().filter(|field| field.field.quantiser.is_nested()).map(|field| field.nested("IS_PUBLIC"));
    quote!(#own #(&& #nested)*)
}

fn has_prediction(fields: &[Code<'_>]) -> TokenStream {
    let own = fields.iter().any(|field| field.field.predict.is_some());
    let nested = fields.iter().filter(|field| field.field.quantiser.is_nested());
    let nested = nested.map(|field| field.nested("HAS_PREDICTION"));
    quote!(#own #(|| #nested)*)
}

/// One field, and where it stands.
struct Code<'a> {
    field: &'a FieldDeclaration<'a>,
    schema: &'a Path,
    index: usize,
}

impl Code<'_> {
    /// Constants: the quantiser; the number of elements; the first bit, word and blob, and those behind the field.
    fn constants(&self) -> TokenStream {
        let (bit, bit_end) = (self.start("BIT"), self.end("BIT"));
        let (word, word_end) = (self.start("WORD"), self.end("WORD"));
        let (blob, blob_end) = (self.start("BLOB"), self.end("BLOB"));
        let before = |what: &str| match self.index.checked_sub(1) {
            Some(before) => end(what, before),
            None => quote!(0),
        };
        let (first_bit, first_word, first_blob) = (before("BIT"), before("WORD"), before("BLOB"));
        let starts = quote! {
            const #bit: usize = #first_bit;
            const #word: usize = #first_word;
            const #blob: usize = #first_blob;
        };
        if self.field.quantiser.is_nested() {
            let [fields, words, blobs] = ["FIELDS", "WORDS", "BLOBS"].map(|what| self.nested(what));
            let condition = (self.field.condition != Condition::Public).then(|| {
                let is_public = self.nested("IS_PUBLIC");
                let message = format!(
                    "field `{}`: a condition on a nested struct needs inner fields that have none",
                    self.field.name
                );
                quote!(
                    const _: () = ::std::assert!(#is_public, #message);
                )
            });
            let is_exact = matches!(self.field.condition, Condition::OwnerOnly | Condition::InitialOnly);
            let prediction = is_exact.then(|| {
                let has_prediction = self.nested("HAS_PREDICTION");
                let message = format!(
                    "field `{}`: a position that is sent once, or to the owner alone, is exact: the nested one is predicted",
                    self.field.name
                );
                quote!(
                    const _: () = ::std::assert!(!#has_prediction, #message);
                )
            });
            return quote! {
                #starts
                const #bit_end: usize = #bit + #fields;
                const #word_end: usize = #word + #words;
                const #blob_end: usize = #blob + #blobs;
                #condition
                #prediction
            };
        }
        let (codec, item) = (self.codec(), self.item());
        let (codec_type, codec_value) = self.codec_parts();
        let elements = self.elements_constant();
        let (words, is_blob) = (self.field.quantiser.words(), usize::from(self.field.quantiser.is_blob()));
        let elements_name = self.elements();
        let (items, count) = match self.field.shape {
            Shape::Value => (1_usize, 0_usize),
            Shape::Optional => (1, 1),
            Shape::List(items) => (usize::from(items), 1),
        };
        let together = (items > 1).then(|| {
            let message =
                format!("field `{}`: the items of a list have at most 255 elements together", self.field.name);
            quote!(
                const _: () = ::std::assert!(#elements_name * #items <= 255, #message);
            )
        });
        quote! {
            #starts
            const #codec: #codec_type = #codec_value;
            #elements
            const #item: usize = #words * #elements_name;
            const #bit_end: usize = #bit + 1;
            const #word_end: usize = #word + #count + #item * #items;
            const #blob_end: usize = #blob + #is_blob;
            #together
        }
    }

    /// The constant for the number of elements of a value or item.
    fn elements_constant(&self) -> TokenStream {
        let elements = self.elements();
        let (_, length) = self.field.quantiser.elements(self.field.ty);
        let count = if self.field.quantiser.is_blob() { quote!(1) } else { self.element_function("COUNT") };
        let value = match length {
            Some(length) => quote!((#length) * #count),
            None => count,
        };
        let array = length.map(|length| {
            let message = format!("field `{}`: an array field has 1 to 255 elements", self.field.name);
            quote_spanned!(length.span()=> const _: () = ::std::assert!(1 <= #elements && #elements <= 255, #message);)
        });
        quote! {
            const #elements: usize = #value;
            #array
        }
    }

    /// For a predicted position: the velocity has three elements, which only the type can say.
    fn velocity_check(&self, declaration: &Declaration<'_>) -> Option<TokenStream> {
        let Predict { by, .. } = self.field.predict.as_ref()?;
        let index = declaration.fields.iter().position(|field| field.name == *by)?;
        let velocity = Code { field: &declaration.fields[index], schema: self.schema, index };
        let (elements, ty) = (velocity.elements(), velocity.field.ty);
        let message = format!("field `{by}`: the velocity that predicts `{}` has three values", self.field.name);
        Some(quote_spanned!(ty.span()=> const _: () = ::std::assert!(#elements == 3, #message);))
    }

    fn mask_constant(&self, declaration: &Declaration<'_>) -> TokenStream {
        let (schema, visibility) = (self.schema, declaration.visibility);
        let (bit, end) = (self.start("BIT"), self.end("BIT"));
        let constant = Ident::new(&format!("FIELD_{}", self.field.name.to_uppercase()), self.field.ident.span());
        let doc = match self.field.quantiser.is_nested() {
            true => format!(" The fields of `{}` in a mask of changed fields.", self.field.name),
            false => format!(" The field `{}` in a mask of changed fields.", self.field.name),
        };
        let value = match self.field.quantiser.is_nested() {
            true => quote!(if #bit == #end { 0 } else { (#schema::FieldMask::MAX >> (64 - (#end - #bit))) << #bit }),
            false => quote!(1 << #bit),
        };
        quote! {
            #[doc = #doc]
            #visibility const #constant: #schema::FieldMask = #value;
        }
    }

    /// The expression that declares the field to the kind.
    fn declared(&self) -> TokenStream {
        let (schema, name, codec, elements) = (self.schema, &self.field.name, self.codec(), self.elements());
        let (element, _) = self.field.quantiser.elements(self.field.ty);
        let quantiser = match self.field.quantiser {
            Quantiser::Enumeration => {
                let variants = variants(schema, element);
                quote!(#schema::Quantiser::Enum { count: #variants.len() as u32 })
            }
            _ => quote!(#codec.quantiser()),
        };
        let is_counted = !self.field.quantiser.is_blob() && !matches!(self.field.quantiser, Quantiser::Position { .. });
        let elements = is_counted.then(|| quote!(.elements(#elements as u8)));
        let list = match self.field.shape {
            Shape::Value => None,
            Shape::Optional => Some(quote!(.list(1))),
            Shape::List(items) => Some(quote!(.list(#items))),
        };
        let with = self.with();
        let variants = (self.field.quantiser == Quantiser::Enumeration).then(|| {
            let variants = variants(schema, element);
            quote!(.variants(#variants))
        });
        let predict = self.field.predict.as_ref().map(|Predict { by, error_m, .. }| quote!(.predict(#by, #error_m)));
        let threshold = self.field.threshold.map(|threshold| quote!(.threshold(#threshold)));
        quote!(#schema::Field::new(#name, #quantiser) #elements #list #with #variants #predict #threshold)
    }

    /// Condition and notice of a field, as calls on it.
    fn with(&self) -> TokenStream {
        let schema = self.schema;
        let condition = match self.field.condition {
            Condition::Public => None,
            Condition::OwnerOnly => Some(quote!(OwnerOnly)),
            Condition::SkipOwner => Some(quote!(SkipOwner)),
            Condition::HideFromOwner => Some(quote!(HideFromOwner)),
            Condition::InitialOnly => Some(quote!(InitialOnly)),
            Condition::Far => Some(quote!(Far)),
        };
        let condition = condition.map(|condition| quote!(.condition(#schema::Condition::#condition)));
        let notify = self.field.notify.then(|| quote!(.notify()));
        quote!(#condition #notify)
    }

    /// The lines that quantise the field.
    fn store(&self) -> TokenStream {
        let (ident, codec, schema) = (self.field.ident, self.codec(), self.schema);
        let (word, end, item) = (self.start("WORD"), self.end("WORD"), self.item());
        let (blob, blob_end) = (self.start("BLOB"), self.end("BLOB"));
        if self.field.quantiser.is_nested() {
            return quote! {
                #schema::Replicate::quantise(
                    &self.#ident,
                    #schema::ValuesMut { words: &mut _words[#word..#end], blobs: &mut _blobs[#blob..#blob_end] },
                );
            };
        }
        if self.field.quantiser.is_blob() {
            return match self.field.shape {
                Shape::Value | Shape::List(_) => quote!(#codec.store(&self.#ident, &mut _blobs[#blob]);),
                Shape::Optional => quote! {
                    _words[#word] = u32::from(self.#ident.is_some());
                    match &self.#ident {
                        Some(value) => #codec.store(value, &mut _blobs[#blob]),
                        None => _blobs[#blob].clear(),
                    }
                },
            };
        }
        match self.field.shape {
            Shape::Value => self.store_value(&quote!(&self.#ident), &quote!(#word)),
            Shape::Optional => {
                let store = self.store_value(&quote!(value), &quote!(#word + 1));
                quote! {
                    _words[#word] = u32::from(self.#ident.is_some());
                    match &self.#ident {
                        Some(value) => { #store }
                        None => _words[#word + 1..#end].fill(0),
                    }
                }
            }
            Shape::List(items) => {
                let store = self.store_value(&quote!(value), &quote!(#word + 1 + at * #item));
                let items = usize::from(items);
                quote! {
                    let count = self.#ident.len().min(#items);
                    _words[#word] = count as u32;
                    for (at, value) in self.#ident[..count].iter().enumerate() { #store }
                    _words[#word + 1 + count * #item..#end].fill(0);
                }
            }
        }
    }

    /// The lines that quantise the value that `from` refers to, into words from `word` on.
    fn store_value(&self, from: &TokenStream, word: &TokenStream) -> TokenStream {
        let (codec, store, item) = (self.codec(), self.element_function("store"), self.item());
        if !self.is_array() {
            return quote!(#store(&#codec, #from, &mut _words[#word..#word + #item]););
        }
        let words = self.element_words();
        quote! {
            for (index, element) in (#from).iter().enumerate() {
                let word = #word + index * #words;
                #store(&#codec, element, &mut _words[word..word + #words]);
            }
        }
    }

    /// The lines that take the field over if the mask names it.
    fn load(&self) -> TokenStream {
        let (ident, codec, schema) = (self.field.ident, self.codec(), self.schema);
        let (bit, bit_end) = (self.start("BIT"), self.end("BIT"));
        let (word, end, item) = (self.start("WORD"), self.end("WORD"), self.item());
        let (blob, blob_end) = (self.start("BLOB"), self.end("BLOB"));
        if self.field.quantiser.is_nested() {
            return quote! {
                if #bit < #bit_end {
                    let inner = (mask >> #bit) & (#schema::FieldMask::MAX >> (64 - (#bit_end - #bit)));
                    if inner != 0 {
                        #schema::Replicate::apply(
                            &mut self.#ident,
                            inner,
                            #schema::Values { words: &_words[#word..#end], blobs: &_blobs[#blob..#blob_end] },
                        );
                    }
                }
            };
        }
        let load = match self.field.shape {
            Shape::Value | Shape::List(_) if self.field.quantiser.is_blob() => {
                quote!(#codec.load(&_blobs[#blob], &mut self.#ident);)
            }
            Shape::Optional if self.field.quantiser.is_blob() => quote! {
                if _words[#word] == 0 {
                    self.#ident = None;
                } else {
                    #codec.load(&_blobs[#blob], self.#ident.get_or_insert_default());
                }
            },
            Shape::Value => {
                let load = self.load_value(&quote!(#word));
                quote!(self.#ident = #load;)
            }
            Shape::Optional => {
                let load = self.load_value(&quote!(#word + 1));
                quote!(self.#ident = (_words[#word] != 0).then(|| #load);)
            }
            Shape::List(items) => {
                let load = self.load_value(&quote!(#word + 1 + at * #item));
                let items = usize::from(items);
                quote! {
                    self.#ident.clear();
                    self.#ident.extend((0..(_words[#word] as usize).min(#items)).map(|at| #load));
                }
            }
        };
        quote!(if mask & (1 << #bit) != 0 { #load })
    }

    /// The value whose words begin at `word`.
    fn load_value(&self, word: &TokenStream) -> TokenStream {
        let (codec, load, item) = (self.codec(), self.element_function("load"), self.item());
        if !self.is_array() {
            return quote!(#load(&#codec, &_words[#word..#word + #item]));
        }
        let words = self.element_words();
        quote! {
            ::std::array::from_fn(|index| {
                let word = #word + index * #words;
                #load(&#codec, &_words[word..word + #words])
            })
        }
    }

    /// Type and value of the quantiser's constant.
    fn codec_parts(&self) -> (TokenStream, TokenStream) {
        let schema = self.schema;
        let (name, arguments) = match self.field.quantiser {
            Quantiser::Fixed { min, max, step } => ("Fixed", Some(quote!(#min, #max, #step))),
            Quantiser::Position { step } => ("Steps", Some(quote!(#step))),
            Quantiser::Angle { bits } => ("Angle", Some(quote!(#bits))),
            Quantiser::UnitVector { bits } => ("Octahedral", Some(quote!(#bits))),
            Quantiser::Quaternion { bits } => ("SmallestThree", Some(quote!(#bits))),
            Quantiser::Integer { min, max } => ("IntegerRange", Some(quote!(#min, #max))),
            Quantiser::Bool => ("Truth", None),
            Quantiser::Enumeration => ("Enumeration", None),
            Quantiser::Float16 => ("Float16", None),
            Quantiser::Float32 => ("Float32", None),
            Quantiser::Text { max_bytes } => ("Text", Some(quote!(#max_bytes))),
            Quantiser::Bytes { max_bytes } => ("ByteString", Some(quote!(#max_bytes))),
            Quantiser::Object | Quantiser::Nested => ("Reference", None),
        };
        let name = Ident::new(name, Span::call_site());
        let path = quote!(#schema::arithmetic::#name);
        let value = match arguments {
            Some(arguments) => quote!(#path::new(#arguments)),
            None => path.clone(),
        };
        (path, value)
    }

    /// `<Codec as Element<Type>>::name`, written where the type of the field stands: errors of types show there.
    fn element_function(&self, name: &str) -> TokenStream {
        let schema = self.schema;
        let (codec_type, _) = self.codec_parts();
        let (element, _) = self.field.quantiser.elements(self.field.ty);
        let name = Ident::new(name, element.span());
        quote_spanned!(element.span()=> <#codec_type as #schema::arithmetic::Element<#element>>::#name)
    }

    /// Words of one element of an array, which can be a vector of several.
    fn element_words(&self) -> TokenStream {
        let (words, count) = (self.field.quantiser.words(), self.element_function("COUNT"));
        quote!((#words * #count))
    }

    /// A constant of the nested struct.
    fn nested(&self, name: &str) -> TokenStream {
        let (schema, ty) = (self.schema, self.field.ty);
        let name = Ident::new(name, ty.span());
        quote_spanned!(ty.span()=> <#ty as #schema::Nested>::#name)
    }

    fn is_array(&self) -> bool {
        self.field.quantiser.elements(self.field.ty).1.is_some()
    }

    fn codec(&self) -> Ident {
        format_ident!("__THRONG_CODEC_{}", self.index)
    }

    fn elements(&self) -> Ident {
        format_ident!("__THRONG_ELEMENTS_{}", self.index)
    }

    /// The constant for the words of a value or item.
    fn item(&self) -> Ident {
        format_ident!("__THRONG_ITEM_{}", self.index)
    }

    /// The constant for the first bit, word or blob of the field.
    fn start(&self, what: &str) -> Ident {
        format_ident!("__THRONG_{}_{}", what, self.index)
    }

    /// The constant for the first one behind the field.
    fn end(&self, what: &str) -> TokenStream {
        end(what, self.index)
    }
}

fn end(what: &str, index: usize) -> TokenStream {
    let end = format_ident!("__THRONG_{}_END_{}", what, index);
    quote!(#end)
}

fn variants(schema: &Path, element: &Type) -> TokenStream {
    quote_spanned!(element.span()=> <#element as #schema::ReplicateEnum>::VARIANTS)
}
