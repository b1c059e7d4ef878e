//! Selects and sorts the channels of a connection that are written in a tick.
//!
//! Order matters only if there is not room for all. So nothing is put in order when everything surely fits, and otherwise
//! only as far as is written: the most urgent part first, then as many again, and so on.

/// A channel whose turn has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) channel: u32,
    /// Higher goes first.
    pub(crate) priority: f32,
}

/// The channels whose turn has come.
#[derive(Debug, Default)]
pub(crate) struct DueList {
    due: Vec<Due>,
    /// The most that all their records can take.
    max_bits: u64,
    /// This many are in order.
    ordered: usize,
    cursor: usize,
}

/// This many are put in order first.
const FIRST_PART: usize = 64;
/// The largest packet, in bytes.
const PACKET_BYTES: u64 = 1_200;

impl DueList {
    /// Takes over another list, into the memory of this one.
    pub(crate) fn copy_from(&mut self, other: &DueList) {
        self.due.clone_from(&other.due);
        (self.max_bits, self.ordered, self.cursor) = (other.max_bits, other.ordered, other.cursor);
    }

    /// An empty list, allocated with room for this many channels.
    pub(crate) fn with_room(channels: usize) -> DueList {
        DueList { due: Vec::with_capacity(channels), ..DueList::default() }
    }

    pub(crate) fn clear(&mut self) {
        self.due.clear();
        (self.max_bits, self.ordered, self.cursor) = (0, 0, 0);
    }

    /// Adds a channel whose record takes at most `max_bits`.
    #[inline]
    pub(crate) fn push(&mut self, channel: u32, priority: f32, max_bits: u32) {
        self.due.push(Due { channel, priority });
        self.max_bits += u64::from(max_bits);
    }

    /// To be called when all have been added: they are sorted, unless `budget_bytes` is enough for all.
    pub(crate) fn order(&mut self, budget_bytes: usize) {
        // Two packets in a row hold more than one of them has room for, or the second would not have been begun.
        let wire_bytes = 2 * self.max_bits.div_ceil(8) + PACKET_BYTES;
        self.ordered = if wire_bytes <= budget_bytes as u64 { self.due.len() } else { 0 };
    }

    /// The channel whose turn it is.
    #[inline]
    pub(crate) fn current(&mut self) -> Option<u32> {
        if self.cursor == self.ordered && self.ordered < self.due.len() {
            self.order_more();
        }
        self.due.get(self.cursor).map(|due| due.channel)
    }

    #[inline]
    pub(crate) fn advance(&mut self) {
        self.cursor += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cursor >= self.due.len()
    }

    fn order_more(&mut self) {
        let rest = &mut self.due[self.ordered..];
        let part = self.ordered.max(FIRST_PART).min(rest.len());
        if part < rest.len() {
            rest.select_nth_unstable_by(part, most_urgent_first);
        }
        rest[..part].sort_unstable_by(most_urgent_first);
        self.ordered += part;
    }
}

/// Of the same urgency, lower numbers go first, so that runs can be repeated.
fn most_urgent_first(a: &Due, b: &Due) -> std::cmp::Ordering {
    b.priority.total_cmp(&a.priority).then(a.channel.cmp(&b.channel))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which channels are written.
    fn told(count: u32, budget_bytes: usize) -> Vec<u32> {
        let mut list = DueList::default();
        // 7 and 1,009 have no common divisor: every priority is there once, in no order.
        (0..count).for_each(|channel| list.push(channel, (channel * 7 % 1_009) as f32, 80));
        list.order(budget_bytes);
        std::iter::from_fn(|| list.current().inspect(|_| list.advance())).collect()
    }

    #[test]
    fn all_are_told_of_the_most_urgent_first_if_there_is_not_room_for_all() {
        for count in [0, 1, 63, 64, 65, 500, 1_009] {
            let mut expected: Vec<u32> = (0..count).collect();
            expected.sort_by_key(|channel| std::cmp::Reverse(channel * 7 % 1_009));
            assert_eq!(told(count, 1_000), expected, "{count}");
        }
    }

    #[test]
    fn what_surely_fits_is_told_of_as_it_comes() {
        assert_eq!(told(100, 2 * 1_000 + 1_200), (0..100).collect::<Vec<_>>());
        assert_ne!(told(100, 2 * 1_000 + 1_199), (0..100).collect::<Vec<_>>());
    }
}
