//! The PROXY protocol, versions 1 and 2: a proxy sends the client's address before all other data.
//!
//! ```text
//! 1   PROXY TCP4 203.0.113.7 192.0.2.1 50000 12108\r\n       at most 107 bytes; TCP6; UNKNOWN, with anything behind it
//!
//! 2   0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A                    signature
//!     [2 << 4 | command]                                     0 LOCAL: the proxy speaks for itself; 1 PROXY
//!     [family << 4 | transport]                              0 unknown; 1 IPv4, 2 IPv6, 3 Unix; 1 stream, 2 datagram
//!     [length u16 BE]                                        of all that follows, at most 4,096 here
//!     source, destination, ports                             4 + 4 + 2 + 2 bytes, or 16 + 16 + 2 + 2
//!     type-length-value fields                               skipped
//! ```
//! Source: <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>. The reader never takes a byte that does not
//! belong to the header: what follows is for TLS, WebSocket or our own frames.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const LINE_START: &[u8] = b"PROXY ";
/// `PROXY UNKNOWN\r\n`
const LINE_BYTES_MIN: usize = 15;
const LINE_BYTES_MAX: usize = 107;
const HEADER_BYTES: usize = 16;
/// The rest of a header of version 2: addresses and fields that proxies add, such as the name of a certificate.
const BODY_BYTES_MAX: usize = 4_096;

/// How far a header has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// This many more bytes certainly belong to it.
    Wants(usize),
    /// It is whole.
    Whole {
        /// The client; `None` if the proxy speaks for itself, or does not know.
        client: Option<SocketAddr>,
        /// Its length.
        bytes: usize,
    },
}

/// Bytes that are no header of the PROXY protocol. The proxy is set up wrongly, or is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// It begins like neither version.
    #[error("the connection does not begin with a PROXY header: turn the proxy's send-proxy option on")]
    NoHeader,
    /// Its line is no line of version 1.
    #[error("the line of PROXY version 1 cannot be read")]
    Line,
    /// Its version, command, family or length is none of version 2.
    #[error("the header of PROXY version 2 cannot be read")]
    Binary,
    /// More follows it than is read.
    #[error("a PROXY header of {bytes} bytes is longer than {BODY_BYTES_MAX}")]
    TooLong {
        /// Its content.
        bytes: usize,
    },
}

impl ProxyHeader {
    /// Looks at the first bytes that have come.
    ///
    /// # Errors
    /// They are no beginning of a header.
    pub fn parse(bytes: &[u8]) -> Result<ProxyHeader, ProxyError> {
        if bytes.is_empty() {
            return Ok(ProxyHeader::Wants(LINE_BYTES_MIN.min(HEADER_BYTES)));
        }
        let begins_with = |start: &[u8]| bytes.iter().zip(start).all(|(byte, expected)| byte == expected);
        if begins_with(&SIGNATURE) {
            parse_binary(bytes)
        } else if begins_with(LINE_START) {
            parse_line(bytes)
        } else {
            Err(ProxyError::NoHeader)
        }
    }
}

fn parse_line(bytes: &[u8]) -> Result<ProxyHeader, ProxyError> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        let least = match bytes.last() {
            _ if bytes.len() < LINE_BYTES_MIN => LINE_BYTES_MIN - bytes.len(),
            Some(b'\r') => 1,
            _ => 2,
        };
        return match bytes.len() + least <= LINE_BYTES_MAX {
            true => Ok(ProxyHeader::Wants(least)),
            false => Err(ProxyError::Line),
        };
    };
    let line = bytes[..end].strip_prefix(LINE_START).and_then(|line| std::str::from_utf8(line).ok());
    let mut words = line.ok_or(ProxyError::Line)?.split(' ');
    let client = match words.next() {
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(addresses::<Ipv4Addr>(words)?),
        Some("TCP6") => Some(addresses::<Ipv6Addr>(words)?),
        _ => return Err(ProxyError::Line),
    };
    Ok(ProxyHeader::Whole { client, bytes: end + 2 })
}

/// The source of `source destination port port`, and nothing behind it.
fn addresses<'w, A>(mut words: impl Iterator<Item = &'w str>) -> Result<SocketAddr, ProxyError>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let mut ip = || words.next()?.parse::<A>().ok();
    let (source, _destination) = ip().zip(ip()).ok_or(ProxyError::Line)?;
    let mut port = || words.next().and_then(port_of).ok_or(ProxyError::Line);
    let (from, _to) = (port()?, port()?);
    match words.next() {
        None => Ok(SocketAddr::new(source.into(), from)),
        Some(_) => Err(ProxyError::Line),
    }
}

