//! The contracts of schemas, each in a module of its own.

mod any_bytes;
mod codes;
mod composed;
mod derive;
mod hash;
mod kinds;
mod quantisers;
mod wire;
