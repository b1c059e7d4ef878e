//! Encryption of TCP and WebSocket doors.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::counted::{Count, Counted};
use super::memory::{Holding, Memory, Part};
use super::options::TlsFiles;

/// Certificates that cannot be used. The operator is at fault.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("{path}: {cause}")]
    File {
        /// Which file.
        path: PathBuf,
        /// The error.
        cause: pem::Error,
    },
    /// Certificates and key do not fit together.
    #[error("the certificate and its key cannot be used: {0}")]
    Config(#[from] rustls::Error),
}

impl TlsError {
    /// A stable name for logs.
    pub fn tag(&self) -> &'static str {
        match self {
            TlsError::File { .. } => "tls_file",
            TlsError::Config(_) => "tls_config",
        }
    }
}

/// A door's certificates, which may be exchanged while it is open.
pub(crate) struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub(crate) fn load(files: &TlsFiles) -> Result<Tls, TlsError> {
        Ok(Tls { files: files.clone(), config: RwLock::new(read(files)?) })
    }

    /// Reads the files again, and leaves those in use that are.
    pub(crate) fn read_again(&self) -> Result<Arc<ServerConfig>, TlsError> {
        read(&self.files)
    }

    /// For new connections.
    pub(crate) fn exchange(&self, config: Arc<ServerConfig>) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Shakes hands. The memory of the library's buffers counts in `memory`.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        memory: &Arc<Memory>,
    ) -> io::Result<TlsStream<Counted<TcpStream, Swelling>>> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        let stream = Counted { stream, count: Swelling(Holding::new(memory, Part::Inbound, 0)) };
        TlsAcceptor::from(config).accept(stream).await
    }
}

/// The library's buffers once much has come at once, as measured: records on their way to plain text. They keep their
/// size as long as the connection is open.
const SWOLLEN_BYTES: usize = 26 << 10;
/// So much at once fits into what every connection has.
const FREE_BYTES: usize = 4 << 10;

/// Counts the memory of the library that reads from a socket.
pub(crate) struct Swelling(Holding);

impl Count for Swelling {
    fn add(&mut self, bytes: usize) -> io::Result<()> {
        if bytes >= FREE_BYTES {
            self.0.set(SWOLLEN_BYTES);
        }
        Ok(())
    }
}

/// Whether a handshake has failed in a way that says nothing bad about the peer: it left, or it speaks TLS and does not like
/// what it was offered.
pub(crate) fn is_harmless(error: &io::Error) -> bool {
    use rustls::Error::{AlertReceived, PeerIncompatible};
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(cause) => matches!(cause, AlertReceived(_) | PeerIncompatible(_)),
        None => true,
    }
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|cause| file_error(&files.certificates, cause))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|cause| file_error(&files.key, cause))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}

fn file_error(path: &Path, cause: pem::Error) -> TlsError {
    TlsError::File { path: path.to_path_buf(), cause }
}
