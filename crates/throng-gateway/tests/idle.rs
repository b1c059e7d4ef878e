//! What connections cost that say nothing. Alone in its process, because it looks at the process's threads.

mod serving;

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use throng_channeld::client::ClientOptions;
use throng_gateway::serve::Transport;

use serving::serve;

/// How often the threads of the gateway went to sleep or were put aside.
fn switches() -> u64 {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if ["engine", "io"].contains(&name.trim()) {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
            sum += counts.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>();
        }
    }
    sum
}

#[test]
fn connections_that_are_silent_wake_nobody() {
    let serving = serve(Transport::Tcp, |_| {});
    let members: Vec<_> = (0..100).map(|_| serving.join(ClientOptions::default())).collect();
    sleep(Duration::from_millis(300));
    let before = switches();
    assert!(before > 100, "the threads were found");
    sleep(Duration::from_secs(1));
    let woken = switches() - before;
    assert!(woken < 50, "{woken} times in a second for {} connections", members.len());
    serving.end();
}
