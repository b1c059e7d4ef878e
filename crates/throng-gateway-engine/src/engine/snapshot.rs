//! The engine as records, a few at a time, between its steps.
//!
//! A snapshot begins with a list of the numbers of all channels and entities and the names of all sessions. Each is looked
//! up when its turn comes: one that is gone by then is left out, and one that has come since is newer than the snapshot.

use rustc_hash::{FxHashMap, FxHashSet};
use throng_channeld::proto::ChannelDataMergeOptions;
use throng_replica::ChannelIndex;

use super::Engine;
use super::ends::Ended;
use super::entities::Entity;
use super::lost::{Kept, LostKey};
use super::port::{Key, Side};
use crate::snapshot::{self, Kind, Part};

/// Records of one part, however short they are: what there is to say about a channel has to be looked up.
const PART_RECORDS_MAX: usize = 256;

/// The records that are left to write.
#[derive(Debug)]
pub(super) struct Taking {
    has_begun: bool,
    channels: std::vec::IntoIter<ChannelIndex>,
    sessions: std::vec::IntoIter<LostKey>,
    groups: std::vec::IntoIter<Vec<u32>>,
    locks: std::vec::IntoIter<(u32, u32)>,
    unborn: std::vec::IntoIter<u32>,
    /// Channels that were removed since the last part.
    gone: Vec<u32>,
    scratch: Vec<u8>,
}

impl Taking {
    pub(super) fn note_gone(&mut self, channel: u32) {
        self.gone.push(channel);
    }
}

impl Engine {
    /// Begins a snapshot, in place of one that has not ended.
    pub fn begin_snapshot(&mut self) {
        let is_first = self.share.is_first();
        let lost = self.lost.names().filter(|name| self.logins.bearer(name).is_none());
        let sessions: Vec<LostKey> = self.logins.names().chain(lost).filter(|_| is_first).cloned().collect();
        let mut channels: Vec<ChannelIndex> = self.channels.indices().collect();
        channels.sort_unstable_by_key(|channel| channel.number());
        let (groups, locks): (Vec<_>, Vec<_>) =
            (self.entities.groups.groups().collect(), self.entities.groups.locks().collect());
        self.taking = Some(Box::new(Taking {
            has_begun: false,
            channels: channels.into_iter(),
            sessions: sessions.into_iter(),
            groups: groups.into_iter(),
            locks: locks.into_iter(),
            unborn: self.entities.unborn.ids().collect::<Vec<_>>().into_iter(),
            gone: Vec::new(),
            scratch: Vec::new(),
        }));
    }

    /// The next records of the snapshot: about `budget_bytes` of them, or one that is longer. Without a snapshot, nothing
    /// and the end.
    pub fn snapshot_part(&mut self, budget_bytes: usize) -> Part {
        let mut part = Part::default();
        let Some(mut taking) = self.taking.take() else {
            part.is_last = true;
            return part;
        };
        if !std::mem::replace(&mut taking.has_begun, true) {
            self.put_heads(&mut part);
        }
        for id in taking.gone.drain(..) {
            part.put(Kind::Gone, &snapshot::Mark { id });
        }
        while part.len_bytes() < budget_bytes.max(1) && part.record_count() < PART_RECORDS_MAX {
            if !self.put_next(&mut taking, &mut part) {
                // The last records are newer than the first head.
                part.put(Kind::Head, &self.head());
                part.is_last = true;
                return part;
            }
        }
        self.taking = Some(taking);
        part
    }

    /// Whether there was something more to look at.
    fn put_next(&self, taking: &mut Taking, part: &mut Part) -> bool {
        if let Some(channel) = taking.channels.next() {
            self.put_channel(channel, &mut taking.scratch, part);
        } else if let Some(name) = taking.sessions.next() {
            if let Some(session) = self.session_of(&name) {
                part.put(Kind::Session, &session);
            }
        } else if let Some(members) = taking.groups.next() {
            part.put(Kind::Group, &snapshot::Group { members });
        } else if let Some((entity, by)) = taking.locks.next() {
            part.put(Kind::Lock, &snapshot::Lock { entity, by });
        } else if let Some(id) = taking.unborn.next() {
            if self.entities.unborn.contains(id) {
                let entity = self.entities.get(id).map(Entity::to_record);
                part.put(Kind::Unborn, &snapshot::Unborn { id, entity });
            }
        } else {
            return false;
        }
        true
    }

    fn head(&self) -> snapshot::Head {
        let (writers, next_connection_id) = self.connections.last_numbers();
        snapshot::Head {
            tick: self.clock.tick().0,
            unix_ns: self.clock.unix_ns(),
            writers,
            next_connection_id,
            spatial_channel_start: self.settings.spatial_channel_start,
            entity_channel_start: self.settings.entity_channel_start,
            has_news: true,
        }
    }

    fn put_heads(&self, part: &mut Part) {
        part.put(Kind::Head, &self.head());
        if let Some(world) = &self.world {
            let is_ready = world.slots.is_ready();
            part.put(Kind::World, &snapshot::World { cut: world.grid.fingerprint(), is_ready });
        }
    }

