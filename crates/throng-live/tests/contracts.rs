//! The stream over real sockets.

mod stream;
