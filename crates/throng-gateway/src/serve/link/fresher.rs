//! Movement and the reliable lane beside each other, over paths that lose equally often and delay equally long: movement shows the newer
//! state. In virtual time: with real clocks, a busy machine slows one of the two connections down, and not always the
//! same one.

use std::net::UdpSocket;
use std::time::Duration;

use throng_channeld::link::LinkEnd;
use throng_channeld::message_type::CHANNEL_DATA_UPDATE;
use throng_channeld::{Header, put_message};
use throng_gateway_engine::port::{Datagrams as _, Ticket};
use throng_net::{Condition, Conditioner, InFlightLimit};
use throng_replica::SubscriptionId;
use throng_wire::{Tick, Time};

use super::super::udp::{DatagramSocket, Outlet};
use super::peer::Packet;
use super::peer::tests::{Served, peer};

const CHANNELS: u32 = 12;
const TICK_MS: u64 = 33;
const RUN_MS: u64 = 20_000;
/// Looks begin when the first states have arrived everywhere.
const FIRST_LOOK_MS: u64 = 1_000;

/// One way of 40 ms on which one datagram in twenty is lost.
const BAD_PATH: Condition = Condition { delay_us: 40_000, jitter_us: 4_000, loss: 0.05, ..Condition::NONE };

/// Both ends of a connection, and the path between them.
struct Player {
    served: Served,
    outlet: Outlet,
    end: LinkEnd,
    socket: UdpSocket,
    up: Conditioner,
    down: Conditioner,
    /// Bytes of entries that were given to the reliable lane.
    handed_bytes: u64,
    /// Datagrams that came from the peer's socket.
    came: u64,
    /// By channel: when the state that is shown was written, in ms.
    stamps: [u64; CHANNELS as usize],
    ages_ms: Vec<u64>,
}

impl Player {
    fn new(seed: u64, takes_movement: bool) -> Player {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
        let (from, inbox) = DatagramSocket::bind(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
        let mut served = peer(socket.local_addr().expect("bound"));
        let connected = served.client.take().expect("it has just connected");
        let way = |seed| Conditioner::new(BAD_PATH, seed, InFlightLimit::PEER).expect("sound");
        Player {
            outlet: inbox.outlet(&from.into()).expect("one more handle"),
            end: LinkEnd::new(connected, takes_movement, Time(0)).expect("good options"),
            served,
            socket,
            up: way(2 * seed),
            down: way(2 * seed + 1),
            handed_bytes: 0,
            came: 0,
            stamps: [0; CHANNELS as usize],
            ages_ms: Vec::new(),
        }
    }

    /// The engine sends the states of all channels, the way the client wants them. No movement of a channel is sent before all
    /// that is reliable of it has arrived, and before something reliable was said.
    fn write(&mut self, now_ms: u64) {
        let mut all = Vec::new();
        let datagrams = &self.served.datagrams;
        let takes_movement = datagrams.is_wanted() && self.handed_bytes > 0;
        for channel in 0..CHANNELS {
            let start = all.len();
            put_message(&mut all, Header::new(channel, CHANNEL_DATA_UPDATE), &now_ms.to_le_bytes());
            if takes_movement && datagrams.settled_bytes() == self.handed_bytes {
                let subscription = SubscriptionId::from_number(channel as u16);
                let ticket = Ticket { subscription, epoch: 1, tick: Tick(now_ms) };
                datagrams.send(ticket, self.handed_bytes, &all[start..]);
            }
        }
        if !takes_movement {
            let bytes = all.len();
            self.handed_bytes += bytes as u64;
            let is_taken = self.served.to_peer.try_send(Packet::Entries(all.into(), bytes)).is_ok();
            assert!(is_taken, "a peer that is served each millisecond has room");
        }
    }

    /// Moves everything that is due.
    fn step(&mut self, now: Time) {
        while let Some(arrival) = self.up.pop(now) {
            self.served.peer.hear((now, now), &mut arrival.bytes.to_vec(), &mut self.outlet).expect("it is honest");
        }
        assert!(self.served.peer.turn(now, &mut self.outlet), "it stays");
        let mut bytes = [0; 2_048];
        // All that was sent is fetched, so that no datagram waits in the kernel for a later step.
        while self.came < self.served.peer.packets_sent() {
            let count = self.socket.recv(&mut bytes).expect("loopback loses nothing");
            self.down.push(now, &bytes[..count]);
            self.came += 1;
        }
        while let Some(arrival) = self.down.pop(now) {
            self.end.handle(now, &mut arrival.bytes.to_vec()).expect("the gateway keeps the protocol");
        }
        while let Some(message) = self.end.poll_message().expect("the gateway keeps the protocol") {
            let stamp = u64::from_le_bytes(message.body[..].try_into().expect("a stamp"));
            let shown = &mut self.stamps[message.channel_id as usize];
            assert!(stamp > *shown, "{stamp} after {shown}");
            *shown = stamp;
        }
        let mut datagram = Vec::new();
        while self.end.poll_transmit(now, &mut datagram) {
            self.up.push(now, &datagram);
        }
    }

    fn look(&mut self, now_ms: u64) {
        self.ages_ms.extend(self.stamps.map(|stamp| now_ms - stamp));
    }

    fn percentile(&mut self, percent: usize) -> u64 {
        self.ages_ms.sort_unstable();
        self.ages_ms[self.ages_ms.len() * percent / 100]
    }
}

#[tokio::test]
async fn movement_is_fresher_than_the_reliable_lane_where_some_is_lost() {
    throng_seeds::for_seeds(4, |seed| {
        let mut players = [Player::new(2 * seed, true), Player::new(2 * seed + 1, false)];
        for now_ms in 1..RUN_MS {
            for player in &mut players {
                if now_ms % TICK_MS == 0 {
                    player.write(now_ms);
                }
                player.step(Time::from_millis(now_ms));
                if now_ms % 10 == 0 && now_ms >= FIRST_LOOK_MS {
                    player.look(now_ms);
                }
            }
        }
        let taken = players.each_ref().map(|player| player.end.counters().taken);
        assert!(taken[0] > 6_000 && taken[1] == 0, "{taken:?} movement messages");
        let ages_ms = players.each_mut().map(|player| [50, 95, 99].map(|percent| player.percentile(percent)));
        let told = format!("ages in ms at p50, p95, p99, of movement and of the reliable lane: {ages_ms:?}");
        println!("{told}");
        let [[middle, movement, worst], [_, reliable, _]] = ages_ms;
        // The way takes 40 ms and a state comes each 33 ms. Of movement, a lost datagram costs one state. On the reliable
        // lane, everything behind it waits until it has been sent again: a round trip and more.
        assert!(middle <= 65 && worst <= 120, "{told}");
        assert!(movement + 60 <= reliable, "{told}");
    });
}
