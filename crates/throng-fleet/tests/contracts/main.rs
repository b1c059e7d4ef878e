//! The contracts of a process in a fleet, each in a module of its own.

mod fake;
mod over_http;
mod virtual_time;
