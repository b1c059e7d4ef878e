//! Numbers for people.

use std::time::Duration;

/// A text in which nothing is left that a terminal obeys: of figures that came from anywhere.
pub fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

/// `1 run`, `3 runs`, `3 matches`: a number with a noun, which is given in the singular.
pub fn counted(count: impl Into<u64>, noun: &str) -> String {
    let count = count.into();
    let ending = match count {
        1 => "",
        _ if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", grouped(count))
}

/// A number with three significant digits, or whole with its thousands apart.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    if size >= 999.5 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", grouped(size.round() as u64));
    }
    if size == 0.0 || size < 0.0005 {
        return "0".to_owned();
    }
    let decimals = match size {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// [`figure`], or a dash where nothing was measured.
pub fn optional(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), figure)
}

/// A run's own measuring is to take at most this share of a frame.
const MEASURING_SHARE_AIM: f64 = 0.005;

/// A sentence about the cost of measuring: microseconds per `unit`, and their share of `whole`. Empty if unknown.
pub fn measuring(cost: Option<(f64, f64)>, unit: &str, whole: &str) -> String {
    let Some((us, share)) = cost else { return String::new() };
    let verdict = if share <= MEASURING_SHARE_AIM { "within" } else { "above" };
    let (us, percent, aim) = (figure(us), figure(share * 100.0), MEASURING_SHARE_AIM * 100.0);
    format!("Measuring took {us} µs per {unit}, {percent} % of {whole}: {verdict} the aim of {aim} %.")
}

/// A whole number with commas between its thousands.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time with the unit that fits.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match () {
        () if seconds < 120.0 => format!("{seconds:.0} s"),
        () if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        () => format!("{:.1} h", seconds / 3_600.0),
    }
}

/// An amount of memory with a binary unit.
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", figure(value), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let expected = [
            (0.0, "0"),
            (0.00001, "0"),
            (0.0123, "0.012"),
            (0.5, "0.5"),
            (1.0, "1"),
            (9.999, "10"),
            (12.34, "12.3"),
            (99.96, "100"),
            (100.0, "100"),
            (431.4, "431"),
            (999.7, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1500.0, "-1,500"),
            (f64::NAN, "–"),
        ];
        for (value, text) in expected {
            assert_eq!(figure(value), text, "{value}");
        }
        assert_eq!(bytes(38_400.0), "37.5 KiB");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(grouped(100), "100");
    }
}
