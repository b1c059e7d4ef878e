use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quinn_udp::UdpSocketState;
use socket2::SockRef;
use throng_wire::Time;

use super::buffers::wall_clock;
use super::kernel_drops::kernel_dropped;
use super::os_error::{bind_error, is_full, is_refusal, may_be_offload, send_error};
use super::{Addressed, BindError, ReceiveBuffers, Segmentation, SocketBuffers, UdpOptions};
use crate::driver::MAX_DATAGRAM_BYTES;
use crate::{DriverCounters, ReceiveError, SendError, Transmit};

/// How long batches go out one by one after the kernel refused segmentation offload. The refusal may concern one
/// route only, and routes change.
const OFFLOAD_PAUSE: Duration = Duration::from_secs(60);

/// About a microsecond between two tries to send.
const RETRY_SPINS: u32 = 64;

/// Linux reports socket buffers with its bookkeeping, which it takes to be as large again.
const REPORTED_PER_ASKED: usize = if cfg!(any(target_os = "linux", target_os = "android")) { 2 } else { 1 };

/// A UDP socket without receive buffers: they are lent for each call, so that thousands of sockets share one set. It
/// takes less than 1 KiB of memory in this process.
///
/// ```no_run
/// # use throng_net::{LightUdpSocket, ReceiveBuffers, Transmit, UdpOptions};
/// # let server = "127.0.0.1:40000".parse()?;
/// # let now = throng_wire::Time(0);
/// let mut buffers = ReceiveBuffers::new(4);
/// let mut bots = Vec::new();
/// for _ in 0..10_000 {
///     bots.push(LightUdpSocket::connect(server, &UdpOptions::client())?);
/// }
/// for bot in &mut bots {
///     bot.receive_with(now, &mut buffers, &mut |_arrived, _server, datagram| println!("{} bytes", datagram.len()))?;
///     bot.send(now, &Transmit::single(server, b"forward"))?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LightUdpSocket {
    socket: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    peer: Option<SocketAddr>,
    /// When segmentation offload is tried again after a refusal.
    offload_again_at: Option<Time>,
    receive_limit_datagrams: usize,
    send_retries: u32,
    segmentation: Segmentation,
    counters: DriverCounters,
}

impl LightUdpSocket {
    /// Opens a socket for many peers. Port 0 lets the system choose.
    ///
    /// # Errors
    ///
    /// [`BindError`], with a message that says what to do.
    pub fn bind(address: SocketAddr, options: &UdpOptions) -> Result<LightUdpSocket, BindError> {
        let socket = UdpSocket::bind(address).map_err(|error| bind_error(error, address))?;
        LightUdpSocket::prepare(socket, None, options).map_err(|error| bind_error(error, address))
    }

    /// Opens a socket for one peer, at a port that the system chooses. Datagrams of others never arrive, and sending
    /// costs less than from a socket for many.
    ///
    /// # Errors
    ///
    /// [`BindError`]. That the peer answers is not checked.
    pub fn connect(peer: SocketAddr, options: &UdpOptions) -> Result<LightUdpSocket, BindError> {
        if peer.port() == 0 || peer.ip().is_unspecified() {
            return Err(BindError::BadPeer { address: peer });
        }
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let open = || {
            let socket = UdpSocket::bind(any)?;
            socket.connect(peer)?;
            LightUdpSocket::prepare(socket, Some(peer), options)
        };
        open().map_err(|error| bind_error(error, peer))
    }

    /// A handle of a socket that is open already, and that somebody else may wait on. Several datagrams of one sender may
    /// then come as one, so all receiving has to go through such handles.
    ///
    /// # Errors
    ///
    /// [`BindError`]: the socket cannot be prepared.
    pub fn of(socket: UdpSocket, options: &UdpOptions) -> Result<LightUdpSocket, BindError> {
        let address = socket.local_addr().map_err(|error| bind_error(error, (Ipv4Addr::UNSPECIFIED, 0).into()))?;
        LightUdpSocket::prepare(socket, None, options).map_err(|error| bind_error(error, address))
    }

