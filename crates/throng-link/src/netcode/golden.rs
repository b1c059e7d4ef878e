//! Our bytes against those of the C reference implementation, for fixed inputs.
//!
//! The expected values are the test vectors that netcode-official 1.0.0 publishes (generated with the C code), the
//! long ones as SHA-256. They pin layouts, byte order, ciphers, nonces and additional data.

use super::aead::{Key, TAG_LEN};
use super::challenge::{Challenge, ChallengeSealer};
use super::packet::{PacketKind, Side};
use super::seal::{self, Opener, Sealer};
use super::suite::Suite;
use super::{ClientHandshake, ConnectToken, ConnectTokenOptions};
use throng_wire::Time;

const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;
const CLIENT_ID: u64 = 0x0102_0304_0506_0708;
const CHALLENGE_SEQUENCE: u64 = 1000;
const PACKET_SEQUENCE: u64 = 0x11_2233_4455;
const PRIVATE_KEY: Key = Key::new([
    0x60, 0x6a, 0xbe, 0x6e, 0xc9, 0x19, 0x10, 0xea, 0x9a, 0x65, 0x62, 0xf6, 0x6f, 0x2b, 0x30, 0xe4, 0x43, 0x71, 0xd6,
    0x2c, 0xd1, 0x99, 0x27, 0x26, 0x6b, 0x3c, 0x60, 0xf4, 0xb7, 0x15, 0xab, 0xa1,
]);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

fn counting_up(from: u8) -> [u8; 32] {
    std::array::from_fn(|i| from.wrapping_add(i as u8))
}

/// The vectors' token: nonce 100.., keys 0.. and 255 downwards, in the order in which they are drawn.
fn token() -> ConnectToken {
    let mut draws =
        [(100..124).collect::<Vec<u8>>(), counting_up(0).to_vec(), counting_up(0).map(|i| 255 - i).to_vec()]
            .into_iter();
    let options = ConnectTokenOptions {
        protocol_id: PROTOCOL_ID,
        client_id: CLIENT_ID,
        create_unix_s: 1_720_000_000,
        expire_unix_s: 1_720_000_100,
        suite: Suite::default(),
        timeout_s: 15,
        servers: vec!["127.0.0.1:40000".parse().unwrap(), "[::1]:50000".parse().unwrap()],
        user_data: std::array::from_fn(|i| i as u8),
    };
    ConnectToken::generate(&options, &PRIVATE_KEY, &mut |bytes| bytes.copy_from_slice(&draws.next().unwrap())).unwrap()
}

fn challenge_body() -> Vec<u8> {
    let key = Key::new(std::array::from_fn(|i| 2 * i as u8));
    let user_data = std::array::from_fn(|i| i as u8);
    let challenge = Challenge { client_id: CLIENT_ID, user_data, token_tag: [0; TAG_LEN] };
    let (sequence, sealed) = ChallengeSealer::starting_at(&key, CHALLENGE_SEQUENCE).seal(&[], &challenge);
    [&sequence.to_le_bytes()[..], &sealed].concat()
}

/// Seals the vectors' packet of a kind, checks that it opens again, and returns its bytes.
fn packet(kind: PacketKind, side: Side, body: &[u8]) -> Vec<u8> {
    let key = Key::new(counting_up(17));
    let mut packet = Vec::new();
    seal::seal_unconnected((Suite::default(), &key), PROTOCOL_ID, kind, PACKET_SEQUENCE, body, &mut packet);
    let mut datagram = packet.clone();
    let mut opener = Opener::new(Suite::default(), &key, PROTOCOL_ID, side);
    let opened = opener.open(&mut datagram).unwrap();
    assert_eq!((opened.kind, opened.sequence, &*opened.body), (kind, PACKET_SEQUENCE, body));
    packet
}

/// The reference implementation does not know this suite: the expected bytes are OpenSSL's.
#[test]
fn packets_of_the_aes_suite_have_the_bytes_of_another_implementation() {
    let thousandth = |mut sealer: Sealer| {
        let mut packet = [&[0; 3][..], b"hello, crowd", &[0; TAG_LEN]].concat();
        let mut other = [0; 3 + 1 + TAG_LEN];
        while sealer.next_sequence() < 1000 {
            let len = sealer.header_len() + 1 + TAG_LEN;
            sealer.seal_payload(&mut other[..len]).unwrap();
        }
        sealer.seal_payload(&mut packet).unwrap();
        hex(&packet)
    };
    let sealer = || Sealer::new(Suite::Aes256Gcm, &Key::new([9; 32]), PROTOCOL_ID);
    assert_eq!(thousandth(sealer()), "25e803b83b30d881475814ae81092707d366fc39ecba471f79b07c39751e68");
    let servers = sealer().after(CLIENT_ID);
    assert_eq!(thousandth(servers), "25e803af35e67f9ce8302be7824abce525b76b8efb715b64f80a36f7f4c0ef");
}

#[test]
fn connect_tokens_have_the_reference_bytes() {
    let bytes = token().to_bytes();
    assert_eq!(sha256(&bytes), "12cd58f0e2d17b002b629359f207018eac54e8cff2064382e600df738cfd4410");
    assert_eq!(
        sha256(&token().private_section[..]),
        "3fc190a87b816c4340e0894a16d5b0d9c55507bab095d77da9c07daf7e3bf98a"
    );
    assert_eq!(ConnectToken::from_bytes(&bytes).unwrap().to_bytes(), bytes);
}

#[test]
fn challenge_tokens_have_the_reference_bytes() {
    assert_eq!(sha256(&challenge_body()[8..]), "33c5560aaed4192fc714fbba4910c38f235a4298f9121901c0d47549cc0a62e0");
}

#[test]
fn requests_have_the_reference_bytes() {
    let mut request = Vec::new();
    ClientHandshake::new(token(), Time(0)).poll_transmit(Time(0), &mut request).unwrap();
    assert_eq!(request.len(), 1078);
    assert_eq!(sha256(&request), "fc7d9221a4b2d74dfaa7accd870730d434caa2315724cce1141c91ad47969968");
}

#[test]
fn short_packets_have_the_reference_bytes() {
    let denied = packet(PacketKind::Denied, Side::Client, &[]);
    assert_eq!(hex(&denied), "5155443322117d50da833982dbfec854b412fc8a5c84");
    let keep_alive = packet(PacketKind::KeepAlive, Side::Client, &[7, 0, 0, 0, 32, 0, 0, 0]);
    assert_eq!(hex(&keep_alive), "54554433221102a85bb8a396ae350caaae147506e5acae951f983789c832");
    let disconnect = packet(PacketKind::Disconnect, Side::Client, &[]);
    assert_eq!(hex(&disconnect), "5655443322111d1a23ccf0be58180af3daa88fd65225");
}

#[test]
fn long_packets_have_the_reference_bytes() {
    let challenge = packet(PacketKind::Challenge, Side::Client, &challenge_body());
    assert_eq!(sha256(&challenge), "22fc408d3ab1e8655d9edf9dd9bdad69b06978ff85323a564c0563fc7dfbf6a7");
    let response = packet(PacketKind::Response, Side::Server, &challenge_body());
    assert_eq!(sha256(&response), "d7f8965bb2961ae0c355f50ecedc13347575d38832668b6e4b7c5f6ae49973e9");
    let payload: Vec<u8> = (0..1200).map(|i| i as u8).collect();
    let payload = packet(PacketKind::Payload, Side::Client, &payload);
    assert_eq!(sha256(&payload), "e991282ba33dae3d19f4a9ecd0577f876a8175cf399180af5e3b21a33a4c6377");
}
