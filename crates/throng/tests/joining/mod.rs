//! From the first packet to the first words: whatever is lost, doubled or overtaken on the way, the game at either end gets
//! each reliable message exactly once, nothing comes before *connected*, and nothing is lost in silence.

mod every_packet;
mod herd;
mod replaced;
mod stage;
mod weather;
