//! The contracts of the match runtime, each in a module of its own.

mod seats;
