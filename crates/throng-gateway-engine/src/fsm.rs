//! Which messages a connection may send in which of its states.
//!
//! A [`Machine`] is read from a file and shared by all connections of a side; an [`Fsm`] is one connection's state in
//! it, 16 bytes. The file is channeld's:
//!
//! ```json
//! { "States": [ { "Name": "INIT", "MsgTypeWhitelist": "1", "MsgTypeBlacklist": "" },
//!               { "Name": "OPEN", "MsgTypeWhitelist": "3-8, 15-65535", "MsgTypeBlacklist": "" } ],
//!   "Transitions": [ { "FromState": "INIT", "ToState": "OPEN", "MsgType": 1 } ],
//!   "InitState": "INIT" }
//! ```

use std::sync::Arc;

use crate::config_file::{Document, FileError, Node, Note};

/// Most states of a machine.
pub const MAX_STATES: usize = 256;
/// Most transitions of a machine.
pub const MAX_TRANSITIONS: usize = 4_096;
/// Most entries of one list of message types.
pub const MAX_RANGES: usize = 1_024;

const SHIPPED_SERVER: &str = include_str!("../config/server_authoratative_fsm.json");
const SHIPPED_CLIENT: &str = include_str!("../config/client_non_authoratative_fsm.json");
const SHIPPED_CLIENT_AUTHORITATIVE: &str = include_str!("../config/client_authoratative_fsm.json");

/// One connection's state in a [`Machine`].
#[derive(Clone, Debug)]
pub struct Fsm {
    machine: Arc<Machine>,
    state: u16,
}

impl Fsm {
    /// A connection that has just been opened.
    pub fn new(machine: Arc<Machine>) -> Fsm {
        let state = machine.first;
        Fsm { machine, state }
    }

    /// Whether a message of this type may be sent now.
    #[inline]
    pub fn accepts(&self, msg_type: u32) -> bool {
        self.machine.states[usize::from(self.state)].allowed.contains(msg_type)
    }

    /// A message of this type was accepted: follows its transition, if there is one.
    #[inline]
    pub fn received(&mut self, msg_type: u32) {
        let transitions = &self.machine.transitions;
        if let Ok(at) = transitions.binary_search_by_key(&(self.state, msg_type), |step| (step.from, step.msg_type)) {
            self.state = transitions[at].to;
        }
    }

    /// The connection has logged in: moves to the next state of the file, or stays in the last one.
    pub fn authenticated(&mut self) {
        let last = self.machine.states.len() - 1;
        self.state = usize::from(self.state).saturating_add(1).min(last) as u16;
    }

    /// The name of the state, as in the file.
    pub fn state(&self) -> &str {
        &self.machine.states[usize::from(self.state)].name
    }

    /// The rules.
    pub(crate) fn machine(&self) -> Arc<Machine> {
        Arc::clone(&self.machine)
    }

    /// Takes over a machine that was read again: into the state of the same name, or of the same number if no state
    /// has the name any more.
    pub fn reload(&mut self, machine: Arc<Machine>) {
        let same = machine.states.iter().position(|state| state.name == self.state());
        self.state = same.unwrap_or(usize::from(self.state).min(machine.states.len() - 1)) as u16;
        self.machine = machine;
    }
}

/// States, what may be sent in each, and the ways between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// At least one, at most [`MAX_STATES`].
    states: Vec<State>,
    /// Ordered by state and message type, each pair once.
    transitions: Vec<Transition>,
    first: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    name: String,
    allowed: MessageTypes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Transition {
    from: u16,
    msg_type: u32,
    to: u16,
}

impl Machine {
    /// Reads a machine from the text of a file. `file` is its name, for complaints; what is odd but harmless is
    /// appended to `notes`.
    ///
    /// # Errors
    /// A text that is not JSON, has no states, names states that do not exist, or exceeds a limit of this module.
    pub fn parse(file: &str, text: &[u8], notes: &mut Vec<Note>) -> Result<Machine, FileError> {
        let document = Document::parse(file, text)?;
        let root = document.root();
        root.note_unknown(&["States", "Transitions", "InitState"], notes)?;
        let states = read_states(&root, notes)?;
        let transitions = match root.get("Transitions")? {
            Some(list) => read_transitions(&list, &states, notes)?,
            None => Vec::new(),
        };
        let first = match root.get("InitState")? {
            Some(name) if !name.string()?.is_empty() => state_named(&states, &name)?,
            _ => 0,
        };
        Ok(Machine { states, transitions, first })
    }

    /// The machine that servers get when no file is named: INIT takes 1, OPEN takes 2 to 65535.
    pub fn server() -> Machine {
        shipped("server_authoratative_fsm.json", SHIPPED_SERVER)
    }

    /// The machine that clients get when no file is named: INIT takes 1, OPEN takes 7 and 99 to 65535. Such clients
    /// cannot subscribe themselves; a server does it for them.
    pub fn client() -> Machine {
        shipped("client_non_authoratative_fsm.json", SHIPPED_CLIENT)
    }

    /// The machine for clients that manage their own channels: INIT takes 1, OPEN takes 3 to 8 and 15 to 65535.
    pub fn client_authoritative() -> Machine {
        shipped("client_authoratative_fsm.json", SHIPPED_CLIENT_AUTHORITATIVE)
    }

    /// The machine that ships with the gateway under this file name, as people keep it in start scripts.
    pub fn shipped(path: &str) -> Option<Machine> {
        match path.rsplit(['/', '\\']).next()? {
            "server_authoratative_fsm.json" => Some(Machine::server()),
            "client_non_authoratative_fsm.json" => Some(Machine::client()),
            "client_authoratative_fsm.json" => Some(Machine::client_authoritative()),
            _ => None,
        }
    }
}

