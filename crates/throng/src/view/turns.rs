//! The ticks in which clients are sent to, if these are not all: neighbours have the same ones.
//!
//! ```text
//! columns of cells   | 0 | 1 | 2 | 3 | 4 | 5 |      along x, in the grid whose nearest ring is sent most often
//! clients              9   7   8   8   9   7
//! sent to in         | even ticks | odd ticks |     half of the clients in each
//! ```
//! Clients that look from one cell in the same ticks are members of one shared view, and a cell that only clients of the even
//! ticks see often is encoded for these ticks alone. If each client had ticks of its own, all cells were needed in all ticks.
//!
//! The borders are places. A place is a column, and in it a number that each client has: so a border can also divide clients who
//! all stand in one column. A *census* counts the clients of all columns, a few clients in each tick. When it is complete, and
//! the ticks have become uneven, the borders move. A client on the other side then gets other ticks. A client that looks from several
//! places is where its first viewpoint is. One without a viewpoint, or with an interval of its own, keeps the ticks that it has.

use throng_wire::Tick;

/// A census takes so many ticks.
const CENSUS_TICKS: usize = 64;

/// The borders move when some ticks have more clients than the mean by this part of it, and by this number.
const UNEVEN_PART: u64 = 8;
const UNEVEN_CLIENTS: u64 = 4;

/// With fewer clients for each tick there are no borders yet: neighbours would save little, and one more or less is much.
const FEW_CLIENTS: u64 = 8;

/// A border lies between two columns if the ticks on either side then have more or fewer clients by at most this part of the mean.
const UNDIVIDED_PART: u64 = 16;

/// The place of a client, or of a border: the column, and the client's number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    column: i32,
    number: u32,
}

/// The ticks of all clients.
pub(crate) struct SendTurns {
    /// Ticks between two sends to a client; at least 1.
    interval: u16,
    /// The length of a cell along x, if clients can be told apart by it.
    column_m: Option<f64>,
    /// Clients by offset: the tick of the interval in which they are sent to.
    clients: Vec<u32>,
    /// The borders between the offsets, in order. None before a census has counted more than a few clients.
    borders: Vec<Place>,
    /// The clients that this census has counted, by column, in order.
    census: Vec<(i32, u32)>,
    /// The first that it has not counted.
    next: usize,
}

impl SendTurns {
    pub(crate) fn new(interval: u16, column_m: Option<f64>) -> SendTurns {
        let column_m = column_m.filter(|column_m| column_m.is_finite() && interval > 1);
        let clients = vec![0; interval.max(1).into()];
        SendTurns { interval: interval.max(1), column_m, clients, borders: Vec::new(), census: Vec::new(), next: 0 }
    }

    /// Ticks between two sends to a client.
    pub(crate) fn interval(&self) -> u16 {
        self.interval
    }

    /// Number of clients with ticks.
    pub(crate) fn client_count(&self) -> usize {
        self.clients.iter().map(|&count| count as usize).sum()
    }

    /// The offset that the fewest clients have, for another one.
    pub(crate) fn take(&mut self) -> u32 {
        let offset = (0..self.clients.len()).min_by_key(|&offset| self.clients[offset]).unwrap_or(0);
        self.clients[offset] += 1;
        offset as u32
    }

    pub(crate) fn give_back(&mut self, offset: u32) {
        self.clients[offset as usize] -= 1;
    }

    /// A client has another offset than before.
    pub(crate) fn note_moved(&mut self, from: u32, to: u32) {
        self.give_back(from);
        self.clients[to as usize] += 1;
    }

    /// The offset of the client with this index that looks from `x_m`, as soon as borders are known.
    pub(crate) fn offset_at(&self, index: u32, x_m: f64) -> Option<u32> {
        if self.borders.is_empty() {
            return None;
        }
        let place = self.place(index, x_m)?;
        Some(self.borders.partition_point(|border| *border <= place) as u32)
    }

    /// Whether a client may have this offset from `now` on. It is sent to in `now` then, so it has not waited for longer than
    /// the interval.
    pub(crate) fn may_begin(&self, offset: u32, now: Tick) -> bool {
        now.0 % u64::from(self.interval) == u64::from(offset)
    }

