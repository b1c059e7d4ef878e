//! One of several engines that share the channels out: see [`shards`](crate::shards).
//!
//! ```text
//!   first engine                             the others
//!   open, login --- poll_member() ---------> join: known under the same number
//!   GLOBAL has an owner -- master_id() ----> set_master
//!   poll_misrouted() ----------------------> receive_sorted: what was said before there was a session
//!   ban <-------------- poll_ban() --------- a client misbehaved there
//!   closed <------------- the shell ------> closed
//! ```
//!
//! A connection's messages go to the first engine until the shell has asked for its [session](Engine::session). The shell
//! asks behind the last of them, in the same queue, and sends nothing more before it has the answer: so no message
//! overtakes another one, and the session's state machine has seen all of them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng_channeld::Message;
use throng_wire::Time;

use super::Engine;
use super::blocked::Who;
use super::connection::{Connection, Stage};
use super::place::Place;
use super::port::{Key, Outbox, Side};
use super::refusal::Refusal;
use crate::fsm::Fsm;
use crate::settings::EngineSettings;
use crate::shards::{Route, Session, Shards};

/// Which engine this is.
#[derive(Debug, Default)]
pub(super) struct Share {
    number: u32,
    /// `None`: it is the only one.
    shards: Option<Shards>,
    members: VecDeque<Member>,
    misrouted: VecDeque<Misrouted>,
    bans: VecDeque<Ban>,
    /// A session has sent the present message here.
    is_sorted: bool,
    /// The number of the connection that owns GLOBAL, in engines that do not have it.
    master_id: Option<u32>,
}

impl Share {
    pub(super) fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Whether a session has sent the present message here.
    pub(super) fn is_sorted(&self) -> bool {
        self.is_sorted
    }

    /// The number of the connection that owns GLOBAL, in engines that do not have it.
    pub(super) fn master_id(&self) -> Option<u32> {
        self.master_id
    }

    /// Whether a channel of this number lives here.
    pub(super) fn is_home_of(&self, channel_id: u32) -> bool {
        self.shards.as_ref().is_none_or(|shards| shards.home(channel_id) == self.number)
    }
}

impl Share {
    /// The settings of this engine: its part of what all engines may use together and none can see of the others.
    pub(super) fn own_settings(&self, settings: Arc<EngineSettings>) -> Arc<EngineSettings> {
        let Some(shards) = &self.shards else { return settings };
        let mut own = EngineSettings::clone(&settings);
        own.limits.max_backlog_bytes /= u64::from(shards.count());
        own.limits.max_client_requests_per_s = own.limits.max_client_requests_per_s.div_ceil(shards.count());
        own.limits.max_server_channels = own.limits.max_server_channels.div_ceil(shards.count());
        Arc::new(own)
    }

    /// Tells the other engines of a connection that has logged in.
    pub(super) fn announce(&mut self, connection: &Connection) {
        if self.shards.is_none() {
            return;
        }
        self.members.push_back(Member {
            key: connection.key,
            connection_id: connection.id,
            side: connection.side,
            address: connection.address,
            identifier: connection.identifier.clone(),
            wants_refusals: connection.wants_refusals,
        });
    }

    /// Whether another engine has to do this message, and this one does not. Sessions sort what comes after the login was
    /// answered; what came before it is sorted here.
    pub(super) fn passes_on(&mut self, from: &Connection, message: &Message) -> bool {
        let Some(shards) = self.shards.as_ref().filter(|_| !self.is_sorted) else { return false };
        let (key, here) = (from.key, self.number);
        let (others, is_done_elsewhere) = match shards.route(message, from.side, from.id) {
            Route::To(to) => (to..to + 1, to != here),
            Route::ToAll => (0..shards.count(), false),
            Route::Forbidden => (0..0, false),
        };
        for to in others.filter(|&to| to != here) {
            self.misrouted.push_back(Misrouted { key, to, message: message.clone() });
        }
        is_done_elsewhere
    }
}

/// A connection that has logged in: what the other engines have to know of it.
#[derive(Debug)]
pub struct Member {
    /// Its key in the first engine.
    pub key: Key,
    /// Its number in the protocol.
    pub connection_id: u32,
    /// Which door it came through.
    pub side: Side,
    /// Where it comes from.
    pub address: SocketAddr,
    /// Its name.
    pub identifier: String,
    /// Whether it wants to be told of refusals.
    pub wants_refusals: bool,
}

/// A message that another engine has to do: it came before the login of its sender was answered.
#[derive(Debug)]
pub struct Misrouted {
    /// Its sender, by its key in the first engine.
    pub key: Key,
    /// The engine.
    pub to: u32,
    /// The message.
    pub message: Message,
}

