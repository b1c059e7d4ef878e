//! How fields are written: those of the mask, in order, without gaps and without the mask, lowest bit first.
//!
//! ```text
//! fixed, angle, bool, enumeration, integer   the code, as many bits as the highest code has
//! unit_vector                                u: bits | v: bits
//! quaternion                                 left out: 2 | three others: bits each
//! float16, float32                           the IEEE 754 bits: 16 or 32
//! position                                   x, y, z: distance from the space's origin, as many bits as it says;
//!                                            outside of it all of them 1, then the coordinate in 32 bits
//! object                                     varint index + 1 | varint generation         none: varint 0, nothing more
//! text, bytes                                length: as many bits as the maximum has | the bytes, 8 bits each
//! with a code table                          each element's code: see `codes.rs`
//! list, optional value                       items: as many bits as the maximum has | each item, as above
//! ```
//!
//! The elements of an array follow each other. An optional value is a list of at most one item. The fields of a nested
//! struct are fields of the kind. Reading refuses everything that writing never produces: codes above the
//! highest, positions beyond the world of 2^32 steps, NaN, lengths above the maximum, text that is not UTF-8.

use crate::arithmetic::{Fixed, Float16, Float32, IntegerRange, Octahedral, SmallestThree, bits_for};
use crate::codes::{KindCodes, SIGN};
use crate::{DecodeError, Field, FieldMask, Kind, Quantiser, Space, Values, ValuesMut};
use throng_wire::{BitReader, BitWriter, ObjectId};

/// How one field is written, ready for the hot path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    form: Form,
    word: u16,
    blob: u16,
    elements: u8,
    /// Some of its words have code tables.
    pub(crate) is_coded: bool,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// One word, codes up to `last`.
    Code {
        bits: u8,
        last: u32,
    },
    /// Two words, codes up to `last`.
    LongCode {
        bits: u8,
        last: u64,
    },
    Position,
    UnitVector(Octahedral, u8),
    Quaternion(SmallestThree, u8),
    Float16,
    Float32,
    Object,
    Blob {
        length_bits: u8,
        max_bytes: u32,
        text: bool,
    },
    /// A word that counts the items, then the items.
    List {
        length_bits: u8,
        last: u8,
        /// Words of an item.
        words: u16,
        /// Which of [`Kind::items`] is the first item.
        item: u8,
    },
}

impl Step {
    /// The step of a field that has its words and its blob. That of a list adds its item's to `items`.
    pub(crate) fn of(field: &Field, items: &mut Vec<Step>) -> Step {
        let (word, blob) = (field.word, field.blob.unwrap_or(0));
        let elements = field.encoded_elements();
        let value = Step { form: Form::of(field.quantiser), word, blob, elements, is_coded: false };
        let Some(last) = field.list else { return value };
        items.push(Step { word: word + 1, ..value });
        let form = Form::List {
            length_bits: bits_for(u64::from(last)) as u8,
            last,
            words: field.item_words() as u16,
            item: items.len() as u8 - 1,
        };
        Step { form, ..value }
    }

    /// If its words can have code tables: the first of them, their number, the highest number that one can have, and what
    /// is added to a word to make that number.
    pub(crate) fn codable(&self) -> Option<(usize, usize, u32, u32)> {
        match self.form {
            Form::Code { last, .. } => Some((self.word.into(), self.elements.into(), last, 0)),
            Form::Position => Some((self.word.into(), 3, u32::MAX, SIGN)),
            _ => None,
        }
    }

    /// The same for a value whose words begin so many words later.
    fn later(self, words: usize) -> Step {
        Step { word: self.word + words as u16, ..self }
    }
}

impl Form {
    fn of(quantiser: Quantiser) -> Form {
        match quantiser {
            Quantiser::Fixed { min, max, step } => Form::code(u64::from(Fixed::new(min, max, step).last())),
            Quantiser::Position { .. } => Form::Position,
            Quantiser::Angle { bits } => Form::code((1 << bits) - 1),
            Quantiser::UnitVector { bits } => Form::UnitVector(Octahedral::new(bits), 2 * bits as u8),
            Quantiser::Quaternion { bits } => Form::Quaternion(SmallestThree::new(bits), 2 + 3 * bits as u8),
            Quantiser::Integer { min, max } => Form::code(IntegerRange::new(min, max).last()),
            Quantiser::Bool => Form::code(1),
            Quantiser::Enum { count } => Form::code(u64::from(count) - 1),
            Quantiser::Float16 => Form::Float16,
            Quantiser::Float32 => Form::Float32,
            Quantiser::Text { max_bytes } => Form::blob(max_bytes, true),
            Quantiser::Bytes { max_bytes } => Form::blob(max_bytes, false),
            Quantiser::ObjectRef => Form::Object,
        }
    }

