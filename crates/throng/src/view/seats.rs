//! The views by connection. Nothing that the regular case needs lies behind a pointer: a client that has moved a little, and
//! sees the cells that it saw before, costs a look at its seat.
//!
//! ```text
//! seats   | calm, at (3.0, 4.1, 0.0) | calm, at .. | to be looked at | ..
//!               |                          |               |
//! views        View                       View            View            fetched only to be changed
//! ```

use throng_wire::ConnectionId;

use super::View;
use super::turns::SendTurns;

/// A box of viewpoints from which a client sees the same cells: the low corner belongs to it, the high one does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CalmBox {
    pub(super) low: [f64; 3],
    pub(super) high: [f64; 3],
}

impl CalmBox {
    /// Contains everything.
    pub(super) const ALL: CalmBox = CalmBox { low: [f64::NEG_INFINITY; 3], high: [f64::INFINITY; 3] };

    /// The part that is in both.
    pub(super) fn and(self, [low, high]: [[f64; 3]; 2]) -> CalmBox {
        CalmBox {
            low: std::array::from_fn(|axis| self.low[axis].max(low[axis])),
            high: std::array::from_fn(|axis| self.high[axis].min(high[axis])),
        }
    }

    /// Where a client stands along x that looks from this box: in the middle of its cell, wherever in the box it is. Otherwise, or
    /// if the box has no ends, at its viewpoint.
    pub(super) fn middle_x(calm: Option<&CalmBox>, viewpoint: [f64; 3]) -> f64 {
        let middle = calm.map(|calm| (calm.low[0] + calm.high[0]) / 2.0);
        middle.filter(|middle| middle.is_finite()).unwrap_or(viewpoint[0])
    }

    fn contains(&self, position: [f64; 3]) -> bool {
        (0..3).all(|axis| self.low[axis] <= position[axis] && position[axis] < self.high[axis])
    }
}

/// The place of one connection.
#[derive(Default)]
struct Seat {
    view: Option<Box<View>>,
    /// Of the view.
    connection: Option<ConnectionId>,
    /// As long as the client looks from this box, and from nowhere else, its view need not know from where: the viewpoint is
    /// kept here, and the view's own is older.
    calm: Option<(CalmBox, [f64; 3])>,
    /// The offset of the view at the last look: see [`SendTurns`].
    offset: Option<u32>,
    /// The view has changed since the last look.
    is_changed: bool,
}

impl Seat {
    fn change(&mut self) -> Option<&mut View> {
        let view = self.view.as_deref_mut()?;
        if let Some((_, viewpoint)) = self.calm.take() {
            view.viewpoint = Some(viewpoint);
        }
        self.is_changed = true;
        Some(view)
    }

    fn look(&mut self, index: u32, each: impl FnOnce(u32, &mut View) -> (bool, Option<CalmBox>)) {
        let Some(view) = self.view.as_deref_mut() else { return };
        if let Some((_, viewpoint)) = self.calm {
            view.viewpoint = Some(viewpoint);
        }
        let (looks_again, calm) = each(index, view);
        (self.is_changed, self.offset) = (looks_again, view.send_offset);
        if self.calm.is_none() {
            self.calm = calm.zip(view.viewpoint);
        }
    }
}

/// The seats of some connections beside each other.
pub(crate) struct SeatRow<'a> {
    first: usize,
    seats: &'a mut [Seat],
}

impl SeatRow<'_> {
    /// Calls `each` for the views that have changed since the last call, or for all. It returns whether the view has to be
    /// looked at again next time, and from where its client sees the same.
    pub(crate) fn look(self, at_all: bool, mut each: impl FnMut(u32, &mut View) -> (bool, Option<CalmBox>)) {
        for (place, seat) in self.seats.iter_mut().enumerate().filter(|(_, seat)| seat.is_changed || at_all) {
            seat.look((self.first + place) as u32, &mut each);
        }
    }
}

/// The views of all connections, by index.
#[derive(Default)]
pub(crate) struct Seats {
    seats: Vec<Seat>,
}

