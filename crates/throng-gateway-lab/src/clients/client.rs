//! One client.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use throng_channeld::message_type as kinds;
use throng_channeld::packet::Header;
use throng_channeld::proto::{AuthMessage, ChannelDataAccess, ChannelSubscriptionOptions, SubscribedToChannelMessage};
use throng_wire::Time;

use super::is_update;
use crate::light::{Fields, Message, Outgoing};
use crate::link::Reader;
use crate::load::{CONNECTION_BITS, FAN_OUT_MS, FRAME_HZ, Load, Scene, Victim, entity_of};
use crate::motion::Walker;
use crate::traffic::{Call, Pose, actor, age_us, answered_call, global_update, stamps};

const FRAME: Duration = Duration::from_micros(1_000_000 / FRAME_HZ as u64);

/// The login token that Unreal's plugin sends.
const LOGIN_TOKEN: &str = "test_lt";

pub(super) struct Client {
    reader: Reader,
    outgoing: Outgoing,
    state: State,
    pub(super) counts: Counts,
    /// The last state that a decoding client has seen: the newest stamp by channel and key.
    newest: Option<HashMap<(u32, u32), u64>>,
    silence: Silence,
    /// The same for answers of its server.
    unanswered: Silence,
    /// How often it has lost its connection, or could not make it again.
    losses: u32,
}

/// Times without something.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    since: Time,
    longest: Duration,
}

impl Silence {
    fn end(&mut self, now: Time) {
        self.longest = self.longest.max(now.since(self.since));
        self.since = now;
    }
}

struct State {
    is_open: bool,
    connection: u32,
    is_joined: bool,
    walker: Walker,
    next_frame: Time,
    /// The number of the next call.
    number: u32,
    /// The highest number of a call that was answered.
    answered: Option<u32>,
    fault: Option<&'static str>,
}

/// Counted since the client began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) updates: u64,
    pub(super) actor_states: u64,
    pub(super) acknowledgements: u64,
    /// Those of calls that no earlier one has answered: a server repeats the last one.
    pub(super) answers: u64,
    pub(super) handovers: u64,
    pub(super) bytes_out: u64,
    pub(super) due: u64,
    pub(super) sent: u64,
}

pub(super) struct Context<'a, F> {
    pub(super) load: &'a Load,
    pub(super) now: Time,
    /// Receives the ages that a decoding client measures, in microseconds.
    pub(super) take_age: F,
}

impl State {
    fn new(next_frame: Time) -> State {
        State {
            is_open: true,
            connection: 0,
            is_joined: false,
            walker: Walker::of_connection(0),
            next_frame,
            number: 0,
            answered: None,
            fault: None,
        }
    }
}

fn log_in(outgoing: &mut Outgoing, index: u32) {
    let auth = AuthMessage {
        player_identifier_token: format!("bench-client-{index}"),
        login_token: LOGIN_TOKEN.to_owned(),
        ..Default::default()
    };
    outgoing.message(Header::new(0, kinds::AUTH), &auth);
}

impl Client {
    pub(super) fn new(reader: Reader, index: u32, is_sample: bool) -> Client {
        let mut outgoing = Outgoing::default();
        log_in(&mut outgoing, index);
        let state = State::new(Time::default());
        Client {
            reader,
            outgoing,
            state,
            counts: Counts::default(),
            newest: is_sample.then(HashMap::new),
            silence: Silence::default(),
            unanswered: Silence::default(),
            losses: 0,
        }
    }

    /// Reconnects under its name: at the next edge, if there are some, where it goes on as who it was. Without edges its
    /// calls are numbered from 0 again.
    ///
    /// # Errors
    /// If the gateway does not answer.
    pub(super) fn come_again(&mut self, load: &Load, index: u32, now: Time) -> io::Result<()> {
        self.losses += 1;
        self.reader.go_on_with(Reader::connect_client(load.door_of(index, self.losses), load.transport, index)?);
        self.outgoing.clear();
        log_in(&mut self.outgoing, index);
        let state = State::new(now);
        self.state = match load.victim {
            Some(Victim::Edge) => State { number: self.state.number, answered: self.state.answered, ..state },
            _ => state,
        };
        Ok(())
    }

