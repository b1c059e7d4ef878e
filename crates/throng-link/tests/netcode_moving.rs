//! A connection continues from another address, and no other peer can cause that.

use crate::netcode_stage::*;
use std::net::SocketAddr;
use std::time::Duration;
use throng_link::netcode::*;
use throng_wire::Time;

const START: Time = Time::from_secs(50);

fn at(millis: u64) -> Time {
    START.after(Duration::from_millis(millis))
}

/// A connection with both ends, and where the server thinks that the client is.
struct Stage {
    server: Server,
    client: Connected,
    moves: Moves,
    address: SocketAddr,
}

impl Stage {
    fn new() -> Stage {
        let mut server = Server::new(2);
        let client = connect(&mut server, START, client_address(1), token(1));
        Stage { server, client, moves: Moves::default(), address: client_address(1) }
    }

    /// A datagram for the server: a move, or a response to one. The answer, if any.
    fn handle(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) -> Result<Vec<u8>, DropReason> {
        let (_, accepted) = &mut self.server.connected[0];
        let mut end = Movable {
            client_id: accepted.client_id,
            address: self.address,
            opener: &mut accepted.opener,
            sealer: &accepted.sealer,
            moves: &mut self.moves,
        };
        let (mut datagram, mut reply) = (datagram.to_vec(), Vec::new());
        if let MoveStep::Proved { .. } = self.server.door.handle_move(now, from, &mut datagram, &mut end, &mut reply)? {
            assert!(reply.is_empty());
            self.address = from;
        }
        assert!(reply.len() <= datagram.len(), "{} bytes answered with {}", datagram.len(), reply.len());
        Ok(reply)
    }

    /// The client learns that its address has changed, and asks.
    fn wish(&mut self, ms: u64) -> Vec<u8> {
        self.client.probe.on_address_changed(at(ms));
        self.poll(at(ms)).unwrap()
    }

    /// The client gets a challenge, and answers it.
    fn answer(&mut self, ms: u64, challenge: Vec<u8>) -> Vec<u8> {
        self.challenge(at(ms), challenge);
        self.poll(at(ms)).unwrap()
    }

    fn poll(&mut self, now: Time) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.client.probe.poll_transmit(now, &mut self.client.sealer, &mut out).then_some(out)
    }

    fn challenge(&mut self, now: Time, mut datagram: Vec<u8>) {
        let opened = self.client.opener.open(&mut datagram).unwrap();
        assert_eq!(opened.kind, PacketKind::Challenge);
        self.client.probe.on_challenge(now, opened.body);
    }

    /// The server sends something, and the client receives it.
    fn talk(&mut self, now: Time) {
        let mut packet = seal(&mut self.server.connected[0].1.sealer, b"news");
        assert_eq!(self.client.opener.open(&mut packet).unwrap().kind, PacketKind::Payload);
        self.client.probe.on_heard(now);
    }
}

/// Whether a move is a wish: otherwise it is the answer to a challenge.
fn is_wish(packet: &[u8]) -> bool {
    move_seat(packet).is_some() && packet[5] & 0x0f == PacketKind::KeepAlive as u8
}

#[test]
fn a_client_that_knows_of_its_new_address_is_there_after_one_round_trip() {
    let mut stage = Stage::new();
    let there = client_address(2);
    let wish = stage.wish(0);
    assert_eq!((wish.len(), move_seat(&wish)), (MOVE_LEN, Some(0)));
    let challenge = stage.handle(at(20), there, &wish).unwrap();
    assert_eq!(challenge.len(), 333);
    let response = stage.answer(40, challenge);
    assert_eq!(stage.handle(at(60), there, &response), Ok(Vec::new()));
    assert_eq!(stage.address, there);
    assert_eq!(stage.server.door.counters().moved, 1);
    stage.talk(at(80));
    assert_eq!(stage.poll(at(500)), None, "the client is content");
    // Keys and numbers stay as before.
    let mut packet = seal(&mut stage.client.sealer, b"here");
    assert_eq!(stage.server.connected[0].1.opener.open(&mut packet).unwrap().body, b"here");
}

