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
    /// What the peer's own transport would know: 0 where it needs none.
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

    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}
