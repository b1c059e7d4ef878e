use crate::hash::schema_hash;
use crate::{Kind, MAX_KINDS, Replicate, SchemaError, Summary};
use rustc_hash::FxHashMap;
use std::any::TypeId;
use std::collections::HashSet;
use throng_wire::KindId;

/// All kinds that a server and its clients exchange. Both ends build the same one.
///
/// Kinds are numbered in the order in which they are added.
#[derive(Clone, Debug)]
pub struct Schema {
    kinds: Vec<Kind>,
    ids: FxHashMap<TypeId, KindId>,
    hash: u64,
}

impl Schema {
    /// A schema without kinds, to be filled.
    pub fn builder() -> SchemaBuilder {
        SchemaBuilder { kinds: Vec::new(), codes: String::new() }
    }

    /// A kind of this schema.
    ///
    /// # Panics
    /// If the id is not one of this schema. Ids that come from a peer go through [`Schema::get`].
    #[inline]
    pub fn kind(&self, id: KindId) -> &Kind {
        &self.kinds[usize::from(id.0)]
    }

    /// A kind, if the schema has one of this id.
    #[inline]
    pub fn get(&self, id: KindId) -> Option<&Kind> {
        self.kinds.get(usize::from(id.0))
    }

    /// The id of a type, if the schema has it.
    #[inline]
    pub fn kind_id<T: Replicate>(&self) -> Option<KindId> {
        self.ids.get(&TypeId::of::<T>()).copied()
    }

    /// All kinds, in order of their ids.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Hash of all kinds, their names and their order. Two ends with the same hash understand each other.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The data that a peer needs to name the kinds that differ.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.kinds)
    }

    /// How this schema differs from that of a peer; empty exactly when the hashes agree (but for accidents of the
    /// hash). At most one entry for each kind of either side.
    pub fn differences(&self, peer: &Summary) -> Vec<crate::KindDifference> {
        self.summary().differences(peer)
    }
}

/// Collects the kinds of a [`Schema`].
#[derive(Debug)]
pub struct SchemaBuilder {
    kinds: Vec<(TypeId, Kind)>,
    codes: String,
}

impl SchemaBuilder {
    /// Adds a kind. Its id is the number of kinds added before it.
    #[must_use]
    pub fn kind<T: Replicate>(mut self) -> SchemaBuilder {
        self.kinds.push((TypeId::of::<T>(), T::kind()));
        self
    }

    /// Adds code tables for the kinds, which make common values short: see [`CodeCounts`](crate::CodeCounts), which learns
    /// them and writes the text. They are part of the schema's hash, so both ends have to have the same ones.
    #[must_use]
    pub fn codes(mut self, text: &str) -> SchemaBuilder {
        self.codes.push_str(text);
        self.codes.push('\n');
        self
    }

    /// Ends the schema.
    ///
    /// # Errors
    /// If there are more than [`MAX_KINDS`] kinds, a type was added twice, two kinds have the same name, or the text of the
    /// code tables is wrong.
    pub fn build(self) -> Result<Schema, SchemaError> {
        if self.kinds.len() > MAX_KINDS {
            return Err(SchemaError::TooManyKinds);
        }
        let mut ids = FxHashMap::default();
        let mut names = HashSet::new();
        for (index, (type_id, kind)) in self.kinds.iter().enumerate() {
            if ids.insert(*type_id, KindId(index as u16)).is_some() {
                return Err(SchemaError::DuplicateType { kind: kind.name.to_owned() });
            }
            if !names.insert(kind.name) {
                return Err(SchemaError::DuplicateName { kind: kind.name.to_owned() });
            }
        }
        let mut kinds: Vec<Kind> = self.kinds.into_iter().map(|(_, kind)| kind).collect();
        crate::codes::apply(&self.codes, &mut kinds)?;
        Ok(Schema { hash: schema_hash(&kinds), kinds, ids })
    }
}
