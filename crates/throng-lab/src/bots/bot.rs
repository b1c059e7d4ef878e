//! One bot.

use std::net::SocketAddr;

use throng::net::{Addressed, Condition, Conditioner, InFlightLimit, ReceiveBuffers};
use throng::replica::KindBits;
use throng::{ClientCore, ClientEvent, Decoder, EndReason, Time};
use throng_crowd::pulse::{Pulse, RemoteClock, SentInputs};
use throng_crowd::scenario::{NetPreset, Scenario};
use throng_crowd::talk::Talk;
use throng_crowd::world::BotInput;

use super::brain::{Brain, View};
use super::outage::{GAP_MIN, Service};
use super::port::{Port, SharedSockets};

pub(crate) struct Bot<D> {
    pub(super) core: ClientCore<D>,
    pub(super) port: Port,
    pub(super) link: Option<Box<Link>>,
    pub(super) brain: Box<dyn Brain>,
    /// Counts its inputs, wrapping.
    pub(super) sequence: u8,
    pub(super) inputs: SentInputs,
    pub(super) next_turn: Time,
    pub(super) is_decoder: bool,
    /// It was late by more than [`STALL`](throng_summary::STALL) while it was measured.
    pub(super) has_stalled: bool,
    /// The edge to which it connects, by number; `None`: to the server.
    pub(super) edge: Option<usize>,
    pub(super) client_id: u32,
    /// Once it is connected: the index of its connection at the server; of a bot at an edge its client id. The truth names owners
    /// in the same way.
    pub(super) connection: Option<u32>,
    pub(super) end: Option<EndReason>,
    pub(super) service: Service,
    pub(super) received: Received,
    /// When it was measured first, and what it had received until then.
    pub(super) measured_from: Time,
    pub(super) measured_from_bytes: u64,
    pub(super) measured_from_datagrams: u64,
    pub(super) measured_from_bits: Vec<KindBits>,
    /// Messages of the server, if this bot speaks for all.
    pub(super) heard: Vec<Talk>,
}

/// Messages of the server that wait to be heard. The truth comes in fewer parts.
const HEARD_MAX: usize = 16;

/// The path to the server and back, with simulated network conditions.
pub(crate) struct Link {
    out: Conditioner,
    back: Conditioner,
}

impl Link {
    pub(super) fn new(preset: NetPreset, seed: u64, bot: u32) -> Option<Box<Link>> {
        if preset == NetPreset::None {
            return None;
        }
        let condition: Condition = preset.name().parse().expect("both lists have the same names");
        let way = |seed| {
            let conditioner = Conditioner::new(condition.clone(), seed, InFlightLimit::PEER);
            conditioner.expect("a preset is a possible condition")
        };
        let seed = seed.wrapping_mul(2_000_003).wrapping_add(u64::from(bot) * 2);
        Some(Box::new(Link { out: way(seed), back: way(seed + 1) }))
    }
}

/// The datagrams that a bot has received.
#[derive(Default)]
pub(crate) struct Received {
    pub(super) bytes: u64,
    pub(super) datagrams: u64,
    /// When the newest datagram came since the bot's last turn.
    latest: Time,
}

impl Received {
    fn take<D: Decoder>(
        &mut self,
        (core, link): (&mut ClientCore<D>, &mut Option<Box<Link>>),
        now: Time,
        (arrived, from): (Time, SocketAddr),
        datagram: &mut [u8],
    ) {
        self.bytes += datagram.len() as u64;
        self.datagrams += 1;
        self.latest = self.latest.max(arrived);
        match link {
            Some(link) => link.back.push(now, datagram),
            None => core.handle_arrived(now, arrived, from, datagram),
        }
    }
}

