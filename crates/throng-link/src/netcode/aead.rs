//! Keys and authenticated ciphers. The ciphers themselves come from `ring` (packets and challenge tokens, the hot path) and
//! `chacha20poly1305` (connect tokens, which need the 24-byte nonce).

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::fmt;
use zeroize::Zeroize;

use super::seal::UNCONNECTED_SEQUENCE;
use super::suite::Suite;

/// Bytes of a key.
pub const KEY_LEN: usize = 32;
/// Bytes of an authentication tag.
pub const TAG_LEN: usize = 16;
/// Bytes of the nonce of a connect token.
pub(super) const TOKEN_NONCE_LEN: usize = 24;

/// A secret key of 32 bytes. Wiped when dropped, never printed, not comparable.
#[derive(Clone)]
pub struct Key([u8; KEY_LEN]);

impl Key {
    /// A key with these bytes, which must come from a cryptographic source of randomness.
    pub const fn new(bytes: [u8; KEY_LEN]) -> Key {
        Key(bytes)
    }

    /// A new key from `random`, which fills a buffer with unpredictable bytes.
    pub fn generate(random: &mut dyn FnMut(&mut [u8])) -> Key {
        let mut key = Key([0; KEY_LEN]);
        random(&mut key.0);
        key
    }

    /// The secret bytes, for storing the key.
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// The bytes did not carry a valid tag for this key, nonce and additional data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAuthentic;

/// How a connection holds the key of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyForm {
    /// With AES, the state of the cipher beside the key: 544 bytes. Saves about 0.15 µs for each row of packets while the
    /// states of all connections fit into the processor's caches.
    #[default]
    Prepared,
    /// The 32 bytes of the key alone; each row of packets makes the state anew. For so many connections that reading a
    /// state from memory takes as long as making it.
    Bare,
}

/// A suite's cipher, ChaCha20-Poly1305 (RFC 8439) or AES-256-GCM (NIST SP 800-38D), with a key.
///
/// The key is wiped when dropped. The prepared state is not: `ring` gives no access to it.
pub(super) struct PacketKey {
    suite: Suite,
    key: Key,
    /// Never with ChaCha20-Poly1305, whose state is a copy of the key.
    prepared: Option<Box<ReadyKey>>,
}

impl PacketKey {
    pub(super) fn new(suite: Suite, key: &Key, form: KeyForm) -> PacketKey {
        let prepared = match (suite, form) {
            (Suite::Aes256Gcm, KeyForm::Prepared) => Some(Box::new(ReadyKey::new(suite, key))),
            _ => None,
        };
        PacketKey { suite, key: key.clone(), prepared }
    }

    /// The same key in another form.
    pub(super) fn in_form(self, form: KeyForm) -> PacketKey {
        PacketKey::new(self.suite, &self.key, form)
    }

    pub(super) fn suite(&self) -> Suite {
        self.suite
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.prepared.as_ref().map_or(0, |_| size_of::<ReadyKey>())
    }

    /// Calls `run` with the key ready for use.
    #[inline]
    pub(super) fn with<T>(&self, run: impl FnOnce(&ReadyKey) -> T) -> T {
        match &self.prepared {
            Some(prepared) => run(prepared),
            None => run(&ReadyKey::new(self.suite, &self.key)),
        }
    }
}

/// A key from which everything is made that its cipher needs.
pub(super) struct ReadyKey(LessSafeKey);

impl ReadyKey {
    fn new(suite: Suite, key: &Key) -> ReadyKey {
        let algorithm = match suite {
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Suite::Aes256Gcm => &AES_256_GCM,
        };
        let unbound = UnboundKey::new(algorithm, key.as_bytes()).expect("the algorithm's key has 32 bytes");
        ReadyKey(LessSafeKey::new(unbound))
    }

    /// Encrypts `body` in place and returns its tag. The pair of key and `nonce` must never be used twice.
    #[inline]
    pub(super) fn seal(&self, nonce: [u8; NONCE_LEN], additional: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = self
            .0
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(additional), body)
            .expect("packets are far below the ciphers' limit of 64 GiB");
        let mut bytes = [0; TAG_LEN];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// Verifies the tag in the last 16 bytes of `sealed` and decrypts what stands before it, in place.
    #[inline]
    pub(super) fn open<'a>(
        &self,
        nonce: [u8; NONCE_LEN],
        additional: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotAuthentic> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(additional), sealed).map_err(|_| NotAuthentic)
    }
}

