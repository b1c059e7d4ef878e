//! Private data is in no byte that another client receives.
//!
//! Private fields carry patterns that nothing else contains; every datagram is opened with its receiver's key and
//! searched for them at every alignment of bits.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::harness::{World, WorldOptions, ear};
use throng::net::Condition;
use throng::{ChannelKey, ConnectionId, ObjectId, Placement};
use throng_link::netcode::{Opener, PacketKind};
use throng_seeds::for_seeds;
use throng_testkit::{Walker, find_shifted, storm};

const GUESTS: usize = 5;

/// A pattern for one audience of one object under one owner: eight letters that no other field holds.
fn marker(object: usize, epoch: usize, audience: Audience) -> String {
    let mut rng = fastrand::Rng::with_seed(0xFEED_0000 + ((object * 100 + epoch) * 4 + audience as usize) as u64);
    (0..8).map(|_| rng.alphanumeric()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Audience {
    Owner,
    Others,
    Nobody,
    Room,
}

struct Marked {
    id: ObjectId,
    /// The owners in each epoch; the markers change with the owner.
    owners: Vec<Option<ConnectionId>>,
    /// Its public fields are for the room's members only.
    in_room: bool,
}

impl Marked {
    fn may_have(&self, epoch: usize, audience: Audience, receiver: Option<ConnectionId>, is_member: bool) -> bool {
        let owns = self.owners[epoch] == receiver;
        match audience {
            Audience::Owner => owns,
            Audience::Others => !owns && (is_member || !self.in_room),
            Audience::Nobody => false,
            // A client receives its own objects wherever they are.
            Audience::Room => (is_member || owns) && self.in_room,
        }
    }
}

/// Writes this epoch's markers into the fields that they belong to.
fn mark(walker: &mut Walker, object: usize, epoch: usize, in_room: bool) {
    walker.secret = marker(object, epoch, Audience::Owner).into_bytes();
    walker.rumour = marker(object, epoch, Audience::Others).into_bytes();
    walker.server_only = marker(object, epoch, Audience::Nobody).into_bytes();
    walker.name = if in_room { marker(object, epoch, Audience::Room) } else { String::new() };
}

#[derive(Default)]
struct Findings {
    /// By marker: the number of packets with it to clients that may have it.
    entitled: BTreeMap<Audience, u64>,
}

fn search(
    world: &World,
    ears: &mut BTreeMap<SocketAddr, Opener>,
    marked: &[Marked],
    members: &[usize],
    findings: &mut Findings,
) -> Result<(), String> {
    for mut wire in world.tap.take() {
        let Some(ear) = ears.get_mut(&wire.to) else { continue };
        // Challenges are not for this ear.
        let Ok(opened) = ear.open(&mut wire.bytes) else { continue };
        if opened.kind != PacketKind::Payload {
            continue;
        }
        let guest = world.guests.iter().position(|guest| guest.address == wire.to).expect("it is a guest's");
        let receiver = world.guests[guest].connection;
        let is_member = members.contains(&guest);
        for (object, marked) in marked.iter().enumerate() {
            for epoch in 0..marked.owners.len() {
                for audience in [Audience::Owner, Audience::Others, Audience::Nobody, Audience::Room] {
                    if find_shifted(opened.body, marker(object, epoch, audience).as_bytes()).is_none() {
                        continue;
                    }
                    if !marked.may_have(epoch, audience, receiver, is_member) {
                        let id = marked.id;
                        return Err(format!("guest {guest} was sent what {id} keeps for {audience:?}, epoch {epoch}"));
                    }
                    *findings.entitled.entry(audience).or_default() += 1;
                }
            }
        }
    }
    Ok(())
}

fn play(seed: u64, findings: &mut Findings) -> Result<(), String> {
    let mut world = World::new(WorldOptions::new(seed));
    world.tap.open();
    for _ in 0..GUESTS {
        world.join();
    }
    let mut ears: BTreeMap<SocketAddr, Opener> =
        world.guests.iter().map(|guest| (guest.address, ear(&guest.token))).collect();
    world.connect_all();
    let mut rng = fastrand::Rng::with_seed(seed);
    let members = [0, 3];
    let mut marked: Vec<Marked> = (0..12usize)
        .map(|object| {
            let in_room = object % 4 == 3;
            let position = [rng.f32() * 16.0, rng.f32() * 16.0, 1.0];
            let mut walker = Walker { position, ..Walker::default() };
            mark(&mut walker, object, 0, in_room);
            let owner = rng.bool().then(|| world.connection(rng.usize(..GUESTS)));
            let placement = if in_room { Placement::Channel(ChannelKey::Custom(1)) } else { Placement::Cell(0) };
            let id = world.server.spawn_owned(walker, placement, owner).expect("room");
            Marked { id, owners: vec![owner], in_room }
        })
        .collect();
    for guest in 0..GUESTS {
        let connection = world.connection(guest);
        world.server.set_viewpoint(connection, [8.0, 8.0, 1.0]);
        if members.contains(&guest) {
            world.server.subscribe(connection, ChannelKey::Custom(1), 1).expect("room");
        }
    }
    world.set_condition(if seed == 0 { Condition::NONE } else { storm(&mut rng) });
    for tick in 0..90 {
        world.begin_step();
        let object = rng.usize(..marked.len());
        let Marked { id, in_room, .. } = marked[object];
        if tick % 9 == 8 {
            let owner = rng.bool().then(|| world.connection(rng.usize(..GUESTS)));
            world.server.set_owner(id, owner).expect("room");
            marked[object].owners.push(owner);
        }
        let epoch = marked[object].owners.len() - 1;
        let walker = world.server.get_mut::<Walker>(id).expect("it is there");
        mark(walker, object, epoch, in_room);
        // The marker stays, and the fields change.
        let tail = rng.u8(b'a'..=b'z');
        walker.secret.push(tail);
        walker.rumour.push(tail);
        walker.name.push(char::from(tail));
        walker.position[0] = (walker.position[0] + rng.f32() * 4.0 - 2.0).clamp(0.0, 16.0);
        world.end_step();
        search(&world, &mut ears, &marked, &members, findings)?;
    }
    Ok(())
}

#[test]
fn no_packet_to_another_audience_holds_a_private_byte() {
    let mut findings = Findings::default();
    for_seeds(25, |seed| play(seed, &mut findings));
    // The search can find markers: clients that may have them did receive them.
    for audience in [Audience::Owner, Audience::Others, Audience::Room] {
        let found = findings.entitled.get(&audience).copied().unwrap_or(0);
        assert!(found > 100 || throng_seeds::is_replay(), "{audience:?} was sent its markers {found} times only");
    }
    assert_eq!(findings.entitled.get(&Audience::Nobody), None);
}
