//! Sealing and opening the packets of one connection, in place and without allocation.

use super::aead::{Key, KeyForm, Nonces, PacketKey, ReadyKey, TAG_LEN};
use super::packet::{self, ADDITIONAL_LEN, KEEP_ALIVE_BODY_LEN, PacketKind, Side};
use super::replay::ReplayWindow;
use super::suite::Suite;
use super::{PAYLOAD_MAX, header_len};
use crate::session::Envelope;
use std::fmt;

/// The first sequence number that a server uses for packets outside of a connection. A connection stays below, so
/// that both can use the same key.
pub(super) const UNCONNECTED_SEQUENCE: u64 = 1 << 63;

/// Why a packet was not sealed. Always our misuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The buffer does not hold header, 1 to [`PAYLOAD_MAX`] bytes of payload, and tag.
    #[error("a packet of {packet_len} bytes does not hold a payload of 1 to {PAYLOAD_MAX} bytes with header and tag")]
    PayloadLength {
        /// Bytes of the buffer.
        packet_len: usize,
    },
    /// As many packets have been sealed as one key may seal ([`Suite::packets_max`]): the connection must end.
    #[error("this connection has sent as many packets as its key may seal: connect again with a new token")]
    SequenceExhausted,
}

impl SealError {
    /// A short stable name, for metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            SealError::PayloadLength { .. } => "payload_length",
            SealError::SequenceExhausted => "sequence_exhausted",
        }
    }
}

/// Seals the packets that one side sends over one connection: owns the key and counts the sequence numbers.
///
/// Not `Clone`: two sealers with the same key would use a nonce twice. `Send`, so that a worker thread can seal a
/// connection's packets right where the kernel will take them:
///
/// ```
/// use throng_link::netcode::{Key, Opener, PacketKind, SEAL_OVERHEAD_MAX, Sealer, Side, Suite, TAG_LEN};
///
/// let key = Key::new([7; 32]); // from a connect token, in real life
/// let mut sealer = Sealer::new(Suite::Aes256Gcm, &key, 42);
/// let mut opener = Opener::new(Suite::Aes256Gcm, &key, 42, Side::Client);
///
/// let mut buffer = [0; 1200 + SEAL_OVERHEAD_MAX];
/// let start = sealer.header_len();
/// buffer[start..start + 5].copy_from_slice(b"hello");
/// let packet = &mut buffer[..start + 5 + TAG_LEN];
/// let sequence = sealer.seal_payload(packet)?;
///
/// let opened = opener.open(packet).unwrap();
/// assert_eq!((opened.kind, opened.sequence), (PacketKind::Payload, sequence));
/// assert_eq!(opened.body, b"hello");
/// # Ok::<(), throng_link::netcode::SealError>(())
/// ```
pub struct Sealer {
    key: PacketKey,
    nonces: Nonces,
    /// Complete but for the prefix byte at its end.
    additional: [u8; ADDITIONAL_LEN],
    next_sequence: u64,
}

impl Sealer {
    /// A sealer that starts at sequence number 0. There may be one only for each key, ever.
    pub fn new(suite: Suite, key: &Key, protocol_id: u64) -> Sealer {
        Sealer {
            key: PacketKey::new(suite, key, KeyForm::default()),
            nonces: Nonces::Standard,
            additional: packet::additional_data(suite, protocol_id, 0),
            next_sequence: 0,
        }
    }

    /// The same sealer, after as many packets as its key may seal.
    #[cfg(test)]
    pub(super) fn worn_out(self) -> Sealer {
        Sealer { next_sequence: self.key.suite().packets_max(), ..self }
    }

    /// The same sealer, for what a server sends after its challenge with this number was answered.
    pub(super) fn after(self, challenge: u64) -> Sealer {
        Sealer { nonces: Nonces::after(self.key.suite(), challenge), ..self }
    }

    /// The same sealer, which holds its key in this form.
    pub fn in_form(self, form: KeyForm) -> Sealer {
        Sealer { key: self.key.in_form(form), ..self }
    }

