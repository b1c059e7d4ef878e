//! The steps of a move of entities from one cell to another, in order.
//!
//! ```text
//!   source cell, owner A                 destination cell, owner B
//!   subscribers A, p, q                  subscribers B, q, r
//!
//!   1  unsubscribe A from e (unless A sees the destination); B owns e
//!   2  e is taken off the source's list and put on the destination's
//!   3  tell p, A:  e went over there (its id)
//!   4  q, r, B:    subscribe to e, B may write; then notify them: e came, with all its data for those without it
//! ```
//!
//! The steps are those of channeld, where a connection's subscription results come before the notice, too. Differences:
//! entities of a group that are listed in other cells than the moving one are taken off *those* lists and announced
//! there; and nothing goes to a cell whose owner is absent, because nobody would own it. Such an entity stays listed
//! where it was. Callers compare the cell of an entity's position with the cell that *lists* it, not with that of its
//! last position: then the next update after the owner has come repeats a missed move.
//!
//! A plan is made from one look at the world and has to be carried out before the next one is made.

use std::ops::Range;

use thiserror::Error;

/// The world's interface for a handover.
pub trait HandoverView {
    /// The keys of connections.
    type Connection: Copy + Ord;

    /// The present owner of a cell; `None` while its owner is lost and may come back.
    fn cell_owner(&self, cell: u32) -> Option<Self::Connection>;

    /// Appends all subscribers of a cell, in any order.
    fn cell_subscribers(&self, cell: u32, subscribers: &mut Vec<Self::Connection>);

    /// Whether a connection is one of them.
    fn sees_cell(&self, connection: Self::Connection, cell: u32) -> bool;

    /// Whether a subscriber gets notices: one that is away does not.
    fn hears(&self, _connection: Self::Connection) -> bool {
        true
    }

    /// Which cell lists an entity. The outer `None`: there is no such entity. The inner: it is on no list.
    fn cell_listing(&self, entity: u32) -> Option<Option<u32>>;

    /// The present owner of an entity.
    fn entity_owner(&self, entity: u32) -> Option<Self::Connection>;

    /// A connection's access to an entity; `None` if it is not subscribed to it.
    fn grant(&self, entity: u32, connection: Self::Connection) -> Option<Grant>;
}

/// A subscriber's access, with the numbers of `ChannelDataAccess`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grant {
    /// 0: neither.
    Nothing,
    /// 1: receive.
    Read,
    /// 2: also write.
    Write,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<C> {
    /// Ends a subscription to an entity, and notifies its holder.
    Unsubscribe {
        /// The connection.
        connection: C,
        /// To which entity.
        entity: u32,
    },
    /// Makes a connection the owner of an entity, in place of the former one.
    Own {
        /// The new owner.
        connection: C,
        /// Of which entity.
        entity: u32,
    },
    /// Takes an entity off a cell's list.
    Unlist {
        /// The cell.
        cell: u32,
        /// The entity.
        entity: u32,
    },
    /// Puts an entity on a cell's list.
    List {
        /// The cell.
        cell: u32,
        /// The entity.
        entity: u32,
    },
    /// Subscribes a connection to an entity: skipping its own updates, and the first full state if that comes with a
    /// notice of the plan. If it is subscribed, only what it may do changes. The result is sent to it in either case.
    Subscribe {
        /// The connection.
        connection: C,
        /// To which entity.
        entity: u32,
        /// [`Grant::Write`] for the owner, [`Grant::Read`] for all others.
        grant: Grant,
    },
    /// Sends `CHANNEL_DATA_HANDOVER`.
    Announce(Announced<C>),
}

/// A notice of entities that went from one cell to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced<C> {
    /// The receivers of the notice.
    pub connection: C,
    /// The cell that they left.
    pub source: u32,
    /// The cell that they are in now: the channel of the message.
    pub destination: u32,
    /// Which ones: see [`HandoverPlan::entities`].
    entities: Range<u32>,
    /// Which of them with all their data: see [`HandoverPlan::with_data`].
    with_data: Range<u32>,
}

/// Why nothing is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandoverRefusal {
    /// All entities are where they are to go, or there are none.
    #[error("nothing has to move")]
    Nothing,
    /// The destination has no owner that is there. The entities stay where they are.
    #[error("the owner of cell {destination} is absent")]
    NoOwner {
        /// The cell.
        destination: u32,
    },
}

impl HandoverRefusal {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            HandoverRefusal::Nothing => "handover_nothing",
            HandoverRefusal::NoOwner { .. } => "handover_no_owner",
        }
    }
}

