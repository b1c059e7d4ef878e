//! Prefix codes: values that occur often take few bits.
//!
//! A *code table* divides a part of the numbers that a value can have into ranges. It gives each range a prefix code, and
//! one more, the escape, to everything else:
//!
//! ```text
//! value   [code of its range][place in the range: as many bits as the range's size has]
//!         [escape code][the value as it is written without a table]           if no range holds it
//! ```
//!
//! Codes are canonical Huffman codes of at most 10 bits (Huffman 1952; Schwartz and Kallick 1964): shorter ones first, among
//! equally long ones in order of their ranges, the escape last; the first bit that is read is the highest of the code. A
//! table is fully described by its ranges and the lengths of their codes.
//!
//! Both ends have the same tables: these are part of the schema and of its hash. They are learnt once, from what a game
//! sends, by [`CodeCounts`], and kept as text beside the kinds:
//!
//! ```text
//! kind Character
//! entries public 0=5 1=2 8=1 9=3 else=5      the heads of entries: 0 introduces an object, others are masks
//! gaps public 0=1 1=2 2/1=3 else=3           slots that lie between this entry and the one before
//! field velocity 2 200=1 196/2=3 else=3      element 2: the value 200 in 1 bit; 196 to 199 in 3 + 2 bits
//! ```
//!
//! Elements of `fixed`, `angle`, `bool`, `enumeration` and `integer` fields of at most 32 bits can have tables, and the
//! axes of a position; those of lists cannot. A table is of use where few values are common: the height of characters that
//! stand on the ground, speeds, masks. Everything stays exact: only the lengths differ.

mod learn;

use std::fmt::{self, Write as _};

use throng_wire::{BitReader, BitWriter, ReadError};

use crate::{Facet, Kind, SchemaError};

pub use learn::CodeCounts;

/// Bits of the longest code. A reader looks up so many bits at once, in a table that stays in the cache.
const CODE_BITS: u32 = 10;
/// Most ranges of a table: their numbers fit in a byte, beside the escape.
const RANGES_MAX: usize = 254;
/// A facet with more fields that change has no code for its masks.
const MASK_BITS_MAX: u32 = 31;
/// The longest gap: a channel has at most 2^24 slots.
const GAP_MAX: u32 = (1 << 24) - 1;
/// Values below this are looked up without searching.
const DIRECT: usize = 4_096;
/// Not the number of a range.
const NONE: u8 = u8::MAX;

/// The prefix code of one value. The numbers that it codes are `u32`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeTable {
    /// In order of the numbers.
    ranges: Vec<Range>,
    escape: Prefix,
    /// The number of the range by value, as far as there are any below [`DIRECT`]. Empty if there are others.
    direct: Vec<u8>,
    /// The number of the range, or that of the escape, by the next [`CODE_BITS`] bits.
    lookup: Vec<u8>,
}

/// `2^bits` numbers from `first` on, and their code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    bits: u8,
    prefix: Prefix,
}

/// A code, its first bit lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Prefix {
    code: u16,
    length: u8,
}

impl Range {
    fn last(self) -> u32 {
        self.first + ((1u64 << self.bits) - 1) as u32
    }
}

