//! Results for build servers, as JUnit XML.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// A list of cases.
#[derive(Debug)]
pub(crate) struct Suite {
    suite: TestSuite,
    seconds: f64,
}

/// A case.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The group that build servers show it in.
    pub class: String,
    /// Its name.
    pub name: String,
    /// The time that it took.
    pub seconds: f64,
    /// Its end.
    pub outcome: Outcome,
}

/// The end of a case, with words for the build server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is as it should be.
    Passed,
    /// It was measured and is not as it should be.
    Failed(String),
    /// It could not be measured.
    Error(String),
    /// It was measured, and nothing follows from it.
    Skipped(String),
}

impl Suite {
    /// An empty list, of a measurement that took so long.
    pub(crate) fn new(name: &str, seconds: f64) -> Suite {
        Suite { suite: TestSuite::new(name), seconds }
    }

    /// Adds a case.
    pub(crate) fn push(&mut self, case: Case) {
        let status = match case.outcome {
            Outcome::Passed => TestCaseStatus::success(),
            Outcome::Failed(words) => non_success(NonSuccessKind::Failure, words),
            Outcome::Error(words) => non_success(NonSuccessKind::Error, words),
            Outcome::Skipped(words) => {
                let mut status = TestCaseStatus::skipped();
                status.set_message(words);
                status
            }
        };
        let mut test = TestCase::new(case.name, status);
        test.set_classname(case.class).set_time(time(case.seconds));
        self.suite.add_test_case(test);
    }

    /// The document.
    pub(crate) fn into_xml(mut self) -> String {
        self.suite.set_time(time(self.seconds));
        let mut report = Report::new(self.suite.name.clone());
        report.set_time(time(self.seconds)).add_test_suite(self.suite);
        // Writing to memory does not fail.
        report.to_string().unwrap_or_default()
    }
}

fn non_success(kind: NonSuccessKind, words: String) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(words);
    status
}

fn time(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
