//! How a session behaves over time on some paths, second by second, as a table.
//!
//! The bounds of the other tests leave room. This one leaves none: each change of the controller, of its constants or of
//! the arithmetic of a session changes the table. If the new table is better, replace `session_curves.txt` by what the
//! test prints.

use std::fmt::Write as _;

use crate::session_pair::{CLIENT, Link, Pair, SERVER, numbered};
use throng_link::session::{LaneId, Rest, SessionOptions};

const EXPECTED: &str = include_str!("session_curves.txt");

/// A path with its events. `act` is called before each tick of 10 ms.
struct Curve {
    name: &'static str,
    seconds: u32,
    options: SessionOptions,
    link: Link,
    act: fn(&mut Pair, tick: u32),
}

fn options() -> SessionOptions {
    SessionOptions { rate_bytes_per_s: 400_000, initial_rate_bytes_per_s: 64_000, ..SessionOptions::default() }
}

fn narrow(rate_bytes_per_s: u64, queue_ms: u64) -> Link {
    Link { delay_ms: 25, rate_bytes_per_s, queue_ms, ..Link::default() }
}

/// The server has more to say than any path carries.
fn is_full(pair: &mut Pair, _: u32) {
    pair.ends[SERVER].offered_bytes = 100_000;
}

/// Messages of many lengths on two lanes, state and inputs.
fn talk(pair: &mut Pair, tick: u32) {
    let server = &mut pair.ends[SERVER];
    server.offered_bytes = 300;
    if tick.is_multiple_of(50) {
        let bytes = if tick.is_multiple_of(400) { 60_000 } else { 500 };
        server.session.send(LaneId(0), &numbered(tick, bytes)).expect("there is room");
        server.session.send(LaneId(1), &numbered(tick, 900)).expect("there is room");
    }
    if tick.is_multiple_of(3) {
        pair.ends[CLIENT].session.push_input(&tick.to_le_bytes()).expect("there is room");
    }
}

fn curves() -> Vec<Curve> {
    let curve = |name, link, act| Curve { name, seconds: 30, options: options(), link, act };
    let short = |name, link, act| Curve { seconds: 8, ..curve(name, link, act) };
    vec![
        short("a wide path", Link { delay_ms: 25, ..Link::default() }, is_full),
        curve("a shallow buffer", narrow(100_000, 30), is_full),
        curve("a deep buffer", narrow(100_000, 1_000), is_full),
        short("a lossy path", Link { delay_ms: 25, loss_percent: 4, ..Link::default() }, is_full),
        curve("a lossy path that becomes good", Link { loss_percent: 12, ..narrow(150_000, 60) }, |pair, tick| {
            is_full(pair, tick);
            if tick == 1_500 {
                pair.ends[SERVER].link.loss_percent = 0;
            }
        }),
        short("packets out of order", Link { jitter_ms: 40, ..narrow(200_000, 100) }, is_full),
        curve("an outage of two seconds", narrow(100_000, 100), |pair, tick| {
            is_full(pair, tick);
            for end in &mut pair.ends {
                end.link.loss_percent = if (1_000..1_200).contains(&tick) { 100 } else { 0 };
            }
        }),
        curve("a download in the same deep buffer from 5 s to 20 s", narrow(100_000, 400), |pair, tick| {
            is_full(pair, tick);
            if (500..2_000).contains(&tick) {
                // It grows for two seconds and then halves, as a window does.
                pair.fill_queue(SERVER, u64::from(200 + tick % 200));
            }
        }),
        curve("a download in the same shallow buffer from 5 s to 20 s", narrow(100_000, 80), |pair, tick| {
            is_full(pair, tick);
            if (500..2_000).contains(&tick) {
                pair.fill_queue(SERVER, u64::from(tick % 80));
            }
        }),
        curve("a path that becomes narrow and wide again", narrow(200_000, 100), |pair, tick| {
            is_full(pair, tick);
            pair.ends[SERVER].link.rate_bytes_per_s = if (800..1_800).contains(&tick) { 40_000 } else { 200_000 };
        }),
        curve("a detour of 80 ms", narrow(150_000, 100), |pair, tick| {
            is_full(pair, tick);
            pair.ends[SERVER].link.delay_ms = if (800..2_000).contains(&tick) { 105 } else { 25 };
        }),
        curve("little to say, then much", narrow(150_000, 100), |pair, tick| {
            pair.ends[SERVER].offered_bytes = if tick < 1_500 { 150 } else { 100_000 };
        }),
        curve("a path that becomes shorter and longer again", narrow(150_000, 100), |pair, tick| {
            is_full(pair, tick);
            pair.ends[SERVER].link.longest_bytes = if (500..1_500).contains(&tick) { 1_100 } else { 0 };
        }),
        curve("a short path beside losses", Link { loss_percent: 3, ..narrow(150_000, 100) }, |pair, tick| {
            pair.ends[SERVER].offered_bytes = if tick % 300 < 200 { 100_000 } else { 400 };
            pair.ends[SERVER].link.longest_bytes = 1_150;
        }),
        curve("messages on two lanes, inputs, and 5 % loss", Link { loss_percent: 5, ..narrow(60_000, 100) }, talk),
        curve("a large rest beside messages", narrow(60_000, 100), |pair, tick| {
            talk(pair, tick);
            is_full(pair, tick);
            pair.ends[SERVER].offered_as = Rest::Large;
        }),
        curve(
            "hardly anything to say, over a lossy path",
            Link { loss_percent: 20, ..narrow(60_000, 100) },
            |pair, tick| {
                if tick.is_multiple_of(170) {
                    pair.ends[SERVER].session.send(LaneId(0), &numbered(tick, 2_000)).expect("there is room");
                    pair.ends[CLIENT].session.push_input(&tick.to_le_bytes()).expect("there is room");
                }
            },
        ),
    ]
}

