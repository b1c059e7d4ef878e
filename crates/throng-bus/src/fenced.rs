//! Writes that an old fencing number cannot do.
//!
//! ```text
//!  Get --> the entry's number is higher: refused
//!      \-> lower or equal: Put if unchanged --> done
//!                                           \-> changed meanwhile, or the answer is lost: Get again, at most 8 times
//! ```
//!
//! The number stands in the entry, and the store compares the entry's revision, so no store has to know of numbers. A write
//! whose answer is lost is known again by its own id in the entry; it may happen late, and then happens once. So of the writes of a
//! member to one key, one is under way at a time: another one would hide it.
//!
//! Value of the entry: `version 1 (u8) | fencing number (u64 LE) | member (u64 LE) | id of the write (u64 LE) | content`.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::{Command, CommandError, Event, Expect, Fence, MemberId, Revision, StoreError, Subject, Ticket, Tickets};

/// Most attempts of one write.
pub const FENCED_ATTEMPTS_MAX: u8 = 8;
/// Most writes under way.
pub const FENCED_WRITES_MAX: usize = 1_024;

/// Bytes in front of the content.
const HEAD_BYTES: usize = 25;
const VERSION: u8 = 1;

/// The content of an entry with a fencing number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The number of the write.
    pub fence: Fence,
    /// Its writer.
    pub member: MemberId,
    /// The writer's id for it.
    pub id: u64,
    /// The content.
    pub content: Bytes,
}

impl Fenced {
    /// Reads a value of anybody. `None` if it has no fencing number, or one that is higher than any lease's.
    pub fn read(value: &Bytes, revision: Revision) -> Option<Fenced> {
        let number = |at: usize| Some(u64::from_le_bytes(value.get(at..at + 8)?.try_into().ok()?));
        if *value.first()? != VERSION {
            return None;
        }
        let (fence, member, id) = (number(1)?, number(9)?, number(17)?);
        let content = value.slice(HEAD_BYTES..);
        (fence < revision.0).then_some(Fenced { fence: Fence(fence), member: MemberId(member), id, content })
    }

    fn value(&self) -> Bytes {
        let mut value = BytesMut::with_capacity(HEAD_BYTES + self.content.len());
        value.extend_from_slice(&[VERSION]);
        for number in [self.fence.0, self.member.0, self.id] {
            value.extend_from_slice(&number.to_le_bytes());
        }
        value.extend_from_slice(&self.content);
        value.freeze()
    }
}

/// Why a fenced write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FencedError {
    /// A later holder has written.
    #[error("the entry was written with the number {newest:?}: the lease has gone to another, stop acting for it")]
    Old {
        /// The number in the entry.
        newest: Fence,
    },
    /// The entry has no fencing number.
    #[error("the entry has no fencing number that this version understands: remove it, or choose another key")]
    NotFenced,
    /// The entry changed again and again, or the answers were lost again and again. The write may have happened.
    #[error("the entry could not be written in {FENCED_ATTEMPTS_MAX} attempts: read it, and try again later")]
    Attempts,
    /// The bus takes no value of this length.
    #[error("an entry has at most {most} bytes, and this one has {bytes}: write less, or raise Limits::payload_bytes")]
    TooLong {
        /// The bytes of the entry: the content, and what stands in front of it.
        bytes: usize,
        /// The limit of the bus.
        most: usize,
    },
}

impl FencedError {
    /// A stable word for each kind of error.
    pub fn tag(self) -> &'static str {
        match self {
            FencedError::Old { .. } => "old",
            FencedError::NotFenced => "not_fenced",
            FencedError::Attempts => "attempts",
            FencedError::TooLong { .. } => "too_long",
        }
    }
}

/// A write that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedWrite {
    /// Its number.
    pub revision: Revision,
    /// The content of the entry now. After [`FencedWrites::fence`]: what it was before.
    pub content: Bytes,
}

/// The number of a write in [`FencedWrites`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Fenced writes of one member.
#[derive(Debug)]
pub struct FencedWrites {
    member: MemberId,
    tickets: Tickets,
    next: u64,
    writes: BTreeMap<WriteId, Write>,
    /// The writes of each key, in their order. The first one is under way.
    rows: BTreeMap<Subject, VecDeque<WriteId>>,
    open: BTreeMap<Ticket, WriteId>,
    to_do: VecDeque<WriteId>,
    results: VecDeque<(WriteId, Result<FencedWrite, FencedError>)>,
    is_connected: bool,
    /// The bus has just refused a command: the next ones wait for the next pass.
    is_refused: bool,
}

#[derive(Debug)]
struct Write {
    key: Subject,
    value: Fenced,
    /// Whether the content that is there stays.
    keeps: bool,
    attempts: u8,
    /// The expectation of the next command, if the entry was read.
    expect: Option<Expect>,
}

impl FencedWrites {
    /// None yet. `desk` is the desk of its tickets, see [`Tickets`].
    pub fn new(member: MemberId, desk: u16) -> FencedWrites {
        FencedWrites {
            member,
            tickets: Tickets::new(desk),
            next: 0,
            writes: BTreeMap::new(),
            rows: BTreeMap::new(),
            open: BTreeMap::new(),
            to_do: VecDeque::new(),
            results: VecDeque::new(),
            is_connected: false,
            is_refused: false,
        }
    }

    /// Begins a write. `None` if [`FENCED_WRITES_MAX`] are under way. Writes of one key happen in the order in which they are begun.
    pub fn write(&mut self, key: Subject, content: Bytes, fence: Fence) -> Option<WriteId> {
        self.begin(key, content, fence, false)
    }