/// A client has misbehaved at an engine that is not the first: the first one refuses its name for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// Which door it came through.
    pub side: Side,
    /// Where it comes from.
    pub address: SocketAddr,
    /// Its name.
    pub identifier: String,
}

impl Engine {
    /// From now on this is engine `number` of several. To be called before anything else.
    pub fn set_share(&mut self, number: u32, shards: Shards) {
        if shards.count() > 1 {
            self.fanout.forms.meters = Arc::clone(shards.meters());
            self.counters.channels = Arc::clone(shards.meters());
            self.memory.share(number as usize, Arc::clone(shards.uses()));
            self.share = Share { number, shards: Some(shards), ..Share::default() };
            self.settings = self.share.own_settings(Arc::clone(&self.settings));
        }
    }

    /// Sorts what a connection says from now on, if it has logged in. All that it has said before has to be here.
    pub fn session(&self, key: Key) -> Option<Session> {
        let connection =
            self.connections.get(self.connections.place(key)?).filter(|connection| connection.is_member())?;
        let shards = self.share.shards.clone()?;
        Some(Session::new(shards, connection.side, connection.id, connection.fsm.clone()))
    }

    /// The next connection that has logged in. To be polled before [`advance`](Self::advance), which answers the login:
    /// the other engines have to [know](Self::join) of it first.
    pub fn poll_member(&mut self) -> Option<Member> {
        self.share.members.pop_front()
    }

    /// The next message that another engine has to do. To be polled with [`poll_member`](Self::poll_member), after it.
    pub fn poll_misrouted(&mut self) -> Option<Misrouted> {
        self.share.misrouted.pop_front()
    }

    /// The next of those who misbehaved here, in engines that are not the first. To be polled until `None`.
    pub fn poll_ban(&mut self) -> Option<Ban> {
        self.share.bans.pop_front()
    }

    /// A client has misbehaved at another engine: its name is refused for a while.
    pub fn ban(&mut self, now: Time, ban: &Ban) {
        self.clock.set(now);
        let limits = &self.settings.limits;
        let until = now.after(Duration::from_millis(limits.block_ms.into()));
        let who = Who::new(ban.side, &ban.identifier, ban.address);
        let forgotten = self.logins.blocked.add(now, who, until, limits.max_blocked as usize);
        (0..forgotten).for_each(|_| _ = self.counters.refuse(Refusal::Limit("bans")));
    }

    /// A connection misbehaves, and its name is to be refused.
    pub(super) fn block(&mut self, index: Place) {
        let Connection { side, address, ref identifier, .. } = *self.connections.at(index);
        let ban = Ban { side, address, identifier: identifier.clone() };
        match self.share.is_first() {
            true => self.ban(self.clock.now(), &ban),
            // Logins are decided there. There are never more of these than connections.
            false => self.share.bans.push_back(ban),
        }
    }

    /// The number of the connection that owns GLOBAL.
    pub fn master_id(&self) -> Option<u32> {
        self.master().map(|master| self.connections.at(master).id)
    }

    /// Tells an engine that is not the first who owns GLOBAL.
    pub fn set_master(&mut self, connection_id: Option<u32>) {
        self.share.master_id = connection_id;
    }

    /// A connection has logged in at the first engine.
    ///
    /// # Errors
    /// If there are as many as allowed.
    pub fn join(&mut self, now: Time, member: &Member, outbox: Box<dyn Outbox>) -> Result<Key, Refusal> {
        self.clock.set(now);
        let key = self.fanout.connect().map_err(|refusal| self.counters.refuse(refusal))?;
        let machine = match member.side {
            Side::Server => &self.settings.server_machine,
            Side::Client => &self.settings.client_machine,
        };
        let fsm = Fsm::new(Arc::clone(machine));
        let numbers = (member.connection_id, self.connections.free_writer());
        let mut connection = Connection::new(key, numbers, member.side, member.address, outbox, fsm);
        connection.stage = Stage::Member;
        connection.identifier.clone_from(&member.identifier);
        connection.wants_refusals = member.wants_refusals;
        self.connections.add(connection);
        self.counters.side(member.side).opened += 1;
        Ok(key)
    }

    /// A session has found that its connection said what it may not.
    pub fn violated(&mut self, now: Time, key: Key) {
        self.clock.set(now);
        if let Some(from) = self.connections.place(key) {
            self.counters.refuse(Refusal::StateMachine);
            self.note_violation(from);
        }
    }

    /// A message that the connection's [`Session`] has sent to this engine.
    pub fn receive_sorted(&mut self, now: Time, key: Key, message: Message) {
        self.share.is_sorted = true;
        self.receive(now, key, message);
        self.share.is_sorted = false;
    }
}
