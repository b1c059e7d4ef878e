//! A moment by calendar and clock.

use std::time::{Duration, SystemTime};

/// A moment by calendar and clock, in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment(String);

/// The last second of the year 9999.
const LAST: Duration = Duration::from_secs(253_402_300_799);

impl Moment {
    /// Times before 1970 become its first second, and those after the year 9999 its last one.
    pub fn of(now: SystemTime) -> Moment {
        let now = now.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST);
        Moment(humantime::format_rfc3339_seconds(now).to_string())
    }

    /// `20260131-120000`.
    pub fn short(&self) -> String {
        self.0.replace(['-', ':', 'Z'], "").replace('T', "-")
    }

    /// `2026-01-31T12:00:00Z`.
    pub fn long(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        let at = |seconds| Moment::of(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0).long(), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399).long(), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400).long(), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_769_860_800).short(), "20260131-120000");
        assert_eq!(at(4_102_444_799).long(), "2099-12-31T23:59:59Z");
        assert_eq!(at(LAST.as_secs() + 1).long(), "9999-12-31T23:59:59Z");
        assert_eq!(Moment::of(SystemTime::UNIX_EPOCH - Duration::from_secs(9)), at(0));
    }
}
