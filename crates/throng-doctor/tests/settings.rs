//! Settings are written only if asked for, and put back as they were.

use std::fs;
use std::num::NonZeroU64;
use std::os::unix::fs::symlink;
use std::process::Command;

use rustix::thread::{current_timer_slack, gettid, set_current_timer_slack};
use throng_doctor::{ApplyError, CHECKS, Host, Setting, Verdict, apply, check, undo};

use crate::fixture::{Machine, contents, lines};

/// A machine on which every setting is other than wanted.
const BAD: &str = "
sys/devices/system/cpu/cpu{0-7}/cpuidle/state2/disable = 0
sys/devices/system/cpu/cpu{0-7}/cpufreq/scaling_governor = powersave
sys/devices/system/clocksource/clocksource0/current_clocksource = hpet
sys/kernel/mm/transparent_hugepage/enabled = always
sys/kernel/mm/transparent_hugepage/defrag = always
sys/kernel/debug/sched/migration_cost_ns = 500000
sys/devices/system/node/node1/cpulist = 8
sys/devices/system/node/node1/numastat = local_node 1|other_node 0
sys/fs/cgroup/game/cpu.max = 200000 100000
sys/fs/cgroup/game/match/cpu.max = max 50000
proc/self/cgroup = 0::/game/match
proc/sys/kernel/sched_autogroup_enabled = 1
proc/sys/kernel/numa_balancing = 1
proc/sys/kernel/perf_event_paranoid = 4
proc/sys/net/core/rmem_max = 212992
proc/sys/net/core/wmem_max = 212992
";

#[test]
fn every_setting_of_the_host_is_applied_once_and_undone_exactly() {
    let machine = Machine::base_with(BAD);
    let before = contents(machine.folder.path());
    let mut applied = 0;
    for check in CHECKS.iter().filter(|check| matches!(check.setting, Setting::Host(_))) {
        let written = apply(&machine.host(), check).unwrap_or_else(|error| panic!("{}: {error}", check.name));
        assert!(written.iter().all(|written| written.before != written.now), "{}: {written:?}", check.name);
        assert!(machine.report().rows.iter().any(|row| row.check == check.name && row.applied));
        let again = apply(&machine.host(), check).unwrap_err();
        assert_eq!(again, ApplyError::AppliedBefore { check: check.name });
        let back = undo(&machine.host(), check).unwrap();
        assert_eq!(back.len(), written.len());
        assert!(matches!(undo(&machine.host(), check), Err(ApplyError::NotApplied { .. })));
        applied += 1;
    }
    assert_eq!(applied, 11);
    let trimmed = |contents: Vec<(String, String)>| -> Vec<(String, String)> {
        contents.into_iter().map(|(path, text)| (path, text.trim_end().to_owned())).collect()
    };
    assert_eq!(trimmed(contents(machine.folder.path())), trimmed(before));
}

#[test]
fn an_applied_setting_is_ok_in_the_next_report() {
    let machine = Machine::base_with(BAD);
    for name in ["c-states", "governor", "clock", "migration-cost", "quota", "udp-buffers", "autogroup", "pmu"] {
        let verdict = || machine.report().rows.iter().find(|row| row.check == name).unwrap().verdict;
        assert_ne!(verdict(), Verdict::Ok, "{name}");
        apply(&machine.host(), check(name).unwrap()).unwrap();
        assert_eq!(verdict(), Verdict::Ok, "{name}");
    }
    assert!(
        lines(&machine.report()).contains(
            &"ok clock: tsc, 25 ns a reading; offered: tsc hpet acpi_pm; constant_tsc \
        nonstop_tsc"
                .to_owned()
        )
    );
}

#[test]
fn only_files_that_differ_are_written_and_recorded() {
    let machine = Machine::base_with("sys/devices/system/cpu/cpu{5-6}/cpufreq/scaling_governor = powersave");
    let written = apply(&machine.host(), check("governor").unwrap()).unwrap();
    let paths: Vec<&str> = written.iter().map(|written| written.path.as_str()).collect();
    let path = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    assert_eq!(paths, [path(5), path(6)]);
    let record = format!("{}\tpowersave\n{}\tpowersave", path(5), path(6));
    assert_eq!(machine.text("run/throng-doctor/governor"), record);
}

