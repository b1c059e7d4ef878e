//! All that the world servers know.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use hdrhistogram::Histogram;
use throng_channeld::packet::Header;
use throng_channeld::proto::AuthMessage;
use throng_channeld::{GLOBAL_CHANNEL, message_type as kinds};
use throng_machine::clock;
use throng_wire::Time;

use super::interest::Pairs;
use super::player::Player;
use super::recovery::Death;
use crate::ledger::Ledger;
use crate::light::{Fields, Message, Outgoing};
use crate::load::{CONNECTION_BITS, FRAME_HZ, GRID_CELLS, Load};
use crate::times::histogram;
use crate::traffic::Call;

pub(super) const FRAME: Duration = Duration::from_micros(1_000_000 / FRAME_HZ as u64);
/// The server that owns the global channel.
pub(super) const MASTER: usize = 0;
/// Frames that are made up for at once; older ones are lost.
const FRAMES_BEHIND_MAX: u32 = 2;

pub(super) struct Stage {
    pub(super) load: Load,
    /// So many clients are to play.
    pub(super) wanted: u32,
    pub(super) servers: Vec<Server>,
    /// By cell, counted from the first spatial channel: the server that owns it.
    pub(super) cell_owners: Vec<Option<usize>>,
    pub(super) is_ready: bool,
    /// Connections that have logged in, and are to be let in when all servers are there.
    pub(super) waiting: Vec<u32>,
    pub(super) players: Vec<Player>,
    /// By connection id: its player.
    pub(super) by_connection: Vec<Option<u32>>,
    pub(super) pairs: Pairs,
    /// Subscriptions that are still to be made: which player shall see whose entity.
    pub(super) queue: VecDeque<(u32, u32)>,
    /// Subscriptions that the gateway has not answered.
    pub(super) unanswered: usize,
    pub(super) ledger: Ledger,
    pub(super) counts: Counts,
    pub(super) call_us: Histogram<u32>,
    pub(super) death: Death,
    pub(super) window: super::report::Window,
    next_frame: Option<Time>,
    pub(super) frame_number: u64,
    fault: Option<String>,
}

#[derive(Default)]
pub(super) struct Server {
    pub(super) outgoing: Outgoing,
    /// 0 until it has logged in.
    pub(super) connection: u32,
    /// The same before it died, if it did.
    pub(super) former: u32,
    /// Whether it is receiving its state from before its loss.
    pub(super) recovers: bool,
    /// The connections of the players that it has, as far as it was told over its own socket.
    pub(super) owned: BTreeSet<u32>,
    /// Whether its channels exist.
    pub(super) is_set_up: bool,
    /// Whether the gateway had not taken all of its last frame when the next was due.
    pub(super) is_stalled: bool,
}

/// Counted since the world began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) messages_in: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Messages to gateways that have gone.
    pub(super) messages_out: u64,
    pub(super) calls: u64,
    pub(super) handovers: u64,
    /// Frames of servers that were played.
    pub(super) frames: u64,
    /// Frames that were not played, because the gateway had not taken what the one before had to say.
    pub(super) stalled: u64,
    /// Moments at which all servers had to play a frame, while there was a gateway.
    pub(super) due: u64,
    /// Those that were lost, because this process came too late to them.
    pub(super) lost: u64,
    pub(super) resubscriptions: u64,
    /// Updates that all clients together should have had by now.
    pub(super) ideal: f64,
}

impl Stage {
    pub(super) fn new(load: Load) -> Stage {
        let now = clock::now();
        Stage {
            wanted: load.first,
            load,
            servers: Vec::new(),
            cell_owners: vec![None; (GRID_CELLS * GRID_CELLS) as usize],
            is_ready: false,
            waiting: Vec::new(),
            players: Vec::new(),
            by_connection: vec![None; 1 << CONNECTION_BITS],
            pairs: Pairs::default(),
            queue: VecDeque::new(),
            unanswered: 0,
            ledger: Ledger::default(),
            counts: Counts::default(),
            call_us: histogram(),
            death: Death::default(),
            window: super::report::Window::new(now),
            next_frame: None,
            frame_number: 0,
            fault: None,
        }
    }

    /// Whether the next server is to connect: one after the other, so that the gateway gives them their cells in order.
    pub(super) fn wants_server(&self, connected: usize) -> bool {
        connected < self.load.scene.servers() as usize && self.servers.iter().all(|server| server.is_set_up)
    }

    /// A server logs in: the next one, or one that was lost.
    pub(super) fn log_in(&mut self, server: usize) {
        let name = format!("bench-server-{server}");
        let auth =
            AuthMessage { player_identifier_token: name, login_token: "test_lt".to_owned(), ..Default::default() };
        if server == self.servers.len() {
            self.servers.push(Server::default());
        }
        self.servers[server].outgoing.message(Header::new(0, kinds::AUTH), &auth);
    }

