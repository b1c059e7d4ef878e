//! The contracts of the tactical game, each in a module.

mod abilities;
mod agents;
mod duels;
mod fights;
mod hostile;
mod network;
mod replay;
mod rounds;
mod support;
mod walking;
