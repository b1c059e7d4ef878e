//! Subscriptions: requests for oneself and for others, and the granted options.

use std::sync::Arc;

use smallvec::SmallVec;
use throng_channeld::proto::{
    ChannelDataAccess, ChannelSubscriptionOptions, SubscribedToChannelMessage, SubscribedToChannelResultMessage,
    UnsubscribedFromChannelMessage, UnsubscribedFromChannelResultMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_replica::{ChannelIndex, StreamStart, StreamSubscription, SubscriptionId, Variant};
use throng_wire::Tick;

use super::Engine;
use super::channel::{Access, Subscriber, Wanted};
use super::connection::Cost;
use super::ends::Ended;
use super::news::{News, connection_type, ended_result};
use super::place::{Party, Place};
use super::port::Side;
use super::refusal::Refusal;
use crate::channel_types::AccessLevel;
use throng_protostate::Schema;

/// Subscriptions and their ends that cost a client as much as an ordinary request: one in a crowd makes hundreds at once.
const SUBSCRIPTIONS_PER_REQUEST: u64 = 256;

/// Bytes of memory of a state that cost as much if a client is sent all of it: some hundred microseconds of encoding.
const STATE_BYTES_PER_REQUEST: u64 = 1 << 20;

/// Shortest time between two searches for unused forms.
const RECLAIM_EVERY_MS: u32 = 1_000;

/// A subscription that was made or changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscribed {
    subscriber: Subscriber,
    /// Whether it is new, or gives other rights than before: the facts for the notices to others.
    is_news: bool,
}

impl Engine {
    pub(super) fn on_subscribe(
        &mut self,
        from: Place,
        channel: ChannelIndex,
        message: &Message,
    ) -> Result<(), Refusal> {
        let wanted: SubscribedToChannelMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let target = self.party_or_self(from, wanted.conn_id)?;
        if target != Party::Here(from) && !self.is_allowed(self.channels.at(channel).settings.acl.sub, from, channel) {
            return Err(Refusal::NotAllowed);
        }
        let options = wanted.sub_options.unwrap_or_default();
        let wants_to_write = options.data_access == Some(ChannelDataAccess::WriteAccess.into());
        if wants_to_write && !self.connections.at(from).is_server() && !self.settings.client_rights.write {
            return Err(Refusal::NoWriteAccess);
        }
        self.check_may_churn(from, channel)?;
        let target = match target {
            Party::Here(target) => target,
            Party::Away(away) => return self.keep_and_tell(Some((from, message.stub_id)), away, channel, &options),
        };
        let former = self.channels.at(channel).subscriber(target).map(|former| former.id);
        self.subscribe_and_tell(from, target, channel, &options, message.stub_id)?;
        let present = self.channels.at(channel).subscriber(target).map(|present| present.id);
        if former != present && !options.skip_first_fan_out() {
            // The whole state is encoded for it.
            let bytes = self.fanout.hub.state(channel).size_bytes() as u64;
            self.connections.at_mut(from).requests.charge(Cost::each(bytes, STATE_BYTES_PER_REQUEST));
        }
        Ok(())
    }

    /// Whether a connection may subscribe now, and there is room to tell the owner. For clients it costs little, unless they
    /// do it all the time or to large channels.
    fn check_may_churn(&mut self, from: Place, channel: ChannelIndex) -> Result<(), Refusal> {
        let (now, per_s) = (self.clock.now(), self.settings.limits.max_client_requests_per_s);
        let connection = self.connections.at_mut(from);
        if connection.is_server() {
            return Ok(());
        }
        if !connection.requests.has(now, per_s) {
            return Err(Refusal::Limit("client_requests"));
        }
        connection.requests.charge(Cost::each(1, SUBSCRIPTIONS_PER_REQUEST));
        match self.channels.at(channel).owner.filter(|&owner| owner != from) {
            Some(owner) => self.check_room_for_clients(owner),
            None => Ok(()),
        }
    }

