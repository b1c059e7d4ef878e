//! Commands with all processes that they start: none is left behind.

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A child is looked at so often.
const LOOK: Duration = Duration::from_millis(20);

/// Signals so soon after the first one belong to it: `timeout` sends its own twice.
pub const ONE_REQUEST: Duration = Duration::from_millis(100);

/// A program that has to end at once is asked so often: each request counts as one of its own.
const ASK_AGAIN: Duration = ONE_REQUEST.saturating_add(Duration::from_millis(50));

/// A program that has to end at once has so long.
const AT_ONCE: Duration = Duration::from_secs(2);

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

/// Ends a group that was asked to end before, within 2 s: its first process is asked again, so that it ends at once and ends its own
/// commands, which have groups of their own. It is killed if it stays.
pub fn end_at_once(process: u32) {
    // One more request is not enough. The first one may have come less than `ONE_REQUEST` ago, or is not there yet.
    let began = Instant::now();
    while began.elapsed() < AT_ONCE {
        if !signal_group(process, Signal::Interrupt) {
            return;
        }
        std::thread::sleep(ASK_AGAIN);
    }
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

/// Whether there is such a group, as far as the system tells.
#[cfg(unix)]
fn signal_group(process: u32, signal: Signal) -> bool {
    use rustix::process::{Pid, Signal as Of, kill_process_group};
    let signal = match signal {
        Signal::Interrupt => Of::INT,
        Signal::Terminate => Of::TERM,
        Signal::Pause => Of::STOP,
        Signal::GoOn => Of::CONT,
        Signal::Kill => Of::KILL,
    };
    Pid::from_raw(process as i32).is_some_and(|pid| kill_process_group(pid, signal) != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn signal_group(_: u32, _: Signal) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use super::*;

    /// A shell with a command in a session of its own. The command says its number once it has that, and this returns it.
    fn start(trap: &str) -> (Child, u32) {
        let mut command = Command::new("sh");
        let script = format!("{trap}; setsid sh -c 'echo $$; exec sleep 60' & command=$!; while :; do wait; done");
        let mut child = own_group(command.args(["-c", &script]).stdout(Stdio::piped())).spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        (child, line.trim().parse().expect("a number"))
    }

    fn is_there(process: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
    }

    /// It takes signals as the commands of this workspace do: those soon after the first one belong to it.
    #[test]
    fn a_program_that_was_asked_a_moment_ago_still_ends_its_commands_when_it_has_to_end_at_once() {
        if ignores_interrupts() {
            println!("!!! SIGINT is ignored here, as in the background of a script: NOT tested");
            return;
        }
        let load = r#"trap 'now=$(date +%s%3N); first=${first:-$now};
            if [ $((now - first)) -gt 100 ]; then kill $command; exit 130; fi' INT"#;
        for was_asked in [true, false] {
            let (mut child, command) = start(load);
            if was_asked {
                interrupt(&child);
                std::thread::sleep(Duration::from_millis(20));
            }
            end_at_once(child.id());
            let status = child.wait().expect("it ends");
            let until = Instant::now() + Duration::from_secs(5);
            while is_there(command) {
                assert!(Instant::now() < until, "its command {command} goes on; asked before: {was_asked}");
                std::thread::sleep(LOOK);
            }
            assert_eq!(status.code(), Some(130), "it ends by itself; asked before: {was_asked}");
        }
    }

    #[test]
    fn a_program_that_does_not_end_at_once_is_killed_within_the_bound() {
        let (mut child, command) = start("trap '' INT");
        let began = Instant::now();
        end_at_once(child.id());
        let took = began.elapsed();
        let status = child.wait().expect("it ends");
        let _ = Command::new("kill").arg(command.to_string()).status();
        assert_eq!(status.code(), None, "it was killed");
        assert!((AT_ONCE..AT_ONCE + Duration::from_secs(2)).contains(&took), "{took:?}");
        // A group that has gone is not waited for.
        let began = Instant::now();
        end_at_once(child.id());
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    }
}