    fn prepare(socket: UdpSocket, peer: Option<SocketAddr>, options: &UdpOptions) -> io::Result<LightUdpSocket> {
        let settings = SockRef::from(&socket);
        if let Some(bytes) = options.receive_buffer_bytes {
            settings.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = options.send_buffer_bytes {
            settings.set_send_buffer_size(bytes)?;
        }
        Ok(LightUdpSocket {
            state: fresh_state(&socket)?,
            local: socket.local_addr()?,
            socket,
            peer,
            offload_again_at: None,
            receive_limit_datagrams: options.receive_limit_datagrams.max(1),
            send_retries: options.send_retries,
            segmentation: options.segmentation,
            counters: DriverCounters::default(),
        })
    }

    /// A second handle of the same socket, for another thread to send through. It counts for itself.
    ///
    /// # Errors
    ///
    /// [`BindError::TooManySockets`] or [`BindError::Socket`].
    pub fn try_clone(&self) -> Result<LightUdpSocket, BindError> {
        let clone = || {
            let socket = self.socket.try_clone()?;
            Ok(LightUdpSocket { state: fresh_state(&socket)?, socket, counters: DriverCounters::default(), ..*self })
        };
        clone().map_err(|error| bind_error(error, self.local))
    }

    /// The address that peers send to.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The only peer, if the socket was opened with [`connect`](LightUdpSocket::connect).
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Counters of this handle.
    pub fn counters(&self) -> &DriverCounters {
        &self.counters
    }

    /// As [`Driver::kernel_dropped`](crate::Driver::kernel_dropped).
    pub fn kernel_dropped(&self) -> Option<u64> {
        kernel_dropped(&self.socket)
    }

    /// How many datagrams one system call sends at best.
    pub fn max_segments(&self) -> usize {
        match self.segmentation {
            Segmentation::Offload => self.state.max_gso_segments(),
            Segmentation::OneByOne => 1,
        }
    }

    /// The buffers that the kernel granted, of those requested.
    ///
    /// # Errors
    ///
    /// [`BindError::Socket`] when the kernel does not tell.
    pub fn socket_buffers(&self) -> Result<SocketBuffers, BindError> {
        let settings = SockRef::from(&self.socket);
        let read = || {
            Ok(SocketBuffers {
                receive_bytes: settings.recv_buffer_size()? / REPORTED_PER_ASKED,
                send_bytes: settings.send_buffer_size()? / REPORTED_PER_ASKED,
            })
        };
        read().map_err(|error| bind_error(error, self.local))
    }

    /// As [`Driver::receive`](crate::Driver::receive), into memory that other sockets use too.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`]. A closed port at the peer is no error, but counted as
    /// [`refused`](DriverCounters::refused).
    pub fn receive_with(
        &mut self,
        now: Time,
        buffers: &mut ReceiveBuffers,
        sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8]),
    ) -> Result<usize, ReceiveError> {
        self.receive_addressed(now, buffers, &mut |way, datagram| sink(way.arrived, way.from, datagram))
    }

    /// As [`receive_with`](LightUdpSocket::receive_with). The sink is also told the local address that the peer sent to, where
    /// the system tells it: with it, one socket that is bound to all addresses of a machine serves several local clients. See
    /// [`send_from`](LightUdpSocket::send_from).
    ///
    /// # Errors
    ///
    /// As [`receive_with`](LightUdpSocket::receive_with).
    pub fn receive_addressed(
        &mut self,
        now: Time,
        buffers: &mut ReceiveBuffers,
        sink: &mut dyn FnMut(Addressed, &mut [u8]),
    ) -> Result<usize, ReceiveError> {
        let mut datagrams = 0;
        // A datagram that comes during this call came at `now`, however long the call takes.
        let now = (now, wall_clock());
        // Counts calls that brought nothing to deliver too: no peer decides how long this loop runs.
        for _ in 0..self.receive_limit_datagrams {
            self.counters.receive_calls += 1;
            let called = Instant::now();
            let filled = buffers.fill(&self.socket, &self.state);
            self.counters.receive_ns += called.elapsed().as_nanos() as u64;
            match filled {
                Ok(filled) => {
                    datagrams += buffers.deliver(now, filled, &mut self.counters, sink);
                    if filled < buffers.len() {
                        return Ok(datagrams);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(datagrams),
                Err(error) if is_refusal(&error) => self.counters.refused += 1,
                Err(source) => {
                    self.counters.socket_errors += 1;
                    return Err(ReceiveError::Socket { local: self.local, source });
                }
            }
            if datagrams >= self.receive_limit_datagrams {
                break;
            }
        }
        self.counters.receive_limited += 1;
        Ok(datagrams)
    }

    /// As [`Driver::send`](crate::Driver::send). `now` decides when segmentation offload is tried again.
    ///
    /// # Errors
    ///
    /// [`SendError`], for the first datagram that was refused; those after it were not tried. A closed port at the peer
    /// is no error, but counted as [`refused`](DriverCounters::refused).
    pub fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        self.check(transmit)?;
        self.resume_offload(now);
        let per_call = self.max_segments().min(MAX_DATAGRAM_BYTES / transmit.segment_bytes).max(1);
        let parts = transmit.bytes.chunks(per_call.saturating_mul(transmit.segment_bytes));
        let handed_over = first_taken(parts.map(|bytes| Transmit { bytes, ..*transmit }), |part| {
            if part.datagrams() > 1 { self.send_batch(now, part) } else { self.send_one(part) }
        })?;
        let dropped = transmit.datagrams() - handed_over;
        self.counters.send_dropped += dropped as u64;
        Ok(handed_over)
    }

    /// As [`send`](LightUdpSocket::send), from one of several local addresses. Each datagram takes a system call of its own.
    ///
    /// # Errors
    ///
    /// As [`send`](LightUdpSocket::send). Linux says [`SendError::Unreachable`] if the address is not one of the machine's.
    ///
    /// ```
    /// # use throng_net::{LightUdpSocket, ReceiveBuffers, Transmit, UdpOptions};
    /// # let now = throng_wire::Time(0);
    /// let options = UdpOptions::client();
    /// let mut server = LightUdpSocket::bind("127.0.0.1:0".parse()?, &options)?;
    /// let mut clients = LightUdpSocket::bind("0.0.0.0:0".parse()?, &options)?;
    /// let to = server.local_address();
    /// clients.send_from(now, "127.0.0.7".parse()?, &Transmit::single(to, b"I am 7"))?;
    /// # if cfg!(target_os = "linux") {
    /// server.receive_with(now, &mut ReceiveBuffers::new(1), &mut |_arrived, from, _datagram| {
    ///     assert_eq!(from.ip().to_string(), "127.0.0.7");
    /// })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_from(&mut self, now: Time, from: IpAddr, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        self.check(transmit)?;
        self.resume_offload(now);
        let mut handed_over = 0;
        for bytes in transmit.iter() {
            let part = Transmit { bytes, ..*transmit };
            let segments = self.state.max_gso_segments();
            handed_over += match self.hand_over_by(&part, |socket, part| socket.call_from(part, Some(from))) {
                Ok(()) => 1,
                Err(error) => {
                    // The socket's state gives up offload at some errors, but one datagram had none.
                    if self.state.max_gso_segments() < segments {
                        self.restore_offload();
                    }
                    self.refuse(error, &part)?
                }
            };
        }
        self.counters.send_dropped += (transmit.datagrams() - handed_over) as u64;
        Ok(handed_over)
    }

    fn check(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        let to = transmit.to;
        let checked = match self.peer {
            Some(peer) if peer != to => Err(SendError::NotThePeer { to, peer }),
            // Kernels disagree on whether an IPv6 socket takes a plain IPv4 destination.
            _ if to.is_ipv6() != self.local.is_ipv6() => Err(SendError::BadDestination { to }),
            _ => transmit.check(),
        };
        match &checked {
            Err(SendError::TooLarge { .. }) => self.counters.too_large += 1,
            Err(SendError::BadDestination { .. } | SendError::NotThePeer { .. }) => self.counters.bad_destination += 1,
            _ => {}
        }
        checked
    }

    /// Several datagrams in one call; one by one when the kernel refuses that.
    fn send_batch(&mut self, now: Time, part: &Transmit<'_>) -> Result<usize, SendError> {
        let segments = self.state.max_gso_segments();
        match self.hand_over(part) {
            Ok(()) => Ok(part.datagrams()),
            Err(error) if may_be_offload(&error) => {
                let gave_up = self.state.max_gso_segments() < segments;
                self.send_without_offload(now, part, gave_up)
            }
            Err(error) => self.refuse(error, part),
        }
    }

    /// The batch that the kernel refused, one by one. `gave_up` says that the socket's state turned offload off.
    fn send_without_offload(&mut self, now: Time, part: &Transmit<'_>, gave_up: bool) -> Result<usize, SendError> {
        self.counters.gso_fallbacks += 1;
        let sent = self.send_each(part);
        if gave_up {
            self.judge_offload(now, sent.is_ok());
        }
        sent
    }

    fn send_each(&mut self, part: &Transmit<'_>) -> Result<usize, SendError> {
        first_taken(part.iter().map(|bytes| Transmit { bytes, ..*part }), |datagram| self.send_one(datagram))
    }

    fn send_one(&mut self, datagram: &Transmit<'_>) -> Result<usize, SendError> {
        match self.hand_over(datagram) {
            Ok(()) => Ok(1),
            Err(error) => self.refuse(error, datagram),
        }
    }

    /// A full kernel and a closed port are the network's everyday loss; the rest is an error.
    fn refuse(&mut self, error: io::Error, part: &Transmit<'_>) -> Result<usize, SendError> {
        if is_full(&error) || is_refusal(&error) {
            return Ok(0);
        }
        let bytes = part.segment_bytes.min(part.bytes.len());
        Err(send_error(error, part.to, bytes, &mut self.counters))
    }

    /// The kernel's socket state gave up offload. If the datagrams did go out one by one, offload was to blame and
    /// rests for a while. If not, the error is the destination's, and must not affect other peers.
    fn judge_offload(&mut self, now: Time, sent_one_by_one: bool) {
        if sent_one_by_one {
            self.offload_again_at = Some(now.after(OFFLOAD_PAUSE));
        } else {
            self.restore_offload();
        }
    }

    fn resume_offload(&mut self, now: Time) {
        if self.offload_again_at.is_some_and(|at| now >= at) {
            self.offload_again_at = None;
            self.restore_offload();
        }
    }

    /// A fresh state asks the kernel again. If that fails, sending one by one continues.
    fn restore_offload(&mut self) {
        if let Ok(state) = fresh_state(&self.socket) {
            self.state = state;
        }
    }

    /// One call that succeeds, with a bounded number of tries.
    fn hand_over(&mut self, part: &Transmit<'_>) -> io::Result<()> {
        self.hand_over_by(part, LightUdpSocket::call)
    }

    fn hand_over_by(
        &mut self,
        part: &Transmit<'_>,
        mut call: impl FnMut(&LightUdpSocket, &Transmit<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut retries_left = self.send_retries;
        let mut refused = false;
        loop {
            self.counters.send_calls += 1;
            let Err(error) = call(self, part) else {
                self.counters.count_sent(part.datagrams(), part.bytes.len());
                return Ok(());
            };
            if is_refusal(&error) {
                // The report took the place of this send: the datagram did not go out yet.
                self.counters.refused += 1;
                if std::mem::replace(&mut refused, true) {
                    return Err(error);
                }
            } else if is_full(&error) && retries_left > 0 {
                retries_left -= 1;
                (0..RETRY_SPINS).for_each(|_| std::hint::spin_loop());
            } else {
                return Err(error);
            }
        }
    }

    /// One system call. Plain ones for single datagrams: they carry no control messages, and on a connected socket
    /// they use its cached route.
    fn call(&self, part: &Transmit<'_>) -> io::Result<()> {
        if part.datagrams() > 1 {
            return self.call_from(part, None);
        }
        match self.peer {
            Some(_) => self.socket.send(part.bytes),
            None => self.socket.send_to(part.bytes, part.to),
        }
        .map(|_| ())
    }

    /// One system call with control messages: for several datagrams, and for a source address.
    fn call_from(&self, part: &Transmit<'_>, from: Option<IpAddr>) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: part.to,
            ecn: None,
            contents: part.bytes,
            segment_size: (part.datagrams() > 1).then_some(part.segment_bytes),
            src_ip: from,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }
}

