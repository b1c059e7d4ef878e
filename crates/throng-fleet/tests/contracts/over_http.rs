//! The thread that talks to a sidecar, over HTTP on loopback.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use throng_fleet::{FleetOptions, FleetState, PORT_DEFAULT, Sidecar};

use crate::fake::FakeSidecar;

const PATIENCE: Duration = Duration::from_secs(20);

fn until(wanted: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !wanted() {
        assert!(Instant::now() < end, "it did not happen in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_tells_the_sidecar_its_life() {
    let fake = FakeSidecar::start(10);
    let options = FleetOptions { health_every: Duration::from_millis(50), ..FleetOptions::default() };
    let sidecar = Sidecar::start(fake.port, options).unwrap();
    until(|| fake.server.lock().unwrap().health > 1);
    assert_eq!(sidecar.state(), FleetState::Starting);
    sidecar.set_ready();
    until(|| sidecar.state() == FleetState::Ready);
    sidecar.set_matches(["match-1".to_owned(), "match \"2\"\n".to_owned()]);
    until(|| fake.server.lock().unwrap().lists["matches"].0.len() == 2);
    until(|| fake.server.lock().unwrap().health > 5);
    let (counters, state) = sidecar.end();
    assert_eq!((state, counters.failed, counters.refused), (FleetState::Ended, 0, 0));
    let server = fake.server.lock().unwrap();
    assert_eq!(server.history, ["Ready", "Allocated", "Shutdown"]);
    assert_eq!((server.counters["matches"].0, server.lists["matches"].0.len()), (0, 0));
}

#[test]
fn a_refusal_is_read_from_the_text_of_an_error() {
    let fake = FakeSidecar::start(10);
    let name = "match-1".to_owned();
    fake.server.lock().unwrap().lists.get_mut("matches").unwrap().0.insert(name.clone());
    fake.server.lock().unwrap().counters.clear();
    let sidecar = Sidecar::start(fake.port, FleetOptions::default()).unwrap();
    sidecar.set_matches([name]);
    // The counter is refused, and the name is there already.
    until(|| sidecar.counters().refused == 1 && sidecar.state() == FleetState::Allocated);
    let (counters, state) = sidecar.end();
    assert_eq!((state, counters.failed, counters.refused), (FleetState::Ended, 0, 1));
    assert_eq!(fake.server.lock().unwrap().lists["matches"].0.len(), 0);
}

#[test]
fn without_a_sidecar_nothing_waits_and_failures_are_counted() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let sidecar = Sidecar::start(port, FleetOptions::default()).unwrap();
    sidecar.set_matches(["match-1".to_owned()]);
    until(|| sidecar.counters().failed > 0);
    assert_eq!(sidecar.state(), FleetState::Starting);
    drop(sidecar);
}

#[test]
fn the_port_is_that_of_agones_or_the_usual_one() {
    assert_eq!(Sidecar::port(None).unwrap(), PORT_DEFAULT);
    assert_eq!(Sidecar::port(Some("1234")).unwrap(), 1_234);
    for text in ["", "0", "70000", "x\n"] {
        let error = Sidecar::port(Some(text)).unwrap_err();
        assert!(error.tag() == "port" && !error.to_string().contains('\n'), "{error}");
    }
}
