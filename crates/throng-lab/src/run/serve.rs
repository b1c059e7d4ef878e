//! A server alone, for bots on another machine. Each group of bots that measures leaves a whole report here: see
//! [`throng_crowd::talk`].

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use throng::{Channels, ConnectionId, Key, Snapshot, SnapshotWriter, Time};
use throng_crowd::scenario::Scenario;
use throng_crowd::talk::{self, Step, Talk};
use throng_crowd::truth::last_snapshot;
use throng_machine::clock;
use throng_report::ArgumentError;

use super::disk::Disk;
use super::ledger::Ledger;
use super::samples::{self, Kept, Samples, Written};
use super::{End, SECOND, conclude, settling, timed};
use crate::bots::{BotsReport, Progress};
use crate::host::Host;
use crate::report;

/// The bots have this long to compare and to report.
const REPORT_PATIENCE: Duration = Duration::from_secs(60);
/// The longest run that bots may ask for, in seconds.
const SECONDS_MAX: u32 = 86_400;

/// Options of a server alone.
pub struct ServeOptions<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The address that it is bound to.
    pub address: SocketAddr,
    /// The address that clients use, if it is another one.
    pub public: Option<SocketAddr>,
    /// The key that encrypts its tokens.
    pub key: Key,
    /// Parent folder of the folders of runs.
    pub runs: &'a Path,
    /// The file in which the characters of players are saved, and from which they go on; `None`: all begin anew each time.
    pub snapshot: Option<&'a Path>,
    /// The time between two snapshots.
    pub snapshot_every: Duration,
    /// Gets a line for each event.
    pub note: fn(&str),
}

/// Serves until `stop` is set, and calls `each_second` with the clients that play and the longest frame of the last second in
/// milliseconds. Whenever bots have measured, their report and the server's figures are written to a new folder.
///
/// # Errors
/// The server cannot start, or its file is not a snapshot.
pub fn serve(options: &ServeOptions<'_>, stop: &AtomicBool, mut each_second: impl FnMut(u32, f64)) -> Result<()> {
    let ServeOptions { scenario, address, public, key, .. } = options;
    if let Some(fault) = scenario.faults.first() {
        bail!("{fault}: a server alone plays no faults: leave them out of the scenario");
    }
    let mut host = Host::new(scenario, *address, *public, key.clone())?;
    host.tell_time();
    let mut saving = options.snapshot.map(|file| Saving::begin(file, &mut host, options)).transpose()?;
    (options.note)(&format!("serving {} at {}; press Ctrl-C to stop", scenario.name, host.server().local_address()));
    let mut desk = Desk { options, empty: Ledger::new(scenario, false, None), session: None, bad_talks: 0 };
    let mut second: Time = clock::now();
    let mut longest_ms = 0f64;
    while !stop.load(Ordering::Relaxed) {
        host.wait();
        desk.tick(&mut host);
        if let Some(saving) = &mut saving {
            saving.go_on(&host);
        }
        longest_ms = longest_ms.max(host.server().last_tick().total_ns as f64 / 1e6);
        if clock::now().since(second) >= SECOND {
            each_second(host.connected(), longest_ms);
            (second, longest_ms) = (clock::now(), 0.0);
        }
    }
    desk.close(&mut host, Err(End::Interrupted));
    if desk.bad_talks + host.bad_talks() > 0 {
        (options.note)(&format!("{} messages of clients were no part of a run", desk.bad_talks + host.bad_talks()));
    }
    let last = saving.is_some().then(|| host.snapshot());
    host.server_mut().shut_down(clock::now(), "the server ends");
    let until = clock::now().after(SECOND);
    while host.server().connection_count() > 0 && clock::now() < until {
        host.wait();
        host.tick();
    }
    if let Some((saving, last)) = saving.zip(last) {
        saving.end(last);
        (options.note)(&format!("{} players went on with their characters of before", host.handovers().resumed));
    }
    Ok(())
}

/// The characters of a server in a file.
struct Saving<'a> {
    file: &'a Path,
    writer: SnapshotWriter,
    every: Duration,
    /// When the newest snapshot was handed to the writer.
    newest: Time,
    is_overdue: bool,
    note: fn(&str),
}

