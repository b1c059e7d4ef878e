//! The threads that serve the peers of a door.
//!
//! ```text
//! the door's task   receives, finds the peer of each datagram, and takes the peers out that have something to do
//! each thread       | peer 3, peer 7, .. |  | peer 9, peer 12, .. |      opens, handles, writes, seals, sends
//! the door's task   puts the peers back, counts, and makes their next appointments
//! ```
//! A peer is served by one thread at a time, so what it is sent does not depend on their number. Few peers are served by
//! the door's task alone: to wake a thread takes some microseconds, as long as a datagram.

use std::io;
use std::sync::Arc;

use throng_gateway_engine::{Helpers, share_parts};
use throng_link::netcode::DropReason;

use super::super::udp::{DatagramSocket, Inbox, Outlet};

/// Peers for which it pays to wake a thread, at least. Measured on 2 cores of an AMD EPYC, with a datagram for each: for 16 peers, two
/// threads take 1.36 times as long as one; for 32, 0.85 times; for 64, 0.65; for 500, 0.58.
const PEERS_PER_THREAD: usize = 32;

/// The threads, and what each of them works with.
pub(super) struct Crew {
    helpers: Box<dyn Helpers>,
    /// One for each thread, the task's own first.
    hands: Vec<Hand>,
}

/// The things of one thread.
pub(super) struct Hand {
    pub(super) outlet: Outlet,
    /// Why datagrams were dropped.
    pub(super) dropped: Vec<DropReason>,
    /// Datagrams with movement for which their connection had no room.
    pub(super) too_fast: usize,
}

impl Crew {
    /// The helpers, and the thread that calls: each with a way out of the socket.
    pub(super) fn new(helpers: Box<dyn Helpers>, socket: &Arc<DatagramSocket>, inbox: &Inbox) -> io::Result<Crew> {
        let hand = |_| Ok(Hand { outlet: inbox.outlet(socket)?, dropped: Vec::new(), too_fast: 0 });
        let hands = (0..=helpers.count()).map(hand).collect::<io::Result<_>>()?;
        Ok(Crew { helpers, hands })
    }

    /// The number of threads.
    pub(super) fn len(&self) -> usize {
        self.hands.len()
    }

    /// The task's own.
    pub(super) fn own(&mut self) -> &mut Hand {
        &mut self.hands[0]
    }

    /// All of them.
    pub(super) fn hands(&mut self) -> impl Iterator<Item = &mut Hand> {
        self.hands.iter_mut()
    }

    /// Calls `job` for each of the items, in several threads if they are many.
    pub(super) fn share<T: Send>(&mut self, items: &mut [T], job: impl Fn(&mut Hand, &mut T) + Sync) {
        let threads = (items.len() / PEERS_PER_THREAD).clamp(1, self.hands.len());
        self.share_among(threads, items, job);
    }

