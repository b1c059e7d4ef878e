use crate::scenario::{Movement, Scenario};

use super::input::BotInput;
use super::{family, mix};

/// Chance per second to begin a turn, and to jump.
const CHANCE_PER_S: f32 = 0.1;
/// How long a turn takes, in seconds.
const TURN_S: f32 = 0.5;
/// A quarter turn per second, as a share of the largest rate.
const TURN: i8 = 64;
/// Largest change of aim per input, and largest aim, as shares of the largest pitch.
const AIM_STEP: i8 = 2;
const AIM_LIMIT: i8 = 40;

/// Decides what a bot does, without knowing where it is: keep going forward; each second turn left or right with a
/// chance of 10 %, or every half second if it moves erratically; jump with a chance of 10 %; let the aim drift up and down.
#[derive(Clone, Debug)]
pub struct BotBrain {
    movement: Movement,
    inputs_per_s: u32,
    rng: fastrand::Rng,
    /// Inputs until the dice are thrown again.
    until_dice: u32,
    /// Inputs until the present turn is done.
    turning: u32,
    input: BotInput,
}

impl BotBrain {
    /// The brain of the bot with that number.
    pub fn new(scenario: &Scenario, bot: u32) -> BotBrain {
        let mut rng = fastrand::Rng::with_seed(mix(scenario.seed, family::BRAIN, u64::from(bot)));
        let inputs_per_s = scenario.input_hz.max(1);
        BotBrain {
            movement: scenario.movement,
            inputs_per_s,
            until_dice: rng.u32(..inputs_per_s),
            rng,
            turning: 0,
            input: BotInput::default(),
        }
    }

    /// The next input. To be called `input_hz` times per second.
    pub fn decide(&mut self) -> BotInput {
        if self.movement == Movement::Idle {
            return self.input;
        }
        self.input.forward = true;
        self.input.seek_centre = self.movement == Movement::Converge;
        self.input.jump = false;
        self.finish_turn();
        self.throw_dice();
        self.drift_aim();
        self.input
    }

    fn finish_turn(&mut self) {
        self.turning = self.turning.saturating_sub(1);
        if self.turning == 0 {
            self.input.turn = 0;
        }
    }

    fn throw_dice(&mut self) {
        if self.until_dice > 0 {
            self.until_dice -= 1;
            return;
        }
        let turn_inputs = ((self.inputs_per_s as f32 * TURN_S) as u32).max(1);
        let is_erratic = self.movement == Movement::Erratic;
        self.until_dice = if is_erratic { turn_inputs } else { self.inputs_per_s } - 1;
        if is_erratic || self.rng.f32() < CHANCE_PER_S {
            self.turning = turn_inputs;
            self.input.turn = if self.rng.bool() { TURN } else { -TURN };
        }
        self.input.jump = self.rng.f32() < CHANCE_PER_S;
    }

    fn drift_aim(&mut self) {
        let step = self.rng.i8(-AIM_STEP..=AIM_STEP);
        self.input.pitch = (self.input.pitch + step).clamp(-AIM_LIMIT, AIM_LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;

    fn scenario(input_hz: u32) -> Scenario {
        let overrides = Overrides { input_hz: Some(input_hz), ..Overrides::default() };
        Scenario::resolve("crowd", &overrides).unwrap()
    }

    #[test]
    fn chances_are_per_second_whatever_the_input_rate() {
        for input_hz in [5, 30] {
            let scenario = scenario(input_hz);
            let (mut jumps, mut turned_inputs) = (0, 0);
            for bot in 0..500 {
                let mut brain = BotBrain::new(&scenario, bot);
                for _ in 0..20 * input_hz {
                    let input = brain.decide();
                    assert!(input.forward && !input.seek_centre);
                    jumps += u32::from(input.jump);
                    turned_inputs += u32::from(input.turn != 0);
                }
            }
            let turned_s = turned_inputs as f32 / input_hz as f32;
            assert!((850..1150).contains(&jumps), "{jumps} jumps in 10,000 s at {input_hz} Hz");
            assert!((350.0..600.0).contains(&turned_s), "turned for {turned_s} of 10,000 s at {input_hz} Hz");
        }
    }

    #[test]
    fn the_erratic_turn_for_half_a_second_and_then_again() {
        let scenario = Scenario { movement: Movement::Erratic, ..scenario(30) };
        let mut brain = BotBrain::new(&scenario, 7);
        let turns: Vec<i8> = (0..630).map(|_| brain.decide().turn).skip(30).collect();
        assert!(turns.iter().all(|turn| turn.abs() == TURN));
        let changes = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
        // 40 turns, every second of which goes the other way.
        assert!((10..30).contains(&changes), "{changes} changes in 20 s");
    }

    #[test]
    fn bots_do_not_act_in_step() {
        let scenario = scenario(30);
        let first_dice: std::collections::HashSet<_> =
            (0..100).map(|bot| BotBrain::new(&scenario, bot).until_dice).collect();
        assert!(first_dice.len() > 20);
    }

    #[test]
    fn the_aim_drifts_within_its_limits() {
        let mut brain = BotBrain::new(&scenario(30), 3);
        let aims: Vec<i8> = (0..10_000).map(|_| brain.decide().pitch).collect();
        assert!(aims.iter().all(|aim| aim.abs() <= AIM_LIMIT));
        assert!(aims.iter().any(|&aim| aim > 10) && aims.iter().any(|&aim| aim < -10));
    }
}
