//! The objects of a server as bytes, from which another process goes on.
//!
//! ```text
//! snapshot   [54 48 53 4E: "THSN"][version: u32][hash of the schema: u64][tick: u64]
//!            [length: u64][bytes of the game][number: u32][object]...[xxh3 of all before it: u64]
//! object     [length: u32][id: varint, varint][kind: varint][owner: varint][place][all fields in order, as their quantisers say]
//! owner      client id + 1; 0: nobody who is connected
//! place      [0: varint][grid: varint]                         Placement::Cell
//!            [1: varint]                                       Placement::Entity
//!            [2: varint][number: varint]                       Placement::Channel of ChannelKey::Global
//!            [3: varint][number: varint]                       of ChannelKey::Custom
//!            [4: varint][grid: varint][three cell numbers: 32] of ChannelKey::Cell
//!            [5: varint]                                       of an object or a connection, whose numbers end with the process
//! ```
//!
//! Numbers of fixed length are little endian, varints and fields stand bit by bit (`throng_wire::BitWriter`).

mod writer;

use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;
use throng_replica::{ChannelKey, Placement};
use throng_schema::{Replicate, Schema, Space, Values, ValuesMut};
use throng_wire::{BitReader, BitWriter, KindId, ObjectId, Tick};
use xxhash_rust::xxh3::xxh3_64;

pub use writer::{SnapshotCounters, SnapshotWriter};

use crate::message;
use crate::replication::Replication;
use crate::server::Server;

const MAGIC: &[u8; 4] = b"THSN";
const VERSION: u32 = 1;
const CHECKSUM_BYTES: usize = 8;

/// Why bytes are no snapshot that a server can go on from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// They are something else.
    #[error("this is no snapshot of a server")]
    NotASnapshot,
    /// Another version of Throng has written it.
    #[error("the snapshot has version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// The kinds of the game have changed since.
    #[error("the snapshot has a schema with hash {snapshot:016x}, and this program has {program:016x}")]
    Schema {
        /// Of the program that has written it.
        snapshot: u64,
        /// Of this one.
        program: u64,
    },
    /// It was cut off, or changed.
    #[error("the snapshot is damaged: {0}")]
    Damaged(&'static str),
}

impl SnapshotError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            SnapshotError::NotASnapshot => "not_a_snapshot",
            SnapshotError::Version(_) => "version",
            SnapshotError::Schema { .. } => "schema",
            SnapshotError::Damaged(_) => "damaged",
        }
    }
}

/// The objects of a server that has ended, or goes on elsewhere.
///
/// A game begins again with it: it spawns each object, and gives it to its owner when that client is there again. An owner who has not
/// come back by the next snapshot is unknown in it: the game adds those who are still awaited to its own bytes.
///
/// ```
/// # use std::{collections::HashMap, sync::Arc};
/// # use throng::net::{Condition, MemoryNetwork};
/// # use throng::{GridOptions, Placement, Replicate, Schema, Server, ServerOptions, Snapshot, Up, random_key};
/// # #[derive(Default, Replicate)]
/// # struct Player {
/// #     #[replicate(position(step = 0.01))]
/// #     position: [f32; 3],
/// # }
/// # let schema = Arc::new(Schema::builder().kind::<Player>().build()?);
/// # let network = MemoryNetwork::new(Condition::NONE, 1)?;
/// # let start = |port| {
/// #     let options = ServerOptions { grids: vec![GridOptions::new(Up::Z)], ..ServerOptions::new(7, random_key()) };
/// #     let address = format!("10.0.0.1:{port}").parse().expect("an address");
/// #     Server::new(Box::new(network.endpoint(address).expect("it is free")), Arc::clone(&schema), options)
/// # };
/// # let mut server = start(1)?;
/// # server.spawn(Player { position: [1.0, 2.0, 3.0] }, Placement::Cell(0))?;
/// let bytes = server.snapshot(b"it is noon"); // a SnapshotWriter brings them to a file
/// # let mut server = start(2)?;
/// let snapshot = Snapshot::read(bytes, server.schema())?;
/// assert_eq!(snapshot.game(), b"it is noon");
/// let mut owners = HashMap::new(); // on ServerEvent::Connected, set_owner those of its client_id
/// for object in snapshot.objects() {
///     let placement = object.placement.unwrap_or(Placement::Cell(0));
///     if let Some(player) = object.get::<Player>() {
///         let id = server.spawn(player, placement)?;
///         if let Some(client_id) = object.owner {
///             owners.insert(client_id, id);
///         }
///     }
/// }
/// # assert_eq!(server.objects::<Player>().next().ok_or("it is there")?.1.position, [1.0, 2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    schema: Arc<Schema>,
    bytes: Vec<u8>,
    tick: Tick,
    game: Range<usize>,
    objects: Vec<Place>,
}

