//! The contracts of the link, each in a module of its own.

mod any_bytes;
mod netcode_any_bytes;
mod netcode_client;
mod netcode_differential;
mod netcode_door;
mod netcode_house;
mod netcode_interop;
mod netcode_moving;
mod netcode_packets;
mod netcode_stage;
mod session_curves;
mod session_end;
mod session_hostile;
mod session_inputs;
mod session_messages;
mod session_pacing;
mod session_pair;
mod session_room;
mod session_tail;
mod session_verdicts;
