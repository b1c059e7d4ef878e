//! Headers of the PROXY protocol: any bytes, and genuine ones, bent.

use std::net::{Ipv4Addr, Ipv6Addr};

use throng_gateway::serve::ProxyHeader;

use super::choices::Choices;

/// Most bytes that a reader may hold: the header of version 2 and the fields behind it.
const HELD_BYTES: usize = 16 + 4_096;

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut bytes = match choices.below(3) {
        0 => choices.bytes(usize::MAX).to_vec(),
        1 => line(&mut choices),
        _ => binary(&mut choices),
    };
    choices.bend(&mut bytes);
    read(&bytes);
}

/// Reads as the gateway does, and checks the reader: each step makes progress, none goes beyond the header, and a
/// complete header gives the same result whatever follows.
fn read(bytes: &[u8]) {
    let mut taken = 0;
    let (client, length) = loop {
        match ProxyHeader::parse(&bytes[..taken]) {
            Ok(ProxyHeader::Wants(more)) => {
                assert!(more > 0 && taken + more <= HELD_BYTES);
                if taken == bytes.len() {
                    return;
                }
                taken = bytes.len().min(taken + more);
            }
            Ok(ProxyHeader::Whole { client, bytes }) => break (client, bytes),
            Err(error) => return assert!(!error.to_string().is_empty()),
        }
    };
    assert_eq!(length, taken, "not a byte too many");
    let longer = [&bytes[..taken], b"and more"].concat();
    assert_eq!(ProxyHeader::parse(&longer), Ok(ProxyHeader::Whole { client, bytes: length }));
}

fn line(choices: &mut Choices<'_>) -> Vec<u8> {
    let (port, is_v6) = (choices.number() as u16, choices.byte() & 1 == 1);
    let text = match choices.below(4) {
        0 => "PROXY UNKNOWN\r\n".to_owned(),
        _ if is_v6 => {
            let ip = Ipv6Addr::from(u128::from(choices.number()) << choices.below(97));
            format!("PROXY TCP6 {ip} ::1 {port} 80\r\n")
        }
        _ => format!("PROXY TCP4 {} 192.0.2.1 {port} 80\r\n", Ipv4Addr::from(choices.number())),
    };
    text.into_bytes()
}

fn binary(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.push(0x20 | (choices.byte() & 3));
    bytes.push([0x11, 0x21, 0x31, 0, 0x12, choices.byte()][choices.below(6)]);
    let body = choices.bytes(300);
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}