/// Asks the kernel for batches, coalesced trains and a non-blocking socket.
fn fresh_state(socket: &UdpSocket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    quieten(socket);
    Ok(state)
}

/// Switches off the report of each datagram's congestion bits, which is not used here. It saves a tenth of the cost of
/// receiving a small datagram. Where it cannot be switched off it stays on.
fn quieten(socket: &UdpSocket) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let settings = SockRef::from(socket);
        let _ = settings.set_recv_tos_v4(false);
        let _ = settings.set_recv_tclass_v6(false);
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = socket;
}

/// Sends parts until one is not taken as a whole. How many datagrams were taken: they are the first ones, so a caller can keep
/// the rest.
fn first_taken<'a>(
    parts: impl Iterator<Item = Transmit<'a>>,
    mut send: impl FnMut(&Transmit<'a>) -> Result<usize, SendError>,
) -> Result<usize, SendError> {
    let mut taken = 0;
    for part in parts {
        let sent = send(&part)?;
        taken += sent;
        if sent < part.datagrams() {
            break;
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_light_socket_takes_less_than_1_kib() {
        assert!(size_of::<LightUdpSocket>() < 1_024, "{} bytes", size_of::<LightUdpSocket>());
    }

    /// Loopback never fills a send buffer, so the kernel's answers are made up.
    #[test]
    fn a_full_kernel_is_asked_again_a_few_times_and_then_the_datagram_is_dropped_without_an_error() {
        let options = UdpOptions { send_retries: 2, ..UdpOptions::client() };
        let to = "127.0.0.1:9".parse().unwrap();
        let part = Transmit::single(to, b"x");
        let play = |answers: &[Option<io::ErrorKind>]| {
            let mut socket = LightUdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
            let mut answers = answers.iter();
            let handed_over = socket.hand_over_by(&part, |_, _| match answers.next().expect("not asked so often") {
                Some(kind) => Err((*kind).into()),
                None => Ok(()),
            });
            let result = match handed_over {
                Ok(()) => Ok(1),
                Err(error) => socket.refuse(error, &part),
            };
            let counters = socket.counters;
            (result.map_err(|error| error.tag()), counters.send_calls, counters.sent_datagrams, counters.socket_errors)
        };
        let full = Some(io::ErrorKind::WouldBlock);
        assert_eq!(play(&[None]), (Ok(1), 1, 1, 0));
        assert_eq!(play(&[full, full, None]), (Ok(1), 3, 1, 0));
        assert_eq!(play(&[full, full, full]), (Ok(0), 3, 0, 0));
        assert_eq!(play(&[full, Some(io::ErrorKind::Interrupted), full]), (Ok(0), 3, 0, 0));
        assert_eq!(play(&[Some(io::ErrorKind::BrokenPipe)]), (Err("socket"), 1, 0, 1));
    }

    #[test]
    fn behind_a_part_that_was_not_taken_nothing_is_sent() {
        let to = "127.0.0.1:9".parse().unwrap();
        let taken = |answers: &[usize]| {
            let parts = [&b"aabb"[..], b"cc", b"ddee", b"f"].map(|bytes| Transmit { to, bytes, segment_bytes: 2 });
            let mut answers = answers.iter();
            first_taken(parts.into_iter(), |_| Ok(*answers.next().expect("not asked so often"))).unwrap()
        };
        assert_eq!(taken(&[2, 1, 2, 1]), 6);
        assert_eq!(taken(&[0]), 0);
        assert_eq!(taken(&[1]), 1);
        assert_eq!(taken(&[2, 0]), 2);
        assert_eq!(taken(&[2, 1, 1]), 4);
    }

    #[test]
    fn a_datagram_that_comes_during_a_long_receive_is_not_dated_before_it() {
        let options = UdpOptions::client();
        let mut sender = LightUdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let mut receiver = LightUdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let (now, to) = (Time::from_secs(100), receiver.local_address());
        let mut send = |bytes| sender.send(now, &Transmit { to, bytes, segment_bytes: 1 }).unwrap();
        send(b"a");
        let mut arrivals = Vec::new();
        // With one buffer, each datagram takes a system call of its own.
        let mut sink = |arrived, _, datagram: &mut [u8]| {
            arrivals.push((datagram.to_vec(), arrived));
            if datagram == b"a" {
                send(b"b");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        receiver.receive_with(now, &mut ReceiveBuffers::new(1), &mut sink).unwrap();
        assert_eq!(arrivals.len(), 2);
        assert_eq!(arrivals[1], (b"b".to_vec(), now));
    }

    #[test]
    fn a_refused_batch_goes_out_one_by_one_and_offload_rests_for_a_while() {
        let options = UdpOptions::client();
        let mut socket = LightUdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let mut receiver = LightUdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let segments = socket.max_segments();
        let transmit = Transmit { to: receiver.local_address(), bytes: b"aabbc", segment_bytes: 2 };
        assert_eq!(socket.send_without_offload(Time::from_secs(1), &transmit, true).unwrap(), 3);
        let mut received = Vec::new();
        let mut buffers = ReceiveBuffers::new(8);
        receiver
            .receive_with(Time::from_secs(1), &mut buffers, &mut |_, _, datagram| received.push(datagram.to_vec()))
            .unwrap();
        assert_eq!(received, [&b"aa"[..], b"bb", b"c"]);
        assert_eq!((socket.counters.gso_fallbacks, socket.counters.send_calls), (1, 3));

        socket.resume_offload(Time::from_secs(60));
        assert!(socket.offload_again_at.is_some());
        socket.resume_offload(Time::from_secs(61));
        assert!(socket.offload_again_at.is_none());
        assert_eq!(socket.max_segments(), segments);
    }
}