fn shipped(file: &str, text: &str) -> Machine {
    Machine::parse(file, text.as_bytes(), &mut Vec::new()).expect("the shipped machines are sound: a test reads them")
}

fn read_states(root: &Node<'_>, notes: &mut Vec<Note>) -> Result<Vec<State>, FileError> {
    let list = root.get("States")?.ok_or_else(|| root.error("there is no list \"States\""))?;
    let elements = list.elements()?;
    if elements.is_empty() || elements.len() > MAX_STATES {
        return Err(list.error(format!("1 to {MAX_STATES} states are expected here")));
    }
    let mut states: Vec<State> = Vec::with_capacity(elements.len());
    for element in elements {
        element.note_unknown(&["Name", "MsgTypeWhitelist", "MsgTypeBlacklist"], notes)?;
        let name = element.get("Name")?.ok_or_else(|| element.error("the state has no \"Name\""))?;
        if states.iter().any(|state| state.name == name.string().unwrap_or_default()) {
            return Err(name.error("another state has this name already"));
        }
        let allowed = message_types(&element, "MsgTypeWhitelist")?;
        let denied = message_types(&element, "MsgTypeBlacklist")?;
        states.push(State { name: name.string()?.into(), allowed: allowed.without(&denied) });
    }
    Ok(states)
}

fn message_types(state: &Node<'_>, key: &str) -> Result<MessageTypes, FileError> {
    match state.get(key)? {
        Some(list) => MessageTypes::parse(list.string()?).map_err(|reason| list.error(reason)),
        None => Ok(MessageTypes::default()),
    }
}

fn read_transitions(list: &Node<'_>, states: &[State], notes: &mut Vec<Note>) -> Result<Vec<Transition>, FileError> {
    let elements = list.elements()?;
    if elements.len() > MAX_TRANSITIONS {
        return Err(list.error(format!("there are more than {MAX_TRANSITIONS} transitions")));
    }
    let mut transitions: Vec<Transition> = Vec::with_capacity(elements.len());
    for element in elements {
        element.note_unknown(&["FromState", "ToState", "MsgType"], notes)?;
        let part =
            |key: &str| element.get(key)?.ok_or_else(|| element.error(format!("the transition has no \"{key}\"")));
        let from = state_named(states, &part("FromState")?)?;
        let to = state_named(states, &part("ToState")?)?;
        let msg_type = part("MsgType")?.integer(0..=u32::MAX)?;
        match transitions.binary_search_by_key(&(from, msg_type), |step| (step.from, step.msg_type)) {
            Ok(_) => return Err(element.error("another transition leaves this state with this message type")),
            Err(at) => transitions.insert(at, Transition { from, msg_type, to }),
        }
    }
    Ok(transitions)
}

fn state_named(states: &[State], name: &Node<'_>) -> Result<u16, FileError> {
    let wanted = name.string()?;
    let found = states.iter().position(|state| state.name == wanted);
    found.map(|index| index as u16).ok_or_else(|| name.error(format!("there is no state \"{wanted}\"")))
}

/// A set of message types: ordered ranges that neither touch nor overlap. Lists of the field have one to three.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MessageTypes(Vec<(u32, u32)>);

impl MessageTypes {
    /// Reads a list such as "1, 3-8, 15-65535".
    fn parse(text: &str) -> Result<MessageTypes, String> {
        let mut ranges = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if ranges.len() == MAX_RANGES {
                return Err(format!("the list has more than {MAX_RANGES} entries"));
            }
            ranges.push(parse_range(entry)?);
        }
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1.saturating_add(1);
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
        Ok(MessageTypes(ranges))
    }

    #[inline]
    fn contains(&self, msg_type: u32) -> bool {
        let behind = self.0.partition_point(|&(_, last)| last < msg_type);
        self.0.get(behind).is_some_and(|&(first, _)| first <= msg_type)
    }

    fn without(&self, denied: &MessageTypes) -> MessageTypes {
        let mut rest = Vec::new();
        for &(first, last) in &self.0 {
            let mut next = Some(first);
            for &(from, to) in denied.0.iter().filter(|&&(from, to)| to >= first && from <= last) {
                if let Some(start) = next.filter(|&start| start < from) {
                    rest.push((start, from - 1));
                }
                next = to.checked_add(1);
            }
            if let Some(start) = next.filter(|&start| start <= last) {
                rest.push((start, last));
            }
        }
        MessageTypes(rest)
    }
}

fn parse_range(entry: &str) -> Result<(u32, u32), String> {
    let complaint = || format!("\"{entry}\" is neither a message type nor a range such as 3-8");
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| complaint());
    let (first, last) = match entry.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(entry)?, number(entry)?),
    };
    if first > last { Err(format!("the range \"{entry}\" ends before it begins")) } else { Ok((first, last)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_becomes_ordered_ranges_without_the_denied_ones() {
        let allowed = MessageTypes::parse(" 3-8,1, 9 ,15-65535,20-30,").unwrap();
        assert_eq!(allowed.0, [(1, 1), (3, 9), (15, 65535)]);
        let denied = MessageTypes::parse("0-1,5,8-16,70000").unwrap();
        assert_eq!(allowed.without(&denied).0, [(3, 4), (6, 7), (17, 65535)]);
        let all = MessageTypes::parse("0-4294967295").unwrap();
        assert_eq!(all.without(&MessageTypes::parse("4294967295").unwrap()).0, [(0, u32::MAX - 1)]);
        assert_eq!(all.without(&all).0, []);
        for bad in ["8-3", "x", "1-2-3", "-4", "4294967296"] {
            assert!(MessageTypes::parse(bad).is_err(), "{bad}");
        }
    }
}
