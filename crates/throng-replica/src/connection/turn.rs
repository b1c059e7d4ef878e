//! The content of a subscription's turn: which frame it is due.

use super::CONTINUE;
use crate::frame::{Since, Variant};
use crate::hub::{ChannelState, Planner};
use crate::lattice;
use crate::subscription::{Stage, Standing, Subscription};

/// The content of a subscription's turn.
pub(super) enum Next {
    /// This request's frame, or [`CONTINUE`].
    Frame(u32),
    /// Something old must be delivered first.
    HeldBack,
    /// The channel has not changed.
    Nothing,
}

pub(super) fn next_frame<S: ChannelState>(
    (subscription, standing): (&Subscription, &Standing),
    is_overdue: bool,
    planner: &mut Planner<'_, S>,
) -> Next {
    if subscription.stage == Stage::Sending {
        return Next::Frame(CONTINUE);
    }
    let now = planner.now;
    let state = planner.state(subscription.channel);
    let is_fresh = subscription.stage == Stage::Fresh;
    // An empty channel has a first frame too: the client has to know that it is sent the channel, so that it waits for
    // what moves there.
    let nothing_new = !is_fresh && !state.last_change().is_newer_than(standing.since);
    if nothing_new {
        return Next::Nothing;
    }
    if is_overdue && !is_fresh || standing.is_held_back(subscription.stage, now, state.retention_ticks()) {
        return Next::HeldBack;
    }
    if is_fresh {
        return Next::Frame(planner.request(subscription.channel, Since::Start, Variant::default()));
    }
    let is_behind = state.horizon().is_newer_than(standing.since);
    if !is_behind && lattice::is_in_step(standing.since, subscription.interval_ticks, now) {
        return Next::Frame(planner.request_changes(subscription.channel, standing.since));
    }
    let phase = planner.turns(subscription.channel).phase;
    let mut begins = lattice::beginning(standing.since, subscription.interval_ticks, now, phase);
    if begins != standing.since
        && let Some(rush) = state.last_rush()
    {
        begins = lattice::not_before(begins, rush, standing.since);
    }
    let (since, variant) = if is_behind { state.catch_up(begins) } else { (Since::Tick(begins), Variant::default()) };
    Next::Frame(planner.request(subscription.channel, since, variant))
}
