//! The table of checks.

use serde::{Serialize, Serializer};

use crate::apply::Change;
use crate::checks::{memory, process, processor, scheduler, system};
use crate::host::{Host, ReadError};
use crate::machine::Machine;

/// The meaning of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It costs frames on any machine.
    Warning,
    /// It may cost frames: measure it.
    Advice,
    /// It cannot be read.
    CannotRead,
    /// As it should be.
    Ok,
}

impl Verdict {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Warning => "WARNING",
            Verdict::Advice => "advice",
            Verdict::CannotRead => "cannot read",
            Verdict::Ok => "ok",
        }
    }
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The article about VALORANT's servers.
    Valorant,
    /// The article about a game AI server on Kunpeng.
    Kunpeng,
    /// Heap's report of leaving the xen clock.
    Heap,
    /// Measured by this project.
    Measured,
}

impl Source {
    /// The title that a search finds.
    pub fn title(self) -> &'static str {
        match self {
            Source::Valorant => "\"VALORANT's 128-Tick Servers\", Riot Games 2020",
            Source::Kunpeng => "\"Game AI tuning in practice\" (in Chinese), Kunpeng community 2025",
            Source::Heap => "Heap's report of changing the clock source on EC2",
            Source::Measured => "measured by this project: 2 vCPU of an AMD EPYC Zen 5 under KVM, kernel 6.18",
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.title())
    }
}

/// A setting that a process has for itself, and its children after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerProcess {
    /// A timer slack of 1 ns.
    TimerSlack,
    /// A scheduler's slice of 100 µs.
    Slice,
    /// The processors below one third-level cache, or of one memory node.
    OneCache,
    /// One processor of each physical core.
    OnePerCore,
}

/// How the setting of a check is written.
#[derive(Clone, Copy)]
pub enum Setting {
    /// The check only reports.
    None,
    /// By a process for itself.
    Process(PerProcess),
    /// In files of the host.
    Host(Files),
}

/// The files of a setting of the host.
#[derive(Clone, Copy)]
pub struct Files {
    /// Those that are there now, with the value wanted, whatever they hold.
    pub(crate) wanted: fn(&Host) -> Result<Vec<Change>, ReadError>,
    /// The paths that they may have on any machine: `#` stands for a number, `**` for any folders or none.
    patterns: &'static [&'static str],
    /// The meaning of a file that is no longer there when it is to be put back.
    pub(crate) absent: Absent,
}

/// The meaning of a file that was written and is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It comes back with the value that was written, as with a processor that is offline.
    ComesBack,
    /// Its value is gone with it, as with a control group that was removed.
    IsBack,
}

impl Files {
    const fn of(
        wanted: fn(&Host) -> Result<Vec<Change>, ReadError>,
        patterns: &'static [&'static str],
        absent: Absent,
    ) -> Files {
        Files { wanted, patterns, absent }
    }

    /// Whether a setting may write a file of this path, on this machine as it is now or not.
    pub(crate) fn may_name(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        let is_plain = |name: &&str| !matches!(*name, "" | "." | "..") && !name.contains(char::is_control);
        // A path begins with a slash, so its first name is empty.
        let is_whole = names[0].is_empty() && names[1..].iter().all(is_plain);
        is_whole && self.patterns.iter().any(|pattern| fits(&pattern.split('/').collect::<Vec<_>>(), &names))
    }
}

fn fits(pattern: &[&str], names: &[&str]) -> bool {
    match pattern {
        [] => names.is_empty(),
        ["**", rest @ ..] => (0..=names.len()).any(|taken| fits(rest, &names[taken..])),
        [word, rest @ ..] => {
            names.split_first().is_some_and(|(name, others)| is_like(word, name) && fits(rest, others))
        }
    }
}