    /// Bytes on the heap: 544 for a prepared key of AES.
    pub fn heap_bytes(&self) -> usize {
        self.key.heap_bytes()
    }

    /// The sequence number of the next packet.
    #[inline]
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Bytes in front of the payload of the next packet: 2 to 9.
    #[inline]
    pub fn header_len(&self) -> usize {
        header_len(self.next_sequence)
    }

    /// Bytes in front of the payload of the packet after `ahead` more packets, for laying out several at once.
    #[inline]
    pub fn header_len_ahead(&self, ahead: u64) -> usize {
        header_len(self.next_sequence.saturating_add(ahead))
    }

    /// The envelope of the packet after `ahead` more packets: what a session has to know to write it.
    #[inline]
    pub fn envelope(&self, ahead: u64) -> Envelope {
        let sequence = self.next_sequence.saturating_add(ahead);
        Envelope { sequence, head_bytes: header_len(sequence), tail_bytes: TAG_LEN }
    }

    /// Seals a payload in place and returns its sequence number.
    ///
    /// `packet` is [`header_len`](Sealer::header_len) bytes of any content, the payload (1 to [`PAYLOAD_MAX`] bytes),
    /// and [`TAG_LEN`] bytes of any content. All of it is to be sent. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Nothing is changed and no sequence number used: see [`SealError`].
    #[inline]
    pub fn seal_payload(&mut self, packet: &mut [u8]) -> Result<u64, SealError> {
        self.row(|row| row.seal_payload(packet))
    }

    /// Replaces `out` with a keep-alive. The client's index and the number of seats are the server's to say; a client
    /// sends 0 for both. Returns the sequence number.
    ///
    /// # Errors
    ///
    /// [`SealError::SequenceExhausted`].
    pub fn seal_keep_alive(
        &mut self,
        client_index: u32,
        max_clients: u32,
        out: &mut Vec<u8>,
    ) -> Result<u64, SealError> {
        let mut body = [0; KEEP_ALIVE_BODY_LEN];
        body[..4].copy_from_slice(&client_index.to_le_bytes());
        body[4..].copy_from_slice(&max_clients.to_le_bytes());
        self.seal_body(PacketKind::KeepAlive, &body, out)
    }

    /// Replaces `out` with a disconnect packet. Returns the sequence number.
    ///
    /// # Errors
    ///
    /// [`SealError::SequenceExhausted`].
    pub fn seal_disconnect(&mut self, out: &mut Vec<u8>) -> Result<u64, SealError> {
        self.seal_body(PacketKind::Disconnect, &[], out)
    }

    pub(super) fn seal_body(&mut self, kind: PacketKind, body: &[u8], out: &mut Vec<u8>) -> Result<u64, SealError> {
        lay_out(self.next_sequence, body, out);
        self.seal(kind, out)
    }

    /// Replaces `out` with a packet outside of the connection, under the connection's key: a challenge. `sequence` has
    /// bit 63 set and comes from the one source of such numbers of this server.
    pub(super) fn seal_unconnected(&self, kind: PacketKind, sequence: u64, body: &[u8], out: &mut Vec<u8>) {
        debug_assert!(sequence >= UNCONNECTED_SEQUENCE);
        lay_out(sequence, body, out);
        let key = |key: &_| seal_in_place((key, self.nonces), &mut self.additional.clone(), kind, sequence, out);
        self.key.with(key);
    }

    #[inline]
    fn seal(&mut self, kind: PacketKind, packet: &mut [u8]) -> Result<u64, SealError> {
        self.row(|row| row.seal(kind, packet))
    }

