//! A member finds out whether its settings fit the store, before it does anything else.

use throng_bus::{Bus, Cluster, ClusterError, Command, Event, Joining, Limits, LocalBus, LocalHub, MemberId};
use throng_wire::Time;

fn join(bus: &mut LocalBus, cluster: &Cluster, creates: bool, desk: u16) -> Result<(), ClusterError> {
    let mut joining = Joining::new(cluster.clone(), creates, desk);
    let now = Time(0);
    joining.handle_event(&throng_bus::Event::Connected);
    for _ in 0..10 {
        while let Some(command) = joining.poll_command() {
            bus.handle_command(now, command).expect("there is room");
        }
        while let Some(event) = bus.poll_event(now) {
            if let Some(result) = joining.handle_event(&event) {
                return result;
            }
        }
    }
    panic!("no result");
}

#[test]
fn two_clusters_with_one_name_and_a_name_that_nobody_has_are_found_at_once() {
    let hub = LocalHub::new();
    let mut bus = hub.join(MemberId(1), Limits::default());
    let [ours, theirs] = [1, 2].map(|id| Cluster::new("live", id).unwrap());
    let error = join(&mut bus, &ours, false, 1).unwrap_err();
    assert_eq!(error, ClusterError::Unknown { name: "live".to_owned(), known: Vec::new() });
    assert_eq!(join(&mut bus, &ours, true, 2), Ok(()));
    assert_eq!(join(&mut bus, &ours, true, 3), Ok(()));
    assert_eq!(join(&mut bus, &ours, false, 4), Ok(()));
    let error = join(&mut bus, &theirs, true, 5).unwrap_err();
    assert_eq!(error, ClusterError::Taken { name: "live".to_owned(), found: 1, ours: 2 });
}

/// The bus has no room, or has just lost its connection.
#[test]
fn a_member_whose_bus_refuses_a_command_asks_again() {
    let mut bus = LocalHub::new().join(MemberId(1), Limits::default());
    let mut joining = Joining::new(Cluster::new("live", 1).unwrap(), true, 1);
    joining.handle_event(&Event::Connected);
    // The question, and the write that follows.
    for is_put in [false, true] {
        let refused = joining.poll_command().expect("a command");
        assert_eq!(matches!(refused, Command::Put { .. }), is_put);
        joining.handle_refusal(&refused);
        let again = joining.poll_command().expect("the same again");
        assert_eq!(matches!(again, Command::Put { .. }), is_put);
        assert_eq!(joining.poll_command(), None);
        bus.handle_command(Time(0), again).expect("there is room");
        let mut result = None;
        while let Some(event) = bus.poll_event(Time(0)) {
            result = result.or(joining.handle_event(&event));
        }
        assert_eq!(result, is_put.then_some(Ok(())));
    }
}
