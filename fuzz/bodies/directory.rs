//! A member of the directory whose store and neighbours say anything.

use std::time::Duration;

use bytes::Bytes;
use throng_bus::{
    Command, Entry, Event, Fence, MemberId, Message, ReplyTo, Revision, Sequence, StoreError, Subject, SubscriptionId,
    Ticket, WatchId,
};
use throng_directory::{ARRIVALS_MAX, Directory, DirectoryOptions, Home, HomeKey};
use throng_wire::Time;

use super::choices::Choices;

/// Claims, moves and checkpoints, with any answers, entries and messages, in any order. Nothing panics; a home is served only
/// with the member's own term; few states wait; and commands end when nothing is answered any more.
pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    if let Some(home) = Home::read(input, Revision(1_000)) {
        assert!(home.term < home.fence);
    }
    let mut directory = Directory::new(MemberId(1), DirectoryOptions::default());
    let (mut now, mut open, mut revision) = (Time(0), Vec::new(), 10);
    directory.handle_event(now, &Event::Connected);
    while !choices.is_empty() {
        let key = [HomeKey::Channel(7), HomeKey::Cell(-1, 2)][choices.below(2)];
        match choices.below(8) {
            0 => drop(directory.claim(key, now).is_ok()),
            1 => drop(directory.move_to(key, MemberId(2), Bytes::from(vec![1; choices.below(200)]), now).is_ok()),
            2 => drop(directory.checkpoint(key, Bytes::new(), now).is_ok()),
            3 => now = now.after(Duration::from_millis(u64::from(choices.byte()) * 10)),
            4 => directory.handle_event(now, &message(&mut choices, key)),
            5 => directory.handle_event(now, &changed(&mut choices, key, &mut revision)),
            _ => {
                let at = usize::from(choices.byte());
                if at < open.len() {
                    let command = open.swap_remove(at);
                    directory.handle_event(now, &answer(&mut choices, &command, &mut revision));
                }
            }
        }
        directory.handle_timeout(now);
        while directory.poll_change().is_some() {}
        for _ in 0..64 {
            let Some(command) = directory.poll_command(now) else { break };
            open.push(command);
        }
        assert!(directory.fence(key, now).is_none() || directory.term(now).is_some());
        assert!(directory.arriving() <= ARRIVALS_MAX);
    }
}

/// A message of a move, with a good head or not.
fn message(choices: &mut Choices<'_>, key: HomeKey) -> Event {
    let name = key.home_subject();
    let mut payload = vec![1, 1 + choices.byte() % 2];
    payload.extend(u64::from(choices.byte() % 4).to_le_bytes());
    payload.extend(u64::from(choices.byte() % 32).to_le_bytes());
    payload.extend([choices.byte() % 3, 0, choices.byte() % 3, 0, name.as_str().len() as u8]);
    payload.extend(name.as_str().as_bytes());
    payload.extend(choices.bytes(20));
    choices.bend(&mut payload);
    let publisher = MemberId(u64::from(choices.byte() % 3));
    Event::Message(Message {
        subscription: SubscriptionId(u32::MAX),
        subject: Subject::new("moves.1").expect("a name"),
        publisher,
        sequence: Sequence(1),
        payload: payload.into(),
        reply_to: Some(ReplyTo { member: publisher, ticket: Ticket(1), address: None }),
    })
}

fn value(choices: &mut Choices<'_>) -> Bytes {
    let mut value = vec![1];
    value.extend(u64::from(choices.byte() % 3).to_le_bytes());
    value.extend(u64::from(choices.byte() % 32).to_le_bytes());
    value.extend(u64::from(choices.byte() % 4).to_le_bytes());
    choices.bend(&mut value);
    value.into()
}

fn changed(choices: &mut Choices<'_>, key: HomeKey, revision: &mut u64) -> Event {
    *revision += u64::from(choices.byte() % 4);
    let value = (choices.below(4) > 0).then(|| value(choices));
    Event::Changed { watch: WatchId(u32::MAX), key: key.home_subject(), revision: Revision(*revision), value }
}

/// An answer of the right kind, with any content.
fn answer(choices: &mut Choices<'_>, command: &Command, revision: &mut u64) -> Event {
    *revision += 1;
    let newest = Revision(*revision);
    let error = [StoreError::Refused, StoreError::Unknown][choices.below(2)];
    match command {
        Command::Get { ticket, .. } => {
            let entry = (choices.below(3) > 0).then(|| Entry { value: value(choices), revision: newest });
            let result = if choices.below(5) == 0 { Err(error) } else { Ok(entry) };
            Event::Got { ticket: *ticket, result }
        }
        Command::Request { ticket, .. } => {
            let mut answer = vec![1];
            answer.extend(Fence(u64::from(choices.byte() % 3)).0.to_le_bytes());
            choices.bend(&mut answer);
            Event::Answer { ticket: *ticket, result: Ok(answer.into()) }
        }
        Command::Put { ticket, .. } | Command::Delete { ticket, .. } => {
            let result = if choices.below(4) == 0 { Err(error) } else { Ok(newest) };
            Event::Written { ticket: *ticket, result }
        }
        _ => Event::Connected,
    }
}
