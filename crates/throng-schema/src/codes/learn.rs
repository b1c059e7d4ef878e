//! Learning code tables from the values that were sent.

use std::collections::BTreeMap;

use throng_wire::KindId;

use super::{CODE_BITS, CodeTable, GAP_MAX, KindCodes, MASK_BITS_MAX};
use crate::{Facet, FieldMask, Kind, Schema, Space, Values};

/// Different values that are counted for each element. Of further ones only the number is known: where there are so many,
/// no code makes them shorter.
const VALUES_MAX: usize = 1 << 16;
/// A range with a smaller share than this is left to the escape: its code would be longer than [`CODE_BITS`].
const SHARE_MIN: f64 = 1.0 / 200.0;
/// A range is halved if that saves so many bits per value.
const HALVING_SAVES_BITS: f64 = 0.002;
/// A table is kept if it saves this share of the bits.
const TABLE_SAVES: f64 = 0.03;

/// Counts the values in what a client was sent, and learns [code tables](CodeTable) from them.
///
/// ```
/// use throng_schema::{CodeCounts, Facet, Replicate, Schema, Space, Values, ValuesMut};
/// use throng_wire::{BitWriter, KindId};
///
/// #[derive(Default, Replicate)]
/// struct Walker {
///     #[replicate(fixed(min = -20.0, max = 20.0, step = 0.1))]
///     climbing: f32,
/// }
///
/// let schema = Schema::builder().kind::<Walker>().build()?;
/// let mut counts = CodeCounts::new(&schema);
/// let kind = schema.kind(KindId(0));
/// let (mut words, mut blobs) = kind.empty_values();
/// for number in 0..1_000 {
///     // Most of the time it climbs nowhere.
///     let walker = Walker { climbing: if number % 10 == 0 { number as f32 / 100.0 } else { 0.0 } };
///     walker.quantise(ValuesMut { words: &mut words, blobs: &mut blobs });
///     counts.note_fields(KindId(0), kind.all_mask(), Values { words: &words, blobs: &blobs }, &Space::WORLD);
/// }
/// let text = counts.tables();
///
/// let coded = Schema::builder().kind::<Walker>().codes(&text).build()?;
/// let length = |kind: &throng_schema::Kind| {
///     let (mut bytes, mut words) = (Vec::new(), kind.empty_values().0);
///     Walker::default().quantise(ValuesMut { words: &mut words, blobs: &mut [] });
///     let mut w = BitWriter::new(&mut bytes);
///     kind.encode(kind.all_mask(), Values { words: &words, blobs: &[] }, &Space::WORLD, &mut w);
///     w.bit_len()
/// };
/// assert_eq!((length(kind), length(coded.kind(KindId(0)))), (9, 1));
/// # Ok::<(), throng_schema::SchemaError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CodeCounts {
    kinds: Vec<KindCounts>,
}

#[derive(Clone, Debug)]
struct KindCounts {
    kind: Kind,
    entries: [Counted; Facet::ALL.len()],
    gaps: [Counted; Facet::ALL.len()],
    words: Vec<Counted>,
}

/// The values of one element, and the bits that they take without a table.
#[derive(Clone, Debug, Default)]
struct Counted {
    counts: BTreeMap<u32, u64>,
    total: u64,
    plain_bits: u64,
}

impl Counted {
    fn note(&mut self, value: u32, plain_bits: u32) {
        self.total += 1;
        self.plain_bits += u64::from(plain_bits);
        if let Some(count) = self.counts.get_mut(&value) {
            *count += 1;
        } else if self.counts.len() < VALUES_MAX {
            self.counts.insert(value, 1);
        }
    }

    fn add(&mut self, other: &Counted) {
        self.total += other.total;
        self.plain_bits += other.plain_bits;
        for (&value, &count) in &other.counts {
            if self.counts.len() < VALUES_MAX || self.counts.contains_key(&value) {
                *self.counts.entry(value).or_default() += count;
            }
        }
    }
}

impl CodeCounts {
    /// Nothing counted. Code tables that the schema has make no difference.
    pub fn new(schema: &Schema) -> CodeCounts {
        let of = |kind: &Kind| KindCounts {
            kind: kind.clone(),
            entries: Default::default(),
            gaps: Default::default(),
            words: vec![Counted::default(); kind.words],
        };
        CodeCounts { kinds: schema.kinds().iter().map(of).collect() }
    }

    /// The fields of `mask` were sent with these values in a channel with this space. Without effect if the schema has no
    /// such kind.
    pub fn note_fields(&mut self, kind: KindId, mask: FieldMask, values: Values<'_>, space: &Space) {
        let Some(counts) = self.kinds.get_mut(usize::from(kind.0)) else { return };
        for (index, _) in counts.kind.fields_of(mask) {
            let Some((first, words, last, sign)) = counts.kind.steps[index].codable() else { continue };
            for element in 0..words {
                let word = values.words[first + element];
                let plain_bits = match sign {
                    0 => u32::BITS - last.leading_zeros(),
                    _ => {
                        u32::from(space.bits[element]) + if space.code(element, word as i32).is_none() { 32 } else { 0 }
                    }
                };
                counts.words[first + element].note(word ^ sign, plain_bits);
            }
        }
    }

