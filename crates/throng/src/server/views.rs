//! The view of a client: its viewpoints and shapes, and its subscriptions to channels.

use throng_interest::{InterestError, Shape};
use throng_replica::{ChannelKey, LimitReached};
use throng_wire::ConnectionId;

use super::Server;
use crate::replication::Replication;

impl<R: Replication> Server<R> {
    /// Sets the viewpoint of the client, in metres: it decides which cells of the grids the client receives, and how
    /// often. Replaces all earlier viewpoints.
    pub fn set_viewpoint(&mut self, connection: ConnectionId, position: [f64; 3]) {
        self.replication.set_viewpoint(connection, position);
    }

    /// The same for a client that looks from several positions at once, as with a split screen, a camera beside the
    /// player, or the minimap of a scout: it sees the surroundings of each, at the rate of the nearest one. Without a
    /// viewpoint it sees only the cells of its [shapes](Self::set_shapes).
    ///
    /// Each viewpoint takes as many of the client's subscriptions as a single one would
    /// ([`HubLimits::subscriptions_per_connection`](crate::replica::HubLimits)), less what they share. Cells beyond the
    /// limit are left out, the farthest first, and [`limits_reached`](Self::limits_reached) counts them as `views_refused`.
    ///
    /// # Errors
    /// There are more than 8; nothing has changed then.
    pub fn set_viewpoints(&mut self, connection: ConnectionId, positions: &[[f64; 3]]) -> Result<(), InterestError> {
        self.replication.set_viewpoints(connection, positions)
    }

    /// Sets shapes that the client sees in addition to the surroundings of its viewpoints: the cone of a scope, the box
    /// of a room, the sphere around a watched object. Replaces all earlier shapes. Shapes do not move with a viewpoint.
    ///
    /// A cell that a shape touches is sent as often as its distance from the centre or the tip of the shape says, and
    /// as often as the last ring if it is beyond all rings. Shapes are computed again in each tick in which this or a
    /// viewpoint of the client is set, at a cost for each cell that they touch.
    ///
    /// # Errors
    /// There are more than 8, one of them has a size that is no size, or spans more than 65,536 cells of a grid; nothing has
    /// changed then.
    ///
    /// ```
    /// # use throng::{ConnectionId, InterestError, Server, Shape};
    /// /// A sniper sees what is around it, and far through its scope.
    /// fn aim(server: &mut Server, sniper: ConnectionId, eye: [f64; 3], axis: [f64; 3]) -> Result<(), InterestError> {
    ///     server.set_viewpoint(sniper, eye);
    ///     let scope = Shape::Cone { apex: eye, axis, half_angle_rad: 0.1, range_m: 300.0 };
    ///     server.set_shapes(sniper, &[scope])
    /// }
    /// ```
    pub fn set_shapes(&mut self, connection: ConnectionId, shapes: &[Shape]) -> Result<(), InterestError> {
        self.replication.set_shapes(connection, shapes)
    }

    /// Sends the client the state of a channel, every `interval_ticks` ticks (1 to 65,535), from now on. The
    /// subscription to the channel of a single object ends some time after the object. A subscription to what is hidden from
    /// an object's owner ends when the client becomes the owner.
    ///
    /// # Errors
    /// The interval is 0, the channel belongs to another owner, has what is hidden from this owner, or names a grid or an
    /// object that does not exist, or a limit is reached.
    pub fn subscribe(
        &mut self,
        connection: ConnectionId,
        channel: ChannelKey,
        interval_ticks: u16,
    ) -> Result<(), LimitReached> {
        self.replication.subscribe(connection, channel, interval_ticks)
    }

    /// Ends what [`Server::subscribe`] began.
    pub fn unsubscribe(&mut self, connection: ConnectionId, channel: ChannelKey) {
        self.replication.unsubscribe(connection, channel);
    }
}
