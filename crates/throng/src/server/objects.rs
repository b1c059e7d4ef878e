//! The objects of a server, with their types and owners.

use throng_replica::LimitReached;
use throng_schema::{Replicate, ValuesMut};
use throng_wire::{ConnectionId, ObjectId};

use super::Server;
use crate::replication::Replication;

impl<R: Replication> Server<R> {
    /// All objects of a type, with their values, in no particular order.
    ///
    /// ```
    /// # use throng::{Placement, Replicate, Server};
    /// # #[derive(Default, Replicate)]
    /// # struct Door {
    /// #     #[replicate(bool)]
    /// #     is_open: bool,
    /// # }
    /// fn open_doors(server: &Server) -> usize {
    ///     server.objects::<Door>().filter(|(_, door)| door.is_open).count()
    /// }
    ///
    /// fn close_all_doors(server: &mut Server) {
    ///     for (_, door) in server.objects_mut::<Door>() {
    ///         door.is_open = false;
    ///     }
    /// }
    /// ```
    pub fn objects<T: Replicate>(&self) -> impl Iterator<Item = (ObjectId, &T)> {
        self.values.all()
    }

    /// All objects of a type, to be changed. Marks each object that the iterator returns as touched. Only fields that
    /// differ after quantisation are sent. If few of many objects change, [`get_mut`](Self::get_mut) of those few costs
    /// less.
    pub fn objects_mut<T: Replicate>(&mut self) -> impl Iterator<Item = (ObjectId, &mut T)> {
        self.values.touch_all()
    }

    /// All objects of all types.
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.replication.objects()
    }

    /// The name of an object's kind: compare it with [`Replicate::KIND`] of a type. `None` if the object is gone.
    pub fn kind(&self, id: ObjectId) -> Option<&'static str> {
        self.replication.object(id).map(|object| self.schema.kind(object.kind).name)
    }

    /// The owner of an object; `None` also if the object is gone. An object keeps its owner when that has disconnected.
    pub fn owner(&self, id: ObjectId) -> Option<ConnectionId> {
        self.replication.object(id).and_then(|object| object.owner)
    }

    /// Writes the game's value of an object, quantised. False if it has none: see [`spawn_quantised`](Self::spawn_quantised).
    pub(crate) fn quantise_value(&self, id: ObjectId, to: ValuesMut<'_>) -> bool {
        self.values.quantise(id, to)
    }

    /// The objects that belong to a connection, in no particular order, also after it has ended (that takes a look at all
    /// objects): what a game despawns, or keeps for the player's return.
    pub fn owned(&self, connection: ConnectionId) -> impl Iterator<Item = ObjectId> + '_ {
        self.replication.owned(connection)
    }

    /// The objects of one type that belong to a connection, with their values.
    pub fn owned_objects<T: Replicate>(&self, connection: ConnectionId) -> impl Iterator<Item = (ObjectId, &T)> {
        self.owned(connection).filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Gives an object to another connection, or to none.
    ///
    /// # Errors
    /// There is no room for another channel.
    pub fn set_owner(&mut self, id: ObjectId, owner: Option<ConnectionId>) -> Result<(), LimitReached> {
        self.replication.set_owner(id, owner)
    }
}
