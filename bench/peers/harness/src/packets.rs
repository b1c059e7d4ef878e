//! The network of all peers: bytes for a client, one packet after the other in one buffer.

/// Packets under way in one direction.
#[derive(Debug, Default)]
pub struct Packets {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    client: u32,
    channel: u32,
    start: usize,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// To or from which client.
    pub client: u32,
    /// The number of the channel in the peer's own transport; 0 if it needs none.
    pub channel: u32,
    /// The contents.
    pub bytes: &'a [u8],
}

impl Packets {
    /// Adds a packet.
    pub fn push(&mut self, client: u32, channel: u32, bytes: &[u8]) {
        self.spans.push(Span { client, channel, start: self.bytes.len() });
        self.bytes.extend_from_slice(bytes);
    }

    /// All packets, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Packet<'_>> {
        let ends = self.spans.iter().skip(1).map(|span| span.start).chain([self.bytes.len()]);
        let packet = |(span, end): (&Span, usize)| Packet {
            client: span.client,
            channel: span.channel,
            bytes: &self.bytes[span.start..end],
        };
        self.spans.iter().zip(ends).map(packet)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// How many bytes all of them have.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Becomes a copy of the other.
    pub(crate) fn copy_from(&mut self, other: &Packets) {
        self.bytes.clone_from(&other.bytes);
        self.spans.clone_from(&other.spans);
    }

    /// Takes out the packets for which the answer is yes, asking once for each in order.
    pub(crate) fn lose(&mut self, mut is_lost: impl FnMut() -> bool) {
        let (mut kept, mut end) = (0, 0);
        for at in 0..self.spans.len() {
            let span = self.spans[at];
            let next = self.spans.get(at + 1).map_or(self.bytes.len(), |next| next.start);
            if is_lost() {
                continue;
            }
            self.bytes.copy_within(span.start..next, end);
            self.spans[kept] = Span { start: end, ..span };
            kept += 1;
            end += next - span.start;
        }
        self.spans.truncate(kept);
        self.bytes.truncate(end);
    }

    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_lost_stays_whole_and_in_order() {
        for lost in 0u32..1 << 4 {
            let mut packets = Packets::default();
            let all = [(0, &b"one"[..]), (1, b""), (2, b"three"), (3, b"4")];
            all.iter().for_each(|&(client, bytes)| packets.push(client, 0, bytes));
            let mut asked = 0;
            packets.lose(|| {
                asked += 1;
                lost >> (asked - 1) & 1 == 1
            });
            let kept: Vec<_> = packets.iter().map(|packet| (packet.client, packet.bytes)).collect();
            let expected: Vec<_> = all.into_iter().filter(|&(client, _)| lost >> client & 1 == 0).collect();
            assert_eq!((kept, asked), (expected, 4), "lost: {lost:04b}");
        }
    }
}
