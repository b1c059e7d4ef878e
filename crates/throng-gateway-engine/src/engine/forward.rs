//! User messages: from a client to a channel's owner, from a server to the connections that it names.
//!
//! ```text
//! sender   broadcast              goes to
//! client   (ignored)              the channel's owner, wrapped with the sender's connection id
//! server   0                      the channel's owner
//! server   SINGLE_CONNECTION      the connection that the message names, 0: the channel's owner
//! server   other flags up to 63   the channel's subscribers, without those that the flags leave out
//! server   ADJACENT_CHANNELS      the subscribers of the cell and its neighbours, each once, without those and without
//!                                 the connection that the message names
//! ```

use rustc_hash::FxHashSet;
use throng_channeld::proto::ServerForwardMessage;
use throng_channeld::{Broadcast, Header, Message, put_body, put_message};
use throng_replica::ChannelIndex;

use super::Engine;
use super::edges::AtEdges;
use super::place::Place;
use super::port::Side;
use super::refusal::Refusal;

impl Engine {
    pub(super) fn on_user_message(
        &mut self,
        from: Place,
        channel: ChannelIndex,
        message: &Message,
    ) -> Result<(), Refusal> {
        match self.connections.at(from).side {
            Side::Client => self.forward_to_owner(from, channel, message),
            Side::Server => {
                let forwarded = match self.intercept(channel, message)? {
                    Some((channel, message)) => self.forward_from_server(from, channel, &message),
                    None => self.forward_from_server(from, channel, message),
                };
                self.after_forward(message);
                forwarded
            }
        }
    }

    /// A client cannot choose who gets its message: it goes to the owner, and says whose it is.
    fn forward_to_owner(&mut self, from: Place, channel: ChannelIndex, message: &Message) -> Result<(), Refusal> {
        let owner = self.channels.at(channel).owner.ok_or(Refusal::NoOwner)?;
        let client_conn_id = self.connections.at(from).id;
        // If a server does not read in time, its clients' messages are dropped; the server is never closed for it.
        self.check_room_for_clients(owner)?;
        let wrapped = ServerForwardMessage { client_conn_id, payload: message.body.clone() };
        self.send_from(from, owner, message.header(), &wrapped);
        Ok(())
    }

    fn forward_from_server(&mut self, from: Place, channel: ChannelIndex, message: &Message) -> Result<(), Refusal> {
        let flags = Broadcast(message.broadcast);
        if flags == Broadcast::NONE {
            let owner = self.channels.at(channel).owner.ok_or(Refusal::NoOwner)?;
            self.forward(owner, message.header(), &message.body);
            return Ok(());
        }
        let named = named_connection(&message.body)?;
        if flags == Broadcast::SINGLE_CONNECTION {
            let to = match named {
                0 => self.channels.at(channel).owner.ok_or(Refusal::NoOwner)?,
                id => self.connections.find_member(id).ok_or(Refusal::UnknownConnection)?,
            };
            self.forward(to, message.header(), &message.body);
            return Ok(());
        }
        self.broadcast(from, channel, message, named)
    }

    fn broadcast(&mut self, from: Place, channel: ChannelIndex, message: &Message, named: u32) -> Result<(), Refusal> {
        let flags = Broadcast(message.broadcast);
        let owner = self.channels.at(channel).owner;
        let mut readers: FxHashSet<Place> = FxHashSet::default();
        let mut excluded = None;
        if flags.contains(Broadcast::ADJACENT_CHANNELS) {
            excluded = self.connections.find(named);
            for cell in self.cells_around(channel)? {
                if cell != channel || !flags.contains(Broadcast::ALL_BUT_OWNER) {
                    readers.extend(self.channels.at(cell).subscribers.places());
                }
            }
        } else {
            readers.extend(self.channels.at(channel).subscribers.places());
            if flags.contains(Broadcast::ALL_BUT_OWNER) {
                excluded = owner;
            }
        }
        // Encoded once, copied to each. None of them has asked, so there is no stub.
        let mut entry = std::mem::take(&mut self.scratch);
        entry.clear();
        put_message(&mut entry, Header { stub_id: 0, ..message.header() }, &message.body);
        let mut at_edges = AtEdges::default();
        for reader in readers {
            if Some(reader) != excluded
                && self.is_addressed(reader, from, flags)
                && !self.note_at_edge(reader, &mut at_edges)
            {
                self.forward_entry(reader, &entry);
            }
        }
        self.edges.send_to_many(at_edges, &entry);
        self.scratch = entry;
        Ok(())
    }

    fn is_addressed(&self, reader: Place, from: Place, flags: Broadcast) -> bool {
        let side = self.connections.at(reader).side;
        !(reader == from && flags.contains(Broadcast::ALL_BUT_SENDER)
            || side == Side::Client && flags.contains(Broadcast::ALL_BUT_CLIENT)
            || side == Side::Server && flags.contains(Broadcast::ALL_BUT_SERVER))
    }

    /// Queues one entry that is encoded already.
    pub(super) fn send_entry(&mut self, to: Place, entry: &[u8]) {
        self.connections.put_dirty(to);
        self.forward_entry(to, entry);
    }

    /// The same for a connection's message. It may [wait](super::hold) for state that goes out soon.
    fn forward_entry(&mut self, to: Place, entry: &[u8]) {
        if let Some(connection) = self.connections.get_mut(to) {
            connection.send_entries(entry);
            self.counters.side(connection.side).messages_out += 1;
            self.has_forwarded(to);
        }
    }

    /// Sends the same message to several connections; it is encoded once.
    pub(super) fn send_to_all(
        &mut self,
        to: impl IntoIterator<Item = Place>,
        header: Header,
        body: &impl prost::Message,
    ) {
        let mut entry = std::mem::take(&mut self.scratch);
        entry.clear();
        put_body(&mut entry, header, body);
        for to in to {
            self.send_entry(to, &entry);
        }
        self.scratch = entry;
    }
}

/// The `clientConnId` of a forwarded message, whose payload is left alone.
fn named_connection(body: &bytes::Bytes) -> Result<u32, Refusal> {
    use prost::Message as _;
    let message = ServerForwardMessage::decode(body.clone()).map_err(|_| Refusal::Malformed)?;
    Ok(message.client_conn_id)
}
