//! The matches of a run: in this process, or in processes of their own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use throng_machine::piped::{Gone, Piped};
use throng_telemetry::Snapshot;

use crate::levels::Counts;
use crate::run::{REPORT_PATIENCE, process_error};
use crate::site::{Command, EndLine, Site, SiteLine, SiteOrder, SiteReport};
use crate::watch::Watched;
use crate::{RangeError, RunOptions, Stage};

/// A process has so long to open the map and its server.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// If one does not tell its counts in this time, there are none of all.
const COUNTS_PATIENCE: Duration = Duration::from_millis(500);

/// The matches: here, or in processes of their own.
pub(crate) enum Sites {
    Here(Box<Site>),
    /// One each, with the number of those that have begun.
    Processes(Vec<MatchProcess>, u32),
}

/// A process with a match.
pub(crate) struct MatchProcess {
    process: Piped,
    address: SocketAddr,
    /// The newest line about its progress.
    progress: Option<String>,
    /// The counts that it told last, and whether it was asked for others.
    counts: Counts,
    is_asked: bool,
    /// After its end.
    report: Option<SiteReport>,
}

impl Sites {
    pub(crate) fn start(options: &RunOptions, order: &SiteOrder, stage: &Stage) -> Result<Sites, RangeError> {
        let Some(command) = &options.processes else { return Ok(Sites::Here(Box::new(Site::new(order, stage)?))) };
        let mut started = Vec::new();
        for number in 0..order.matches {
            let core = order.cores.get(number as usize % order.cores.len().max(1));
            let one = SiteOrder {
                first: number,
                matches: 1,
                workers: 1,
                cores: core.copied().into_iter().collect(),
                seed: order.seed.wrapping_add(number.into()),
                record: order.record.clone().filter(|_| number == 0),
                files: order.files.clone().filter(|_| number == 0),
                ..order.clone()
            };
            started.push(Piped::start(command, &one).map_err(process_error)?);
        }
        let processes = started.into_iter().enumerate().map(|(number, process)| MatchProcess::new(number, process));
        Ok(Sites::Processes(processes.collect::<Result<_, _>>()?, 0))
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Sites::Here(site) => site.addresses.clone(),
            Sites::Processes(processes, _) => processes.iter().map(|process| process.address).collect(),
        }
    }

    /// The processes with matches beside this one.
    pub(crate) fn ids(&self) -> Vec<u32> {
        match self {
            Sites::Here(_) => Vec::new(),
            Sites::Processes(processes, _) => processes.iter().map(|process| process.process.id()).collect(),
        }
    }

    /// Begins the first matches.
    pub(crate) fn begin(&mut self, matches: u32) {
        match self {
            Sites::Here(site) => site.start(matches),
            Sites::Processes(..) => self.want(matches),
        }
    }

    /// Has so many matches play: the first ones. Matches that have ended do not begin again.
    pub(crate) fn want(&mut self, matches: u32) {
        match self {
            Sites::Here(site) => site.want(matches),
            Sites::Processes(processes, begun) => {
                let wanted = processes.len().min(matches as usize);
                processes
                    .iter_mut()
                    .take(wanted)
                    .skip(*begun as usize)
                    .for_each(|one| one.process.tell(&Command::Start));
                // One that has begun ends its match for this reason, and writes its report.
                for one in processes.iter_mut().take(*begun as usize).skip(wanted) {
                    one.process.tell(&Command::Fall);
                    one.process.close();
                }
                *begun = (*begun).max(wanted as u32);
            }
        }
    }

    /// Matches that have begun until now.
    pub(crate) fn begun(&self) -> u32 {
        match self {
            Sites::Here(site) => site.begun(),
            Sites::Processes(_, begun) => *begun,
        }
    }

    /// The measured part begins. Matches that begin later are measured from their beginning.
    pub(crate) fn measure(&mut self) {
        match self {
            Sites::Here(site) => site.measure_from_now(),
            Sites::Processes(processes, begun) => {
                processes.iter_mut().take(*begun as usize).for_each(|process| process.process.tell(&Command::Measure));
            }
        }
    }

    /// The counts so far; `None` if a process does not tell its own in time.
    pub(crate) fn counts(&mut self) -> Option<Counts> {
        match self {
            Sites::Here(site) => Some(site.counts()),
            Sites::Processes(processes, _) => {
                for one in processes.iter_mut() {
                    one.process.tell(&Command::Count);
                    one.is_asked = true;
                }
                let until = Instant::now() + COUNTS_PATIENCE;
                let mut have_told = true;
                for one in processes.iter_mut() {
                    have_told &= one.wait_for_counts(until);
                }
                have_told.then(|| Counts::joined(processes.iter().map(|one| &one.counts)))
            }
        }
    }

    /// Waits, at most `within`. Returns whether all matches are over.
    pub(crate) fn wait(&mut self, within: Duration) -> bool {
        match self {
            Sites::Here(site) => site.wait(within),
            Sites::Processes(processes, _) => {
                std::thread::sleep(within);
                // Each is asked: the lines of all of them are taken.
                processes.iter_mut().filter_map(|process| (!process.has_ended()).then_some(())).count() == 0
            }
        }
    }

    /// The numbers of the matches that have begun and have not ended, from 1.
    pub(crate) fn playing(&mut self) -> Vec<u32> {
        match self {
            Sites::Here(site) => site.playing(),
            Sites::Processes(processes, begun) => {
                let numbered = (1..=*begun).zip(processes.iter_mut());
                numbered.filter_map(|(number, process)| (!process.has_ended()).then_some(number)).collect()
            }
        }
    }

    /// Whether a match has ended already.
    pub(crate) fn has_lost_any(&mut self) -> bool {
        match self {
            Sites::Here(site) => {
                site.wait(Duration::ZERO);
                !site.ends.is_empty()
            }
            Sites::Processes(processes, _) => processes.iter_mut().any(MatchProcess::has_ended),
        }
    }

    /// The figures so far, of matches in this process.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let Sites::Here(site) = self else { return None };
        Some(site.telemetry().snapshot())
    }

    /// The metrics of matches in this process, as text for Prometheus.
    pub(crate) fn prometheus(&self) -> Option<String> {
        let Sites::Here(site) = self else { return None };
        Some(site.telemetry().prometheus())
    }

    /// Where the first match is, in one line.
    pub(crate) fn progress(&self) -> Option<String> {
        match self {
            Sites::Here(site) => site.progress(),
            Sites::Processes(processes, _) => processes.iter().find_map(|process| process.progress.clone()),
        }
    }

    pub(crate) fn finish(self) -> (Vec<SiteReport>, Vec<Watched>) {
        match self {
            Sites::Here(site) => {
                let (report, watched) = site.finish();
                (vec![report], watched)
            }
            Sites::Processes(mut processes, begun) => {
                // The others have played nothing.
                processes.truncate(begun as usize);
                // All end together, so that none is measured beside fewer others.
                processes.iter_mut().for_each(|process| process.process.close());
                let finished = processes.into_iter().enumerate();
                (finished.map(|(number, process)| process.finish(number)).collect(), Vec::new())
            }
        }
    }
}

