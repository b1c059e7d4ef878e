//! Compares the clients' state with the server's.

use crate::lockstep::Clients;
use crate::world::{Value, World};

/// As many past ticks of the world are remembered: state older than this counts as wrong.
const HISTORY_TICKS: usize = 64;

/// Clients that are looked at in a measured tick.
const SAMPLED_CLIENTS: u32 = 8;

/// The world's last ticks.
pub(crate) struct History {
    /// The newest last.
    past: std::collections::VecDeque<World>,
}

/// Ages of what clients hold, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ages {
    pub(crate) count: u64,
    pub(crate) sum_ticks: u64,
    pub(crate) max_ticks: u64,
}

impl History {
    pub(crate) fn new(world: &World) -> History {
        History { past: [world.clone()].into() }
    }

    pub(crate) fn push(&mut self, world: &World) {
        if self.past.len() == HISTORY_TICKS {
            self.past.pop_front();
        }
        self.past.push_back(world.clone());
    }

    /// How many ticks ago the object had the value.
    fn age(&self, object: u32, value: Value) -> Option<u64> {
        let newest_first = self.past.iter().rev();
        newest_first
            .take_while(|world| object < world.objects())
            .position(|world| world.value(object) == value)
            .map(|age| age as u64)
    }

    /// The age of everything that some clients hold, a few of them in each tick.
    pub(crate) fn sample(
        &self,
        tick: u32,
        clients: &mut dyn Clients,
        players: u32,
        ages: &mut Ages,
    ) -> Result<(), String> {
        for turn in 0..SAMPLED_CLIENTS.min(players) {
            let client = (tick * SAMPLED_CLIENTS + turn) % players;
            let mut wrong = None;
            clients.look(client, &mut |object, value| match self.age(object, value) {
                Some(age) => {
                    ages.count += 1;
                    ages.sum_ticks += age;
                    ages.max_ticks = ages.max_ticks.max(age);
                }
                None => wrong = Some((object, value)),
            });
            if let Some((object, value)) = wrong {
                return Err(format!(
                    "tick {tick}: client {client} holds {value:?} of object {object}, which it did not have in the last {HISTORY_TICKS} ticks"
                ));
            }
        }
        Ok(())
    }
}

/// Whether every client has exactly what it is to have.
pub(crate) fn check_all(world: &World, clients: &mut dyn Clients) -> Result<(), String> {
    let mut seen = vec![false; world.objects() as usize];
    for client in 0..world.players() {
        seen.fill(false);
        let mut wrong = None;
        clients.look(client, &mut |object, value| match seen.get_mut(object as usize) {
            Some(seen) if world.sees(client, object) && !*seen && world.value(object) == value => *seen = true,
            _ => wrong = Some((object, value)),
        });
        if let Some((object, value)) = wrong {
            let right = (object < world.objects()).then(|| (world.sees(client, object), world.value(object)));
            return Err(format!(
                "client {client} holds {value:?} of object {object}; it is to see it, and as: {right:?}"
            ));
        }
        let missing = (0..world.objects()).find(|&object| world.sees(client, object) && !seen[object as usize]);
        if let Some(object) = missing {
            return Err(format!("client {client} lacks object {object}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Workload;
    use crate::packets::Packets;

    /// The state that each client holds, set by the test.
    struct Held(Vec<Vec<(u32, Value)>>);

    impl Clients for Held {
        fn tick(&mut self, _: u32, _: &Packets, _: &mut Packets) {}

        fn look(&mut self, client: u32, found: &mut dyn FnMut(u32, Value)) {
            self.0[client as usize].iter().for_each(|&(object, value)| found(object, value));
        }
    }

    fn right(world: &World) -> Held {
        let seen = |client| (0..world.objects()).filter(move |&object| world.sees(client, object));
        Held(
            (0..world.players())
                .map(|client| seen(client).map(|object| (object, world.value(object))).collect())
                .collect(),
        )
    }

    fn world() -> World {
        let mut world = World::new(Workload::Sparse { chests: 2 }, 3);
        world.step();
        world
    }

    #[test]
    fn what_is_right_passes() {
        assert_eq!(check_all(&world(), &mut right(&world())), Ok(()));
    }

    #[test]
    fn anything_that_is_missing_old_foreign_or_twice_is_found() {
        let world = world();
        let spoilt = |spoil: fn(&mut Vec<(u32, Value)>)| {
            let mut held = right(&world);
            spoil(&mut held.0[1]);
            check_all(&world, &mut held)
        };
        assert!(spoilt(|held| held.truncate(2)).is_err());
        assert!(spoilt(|held| held[2].1 = Value::Chest(1)).is_err());
        assert!(spoilt(|held| held.push((0, World::new(Workload::Sparse { chests: 2 }, 3).value(0)))).is_err());
        assert!(spoilt(|held| held.push(held[0])).is_err());
    }

    #[test]
    fn the_age_of_a_value_is_counted_in_ticks_and_a_value_of_nowhere_fails() {
        let mut world = world();
        let mut history = History::new(&world);
        let mut held = right(&world);
        for _ in 0..3 {
            world.step();
            history.push(&world);
        }
        let mut ages = Ages::default();
        assert_eq!(history.sample(0, &mut held, 3, &mut ages), Ok(()));
        assert_eq!((ages.max_ticks, ages.sum_ticks), (3, 3 * ages.count));
        held.0[0][0].1 = Value::Chest(60_000);
        assert!(history.sample(0, &mut held, 3, &mut ages).is_err());
    }
}
