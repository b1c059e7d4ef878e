//! Pages of 2 MiB for the heap.
//!
//! The data of ten thousand connections are in no cache when a tick begins. With pages of 4 KiB, nearly every access waits for
//! the page table too, and on a virtual machine for two of them. glibc asks the kernel for large pages if a setting says so,
//! which it reads from the environment when a program begins. So the program begins again, once, with that setting.

use std::process::Command;

/// The settings of glibc (section "Tunables" of its manual).
const TUNABLES: &str = "GLIBC_TUNABLES";
/// The heap asks for large pages with `madvise`.
const LARGE_PAGES: &str = "glibc.malloc.hugetlb=1";
/// Says whether everybody gets large pages, those who ask, or nobody.
const POLICY: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Begins this program again with large pages, if the system gives them to programs that ask, and nothing was set yet. Programs
/// that it starts inherit the setting. Returns if there is nothing to do, or if it cannot be done: then pages are small.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn ask() {
    use std::os::unix::process::CommandExt;

    let policy = std::fs::read_to_string(POLICY).unwrap_or_default();
    if std::env::var_os(TUNABLES).is_some() || !gives_on_request(&policy) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let _ = Command::new(program).args(std::env::args_os().skip(1)).env(TUNABLES, LARGE_PAGES).exec();
}

/// Other C libraries have no such setting.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn ask() {}

/// The policy in force stands in brackets.
fn gives_on_request(policy: &str) -> bool {
    policy.contains("[madvise]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pages_are_asked_for_where_asking_makes_a_difference() {
        assert!(gives_on_request("always [madvise] never\n"));
        assert!(!gives_on_request("[always] madvise never\n"));
        assert!(!gives_on_request("always madvise [never]\n"));
        assert!(!gives_on_request(""));
    }
}
