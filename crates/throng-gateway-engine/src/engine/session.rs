//! Login and end of connections.

use std::time::Duration;

use throng_channeld::proto::auth_result_message::AuthResult;
use throng_channeld::proto::{AuthMessage, AuthResultMessage, DisconnectMessage};
use throng_channeld::{GLOBAL_CHANNEL, Header, Message, message_type};
use throng_replica::ChannelIndex;
use throng_wire::Time;

use super::Engine;
use super::blocked::Who;
use super::connection::Stage;
use super::place::Place;
use super::port::{AuthRequest, AuthVerdict, EndCause, Key, Side};
use super::refusal::Refusal;

impl Engine {
    pub(super) fn on_auth(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        if self.connections.at(from).stage != Stage::Stranger {
            return Err(Refusal::StateMachine);
        }
        let auth: AuthMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        self.connections.at_mut(from).wants_refusals = auth.wants_refusals;
        let token_bytes = auth.player_identifier_token.len().max(auth.login_token.len());
        if token_bytes > self.settings.limits.max_token_bytes as usize {
            return Err(Refusal::Limit("token_bytes"));
        }
        let who =
            Who::new(self.connections.at(from).side, &auth.player_identifier_token, self.connections.at(from).address);
        if self.logins.blocked.contains(&who, self.clock.now()) {
            self.connections.notice(from, auth.player_identifier_token, "blocked");
            return Err(Refusal::Limit("blocked"));
        }
        // There is never more than one question for each connection.
        let connection = self.connections.at_mut(from);
        let patience = self.logins.stop_patience(connection, self.clock.now());
        connection.stage = Stage::Asked { stub_id: message.stub_id, patience };
        connection.identifier.clone_from(&auth.player_identifier_token);
        let (key, side) = (connection.key, connection.side);
        if side == Side::Server && self.settings.server_bypass_auth {
            self.decide(key, AuthVerdict::Accepted, false);
            return Ok(());
        }
        self.logins.ask(AuthRequest {
            key,
            side,
            player_identifier_token: auth.player_identifier_token,
            login_token: auth.login_token,
        });
        Ok(())
    }

    /// The authentication provider has answered. An answer for a connection that has gone meanwhile does no harm.
    pub fn authenticated(&mut self, now: Time, key: Key, verdict: AuthVerdict) {
        self.clock.set(now);
        self.decide(key, verdict, self.settings.proves_names);
    }

    /// `is_proven`: the provider has seen something that only the bearer of the name knows.
    fn decide(&mut self, key: Key, verdict: AuthVerdict, is_proven: bool) {
        let Some(index) = self.connections.place(key) else { return };
        let Stage::Asked { stub_id, patience } = self.connections.at(index).stage else { return };
        let result = match verdict {
            AuthVerdict::Accepted => AuthResult::Successful,
            AuthVerdict::InvalidIdentifier => AuthResult::InvalidPit,
            // The protocol has no word for *not now*.
            AuthVerdict::InvalidLogin | AuthVerdict::Unavailable => AuthResult::InvalidLt,
        };
        if result == AuthResult::Successful {
            self.supersede(index, is_proven);
        }
        let recovers = result == AuthResult::Successful && self.admit(index);
        if result == AuthResult::Successful {
            self.edges.tell_admitted(self.connections.at(index));
        } else {
            self.turn_away(index, verdict, patience);
        }
        let answer = AuthResultMessage {
            result: result.into(),
            conn_id: self.connections.at(index).id,
            compression_type: i32::from(self.settings.advises_snappy),
            // A client that reads true would wait for RECOVERY_END, which only servers get; false makes the client
            // start again.
            should_recover: recovers && self.connections.at(index).is_server(),
        };
        let header = Header::new(GLOBAL_CHANNEL, message_type::AUTH);
        self.send(index, header.with_stub(stub_id), &answer);
        if result == AuthResult::Successful {
            if let Some(master) = self.master().filter(|&master| master != index) {
                self.send(master, header, &answer);
            }
            self.welcome(index, recovers);
        }
    }

    /// Logs a connection in; whether it comes back after a loss.
    fn admit(&mut self, index: Place) -> bool {
        let connection = self.connections.at_mut(index);
        connection.admit();
        let side = connection.side;
        self.counters.side(side).admitted += 1;
        self.logins.admit(self.connections.at(index));
        let takes_over = self.take_over(index);
        self.share.announce(self.connections.at(index));
        takes_over
    }

    /// A login under the name of a live connection replaces that connection, which is closed. Usually it is the same
    /// peer: its network has changed or its machine was restarted, and the end of the old connection was not noticed.
    ///
    /// A client has to have proven its name. A server's name counts if it is what lost servers are found by (`-scr`):
    /// without that, servers may share one.
    fn supersede(&mut self, index: Place, is_proven: bool) {
        let connection = self.connections.at(index);
        let is_identity = match connection.side {
            Side::Server => self.settings.server_recovery,
            Side::Client => is_proven,
        };
        if !is_identity || connection.identifier.is_empty() {
            return;
        }
        let name = (connection.side, connection.identifier.clone());
        let former =
            self.logins.bearer(&name).and_then(|key| self.connections.place(key)).filter(|&former| former != index);
        if let Some(former) = former {
            self.connections.notice(former, name.1, "superseded");
            self.counters.superseded += 1;
            // Its belongings are kept for a return, as for a lost connection.
            self.end(former, EndCause::Lost);
        }
    }

