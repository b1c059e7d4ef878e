//! The code of a declaration: straight lines over constants, so that the compiler sees every scale and every index.

use crate::declaration::{Condition, Declaration, FieldDeclaration};
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
    let masks = fields.iter().map(|field| field.mask_constant(declaration));
    let declared = fields.iter().map(Code::declared);
    let stores = fields.iter().map(Code::store);
    let loads = fields.iter().map(Code::load);
    let first_free = match fields.last() {
        Some(last) => last.next_word(),
        None => quote!(0),
    };
    let blobs = fields.iter().filter(|field| field.field.quantiser.is_blob()).count();
    quote! {
        #[automatically_derived]
        const _: () = {
            #(#constants)*
            const WORDS: usize = #first_free;
            const BLOBS: usize = #blobs;
            const SHAPED: &str = "the values are shaped like the kind";

            #[allow(dead_code)]
            impl #ident {
                #(#masks)*
            }

            impl #schema::Replicate for #ident {
                const KIND: &'static str = #name;

                fn kind() -> #schema::Kind {
                    let fields = ::std::vec![#(#declared),*];
                    #schema::Kind::new(#name, fields).expect("the derive checked the attributes")
                }

                #[inline]
                fn quantise(&self, to: #schema::ValuesMut<'_>) {
                    let _words: &mut [u32; WORDS] = to.words.first_chunk_mut().expect(SHAPED);
                    let _blobs: &mut [::std::vec::Vec<u8>; BLOBS] = to.blobs.first_chunk_mut().expect(SHAPED);
                    #(#stores)*
                }

                #[inline]
                fn apply(&mut self, mask: #schema::FieldMask, from: #schema::Values<'_>) {
                    let _words: &[u32; WORDS] = from.words.first_chunk().expect(SHAPED);
                    let _blobs: &[::std::vec::Vec<u8>; BLOBS] = from.blobs.first_chunk().expect(SHAPED);
                    let _ = mask;
                    #(#loads)*
                }
            }
        };
    }
}

fn code_of_fields<'a>(declaration: &'a Declaration<'a>) -> Vec<Code<'a>> {
    let mut blob = 0;
    let code = |(index, field): (usize, &'a FieldDeclaration<'a>)| {
        let code = Code { field, schema: &declaration.schema, index, blob };
        blob += usize::from(field.quantiser.is_blob());
        code
    };
    declaration.fields.iter().enumerate().map(code).collect()
}

/// One field, and where it stands.
struct Code<'a> {
    field: &'a FieldDeclaration<'a>,
    schema: &'a Path,
    index: usize,
    /// Number of blobs before this field.
    blob: usize,
}

