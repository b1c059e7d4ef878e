use throng_wire::Time;

use crate::{Driver, SendError, Transmit, Wrapper};

/// A client's driver behind a proxy that chooses the server by a token in each datagram, as Quilkin does.
///
/// ```text
///  client                                      proxy                               server
///  | datagram | token | --------------------->  reads the token, takes it off  --> | datagram |
///  | datagram |        <---------------------------------------------------------  | datagram |
/// ```
///
/// Sealed datagrams show no name of their server, so each one that the client sends ends with the token. The proxy takes it off:
/// the server sees what it would see without a proxy. Nothing that arrives is changed.
///
/// The token tells the proxy where to send, and proves nothing. Everybody between client and proxy can read it.
///
/// ```
/// use throng_net::{Driver, Routed, RoutingToken, Transmit, UdpDriver, UdpOptions};
/// use throng_wire::Time;
///
/// let mut proxy = UdpDriver::bind("127.0.0.1:0".parse()?, &UdpOptions::server())?;
/// let socket = UdpDriver::bind("127.0.0.1:0".parse()?, &UdpOptions::client())?;
/// let mut client = Routed::new(socket, RoutingToken::new(b"match-17")?);
/// client.send(Time(0), &Transmit::single(proxy.local_address(), b"hello"))?;
/// let mut arrived = Vec::new();
/// proxy.receive(Time(0), &mut |_, _, bytes| arrived.extend_from_slice(bytes))?;
/// assert_eq!(arrived, b"hellomatch-17");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Routed<D> {
    driver: D,
    token: RoutingToken,
    /// Datagrams with their tokens; kept, so that a steady sender allocates nothing.
    bytes: Vec<u8>,
}

impl<D: Driver> Routed<D> {
    /// Wraps a driver.
    pub fn new(driver: D, token: RoutingToken) -> Routed<D> {
        Routed { driver, token, bytes: Vec::new() }
    }

    /// The driver within.
    pub fn driver(&self) -> &D {
        &self.driver
    }
}

impl<D: Driver> Wrapper for Routed<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.driver
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Sends all datagrams, each with the token behind it. A transmit that fails [`Transmit::check`] is refused before anything is sent.
    fn wrap_send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        transmit.check()?;
        self.bytes.clear();
        for datagram in transmit.iter() {
            self.bytes.extend_from_slice(datagram);
            self.bytes.extend_from_slice(self.token.as_bytes());
        }
        // All but the last had one length, and still have.
        let segment_bytes = transmit.segment_bytes.min(transmit.bytes.len()) + self.token.as_bytes().len();
        self.driver.send(now, &Transmit { to: transmit.to, bytes: &self.bytes, segment_bytes })
    }
}

/// The bytes by which a proxy knows a server. All tokens of one proxy have one length, because it takes off so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoutingToken {
    bytes: [u8; RoutingToken::MAX_BYTES],
    len: u8,
}

impl RoutingToken {
    /// The longest token. Behind a datagram of 1,200 bytes it still fits an IPv6 packet of 1,280 bytes, which passes everywhere.
    pub const MAX_BYTES: usize = 32;

    /// A token of 1 to 32 bytes.
    ///
    /// # Errors
    ///
    /// [`RoutingTokenError`]: none, or more.
    pub fn new(bytes: &[u8]) -> Result<RoutingToken, RoutingTokenError> {
        let refused = RoutingTokenError { bytes: bytes.len() };
        if bytes.is_empty() {
            return Err(refused);
        }
        let mut token = RoutingToken { bytes: [0; RoutingToken::MAX_BYTES], len: bytes.len() as u8 };
        token.bytes.get_mut(..bytes.len()).ok_or(refused)?.copy_from_slice(bytes);
        Ok(token)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A routing token has the wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a routing token of {bytes} bytes: take 1 to 32 bytes")]
pub struct RoutingTokenError {
    /// Its length.
    pub bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, MemoryNetwork};

    #[test]
    fn each_datagram_of_a_batch_ends_with_the_token_and_answers_are_left_alone() {
        let network = MemoryNetwork::new(Condition::default(), 1).unwrap();
        let mut proxy = network.endpoint("10.0.0.1:1".parse().unwrap()).unwrap();
        let end = network.endpoint("10.0.0.2:2".parse().unwrap()).unwrap();
        let mut client = Routed::new(end, RoutingToken::new(b"xyz").unwrap());
        for (bytes, segment_bytes, expected) in [
            (&b"aabbc"[..], 2, &["aaxyz", "bbxyz", "cxyz"][..]),
            (b"aabb", 2, &["aaxyz", "bbxyz"]),
            (b"aa", 9, &["aaxyz"]),
            (b"a", usize::MAX, &["axyz"]),
        ] {
            let transmit = Transmit { to: proxy.local_address(), bytes, segment_bytes };
            assert_eq!(client.send(Time(0), &transmit).unwrap(), expected.len());
            let mut arrived = Vec::new();
            proxy
                .receive(Time(0), &mut |_, _, bytes| arrived.push(String::from_utf8(bytes.to_vec()).unwrap()))
                .unwrap();
            assert_eq!(arrived, expected);
        }
        proxy.send(Time(0), &Transmit::single(client.local_address(), b"answer")).unwrap();
        let mut answers = Vec::new();
        client.receive(Time(0), &mut |_, _, bytes| answers.push(bytes.to_vec())).unwrap();
        assert_eq!(answers, [b"answer"]);
    }

    #[test]
    fn what_no_driver_could_send_is_refused_with_a_token_too() {
        let network = MemoryNetwork::new(Condition::default(), 1).unwrap();
        let end = network.endpoint("10.0.0.2:2".parse().unwrap()).unwrap();
        let mut client = Routed::new(end, RoutingToken::new(b"xyz").unwrap());
        let nothing = Transmit { to: client.local_address(), bytes: b"a", segment_bytes: 0 };
        assert!(matches!(client.send(Time(0), &nothing), Err(SendError::NoSegmentLength)));
        let longest = vec![0; crate::MAX_DATAGRAM_BYTES];
        let too_long = Transmit::single(client.local_address(), &longest);
        assert!(matches!(client.send(Time(0), &too_long), Err(SendError::TooLarge { bytes: 65_510 })));
    }

    #[test]
    fn a_token_has_1_to_32_bytes() {
        for length in 0..300 {
            let bytes = vec![7; length];
            match RoutingToken::new(&bytes) {
                Ok(token) => assert!((1..=32).contains(&length) && token.as_bytes() == bytes),
                Err(error) => assert!(!(1..=32).contains(&length) && error.bytes == length),
            }
        }
    }
}