    /// Begins to measure the longest times without an update and without an answer.
    pub(super) fn watch_silence(&mut self, now: Time) {
        self.silence = Silence { since: now, longest: Duration::ZERO };
        self.unanswered = self.silence;
    }

    /// The longest times without an update and without an answer since then.
    pub(super) fn longest_silences(&mut self, now: Time) -> [Duration; 2] {
        [&mut self.silence, &mut self.unanswered].map(|silence| {
            silence.end(now);
            silence.longest
        })
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.is_open
    }

    pub(super) fn is_joined(&self) -> bool {
        self.state.is_joined
    }

    pub(super) fn is_sample(&self) -> bool {
        self.newest.is_some()
    }

    pub(super) fn messages_out(&self) -> u64 {
        self.outgoing.messages()
    }

    /// Its connection id and the calls that it has made.
    pub(super) fn calls(&self) -> (u32, u32) {
        (self.state.connection, self.state.number)
    }

    /// Closes its connection, as a player who goes. Nobody waits for what it had still under way, so its calls do not count.
    pub(super) fn leave(&mut self) {
        self.reader.close();
        self.close();
        self.state.number = 0;
    }

    pub(super) fn close(&mut self) {
        self.state.is_open = false;
        self.state.is_joined = false;
    }

    /// Begins to play, at its own moment within the frame.
    pub(super) fn begin(&mut self, now: Time, index: u64, count: u64) {
        self.state.next_frame = now.after(FRAME.mul_f64(index as f64 / count as f64));
    }

    /// Moves and sends the move, if it is due.
    pub(super) fn act(&mut self, load: &Load, now: Time) {
        if !self.state.is_joined {
            // Nothing is due before it is in.
            self.state.next_frame = self.state.next_frame.max(now);
            return;
        }
        if now < self.state.next_frame {
            return;
        }
        self.state.next_frame = self.state.next_frame.after(FRAME);
        self.counts.due += 1;
        if now > self.state.next_frame {
            // Lost frames are not repeated.
            let lost = now.since(self.state.next_frame).as_micros() / FRAME.as_micros() + 1;
            self.counts.due += lost as u64;
            self.state.next_frame = self.state.next_frame.after(FRAME * lost as u32);
        }
        self.state.walker.step(FRAME.as_secs_f32());
        if !self.outgoing.is_empty() {
            return;
        }
        self.counts.sent += 1;
        let pose = Pose::of(&self.state.walker);
        let connection = self.state.connection;
        if load.scene == Scene::SingleRelay {
            let update = global_update([(entity_of(connection), actor(&pose, now))].into());
            return self.outgoing.message(Header::new(0, kinds::CHANNEL_DATA_UPDATE), &update);
        }
        let channel = if load.scene.has_entities() { entity_of(connection) } else { 0 };
        let call = Call { number: self.state.number, pose, made_at: now };
        self.state.number += 1;
        self.outgoing.message(Header::new(channel, kinds::UNREAL_RPC), &call.encode(connection));
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.state.is_open {
            self.counts.bytes_out += self.reader.send(&mut self.outgoing)?;
        }
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        context: &mut Context<'_, impl FnMut(u64)>,
    ) -> Result<(), String> {
        if !self.state.is_open {
            return Ok(());
        }
        let Client { reader, outgoing, state, counts, newest, silence, unanswered, .. } = self;
        let before = *counts;
        let read = reader.read(scratch, |message| {
            if is_update(context.load, &message) {
                counts.updates += 1;
                if let Some(newest) = newest {
                    look(newest, counts, &message, context);
                }
            } else {
                state.take(&message, context.load, outgoing, counts);
            }
        });
        if counts.updates > before.updates {
            silence.end(context.now);
        }
        if counts.answers > before.answers {
            unanswered.end(context.now);
        }
        match (state.fault, read) {
            (Some(fault), _) => Err(fault.to_owned()),
            (None, Err(error)) => Err(error.to_string()),
            (None, Ok(())) => Ok(()),
        }
    }
}

