//! A connection's own copy of what it was sent, and how it is compared with what there is: the way of the legacy models.

use throng::Tick;
use throng::schema::{FieldMask, Kind};

use crate::arena::Arena;
use crate::link::{Channel, Link};
use crate::world::World;

/// The values sent last, by channel number.
#[derive(Debug, Default)]
pub struct Shadows {
    /// By kind.
    arenas: Vec<Arena>,
    /// By channel number.
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    row: Option<u32>,
    /// Everything that the game touched up to this tick has been compared.
    compared: Option<Tick>,
    /// Changes that the comparison has found and that are not sent yet.
    found: FieldMask,
}

/// How changes are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// Every field of every object considered is compared.
    Poll,
    /// Only objects that the game has marked since they were last compared.
    Push,
}

impl Shadows {
    /// The fields of a channel that have to be sent.
    pub(crate) fn pending(&mut self, world: &World, link: &Link, channel: u32, detection: Detection) -> FieldMask {
        let state = link.channel(channel);
        let object = state.id.index;
        let visible = world.visible(object, state.is_owner);
        let kind = world.kind(object);
        let place = self.row(world, channel, state);
        let is_clean = place.compared.is_some_and(|compared| !world.marked(object).is_newer_than(compared));
        if detection == Detection::Poll || !is_clean {
            let row = place.row.expect("a row was just taken");
            let shadow = self.arenas[usize::from(state.kind.0)].values(kind, row);
            let found = kind.compare(shadow, world.values(object)) & !kind.initial_only_mask();
            let place = &mut self.rows[channel as usize];
            (place.found, place.compared) = (found, Some(world.now()));
        }
        (self.rows[channel as usize].found | state.resend) & visible
    }

    /// Whether everything that the game has marked of an object was compared and sent.
    pub(crate) fn is_clean(&self, world: &World, object: u32, channel: u32) -> bool {
        self.rows.get(channel as usize).is_some_and(|place| {
            place.found == 0 && place.compared.is_some_and(|compared| !world.marked(object).is_newer_than(compared))
        })
    }

    /// The fields of `mask` have been sent as they are.
    pub(crate) fn sent(&mut self, world: &World, link: &Link, channel: u32, mask: FieldMask) {
        let state = link.channel(channel);
        let kind = world.kind(state.id.index);
        let place = &mut self.rows[channel as usize];
        place.found &= !mask;
        if let Some(row) = place.row {
            let to = self.arenas[usize::from(state.kind.0)].values_mut(kind, row);
            kind.copy(mask, world.values(state.id.index), to);
        }
    }

    /// The channel has ended.
    pub(crate) fn freed(&mut self, channel: u32, state: &Channel) {
        if let Some(place) = self.rows.get_mut(channel as usize)
            && let Some(row) = std::mem::take(place).row
        {
            self.arenas[usize::from(state.kind.0)].free_row(row);
        }
    }

    /// The channel's row, taken if it has none.
    fn row(&mut self, world: &World, channel: u32, state: &Channel) -> &Row {
        if self.rows.len() <= channel as usize {
            self.rows.resize(channel as usize + 1, Row::default());
        }
        if self.rows[channel as usize].row.is_none() {
            let kinds: &[Kind] = world.schema().kinds();
            if self.arenas.is_empty() {
                self.arenas = kinds.iter().map(Arena::new).collect();
            }
            let row = self.arenas[usize::from(state.kind.0)].take_row(&kinds[usize::from(state.kind.0)]);
            self.rows[channel as usize] = Row { row: Some(row), ..Row::default() };
        }
        &self.rows[channel as usize]
    }
}
