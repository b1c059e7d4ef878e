//! A server and an edge of a world that are told anything by the bus, in any order.

use throng::{ConnectionId, Time};
use throng_bus::{
    Command, CommandError, Entry, Event, MemberId, Message, Revision, Sequence, StoreError, Subject, SubscriptionId,
    WatchId,
};
use throng_edge::{Balance, BalanceOptions, BorderWatch, Division, OriginEvent, WorldName};

use super::choices::Choices;

const SERVERS: u16 = 3;
const STEPS: u16 = 12;
/// Commands that wait for an answer.
const OPEN_MAX: usize = 16;

struct World {
    balance: Balance,
    watch: BorderWatch,
    open: Vec<Command>,
    revision: u64,
    now: Time,
    /// The bus takes messages.
    takes: bool,
}

/// Each place has one server that there is, and nobody acts without a lease, whatever the bus says.
pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let division = Division::new(SERVERS, STEPS, 2).expect("there are steps for all");
    let name = || WorldName::new("any").expect("it is a name");
    let balance = Balance::new(BalanceOptions::new(name(), division, 0), MemberId(1));
    let watch = BorderWatch::new(name(), division);
    let mut world = World { balance, watch, open: Vec::new(), revision: 10, now: Time(1_000_000), takes: true };
    world.hear(&Event::Connected);
    while !choices.is_empty() {
        world.step(&mut choices);
        world.check();
    }
}

impl World {
    fn step(&mut self, choices: &mut Choices<'_>) {
        let edge = ConnectionId { index: choices.below(2) as u32, generation: 1 };
        match choices.below(8) {
            0 => {
                let event = [Event::Connected, Event::Disconnected, self.listed()][choices.below(3)].clone();
                self.hear(&event);
            }
            1 => {
                let changed = self.changed(choices);
                self.hear(&changed);
            }
            2 | 3 => self.answer(choices),
            4 => {
                let said = match choices.below(3) {
                    0 => self.report(choices),
                    1 => self.states(choices),
                    _ => self.recall(choices),
                };
                self.hear(&said);
            }
            5 => {
                let version = u64::from(choices.byte());
                let event = [
                    OriginEvent::EdgeJoined(edge),
                    OriginEvent::EdgeLeft(edge),
                    OriginEvent::Looks { edge, version },
                    OriginEvent::Looks { edge, version },
                ][choices.below(4)]
                .clone();
                self.balance.take(&event, self.now);
            }
            _ => {
                self.now = Time(self.now.0 + u64::from(choices.byte()) * 20_000);
                self.takes = choices.below(4) > 0;
                self.balance.step(self.now, [3, 4, 500].into_iter());
                self.balance.save(self.now, [(1, vec![1; 300]), (2, vec![2; 70_000])].into_iter());
                let _ = self.balance.take_saved(self.now, choices.below(3) as u64);
                self.poll();
            }
        }
    }

    fn hear(&mut self, event: &Event) {
        self.balance.handle_event(self.now, event);
        self.watch.handle_event(self.now, event);
    }

    fn listed(&self) -> Event {
        Event::Listed { watch: WatchId(u32::MAX - 1) }
    }

    fn poll(&mut self) {
        let mut polled = 0;
        while let Some(command) = self.balance.poll_command(self.now) {
            polled += 1;
            assert!(polled < 100, "commands without end");
            match command {
                Command::Get { .. } | Command::Put { .. } | Command::Delete { .. } if self.open.len() < OPEN_MAX => {
                    self.open.push(command);
                }
                Command::Publish { .. } if self.takes => {}
                command => {
                    let error = CommandError::Limit { limit: "outgoing" };
                    self.balance.handle_refusal(self.now, &command, error);
                }
            }
            // Those that are refused come again.
            if polled > 40 {
                return;
            }
        }
    }

    /// A value that is a lease, borders, or neither.
    fn value(&mut self, choices: &mut Choices<'_>) -> Vec<u8> {
        let fence = u64::from(choices.byte() % 16);
        let member = u64::from(choices.byte() % 3);
        let mut value = vec![1];
        match choices.below(2) {
            0 => {
                value.extend(member.to_le_bytes());
                value.extend([0, fence][choices.below(2)].to_le_bytes());
                value.extend(b"127.0.0.1:4000");
            }
            _ => {
                [fence, member, u64::from(choices.byte() % 4)].iter().for_each(|it| value.extend(it.to_le_bytes()));
                [choices.byte() % 8, 0, 8, 0].iter().for_each(|&byte| value.push(byte));
            }
        }
        choices.bend(&mut value);
        value
    }

    fn changed(&mut self, choices: &mut Choices<'_>) -> Event {
        let keys = ["server.0", "server.1", "server.2", "server.9", "decider", "borders", "load", "server.x"];
        let key = Subject::new(&format!("world.any.{}", keys[choices.below(keys.len())])).expect("it is a name");
        self.revision += u64::from(choices.byte() % 3);
        let value = (choices.below(4) > 0).then(|| self.value(choices).into());
        Event::Changed { watch: WatchId(u32::MAX - 1), key, revision: Revision(self.revision), value }
    }