#[test]
fn values_that_are_good_enough_stay_as_they_are() {
    let buffers = ["proc/sys/net/core/rmem_max", "proc/sys/net/core/wmem_max"];
    let [receive, send] = buffers;
    let machine = Machine::base_with(&format!("{receive} = 212992\n{send} = 16777216"));
    let written = apply(&machine.host(), check("udp-buffers").unwrap()).unwrap();
    let shown: Vec<_> = written.iter().map(|written| (&*written.path, &*written.now)).collect();
    assert_eq!(shown, [(&*format!("/{receive}"), "4194304")]);
    assert_eq!(buffers.map(|path| machine.text(path)), ["4194304", "16777216"]);
    for paranoid in ["-1", "0", "2"] {
        let machine = Machine::base_with(&format!("proc/sys/kernel/perf_event_paranoid = {paranoid}"));
        let error = apply(&machine.host(), check("pmu").unwrap()).unwrap_err();
        assert_eq!(error, ApplyError::SetAlready { check: "pmu" });
        assert_eq!(machine.text("proc/sys/kernel/perf_event_paranoid"), paranoid);
    }
    let machine = Machine::base_with("proc/sys/vm/swappiness = 0");
    assert_eq!(apply(&machine.host(), check("swap").unwrap()), Err(ApplyError::SetAlready { check: "swap" }));
    assert_eq!(machine.text("proc/sys/vm/swappiness"), "0");
    let pages = ["sys/kernel/mm/transparent_hugepage/enabled", "sys/kernel/mm/transparent_hugepage/defrag"];
    let [enabled, defrag] = pages;
    let chosen = "always defer defer+madvise [madvise] never";
    let machine = Machine::base_with(&format!("{enabled} = [always] madvise never\n{defrag} = {chosen}"));
    let written = apply(&machine.host(), check("thp").unwrap()).unwrap();
    let shown: Vec<_> = written.iter().map(|written| (&*written.path, &*written.now)).collect();
    assert_eq!(shown, [(&*format!("/{enabled}"), "madvise")]);
    assert_eq!(machine.text(defrag), chosen);
}

#[test]
fn a_quota_is_taken_away_at_the_level_that_has_one() {
    let machine = Machine::base_with(BAD);
    let written = apply(&machine.host(), check("quota").unwrap()).unwrap();
    let shown: Vec<_> = written.iter().map(|written| (&*written.path, &*written.before, &*written.now)).collect();
    assert_eq!(shown, [("/sys/fs/cgroup/game/cpu.max", "200000 100000", "max 100000")]);
}

#[test]
fn the_word_in_brackets_is_what_undo_writes() {
    let machine = Machine::base_with("sys/kernel/mm/transparent_hugepage/enabled = [always] madvise never");
    let written = apply(&machine.host(), check("thp").unwrap()).unwrap();
    assert_eq!((written.len(), &*written[0].before, &*written[0].now), (1, "always", "madvise"));
    undo(&machine.host(), check("thp").unwrap()).unwrap();
    assert_eq!(machine.text("sys/kernel/mm/transparent_hugepage/enabled"), "always");
}

#[test]
fn a_refused_file_takes_the_others_back_and_leaves_no_record() {
    let machine = Machine::base_with("sys/devices/system/cpu/cpu{0-6}/cpufreq/scaling_governor = powersave");
    // A file that can be read and that nobody may write, not even root.
    let last = machine.folder.path().join("sys/devices/system/cpu/cpu7/cpufreq/scaling_governor");
    fs::remove_file(&last).unwrap();
    symlink("/proc/sys/kernel/ostype", &last).unwrap();
    let error = apply(&machine.host(), check("governor").unwrap()).unwrap_err();
    let path = "/sys/devices/system/cpu/cpu7/cpufreq/scaling_governor".to_owned();
    assert_eq!(error, ApplyError::NoRight { path });
    assert_eq!(
        error.to_string(),
        format!(
            "no right to write {}: run this command as root",
            &"/sys/devices/system/cpu/cpu7/cpufreq/scaling_governor"
        )
    );
    for cpu in 0..7 {
        assert_eq!(machine.text(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")), "powersave");
    }
    assert!(!machine.folder.path().join("run/throng-doctor/governor").exists());
}

/// A file of the kernel that takes a 0 for its default, instead of `path`: the timer slack of this thread, which every user
/// may write. Returns the default; the value now is one more.
fn stubborn(machine: &Machine, path: &str) -> String {
    set_current_timer_slack(None).unwrap();
    let default = current_timer_slack().unwrap();
    set_current_timer_slack(NonZeroU64::new(default + 1)).unwrap();
    let file = machine.folder.path().join(path);
    fs::remove_file(&file).unwrap();
    symlink(format!("/proc/{}/timerslack_ns", gettid().as_raw_nonzero()), &file).unwrap();
    default.to_string()
}

#[test]
fn a_value_that_the_system_takes_but_does_not_use_is_refused_and_put_back() {
    let machine = Machine::base_with(BAD);
    let path = "proc/sys/kernel/sched_autogroup_enabled";
    let default = stubborn(&machine, path);
    let before = machine.text(path);
    assert_ne!(before, default);
    let error = apply(&machine.host(), check("autogroup").unwrap()).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write \"0\" to /{path}: the system keeps \"{default}\""));
    assert_eq!(machine.text(path), before, "neither our value nor the former one stays");
    assert!(!machine.folder.path().join("run/throng-doctor/autogroup").exists());
}

