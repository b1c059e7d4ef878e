//! Checks KCP's segments before they reach the protocol machine.
//!
//! ```text
//! segment   conversation 4, command 1, fragment 1, window 2, time 4, number 4, first unacknowledged 4, length 4, data
//!           little-endian; a datagram holds one or more
//! ```
//! The machine was written for honest peers: its arithmetic on numbers and times is only right for values near its own.
//! Segments that no honest peer could send are dropped here. Source: the KCP reference (skywind3000/kcp, ikcp.c).

use std::collections::VecDeque;

/// Segments that may be on their way from the peer, and as many that wait to be read: with 1,376 bytes each, 350 KB twice.
pub(super) const WINDOW_IN: u16 = 256;

/// Bytes before the data.
pub(super) const HEADER_BYTES: usize = 24;

pub(super) const PUSH: u8 = 81;
const ACK: u8 = 82;
const WINDOW_TELL: u8 = 84;

/// Numbers begin at 0 and count segments. A conversation does not live to see a billion of them.
const NUMBERS_END: u32 = 1 << 30;
/// No acknowledgement takes longer, in milliseconds.
const ROUND_TRIP_MAX_MS: u32 = 60_000;
/// Transmissions that are remembered: all that may be on their way, twice.
const SENT_MAX: usize = 128;
/// Segments of one message, at most: the machine's own limit for what it sends.
const FRAGMENTS_MAX: u8 = 128;
/// The number before the first: of challenges, and of the answers to them.
const CHALLENGE: u32 = u32::MAX;

/// Where things are in a head.
const COMMAND_AT: usize = 4;
const WINDOW_AT: usize = 6;
const UNACKNOWLEDGED_AT: usize = 16;

/// The head of one segment, as far as it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) conversation: u32,
    command: u8,
    fragment: u8,
    window: u16,
    time_ms: u32,
    pub(super) number: u32,
    unacknowledged: u32,
    pub(super) data_bytes: usize,
}

impl Segment {
    /// The first segment of a datagram.
    pub(super) fn first(datagram: &[u8]) -> Option<Segment> {
        let (head, _) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some(Segment {
            conversation: number(0),
            command: head[COMMAND_AT],
            fragment: head[5],
            window: u16::from_le_bytes([head[WINDOW_AT], head[WINDOW_AT + 1]]),
            time_ms: number(8),
            number: number(12),
            unacknowledged: number(UNACKNOWLEDGED_AT),
            data_bytes: number(20) as usize,
        })
    }

    /// All segments of a datagram.
    pub(super) fn all(mut datagram: &[u8]) -> impl Iterator<Item = Segment> {
        std::iter::from_fn(move || {
            let segment = Segment::first(datagram)?;
            datagram = datagram.get(HEADER_BYTES + segment.data_bytes..).unwrap_or_default();
            Some(segment)
        })
    }

    /// Whether it carries a part of the stream.
    pub(super) fn has_data(&self) -> bool {
        self.command == PUSH
    }

    /// Whether its message ends with it.
    pub(super) fn is_last(&self) -> bool {
        self.fragment == 0
    }

    /// Whether it can be the beginning of a conversation.
    pub(super) fn is_beginning(&self) -> bool {
        self.command == PUSH && self.number == 0 && self.data_bytes > 0
    }

    /// The repeated number of a challenge, if it answers one.
    pub(super) fn answer(&self) -> Option<u32> {
        (self.command == ACK && self.number == CHALLENGE).then_some(self.time_ms)
    }

    fn is_acknowledgement(&self) -> bool {
        self.command == ACK && self.number != CHALLENGE
    }

    fn is_sound(&self, conversation: u32, now_ms: u32) -> bool {
        self.conversation == conversation
            && (PUSH..=WINDOW_TELL).contains(&self.command)
            && self.fragment < FRAGMENTS_MAX
            && (self.number < NUMBERS_END || self.answer().is_some())
            && self.unacknowledged < NUMBERS_END
            && (!self.is_acknowledgement() || now_ms.wrapping_sub(self.time_ms) <= ROUND_TRIP_MAX_MS)
    }
}

