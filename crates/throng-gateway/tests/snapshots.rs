//! Snapshots on a real disk: a gateway that ends, in whatever way, and one that starts from what it left.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use tempfile::TempDir;
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::proto::{
    Any, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    CreateChannelResultMessage, ListChannelResultMessage, SubscribedToChannelMessage, TransformState, Vector3f,
};
use throng_channeld::{Header, message_type};
use throng_gateway::serve::Gateway;
use throng_gateway::settings;

use crate::serving::{eventually, soon};

/// A folder for the snapshots of one gateway after the other.
struct Site {
    folder: TempDir,
    words: Vec<String>,
}

impl Site {
    fn new(more: &[&str]) -> Site {
        let folder = tempfile::tempdir().expect("a folder");
        let types = folder.path().join("types.json");
        fs::write(&types, "{}").expect("the folder is ours");
        let mut words: Vec<String> =
            ["-dev", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http=127.0.0.1:0"].map(str::to_owned).into();
        words.push("-cfsm=client_authoratative_fsm.json".to_owned());
        words.push(format!("-chs={}", types.display()));
        words.push(format!("-snapshot={}", folder.path().join("state").display()));
        words.extend(more.iter().map(|&word| word.to_owned()));
        Site { folder, words }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn try_start(&self, more: &[&str]) -> Result<Gateway, String> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let settings = settings::load(words).expect("sound arguments");
        Gateway::from_settings(settings, 7, 1_000_000_000).map_err(|error| error.to_string())
    }

    fn start(&self, more: &[&str]) -> Gateway {
        self.try_start(more).expect("everything is there")
    }
}

fn server(gateway: &Gateway) -> Client {
    let mut server = Client::connect(gateway.addresses()[0], ClientOptions::default()).expect("the door is open");
    server.authenticate("world", "", soon()).expect("servers are let in");
    server
}

fn at(x: f32) -> Any {
    Any::pack(&TransformState { position: Some(Vector3f { x, ..Default::default() }), ..Default::default() })
}

/// A room with a state; its number.
fn room(server: &mut Client, x: f32) -> u32 {
    let create = CreateChannelMessage {
        channel_type: ChannelType::Subworld.into(),
        metadata: "harbour".into(),
        data: Some(at(x)),
        ..Default::default()
    };
    server.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
    let made = server.wait_for(message_type::CREATE_CHANNEL, soon()).expect("it is made");
    made.decode::<CreateChannelResultMessage>().expect("a result").channel_id
}

/// The value that a newcomer finds in a room.
fn found(gateway: &Gateway, room: u32) -> f32 {
    let mut client = Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("the door is open");
    client.authenticate("ada", "", soon()).expect("it is let in");
    let subscribe = SubscribedToChannelMessage {
        conn_id: client.connection_id(),
        sub_options: Some(ChannelSubscriptionOptions::default()),
    };
    client.send(Header::new(room, message_type::SUB_TO_CHANNEL), &subscribe).expect("connected");
    let update = client.wait_for(message_type::CHANNEL_DATA_UPDATE, soon()).expect("its state");
    let update: ChannelDataUpdateMessage = update.decode().expect("an update");
    let state: TransformState = prost::Message::decode(update.data.expect("data").value).expect("a transform");
    state.position.expect("a position").x
}

/// Sends the state of a room, and waits until the gateway has it.
fn write(server: &mut Client, room: u32, x: f32) {
    let update = ChannelDataUpdateMessage { data: Some(at(x)), context_conn_id: 0 };
    server.send(Header::new(room, message_type::CHANNEL_DATA_UPDATE), &update).expect("connected");
    // Each engine answers this with its own channels. The answer of the room's engine comes after the update is done.
    // The other engines may answer earlier.
    let list = throng_channeld::proto::ListChannelMessage::default();
    server.send(Header::new(0, message_type::LIST_CHANNEL).with_stub(room), &list).expect("connected");
    loop {
        let answer = server.wait_for(message_type::LIST_CHANNEL, soon()).expect("a list");
        let list: ListChannelResultMessage = answer.decode().expect("a list");
        if answer.stub_id == room && list.channels.iter().any(|channel| channel.channel_id == room) {
            return;
        }
    }
}

#[test]
fn a_gateway_that_was_shut_down_starts_as_it_was() {
    // With one engine sessions come back, with several ones channels.
    for more in [&["-scr"][..], &["-engine-threads=3", "-unreal=false"]] {
        let site = Site::new(&[&["-snapshot-every=0", "-limit=drain_ms=300"], more].concat());
        let gateway = site.start(&[]);
        let mut world = server(&gateway);
        let rooms: Vec<u32> = (1..=5).map(|number| room(&mut world, number as f32)).collect();
        for &room in &rooms {
            write(&mut world, room, 100.0 + room as f32);
        }
        assert!(!site.file().exists(), "only the end writes one");
        gateway.shut_down();
        assert!(!Path::new(&format!("{}.new", site.file().display())).exists(), "nothing is left beside it");
        let gateway = site.start(&[]);
        for &room in &rooms {
            assert_eq!(found(&gateway, room), 100.0 + room as f32);
        }
        if more == ["-scr"] {
            let mut world = Client::connect(gateway.addresses()[0], ClientOptions::default()).expect("it is open");
            assert!(world.authenticate("world", "", soon()).expect("it is let in").should_recover);
        }
    }
}

#[test]
fn snapshots_are_written_while_the_gateway_serves_and_one_that_dies_leaves_the_last() {
    let site = Site::new(&["-scr", "-snapshot-every=20ms"]);
    let gateway = site.start(&[]);
    let mut world = server(&gateway);
    let room = room(&mut world, 1.0);
    write(&mut world, room, 7.0);
    let written = || gateway.counters().snapshots.written.load(Ordering::Relaxed);
    let before = written();
    eventually("two more snapshots", || written() >= before + 2);
    let page = page(&gateway);
    for name in [
        "gateway_snapshots_total ",
        "gateway_snapshots_failed_total 0",
        "gateway_snapshot_age_seconds 0.",
        "gateway_snapshot_bytes ",
        "gateway_snapshot_duration_seconds ",
        "gateway_snapshot_part_seconds_count ",
    ] {
        assert!(page.contains(name), "{name} is not in\n{page}");
    }
    // Without a farewell: nothing more is written.
    drop(gateway);
    assert_eq!(found(&site.start(&[]), room), 7.0);
}

fn page(gateway: &Gateway) -> String {
    use std::io::{Read as _, Write as _};
    let address = gateway.http_address().expect("it has pages");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("connected");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("text");
    page
}

#[test]
fn a_snapshot_that_grows_beyond_its_limit_is_given_up_and_the_last_one_stays() {
    let site = Site::new(&["-snapshot-every=20ms", "-limit=max_snapshot_bytes=65536"]);
    let gateway = site.start(&[]);
    let mut world = server(&gateway);
    let small = room(&mut world, 3.0);
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let snapshots = || &gateway.counters().snapshots;
    let before = load(&snapshots().written);
    eventually("two snapshots with the room", || load(&snapshots().written) >= before + 2);
    for number in 0..20 {
        let data =
            Some(Any { type_url: "x/text".into(), value: [&[0x0A, 0xA0, 0x1F][..], &[b'x'; 4_000]].concat().into() });
        let create = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), data, ..Default::default() };
        let header = Header::new(0, message_type::CREATE_CHANNEL).with_stub(number + 1);
        world.send(header, &create).expect("connected");
    }
    eventually("one is given up", || load(&snapshots().failed) >= 1);
    drop(gateway);
    assert_eq!(found(&site.start(&[]), small), 3.0, "the last one that was short enough");
}

