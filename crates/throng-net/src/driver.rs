use std::io;
use std::net::SocketAddr;

use throng_wire::Time;

use crate::{DriverCounters, SocketBuffers};

/// The largest payload of one UDP datagram over IPv4, in bytes: 65,535 less the IP and UDP headers.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;

/// Moves datagrams between this process and its peers.
///
/// A driver knows addresses and bytes, nothing of what they mean. It never blocks: what cannot be handed over now is
/// dropped and counted, as the network itself would do. Errors concern the one call that returned them; the driver
/// stays usable.
///
/// One turn of a loop is: [`receive`](Driver::receive), do the work, [`send`](Driver::send) as often as needed,
/// [`flush`](Driver::flush).
pub trait Driver: Send {
    /// Hands over one or more datagrams for one peer, and returns how many were handed over.
    ///
    /// Fewer than [`Transmit::datagrams`] means that the rest was dropped because the driver was full (counted as
    /// [`send_dropped`](DriverCounters::send_dropped)). Being handed over says nothing about arrival.
    ///
    /// # Errors
    ///
    /// [`SendError`], for the first datagram that was refused; those after it were not tried.
    fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError>;

    /// Calls `sink` with arrival, sender and contents of every datagram that is there now, up to a limit that the driver
    /// documents, and returns how many there were. The arrival is at or before `now`: how long the datagram waited to be
    /// received is no delay of the network.
    ///
    /// The bytes belong to `sink` while it runs: it may decrypt them in place. An empty datagram is delivered as an
    /// empty slice. The sink must not call back into the same driver.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`] when the socket failed. Datagrams delivered before that stay delivered.
    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError>;

    /// Hands over datagrams that the driver itself held back and that are due. Returns how many.
    ///
    /// # Errors
    ///
    /// The first [`SendError`]; the datagrams after it were tried all the same.
    fn flush(&mut self, now: Time) -> Result<usize, SendError> {
        let _ = now;
        Ok(0)
    }

    /// When [`receive`](Driver::receive) or [`flush`](Driver::flush) next has something that the driver itself holds
    /// back; `None` when it holds nothing. Says nothing about what the network brings.
    fn next_due(&self) -> Option<Time> {
        None
    }

    /// Datagrams that the kernel dropped since the socket was opened because its receive buffer was full. `None` without
    /// a socket, or where the system does not tell. Reads a table of all sockets of the machine: ask once per second, not
    /// once per tick.
    fn kernel_dropped(&self) -> Option<u64> {
        None
    }

    /// The buffers that the kernel granted, if they are smaller than requested: then they overflow sooner. On Linux
    /// raise `net.core.rmem_max` and `net.core.wmem_max`.
    fn buffer_shortfall(&self) -> Option<SocketBuffers> {
        None
    }

    /// The address that peers send to.
    fn local_address(&self) -> SocketAddr;

    /// How many datagrams one system call carries at best: the batch size worth preparing. At least 1; may fall when
    /// the kernel refuses segmentation offload.
    fn max_segments(&self) -> usize;

    /// Counters so far.
    fn counters(&self) -> &DriverCounters;
}

/// A driver around another one. It overrides what it does otherwise: `wrap_send` is its [`Driver::send`], and so on. All the rest, and what
/// drivers learn to do later, the one within does.
///
/// ```
/// use throng_net::{Driver, MemoryDriver, SendError, Transmit, Wrapper};
/// use throng_wire::Time;
///
/// /// Counts the calls of `send`.
/// struct Counted(MemoryDriver, usize);
///
/// impl Wrapper for Counted {
///     type Inner = MemoryDriver;
///
///     fn inner(&self) -> &MemoryDriver {
///         &self.0
///     }
///
///     fn inner_mut(&mut self) -> &mut MemoryDriver {
///         &mut self.0
///     }
///
///     fn wrap_send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
///         self.1 += 1;
///         self.0.send(now, transmit)
///     }
/// }
///
/// fn usable(counted: Counted) -> Box<dyn Driver> {
///     Box::new(counted)
/// }
/// ```
pub trait Wrapper: Send {
    /// The driver within.
    type Inner: Driver + ?Sized;

    /// The driver within.
    fn inner(&self) -> &Self::Inner;