    fn place(&self, index: u32, x_m: f64) -> Option<Place> {
        // Beyond the range of an i32 it is the outermost column.
        let column = (x_m / self.column_m?).floor() as i32;
        // Fibonacci hashing (Knuth): clients who join one after the other get numbers that are far apart.
        Some(Place { column, number: index.wrapping_mul(0x9E37_79B9) })
    }

    /// The clients that this tick's part of the census counts, of `count` in all.
    pub(crate) fn begin_census(&mut self, count: usize) -> std::ops::Range<usize> {
        if self.column_m.is_none() {
            return 0..0;
        }
        if self.next >= count {
            self.end_census();
        }
        let first = self.next;
        self.next = count.min(first + count.div_ceil(CENSUS_TICKS));
        first..self.next
    }

    /// Counts a client.
    pub(crate) fn count(&mut self, x_m: f64) {
        if let Some(Place { column, .. }) = self.place(0, x_m) {
            match self.census.binary_search_by_key(&column, |&(column, _)| column) {
                Ok(at) => self.census[at].1 += 1,
                Err(at) => self.census.insert(at, (column, 1)),
            }
        }
    }

    /// Moves the borders if the ticks are uneven.
    fn end_census(&mut self) {
        let mut census = std::mem::take(&mut self.census);
        self.next = 0;
        let all: u64 = census.iter().map(|&(_, count)| u64::from(count)).sum();
        let most = self.loads(&census, all).max().unwrap_or(0);
        let mean = all / u64::from(self.interval);
        let are_due = match self.borders.is_empty() {
            true => mean >= FEW_CLIENTS,
            false => most > mean + (mean / UNEVEN_PART).max(UNEVEN_CLIENTS),
        };
        if are_due {
            let interval = self.interval;
            self.borders.clear();
            self.borders.extend((1..interval).map(|border| even_border(&census, all, (border, interval))));
        }
        // Its memory is used again.
        census.clear();
        self.census = census;
    }

    /// The clients of each offset by the borders as they are.
    fn loads(&self, census: &[(i32, u32)], all: u64) -> impl Iterator<Item = u64> {
        let before = |border: &Place| {
            let counted = census.iter().take_while(|(column, _)| *column <= border.column);
            counted.fold(0, |sum, &(column, count)| {
                let is_divided = column == border.column;
                sum + if is_divided { (u64::from(count) * u64::from(border.number)) >> 32 } else { count.into() }
            })
        };
        let ends = self.borders.iter().map(before).chain([all]);
        ends.scan(0, |begin, end| Some(end.saturating_sub(std::mem::replace(begin, end))))
    }
}