    /// Subscribes a connection, or changes its subscription. The sender of the request, the subscriber and the owner
    /// are notified, unless nothing that concerns them has changed.
    pub(super) fn subscribe_and_tell(
        &mut self,
        from: Place,
        target: Place,
        channel: ChannelIndex,
        options: &ChannelSubscriptionOptions,
        stub_id: u32,
    ) -> Result<(), Refusal> {
        let subscribed = self.subscribe(target, channel, options)?;
        self.tell_subscribed(from, target, channel, subscribed, stub_id);
        Ok(())
    }

    /// The news of a subscription, if it is some.
    pub(super) fn tell_subscribed(
        &mut self,
        from: Place,
        target: Place,
        channel: ChannelIndex,
        Subscribed { subscriber, is_news }: Subscribed,
        stub_id: u32,
    ) {
        if !is_news {
            return;
        }
        let header = Header::new(self.channels.at(channel).id, message_type::SUB_TO_CHANNEL);
        let named = (self.connections.at(target).id, self.connections.at(target).side);
        let news = News::begun((channel, self.channels.at(channel)), named);
        let wanted = self.fanout.granted(&self.connections, target, subscriber);
        let result = self.begun_result(named, channel, wanted);
        self.tell_three((Some((from, stub_id)), Party::Here(target), channel), header, &result, news);
    }

    /// The options that a party is granted; `None` if it is not subscribed.
    fn granted_to(&self, party: Party, channel: ChannelIndex) -> Option<Wanted> {
        match party {
            Party::Here(place) => {
                let subscriber = *self.channels.at(channel).subscriber(place)?;
                Some(self.fanout.granted(&self.connections, place, subscriber))
            }
            Party::Away(away) => self.lost.kept(away, self.channels.identity(channel)).map(|kept| kept.wanted),
        }
    }

    /// The message about the subscription of a party; `None` if it is not subscribed.
    pub(super) fn subscribed_result(
        &self,
        party: Party,
        channel: ChannelIndex,
    ) -> Option<SubscribedToChannelResultMessage> {
        let wanted = self.granted_to(party, channel)?;
        let named = match party {
            Party::Here(place) => (self.connections.at(place).id, self.connections.at(place).side),
            Party::Away(away) => (away, self.lost.side_of(away)?),
        };
        Some(self.begun_result(named, channel, wanted))
    }

    pub(super) fn begun_result(
        &self,
        (conn_id, side): (u32, Side),
        channel: ChannelIndex,
        wanted: Wanted,
    ) -> SubscribedToChannelResultMessage {
        let mut effective = wanted.to_wire();
        effective.data_field_masks = self.fanout.forms.paths(wanted.variant).to_vec();
        SubscribedToChannelResultMessage {
            conn_id,
            sub_options: Some(effective),
            conn_type: connection_type(side).into(),
            channel_type: self.channels.at(channel).kind.into(),
        }
    }

    fn unsubscribed_result(&self, target: Place, channel: ChannelIndex) -> UnsubscribedFromChannelResultMessage {
        let target = self.connections.at(target);
        ended_result((target.id, target.side), self.channels.at(channel).kind)
    }

    /// Subscribes a connection with what it had, from the beginning. Its copy of the channel is void. The protocol has
    /// no other message for that than the end of the subscription, so it gets an end and a new beginning. Nothing has
    /// changed for anybody else.
    pub(super) fn subscribe_anew(&mut self, target: Place, channel: ChannelIndex, (wanted, since): (Wanted, Tick)) {
        self.unsubscribe(target, channel);
        let id = self.channels.at(channel).id;
        let ended = self.unsubscribed_result(target, channel);
        self.send(target, Header::new(id, message_type::UNSUB_FROM_CHANNEL), &ended);
        match self.serve_again(target, channel, (wanted, since), StreamStart::Everything) {
            true => self.tell_begun(target, channel),
            false => self.note_end(target, id, Ended::Unsubscribed(self.channels.at(channel).kind)),
        }
    }

