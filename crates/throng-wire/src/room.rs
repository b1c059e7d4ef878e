//! How much room a list needs.

use std::collections::VecDeque;

/// A list that grew in a burst keeps its memory for ever. This gives it back: it remembers the greatest length of a while, so that
/// a list is as large as its bursts of the last while, and not as those of all time.
///
/// ```
/// use throng_wire::Room;
///
/// let mut list: Vec<u8> = Vec::with_capacity(4_096);
/// let mut room = Room::default();
/// for _ in 0..Room::WHILE {
///     list.resize(100, 0);
///     room.trim(&mut list);
///     list.clear();
/// }
/// assert_eq!(list.capacity(), 128);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    longest: u32,
    looks: u32,
}

/// A list that keeps its memory.
pub trait Roomy {
    /// Its length.
    fn length(&self) -> usize;
    /// The length for which it has memory.
    fn room(&self) -> usize;
    /// Gives memory back, but not that for a length of `room`.
    fn keep(&mut self, room: usize);
}

macro_rules! roomy {
    ($($list:ident),*) => {$(
        impl<T> Roomy for $list<T> {
            fn length(&self) -> usize {
                $list::len(self)
            }
            fn room(&self) -> usize {
                $list::capacity(self)
            }
            fn keep(&mut self, room: usize) {
                $list::shrink_to(self, room);
            }
        }
    )*};
}
roomy!(Vec, VecDeque);

impl Room {
    /// A while has so many looks.
    pub const WHILE: u32 = 1_024;
    /// No list is made shorter than this.
    const LEAST: usize = 32;

    /// Looks at a list when it is at its longest. At the end of a while the list shrinks to the next power of two from five
    /// quarters of the greatest length, if it has memory for more. Allocates then, and never else.
    #[inline]
    pub fn trim(&mut self, list: &mut impl Roomy) {
        // Most lists are short, and cost this comparison.
        if list.room() > Room::LEAST {
            self.look(list);
        }
    }

    #[cold]
    fn look(&mut self, list: &mut impl Roomy) {
        self.longest = self.longest.max(u32::try_from(list.length()).unwrap_or(u32::MAX));
        self.looks += 1;
        if self.looks >= Room::WHILE {
            let longest = std::mem::take(self).longest as usize;
            let needed = (longest + longest / 4).next_power_of_two().max(Room::LEAST);
            if list.room() > needed {
                list.keep(needed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_forgotten_after_two_whiles_and_a_steady_list_stays_as_it_is() {
        let (mut room, mut list) = (Room::default(), VecDeque::<u8>::with_capacity(512));
        let mut after = |lengths: &[usize]| {
            for look in 0..Room::WHILE as usize {
                list.resize(lengths[look % lengths.len()], 0);
                room.trim(&mut list);
            }
            list.capacity()
        };
        assert_eq!(after(&[100, 300, 7]), 512, "300 and a quarter need 512");
        assert_eq!(after(&[100, 7]), 128);
        assert_eq!(after(&[100, 7]), 128);
        assert_eq!(after(&[0]), 32);
        assert_eq!(after(&[20]), 32);
    }
}
