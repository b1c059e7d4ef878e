//! How bots decide.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use throng::{Decoder, ObjectView, Replicate};
use throng_crowd::kinds::{Character, LabKind};
use throng_crowd::scenario::Scenario;
use throng_crowd::world::{BotBrain, BotInput};

/// Decides what one bot does. [`BotBrain`] is the built-in one; `examples/corner.rs` has one of its own.
pub trait Brain: Send {
    /// Whether it looks at its [`View`]. Then the bot's client decodes all that it is sent, which costs processor time; else
    /// the view of most bots is empty. Asked once.
    fn looks(&self) -> bool {
        false
    }

    /// The next input. Called [`input_hz`](Scenario::input_hz) times per second from the connection on. The bot numbers the
    /// inputs by itself: `sequence` does not matter.
    fn input(&mut self, view: &View<'_>) -> BotInput;
}

impl Brain for BotBrain {
    fn input(&mut self, _: &View<'_>) -> BotInput {
        self.decide()
    }
}

/// The world as a bot's client knows it.
#[derive(Clone, Copy)]
pub struct View<'a> {
    scenario: &'a Scenario,
    sight: Option<&'a dyn Sight>,
}

/// The objects in sight of a client, whatever its decoder.
trait Sight {
    fn each(&self, visit: &mut dyn FnMut(&ObjectView<'_>));
}

impl<D: Decoder> Sight for D {
    fn each(&self, visit: &mut dyn FnMut(&ObjectView<'_>)) {
        self.views().for_each(|object| visit(&object));
    }
}

impl<'a> View<'a> {
    /// A client without a decoder sees nothing.
    pub(super) fn new<D: Decoder>(scenario: &'a Scenario, decoder: Option<&'a D>) -> View<'a> {
        View { scenario, sight: decoder.map(|decoder| decoder as &dyn Sight) }
    }

    /// The scenario that is played.
    pub fn scenario(&self) -> &'a Scenario {
        self.scenario
    }

    /// The bot's own character, as its client was sent it last. The origin of positions is the centre of the area.
    pub fn own(&self) -> Option<Character> {
        let mut own = None;
        self.each_character(|character, is_own| {
            if is_own {
                own = Some(character.clone());
            }
        });
        own
    }

    /// Calls `visit` with each other character in sight.
    pub fn each_other(&self, mut visit: impl FnMut(&Character)) {
        self.each_character(|character, is_own| {
            if !is_own {
                visit(character);
            }
        });
    }

    fn each_character(&self, mut visit: impl FnMut(&Character, bool)) {
        let [width, depth] = self.scenario.area_m;
        let Some(sight) = self.sight else { return };
        let mut words = Vec::new();
        sight.each(&mut |object| {
            if object.kind.0 == Character::NUMBER {
                let mut character = Character::default();
                character.apply(object.known_fields, object.shown(&mut words));
                // Replicated positions count from the corner.
                character.position[0] -= width / 2.0;
                character.position[1] -= depth / 2.0;
                visit(&character, object.is_own());
            }
        });
    }
}

type Make = dyn Fn(&Scenario, u32) -> Box<dyn Brain> + Send + Sync;

/// Makes the brain of each bot, from the scenario and the bot's number.
#[derive(Clone)]
pub struct Brains(Arc<Make>);

impl Brains {
    /// Bots of one's own.
    pub fn new(make: impl Fn(&Scenario, u32) -> Box<dyn Brain> + Send + Sync + 'static) -> Brains {
        Brains(Arc::new(make))
    }

    pub(super) fn make(&self, scenario: &Scenario, bot: u32) -> Box<dyn Brain> {
        (self.0)(scenario, bot)
    }

    /// Whether bots look at their views: the first one stands for all.
    pub(super) fn look(&self, scenario: &Scenario) -> bool {
        self.make(scenario, 0).looks()
    }
}

/// The built-in bots.
impl Default for Brains {
    fn default() -> Brains {
        Brains::new(|scenario, bot| Box::new(BotBrain::new(scenario, bot)))
    }
}

impl Debug for Brains {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Brains")
    }
}
