//! The cost of idle connections. Alone in its process, because it looks at the process's threads.

mod serving;

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use throng_channeld::Header;
use throng_channeld::client::ClientOptions;
use throng_channeld::link::LinkClient;
use throng_gateway::serve::{LinkOptions, Transport};

use serving::kcp::KcpClient;
use serving::{ECHO, LINK_KEY, eventually, serve, soon, token};

/// One gateway at a time: the threads of two cannot be distinguished.
static ALONE: Mutex<()> = Mutex::new(());

/// The threads of the gateway, as folders of the system.
fn threads() -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux").flatten().map(|task| task.path());
    tasks.filter(|task| ["engine", "io"].contains(&fs::read_to_string(task.join("comm")).unwrap_or_default().trim()))
}

/// How often the threads went to sleep. Involuntary switches are left out: they depend on the machine's load.
fn switches() -> u64 {
    let of_thread = |task: PathBuf| {
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        let counts = status.lines().filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum::<u64>()
    };
    threads().map(of_thread).sum()
}

/// How long they ran.
fn processor_time() -> Duration {
    let of_thread = |task: PathBuf| {
        let statistics = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        statistics.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    };
    Duration::from_nanos(threads().map(of_thread).sum())
}

/// A session may cost less in two seconds of silence than in these many answers: a comparison that holds on slow machines too.
const ANSWERS: u32 = 2;

#[test]
fn sessions_of_the_link_that_are_silent_cost_what_their_own_clocks_cost() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let serving = serve(Transport::Link(LinkOptions::new(LINK_KEY)), |_| {});
    let connect = |client_id| {
        let mut client = LinkClient::connect(token(serving.address(), client_id), soon()).expect("it has a token");
        client.authenticate("player", "", soon()).expect("it is let in");
        client
    };
    let mut clients: Vec<_> = (1..=200).map(connect).collect();
    let before = processor_time();
    assert!(before > Duration::ZERO, "the threads were found");
    sleep(Duration::from_secs(2));
    let silent = processor_time() - before;
    let before = processor_time();
    for client in &mut clients {
        for _ in 0..ANSWERS {
            client.send_bytes(Header::new(0, ECHO), b"hello").expect("connected");
            client.wait_for(ECHO, soon()).expect("an answer");
        }
    }
    let active = processor_time() - before;
    println!("{silent:?} for two silent seconds, {active:?} for {ANSWERS} answers, {} sessions each", clients.len());
    assert!(silent < active, "{silent:?} for two silent seconds, {active:?} for {ANSWERS} answers");
    serving.end();
}

/// Watches the threads for a second without any traffic.
fn expect_nobody_wakes(connections: usize) {
    sleep(Duration::from_millis(300));
    let before = switches();
    assert!(before > 100, "the threads were found");
    sleep(Duration::from_secs(1));
    let woken = switches() - before;
    println!("{woken} times in a second for {connections} connections");
    assert!(2 * woken < connections as u64, "{woken} times in a second for {connections} connections");
}

#[test]
fn connections_that_are_silent_wake_nobody() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let serving = serve(Transport::Tcp, |_| {});
    let members: Vec<_> = (0..100).map(|_| serving.join(ClientOptions::default())).collect();
    expect_nobody_wakes(members.len());
    serving.end();
}

#[test]
fn conversations_over_kcp_that_are_silent_wake_nobody() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let serving = serve(Transport::Kcp, |_| {});
    let connect = |conversation| KcpClient::connect(serving.address(), conversation, usize::MAX);
    let mut members: Vec<_> = (1..=25).map(connect).collect();
    members.iter_mut().for_each(KcpClient::knock);
    eventually("all are let in", || {
        members.iter_mut().for_each(KcpClient::turn);
        members.iter().all(|member| !member.received.is_empty())
    });
    // They acknowledge their welcome; then neither side has anything on its way.
    (0..3).for_each(|_| members.iter_mut().for_each(KcpClient::turn));
    expect_nobody_wakes(members.len());
    serving.end();
}