    /// The gateway has gone with all its state. Servers and players have to connect again.
    pub(super) fn lose_gateway(&mut self) {
        self.counts.messages_out += self.servers.iter().map(|server| server.outgoing.messages()).sum::<u64>();
        self.servers.clear();
        self.cell_owners.fill(None);
        self.is_ready = false;
        self.waiting.clear();
        self.players.clear();
        self.by_connection.fill(None);
        self.pairs = Pairs::default();
        self.queue.clear();
        self.unanswered = 0;
        // Players number their calls from 0 again.
        self.ledger = Ledger::default();
    }

    /// The error that ended the world.
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.fault.take().map_or(Ok(()), Err)
    }

    pub(super) fn fail(&mut self, fault: impl Into<String>) {
        self.fault.get_or_insert(fault.into());
    }

    pub(super) fn take(&mut self, server: usize, message: &Message<'_>) {
        match message.kind {
            kinds::AUTH => self.take_login(server, message.body),
            kinds::CREATE_CHANNEL | kinds::CREATE_SPATIAL_CHANNEL => self.take_created(server, message),
            kinds::SPATIAL_CHANNELS_READY => self.is_ready |= server == MASTER,
            kinds::QUERY_SPATIAL_CHANNEL => self.take_start_cell(message),
            kinds::CREATE_ENTITY_CHANNEL => self.take_entity_created(server, Fields(message.body).number(4)),
            kinds::SUB_TO_CHANNEL if message.stub != 0 => self.unanswered = self.unanswered.saturating_sub(1),
            kinds::UNSUB_FROM_CHANNEL if message.channel == GLOBAL_CHANNEL => {
                self.depart(Fields(message.body).number(1))
            }
            kinds::CHANNEL_DATA_HANDOVER => self.take_handover(server, message.body),
            kinds::UNREAL_RPC => self.take_call(message.body),
            kinds::RECOVERY_CHANNEL_DATA => self.take_recovered(server, message),
            kinds::CHANNEL_DATA_UPDATE if self.servers[server].recovers => self.take_more_recovered(message),
            kinds::RECOVERY_END => self.end_recovery(server),
            _ => {}
        }
    }

    fn take_call(&mut self, body: &[u8]) {
        let Some((caller, call)) = Call::decode(body) else { return };
        self.counts.calls += 1;
        self.ledger.take(caller, call.number);
        self.call_us.saturating_record(clock::now().since(call.made_at).as_micros() as u64);
        let Some(player) = self.player_of(caller) else { return };
        let player = &mut self.players[player];
        if player.last_call.is_none_or(|last| last < call.number) {
            player.last_call = Some(call.number);
            player.pose = call.pose;
        }
    }

    fn take_handover(&mut self, server: usize, body: &[u8]) {
        let (to, state) = (Fields(body).number(2), Fields(body).any(4));
        let owner = self.cell_owner(to);
        for (_, entity) in Fields(state).filter(|(field, _)| *field == 1) {
            let entity = Fields(entity.bytes()).number(1);
            match owner {
                Some(owner) if owner == server => {
                    self.counts.handovers += 1;
                    self.hand_over(server, entity, to);
                }
                _ => self.give_away(server, entity, owner),
            }
        }
    }

    pub(super) fn player_of(&self, connection: u32) -> Option<usize> {
        self.by_connection.get(connection as usize).copied().flatten().map(|player| player as usize)
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.next_frame = Some(now);
    }

    /// Plays the frames that are due.
    pub(super) fn advance(&mut self, now: Time) {
        self.let_in();
        self.subscribe_queued();
        let Some(mut next) = self.next_frame else { return };
        let mut played = 0;
        while next <= now {
            self.counts.ideal += self.ideal_hz() / f64::from(FRAME_HZ);
            // Without a gateway, time passes but nothing can be sent.
            let is_in_time = played < FRAMES_BEHIND_MAX && next.after(FRAME * FRAMES_BEHIND_MAX) > now;
            self.counts.due += u64::from(self.is_ready);
            self.counts.lost += u64::from(self.is_ready && !is_in_time);
            if self.is_ready && is_in_time {
                self.play_frame(now);
                played += 1;
            }
            next = next.after(FRAME);
        }
        self.next_frame = Some(next);
    }

    fn ideal_hz(&self) -> f64 {
        match self.load.scene.single_hz() {
            Some(hz) => hz * f64::from(self.wanted),
            None => self.pairs.ideal_hz(self.load.scene),
        }
    }
}
