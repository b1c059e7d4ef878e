//! The conformance levels again, with all clients at an edge.

mod stage {
    pub(crate) use crate::stage::*;

    pub(crate) type Stage = crate::stage::StageOf<true>;

    pub(crate) const WORLDS: u64 = 300;
}

#[path = "../access.rs"]
mod access;
#[path = "../conformance_l1.rs"]
mod conformance_l1;
#[path = "../conformance_l2.rs"]
mod conformance_l2;
#[path = "../conformance_l3.rs"]
mod conformance_l3;
#[path = "../conformance_l4.rs"]
mod conformance_l4;
#[path = "../conformance_l5.rs"]
mod conformance_l5;
#[path = "../conformance_l6.rs"]
mod conformance_l6;
#[path = "../conformance_l7.rs"]
mod conformance_l7;
#[path = "../delivery.rs"]
mod delivery;
#[path = "../drop_in.rs"]
mod drop_in;
#[path = "../fan_out.rs"]
mod fan_out;
#[path = "../handover_storm.rs"]
mod handover_storm;
#[path = "../hold.rs"]
mod hold;
#[path = "../owner_notices.rs"]
mod owner_notices;
#[path = "../spatial_handover.rs"]
mod spatial_handover;
#[path = "../spatial_interest.rs"]
mod spatial_interest;
