use throng::USER_DATA_LEN;

use super::edge_seat::{ENDS_WAITING_MAX, GONE_MAX};
use super::*;
use crate::talk::{Former, JOIN_BYTES, UNSEEN_MAX, join_bytes};

/// An edge connects. It has no players.
fn connect(origin: &mut Origin, connection: ConnectionId) {
    origin.edges.insert(connection.index, EdgeSeat::new(connection));
}

fn server(network: &throng::net::MemoryNetwork, key: throng::Key) -> Server {
    let kinds = throng::Schema::builder().kind::<ToOrigin>().kind::<ToEdge>();
    let driver = Box::new(network.endpoint(([10, 0, 0, 1], 40_000).into()).unwrap());
    let options = throng::ServerOptions::new(1, key);
    Server::new(driver, std::sync::Arc::new(kinds.build().unwrap()), options).unwrap()
}

#[test]
fn those_who_come_and_go_while_it_is_closed_leave_nothing_behind() {
    let mut origin = Origin::new(OriginOptions { keep_ticks: 90, ..OriginOptions::default() });
    origin.set_open(false);
    for generation in 1..=50 {
        let edge = ConnectionId { index: 0, generation };
        connect(&mut origin, edge);
        origin.events.push_back(OriginEvent::EdgeJoined(edge));
        for session in 0..200 {
            let (body, player) = (vec![0; JOIN_BYTES], PlayerId { edge, session });
            let talk = ToOrigin { session, number: u64::from(session % 10), body, ..ToOrigin::default() };
            assert!(origin.join(player, &talk));
            origin.push(OriginEvent::Input { player, number: 1, bytes: Vec::new() });
            assert!(session % 4 == 0 || origin.leave(player, false));
            assert!(origin.events.len() < 700 && origin.poll_event().is_none());
        }
        if generation < 50 {
            origin.end(edge);
        }
    }
    origin.set_open(true);
    // Session 190 was the client of 180 and has left, as 194 was that of 184, and 198 that of 188.
    let told: Vec<OriginEvent> = std::iter::from_fn(|| origin.poll_event()).collect();
    let edge = ConnectionId { index: 0, generation: 50 };
    let joined = told.iter().filter_map(|event| match event {
        OriginEvent::Joined { player, .. } => Some(player.session),
        _ => None,
    });
    assert_eq!((told[0].clone(), joined.collect::<Vec<_>>()), (OriginEvent::EdgeJoined(edge), vec![192, 196]));
    assert_eq!(told.len(), 1 + 2 * 2);
    // It has told something, so it stays open.
    origin.set_open(false);
    origin.end(edge);
    assert_eq!(std::iter::from_fn(|| origin.poll_event()).count(), 2 + 1);
    assert_eq!(origin.clients.len(), 2);
}

#[test]
fn messages_for_a_closed_origin_have_room_up_to_64_mib() {
    let mut origin = Origin::new(OriginOptions::default());
    origin.set_open(false);
    let most = CLOSED_BYTES_MAX / BODY_MAX;
    assert!((0..most).all(|_| origin.has_room_for(BODY_MAX)) && origin.counters.dropped == 0);
    assert!(!origin.has_room_for(BODY_MAX) && origin.has_room_for(CLOSED_BYTES_MAX % BODY_MAX));
    origin.set_open(true);
    assert!((0..2 * most).all(|_| origin.has_room_for(BODY_MAX)));
}

#[test]
fn states_of_those_who_arrive_at_a_closed_origin_have_room_up_to_64_mib_and_the_others_are_turned_away() {
    let mut origin = Origin::new(OriginOptions::default());
    origin.set_open(false);
    let edge = ConnectionId { index: 0, generation: 1 };
    connect(&mut origin, edge);
    let former = Former { origin: 1, object: ObjectId { index: 9, generation: 1 } };
    let arrive = |origin: &mut Origin, session, state: &[u8]| {
        let body = Arrival { user_data: &[0; USER_DATA_LEN], token_ends_s: 0, former, state }.bytes();
        let talk = ToOrigin { number: session, body, ..ToOrigin::default() };
        assert!(origin.arrive(PlayerId { edge, session: session as u32 }, &talk));
    };
    let state = vec![7; STATE_MAX];
    let most = (CLOSED_BYTES_MAX / STATE_MAX) as u64;
    (0..most).for_each(|session| arrive(&mut origin, session, &state));
    assert_eq!((origin.counters.arrivals_refused, origin.players().count() as u64), (0, most));
    arrive(&mut origin, most, &state);
    assert_eq!((origin.counters.arrivals_refused, origin.players().count() as u64), (1, most));
    let told = origin.edges[&0].waiting.back().expect("a message waits for the edge");
    assert_eq!((Down::of(told.step), u64::from(told.session)), (Some(Down::End), most));
    // One that leaves makes room.
    assert!(origin.leave(PlayerId { edge, session: 3 }, false));
    arrive(&mut origin, most + 1, &state);
    origin.set_open(true);
    let arrived = std::iter::from_fn(|| origin.poll_event()).filter(|it| matches!(it, OriginEvent::Arrived { .. }));
    assert_eq!(arrived.count() as u64, most);
    (0..2 * most).for_each(|session| arrive(&mut origin, most + 2 + session, &state));
    assert_eq!(origin.counters.arrivals_refused, 1, "it is open");
}

