//! The ports of bots: a socket of its own for each, or on loopback an address of its own at a socket that several share.
//!
//! ```text
//! 127.64.0.1 \
//! 127.64.0.2  >  one socket, port 40001  <->  server at 127.0.0.1
//! 127.64.0.3 /
//! ```
//!
//! To the server, both are the same: each bot has an address that no other one has. But ten thousand sockets are never in a
//! cache. The kernel waits for their memory in each send of a bot, and in each send of the server, whose processor does the
//! receiver's work on loopback. Bots that have their turns at about the same moment share a socket, which is emptied at the
//! first of these turns. Bots whose clients decode look at their sockets more often, or need more time for each packet, and have
//! sockets of their own. A full socket loses packets, as any path may; a run on loopback that loses many is not valid.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use throng::Time;
use throng::net::{Addressed, BindError, LightUdpSocket, ReceiveBuffers, Transmit, UdpOptions};
use throng_crowd::scenario::Scenario;

use super::members::phase_of;

/// The most bots that share a socket: as many as one system call receives from.
const SHARED_BY_MOST: u32 = 32;
/// A socket has room for what the server sends its bots in so many ticks.
const TICKS_OF_ROOM: u32 = 6;
/// A small datagram takes less room than this in a socket.
const LEAST_BYTES: u32 = 2_048;
/// A probe on loopback comes at once, or it never comes.
const PROBE_WAIT: Duration = Duration::from_millis(1);
const PROBE_WAITS: u32 = 50;
/// A socket that was emptied within this time is not asked again.
const EMPTIED_FOR: Duration = Duration::from_millis(1);
/// The addresses of bots are this one and those after it: 127.64.0.0/10, all of which Linux takes to be the machine itself.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 1);
/// So many addresses, then they repeat.
const ADDRESSES: u64 = (1 << 22) - 2;

/// The way by which a bot sends and receives.
pub(super) enum Port {
    /// A socket of its own.
    Own(Box<LightUdpSocket>),
    /// An address of its own at a shared socket.
    Shared {
        /// The socket's place in [`SharedSockets`].
        socket: usize,
        address: Ipv4Addr,
        server: SocketAddr,
    },
}

impl Port {
    /// A socket of its own.
    pub(super) fn own(server: SocketAddr) -> Result<Port, BindError> {
        LightUdpSocket::connect(server, &UdpOptions::client()).map(|socket| Port::Own(Box::new(socket)))
    }

    /// Asks for the memory that a bot's turn needs of it.
    pub(super) fn fetch(&self) -> u64 {
        match self {
            Port::Own(socket) => socket.counters().sent_datagrams,
            Port::Shared { socket, .. } => *socket as u64,
        }
    }

    #[cfg(test)]
    pub(super) fn shared_address(&self) -> Option<Ipv4Addr> {
        match self {
            Port::Own(_) => None,
            Port::Shared { address, .. } => Some(*address),
        }
    }

    /// Sends one datagram. A failed send is a lost packet; the socket counts it.
    pub(super) fn send(&mut self, now: Time, shared: &mut SharedSockets, datagram: &[u8]) {
        match self {
            Port::Own(socket) => {
                if let Some(to) = socket.peer() {
                    let _ = socket.send(now, &Transmit::single(to, datagram));
                }
            }
            Port::Shared { socket, address, server } => {
                if let Some(shared) = &mut shared.sockets[*socket] {
                    let transmit = Transmit::single(*server, datagram);
                    let _ = shared.socket.send_from(now, IpAddr::V4(*address), &transmit);
                }
            }
        }
    }
}

/// The sockets that bots share, in the order of their bots' turns.
#[derive(Default)]
pub(super) struct SharedSockets {
    /// Each is opened for its first bot.
    sockets: Vec<Option<Shared>>,
    /// Addresses that were given away so far.
    addresses: u64,
    buffers: ReceiveBuffers,
}

struct Shared {
    socket: LightUdpSocket,
    /// The addresses of its bots, with their numbers. A bot that leaves or gets another port is taken out at once
    /// ([`SharedSockets::forget`]), so each number is that of a bot that plays.
    bots: Vec<(Ipv4Addr, u32)>,
    emptied_at: Option<Time>,
}