/// Digits alone, without a zero in front of others.
fn port_of(word: &str) -> Option<u16> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word.len() == 1 || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain)
}

fn parse_binary(bytes: &[u8]) -> Result<ProxyHeader, ProxyError> {
    let &[version_and_command, family_and_transport, high, low] = match bytes.get(SIGNATURE.len()..HEADER_BYTES) {
        Some(header) => header.first_chunk().ok_or(ProxyError::Binary)?,
        None => return Ok(ProxyHeader::Wants(HEADER_BYTES - bytes.len())),
    };
    let (family, transport) = (family_and_transport >> 4, family_and_transport & 0xF);
    if version_and_command >> 4 != 2 || version_and_command & 0xF > 1 || family > 3 || transport > 2 {
        return Err(ProxyError::Binary);
    }
    let body_bytes = usize::from(u16::from_be_bytes([high, low]));
    if body_bytes > BODY_BYTES_MAX {
        return Err(ProxyError::TooLong { bytes: body_bytes });
    }
    let is_for_itself = version_and_command & 0xF == 0;
    let address_bytes = match family {
        _ if is_for_itself => 0,
        1 => 12,
        2 => 36,
        3 => 216,
        _ => 0,
    };
    if body_bytes < address_bytes {
        return Err(ProxyError::Binary);
    }
    let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + body_bytes) else {
        return Ok(ProxyHeader::Wants(HEADER_BYTES + body_bytes - bytes.len()));
    };
    let client = match (is_for_itself, family) {
        (false, 1) => source::<4>(body, 8).map(|(ip, port)| SocketAddr::new(Ipv4Addr::from(ip).into(), port)),
        (false, 2) => source::<16>(body, 32).map(|(ip, port)| SocketAddr::new(Ipv6Addr::from(ip).into(), port)),
        _ => None,
    };
    Ok(ProxyHeader::Whole { client, bytes: HEADER_BYTES + body_bytes })
}

/// The first address of a body, and the first port.
fn source<const N: usize>(body: &[u8], port_at: usize) -> Option<([u8; N], u16)> {
    let port = body.get(port_at..)?.first_chunk()?;
    Some((*body.first_chunk()?, u16::from_be_bytes(*port)))
}

/// The content of a proxy's header.
pub(crate) enum Said {
    /// For whom it speaks, if it knows and it is not itself.
    Client(Option<SocketAddr>),
    /// Nothing at all: the peer only checked that the port is open.
    Nothing,
}

