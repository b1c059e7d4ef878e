//! The doctor's words about machines of many kinds. The base machine is given in full; of each other one, the rows in
//! which it differs.

use throng_doctor::{CHECKS, NoProbes, PROCESS_CHECKS, Probes, ReadError, Topology, Verdict, WIDTH, examine};

use crate::fixture::{Known, Machine, contents, lines};

/// Asserts the rows in which the base machine with `changes` differs from the base machine.
fn differs(changes: &str, expected: &[&str]) -> Machine {
    let base = lines(&Machine::base_with("").report());
    let machine = Machine::base_with(changes);
    let rows: Vec<String> = lines(&machine.report()).into_iter().filter(|row| !base.contains(row)).collect();
    assert_eq!(rows, expected);
    machine
}

#[test]
fn a_well_set_machine_is_ok_in_every_row() {
    let machine = Machine::base_with("");
    let before = contents(machine.folder.path());
    let expected = [
        "ok numa: 1 node, 1 third-level cache of 8 CPUs; this process may use CPUs 0-7",
        "ok numa-local: 100.0 % of pages local since the start, 1 node",
        "ok smt: 8 CPUs on 8 cores, control notsupported",
        "ok migration-cost: 0 us",
        "ok slice: 0.7 ms",
        "ok timer-slack: 0.0 us",
        "ok c-states: deep sleep states are disabled",
        "ok dma-latency: no bound; no deep sleep state is in use",
        "ok governor: performance on 8 CPUs, energy preference performance",
        "ok clock: tsc, 25 ns a reading; offered: tsc hpet acpi_pm; constant_tsc nonstop_tsc",
        "ok thp: enabled madvise, defrag defer, shmem never; 200 MB in use",
        "ok quota: no limit",
        "ok pressure: last 10 s: cpu 0.5 %, memory 0.0 %",
        "ok run-queue: this process waited 2 us before each of 10 turns",
        "ok steal: 0.00 % since the start, 0.00 % during this check",
        "ok irq: 0 of 1 active device interrupts may stop our CPUs, most often 1 i8042",
        "ok per-cpu-threads: none of 1 program has a thread for each of 8 CPUs",
        "ok busy-wait: no unbounded BEAM, Java or .NET runtime (Go does not show)",
        "ok pmu: cpu, perf_event_paranoid 2",
        "ok mitigations: 1 mitigated, 0 open, 1 not affected",
        "ok autogroup: off",
        "ok numa-balancing: off, 1 node",
        "ok swap: none",
        "ok limits: open files 65536, locked memory unlimited",
        "ok udp-buffers: at most 4096 kB to receive, 4096 kB to send",
    ];
    assert_eq!(lines(&machine.report()), expected);
    assert_eq!(contents(machine.folder.path()), before, "an examination changes nothing");
}

#[test]
fn two_sockets_want_servers_that_stay_on_one() {
    let machine = differs(
        "
sys/devices/system/cpu/cpu{0-3}/cache/index3/shared_cpu_list = 0-3
sys/devices/system/cpu/cpu{4-7}/cache/index3/shared_cpu_list = 4-7
sys/devices/system/node/node0/cpulist = 0-3
sys/devices/system/node/node1/cpulist = 4-7
sys/devices/system/node/node0/numastat = numa_hit 1|local_node 600|other_node 400
sys/devices/system/node/node1/numastat = numa_hit 1|local_node 500|other_node 500
proc/sys/kernel/numa_balancing = 1
",
        &[
            "advice numa: 2 nodes, 2 third-level caches of 4 CPUs; this process may use CPUs 0-7",
            "advice numa-local: 55.0 % of pages local since the start, 2 nodes",
            "advice numa-balancing: on, 2 nodes",
        ],
    );
    machine.describe("proc/self/status = Cpus_allowed_list:	4-7");
    assert!(lines(&machine.report())[0].starts_with("ok numa: 2 nodes"), "a bound process is fine");
}

#[test]
fn chiplets_on_one_socket_have_several_caches() {
    let machine = differs(
        "
sys/devices/system/cpu/cpu{0-1}/cache/index3/shared_cpu_list = 0-1
sys/devices/system/cpu/cpu{2-3}/cache/index3/shared_cpu_list = 2-3
sys/devices/system/cpu/cpu{4-5}/cache/index3/shared_cpu_list = 4-5
sys/devices/system/cpu/cpu{6-7}/cache/index3/shared_cpu_list = 6-7
",
        &["advice numa: 1 node, 4 third-level caches of 2 CPUs; this process may use CPUs 0-7"],
    );
    let topology = Topology::read(&machine.host()).unwrap();
    assert_eq!(topology.near(&[0, 1, 2, 3, 4, 5, 6, 7]), Some(vec![0, 1]));
    assert_eq!(topology.near(&[1, 4, 5]), Some(vec![4, 5]), "the cache with the most allowed processors");
    assert_eq!(topology.near(&[4, 5]), None);
    assert_eq!(topology.one_per_core(&[0, 1, 2]), None);
}

