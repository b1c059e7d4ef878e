//! The conformance levels again, with all clients at an edge.

mod stage {
    pub(crate) use crate::stage::*;

    pub(crate) type Stage = crate::stage::StageOf<true>;
}

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
