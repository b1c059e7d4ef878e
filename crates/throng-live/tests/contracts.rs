//! The stream over real sockets.

mod browser;
mod stream;