#[test]
fn two_threads_on_a_core_are_advice_to_measure() {
    let machine = differs(
        "
sys/devices/system/cpu/smt/control = on
sys/devices/system/cpu/cpu{0-3}/topology/thread_siblings_list = {},4
sys/devices/system/cpu/cpu0/topology/thread_siblings_list = 0,4
sys/devices/system/cpu/cpu1/topology/thread_siblings_list = 1,5
sys/devices/system/cpu/cpu2/topology/thread_siblings_list = 2,6
sys/devices/system/cpu/cpu3/topology/thread_siblings_list = 3,7
sys/devices/system/cpu/cpu4/topology/thread_siblings_list = 0,4
sys/devices/system/cpu/cpu5/topology/thread_siblings_list = 1,5
sys/devices/system/cpu/cpu6/topology/thread_siblings_list = 2,6
sys/devices/system/cpu/cpu7/topology/thread_siblings_list = 3,7
",
        &["advice smt: 8 CPUs on 4 cores, control on"],
    );
    let topology = Topology::read(&machine.host()).unwrap();
    assert_eq!(topology.one_per_core(&[0, 1, 2, 3, 4, 5, 6, 7]), Some(vec![0, 1, 2, 3]));
    assert_eq!(topology.one_per_core(&[1, 5, 6]), Some(vec![1, 6]));
    assert_eq!(topology.one_per_core(&[1, 2]), None);
}

#[test]
fn smt_switched_off_leaves_fewer_processors_online() {
    differs(
        "
sys/devices/system/cpu/online = 0-3
sys/devices/system/cpu/smt/control = off
sys/devices/system/cpu/cpu{0-3}/cache/index3/shared_cpu_list = 0-3
proc/self/status = Cpus_allowed_list:	0-3
",
        &[
            "ok numa: 1 node, 1 third-level cache of 4 CPUs; this process may use CPUs 0-3",
            "ok smt: 4 CPUs on 4 cores, control off",
            "ok governor: performance on 4 CPUs, energy preference performance",
            "ok per-cpu-threads: none of 1 program has a thread for each of 4 CPUs",
        ],
    );
}

#[test]
fn a_throttled_group_is_a_warning_at_whichever_level_the_limit_is() {
    differs("sys/fs/cgroup/game/cpu.max = 200000 100000", &["advice quota: limit of 2.00 CPUs, never throttled"]);
    differs(
        "
proc/self/cgroup = 0::/game/match
sys/fs/cgroup/game/match/cpu.max = max 100000
sys/fs/cgroup/game/cpu.max = 150000 100000
sys/fs/cgroup/game/cpu.stat = usage_usec 1|nr_periods 90|nr_throttled 31|throttled_usec 4200000
",
        &["WARNING quota: limit of 1.50 CPUs; throttled 31 times for 4.2 s in total, not during this check"],
    );
}

/// A verdict needs what it depends on.
#[test]
fn a_value_that_cannot_be_read_is_never_a_good_one() {
    let cannot = |changes: &str, check: &str, file: &str| {
        let rows = lines(&Machine::base_with(changes).report());
        let row = rows.iter().find(|row| row.contains(&format!(" {check}: "))).expect("each check has a row");
        assert!(row.starts_with(&format!("cannot read {check}: {file}")), "{changes}: {row}");
    };
    cannot("proc/irq/1/smp_affinity_list -", "irq", "/proc/irq/1/smp_affinity_list");
    cannot("sys/fs/cgroup/game/cpu.max = garbage", "quota", "/sys/fs/cgroup/game/cpu.max");
    cannot("sys/fs/cgroup/game/cpu.max = 100000 x", "quota", "/sys/fs/cgroup/game/cpu.max");
    cannot("sys/kernel/mm/transparent_hugepage/defrag -", "thp", "/sys/kernel/mm/transparent_hugepage/defrag");
    cannot("sys/devices/system/cpu/cpu0/cpuidle -", "dma-latency", "/sys/devices/system/cpu/cpu0/cpuidle");
    // With a bound that forbids all deep sleep, the states do not matter.
    let bounded = Machine::base_with("sys/devices/system/cpu/cpu0/cpuidle -");
    std::fs::write(bounded.folder.path().join("dev/cpu_dma_latency"), 10i32.to_ne_bytes()).expect("it can be written");
    let rows = lines(&bounded.report());
    assert!(rows.iter().any(|row| row == "ok dma-latency: at most 10 us; no deep sleep state is in use"), "{rows:#?}");
}

