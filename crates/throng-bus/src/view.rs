//! A member's knowledge of a watch, so that it can tell removals that happened while the connection was lost.

use std::collections::BTreeMap;

use crate::store::Change;
use crate::{Pattern, Revision, Subject};

#[derive(Debug)]
pub(crate) struct View {
    pub(crate) pattern: Pattern,
    known: BTreeMap<Subject, Known>,
    /// The number of the listing under way or of the last one. Entries of older ones are ignored.
    listing: u32,
    newest: Revision,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    revision: Revision,
    listing: u32,
}

impl View {
    pub(crate) fn new(pattern: Pattern) -> View {
        View { pattern, known: BTreeMap::new(), listing: 0, newest: Revision(0) }
    }

    /// Begins the listing with the next number, and returns it. All watches have their numbers from one counter: what is on its way for
    /// a watch that has ended is not taken for that of a later one.
    pub(crate) fn begin(&mut self, newest: &mut u32) -> u32 {
        *newest = newest.wrapping_add(1);
        self.listing = *newest;
        self.listing
    }

    pub(crate) fn is_current(&self, listing: u32) -> bool {
        self.listing == listing
    }

    /// Takes an entry or a removal. Whether it is new; `Err` if there are more keys than `most`.
    pub(crate) fn handle(&mut self, change: &Change, most: usize) -> Result<bool, ()> {
        self.newest = self.newest.max(change.revision);
        let listing = self.listing;
        let Some(known) = self.known.get_mut(&change.key) else {
            if change.value.is_none() {
                return Ok(false);
            }
            if self.known.len() >= most {
                return Err(());
            }
            self.known.insert(change.key.clone(), Known { revision: change.revision, listing });
            return Ok(true);
        };
        // In a new listing another revision is news, also a lower one: the store may have been made anew.
        let is_first = known.listing != listing;
        let is_new = if is_first { change.revision != known.revision } else { change.revision > known.revision };
        if change.value.is_none() {
            if is_new {
                self.known.remove(&change.key);
            }
        } else {
            let revision = if is_new { change.revision } else { known.revision };
            *known = Known { revision, listing };
        }
        Ok(is_new)
    }

    /// The listing is complete: keys that it did not name are gone.
    pub(crate) fn listed(&mut self) -> Vec<Change> {
        let (listing, revision) = (self.listing, self.newest);
        let is_gone = |known: &Known| known.listing != listing;
        let gone: Vec<Subject> =
            self.known.iter().filter(|(_, known)| is_gone(known)).map(|(key, _)| key.clone()).collect();
        self.known.retain(|_, known| !is_gone(known));
        gone.into_iter().map(|key| Change { key, revision, value: None }).collect()
    }
}
