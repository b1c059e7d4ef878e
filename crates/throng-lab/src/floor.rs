//! The floor: what the same packets cost when they are only sealed and sent.

use std::net::SocketAddr;
use std::time::Duration;

use throng::Time;
use throng::net::{Driver, Transmit};
use throng_link::netcode::{Key, Sealer, TAG_LEN};

use crate::clock;

/// Length of a full datagram, as the server sends them.
const DATAGRAM_BYTES: usize = 1_200;

/// What a tick of the server sent on average, to each connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) bytes: f64,
    pub(crate) packets: f64,
}

/// Seals and sends packets like those of the measured ticks, to the same addresses, for so many ticks, and returns the
/// mean time of a tick in milliseconds. The receivers cannot open them, and drop them.
pub(crate) fn measure(
    driver: &mut dyn Driver,
    clients: &[SocketAddr],
    load: Load,
    (ticks, interval): (u32, Duration),
) -> Option<f64> {
    if clients.is_empty() || load.packets <= 0.0 {
        return None;
    }
    let mut sealers: Vec<Sealer> = clients.iter().map(|_| Sealer::new(&Key::new([7; 32]), 0)).collect();
    let mut buffer = vec![0x5A; 64 * DATAGRAM_BYTES];
    let mut spread = Spread::default();
    let mut spent = Duration::ZERO;
    let start = clock::now();
    for tick in 0..ticks {
        let due = start.after(interval * tick);
        std::thread::sleep(due.since(clock::now()));
        let began = std::time::Instant::now();
        for (sealer, &to) in sealers.iter_mut().zip(clients) {
            let (packets, bytes) = spread.next(load);
            send(driver, sealer, to, &mut buffer, (packets, bytes));
        }
        spent += began.elapsed();
    }
    Some(spent.as_secs_f64() * 1e3 / f64::from(ticks))
}

/// Whole packets that come to the mean in the long run.
#[derive(Default)]
struct Spread {
    packets: f64,
    bytes: f64,
}

impl Spread {
    fn next(&mut self, load: Load) -> (usize, usize) {
        self.packets += load.packets;
        self.bytes += load.bytes;
        let packets = self.packets.floor().max(0.0);
        self.packets -= packets;
        let bytes = self.bytes.clamp(packets * 64.0, packets * DATAGRAM_BYTES as f64).floor();
        self.bytes -= bytes;
        (packets as usize, bytes as usize)
    }
}

fn send(driver: &mut dyn Driver, sealer: &mut Sealer, to: SocketAddr, buffer: &mut [u8], load: (usize, usize)) {
    let (packets, mut bytes) = load;
    let mut end = 0;
    for left in (1..=packets.min(64)).rev() {
        let len =
            if left > 1 { DATAGRAM_BYTES } else { bytes.clamp(sealer.header_len() + 1 + TAG_LEN, DATAGRAM_BYTES) };
        // A packet of impossible length would be a mistake above.
        let _ = sealer.seal_payload(&mut buffer[end..end + len]);
        end += len;
        bytes = bytes.saturating_sub(len);
    }
    if end > 0 {
        let transmit = Transmit { to, bytes: &buffer[..end], segment_bytes: DATAGRAM_BYTES.min(end) };
        // What cannot be sent is counted by the driver, as in the run itself.
        let _ = driver.send(Time(0), &transmit);
    }
}
