//! Commands with all processes that they start: none is left behind.

use std::process::{Child, Command};

/// The command and all that it starts become a group of their own. A Ctrl-C in the terminal does not reach them: this program
/// ends them.
pub fn own_group(command: &mut Command) -> &mut Command {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command
}

/// Asks a group to end.
pub fn interrupt(child: &Child) {
    signal(child, Signal::Interrupt);
}

/// Ends a group, and waits for its first process.
pub fn kill(child: &mut Child) {
    signal(child, Signal::Kill);
    let _ = child.kill();
    let _ = child.wait();
}

enum Signal {
    Interrupt,
    Kill,
}

#[cfg(unix)]
fn signal(child: &Child, signal: Signal) {
    use rustix::process::{Pid, Signal as Of, kill_process_group};
    let signal = match signal {
        Signal::Interrupt => Of::INT,
        Signal::Kill => Of::KILL,
    };
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(pid, signal);
    }
}

#[cfg(not(unix))]
fn signal(_: &Child, _: Signal) {}
