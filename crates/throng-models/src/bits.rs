//! Sets of object indices, 64 to a word.

/// A set of small numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Makes room for numbers below `len`.
    pub(crate) fn grow(&mut self, len: usize) {
        if self.words.len() * 64 < len {
            self.words.resize(len.div_ceil(64), 0);
        }
    }

    /// Adds a number, for which there must be room.
    #[inline]
    pub(crate) fn insert(&mut self, number: u32) {
        self.words[number as usize / 64] |= 1 << (number % 64);
    }

    #[inline]
    pub(crate) fn remove(&mut self, number: u32) {
        if let Some(word) = self.words.get_mut(number as usize / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    #[inline]
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.word(number as usize / 64) >> (number % 64) & 1 == 1
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Adds the numbers 64 times `at` and on whose bits are set. There must be room.
    #[inline]
    pub(crate) fn unite_word(&mut self, at: usize, word: u64) {
        self.words[at] |= word;
    }

    /// Takes them out. There must be room.
    #[inline]
    pub(crate) fn remove_word(&mut self, at: usize, word: u64) {
        self.words[at] &= !word;
    }

    /// Adds all of another set. There must be room.
    #[inline]
    pub(crate) fn unite(&mut self, other: &Bits) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// The numbers 64 times `at` and on, as a word; 0 beyond the end.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// Number of words.
    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }

    /// The numbers in it, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.words).flat_map(|(at, &word)| numbers_of(at, word))
    }
}

/// The numbers of the set bits of the `at`th word.
#[inline]
pub(crate) fn numbers_of(at: u32, mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(at * 64 + bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_not_taken_out() {
        let mut bits = Bits::default();
        bits.grow(200);
        [3, 64, 130, 199].into_iter().for_each(|number| bits.insert(number));
        bits.remove(64);
        bits.remove(5_000);
        assert!(bits.contains(3) && !bits.contains(64) && !bits.contains(5_000));
        let mut other = Bits::default();
        other.grow(64);
        other.insert(7);
        bits.unite(&other);
        assert_eq!(bits.iter().collect::<Vec<_>>(), [3, 7, 130, 199]);
        bits.unite_word(1, 0b101);
        bits.remove_word(1, 0b001);
        assert!(bits.contains(66) && !bits.contains(64) && !bits.is_empty());
        bits.clear();
        assert!(bits.is_empty() && bits.iter().count() == 0);
    }
}
