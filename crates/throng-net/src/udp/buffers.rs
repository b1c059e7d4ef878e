use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};

use throng_wire::Time;

use crate::DriverCounters;

/// Holds the largest train of datagrams that a kernel coalesces: IP's length field ends at 65,535.
const WHOLE_TRAIN_BYTES: usize = 65_536;

/// The least buffer: an Ethernet frame fits.
const LEAST_BUFFER_BYTES: usize = 2_048;

/// The memory that datagrams are received into. One serves any number of sockets in turn.
///
/// ```text
/// one system call -> | buffer 0               | buffer 1               | ...   one sender each
///                      stride | stride | rest                                    one datagram each
/// ```
///
/// With the default 32 buffers of 64 KiB it reserves 2 MiB of addresses, of which only the pages that datagrams
/// touch become resident.
pub struct ReceiveBuffers {
    bytes: Vec<u8>,
    metas: Vec<RecvMeta>,
    buffer_bytes: usize,
}

impl Default for ReceiveBuffers {
    /// The largest useful batch, with room for every coalesced train.
    fn default() -> ReceiveBuffers {
        ReceiveBuffers::new(BATCH_SIZE)
    }
}

impl ReceiveBuffers {
    /// `buffers` receive buffers (at least 1, at most what one system call takes), each with room for the longest
    /// train of datagrams that a kernel coalesces: nothing is ever cut.
    pub fn new(buffers: usize) -> ReceiveBuffers {
        ReceiveBuffers::with_buffer_bytes(buffers, WHOLE_TRAIN_BYTES)
    }

    /// As [`new`](ReceiveBuffers::new), with buffers of `buffer_bytes` (2,048 to 65,536) instead. A train that does not
    /// fit loses its tail; what was cut is dropped and counted as [`truncated`](DriverCounters::truncated).
    pub fn with_buffer_bytes(buffers: usize, buffer_bytes: usize) -> ReceiveBuffers {
        let buffers = buffers.clamp(1, BATCH_SIZE);
        let buffer_bytes = buffer_bytes.clamp(LEAST_BUFFER_BYTES, WHOLE_TRAIN_BYTES);
        ReceiveBuffers {
            bytes: vec![0; buffers * buffer_bytes],
            metas: vec![RecvMeta::default(); buffers],
            buffer_bytes,
        }
    }

    /// How many trains one system call can bring.
    pub(super) fn len(&self) -> usize {
        self.metas.len()
    }

    /// One system call. Returns how many buffers were filled.
    pub(super) fn fill(&mut self, socket: &UdpSocket, state: &UdpSocketState) -> io::Result<usize> {
        let buffers = self.metas.len();
        let mut chunks = self.bytes.chunks_exact_mut(self.buffer_bytes);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        state.recv(socket.into(), &mut slices[..buffers], &mut self.metas)
    }

    /// Gives the datagrams of the first `filled` buffers to `sink`. Returns how many there were. At `now` the wall clock was at
    /// `wall`.
    pub(super) fn deliver(
        &mut self,
        (now, wall): (Time, Duration),
        filled: usize,
        counters: &mut DriverCounters,
        sink: &mut dyn FnMut(Addressed, &mut [u8]),
    ) -> usize {
        let mut datagrams = 0;
        let chunks = self.bytes.chunks_exact_mut(self.buffer_bytes);
        for (meta, chunk) in self.metas.iter().zip(chunks).take(filled) {
            if meta.addr.port() == 0 {
                counters.unanswerable += 1;
                continue;
            }
            let cut = meta.len == self.buffer_bytes && self.buffer_bytes < WHOLE_TRAIN_BYTES;
            let arrived = arrival(now, wall, meta.timestamp);
            let train = Train { arrived, from: meta.addr, bytes: &mut chunk[..meta.len], stride: meta.stride, cut };
            let addressed = Addressed { arrived, from: meta.addr, to: meta.dst_ip };
            datagrams += train.deliver(counters, &mut |_, _, datagram| sink(addressed, datagram));
        }
        datagrams
    }
}

