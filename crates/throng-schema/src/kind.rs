use crate::codes::KindCodes;
use crate::hash::{Fnv, description};
use crate::reckoning::{self, Reckoning};
use crate::wire::Step;
use crate::{
    Condition, Facet, Field, FieldMask, MAX_FIELDS, MAX_NAME_BYTES, Quantiser, SchemaError, Values, ValuesMut,
};
use std::collections::HashSet;

/// One kind of object: its fields, and where their values lie.
///
/// Made by [`Kind::new`], for most kinds by `#[derive(Replicate)]`. The public field is for reading: the private parts
/// are computed from it once.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Name of the kind, unique in its schema.
    pub name: &'static str,
    /// The fields, in order of their bits in a [`FieldMask`]; at most [`MAX_FIELDS`].
    pub fields: Vec<Field>,
    /// Number of words of an object.
    pub words: usize,
    /// Number of texts and byte strings of an object.
    pub blobs: usize,
    /// Index of the position field, if there is one.
    pub position: Option<usize>,
    /// Index of the position field among those for clients far away, if there is one.
    pub far_position: Option<usize>,
    /// How the position is reckoned, if it is: see [`Field::predict`].
    pub reckoning: Option<Reckoning>,
    /// Hash of all that both ends must agree about; the same for every compiler and machine.
    pub hash: u64,
    facet_masks: [FieldMask; Facet::ALL.len()],
    initial_only: FieldMask,
    skip_owner: FieldMask,
    notify: FieldMask,
    /// For each word, the bit of its field.
    word_bits: Vec<FieldMask>,
    /// For each blob, the bit of its field.
    blob_bits: Vec<FieldMask>,
    /// For each field, how it is written.
    pub(crate) steps: Vec<Step>,
    /// For each list, how its first item is written.
    pub(crate) items: Vec<Step>,
    pub(crate) codes: KindCodes,
    thresholds: Vec<Threshold>,
}

/// A word that is sent when it differs by more than its threshold from what was sent last: see [`Field::threshold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Which word of the kind.
    pub word: usize,
    /// The largest difference that is not sent.
    pub steps: u32,
    /// All codes but one of an angle, of which the last is next to the first; of a number, all bits.
    pub code_mask: u32,
}

impl Threshold {
    /// Whether two values of the word differ by no more than the threshold.
    #[inline]
    pub fn holds(self, one: u32, other: u32) -> bool {
        if self.code_mask == u32::MAX {
            return one.abs_diff(other) <= self.steps;
        }
        let ahead = one.wrapping_sub(other) & self.code_mask;
        let behind = other.wrapping_sub(one) & self.code_mask;
        ahead.min(behind) <= self.steps
    }
}

impl Kind {
    /// Lays out the values of `fields` in their order.
    ///
    /// # Errors
    /// If the name is empty or too long, there are too many fields, two of them have the same name or are positions,
    /// the parameters of one are out of range, or a position cannot be predicted as it says.
    pub fn new(name: &'static str, fields: Vec<Field>) -> Result<Kind, SchemaError> {
        check(name, &fields)?;
        let mut kind = Kind {
            name,
            words: 0,
            blobs: 0,
            position: fields.iter().position(|field| is_position(field) && !is_far(field)),
            far_position: fields.iter().position(|field| is_position(field) && is_far(field)),
            reckoning: None,
            hash: Fnv::new().write(description(name, &fields).as_bytes()).finish(),
            facet_masks: [0; Facet::ALL.len()],
            initial_only: 0,
            skip_owner: 0,
            notify: 0,
            word_bits: Vec::new(),
            blob_bits: Vec::new(),
            steps: Vec::with_capacity(fields.len()),
            items: Vec::new(),
            codes: KindCodes::default(),
            thresholds: Vec::new(),
            fields,
        };
        for index in 0..kind.fields.len() {
            kind.place(index);
        }
        kind.reckoning = Reckoning::of(&kind.fields);
        Ok(kind)
    }