fn table(curve: &Curve) -> String {
    let mut pair = Pair::new(1, curve.options.clone(), curve.link);
    let mut text = format!(
        "{}\n  second  kB/s  sent  lost  late     bytes  received  resent  size  way ms  inputs  back\n",
        curve.name
    );
    let mut before = pair.ends[SERVER].session.statistics().counters;
    let mut received_before = 0;
    for second in 1..=curve.seconds {
        for step in 0..100 {
            (curve.act)(&mut pair, (second - 1) * 100 + step);
            pair.step();
        }
        let server = pair.ends[SERVER].session.statistics();
        let (now, client) = (server.counters, pair.ends[CLIENT].session.statistics().counters);
        let received = pair.ends[CLIENT].messages.iter().map(|(_, message)| message.len() as u64).sum::<u64>()
            + pair.ends[CLIENT].replication_bytes_received;
        let _ = writeln!(
            text,
            "  {second:>6}  {:>4}  {:>4}  {:>4}  {:>4}  {:>8}  {:>8}  {:>6}  {:>4}  {:>6}  {:>6}  {:>4}",
            server.sending_rate_bytes_per_s / 1_000,
            now.packets_sent - before.packets_sent,
            now.packets_lost - before.packets_lost,
            now.packets_spurious - before.packets_spurious,
            now.bytes_sent - before.bytes_sent,
            received - received_before,
            now.message_bytes_resent - before.message_bytes_resent,
            server.datagram_bytes,
            server.round_trip.map_or(0, |time| time.as_millis()),
            now.inputs_received,
            client.packets_sent,
        );
        (before, received_before) = (now, received);
    }
    text + "\n"
}

#[test]
fn each_path_has_its_curve() {
    let tables: String = curves().iter().map(table).collect();
    for (number, (line, expected)) in tables.trim_end().lines().zip(EXPECTED.trim_end().lines()).enumerate() {
        assert_eq!(line, expected, "line {} of session_curves.txt; the new tables:\n{tables}", number + 1);
    }
    assert_eq!(tables.trim_end().lines().count(), EXPECTED.trim_end().lines().count(), "the new tables:\n{tables}");
}
