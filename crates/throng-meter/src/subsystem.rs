//! The parts of a frame, and their names.

use thiserror::Error;

/// Most subsystems that a table holds, those of this crate included.
pub const MAX_SUBSYSTEMS: usize = 64;

/// The longest name of a subsystem, in bytes.
pub const MAX_NAME_BYTES: usize = 32;

/// A part of the frame: a number that a table of [`Subsystems`] gives a name.
///
/// The set is open. The constants are in every table; a game adds its own with [`Subsystems::add`]. A number says
/// nothing in a table that did not give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subsystem(u8);

macro_rules! built_in {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        built_in!(@number 0u8; $($(#[$doc])* $constant)*);

        /// The names of the constants, by number.
        const BUILT_IN: &[&str] = &[$($name),*];
    };
    (@number $number:expr; $(#[$doc:meta])* $constant:ident $($rest:tt)*) => {
        impl Subsystem {
            $(#[$doc])*
            pub const $constant: Subsystem = Subsystem($number);
        }
        built_in!(@number $number + 1; $($rest)*);
    };
    (@number $number:expr;) => {};
}

built_in! {
    /// Time of no other subsystem.
    OTHER = "other";
    /// Stage of a server: taking datagrams from the kernel.
    RECEIVE = "receive";
    /// Stage of a server: finding the connections of received datagrams, and decrypting them.
    OPEN = "open";
    /// Stage of a server: what received packets mean: acknowledgements, delivery records, inputs, messages; new and
    /// ended connections.
    SETTLE = "settle";
    /// Stage of a server: the game's own code.
    SIMULATE = "simulate";
    /// Stage of a server: working out who subscribes to what.
    INTEREST = "interest";
    /// Stage of a server: quantising touched objects and comparing them with their last state.
    QUANTISE = "quantise";
    /// Stage of a server: deciding which updates are due, and which frames they need.
    PLAN = "plan";
    /// Stage of a server: encoding the frames of channels.
    ENCODE = "encode";
    /// Stage of a server: copying segments of frames into the packets of connections.
    WRITE = "write";
    /// Stage of a server: encrypting packets.
    SEAL = "seal";
    /// Stage of a server: handing packets to the kernel.
    SEND = "send";
    /// Part of a game: what clients are told, from touched objects to packets.
    REPLICATION = "replication";
    /// Part of a game: who may see whom.
    FOG_OF_WAR = "fog_of_war";
    /// Part of a game: taking datagrams, decrypting, encrypting, sending.
    NETWORK = "network";
    /// Part of a game: poses.
    ANIMATION = "animation";
    /// Part of a game: rules, phases, objectives, scores.
    GAMEPLAY = "gameplay";
    /// Part of a game: where characters walk.
    MOVEMENT = "movement";
    /// Part of a game: weapons and other things that a character holds.
    EQUIPPABLE = "equippable";
    /// Part of a game: what belongs to one character: health, effects, abilities.
    CHARACTER = "character";
    /// Part of a game: collisions, rays, moving parts of the world.
    PHYSICS = "physics";
    /// Part of a game: perception, decisions and paths of computer-controlled players.
    AI = "ai";
}

impl Subsystem {
    /// The stages of a server's tick, in about their order; [`OTHER`](Subsystem::OTHER) last. Their times add up to the
    /// tick of a `throng` server.
    pub const STAGES: [Subsystem; 12] = [
        Subsystem::RECEIVE,
        Subsystem::OPEN,
        Subsystem::SETTLE,
        Subsystem::SIMULATE,
        Subsystem::INTEREST,
        Subsystem::QUANTISE,
        Subsystem::PLAN,
        Subsystem::ENCODE,
        Subsystem::WRITE,
        Subsystem::SEAL,
        Subsystem::SEND,
        Subsystem::OTHER,
    ];

    /// The name of a constant; `unknown` for a game's own, whose name is in its table.
    pub fn built_in_name(self) -> &'static str {
        BUILT_IN.get(self.index()).unwrap_or(&"unknown")
    }

    /// Its index in the arrays of a record: less than [`MAX_SUBSYSTEMS`].
    #[inline]
    pub const fn index(self) -> usize {
        // The remainder changes nothing, and spares every use a check of bounds.
        self.0 as usize % MAX_SUBSYSTEMS
    }
}

/// The names of subsystems: those of this crate, and those that a game adds. Made once at the start.
///
/// ```
/// use throng_meter::{Subsystem, Subsystems};
///
/// let mut subsystems = Subsystems::new();
/// let bullets = subsystems.add("bullets")?;
/// assert_eq!(subsystems.name(bullets), "bullets");
/// assert_eq!(subsystems.find("fog_of_war"), Some(Subsystem::FOG_OF_WAR));
/// # Ok::<(), throng_meter::SubsystemError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystems {
    names: Vec<String>,
}

impl Subsystems {
    /// The constants of [`Subsystem`].
    pub fn new() -> Subsystems {
        Subsystems { names: BUILT_IN.iter().map(|&name| name.to_owned()).collect() }
    }

    /// Adds a subsystem of the game. Its name is also a label of metrics, a key of budget files and a column value: lower-case
    /// letters, digits and `_`, a letter first.
    ///
    /// # Errors
    /// The name has another form or is in use, or the table is full. All three are mistakes of the program.
    pub fn add(&mut self, name: &str) -> Result<Subsystem, SubsystemError> {
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.len() <= MAX_NAME_BYTES
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_name {
            return Err(SubsystemError::Name { name: name.to_owned() });
        }
        if self.find(name).is_some() {
            return Err(SubsystemError::Taken { name: name.to_owned() });
        }
        if self.names.len() == MAX_SUBSYSTEMS {
            return Err(SubsystemError::Full { name: name.to_owned() });
        }
        self.names.push(name.to_owned());
        Ok(Subsystem((self.names.len() - 1) as u8))
    }

    /// The name of a subsystem; `unknown` for one of another table.
    pub fn name(&self, subsystem: Subsystem) -> &str {
        self.names.get(subsystem.index()).map_or("unknown", String::as_str)
    }

    /// The subsystem of this name.
    pub fn find(&self, name: &str) -> Option<Subsystem> {
        self.iter().find(|&subsystem| self.name(subsystem) == name)
    }

    /// All subsystems in the order in which they are shown: those of this crate, those of the game,
    /// [`OTHER`](Subsystem::OTHER) last.
    pub fn iter(&self) -> impl Iterator<Item = Subsystem> + '_ {
        (1..self.names.len()).map(|number| Subsystem(number as u8)).chain([Subsystem::OTHER])
    }

    /// Number of subsystems, at most [`MAX_SUBSYSTEMS`]. Each [index](Subsystem::index) of this table is less.
    pub fn count(&self) -> usize {
        self.names.len()
    }
}

impl Default for Subsystems {
    fn default() -> Subsystems {
        Subsystems::new()
    }
}

/// A subsystem that cannot be added: a mistake of the program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubsystemError {
    /// The name has a form that metrics and files do not take.
    #[error(
        "\"{name}\" is no name for a subsystem: use up to {MAX_NAME_BYTES} lower-case letters, digits and _, a letter first"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The table has a subsystem of this name.
    #[error("there is a subsystem \"{name}\" already: use that one, or another name")]
    Taken {
        /// The name.
        name: String,
    },
    /// The table is full.
    #[error("no room for the subsystem \"{name}\": a table holds {MAX_SUBSYSTEMS}")]
    Full {
        /// The name.
        name: String,
    },
}

impl SubsystemError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            SubsystemError::Name { .. } => "name",
            SubsystemError::Taken { .. } => "taken",
            SubsystemError::Full { .. } => "full",
        }
    }
}