    /// Serves a subscription that was there before. If this is refused, tells the owner that the subscription has ended. Returns whether it
    /// is served.
    pub(super) fn serve_again(
        &mut self,
        target: Place,
        channel: ChannelIndex,
        (wanted, since): (Wanted, Tick),
        start: StreamStart,
    ) -> bool {
        match self.serve_from(target, channel, wanted, start) {
            Ok(number) => {
                let subscriber = Subscriber::new(number, wanted, since);
                self.channels.at_mut(channel).subscribers.insert(target, subscriber);
                true
            }
            Err(refusal) => {
                self.counters.refuse(refusal);
                let named = (self.connections.at(target).id, self.connections.at(target).side);
                self.tell_owner_of_end(channel, named);
                false
            }
        }
    }

    /// Tells a subscriber of its subscription.
    pub(super) fn tell_begun(&mut self, target: Place, channel: ChannelIndex) {
        let Some(begun) = self.subscribed_result(Party::Here(target), channel) else { return };
        let id = self.channels.at(channel).id;
        self.send(target, Header::new(id, message_type::SUB_TO_CHANNEL), &begun);
    }

    /// A subscriber that missed a forgotten removal starts again with the whole state.
    pub(super) fn renew_the_outdated(&mut self) {
        for (place, channel) in self.fanout.take_outdated(&self.connections) {
            let Some(former) = self.channels.at(channel).subscriber(place).copied() else { continue };
            self.counters.renewed += 1;
            self.subscribe_anew(place, channel, (self.fanout.granted(&self.connections, place, former), former.since));
        }
    }

    /// The sender of a request, if there is one, gets the answer with its stub. The party, if it is here, and the owner get copies without.
    pub(super) fn tell_three(
        &mut self,
        (asked, party, channel): (Option<(Place, u32)>, Party, ChannelIndex),
        header: Header,
        result: &impl prost::Message,
        news: News,
    ) {
        let from = asked.map(|(from, _)| from);
        if let Some((from, stub_id)) = asked {
            self.send(from, header.with_stub(stub_id), result);
        }
        if let Party::Here(target) = party
            && Some(target) != from
        {
            self.send(target, header, result);
        }
        let owner = self.channels.at(channel).owner;
        let owner = owner.filter(|&owner| Some(owner) != from && Party::Here(owner) != party);
        if let Some(owner) = owner
            && self.may_tell(owner, news)
        {
            match from {
                Some(from) => self.send_from(from, owner, header, result),
                None => self.send(owner, header, result),
            }
        }
    }

    /// Makes or changes a subscription, within the limits; what is in effect then.
    pub(super) fn subscribe(
        &mut self,
        target: Place,
        index: ChannelIndex,
        options: &ChannelSubscriptionOptions,
    ) -> Result<Subscribed, Refusal> {
        if !self.connections.at(target).is_member() {
            return Err(Refusal::UnknownConnection);
        }
        let former = self.channels.at(index).subscriber(target).copied();
        if former.is_none() {
            self.check_subscription_count(target)?;
        }
        let granted = former.map(|former| self.fanout.granted(&self.connections, target, former));
        let base = granted.unwrap_or_else(|| Wanted::usual(&self.channels.at(index).settings));
        let wanted = self.with_options(index, base, options)?;
        let id = match former {
            Some(former) => self.serve_changed(target, index, former, wanted, options.skip_first_fan_out())?,
            None => self.serve(target, index, wanted, wanted.skip_first)?,
        };
        let since = former.map_or(self.clock.tick(), |former| former.since);
        let subscriber = Subscriber::new(id, wanted, since);
        self.channels.at_mut(index).subscribers.insert(target, subscriber);
        let is_news = former.is_none_or(|former| former.access() != subscriber.access());
        Ok(Subscribed { subscriber, is_news })
    }