/// Steps, in the order in which they are to be taken.
#[derive(Clone, Debug)]
pub struct HandoverPlan<C> {
    actions: Vec<Action<C>>,
    entities: Vec<u32>,
    with_data: Vec<u32>,
}

impl<C> HandoverPlan<C> {
    /// The steps.
    pub fn actions(&self) -> &[Action<C>] {
        &self.actions
    }

    /// The entities of a notice of this plan, in ascending order. Notices with the same source have the same ones.
    pub fn entities(&self, notice: &Announced<C>) -> &[u32] {
        &self.entities[notice.entities.start as usize..notice.entities.end as usize]
    }

    /// Those of them that are sent with all their data, in ascending order; the others with their ids only. Often none
    /// or all of them: then one encoded notice serves for all receivers.
    pub fn with_data(&self, notice: &Announced<C>) -> &[u32] {
        &self.with_data[notice.with_data.start as usize..notice.with_data.end as usize]
    }

    /// Whether there is any receiver. A subscriber without a notice learns the state of an entity only from the first
    /// update of its channel.
    pub fn has_notices(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Announce(_)))
    }

    /// Every entity that moves, each once.
    pub fn moved(&self) -> &[u32] {
        &self.entities
    }
}

/// Makes plans, in memory that is used again.
#[derive(Clone, Debug)]
pub struct Handovers<C> {
    plan: HandoverPlan<C>,
    moves: Vec<Move>,
    sources: Vec<Source>,
    /// Of each entity of the plan, once it has moved.
    owners: Vec<C>,
    /// Of the destination, in order.
    arrivals: Vec<C>,
    /// Of a source, in order.
    departures: Vec<C>,
}

/// An entity on its way. Ordered by source, so that those of one notice lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Move {
    source: u32,
    entity: u32,
    is_listed: bool,
}

/// Entities that leave one cell: a range of [`HandoverPlan::entities`].
#[derive(Clone, Debug)]
struct Source {
    cell: u32,
    entities: Range<u32>,
}

impl<C: Copy + Ord> Default for Handovers<C> {
    fn default() -> Handovers<C> {
        Handovers::new()
    }
}

impl<C: Copy + Ord> Handovers<C> {
    /// Nothing planned yet.
    pub fn new() -> Handovers<C> {
        let plan = HandoverPlan { actions: Vec::new(), entities: Vec::new(), with_data: Vec::new() };
        Handovers {
            plan,
            moves: Vec::new(),
            sources: Vec::new(),
            owners: Vec::new(),
            arrivals: Vec::new(),
            departures: Vec::new(),
        }
    }

    /// Plans the move of entities to `destination`: the one that has crossed a border and all that go with it. `source`
    /// is the cell that lists the one, and is taken as the source of those that are on no list. Entities that do not
    /// exist are passed over.
    ///
    /// # Errors
    /// There is nothing to be done, and why.
    pub fn plan<V: HandoverView<Connection = C>>(
        &mut self,
        view: &V,
        source: u32,
        destination: u32,
        entities: &[u32],
    ) -> Result<&HandoverPlan<C>, HandoverRefusal> {
        let owner = view.cell_owner(destination).ok_or(HandoverRefusal::NoOwner { destination })?;
        self.clear();
        self.collect_moves(view, source, destination, entities);
        if self.moves.is_empty() {
            return Err(HandoverRefusal::Nothing);
        }
        self.change_owners(view, owner, destination);
        self.change_lists(destination);
        self.collect_arrivals(view, owner, destination);
        self.announce_departures(view, destination);
        self.announce_arrivals(view, destination);
        Ok(&self.plan)
    }

    /// Plans what the new owner of a cell takes over: those of `entities`, which the cell lists, that have no owner
    /// that is there. Nothing moves, so there are no notices.
    pub fn adopt<V: HandoverView<Connection = C>>(&mut self, view: &V, owner: C, entities: &[u32]) -> &HandoverPlan<C> {
        self.clear();
        let orphans = entities
            .iter()
            .filter(|&&entity| view.cell_listing(entity).is_some() && view.entity_owner(entity).is_none());
        self.plan.entities.extend(orphans);
        self.plan.entities.sort_unstable();
        self.plan.entities.dedup();
        for &entity in &self.plan.entities {
            self.plan.actions.push(Action::Own { connection: owner, entity });
            if view.grant(entity, owner) != Some(Grant::Write) {
                self.plan.actions.push(Action::Subscribe { connection: owner, entity, grant: Grant::Write });
            }
        }
        &self.plan
    }