impl<'a> Saving<'a> {
    /// Goes on from the file, if there is one.
    fn begin(file: &'a Path, host: &mut Host, options: &ServeOptions<'_>) -> Result<Saving<'a>> {
        let note = options.note;
        // A process that ends may still write the file: it is this one's before it is read.
        let refused = || ArgumentError(format!("cannot write snapshots to {}", file.display()));
        let writer = match SnapshotWriter::start(file) {
            // It is not to be moved away.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => return Err(error).with_context(refused),
            writer => writer,
        };
        match std::fs::read(file) {
            Ok(bytes) => {
                let unread = || {
                    ArgumentError(format!(
                        "cannot go on from {} (move it away to begin with a new world)",
                        file.display()
                    ))
                };
                let snapshot = Snapshot::read(bytes, host.server().schema()).with_context(unread)?;
                let waiting = host.go_on_from(&snapshot).with_context(unread)?;
                let (tick, file) = (snapshot.tick().0, file.display());
                note(&format!("{waiting} characters wait for their players, as they were in tick {tick} of {file}"));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| ArgumentError(format!("cannot read the snapshot {}", file.display())));
            }
        }
        let writer = writer.with_context(refused)?;
        host.keep_the_absent();
        let (every, newest) = (options.snapshot_every, clock::now());
        Ok(Saving { file, writer, every, newest, is_overdue: false, note })
    }

    fn go_on(&mut self, host: &Host) {
        let now = clock::now();
        let age = now.since(self.newest);
        if age < self.every {
            return;
        }
        if !self.writer.is_free() {
            if age >= self.every * 2 && !std::mem::replace(&mut self.is_overdue, true) {
                let (file, age_s) = (self.file.display(), age.as_secs());
                (self.note)(&format!(
                    "the disk has not taken the snapshot of {age_s} s ago for {file}: none is written meanwhile"
                ));
            }
            return;
        }
        if std::mem::take(&mut self.is_overdue) {
            (self.note)("the disk takes snapshots again");
        }
        if let Some(error) = self.writer.error() {
            (self.note)(&format!("the last snapshot was not written to {}: {error}", self.file.display()));
        }
        self.newest = now;
        self.writer.write(host.snapshot());
    }

    fn end(self, last: Vec<u8>) {
        let Saving { file, writer, note, .. } = self;
        if !writer.is_free() {
            note("waiting for the disk, which has not taken the snapshot before the last one");
        }
        if let Err(error) = writer.end_with(last) {
            note(&format!("the last snapshot was not written to {}: {error}", file.display()));
        }
    }
}

/// Where bots say that they measure.
struct Desk<'a> {
    options: &'a ServeOptions<'a>,
    /// As it was before the first client came, so that memory per connection can be told.
    empty: Ledger,
    session: Option<Session>,
    /// Messages that did not fit where they came.
    bad_talks: u64,
}

/// A run of some bots.
struct Session {
    /// The client that speaks for them.
    speaker: ConnectionId,
    folder: PathBuf,
    started_at: SystemTime,
    ledger: Ledger,
    samples: Samples,
    progress: Progress,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The bots measure.
    Measured,
    /// Nothing moves any more; what was sent arrives until then.
    Resting(Time),
    /// The bots compare, and report until then.
    Compared(Time),
}