    /// The options of a subscriber that had `base` and asks for these, within the limits.
    pub(super) fn with_options(
        &mut self,
        index: ChannelIndex,
        base: Wanted,
        options: &ChannelSubscriptionOptions,
    ) -> Result<Wanted, Refusal> {
        let mut wanted = base.with(options).bounded(&self.settings.limits);
        if !options.data_field_masks.is_empty() {
            wanted.variant = self.form_of(index, &options.data_field_masks)?;
        }
        Ok(wanted)
    }

    /// The form of frames that these field masks ask for, within the limits.
    pub(super) fn form_of(&mut self, index: ChannelIndex, masks: &[String]) -> Result<Variant, Refusal> {
        let limits = &self.settings.limits;
        if masks.len() > limits.max_field_masks as usize {
            return Err(Refusal::Limit("field_masks"));
        }
        if masks.iter().any(|mask| mask.len() > limits.max_field_mask_bytes as usize) {
            return Err(Refusal::Limit("field_mask_bytes"));
        }
        let most = limits.max_mask_sets as usize;
        let schema = self.schema_of(index);
        let mut sets: SmallVec<[Variant; 16]> = SmallVec::new();
        for subscriber in self.channels.at(index).subscribers.values() {
            if subscriber.variant != Variant::default() && !sets.contains(&subscriber.variant) {
                sets.push(subscriber.variant);
            }
        }
        // A refused subscription leaves nothing behind: forms are few and shared.
        match self.fanout.forms.find(masks, schema.as_deref()) {
            Some(known) if sets.contains(&known) => return Ok(known),
            _ if sets.len() >= most => return Err(Refusal::Limit("mask_sets")),
            Some(known) => return Ok(known),
            None => {}
        }
        self.reclaim_forms();
        self.fanout.forms.add(masks, schema.as_deref())
    }

    /// It is known now of what type a channel's state is: masks that were asked for by name show what they name.
    pub(super) fn resolve_masks_anew(&mut self, channel: ChannelIndex) {
        let masked = |&(_, subscriber): &(Place, Subscriber)| subscriber.variant != Variant::default();
        let masked: Vec<(Place, Subscriber)> = self.channels.at(channel).subscribers.iter().filter(masked).collect();
        for (place, subscriber) in masked {
            let granted = self.fanout.granted(&self.connections, place, subscriber);
            let wanted = self.resolved(channel, granted);
            if wanted.variant == subscriber.variant {
                continue;
            }
            let hub = self.connections.hub_id(place);
            self.fanout.hub.change(hub, subscriber.id, wanted.interval_ms, wanted.variant);
            let subscriber = Subscriber::new(subscriber.id, wanted, subscriber.since);
            self.channels.at_mut(channel).subscribers.insert(place, subscriber);
        }
    }

    /// The same subscription with its masks read again: the type of the state may be known by now.
    pub(super) fn resolved(&mut self, channel: ChannelIndex, wanted: Wanted) -> Wanted {
        if wanted.variant == Variant::default() {
            return wanted;
        }
        let (paths, schema) = (self.fanout.forms.paths(wanted.variant).to_vec(), self.schema_of(channel));
        match self.fanout.forms.add(&paths, schema.as_deref()) {
            Ok(variant) => Wanted { variant, ..wanted },
            Err(_) => wanted,
        }
    }

    /// If there is no room for another form, forgets those that no present or awaited subscriber uses. Not all the
    /// time.
    fn reclaim_forms(&mut self) {
        if !self.fanout.begins_to_reclaim(self.clock.tick(), RECLAIM_EVERY_MS) {
            return;
        }
        let subscribers = self.channels.iter().flat_map(|channel| channel.subscribers.values());
        let awaited = self.lost.values().flat_map(|lost| lost.subscriptions.values());
        let used = subscribers.map(|subscriber| subscriber.variant).chain(awaited.map(|kept| kept.wanted.variant));
        self.fanout.forms.retain(&used.collect());
    }

