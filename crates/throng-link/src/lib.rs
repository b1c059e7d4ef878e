//! One secure connection, without any input or output of its own.
//!
//! Bytes and times go in, bytes and events come out. The caller owns sockets, threads, clocks and randomness, so that a
//! test can simulate an hour of a bad network in a millisecond, and a server can seal ten thousand connections' packets
//! on as many threads as it likes, straight into the buffers that the kernel will take.
//!
//! ```text
//!             your messages, your frames
//!                 |                 ^
//!                 v                 |
//!   session   lanes, fragments, acknowledgement, pacing, timeouts       what was lost, what comes next
//!                 |                 ^
//!                 v                 |
//!   netcode   Sealer             Opener             ServerHandshake     who is it, is it genuine, is it new
//!                 |                 ^                  ^       |
//!                 v                 |                  |       v
//!             datagrams to and from connected      datagrams of strangers, answers
//! ```
//!
//! - [`netcode`] is the public netcode 1.02 standard: connect tokens, the handshake that proves an address before it
//!   costs memory, and authenticated encryption of each packet. With the standard's cipher it works with every other
//!   implementation; with AES-256-GCM it is faster.
//! - [`session`] lives inside of the payloads: it numbers and acknowledges packets and carries messages over lanes.
//!
//! A whole handshake, from the backend's token to the first payload:
//!
//! ```
//! use throng_link::netcode::*;
//! use throng_wire::Time;
//!
//! // Unpredictable bytes come from the operating system in real life.
//! let mut rng = fastrand::Rng::with_seed(1);
//! let mut random = |bytes: &mut [u8]| rng.fill(bytes);
//! let private_key = Key::generate(&mut random);
//! let server_address = "203.0.113.1:40000".parse()?;
//! let client_address = "198.51.100.7:51234".parse()?;
//! let now = Now { unix_s: 1_800_000_000, time: Time(0) };
//!
//! // The backend lets player 17 in for the next 30 seconds.
//! let options = ConnectTokenOptions {
//!     protocol_id: 0x5448_524f_4e47_0001,
//!     client_id: 17,
//!     create_unix_s: now.unix_s,
//!     expire_unix_s: now.unix_s + 30,
//!     suite: Suite::Aes256Gcm,
//!     timeout_s: 5,
//!     servers: vec![server_address],
//!     user_data: [0; USER_DATA_LEN],
//! };
//! let token = ConnectToken::generate(&options, &private_key, &mut random)?;
//!
//! // The server has one seat. Client and server exchange datagrams until both are connected.
//! let options = ServerOptions::new(options.protocol_id, private_key, vec![server_address]);
//! let mut door = ServerHandshake::new(options, &mut random);
//! let seats = Seats { free: Some(0), max_clients: 1, held: &|_| None, admission: &|| Admission::Granted };
//! let mut client = ClientHandshake::new(token, now.time);
//! let (mut datagram, mut reply) = (Vec::new(), Vec::new());
//! let mut server_end = None;
//! let mut client_end = loop {
//!     client.poll_transmit(now.time, &mut datagram).expect("a handshake packet is due");
//!     match door.handle(now, client_address, &mut datagram, &seats, &mut reply) {
//!         Outcome::Ignored(reason) => panic!("dropped: {reason}"),
//!         Outcome::Reply => {}
//!         Outcome::Denied { denial, .. } => panic!("turned away: {denial}"),
//!         Outcome::Accept(accepted) => server_end = Some(accepted),
//!     }
//!     if let ClientOutcome::Connected(connected) = client.handle(now.time, server_address, &mut reply) {
//!         break connected;
//!     }
//! };
//! let mut server_end = server_end.expect("a connected client was accepted");
//! assert_eq!((server_end.client_id, client_end.client_index), (17, 0));
//!
//! // From now on packets are sealed and opened in place.
//! let start = client_end.sealer.header_len();
//! let mut packet = [&vec![0; start][..], b"hello", &[0; TAG_LEN]].concat();
//! client_end.sealer.seal_payload(&mut packet)?;
//! assert_eq!(server_end.opener.open(&mut packet)?.body, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod netcode;
pub mod session;
