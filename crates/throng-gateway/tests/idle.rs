//! The cost of idle connections. Alone in its process, because it looks at the process's threads.

mod serving;

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use throng_channeld::client::ClientOptions;
use throng_channeld::link::LinkClient;
use throng_gateway::serve::{LinkOptions, Transport};

use serving::kcp::KcpClient;
use serving::{LINK_KEY, eventually, serve, soon, token};

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

#[test]
fn sessions_of_the_link_that_are_silent_cost_what_their_own_clocks_cost() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let serving = serve(Transport::Link(LinkOptions::new(LINK_KEY)), |_| {});
    let connect = |client_id| {
        let mut client = LinkClient::connect(token(serving.address(), client_id), soon()).expect("it has a token");
        client.authenticate("player", "", soon()).expect("it is let in");
        client
    };
    let clients: Vec<_> = (1..=500).map(connect).collect();
    let (before, begin) = (processor_time(), Instant::now());
    assert!(before > Duration::ZERO, "the threads were found");
    sleep(Duration::from_secs(2));
    let share = (processor_time() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    println!("{} sessions take {:.1} % of a core", clients.len(), share * 100.0);
    assert!(share < 0.1, "{:.1} % of a core for {} sessions", share * 100.0, clients.len());
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
    assert!(woken < 50, "{woken} times in a second for {connections} connections");
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
    let mut members: Vec<_> = (1..=100).map(connect).collect();
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