    fn code(last: u64) -> Form {
        let bits = bits_for(last) as u8;
        if bits <= 32 { Form::Code { bits, last: last as u32 } } else { Form::LongCode { bits, last } }
    }

    fn blob(max_bytes: u32, text: bool) -> Form {
        Form::Blob { length_bits: bits_for(u64::from(max_bytes)) as u8, max_bytes, text }
    }
}

impl Kind {
    /// Writes the fields of `mask`, in order. The mask itself is not written; bits beyond the last field mean nothing.
    ///
    /// A coordinate of a position that lies outside `space` takes 32 bits more.
    ///
    /// # Panics
    /// If the values are not shaped like the kind.
    #[inline]
    pub fn encode(&self, mask: FieldMask, values: Values<'_>, space: &Space, w: &mut BitWriter<'_>) {
        self.debug_assert_shape(values);
        for (step, _) in self.steps_of(mask) {
            if step.is_coded {
                step.encode_coded(&self.codes, values, space, w);
            } else {
                step.encode(&self.items, values, space, w);
            }
        }
    }

    /// Reads what [`Kind::encode`] wrote with the same mask and space.
    ///
    /// Fields outside `mask` stay as they are; bits beyond the last field mean nothing. Allocates at most the largest
    /// size that the fields declare.
    ///
    /// # Errors
    /// If the bytes end early or hold what no value is written as. The fields of `mask` are then partly overwritten.
    ///
    /// # Panics
    /// If the values are not shaped like the kind; never because of the bytes.
    #[inline]
    pub fn decode(
        &self,
        mask: FieldMask,
        mut values: ValuesMut<'_>,
        space: &Space,
        r: &mut BitReader<'_>,
    ) -> Result<(), DecodeError> {
        self.debug_assert_shape(values.as_values());
        for (step, index) in self.steps_of(mask) {
            self.decode_field((step, index), values.reborrow(), space, r)?;
        }
        Ok(())
    }

    /// The same as [`Kind::decode`]. Adds the length of each field in bits to the element of `bits` at the field's index.
    ///
    /// # Errors
    /// As [`Kind::decode`].
    ///
    /// # Panics
    /// As [`Kind::decode`], and if `bits` has no element for a field.
    pub fn decode_counted(
        &self,
        mask: FieldMask,
        mut values: ValuesMut<'_>,
        space: &Space,
        r: &mut BitReader<'_>,
        bits: &mut [u64],
    ) -> Result<(), DecodeError> {
        self.debug_assert_shape(values.as_values());
        for (step, index) in self.steps_of(mask) {
            let before = r.remaining_bits();
            self.decode_field((step, index), values.reborrow(), space, r)?;
            bits[index] += (before - r.remaining_bits()) as u64;
        }
        Ok(())
    }

    #[inline]
    fn decode_field(
        &self,
        (step, index): (&Step, usize),
        values: ValuesMut<'_>,
        space: &Space,
        r: &mut BitReader<'_>,
    ) -> Result<(), DecodeError> {
        let decoded = match step.is_coded {
            true => step.decode_coded(&self.codes, values, space, r),
            false => step.decode(&self.items, values, space, r),
        };
        decoded.map_err(|refusal| refusal.of(self.fields[index].name))
    }

    #[inline]
    fn steps_of(&self, mask: FieldMask) -> impl Iterator<Item = (&Step, usize)> {
        let mut rest = mask;
        std::iter::from_fn(move || {
            let index = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            self.steps.get(index).map(|step| (step, index))
        })
    }
}

impl Step {
    #[inline]
    fn encode(&self, items: &[Step], values: Values<'_>, space: &Space, w: &mut BitWriter<'_>) {
        let elements = usize::from(self.elements);
        let words = &values.words[usize::from(self.word)..];
        match self.form {
            Form::Code { bits, .. } | Form::UnitVector(_, bits) => write_words(&words[..elements], bits, w),
            Form::Float16 => write_words(&words[..elements], 16, w),
            Form::Float32 => write_words(&words[..elements], 32, w),
            Form::LongCode { bits, .. } | Form::Quaternion(_, bits) => {
                pairs(words, elements).for_each(|[low, high]| w.write(long(low, high), bits.into()));
            }
            Form::Position => {
                for (axis, &word) in words[..3].iter().enumerate() {
                    write_coordinate(axis, word, space, w);
                }
            }
            Form::Object => pairs(words, elements).for_each(|[index, generation]| write_object(index, generation, w)),
            Form::Blob { length_bits, max_bytes, .. } => {
                let blob = &values.blobs[usize::from(self.blob)];
                debug_assert!(blob.len() <= max_bytes as usize, "{} bytes in a blob of {max_bytes}", blob.len());
                let blob = &blob[..blob.len().min(max_bytes as usize)];
                w.write(blob.len() as u64, length_bits.into());
                w.write_bytes(blob);
            }
            Form::List { length_bits, last, words: item_words, item } => {
                let count = words[0].min(last.into());
                w.write(count.into(), length_bits.into());
                encode_items(items[usize::from(item)], (count, item_words), values, w);
            }
        }
    }

