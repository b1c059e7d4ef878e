use super::Element;
use crate::{Quantiser, ReplicateEnum};
use throng_wire::ObjectId;

/// `bool`: 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truth;

/// An enum without data: the number of the variant, in order of declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumeration;

/// A reference to an object: the words are index and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference;

impl Truth {
    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Bool
    }
}

impl Reference {
    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::ObjectRef
    }
}

impl Element<bool> for Truth {
    #[inline]
    fn store(&self, value: &bool, words: &mut [u32]) {
        words[0] = u32::from(*value);
    }
    #[inline]
    fn load(&self, words: &[u32]) -> bool {
        words[0] != 0
    }
}

impl<E: ReplicateEnum> Element<E> for Enumeration {
    #[inline]
    fn store(&self, value: &E, words: &mut [u32]) {
        words[0] = value.code();
    }
    #[inline]
    fn load(&self, words: &[u32]) -> E {
        E::from_code(words[0])
    }
}

impl Element<ObjectId> for Reference {
    #[inline]
    fn store(&self, value: &ObjectId, words: &mut [u32]) {
        // The slot that only the missing object has makes any id the missing one.
        let id = if value.index == ObjectId::NONE.index { ObjectId::NONE } else { *value };
        words[..2].copy_from_slice(&[id.index, id.generation]);
    }
    #[inline]
    fn load(&self, words: &[u32]) -> ObjectId {
        ObjectId { index: words[0], generation: words[1] }
    }
}
