//! One connection as the engine knows it.

use std::net::SocketAddr;

use throng_channeld::{Header, put_body, put_message};
use throng_replica::ChannelIndex;
use throng_wire::Time;

use super::movement::{Movement, MovementTurn};
use super::port::{Datagrams, Key, Outbox, Side};
use crate::fsm::Fsm;
use crate::settings::Limits;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has not said who it is.
    Stranger,
    /// The provider is asked.
    Asked {
        /// The number that the answer has to repeat.
        stub_id: u32,
    },
    /// It is let in.
    Member,
}

pub(crate) struct Connection {
    pub(crate) key: Key,
    /// The number under which the protocol knows it.
    pub(crate) id: u32,
    /// The number under which states remember what it wrote. No other connection has or had it: a newcomer that takes
    /// the place of somebody who wrote is not taken for the writer.
    pub(crate) writer: u32,
    pub(crate) side: Side,
    pub(crate) address: SocketAddr,
    pub(crate) stage: Stage,
    pub(crate) fsm: Fsm,
    /// Who it said it is, once it was believed.
    pub(crate) identifier: String,
    outbox: Box<dyn Outbox>,
    /// Entries for the outbox, until the end of the step.
    out: Vec<u8>,
    /// Bytes given to the outbox so far.
    flushed_bytes: u64,
    /// For state that may get lost on its way, once there is some.
    pub(crate) movement: Option<Box<Movement>>,
    /// Channels that it owns.
    pub(crate) owned: Vec<ChannelIndex>,
    /// Channels that it has created and that still exist.
    pub(crate) created: usize,
    pub(crate) failed_logins: u32,
    pub(crate) violations: u32,
    pub(crate) malformed: u32,
    /// Requests that cost more than they weigh.
    pub(crate) requests: Allowance,
    /// Since when it takes less than it is given.
    pub(crate) slow_since: Option<Time>,
    /// It is to be ended at the end of the step.
    pub(crate) is_ending: bool,
    pub(crate) is_closing: bool,
}

/// So many things per second: those of one second may come at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    /// What was taken and has not drained, in millionths.
    level: u64,
    since: Time,
}

impl Allowance {
    /// Takes one, if it is there.
    pub(crate) fn take(&mut self, now: Time, per_s: u32) -> bool {
        let drained = now.micros_since(self.since).saturating_mul(per_s.into());
        self.since = now;
        self.level = self.level.saturating_sub(drained);
        let is_there = self.level + 1_000_000 <= u64::from(per_s) * 1_000_000;
        if is_there {
            self.level += 1_000_000;
        }
        is_there
    }
}

/// The buffer of a connection that had much to say once is given back above this many bytes.
const KEPT_BUFFER_BYTES: usize = 16 * 1024;

impl Connection {
    pub(crate) fn new(
        key: Key,
        (id, writer): (u32, u32),
        side: Side,
        address: SocketAddr,
        outbox: Box<dyn Outbox>,
        fsm: Fsm,
    ) -> Connection {
        Connection {
            key,
            id,
            writer,
            side,
            address,
            stage: Stage::Stranger,
            fsm,
            identifier: String::new(),
            outbox,
            out: Vec::new(),
            flushed_bytes: 0,
            movement: None,
            owned: Vec::new(),
            created: 0,
            failed_logins: 0,
            violations: 0,
            malformed: 0,
            requests: Allowance::default(),
            slow_since: None,
            is_ending: false,
            is_closing: false,
        }
    }

    pub(crate) fn is_server(&self) -> bool {
        self.side == Side::Server
    }

    pub(crate) fn is_member(&self) -> bool {
        self.stage == Stage::Member
    }

    pub(crate) fn index(&self) -> usize {
        self.key.index as usize
    }

    /// Queues one message.
    pub(crate) fn send(&mut self, header: Header, body: &impl prost::Message) {
        put_body(&mut self.out, header, body);
    }

    /// Queues one message whose body is encoded already.
    pub(crate) fn send_bytes(&mut self, header: Header, body: &[u8]) {
        put_message(&mut self.out, header, body);
    }

    /// Queues entries that are encoded already.
    pub(crate) fn send_entries(&mut self, entries: &[u8]) {
        self.out.extend_from_slice(entries);
    }

    /// Where entries go, to be appended to, and who decides which of them may get lost.
    pub(crate) fn out(&mut self) -> (&mut Vec<u8>, Option<MovementTurn<'_>>) {
        let lanes = self.movement.as_deref_mut().zip(self.outbox.datagrams());
        let turn = lanes.map(|(movement, datagrams)| movement.turn(datagrams, self.flushed_bytes));
        (&mut self.out, turn)
    }

    /// The way for things that may get lost, if it has one.
    pub(crate) fn datagrams(&self) -> Option<&dyn Datagrams> {
        self.outbox.datagrams()
    }

    /// Hands what was queued to the shell.
    pub(crate) fn flush(&mut self) -> usize {
        let bytes = self.out.len();
        if self.is_closing {
            self.out.clear();
            return 0;
        }
        if bytes > 0 {
            self.flushed_bytes += bytes as u64;
            self.outbox.send(&mut self.out);
            self.out.clear();
            self.out.shrink_to(KEPT_BUFFER_BYTES);
        }
        bytes
    }

    /// Whether more waits for it than may wait while it is given more.
    pub(crate) fn is_slow(&self, limits: &Limits) -> bool {
        let soft = match self.side {
            Side::Server => limits.server_queue_soft_bytes,
            Side::Client => limits.queue_soft_bytes,
        };
        self.queued_bytes() > soft as usize
    }

    /// Whether more waits for it than may wait at all.
    pub(crate) fn is_overdue(&self, limits: &Limits) -> bool {
        let hard = match self.side {
            Side::Server => limits.server_queue_hard_bytes,
            Side::Client => limits.queue_hard_bytes,
        };
        self.queued_bytes() > hard as usize
    }

    /// What the kernel has not taken yet.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.outbox.queued_bytes()
    }

    /// Says good-bye: what is queued goes out, then the connection ends.
    pub(crate) fn close(&mut self) {
        if !self.is_closing {
            self.flush();
            self.is_closing = true;
            self.outbox.close();
        }
    }
}
