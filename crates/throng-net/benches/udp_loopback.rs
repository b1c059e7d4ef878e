//! The kernel's cost for datagrams on loopback: nanoseconds per call and per datagram, medians over rounds.
//!
//! `cargo bench -p throng-net --bench udp_loopback`, best with `taskset -c 1` in front. One thread does both ends; only
//! the calls named in a line are timed. On loopback a send includes the delivery into the receiver's queue.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use throng_net::{
    Condition, Conditioner, Driver, InFlightLimit, LightUdpSocket, ReceiveBuffers, Segmentation, Transmit, UdpDriver,
    UdpOptions,
};
use throng_wire::Time;

const NOW: Time = Time(0);
const SEGMENT_BYTES: usize = 1_220;
const SOCKETS: usize = 1_000;
const BURST_SEGMENTS: usize = 3;

fn main() {
    // `cargo test --benches` runs this without `--bench`: then once is enough.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 60 } else { 1 };
    println!("{:<58} {:>9} {:>12}", "", "ns/call", "ns/datagram");
    for segmentation in [Segmentation::Offload, Segmentation::OneByOne] {
        for receiver in [Receiver::Drains, Receiver::Full, Receiver::WithoutGro] {
            for segments in [1, 2, 3, 8] {
                batch_sends(rounds, segmentation, receiver, segments);
            }
        }
    }
    crowd(rounds);
    conditioner(rounds);
}

/// The path of the sent datagrams.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Receiver {
    /// A socket with GRO that is emptied between the timed sends.
    Drains,
    /// A socket with GRO whose queue is full: the kernel drops.
    Full,
    /// A socket without GRO, emptied: the kernel cuts batches up within the send.
    WithoutGro,
}

/// One peer, 16 batches per round.
fn batch_sends(rounds: usize, segmentation: Segmentation, receiver: Receiver, segments: usize) {
    const BATCHES: usize = 16;
    let mut with_gro = UdpDriver::bind(loopback(), &UdpOptions::server()).expect("a free port");
    let without_gro = UdpSocket::bind(loopback()).expect("a free port");
    without_gro.set_nonblocking(true).expect("a socket setting");
    let to = match receiver {
        Receiver::WithoutGro => without_gro.local_addr().expect("a bound socket"),
        _ => with_gro.local_address(),
    };
    let mut options = UdpOptions::server();
    options.segmentation = segmentation;
    let mut sender = UdpDriver::bind(loopback(), &options).expect("a free port");
    let bytes = vec![7; segments * SEGMENT_BYTES];
    let transmit = Transmit { to, bytes: &bytes, segment_bytes: SEGMENT_BYTES };
    if receiver == Receiver::Full {
        (0..8_000).for_each(|_| drop(sender.send(NOW, &transmit)));
    }
    let mut costs = Costs::default();
    for _ in 0..rounds * 10 {
        let start = Instant::now();
        for _ in 0..BATCHES {
            sender.send(NOW, &transmit).expect("loopback takes it");
        }
        costs.add(start, BATCHES);
        match receiver {
            Receiver::Drains => drop(with_gro.receive(NOW, &mut |_, _, _| {}).expect("loopback")),
            Receiver::WithoutGro => while without_gro.recv(&mut [0; SEGMENT_BYTES]).is_ok() {},
            Receiver::Full => {}
        }
    }
    let how = match segmentation {
        Segmentation::Offload => "GSO send",
        Segmentation::OneByOne => "single sends",
    };
    costs.print(&format!("{how}, {segments} x {SEGMENT_BYTES} B, receiver {receiver:?}"), segments);
}