/// Reads a header, and no byte more.
pub(crate) async fn read<R: AsyncRead + Unpin>(reader: &mut R) -> io::Result<Result<Said, ProxyError>> {
    let mut bytes = Vec::new();
    loop {
        match ProxyHeader::parse(&bytes) {
            Ok(ProxyHeader::Whole { client, .. }) => return Ok(Ok(Said::Client(client))),
            Ok(ProxyHeader::Wants(more)) => {
                let begin = bytes.len();
                bytes.resize(begin + more, 0);
                match reader.read(&mut bytes[begin..]).await? {
                    0 if begin == 0 => return Ok(Ok(Said::Nothing)),
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => bytes.truncate(begin + read),
                }
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(text: &str) -> Result<ProxyHeader, ProxyError> {
        ProxyHeader::parse(text.as_bytes())
    }

    fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[0x20 | command, family], &length, body].concat()
    }

    fn whole(bytes: &[u8]) -> Option<SocketAddr> {
        match ProxyHeader::parse(bytes) {
            Ok(ProxyHeader::Whole { client, bytes: length }) if length == bytes.len() => client,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_of_version_1_name_the_client() {
        let client = |text: &str| whole(text.as_bytes()).map(|client| client.to_string());
        assert_eq!(client("PROXY TCP4 203.0.113.7 192.0.2.1 50000 80\r\n").as_deref(), Some("203.0.113.7:50000"));
        assert_eq!(client("PROXY TCP6 2001:db8::1 ::1 1 2\r\n").as_deref(), Some("[2001:db8::1]:1"));
        assert_eq!(client("PROXY UNKNOWN\r\n"), None);
        assert_eq!(client("PROXY UNKNOWN ffff:f::ffff ffff::ffff 65535 65535\r\n"), None);
    }

    /// The shortest header of all: a reader that expects version 2 would read beyond it.
    #[test]
    fn nothing_is_taken_of_what_follows_the_shortest_header() {
        assert_eq!(ProxyHeader::parse(b""), Ok(ProxyHeader::Wants("PROXY UNKNOWN\r\n".len())));
    }

    #[test]
    fn other_lines_are_refused() {
        for wrong in [
            "GET / HTTP/1.1\r\n",
            "PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 65536 2\r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n",
            "PROXY TCP4  1.1.1.1 2.2.2.2 1 2\r\n",
            "PROXY  \r\n        ",
        ] {
            assert!(line(wrong).is_err(), "{wrong:?}");
        }
        let endless = format!("PROXY UNKNOWN {}", "x".repeat(LINE_BYTES_MAX));
        assert_eq!(line(&endless), Err(ProxyError::Line));
    }

    #[test]
    fn headers_of_version_2_name_the_client_and_their_fields_are_skipped() {
        let v4 = [203, 0, 113, 7, 192, 0, 2, 1, 0xC3, 0x50, 0, 80];
        let expected = "203.0.113.7:50000".parse().ok();
        assert_eq!(whole(&binary(1, 0x11, &v4)), expected);
        assert_eq!(whole(&binary(1, 0x11, &[&v4[..], &[3, 0, 4, 1, 2, 3, 4]].concat())), expected);
        let mut v6 = [0; 36];
        (v6[15], v6[33]) = (1, 9);
        assert_eq!(whole(&binary(1, 0x21, &v6)), "[::1]:9".parse().ok());
        for (command, family, body) in
            [(0, 0x11, &v4[..]), (0, 0, &[]), (1, 0, &[]), (1, 0, &[1, 2]), (1, 0x31, &[7; 216])]
        {
            assert_eq!(whole(&binary(command, family, body)), None, "{command} {family:x}");
        }
    }

    #[test]
    fn other_headers_are_refused() {
        let v4 = [0; 12];
        for (command, family, body) in
            [(2, 0x11, &v4[..]), (1, 0x41, &v4), (1, 0x13, &v4), (1, 0x11, &v4[..11]), (1, 0x21, &v4)]
        {
            assert_eq!(
                ProxyHeader::parse(&binary(command, family, body)),
                Err(ProxyError::Binary),
                "{command} {family:x}"
            );
        }
        let mut version_1 = binary(1, 0x11, &v4);
        version_1[12] = 0x11;
        assert_eq!(ProxyHeader::parse(&version_1), Err(ProxyError::Binary));
        let too_long = binary(1, 0x11, &[0; BODY_BYTES_MAX + 1]);
        assert_eq!(ProxyHeader::parse(&too_long[..16]), Err(ProxyError::TooLong { bytes: BODY_BYTES_MAX + 1 }));
    }

    proptest! {
        #![proptest_config(throng_seeds::cases(256))]

        /// However a header comes in pieces, the reader takes it, and no byte of what follows.
        #[test]
        fn nothing_is_taken_of_what_follows(
            from: SocketAddr, to: SocketAddr, is_binary: bool, fields in prop::collection::vec(any::<u8>(), 0..100),
            tail in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let (from, to) = match (from, to) {
                (SocketAddr::V6(from), _) => (SocketAddr::new((*from.ip()).into(), from.port()), Ipv6Addr::LOCALHOST.into()),
                (from, to) => (from, if to.is_ipv4() { to.ip() } else { Ipv4Addr::LOCALHOST.into() }),
            };
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let ports = [from.port().to_be_bytes(), 80u16.to_be_bytes()].concat();
            let header = match is_binary {
                true => binary(1, if from.is_ipv4() { 0x11 } else { 0x21 }, &[octets(from.ip()), octets(to), ports, fields].concat()),
                false => {
                    let family = if from.is_ipv4() { 4 } else { 6 };
                    format!("PROXY TCP{family} {} {to} {} 80\r\n", from.ip(), from.port()).into_bytes()
                }
            };
            let sent = [&header[..], &tail].concat();
            let (mut taken, mut read) = (0, Vec::new());
            let client = loop {
                match ProxyHeader::parse(&read).expect("it is a header") {
                    ProxyHeader::Whole { client, bytes } => {
                        prop_assert_eq!(bytes, header.len());
                        break client;
                    }
                    ProxyHeader::Wants(more) => {
                        prop_assert!(more > 0);
                        taken += more;
                        prop_assert!(taken <= header.len());
                        read = sent[..taken].to_vec();
                    }
                }
            };
            prop_assert_eq!((client, taken), (Some(from), header.len()));
        }
    }
}
