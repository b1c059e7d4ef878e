//! Which cores the threads run on.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow};

/// More cores than that are no list, but a mistake.
const CORES_MAX: usize = 1_024;

/// A list of cores, as `0,2-3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(Vec<usize>);

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Cores, String> {
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|core| *core < CORES_MAX);
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => cores.extend(first..=last),
                _ => return Err(format!("{part:?} is neither a core nor a range of cores, as in 0,2-3")),
            }
        }
        cores.sort_unstable();
        cores.dedup();
        Ok(Cores(cores))
    }
}

/// The cores of the list, or the last one that this process may use: system work prefers the first.
///
/// # Errors
/// The process may not use one of them.
pub(crate) fn choose(list: Option<&Cores>) -> Result<Vec<usize>> {
    let may: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect();
    let Some(Cores(wanted)) = list else {
        let last = may.iter().max().context("the cores that this process may use are unknown: give --cores")?;
        return Ok(vec![*last]);
    };
    match wanted.iter().find(|core| !may.contains(core)) {
        Some(core) if !may.is_empty() => {
            Err(anyhow!("--cores: this process may not use core {core}; it may use {may:?}"))
        }
        _ => Ok(wanted.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_and_mistakes_refused() {
        let read = |text: &str| text.parse::<Cores>();
        assert_eq!(read("3"), Ok(Cores(vec![3])));
        assert_eq!(read("5,0-2, 1"), Ok(Cores(vec![0, 1, 2, 5])));
        for wrong in ["", "x", "3-1", "1,,2", "-1", "0-99999999999", "1024"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        assert_eq!(choose(None).unwrap().len(), 1);
        let error = choose(Some(&Cores(vec![1_023]))).unwrap_err();
        assert!(error.to_string().contains("may not use core 1023"), "{error}");
    }
}
