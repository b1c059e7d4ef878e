//! The limit of open files of the process; each connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets the process have as many open files as the system allows it, and says how many that are. `None`: any number.
///
/// Systems begin with 1,024 for the sake of programs that use `select`; nothing here does.
pub fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        // Some systems say that any number is allowed and take none above their own.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_may_have_as_many_files_as_it_is_allowed() {
        let allowed = getrlimit(Resource::Nofile).maximum;
        let files = raise();
        assert!(files == allowed || files.is_some_and(|files| files >= 1_024), "{files:?} of {allowed:?}");
    }
}