#[test]
fn a_state_that_waits_at_a_closed_origin_is_counted_also_when_its_client_joins_by_another_edge() {
    let mut origin = Origin::new(OriginOptions::default());
    origin.set_open(false);
    let edges = [0, 1].map(|index| ConnectionId { index, generation: 1 });
    edges.iter().for_each(|edge| connect(&mut origin, *edge));
    let former = Former { origin: 1, object: ObjectId { index: 9, generation: 1 } };
    let body = Arrival { user_data: &[0; USER_DATA_LEN], token_ends_s: 0, former, state: b"hero" }.bytes();
    let talk = ToOrigin { number: 5, body, ..ToOrigin::default() };
    assert!(origin.arrive(PlayerId { edge: edges[0], session: 1 }, &talk) && origin.waiting_bytes == 4);
    let talk = ToOrigin { number: 5, body: vec![0; JOIN_BYTES], ..ToOrigin::default() };
    assert!(origin.join(PlayerId { edge: edges[1], session: 1 }, &talk));
    assert!(matches!(origin.events.back(), Some(OriginEvent::Arrived { player, .. }) if player.edge == edges[1]));
    assert_eq!(origin.waiting_bytes, 4);
}

#[test]
fn messages_of_those_who_leave_a_closed_origin_make_room_for_others() {
    let mut server =
        server(&throng::net::MemoryNetwork::new(throng::net::Condition::NONE, 1).unwrap(), throng::random_key());
    let most = CLOSED_BYTES_MAX / BODY_MAX;
    let mut origin = Origin::new(OriginOptions { events_max: 2 * most, ..OriginOptions::default() });
    origin.set_open(false);
    let edge = ConnectionId { index: 0, generation: 1 };
    connect(&mut origin, edge);
    let mut say = |origin: &mut Origin, session, bytes| {
        let talk = ToOrigin { step: Up::Say as u8, session, body: vec![0; bytes], ..ToOrigin::default() };
        assert!(origin.hear(&mut server, edge, talk, Time(0)));
    };
    for session in 0..5 {
        let talk = ToOrigin { number: session.into(), body: vec![0; JOIN_BYTES], ..ToOrigin::default() };
        assert!(origin.join(PlayerId { edge, session }, &talk));
        let last = if session == 4 { most - 4 * (most / 5) } else { most / 5 };
        (0..last).for_each(|_| say(&mut origin, session, BODY_MAX));
    }
    say(&mut origin, 0, 1);
    assert_eq!((origin.waiting_bytes, origin.counters.dropped), (CLOSED_BYTES_MAX, 1));
    // Few have left, and their events are removed when their room is needed.
    for session in 0..2 {
        assert!(origin.leave(PlayerId { edge, session }, false));
        (0..most / 5).for_each(|_| say(&mut origin, 2, BODY_MAX));
    }
    say(&mut origin, 2, 1);
    assert_eq!((origin.waiting_bytes, origin.counters.dropped), (CLOSED_BYTES_MAX, 2));
    // A message that finds no room among the events takes no bytes.
    assert!(origin.leave(PlayerId { edge, session: 3 }, false));
    origin.forget_gone();
    let before = origin.waiting_bytes;
    (0..2 * most).for_each(|_| say(&mut origin, 2, 1));
    let told = origin.events.iter().filter(|event| event.payload_bytes() == 1).count();
    assert!(told < 2 * most && origin.waiting_bytes == before + told, "{told} of {}", 2 * most);
}