    #[inline]
    fn decode(
        &self,
        items: &[Step],
        values: ValuesMut<'_>,
        space: &Space,
        r: &mut BitReader<'_>,
    ) -> Result<(), Refusal> {
        let elements = usize::from(self.elements);
        let words = &mut values.words[usize::from(self.word)..];
        match self.form {
            Form::Code { bits, last } => read_codes(&mut words[..elements], bits, r, |code| code <= last),
            Form::UnitVector(octahedral, bits) => {
                read_codes(&mut words[..elements], bits, r, |code| octahedral.is_code(code))
            }
            Form::Float16 => read_codes(&mut words[..elements], 16, r, |code| Float16.is_code(code)),
            Form::Float32 => read_codes(&mut words[..elements], 32, r, |code| Float32.is_code(code)),
            Form::LongCode { bits, last } => read_long_codes(&mut words[..2 * elements], bits, r, |code| code <= last),
            Form::Quaternion(smallest_three, bits) => {
                read_long_codes(&mut words[..2 * elements], bits, r, |code| smallest_three.is_code(code))
            }
            Form::Position => {
                for (axis, word) in words[..3].iter_mut().enumerate() {
                    *word = read_coordinate(axis, space, r)?;
                }
                Ok(())
            }
            Form::Object => words[..2 * elements].chunks_exact_mut(2).try_for_each(|pair| read_object(pair, r)),
            Form::Blob { length_bits, max_bytes, text } => {
                let length = r.read(length_bits.into())? as usize;
                if length > max_bytes as usize {
                    return Err(Refusal::TooLong);
                }
                let blob = &mut values.blobs[usize::from(self.blob)];
                blob.clear();
                r.read_bytes(length, blob)?;
                if text && std::str::from_utf8(blob).is_err() {
                    return Err(Refusal::InvalidText);
                }
                Ok(())
            }
            Form::List { length_bits, last, words: item_words, item } => {
                let count = r.read(length_bits.into())? as u32;
                if count > u32::from(last) {
                    return Err(Refusal::TooLong);
                }
                words[0] = count;
                // Missing elements are zero and empty, so that equal lists have equal words.
                words[1..1 + usize::from(last) * usize::from(item_words)].fill(0);
                let step = items[usize::from(item)];
                if let Form::Blob { .. } = step.form {
                    values.blobs[usize::from(step.blob)].clear();
                }
                decode_items(step, (count, item_words), values, r)
            }
        }
    }
}

/// Fields with code tables.
impl Step {
    /// Whether the element takes bits without a table: an axis of a space with a single layer takes none, and has no code.
    #[inline]
    fn is_written(&self, element: usize, space: &Space) -> bool {
        !matches!(self.form, Form::Position) || space.bits[element] > 0
    }

    #[inline]
    fn encode_coded(&self, codes: &KindCodes, values: Values<'_>, space: &Space, w: &mut BitWriter<'_>) {
        let Some((first, words, _, sign)) = self.codable() else { return };
        for (element, &word) in values.words[first..first + words].iter().enumerate() {
            let table = codes.of_word(first + element).filter(|_| self.is_written(element, space));
            if table.is_some_and(|table| table.write(word ^ sign, w)) {
                continue;
            }
            match self.form {
                Form::Code { bits, .. } => w.write_word(word, bits.into()),
                _ => write_coordinate(element, word, space, w),
            }
        }
    }

    #[inline]
    fn decode_coded(
        &self,
        codes: &KindCodes,
        values: ValuesMut<'_>,
        space: &Space,
        r: &mut BitReader<'_>,
    ) -> Result<(), Refusal> {
        let Some((first, words, last, sign)) = self.codable() else { return Ok(()) };
        for (element, word) in values.words[first..first + words].iter_mut().enumerate() {
            let table = codes.of_word(first + element).filter(|_| self.is_written(element, space));
            if let Some(table) = table
                && let Some(value) = table.read(r)?
            {
                *word = value ^ sign;
                continue;
            }
            *word = match self.form {
                Form::Code { bits, .. } => r.read(bits.into())? as u32,
                _ => read_coordinate(element, space, r)?,
            };
            let value = *word ^ sign;
            if value > last || table.is_some_and(|table| table.is_coded(value)) {
                return Err(Refusal::OutOfRange);
            }
        }
        Ok(())
    }
}

