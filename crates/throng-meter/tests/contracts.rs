//! The contracts of the meter, each in a module of its own.

mod records_are_judged;
mod subsystems_have_names;
mod ticks_add_up;
