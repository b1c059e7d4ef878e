//! The doctor's words about a process that runs, and about programs that forbid deep sleep.

use std::net::UdpSocket;

use throng_doctor::{Host, LiveProbes, NoProbes, PROCESS_CHECKS, ReadError, examine, examine_process};

use crate::fixture::{Known, Machine, lines};

/// A server with two workers that are pinned, a third of its memory in large pages, and two sockets.
pub(crate) const SERVER: &str = "
proc/42/comm = game (server)
proc/42/cmdline = game
proc/42/stat = 42 (game (server)) S 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 100 0 0
proc/42/status = Name: game|THP_enabled:	1|Cpus_allowed_list:	0-7
proc/42/cgroup = 0::/game
proc/42/sched = game (42, #threads: 3)|se.slice                   :              700000
proc/42/schedstat = 5000000 20000 10
proc/42/timerslack_ns = 1
proc/42/limits = Max open files            65536                1048576              files|Max locked memory         unlimited            unlimited            bytes
proc/42/numa_maps = 5500 default heap=1 anon=900 N0=900 kernelpagesize_kB=4|7ffc default file=/usr/bin/N1=x mapped=100 N0=100
proc/42/smaps_rollup = 5500-7ffc ---p 00000000 00:00 0    [rollup]|Rss:              500000 kB|Anonymous:        307200 kB|AnonHugePages:    102400 kB
proc/42/task/{42-44}/comm = game
proc/42/task/42/stat = 42 (game (server)) S 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0
proc/42/task/{43-44}/stat = {} (worker {}) R 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 2 0 0 0 0 0
proc/42/task/42/status = Cpus_allowed_list:	0-7
proc/42/task/{43-44}/status = Cpus_allowed_list:	2-3
proc/42/task/42/schedstat = 5000000 20000 10
proc/42/task/43/schedstat = 900000000 30000 50
proc/42/task/44/schedstat = 800000000 40000 40
proc/42/fd/7 -> socket:[501]
proc/42/fd/8 -> socket:[502]
proc/42/fd/9 -> /dev/null
proc/42/net/udp =   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops|  1: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 501 2 0 0|  2: 0100007F:1F91 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 777 2 0 9
proc/42/net/udp6 =   sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops|  3: 00000000000000000000000001000000:1F92 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 502 2 0 0
";

fn server_with(changes: &str) -> Machine {
    let machine = Machine::base_with(SERVER);
    machine.describe(changes);
    machine
}

fn rows(machine: &Machine) -> Vec<String> {
    lines(&examine_process(&machine.host(), &Known, 42).expect("there is such a process"))
}

/// Asserts the rows in which a changed server differs.
fn differs(changes: &str, expected: &[&str]) {
    let base = rows(&server_with(""));
    let changed: Vec<String> = rows(&server_with(changes)).into_iter().filter(|row| !base.contains(row)).collect();
    assert_eq!(changed, expected);
}

#[test]
fn a_well_set_server_is_ok_in_every_row() {
    let expected = [
        "ok numa: 1 node, 1 third-level cache of 8 CPUs; game (server) 42 may use CPUs 0-7",
        "ok slice: 0.7 ms",
        "ok timer-slack: 0.0 us",
        "ok quota: no limit",
        "ok run-queue: game (server) 42 waited 1 us before each of 100 turns",
        "ok limits: open files 65536, locked memory unlimited",
        "ok affinity: 3 threads, of which 1 may use all 8 CPUs; the busiest, worker 43, may use 2-3",
        "ok scheduler: threads by class: 3 other; the busiest, worker 43, is other with nice 0",
        "ok huge-pages: 100 of 300 MB of its own memory in large pages",
        "ok pages: 100.0 % of its memory on the nodes of its CPUs, 1 node",
        "ok sockets: 2 UDP sockets, at least 4096 kB to receive and 1456 kB to send; 0 datagrams found no room since their \
         start, 0 during this check",
    ];
    assert_eq!(rows(&server_with("")), expected);
}

#[test]
fn threads_that_wander_or_wait_for_others_are_named() {
    differs(
        "proc/42/task/{43-44}/status = Cpus_allowed_list:	0-7",
        &["advice affinity: 3 threads, of which 3 may use all 8 CPUs; the busiest, worker 43, may use 0-7"],
    );
    let with = |nice: &str, priority: u32, policy: u32| {
        format!(
            "proc/42/task/43/stat = 43 (worker 43) R 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 {nice} 3 0 100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 \
             0 17 2 {priority} {policy} 0 0 0"
        )
    };
    let of = |class: &str, busiest: &str| {
        format!("scheduler: threads by class: {class}; the busiest, worker 43, is {busiest}")
    };
    differs(&with("10", 0, 0), &[&format!("WARNING {}", of("3 other", "other with nice 10"))]);
    differs(&with("0", 0, 5), &[&format!("WARNING {}", of("2 other, 1 idle", "idle with nice 0"))]);
    differs(&with("-5", 50, 1), &[&format!("ok {}", of("2 other, 1 real time 50", "real time 50 with nice -5"))]);
}

#[test]
fn memory_sockets_and_limits_of_the_process_are_judged_and_not_those_of_the_doctor() {
    differs(
        "proc/42/smaps_rollup = x|Anonymous:        307200 kB|AnonHugePages:    2048 kB
proc/42/status = THP_enabled:	0|Cpus_allowed_list:	0-7",
        &["advice huge-pages: 2 of 300 MB of its own memory in large pages; the process has forbidden them"],
    );
    let dropping = "proc/42/net/udp = head|  1: 0100007F:1F90 00000000:0000 07 0:0 00:0 0     0        0 501 2 0 31";
    differs(
        dropping,
        &[
            "advice sockets: 2 UDP sockets, at least 4096 kB to receive and 1456 kB to send; 31 datagrams found no room since \
           their start, 0 during this check",
        ],
    );
    differs(
        "proc/42/limits = Max open files            1024                1048576              files|Max locked memory         8388608            8388608            bytes
proc/42/timerslack_ns = 50000",
        &["advice timer-slack: 50.0 us", "advice limits: open files 1024, locked memory 8192 kB"],
    );
    differs("proc/self/limits = junk", &[]);
}

#[test]
fn what_cannot_be_read_of_a_process_says_why() {
    let machine = server_with("proc/42/fd -\nproc/42/smaps_rollup -\nproc/42/task -");
    for (check, words) in [
        ("sockets", "/proc/42/fd does not exist; the process has ended"),
        ("huge-pages", "/proc/42/smaps_rollup does not exist"),
        ("affinity", "/proc/42/task does not exist"),
        ("scheduler", "/proc/42/task does not exist"),
    ] {
        let rows = rows(&machine);
        let start = format!("cannot read {check}: {words}");
        assert!(rows.iter().any(|row| row.starts_with(&start)), "no {start}: {rows:#?}");
    }
    let gone = examine_process(&machine.host(), &Known, 43).expect_err("there is no such process");
    assert_eq!(gone, ReadError::Absent { path: "/proc/43/comm".to_owned() });
    // A recorded machine does not tell the sizes of buffers, but the drops.
    let recorded = lines(&examine_process(&server_with("").host(), &NoProbes, 42).expect("there is such a process"));
    assert!(
        recorded.iter().any(|row| row.starts_with("advice sockets: ")
            && row.contains("buffers cannot be read: only the running machine tells it; 0 datagr")
            || row.contains("buffers cannot be read: only the running machine tells it, and --root")),
        "{recorded:#?}"
    );
}

#[test]
fn this_very_process_is_examined_with_its_socket() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let report = examine_process(&Host::at("/".as_ref()), &LiveProbes, std::process::id()).expect("it runs");
    drop(socket);
    let read = |check: &str| report.rows.iter().find(|row| row.check == check).expect("a row").read.clone();
    assert!(read("affinity").contains(" thread"), "{}", read("affinity"));
    assert!(read("scheduler").contains(" other"), "{}", read("scheduler"));
    assert!(
        read("sockets").contains("UDP socket") && read("sockets").contains(" kB to receive"),
        "{}",
        read("sockets")
    );
    assert_eq!(report.rows.len(), PROCESS_CHECKS.len() + 6);
}