impl CodeTable {
    /// The table of these ranges (first number, size as a power of two, length of the code) and the length of the escape.
    ///
    /// # Errors
    /// The rule that they break.
    fn new(ranges: &[(u32, u8, u8)], escape: u8) -> Result<CodeTable, &'static str> {
        if !(1..=RANGES_MAX).contains(&ranges.len()) {
            return Err("a code table has 1 to 254 ranges");
        }
        if ranges.iter().any(|&(first, bits, _)| bits > 31 || u64::from(first) + (1 << bits) > 1 << 32) {
            return Err("a range of a code table ends beyond 32 bits");
        }
        let ranges: Vec<Range> = ranges
            .iter()
            .map(|&(first, bits, length)| Range { first, bits, prefix: Prefix { code: 0, length } })
            .collect();
        if ranges.windows(2).any(|pair| pair[1].first <= pair[0].last()) {
            return Err("the ranges of a code table overlap, or are not in order");
        }
        let mut table =
            CodeTable { ranges, escape: Prefix { code: 0, length: escape }, direct: vec![], lookup: vec![] };
        table.assign()?;
        table.index();
        Ok(table)
    }

    /// Gives out the codes.
    fn assign(&mut self) -> Result<(), &'static str> {
        let lengths = || self.ranges.iter().map(|range| range.prefix.length).chain([self.escape.length]);
        if lengths().any(|length| !(1..=CODE_BITS as u8).contains(&length)) {
            return Err("the codes of a table have 1 to 10 bits");
        }
        if lengths().map(|length| 1u32 << (CODE_BITS - u32::from(length))).sum::<u32>() != 1 << CODE_BITS {
            return Err("the lengths of the codes are not those of a complete prefix code");
        }
        let mut order: Vec<usize> = (0..=self.ranges.len()).collect();
        order.sort_by_key(|&number| lengths().nth(number));
        self.lookup = vec![NONE; 1 << CODE_BITS];
        let mut next = 0u32;
        for number in order {
            let prefix = match self.ranges.get_mut(number) {
                Some(range) => &mut range.prefix,
                None => &mut self.escape,
            };
            let length = u32::from(prefix.length);
            // `next` counts in codes of the full length.
            let code = (next >> (CODE_BITS - length)).reverse_bits() >> (32 - length);
            prefix.code = code as u16;
            next += 1 << (CODE_BITS - length);
            for bits in (code as usize..1 << CODE_BITS).step_by(1 << length) {
                self.lookup[bits] = number as u8;
            }
        }
        Ok(())
    }

    fn index(&mut self) {
        let end = self.ranges.last().map_or(0, |range| range.last() as usize + 1);
        if end <= DIRECT {
            self.direct = vec![NONE; end];
            for (number, range) in self.ranges.iter().enumerate() {
                self.direct[range.first as usize..=range.last() as usize].fill(number as u8);
            }
        }
    }

    #[inline]
    fn find(&self, value: u32) -> Option<&Range> {
        if !self.direct.is_empty() {
            return self.ranges.get(usize::from(*self.direct.get(value as usize)?));
        }
        let range = &self.ranges[self.ranges.partition_point(|range| range.first <= value).checked_sub(1)?];
        (value <= range.last()).then_some(range)
    }

    /// Writes a value. Returns whether a range holds it: if not, only the escape was written, and the value is to follow.
    #[inline]
    pub fn write(&self, value: u32, w: &mut BitWriter<'_>) -> bool {
        match self.find(value) {
            Some(Range { first, bits, prefix }) => {
                let place = u64::from(value - first);
                w.write(u64::from(prefix.code) | place << prefix.length, u32::from(prefix.length + bits));
                true
            }
            None => {
                w.write(self.escape.code.into(), self.escape.length.into());
                false
            }
        }
    }

    /// Reads a value. `None` after an escape: the value follows, and [`is_coded`](Self::is_coded) must not be true of it.
    ///
    /// # Errors
    /// The bytes end early.
    #[inline]
    pub fn read(&self, r: &mut BitReader<'_>) -> Result<Option<u32>, ReadError> {
        let number = self.lookup[r.peek(CODE_BITS) as usize];
        match self.ranges.get(usize::from(number)) {
            Some(range) => {
                r.skip(range.prefix.length.into())?;
                Ok(Some(range.first + r.read(range.bits.into())? as u32))
            }
            None => {
                r.skip(self.escape.length.into())?;
                Ok(None)
            }
        }
    }

    /// Whether a range holds the value. Then it is never written after an escape.
    #[inline]
    pub fn is_coded(&self, value: u32) -> bool {
        self.find(value).is_some()
    }

    /// The most bits that the table can take, without what follows an escape.
    fn max_bits(&self) -> u32 {
        let lengths = self.ranges.iter().map(|range| range.prefix.length + range.bits);
        lengths.chain([self.escape.length]).max().unwrap_or(0).into()
    }

    /// The highest number that a range holds.
    fn last(&self) -> u32 {
        self.ranges.last().map_or(0, |range| range.last())
    }

    fn display(&self, f: &mut String, sign: u32) {
        for Range { first, bits, prefix } in &self.ranges {
            let first = i64::from(*first) - i64::from(sign);
            let size = if *bits > 0 { format!("/{bits}") } else { String::new() };
            // Writing to a string cannot fail.
            let _ = write!(f, " {first}{size}={}", prefix.length);
        }
        let _ = writeln!(f, " else={}", self.escape.length);
    }
}