#[test]
fn a_client_that_hears_nothing_asks_after_a_second_and_a_half_and_then_ever_less_often() {
    let mut stage = Stage::new();
    // The server speaks ten times a second, then falls silent.
    (1..=20).for_each(|count| stage.talk(at(100 * count)));
    let asked: Vec<u64> = (200..1_000).map(|count| count * 10).filter(|&ms| stage.poll(at(ms)).is_some()).collect();
    assert!((3_400..=3_600).contains(&asked[0]), "{asked:?}");
    assert!(asked.len() <= 9, "352 bytes each: {asked:?}");
    assert!(asked.windows(2).all(|pair| (200..=1_610).contains(&(pair[1] - pair[0]))), "{asked:?}");
}

#[test]
fn a_quiet_connection_asks_nothing() {
    let mut stage = Stage::new();
    for second in 1..60 {
        stage.talk(at(1_000 * second));
        let asked = (0..10).filter(|tenth| stage.poll(at(1_000 * second + 100 * tenth)).is_some()).count();
        assert!(asked == 0 || second < 12, "second {second}: until the pauses are known, one may ask");
    }
}

#[test]
fn lost_packets_of_a_move_are_made_good() {
    for lost in 0..4 {
        let mut stage = Stage::new();
        stage.client.probe.on_address_changed(at(0));
        let there = client_address(2);
        let mut packets = 0;
        for tick in 0..400 {
            let now = at(10 * tick);
            let Some(packet) = stage.poll(now) else { continue };
            packets += 1;
            if packets == lost {
                continue;
            }
            let Ok(reply) = stage.handle(now, there, &packet) else { continue };
            if !reply.is_empty() && packets + 1 != lost {
                stage.challenge(now, reply);
            }
            if stage.address == there {
                break;
            }
        }
        assert_eq!(stage.address, there, "packet {lost} is lost");
    }
}

#[test]
fn what_was_recorded_moves_nothing_and_hinders_nothing() {
    let mut stage = Stage::new();
    let (there, thief) = (client_address(2), client_address(9));
    let wish = stage.wish(0);
    let challenge = stage.handle(at(0), there, &wish).unwrap();
    // A thief copies the wish, and gets a challenge that it cannot answer.
    stage.handle(at(1), thief, &wish).unwrap();
    let response = stage.answer(10, challenge);
    // The answer from elsewhere, before and after the true one.
    assert_eq!(stage.handle(at(11), thief, &response), Err(DropReason::ChallengeNotAuthentic));
    stage.handle(at(12), there, &response).unwrap();
    assert_eq!(stage.handle(at(13), thief, &response), Err(DropReason::ChallengeNotAuthentic));
    assert_eq!(stage.handle(at(14), there, &response), Err(DropReason::ChallengeOutdated));
    assert_eq!(stage.address, there);

    // The client moves on. An old answer from its former address does not move it back there.
    stage.talk(at(20));
    let third = client_address(3);
    let former_wish = wish;
    let wish = stage.wish(30);
    stage.handle(at(30), there, &wish).unwrap(); // the wish is caught, and comes from the former address
    assert_eq!(stage.handle(at(31), thief, &former_wish), Err(DropReason::Replayed));
    assert_eq!(stage.handle(at(31), there, &response), Err(DropReason::ChallengeOutdated));
    let wish = stage.poll(at(300)).unwrap();
    let challenge = stage.handle(at(300), third, &wish).unwrap();
    let response = stage.answer(310, challenge);
    stage.handle(at(320), third, &response).unwrap();
    assert_eq!(stage.address, third);
}

#[test]
fn a_challenge_for_another_address_proves_nothing() {
    let mut stage = Stage::new();
    let (there, thief) = (client_address(2), client_address(9));
    // A thief catches the wish and lets it come from its own address. It passes the challenge on to the client.
    let wish = stage.wish(0);
    let challenge = stage.handle(at(0), thief, &wish).unwrap();
    let response = stage.answer(10, challenge);
    assert_eq!(stage.handle(at(20), there, &response), Err(DropReason::ChallengeNotAuthentic));
    // The client's next wish names the true address, and an older one that arrives late takes nothing from it.
    let mut wishes = (400..3_000).filter_map(|ms| stage.poll(at(ms)).filter(|packet| is_wish(packet)));
    let (late, wish) = (wishes.next().unwrap(), wishes.next().unwrap());
    let challenge = stage.handle(at(3_000), there, &wish).unwrap();
    let known = stage.moves;
    stage.handle(at(3_001), thief, &late).unwrap();
    assert_eq!((stage.moves, stage.address), (known, client_address(1)));
    assert_eq!(stage.handle(at(3_002), there, &response), Err(DropReason::ChallengeNotAuthentic));
    let response = stage.answer(3_003, challenge);
    stage.handle(at(3_004), there, &response).unwrap();
    assert_eq!(stage.address, there);
}