impl Desk<'_> {
    /// Plays a tick, and does what the bots ask for.
    fn tick(&mut self, host: &mut Host) {
        let (_, began) = timed(clock::now, || host.tick());
        if let Some(session) = &mut self.session {
            session.count(host, began);
        }
        while let Some((connection, talk)) = host.take_talk() {
            self.take(host, connection, &talk);
        }
        self.go_on(host);
    }

    fn take(&mut self, host: &mut Host, connection: ConnectionId, talk: &Talk) {
        let is_known = match (&mut self.session, talk.step()) {
            (None, Some(Step::Begun)) => self.begin(host, connection, &talk.body),
            (Some(session), Some(step)) if session.speaker == connection => match (session.stage, step) {
                (Stage::Measured, Step::Second) => session.take_second(&talk.body),
                (Stage::Measured, Step::Ended) => {
                    session.rest(host);
                    true
                }
                (_, Step::Report) => self.take_report(host, &talk.body),
                _ => false,
            },
            _ => false,
        };
        self.bad_talks += u64::from(!is_known);
    }

    /// Bots begin to measure. False if they say so in no form that is known.
    fn begin(&mut self, host: &Host, speaker: ConnectionId, body: &[u8]) -> bool {
        let Ok(theirs) = serde_json::from_slice::<Scenario>(body) else { return false };
        let fits = (1..=SECONDS_MAX).contains(&theirs.seconds) && theirs.name == self.options.scenario.name;
        if !fits {
            let name = &self.options.scenario.name;
            (self.options.note)(&format!("bots play another scenario, and get no report: use --scenario {name}"));
            return false;
        }
        // The world is the server's; how it is looked at, and for how long, is the bots' business.
        let scenario = Scenario {
            net: theirs.net,
            seconds: theirs.seconds,
            warmup_seconds: theirs.warmup_seconds,
            ..self.options.scenario.clone()
        };
        match Session::begin(self.options, (&self.empty, &scenario), host, speaker) {
            Ok(session) => {
                (self.options.note)(&format!("bots measure for {} s", theirs.seconds));
                self.session = Some(session);
            }
            Err(error) => (self.options.note)(&format!("these bots get no report: {error:#}")),
        }
        true
    }

    fn take_report(&mut self, host: &mut Host, body: &[u8]) -> bool {
        let Ok(report) = serde_json::from_slice::<BotsReport>(body) else { return false };
        self.close(host, Ok(report));
        true
    }

    /// Does what is due without a word of the bots.
    fn go_on(&mut self, host: &mut Host) {
        let Some(session) = &mut self.session else { return };
        let now = clock::now();
        match session.stage {
            Stage::Resting(until) if now >= until => session.send_truth(host),
            Stage::Compared(until) if now >= until => {
                let text = format!("the bots did not report within {} s", REPORT_PATIENCE.as_secs());
                return self.close(host, Err(End::Bots(text)));
            }
            _ => {}
        }
        if !host.has(session.speaker) {
            self.close(host, Err(End::Bots("the bots left without a report".to_owned())));
        }
    }

    /// Writes the report of the present run, if there is one.
    fn close(&mut self, host: &mut Host, bots: Result<BotsReport, End>) {
        let Some(mut session) = self.session.take() else { return };
        if session.stage == Stage::Measured {
            session.ledger.end(host);
        }
        host.thaw();
        let end = match (&bots, session.stage) {
            (Err(end), _) => Some(end.clone()),
            // They reported before they had measured everything.
            (Ok(_), Stage::Measured) => Some(End::Interrupted),
            (Ok(_), _) => None,
        };
        let (speaker, folder) = (session.speaker, session.folder.clone());
        match session.write(&bots.unwrap_or_default(), end.as_ref()) {
            Ok(page) => {
                (self.options.note)(&format!("report: {}", page.display()));
                let name = folder.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
                // A client that has left hears nothing.
                say(host, speaker, Step::Kept, &name);
            }
            Err(error) => (self.options.note)(&format!("there is no report: {error:#}")),
        }
    }
}

impl Session {
    fn begin(
        options: &ServeOptions<'_>,
        (empty, scenario): (&Ledger, &Scenario),
        host: &Host,
        speaker: ConnectionId,
    ) -> Result<Session> {
        let started_at = SystemTime::now();
        let folder = throng_report::new_folder(options.runs, started_at, &scenario.name)?;
        let samples = Samples::create(&folder, Kept::default(), &Disk::default())?;
        let mut ledger = Ledger::new(scenario, false, None);
        ledger.grow_from(empty);
        ledger.note_wanted(host.connected());
        ledger.begin(host);
        let (progress, stage) = (Progress::default(), Stage::Measured);
        Ok(Session { speaker, folder, started_at, ledger, samples, progress, stage })
    }