    fn clear(&mut self) {
        self.plan.actions.clear();
        self.plan.entities.clear();
        self.plan.with_data.clear();
        self.moves.clear();
        self.sources.clear();
        self.owners.clear();
        self.arrivals.clear();
        self.departures.clear();
    }

    fn collect_moves(&mut self, view: &impl HandoverView, source: u32, destination: u32, entities: &[u32]) {
        for &entity in entities {
            let Some(listing) = view.cell_listing(entity) else { continue };
            if listing != Some(destination) {
                let source = listing.unwrap_or(source);
                self.moves.push(Move { source, entity, is_listed: listing.is_some() });
            }
        }
        self.moves.sort_unstable();
        self.moves.dedup();
        for (index, step) in (0u32..).zip(&self.moves) {
            self.plan.entities.push(step.entity);
            match self.sources.last_mut() {
                Some(last) if last.cell == step.source => last.entities.end = index + 1,
                _ => self.sources.push(Source { cell: step.source, entities: index..index + 1 }),
            }
        }
    }

    /// Step 1. Within one server's cells an entity keeps its present owner.
    fn change_owners<V: HandoverView<Connection = C>>(&mut self, view: &V, owner: C, destination: u32) {
        for step in &self.moves {
            let old = view.entity_owner(step.entity);
            let stays = old.filter(|&old| old == owner || view.cell_owner(step.source) == Some(owner));
            self.owners.push(stays.unwrap_or(owner));
            if stays.is_some() {
                continue;
            }
            let blind = old.filter(|&old| !view.sees_cell(old, destination));
            if let Some(connection) = blind.filter(|&old| view.grant(step.entity, old).is_some()) {
                self.plan.actions.push(Action::Unsubscribe { connection, entity: step.entity });
            }
            self.plan.actions.push(Action::Own { connection: owner, entity: step.entity });
        }
    }

    /// Step 2.
    fn change_lists(&mut self, destination: u32) {
        for step in self.moves.iter().filter(|step| step.is_listed) {
            self.plan.actions.push(Action::Unlist { cell: step.source, entity: step.entity });
        }
        for step in &self.moves {
            self.plan.actions.push(Action::List { cell: destination, entity: step.entity });
        }
    }

    /// The future subscribers of the entities: those of the destination, and its owner in any case.
    fn collect_arrivals<V: HandoverView<Connection = C>>(&mut self, view: &V, owner: C, destination: u32) {
        view.cell_subscribers(destination, &mut self.arrivals);
        self.arrivals.push(owner);
        self.arrivals.sort_unstable();
        self.arrivals.dedup();
    }

    /// Step 3: ids to connections that saw the entities go and do not see them come.
    fn announce_departures<V: HandoverView<Connection = C>>(&mut self, view: &V, destination: u32) {
        for source in &self.sources {
            self.departures.clear();
            view.cell_subscribers(source.cell, &mut self.departures);
            self.departures.sort_unstable();
            self.departures.dedup();
            for &connection in &self.departures {
                if view.hears(connection) && self.arrivals.binary_search(&connection).is_err() {
                    self.plan.actions.push(Action::Announce(Announced {
                        connection,
                        source: source.cell,
                        destination,
                        entities: source.entities.clone(),
                        with_data: 0..0,
                    }));
                }
            }
        }
    }

    /// Step 4: subscriptions, and data for those without it.
    fn announce_arrivals<V: HandoverView<Connection = C>>(&mut self, view: &V, destination: u32) {
        for &connection in &self.arrivals {
            for source in &self.sources {
                let first = self.plan.with_data.len() as u32;
                for index in source.entities.clone() {
                    let entity = self.plan.entities[index as usize];
                    let standing = view.grant(entity, connection);
                    let is_owner = self.owners[index as usize] == connection;
                    let grant = if is_owner { Grant::Write } else { Grant::Read };
                    if standing != Some(grant) {
                        self.plan.actions.push(Action::Subscribe { connection, entity, grant });
                    }
                    if standing.is_none() {
                        self.plan.with_data.push(entity);
                    }
                }
                if view.hears(connection) {
                    self.plan.actions.push(Action::Announce(Announced {
                        connection,
                        source: source.cell,
                        destination,
                        entities: source.entities.clone(),
                        with_data: first..self.plan.with_data.len() as u32,
                    }));
                }
            }
        }
    }
}
