//! Replication the old way, as an oracle: for each connection and each tick, from scratch, everything that differs from
//! what that connection was sent last. Nothing is shared, so nothing can be shared wrongly.
//!
//! ```text
//! message   count: u32, then for each   index: u32 | generation: 32 | kind: 16 | gone: 1
//!           if not gone:                seen: 64 (fields that the viewer may see) | mask: 64 | the fields of the mask
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use throng_schema::{FieldMask, Schema, Space, Values, ValuesMut};
use throng_wire::{BitReader, BitWriter, KindId, ObjectId, ReadError};

/// One object as one viewer may see it.
#[derive(Clone, Copy, Debug)]
pub struct NaiveSight<'a> {
    /// Which.
    pub id: ObjectId,
    /// Of which kind.
    pub kind: KindId,
    /// The fields that this viewer may see.
    pub visible: FieldMask,
    /// All values; those that are not visible are not looked at.
    pub values: Values<'a>,
}

/// One end's data about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaiveState {
    /// Its kind.
    pub kind: KindId,
    /// The fields that may be seen.
    pub visible: FieldMask,
    /// Words of all fields; 0 for fields that were not sent.
    pub words: Vec<u32>,
    /// Texts and byte strings of all fields.
    pub blobs: Vec<Vec<u8>>,
}

impl NaiveState {
    /// The values.
    pub fn values(&self) -> Values<'_> {
        Values { words: &self.words, blobs: &self.blobs }
    }

    fn empty(schema: &Schema, kind: KindId) -> NaiveState {
        let (words, blobs) = schema.kind(kind).empty_values();
        NaiveState { kind, visible: 0, words, blobs }
    }

    fn take(&mut self, schema: &Schema, mask: FieldMask, from: Values<'_>) {
        let to = ValuesMut { words: &mut self.words, blobs: &mut self.blobs };
        schema.kind(self.kind).copy(mask, from, to);
    }
}

/// The server's half for one connection: a copy of everything it was sent.
#[derive(Debug)]
pub struct NaiveSender {
    schema: Arc<Schema>,
    sent: BTreeMap<ObjectId, NaiveState>,
}

impl NaiveSender {
    /// A sender that has sent nothing.
    pub fn new(schema: Arc<Schema>) -> NaiveSender {
        NaiveSender { schema, sent: BTreeMap::new() }
    }

    /// Writes what differs from the last call. `sights` is everything that the viewer may see now.
    pub fn encode<'a>(&mut self, sights: impl IntoIterator<Item = NaiveSight<'a>>) -> Vec<u8> {
        let sights: BTreeMap<ObjectId, NaiveSight<'a>> = sights.into_iter().map(|sight| (sight.id, sight)).collect();
        let gone: Vec<ObjectId> = self.sent.keys().filter(|id| !sights.contains_key(id)).copied().collect();
        let mut bytes = Vec::new();
        let mut w = BitWriter::new(&mut bytes);
        w.write((gone.len() + sights.len()) as u64, 32);
        for id in gone {
            let state = self.sent.remove(&id).expect("just listed");
            write_head(id, state.kind, true, &mut w);
        }
        for (id, sight) in sights {
            let fresh = || NaiveState::empty(&self.schema, sight.kind);
            let state = self.sent.entry(id).or_insert_with(fresh);
            let kind = self.schema.kind(sight.kind);
            let new = sight.visible & !state.visible;
            let mask = (kind.compare(state.values(), sight.values) | new) & sight.visible;
            write_head(id, sight.kind, false, &mut w);
            w.write(sight.visible, 64);
            w.write(mask, 64);
            kind.encode(mask, sight.values, &Space::WORLD, &mut w);
            state.visible = sight.visible;
            state.take(&self.schema, mask, sight.values);
        }
        w.finish();
        bytes
    }
}

fn write_head(id: ObjectId, kind: KindId, gone: bool, w: &mut BitWriter<'_>) {
    w.write(u64::from(id.index), 32);
    w.write(u64::from(id.generation), 32);
    w.write(u64::from(kind.0), 16);
    w.write_bool(gone);
}

/// The client's half.
#[derive(Debug)]
pub struct NaiveReplica {
    schema: Arc<Schema>,
    objects: BTreeMap<ObjectId, NaiveState>,
}

impl NaiveReplica {
    /// A replica of nothing.
    pub fn new(schema: Arc<Schema>) -> NaiveReplica {
        NaiveReplica { schema, objects: BTreeMap::new() }
    }

    /// Everything that is there.
    pub fn objects(&self) -> &BTreeMap<ObjectId, NaiveState> {
        &self.objects
    }

    /// Applies what [`NaiveSender::encode`] wrote.
    ///
    /// # Errors
    /// If the bytes end early.
    ///
    /// # Panics
    /// If they hold anything that the sender does not write: it is no peer, but a part of the test.
    pub fn apply(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        let mut r = BitReader::new(bytes);
        for _ in 0..r.read(32)? {
            let id = ObjectId { index: r.read(32)? as u32, generation: r.read(32)? as u32 };
            let kind = KindId(r.read(16)? as u16);
            if r.read_bool()? {
                self.objects.remove(&id);
                continue;
            }
            let state = self.objects.entry(id).or_insert_with(|| NaiveState::empty(&self.schema, kind));
            state.visible = r.read(64)?;
            let mask = r.read(64)?;
            let values = ValuesMut { words: &mut state.words, blobs: &mut state.blobs };
            let decoded = self.schema.kind(kind).decode(mask, values, &Space::WORLD, &mut r);
            decoded.expect("the sender's fields are good");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use throng_schema::Replicate;

    use super::*;
    use crate::{Walker, schema};

    #[test]
    fn a_replica_follows_and_forgets() {
        let schema = schema();
        let kind = schema.kind_id::<Walker>().unwrap();
        let all = schema.kind(kind).all_mask();
        let (mut sender, mut replica) = (NaiveSender::new(schema.clone()), NaiveReplica::new(schema.clone()));
        let mut state = NaiveState::empty(&schema, kind);
        let id = ObjectId { index: 3, generation: 1 };
        for health in [5, 7] {
            let walker = Walker { health, name: "Ada".to_owned(), ..Walker::default() };
            walker.quantise(ValuesMut { words: &mut state.words, blobs: &mut state.blobs });
            let bytes = sender.encode([NaiveSight { id, kind, visible: all, values: state.values() }]);
            replica.apply(&bytes).unwrap();
            assert_eq!(replica.objects()[&id].values(), state.values());
        }
        replica.apply(&sender.encode([])).unwrap();
        assert!(replica.objects().is_empty());
    }
}