    /// An entry was sent whose head is `head` (see [`Kind::entry_codes`]), with `gap` slots between it and the one before in
    /// its run. Slot numbers of the channel have `slot_bits` bits.
    pub fn note_entry(&mut self, (kind, facet): (KindId, Facet), head: u64, gap: u32, slot_bits: u32) {
        let Some(counts) = self.kinds.get_mut(usize::from(kind.0)) else { return };
        let mask_bits = counts.kind.update_mask(facet).count_ones();
        // A mask of more bits has no code.
        if mask_bits <= MASK_BITS_MAX
            && let Ok(head) = u32::try_from(head)
        {
            counts.entries[facet.index()].note(head, 1 + if head == 0 { 0 } else { mask_bits });
        }
        counts.gaps[facet.index()].note(gap, slot_bits);
    }

    /// Adds the counts of another client with the same schema.
    pub fn add(&mut self, other: &CodeCounts) {
        for (kind, other) in self.kinds.iter_mut().zip(&other.kinds) {
            let pairs = kind.words.iter_mut().zip(&other.words);
            let pairs = pairs.chain(kind.entries.iter_mut().zip(&other.entries));
            pairs.chain(kind.gaps.iter_mut().zip(&other.gaps)).for_each(|(counted, other)| counted.add(other));
        }
    }

    /// The tables that make these values shortest, as text for [`SchemaBuilder::codes`](crate::SchemaBuilder::codes). Elements
    /// that would not become shorter have none.
    pub fn tables(&self) -> String {
        let of_kind = |counts: &KindCounts| {
            let mut kind = counts.kind.clone();
            kind.codes = KindCodes {
                entries: Facet::ALL.map(|facet| {
                    let bits = kind.update_mask(facet).count_ones().min(MASK_BITS_MAX);
                    learn(&counts.entries[facet.index()], (1 << bits) - 1)
                }),
                gaps: Facet::ALL.map(|facet| learn(&counts.gaps[facet.index()], GAP_MAX)),
                words: counts
                    .words
                    .iter()
                    .zip(lasts_of_words(&kind))
                    .map(|(counted, last)| learn(counted, last))
                    .collect(),
            };
            kind.codes_text()
        };
        self.kinds.iter().map(of_kind).collect()
    }
}

/// The largest number of each word that can have a table.
fn lasts_of_words(kind: &Kind) -> Vec<u32> {
    let mut lasts = vec![0; kind.words];
    for (first, elements, last, _) in kind.steps.iter().filter_map(|step| step.codable()) {
        lasts[first..first + elements].fill(last);
    }
    lasts
}

/// Numbers in order, and how often each came.
type Counts<'a> = &'a [(u32, u64)];

/// A range that a table could have: first number, size as a power of two, and how often its numbers came.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    first: u32,
    bits: u8,
    count: u64,
}

impl Candidate {
    /// Whether a table can have the range, if no number is above `last`.
    fn is_possible(&self, last: u32) -> bool {
        self.bits < 32 && u64::from(self.first) + (1 << self.bits) - 1 <= u64::from(last)
    }
}

/// The table that makes these values shortest, of ranges that end at `last` or before.
fn learn(counted: &Counted, last: u32) -> Option<CodeTable> {
    if counted.total == 0 {
        return None;
    }
    let counts: Vec<(u32, u64)> = counted.counts.iter().map(|(&value, &count)| (value, count)).collect();
    let (_, mut ranges) = divide(&counts, (0, 32), last, counted.total as f64);
    let least = (counted.total as f64 * SHARE_MIN) as u64;
    ranges.retain(|range| range.count > least && range.is_possible(last));
    let escaped = counted.total - ranges.iter().map(|range| range.count).sum::<u64>();
    let weights: Vec<u64> = ranges.iter().map(|range| range.count).chain([escaped.max(1)]).collect();
    if weights.len() < 2 {
        return None;
    }
    let lengths = code_lengths(&weights);
    let bits = |range: &Candidate, length: u8| range.count * u64::from(length + range.bits);
    let coded: u64 = ranges.iter().zip(&lengths).map(|(range, &length)| bits(range, length)).sum();
    let plain_bits = counted.plain_bits as f64 / counted.total as f64;
    let escape = *lengths.last()?;
    let escaped_bits = escaped as f64 * (f64::from(escape) + plain_bits);
    if coded as f64 + escaped_bits > counted.plain_bits as f64 * (1.0 - TABLE_SAVES) {
        return None;
    }
    let described: Vec<_> =
        ranges.iter().zip(&lengths).map(|(range, &length)| (range.first, range.bits, length)).collect();
    CodeTable::new(&described, escape).ok()
}

