//! Commands with all processes that they start: none is left behind.

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A child is looked at so often.
const LOOK: Duration = Duration::from_millis(20);

/// A program that is asked a second time to end has so long.
const AT_ONCE: Duration = Duration::from_millis(500);

/// The command and all that it starts become a group of their own. A Ctrl-C in the terminal does not reach them: this program
/// ends them.
pub fn own_group(command: &mut Command) -> &mut Command {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command
}

/// Says that the standard input of this process is a pipe from its parent, which sends nothing.
const TIED: &str = "THRONG_ENDS_WITH_PARENT";

/// The command calls [`end_with_parent`], and starts no others: it ends when this process is gone, also if that is killed.
pub fn tied(command: &mut Command) -> &mut Command {
    command.stdin(std::process::Stdio::piped()).env(TIED, "1")
}

/// If this process is [`tied`] to its parent, it ends with it, without a word: nobody is left to read one.
pub fn end_with_parent() {
    if std::env::var_os(TIED).is_some() {
        let wait = || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            std::process::exit(1);
        };
        let _ = std::thread::Builder::new().name("parent".to_owned()).spawn(wait);
    }
}

/// Asks a group to end.
pub fn interrupt(child: &Child) {
    signal(child, Signal::Interrupt);
}

/// Whether programs that this one starts ignore SIGINT, and shells among them cannot trap it: so it is in the background of a
/// script. Where the system does not tell: false.
pub fn ignores_interrupts() -> bool {
    ignored_signals() & 0b10 != 0
}

/// Whether this program was started to go on when its terminal is closed: it ignores SIGHUP, as by `nohup`. Where the system does
/// not tell: false.
pub fn ignores_hang_ups() -> bool {
    ignored_signals() & 0b1 != 0
}

/// A bit for each signal, from 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0)
}

/// Waits until the first process of a group has ended, at most so long, and ends what is left of the group. How that process has
/// ended; `None` if it had to be killed.
pub fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(None) if began.elapsed() < patience => std::thread::sleep(LOOK),
            ended => break ended.ok().flatten(),
        }
    };
    kill(child);
    status
}

/// Asks a group to end, as systems do that stop a service.
pub fn terminate(child: &Child) {
    signal(child, Signal::Terminate);
}

/// A group stands still.
pub fn pause(child: &Child) {
    signal(child, Signal::Pause);
}

/// A group that stands still goes on.
pub fn go_on(child: &Child) {
    signal(child, Signal::GoOn);
}

/// Ends a group, and waits for its first process.
pub fn kill(child: &mut Child) {
    signal(child, Signal::Kill);
    let _ = child.kill();
    let _ = child.wait();
}

/// Ends a group that was asked to end before: those who end at once when they are asked again do it, and end their own commands.
/// The others are killed.
pub fn end_at_once(process: u32) {
    signal_group(process, Signal::Interrupt);
    std::thread::sleep(AT_ONCE);
    signal_group(process, Signal::Kill);
}

enum Signal {
    Interrupt,
    Terminate,
    Pause,
    GoOn,
    Kill,
}

/// Ends the group of a process that was started as [`own_group`], and does not wait.
pub(crate) fn kill_group(process: u32) {
    signal_group(process, Signal::Kill);
}

fn signal(child: &Child, signal: Signal) {
    signal_group(child.id(), signal);
}

#[cfg(unix)]
fn signal_group(process: u32, signal: Signal) {
    use rustix::process::{Pid, Signal as Of, kill_process_group};
    let signal = match signal {
        Signal::Interrupt => Of::INT,
        Signal::Terminate => Of::TERM,
        Signal::Pause => Of::STOP,
        Signal::GoOn => Of::CONT,
        Signal::Kill => Of::KILL,
    };
    if let Some(pid) = Pid::from_raw(process as i32) {
        let _ = kill_process_group(pid, signal);
    }
}

#[cfg(not(unix))]
fn signal_group(_: u32, _: Signal) {}