/// The border with `part` of `parts` of all clients before it.
fn even_border(census: &[(i32, u32)], all: u64, (part, parts): (u16, u16)) -> Place {
    let (wanted, slack) = (all * u64::from(part) / u64::from(parts), all / (u64::from(parts) * UNDIVIDED_PART));
    let mut before = 0;
    for &(column, count) in census {
        let count = u64::from(count);
        if before + count > wanted {
            let (first, rest) = (wanted - before, before + count - wanted);
            return match first.min(rest) {
                least if least > slack => Place { column, number: ((first << 32) / count) as u32 },
                least if least == first => Place { column, number: 0 },
                _ => Place { column: column.saturating_add(1), number: 0 },
            };
        }
        before += count;
    }
    Place { column: i32::MAX, number: u32::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients at these places, after a census.
    fn turns(interval: u16, at_m: &[f64]) -> SendTurns {
        let mut turns = SendTurns::new(interval, Some(10.0));
        count_all(&mut turns, at_m);
        turns
    }

    fn count_all(turns: &mut SendTurns, at_m: &[f64]) {
        for _ in 0..=CENSUS_TICKS {
            turns.begin_census(at_m.len()).for_each(|client| turns.count(at_m[client]));
        }
    }

    fn offsets(turns: &SendTurns, at_m: &[f64]) -> Vec<u32> {
        (0..).zip(at_m).map(|(index, &x_m)| turns.offset_at(index, x_m).expect("borders are known")).collect()
    }

    fn loads(turns: &SendTurns, at_m: &[f64]) -> Vec<usize> {
        let offsets = offsets(turns, at_m);
        (0..u32::from(turns.interval)).map(|offset| offsets.iter().filter(|&&of| of == offset).count()).collect()
    }

    #[test]
    fn neighbours_have_the_same_ticks_and_all_ticks_as_many_clients() {
        throng_seeds::for_seeds(30, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let interval = random.u16(2..=4);
            // A third of them stand on one spot.
            let spot = random.f64() * 300.0;
            let at_m: Vec<f64> =
                (0..2_000).map(|client| if client % 3 == 0 { spot } else { random.f64() * 300.0 - 100.0 }).collect();
            let turns = turns(interval, &at_m);
            let mean = at_m.len() / usize::from(interval);
            let loads = loads(&turns, &at_m);
            assert!(loads.iter().all(|&load| load.abs_diff(mean) <= mean / 7), "{loads:?}");
            // At most one column has clients of two offsets at each border.
            let offsets = offsets(&turns, &at_m);
            let mut columns: std::collections::BTreeMap<i64, Vec<u32>> = std::collections::BTreeMap::new();
            for (x_m, offset) in at_m.iter().zip(&offsets) {
                columns.entry((x_m / 10.0).floor() as i64).or_default().push(*offset);
            }
            let divided = columns.values().filter(|of| of.iter().any(|offset| *offset != of[0])).count();
            assert!(divided < usize::from(interval), "{divided} columns are divided");
        });
    }

    #[test]
    fn clients_on_one_spot_are_divided_by_their_numbers() {
        let at_m = vec![55.0; 1_000];
        let turns = turns(2, &at_m);
        assert!(loads(&turns, &at_m).iter().all(|load| (480..=520).contains(load)));
    }

    #[test]
    fn borders_rest_until_the_ticks_are_uneven() {
        let mut at_m: Vec<f64> = (0..1_000).map(|client| f64::from(client) / 10.0).collect();
        let mut turns = turns(2, &at_m);
        assert_eq!(turns.borders, [Place { column: 5, number: 0 }]);
        at_m[..50].fill(99.0);
        count_all(&mut turns, &at_m);
        assert_eq!(turns.borders, [Place { column: 5, number: 0 }], "450 and 550 are not uneven enough");
        at_m[..250].fill(99.0);
        count_all(&mut turns, &at_m);
        assert_ne!(turns.borders, [Place { column: 5, number: 0 }]);
        assert!(loads(&turns, &at_m).iter().all(|load| (460..=540).contains(load)), "{:?}", loads(&turns, &at_m));
    }

    #[test]
    fn places_without_bounds_have_an_offset_too() {
        let at_m = [f64::MIN, -1.0, 0.0, 1.0, f64::MAX, f64::NAN].repeat(9);
        let turns = turns(3, &at_m);
        assert!(offsets(&turns, &at_m).iter().all(|&offset| offset < 3));
        assert_eq!(SendTurns::new(1, Some(10.0)).begin_census(100), 0..0, "all clients are sent to in each tick");
        assert_eq!(SendTurns::new(2, Some(f64::INFINITY)).begin_census(100), 0..0, "there is one column");
    }

    #[test]
    fn nobody_waits_for_longer_than_the_interval_for_the_sake_of_other_ticks() {
        let turns = SendTurns::new(3, Some(10.0));
        for (from, to, wants_at) in (0..27).map(|case| (case / 9, case / 3 % 3, 30 + u64::from(case) % 3)) {
            let mut offset = from;
            let mut sent = Vec::new();
            for now in (20..40).map(Tick) {
                if now.0 >= wants_at && turns.may_begin(to, now) {
                    offset = to;
                }
                if now.0 % 3 == u64::from(offset) {
                    sent.push(now.0);
                }
            }
            assert!(sent.windows(2).all(|sent| sent[1] - sent[0] <= 3), "{from} to {to}: {sent:?}");
            assert_eq!(offset, to);
        }
    }
}