    /// Calls `run` with the key ready for use, to seal several packets one after the other.
    #[inline]
    pub fn row<T>(&mut self, run: impl FnOnce(&mut Row<'_>) -> T) -> T {
        let (additional, next_sequence) = (&mut self.additional, &mut self.next_sequence);
        let packets_max = self.key.suite().packets_max();
        self.key.with(|key| run(&mut Row { key: (key, self.nonces), additional, next_sequence, packets_max }))
    }
}

/// The sealer of a row of packets: [`Sealer::row`].
pub struct Row<'a> {
    key: (&'a ReadyKey, Nonces),
    additional: &'a mut [u8; ADDITIONAL_LEN],
    next_sequence: &'a mut u64,
    packets_max: u64,
}

impl Row<'_> {
    /// As [`Sealer::seal_payload`].
    ///
    /// # Errors
    ///
    /// Nothing is changed and no sequence number used: see [`SealError`].
    #[inline]
    pub fn seal_payload(&mut self, packet: &mut [u8]) -> Result<u64, SealError> {
        let payload_len = packet.len().saturating_sub(header_len(*self.next_sequence) + TAG_LEN);
        if !(1..=PAYLOAD_MAX).contains(&payload_len) {
            return Err(SealError::PayloadLength { packet_len: packet.len() });
        }
        self.seal(PacketKind::Payload, packet)
    }

    #[inline]
    fn seal(&mut self, kind: PacketKind, packet: &mut [u8]) -> Result<u64, SealError> {
        let sequence = *self.next_sequence;
        if sequence >= self.packets_max {
            return Err(SealError::SequenceExhausted);
        }
        seal_in_place(self.key, self.additional, kind, sequence, packet);
        *self.next_sequence = sequence + 1;
        Ok(sequence)
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("next_sequence", &self.next_sequence).finish_non_exhaustive()
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("next_sequence", &self.next_sequence).finish_non_exhaustive()
    }
}

/// Replaces `out` with a packet outside of a connection: denied or challenge. `sequence` has bit 63 set.
pub(super) fn seal_unconnected(
    (suite, key): (Suite, &Key),
    protocol_id: u64,
    kind: PacketKind,
    sequence: u64,
    body: &[u8],
    out: &mut Vec<u8>,
) {
    lay_out(sequence, body, out);
    let mut additional = packet::additional_data(suite, protocol_id, 0);
    let key = PacketKey::new(suite, key, KeyForm::Bare);
    key.with(|key| seal_in_place((key, Nonces::Standard), &mut additional, kind, sequence, out));
}

/// Replaces `out` with room for a header, the body, and room for a tag.
fn lay_out(sequence: u64, body: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.resize(header_len(sequence), 0);
    out.extend_from_slice(body);
    out.resize(out.len() + TAG_LEN, 0);
}

#[inline]
fn seal_in_place(
    (key, nonces): (&ReadyKey, Nonces),
    additional: &mut [u8; ADDITIONAL_LEN],
    kind: PacketKind,
    sequence: u64,
    packet: &mut [u8],
) {
    let (prefix, header_len) = packet::write_header(kind, sequence, packet);
    additional[ADDITIONAL_LEN - 1] = prefix;
    let (body, tag) = packet[header_len..].split_last_chunk_mut::<TAG_LEN>().expect("a packet ends with its tag");
    *tag = key.seal(nonces.nonce(sequence), additional, body);
}

/// Why a datagram was not accepted over a connection. Always the fault of the peer, or of an attacker in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Too short for header and tag.
    #[error("too short for a sealed packet")]
    TooShort,
    /// The standard knows no packet of this kind.
    #[error("unknown kind of packet")]
    UnknownKind,
    /// This side does not take packets of this kind.
    #[error("kind of packet that this side does not take")]
    UnexpectedKind,
    /// The sequence number has no length from 1 to 8.
    #[error("sequence number of impossible length")]
    SequenceLength,
    /// No packet of this kind has this length.
    #[error("impossible length for this kind of packet")]
    BodyLength,
    /// Received before, or older than the replay window.
    #[error("replayed, or too old to tell")]
    Replayed,
    /// Not sealed with the peer's key for this protocol, or changed on the way.
    #[error("not authentic")]
    NotAuthentic,
    /// So many packets were not authentic that the key must not be used any more ([`Suite::forgeries_max`]).
    #[error("the key is worn out by forged packets: connect again with a new token")]
    KeyWornOut,
}

