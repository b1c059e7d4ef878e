//! The date in names of files.

/// Seconds since 1970 as `20261121-170813`, in UTC: sorts as it passes, and is fit for a file name.
///
/// The date after Howard Hinnant, [chrono-compatible low-level date algorithms](https://howardhinnant.github.io/date_algorithms.html),
/// `civil_from_days`: years begin in March, so that the day that comes and goes is their last.
pub(crate) fn stamp(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second % 3_600 / 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{:02}", second % 60)
}

/// Seconds since 1970, by the system's clock.
pub(crate) fn unix_s() -> u64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (1_709_164_800, "20240229-000000"),
            (1_795_280_893, "20261121-170813"),
            (4_107_542_400, "21000301-000000"),
        ] {
            assert_eq!(stamp(unix_s), text);
        }
    }
}
