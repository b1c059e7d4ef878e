//! The door of a server with the addresses of its connections: whose a datagram is, who comes in, who has moved.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use throng_link::netcode::*;
use throng_wire::Time;

use crate::netcode_stage::{
    PROTOCOL_ID, UNIX_S, client_address, deliver, poll, private_key, random, request, seal, server_address, token,
};

/// A server with three seats. Connections are named by their seats.
#[derive(Default)]
struct Guests {
    seats: HashMap<u32, (Accepted, SocketAddr, Moves)>,
    is_closed: bool,
    heard: Vec<(u32, Vec<u8>)>,
    moved: Vec<(u32, SocketAddr)>,
    answers: Vec<(SocketAddr, Vec<u8>)>,
}

impl House for Guests {
    type Id = u32;

    fn is_open(&self) -> bool {
        !self.is_closed
    }

    fn in_seat(&self, seat: u32) -> Option<u32> {
        self.seats.contains_key(&seat).then_some(seat)
    }

    fn seats(&self) -> (Option<u32>, u32) {
        ((0..3).find(|seat| !self.seats.contains_key(seat)), 3)
    }

    fn held(&self, client_id: u64) -> Option<Held> {
        let (seat, (accepted, ..)) = self.seats.iter().find(|(_, (accepted, ..))| accepted.client_id == client_id)?;
        Some(Held { seat: *seat, expire_unix_s: accepted.expire_unix_s })
    }

    fn admit(&self, _from: SocketAddr) -> Admission {
        Admission::Granted
    }

    fn movable(&mut self, id: u32) -> Option<Movable<'_>> {
        let (accepted, address, moves) = self.seats.get_mut(&id)?;
        let (client_id, address) = (accepted.client_id, *address);
        Some(Movable { client_id, address, opener: &mut accepted.opener, sealer: &accepted.sealer, moves })
    }

    fn welcome(
        &mut self,
        _now: Time,
        from: SocketAddr,
        accepted: Accepted,
        former: Option<u32>,
    ) -> Option<Welcome<u32>> {
        let id = accepted.client_index;
        let gone = former.filter(|&former| former != id).or(accepted.is_replacement.then_some(id));
        let gone = gone.and_then(|gone| self.seats.remove(&gone).map(|(_, at, _)| (gone, at)));
        self.seats.insert(id, (accepted, from, Moves::default()));
        Some(Welcome { id, gone })
    }

    fn denied(&mut self, client_id: u64, denial: Denial) {
        panic!("there is a seat for {client_id}: {denial:?}");
    }

    fn moved(&mut self, _now: Time, id: u32, to: SocketAddr, _round_trip: Duration) {
        self.seats.get_mut(&id).expect("it is there").1 = to;
        self.moved.push((id, to));
    }

    fn hear(&mut self, id: u32, datagram: &mut [u8]) -> Option<Result<(), DropReason>> {
        let (accepted, ..) = self.seats.get_mut(&id)?;
        let opened = accepted.opener.open(datagram).map_err(DropReason::from);
        Some(opened.map(|opened| self.heard.push((id, opened.body.to_vec()))))
    }

    fn answer(&mut self, to: SocketAddr, datagram: &mut Vec<u8>) {
        self.answers.push((to, std::mem::take(datagram)));
    }
}

struct Inn {
    door: Door<u32>,
    guests: Guests,
}

const NOW: Time = Time::from_secs(50);

fn clocks() -> Now {
    Now { unix_s: UNIX_S, time: NOW }
}

impl Inn {
    fn new() -> Inn {
        let options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
        Inn { door: Door::new(ServerHandshake::new(options, &mut random(77))), guests: Guests::default() }
    }

    /// Takes a datagram for the door; the answer to its sender.
    fn knock(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        assert_eq!(self.door.owner_of(from, datagram), None);
        self.door.keep(from, datagram);
        self.door.serve(clocks(), usize::MAX, &mut self.guests);
        self.guests.answers.pop().inspect(|(to, _)| assert_eq!(*to, from)).map(|(_, answer)| answer)
    }

    fn enter(&mut self, client_id: u64, from: SocketAddr) -> Connected {
        let mut client = ClientHandshake::new(token(client_id), NOW);
        let challenge = self.knock(from, &poll(&mut client, NOW)).expect("a challenge");
        assert!(matches!(deliver(&mut client, NOW, challenge), ClientOutcome::Progress));
        let seated = self.knock(from, &poll(&mut client, NOW)).expect("a seat");
        match deliver(&mut client, NOW, seated) {
            ClientOutcome::Connected(connected) => *connected,
            other => panic!("{other:?}"),
        }
    }

    /// A client asks from another address; the challenge that it gets.
    fn ask(&mut self, client: &mut Connected, to: SocketAddr) -> Vec<u8> {
        let mut wish = Vec::new();
        client.probe.on_address_changed(NOW);
        assert!(client.probe.poll_transmit(NOW, &mut client.sealer, &mut wish));
        self.knock(to, &wish).expect("a challenge")
    }

    /// A client answers a challenge from there.
    fn prove(&mut self, client: &mut Connected, to: SocketAddr, mut challenge: Vec<u8>) {
        client.probe.on_challenge(NOW, client.opener.open(&mut challenge).expect("it is sealed").body);
        let mut response = Vec::new();
        assert!(client.probe.poll_transmit(NOW, &mut client.sealer, &mut response));
        assert_eq!(self.knock(to, &response), None);
    }

    /// Moves a client to another address, and answers the challenge.
    fn follow(&mut self, client: &mut Connected, to: SocketAddr) {
        let challenge = self.ask(client, to);
        self.prove(client, to, challenge);
    }
}

