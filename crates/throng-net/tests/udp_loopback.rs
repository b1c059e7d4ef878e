//! Real sockets on loopback. Loopback delivers within the send, so nothing here waits.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use throng_net::{
    BindError, Driver, LightUdpSocket, ReceiveBuffers, Segmentation, SendError, Transmit, UdpDriver, UdpOptions,
};
use throng_wire::Time;

const NOW: Time = Time(0);

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn server() -> UdpDriver {
    UdpDriver::bind(loopback(), &UdpOptions::server()).expect("a free port")
}

fn received(driver: &mut UdpDriver) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut datagrams = Vec::new();
    let count = driver.receive(NOW, &mut |_, from, bytes| datagrams.push((from, bytes.to_vec()))).expect("loopback");
    assert_eq!(count, datagrams.len());
    datagrams
}

/// Datagrams of equal length but the last, each filled with its number.
fn numbered(datagrams: usize, segment_bytes: usize, last_bytes: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..datagrams).flat_map(|number| vec![number as u8; segment_bytes]).collect();
    bytes.truncate((datagrams - 1) * segment_bytes + last_bytes);
    bytes
}

#[test]
fn batches_of_every_size_arrive_whole_and_in_order() {
    for segmentation in [Segmentation::Offload, Segmentation::OneByOne] {
        let mut options = UdpOptions::server();
        options.segmentation = segmentation;
        let mut a = UdpDriver::bind(loopback(), &options).expect("a free port");
        let mut b = server();
        for (datagrams, segment_bytes, last_bytes) in [
            (1, 1, 1),
            (1, 1_220, 1_220),
            (3, 1_220, 7),
            (8, 1_220, 1_220),
            (150, 100, 99),
            (3, 30_000, 1),
            (2, 65_507, 65_507),
        ] {
            let bytes = numbered(datagrams, segment_bytes, last_bytes);
            let transmit = Transmit { to: b.local_address(), bytes: &bytes, segment_bytes };
            assert_eq!(a.send(NOW, &transmit).expect("loopback"), datagrams);
            let expected: Vec<_> = transmit.iter().map(|datagram| (a.local_address(), datagram.to_vec())).collect();
            assert!(received(&mut b) == expected, "{segmentation:?}: {datagrams} of {segment_bytes} bytes");
        }
        assert_eq!(a.counters().sent_datagrams, 168);
        assert_eq!(b.counters().received_datagrams, 168);
        assert_eq!(a.counters().gso_fallbacks, 0);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_burst_costs_one_call_on_either_side() {
    let mut sender = server();
    let mut bot = LightUdpSocket::connect(sender.local_address(), &UdpOptions::client()).expect("a free port");
    let bytes = numbered(3, 1_220, 1_220);
    let transmit = Transmit { to: bot.local_address(), bytes: &bytes, segment_bytes: 1_220 };
    assert_eq!(sender.send(NOW, &transmit).expect("loopback"), 3);
    let mut lengths = Vec::new();
    let mut buffers = ReceiveBuffers::new(4);
    bot.receive_with(NOW, &mut buffers, &mut |_, _, datagram| lengths.push(datagram.len())).expect("loopback");
    assert_eq!(lengths, [1_220; 3]);
    assert_eq!((sender.counters().send_calls, bot.counters().receive_calls), (1, 1));
}

#[test]
fn many_light_sockets_share_their_receive_buffers() {
    let mut server = server();
    let address = server.local_address();
    let open = |_| LightUdpSocket::connect(address, &UdpOptions::client()).expect("enough descriptors");
    let mut bots: Vec<LightUdpSocket> = (0..200).map(open).collect();
    for (number, bot) in bots.iter_mut().enumerate() {
        assert_eq!(bot.send(NOW, &Transmit::single(address, &[number as u8])).expect("loopback"), 1);
    }
    for (from, bytes) in received(&mut server) {
        assert_eq!(bots[usize::from(bytes[0])].local_address(), from);
        server.send(NOW, &Transmit::single(from, &[bytes[0], 1])).expect("loopback");
    }
    let mut buffers = ReceiveBuffers::new(2);
    for (number, bot) in bots.iter_mut().enumerate() {
        let mut answers = Vec::new();
        bot.receive_with(NOW, &mut buffers, &mut |_, from, bytes| answers.push((from, bytes.to_vec())))
            .expect("loopback");
        assert_eq!(answers, [(address, vec![number as u8, 1])]);
    }
}

#[test]
fn a_connected_socket_hears_and_speaks_to_its_peer_only() {
    let mut stranger = server();
    let mut server = server();
    let mut client = UdpDriver::connect(server.local_address(), &UdpOptions::client()).expect("a free port");
    stranger.send(NOW, &Transmit::single(client.local_address(), b"psst")).expect("loopback");
    server.send(NOW, &Transmit::single(client.local_address(), b"hello")).expect("loopback");
    assert_eq!(received(&mut client), [(server.local_address(), b"hello".to_vec())]);
    let wrong = client.send(NOW, &Transmit::single(stranger.local_address(), b"psst"));
    assert!(matches!(wrong, Err(SendError::NotThePeer { .. })), "{wrong:?}");
    assert_eq!(client.counters().bad_destination, 1);
}

#[test]
fn an_empty_datagram_is_delivered_and_nothing_there_is_no_error() {
    let mut server = server();
    assert_eq!(received(&mut server), []);
    let plain = UdpSocket::bind(loopback()).expect("a free port");
    plain.send_to(&[], server.local_address()).expect("loopback");
    plain.send_to(b"next", server.local_address()).expect("loopback");
    let contents: Vec<Vec<u8>> = received(&mut server).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(contents, [&b""[..], b"next"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_datagram_longer_than_the_buffer_is_dropped_and_counted() {
    let mut sender = server();
    let mut receiver = LightUdpSocket::bind(loopback(), &UdpOptions::client()).expect("a free port");
    let mut buffers = ReceiveBuffers::with_buffer_bytes(4, 2_048);
    for bytes in [3_000, 100] {
        sender.send(NOW, &Transmit::single(receiver.local_address(), &vec![1; bytes])).expect("loopback");
    }
    let mut lengths = Vec::new();
    receiver.receive_with(NOW, &mut buffers, &mut |_, _, datagram| lengths.push(datagram.len())).expect("loopback");
    assert_eq!(lengths, [100]);
    assert_eq!(receiver.counters().truncated, 1);
}

#[test]
fn a_receive_call_stops_at_its_limit_and_the_next_goes_on() {
    let mut options = UdpOptions::client();
    options.receive_limit_datagrams = 10;
    let mut receiver = LightUdpSocket::bind(loopback(), &options).expect("a free port");
    let mut sender = server();
    for _ in 0..25 {
        sender.send(NOW, &Transmit::single(receiver.local_address(), b"x")).expect("loopback");
    }
    let mut buffers = ReceiveBuffers::new(4);
    let mut receive = || receiver.receive_with(NOW, &mut buffers, &mut |_, _, _| {}).expect("loopback");
    assert_eq!([receive(), receive(), receive()], [12, 12, 1]);
    assert_eq!(receiver.counters().receive_limited, 2);
}

#[test]
#[cfg(target_os = "linux")]
fn a_closed_port_is_counted_and_stops_nothing() {
    // A socket that is connected to another address refuses what comes from here, and keeps its port.
    let deaf = UdpSocket::bind(loopback()).expect("a free port");
    deaf.connect(SocketAddr::from(([127, 0, 0, 1], 9))).expect("an address");
    let address = deaf.local_addr().expect("bound");
    let mut client = UdpDriver::connect(address, &UdpOptions::client()).expect("a free port");
    for _ in 0..3 {
        assert_eq!(client.send(NOW, &Transmit::single(address, b"anyone?")).expect("no error"), 1);
    }
    assert_eq!(received(&mut client), []);
    assert_eq!(client.counters().refused, 3);
    assert_eq!(client.counters().sent_datagrams, 3);
}

#[test]
fn bad_destinations_are_refused_and_leave_segmentation_alone() {
    let mut driver = server();
    let segments = driver.max_segments();
    let bytes = [0; 30];
    for to in ["127.0.0.1:0", "0.0.0.0:9", "[::1]:9"] {
        let to = to.parse().expect("an address");
        let refused = driver.send(NOW, &Transmit { to, bytes: &bytes, segment_bytes: 10 });
        assert!(matches!(refused, Err(SendError::BadDestination { .. })), "{to}: {refused:?}");
    }
    assert_eq!(driver.counters().bad_destination, 3);
    assert_eq!(driver.counters().send_calls, 0);
    assert_eq!(driver.max_segments(), segments);
}

#[test]
#[cfg(target_os = "linux")]
fn a_destination_that_the_kernel_refuses_does_not_cost_the_others_their_segmentation() {
    let mut driver = server();
    let segments = driver.max_segments();
    let to = "0.0.0.1:9".parse().expect("an address");
    let refused = driver.send(NOW, &Transmit { to, bytes: &[0; 30], segment_bytes: 10 });
    assert!(matches!(refused, Err(SendError::BadDestination { .. })), "{refused:?}");
    assert_eq!(driver.counters().gso_fallbacks, 1);
    assert_eq!(driver.max_segments(), segments);
}

#[test]
fn ipv6_works_where_the_machine_has_it() {
    let mut server = match UdpDriver::bind("[::1]:0".parse().expect("an address"), &UdpOptions::server()) {
        Ok(server) => server,
        Err(BindError::AddressNotLocal { .. } | BindError::FamilyNotSupported { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let mut client = UdpDriver::connect(server.local_address(), &UdpOptions::client()).expect("a free port");
    let to = client.local_address();
    assert_eq!(server.send(NOW, &Transmit { to, bytes: b"aabbc", segment_bytes: 2 }).expect("loopback"), 3);
    let expected = [&b"aa"[..], b"bb", b"c"].map(|bytes| (server.local_address(), bytes.to_vec()));
    assert_eq!(received(&mut client), expected);
    client.send(NOW, &Transmit::single(server.local_address(), b"back")).expect("loopback");
    assert_eq!(received(&mut server), [(to, b"back".to_vec())]);
}

#[test]
fn a_second_handle_sends_from_the_same_address() {
    let a = server();
    let mut b = server();
    let mut sender = a.sender().expect("enough descriptors");
    std::thread::scope(|scope| {
        let to = b.local_address();
        scope.spawn(move || sender.send(NOW, &Transmit::single(to, b"from a thread")).expect("loopback"));
    });
    assert_eq!(received(&mut b), [(a.local_address(), b"from a thread".to_vec())]);
}

#[test]
fn what_cannot_be_opened_says_what_to_do() {
    let taken = server();
    let says = |address: SocketAddr| {
        let error = UdpDriver::bind(address, &UdpOptions::server()).err().expect("it cannot be opened");
        (error.tag(), error.to_string())
    };
    let (tag, text) = says(taken.local_address());
    assert_eq!(tag, "port_in_use");
    assert!(text.contains("choose another port"), "{text}");
    let (tag, text) = says("192.0.2.1:4000".parse().expect("an address"));
    assert_eq!(tag, "address_not_local");
    assert!(text.contains("0.0.0.0"), "{text}");
    let nobody = UdpDriver::connect(loopback(), &UdpOptions::client()).err().expect("port 0");
    assert_eq!(nobody.tag(), "bad_peer");
}

#[test]
fn granted_buffers_are_reported() {
    let mut options = UdpOptions::server();
    options.receive_buffer_bytes = Some(64 << 10);
    let driver = UdpDriver::bind(loopback(), &options).expect("a free port");
    let granted = driver.socket_buffers().expect("the kernel tells");
    assert!(granted.receive_bytes >= 64 << 10, "{granted:?}");
    options.receive_buffer_bytes = Some(usize::MAX >> 1);
    assert!(granted.fall_short_of(&options));
    let driver = UdpDriver::bind(loopback(), &options).expect("a free port");
    assert_eq!(driver.buffer_shortfall(), driver.socket_buffers().ok());
    let mut modest = UdpOptions::client();
    modest.receive_buffer_bytes = Some(64 << 10);
    let driver = UdpDriver::bind(loopback(), &modest).expect("a free port");
    assert_eq!(driver.buffer_shortfall(), None);
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_kernel_drops_from_a_full_buffer_is_known() {
    let mut options = UdpOptions::server();
    options.receive_buffer_bytes = Some(8 << 10);
    let mut receiver = UdpDriver::bind(loopback(), &options).expect("a free port");
    let mut sender = UdpDriver::connect(receiver.local_address(), &UdpOptions::client()).expect("a free port");
    assert_eq!(receiver.kernel_dropped(), Some(0));
    let to = receiver.local_address();
    let sent: usize = (0..200).map(|_| sender.send(NOW, &Transmit::single(to, &[7; 1_000])).expect("loopback")).sum();
    let received = receiver.receive(NOW, &mut |_, _, _| {}).expect("loopback");
    assert!(received < sent, "{received} of {sent}: the buffer was not full");
    assert_eq!(receiver.kernel_dropped(), Some((sent - received) as u64));
}

#[test]
fn a_datagram_that_waited_in_the_socket_says_when_it_came() {
    let mut receiver = server();
    let mut sender = UdpDriver::connect(receiver.local_address(), &UdpOptions::client()).expect("a free port");
    let mut wait = |millis: u64| {
        let began = std::time::Instant::now();
        sender.send(NOW, &Transmit::single(receiver.local_address(), b"hello")).expect("loopback");
        let sent_within = began.elapsed();
        while began.elapsed() < sent_within + std::time::Duration::from_millis(millis) {
            std::hint::spin_loop();
        }
        let now = Time::from_secs(50);
        let mut arrivals = Vec::new();
        receiver.receive(now, &mut |arrived, _, _| arrivals.push(now.since(arrived))).expect("loopback");
        let waited = *arrivals.first().expect("it is there");
        assert!(waited <= began.elapsed(), "{waited:?}");
        waited
    };
    // The kernel begins to stamp a little after the first socket of the machine has asked for it, so the first datagrams
    // may come without a time. From then on all have one.
    let is_begun = (0..1_000).any(|_| wait(2).as_millis() >= 2);
    let waits: Vec<_> = (0..30).map(|_| wait(10)).collect();
    let are_stamped = is_begun && waits.iter().all(|waited| waited.as_millis() >= 10);
    assert!(are_stamped || cfg!(not(target_os = "linux")), "{waits:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn clients_with_addresses_of_their_own_share_a_socket() {
    let mut server = server();
    let to = server.local_address();
    let options = UdpOptions::client();
    let mut clients = LightUdpSocket::bind("0.0.0.0:0".parse().expect("an address"), &options).expect("a free port");
    for number in 1..=20u8 {
        let sent = clients.send_from(NOW, IpAddr::from([127, 64, 1, number]), &Transmit::single(to, &[number]));
        assert_eq!(sent.expect("loopback"), 1);
    }
    // Each sender is somebody else to the server, and gets its answers: three datagrams that come as one.
    let senders = received(&mut server);
    assert_eq!(senders.len(), 20);
    for (from, bytes) in &senders {
        assert_eq!(from.ip(), IpAddr::from([127, 64, 1, bytes[0]]));
        let transmit = Transmit { to: *from, bytes: &[bytes[0]; 5], segment_bytes: 2 };
        assert_eq!(server.send(NOW, &transmit).expect("loopback"), 3);
    }
    let mut answers = Vec::new();
    let mut buffers = ReceiveBuffers::new(3);
    clients
        .receive_addressed(NOW, &mut buffers, &mut |way, datagram| answers.push((way.from, way.to, datagram.to_vec())))
        .expect("loopback");
    assert_eq!(answers.len(), 60);
    for (from, at, bytes) in answers {
        assert_eq!((from, at), (to, Some(IpAddr::from([127, 64, 1, bytes[0]]))));
    }
    // An address that is not this machine's is an error, and the socket stays of use.
    let foreign = clients.send_from(NOW, IpAddr::from([192, 0, 2, 1]), &Transmit::single(to, b"x"));
    assert!(matches!(foreign, Err(SendError::Unreachable { .. })), "{foreign:?}");
    assert_eq!(clients.counters().sent_datagrams, 20);
    // Several datagrams leave one by one.
    let transmit = Transmit { to, bytes: b"aabbc", segment_bytes: 2 };
    assert_eq!(clients.send_from(NOW, IpAddr::from([127, 64, 1, 9]), &transmit).expect("loopback"), 3);
    let bytes: Vec<Vec<u8>> = received(&mut server).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(bytes, [&b"aa"[..], b"bb", b"c"]);
    assert!(clients.max_segments() > 1 || server.max_segments() == 1);
    clients.send_from(NOW, IpAddr::from([127, 0, 0, 1]), &Transmit::single(to, b"y")).expect("loopback");
}