#[test]
fn forged_moves_are_refused_and_cost_no_more_than_their_budget() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    (options.requests_per_s, options.requests_burst) = (10, 40);
    let mut stage = Stage::new();
    let wish = stage.wish(0);
    let mut rng = fastrand::Rng::with_seed(4);
    stage.server.door = ServerHandshake::new(options, &mut random(5));
    for _ in 0..1_000 {
        let mut forged = wish.clone();
        let place = rng.usize(5..31);
        forged[place] ^= rng.u8(1..);
        let refused = stage.handle(at(0), client_address(9), &forged);
        assert!(refused.is_err() && stage.moves == Moves::default(), "{refused:?}");
    }
    let counters = stage.server.door.counters();
    assert_eq!(counters.dropped(DropReason::NotAuthentic), 40, "{counters:?}");
    assert_eq!((counters.moved, counters.move_challenged), (0, 0));
    // An unrequested challenge is not answered either.
    stage.handle(at(5_000), client_address(2), &wish).unwrap();
    let mut quiet = Stage::new();
    quiet.client.probe.on_challenge(at(0), &[0; 308]);
    assert_eq!(quiet.poll(at(10)), None);
}

#[test]
fn forged_answers_from_a_possible_new_address_cost_no_more_than_their_budget() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    (options.requests_per_s, options.requests_burst) = (10, 40);
    let (mut stage, there) = (Stage::new(), client_address(2));
    stage.server.door = ServerHandshake::new(options, &mut random(5));
    let wish = stage.wish(0);
    let challenge = stage.handle(at(0), there, &wish).unwrap();
    let response = stage.answer(10, challenge);
    let mut forged = response.clone();
    forged[100] ^= 1;
    for _ in 0..1_000 {
        assert!(stage.handle(at(10), there, &forged).is_err());
    }
    let dropped = |reason| stage.server.door.counters().dropped(reason);
    assert_eq!((dropped(DropReason::NotAuthentic), dropped(DropReason::TooManyRequests)), (40, 960));
    stage.handle(at(210), there, &response).unwrap();
    assert_eq!(stage.address, there);
}

#[test]
fn a_later_wish_from_a_third_address_replaces_an_unanswered_one() {
    let mut stage = Stage::new();
    let (second, third) = (client_address(2), client_address(3));
    let first = stage.wish(0);
    stage.handle(at(0), second, &first).unwrap(); // the challenge is lost
    let later = stage.poll(at(300)).unwrap();
    let challenge = stage.handle(at(300), third, &later).unwrap();
    let response = stage.answer(310, challenge);
    stage.handle(at(320), third, &response).unwrap();
    assert_eq!(stage.address, third);
}

#[test]
fn copies_of_a_wish_from_other_addresses_do_not_hinder_the_move() {
    let mut stage = Stage::new();
    let there = client_address(2);
    let wish = stage.wish(0);
    // Someone on the way copies the wish. Some copies overtake it, some come after it.
    (100..200).for_each(|thief| drop(stage.handle(at(10), client_address(thief), &wish)));
    let challenge = stage.handle(at(20), there, &wish).expect("the wish counts though copies came first");
    (200..300).for_each(|thief| drop(stage.handle(at(30), client_address(thief), &wish)));
    let response = stage.answer(40, challenge);
    stage.handle(at(60), there, &response).expect("the answer counts though copies came in between");
    assert_eq!(stage.address, there);
}