#[test]
fn datagrams_are_sorted_by_the_address_that_was_proved() {
    let mut inn = Inn::new();
    let mut ada = inn.enter(1, client_address(1));
    let _bob = inn.enter(2, client_address(2));
    let packet = seal(&mut ada.sealer, b"hello");
    assert_eq!(inn.door.owner_of(client_address(1), &packet), Some(0));
    assert_eq!(inn.door.owner_of(client_address(2), &packet), Some(1), "who cannot open it, and drops it");
    assert_eq!(inn.door.owner_of(client_address(3), &packet), None);
    // A newcomer may have the address of a connection.
    assert_eq!(inn.door.owner_of(client_address(1), &request(&token(3))), None);
    assert_eq!(inn.door.addresses_len(), 2);
}

#[test]
fn a_connection_is_followed_to_its_new_address_and_who_was_there_has_none() {
    let mut inn = Inn::new();
    let (mut ada, _bob) = (inn.enter(1, client_address(1)), inn.enter(2, client_address(2)));
    inn.follow(&mut ada, client_address(2));
    assert_eq!(inn.guests.moved, [(0, client_address(2))]);
    let packet = seal(&mut ada.sealer, b"here");
    assert_eq!(inn.door.owner_of(client_address(2), &packet), Some(0));
    assert_eq!((inn.door.owner_of(client_address(1), &packet), inn.door.addresses_len()), (None, 1));
    // The end of the other one takes nothing from it.
    inn.door.forget(1, client_address(2));
    assert_eq!(inn.door.owner_of(client_address(2), &packet), Some(0));
    inn.door.forget(0, client_address(2));
    assert_eq!(inn.door.addresses_len(), 0);
}

#[test]
fn a_newer_token_replaces_a_connection_and_its_addresses() {
    let mut inn = Inn::new();
    let mut old = inn.enter(1, client_address(1));
    let mut wish = Vec::new();
    old.probe.on_address_changed(NOW);
    assert!(old.probe.poll_transmit(NOW, &mut old.sealer, &mut wish));
    assert!(inn.knock(client_address(5), &wish).is_some());
    assert_eq!(inn.door.addresses_len(), 1);
    let options = ConnectTokenOptions { expire_unix_s: UNIX_S + 31, ..crate::netcode_stage::token_options(1) };
    let mut client = ClientHandshake::new(crate::netcode_stage::token_with(options), NOW);
    let challenge = inn.knock(client_address(3), &poll(&mut client, NOW)).expect("a challenge");
    deliver(&mut client, NOW, challenge);
    assert!(inn.knock(client_address(3), &poll(&mut client, NOW)).is_some());
    let names = [1, 3, 5].map(|number| inn.door.owner_of(client_address(number), b"packet"));
    assert_eq!((names, inn.door.addresses_len()), ([None, Some(0), None], 1));
}

#[test]
fn an_answer_to_a_challenge_may_be_a_connection_s_that_nobody_has_confirmed() {
    let mut inn = Inn::new();
    let mut client = ClientHandshake::new(token(1), NOW);
    let challenge = inn.knock(client_address(1), &poll(&mut client, NOW)).expect("a challenge");
    deliver(&mut client, NOW, challenge);
    let response = poll(&mut client, NOW);
    assert!(inn.knock(client_address(1), &response).is_some());
    // Its seat was lost on the way, so it sends the same again: that is for the connection.
    assert_eq!(inn.door.owner_of(client_address(1), &response), Some(0));
    // Had it waited at the door, the door would have handed it over.
    inn.door.keep(client_address(1), &poll(&mut client, NOW.after(Duration::from_millis(100))));
    inn.door.serve(clocks(), usize::MAX, &mut inn.guests);
    assert_eq!(inn.guests.heard.len(), 1);
    // One for a connection that is gone by then is counted.
    inn.door.keep(client_address(1), &poll(&mut client, NOW.after(Duration::from_millis(200))));
    inn.guests.seats.clear();
    inn.door.serve(clocks(), usize::MAX, &mut inn.guests);
    assert_eq!((inn.guests.heard.len(), inn.door.counters().dropped(DropReason::UnknownAddress)), (1, 1));
}

#[test]
fn few_strangers_are_looked_at_in_a_turn_and_a_closed_house_answers_none() {
    let mut inn = Inn::new();
    let question = request(&token(1));
    (0..10).for_each(|number| inn.door.keep(client_address(number), &question));
    inn.door.serve(clocks(), 4, &mut inn.guests);
    assert_eq!(inn.door.waiting(), 6);
    inn.guests.is_closed = true;
    let before = inn.guests.answers.len();
    inn.door.serve(clocks(), usize::MAX, &mut inn.guests);
    assert_eq!((inn.door.waiting(), inn.guests.answers.len()), (0, before));
    assert_eq!(inn.door.counters().dropped(DropReason::DoorClosed), 6);
    // Beyond its bound the queue drops, and counts.
    let (dropped, mut kept) = (inn.door.counters().dropped_total(), 0);
    while inn.door.counters().dropped_total() == dropped && kept < 100_000 {
        inn.door.keep(client_address(1), b"noise");
        kept += 1;
    }
    assert!(kept > 1 && inn.door.waiting() == kept - 1, "{kept}");
}

#[test]
fn a_client_that_names_the_new_address_of_another_does_not_hinder_its_move() {
    let mut inn = Inn::new();
    let (mut ada, mut eve) = (inn.enter(1, client_address(1)), inn.enter(2, client_address(2)));
    let there = client_address(5);
    let challenge = inn.ask(&mut ada, there);
    // Eve forges the sender's address.
    inn.ask(&mut eve, there);
    inn.prove(&mut ada, there, challenge);
    assert_eq!(inn.guests.moved, [(0, there)]);
}