/// One server and many connected sockets.
fn crowd(rounds: usize) {
    let mut server = UdpDriver::bind(loopback(), &UdpOptions::server()).expect("a free port");
    println!("server socket buffers: {:?}", server.socket_buffers().expect("the kernel tells"));
    let address = server.local_address();
    let open = |_| LightUdpSocket::connect(address, &UdpOptions::client()).expect("enough file descriptors");
    let mut bots: Vec<LightUdpSocket> = (0..SOCKETS).map(open).collect();
    let mut buffers = ReceiveBuffers::new(4);
    let input = Transmit::single(address, &[1; 60]);
    let burst_bytes = vec![7; BURST_SEGMENTS * SEGMENT_BYTES];

    let [mut send, mut drain, mut fan_out, mut burst, mut empty] = [(); 5].map(|()| Costs::default());
    for _ in 0..rounds {
        let start = Instant::now();
        for bot in &mut bots {
            bot.send(NOW, &input).expect("loopback takes it");
        }
        send.add(start, SOCKETS);

        let start = Instant::now();
        let received = server.receive(NOW, &mut |_, _, _| {}).expect("loopback");
        drain.add(start, received.max(1));

        let start = Instant::now();
        for bot in &bots {
            let transmit = Transmit { to: bot.local_address(), bytes: &burst_bytes, segment_bytes: SEGMENT_BYTES };
            server.send(NOW, &transmit).expect("loopback takes it");
        }
        fan_out.add(start, SOCKETS);

        let start = Instant::now();
        let mut received = 0;
        for bot in &mut bots {
            received += bot.receive_with(NOW, &mut buffers, &mut |_, _, _| {}).expect("loopback");
        }
        burst.add(start, SOCKETS);
        assert_eq!(received, SOCKETS * BURST_SEGMENTS);

        let start = Instant::now();
        for bot in &mut bots {
            bot.receive_with(NOW, &mut buffers, &mut |_, _, _| {}).expect("loopback");
        }
        empty.add(start, SOCKETS);
    }
    send.print("send 60 B, connected, from 1,000 sockets", 1);
    drain.print("server: batched receive of 60 B from 1,000 sockets", 1);
    fan_out.print("server: GSO send of 3 x 1,220 B to 1,000 sockets", BURST_SEGMENTS);
    burst.print("receive of a 3 x 1,220 B burst, 1,000 sockets in turn", BURST_SEGMENTS);
    empty.print("receive of nothing, 1,000 sockets in turn", 1);
    let calls: u64 = bots.iter().map(|bot| bot.counters().receive_calls).sum();
    println!("{:<58} {:>9.2}", "receive calls per burst", calls as f64 / (rounds * SOCKETS) as f64 - 1.0);
}

/// The cost of a conditioned path beside the kernel: 1,000 paths, a burst each and tick.
fn conditioner(rounds: usize) {
    let open = |seed| {
        let condition: Condition = "4g".parse().expect("a preset");
        Conditioner::new(condition, seed, InFlightLimit::PEER).expect("a valid condition")
    };
    let mut ways: Vec<Conditioner> = (0..SOCKETS as u64).map(open).collect();
    let mut costs = Costs::default();
    for tick in 0..rounds as u64 {
        let now = Time::from_millis(tick * 33);
        let start = Instant::now();
        for way in &mut ways {
            (0..BURST_SEGMENTS).for_each(|_| way.push(now, &[7; SEGMENT_BYTES]));
            while way.pop(now).is_some() {}
        }
        costs.add(start, SOCKETS);
    }
    costs.print("conditioner `4g`: a burst of 3 in, what is due out", BURST_SEGMENTS);
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Nanoseconds per call, one figure per round.
#[derive(Default)]
struct Costs(Vec<f64>);

impl Costs {
    fn add(&mut self, start: Instant, calls: usize) {
        self.0.push(start.elapsed().as_nanos() as f64 / calls as f64);
    }

    fn print(mut self, what: &str, datagrams_per_call: usize) {
        self.0.sort_by(f64::total_cmp);
        let median = self.0[self.0.len() / 2];
        println!("{what:<58} {median:>9.0} {:>12.0}", median / datagrams_per_call as f64);
    }
}