    /// The same, to use it.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// See [`Driver::send`].
    ///
    /// # Errors
    ///
    /// As [`Driver::send`].
    fn wrap_send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        self.inner_mut().send(now, transmit)
    }

    /// See [`Driver::receive`].
    ///
    /// # Errors
    ///
    /// As [`Driver::receive`].
    fn wrap_receive(
        &mut self,
        now: Time,
        sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8]),
    ) -> Result<usize, ReceiveError> {
        self.inner_mut().receive(now, sink)
    }

    /// See [`Driver::flush`].
    ///
    /// # Errors
    ///
    /// As [`Driver::flush`].
    fn wrap_flush(&mut self, now: Time) -> Result<usize, SendError> {
        self.inner_mut().flush(now)
    }

    /// See [`Driver::next_due`].
    fn wrap_next_due(&self) -> Option<Time> {
        self.inner().next_due()
    }
}

impl<W: Wrapper> Driver for W {
    fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        self.wrap_send(now, transmit)
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
        self.wrap_receive(now, sink)
    }

    fn flush(&mut self, now: Time) -> Result<usize, SendError> {
        self.wrap_flush(now)
    }

    fn next_due(&self) -> Option<Time> {
        self.wrap_next_due()
    }

    fn kernel_dropped(&self) -> Option<u64> {
        self.inner().kernel_dropped()
    }

    fn buffer_shortfall(&self) -> Option<SocketBuffers> {
        self.inner().buffer_shortfall()
    }

    fn local_address(&self) -> SocketAddr {
        self.inner().local_address()
    }

    fn max_segments(&self) -> usize {
        self.inner().max_segments()
    }

    fn counters(&self) -> &DriverCounters {
        self.inner().counters()
    }
}

impl<D: Driver + ?Sized> Wrapper for Box<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        self
    }

    fn inner_mut(&mut self) -> &mut D {
        self
    }
}

/// Datagrams for one peer, back to back in one buffer.
///
/// ```text
/// bytes:  | segment_bytes | segment_bytes | segment_bytes | rest |
///           datagram 0      datagram 1      datagram 2      datagram 3
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// The peer.
    pub to: SocketAddr,
    /// One or more datagrams, without anything between them.
    pub bytes: &'a [u8],
    /// Length of every datagram but the last, which may be shorter. At least 1.
    pub segment_bytes: usize,
}

impl<'a> Transmit<'a> {
    /// One datagram.
    pub fn single(to: SocketAddr, bytes: &'a [u8]) -> Transmit<'a> {
        Transmit { to, bytes, segment_bytes: bytes.len().max(1) }
    }

    /// How many of the first datagrams, of these lengths in bytes, one transmit can hold: all of one length, but the last of
    /// them may be shorter. At least 1, if there is any.
    ///
    /// ```
    /// # use throng_net::Transmit;
    /// assert_eq!(Transmit::fitting([1_200, 1_200, 300, 1_200]), 3);
    /// assert_eq!(Transmit::fitting([300, 1_200]), 1);
    /// ```
    pub fn fitting(lens: impl IntoIterator<Item = usize>) -> usize {
        let mut lens = lens.into_iter();
        let Some(first) = lens.next() else { return 0 };
        let mut count = 1;
        for len in lens {
            if len > first {
                break;
            }
            count += 1;
            if len < first {
                break;
            }
        }
        count
    }

    /// How many datagrams `bytes` holds. 0 when it is empty or `segment_bytes` is 0.
    pub fn datagrams(&self) -> usize {
        if self.segment_bytes == 0 { 0 } else { self.bytes.len().div_ceil(self.segment_bytes) }
    }

    /// The datagrams, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment_bytes.max(1))
    }

    /// All but the first datagram, if there are any: to be tried when the first was [too long](SendError::TooLarge), because the last
    /// may be shorter.
    ///
    /// ```
    /// # use throng_net::Transmit;
    /// let to = "127.0.0.1:4000".parse().unwrap();
    /// let transmit = Transmit { to, bytes: &[1, 1, 1, 2, 2], segment_bytes: 3 };
    /// let behind = transmit.behind_first().unwrap();
    /// assert_eq!((behind.bytes, behind.datagrams()), (&[2, 2][..], 1));
    /// assert_eq!(behind.behind_first(), None);
    /// ```
    pub fn behind_first(&self) -> Option<Transmit<'a>> {
        let bytes = self.bytes.get(self.segment_bytes..).filter(|bytes| !bytes.is_empty())?;
        Some(Transmit { bytes, ..*self })
    }

    /// Rejects what no driver could send.
    ///
    /// # Errors
    ///
    /// [`SendError::NoSegmentLength`], [`SendError::TooLarge`] or [`SendError::BadDestination`].
    pub fn check(&self) -> Result<(), SendError> {
        let largest_bytes = self.segment_bytes.min(self.bytes.len());
        if self.segment_bytes == 0 {
            return Err(SendError::NoSegmentLength);
        }
        if largest_bytes > MAX_DATAGRAM_BYTES {
            return Err(SendError::TooLarge { bytes: largest_bytes });
        }
        if self.to.port() == 0 || self.to.ip().is_unspecified() {
            return Err(SendError::BadDestination { to: self.to });
        }
        Ok(())
    }
}

