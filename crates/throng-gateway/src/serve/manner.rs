//! How a peer writes.

use std::sync::atomic::{AtomicU8, Ordering};

use throng_channeld::{Compression, Dialect};

/// How a peer writes its frames, and so how it is written to: told by what is read, used by what is written.
#[derive(Debug, Default)]
pub(crate) struct Manner {
    dialect: AtomicU8,
    compression: AtomicU8,
}

impl Manner {
    pub(crate) fn learn(&self, dialect: Dialect, compression: Compression) {
        self.dialect.store(dialect as u8, Ordering::Relaxed);
        if compression != Compression::None {
            self.compression.store(compression.to_byte(), Ordering::Relaxed);
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        const FIXED: u8 = Dialect::Fixed as u8;
        const LEGACY: u8 = Dialect::Legacy as u8;
        match self.dialect.load(Ordering::Relaxed) {
            FIXED => Dialect::Fixed,
            LEGACY => Dialect::Legacy,
            _ => Dialect::Undecided,
        }
    }

    pub(crate) fn compression(&self) -> Compression {
        Compression::from_byte(self.compression.load(Ordering::Relaxed))
    }
}