/// Where an object is in the bytes.
#[derive(Clone)]
struct Place {
    object: Range<usize>,
    kind: KindId,
}

/// An object of a [`Snapshot`].
#[derive(Clone)]
pub struct SavedObject<'a> {
    /// Its id at the server that has written the snapshot. It gets another one where it is spawned again: a game that
    /// keeps ids in fields translates them.
    pub former: ObjectId,
    /// The name of its kind.
    pub kind: &'static str,
    /// The client id of its owner; `None` if it had none, or one that was not connected any more, or one with the highest id of all.
    pub owner: Option<u64>,
    /// Where it was. `None` of one in the channel of another object or of a connection, whose numbers ended with the server.
    pub placement: Option<Placement>,
    schema: &'a Schema,
    kind_id: KindId,
    fields: BitReader<'a>,
}

impl SavedObject<'_> {
    /// Its value, with fields as exact as their quantisers are, and skipped fields as in a default value. `None` if it
    /// is of another type.
    pub fn get<T: Replicate>(&self) -> Option<T> {
        let is_its_type = self.schema.kind_id::<T>()? == self.kind_id;
        is_its_type.then(|| message::read(self.schema.kind(self.kind_id), &mut self.fields.clone())).flatten()
    }

    /// Its kind's number and its quantised values, for [`Server::spawn_quantised`].
    pub fn quantised<A>(&self, take: impl FnOnce(KindId, Values<'_>) -> A) -> Option<A> {
        let kind = self.schema.kind(self.kind_id);
        message::read_values(kind, &mut self.fields.clone(), |values| take(self.kind_id, values))
    }
}

impl Snapshot {
    /// Reads what [`Server::snapshot`] has made, whatever the bytes are.
    ///
    /// # Errors
    /// They are none, or of another schema, or were changed. Nothing of such a snapshot can be used.
    pub fn read(bytes: Vec<u8>, schema: &Arc<Schema>) -> Result<Snapshot, SnapshotError> {
        let (objects, head) = parse(&bytes, schema)?;
        Ok(Snapshot { schema: Arc::clone(schema), bytes, tick: head.tick, game: head.game, objects })
    }

    /// The tick of the server when it was made.
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// The bytes that the game has added.
    pub fn game(&self) -> &[u8] {
        &self.bytes[self.game.clone()]
    }

    /// All objects, by their former ids.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = SavedObject<'_>> {
        self.objects.iter().map(|place| {
            let mut reader = BitReader::new(&self.bytes[place.object.clone()]);
            let head = ObjectHead::read(&mut reader, &self.schema).expect("it was read with the snapshot");
            SavedObject {
                former: head.former,
                kind: self.schema.kind(place.kind).name,
                owner: head.owner,
                placement: head.placement,
                schema: &self.schema,
                kind_id: place.kind,
                fields: reader,
            }
        })
    }
}

