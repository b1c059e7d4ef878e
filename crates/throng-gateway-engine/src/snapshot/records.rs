//! The records of a snapshot, as protobuf messages of our own.

use prost::Message;
use throng_channeld::proto::ChannelDataMergeOptions;

/// The kinds of records, by their number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    End = 0,
    Head = 1,
    Channel = 2,
    Gone = 3,
    Session = 4,
    Group = 5,
    Lock = 6,
    Unborn = 7,
    World = 8,
}

impl Kind {
    pub(crate) fn from_number(number: u8) -> Option<Kind> {
        use Kind::*;
        [End, Head, Channel, Gone, Session, Group, Lock, Unborn, World].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// The beginning of what one engine has to say, and its end.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Head {
    /// The engine's tick, in ms.
    #[prost(uint64, tag = "1")]
    pub(crate) tick: u64,
    /// The calendar's time of the snapshot, in ns since 1970.
    #[prost(int64, tag = "2")]
    pub(crate) unix_ns: i64,
    /// Numbers of writers up to here were given out.
    #[prost(uint32, tag = "3")]
    pub(crate) writers: u32,
    /// The next connection id, if they are counted.
    #[prost(uint32, tag = "6")]
    pub(crate) next_connection_id: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) spatial_channel_start: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) entity_channel_start: u32,
    /// Sessions of clients that are away have what has become well known meanwhile. Earlier gateways left it out.
    #[prost(bool, tag = "7")]
    pub(crate) has_news: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Channel {
    #[prost(uint32, tag = "1")]
    pub(crate) id: u32,
    #[prost(int32, tag = "2")]
    pub(crate) kind: i32,
    #[prost(string, tag = "3")]
    pub(crate) metadata: String,
    /// The connection id of its owner, present or lost; 0: none.
    #[prost(uint32, tag = "4")]
    pub(crate) owner: u32,
    #[prost(message, tag = "5")]
    pub(crate) merge: Option<Merging>,
    /// 0: nobody; 1: a server; 2: a client.
    #[prost(uint32, tag = "6")]
    pub(crate) created_by: u32,
    /// As the state saves itself; `None` if nothing was ever written.
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) state: Option<Vec<u8>>,
    #[prost(message, tag = "8")]
    pub(crate) entity: Option<EntityData>,
}

/// `ChannelDataMergeOptions`, in numbers of our own.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Merging {
    #[prost(bool, tag = "1")]
    replace_list: bool,
    #[prost(uint32, tag = "2")]
    list_size_limit: u32,
    #[prost(bool, tag = "3")]
    truncate_top: bool,
    #[prost(bool, tag = "4")]
    check_removable: bool,
}

impl Merging {
    pub(crate) fn of(options: &ChannelDataMergeOptions) -> Merging {
        Merging {
            replace_list: options.should_replace_list,
            list_size_limit: options.list_size_limit,
            truncate_top: options.truncate_top,
            check_removable: options.should_check_removable_map_field,
        }
    }

    pub(crate) fn to_wire(self) -> ChannelDataMergeOptions {
        ChannelDataMergeOptions {
            should_replace_list: self.replace_list,
            list_size_limit: self.list_size_limit,
            truncate_top: self.truncate_top,
            should_check_removable_map_field: self.check_removable,
        }
    }
}

/// Facts of an entity that its channel does not have.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EntityData {
    /// The cell that lists it.
    #[prost(uint32, optional, tag = "1")]
    pub(crate) cell: Option<u32>,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) object: bytes::Bytes,
    #[prost(bool, tag = "3")]
    pub(crate) is_well_known: bool,
}

/// An id of something: a channel that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Mark {
    #[prost(uint32, tag = "1")]
    pub(crate) id: u32,
}

/// A connection that may come back.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Session {
    #[prost(bool, tag = "1")]
    pub(crate) is_server: bool,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(uint32, tag = "3")]
    pub(crate) connection_id: u32,
    /// Which server of the world it is.
    #[prost(uint32, optional, tag = "4")]
    pub(crate) slot: Option<u32>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) subscriptions: Vec<Subscription>,
    /// Subscriptions that a client may believe to have.
    #[prost(message, repeated, tag = "6")]
    pub(crate) ended: Vec<EndedSubscription>,
    /// The channels that it has created.
    #[prost(uint32, repeated, tag = "7")]
    pub(crate) created: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EndedSubscription {
    #[prost(uint32, tag = "1")]
    pub(crate) channel: u32,
    /// The type of the channel, as in the protocol. `None`: the channel was removed.
    #[prost(int32, optional, tag = "2")]
    pub(crate) kind: Option<i32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Subscription {
    #[prost(uint32, tag = "1")]
    pub(crate) channel: u32,
    /// The tick of its beginning.
    #[prost(uint64, tag = "2")]
    pub(crate) since: u64,
    #[prost(uint32, tag = "3")]
    pub(crate) interval_ms: u32,
    #[prost(sint32, tag = "4")]
    pub(crate) delay_ms: i32,
    /// As in `ChannelDataAccess`.
    #[prost(int32, tag = "5")]
    pub(crate) access: i32,
    #[prost(bool, tag = "6")]
    pub(crate) skip_self: bool,
    #[prost(bool, tag = "7")]
    pub(crate) skip_first: bool,
    #[prost(bool, tag = "8")]
    pub(crate) reliable: bool,
    #[prost(string, repeated, tag = "9")]
    pub(crate) masks: Vec<String>,
    /// The client has not been told of it.
    #[prost(bool, tag = "10")]
    pub(crate) is_news: bool,
}

/// Entities that move together.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Group {
    #[prost(uint32, repeated, tag = "1")]
    pub(crate) members: Vec<u32>,
}

/// An entity that must stay, and through whose channel that was said.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Lock {
    #[prost(uint32, tag = "1")]
    pub(crate) entity: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) by: u32,
}

/// An object that was spawned and has no channel yet.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Unborn {
    #[prost(uint32, tag = "1")]
    pub(crate) id: u32,
    #[prost(message, tag = "2")]
    pub(crate) entity: Option<EntityData>,
}

/// How the world is cut, and whether its servers were told that all are there.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct World {
    #[prost(uint64, tag = "1")]
    pub(crate) cut: u64,
    #[prost(bool, tag = "2")]
    pub(crate) is_ready: bool,
}

/// A few records of an engine.
#[derive(Debug, Default)]
pub struct Part {
    bytes: Vec<u8>,
    /// The kind and the end of each record.
    ends: Vec<(u8, usize)>,
    pub(crate) is_last: bool,
}

impl Part {
    pub(crate) fn put(&mut self, kind: Kind, message: &impl Message) {
        // Writing to memory does not fail.
        let _ = message.encode(&mut self.bytes);
        self.ends.push((kind as u8, self.bytes.len()));
    }

    /// Bytes of all records.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Number of records.
    pub fn record_count(&self) -> usize {
        self.ends.len()
    }

    /// Whether the engine has nothing more to say.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |&(kind, end)| (kind, &self.bytes[std::mem::replace(&mut begin, end)..end]))
    }
}

/// A record that was read.
#[derive(Debug)]
pub struct Record {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) content: Vec<u8>,
}

impl Record {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The content, as the message that belongs to its kind.
    pub(crate) fn decode<M: Message + Default>(&self) -> Result<M, super::SnapshotError> {
        let damaged = |_| super::SnapshotError::Damaged { record: self.number, what: "its content cannot be read" };
        M::decode(&self.content[..]).map_err(damaged)
    }
}
