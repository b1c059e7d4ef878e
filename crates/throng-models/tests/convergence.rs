//! After any storm over any network, each client of an older model holds what the server holds for its audience: the
//! storms are those of our own model.

use std::sync::Arc;

use crate::harness::storm::{Storm, StormOptions};
use crate::harness::{Contender, World, WorldOptions};
use throng::{Schema, ServerOptions, StartError, Tick};
use throng_models::{Detection, Graph, Legacy, Scratch, SharedState, SharedStateOptions};
use throng_seeds::for_seeds;

/// The same storms for one model: ordinary ones, those with little budget, and those across the wrap of the tick.
fn weather<R: Contender>(model: impl Fn(&Arc<Schema>, &ServerOptions) -> Result<R, StartError>) {
    for_seeds(600, |seed| {
        let mut options = WorldOptions::new(seed);
        let mut calm_ticks = 900;
        match seed % 3 {
            0 => {}
            1 => {
                options.server.client_bytes_per_s = [3_000, 6_000, 12_000][seed as usize / 3 % 3];
                calm_ticks = 3_000;
            }
            _ => options.server.replicator.first_tick = Tick((1 << 32) - 80),
        }
        let world = World::with_model(options, &model);
        Storm::over(world, StormOptions { calm_ticks, ..StormOptions::default() }).run().map(drop)
    });
}

#[test]
fn clients_of_the_legacy_model_converge_after_any_storm() {
    weather(|schema, options| Legacy::new(schema, options, Detection::Poll));
}

#[test]
fn clients_of_the_legacy_model_with_push_marks_converge_after_any_storm() {
    weather(|schema, options| Legacy::new(schema, options, Detection::Push));
}

#[test]
fn clients_of_the_legacy_model_converge_when_kinds_have_update_intervals() {
    weather(|schema, options| Legacy::with_intervals(schema, options, Detection::Poll, vec![3, 5]));
}

#[test]
fn clients_of_the_graph_converge_after_any_storm() {
    weather(Graph::new);
}

#[test]
fn clients_of_the_shared_state_model_converge_after_any_storm() {
    weather(|schema, options| SharedState::new(schema, options, shared(Scratch::Shared, false)));
}

#[test]
fn r18_clients_of_the_shared_state_model_converge_with_baselines() {
    weather(|schema, options| SharedState::new(schema, options, shared(Scratch::Shared, true)));
}

#[test]
fn clients_of_the_shared_state_model_converge_wherever_its_lists_are() {
    weather(|schema, options| SharedState::new(schema, options, shared(Scratch::PerConnection, false)));
}

fn shared(scratch: Scratch, has_baselines: bool) -> SharedStateOptions {
    SharedStateOptions { scratch, has_baselines }
}