/// The ranges within `2^bits` numbers from `first` on that take the fewest bits, and how many these are, if a number that
/// comes with share p takes log2(1 / p) bits for its range and the range's size beside that. Ranges beyond `last` are halved.
fn divide(counts: Counts<'_>, (first, bits): (u32, u8), last: u32, total: f64) -> (f64, Vec<Candidate>) {
    let count: u64 = counts.iter().map(|(_, count)| count).sum();
    if count == 0 {
        return (0.0, Vec::new());
    }
    let whole = count as f64 * ((total / count as f64).log2() + f64::from(bits));
    let range = Candidate { first, bits, count };
    let alone = || (whole, vec![range]);
    if bits == 0 || (count as f64) < total * SHARE_MIN {
        return alone();
    }
    let middle = first + (1u64 << (bits - 1)) as u32;
    let (low, high) = counts.split_at(counts.partition_point(|&(value, _)| value < middle));
    let (low_bits, mut ranges) = divide(low, (first, bits - 1), last, total);
    let (high_bits, high) = divide(high, (middle, bits - 1), last, total);
    if range.is_possible(last) && low_bits + high_bits + total * HALVING_SAVES_BITS > whole {
        return alone();
    }
    ranges.extend(high);
    (low_bits + high_bits, ranges)
}

/// The lengths of the best prefix code of at most [`CODE_BITS`] bits for symbols of these weights, at least two (Larmore and
/// Hirschberg 1990, package-merge).
fn code_lengths(weights: &[u64]) -> Vec<u8> {
    // A package: its weight, and the symbols in it.
    let single: Vec<(u64, Vec<usize>)> = weights.iter().enumerate().map(|(at, &weight)| (weight, vec![at])).collect();
    let mut packages: Vec<(u64, Vec<usize>)> = Vec::new();
    for _ in 0..CODE_BITS {
        packages.extend(single.iter().cloned());
        packages.sort_by_key(|(weight, _)| *weight);
        let pairs = packages.chunks_exact(2);
        packages = pairs.map(|pair| (pair[0].0 + pair[1].0, [&pair[0].1[..], &pair[1].1[..]].concat())).collect();
    }
    let mut lengths = vec![0; weights.len()];
    // After the last pairing, each of the first packages stands for two symbols.
    for symbol in packages.iter().take(weights.len() - 1).flat_map(|(_, symbols)| symbols) {
        lengths[*symbol] += 1;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::SIGN;

    #[test]
    fn code_lengths_are_those_of_huffman() {
        assert_eq!(code_lengths(&[5, 1]), [1, 1]);
        assert_eq!(code_lengths(&[45, 13, 12, 16, 9, 5]), [1, 3, 3, 3, 4, 4]);
        let fibonacci: Vec<u64> = (0..20)
            .scan((1, 1), |(a, b), _| {
                let now = *a;
                (*a, *b) = (*b, *a + *b);
                Some(now)
            })
            .collect();
        let lengths = code_lengths(&fibonacci);
        assert_eq!(lengths.iter().max(), Some(&(CODE_BITS as u8)), "without the bound, the rarest would have 19");
        assert_eq!(lengths.iter().map(|&length| 1u32 << (CODE_BITS - u32::from(length))).sum::<u32>(), 1 << CODE_BITS);
    }

    #[test]
    fn a_table_takes_few_bits_more_than_the_entropy() {
        let mut rng = fastrand::Rng::with_seed(3);
        for spread in [1.0, 5.0, 40.0] {
            let mut counted = Counted::default();
            for _ in 0..20_000 {
                let sum: f64 = (0..6).map(|_| rng.f64() - 0.5).sum();
                counted.note((SIGN as f64 + sum * spread) as u32, 32);
            }
            let entropy: f64 = counted
                .counts
                .values()
                .map(|&count| {
                    let share = count as f64 / counted.total as f64;
                    -share * share.log2()
                })
                .sum();
            let table = learn(&counted, u32::MAX).expect("few values are common");
            let mut bytes = Vec::new();
            let mut w = throng_wire::BitWriter::new(&mut bytes);
            for (&value, &count) in &counted.counts {
                for _ in 0..count {
                    if !table.write(value, &mut w) {
                        w.write(value.into(), 32);
                    }
                }
            }
            let bits = w.bit_len() as f64 / counted.total as f64;
            assert!(bits < entropy + 0.35, "{bits:.2} bits for an entropy of {entropy:.2}");
        }
    }

    #[test]
    fn values_without_a_pattern_get_no_table() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut counted = Counted::default();
        (0..50_000).for_each(|_| counted.note(rng.u32(0..1_000), 10));
        assert_eq!(learn(&counted, u32::MAX), None);
        assert_eq!(learn(&Counted::default(), u32::MAX), None);
    }
}
