//! Substitutes for a missing connection or channel.
//!
//! A missing one would be a bug of the gateway. It must not end the process and with it the world: calls on a
//! substitute have no effect, and each is counted as `not_there`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use throng_channeld::proto::ChannelType;

use super::channel::{Channel, Subscribers};
use super::connection::Connection;
use super::port::{Key, Outbox, Side};
use crate::fsm::Fsm;
use crate::settings::EngineSettings;

/// Takes everything and keeps nothing.
struct Nowhere;

impl Outbox for Nowhere {
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, entries: &mut Vec<u8>) {
        entries.clear();
    }

    fn close(&self) {}
}

/// A connection that does not exist.
pub(super) fn connection(settings: &EngineSettings) -> Box<Connection> {
    let key = Key { index: u32::MAX, generation: 0 };
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let fsm = Fsm::new(Arc::clone(&settings.client_machine));
    let numbers = (0, super::writers::NOBODY);
    let mut nobody = Connection::new(key, numbers, Side::Client, address, Box::new(Nowhere), fsm);
    (nobody.is_closing, nobody.is_ending) = (true, true);
    Box::new(nobody)
}

/// A channel that does not exist.
pub(super) fn channel(settings: &EngineSettings) -> Box<Channel> {
    Box::new(Channel {
        id: u32::MAX,
        birth: 0,
        kind: ChannelType::Unknown,
        metadata: String::new(),
        settings: Arc::clone(settings.channel_types.of(0)),
        owner: None,
        subscribers: Subscribers::default(),
        merge: Default::default(),
        creator: None,
        is_awaited: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Engine;
    use super::super::place::Place;
    use super::*;
    use throng_protostate::Schemas;
    use throng_wire::Time;

    #[test]
    fn a_missing_connection_is_counted_and_ends_nothing() {
        let mut engine =
            Engine::new(Arc::new(EngineSettings::default()), Arc::new(Schemas::default()), 1, (Time(0), 0));
        let nowhere = Place::of(Key { index: 4_711, generation: 0 });
        assert!(!engine.connections.at(nowhere).is_member());
        engine.connections.at_mut(nowhere).failed_logins += 1;
        engine.advance(Time(1));
        assert_eq!(engine.counters().refused.get("not_there"), Some(&2));
        assert_eq!(engine.counters().refused_by_type.get(&(ChannelType::Unknown.into(), "not_there")), Some(&2));
    }
}