    fn report(&mut self, choices: &mut Choices<'_>) -> Event {
        let number = choices.below(4);
        let subject = Subject::new(&format!("world.any.load.{number}")).expect("it is a name");
        let numbers = [u64::from(choices.byte() % 16), u64::from(choices.byte()), u64::from(choices.byte() % 32)];
        let mut payload: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        payload.extend([choices.byte() % 2, 0, choices.byte() % 12, 0, 255, 255]);
        choices.bend(&mut payload);
        let publisher = MemberId(u64::from(choices.byte() % 3));
        let (subscription, sequence) = (SubscriptionId(u32::MAX - 1), Sequence(1));
        let payload = payload.into();
        Event::Message(Message { subscription, subject, publisher, sequence, payload, reply_to: None })
    }

    fn states(&mut self, choices: &mut Choices<'_>) -> Event {
        let number = choices.below(4);
        let subject = Subject::new(&format!("world.any.saved.{number}")).expect("it is a name");
        let mut payload = u64::from(choices.byte() % 16).to_le_bytes().to_vec();
        payload.extend([choices.byte() % 3, 0, 0, 0]);
        for _ in 0..choices.below(3) {
            payload.extend([choices.byte() % 3, 0, 0, 0, 0, 0, 0, 0, choices.byte(), 1, 0, 0, 2, 0, 77, 78]);
        }
        choices.bend(&mut payload);
        let publisher = MemberId(u64::from(choices.byte() % 3));
        let (subscription, sequence) = (SubscriptionId(u32::MAX - 2), Sequence(1));
        let payload = payload.into();
        Event::Message(Message { subscription, subject, publisher, sequence, payload, reply_to: None })
    }

    /// A question about states, or an answer.
    fn recall(&mut self, choices: &mut Choices<'_>) -> Event {
        let what = ["ask", "answer", "answer", "tell"][choices.below(4)];
        let (to, from) = ([0, 0, 0, 1][choices.below(4)], choices.below(4));
        let subject = Subject::new(&format!("world.any.recall.{to}.{what}.{from}")).expect("it is a name");
        let mut payload = u64::from(choices.byte() % 16).to_le_bytes().to_vec();
        payload.extend([choices.byte() % 3, 0, 0, 0]);
        if what != "ask" {
            // Its place in the answer, and of which server, round and age the states are.
            payload.extend([choices.byte() % 3, 0, 0, 0, choices.byte() % 3, 0, 0, 0]);
            payload.extend([choices.byte() % 4, 0, choices.byte() % 16, 0, 0, 0, 0, 0, 0, 0]);
            payload.extend([choices.byte() % 3, 0, 0, 0, choices.byte() % 3, 0, 0, 0, choices.byte(), 9, 0, 0]);
            for _ in 0..choices.below(3) {
                payload.extend([choices.byte() % 3, 0, 0, 0, 0, 0, 0, 0, choices.byte(), 1, 0, 0, 2, 0, 77, 78]);
            }
        }
        choices.bend(&mut payload);
        let publisher = MemberId(u64::from(choices.byte() % 3));
        let (subscription, sequence) = (SubscriptionId(u32::MAX - 3), Sequence(1));
        let payload = payload.into();
        Event::Message(Message { subscription, subject, publisher, sequence, payload, reply_to: None })
    }

    /// Answers a command of the server, with anything.
    fn answer(&mut self, choices: &mut Choices<'_>) {
        if self.open.is_empty() {
            return;
        }
        let command = self.open.remove(choices.byte() as usize % self.open.len());
        self.revision += 1;
        let revision = Revision(self.revision);
        let error = [StoreError::Refused, StoreError::Unknown, StoreError::Full][choices.below(3)];
        let fails = choices.below(4) == 0;
        let event = match command {
            Command::Get { ticket, .. } => {
                let entry = (choices.below(3) > 0).then(|| Entry { value: self.value(choices).into(), revision });
                Event::Got { ticket, result: if fails { Err(error) } else { Ok(entry) } }
            }
            Command::Put { ticket, .. } | Command::Delete { ticket, .. } => {
                Event::Written { ticket, result: if fails { Err(error) } else { Ok(revision) } }
            }
            _ => return,
        };
        self.hear(&event);
    }

    fn check(&self) {
        let (balance, watch) = (&self.balance, &self.watch);
        for step in 0..STEPS {
            for borders in [balance.borders(), watch.borders()] {
                let having = (0..SERVERS).filter(|&server| borders.strip(server).contains(&step));
                assert_eq!(having.collect::<Vec<_>>(), [borders.home(step)]);
            }
            let mut homes = Vec::new();
            watch.homes(step, step, &mut homes);
            assert!(homes.contains(&watch.borders().home(step).into()) && homes.len() <= SERVERS.into());
            if let Some(to) = balance.goes_to(step) {
                assert!(balance.fence(self.now).is_some() && to != 0 && to == balance.borders().home(step));
            }
        }
        assert!(balance.deciding(self.now).is_none() || balance.fence(self.now).is_some());
        assert_eq!(watch.address(SERVERS), None);
    }
}
