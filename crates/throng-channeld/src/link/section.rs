//! Movement sections: state that may be lost, after the messages of a session's packet.
//!
//! ```text
//! [flags u8]
//!    bit 0    MOVEMENT   movement follows
//!    bit 1    WANTED     client: I understand movement
//! [after u32 LE] entry*  entries as in a packet of the protocol, to the end of the session's packet       if MOVEMENT
//! ```
//! A packet without a section ends before it, or has a 0 there. Sections with other bits are of a later version, and
//! ignored.
//!
//! `after` is the number of messages on lane 0, from the first on and wrapping, that were under way when the entries were
//! made; everything on lane 0 from there on is newer. Entries of clients have 0 there. A gateway sends movement only to
//! a client that has said WANTED. The client says it in all packets with messages or movement that have room for it, and in one of
//! its own if there are none, until one of them has arrived.

/// Bytes of a movement section before its entries.
pub const HEAD_BYTES: usize = 5;
/// The longest entries that fit into a section, whatever else is in the packet's header and however short the packets are
/// that the path carries, in bytes.
pub const MAX_ENTRY_BYTES: usize = 1_000;

const MOVEMENT: u8 = 1;
const WANTED: u8 = 2;

/// The content after the messages of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section<'a> {
    /// The client understands movement.
    pub is_wanted: bool,
    /// The movement entries, if any.
    pub movement: Option<Movement<'a>>,
}

/// Movement in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement<'a> {
    /// Number of messages on lane 0 that were sent before the entries were made.
    pub after: u32,
    /// Entries, as in the payload of a frame.
    pub entries: &'a [u8],
}

impl<'a> Section<'a> {
    /// Reads the rest of a packet, as a session hands it out. Every sequence of bytes is valid; it may hold nothing.
    pub fn read(rest: &'a [u8]) -> Section<'a> {
        let Some((&flags, rest)) = rest.split_first() else { return Section::default() };
        if flags & !(MOVEMENT | WANTED) != 0 {
            return Section::default();
        }
        let movement = match rest.split_first_chunk() {
            Some((after, entries)) if flags & MOVEMENT != 0 => {
                Some(Movement { after: u32::from_le_bytes(*after), entries })
            }
            _ => None,
        };
        Section { is_wanted: flags & WANTED != 0, movement }
    }
}

/// Appends the head of a section with movement. Entries follow.
pub fn begin_movement(out: &mut Vec<u8>, after: u32, is_wanted: bool) {
    out.push(MOVEMENT | if is_wanted { WANTED } else { 0 });
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
        begin_movement(&mut bytes, 0x0403_0201, false);
        bytes.extend_from_slice(&[0x0A, 0]);
        assert_eq!(bytes, [1, 1, 2, 3, 4, 0x0A, 0]);
        let movement = Some(Movement { after: 0x0403_0201, entries: &[0x0A, 0] });
        assert_eq!(Section::read(&bytes), Section { is_wanted: false, movement });
        bytes[0] = 3;
        assert_eq!(Section::read(&bytes), Section { is_wanted: true, movement });
        bytes.clear();
        put_wanted(&mut bytes);
        assert_eq!(bytes, [2]);
        assert_eq!(Section::read(&bytes), Section { is_wanted: true, movement: None });
    }

    #[test]
    fn what_is_cut_or_unknown_is_nothing() {
        for bytes in [&[][..], &[0], &[0, 1, 2, 3, 4, 5], &[1], &[1, 0, 0, 0], &[4, 1, 2, 3, 4, 5], &[0x81, 0, 0, 0, 0]]
        {
            assert_eq!(Section::read(bytes), Section::default(), "{bytes:?}");
        }
    }
}