#[test]
fn undo_needs_no_file_to_be_wanted_now() {
    let machine = Machine::base_with(BAD);
    let before = contents(machine.folder.path());
    let later = [
        // The process moved to another group.
        ("quota", "proc/self/cgroup = 0::/", "proc/self/cgroup = 0::/game/match"),
        // The kernel has found tsc to be unstable.
        (
            "clock",
            "sys/devices/system/clocksource/clocksource0/available_clocksource = hpet",
            "sys/devices/system/clocksource/clocksource0/available_clocksource = tsc hpet acpi_pm",
        ),
        ("c-states", "sys/devices/system/cpu/online = 0-6", "sys/devices/system/cpu/online = 0-7"),
        ("governor", "sys/devices/system/cpu/online = 0-6", "sys/devices/system/cpu/online = 0-7"),
        ("migration-cost", "proc/sys/kernel/sched_migration_cost_ns = 1", "proc/sys/kernel/sched_migration_cost_ns -"),
    ];
    for (name, change, change_back) in later {
        let written = apply(&machine.host(), check(name).unwrap()).unwrap();
        machine.describe(change);
        let back = undo(&machine.host(), check(name).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(back.len(), written.len(), "{name}");
        machine.describe(change_back);
    }
    let trimmed = |(path, text): (String, String)| (path, text.trim_end().to_owned());
    let [now, before] = [contents(machine.folder.path()), before].map(|all| all.into_iter().map(trimmed));
    assert_eq!(now.collect::<Vec<_>>(), before.collect::<Vec<_>>());
}

#[test]
fn undo_puts_back_all_that_differ_and_keeps_the_record_until_all_are_back() {
    let machine = Machine::base_with("sys/devices/system/cpu/cpu{0-7}/cpufreq/scaling_governor = powersave");
    let governor = check("governor").unwrap();
    let path = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    apply(&machine.host(), governor).unwrap();
    // Two processors go offline; somebody changes a third and sets a fourth back.
    machine.describe(&format!("{} -\n{} -\n{} = schedutil", path(5), path(7), path(2)));
    machine.describe(&format!("{} = powersave", path(0)));
    let error = undo(&machine.host(), governor).unwrap_err();
    let ApplyError::NotBack { left, files, first, .. } = &error else { panic!("{error}") };
    assert_eq!((*left, *files), (2, 8));
    assert_eq!(first.to_string(), format!("cannot read what to change: /{} does not exist", path(7)));
    for cpu in [0, 1, 2, 3, 4, 6] {
        assert_eq!(machine.text(&path(cpu)), "powersave", "CPU {cpu}");
    }
    assert_eq!(apply(&machine.host(), governor).unwrap_err(), ApplyError::AppliedBefore { check: "governor" });
    // They come back as they went.
    machine.describe(&format!("{} = performance\n{} = performance", path(5), path(7)));
    let back = undo(&machine.host(), governor).unwrap();
    let paths: Vec<&str> = back.iter().map(|written| written.path.trim_start_matches('/')).collect();
    assert_eq!(paths, [path(5), path(7)]);
    assert!((0..8).all(|cpu| machine.text(&path(cpu)) == "powersave"));
    assert!(!machine.folder.path().join("run/throng-doctor/governor").exists());
}

#[test]
fn a_file_that_refuses_its_former_value_keeps_the_record_and_the_others_are_back() {
    let machine = Machine::base_with(BAD);
    let defrag = machine.folder.path().join("sys/kernel/mm/transparent_hugepage/defrag");
    let thp = check("thp").unwrap();
    apply(&machine.host(), thp).unwrap();
    // A file that can be read and that nobody may write, not even root. It is the first to be put back.
    fs::remove_file(&defrag).unwrap();
    symlink("/proc/sys/kernel/ostype", &defrag).unwrap();
    let path = "/sys/kernel/mm/transparent_hugepage/defrag".to_owned();
    let first = Box::new(ApplyError::NoRight { path });
    assert_eq!(undo(&machine.host(), thp), Err(ApplyError::NotBack { check: "thp", left: 1, files: 2, first }));
    assert_eq!(machine.text("sys/kernel/mm/transparent_hugepage/enabled"), "always");
    assert!(machine.folder.path().join("run/throng-doctor/thp").exists());
}

#[test]
fn the_quota_of_a_group_that_is_gone_is_back() {
    let machine = Machine::base_with(BAD);
    machine.describe("sys/fs/cgroup/game/match/cpu.max = 50000 100000");
    let quota = check("quota").unwrap();
    assert_eq!(apply(&machine.host(), quota).unwrap().len(), 2);
    machine.describe("sys/fs/cgroup/game/match -\nproc/self/cgroup = 0::/");
    let back = undo(&machine.host(), quota).unwrap();
    let shown: Vec<_> = back.iter().map(|written| (&*written.path, &*written.now)).collect();
    assert_eq!(shown, [("/sys/fs/cgroup/game/cpu.max", "200000 100000")]);
    assert!(!machine.folder.path().join("run/throng-doctor/quota").exists());
}

#[test]
fn a_record_leads_to_the_files_of_its_check_alone() {
    for (name, path) in [
        ("quota", "/sys/fs/cgroup/../../../etc/cpu.max"),
        ("quota", "/sys/fs/cgroup//cpu.max"),
        ("quota", "/sys/fs/cgroup/./cpu.max"),
        ("quota", "sys/fs/cgroup/cpu.max"),
        ("quota", "/sys/fs/cgroup/game/cpu.max.burst"),
        ("governor", "/sys/devices/system/cpu/cpu/cpufreq/scaling_governor"),
        ("governor", "/sys/devices/system/cpu/cpu1x/cpufreq/scaling_governor"),
        ("governor", "/sys/devices/system/cpu/cpu1/cpu1/cpufreq/scaling_governor"),
        ("c-states", "/sys/devices/system/cpu/cpu1/cpuidle/state1/name"),
        ("swap", "/proc/sys/vm/overcommit_memory"),
    ] {
        let machine = Machine::empty();
        machine.describe(&format!("run/throng-doctor/{name} = {path}\tmine"));
        let error = undo(&machine.host(), check(name).unwrap()).unwrap_err();
        assert_eq!(error.tag(), "unread", "{path}: {error}");
    }
}

#[test]
fn an_empty_record_of_a_program_that_was_killed_is_undone_to_nothing() {
    let machine = Machine::base_with("run/throng-doctor/swap = ");
    fs::write(machine.folder.path().join("run/throng-doctor/swap"), "").unwrap();
    let swap = check("swap").unwrap();
    assert_eq!(apply(&machine.host(), swap), Err(ApplyError::AppliedBefore { check: "swap" }));
    assert_eq!(undo(&machine.host(), swap), Ok(Vec::new()));
    assert_eq!(machine.text("proc/sys/vm/swappiness"), "60");
    assert_eq!(apply(&machine.host(), swap).unwrap().len(), 1);
}

#[test]
fn a_record_that_cannot_be_written_is_not_left_behind() {
    const FOLDER: &str = "THRONG_TEST_MACHINE";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let error = apply(&Host::at(folder.as_ref()), check("swap").unwrap()).unwrap_err();
        assert_eq!(error.tag(), "refused", "{error}");
        return;
    }
    let machine = Machine::base_with("");
    // A process whose files may have no byte: it makes them, and fails at writing.
    let own = std::env::current_exe().unwrap();
    let name = "settings::a_record_that_cannot_be_written_is_not_left_behind";
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" --exact \"$1\" --nocapture"]).arg(own).arg(name);
    let output = limited.env(FOLDER, machine.folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(machine.text("proc/sys/vm/swappiness"), "60");
    assert!(!machine.folder.path().join("run/throng-doctor/swap").exists());
    apply(&machine.host(), check("swap").unwrap()).unwrap();
}

#[test]
fn checks_without_a_setting_of_the_host_are_refused() {
    let machine = Machine::base_with("");
    let before = contents(machine.folder.path());
    for check in CHECKS {
        let expected = match check.setting {
            Setting::None => "nothing-to-apply",
            Setting::Process(_) => "per-process",
            Setting::Host(_) => continue,
        };
        let refused = |result: Result<Vec<_>, ApplyError>| result.unwrap_err().tag();
        assert_eq!(refused(apply(&machine.host(), check)), expected, "{}", check.name);
        assert_eq!(refused(undo(&machine.host(), check)), expected, "{}", check.name);
    }
    assert_eq!(apply(&machine.host(), check("clock").unwrap()).unwrap_err().tag(), "set-already");
    let absent = Machine::empty();
    assert_eq!(apply(&absent.host(), check("clock").unwrap()).unwrap_err().tag(), "unread");
    assert_eq!(contents(machine.folder.path()), before);
}