#[inline]
fn write_coordinate(axis: usize, word: u32, space: &Space, w: &mut BitWriter<'_>) {
    let bits = u32::from(space.bits[axis]);
    match space.code(axis, word as i32) {
        Some(code) => w.write_word(code, bits),
        None => {
            w.write(u64::MAX >> (64 - bits), bits);
            w.write(word.into(), 32);
        }
    }
}

#[inline]
fn read_coordinate(axis: usize, space: &Space, r: &mut BitReader<'_>) -> Result<u32, Refusal> {
    let code = r.read(space.bits[axis].into())? as u32;
    match space.outside(axis) == Some(code) {
        true => Ok(r.read(32)? as u32),
        false => space.value(axis, code).map(|value| value as u32).ok_or(Refusal::OutOfRange),
    }
}

/// Lists stand apart, so that what most fields need stays short.
#[inline(never)]
fn encode_items(first: Step, (count, words): (u32, u16), values: Values<'_>, w: &mut BitWriter<'_>) {
    for index in 0..count as usize {
        // No item is a position, so the space does not matter; none is a list.
        first.later(index * usize::from(words)).encode(&[], values, &Space::WORLD, w);
    }
}

#[inline(never)]
fn decode_items(
    first: Step,
    (count, words): (u32, u16),
    mut values: ValuesMut<'_>,
    r: &mut BitReader<'_>,
) -> Result<(), Refusal> {
    (0..count as usize)
        .try_for_each(|index| first.later(index * usize::from(words)).decode(&[], values.reborrow(), &Space::WORLD, r))
}

#[inline]
fn long(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
fn write_words(words: &[u32], bits: u8, w: &mut BitWriter<'_>) {
    for &word in words {
        w.write_word(word, bits.into());
    }
}

#[inline]
fn pairs(words: &[u32], count: usize) -> impl Iterator<Item = [u32; 2]> {
    words[..2 * count].chunks_exact(2).map(|pair| [pair[0], pair[1]])
}

#[inline]
fn read_codes(words: &mut [u32], bits: u8, r: &mut BitReader<'_>, good: impl Fn(u32) -> bool) -> Result<(), Refusal> {
    for word in words {
        *word = r.read(bits.into())? as u32;
        if !good(*word) {
            return Err(Refusal::OutOfRange);
        }
    }
    Ok(())
}

#[inline]
fn read_long_codes(
    words: &mut [u32],
    bits: u8,
    r: &mut BitReader<'_>,
    good: impl Fn(u64) -> bool,
) -> Result<(), Refusal> {
    for pair in words.chunks_exact_mut(2) {
        let code = r.read(bits.into())?;
        if !good(code) {
            return Err(Refusal::OutOfRange);
        }
        pair.copy_from_slice(&[code as u32, (code >> 32) as u32]);
    }
    Ok(())
}

#[inline]
fn write_object(index: u32, generation: u32, w: &mut BitWriter<'_>) {
    if index == ObjectId::NONE.index {
        w.write_varint(0);
    } else {
        w.write_varint(u64::from(index) + 1);
        w.write_varint(generation.into());
    }
}

fn read_object(pair: &mut [u32], r: &mut BitReader<'_>) -> Result<(), Refusal> {
    let (index, generation) = match r.read_varint()? {
        0 => (ObjectId::NONE.index, ObjectId::NONE.generation),
        number @ 1..=0xFFFF_FFFF => {
            let generation = u32::try_from(r.read_varint()?).map_err(|_| Refusal::OutOfRange)?;
            ((number - 1) as u32, generation)
        }
        _ => return Err(Refusal::OutOfRange),
    };
    pair.copy_from_slice(&[index, generation]);
    Ok(())
}

/// A [`DecodeError`] that does not know its field yet.
enum Refusal {
    Read(throng_wire::ReadError),
    OutOfRange,
    TooLong,
    InvalidText,
}

impl Refusal {
    #[cold]
    fn of(self, field: &'static str) -> DecodeError {
        match self {
            Refusal::Read(error) => DecodeError::Read(error),
            Refusal::OutOfRange => DecodeError::OutOfRange { field },
            Refusal::TooLong => DecodeError::TooLong { field },
            Refusal::InvalidText => DecodeError::InvalidText { field },
        }
    }
}

impl From<throng_wire::ReadError> for Refusal {
    fn from(error: throng_wire::ReadError) -> Refusal {
        Refusal::Read(error)
    }
}
