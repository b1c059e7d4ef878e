//! Whether the game leaves room for messages, and whether the peer knows.

/// Said in message sections, on each change, until the peer has acknowledged it.
#[derive(Debug, Default)]
pub(super) struct Room {
    is_short: bool,
    told: Told,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Acknowledged,
    /// Not at all: the peer knows the opposite.
    No,
    /// In packets that may be lost, or the opposite was: the peer may know either.
    Lost,
    /// In this packet and maybe later ones.
    From(u64),
}

impl Room {
    /// Whether the peer should send no messages.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    pub(super) fn set(&mut self, is_short: bool) {
        if self.is_short != is_short {
            let told = match self.told {
                Told::Acknowledged => Told::No,
                Told::No => Told::Acknowledged,
                Told::Lost | Told::From(_) => Told::Lost,
            };
            *self = Room { is_short, told };
        }
    }

    /// Whether a packet is needed that says it.
    pub(super) fn is_untold(&self) -> bool {
        matches!(self.told, Told::No | Told::Lost)
    }

    /// Whether the peer may not know it yet. Then every packet says it.
    pub(super) fn is_unknown(&self) -> bool {
        self.told != Told::Acknowledged
    }

    /// The packet says it.
    pub(super) fn on_said(&mut self, sequence: u64) {
        if self.is_untold() {
            self.told = Told::From(sequence);
        }
    }

    /// A packet that says something about room was delivered.
    pub(super) fn on_delivered(&mut self, sequence: u64) {
        if self.is_said_in(sequence) {
            self.told = Told::Acknowledged;
        }
    }

    /// A packet that says something about room is lost.
    pub(super) fn on_lost(&mut self, sequence: u64) {
        if self.is_said_in(sequence) {
            self.told = Told::Lost;
        }
    }

    fn is_said_in(&self, sequence: u64) -> bool {
        matches!(self.told, Told::From(first) if first <= sequence)
    }
}