impl Seats {
    /// A new connection has the seat.
    pub(crate) fn open(&mut self, index: usize, view: View) {
        if self.seats.len() <= index {
            self.seats.resize_with(index + 1, Seat::default);
        }
        let connection = Some(view.connection);
        self.seats[index] = Seat { view: Some(Box::new(view)), connection, calm: None, offset: None, is_changed: true };
    }

    /// The connection has ended. Returns its view.
    pub(crate) fn close(&mut self, id: ConnectionId) -> Option<Box<View>> {
        std::mem::take(self.seat_mut(id)?).view
    }

    fn seat(&self, id: ConnectionId) -> Option<&Seat> {
        self.seats.get(id.index as usize).filter(|seat| seat.connection == Some(id))
    }

    fn seat_mut(&mut self, id: ConnectionId) -> Option<&mut Seat> {
        self.seats.get_mut(id.index as usize).filter(|seat| seat.connection == Some(id))
    }

    /// The view of a connection. Its viewpoint may be old.
    pub(crate) fn view(&self, id: ConnectionId) -> Option<&View> {
        self.seat(id)?.view.as_deref()
    }

    /// The view of a connection, for a change: the next [`look`](Self::look) looks at it.
    pub(crate) fn change(&mut self, id: ConnectionId) -> Option<&mut View> {
        self.seat_mut(id)?.change()
    }

    /// The client looks from this position, and from no other.
    pub(crate) fn set_viewpoint(&mut self, id: ConnectionId, position: [f64; 3]) {
        let Some(seat) = self.seat_mut(id) else { return };
        match &mut seat.calm {
            Some((calm, viewpoint)) if calm.contains(position) => *viewpoint = position,
            _ => {
                if let Some(view) = seat.change() {
                    view.set_viewpoint(position);
                }
            }
        }
    }

    /// Whether the client looks from within `radius_m` of a position.
    pub(crate) fn looks_from_within(&self, id: ConnectionId, place: [f64; 3], radius_m: f64) -> bool {
        let Some(seat) = self.seat(id) else { return false };
        match seat.calm {
            Some((_, viewpoint)) => super::is_within(viewpoint, place, radius_m),
            None => seat.view.as_deref().is_some_and(|view| view.looks_from_within(place, radius_m)),
        }
    }

    /// Counts the clients whose turn it is to be counted. Those that are to have other ticks are looked at.
    pub(crate) fn take_census(&mut self, turns: &mut SendTurns) {
        for index in turns.begin_census(self.seats.len()) {
            let seat = &mut self.seats[index];
            let calm = seat.calm.as_ref();
            let Some(viewpoint) = calm.map(|(_, viewpoint)| *viewpoint).or_else(|| seat.view.as_deref()?.viewpoint)
            else {
                continue;
            };
            let x_m = CalmBox::middle_x(calm.map(|(calm, _)| calm), viewpoint);
            turns.count(x_m);
            let wanted = turns.offset_at(index as u32, x_m);
            if wanted.is_some() && seat.offset.is_some() && wanted != seat.offset {
                seat.change();
            }
        }
    }

    /// The seats in rows of `len`.
    pub(crate) fn rows(&mut self, len: usize) -> impl Iterator<Item = SeatRow<'_>> {
        let rows = self.seats.chunks_mut(len).enumerate();
        rows.map(move |(row, seats)| SeatRow { first: row * len, seats })
    }

    /// Looks at one view, as [`SeatRow::look`] does.
    pub(crate) fn look_at(&mut self, index: u32, each: impl FnOnce(u32, &mut View) -> (bool, Option<CalmBox>)) {
        if let Some(seat) = self.seats.get_mut(index as usize) {
            seat.look(index, each);
        }
    }

    /// The connections whose views have changed since the last look.
    #[cfg(test)]
    pub(crate) fn changed(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.seats.iter().filter(|seat| seat.is_changed).filter_map(|seat| seat.connection)
    }

    /// Views that are there.
    pub(crate) fn len(&self) -> usize {
        self.seats.iter().filter(|seat| seat.view.is_some()).count()
    }
}