impl SharedSockets {
    /// Sockets for the bots of a scenario that connect to these servers; none if they cannot share any.
    pub(super) fn new(scenario: &Scenario, mut servers: impl Iterator<Item = SocketAddr>) -> SharedSockets {
        let on_loopback = |server: SocketAddr| server.is_ipv4() && server.ip().is_loopback();
        if !cfg!(target_os = "linux") || !servers.all(on_loopback) {
            return SharedSockets::default();
        }
        let Some(receive_bytes) = room_of_socket() else { return SharedSockets::default() };
        let bytes_per_tick = (scenario.budget_bytes_per_s() / scenario.tick_hz.max(1)).max(LEAST_BYTES);
        let ticks = TICKS_OF_ROOM * scenario.tick_hz.div_ceil(scenario.input_hz.max(1));
        let room = receive_bytes as u64 / (u64::from(bytes_per_tick) * u64::from(ticks)).max(1);
        let shared_by = room.min(SHARED_BY_MOST.into()) as u32;
        if shared_by < 2 {
            return SharedSockets::default();
        }
        let count = scenario.players.div_ceil(shared_by).max(1) as usize;
        SharedSockets { sockets: (0..count).map(|_| None).collect(), ..SharedSockets::default() }
    }

    /// The most sockets that may be opened; 0 if none are shared.
    pub(super) fn most(&self) -> usize {
        self.sockets.len()
    }

    /// A port for bot `number`, with an address that nobody had before. None without shared sockets.
    pub(super) fn port(&mut self, number: u32, server: SocketAddr) -> Result<Option<Port>, BindError> {
        if self.sockets.is_empty() {
            return Ok(None);
        }
        let place = phase_of(self.sockets.len() as u64, number) as usize;
        let address = Ipv4Addr::from_bits(FIRST_ADDRESS.to_bits() + (self.addresses % ADDRESSES) as u32);
        self.addresses += 1;
        let shared = match &mut self.sockets[place] {
            Some(shared) => shared,
            closed => closed.insert(Shared { socket: bind()?, bots: Vec::new(), emptied_at: None }),
        };
        shared.bots.push((address, number));
        Ok(Some(Port::Shared { socket: place, address, server }))
    }

    #[cfg(test)]
    pub(super) fn addresses(&self) -> impl Iterator<Item = (Ipv4Addr, u32)> {
        self.sockets.iter().flatten().flat_map(|shared| shared.bots.iter().copied())
    }

    /// A bot that has left, or has another port now, is sent nothing any more.
    pub(super) fn forget(&mut self, port: &Port) {
        if let Port::Shared { socket, address, .. } = port {
            self.sockets[*socket].iter_mut().for_each(|shared| shared.bots.retain(|(of, _)| of != address));
        }
    }

    /// The numbers of the bots whose datagrams wait at a socket, if it has to be emptied before their turns.
    pub(super) fn begin_to_empty(&mut self, socket: usize, now: Time) -> Option<impl Iterator<Item = u32> + '_> {
        let shared = self.sockets[socket].as_mut()?;
        if shared.emptied_at.is_some_and(|at| now.since(at) < EMPTIED_FOR) {
            return None;
        }
        shared.emptied_at = Some(now);
        Some(shared.bots.iter().map(|&(_, number)| number))
    }

    /// Gives what has come at a socket to `sink`, with the number of the bot that it is for. A datagram for nobody is
    /// dropped: its bot has left since.
    pub(super) fn empty(&mut self, socket: usize, now: Time, sink: &mut dyn FnMut(u32, Addressed, &mut [u8])) {
        let Some(Shared { socket, bots, .. }) = &mut self.sockets[socket] else { return };
        // Errors of the socket are ignored here: the connections will time out and report it.
        let _ = socket.receive_addressed(now, &mut self.buffers, &mut |way, datagram| {
            let is_for = |(address, _): &&(Ipv4Addr, u32)| way.to == Some(IpAddr::V4(*address));
            if let Some(&(_, number)) = bots.iter().find(is_for) {
                sink(number, way, datagram);
            }
        });
    }
}

fn bind() -> Result<LightUdpSocket, BindError> {
    LightUdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into(), &UdpOptions::server())
}

/// The receive buffer of a socket, in bytes. None if datagrams from and to the first address do not come: a firewall may let no
/// other addresses than 127.0.0.1 pass, and a loopback interface may have no others.
fn room_of_socket() -> Option<usize> {
    let (mut server, mut client) = (bind().ok()?, bind().ok()?);
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_address().port()));
    let first = IpAddr::V4(FIRST_ADDRESS);
    client.send_from(Time(0), first, &Transmit::single(to, b"?")).ok().filter(|&sent| sent == 1)?;
    let from = sender_at(&mut server).filter(|from| from.ip() == first)?;
    server.send_from(Time(0), to.ip(), &Transmit::single(from, b"!")).ok().filter(|&sent| sent == 1)?;
    sender_at(&mut client)?;
    client.socket_buffers().ok().map(|buffers| buffers.receive_bytes)
}