    /// Begins to put a number on an entry whose content stays; an entry that does not exist becomes an empty one. Afterwards
    /// no earlier holder can write, and the result has the content that they left.
    pub fn fence(&mut self, key: Subject, fence: Fence) -> Option<WriteId> {
        self.begin(key, Bytes::new(), fence, true)
    }

    /// Forgets a write: it is not tried again, and has no result. It may have happened, or may still happen.
    pub fn abandon(&mut self, id: WriteId) {
        self.take(id);
    }

    fn begin(&mut self, key: Subject, content: Bytes, fence: Fence, keeps: bool) -> Option<WriteId> {
        if self.writes.len() >= FENCED_WRITES_MAX {
            return None;
        }
        self.next += 1;
        let id = WriteId(self.next);
        let value = Fenced { fence, member: self.member, id: id.0, content };
        let row = self.rows.entry(key.clone()).or_default();
        row.push_back(id);
        if row.len() == 1 {
            self.to_do.push_back(id);
        }
        self.writes.insert(id, Write { key, value, keeps, attempts: 0, expect: None });
        Some(id)
    }

    /// Takes an event of the bus. Events of others are ignored.
    pub fn handle_event(&mut self, event: &Event) {
        match event {
            Event::Connected => self.is_connected = true,
            Event::Disconnected => self.is_connected = false,
            Event::Got { ticket, result } => {
                let Some(id) = self.open.remove(ticket) else { return };
                match result {
                    Ok(entry) => {
                        let entry = entry.as_ref().map(|entry| (entry.value.clone(), entry.revision));
                        self.handle_seen(id, entry);
                    }
                    Err(_) => self.again(id),
                }
            }
            Event::Written { ticket, result } => {
                let Some(id) = self.open.remove(ticket) else { return };
                match result {
                    Ok(revision) => self.end_well(id, *revision),
                    Err(StoreError::Refused | StoreError::Unknown | StoreError::Full) => self.again(id),
                }
            }
            _ => {}
        }
    }

    /// The next command for the bus. If the bus refuses it, call [`FencedWrites::handle_refusal`].
    pub fn poll_command(&mut self) -> Option<Command> {
        if !self.is_connected || std::mem::take(&mut self.is_refused) {
            return None;
        }
        loop {
            let id = self.to_do.pop_front()?;
            let Some(write) = self.writes.get_mut(&id) else { continue };
            let ticket = self.tickets.issue();
            self.open.insert(ticket, id);
            let key = write.key.clone();
            return Some(match write.expect.take() {
                None => Command::Get { ticket, key },
                Some(expect) => Command::Put { ticket, key, value: write.value.value(), expect, lives_for: None },
            });
        }
    }

    /// Says that the bus refused a command, and why. Its write is tried again after the next `None` of
    /// [`FencedWrites::poll_command`], and that is no attempt. A write that is too long for the bus ends.
    pub fn handle_refusal(&mut self, command: &Command, error: CommandError) {
        if let Command::Get { ticket, .. } | Command::Put { ticket, .. } = command
            && let Some(id) = self.open.remove(ticket)
        {
            if let CommandError::TooLong { bytes, most } = error {
                return self.end(id, Err(FencedError::TooLong { bytes, most }));
            }
            self.is_refused = true;
            self.to_do.push_back(id);
        }
    }

    /// A write that has ended.
    pub fn poll_result(&mut self) -> Option<(WriteId, Result<FencedWrite, FencedError>)> {
        self.results.pop_front()
    }

    fn handle_seen(&mut self, id: WriteId, entry: Option<(Bytes, Revision)>) {
        let Some(write) = self.writes.get_mut(&id) else { return };
        let Some((value, revision)) = entry else {
            if write.keeps {
                write.value.content = Bytes::new();
            }
            write.expect = Some(Expect::Absent);
            self.to_do.push_back(id);
            return;
        };
        match Fenced::read(&value, revision) {
            None => self.end(id, Err(FencedError::NotFenced)),
            Some(found) if found.member == self.member && found.id == id.0 => {
                write.value.content = found.content;
                self.end_well(id, revision);
            }
            Some(found) if found.fence > write.value.fence => {
                self.end(id, Err(FencedError::Old { newest: found.fence }));
            }
            Some(found) => {
                if write.keeps {
                    write.value.content = found.content;
                }
                write.expect = Some(Expect::Revision(revision));
                self.to_do.push_back(id);
            }
        }
    }

    fn again(&mut self, id: WriteId) {
        let Some(write) = self.writes.get_mut(&id) else { return };
        write.attempts += 1;
        write.expect = None;
        if write.attempts >= FENCED_ATTEMPTS_MAX {
            self.end(id, Err(FencedError::Attempts));
        } else {
            self.to_do.push_back(id);
        }
    }

    fn end_well(&mut self, id: WriteId, revision: Revision) {
        if let Some(write) = self.take(id) {
            self.results.push_back((id, Ok(FencedWrite { revision, content: write.value.content })));
        }
    }

    fn end(&mut self, id: WriteId, result: Result<FencedWrite, FencedError>) {
        if self.take(id).is_some() {
            self.results.push_back((id, result));
        }
    }

    /// A write is over: the next one of its key begins.
    fn take(&mut self, id: WriteId) -> Option<Write> {
        let write = self.writes.remove(&id)?;
        if let Some(row) = self.rows.get_mut(&write.key) {
            let was_first = row.front() == Some(&id);
            row.retain(|other| *other != id);
            match row.front() {
                Some(&next) if was_first => self.to_do.push_back(next),
                Some(_) => {}
                None => drop(self.rows.remove(&write.key)),
            }
        }
        Some(write)
    }
}
