//! The contracts of maps and rays, each in a module of its own.

mod damage;
mod fog;
mod format;
mod layers;
mod overlap;
mod rays;
mod support;
mod town;
