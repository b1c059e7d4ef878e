//! A client counts what it does not take.

use std::net::SocketAddr;
use std::sync::Arc;

use throng::{ClientCore, ClientCounters, ClientEvent, ClientOptions, ConnectToken, ConnectTokenOptions, Key};
use throng::{LaneKind, LaneOptions, Suite, Tick, Time, USER_DATA_LEN};
use throng_link::netcode::{Accepted, Admission, Now, Outcome, Seats, ServerHandshake, ServerOptions, TAG_LEN};
use throng_link::session::{Envelope, LaneId, Rest, Session, SessionOptions};

const PROTOCOL_ID: u64 = 7;
const NOW: Time = Time::from_millis(1_000);

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 40_000))
}

fn key() -> Key {
    Key::new([7; 32])
}

fn client() -> ClientCore {
    let options = ConnectTokenOptions {
        protocol_id: PROTOCOL_ID,
        client_id: 1,
        create_unix_s: 1,
        expire_unix_s: 600,
        suite: Suite::default(),
        timeout_s: 5,
        servers: vec![address(1)],
        user_data: [0; USER_DATA_LEN],
    };
    let token = ConnectToken::generate(&options, &key(), &mut |bytes| bytes.fill(1)).expect("good options");
    ClientCore::new(token, throng_testkit::schema(), Arc::new(ClientOptions::default()), NOW).expect("good options")
}

/// A server of which the test writes each packet.
struct Puppeteer {
    session: Session,
    accepted: Accepted,
}

impl Puppeteer {
    fn let_in(client: &mut ClientCore) -> Puppeteer {
        let options = ServerOptions::new(PROTOCOL_ID, key(), vec![address(1)]);
        let mut door = ServerHandshake::new(options, &mut |bytes| bytes.fill(2));
        let seats = Seats { free: Some(0), max_clients: 1, held: &|_| None, admission: &|| Admission::Granted };
        let (mut datagram, mut reply) = (Vec::new(), Vec::new());
        loop {
            assert!(client.poll_transmit(NOW, &mut datagram), "the client has an answer");
            let outcome = door.handle(Now { unix_s: 2, time: NOW }, address(9), &mut datagram, &seats, &mut reply);
            client.handle(NOW, address(1), &mut reply);
            if let Outcome::Accept(accepted) = outcome {
                let kinds = [LaneKind::ReliableOrdered; 2].into_iter();
                let kinds = kinds.chain([LaneKind::ReliableUnordered, LaneKind::Unreliable]);
                let options = SessionOptions { lanes: kinds.map(LaneOptions::new).collect(), ..Default::default() };
                let session = Session::new(Arc::new(options), NOW).expect("good options");
                return Puppeteer { session, accepted: *accepted };
            }
        }
    }

    /// A packet with these messages and this replication.
    fn packet(&mut self, messages: &[(u8, &[u8])], rest: &[u8]) -> Vec<u8> {
        for (lane, message) in messages {
            self.session.send(LaneId(*lane), message).expect("there is room");
        }
        let envelope = Envelope { tail_bytes: 0, ..self.accepted.sealer.envelope(0) };
        let mut packet = vec![0; envelope.head_bytes];
        packet.clear();
        let plan = self.session.poll_packet(NOW, envelope, Rest::Waiting).expect("a packet is due");
        let mut open = plan.begin(Tick(5), &mut packet);
        open.rest().0.extend_from_slice(rest);
        open.finish();
        packet.resize(packet.len() + TAG_LEN, 0);
        self.accepted.sealer.seal_payload(&mut packet).expect("it fits");
        packet
    }
}

/// No grids, and 30 ticks in a second.
fn welcome() -> Vec<u8> {
    let numbers = [0u32, 1, 33_333, 3].map(u32::to_le_bytes).concat();
    [&[2], &numbers[..], &5u64.to_le_bytes(), &[0]].concat()
}

#[test]
fn a_client_counts_the_datagrams_and_messages_that_it_refuses() {
    let mut client = client();
    client.handle(NOW, address(1), &mut [7; 40]);
    client.handle(NOW, address(3), &mut [7; 40]);
    let refused = |client: &ClientCore| client.counters().datagrams_refused;
    assert_eq!(refused(&client), 2, "noise during the handshake");
    let mut server = Puppeteer::let_in(&mut client);
    let before = refused(&client);

    let packet = server.packet(&[(1, b"too early"), (2, b"also")], &[1, 2, 3]);
    client.handle(NOW, address(3), &mut packet.clone());
    assert_eq!(refused(&client) - before, 1, "of another address");
    client.handle(NOW, address(1), &mut packet.clone());
    client.handle(NOW, address(1), &mut packet.clone());
    client.handle(NOW, address(1), &mut [7; 40]);
    let expected = ClientCounters { datagrams_refused: before + 3, messages_refused: 2, early_replication_bytes: 3 };
    assert_eq!(client.counters(), expected, "one repeated, one forged; the messages came before the welcome");

    client.handle(NOW, address(1), &mut server.packet(&[(0, &welcome())], &[]));
    assert!(matches!(client.poll_event(), Some(ClientEvent::Connected { .. })));
    client.handle(NOW, address(1), &mut server.packet(&[(0, &[9]), (1, b"hello")], &[]));
    assert!(matches!(client.poll_event(), Some(ClientEvent::Message { lane: 0, .. })));
    assert_eq!(client.poll_event(), None);
    assert_eq!(
        client.counters(),
        ClientCounters { messages_refused: 3, ..expected },
        "the server's own lane is no game's"
    );
    let named = [("datagrams_refused", before + 3), ("messages_refused", 3), ("early_replication_bytes", 3)];
    assert_eq!(client.counters().named(), named);
}