/// Whether a name is a word that ends with `#` for a number, or the word itself.
fn is_like(word: &str, name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match word.strip_suffix('#') {
        Some(head) => name.strip_prefix(head).is_some_and(is_number),
        None => name == word,
    }
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Check {
    /// The word by which commands name it.
    pub name: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// The gain that was seen, and where.
    pub worth: &'static str,
    /// The sources of the gain.
    pub sources: &'static [Source],
    /// How to fix it.
    pub fix: &'static str,
    /// How to undo the fix.
    pub undo: &'static str,
    /// Why the files may be absent on a healthy machine.
    pub if_absent: &'static str,
    /// How it is written.
    pub setting: Setting,
    pub(crate) read: fn(&Machine<'_>) -> Result<Finding, ReadError>,
}

impl Check {
    /// A check that only reports what it reads, and claims no gain.
    const fn of(read: fn(&Machine<'_>) -> Result<Finding, ReadError>) -> Check {
        let (name, why, fix, undo) = ("", "", "", "");
        Check { name, why, worth: NO_CLAIM, sources: &[], fix, undo, if_absent: OLD, setting: Setting::None, read }
    }
}

/// A value that a check read, and its meaning.
pub(crate) struct Finding {
    pub(crate) read: String,
    pub(crate) verdict: Verdict,
}

impl Finding {
    /// A finding that is fine if `is_fine`, and `otherwise` if not.
    pub(crate) fn new(read: String, is_fine: bool, otherwise: Verdict) -> Finding {
        Finding { read, verdict: if is_fine { Verdict::Ok } else { otherwise } }
    }
}

/// The check of a name, of the machine or of a process.
pub fn check(name: &str) -> Option<&'static Check> {
    CHECKS.iter().chain(PROCESS_CHECKS).find(|check| check.name == name)
}

/// The checks of [`CHECKS`] that read settings of a process: those of this program, or of the one that is examined.
pub(crate) const OF_PROCESS: [&str; 6] = ["numa", "slice", "timer-slack", "quota", "run-queue", "limits"];

/// The checks of a process that runs, beside those of [`CHECKS`] that are about processes.
pub const PROCESS_CHECKS: &[Check] = &[
    Check {
        name: "affinity",
        why: "A thread that may run anywhere is moved between processors, and leaves its caches behind.",
        fix: "`taskset -cp LIST TID` for the thread, or start it with `taskset -c LIST`; `throng crowd --pin`",
        undo: "`taskset -cp` with the former list",
        if_absent: ENDED,
        ..Check::of(process::affinity)
    },
    Check {
        name: "scheduler",
        why: "A thread of the class batch or idle, or with a nice value above 0, gets its processor after others.",
        fix: "`chrt --other -p 0 TID` and `renice 0 -p TID`; look for Nice= and CPUSchedulingPolicy= in its unit",
        undo: "`chrt` and `renice` with the former values",
        if_absent: ENDED,
        ..Check::of(process::class)
    },
    Check {
        name: "huge-pages",
        why: "Large pages spare misses of the address cache. A program that asks for none gets none with `madvise`.",
        worth: "as thp",
        sources: &[Source::Kunpeng, Source::Measured],
        fix: "start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=1, as `throng crowd` does; or madvise(MADV_HUGEPAGE) in the server",
        undo: "start it without",
        if_absent: ENDED,
        ..Check::of(process::huge_pages)
    },
    Check {
        name: "pages",
        why: "Memory of another node is slower and shares a bus. The goal is 97 % local.",
        worth: "as numa-local",
        sources: &[Source::Valorant],
        fix: "bind it before it touches memory (numa); `migratepages PID FROM TO` moves what it has",
        undo: "as numa",
        if_absent: "a kernel without NUMA has no file numa_maps",
        ..Check::of(process::pages)
    },
    Check {
        name: "sockets",
        why: "Input that arrives while a frame runs waits in the socket's buffer. A full one drops datagrams.",
        fix: "ask for larger buffers with SO_RCVBUF, after raising net.core.rmem_max (udp-buffers)",
        undo: "ask for the former size",
        if_absent: ENDED,
        ..Check::of(process::sockets)
    },
];

const VM: &str = "usual in virtual machines, where the host below decides";
const DEBUGFS: &str = "mount debugfs; a locked-down kernel has none";
const OLD: &str = "older kernels do not tell it";
const ENDED: &str = "the process has ended, or the kernel was built without it";
const NO_CLAIM: &str = "listed without a claim: measure it";

/// All checks.
pub const CHECKS: &[Check] = &[
    Check {
        name: "numa",
        why: "A match whose memory or cache lies elsewhere waits for it. A match should stay below one third-level \
              cache, not only on one socket.",
        worth: "+5 % matches, and less spread between them",
        sources: &[Source::Valorant],
        fix: "start each server with `numactl --cpunodebind=N --localalloc`, or `taskset -c LIST` with the processors \
              of one third-level cache",
        undo: "start it without; nothing on the host changes",
        setting: Setting::Process(PerProcess::OneCache),
        ..Check::of(memory::numa)
    },
    Check {
        name: "numa-local",
        why: "Memory of another node is slower and shares a bus. The goal is 97 % local.",
        worth: "50 % before, 97 to 99 % after binding; part of the +5 % of numa",
        sources: &[Source::Valorant],
        fix: "bind first (numa), and only then touch memory: the node of the first touch keeps it",
        undo: "as numa",
        if_absent: "a kernel without NUMA has one node",
        ..Check::of(memory::numa_local)
    },
    Check {
        name: "smt",
        why: "Two threads of a core share its caches and units: more work in total, and longer frames.",
        worth: "off was worth 25 % with frames of 25 ms; after tuning, on was worth 25 %: measure, never assume",
        sources: &[Source::Valorant],
        fix: "give the matches one thread of each core with `taskset -c LIST`, if --measure shows a gain",
        undo: "start them without taskset",
        if_absent: VM,
        setting: Setting::Process(PerProcess::OnePerCore),
        ..Check::of(processor::smt)
    },
    Check {
        name: "migration-cost",
        why: "The scheduler leaves a waiting thread on its busy processor while its cache is believed to be warm. 0 \
              moves it to an idle one at once.",
        worth: "0.5 ms to 0: +4 %",
        sources: &[Source::Valorant],
        fix: "write 0 to migration_cost_ns",
        undo: "write the former value, 500000 by default",
        if_absent: DEBUGFS,
        setting: Setting::Host(Files::of(scheduler::no_migration_cost, &scheduler::MIGRATION_COST, Absent::ComesBack)),
        ..Check::of(scheduler::migration_cost)
    },
    Check {
        name: "slice",
        why: "A thread that wakes up waits for the slice of the one that runs. A shorter slice gives a match its \
              processor sooner.",
        worth: "not measured yet",
        fix: "start the server with `chrt --other --sched-runtime 100000 0 COMMAND` (kernel 6.12, util-linux 2.41 or \
              newer; no right needed)",
        undo: "start it without chrt",
        if_absent: "the kernel was built without it",
        setting: Setting::Process(PerProcess::Slice),
        ..Check::of(scheduler::slice)
    },
    Check {
        name: "timer-slack",
        why: "The kernel may wake a sleeping thread later by this time, to wake several at once. A frame that starts \
              late ends late.",
        worth: "1 ns: median wake-up 103 to 112 us late before, 50 to 51 us after",
        sources: &[Source::Measured],
        fix: "prctl(PR_SET_TIMERSLACK, 1) in the server; `throng match --timer-slack 1` does it",
        undo: "prctl(PR_SET_TIMERSLACK, 0)",
        setting: Setting::Process(PerProcess::TimerSlack),
        ..Check::of(scheduler::timer_slack)
    },
    Check {
        name: "c-states",
        why: "A processor that sleeps deeply needs up to some 100 us to wake up, and its caches are cold.",
        worth: "+1 to 3 % matches with C0, C1 and C1E alone, most at 60 to 90 % load",
        sources: &[Source::Valorant],
        fix: "disable the states deeper than C1E, or keep /dev/cpu_dma_latency open with the exit latency of C1E",
        undo: "write 0 to each `disable`, or close the file",
        if_absent: VM,
        setting: Setting::Host(Files::of(processor::no_deep_states, &[processor::DEEP_STATES], Absent::ComesBack)),
        ..Check::of(processor::c_states)
    },
    Check {
        name: "dma-latency",
        why: "A program that keeps /dev/cpu_dma_latency open bounds the time in which processors wake up, and so forbids \
              deep sleep while it runs, without a change of the machine.",
        worth: "as c-states",
        sources: &[Source::Valorant],
        fix: "in the shell that starts the server: `exec 3>/dev/cpu_dma_latency; printf '\\12\\0\\0\\0' >&3` bounds it to \
              10 us for as long as file 3 is open",
        undo: "close the file, as by the end of that shell",
        if_absent: "usual in virtual machines, where the host below decides; some kernels are built without it",
        ..Check::of(processor::wake_bound)
    },
    Check {
        name: "governor",
        why: "A processor that lowers its frequency when idle begins each frame slowly.",
        worth: "the firmware's policy \"Performance\" was part of +9 %",
        sources: &[Source::Kunpeng],
        fix: "set the governor `performance` for all processors",
        undo: "set the former governor",
        if_absent: VM,
        setting: Setting::Host(Files::of(processor::performance, &[processor::GOVERNORS], Absent::ComesBack)),
        ..Check::of(processor::governor)
    },
    Check {
        name: "clock",
        why: "A server reads the clock many times in a frame. With tsc that is a few instructions, with xen or hpet a \
              call of the kernel.",
        worth: "xen to tsc: +1 to 3 %; another site: part of -30 % (p95)",
        sources: &[Source::Valorant, Source::Heap],
        fix: "write tsc to current_clocksource; for good, `clocksource=tsc tsc=reliable` on the kernel's command line",
        undo: "write the former clock source",
        setting: Setting::Host(Files::of(processor::tsc, &[processor::CURRENT_CLOCK], Absent::ComesBack)),
        ..Check::of(processor::clock)
    },
    Check {
        name: "thp",
        why: "Large pages spare misses of the address cache. With `always`, the kernel may stop a frame to make one; \
              with madvise and defrag off the hot path, only programs that ask get them.",
        worth: "part of +9 %; no gain was seen here with small maps",
        sources: &[Source::Kunpeng, Source::Measured],
        fix: "set enabled to madvise and defrag to defer",
        undo: "write the former words",
        if_absent: "the kernel was built without it",
        setting: Setting::Host(Files::of(memory::madvise, &memory::LARGE_PAGES, Absent::ComesBack)),
        ..Check::of(memory::thp)
    },
    Check {
        name: "quota",
        why: "A group that has used its quota stands still until the next period: some 50 ms, or seven frames at 128 Hz.",
        worth: "no figure: any throttled period is a fault",
        fix: "remove the limit of the control group, and give it processors of its own (cpuset)",
        undo: "write the former quota",
        if_absent: "control groups are not mounted",
        setting: Setting::Host(Files::of(scheduler::no_quota, &scheduler::QUOTAS, Absent::IsBack)),
        ..Check::of(scheduler::quota)
    },
    Check {
        name: "pressure",
        why: "The share of time in which some thread waited for a processor, memory or a disk.",
        worth: "no figure: over a few per cent at the planned load, frames wait",
        fix: "fewer matches, or other programs off this machine; `throng doctor --neighbours` names them",
        undo: "nothing to undo",
        if_absent: "the kernel was started without psi=1",
        ..Check::of(scheduler::pressure)
    },
    Check {
        name: "run-queue",
        why: "The time between waking up and running: the best single number of a crowded machine.",
        worth: "no figure: it adds to each frame as it is",
        fix: "as pressure; pin matches to processors that others do not use",
        undo: "nothing to undo",
        if_absent: "the kernel was built without scheduler statistics",
        ..Check::of(scheduler::run_queue)
    },
    Check {
        name: "steal",
        why: "Time in which the host below gave this virtual machine's processors to others.",
        worth: "no figure: over 0.5 %, frames stop without a cause inside",
        fix: "dedicated processors, or another host",
        undo: "nothing to undo",
        ..Check::of(scheduler::steal)
    },
    Check {
        name: "irq",
        why: "An interrupt stops the frame on its processor, and the network's work follows it there.",
        fix: "stop irqbalance, write processors without matches to /proc/irq/N/smp_affinity_list and to rps_cpus",
        undo: "write the former lists, start irqbalance",
        ..Check::of(scheduler::irq)
    },
    Check {
        name: "per-cpu-threads",
        why: "A program with a thread for each processor wakes on all of them at once and stops every match.",
        worth: "an agent with 72 such threads, every 5 s: 2 to 3 times the slow frames; 4 threads cured it",
        sources: &[Source::Valorant],
        fix: "limit its threads, or pin it to processors without matches: `taskset -acp LIST PID`",
        undo: "`taskset -acp` with the former list",
        ..Check::of(system::per_cpu_threads)
    },
    Check {
        name: "busy-wait",
        why: "Runtimes that spin while idle, or start a thread for each processor they see, take turns from matches.",
        worth: "part of the same story: 2 to 3 times the slow frames",
        sources: &[Source::Valorant],
        fix: "BEAM: `+S 4 +sbwt none +sbwtdcpu none +sbwtdio none`; Go: GOMAXPROCS=4; Java: \
              -XX:ActiveProcessorCount=4; .NET: DOTNET_PROCESSOR_COUNT=4",
        undo: "start it without the option",
        ..Check::of(system::busy_wait)
    },
    Check {
        name: "pmu",
        why: "Counters of the processor show cache misses per frame: why frames get longer with more matches.",
        worth: "a reading, no gain",
        fix: "write 1 to /proc/sys/kernel/perf_event_paranoid; a virtual machine needs them from its host",
        undo: "write the former value",
        if_absent: "the host below does not pass the counters on",
        setting: Setting::Host(Files::of(system::counters_allowed, &[system::PARANOID], Absent::ComesBack)),
        ..Check::of(system::pmu)
    },
    Check {
        name: "mitigations",
        why: "Guards against speculation make system calls and switches dearer.",
        fix: "`mitigations=off` on the kernel's command line, only where nobody else's code runs",
        undo: "remove it and restart",
        ..Check::of(system::mitigations)
    },
    Check {
        name: "autogroup",
        why: "Sessions share the processors as groups, so nice values count only inside of a session.",
        fix: "write 0 to sched_autogroup_enabled",
        undo: "write 1",
        if_absent: "the kernel was built without it",
        setting: Setting::Host(Files::of(scheduler::no_autogroup, &[scheduler::AUTOGROUP], Absent::ComesBack)),
        ..Check::of(scheduler::autogroup)
    },
    Check {
        name: "numa-balancing",
        why: "The kernel unmaps pages to see who uses them. A server that is bound gains nothing from these faults.",
        fix: "write 0 to numa_balancing where servers are bound",
        undo: "write 1",
        if_absent: "a kernel without NUMA has nothing to balance",
        setting: Setting::Host(Files::of(memory::no_balancing, &[memory::BALANCING], Absent::ComesBack)),
        ..Check::of(memory::balancing)
    },
    Check {
        name: "swap",
        why: "A frame that touches swapped memory waits for a disk.",
        fix: "write 1 to swappiness, or `swapoff -a` where the memory suffices",
        undo: "write the former value, `swapon -a`",
        setting: Setting::Host(Files::of(memory::hardly_swap, &[memory::SWAPPINESS], Absent::ComesBack)),
        ..Check::of(memory::swap)
    },
    Check {
        name: "limits",
        why: "A server with a socket or a file for each match needs open files.",
        fix: "`ulimit -n 65536`, or LimitNOFILE= in the unit",
        undo: "the former limit",
        ..Check::of(system::limits)
    },
    Check {
        name: "udp-buffers",
        why: "Input that arrives while a frame runs waits in the socket's buffer. A full one drops datagrams.",
        fix: "write 4194304 to net.core.rmem_max and wmem_max, and ask for large buffers",
        undo: "write the former values",
        if_absent: "another network namespace does not show it",
        setting: Setting::Host(Files::of(system::large_buffers, &system::BUFFERS, Absent::ComesBack)),
        ..Check::of(system::udp_buffers)
    },
];