/// The tables of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KindCodes {
    /// By facet: the heads of entries.
    pub(crate) entries: [Option<CodeTable>; Facet::ALL.len()],
    /// By facet: the slots between entries.
    pub(crate) gaps: [Option<CodeTable>; Facet::ALL.len()],
    /// By word.
    pub(crate) words: Vec<Option<CodeTable>>,
}

/// Positions are whole numbers with a sign; tables have none. So zero lies in the middle.
pub(crate) const SIGN: u32 = 1 << 31;

impl KindCodes {
    pub(crate) fn of_word(&self, word: usize) -> Option<&CodeTable> {
        self.words.get(word)?.as_ref()
    }

    /// The most bits that tables add to those of the word without a table.
    pub(crate) fn extra_bits(&self, word: usize) -> u32 {
        self.of_word(word).map_or(0, CodeTable::max_bits)
    }
}

/// One line of the text of a kind: which values it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject<'a> {
    Entries(Facet),
    Gaps(Facet),
    Element(&'a str, usize),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Entries(facet) => write!(f, "entries {}", facet_name(*facet)),
            Subject::Gaps(facet) => write!(f, "gaps {}", facet_name(*facet)),
            Subject::Element(field, element) => write!(f, "field {field} {element}"),
        }
    }
}

fn facet_name(facet: Facet) -> &'static str {
    match facet {
        Facet::Public => "public",
        Facet::Owner => "owner",
        Facet::Others => "others",
        Facet::Far => "far",
    }
}

/// Gives the tables of a text to the kinds.
///
/// # Errors
/// The first line that says nothing possible.
pub(crate) fn apply(text: &str, kinds: &mut [Kind]) -> Result<(), SchemaError> {
    let mut kind: Option<&mut Kind> = None;
    for (number, line) in text.lines().enumerate() {
        let error = |reason| SchemaError::Codes { line: number + 1, reason };
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if first == "kind" {
            let name = words.next().ok_or(error("a kind has a name"))?;
            kind = Some(kinds.iter_mut().find(|kind| kind.name == name).ok_or(error("the schema has no such kind"))?);
            continue;
        }
        let kind = kind.as_deref_mut().ok_or(error("a line `kind NAME` comes first"))?;
        let mut facet = || {
            let name = words.next();
            Facet::ALL.into_iter().find(|facet| Some(facet_name(*facet)) == name).ok_or(error("this is no facet"))
        };
        let subject = match first {
            "entries" => Subject::Entries(facet()?),
            "gaps" => Subject::Gaps(facet()?),
            "field" => {
                let name = words.next().ok_or(error("a field has a name"))?;
                let element = words.next().and_then(|element| element.parse().ok());
                Subject::Element(name, element.ok_or(error("the number of an element comes after the field's name"))?)
            }
            _ => return Err(error("a line begins with `kind`, `entries`, `gaps` or `field`")),
        };
        kind.set_codes(subject, words).map_err(error)?;
    }
    kinds.iter_mut().for_each(Kind::hash_codes);
    Ok(())
}

