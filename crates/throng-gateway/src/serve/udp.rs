//! The socket of a door for datagrams: with room for a burst of all clients, and a counter of all datagrams lost in the
//! local kernel.
//!
//! When the kernel accepts no more, a little data waits here. Senders with more data learn that there is no room before
//! they make a packet: a packet that was made counts as sent, and then as lost in the network, and a session would
//! lower its rate although the path has no fault.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::SockRef;
use throng_net::{LightUdpSocket, ReceiveBuffers, SendError, Transmit, UdpOptions};
use throng_wire::Time;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tracing::info;

/// The requested kernel buffer in each direction: at 60 datagrams of 1,200 bytes a second from each of 3,000 clients,
/// 20 ms. Linux gives no more than net.core.rmem_max and wmem_max.
const BUFFER_BYTES: usize = 4 << 20;
/// With less than this, the system's bound should be raised.
const BUFFER_BYTES_FEW: usize = 1 << 20;
/// Datagrams that are taken for each thread before others get a turn. One call may bring more.
pub(crate) const DATAGRAMS_PER_TURN: usize = 64;
/// Datagrams of one peer that leave in one call at most.
const DATAGRAMS_PER_CALL: usize = 16;
/// Senders whose datagrams one call brings at most, and 64 KiB of memory for each.
const SENDERS_PER_CALL: usize = 16;
/// Threads that send through one socket.
pub(crate) const SENDERS_MAX: usize = 16;
/// Datagrams that wait here: short answers, and those of one call for each thread that sends.
const HELD_MAX: usize = 256 + SENDERS_MAX * DATAGRAMS_PER_CALL;

/// A socket, and what it could not take.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    socket: UdpSocket,
    is_full: AtomicBool,
    held: Mutex<VecDeque<(Vec<u8>, SocketAddr)>>,
}

/// Where datagrams are received: many with one call. The kernel also puts trains of one sender together (GRO).
pub(crate) struct Inbox {
    handle: LightUdpSocket,
    buffers: ReceiveBuffers,
}

/// The way of one thread out of a socket. Datagrams of one peer are put behind each other, and leave in one call, in
/// which the kernel cuts them (GSO).
pub(crate) struct Outlet {
    socket: Arc<DatagramSocket>,
    handle: LightUdpSocket,
    bytes: Vec<u8>,
    /// The lengths of the datagrams in `bytes`.
    lens: Vec<usize>,
}

impl Outlet {
    /// Whether packets may be made: see [`DatagramSocket::has_room`].
    pub(crate) fn has_room(&self) -> bool {
        self.socket.has_room()
    }

    /// Gives `write` the buffer to append a datagram to. If it returns false, nothing was appended.
    pub(crate) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let start = self.bytes.len();
        let is_written = write(&mut self.bytes);
        match is_written {
            true => self.lens.push(self.bytes.len() - start),
            false => self.bytes.truncate(start),
        }
        is_written
    }

    /// Whether the datagrams are as many as leave in one call.
    pub(crate) fn is_full(&self) -> bool {
        self.lens.len() >= DATAGRAMS_PER_CALL
    }

    /// Sends the datagrams to a peer, now or when there is room. The length of one that is too long for the path, if
    /// there is any.
    pub(crate) fn flush(&mut self, now: Time, to: SocketAddr) -> Option<usize> {
        let (mut rest, mut bytes, mut too_large) = (&self.lens[..], &self.bytes[..], None);
        while let Some(&segment_bytes) = rest.first() {
            let mut count = Transmit::fitting(rest.iter().copied());
            let batch = &bytes[..rest[..count].iter().sum()];
            let transmit = Transmit { to, bytes: batch, segment_bytes };
            // Other errors concern this one address, and its peer will time out.
            if let Err(SendError::TooLarge { bytes }) = self.socket.send(now, &mut self.handle, &transmit) {
                // None of a batch is longer than the first, so those behind it may pass.
                (too_large, count) = (Some(bytes), 1);
            }
            let (gone, others) = rest.split_at(count);
            (rest, bytes) = (others, &bytes[gone.iter().sum()..]);
        }
        self.lens.clear();
        self.bytes.clear();
        too_large
    }

    /// Calls that have sent something.
    #[cfg(test)]
    pub(crate) fn calls(&self) -> u64 {
        self.handle.counters().send_calls
    }

    /// Sends one datagram.
    pub(crate) fn send(&mut self, now: Time, datagram: &[u8], to: SocketAddr) {
        let single = Transmit::single(to, datagram);
        let _ = self.socket.send(now, &mut self.handle, &single);
    }
}

impl Inbox {
    /// A way out of the same socket, for one thread.
    pub(crate) fn outlet(&self, socket: &Arc<DatagramSocket>) -> io::Result<Outlet> {
        let handle = self.handle.try_clone().map_err(io::Error::other)?;
        Ok(Outlet { socket: Arc::clone(socket), handle, bytes: Vec::new(), lens: Vec::new() })
    }
}