impl OpenError {
    /// A short stable name, for metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            OpenError::TooShort => "too_short",
            OpenError::UnknownKind => "unknown_kind",
            OpenError::UnexpectedKind => "unexpected_kind",
            OpenError::SequenceLength => "sequence_length",
            OpenError::BodyLength => "body_length",
            OpenError::Replayed => "replayed",
            OpenError::NotAuthentic => "not_authentic",
            OpenError::KeyWornOut => "key_worn_out",
        }
    }
}

/// An authentic packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// Its purpose.
    pub kind: PacketKind,
    /// The sender's sequence number.
    pub sequence: u64,
    /// The decrypted body, inside of the datagram. Its length fits the kind: 1 to [`PAYLOAD_MAX`] for a payload.
    pub body: &'a mut [u8],
}

/// Opens the packets that one side receives over one connection: owns the key and the replay window.
pub struct Opener {
    key: PacketKey,
    nonces: Nonces,
    /// Complete but for the prefix byte at its end.
    additional: [u8; ADDITIONAL_LEN],
    side: Side,
    window: ReplayWindow,
    /// Packets that were not authentic.
    forgeries: u64,
}

impl Opener {
    /// An opener for `side` that has received nothing yet.
    pub fn new(suite: Suite, key: &Key, protocol_id: u64, side: Side) -> Opener {
        Opener {
            key: PacketKey::new(suite, key, KeyForm::default()),
            nonces: Nonces::Standard,
            additional: packet::additional_data(suite, protocol_id, 0),
            side,
            window: ReplayWindow::default(),
            forgeries: 0,
        }
    }

    /// From now on, for what the server sends after its challenge with this number was answered.
    pub(super) fn answered(&mut self, challenge: u64) {
        self.nonces = Nonces::after(self.key.suite(), challenge);
    }

    /// The same opener, which holds its key in this form.
    pub fn in_form(self, form: KeyForm) -> Opener {
        Opener { key: self.key.in_form(form), ..self }
    }

    /// Bytes on the heap: 544 for a prepared key of AES.
    pub fn heap_bytes(&self) -> usize {
        self.key.heap_bytes()
    }