/// A segment that every peer acknowledges, repeating `time_ms`, and throws away.
pub(super) fn challenge(conversation: u32, time_ms: u32) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    head[..4].copy_from_slice(&conversation.to_le_bytes());
    head[COMMAND_AT] = PUSH;
    head[WINDOW_AT..8].copy_from_slice(&u16::MAX.to_le_bytes());
    head[8..12].copy_from_slice(&time_ms.to_le_bytes());
    head[12..UNACKNOWLEDGED_AT].copy_from_slice(&CHALLENGE.to_le_bytes());
    head
}

/// The last transmissions to a peer. A peer that acknowledges one of them, with its number and its time, has received
/// it: the clock begins at a value that nobody can guess.
#[derive(Debug, Default)]
pub(super) struct Sent(VecDeque<(u32, u32)>);

impl Sent {
    /// Notes the segments of a datagram that goes out.
    pub(super) fn note(&mut self, datagram: &[u8]) {
        for segment in Segment::all(datagram).filter(Segment::has_data) {
            if self.0.len() == SENT_MAX {
                self.0.pop_front();
            }
            self.0.push_back((segment.number, segment.time_ms));
        }
    }

    fn is_acknowledged_by(&self, segment: &Segment) -> bool {
        segment.command == ACK && self.0.contains(&(segment.number, segment.time_ms))
    }
}

/// The parts of a datagram that could come from an honest peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sound {
    /// It acknowledges something that was sent not long ago.
    pub(super) has_echo: bool,
    /// Segments that its sender has room for, as its last segment says.
    pub(super) window: u16,
}

/// Makes a sound datagram fit for the machine. Acknowledgements of what was not sent lately, answers to challenges
/// among them, become segments that say nothing. And a peer that has not received the answers cannot change the
/// conversation: without an echo a datagram acknowledges nothing, and leaves the sender's window no smaller than
/// `window`. An honest peer says both with the next echo, because it acknowledges each segment.
pub(super) fn tame(datagram: &mut [u8], (sound, sent): (Sound, &Sent), window: u16) {
    let mut rest = datagram;
    while let Some(segment) = Segment::first(rest) {
        if segment.command == ACK && !sent.is_acknowledged_by(&segment) {
            rest[COMMAND_AT] = WINDOW_TELL;
        }
        if !sound.has_echo {
            rest[WINDOW_AT..WINDOW_AT + 2].copy_from_slice(&segment.window.max(window).to_le_bytes());
            rest[UNACKNOWLEDGED_AT..UNACKNOWLEDGED_AT + 4].fill(0);
        }
        let Some(after) = rest.get_mut(HEADER_BYTES + segment.data_bytes..) else { return };
        rest = after;
    }
}

/// Makes segments of data that are left out say nothing: the machine neither takes nor acknowledges them.
pub(super) fn leave_out(datagram: &mut [u8], is_left_out: impl Fn(&Segment) -> bool) {
    let mut rest = datagram;
    while let Some(segment) = Segment::first(rest) {
        if segment.has_data() && is_left_out(&segment) {
            rest[COMMAND_AT] = WINDOW_TELL;
        }
        let Some(after) = rest.get_mut(HEADER_BYTES + segment.data_bytes..) else { return };
        rest = after;
    }
}

/// Whether all segments of a datagram are such as an honest peer could send at this time. `None` if not.
pub(super) fn sound(datagram: &[u8], (conversation, sent): (u32, &Sent), now_ms: u32) -> Option<Sound> {
    let mut rest = datagram;
    let mut found = Sound { has_echo: false, window: 0 };
    while !rest.is_empty() {
        let segment = Segment::first(rest)?;
        let after = rest.get(HEADER_BYTES..).and_then(|data| data.get(segment.data_bytes..))?;
        if !segment.is_sound(conversation, now_ms) {
            return None;
        }
        found = Sound { has_echo: found.has_echo || sent.is_acknowledged_by(&segment), window: segment.window };
        rest = after;
    }
    (!datagram.is_empty()).then_some(found)
}

