//! One connection as the engine knows it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use throng_channeld::{Header, put_body, put_message};
use throng_replica::{ChannelIndex, Frame};
use throng_wire::Time;

use super::backlog::Backlog;
use super::port::{Key, Outbox, Side};
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
    /// Channels that it owns.
    pub(crate) owned: Vec<ChannelIndex>,
    /// Channels that it has created and that still exist.
    pub(crate) created: usize,
    pub(crate) failed_logins: u32,
    pub(crate) violations: u32,
    pub(crate) malformed: u32,
    /// Requests that cost more than they weigh.
    pub(crate) requests: Allowance,
    /// When it is ended, unless it has said by then who it is.
    pub(crate) patience_end: Option<Time>,
    /// State that is sent when there is room.
    backlog: Backlog,
    /// Channels that it is to be told of since it has come back, by id; after the last, that this is all.
    pub(crate) recovery: Option<VecDeque<u32>>,
    /// It is on the list of those who are looked at again and again.
    pub(crate) is_watched: bool,
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
            owned: Vec::new(),
            created: 0,
            failed_logins: 0,
            violations: 0,
            malformed: 0,
            requests: Allowance::default(),
            patience_end: None,
            backlog: Backlog::default(),
            recovery: None,
            is_watched: false,
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

    /// Where entries go, to be appended to.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Hands what was queued to the shell.
    pub(crate) fn flush(&mut self) -> usize {
        let bytes = self.out.len();
        if self.is_closing {
            self.out.clear();
            return 0;
        }
        if bytes > 0 {
            self.outbox.send(&mut self.out);
            self.out.clear();
            self.out.shrink_to(KEPT_BUFFER_BYTES);
        }
        bytes
    }

    /// Bytes of state that may be queued in one step, far from where the connection would be ended.
    pub(crate) fn room_bytes(&self, limits: &Limits) -> usize {
        (self.hard_bytes(limits) / 2).saturating_sub(self.queued_bytes())
    }

    /// Queues a frame of a channel's state. What goes beyond `room_bytes` is sent in slices, before anything newer.
    pub(crate) fn send_frame(&mut self, channel: ChannelIndex, frame: &Arc<Frame>, room_bytes: usize) {
        if self.has_backlog() || self.out.len() + frame.bytes.len() > room_bytes {
            self.backlog.push(channel, Arc::clone(frame));
        } else {
            self.out.extend_from_slice(&frame.bytes);
        }
    }

    /// Whether state waits to be sent in slices, or channel by channel.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty() || self.recovery.is_some()
    }

    /// Queues as much of the state that waits as keeps the connection from being slow. The bytes queued.
    pub(crate) fn feed(&mut self, limits: &Limits) -> usize {
        let before = self.out.len();
        let room = self.soft_bytes(limits).saturating_sub(self.queued_bytes() + before);
        self.backlog.take(room, &mut self.out);
        self.out.len() - before
    }

    /// State of this channel is not wanted any more.
    pub(crate) fn forget_state_of(&mut self, channel: ChannelIndex) {
        self.backlog.forget(channel);
    }

    /// Whether more waits for it than may wait while it is given more.
    pub(crate) fn is_slow(&self, limits: &Limits) -> bool {
        self.queued_bytes() > self.soft_bytes(limits)
    }

    /// Whether more waits for it than may wait at all.
    pub(crate) fn is_overdue(&self, limits: &Limits) -> bool {
        self.queued_bytes() > self.hard_bytes(limits)
    }

    fn soft_bytes(&self, limits: &Limits) -> usize {
        match self.side {
            Side::Server => limits.server_queue_soft_bytes as usize,
            Side::Client => limits.queue_soft_bytes as usize,
        }
    }

    fn hard_bytes(&self, limits: &Limits) -> usize {
        match self.side {
            Side::Server => limits.server_queue_hard_bytes as usize,
            Side::Client => limits.queue_hard_bytes as usize,
        }
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
