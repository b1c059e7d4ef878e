//! The first objects that differed from the truth, with all that is known of them: numbers alone explain nothing.

use throng::{ObjectId, ObjectView};
use throng_crowd::copies::Original;
use throng_crowd::truth::TrueObject;
use throng_summary::Difference;

use super::past::Past;
use super::translation::{Through, Translation};
use super::{Eyes, position_of};

/// So many of a process are described, in play and at rest each.
pub(super) const DESCRIBED: usize = 10;

/// Why an object counts as different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    /// The edge has told nobody where it comes from.
    Unknown,
    /// Its server does not have it.
    NotThere,
    /// Its server has been killed, and everything of it is to be gone.
    Gone,
    /// It is the client's on one side only.
    Owner,
    /// Its values are others.
    Values,
    /// The bot does not have it, though it is near.
    Lacking,
    /// No server has the character of the bot.
    NoCharacter,
}

impl Because {
    fn words(self) -> &'static str {
        match self {
            Because::Unknown => "the edge has not told where it is from",
            Because::NotThere => "its server does not have it",
            Because::Gone => "its server was killed",
            Because::Owner => "another owner",
            Because::Values => "other values",
            Because::Lacking => "the client lacks it",
            Because::NoCharacter => "no server has the client's character",
        }
    }
}

/// A part of the run in which objects are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    InPlay,
    AtRest,
}

/// The first differences, of each part so many.
#[derive(Debug, Default)]
pub(super) struct Differences {
    in_play: Vec<Difference>,
    at_rest: Vec<Difference>,
}

impl Differences {
    /// Whether another one of this part is described.
    pub(super) fn has_room(&self, when: When) -> bool {
        self.of(when).len() < DESCRIBED
    }

    pub(super) fn note(&mut self, when: When, difference: Difference) {
        if self.has_room(when) {
            match when {
                When::InPlay => self.in_play.push(difference),
                When::AtRest => self.at_rest.push(difference),
            }
        }
    }

    pub(super) fn forget_play(&mut self) {
        self.in_play.clear();
    }

    /// All of them, those in play first.
    pub(super) fn all(&self) -> Vec<Difference> {
        [&self.in_play[..], &self.at_rest].concat()
    }

    fn of(&self, when: When) -> &[Difference] {
        match when {
            When::InPlay => &self.in_play,
            When::AtRest => &self.at_rest,
        }
    }
}

/// A difference of this client, without an object yet.
pub(super) fn of_client<D>(when: When, because: Because, eyes: &Eyes<'_, D>) -> Difference {
    Difference {
        when: match when {
            When::InPlay => "in play",
            When::AtRest => "at rest",
        }
        .to_owned(),
        because: because.words().to_owned(),
        client: eyes.connection,
        edge: eyes.edge.map(number),
        ..Difference::default()
    }
}

/// Adds what the client has.
pub(super) fn add_seen(difference: &mut Difference, object: &ObjectView<'_>) {
    difference.object = Some(name(object.id));
    difference.seen_tick = Some(object.newest_tick.0);
    difference.seen_m = Some(position_of(object));
    difference.seen_words = object.values.words.to_vec();
}

/// Adds what the server has: the object of its newest snapshot that has one.
pub(super) fn add_original(
    difference: &mut Difference,
    (original, through): (Original, Through),
    pasts: &[Past],
    translation: &Translation,
) {
    let Original { origin, id, .. } = original;
    difference.server = Some(number(origin));
    difference.object_there = Some(name(id));
    difference.seen_tick_there = difference
        .seen_tick
        .and_then(|seen| translation.true_tick(through, origin, throng::Tick(seen)))
        .map(|tick| tick.0);
    let Some(past) = pasts.get(origin) else { return };
    difference.newest_tick_there = Some(past.snapshot.tick.0);
    difference.server_is_gone = past.is_gone;
    if let Some((truth, tick)) = past.newest_of(id) {
        add_truth(difference, truth, tick.0);
    }
}

pub(super) fn add_truth(difference: &mut Difference, truth: &TrueObject, tick: u64) {
    difference.true_tick = Some(tick);
    difference.true_m = Some(truth.position_m());
    difference.true_words = truth.words.to_vec();
    difference.true_owner = truth.owner;
}

/// Parts of a run are counted from 1.
pub(super) fn number(place: usize) -> u32 {
    place as u32 + 1
}

pub(super) fn name(id: ObjectId) -> String {
    format!("{}.{}", id.index, id.generation)
}