impl<D: Decoder> Bot<D> {
    /// The state that it was sent, by kind and field; empty if it decodes nothing.
    pub(super) fn bits(&self) -> &[KindBits] {
        self.core.replica().map_or(&[], Decoder::bits)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Counts why it was disconnected, if it was.
    pub(super) fn count_end(&self, ends: &mut Vec<(String, u32)>) {
        let Some(text) = self.end.as_ref().map(ToString::to_string) else { return };
        match ends.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => ends.push((text, 1)),
        }
    }

    /// A number that changes while it is served: see [`Service`].
    pub(super) fn served(&self, now: Time) -> Option<u64> {
        if !self.is_decoder {
            return self.core.is_connected().then_some(self.received.datagrams);
        }
        // A bot that hears only of its old inputs is not served, however often it hears of them.
        let is_fresh = |number: &u32| self.inputs.time_of(*number).is_some_and(|sent| now.since(sent) <= GAP_MIN);
        self.core.input_acked().filter(is_fresh).map(u64::from)
    }

    /// See [`ClientCore::fetch`].
    pub(super) fn fetch(&self) -> u64 {
        let counted = self.received.bytes ^ self.received.datagrams ^ self.measured_from_datagrams;
        self.core.fetch() ^ counted ^ self.port.fetch() ^ self.next_turn.0
    }

    /// A datagram that came at a shared socket; [`receive`](Bot::receive) handles the rest of it.
    pub(super) fn take(&mut self, now: Time, way: Addressed, datagram: &mut [u8]) {
        self.received.take((&mut self.core, &mut self.link), now, (way.arrived, way.from), datagram);
    }

    /// Handles received datagrams. `clock` learns what they say of the server's time.
    pub(super) fn receive(&mut self, now: Time, buffers: &mut ReceiveBuffers, clock: &mut RemoteClock) {
        let Bot { core, link, received, port, .. } = self;
        if let Port::Own(socket) = port {
            // Errors of the socket are ignored here: the connection will time out and report it.
            let _ = socket.receive_with(now, buffers, &mut |arrived, from, datagram: &mut [u8]| {
                received.take((core, link), now, (arrived, from), datagram);
            });
        }
        if let (Some(link), Some(server)) = (link, core.server()) {
            while let Some(arrival) = link.back.pop(now) {
                received.latest = received.latest.max(arrival.at);
                core.handle_arrived(now, arrival.at, server, arrival.bytes);
            }
        }
        // Of several datagrams it is not known which brought a message: the last one did at the latest.
        let latest = std::mem::take(&mut received.latest);
        while let Some(event) = self.core.poll_event() {
            match event {
                ClientEvent::Connected { connection, .. } => {
                    self.connection = Some(if self.edge.is_some() { self.client_id } else { connection.index });
                }
                ClientEvent::Ended(reason) => self.end = Some(reason),
                ClientEvent::Message { message, .. } => {
                    if let Some(pulse) = message.get::<Pulse>() {
                        clock.take(&pulse, latest, &self.inputs);
                    } else if let Some(talk) = message.get::<Talk>().filter(|_| self.heard.len() < HEARD_MAX) {
                        self.heard.push(talk);
                    }
                }
                _ => {}
            }
        }
    }

    /// Decides and queues the next input. Says whether it could.
    pub(super) fn send_input(&mut self, now: Time, scenario: &Scenario) -> bool {
        if !self.core.is_connected() {
            return false;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let input = self.brain.input(&View::new(scenario, self.core.replica()));
        let number = self.core.send_input(&BotInput { sequence: self.sequence, ..input }.encode());
        number.iter().for_each(|&number| self.inputs.note(number, now));
        number.is_ok()
    }

    /// Sends what is due.
    pub(super) fn transmit(&mut self, now: Time, out: &mut Vec<u8>, shared: &mut SharedSockets) {
        while self.core.poll_transmit(now, out) {
            match &mut self.link {
                Some(link) => link.out.push(now, out),
                None => self.port.send(now, shared, out),
            }
        }
        if let Some(link) = &mut self.link {
            while let Some(arrival) = link.out.pop(now) {
                self.port.send(now, shared, arrival.bytes);
            }
        }
    }
}
