//! Counters of the engine: work, refusals and drops.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use throng_channeld::proto::ChannelType;

use super::meters::ChannelMeters;
use super::port::Side;
use super::refusal::Refusal;
use crate::histogram::Histogram;

/// Counts since the start.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    servers: SideCounters,
    clients: SideCounters,
    /// Messages that were dropped, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// The same by the type of the channel that they were about and by reason. `Unknown` where there is none: messages for
    /// channels that do not exist, and what was given up without a message.
    pub refused_by_type: BTreeMap<(i32, &'static str), u64>,
    /// How channels do, by type. Shared with the engine, which still counts.
    pub channels: Arc<ChannelMeters>,
    /// State updates that were merged.
    pub updates: u64,
    /// State updates that went to subscribers: one for each subscriber and turn.
    pub delivered_updates: u64,
    /// Frames that were encoded for them.
    pub frames: u64,
    /// Fan-out steps.
    pub steps: u64,
    /// Times a connection was given nothing because it had not taken what it had.
    pub paused: u64,
    /// Connections that were ended because they did not take what they were sent.
    pub too_slow: u64,
    /// Subscriptions that were restarted because they had missed a forgotten removal.
    pub renewed: u64,
    /// Lost connections that came back.
    pub recovered: u64,
    /// Connections that were replaced by a new connection under the same name.
    pub superseded: u64,
    /// Entities that went to another cell.
    pub handovers: u64,
    /// Frames that were sent on ways where things get lost, and arrived.
    pub datagrams_delivered: u64,
    /// Frames that were sent on such ways, and did not, or were thrown away for something newer.
    pub datagrams_lost: u64,
    /// How much later than due subscribers were served.
    pub lag: Histogram,
    /// The type of the channel that the present message is about.
    pub(super) concerned: ChannelType,
}

/// Counts of one door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideCounters {
    /// Connections that came.
    pub opened: u64,
    /// Connections that logged in.
    pub admitted: u64,
    /// Connections that ended.
    pub closed: u64,
    /// Messages that came.
    pub messages_in: u64,
    /// Messages that were sent.
    pub messages_out: u64,
    /// Bytes that were handed to outboxes.
    pub bytes_out: u64,
}

impl Counters {
    /// The counts of one door.
    pub fn of(&self, side: Side) -> &SideCounters {
        match side {
            Side::Server => &self.servers,
            Side::Client => &self.clients,
        }
    }

    /// Adds the work of another engine that shares the channels out with this one. Connections, and how they end, are
    /// counted by the first engine alone; the figures of channels are shared already.
    pub fn add(&mut self, other: &Counters) {
        for side in [Side::Server, Side::Client] {
            let (own, other) = (self.side(side), other.of(side));
            own.messages_in += other.messages_in;
            own.messages_out += other.messages_out;
            own.bytes_out += other.bytes_out;
        }
        other.refused.iter().for_each(|(&reason, count)| *self.refused.entry(reason).or_default() += count);
        other.refused_by_type.iter().for_each(|(&key, count)| *self.refused_by_type.entry(key).or_default() += count);
        self.updates += other.updates;
        self.delivered_updates += other.delivered_updates;
        self.frames += other.frames;
        self.steps += other.steps;
        self.paused += other.paused;
        self.too_slow += other.too_slow;
        self.renewed += other.renewed;
        self.lag.add(&other.lag);
    }

    /// Counts a refusal, and hands it on.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Refusal {
        *self.refused.entry(refusal.tag()).or_default() += 1;
        *self.refused_by_type.entry((self.concerned.into(), refusal.tag())).or_default() += 1;
        refusal
    }

    /// So many connections and channels were looked for and are not there.
    pub(super) fn note_absences(&mut self, count: u64) {
        if count > 0 {
            *self.refused.entry("not_there").or_default() += count;
            *self.refused_by_type.entry((ChannelType::Unknown.into(), "not_there")).or_default() += count;
        }
    }

    pub(crate) fn side(&mut self, side: Side) -> &mut SideCounters {
        match side {
            Side::Server => &mut self.servers,
            Side::Client => &mut self.clients,
        }
    }
}

/// Present numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Open connections of world servers.
    pub servers: usize,
    /// Open connections of clients.
    pub clients: usize,
    /// Channels by type.
    pub channels: BTreeMap<u32, usize>,
    /// Bytes of the states of all channels.
    pub state_bytes: u64,
    /// Their limits.
    pub state_limit_bytes: u64,
    /// Lost servers and clients that are waited for.
    pub awaited: usize,
    /// The servers among them.
    pub awaited_servers: usize,
}

impl Occupancy {
    /// Adds the channels of another engine that shares them out with this one.
    pub fn add(&mut self, other: &Occupancy) {
        other.channels.iter().for_each(|(&kind, count)| *self.channels.entry(kind).or_default() += count);
        self.state_bytes += other.state_bytes;
    }
}

/// One connection, as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Its number in the protocol.
    pub id: u32,
    /// Which door it came through.
    pub side: Side,
    /// Where it comes from.
    pub address: SocketAddr,
    /// Whether it had logged in.
    pub is_admitted: bool,
    /// Bytes that its kernel has not taken yet.
    pub queued_bytes: usize,
    /// Channels that it subscribes to.
    pub subscriptions: usize,
}
