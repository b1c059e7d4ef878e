//! What the tactical game promises, a module for each contract.

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