#[test]
fn challenges_of_copies_that_are_passed_on_to_the_client_do_not_displace_its_own() {
    let (mut stage, there) = (Stage::new(), client_address(2));
    let wish = stage.wish(0);
    let genuine = stage.handle(at(20), there, &wish).unwrap();
    let mut copies = (100..130).map(|thief| stage.handle(at(20), client_address(thief), &wish).unwrap());
    let (foreign, later): (Vec<_>, Vec<_>) = (copies.by_ref().take(20).collect(), copies.collect());
    stage.challenge(at(40), genuine);
    // Challenges are not protected from replay. One that is known is not answered again.
    (0..100).for_each(|_| stage.challenge(at(40), foreign[0].clone()));
    foreign.iter().for_each(|challenge| stage.challenge(at(40), challenge.clone()));
    let answers: Vec<_> = std::iter::from_fn(|| stage.poll(at(40))).collect();
    assert_eq!(answers.len(), 8, "a bound for what others can make it send");
    answers.iter().for_each(|answer| drop(stage.handle(at(60), there, answer)));
    assert_eq!(stage.address, there);
    // Later ones take the places of those that were answered. All are repeated once, and then it asks again.
    foreign.iter().for_each(|challenge| stage.challenge(at(90), challenge.clone()));
    assert_eq!(stage.poll(at(90)), None, "all of them have come before");
    later.iter().for_each(|challenge| stage.challenge(at(100), challenge.clone()));
    assert_eq!(std::iter::from_fn(|| stage.poll(at(100))).count(), 8);
    let repeated: Vec<_> = std::iter::from_fn(|| stage.poll(at(300))).collect();
    assert!(repeated.len() == 8 && !repeated.iter().any(|packet| is_wish(packet)));
    assert!(std::iter::from_fn(|| stage.poll(at(700))).map(|packet| is_wish(&packet)).eq([true]));
}

#[test]
fn a_wish_moves_a_connection_once() {
    let (there, thief) = (client_address(2), client_address(9));
    for (first, second) in [(there, thief), (thief, there)] {
        let mut stage = Stage::new();
        let wish = stage.wish(0);
        // A copy of the wish is challenged too, and the thief passes that challenge on. The client answers both.
        let challenges = [there, thief].map(|from| stage.handle(at(20), from, &wish).unwrap());
        let [to_there, to_thief] = challenges.map(|challenge| stage.answer(40, challenge));
        let answer = |from| if from == there { &to_there } else { &to_thief };
        stage.handle(at(60), first, answer(first)).unwrap();
        assert_eq!(stage.handle(at(61), second, answer(second)), Err(DropReason::ChallengeOutdated));
        assert_eq!(stage.handle(at(62), second, &wish), Err(DropReason::Replayed));
        assert_eq!((stage.address, stage.server.door.counters().moved), (first, 1));
        // If the thief was faster, the client's next wish brings the connection back.
        let wish = (63..1_000).find_map(|ms| stage.poll(at(ms)).filter(|packet| is_wish(packet))).unwrap();
        let challenge = stage.handle(at(1_000), there, &wish).unwrap();
        let response = stage.answer(1_000, challenge);
        stage.handle(at(1_000), there, &response).unwrap();
        assert_eq!(stage.address, there);
    }
}

#[test]
fn a_challenge_for_another_client_proves_nothing() {
    let (mut stage, there) = (Stage::new(), client_address(2));
    let wish = stage.wish(0);
    let challenge = stage.handle(at(0), there, &wish).unwrap();
    let response = stage.answer(10, challenge);
    stage.server.connected[0].1.client_id += 1;
    assert_eq!(stage.handle(at(20), there, &response), Err(DropReason::ChallengeNotAuthentic));
    stage.server.connected[0].1.client_id -= 1;
    assert_eq!(stage.handle(at(20), there, &response), Ok(Vec::new()));
}

#[test]
fn challenges_that_have_come_before_are_not_answered_in_a_later_attempt() {
    let (mut stage, there) = (Stage::new(), client_address(2));
    let wish = stage.wish(0);
    let old: Vec<_> = (100..140).map(|thief| stage.handle(at(0), client_address(thief), &wish).unwrap()).collect();
    for challenge in &old {
        stage.challenge(at(10), challenge.clone());
        while stage.poll(at(10)).is_some() {}
    }
    stage.talk(at(20));
    let wish = stage.wish(1_000);
    let genuine = stage.handle(at(1_010), there, &wish).unwrap();
    old.iter().for_each(|challenge| stage.challenge(at(1_020), challenge.clone()));
    stage.challenge(at(1_020), genuine);
    let answers: Vec<_> = std::iter::from_fn(|| stage.poll(at(1_020))).collect();
    assert_eq!(answers.len(), 1);
    stage.handle(at(1_030), there, &answers[0]).unwrap();
    assert_eq!(stage.address, there);
}