/// Why datagrams were not handed over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Our misuse: [`Transmit::segment_bytes`] is 0.
    #[error("a transmit needs a segment length of at least 1 byte")]
    NoSegmentLength,
    /// Our misuse, or a path with a small maximum transmission unit. IP fragmentation is off.
    #[error("a datagram of {bytes} bytes does not fit the path: send shorter segments (1,200 bytes pass everywhere)")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Our misuse: port 0, no address, or an address family that the local socket does not speak.
    #[error("{to} cannot be sent to from this socket: name an address of the socket's family and a port other than 0")]
    BadDestination {
        /// The destination.
        to: SocketAddr,
    },
    /// Our misuse: a connected socket sends to its peer only.
    #[error("this socket is connected to {peer} and cannot send to {to}")]
    NotThePeer {
        /// The destination.
        to: SocketAddr,
        /// The peer that the socket is connected to.
        peer: SocketAddr,
    },
    /// The network: no route, or a router reported an error.
    #[error("{to} cannot be reached from this machine: check the address, the route and the interface")]
    Unreachable {
        /// The destination.
        to: SocketAddr,
    },
    /// The machine: a firewall or a missing right.
    #[error("sending to {to} is not permitted: check the firewall of this machine")]
    NotPermitted {
        /// The destination.
        to: SocketAddr,
    },
    /// Anything else that the operating system said.
    #[error("sending to {to} failed: {source}")]
    Socket {
        /// The destination.
        to: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
}

impl SendError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            SendError::NoSegmentLength => "no_segment_length",
            SendError::TooLarge { .. } => "too_large",
            SendError::BadDestination { .. } => "bad_destination",
            SendError::NotThePeer { .. } => "not_the_peer",
            SendError::Unreachable { .. } => "unreachable",
            SendError::NotPermitted { .. } => "not_permitted",
            SendError::Socket { .. } => "socket",
        }
    }
}

/// Why receiving stopped early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The operating system's error.
    #[error("receiving on {local} failed: {source}")]
    Socket {
        /// The socket's own address.
        local: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
}

impl ReceiveError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            ReceiveError::Socket { .. } => "socket",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transmit_splits_at_its_segment_length() {
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        let transmit = Transmit { to, bytes: &[1, 2, 3, 4, 5], segment_bytes: 2 };
        assert_eq!(transmit.datagrams(), 3);
        assert_eq!(transmit.iter().collect::<Vec<_>>(), [&[1, 2][..], &[3, 4], &[5]]);
        assert_eq!(Transmit::single(to, &[]).datagrams(), 0);
        assert_eq!(Transmit::single(to, &[7]).datagrams(), 1);
    }

    #[test]
    fn datagrams_that_fit_into_a_transmit_are_cut_where_they_were_put_together() {
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        for lens in [&[][..], &[5], &[5, 5], &[5, 5, 3], &[5, 3, 5], &[5, 3, 3], &[3, 5], &[5, 5, 6, 5]] {
            let count = Transmit::fitting(lens.iter().copied());
            let bytes = vec![7; lens[..count].iter().sum()];
            let transmit = Transmit { to, bytes: &bytes, segment_bytes: lens.first().copied().unwrap_or(1) };
            assert!(transmit.iter().map(<[u8]>::len).eq(lens[..count].iter().copied()), "{lens:?}");
            // One more would be cut elsewhere.
            if let Some(&next) = lens.get(count) {
                assert!(next > lens[0] || lens[count - 1] < lens[0], "{lens:?}");
            }
        }
    }

    #[test]
    fn a_transmit_that_nothing_could_send_is_refused() {
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        let refused =
            |to, bytes: &[u8], segment_bytes| Transmit { to, bytes, segment_bytes }.check().map_err(|e| e.tag()).err();
        assert_eq!(refused(to, &[1], 0), Some("no_segment_length"));
        assert_eq!(refused(to, &[0; 65_508], 65_508), Some("too_large"));
        assert_eq!(refused(to, &[0; 65_507], 100_000), None);
        assert_eq!(refused(SocketAddr::from(([127, 0, 0, 1], 0)), &[1], 1), Some("bad_destination"));
        assert_eq!(refused(SocketAddr::from(([0, 0, 0, 0], 9)), &[1], 1), Some("bad_destination"));
    }
}