impl Code<'_> {
    /// Constants for the quantiser, the first word and the number of elements.
    fn constants(&self) -> TokenStream {
        let (codec, word, elements) = (self.codec(), self.word(), self.elements());
        let (codec_type, codec_value) = self.codec_parts();
        let first = match self.index.checked_sub(1) {
            Some(before) => next_word(before),
            None => quote!(0),
        };
        let (_, length) = self.field.quantiser.elements(self.field.ty);
        let words = self.field.quantiser.words();
        let end = next_word(self.index);
        let array = length.map(|length| {
            let message = format!("field `{}`: an array field has 1 to 255 elements", self.field.name);
            quote_spanned!(length.span()=> const _: () = ::std::assert!(1 <= #elements && #elements <= 255, #message);)
        });
        let length = length.map_or_else(|| quote!(1), |length| quote!(#length));
        quote! {
            const #codec: #codec_type = #codec_value;
            const #elements: usize = #length;
            const #word: usize = #first;
            const #end: usize = #word + #words * #elements;
            #array
        }
    }

    fn mask_constant(&self, declaration: &Declaration<'_>) -> TokenStream {
        let (schema, index, visibility) = (self.schema, self.index, declaration.visibility);
        let constant = Ident::new(&format!("FIELD_{}", self.field.name.to_uppercase()), self.field.ident.span());
        let doc = format!(" The field `{}` in a mask of changed fields.", self.field.name);
        quote! {
            #[doc = #doc]
            #visibility const #constant: #schema::FieldMask = 1 << #index;
        }
    }

    /// The expression that declares the field to the kind.
    fn declared(&self) -> TokenStream {
        let (schema, name, codec, elements) = (self.schema, &self.field.name, self.codec(), self.elements());
        let (element, length) = self.field.quantiser.elements(self.field.ty);
        let quantiser = match self.field.quantiser {
            Quantiser::Enumeration => {
                let variants = variants(schema, element);
                quote!(#schema::Quantiser::Enum { count: #variants.len() as u32 })
            }
            _ => quote!(#codec.quantiser()),
        };
        let elements = length.map(|_| quote!(.elements(#elements as u8)));
        let condition = match self.field.condition {
            Condition::Public => None,
            Condition::OwnerOnly => Some(quote!(OwnerOnly)),
            Condition::SkipOwner => Some(quote!(SkipOwner)),
            Condition::HideFromOwner => Some(quote!(HideFromOwner)),
            Condition::InitialOnly => Some(quote!(InitialOnly)),
        };
        let condition = condition.map(|condition| quote!(.condition(#schema::Condition::#condition)));
        let notify = self.field.notify.then(|| quote!(.notify()));
        let variants = (self.field.quantiser == Quantiser::Enumeration).then(|| {
            let variants = variants(schema, element);
            quote!(.variants(#variants))
        });
        quote!(#schema::Field::new(#name, #quantiser) #elements #condition #notify #variants)
    }

    /// The lines that quantise the field.
    fn store(&self) -> TokenStream {
        let (ident, codec, blob) = (self.field.ident, self.codec(), self.blob);
        if self.field.quantiser.is_blob() {
            return quote!(#codec.store(&self.#ident, &mut _blobs[#blob]););
        }
        let store = self.element_function("store");
        let (word, words) = (self.word(), self.field.quantiser.words());
        if self.is_array() {
            return quote! {
                for (index, element) in self.#ident.iter().enumerate() {
                    let word = #word + index * #words;
                    #store(&#codec, element, &mut _words[word..word + #words]);
                }
            };
        }
        quote!(#store(&#codec, &self.#ident, &mut _words[#word..#word + #words]);)
    }

    /// The lines that take the field over if the mask names it.
    fn load(&self) -> TokenStream {
        let (ident, codec, blob, index) = (self.field.ident, self.codec(), self.blob, self.index);
        let load = self.element_function("load");
        let (word, words) = (self.word(), self.field.quantiser.words());
        let load = if self.field.quantiser.is_blob() {
            quote!(#codec.load(&_blobs[#blob], &mut self.#ident);)
        } else if self.is_array() {
            quote! {
                for (index, element) in self.#ident.iter_mut().enumerate() {
                    let word = #word + index * #words;
                    *element = #load(&#codec, &_words[word..word + #words]);
                }
            }
        } else {
            quote!(self.#ident = #load(&#codec, &_words[#word..#word + #words]);)
        };
        quote!(if mask & (1 << #index) != 0 { #load })
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
            Quantiser::Object => ("Reference", None),
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

    fn is_array(&self) -> bool {
        self.field.quantiser.elements(self.field.ty).1.is_some()
    }

    fn codec(&self) -> Ident {
        format_ident!("CODEC_{}", self.index)
    }

    fn word(&self) -> Ident {
        format_ident!("WORD_{}", self.index)
    }

    fn elements(&self) -> Ident {
        format_ident!("ELEMENTS_{}", self.index)
    }

    fn next_word(&self) -> TokenStream {
        next_word(self.index)
    }
}

/// The constant for the first word behind a field.
fn next_word(index: usize) -> TokenStream {
    let end = format_ident!("END_{}", index);
    quote!(#end)
}

fn variants(schema: &Path, element: &Type) -> TokenStream {
    quote_spanned!(element.span()=> <#element as #schema::ReplicateEnum>::VARIANTS)
}