    /// The same, in so many threads, or in as many as there are.
    fn share_among<T: Send>(&mut self, threads: usize, items: &mut [T], job: impl Fn(&mut Hand, &mut T) + Sync) {
        let row = items.len().div_ceil(threads).max(1);
        let rows = items.chunks_mut(row).zip(&mut self.hands);
        share_parts(rows, (threads - 1, &*self.helpers), |(items, hand)| {
            items.iter_mut().for_each(|item| job(hand, item));
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::time::{Duration, Instant};

    use throng_channeld::link::LinkEnd;
    use throng_channeld::{Header, put_message};
    use throng_wire::Time;

    use super::super::super::helpers;
    use super::super::super::udp::SENDERS_MAX;
    use super::super::peer::Packet;
    use super::super::peer::tests::{Served, peer};
    use super::*;

    /// A door's crew.
    fn crew(threads: u32) -> Crew {
        let (socket, inbox) = DatagramSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), 1).expect("a free port");
        let helpers = helpers::at_most(SENDERS_MAX, threads).expect("there are threads");
        Crew::new(helpers, &Arc::new(socket), &inbox).expect("more handles")
    }

    /// Gives a peer something to say.
    fn order(one: &mut Served) {
        let mut entries = Vec::new();
        put_message(&mut entries, Header::new(0, 100), &[7; 200]);
        let bytes = entries.len();
        one.to_peer.try_send(Packet::Entries(entries.into(), bytes)).unwrap_or_else(|_| panic!("there is room"));
    }

    #[tokio::test]
    async fn several_threads_serve_each_peer_once() {
        for (threads, peers) in [(1, 70), (2, 1), (2, 63), (2, 64), (3, 150)] {
            let clients: Vec<UdpSocket> =
                (0..peers).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a free port")).collect();
            let mut all: Vec<Served> = clients.iter().map(|client| peer(client.local_addr().expect("bound"))).collect();
            let mut crew = crew(threads);
            all.iter_mut().for_each(order);
            crew.share(&mut all, |hand, one| assert!(one.peer.turn(Time(1_000), &mut hand.outlet)));
            // Each row has an outlet of its own, whichever thread serves it.
            let rows = crew.hands().filter(|hand| hand.outlet.calls() > 0).count();
            assert_eq!(rows, (peers / PEERS_PER_THREAD).clamp(1, threads as usize), "{peers} peers");
            for client in &clients {
                client.set_nonblocking(true).expect("it can be set");
                let mut bytes = [0; 2_000];
                let lens: Vec<usize> = std::iter::from_fn(|| client.recv(&mut bytes).ok()).collect();
                assert!(matches!(lens[..], [200..300]), "{threads} threads, {peers} peers: {lens:?}");
            }
        }
    }

    /// A peer, and a client that acknowledges what it is sent.
    struct Played {
        served: Served,
        end: LinkEnd,
        socket: UdpSocket,
    }

    impl Played {
        fn new() -> Played {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            socket.set_nonblocking(true).expect("it can be set");
            let mut served = peer(socket.local_addr().expect("bound"));
            let connected = served.client.take().expect("it has just connected");
            Played { served, end: LinkEnd::new(connected, false, Time(0)).expect("good options"), socket }
        }

        /// How many datagrams it was sent.
        fn acknowledge(&mut self, now: Time, outlet: &mut Outlet) -> u64 {
            let (mut bytes, mut datagram, mut heard) = ([0; 2_000], Vec::new(), 0);
            while let Ok(count) = self.socket.recv(&mut bytes) {
                self.end.handle(now, &mut bytes[..count]).expect("sound");
                heard += 1;
            }
            while self.end.poll_message().expect("sound").is_some() {}
            while self.end.poll_transmit(now, &mut datagram) {
                self.served.peer.hear((now, now), &mut datagram, outlet).expect("it is sealed");
            }
            heard
        }
    }

    /// `cargo test --release -p throng-gateway --lib crew -- --ignored --nocapture`
    #[tokio::test]
    #[ignore = "measures for some seconds, on a machine with nothing else to do"]
    async fn the_time_of_one_thread_and_of_two() {
        const ROUNDS: u64 = 300;
        for count in [16, 32, 64, 128, 500] {
            let mut towns = [1, 2].map(|threads| {
                let all: Vec<Played> = (0..count).map(|_| Played::new()).collect();
                (threads, crew(threads as u32), all, Duration::ZERO)
            });
            for now in (1..=ROUNDS).map(|round| Time(round * 33_000)) {
                for (threads, crew, all, spent) in &mut towns {
                    all.iter_mut().for_each(|one| order(&mut one.served));
                    let began = Instant::now();
                    crew.share_among(*threads, all, |hand, one| {
                        assert!(one.served.peer.turn(now, &mut hand.outlet));
                    });
                    *spent += began.elapsed();
                    let outlet = &mut crew.own().outlet;
                    let heard: u64 = all.iter_mut().map(|one| one.acknowledge(now, outlet)).sum();
                    assert!(heard >= count, "{heard} datagrams for {count} peers");
                }
            }
            let [one, two] = towns.map(|(.., spent)| spent.as_micros() as f64 / (ROUNDS * count) as f64);
            println!("{count} peers: {one:.2} µs each with one thread, {two:.2} with two, {:.2} of it", two / one);
        }
    }
}
