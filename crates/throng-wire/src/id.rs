use std::fmt;

/// The network id of a replicated object: a slot and how often the slot has been used.
///
/// An id is not handed out twice within 2^32 uses of its slot, and the slot that rested longest is used first. So an id
/// that game code or a field of an object keeps after the object's end finds nothing instead of a stranger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Dense slot number, shared by all kinds.
    pub index: u32,
    /// Use count of the slot, wrapping.
    pub generation: u32,
}

impl ObjectId {
    /// The id that no object has.
    pub const NONE: ObjectId = ObjectId { index: u32::MAX, generation: u32::MAX };

    /// Whether this is [`ObjectId::NONE`].
    pub fn is_none(self) -> bool {
        self == ObjectId::NONE
    }
}

impl Default for ObjectId {
    /// [`ObjectId::NONE`].
    fn default() -> ObjectId {
        ObjectId::NONE
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() { f.write_str("#none") } else { write!(f, "#{}.{}", self.index, self.generation) }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The number of a kind within a schema, in order of registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindId(pub u16);

/// A connection as the server names it: a slot and how often the slot has been used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// Dense slot number, below the server's connection limit.
    pub index: u32,
    /// Use count of the slot, wrapping.
    pub generation: u32,
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.index, self.generation)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
