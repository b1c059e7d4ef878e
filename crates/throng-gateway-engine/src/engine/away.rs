//! Subscriptions of lost connections that may come back, called *away* here.
//!
//! World servers go on to subscribe a client that is away, to unsubscribe it and to say what it sees, and entities cross into cells that it
//! sees. All of that changes what it gets back. It gets no state and no message meanwhile.

use rustc_hash::FxHashMap;
use throng_channeld::proto::{ChannelSubscriptionOptions, RemoveChannelMessage};
use throng_channeld::{Header, message_type};
use throng_replica::ChannelIndex;
use throng_wire::Time;

use super::Engine;
use super::channel::Wanted;
use super::ends::Ended;
use super::lost::Kept;
use super::news::{News, ended_result};
use super::place::{Party, Place};
use super::port::Side;
use super::refusal::Refusal;

/// A loss is noticed within so many milliseconds if there is no limit (`max_unreachable_ms`).
const UNNOTICED_MS: u32 = 60_000;

impl Engine {
    /// Clients speak for themselves; servers may name anybody.
    pub(super) fn party_or_self(&self, from: Place, conn_id: u32) -> Result<Party, Refusal> {
        match conn_id == 0 || !self.connections.at(from).is_server() {
            true => Ok(Party::Here(from)),
            false => self.party(conn_id),
        }
    }

    pub(super) fn party(&self, conn_id: u32) -> Result<Party, Refusal> {
        match self.connections.find_member(conn_id) {
            Some(place) => Ok(Party::Here(place)),
            None if self.lost.has_connection_id(conn_id) => Ok(Party::Away(conn_id)),
            None => Err(Refusal::UnknownConnection),
        }
    }

    /// Makes or changes a subscription of a connection that is away. The sender of the request, if there is one, and the owner are
    /// notified.
    pub(super) fn keep_and_tell(
        &mut self,
        asked: Option<(Place, u32)>,
        away: u32,
        channel: ChannelIndex,
        options: &ChannelSubscriptionOptions,
    ) -> Result<(), Refusal> {
        let before = self.lost.kept(away, self.channels.identity(channel)).map(|kept| kept.wanted.access);
        let side = self.lost.side_of(away).ok_or(Refusal::UnknownConnection)?;
        let kept = self.keep((away, side), channel, options)?;
        if before == Some(kept.wanted.access) {
            return Ok(());
        }
        let state = self.channels.at(channel);
        let header = Header::new(state.id, message_type::SUB_TO_CHANNEL);
        let news = News::begun((channel, state), (away, side));
        let result = self.begun_result((away, side), channel, kept.wanted);
        self.tell_three((asked, Party::Away(away), channel), header, &result, news);
        Ok(())
    }

    /// It comes back with this subscription, within the limits.
    fn keep(
        &mut self,
        (away, side): (u32, Side),
        channel: ChannelIndex,
        options: &ChannelSubscriptionOptions,
    ) -> Result<Kept, Refusal> {
        let (id, birth) = self.channels.identity(channel);
        let former = self.lost.kept(away, (id, birth)).copied();
        let kept = match former {
            Some(former) => former,
            None => {
                self.check_kept_count(away, side)?;
                let state = self.channels.at(channel);
                let (kind, wanted) = (state.kind, Wanted::usual(&state.settings));
                Kept { birth, kind, wanted, since: self.clock.tick(), is_known: false }
            }
        };
        let kept = Kept { wanted: self.with_options(channel, kept.wanted, options)?, ..kept };
        self.lost.keep(away, id, kept);
        Ok(kept)
    }

    /// Whether a connection that is away may have one more subscription. If there is no room, those to channels that are gone are
    /// forgotten first.
    fn check_kept_count(&mut self, away: u32, side: Side) -> Result<(), Refusal> {
        if self.check_subscriptions(side, self.lost.subscription_count(away)).is_err() {
            let channels = &self.channels;
            self.lost.purge(away, |id, birth| channels.born(id, birth).is_some());
        }
        self.check_subscriptions(side, self.lost.subscription_count(away))
    }

    /// It comes back without this subscription, and not as the owner.
    pub(super) fn unsubscribe_away(
        &mut self,
        (from, stub_id): (Place, u32),
        away: u32,
        channel: ChannelIndex,
    ) -> Result<(), Refusal> {
        let (id, birth) = self.channels.identity(channel);
        let side = self.lost.side_of(away).ok_or(Refusal::UnknownConnection)?;
        if !self.lost.unsubscribe(away, (id, birth)) {
            return Err(Refusal::UnknownConnection);
        }
        let state = self.channels.at(channel);
        let header = Header::new(id, message_type::UNSUB_FROM_CHANNEL);
        let news = News::ended((channel, state), (away, side));
        let result = ended_result((away, side), state.kind);
        self.tell_three((Some((from, stub_id)), Party::Away(away), channel), header, &result, news);
        if self.lost.owner_of(id) == Some(away) {
            self.lost.disown(id);
            self.channels.at_mut(channel).is_awaited = false;
        }
        Ok(())
    }

    /// Remembers for a while that a client's subscription has ended: it may be lost before it hears of it.
    pub(super) fn note_end(&mut self, client: Place, id: u32, ended: Ended) {
        let connection = self.connections.at(client);
        let may_return = !connection.is_server() && !connection.identifier.is_empty();
        if !may_return || self.settings.recovery_patience(Side::Client).is_none() {
            return;
        }
        let (now, oldest) = (self.clock.now(), self.heard_until());
        self.connections.at_mut(client).ends.note(now, oldest, id, ended);
    }

    /// A client whose loss is noticed now has heard everything that it was told until then: it is lost when it reads nothing for so long,
    /// or when so much time of messages waits for it.
    pub(super) fn heard_until(&self) -> Time {
        let limits = &self.settings.limits;
        let unnoticed_ms = match limits.max_unreachable_ms {
            0 => UNNOTICED_MS,
            limit => limit,
        };
        let unnoticed_ms = unnoticed_ms.max(limits.max_slow_ms).max(limits.max_backlog_ms);
        Time(self.clock.now().0.saturating_sub(u64::from(unnoticed_ms) * 1_000))
    }

    /// A client that has come back, and may still have what ended, learns of that.
    pub(super) fn tell_what_ended(&mut self, index: Place, ended: &FxHashMap<u32, Ended>) {
        let mut ended: Vec<(u32, Ended)> = ended.iter().map(|(&id, &ended)| (id, ended)).collect();
        ended.sort_unstable_by_key(|&(id, _)| id);
        for (id, ended) in ended {
            self.tell_end(index, id, ended);
        }
    }

    pub(super) fn tell_end(&mut self, index: Place, id: u32, ended: Ended) {
        self.note_end(index, id, ended);
        let named = (self.connections.at(index).id, self.connections.at(index).side);
        match ended {
            Ended::Unsubscribed(kind) => {
                self.send(index, Header::new(id, message_type::UNSUB_FROM_CHANNEL), &ended_result(named, kind));
            }
            Ended::Removed => {
                let header = Header::new(id, message_type::REMOVE_CHANNEL);
                self.send(index, header, &RemoveChannelMessage { channel_id: id });
            }
        }
    }
}
