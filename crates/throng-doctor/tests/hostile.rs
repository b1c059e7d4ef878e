//! Machines whose files hold anything at all.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use throng_doctor::{ApplyError, CHECKS, FILE_BYTES_MAX, Report, Sampler, apply, examine_process, programs, undo};

use crate::fixture::{Known, Machine};
use crate::processes::SERVER;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Replaces a file by a hostile one.
fn spoil(path: &Path, way: u32, random: &mut fastrand::Rng) {
    fs::remove_file(path).unwrap();
    match way {
        0 => fs::File::create(path).unwrap().set_len(FILE_BYTES_MAX as u64 + 1).unwrap(),
        1 => fs::write(path, (0..random.usize(0..400)).map(|_| random.u8(..)).collect::<Vec<u8>>()).unwrap(),
        2 => fs::write(path, "-1\n").unwrap(),
        3 => symlink(path, path).unwrap(),
        4 => fs::write(path, "").unwrap(),
        5 => fs::create_dir(path).unwrap(),
        6 => fs::write(path, "99999999999999999999999999 0-4294967295 [ ] : cpu -9 1e999 NaN\n").unwrap(),
        7 => fs::write(path, "\x1b[2J\x07[\x1b[31m] cpu 1 2 3\nCpus_allowed_list: 0-8191\n").unwrap(),
        _ => symlink("/dev/zero", path).unwrap(),
    }
}

fn check_whole(machine: &Machine, context: &str) {
    let report = machine.report();
    assert_eq!(report.rows.len(), CHECKS.len());
    check_report(&report, context);
    // The name of the process is junk too, or there is none.
    if let Ok(report) = examine_process(&machine.host(), &Known, 42) {
        check_report(&report, context);
    }
    let _ = programs(&machine.host(), 8);
    let mut sampler = Sampler::new(machine.host(), 1);
    let _ = sampler.sample(0.0).and_then(|()| sampler.sample(1.0));
}

fn check_report(report: &Report, context: &str) {
    let text = report.text(&report.rows.iter().map(|row| row.check).collect::<Vec<_>>());
    for line in text.lines() {
        assert!(line.chars().count() <= throng_doctor::WIDTH, "{context}: {line}");
        assert!(!line.chars().any(char::is_control), "{context}: {line:?}");
    }
    for row in &report.rows {
        assert!(row.read.len() < 1_000, "{context}: {} says {} bytes", row.check, row.read.len());
    }
    serde_json::to_string(report).expect("it is JSON");
}

#[test]
fn a_tree_of_one_kind_of_junk_is_examined_to_the_end() {
    for way in 0..=8 {
        let machine = Machine::base_with("proc/7/task/7/schedstat = 1 2 3\nproc/7/task/7/comm = sshd");
        machine.describe(SERVER);
        let mut random = fastrand::Rng::with_seed(u64::from(way));
        for path in files(machine.folder.path()) {
            spoil(&path, way, &mut random);
        }
        check_whole(&machine, &format!("way {way}"));
        if [0, 3, 4, 5, 8].contains(&way) {
            let readable = |row: &&throng_doctor::Row| row.error.is_none();
            let report = machine.report();
            // The threads of other programs are none if no program can be read, and the probe needs no file.
            let made_of_nothing = ["timer-slack", "busy-wait"];
            let odd = report.rows.iter().filter(readable).find(|row| !made_of_nothing.contains(&row.check));
            assert!(odd.is_none(), "way {way}: {odd:?}");
        }
    }
}

#[test]
fn a_tree_with_some_junk_is_examined_to_the_end() {
    throng_seeds::for_seeds(40, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let machine = Machine::base_with(SERVER);
        for path in files(machine.folder.path()) {
            if random.u8(0..4) == 0 {
                spoil(&path, random.u32(1..=8), &mut random);
            }
        }
        check_whole(&machine, &format!("seed {seed}"));
        for check in CHECKS {
            // A setting of junk is either refused, or undone to the same junk.
            if apply(&machine.host(), check).is_ok() {
                undo(&machine.host(), check).unwrap_or_else(|error| panic!("{}: {error}", check.name));
            }
        }
    });
}

#[test]
fn a_record_that_somebody_else_wrote_leads_to_no_other_file() {
    let machine = Machine::base_with("run/throng-doctor/swap = /etc/passwd	root\netc/passwd = mine");
    let swap = throng_doctor::check("swap").unwrap();
    assert!(matches!(undo(&machine.host(), swap), Err(ApplyError::Unread(_))));
    assert_eq!(machine.text("etc/passwd"), "mine");
    machine.describe("run/throng-doctor/swap = /proc/sys/vm/../../../etc/passwd	root");
    assert!(undo(&machine.host(), swap).is_err());
    assert_eq!(machine.text("etc/passwd"), "mine");
}
