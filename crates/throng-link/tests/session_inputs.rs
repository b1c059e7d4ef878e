//! Inputs come at most once and in order, and all of them come while losses stay below the redundancy.

use std::sync::Arc;

use crate::session_pair::{CLIENT, Link, Pair, SERVER, packet};
use throng_link::session::{InputError, MAX_QUEUED_INPUTS, Session, SessionOptions};
use throng_wire::Time;

fn play(pair: &mut Pair, inputs: u32) {
    for number in 0..inputs {
        pair.ends[CLIENT].session.push_input(&number.to_le_bytes()).expect("it is short");
        pair.step();
    }
    pair.run(2);
}

#[test]
fn inputs_come_in_order_and_at_most_once_through_a_storm() {
    throng_seeds::for_seeds(100, |seed| {
        let first_input = u32::MAX - 300;
        let link = Link { delay_ms: 30, jitter_ms: 60, loss_percent: 30, duplicate_percent: 10, ..Link::default() };
        let mut pair = Pair::new(seed, SessionOptions { first_input, ..SessionOptions::default() }, link);
        play(&mut pair, 1000);
        let got: Vec<u32> =
            pair.ends[SERVER].inputs.iter().map(|input| input.number.wrapping_sub(first_input)).collect();
        assert!(got.is_sorted_by(|a, b| a < b), "seed {seed}: {got:?}");
        for input in &pair.ends[SERVER].inputs {
            assert_eq!(input.bytes(), input.number.wrapping_sub(first_input).to_le_bytes(), "seed {seed}");
        }
        assert!(got.len() > 700, "seed {seed}: only {} of 1000 came", got.len());
        let counters = pair.ends[SERVER].session.statistics().counters;
        assert_eq!(counters.inputs_received + counters.inputs_lost, 1000, "seed {seed}: {counters:?}");
        assert_eq!(counters.inputs_received, got.len() as u64);
    });
}

#[test]
fn no_input_is_lost_while_fewer_packets_in_a_row_are_lost_than_it_is_repeated() {
    let mut pair = Pair::new(1, SessionOptions { input_redundancy: 4, ..SessionOptions::default() }, Link::default());
    for number in 0..1000u32 {
        pair.ends[CLIENT].link.loss_percent = if number % 4 == 3 { 0 } else { 100 };
        pair.ends[CLIENT].session.push_input(&number.to_le_bytes()).expect("it is short");
        pair.step();
    }
    pair.settle();
    assert_eq!(pair.ends[SERVER].inputs.len(), 1000);
    assert_eq!(pair.ends[SERVER].session.statistics().counters.inputs_lost, 0);
}

#[test]
fn the_last_input_is_sent_again_until_it_has_arrived() {
    throng_seeds::for_seeds(100, |seed| {
        let mut pair =
            Pair::new(seed, SessionOptions::default(), Link { delay_ms: 20, loss_percent: 50, ..Link::default() });
        pair.ends[CLIENT].session.push_input(b"jump").expect("it is short");
        let came = pair.run_until(10, |pair| !pair.ends[SERVER].inputs.is_empty());
        assert!(came, "seed {seed}: the input never came");
        assert!(pair.run_until(10, |pair| pair.ends[CLIENT].session.input_acked() == Some(0)), "seed {seed}: no reply");
    });
}

#[test]
fn arrived_inputs_are_not_repeated() {
    let mut pair = Pair::new(1, SessionOptions { input_redundancy: 16, ..SessionOptions::default() }, Link::default());
    play(&mut pair, 1000);
    let counters = pair.ends[CLIENT].session.statistics().counters;
    assert!(counters.bytes_sent < 45 * counters.packets_sent, "{} bytes", counters.bytes_sent);
    assert_eq!(pair.ends[CLIENT].session.input_acked(), Some(999));
}

#[test]
fn a_player_whose_inputs_are_not_processed_for_an_hour_stays_connected() {
    let mut pair = Pair::new(1, SessionOptions::default(), Link::default());
    play(&mut pair, 20);
    assert_eq!(pair.ends[CLIENT].session.input_acked(), Some(19));
    // The player is dead: inputs go on to arrive, and the game processes none of them.
    pair.ends[SERVER].is_processing_inputs = false;
    for number in 20..220_020u32 {
        pair.ends[CLIENT].session.push_input(&number.to_le_bytes()).expect("it is short");
        if number % 50 == 0 {
            pair.step();
        }
    }
    pair.run(2);
    assert_eq!(pair.ends[CLIENT].session.input_acked(), Some(19));
    pair.ends[SERVER].is_processing_inputs = true;
    play(&mut pair, 1);
    assert_eq!(pair.ends[CLIENT].session.input_acked(), Some(220_020), "the game processes inputs again");
}

#[test]
fn an_input_that_is_too_long_is_refused() {
    let mut pair = Pair::new(1, SessionOptions::default(), Link::default());
    assert_eq!(pair.ends[CLIENT].session.push_input(&[0; 65]), Err(InputError::TooLarge));
    assert_eq!(pair.ends[CLIENT].session.push_input(&[0; 64]), Ok(0));
}

#[test]
fn a_game_that_polls_no_inputs_finds_the_newest_ones_and_the_count_of_the_others() {
    let options = Arc::new(SessionOptions::default());
    let mut client = Session::new(Arc::clone(&options), Time(0)).expect("good options");
    let mut server = Session::new(options, Time(0)).expect("good options");
    let all = MAX_QUEUED_INPUTS as u64 + 6;
    for sequence in 0..all {
        let now = Time::from_millis(10 * sequence);
        client.push_input(&[7]).expect("it is short");
        let payload = packet(&mut client, now, sequence, 0);
        server.handle_packet(now, sequence, &payload).expect("it is honest");
    }
    let counters = server.statistics().counters;
    assert_eq!((counters.inputs_received, counters.inputs_overflowed), (all, 6));
    let numbers: Vec<u32> = std::iter::from_fn(|| server.poll_input()).map(|input| input.number).collect();
    assert_eq!(numbers, Vec::from_iter(6..all as u32));
}

#[test]
fn lost_inputs_are_counted_one_by_one_and_the_longest_arrive_whole() {
    let mut pair = Pair::new(1, SessionOptions { input_redundancy: 1, ..SessionOptions::default() }, Link::default());
    for number in 0..100u8 {
        pair.ends[CLIENT].link.loss_percent = if number % 10 == 0 { 100 } else { 0 };
        pair.ends[CLIENT].session.push_input(&[number; 64]).expect("it is not too long");
        pair.step();
    }
    pair.run(1);
    assert!(pair.ends[SERVER].inputs.iter().all(|input| input.bytes() == [input.number as u8; 64]));
    let counters = pair.ends[SERVER].session.statistics().counters;
    assert_eq!((counters.inputs_received, counters.inputs_lost), (90, 10));
}