#[test]
fn too_many_challenges_at_once_displace_neither_the_first_nor_the_newest() {
    for before in 0..50 {
        let (mut stage, there) = (Stage::new(), client_address(2));
        let wish = stage.wish(0);
        let mut challenges: Vec<_> =
            (100..150).map(|thief| stage.handle(at(0), client_address(thief), &wish).unwrap()).collect();
        challenges.insert(before, stage.handle(at(0), there, &wish).unwrap());
        challenges.into_iter().for_each(|challenge| stage.challenge(at(10), challenge));
        let answers: Vec<_> = std::iter::from_fn(|| stage.poll(at(10))).collect();
        assert_eq!(answers.len(), 8);
        answers.iter().for_each(|answer| drop(stage.handle(at(20), there, answer)));
        assert_eq!(stage.address == there, !(4..47).contains(&before), "{before}");
    }
}

#[test]
fn a_client_asks_again_however_many_challenges_come() {
    let (mut stage, thief) = (Stage::new(), client_address(9));
    let mut wish = stage.wish(0);
    let mut asked = Vec::new();
    // A thief copies each wish every 100 ms, and passes the challenges on.
    for ms in (0..10_000).step_by(100) {
        let challenge = stage.handle(at(ms), thief, &wish).unwrap();
        stage.challenge(at(ms), challenge);
        while let Some(packet) = stage.poll(at(ms)) {
            if is_wish(&packet) {
                asked.push(ms);
                wish = packet;
            }
        }
    }
    let mut pauses = asked.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(asked.len() > 10 && pauses.all(|pause| (200..=800).contains(&pause)), "{asked:?}");
}

#[test]
fn an_answer_counts_although_a_later_wish_has_come_from_elsewhere() {
    let mut stage = Stage::new();
    let (there, thief) = (client_address(2), client_address(9));
    let wish = stage.wish(0);
    let challenge = stage.handle(at(150), there, &wish).unwrap();
    // The client asks again before the challenge is back. A copy of that overtakes it.
    let again = stage.poll(at(200)).unwrap();
    stage.handle(at(240), thief, &again).unwrap();
    let response = stage.answer(300, challenge);
    stage.handle(at(450), there, &response).unwrap();
    assert_eq!(stage.address, there);
}

#[test]
fn a_wish_and_the_answer_to_its_challenge_count_for_five_seconds() {
    let lasts = MOVE_TIME.as_millis() as u64;
    for (wait, answered, copied) in
        [(lasts - 1, Ok(Vec::new()), Ok(())), (lasts, Err(DropReason::MoveNotOurs), Err(DropReason::Replayed))]
    {
        let (mut stage, there) = (Stage::new(), client_address(2));
        let wish = stage.wish(0);
        let challenge = stage.handle(at(0), there, &wish).unwrap();
        let response = stage.answer(10, challenge);
        assert_eq!(stage.handle(at(wait), client_address(3), &wish).map(drop), copied);
        assert_eq!(stage.handle(at(wait), there, &response), answered);
    }
    // A later wish does not make an older challenge last longer.
    let (mut stage, there) = (Stage::new(), client_address(2));
    let wish = stage.wish(0);
    let challenge = stage.handle(at(0), there, &wish).unwrap();
    let again = stage.poll(at(200)).unwrap();
    let response = stage.answer(210, challenge);
    stage.handle(at(lasts), there, &again).unwrap();
    assert_eq!(stage.handle(at(lasts), there, &response), Err(DropReason::ChallengeOutdated));
}

#[test]
fn answers_that_arrive_in_another_order_leave_the_connection_at_the_later_address() {
    let (mut stage, second, third) = (Stage::new(), client_address(2), client_address(3));
    let answer_from = |stage: &mut Stage, now, from| {
        let wish = stage.wish(now);
        let challenge = stage.handle(at(now), from, &wish).unwrap();
        stage.answer(now, challenge)
    };
    let first = answer_from(&mut stage, 0, second);
    let later = answer_from(&mut stage, 100, third);
    stage.handle(at(200), second, &first).unwrap();
    stage.handle(at(201), third, &later).unwrap();
    assert_eq!(stage.handle(at(202), second, &first), Err(DropReason::ChallengeOutdated));
    assert_eq!((stage.address, stage.server.door.counters().moved), (third, 2));
}

#[test]
fn an_answer_without_a_wish_costs_no_decryption() {
    let (mut stage, there) = (Stage::new(), client_address(2));
    let wish = stage.wish(0);
    let challenge = stage.handle(at(0), there, &wish).unwrap();
    let mut forged = stage.answer(10, challenge);
    forged[200] ^= 1;
    stage.moves = Moves::default();
    assert_eq!(stage.handle(at(10), there, &forged), Err(DropReason::MoveNotOurs));
}
