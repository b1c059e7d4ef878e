//! The contracts of the library, each in a module of its own.

mod absence_and_wraps;
mod any_bytes;
mod backlogs;
mod bottleneck;
mod budget;
mod convergence;
mod endings;
mod fair_turns;
mod harness;
mod hostile;
mod idle_objects;
mod joining;
mod large_messages;
mod messages;
mod no_leak;
mod quiet_connections;
mod real_sockets;
mod safe_limits;
mod safe_start;
mod several_threads;
mod shared_equals_private;
mod sight;
mod slow_neighbours;
mod thread_count;
mod views;
mod wire_format;
