//! Both forms of the header, told apart for each connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use throng_channeld::client::ClientOptions;
use throng_channeld::frame::HEADER_BYTES;
use throng_channeld::{Compression, Dialect, Header, PacketWriter, put_message};
use throng_gateway::serve::Transport;

use crate::serving::{ECHO, auth_frame, echo, payload_of, serve, soon};

fn options(dialect: Dialect, compression: Compression) -> ClientOptions {
    ClientOptions { dialect, compression, ..ClientOptions::default() }
}

#[test]
fn peers_of_both_dialects_are_served_side_by_side() {
    let serving = serve(Transport::Tcp, |_| {});
    let mut clients =
        [Dialect::Fixed, Dialect::Legacy].map(|dialect| serving.join(options(dialect, Compression::None)));
    for length in [1, 200, 255, 256, 300, 19_960, 20_000, 40_000] {
        for client in &mut clients {
            echo(client, &vec![5; length]);
        }
    }
    serving.end();
}

#[test]
fn a_peer_that_packs_is_answered_in_packed_frames_in_both_dialects() {
    let serving = serve(Transport::Tcp, |_| {});
    for dialect in [Dialect::Fixed, Dialect::Legacy] {
        let mut client = serving.join(options(dialect, Compression::Snappy));
        for length in [10, 300, 20_000, 60_000] {
            echo(&mut client, &vec![5; length]);
        }
    }
    serving.end();
}

/// The compression that a frame's header names.
fn next_compression(stream: &mut TcpStream) -> u8 {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).expect("a frame");
    // Answers here are long, so both dialects write them alike.
    let [_, _, high, low, compression] = header;
    let mut payload = vec![0; u16::from_be_bytes([high, low]).into()];
    stream.read_exact(&mut payload).expect("all of it");
    compression
}

#[test]
fn after_one_packed_packet_of_a_peer_all_its_answers_are_packed() {
    let serving = serve(Transport::Tcp, |_| {});
    let mut stream = TcpStream::connect(serving.address()).expect("the door is open");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    stream.write_all(&auth_frame()).expect("connected");
    assert_eq!(next_compression(&mut stream), 0, "a peer that does not pack may not be able to unpack");
    for (is_packed, answered) in [(false, 0), (true, 1), (false, 1), (false, 1), (false, 1)] {
        let mut writer = PacketWriter::new();
        writer.follow(if is_packed { Compression::Snappy } else { Compression::None });
        let (mut entries, mut bytes) = (Vec::new(), Vec::new());
        put_message(&mut entries, Header::new(0, ECHO), &[5; 20_000]);
        writer.write(Dialect::Fixed, &entries, &mut bytes);
        assert_eq!(bytes[4], u8::from(is_packed));
        stream.write_all(&bytes).expect("connected");
        assert_eq!(next_compression(&mut stream), answered);
    }
    serving.end();
}

#[test]
fn w19_a_legacy_peer_gets_in_with_a_short_token_and_reads_many_packets() {
    let serving = serve(Transport::Tcp, |_| {});
    let mut client = serving.connect(options(Dialect::Legacy, Compression::None));
    client.authenticate("tok4", "", soon()).expect("a token of four bytes");
    for number in 0..100u8 {
        client.send_bytes(Header::new(0, ECHO), &[number]).expect("connected");
    }
    for number in 0..100u8 {
        let answer = client.wait_for(ECHO, soon()).expect("each comes back, in order");
        assert_eq!(payload_of(&answer.body), [number]);
    }
    serving.end();
}

#[test]
fn a_legacy_peer_never_gets_a_frame_that_it_would_misread() {
    let serving = serve(Transport::Tcp, |_| {});
    // Its first frames are long, so nothing tells that it is a legacy peer until they are answered.
    let mut client = serving.connect(options(Dialect::Legacy, Compression::None));
    client.authenticate(&"t".repeat(300), "", soon()).expect("a token of 300 bytes");
    for length in (19_930..20_230).step_by(5) {
        echo(&mut client, &vec![5; length]);
    }
    serving.end();
}
