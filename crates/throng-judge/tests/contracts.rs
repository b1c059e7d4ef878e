//! Verdicts on measurements whose truth is known, because it was made up.

mod capacity_is_found;
mod changes_are_told_from_noise;
mod curves_forecast;
mod estimates_hold;
mod growth_is_forecast;
mod loads_are_held;
mod revisions_are_found;
mod steady_state_is_found;
