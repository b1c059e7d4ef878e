//! The threads that serve the peers of a door.
//!
//! ```text
//! the door's task   receives, finds the peer of each datagram, and takes the peers out that have something to do
//! each thread       | peer 3, peer 7, .. |  | peer 9, peer 12, .. |      opens, handles, writes, seals, sends
//! the door's task   puts the peers back, counts, and makes their next appointments
//! ```
//! A peer is served by one thread at a time, so what it is sent does not depend on their number. Few peers are served by
//! the door's task alone: to wake a thread takes some microseconds, as long as a datagram.

use std::sync::{Mutex, PoisonError};

use throng_gateway_engine::Helpers;
use throng_link::netcode::DropReason;

use super::super::udp::Outlet;

/// More threads than this would only wait for the door's task.
pub(super) const THREADS_MAX: usize = 16;
/// Peers for which it pays to wake a thread, at least. Measured on 2 cores (EPYC), with a datagram for each: of 32 peers, two
/// threads take 1.5 times as long as one; of 64, 0.74 times; of 500, 0.60.
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
    /// As many threads as there are outlets: the helpers, and the one that calls.
    pub(super) fn new(helpers: Box<dyn Helpers>, outlets: Vec<Outlet>) -> Crew {
        let hand = |outlet| Hand { outlet, dropped: Vec::new(), too_fast: 0 };
        Crew { helpers, hands: outlets.into_iter().map(hand).collect() }
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
        let row = items.len().div_ceil(threads).max(1);
        let rows = Mutex::new(items.chunks_mut(row).zip(&mut self.hands));
        let next = || rows.lock().unwrap_or_else(PoisonError::into_inner).next();
        self.helpers.run(threads - 1, &|| {
            while let Some((items, hand)) = next() {
                items.iter_mut().for_each(|item| job(hand, item));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use throng_wire::Time;

    use super::super::super::helpers;
    use super::super::super::udp::DatagramSocket;
    use super::super::peer::Packet;
    use super::super::peer::tests::{Served, peer};
    use super::*;

    /// A door's crew.
    fn crew(threads: u32) -> Crew {
        let (socket, inbox) = DatagramSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), 1).expect("a free port");
        let socket = Arc::new(socket);
        let helpers = helpers::at_most(THREADS_MAX, threads).expect("there are threads");
        let outlets = (0..=helpers.count()).map(|_| inbox.outlet(&socket).expect("one more handle")).collect();
        Crew::new(helpers, outlets)
    }

    /// Gives each peer something to say, and serves all.
    fn serve(crew: &mut Crew, all: &mut [Served], now: Time) {
        for one in &*all {
            let _ = one.to_peer.try_send(Packet::Entries(vec![7; 200].into(), 200));
        }
        crew.share(all, |hand, one| assert!(one.peer.turn(now, &mut hand.outlet)));
    }

    #[tokio::test]
    async fn several_threads_serve_each_peer_once() {
        for (threads, peers) in [(1, 70), (2, 1), (2, 63), (2, 64), (3, 150)] {
            let clients: Vec<UdpSocket> =
                (0..peers).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a free port")).collect();
            let mut all: Vec<Served> = clients.iter().map(|client| peer(client.local_addr().expect("bound"))).collect();
            let mut crew = crew(threads);
            serve(&mut crew, &mut all, Time(1_000));
            let at_work = crew.hands().filter(|hand| hand.outlet.calls() > 0).count();
            assert!(at_work <= threads as usize && at_work >= (peers / PEERS_PER_THREAD).min(1), "{at_work}");
            for client in &clients {
                client.set_nonblocking(true).expect("it can be set");
                let mut bytes = [0; 2_000];
                let lens: Vec<usize> = std::iter::from_fn(|| client.recv(&mut bytes).ok()).collect();
                assert!(matches!(lens[..], [200..300]), "{threads} threads, {peers} peers: {lens:?}");
            }
        }
    }

    /// `cargo test --release -p throng-gateway --lib crew -- --ignored --nocapture`
    #[tokio::test]
    #[ignore = "measures for some seconds, on a machine with nothing else to do"]
    async fn the_time_of_one_thread_and_of_two() {
        let clients: Vec<UdpSocket> = (0..500).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a free port")).collect();
        for count in [16, 32, 64, 128, 500] {
            let mut towns = [1, 2].map(|threads| {
                let peers = clients[..count].iter().map(|client| peer(client.local_addr().expect("bound")));
                (crew(threads), peers.collect::<Vec<Served>>(), Duration::ZERO)
            });
            const ROUNDS: u64 = 400;
            for round in 1..=ROUNDS {
                for (crew, all, spent) in &mut towns {
                    let began = Instant::now();
                    serve(crew, all, Time(round * 33_000));
                    *spent += began.elapsed();
                }
            }
            let [one, two] = towns.map(|(.., spent)| spent.as_micros() as f64 / ROUNDS as f64 / count as f64);
            println!("{count} peers: {one:.2} µs each with one thread, {two:.2} with two, {:.2} of it", two / one);
        }
    }
}