    /// The schema of the messages that the channel holds, or will hold.
    fn schema_of(&self, index: ChannelIndex) -> Option<Arc<Schema>> {
        match self.fanout.hub.state(index).data() {
            Some(data) => data.schema().cloned(),
            None => self.schemas.find(self.channels.at(index).settings.data_msg_full_name.as_deref()?).cloned(),
        }
    }

    fn serve(
        &mut self,
        target: Place,
        index: ChannelIndex,
        wanted: Wanted,
        skips_first: bool,
    ) -> Result<SubscriptionId, Refusal> {
        let start = match skips_first {
            true => StreamStart::Changes,
            false => StreamStart::Everything,
        };
        self.serve_from(target, index, wanted, start)
    }

    /// The writer of whom a subscriber with these options is sent nothing.
    pub(super) fn skipped_by(&self, subscriber: Place, wanted: Wanted) -> Option<u32> {
        wanted.skip_self.then(|| self.connections.at(subscriber).writer)
    }

    /// Makes the hub serve a subscription that begins with `start`.
    pub(super) fn serve_from(
        &mut self,
        target: Place,
        index: ChannelIndex,
        wanted: Wanted,
        start: StreamStart,
    ) -> Result<SubscriptionId, Refusal> {
        let hub = self.connections.hub_id(target);
        let now = self.clock.tick();
        self.check_subscription_count(target)?;
        let anchor = match wanted.delay_ms {
            delay @ 0.. => now.after(delay.unsigned_abs()),
            delay => now.before(delay.unsigned_abs()),
        };
        let Wanted { interval_ms: interval_ticks, variant, .. } = wanted;
        let skips = self.skipped_by(target, wanted);
        let subscription = StreamSubscription { interval_ticks, anchor, start, variant, skips };
        let subscription = match wanted.access {
            // A subscriber without read access takes a number and gets nothing. Nor does one that an edge sends state to.
            Access::None => StreamSubscription { start: StreamStart::Nothing, ..subscription },
            _ if self.connections.at(target).behind.is_some() => {
                StreamSubscription { start: StreamStart::Nothing, ..subscription }
            }
            _ => subscription,
        };
        if subscription.start == StreamStart::Changes {
            self.fanout.hub.state(index).seal();
        }
        let id = self.fanout.hub.subscribe(hub, index, subscription).map_err(|limit| Refusal::Limit(limit.tag()))?;
        let may_lose = self.settings.movement.contains(self.channels.at(index).kind);
        self.fanout.begin_lane(self.connections.at_mut(target), may_lose, (id, wanted));
        let reads = (wanted, anchor, start == StreamStart::Changes);
        let channel = (index, self.channels.at(index));
        self.edges.begin_read(self.connections.at(target), channel, reads, &self.fanout);
        Ok(id)
    }

    fn check_subscription_count(&self, target: Place) -> Result<(), Refusal> {
        let stream = self.fanout.hub.connection(self.connections.hub_id(target));
        let count = stream.map_or(0, |stream| stream.subscription_count());
        self.check_subscriptions(self.connections.at(target).side, count)
    }

    /// Whether a connection that has this many subscriptions may have one more.
    pub(super) fn check_subscriptions(&self, side: Side, count: usize) -> Result<(), Refusal> {
        let limits = &self.settings.limits;
        let (limit, tag) = match side {
            Side::Server => (limits.max_server_subscriptions, "server_subscriptions"),
            Side::Client => (limits.max_client_subscriptions, "client_subscriptions"),
        };
        if count >= limit as usize { Err(Refusal::Limit(tag)) } else { Ok(()) }
    }

