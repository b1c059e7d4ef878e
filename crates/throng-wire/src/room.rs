//! How much room a list needs.

/// A list that grew in a burst keeps its memory for ever. This says when to give it back: it remembers the greatest length of a
/// while, so that a list is as large as its bursts of the last while, and not as those of all time.
///
/// ```
/// use throng_wire::Room;
///
/// let mut list: Vec<u8> = Vec::with_capacity(4_096);
/// let mut room = Room::default();
/// for _ in 0..Room::WHILE {
///     list.resize(100, 0);
///     if let Some(capacity) = room.look(list.len(), list.capacity()) {
///         list.shrink_to(capacity);
///     }
///     list.clear();
/// }
/// assert_eq!(list.capacity(), 128);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    longest: u32,
    looks: u32,
}

impl Room {
    /// A while has so many looks.
    pub const WHILE: u32 = 1_024;
    /// No list is made shorter than this.
    const LEAST: usize = 32;

    /// Looks at a list when it is at its longest. At the end of a while, the capacity to which the list should shrink, if it has
    /// more: the next power of two from five quarters of the greatest length.
    #[inline]
    pub fn look(&mut self, len: usize, capacity: usize) -> Option<usize> {
        self.longest = self.longest.max(u32::try_from(len).unwrap_or(u32::MAX));
        self.looks += 1;
        if self.looks < Room::WHILE {
            return None;
        }
        let longest = std::mem::take(self).longest as usize;
        let needed = (longest + longest / 4).next_power_of_two().max(Room::LEAST);
        (capacity > needed).then_some(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_forgotten_after_two_whiles_and_a_steady_list_stays_as_it_is() {
        let mut room = Room::default();
        let mut last = |lengths: &[usize], capacity| {
            let looks = (0..Room::WHILE as usize).map(|look| room.look(lengths[look % lengths.len()], capacity));
            looks.last().flatten()
        };
        assert_eq!(last(&[100, 300, 7], 512), None, "300 and a quarter need 512");
        assert_eq!(last(&[100, 7], 512), Some(128));
        assert_eq!(last(&[100, 7], 128), None);
        assert_eq!(last(&[0], 512), Some(32));
        assert_eq!(last(&[0], 4), None);
    }
}