    /// Authenticates and decrypts a datagram in place. Allocates nothing.
    ///
    /// Keep-alives, payloads and disconnects are accepted once. The other kinds belong to the handshake and may be
    /// repeated by anybody: their handling must be repeatable.
    ///
    /// # Errors
    ///
    /// The datagram is to be dropped and counted; see [`OpenError`]. Its content is then undefined.
    #[inline]
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Result<Opened<'a>, OpenError> {
        let header = packet::read_header(self.side, datagram)?;
        let is_protected = header.kind.is_replay_protected();
        if is_protected && self.window.is_replayed(header.sequence) {
            return Err(OpenError::Replayed);
        }
        let suite = self.key.suite();
        if self.forgeries >= suite.forgeries_max() {
            return Err(OpenError::KeyWornOut);
        }
        if header.sequence >= suite.packets_max() && (is_protected || header.sequence < UNCONNECTED_SEQUENCE) {
            // No sealer gives such a packet this number, and its nonce could be that of another.
            return Err(OpenError::NotAuthentic);
        }
        self.additional[ADDITIONAL_LEN - 1] = header.prefix;
        let nonce = self.nonces.nonce(header.sequence);
        let opened = self.key.with(|key| key.open(nonce, &self.additional, &mut datagram[header.len..]));
        let Ok(body) = opened else {
            self.forgeries += 1;
            return Err(OpenError::NotAuthentic);
        };
        if is_protected {
            self.window.mark(header.sequence);
        }
        Ok(Opened { kind: header.kind, sequence: header.sequence, body })
    }

    /// The newest sequence number that was received, 0 before any.
    pub fn newest(&self) -> u64 {
        self.window.newest()
    }

    /// Forgets what was received: the next server of a connect token starts its sequence numbers again.
    pub(super) fn forget_received(&mut self) {
        self.window = ReplayWindow::default();
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("side", &self.side).field("window", &self.window).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netcode::packet::CHALLENGE_BODY_LEN;

    #[test]
    fn the_errors_of_sealing_have_tags_of_their_own() {
        let tags = [SealError::PayloadLength { packet_len: 3 }, SealError::SequenceExhausted].map(SealError::tag);
        assert_eq!(tags, ["payload_length", "sequence_exhausted"]);
    }

    #[test]
    fn a_key_seals_as_many_packets_as_its_cipher_allows_and_then_none() {
        for suite in Suite::ALL {
            let mut sealer = Sealer::new(suite, &Key::new([1; 32]), 1);
            sealer.next_sequence = suite.packets_max() - 1;
            let mut out = Vec::new();
            assert_eq!(sealer.seal_disconnect(&mut out), Ok(suite.packets_max() - 1));
            let mut packet = vec![0x77; sealer.header_len() + 9 + TAG_LEN];
            assert_eq!(sealer.seal_payload(&mut packet), Err(SealError::SequenceExhausted));
            assert_eq!(sealer.seal_keep_alive(0, 0, &mut out), Err(SealError::SequenceExhausted));
            assert_eq!(packet, vec![0x77; packet.len()], "nothing is encrypted under a number that was not given");
        }
        assert_eq!(Suite::Aes256Gcm.packets_max(), 1 << 28);
    }

    #[test]
    fn a_key_opens_nothing_after_as_many_forged_packets_as_its_cipher_allows() {
        for suite in Suite::ALL {
            let key = Key::new([1; 32]);
            let (mut sealer, mut opener) = (Sealer::new(suite, &key, 1), Opener::new(suite, &key, 1, Side::Server));
            opener.forgeries = suite.forgeries_max() - 1;
            let mut genuine = Vec::new();
            for _ in 0..2 {
                sealer.seal_disconnect(&mut genuine).unwrap();
                assert!(opener.open(&mut genuine).is_ok(), "authentic packets do not count");
            }
            sealer.seal_disconnect(&mut genuine).unwrap();
            let mut forged = genuine.clone();
            forged[2] ^= 1;
            assert_eq!(opener.open(&mut forged), Err(OpenError::NotAuthentic));
            assert_eq!(opener.open(&mut genuine), Err(OpenError::KeyWornOut));
            assert_eq!(opener.open(&mut []), Err(OpenError::TooShort));
            opener.forget_received();
            assert_eq!(opener.open(&mut genuine), Err(OpenError::KeyWornOut), "the next server has the same key");
        }
        assert_eq!(Suite::ChaCha20Poly1305.forgeries_max(), 1 << 36);
        assert_eq!(Suite::Aes256Gcm.forgeries_max(), 1 << 57);
        assert_eq!(OpenError::KeyWornOut.tag(), "key_worn_out");
    }

    /// Only the lower half of the number stands in the nonces of such a connection.
    #[test]
    fn a_number_that_no_sealer_gives_does_not_open() {
        let key = Key::new([1; 32]);
        let mut opener = Opener::new(Suite::Aes256Gcm, &key, 1, Side::Client);
        opener.answered(9);
        for sequence in
            [Suite::Aes256Gcm.packets_max(), 1 << 32, UNCONNECTED_SEQUENCE - 1, UNCONNECTED_SEQUENCE, u64::MAX]
        {
            let mut packet = Vec::new();
            lay_out(sequence, &[], &mut packet);
            let mut additional = packet::additional_data(Suite::Aes256Gcm, 1, 0);
            let nonces = Nonces::after(Suite::Aes256Gcm, 9);
            let sealed = PacketKey::new(Suite::Aes256Gcm, &key, KeyForm::Bare);
            sealed.with(|key| {
                seal_in_place((key, nonces), &mut additional, PacketKind::Disconnect, sequence, &mut packet);
            });
            assert_eq!(opener.open(&mut packet), Err(OpenError::NotAuthentic), "{sequence}");
        }
        let mut sealer = Sealer::new(Suite::Aes256Gcm, &key, 1).after(9);
        let mut packet = Vec::new();
        sealer.seal_disconnect(&mut packet).unwrap();
        assert!(opener.open(&mut packet.clone()).is_ok());
        opener.forget_received();
        opener.answered(8);
        assert_eq!(opener.open(&mut packet), Err(OpenError::NotAuthentic), "of another challenge");
    }

    /// The numbers outside of connections are for packets that may be repeated.
    #[test]
    fn a_packet_of_a_connection_with_a_number_from_outside_does_not_open() {
        for suite in Suite::ALL {
            let key = Key::new([1; 32]);
            let mut opener = Opener::new(suite, &key, 1, Side::Server);
            let open = |opener: &mut Opener, kind, sequence| {
                let mut packet = Vec::new();
                seal_unconnected((suite, &key), 1, kind, sequence, &[0; CHALLENGE_BODY_LEN], &mut packet);
                opener.open(&mut packet).map(|opened| opened.sequence)
            };
            for sequence in [UNCONNECTED_SEQUENCE, u64::MAX] {
                assert_eq!(open(&mut opener, PacketKind::Payload, sequence), Err(OpenError::NotAuthentic));
                assert_eq!(open(&mut opener, PacketKind::Response, sequence), Ok(sequence));
            }
            assert_eq!((opener.newest(), open(&mut opener, PacketKind::Payload, 5)), (0, Ok(5)));
        }
    }

    #[test]
    fn a_bare_key_and_a_prepared_one_seal_the_same_bytes_one_by_one_and_in_rows() {
        for suite in Suite::ALL {
            let sealer = |form| Sealer::new(suite, &Key::new([4; 32]), 1).in_form(form);
            let (mut bare, mut prepared) = (sealer(KeyForm::Bare), sealer(KeyForm::Prepared));
            assert_eq!(bare.heap_bytes(), 0);
            let mut packets = [[0x33; 2 + 40 + TAG_LEN]; 3];
            let sequences = bare.row(|row| packets.each_mut().map(|packet| row.seal_payload(packet)));
            assert_eq!(sequences, [Ok(0), Ok(1), Ok(2)]);
            assert_eq!(bare.next_sequence(), 3);
            let mut opener = Opener::new(suite, &Key::new([4; 32]), 1, Side::Client).in_form(KeyForm::Bare);
            assert_eq!(opener.heap_bytes(), 0);
            for mut packet in packets {
                let mut other = [0x33; 2 + 40 + TAG_LEN];
                prepared.seal_payload(&mut other).unwrap();
                assert_eq!(packet, other);
                assert_eq!(opener.open(&mut packet).unwrap().body, [0x33; 40]);
            }
            assert!(bare.row(|row| row.seal_payload(&mut [0; 18])).is_err(), "no payload");
        }
    }

    #[test]
    fn a_connection_never_reaches_the_sequence_numbers_outside_of_connections() {
        let mut sealer = Sealer::new(Suite::default(), &Key::new([1; 32]), 1);
        sealer.next_sequence = UNCONNECTED_SEQUENCE - 1;
        let mut out = Vec::new();
        assert_eq!(sealer.seal_disconnect(&mut out), Ok(UNCONNECTED_SEQUENCE - 1));
        assert_eq!(sealer.seal_disconnect(&mut out), Err(SealError::SequenceExhausted));
        assert_eq!(sealer.next_sequence(), UNCONNECTED_SEQUENCE);
    }

    #[test]
    fn packets_open_at_every_length_of_the_sequence_number() {
        let sequences = [0, 8, 16, 24, 32, 40, 48, 56, 62].map(|bits| [(1u64 << bits) - 1, 1 << bits]);
        for suite in Suite::ALL {
            for sequence in sequences.into_iter().flatten().filter(|&sequence| sequence < suite.packets_max()) {
                let key = Key::new([sequence as u8; 32]);
                let mut sealer = Sealer::new(suite, &key, 1);
                sealer.next_sequence = sequence;
                let mut packet = vec![0x77; sealer.header_len() + 9 + TAG_LEN];
                assert_eq!(sealer.seal_payload(&mut packet), Ok(sequence));
                let mut opener = Opener::new(suite, &key, 1, Side::Server);
                let opened = opener.open(&mut packet).unwrap();
                assert_eq!((opened.sequence, opened.body), (sequence, &mut [0x77; 9][..]));
            }
        }
    }
}