    fn count(&mut self, host: &Host, began: Time) {
        if self.stage != Stage::Measured {
            return;
        }
        let ended = clock::now();
        self.ledger.take_tick(host, began, None);
        if let Some(measured_for) = self.ledger.place_of(began) {
            self.samples.take(host.server().last_tick(), measured_for, host.last_finish());
        }
        if self.ledger.second_is_over() {
            self.ledger.note_wanted(host.connected());
            let second = self.ledger.take_second(host, self.progress);
            self.samples.take_second(&second);
        }
        self.ledger.note_measuring(clock::now().since(ended));
    }

    /// The bots' figures of a second. False if they are none.
    fn take_second(&mut self, body: &[u8]) -> bool {
        let Ok(progress) = serde_json::from_slice(body) else { return false };
        self.progress = progress;
        true
    }

    /// The bots have measured: nothing moves any more.
    fn rest(&mut self, host: &mut Host) {
        self.ledger.end(host);
        host.freeze();
        self.stage = Stage::Resting(clock::now().after(settling(self.ledger.scenario())));
    }

    /// Everything has arrived: the bots may compare.
    fn send_truth(&mut self, host: &mut Host) {
        let (tick, time) = (host.server().current_tick().before(1), clock::now());
        let truth = last_snapshot((tick, time), host.true_objects());
        if !say(host, self.speaker, Step::Truth, &truth) {
            // The world is too large. The bots hear that there is nothing to compare with.
            say(host, self.speaker, Step::Truth, &[]);
        }
        self.stage = Stage::Compared(clock::now().after(REPORT_PATIENCE));
    }

    /// Writes everything to the run's folder. The path of the page.
    fn write(self, bots: &BotsReport, end: Option<&End>) -> Result<PathBuf> {
        let Session { folder, started_at, ledger, samples, .. } = self;
        let Written { missing, .. } = samples.finish();
        if !ledger.has_begun() {
            samples::remove_empty(&folder);
        }
        let mut summary = ledger.summary(bots, None);
        summary.head.missing.extend(missing);
        conclude(&mut summary, bots, (started_at, end));
        Ok(report::write(&folder, &summary)?)
    }
}

/// Says something to a client. False if it does not take it.
fn say(host: &mut Host<Channels>, to: ConnectionId, step: Step, body: &[u8]) -> bool {
    let Some(parts) = Talk::parts(step, body) else { return false };
    parts.iter().all(|part| host.server_mut().send(to, talk::LANE, part).is_ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;

    use throng_crowd::scenario::Overrides;

    use super::*;

    #[test]
    fn the_file_of_a_snapshot_belongs_to_the_server_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("world");
        // An open of this one waits until the other end is open too.
        assert!(Command::new("mkfifo").arg(&file).status().expect("there is mkfifo").success());
        let (scenario, address) = (Scenario::resolve("crowd", &Overrides::default()).unwrap(), "127.0.0.1:0");
        let options = ServeOptions {
            scenario: &scenario,
            address: address.parse().unwrap(),
            public: None,
            key: Key::new([7; 32]),
            runs: folder.path(),
            snapshot: Some(&file),
            snapshot_every: SECOND,
            note: |_| (),
        };
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&options, &AtomicBool::new(false), |_, _| ()));
            // It cannot be opened so before the server reads it.
            let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
            let open = || std::fs::File::options().write(true).custom_flags(flags).open(&file).ok();
            let tries = std::iter::repeat_with(open).inspect(|_| std::thread::sleep(Duration::from_millis(5)));
            let mut written = tries.take(4_000).flatten().next().expect("the server reads it within 20 s");
            let claimed = throng_file::WholeFile::claim(&file).map(drop);
            written.write_all(b"no snapshot").unwrap();
            drop(written);
            let error = serving.join().unwrap().expect_err("the file is no snapshot");
            assert!(format!("{error:#}").contains("this is no snapshot"), "{error:#}");
            assert_eq!(claimed.expect_err("the server has it").kind(), ErrorKind::ResourceBusy);
        });
    }
}