/// The edge sent it to another server, and back.
#[test]
fn a_player_who_comes_again_while_it_is_closed_is_told_once() {
    let mut origin = Origin::new(OriginOptions { keep_ticks: 90, ..OriginOptions::default() });
    origin.set_open(false);
    let edge = ConnectionId { index: 0, generation: 1 };
    connect(&mut origin, edge);
    let player = PlayerId { edge, session: 7 };
    for number in 0..4_u64 {
        let talk = ToOrigin { session: 7, number, body: vec![0; JOIN_BYTES], ..ToOrigin::default() };
        assert!(origin.join(player, &talk));
        assert!(number == 3 || origin.leave(player, false));
    }
    origin.set_open(true);
    let told: Vec<OriginEvent> = std::iter::from_fn(|| origin.poll_event()).collect();
    assert!(matches!(told[..], [OriginEvent::Joined { player: of, client_id: 3, .. }] if of == player), "{told:?}");
}

#[test]
fn a_state_that_was_let_go_is_kept_until_the_player_has_arrived_or_its_time_is_over() {
    let edge = ConnectionId { index: 0, generation: 1 };
    let player = PlayerId { edge, session: 7 };
    let body = vec![0; JOIN_BYTES];
    let let_go = |keep_ticks| {
        let mut origin = Origin::new(OriginOptions { keep_ticks, ..OriginOptions::default() });
        connect(&mut origin, edge);
        assert!(origin.join(player, &ToOrigin { number: 5, body: body.clone(), ..ToOrigin::default() }));
        origin.set_stage(player, Stage::Free { to: 1 });
        origin.release(player, ObjectId { index: 3, generation: 1 }, b"hero").expect("it is free to go");
        origin
    };
    let again = PlayerId { session: 8, ..player };
    let join = |lane| ToOrigin { number: 5, lane, body: body.clone(), ..ToOrigin::default() };
    let after_tick = |origin: &mut Origin, tick| {
        origin.tick = Tick(tick);
        origin.forget();
    };
    assert!(let_go(0).let_go.is_empty() && !let_go(9_000).let_go.is_empty());
    type End<'a> = &'a dyn Fn(&mut Origin);
    let ends: [(&str, End<'_>); 6] = [
        ("the edge says that it has arrived", &|origin| assert!(origin.leave(player, false))),
        ("its client comes while its edge may deliver it", &|origin| {
            assert!(origin.join(again, &join(GOES_ON)));
            assert!(matches!(origin.events.pop_back(), Some(OriginEvent::Joined { client_id: 5, .. })));
        }),
        ("its client has come to another server before", &|origin| origin.forget_client(5, 0, 0)),
        ("its client has arrived elsewhere", &|origin| origin.forget_client(5, 0, LET_GO_ONLY)),
        ("it comes back", &|origin| {
            let former = Former { origin: 1, object: ObjectId { index: 9, generation: 1 } };
            let body = Arrival { user_data: &[0; USER_DATA_LEN], token_ends_s: 0, former, state: b"newer" }.bytes();
            assert!(origin.arrive(again, &ToOrigin { number: 5, body, ..ToOrigin::default() }));
        }),
        ("its edge has gone, and its time is over", &|origin| {
            origin.end(edge);
            after_tick(origin, LET_GO_TICKS as u64 - 1);
            assert_eq!(origin.let_go.find(5), Some((1, true)));
            after_tick(origin, LET_GO_TICKS.into());
        }),
    ];
    for (words, end) in ends {
        let mut origin = let_go(9_000);
        after_tick(&mut origin, 0);
        end(&mut origin);
        assert!(origin.let_go.is_empty(), "{words}");
    }
    // Its edge has gone. The state is given to a client that was sent for it, and to nobody else.
    for (lane, state) in [(GOES_ON, Some(&b"hero"[..])), (0, None)] {
        let mut origin = let_go(9_000);
        origin.end(edge);
        let other = ConnectionId { index: 1, generation: 1 };
        connect(&mut origin, other);
        let player = PlayerId { edge: other, session: 1 };
        assert!(origin.join(player, &join(lane)) && origin.let_go.is_empty());
        let given = match origin.events.pop_back() {
            Some(OriginEvent::Arrived { state, former: None, client_id: 5, .. }) => Some(state),
            Some(OriginEvent::Joined { client_id: 5, .. }) => None,
            event => panic!("{event:?}"),
        };
        assert_eq!(given.as_deref(), state);
    }
}

#[test]
fn a_client_that_has_arrived_elsewhere_may_have_come_back_and_be_away() {
    let mut origin = Origin::new(OriginOptions { keep_ticks: 90, ..OriginOptions::default() });
    let edge = ConnectionId { index: 0, generation: 1 };
    connect(&mut origin, edge);
    let player = PlayerId { edge, session: 7 };
    let join = ToOrigin { number: 5, body: join_bytes(&[0; USER_DATA_LEN], 20), ..ToOrigin::default() };
    assert!(origin.join(player, &join));
    origin.end(edge);
    // An edge that was out of reach for long may say it, after the client has come back by a newer connection through another edge.
    for (token_ends_s, lane) in [(20, LET_GO_ONLY), (19, 0)] {
        origin.forget_client(5, token_ends_s, lane);
        assert!(!origin.events.contains(&OriginEvent::Left(player)) && origin.clients.contains_key(&5));
    }
    origin.forget_client(5, 20, 0);
    assert!(origin.events.contains(&OriginEvent::Left(player)) && origin.clients.is_empty());
}

#[test]
fn states_without_room_are_counted() {
    let mut origin = Origin::new(OriginOptions { keep_ticks: 90, ..OriginOptions::default() });
    let edge = ConnectionId { index: 0, generation: 1 };
    connect(&mut origin, edge);
    let player = PlayerId { edge, session: 7 };
    let seat = Seat { client_id: 5, stage: Stage::Free { to: 1 }, ..Seat::default() };
    assert!(origin.seat_player(player, seat));
    while origin.let_go.keep(origin.let_go.len() as u64 + 100, (player, 1), b"") {}
    origin.release(player, ObjectId { index: 3, generation: 1 }, b"hero").expect("it goes all the same");
    assert_eq!((origin.counters.let_go_refused, origin.let_go.find(5)), (1, None));
}

#[test]
fn players_for_whose_return_there_is_no_room_are_counted() {
    let (mut origin, edges) = with_two_edges();
    let join = ToOrigin { number: 5, body: join_bytes(&[0; USER_DATA_LEN], 20), ..ToOrigin::default() };
    for (others, kept, refused) in [(KEPT_MAX - 1, true, 0), (KEPT_MAX, false, 1)] {
        let player = PlayerId { edge: edges[0], session: 1 };
        assert!(origin.join(player, &join));
        origin.clients.extend((100..100 + others as u64).map(|client_id| (client_id, (player, None))));
        let seat = origin.edges.get_mut(&edges[0].index).and_then(|edge| edge.players.remove(&1)).expect("it is here");
        origin.part(player, seat, true);
        assert_eq!((origin.clients.contains_key(&5), origin.counters.kept_refused), (kept, refused));
    }
}

/// The edge has to know of each refused cell before its versions count.
#[test]
fn cells_that_are_refused_while_there_is_no_room_are_named_later() {
    let mut seat = EdgeSeat::new(ConnectionId { index: 0, generation: 1 });
    let cell = |x| ChannelKey::Cell { grid: 0, cell: [x, 0, 0] };
    seat.unseen.extend((0..=UNSEEN_MAX as i32).map(|x| (cell(x), 3)));
    seat.waiting.extend((0..WAITING_MAX).map(|_| ToEdge::default()));
    seat.tell_unseen();
    assert!(seat.waiting.len() == WAITING_MAX && seat.refusals == 0 && !seat.accept_looks(0));
    seat.waiting.clear();
    seat.tell_unseen();
    assert!(seat.accept_looks(2) && !seat.accept_looks(1));
    let mut named = 0;
    for (talk, number) in seat.waiting.iter().zip(1..) {
        let (refusals, looks) = split_refusals(&talk.body).unwrap();
        assert_eq!((Down::of(talk.step), refusals), (Some(Down::Unseen), number));
        named += read_looks(looks).unwrap().count();
    }
    assert_eq!((seat.waiting.len(), named), (2, UNSEEN_MAX + 1));
}

/// A client that has connected again, to another edge, while nothing fits into the queue of its former edge.
#[test]
fn an_end_that_finds_no_room_is_told_later_and_an_edge_with_too_many_is_sent_away() {
    let network = throng::net::MemoryNetwork::new(throng::net::Condition::NONE, 1).unwrap();
    let key = throng::random_key();
    let mut server = server(&network, key.clone());
    let token = throng::ServerOptions::new(1, key)
        .token_issuer()
        .issue_with(1, &[server.local_address()], &[0; USER_DATA_LEN])
        .unwrap();
    let driver = Box::new(network.endpoint(([10, 0, 0, 2], 40_000).into()).unwrap());
    let schema = server.schema().clone();
    let mut client = throng::Client::new(driver, token, schema, throng::ClientOptions::default(), Time(0)).unwrap();
    let at = |tick: u64| Time(0).after(std::time::Duration::from_millis(33 * tick));
    let mut pass = |server: &mut Server, now: Time| {
        server.receive(now).unwrap();
        server.tick(now);
        client.update(now).unwrap();
        std::iter::from_fn(|| server.poll_event()).find_map(|event| match event {
            ServerEvent::Connected { connection, .. } => Some(connection),
            _ => None,
        })
    };
    let edge = (0..30).find_map(|tick| pass(&mut server, at(tick))).expect("it connects");
    let other = ConnectionId { index: 99, generation: 1 };
    let mut origin = Origin::new(OriginOptions::default());
    connect(&mut origin, edge);
    connect(&mut origin, other);
    let join = |session| ToOrigin { session, number: 5, body: vec![0; JOIN_BYTES], ..ToOrigin::default() };
    assert!(origin.join(PlayerId { edge, session: 7 }, &join(7)));
    let fill = |origin: &mut Origin| {
        origin.seat(edge).unwrap().waiting.extend((0..WAITING_MAX).map(|_| ToEdge::default()));
    };
    fill(&mut origin);
    assert!(origin.join(PlayerId { edge: other, session: 1 }, &join(1)));
    let seat = origin.seat(edge).unwrap();
    assert_eq!((seat.waiting.len(), seat.ends.len(), seat.players.len()), (WAITING_MAX, 1, 0));
    seat.waiting.clear();
    seat.tell_ends();
    let told: Vec<_> = seat.waiting.iter().map(|talk| (Down::of(talk.step), talk.session)).collect();
    assert_eq!((told, seat.ends.len()), (vec![(Some(Down::End), 7)], 0));
    assert!(origin.join(PlayerId { edge, session: 8 }, &join(8)));
    fill(&mut origin);
    for (ends, tick, is_sent_away) in [(ENDS_WAITING_MAX - 1, 40, false), (ENDS_WAITING_MAX, 60, true)] {
        let seat = origin.seat(edge).unwrap();
        seat.ends = (0..ends as u32).map(|session| (session + 100, "")).collect();
        seat.players.insert(8, Seat { client_id: 5, ..Seat::default() });
        origin.clients.insert(5, (PlayerId { edge, session: 8 }, None));
        let message = server.received(server.encoded(&join(if is_sent_away { 3 } else { 2 })).unwrap());
        let event = ServerEvent::Message { connection: other, message, lane: 0 };
        assert!(origin.take(&mut server, event, at(tick)).is_none());
        (tick + 1..tick + 20).for_each(|tick| assert_eq!(pass(&mut server, at(tick)), None));
        assert_eq!(server.connections().any(|connection| connection == edge), !is_sent_away, "{ends} wait");
    }
}

/// An origin that keeps players who are away, with two edges.
fn with_two_edges() -> (Origin, [ConnectionId; 2]) {
    let mut origin = Origin::new(OriginOptions { keep_ticks: 90, ..OriginOptions::default() });
    let edges = [0, 1].map(|index| ConnectionId { index, generation: 1 });
    edges.iter().for_each(|edge| connect(&mut origin, *edge));
    (origin, edges)
}

/// The player of a client arrives by one edge, and the client has joined by another one.
#[test]
fn of_a_player_who_arrives_and_one_of_the_same_client_who_is_here_the_one_with_the_newer_token_stays() {
    let cases = [
        (20, Stage::Here, 10, 1),
        (20, Stage::Here, 20, 1),
        (20, Stage::Here, 21, 2),
        (20, Stage::Released, 19, 1),
        (20, Stage::Released, 20, 2),
        (20, Stage::Released, 21, 2),
    ];
    for (joined_s, stage, arrived_s, stays) in cases {
        let (mut origin, edges) = with_two_edges();
        let [joined, arrived] = [(edges[1], 1), (edges[0], 2)].map(|(edge, session)| PlayerId { edge, session });
        let body = join_bytes(&[0; USER_DATA_LEN], joined_s);
        assert!(origin.join(joined, &ToOrigin { number: 5, body, ..ToOrigin::default() }));
        if stage == Stage::Released {
            origin.set_stage(joined, Stage::Free { to: 2 });
            origin.release(joined, ObjectId { index: 3, generation: 1 }, b"newer").expect("it is free to go");
        }
        let former = Former { origin: 1, object: ObjectId { index: 9, generation: 1 } };
        let arrival = Arrival { user_data: &[0; USER_DATA_LEN], token_ends_s: arrived_s, former, state: b"hero" };
        assert!(origin.arrive(arrived, &ToOrigin { number: 5, body: arrival.bytes(), ..ToOrigin::default() }));
        let told = format!("{joined_s} s, {stage:?}, and {arrived_s} s");
        assert_eq!(origin.players().map(|player| player.session).collect::<Vec<_>>(), [stays], "{told}");
        let waiting = origin.edges.values().flat_map(|seat| &seat.waiting);
        let ended = waiting.filter(|talk| Down::of(talk.step) == Some(Down::End)).map(|talk| talk.session);
        assert_eq!(ended.collect::<Vec<_>>(), [3 - stays], "{told}");
        assert_eq!(origin.let_go.find(5).is_some(), (stage, stays) == (Stage::Released, 1), "{told}");
        let has_arrived = origin.events.iter().any(|event| matches!(event, OriginEvent::Arrived { .. }));
        let has_left = origin.events.iter().any(|event| matches!(event, OriginEvent::Left(_)));
        assert_eq!(has_left, stays == 2, "{told}: the game was not told of one who is turned away");
        assert_eq!((has_arrived, origin.clients[&5].0.session), (stays == 2, stays), "{told}");
    }
}

/// An edge that has found its origin again tells of all its clients, also of those that have left it without a word.
#[test]
fn a_client_that_is_here_by_a_newer_token_is_not_ended_by_one_that_joins_with_an_older_token() {
    for (stage, joined_s, stays) in [
        (Stage::Here, 19, 1),
        (Stage::Here, 20, 2),
        (Stage::Here, 21, 2),
        (Stage::Released, 19, 1),
        (Stage::Released, 20, 2),
    ] {
        let (mut origin, edges) = with_two_edges();
        let join = |origin: &mut Origin, index: usize, token_ends_s| {
            let player = PlayerId { edge: edges[index], session: index as u32 + 1 };
            let body = join_bytes(&[0; USER_DATA_LEN], token_ends_s);
            assert!(origin.join(player, &ToOrigin { number: 5, body, ..ToOrigin::default() }));
            player
        };
        let first = join(&mut origin, 0, 20);
        if stage == Stage::Released {
            origin.set_stage(first, Stage::Free { to: 2 });
            origin.release(first, ObjectId { index: 3, generation: 1 }, b"newer").expect("it is free to go");
        }
        let events = origin.events.len();
        join(&mut origin, 1, joined_s);
        let told = format!("{stage:?}, {joined_s} s");
        assert_eq!(origin.players().map(|player| player.session).collect::<Vec<_>>(), [stays], "{told}");
        let waiting = origin.edges.values().flat_map(|seat| &seat.waiting);
        let ended = waiting.filter(|talk| Down::of(talk.step) == Some(Down::End)).map(|talk| talk.session);
        assert_eq!(ended.collect::<Vec<_>>(), [3 - stays], "{told}");
        assert_eq!((origin.events.len() > events, origin.clients[&5].0.session), (stays == 2, stays), "{told}");
        assert_eq!(origin.let_go.find(5).is_some(), (stage, stays) == (Stage::Released, 1), "{told}");
    }
}

/// The client has two connections, to different edges. The question about the older one may come last.
#[test]
fn a_client_that_is_here_by_a_newer_token_is_not_ended_by_a_question_about_an_older_one() {
    for (asked_s, stays) in [(19, true), (20, false), (21, false)] {
        // Nothing is kept of players.
        let (mut origin, edges) = with_two_edges();
        origin.options.keep_ticks = 0;
        let body = join_bytes(&[0; USER_DATA_LEN], 20);
        let first = PlayerId { edge: edges[0], session: 1 };
        assert!(origin.join(first, &ToOrigin { number: 5, body, ..ToOrigin::default() }));
        let seek = |body: &[u8]| ToOrigin { number: 5, body: body.to_vec(), ..ToOrigin::default() };
        let asking = PlayerId { edge: edges[1], session: 2 };
        assert!(!origin.tell_whether_it_is_here(asking, &seek(&[0; 7])), "a token's end has 8 bytes");
        assert!(origin.tell_whether_it_is_here(asking, &seek(&u64::to_le_bytes(asked_s))));
        assert_eq!(origin.players().count(), usize::from(stays), "{asked_s}");
        let answer = origin.edges[&edges[1].index].waiting.back().and_then(|talk| HasAnswer::read(&talk.body));
        assert_eq!(answer, Some(if stays { HasAnswer::Here } else { HasAnswer::Not }), "{asked_s}");
    }
}

/// Its client had connected again, to another edge, which has died.
#[test]
fn a_player_who_is_away_is_not_replaced_by_one_who_arrives_with_an_older_token() {
    for (arrived_s, is_replaced) in [(19, false), (20, true), (21, true)] {
        let (mut origin, edges) = with_two_edges();
        let [kept, arrived] = edges.map(|edge| PlayerId { edge, session: 1 });
        let body = join_bytes(&[0; USER_DATA_LEN], 20);
        assert!(origin.join(kept, &ToOrigin { number: 5, body, ..ToOrigin::default() }));
        origin.end(kept.edge);
        assert!(origin.events.contains(&OriginEvent::Away(kept)));
        let former = Former { origin: 1, object: ObjectId { index: 9, generation: 1 } };
        let arrival = Arrival { user_data: &[0; USER_DATA_LEN], token_ends_s: arrived_s, former, state: b"hero" };
        assert!(origin.arrive(arrived, &ToOrigin { number: 5, body: arrival.bytes(), ..ToOrigin::default() }));
        let told = format!("{arrived_s} s");
        assert_eq!(origin.events.contains(&OriginEvent::Left(kept)), is_replaced, "{told}");
        assert_eq!(origin.clients[&5].0, if is_replaced { arrived } else { kept }, "{told}");
        let ended = origin.edges[&1].waiting.iter().any(|talk| Down::of(talk.step) == Some(Down::End));
        assert_eq!((ended, origin.players().count()), (!is_replaced, usize::from(is_replaced)), "{told}");
    }
}

#[test]
fn a_player_who_is_away_is_not_taken_over_by_a_client_that_joins_with_an_older_token() {
    for (joined_s, is_taken_over) in [(19, false), (20, true), (21, true)] {
        let (mut origin, edges) = with_two_edges();
        let [kept, joined] = edges.map(|edge| PlayerId { edge, session: 1 });
        let mut join = |player, token_ends_s| {
            let body = join_bytes(&[0; USER_DATA_LEN], token_ends_s);
            assert!(origin.join(player, &ToOrigin { number: 5, body, ..ToOrigin::default() }));
            origin.end(kept.edge);
        };
        join(kept, 20);
        join(joined, joined_s);
        let told = format!("{joined_s} s");
        let returned = OriginEvent::Returned { player: joined, former: kept };
        assert_eq!(origin.events.contains(&returned), is_taken_over, "{told}");
        assert_eq!(origin.clients[&5].0, if is_taken_over { joined } else { kept }, "{told}");
        let ended = origin.edges[&1].waiting.iter().any(|talk| Down::of(talk.step) == Some(Down::End));
        assert_eq!(ended, !is_taken_over, "{told}");
    }
}

#[test]
fn sessions_without_a_seat_are_remembered_up_to_a_limit() {
    let mut seat = EdgeSeat::new(ConnectionId { index: 0, generation: 1 });
    (0..=GONE_MAX as u32).for_each(|session| seat.note_gone(session));
    assert_eq!((seat.gone.len(), seat.gone.first()), (GONE_MAX, Some(&1)));
}

#[test]
fn an_edge_whose_borders_did_not_count_while_cells_were_refused_says_them_again() {
    let mut seat = EdgeSeat::new(ConnectionId { index: 0, generation: 1 });
    seat.unseen.insert(ChannelKey::Custom(1), 3);
    assert!(!seat.accept_looks(0));
    // There is room for the cell before the edge has heard that there was none.
    seat.unseen.clear();
    seat.tell_unseen();
    let [told] = seat.waiting.make_contiguous() else { panic!("one message: {:?}", seat.waiting) };
    assert_eq!(split_refusals(&told.body), Some((1, &[][..])));
    assert!(!seat.accept_looks(0) && seat.accept_looks(1));
    seat.tell_unseen();
    assert_eq!(seat.waiting.len(), 1, "there is one such message");
}
