use crate::{Field, FieldMask, Kind, Predict, Values, ValuesMut};

/// A type whose values are replicated: `#[derive(Replicate)]`.
pub trait Replicate: Default + Send + 'static {
    /// Name of the kind, unique in a schema: the struct's own unless `#[replicate(name = "...")]` gives another.
    const KIND: &'static str;

    /// The declared fields. Allocates; a [`Schema`](crate::Schema) asks once.
    fn kind() -> Kind;

    /// Writes all fields, quantised, over whatever `to` held. Allocates only when a text or byte string is longer
    /// than any before it in its place.
    ///
    /// # Panics
    /// If `to` is not shaped like the kind.
    fn quantise(&self, to: ValuesMut<'_>);

    /// Takes over the fields of `mask`. Skipped fields and those outside the mask stay as they are.
    ///
    /// # Panics
    /// If `from` is not shaped like the kind.
    fn apply(&mut self, mask: FieldMask, from: Values<'_>);
}

/// A struct that can be a field of another, with the quantiser `nested`: every one that derives [`Replicate`].
///
/// Its fields become fields of the outer kind, in the place of the struct.
#[diagnostic::on_unimplemented(
    message = "the struct `{Self}` cannot be a replicated field",
    note = "add #[derive(Replicate)] to `{Self}`"
)]
pub trait Nested: Replicate {
    /// Number of its fields.
    const FIELDS: usize;
    /// Number of its words.
    const WORDS: usize;
    /// Number of its texts and byte strings.
    const BLOBS: usize;
    /// Number of its positions: 0 or 1.
    const POSITIONS: usize;
    /// Whether all its fields are public: only then can the outer field have a condition.
    const IS_PUBLIC: bool;
    /// Whether its position is predicted: then the outer field is neither for the owner alone nor sent once.
    const HAS_PREDICTION: bool;
}

/// The fields of a nested struct as fields of the outer kind. Their names are kept for ever: the derived code calls it once
/// for each outer struct.
#[doc(hidden)]
pub fn nested_fields(name: &str, inner: Kind, outer: impl Fn(Field) -> Field) -> Vec<Field> {
    let within = |inner: &str| -> &'static str { Box::leak(format!("{name}.{inner}").into_boxed_str()) };
    let renamed = |field: Field| {
        let predict = field.predict.map(|predict| Predict { by: within(predict.by), ..predict });
        Field { name: within(field.name), predict, ..field }
    };
    inner.fields.into_iter().map(|field| outer(renamed(field))).collect()
}

/// An enum without data that can be a field: `#[derive(ReplicateEnum)]`.
///
/// Codes count the variants in order of declaration, whatever their discriminants are.
#[diagnostic::on_unimplemented(
    message = "the enum `{Self}` cannot be a replicated field",
    note = "add #[derive(ReplicateEnum)] to `{Self}`"
)]
pub trait ReplicateEnum: Copy + 'static {
    /// Names of the variants in order, 1 to 65,536. They are part of the schema's hash.
    const VARIANTS: &'static [&'static str];

    /// The number of the variant.
    fn code(&self) -> u32;

    /// The variant of a number; the first one if there is no such variant (which decoding refuses).
    fn from_code(code: u32) -> Self;
}
