//! The parts of a frame.

use std::fmt;

/// A part of the server's frame. Declared in the order in which it is shown, which is also about the order of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subsystem {
    /// Taking datagrams from the kernel.
    Receive,
    /// Finding the connections of received datagrams, and decrypting them.
    Open,
    /// What received packets mean: acknowledgements, delivery records, inputs, messages; new and ended connections.
    Settle,
    /// The game's own code.
    Simulate,
    /// Working out who subscribes to what.
    ///
    /// Reports that show only the classic parts [fold](Subsystem::folded) it into [`Subsystem::Other`].
    Interest,
    /// Quantising touched objects and comparing them with their last state.
    Quantise,
    /// Deciding which updates are due, and which frames they need.
    Plan,
    /// Encoding the frames of channels.
    Encode,
    /// Copying segments of frames into the packets of connections.
    Write,
    /// Encrypting packets.
    Seal,
    /// Handing packets to the kernel.
    Send,
    /// Time of no other subsystem.
    Other,
}

impl Subsystem {
    /// Number of subsystems.
    pub const COUNT: usize = Subsystem::ALL.len();

    /// All subsystems, in display order: `ALL[s.index()] == s`.
    pub const ALL: [Subsystem; 12] = [
        Subsystem::Receive,
        Subsystem::Open,
        Subsystem::Settle,
        Subsystem::Simulate,
        Subsystem::Interest,
        Subsystem::Quantise,
        Subsystem::Plan,
        Subsystem::Encode,
        Subsystem::Write,
        Subsystem::Seal,
        Subsystem::Send,
        Subsystem::Other,
    ];

    /// A stable lower-case name, for reports and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Subsystem::Receive => "receive",
            Subsystem::Open => "open",
            Subsystem::Settle => "settle",
            Subsystem::Simulate => "simulate",
            Subsystem::Interest => "interest",
            Subsystem::Quantise => "quantise",
            Subsystem::Plan => "plan",
            Subsystem::Encode => "encode",
            Subsystem::Write => "write",
            Subsystem::Seal => "seal",
            Subsystem::Send => "send",
            Subsystem::Other => "other",
        }
    }

    /// The subsystem of this [name](Subsystem::name).
    pub fn from_name(name: &str) -> Option<Subsystem> {
        Subsystem::ALL.into_iter().find(|subsystem| subsystem.name() == name)
    }

    /// Where a report without a column for interest shows this: [`Subsystem::Interest`] counts as other, everything
    /// else as itself.
    pub const fn folded(self) -> Subsystem {
        match self {
            Subsystem::Interest => Subsystem::Other,
            same => same,
        }
    }

    /// Position in [`Subsystem::ALL`] and in the arrays of a record.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Subsystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_lead_back_to_the_subsystem() {
        for (index, subsystem) in Subsystem::ALL.into_iter().enumerate() {
            assert_eq!(subsystem.index(), index);
            assert_eq!(Subsystem::from_name(subsystem.name()), Some(subsystem));
        }
        assert_eq!(Subsystem::from_name("Encode"), None);
        assert_eq!(format!("{:>6}|", Subsystem::Seal), "  seal|");
    }
}