impl State {
    fn take(&mut self, message: &Message<'_>, load: &Load, outgoing: &mut Outgoing, counts: &mut Counts) {
        match message.kind {
            kinds::AUTH => self.authenticated(message.body, load, outgoing),
            kinds::SUB_TO_CHANNEL => {
                let home = if load.scene.has_entities() { entity_of(self.connection) } else { 0 };
                let is_own = Fields(message.body).number(1) == self.connection;
                self.is_joined |= self.connection != 0 && is_own && message.channel == home;
            }
            kinds::UNREAL_RPC => {
                counts.acknowledgements += 1;
                let answered = answered_call(message.body).filter(|number| Some(*number) > self.answered);
                if answered.is_some() {
                    self.answered = answered;
                    counts.answers += 1;
                }
            }
            kinds::CHANNEL_DATA_HANDOVER => counts.handovers += 1,
            _ => {}
        }
    }

    fn authenticated(&mut self, body: &[u8], load: &Load, outgoing: &mut Outgoing) {
        if self.connection != 0 {
            return;
        }
        let (result, connection) = (Fields(body).number(1), Fields(body).number(2));
        if result != 0 || connection == 0 {
            self.fault = Some("the gateway refused its login");
            return;
        }
        if connection >> CONNECTION_BITS != 0 {
            self.fault = Some("its connection id has more than 13 bits: start the gateway with -mcb=13");
            return;
        }
        self.connection = connection;
        self.walker = Walker::of_connection(connection);
        if load.scene == Scene::SingleRelay {
            let sub_options = Some(ChannelSubscriptionOptions {
                data_access: Some(ChannelDataAccess::WriteAccess as i32),
                fan_out_interval_ms: Some(FAN_OUT_MS),
                ..ChannelSubscriptionOptions::default()
            });
            let subscribe = SubscribedToChannelMessage { conn_id: connection, sub_options };
            outgoing.message(Header::new(0, kinds::SUB_TO_CHANNEL), &subscribe);
        }
    }
}

/// Measures the age of each actor state that is newer than the last one. The first state of an actor does not count,
/// because it may have any age.
fn look(
    newest: &mut HashMap<(u32, u32), u64>,
    counts: &mut Counts,
    message: &Message<'_>,
    context: &mut Context<'_, impl FnMut(u64)>,
) {
    stamps(message.body, |key, stamp| {
        let Some(age) = age_us(stamp, context.now) else { return };
        let before = newest.insert((message.channel, key), stamp);
        if before.is_some_and(|before| before != stamp) {
            counts.actor_states += 1;
            (context.take_age)(age);
        }
    });
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::load::Transport;
    use crate::traffic::acknowledgement;

    #[test]
    fn an_answer_that_is_repeated_is_none_to_a_new_call() {
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
        let load = Load {
            scene: Scene::Spatial,
            clients: 1,
            first: 1,
            servers: nowhere,
            players: vec![nowhere],
            transport: Transport::Tcp,
            victim: None,
        };
        let (mut state, mut counts) = (State::new(Time(0)), Counts::default());
        let answers = [4, 4, 4, 3, 5, 5].map(|number| {
            let body = acknowledgement(7, number).encode_to_vec();
            let message = Message { kind: kinds::UNREAL_RPC, body: &body, ..Message::default() };
            state.take(&message, &load, &mut Outgoing::default(), &mut counts);
            counts.answers
        });
        assert_eq!((answers, counts.acknowledgements), ([1, 1, 1, 1, 2, 2], 6));
    }
}