    /// Gives the field its words or blob, and enters it in the masks. All fields before it have theirs.
    fn place(&mut self, index: usize) {
        let field = &mut self.fields[index];
        let bit = 1 << index;
        field.word = self.words as u16;
        let items = field.list.map_or(1, usize::from);
        field.words = (field.item_words() * items + usize::from(field.list.is_some())) as u16;
        field.blob = field.quantiser.is_blob().then_some(self.blobs as u16);
        self.words += usize::from(field.words);
        self.word_bits.resize(self.words, bit);
        if field.blob.is_some() {
            self.blobs += 1;
            self.blob_bits.push(bit);
        }
        self.facet_masks[field.condition.facet().index()] |= bit;
        match field.condition {
            Condition::InitialOnly => self.initial_only |= bit,
            Condition::SkipOwner => self.skip_owner |= bit,
            _ => {}
        }
        if field.notify {
            self.notify |= bit;
        }
        let words = usize::from(field.word)..usize::from(field.word + field.words);
        if let Some((steps, code_mask)) = field.threshold_steps() {
            self.thresholds.extend(words.map(|word| Threshold { word, steps, code_mask }));
        }
        self.steps.push(Step::of(field, &mut self.items));
    }

    /// Makes the code tables part of the hash.
    pub(crate) fn hash_codes(&mut self) {
        let codes = self.codes_text();
        if !codes.is_empty() {
            self.hash =
                Fnv::new().write(description(self.name, &self.fields).as_bytes()).write(codes.as_bytes()).finish();
        }
    }

    /// All fields.
    pub fn all_mask(&self) -> FieldMask {
        self.facet_masks.iter().fold(0, |all, mask| all | mask)
    }

    /// The fields of a facet.
    #[inline]
    pub fn facet_mask(&self, facet: Facet) -> FieldMask {
        self.facet_masks[facet.index()]
    }

    /// The fields of a facet that are sent again when they change.
    #[inline]
    pub fn update_mask(&self, facet: Facet) -> FieldMask {
        self.facet_mask(facet) & !self.initial_only
    }

    /// The fields that are sent only when an object is introduced; all of them are in [`Facet::Public`].
    #[inline]
    pub fn initial_only_mask(&self) -> FieldMask {
        self.initial_only
    }

    /// The fields that the owner's client passes over; all of them are in [`Facet::Public`].
    #[inline]
    pub fn skip_owner_mask(&self) -> FieldMask {
        self.skip_owner
    }

    /// The fields that the owner gets when the object becomes its own: all but those hidden from it.
    #[inline]
    pub fn own_mask(&self) -> FieldMask {
        self.facet_mask(Facet::Public) | self.facet_mask(Facet::Owner)
    }

    /// The fields whose later changes the owner gets.
    #[inline]
    pub fn own_update_mask(&self) -> FieldMask {
        self.own_mask() & !self.initial_only & !self.skip_owner
    }

    /// The fields whose change raises an event on the client.
    #[inline]
    pub fn notify_mask(&self) -> FieldMask {
        self.notify
    }

    /// The fields of `mask` with their indices, in order.
    pub fn fields_of(&self, mask: FieldMask) -> impl Iterator<Item = (usize, &Field)> {
        self.fields.iter().enumerate().filter(move |(index, _)| mask >> index & 1 == 1)
    }

    /// The most bits that the fields of `mask` can take on the wire, positions in the widest space.
    pub fn max_bits(&self, mask: FieldMask) -> u64 {
        let bits = |(_, field): (usize, &Field)| {
            let words = usize::from(field.word)..usize::from(field.word + field.words);
            field.max_bits() + words.map(|word| self.codes.extra_bits(word)).sum::<u32>()
        };
        self.fields_of(mask).map(|field| u64::from(bits(field))).sum()
    }

    /// Values of this shape, all zero and empty: where a copy of an object begins.
    pub fn empty_values(&self) -> (Vec<u32>, Vec<Vec<u8>>) {
        (vec![0; self.words], vec![Vec::new(); self.blobs])
    }