impl DatagramSocket {
    /// Opens a socket for `threads` that open datagrams. Within a runtime.
    pub(crate) fn bind(address: SocketAddr, threads: usize) -> io::Result<(DatagramSocket, Inbox)> {
        let socket = std::net::UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        let settings = SockRef::from(&socket);
        // A system that gives less is no reason not to start.
        let _ = settings.set_recv_buffer_size(BUFFER_BYTES);
        let _ = settings.set_send_buffer_size(BUFFER_BYTES);
        // Linux says twice what it gives.
        let given_bytes = settings.recv_buffer_size().unwrap_or(0) / 2;
        if given_bytes < BUFFER_BYTES_FEW {
            info!(
                %address,
                given_bytes,
                "the system gives a UDP door little room: raise net.core.rmem_max and net.core.wmem_max to {BUFFER_BYTES}"
            );
        }
        let mut options = UdpOptions::client();
        options.receive_limit_datagrams = DATAGRAMS_PER_TURN * threads;
        let handle = LightUdpSocket::of(socket.try_clone()?, &options).map_err(io::Error::other)?;
        let inbox = Inbox { handle, buffers: ReceiveBuffers::new(SENDERS_PER_CALL) };
        let held = Mutex::new(VecDeque::new());
        Ok((DatagramSocket { socket: UdpSocket::from_std(socket)?, is_full: AtomicBool::new(false), held }, inbox))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits until datagrams have come.
    pub(crate) async fn readable(&self) {
        // The call that receives returns the error.
        let _ = self.socket.readable().await;
    }

    /// Gives the datagrams that have come to `sink`, each with the time at which it came, as far as this turn goes. How
    /// many there were.
    pub(crate) fn receive(
        &self,
        now: Time,
        inbox: &mut Inbox,
        sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8]),
    ) -> usize {
        let received = self.socket.try_io(Interest::READABLE, || {
            let limited = inbox.handle.counters().receive_limited;
            let received = inbox.handle.receive_with(now, &mut inbox.buffers, sink);
            let is_drained = inbox.handle.counters().receive_limited == limited;
            // Errors concern single datagrams, and are counted; the next call goes on. Datagrams that cannot be answered
            // are not given out: more may wait behind them.
            match received {
                Ok(0) if is_drained => Err(io::ErrorKind::WouldBlock.into()),
                Ok(datagrams) => Ok(datagrams),
                Err(_) => Ok(0),
            }
        });
        received.unwrap_or(0)
    }

    /// Whether packets may be made. If not, [`drained`](Self::drained) tells when.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full.load(Ordering::Relaxed)
    }

    /// Sends a datagram, now or when there is room. False if it is lost: too many wait already.
    pub(crate) fn send_to(&self, datagram: &[u8], to: SocketAddr) -> bool {
        if self.has_room() {
            match self.socket.try_send_to(datagram, to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Other errors concern this one address, and its peer will time out.
                _ => return true,
            }
        }
        self.hold(&Transmit::single(to, datagram), 0)
    }

    /// As if the kernel had just said that it is full.
    #[cfg(test)]
    pub(crate) fn fill(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// Sends datagrams, now or when there is room. If too many wait already, they are lost. An error of one that has waited is
    /// told to nobody: it counts as lost.
    fn send(&self, now: Time, handle: &mut LightUdpSocket, transmit: &Transmit<'_>) -> Result<(), SendError> {
        let sent = if self.has_room() { handle.send(now, transmit)? } else { 0 };
        if sent < transmit.datagrams() {
            self.hold(transmit, sent);
        }
        Ok(())
    }

    /// The kernel has taken the first `sent` datagrams, and has no room for the others now. False if some of them are lost: too
    /// many wait already.
    fn hold(&self, transmit: &Transmit<'_>, sent: usize) -> bool {
        let mut held = self.held();
        self.is_full.store(true, Ordering::Relaxed);
        let room = HELD_MAX - held.len();
        held.extend(transmit.iter().skip(sent).take(room).map(|datagram| (datagram.to_vec(), transmit.to)));
        transmit.datagrams() - sent <= room
    }

    /// Waits until the kernel has taken what waits here.
    pub(crate) async fn drained(&self) {
        while !self.flush() {
            if self.socket.writable().await.is_err() {
                return;
            }
        }
    }

    /// Sends the datagrams that wait. Returns whether all of them are gone.
    fn flush(&self) -> bool {
        let mut held = self.held();
        while let Some((datagram, to)) = held.front() {
            match self.socket.try_send_to(datagram, *to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => drop(held.pop_front()),
            }
        }
        self.is_full.store(false, Ordering::Relaxed);
        true
    }

    fn held(&self) -> MutexGuard<'_, VecDeque<(Vec<u8>, SocketAddr)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_the_kernel_does_not_take_waits_and_nobody_makes_more() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let [(from, _), (to, mut inbox)] = [(); 2].map(|()| DatagramSocket::bind(any, 1).expect("free"));
        let address = to.local_addr().expect("bound");
        from.fill();
        let sent = (0..HELD_MAX + 10).filter(|&number| from.send_to(&(number as u32).to_le_bytes(), address)).count();
        assert_eq!(sent, HELD_MAX);
        assert!(!from.has_room());
        from.drained().await;
        assert!(from.has_room() && from.held().is_empty());
        assert_eq!(numbers(&to, &mut inbox, 100).await, (0..100).collect::<Vec<u32>>(), "in order");
    }

    #[tokio::test]
    async fn datagrams_of_one_call_that_the_kernel_does_not_take_wait_in_order_and_are_bounded() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let [(from, from_inbox), (to, mut inbox)] = [(); 2].map(|()| DatagramSocket::bind(any, 1).expect("free"));
        let (from, address) = (Arc::new(from), to.local_addr().expect("bound"));
        let mut outlet = from_inbox.outlet(&from).expect("one more handle");
        from.fill();
        for number in 0..HELD_MAX as u32 + 10 {
            outlet.put(|out| {
                out.extend_from_slice(&number.to_le_bytes());
                true
            });
            if outlet.is_full() {
                assert_eq!(outlet.flush(Time(0), address), None);
            }
        }
        outlet.put(|out| {
            out.push(7);
            false
        });
        outlet.flush(Time(0), address);
        assert_eq!(from.held().len(), HELD_MAX);
        from.drained().await;
        assert_eq!(numbers(&to, &mut inbox, 100).await, (0..100).collect::<Vec<u32>>());
        assert_eq!(outlet.calls(), 0);
        // A longer one begins a call of its own, and a shorter one ends it.
        for len in [4, 4, 8, 8, 4, 4] {
            outlet.put(|out| {
                out.extend_from_slice(&[len; 8][..usize::from(len)]);
                true
            });
        }
        outlet.flush(Time(0), address);
        assert_eq!(outlet.calls(), 3);
        assert_eq!(outlet.flush(Time(0), address), None, "nothing is sent twice");
        assert_eq!(outlet.calls(), 3);
        for bytes in [4, 70_000, 5] {
            outlet.put(|out| {
                out.resize(out.len() + bytes, 7);
                true
            });
        }
        assert_eq!(outlet.flush(Time(0), address), Some(70_000), "no datagram is as long");
        assert_eq!(outlet.calls(), 5, "those before and behind it have left");
    }

    #[tokio::test]
    async fn of_a_call_that_was_taken_in_part_the_rest_waits() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let [(from, _), (to, mut inbox)] = [(); 2].map(|()| DatagramSocket::bind(any, 1).expect("free"));
        let bytes: Vec<u8> = (0..5u32).flat_map(u32::to_le_bytes).collect();
        let to_address = to.local_addr().expect("bound");
        from.hold(&Transmit { to: to_address, bytes: &bytes, segment_bytes: 4 }, 2);
        assert!(!from.has_room());
        from.drained().await;
        assert_eq!(numbers(&to, &mut inbox, 3).await, [2, 3, 4]);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_says_when_a_datagram_has_come() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let [(from, _), (to, mut inbox)] = [(); 2].map(|()| DatagramSocket::bind(any, 1).expect("free"));
        let wait = std::time::Duration::from_millis(30);
        let mut waits = Vec::new();
        // The kernel begins to note times only a moment after the first socket of the machine has asked for it.
        while waits.len() < 20 && waits.last().is_none_or(|waited| *waited < wait) {
            from.send_to(b"early", to.local_addr().expect("bound"));
            from.drained().await;
            to.readable().await;
            tokio::time::sleep(wait).await;
            let (now, mut came) = (Time::from_secs(1), None);
            to.receive(now, &mut inbox, &mut |arrived, _, _| came = Some(arrived));
            waits.push(now.since(came.expect("it is there")));
        }
        assert!(waits.last().is_some_and(|waited| *waited >= wait), "{waits:?}");
    }

    /// The numbers in the next datagrams.
    async fn numbers(socket: &DatagramSocket, inbox: &mut Inbox, count: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        while numbers.len() < count {
            socket.readable().await;
            let number = |datagram: &[u8]| u32::from_le_bytes(datagram.try_into().expect("four bytes"));
            socket.receive(Time(0), inbox, &mut |_, _, datagram| numbers.push(number(datagram)));
        }
        numbers.truncate(count);
        numbers
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_burst_of_datagrams_is_received_with_few_calls() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (to, mut inbox) = DatagramSocket::bind(any, 1).expect("free");
        let senders = [(); 100].map(|()| std::net::UdpSocket::bind(any).expect("free"));
        let address = to.local_addr().expect("bound");
        for (number, sender) in (0u32..).zip(&senders) {
            sender.send_to(&number.to_le_bytes(), address).expect("loopback takes it");
        }
        let numbers = numbers(&to, &mut inbox, 100).await;
        assert_eq!(numbers, (0..100).collect::<Vec<u32>>());
        let calls = inbox.handle.counters().receive_calls;
        assert!(calls <= 12, "{calls} calls for 100 datagrams");
    }
}