#[test]
fn a_program_that_forbids_deep_sleep_is_seen_where_there_is_deep_sleep() {
    const C6: &str = "sys/devices/system/cpu/cpu{0-7}/cpuidle/state2/disable = 0";
    let row = |changes: &str| {
        let rows = lines(&examine(&Machine::base_with(changes).host(), &Known));
        rows.into_iter().find(|row| row.contains(" dma-latency: ")).expect("a row")
    };
    let with = |us: &str| format!("{C6}\ndev/cpu_dma_latency = number {us}");
    assert_eq!(row(&with("2000000000")), "advice dma-latency: no bound: sleep of 133 us is allowed");
    assert_eq!(row(&with("150")), "advice dma-latency: at most 150 us: sleep of 133 us is allowed");
    assert_eq!(row(&with("10")), "ok dma-latency: at most 10 us; no deep sleep state is in use");
    assert_eq!(row(&with("0")), "ok dma-latency: at most 0 us; no deep sleep state is in use");
    assert!(row(&with("-1")).starts_with("cannot read dma-latency: /dev/cpu_dma_latency is not understood"));
    assert!(row("dev/cpu_dma_latency = 2000000000").starts_with("cannot read dma-latency"), "ten bytes are no number");
    assert!(row("dev -\ndev/cpu_dma_latency -> /dev/zero").ends_with("is not a plain file"));
    assert!(row("dev -").contains("/dev/cpu_dma_latency does not exist"));
}

#[test]
fn pages_on_the_other_node_and_turns_that_others_took_are_told() {
    differs(
        "
proc/42/numa_maps = 5500 default heap=1 anon=900 N0=1536 kernelpagesize_kB=4|7ffc default huge anon=1 N1=1 kernelpagesize_kB=2048
proc/42/status = Name: game|THP_enabled:	1|Cpus_allowed_list:	0-3|nonvoluntary_ctxt_switches:	17
sys/devices/system/node/node0/cpulist = 0-3
sys/devices/system/node/node1/cpulist = 4-7
",
        &[
            "ok numa: 2 nodes, 1 third-level cache of 8 CPUs; game (server) 42 may use CPUs 0-3",
            "ok run-queue: game (server) 42 waited 1 us before each of 100 turns; others took its place 17 times since its \
             start",
            "advice pages: 75.0 % of its memory on the nodes of its CPUs, 2 nodes",
        ],
    );
}