    /// Lends [`empty_values`](Self::empty_values) for one use. A kind without texts and with few fields has them on the stack.
    ///
    /// ```
    /// use throng_schema::{Replicate, Schema};
    ///
    /// #[derive(Default, Replicate)]
    /// struct Fire {
    ///     #[replicate(angle(bits = 9))]
    ///     direction: f32,
    /// }
    ///
    /// let schema = Schema::builder().kind::<Fire>().build()?;
    /// let kind = schema.kind(schema.kind_id::<Fire>().ok_or("the schema has it")?);
    /// assert_eq!(kind.with_empty_values(|values| values.words.to_vec()), [0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_empty_values<A>(&self, fill: impl FnOnce(ValuesMut<'_>) -> A) -> A {
        const WORDS_ON_STACK: usize = 64;
        let mut blobs = vec![Vec::new(); self.blobs];
        if self.words <= WORDS_ON_STACK {
            let mut words = [0; WORDS_ON_STACK];
            return fill(ValuesMut { words: &mut words[..self.words], blobs: &mut blobs });
        }
        fill(ValuesMut { words: &mut vec![0; self.words], blobs: &mut blobs })
    }

    /// The fields that differ between two values of this kind.
    ///
    /// # Panics
    /// In debug builds if the values are not shaped like the kind.
    #[inline]
    pub fn compare(&self, old: Values<'_>, new: Values<'_>) -> FieldMask {
        self.debug_assert_shape(old);
        self.debug_assert_shape(new);
        let mut changed = 0;
        for ((old, new), &bit) in old.words.iter().zip(new.words).zip(&self.word_bits) {
            changed |= if old == new { 0 } else { bit };
        }
        for ((old, new), &bit) in old.blobs.iter().zip(new.blobs).zip(&self.blob_bits) {
            changed |= if old == new { 0 } else { bit };
        }
        changed
    }

    /// Puts the old values in the place of the new ones that differ by no more than their threshold: see [`Field::threshold`].
    ///
    /// # Panics
    /// If there are fewer words than the kind has.
    #[inline]
    pub fn hold(&self, old: &[u32], new: &mut [u32]) {
        for threshold in &self.thresholds {
            let word = threshold.word;
            if threshold.holds(old[word], new[word]) {
                new[word] = old[word];
            }
        }
    }

    /// The bit of the field of a word.
    #[inline]
    pub fn word_bit(&self, word: usize) -> FieldMask {
        self.word_bits[word]
    }

    /// The fields with a threshold.
    #[inline]
    pub fn threshold_mask(&self) -> FieldMask {
        self.thresholds.iter().fold(0, |mask, threshold| mask | self.word_bits[threshold.word])
    }

    /// The words with a threshold: clients may hold values that differ by so much.
    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }

    /// Copies the fields of `mask`. Bits beyond the last field mean nothing.
    ///
    /// Allocates only when a text or byte string is longer than any before it in its place.
    ///
    /// # Panics
    /// In debug builds if the values are not shaped like the kind.
    #[inline]
    pub fn copy(&self, mask: FieldMask, from: Values<'_>, to: ValuesMut<'_>) {
        self.debug_assert_shape(from);
        self.debug_assert_shape(to.as_values());
        for ((to, from), &bit) in to.words.iter_mut().zip(from.words).zip(&self.word_bits) {
            *to = if mask & bit == 0 { *to } else { *from };
        }
        for ((to, from), &bit) in to.blobs.iter_mut().zip(from.blobs).zip(&self.blob_bits) {
            if mask & bit != 0 {
                to.clone_from(from);
            }
        }
    }

    pub(crate) fn debug_assert_shape(&self, values: Values<'_>) {
        debug_assert_eq!(values.words.len(), self.words, "words of kind {}", self.name);
        debug_assert_eq!(values.blobs.len(), self.blobs, "blobs of kind {}", self.name);
    }
}

fn is_position(field: &Field) -> bool {
    matches!(field.quantiser, Quantiser::Position { .. })
}

fn is_far(field: &Field) -> bool {
    field.condition == Condition::Far
}

fn check(name: &str, fields: &[Field]) -> Result<(), SchemaError> {
    let kind = || name.to_owned();
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Err(SchemaError::KindName { kind: kind() });
    }
    if fields.len() > MAX_FIELDS {
        return Err(SchemaError::TooManyFields { kind: kind(), count: fields.len() });
    }
    let mut names = HashSet::new();
    for field in fields {
        if !names.insert(field.name) {
            return Err(SchemaError::DuplicateField { kind: kind(), field: field.name.to_owned() });
        }
        field.check().and_then(|()| reckoning::check(field, fields)).map_err(|reason| SchemaError::Field {
            kind: kind(),
            field: field.name.to_owned(),
            reason,
        })?;
    }
    for far in [false, true] {
        let mut positions = fields.iter().filter(|field| is_position(field) && is_far(field) == far);
        if let (Some(first), Some(second)) = (positions.next(), positions.next()) {
            let (first, second) = (first.name.to_owned(), second.name.to_owned());
            return Err(SchemaError::TwoPositions { kind: kind(), first, second });
        }
    }
    Ok(())
}