impl MatchProcess {
    fn new(number: usize, process: Piped) -> Result<MatchProcess, RangeError> {
        let line = match process.next_line(START_PATIENCE) {
            Ok(Some(line)) => line,
            Ok(None) => return Err(RangeError::Process(format!("match {} did not start in time", number + 1))),
            Err(Gone) => {
                let status = process.finish(REPORT_PATIENCE).status;
                return Err(RangeError::Process(format!("match {} did not start: {status}", number + 1)));
            }
        };
        let address = match serde_json::from_str(&line) {
            Ok(SiteLine::At(addresses)) => addresses.first().copied(),
            _ => None,
        };
        let address =
            address.ok_or_else(|| RangeError::Process(format!("match {} told no address: {line:?}", number + 1)))?;
        Ok(MatchProcess { process, address, progress: None, counts: Counts::default(), is_asked: false, report: None })
    }

    fn has_ended(&mut self) -> bool {
        while let Ok(Some(line)) = self.process.next_line(Duration::ZERO) {
            self.hear(&line);
        }
        self.process.has_ended()
    }

    /// Whether it has told them. Those of one that has ended are final.
    fn wait_for_counts(&mut self, until: Instant) -> bool {
        while self.is_asked {
            match self.process.next_line(until.saturating_duration_since(Instant::now())) {
                Ok(Some(line)) => self.hear(&line),
                Ok(None) => return false,
                Err(Gone) => return true,
            }
        }
        true
    }

    fn hear(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(SiteLine::Progress(line)) => self.progress = Some(line),
            Ok(SiteLine::Counts(counts)) => (self.counts, self.is_asked) = (counts, false),
            Ok(SiteLine::Done(report)) => self.report = Some(*report),
            Ok(SiteLine::At(_)) | Err(_) => {}
        }
    }

    fn finish(self, number: usize) -> SiteReport {
        let left = self.process.finish(REPORT_PATIENCE);
        let report = match left.line.map(|line| serde_json::from_str(&line)) {
            Some(Ok(SiteLine::Done(report))) => Some(*report),
            _ => self.report,
        };
        report.unwrap_or_else(|| {
            let line = format!("match {}: its process died: {}", number + 1, left.status);
            SiteReport { ends: vec![EndLine { line, ..EndLine::default() }], ..SiteReport::default() }
        })
    }
}