/// Reads `4=3 6/1=2 else=1`; numbers count from `sign`.
fn parse_table<'a>(words: impl Iterator<Item = &'a str>, sign: u32) -> Result<CodeTable, &'static str> {
    const WRONG: &str = "a range is written FIRST=BITS or FIRST/SIZE=BITS, and `else=BITS` comes last";
    let (mut ranges, mut escape) = (Vec::new(), None);
    for word in words {
        let (range, length) = word.split_once('=').ok_or(WRONG)?;
        let length: u8 = length.parse().map_err(|_| WRONG)?;
        if escape.is_some() {
            return Err(WRONG);
        }
        if range == "else" {
            escape = Some(length);
            continue;
        }
        let (first, bits) = range.split_once('/').unwrap_or((range, "0"));
        let first = first.parse::<i64>().ok().and_then(|first| first.checked_add(sign.into()));
        let first = first.and_then(|first| u32::try_from(first).ok()).ok_or(WRONG)?;
        ranges.push((first, bits.parse().map_err(|_| WRONG)?, length));
    }
    CodeTable::new(&ranges, escape.ok_or(WRONG)?)
}

impl Kind {
    fn set_codes<'a>(
        &mut self,
        subject: Subject<'_>,
        words: impl Iterator<Item = &'a str>,
    ) -> Result<(), &'static str> {
        match subject {
            Subject::Entries(facet) | Subject::Gaps(facet) if self.facet_mask(facet) == 0 || facet == Facet::Owner => {
                Err("no channel holds such fields of this kind")
            }
            Subject::Entries(facet) => {
                let bits = self.update_mask(facet).count_ones();
                let table = parse_table(words, 0)?;
                if bits > MASK_BITS_MAX || table.last() >= 1 << bits {
                    return Err("a mask has more bits than the facet has fields that change");
                }
                put(&mut self.codes.entries[facet.index()], table)
            }
            Subject::Gaps(facet) => {
                let table = parse_table(words, 0)?;
                if table.last() > GAP_MAX {
                    return Err("a channel has at most 2^24 slots");
                }
                put(&mut self.codes.gaps[facet.index()], table)
            }
            Subject::Element(name, element) => {
                let index =
                    self.fields.iter().position(|field| field.name == name).ok_or("the kind has no such field")?;
                let (first, elements, last, sign) =
                    self.steps[index].codable().ok_or("such a field has no code table")?;
                if element >= elements {
                    return Err("the field has fewer elements");
                }
                let table = parse_table(words, sign)?;
                if table.last() > last {
                    return Err("the field has no such values");
                }
                self.steps[index].is_coded = true;
                self.codes.words.resize(self.words, None);
                put(&mut self.codes.words[first + element], table)
            }
        }
    }

    /// The tables as text, as [`SchemaBuilder::codes`](crate::SchemaBuilder::codes) reads them; empty without any.
    pub fn codes_text(&self) -> String {
        let mut lines = String::new();
        let mut line = |subject: Subject<'_>, table: &Option<CodeTable>, sign| {
            if let Some(table) = table {
                let _ = write!(lines, "{subject}");
                table.display(&mut lines, sign);
            }
        };
        for facet in Facet::ALL {
            line(Subject::Entries(facet), &self.codes.entries[facet.index()], 0);
            line(Subject::Gaps(facet), &self.codes.gaps[facet.index()], 0);
        }
        for (field, step) in self.fields.iter().zip(&self.steps) {
            let Some((first, elements, _, sign)) = step.codable() else { continue };
            for element in 0..elements {
                let table = self.codes.words.get(first + element).unwrap_or(&None);
                line(Subject::Element(field.name, element), table, sign);
            }
        }
        if lines.is_empty() { lines } else { format!("kind {}\n{lines}", self.name) }
    }

    /// The code of the heads of a facet's entries: 0 introduces an object, everything else is the mask of an update, a bit
    /// for each field of [`update_mask`](Self::update_mask).
    #[inline]
    pub fn entry_codes(&self, facet: Facet) -> Option<&CodeTable> {
        self.codes.entries[facet.index()].as_ref()
    }

    /// The code of the number of slots between two entries of a run.
    #[inline]
    pub fn gap_codes(&self, facet: Facet) -> Option<&CodeTable> {
        self.codes.gaps[facet.index()].as_ref()
    }
}

fn put(place: &mut Option<CodeTable>, table: CodeTable) -> Result<(), &'static str> {
    match place.replace(table) {
        None => Ok(()),
        Some(_) => Err("these values have a table already"),
    }
}
