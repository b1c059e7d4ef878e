//! Fixed-size fields in little-endian order, and the standard's address format:
//!
//! ```text
//! IPv4   1 (u8) | four octets in written order             | port (u16)
//! IPv6   2 (u8) | eight segments in written order, u16 each | port (u16)
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const IPV4: u8 = 1;
const IPV6: u8 = 2;
/// Bytes of the longest address.
pub(super) const ADDRESS_LEN_MAX: usize = 19;

/// Takes fields off the front of untrusted bytes. `None` if the bytes end too early or are malformed.
pub(super) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> FieldReader<'a> {
        FieldReader { rest: bytes }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*field)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn address(&mut self) -> Option<SocketAddr> {
        let ip = match self.array::<1>()? {
            [IPV4] => IpAddr::from(Ipv4Addr::from(self.array::<4>()?)),
            [IPV6] => {
                let mut segments = [0; 8];
                for segment in &mut segments {
                    *segment = self.u16()?;
                }
                IpAddr::from(Ipv6Addr::from(segments))
            }
            _ => return None,
        };
        Some(SocketAddr::new(ip, self.u16()?))
    }
}

/// Puts fields one after the other into a buffer of a fixed size.
///
/// Panics when the buffer is too small: the sizes of everything written here are known, and asserted where they meet.
pub(super) struct FieldWriter<'a> {
    rest: &'a mut [u8],
}

impl<'a> FieldWriter<'a> {
    pub(super) fn new(buffer: &'a mut [u8]) -> FieldWriter<'a> {
        FieldWriter { rest: buffer }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let (field, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        field.copy_from_slice(bytes);
        self.rest = rest;
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn address(&mut self, address: SocketAddr) {
        match address.ip() {
            IpAddr::V4(ip) => {
                self.bytes(&[IPV4]);
                self.bytes(&ip.octets());
            }
            IpAddr::V6(ip) => {
                self.bytes(&[IPV6]);
                ip.segments().iter().for_each(|segment| self.bytes(&segment.to_le_bytes()));
            }
        }
        self.bytes(&address.port().to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_standards_bytes() {
        let mut buffer = [0; 2 * ADDRESS_LEN_MAX];
        let (v4, v6) = ("1.2.3.4:258".parse().unwrap(), "[1:2::ff]:772".parse().unwrap());
        let mut w = FieldWriter::new(&mut buffer);
        w.address(v4);
        w.address(v6);
        assert_eq!(buffer[..7], [1, 1, 2, 3, 4, 2, 1]);
        assert_eq!(buffer[7..26], [2, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 4, 3]);
        let mut r = FieldReader::new(&buffer);
        assert_eq!((r.address(), r.address()), (Some(v4), Some(v6)));
    }

    #[test]
    fn unknown_address_types_and_short_fields_are_refused() {
        for bytes in [&[0, 1, 2, 3, 4, 5, 6][..], &[3, 1, 2, 3, 4, 5, 6], &[1, 1, 2, 3, 4, 5], &[2; 18], &[]] {
            assert_eq!(FieldReader::new(bytes).address(), None, "{bytes:?}");
        }
    }
}
