//! Settings are written only if asked for, and put back as they were.

use std::fs;
use std::os::unix::fs::symlink;

use throng_doctor::{ApplyError, CHECKS, Setting, Verdict, apply, check, undo};

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

#[test]
fn a_value_that_the_system_takes_but_does_not_use_is_refused() {
    let machine = Machine::base_with(BAD);
    // This file of the kernel takes a 0 for its default.
    let file = machine.folder.path().join("proc/sys/kernel/sched_autogroup_enabled");
    fs::remove_file(&file).unwrap();
    symlink("/proc/self/timerslack_ns", &file).unwrap();
    let error = apply(&machine.host(), check("autogroup").unwrap()).unwrap_err();
    let path = "/proc/sys/kernel/sched_autogroup_enabled";
    let kept = format!("cannot write \"0\" to {path}: the system keeps \"50000\"");
    let no_right = format!("no right to write {path}: run this command as root");
    assert!([kept, no_right].contains(&error.to_string()), "{error}");
    assert!(!machine.folder.path().join("run/throng-doctor/autogroup").exists());
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
