//! Decisions taken from a fuzzer's bytes. When the bytes are used up, every choice is 0.
#![allow(dead_code)] // each target and test takes a part of it

/// Hands out what is left of the input, piece by piece.
pub(crate) struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Choices<'a> {
        Choices { rest: input }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        byte
    }

    pub(crate) fn number(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A number below `end`, which is at most 256.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Up to `count` of the bytes that follow.
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Changes, cuts or lengthens genuine bytes in a few places, or leaves them as they are.
    pub(crate) fn bend(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.below(5) {
            let (how, at, value) = (self.below(8), self.number() as usize, self.byte());
            if bytes.is_empty() {
                return;
            }
            let at = at % bytes.len();
            match how {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, value),
                2 => drop(bytes.remove(at)),
                3 => bytes.extend_from_slice(&[value; 3]),
                4 => bytes[at] = bytes[at].wrapping_add(1),
                5 => bytes[at] ^= 1 << (value & 7),
                _ => bytes[at] = value,
            }
        }
    }
}
