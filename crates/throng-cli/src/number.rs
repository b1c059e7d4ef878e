//! Numbers on the command line, with errors that name what is possible.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;

/// A type of number, and its name in errors.
pub(crate) trait Number: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static {
    const NAME: &str;
}

macro_rules! numbers {
    ($name:literal: $($number:ty),*) => { $(impl Number for $number { const NAME: &str = $name; })* };
}

numbers!("a whole number": u8, u16, u32, u64, usize);
numbers!("a number": f32, f64);

/// Takes the numbers of a range. The range has a type, as in `1u32..=9`: `clap` notices that of another field only when it is read.
pub(crate) fn number<T: Number>(
    range: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("{}{} is expected", T::NAME, words(&range)))
    }
}

fn words<T: Display>(range: &impl RangeBounds<T>) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Included(first), Bound::Included(last)) => format!(" from {first} to {last}"),
        (Bound::Included(first), _) => format!(" of at least {first}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_their_range_and_words_are_refused_with_the_range() {
        let least = |text: &str| number(2u32..)(text);
        assert_eq!((least("2"), least("4294967295")), (Ok(2), Ok(u32::MAX)));
        for text in ["1", "-3", "1e9", "4294967296", "", "many"] {
            assert_eq!(least(text).unwrap_err(), "a whole number of at least 2 is expected");
        }
        let share = |text: &str| number(0.5f64..=9.0)(text);
        assert_eq!((share("0.5"), share("9")), (Ok(0.5), Ok(9.0)));
        for text in ["0.4", "9.1", "NaN", "inf", "-0.5", "a"] {
            assert_eq!(share(text).unwrap_err(), "a number from 0.5 to 9 is expected");
        }
        assert_eq!(number::<u64>(..)("x").unwrap_err(), "a whole number is expected");
    }
}
