//! Movement sections: what may get lost, behind the messages of a session's packet.
//!
//! ```text
//! nothing    the packet ends, or a 0: there is no movement in it
//! wanted     [02]                          client: I understand movement sections
//! movement   [01] [after u32 LE] entry*    entries as in a packet of the protocol, to the end of the session's packet
//! ```
//! `after` is the number of messages on lane 0, from the first on and wrapping, that were under way when the entries were
//! made; everything on lane 0 from there on is newer. Entries of clients have 0 there. A gateway sends movement only to
//! a client from which a section has come. A client repeats *wanted* in all its packets until one of them has arrived.
//! Sections that begin otherwise are of a later version, and ignored.

/// Bytes of a movement section before its entries.
pub const HEAD_BYTES: usize = 5;
/// The longest entries that fit into a section, whatever else is in the packet's header, in bytes.
pub const MAX_ENTRY_BYTES: usize = 1_100;

const MOVEMENT: u8 = 1;
const WANTED: u8 = 2;

/// What is behind the messages of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section<'a> {
    /// Nothing, or nothing that we know.
    Nothing,
    /// The client understands movement.
    Wanted,
    /// Movement.
    Movement {
        /// Messages of lane 0 that were under way before.
        after: u32,
        /// Entries, as in the payload of a frame.
        entries: &'a [u8],
    },
}

impl<'a> Section<'a> {
    /// Reads what a session handed out as the rest of a packet. Every sequence of bytes means something.
    pub fn read(rest: &'a [u8]) -> Section<'a> {
        match rest.split_first() {
            Some((&MOVEMENT, rest)) => match rest.split_first_chunk() {
                Some((after, entries)) => Section::Movement { after: u32::from_le_bytes(*after), entries },
                None => Section::Nothing,
            },
            Some((&WANTED, _)) => Section::Wanted,
            _ => Section::Nothing,
        }
    }
}

/// Appends the head of a movement section. Entries follow.
pub fn begin_movement(out: &mut Vec<u8>, after: u32) {
    out.push(MOVEMENT);
    out.extend_from_slice(&after.to_le_bytes());
}

/// Appends the section of a client that understands movement and has none to send.
pub fn put_wanted(out: &mut Vec<u8>) {
    out.push(WANTED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_these_bytes() {
        let mut bytes = Vec::new();
        begin_movement(&mut bytes, 0x0403_0201);
        bytes.extend_from_slice(&[0x0A, 0]);
        assert_eq!(bytes, [1, 1, 2, 3, 4, 0x0A, 0]);
        assert_eq!(Section::read(&bytes), Section::Movement { after: 0x0403_0201, entries: &[0x0A, 0] });
        bytes.clear();
        put_wanted(&mut bytes);
        assert_eq!((&bytes[..], Section::read(&bytes)), (&[2][..], Section::Wanted));
    }

    #[test]
    fn what_is_cut_or_unknown_is_nothing() {
        for bytes in [&[][..], &[0], &[0, 1, 2], &[1], &[1, 0, 0, 0], &[3, 1, 2, 3, 4, 5]] {
            assert_eq!(Section::read(bytes), Section::Nothing, "{bytes:?}");
        }
    }
}
