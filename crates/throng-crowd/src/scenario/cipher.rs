use serde::{Deserialize, Serialize};
use throng::Suite;

/// The cipher of the packets between server and bots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// The one that is faster on this machine, measured when the scenario is read.
    #[default]
    Fastest,
    /// That of the netcode standard.
    Chacha20Poly1305,
    /// The one for processors with instructions for AES.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
}

impl Cipher {
    /// Every cipher, with the name that files and the command line use.
    pub const ALL: [(&'static str, Cipher); 3] = [
        ("fastest", Cipher::Fastest),
        ("chacha20-poly1305", Cipher::Chacha20Poly1305),
        ("aes-256-gcm", Cipher::Aes256Gcm),
    ];

    /// The cipher's name in files and on the command line.
    pub fn name(self) -> &'static str {
        Cipher::ALL.iter().find(|(_, cipher)| *cipher == self).map_or("fastest", |(name, _)| name)
    }

    /// The cipher suite of the connections.
    pub fn suite(self) -> Suite {
        match self {
            Cipher::Fastest => throng::fastest_suite(),
            Cipher::Chacha20Poly1305 => Suite::ChaCha20Poly1305,
            Cipher::Aes256Gcm => Suite::Aes256Gcm,
        }
    }

    /// The same cipher by its own name.
    pub(super) fn chosen(self) -> Cipher {
        match self.suite() {
            Suite::ChaCha20Poly1305 => Cipher::Chacha20Poly1305,
            Suite::Aes256Gcm => Cipher::Aes256Gcm,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files() {
        for (name, cipher) in Cipher::ALL {
            assert_eq!(serde_json::to_value(cipher).unwrap(), name);
        }
        assert_ne!(Cipher::Fastest.chosen(), Cipher::Fastest);
    }
}