    fn serve_changed(
        &mut self,
        target: Place,
        index: ChannelIndex,
        former: Subscriber,
        wanted: Wanted,
        skips_first: bool,
    ) -> Result<SubscriptionId, Refusal> {
        let hub = self.connections.hub_id(target);
        let granted = self.fanout.granted(&self.connections, target, former);
        let sees_other = (granted.access == Access::None) != (wanted.access == Access::None);
        if sees_other || former.variant != wanted.variant {
            // A subscriber that sees more than before gets the existing state, unless it says that it knows it.
            self.unsubscribe(target, index);
            return self.serve(target, index, wanted, skips_first);
        }
        if granted.reliable != wanted.reliable {
            let may_lose = self.settings.movement.contains(self.channels.at(index).kind);
            self.fanout.change_lane(self.connections.at_mut(target), may_lose, (former.id, wanted));
        }
        if granted.interval_ms != wanted.interval_ms {
            self.fanout.hub.change(hub, former.id, wanted.interval_ms, wanted.variant);
        }
        self.fanout.hub.skip(hub, former.id, self.skipped_by(target, wanted));
        if (granted.interval_ms, granted.reliable, granted.skip_self, granted.access)
            != (wanted.interval_ms, wanted.reliable, wanted.skip_self, wanted.access)
        {
            let channel = (index, self.channels.at(index));
            let ticks = (self.clock.tick(), self.fanout.change_tick(&self.clock));
            self.edges.change_read(self.connections.at(target), channel, wanted, ticks);
        }
        Ok(former.id)
    }

    pub(super) fn on_unsubscribe(
        &mut self,
        from: Place,
        channel: ChannelIndex,
        message: &Message,
    ) -> Result<(), Refusal> {
        let wanted: UnsubscribedFromChannelMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        // To leave is never refused: it can only make things better. But it counts.
        self.connections.at_mut(from).requests.charge(Cost::each(1, SUBSCRIPTIONS_PER_REQUEST));
        let target = self.party_or_self(from, wanted.conn_id)?;
        if target != Party::Here(from) && !self.is_allowed(self.channels.at(channel).settings.acl.unsub, from, channel)
        {
            return Err(Refusal::NotAllowed);
        }
        let target = match target {
            Party::Here(target) => target,
            Party::Away(away) => return self.unsubscribe_away((from, message.stub_id), away, channel),
        };
        self.unsubscribe_and_tell(from, target, channel, message.stub_id)?;
        if self.channels.at(channel).is_owner(target) {
            self.channels.set_owner(&mut self.connections, channel, None);
        }
        Ok(())
    }

    pub(super) fn unsubscribe_and_tell(
        &mut self,
        from: Place,
        target: Place,
        channel: ChannelIndex,
        stub_id: u32,
    ) -> Result<(), Refusal> {
        if !self.unsubscribe(target, channel) {
            return Err(Refusal::UnknownConnection);
        }
        let header = Header::new(self.channels.at(channel).id, message_type::UNSUB_FROM_CHANNEL);
        let subscriber = (self.connections.at(target).id, self.connections.at(target).side);
        let news = News::ended((channel, self.channels.at(channel)), subscriber);
        let result = self.unsubscribed_result(target, channel);
        self.note_end(target, self.channels.at(channel).id, Ended::Unsubscribed(self.channels.at(channel).kind));
        self.tell_three((Some((from, stub_id)), Party::Here(target), channel), header, &result, news);
        Ok(())
    }

    /// Ends a subscription; whether there was one. Nobody is notified.
    pub(super) fn unsubscribe(&mut self, target: Place, channel: ChannelIndex) -> bool {
        let Some(former) = self.channels.at_mut(channel).subscribers.remove(target) else { return false };
        let hub = self.connections.hub_id(target);
        self.fanout.hub.unsubscribe(hub, former.id);
        self.edges.end_read(self.connections.at(target), (channel, self.channels.at(channel)));
        self.connections.at_mut(target).forget_state_of(channel);
        true
    }

    /// Whether an access rule lets a connection act on others.
    pub(super) fn is_allowed(&self, rule: AccessLevel, from: Place, channel: ChannelIndex) -> bool {
        let is_owner = self.channels.at(channel).is_owner(from);
        match rule {
            AccessLevel::Nobody => false,
            AccessLevel::Owner => is_owner,
            AccessLevel::OwnerOrGlobalOwner => is_owner || self.master() == Some(from),
            AccessLevel::Anybody => true,
        }
    }
}