/// A segment of conversation 7.
#[cfg(test)]
pub(super) fn segment(command: u8, time_ms: u32, number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![7, 0, 0, 0, command, 0, 32, 0];
    for word in [time_ms, number, 0, data.len() as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(data);
    bytes
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use kcp::Kcp;
    use proptest::prelude::*;

    use super::*;

    fn is_sound(datagram: &[u8], conversation: u32, now_ms: u32) -> bool {
        sound(datagram, (conversation, &Sent::default()), now_ms).is_some()
    }

    /// The third segment went out at 90.
    fn sent() -> Sent {
        let mut sent = Sent::default();
        sent.note(&segment(PUSH, 90, 3, b"three"));
        sent
    }

    #[test]
    fn honest_datagrams_pass() {
        let one = segment(PUSH, 123, 0, b"hello");
        assert!(is_sound(&one, 7, 99));
        assert!(Segment::first(&one).is_some_and(|segment| segment.is_beginning()));
        assert!(is_sound(&[one, segment(ACK, 90, 3, b"")].concat(), 7, 99));
    }

    #[test]
    fn acknowledgements_repeat_what_they_were_told() {
        let (push, ack) = (segment(PUSH, 123, 0, b"hello"), segment(ACK, 90, 3, b""));
        let told = |datagram: &[u8]| sound(datagram, (7, &sent()), 99).expect("sound");
        assert_eq!(told(&push), Sound { has_echo: false, window: 32 });
        assert_eq!(told(&[push, ack].concat()), Sound { has_echo: true, window: 32 });
        for (time_ms, number) in [(89, 3), (91, 3), (90, 2), (90, 4)] {
            let mut forged = segment(ACK, time_ms, number, b"");
            let found = told(&forged);
            assert!(!found.has_echo, "nothing like it was sent");
            tame(&mut forged, (found, &sent()), 0);
            assert_eq!(forged[COMMAND_AT], WINDOW_TELL, "the machine is told nothing");
        }
    }

    #[test]
    fn no_more_is_remembered_than_may_be_on_its_way() {
        let mut sent = Sent::default();
        for number in 0..1_000 {
            sent.note(&[segment(PUSH, number, number, b"a"), segment(WINDOW_TELL, 0, 0, b"")].concat());
        }
        assert_eq!(sent.0.len(), SENT_MAX);
        assert!(sent.0.contains(&(999, 999)) && !sent.0.contains(&(800, 800)));
    }

    #[test]
    fn any_machine_answers_a_challenge_and_takes_nothing_from_it() {
        struct Wire(Rc<RefCell<Vec<u8>>>);
        impl std::io::Write for Wire {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.borrow_mut().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let sent = Rc::new(RefCell::new(Vec::new()));
        let mut machine = Kcp::new(7, Wire(Rc::clone(&sent)));
        machine.update(0).expect("it runs");
        machine.input(&challenge(7, 0xDEAD_BEEF)).expect("it is sound");
        assert!(machine.peeksize().is_err(), "there is nothing to read");
        machine.flush().expect("it takes everything");
        let mut answer = sent.borrow().clone();
        assert_eq!(Segment::first(&answer).and_then(|first| first.answer()), Some(0xDEAD_BEEF));
        let told = sound(&answer, (7, &Sent::default()), 99).expect("it is no harm");
        assert!(!told.has_echo, "of nothing that the conversation's own machine has said");
        tame(&mut answer, (told, &Sent::default()), 0);
        assert_eq!(Segment::first(&answer).map(|first| first.command), Some(WINDOW_TELL));
    }

    #[test]
    fn a_peer_that_received_nothing_cannot_acknowledge_or_close_the_window() {
        let forged = |tail: &[u8]| {
            let mut bytes = segment(PUSH, 5, 3, b"hello");
            bytes[WINDOW_AT..8].fill(0);
            bytes[UNACKNOWLEDGED_AT..20].copy_from_slice(&9u32.to_le_bytes());
            bytes.extend_from_slice(tail);
            let told = sound(&bytes, (7, &sent()), 99).expect("sound");
            tame(&mut bytes, (told, &sent()), 20);
            Segment::first(&bytes).map(|first| (first.window, first.unacknowledged))
        };
        assert_eq!(forged(b""), Some((20, 0)));
        assert_eq!(forged(&segment(ACK, 90, 3, b"")), Some((0, 9)), "an echo proves the rest");
    }

    #[test]
    fn what_no_honest_peer_sends_is_dropped() {
        assert!(!is_sound(b"", 7, 99));
        assert!(!is_sound(&segment(PUSH, 0, 0, b"hello")[..26], 7, 99));
        assert!(!is_sound(&segment(PUSH, 0, 0, b"hello"), 8, 99));
        assert!(!is_sound(&segment(80, 0, 0, b""), 7, 99));
        assert!(!is_sound(&segment(PUSH, 0, 1 << 31, b""), 7, 99));
        assert!(!is_sound(&segment(ACK, 100, 0, b""), 7, 99));
        assert!(!is_sound(&segment(ACK, 1 << 31, 0, b""), 7, 99));
        let mut long = segment(PUSH, 0, 0, b"hello");
        long[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(!is_sound(&long, 7, 99));
    }

    /// The peer's stream: what it sends under a number, however often.
    fn part(number: u32) -> Vec<u8> {
        number.to_le_bytes().repeat(4)[..number as usize % 17].to_vec()
    }

    /// Heads that are sound for the most part, with numbers at the ends of their ranges.
    fn near_sound() -> impl Strategy<Value = Vec<u8>> {
        let number = || prop_oneof![0..6u32, 250..260u32, Just(NUMBERS_END - 1), any::<u32>()];
        let time = || prop_oneof![0..100_000u32, any::<u32>()];
        let fragment = prop_oneof![Just(0u8), 0..FRAGMENTS_MAX, any::<u8>()];
        (PUSH..=WINDOW_TELL, fragment, any::<u16>(), time(), number(), number()).prop_map(
            |(command, fragment, window, time_ms, number, unacknowledged)| {
                let mut bytes = segment(command, time_ms, number, &part(number));
                bytes[5] = fragment;
                bytes[6..8].copy_from_slice(&window.to_le_bytes());
                bytes[16..20].copy_from_slice(&unacknowledged.to_le_bytes());
                bytes
            },
        )
    }

    fn segments_of(datagram: &mut [u8], each: impl Fn(&mut [u8])) {
        let mut rest = datagram;
        while let Some(segment) = Segment::first(rest) {
            each(rest);
            let Some(after) = rest.get_mut(HEADER_BYTES + segment.data_bytes..) else { return };
            rest = after;
        }
    }

    proptest! {
        #![proptest_config(throng_seeds::cases(512))]

        /// Overflow is checked for in tests: the machine's arithmetic holds for all that passes. The stream comes in
        /// order, each part once, whatever was between its parts; and it comes to its end when the peer is honest at
        /// last.
        #[test]
        fn the_machine_stands_whatever_passes_and_gives_the_stream_in_order(
            datagrams in prop::collection::vec((prop::collection::vec(near_sound(), 1..4), 0..30_000u32), 0..60),
        ) {
            /// More than the machine's window, and than the fragments of a message.
            const PARTS: u32 = 600;
            let honest = (0..PARTS).map(|number| (vec![segment(PUSH, 0, number, &part(number))], 0));
            let mut delivered = Vec::new();
            let mut sends = 0;
            let mut machine = Kcp::new_stream(7, std::io::sink());
            machine.set_nodelay(true, 10, 2, true);
            machine.set_wndsize(256, 256);
            let mut now_ms = 0;
            machine.update(now_ms).expect("it runs");
            for (segments, wait_ms) in datagrams.into_iter().chain(honest) {
                now_ms += wait_ms;
                let mut datagram = segments.concat();
                // As if all that is acknowledged had been sent: the machine has to stand that too.
                let mut sent = Sent::default();
                let mut as_sent = datagram.clone();
                segments_of(&mut as_sent, |head| head[COMMAND_AT] = PUSH);
                sent.note(&as_sent);
                if let Some(told) = sound(&datagram, (7, &sent), now_ms) {
                    tame(&mut datagram, (told, &sent), 128);
                    let _ = machine.input(&datagram);
                }
                if sends < 60 {
                    machine.send(&[1; 3_000]).expect("it is short");
                    sends += 1;
                }
                prop_assert!(machine.wait_snd() <= 3 * sends, "it keeps no more than it was given");
                machine.update(now_ms).expect("a sink takes everything");
                machine.flush().expect("a sink takes everything");
                while let Ok(bytes) = machine.peeksize() {
                    let from = delivered.len();
                    delivered.resize(from + bytes, 0);
                    prop_assert_eq!(machine.recv(&mut delivered[from..]).expect("it is there"), bytes);
                }
            }
            let stream: Vec<u8> = (0..PARTS).flat_map(part).collect();
            prop_assert!(delivered == stream, "{} of {} bytes", delivered.len(), stream.len());
        }
    }
}
