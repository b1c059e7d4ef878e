use std::fmt;

/// The audience of a field, and when it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Everybody who may see the object.
    #[default]
    Public,
    /// Only the connection that owns the object.
    OwnerOnly,
    /// Everybody who may see the object; the owner, who predicts the value itself, passes over it.
    ///
    /// A saving and a convenience, no secret: the bytes are shared by all who see the object, so the owner's client is
    /// sent them too, and discards them. Costs what a public field costs.
    SkipOwner,
    /// Everybody who may see the object, except its owner, in whose packets the value never is.
    ///
    /// Costs a channel for each object, and a subscription for each pair of an object and a viewer: for secrets that few
    /// objects have.
    HideFromOwner,
    /// Everybody who may see the object, once: when the object is introduced. Later changes stay on the server.
    InitialOnly,
    /// Everybody who may see the object from afar, in place of the public fields: mostly the copy of a public field with
    /// larger steps.
    Far,
}

impl Condition {
    /// The facet, and with it the audience, to which a field of this condition belongs.
    pub const fn facet(self) -> Facet {
        match self {
            Condition::Public | Condition::SkipOwner | Condition::InitialOnly => Facet::Public,
            Condition::OwnerOnly => Facet::Owner,
            Condition::HideFromOwner => Facet::Others,
            Condition::Far => Facet::Far,
        }
    }

    /// The word of the attribute that chooses this condition; part of the schema's hash.
    pub const fn name(self) -> &'static str {
        match self {
            Condition::Public => "public",
            Condition::OwnerOnly => "owner_only",
            Condition::SkipOwner => "skip_owner",
            Condition::HideFromOwner => "hide_from_owner",
            Condition::InitialOnly => "initial_only",
            Condition::Far => "far",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The part of an object that is meant for one audience. Every field is in exactly one facet.
///
/// Facets never share a buffer: each is sent on a way of its own, so what is not meant for an audience is not in any
/// byte that the audience is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Facet {
    /// [`Condition::Public`], [`Condition::SkipOwner`] and [`Condition::InitialOnly`] fields.
    Public = 0,
    /// [`Condition::OwnerOnly`] fields.
    Owner = 1,
    /// [`Condition::HideFromOwner`] fields.
    Others = 2,
    /// [`Condition::Far`] fields. They count for a client that is not sent the public ones.
    Far = 3,
}

impl Facet {
    /// All facets, in order of [`Facet::index`].
    pub const ALL: [Facet; 4] = [Facet::Public, Facet::Owner, Facet::Others, Facet::Far];

    /// The number of the facet, below `Facet::ALL.len()`.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}