/// Makes the nonces of packets from their sequence numbers.
///
/// ```text
/// standard          zeros 4                       | sequence number 8
/// of a connection   number of the challenge 8     | sequence number 4      AES-256-GCM, from the server
/// ```
///
/// The last byte of the first kind is 128 or more for packets outside of a connection, that of the second kind is below 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nonces {
    /// Those of the standard.
    Standard,
    /// Those of a connection that began with this challenge. So servers that accept the same token have different nonces, and
    /// so has a server before and after a restart.
    Of { challenge: u64 },
}

impl Nonces {
    /// The nonces of what a server sends after a challenge. Those of the standard's cipher cannot be changed.
    pub(super) fn after(suite: Suite, challenge: u64) -> Nonces {
        match suite {
            Suite::ChaCha20Poly1305 => Nonces::Standard,
            Suite::Aes256Gcm => Nonces::Of { challenge },
        }
    }

    /// A connection's sequence numbers are below [`Suite::packets_max`]; others have bit 63 set.
    #[inline]
    pub(super) fn nonce(self, sequence: u64) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        match self {
            Nonces::Of { challenge } if sequence < UNCONNECTED_SEQUENCE => {
                nonce[..8].copy_from_slice(&challenge.to_le_bytes());
                nonce[8..].copy_from_slice(&(sequence as u32).to_le_bytes());
            }
            _ => nonce[4..].copy_from_slice(&sequence.to_le_bytes()),
        }
        nonce
    }
}

/// Encrypts `message` in place with XChaCha20-Poly1305 and returns its tag.
pub(super) fn seal_token(
    key: &Key,
    nonce: &[u8; TOKEN_NONCE_LEN],
    additional: &[u8],
    message: &mut [u8],
) -> [u8; TAG_LEN] {
    let cipher = XChaCha20Poly1305::new(key.as_bytes().into());
    let tag = cipher
        .encrypt_inout_detached(nonce.into(), additional, message.into())
        .expect("a token is far below the cipher's limit");
    tag.into()
}