/// When a datagram came, and from where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressed {
    /// When it came to this machine, as far as the kernel says so.
    pub arrived: Time,
    /// Its sender.
    pub from: SocketAddr,
    /// The local address that it was sent to, where the system tells it.
    pub to: Option<IpAddr>,
}

/// The wall clock, as the kernel stamps datagrams with it.
pub(super) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A datagram that claims to have waited longer than this has none of it: the clock was set meanwhile.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// When a datagram came, on the clock of `now`, if the kernel says it on the wall clock, which is at `wall`.
fn arrival(now: Time, wall: Duration, stamp: Option<Duration>) -> Time {
    let waited = stamp.and_then(|stamp| wall.checked_sub(stamp)).filter(|waited| *waited <= MAX_WAIT);
    Time(now.0.saturating_sub(waited.unwrap_or_default().as_micros() as u64))
}

/// Datagrams of one sender that the kernel delivered as one.
struct Train<'a> {
    arrived: Time,
    from: SocketAddr,
    bytes: &'a mut [u8],
    /// Length of every datagram but the last.
    stride: usize,
    /// Whether the end is missing.
    cut: bool,
}

impl Train<'_> {
    fn deliver(self, counters: &mut DriverCounters, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> usize {
        if self.bytes.is_empty() {
            counters.count_received(0);
            sink(self.arrived, self.from, self.bytes);
            return 1;
        }
        let stride = self.stride.clamp(1, self.bytes.len());
        let whole_bytes = if self.cut { (self.bytes.len() - 1) / stride * stride } else { self.bytes.len() };
        counters.truncated += u64::from(self.cut);
        let mut datagrams = 0;
        for datagram in self.bytes[..whole_bytes].chunks_mut(stride) {
            counters.count_received(datagram.len());
            sink(self.arrived, self.from, datagram);
            datagrams += 1;
        }
        datagrams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(bytes: &mut [u8], stride: usize, cut: bool) -> (Vec<Vec<u8>>, DriverCounters) {
        let mut counters = DriverCounters::default();
        let mut datagrams = Vec::new();
        let train = Train { arrived: Time(0), from: SocketAddr::from(([127, 0, 0, 1], 9)), bytes, stride, cut };
        let count = train.deliver(&mut counters, &mut |_, _, datagram| datagrams.push(datagram.to_vec()));
        assert_eq!(count, datagrams.len());
        (datagrams, counters)
    }

    #[test]
    fn a_train_is_split_at_its_stride() {
        let (datagrams, counters) = delivered(&mut [1, 2, 3, 4, 5], 2, false);
        assert_eq!(datagrams, [vec![1, 2], vec![3, 4], vec![5]]);
        assert_eq!((counters.received_datagrams, counters.received_bytes), (3, 5));
    }

    #[test]
    fn a_datagram_came_before_it_was_received_unless_the_clock_was_set() {
        let (now, wall) = (Time::from_secs(100), Duration::from_secs(5_000));
        let came = |stamp| arrival(now, wall, stamp);
        assert_eq!(came(None), now);
        assert_eq!(came(Some(wall - Duration::from_millis(30))), Time::from_millis(99_970));
        assert_eq!(came(Some(wall + Duration::from_secs(1))), now);
        assert_eq!(came(Some(wall - Duration::from_secs(3_600))), now);
        assert_eq!(arrival(Time(5), wall, Some(wall - Duration::from_secs(1))), Time(0));
    }

    #[test]
    fn the_cut_end_of_a_train_is_dropped() {
        let (datagrams, counters) = delivered(&mut [1, 2, 3, 4, 5], 2, true);
        assert_eq!(datagrams, [vec![1, 2], vec![3, 4]]);
        assert_eq!(counters.truncated, 1);
        let (datagrams, _) = delivered(&mut [1, 2, 3, 4], 4, true);
        assert_eq!(datagrams, Vec::<Vec<u8>>::new());
    }

    #[test]
    fn an_empty_datagram_and_a_stride_of_nothing_are_harmless() {
        assert_eq!(delivered(&mut [], 0, false).0, [Vec::<u8>::new()]);
        assert_eq!(delivered(&mut [1, 2], 0, false).0, [vec![1], vec![2]]);
    }
}
