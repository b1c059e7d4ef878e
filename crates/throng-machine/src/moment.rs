//! A moment by calendar and clock.

use std::time::SystemTime;

/// A moment by calendar and clock, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
}

impl Moment {
    /// Times before 1970 become its first second.
    pub fn of(now: SystemTime) -> Moment {
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (year, month, day) = date(seconds / 86_400);
        Moment { year, month, day, second_of_day: seconds % 86_400 }
    }

    /// `20260131-120000`.
    pub fn short(self) -> String {
        let (hour, minute, second) = self.clock();
        format!("{:04}{:02}{:02}-{hour:02}{minute:02}{second:02}", self.year, self.month, self.day)
    }

    /// `2026-01-31T12:00:00Z`.
    pub fn long(self) -> String {
        let (hour, minute, second) = self.clock();
        format!("{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", self.year, self.month, self.day)
    }

    fn clock(self) -> (u64, u64, u64) {
        (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60)
    }
}

/// Year, month and day of a day counted from 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moments_are_those_of_the_calendar() {
        let at = |seconds| Moment::of(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0).long(), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399).long(), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400).long(), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_769_860_800).short(), "20260131-120000");
        assert_eq!(at(4_102_444_799).long(), "2099-12-31T23:59:59Z");
        assert_eq!(Moment::of(SystemTime::UNIX_EPOCH - Duration::from_secs(9)), at(0));
    }
}