    fn put_channel(&self, index: ChannelIndex, scratch: &mut Vec<u8>, part: &mut Part) {
        let Some(channel) = self.channels.get(index).filter(|channel| self.share.is_home_of(channel.id)) else {
            return;
        };
        let state = self.fanout.hub.state(index).data().map(|data| {
            scratch.clear();
            data.save(scratch);
            std::mem::take(scratch)
        });
        let present = channel.owner.map(|owner| self.connections.at(owner).id);
        let owner = present.or_else(|| self.lost.owner_of(channel.id)).unwrap_or_default();
        let is_usual = channel.merge == ChannelDataMergeOptions::default();
        let record = snapshot::Channel {
            id: channel.id,
            kind: channel.kind.into(),
            metadata: channel.metadata.clone(),
            owner,
            merge: (!is_usual).then(|| snapshot::Merging::of(&channel.merge)),
            created_by: match channel.creator.map(|creator| creator.side) {
                None => 0,
                Some(Side::Server) => 1,
                Some(Side::Client) => 2,
            },
            state,
            entity: self.entities.get(channel.id).map(Entity::to_record),
        };
        part.put(Kind::Channel, &record);
        if let Some(used) = record.state {
            *scratch = used;
        }
    }

    /// A session that may come back: the present one of this name, as if it were lost now, or else the lost one.
    fn session_of(&self, name: &LostKey) -> Option<snapshot::Session> {
        self.settings.recovery_patience(name.0)?;
        let (connection_id, created, subscriptions, ended) =
            self.present_session(name).or_else(|| self.lost_session(name))?;
        let slot = self.world.as_ref().and_then(|world| world.slots.server_of(connection_id));
        let (is_server, name) = (name.0 == Side::Server, name.1.clone());
        Some(snapshot::Session { is_server, name, connection_id, slot, subscriptions, ended, created })
    }

    fn present_session(&self, name: &LostKey) -> Option<SessionParts> {
        let place = self.connections.place(self.logins.bearer(name)?)?;
        let connection = self.connections.at(place);
        if !connection.is_member() || connection.is_ending {
            return None;
        }
        let (subscriptions, ended) = self.subscriptions_of(place);
        let created = self.created_by(connection.key, &connection.created);
        Some(self.session_parts((connection.id, created), &subscriptions, &ended))
    }

    fn lost_session(&self, name: &LostKey) -> Option<SessionParts> {
        let lost = self.lost.get(name)?;
        let created = self.created_by(lost.key, &lost.created);
        Some(self.session_parts((lost.connection_id, created), &lost.subscriptions, &lost.ended))
    }

    /// The ids of those of the channels that count for a connection.
    fn created_by(&self, creator: Key, created: &FxHashSet<ChannelIndex>) -> Vec<u32> {
        let channels = created.iter().filter_map(|&channel| self.channels.get(channel));
        let its_own = channels.filter(|channel| channel.creator.is_some_and(|of| of.key == creator));
        its_own.map(|channel| channel.id).collect()
    }

    fn session_parts(
        &self,
        (connection_id, created): (u32, Vec<u32>),
        subscriptions: &FxHashMap<u32, Kept>,
        ended: &FxHashMap<u32, Ended>,
    ) -> SessionParts {
        let is_there = |(id, kept): &(&u32, &Kept)| self.channels.born(**id, kept.birth).is_some();
        let (there, gone): (Vec<_>, Vec<_>) = subscriptions.iter().partition(is_there);
        let removed = gone.into_iter().filter(|(_, kept)| kept.is_known).map(|(&id, _)| (id, Ended::Removed));
        let ended = ended.iter().map(|(&id, &ended)| (id, ended)).chain(removed).map(ended_record).collect();
        let there = there.into_iter().map(|(&id, kept)| self.subscription_of(id, kept)).collect();
        (connection_id, created, there, ended)
    }

    fn subscription_of(&self, channel: u32, &Kept { wanted, since, is_known, .. }: &Kept) -> snapshot::Subscription {
        let options = wanted.to_wire();
        snapshot::Subscription {
            channel,
            since: since.0,
            interval_ms: wanted.interval_ms,
            delay_ms: wanted.delay_ms,
            access: options.data_access.unwrap_or_default(),
            skip_self: wanted.skip_self,
            skip_first: wanted.skip_first,
            reliable: wanted.reliable,
            masks: self.fanout.forms.paths(wanted.variant).to_vec(),
            is_news: !is_known,
        }
    }
}

/// A connection id, the channels that it has created, its subscriptions, and those that its client may believe to have.
type SessionParts = (u32, Vec<u32>, Vec<snapshot::Subscription>, Vec<snapshot::EndedSubscription>);

fn ended_record((channel, ended): (u32, Ended)) -> snapshot::EndedSubscription {
    let kind = match ended {
        Ended::Unsubscribed(kind) => Some(kind.into()),
        Ended::Removed => None,
    };
    snapshot::EndedSubscription { channel, kind }
}