#[test]
fn control_groups_of_version_1_are_read_too() {
    let v1 = "
sys/fs/cgroup/cgroup.procs -
proc/self/cgroup = 5:memory:/game|3:cpu,cpuacct:/game|0::/
sys/fs/cgroup/cpu,cpuacct/cgroup.procs = 1
sys/fs/cgroup/cpu,cpuacct/game/cpu.cfs_quota_us = 50000
sys/fs/cgroup/cpu,cpuacct/game/cpu.cfs_period_us = 100000
sys/fs/cgroup/cpu,cpuacct/game/cpu.stat = nr_periods 9|nr_throttled 3|throttled_time 1500000000
";
    let throttled = "WARNING quota: limit of 0.50 CPUs; throttled 3 times for 1.5 s in total, not during this check";
    differs(v1, &[throttled]);
    let free = format!("{v1}sys/fs/cgroup/cpu,cpuacct/game/cpu.cfs_quota_us = -1");
    differs(&free, &["WARNING quota: no limit now; throttled 3 times for 1.5 s in total, not during this check"]);
    let container = format!(
        "{v1}proc/self/cgroup = 3:cpu,cpuacct:/docker/0123|0::/\nsys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us = -1"
    );
    differs(&container, &[]);
}

#[test]
fn growth_during_the_check_is_told() {
    struct Busy<'a>(&'a Machine);
    impl Probes for Busy<'_> {
        fn timer_slack_ns(&self) -> Result<u64, ReadError> {
            Known.timer_slack_ns()
        }
        fn socket_buffers(&self, pid: u32, file: u32) -> Result<[u64; 2], ReadError> {
            Known.socket_buffers(pid, file)
        }

        fn clock_cost_ns(&self) -> Result<f64, ReadError> {
            Known.clock_cost_ns()
        }
        fn pause(&self) {
            self.0.describe(
                "
sys/fs/cgroup/game/cpu.stat = nr_periods 9|nr_throttled 2|throttled_usec 100000
proc/self/schedstat = 9000000 32020000 74
proc/stat = cpu  1000 0 1000 8190 0 0 0 10 0 0
",
            );
        }
    }
    let machine = Machine::base_with("sys/fs/cgroup/game/cpu.max = 100000 100000");
    let report = examine(&machine.host(), &Busy(&machine));
    let rows: Vec<String> = lines(&report).into_iter().filter(|row| row.starts_with("WARNING")).collect();
    let expected = [
        "WARNING quota: limit of 1.00 CPUs; throttled 2 times for 0.1 s in total, 2 times during this check",
        "WARNING run-queue: this process waited 500 us before each of 64 turns",
        "WARNING steal: 0.10 % since the start, 5.00 % during this check",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn a_xen_clock_is_a_warning_where_tsc_is_offered() {
    let clock = "sys/devices/system/clocksource/clocksource0";
    differs(
        &format!("{clock}/current_clocksource = xen\n{clock}/available_clocksource = xen tsc hpet"),
        &["WARNING clock: xen, 25 ns a reading; offered: xen tsc hpet; constant_tsc nonstop_tsc"],
    );
    differs(
        &format!("{clock}/current_clocksource = xen\n{clock}/available_clocksource = xen hpet"),
        &["advice clock: xen, 25 ns a reading; offered: xen hpet; constant_tsc nonstop_tsc"],
    );
}

#[test]
fn large_pages_are_best_for_those_who_ask() {
    let thp = "sys/kernel/mm/transparent_hugepage";
    differs(
        &format!("{thp}/enabled = [always] madvise never"),
        &["advice thp: enabled always, defrag defer, shmem never; 200 MB in use"],
    );
    differs(
        &format!("{thp}/enabled = always madvise [never]"),
        &["advice thp: enabled never, defrag defer, shmem never; 200 MB in use"],
    );
    differs(
        &format!("{thp}/defrag = [always] defer defer+madvise madvise never"),
        &["advice thp: enabled madvise, defrag always, shmem never; 200 MB in use"],
    );
}

#[test]
fn a_virtual_machine_has_no_frequencies_sleep_states_and_counters() {
    differs(
        "
sys/devices/system/cpu/cpu0/cpuidle -
sys/devices/system/cpu/cpu0/cpufreq -
sys/bus/event_source/devices/cpu -
sys/bus/event_source/devices/software/type = 1
sys/kernel/debug/sched/migration_cost_ns -
sys/devices/system/clocksource/clocksource0/current_clocksource = kvm-clock
proc/stat = cpu  1000 0 1000 7900 0 0 0 100 0 0
proc/pressure/cpu = some avg10=12.50 avg60=0.40 avg300=0.30 total=1
proc/pressure/irq = full avg10=0.70 avg60=0.00 avg300=0.00 total=0
",
        &[
            "cannot read migration-cost: /sys/kernel/debug/sched/migration_cost_ns does not exist; mount debugfs; a \
             locked-down kernel has none",
            "cannot read c-states: /sys/devices/system/cpu/cpu0/cpuidle does not exist; usual in virtual machines, where \
             the host below decides",
            "cannot read dma-latency: /sys/devices/system/cpu/cpu0/cpuidle does not exist; usual in virtual machines, where \
             the host below decides; some kernels are built without it",
            "cannot read governor: /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor does not exist; usual in virtual \
             machines, where the host below decides",
            "ok clock: kvm-clock, 25 ns a reading; offered: tsc hpet acpi_pm; constant_tsc nonstop_tsc",
            "WARNING pressure: last 10 s: cpu 12.5 %, memory 0.0 %, irq 0.7 %",
            "WARNING steal: 1.00 % since the start, 0.00 % during this check",
            "cannot read pmu: /sys/bus/event_source/devices/cpu does not exist; the host below does not pass the counters \
             on",
        ],
    );
}

#[test]
fn an_arm_host_has_a_clock_and_counters_of_other_names() {
    differs(
        "
sys/devices/system/cpu/cpu{0-7}/cache/index3 -
sys/devices/system/cpu/smt -
sys/devices/system/cpu/cpu{0-7}/cpuidle/state1/name = WFI
sys/devices/system/clocksource/clocksource0/current_clocksource = arch_sys_counter
sys/devices/system/clocksource/clocksource0/available_clocksource = arch_sys_counter
sys/bus/event_source/devices/cpu -
sys/bus/event_source/devices/armv8_pmuv3_0/type = 8
proc/cpuinfo = processor : 0|Features : fp asimd
proc/sys/kernel/sched_migration_cost_ns = 500000
"
        .replace("sys/devices/system/cpu/cpu{0-7}/cache/index3 -\n", &removed_caches())
        .as_str(),
        &[
            "ok numa: 1 node, third-level caches not told; this process may use CPUs 0-7",
            "ok smt: 8 CPUs on 8 cores",
            "advice migration-cost: 500 us",
            "ok clock: arch_sys_counter, 25 ns a reading; offered: arch_sys_counter",
            "ok pmu: armv8_pmuv3_0, perf_event_paranoid 2",
        ],
    );
}

fn removed_caches() -> String {
    (0..8).map(|cpu| format!("sys/devices/system/cpu/cpu{cpu}/cache -\n")).collect()
}

#[test]
fn settings_that_cost_frames_are_advice() {
    differs(
        "
sys/devices/system/cpu/cpu{0-7}/cpuidle/state2/disable = 0
sys/devices/system/cpu/cpu{4-7}/cpufreq/scaling_governor = powersave
sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference = balance_power
sys/kernel/debug/sched/migration_cost_ns = 500000
sys/class/net/eth0/queues/rx-0/rps_cpus = 0f
proc/self/sched = se.slice                   :              2800000
proc/self/limits = Max open files            1024                 1048576              files|Max locked memory         8388608              8388608              bytes
proc/meminfo = AnonHugePages:    204800 kB|SwapTotal: 2097152 kB|SwapFree: 1048576 kB
proc/irq/1/smp_affinity_list = 0-7
proc/sys/kernel/sched_autogroup_enabled = 1
proc/sys/kernel/perf_event_paranoid = 4
proc/sys/net/core/rmem_max = 212992
",
        &[
            "advice migration-cost: 500 us",
            "advice slice: 2.8 ms",
            "advice c-states: deep sleep enabled: C6 (133 us)",
            "advice dma-latency: no bound: sleep of 133 us is allowed",
            "advice governor: performance on 4 CPUs, powersave on 4 CPUs, energy preference balance_power",
            "advice irq: 1 of 1 active device interrupts may stop our CPUs, most often 1 i8042; 1 queue with rps_cpus",
            "advice pmu: cpu, perf_event_paranoid 4",
            "advice autogroup: on",
            "advice swap: 1024 of 2048 MB used, swappiness 60",
            "advice limits: open files 1024, locked memory 8192 kB",
            "advice udp-buffers: at most 208 kB to receive, 4096 kB to send",
        ],
    );
}

#[test]
fn programs_with_a_thread_for_each_processor_are_named() {
    let stat = |name: &str, threads: u32| format!("1 ({name}) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 100 0 0");
    differs(
        &format!(
            "
proc/20/cmdline = agent
proc/20/stat = {}
proc/30/cmdline = beam.smp -- -root /opt
proc/30/stat = {}
proc/30/environ = HOME=/
proc/30/task/{{300-307}}/comm = {{}}_scheduler
proc/30/task/{{308-309}}/comm = async_{{}}
proc/40/cmdline = beam.smp -sbwt none
proc/40/stat = {}
proc/50/cmdline = java -jar x
proc/50/stat = {}
proc/60/stat = {}
proc/70/cmdline = dotnet server.dll
proc/70/stat = {}
proc/70/environ = HOME=/|DOTNET_PROCESSOR_COUNT=4
proc/80/cmdline = java -jar y
proc/80/stat = {}
proc/80/environ = JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=2
",
            stat("ag) ent", 8),
            stat("beam.smp", 10),
            stat("beam.smp", 3),
            stat("java", 2),
            stat("kworker", 8),
            stat("dotnet", 3),
            stat("java", 2)
        ),
        &[
            "advice per-cpu-threads: a thread for each of 8 CPUs: ag) ent 20, beam.smp 30 (8 x *_scheduler)",
            "advice busy-wait: runtimes without a bound: beam.smp 30 (10 threads), java 50 (2 threads, environment not readable)",
        ],
    );
}

#[test]
fn on_an_empty_root_nothing_can_be_read_and_each_row_says_why() {
    let report = examine(&Machine::empty().host(), &NoProbes);
    assert_eq!(report.count(Verdict::CannotRead), CHECKS.len());
    for row in &report.rows {
        let is_probe = row.check == "timer-slack";
        assert_eq!(row.error, Some(if is_probe { "no-call" } else { "absent" }), "{}", row.check);
        assert!(row.read.contains("does not exist; ") || is_probe, "{}: {}", row.check, row.read);
    }
}

#[test]
fn each_check_says_why_it_matters_and_how_it_is_fixed_and_undone() {
    for check in CHECKS.iter().chain(PROCESS_CHECKS) {
        let texts = [check.name, check.why, check.worth, check.fix, check.undo, check.if_absent];
        assert!(texts.iter().all(|text| !text.is_empty()), "{}", check.name);
    }
}

#[test]
fn the_text_has_warnings_first_in_full_and_the_others_in_a_line() {
    let machine = Machine::base_with(
        "
sys/devices/system/clocksource/clocksource0/current_clocksource = hpet
sys/kernel/mm/transparent_hugepage/enabled = [always] madvise never
proc/pressure -
",
    );
    let text = machine.report().text(&["swap"]);
    let begin = "\
WARNING      clock            hpet, 25 ns a reading; offered: tsc hpet acpi_pm; constant_tsc
                              nonstop_tsc
             why    A server reads the clock many times in a frame. With tsc that is a few
                    instructions, with xen or hpet a call of the kernel.
             worth  xen to tsc: +1 to 3 %; another site: part of -30 % (p95) [\"VALORANT's 128-Tick
                    Servers\", Riot Games 2020; Heap's report of changing the clock source on EC2]
             fix    write tsc to current_clocksource; for good, `clocksource=tsc tsc=reliable` on
                    the kernel's command line
             undo   write the former clock source
             try    --apply clock, --undo clock; --measure clock

advice       thp              enabled always, defrag defer, shmem never; 200 MB in use
             why    Large pages spare misses of the address cache. With `always`,";
    assert!(text.starts_with(begin), "{text}");
    let middle = "
cannot read  pressure         /proc/pressure/cpu does not exist; the kernel was started without
                              psi=1
ok           numa             1 node, 1 third-level cache of 8 CPUs; this process may use CPUs 0-7
";
    assert!(text.contains(middle), "{text}");
    assert!(text.contains("\n\nok           swap             none\n             why    A frame that"), "{text}");
    assert!(text.ends_with("\nwarnings 1, advice 1, cannot read 1, ok 22; nothing was changed\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
}

#[test]
fn the_pressure_of_the_own_control_group_and_the_slice_of_the_kernel_are_told() {
    differs(
        "
sys/fs/cgroup/game/cpu.pressure = some avg10=9.50 avg60=0.40 avg300=0.30 total=1
sys/kernel/debug/sched/base_slice_ns = 2800000
",
        &[
            "ok slice: 0.7 ms; 2.8 ms for threads that ask for none",
            "WARNING pressure: last 10 s: cpu 0.5 %, memory 0.0 %; cpu in our control group 9.5 %",
        ],
    );
}