#[test]
fn a_file_that_is_no_snapshot_is_one_clear_line_and_is_put_aside_only_if_that_is_wanted() {
    let site = Site::new(&[]);
    fs::write(site.file(), "not a snapshot").expect("the folder is ours");
    let told = site.try_start(&[]).err().expect("it does not start");
    let file = site.file().display().to_string();
    let advice = "to start without it, move it away, or add -snapshot-discard";
    assert_eq!(told, format!("-snapshot: {file}: it is not a snapshot of a gateway; {advice}"));
    assert_eq!(fs::read(site.file()).expect("it is still there"), b"not a snapshot");
    site.start(&["-snapshot-discard"]).shut_down();
    assert_eq!(fs::read(format!("{file}.unusable")).expect("it was put aside"), b"not a snapshot");
    site.start(&[]).shut_down();
}

#[test]
fn the_file_of_a_gateway_that_has_not_ended_is_neither_read_nor_put_aside() {
    let site = Site::new(&["-snapshot-every=0"]);
    let gateway = site.start(&[]);
    fs::write(site.file(), "what it wrote last").expect("the folder is ours");
    for more in [&[][..], &["-snapshot-discard"]] {
        let told = site.try_start(more).err().expect("another one has the file");
        assert!(told.starts_with("-snapshot: ") && told.ends_with("another process writes it"), "{told}");
        assert_eq!(fs::read(site.file()).expect("it is still there"), b"what it wrote last");
    }
    gateway.shut_down();
    site.start(&[]).shut_down();
}

#[test]
fn a_place_that_cannot_be_written_is_said_at_the_start() {
    let site = Site::new(&["-snapshot=/proc/nowhere/state"]);
    let told = site.try_start(&[]).err().expect("it does not start");
    assert!(told.starts_with("-snapshot: ") && !told.contains('\n'), "{told}");
}