/// Verifies `tag` and decrypts `message` in place with XChaCha20-Poly1305.
pub(super) fn open_token(
    key: &Key,
    nonce: &[u8; TOKEN_NONCE_LEN],
    additional: &[u8],
    message: &mut [u8],
    tag: &[u8; TAG_LEN],
) -> Result<(), NotAuthentic> {
    let cipher = XChaCha20Poly1305::new(key.as_bytes().into());
    cipher.decrypt_inout_detached(nonce.into(), additional, message.into(), tag.into()).map_err(|_| NotAuthentic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_printed() {
        assert_eq!(format!("{:?}", Key::new([0x5a; KEY_LEN])), "Key(secret)");
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// Seals, compares, and opens again, in both forms of the key.
    fn check(suite: Suite, [key, nonce, additional, plain, sealed]: [&str; 5]) {
        let (key, nonce) = (Key::new(bytes(key).try_into().unwrap()), bytes(nonce).try_into().unwrap());
        let (additional, plain) = (bytes(additional), bytes(plain));
        for form in [KeyForm::Prepared, KeyForm::Bare] {
            let key = PacketKey::new(suite, &key, form);
            let mut packet = plain.clone();
            let tag = key.with(|key| key.seal(nonce, &additional, &mut packet));
            packet.extend(tag);
            assert_eq!(packet, bytes(sealed));
            let opened = key.with(|key| key.open(nonce, &additional, &mut packet).map(|body| body.to_vec()));
            assert_eq!(opened.as_ref(), Ok(&plain));
        }
    }

    /// Test cases 13, 14 and 16 of *The Galois/Counter Mode of Operation (GCM)*, McGrew and Viega, as submitted to NIST.
    #[test]
    fn aes_256_gcm_gives_the_published_bytes() {
        let (zero_key, zero_nonce) = ("00".repeat(32), "00".repeat(12));
        check(Suite::Aes256Gcm, [&zero_key, &zero_nonce, "", "", "530f8afbc74536b9a963b4f1c4cb738b"]);
        let sealed = "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919";
        check(Suite::Aes256Gcm, [&zero_key, &zero_nonce, "", &"00".repeat(16), sealed]);
        let key = "feffe9928665731c6d6a8f9467308308".repeat(2);
        let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                     1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
        let sealed = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
                      8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662\
                      76fc6ece0f4e1768cddf8853bb2d551b";
        let additional = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
        check(Suite::Aes256Gcm, [&key, "cafebabefacedbaddecaf888", additional, plain, sealed]);
    }

    /// RFC 8439, section 2.8.2.
    #[test]
    fn chacha20_poly1305_gives_the_published_bytes() {
        let key = "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f";
        let plain = "4c616469657320616e642047656e746c656d656e206f662074686520636c6173\
                     73206f66202739393a204966204920636f756c64206f6666657220796f75206f\
                     6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73\
                     637265656e20776f756c642062652069742e";
        let sealed = "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6\
                      3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36\
                      92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc\
                      3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691";
        let nonce = "070000004041424344454647";
        check(Suite::ChaCha20Poly1305, [key, nonce, "50515253c0c1c2c3c4c5c6c7", plain, sealed]);
    }

    #[test]
    fn nonces_differ_between_challenges_numbers_and_inside_and_outside_of_connections() {
        let suite = Suite::Aes256Gcm;
        let edge = suite.packets_max() - 1;
        let challenges = [0, 1, 1 << 31, u64::MAX >> 1].map(|challenge| Nonces::after(suite, challenge));
        let mut seen = std::collections::BTreeSet::new();
        for sequence in [0, 1, 255, 256, edge] {
            assert!(challenges.iter().all(|nonces| seen.insert(nonces.nonce(sequence))));
        }
        for sequence in [UNCONNECTED_SEQUENCE, UNCONNECTED_SEQUENCE + edge, u64::MAX] {
            let outside = challenges.map(|nonces| nonces.nonce(sequence));
            assert_eq!(outside, [Nonces::Standard.nonce(sequence); 4]);
            assert!(seen.insert(outside[0]));
        }
        assert_eq!(
            Nonces::after(suite, 0x0807_0605_0403_0201).nonce(0xc0b_0a09),
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
        );
        let standard = Nonces::after(Suite::ChaCha20Poly1305, 7);
        assert_eq!(standard, Nonces::Standard);
        assert_eq!(standard.nonce(0x0807_0605_0403_0201), [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn only_a_prepared_key_of_aes_takes_memory_beside_itself() {
        assert!(size_of::<PacketKey>() <= 48);
        let heap = |suite, form| PacketKey::new(suite, &Key::new([1; KEY_LEN]), form).heap_bytes();
        assert_eq!(heap(Suite::Aes256Gcm, KeyForm::Prepared), size_of::<ReadyKey>());
        assert!(size_of::<ReadyKey>() <= 576);
        for form in [KeyForm::Prepared, KeyForm::Bare] {
            assert_eq!(heap(Suite::ChaCha20Poly1305, form), 0);
        }
        let key = PacketKey::new(Suite::Aes256Gcm, &Key::new([1; KEY_LEN]), KeyForm::Prepared);
        assert_eq!(key.in_form(KeyForm::Bare).heap_bytes(), 0);
    }

    #[test]
    fn a_token_opens_only_with_its_key_nonce_and_additional_data() {
        let (key, nonce, plain) = (Key::new([1; KEY_LEN]), [2; TOKEN_NONCE_LEN], [3; 40]);
        let mut sealed = plain;
        let tag = seal_token(&key, &nonce, b"context", &mut sealed);
        let open = |key: &Key, nonce: &[u8; TOKEN_NONCE_LEN], additional: &[u8]| {
            let mut message = sealed;
            open_token(key, nonce, additional, &mut message, &tag).map(|()| message)
        };
        assert_eq!(open(&key, &nonce, b"context"), Ok(plain));
        assert_eq!(open(&Key::new([9; KEY_LEN]), &nonce, b"context"), Err(NotAuthentic));
        assert_eq!(open(&key, &[9; TOKEN_NONCE_LEN], b"context"), Err(NotAuthentic));
        assert_eq!(open(&key, &nonce, b"other"), Err(NotAuthentic));
    }
}