impl<R: Replication> Server<R> {
    /// All objects of all types with their owners, and the bytes that the game adds: everything that has to outlive the
    /// process. Connections are no part of it: clients connect again.
    ///
    /// It encodes all objects: 4.5 ms for 10,000 of 50 bytes, measured with the dev profile of this workspace. That is too much for
    /// each tick, and one late tick in half a minute. A [`SnapshotWriter`] writes the bytes to a file without holding up the tick.
    /// [`Snapshot::read`] reads them.
    pub fn snapshot(&self, game: &[u8]) -> Vec<u8> {
        let mut ids: Vec<ObjectId> = self.ids().collect();
        ids.sort_unstable_by_key(|id| id.index);
        let mut bytes = Vec::with_capacity(64 + game.len() + ids.len() * 48);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.schema().hash().to_le_bytes());
        bytes.extend_from_slice(&self.current_tick().0.to_le_bytes());
        bytes.extend_from_slice(&(game.len() as u64).to_le_bytes());
        bytes.extend_from_slice(game);
        let number = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        let (mut written, mut room) = (0u32, Room::new(self.schema()));
        for id in ids {
            let before = bytes.len();
            bytes.extend_from_slice(&[0; 4]);
            if self.save_object(id, &mut room, &mut bytes).is_none() {
                bytes.truncate(before);
                continue;
            }
            let length = (bytes.len() - before - 4) as u32;
            bytes[before..before + 4].copy_from_slice(&length.to_le_bytes());
            written += 1;
        }
        bytes[number..number + 4].copy_from_slice(&written.to_le_bytes());
        let checksum = xxh3_64(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` if there is no such object.
    fn save_object(&self, id: ObjectId, room: &mut Room, bytes: &mut Vec<u8>) -> Option<()> {
        let object = self.replication().object(id)?;
        let head = ObjectHead {
            former: id,
            kind: object.kind,
            owner: object.owner.and_then(|owner| self.client_id(owner)),
            placement: Some(object.placement),
        };
        let mut writer = BitWriter::new(bytes);
        head.write(&mut writer);
        let kind = self.schema().kind(object.kind);
        // The game's own value, if it has one: what clients are told may be off by a threshold.
        let mut own = room.of(object.kind);
        let values = match self.quantise_value(id, own.reborrow()) {
            true => own.as_values(),
            false => object.values,
        };
        kind.encode(kind.all_mask(), values, &Space::WORLD, &mut writer);
        writer.finish();
        Some(())
    }
}

/// Values of each kind, to be written over: making them anew for each object costs a sixth of the time.
struct Room(Vec<(Vec<u32>, Vec<Vec<u8>>)>);

impl Room {
    fn new(schema: &Schema) -> Room {
        Room(schema.kinds().iter().map(|kind| kind.empty_values()).collect())
    }

    fn of(&mut self, kind: KindId) -> ValuesMut<'_> {
        let (words, blobs) = &mut self.0[usize::from(kind.0)];
        ValuesMut { words, blobs }
    }
}

struct Head {
    tick: Tick,
    game: Range<usize>,
}

/// The head of an object, before its fields.
struct ObjectHead {
    former: ObjectId,
    kind: KindId,
    owner: Option<u64>,
    placement: Option<Placement>,
}

impl ObjectHead {
    fn write(&self, w: &mut BitWriter<'_>) {
        w.write_varint(self.former.index.into());
        w.write_varint(self.former.generation.into());
        w.write_varint(self.kind.0.into());
        // A client with the highest id of all is not told from nobody.
        w.write_varint(self.owner.map_or(0, |client_id| client_id.wrapping_add(1)));
        match self.placement {
            Some(Placement::Cell(grid)) => [0, grid.into()].iter().for_each(|&number| w.write_varint(number)),
            Some(Placement::Entity) => w.write_varint(1),
            Some(Placement::Channel(ChannelKey::Global(number))) => {
                [2, number.into()].iter().for_each(|&number| w.write_varint(number));
            }
            Some(Placement::Channel(ChannelKey::Custom(number))) => {
                [3, number.into()].iter().for_each(|&number| w.write_varint(number));
            }
            Some(Placement::Channel(ChannelKey::Cell { grid, cell })) => {
                [4, grid.into()].iter().for_each(|&number| w.write_varint(number));
                cell.iter().for_each(|&number| w.write_word(number as u32, 32));
            }
            Some(Placement::Channel(ChannelKey::Entity { .. } | ChannelKey::Owner(_))) | None => w.write_varint(5),
        }
    }

    /// `None` of what writing never produces.
    fn read(r: &mut BitReader<'_>, schema: &Schema) -> Option<ObjectHead> {
        fn number<T: TryFrom<u64>>(r: &mut BitReader<'_>) -> Option<T> {
            r.read_varint().ok().and_then(|number| T::try_from(number).ok())
        }
        let former = ObjectId { index: number(r)?, generation: number(r)? };
        let kind = KindId(number(r)?);
        schema.get(kind)?;
        let owner = number::<u64>(r)?.checked_sub(1);
        let placement = match number::<u8>(r)? {
            0 => Some(Placement::Cell(number(r)?)),
            1 => Some(Placement::Entity),
            2 => Some(Placement::Channel(ChannelKey::Global(number(r)?))),
            3 => Some(Placement::Channel(ChannelKey::Custom(number(r)?))),
            4 => {
                let grid = number(r)?;
                let mut word = || r.read(32).ok().map(|word| word as u32 as i32);
                Some(Placement::Channel(ChannelKey::Cell { grid, cell: [word()?, word()?, word()?] }))
            }
            5 => None,
            _ => return None,
        };
        Some(ObjectHead { former, kind, owner, placement })
    }
}

/// Reads everything once, so that nothing can be wrong later.
fn parse(bytes: &[u8], schema: &Schema) -> Result<(Vec<Place>, Head), SnapshotError> {
    if !bytes.starts_with(MAGIC) {
        return Err(SnapshotError::NotASnapshot);
    }
    let cut = SnapshotError::Damaged("it is cut off");
    let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_le_bytes(*word));
    let long = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|long| u64::from_le_bytes(*long));
    match word(4).ok_or_else(|| cut.clone())? {
        VERSION => {}
        version => return Err(SnapshotError::Version(version)),
    }
    let end = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or_else(|| cut.clone())?;
    if long(end) != Some(xxh3_64(&bytes[..end])) {
        return Err(SnapshotError::Damaged("its checksum is another one: it is cut off, or was changed"));
    }
    let (snapshot, program) = (long(8).ok_or_else(|| cut.clone())?, schema.hash());
    if snapshot != program {
        return Err(SnapshotError::Schema { snapshot, program });
    }
    let tick = Tick(long(16).ok_or_else(|| cut.clone())?);
    let part = |from: usize| {
        let begin = from.checked_add(4)?;
        let part = begin..begin.checked_add(word(from)? as usize)?;
        (part.end <= end).then_some(part)
    };
    let game = long(24).and_then(|length| {
        let game = 32..32_usize.checked_add(usize::try_from(length).ok()?)?;
        (game.end <= end).then_some(game)
    });
    let game = game.ok_or_else(|| cut.clone())?;
    let count = word(game.end).ok_or_else(|| cut.clone())?;
    let (mut objects, mut room) = (Vec::new(), Room::new(schema));
    let mut at = game.end + 4;
    for _ in 0..count {
        let object = part(at).ok_or_else(|| cut.clone())?;
        at = object.end;
        let mut reader = BitReader::new(&bytes[object.clone()]);
        let head = ObjectHead::read(&mut reader, schema).ok_or(SnapshotError::Damaged("an object makes no sense"))?;
        let kind = schema.kind(head.kind);
        kind.decode(kind.all_mask(), room.of(head.kind), &Space::WORLD, &mut reader)
            .map_err(|_| SnapshotError::Damaged("the fields of an object make no sense"))?;
        if reader.remaining_bits() >= 8 {
            return Err(SnapshotError::Damaged("something follows the fields of an object"));
        }
        objects.push(Place { object, kind: head.kind });
    }
    if at != end {
        return Err(SnapshotError::Damaged("something follows the last object"));
    }
    Ok((objects, Head { tick, game }))
}