/// The sender of the next datagram at a socket, if one comes soon.
fn sender_at(socket: &mut LightUdpSocket) -> Option<SocketAddr> {
    let (mut buffers, mut sender) = (ReceiveBuffers::new(1), None);
    for _ in 0..PROBE_WAITS {
        socket.receive_with(Time(0), &mut buffers, &mut |_, from, _| sender = Some(from)).ok()?;
        if sender.is_some() {
            break;
        }
        std::thread::sleep(PROBE_WAIT);
    }
    sender
}

#[cfg(test)]
mod tests {
    use throng_crowd::scenario::Overrides;

    use super::*;

    fn scenario(players: u32, budget: u32) -> Scenario {
        let overrides = Overrides { players: Some(players), budget_kbit_per_s: Some(budget), ..Overrides::default() };
        Scenario::resolve("crowd", &overrides).expect("a scenario")
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn each_bot_of_a_shared_socket_gets_what_was_sent_to_it() {
        const BOTS: u32 = 50;
        let mut server = LightUdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &UdpOptions::server()).expect("a port");
        let to = server.local_address();
        let mut shared = SharedSockets::new(&scenario(BOTS, 64), std::iter::once(to));
        assert!((1..BOTS as usize).contains(&shared.most()) && shared.sockets.iter().all(Option::is_none));
        let mut port = |number| shared.port(number, to).expect("a socket").expect("a shared port");
        let mut ports: Vec<Port> = (0..BOTS).map(&mut port).collect();
        // Those with turns at the same time are at the same socket.
        for socket in shared.sockets.iter().flatten() {
            let phases: Vec<u64> = socket.bots.iter().map(|&(_, number)| phase_of(1_000, number)).collect();
            let (first, last) = (phases.iter().min().expect("bots"), phases.iter().max().expect("bots"));
            assert!(last - first <= 1_000 / shared.sockets.len() as u64, "{phases:?}");
        }
        ports.iter_mut().zip(0..).for_each(|(port, number)| port.send(Time(0), &mut shared, &[number]));
        let mut senders = Vec::new();
        let mut buffers = ReceiveBuffers::default();
        server.receive_with(Time(0), &mut buffers, &mut |_, from, bytes| senders.push((from, bytes[0]))).expect("all");
        assert_eq!(senders.len(), BOTS as usize);
        // One has left before its answer comes.
        shared.forget(&ports[7]);
        for &(from, number) in &senders {
            server.send(Time(0), &Transmit::single(from, &[number, 1])).expect("loopback");
        }
        let mut answered = Vec::new();
        for socket in 0..shared.sockets.len() {
            assert!(shared.begin_to_empty(socket, Time(5_000)).is_some());
            // A bot whose turn comes a moment later finds nothing new.
            assert!(shared.begin_to_empty(socket, Time(5_900)).is_none());
            shared.empty(socket, Time(5_000), &mut |number, way, datagram| {
                assert_eq!((way.from, u32::from(datagram[0])), (to, number));
                answered.push(number);
            });
        }
        answered.sort_unstable();
        assert_eq!(answered, (0..BOTS).filter(|&number| number != 7).collect::<Vec<u32>>());
    }

    #[test]
    fn a_socket_is_shared_by_fewer_bots_that_are_sent_more() {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
        let sockets = |budget| SharedSockets::new(&scenario(64, budget), std::iter::once(server)).most();
        // A budget of 1 Gbit/s is 4 MB in each tick: no buffer holds that for two bots.
        assert_eq!(sockets(1_000_000), 0);
        let few = sockets(64);
        assert!(cfg!(not(target_os = "linux")) || (1..=32).contains(&few), "{few}");
        // Thirty ticks come between two turns of a bot that sends twice a second.
        let seldom = Scenario { input_hz: 2, tick_hz: 60, ..scenario(64, 64) };
        let many = SharedSockets::new(&seldom, std::iter::once(server)).most();
        assert!(many == 0 || many > few, "{many} and {few}");
    }

    #[test]
    fn bots_of_a_server_elsewhere_have_sockets_of_their_own() {
        for server in ["192.0.2.1:40000", "[::1]:40000"] {
            let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
            let servers = [local, server.parse().expect("an address")];
            let mut shared = SharedSockets::new(&scenario(10, 64), servers.into_iter());
            assert!(shared.port(0, local).expect("nothing to open").is_none());
        }
    }
}
