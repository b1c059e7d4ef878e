//! Keys and authenticated ciphers. The ciphers themselves come from `ring` (packets and challenge tokens, the hot path) and
//! `chacha20poly1305` (connect tokens, which need the 24-byte nonce).

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::fmt;
use zeroize::Zeroize;

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

/// A suite's cipher, ChaCha20-Poly1305 (RFC 8439) or AES-256-GCM (NIST SP 800-38D), with a key that is ready for use. About
/// 0.5 KiB. Unlike a [`Key`], it is not wiped when dropped: `ring` gives no access to its copy.
pub(super) struct PacketKey(LessSafeKey);

impl PacketKey {
    pub(super) fn new(suite: Suite, key: &Key) -> PacketKey {
        let algorithm = match suite {
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Suite::Aes256Gcm => &AES_256_GCM,
        };
        let unbound = UnboundKey::new(algorithm, key.as_bytes()).expect("the algorithm's key has 32 bytes");
        PacketKey(LessSafeKey::new(unbound))
    }

    /// Encrypts `body` in place and returns its tag. The pair of key and `sequence` must never be used twice.
    #[inline]
    pub(super) fn seal(&self, sequence: u64, additional: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = self
            .0
            .seal_in_place_separate_tag(sequence_nonce(sequence), Aad::from(additional), body)
            .expect("packets are far below the ciphers' limit of 64 GiB");
        let mut bytes = [0; TAG_LEN];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// Verifies the tag in the last 16 bytes of `sealed` and decrypts what stands before it, in place.
    #[inline]
    pub(super) fn open<'a>(
        &self,
        sequence: u64,
        additional: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotAuthentic> {
        self.0.open_in_place(sequence_nonce(sequence), Aad::from(additional), sealed).map_err(|_| NotAuthentic)
    }
}

/// Four zero bytes, then the sequence number, lowest byte first.
#[inline]
fn sequence_nonce(sequence: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&sequence.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
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