    fn turn_away(&mut self, index: Place, verdict: AuthVerdict, patience: Option<Duration>) {
        let connection = self.connections.at_mut(index);
        connection.stage = Stage::Stranger;
        connection.identifier.clear();
        if verdict == AuthVerdict::Unavailable {
            // It may try again for as long as if it had just come.
            let patience = self.settings.login_patience();
            self.logins.begin_patience(self.connections.at_mut(index), self.clock.now(), patience);
            self.counters.refuse(Refusal::Limit("login_undecided"));
            return;
        }
        self.logins.begin_patience(self.connections.at_mut(index), self.clock.now(), patience);
        self.counters.refuse(Refusal::Limit("login_failed"));
        self.note_failed_login(index);
    }

    pub(super) fn note_failed_login(&mut self, index: Place) {
        let limit = self.settings.limits.max_failed_auth;
        let connection = self.connections.at_mut(index);
        connection.failed_logins += 1;
        let (key, failed) = (connection.key, connection.failed_logins);
        if limit > 0 && failed >= limit {
            self.connections.dismiss(key);
        }
    }

    /// A login that is not even looked at is one that has failed.
    pub(super) fn answer_refused_login(&mut self, from: Place, stub_id: u32) {
        let answer = AuthResultMessage {
            result: AuthResult::InvalidPit.into(),
            conn_id: self.connections.at(from).id,
            ..AuthResultMessage::default()
        };
        self.send(from, Header::new(GLOBAL_CHANNEL, message_type::AUTH).with_stub(stub_id), &answer);
        self.note_failed_login(from);
    }

    pub(super) fn on_disconnect(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        let wanted: DisconnectMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let target = match wanted.conn_id {
            0 => from,
            id => match self.connections.find(id) {
                Some(target) => target,
                None => return self.dismiss_lost(from, id),
            },
        };
        if target != from && !self.connections.at(from).is_server() {
            return Err(Refusal::NotAllowed);
        }
        let key = self.connections.at(target).key;
        self.connections.dismiss(key);
        Ok(())
    }

    /// A connection that may come back does so as a new one.
    fn dismiss_lost(&mut self, from: Place, id: u32) -> Result<(), Refusal> {
        if !self.lost.has_connection_id(id) {
            return Err(Refusal::UnknownConnection);
        }
        if !self.connections.at(from).is_server() {
            return Err(Refusal::NotAllowed);
        }
        if let Some(((side, _), lost)) = self.lost.take_connection(id) {
            self.tell_owners_of_loss(side, &lost);
            self.give_up(lost);
        }
        Ok(())
    }

    /// Removes a connection, after everybody concerned has been notified.
    pub(super) fn end(&mut self, index: Place, cause: EndCause) {
        self.tell_home_of_end(index, cause);
        let (keeps_its_place, former) = self.remember_for_recovery(index, cause);
        self.leave_channels(index, !keeps_its_place);
        self.lose_owner(index, keeps_its_place);
        if !keeps_its_place && let Some(world) = &mut self.world {
            let id = self.connections.get(index).map_or(0, |connection| connection.id);
            world.slots.free(id);
        }
        let hub = self.connections.hub_id(index);
        self.fanout.hub.disconnect(hub);
        let Some(mut connection) = self.connections.take(index) else { return };
        self.logins.forget(&mut connection);
        let bytes = connection.close();
        self.counters.side(connection.side).bytes_out += bytes as u64;
        self.counters.side(connection.side).closed += 1;
        if let Some(former) = former {
            self.give_up(former);
        }
        self.forget_the_least();
    }

    /// Ends all subscriptions of a connection; the owners may have to be notified.
    fn leave_channels(&mut self, index: Place, tells: bool) {
        let hub = self.connections.hub_id(index);
        let channels: Vec<ChannelIndex> = self.fanout.hub.channels_of(hub).collect();
        let subscriber = (self.connections.at(index).id, self.connections.at(index).side);
        for channel in channels {
            self.unsubscribe(index, channel);
            if tells && self.channels.at(channel).owner != Some(index) {
                self.tell_owner_of_end(channel, subscriber);
            }
        }
    }

    /// Decides about the channels of an owner that has gone. None has an owner any more before the first is given up:
    /// so none is given back to who goes.
    fn lose_owner(&mut self, index: Place, may_return: bool) {
        let owned = std::mem::take(&mut self.connections.at_mut(index).owned);
        let mut owned: Vec<ChannelIndex> = owned.into_iter().collect();
        owned.sort_unstable_by_key(|channel| channel.number());
        owned.retain(|channel| {
            let state = self.channels.get_mut(*channel).filter(|state| state.owner == Some(index));
            state.map(|state| state.owner = None).is_some()
        });
        for channel in owned {
            match may_return {
                true => self.await_owner(channel),
                // An entity that a removed one held back may have gone to another server.
                false if self.channels.at(channel).owner.is_some() => {}
                false => self.give_up_channel(channel),
            }
        }
    }
}
