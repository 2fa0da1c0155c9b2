//! Pauses, resumes and ends processes by their id.
//!
//! Every function takes the id of a process as the operating system shows it and
//! fails with [`io::ErrorKind::NotFound`] when there is no such process. An id can be
//! given to another process once its first owner was reaped, so use the id of a
//! child only while you still hold that child.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::eventually::eventually_blocking;

/// Stops the process in its tracks (`SIGSTOP`) and returns once it stands still.
///
/// Its sockets stay open, and the kernel still accepts connections for it until its
/// backlog is full: to a client it looks like a server that hangs.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] without such a process, [`io::ErrorKind::TimedOut`] if
/// it does not stop (it sits in an uninterruptible call).
pub fn pause(pid: u32) -> io::Result<()> {
    send(pid, Signal::STOP)?;
    // The signal is only queued when `kill` returns, and a test that goes on at once must not
    // see one more answer.
    let stopped = eventually_blocking(
        Duration::from_secs(5),
        || !matches!(state(pid), Some(state) if !matches!(state, 'T' | 't' | 'Z' | 'X')),
    );
    match state(pid) {
        None | Some('Z' | 'X') => Err(io::ErrorKind::NotFound.into()),
        Some(_) if !stopped => Err(io::ErrorKind::TimedOut.into()),
        Some(_) => Ok(()),
    }
}

/// Lets a paused process go on (`SIGCONT`); does nothing to one that runs.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] without such a process.
pub fn resume(pid: u32) -> io::Result<()> {
    send(pid, Signal::CONT)
}

/// Ends the process without letting it do anything more (`SIGKILL`), paused or not.
///
/// It may still be there for a moment when this returns; see [`is_running`].
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] without such a process.
pub fn kill(pid: u32) -> io::Result<()> {
    send(pid, Signal::KILL)
}

/// Asks the process to end (`SIGTERM`). A paused one only hears it once resumed.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] without such a process.
pub fn terminate(pid: u32) -> io::Result<()> {
    send(pid, Signal::TERM)
}

/// Whether the process is there, running or paused. One that has ended and was not
/// reaped yet (a zombie) is not.
#[must_use]
pub fn is_running(pid: u32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

pub(crate) fn send(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::NotFound)?;
    kill_process(pid, signal).map_err(|error| match error {
        rustix::io::Errno::SRCH => io::ErrorKind::NotFound.into(),
        error => error.into(),
    })
}

/// The ids of the processes whose parent is `parent`, zombies left out.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| stat(*pid).is_some_and(|(state, its_parent)| its_parent == parent && state != 'Z'))
        .collect()
}

fn state(pid: u32) -> Option<char> {
    Some(stat(pid)?.0)
}

/// The state letter and the parent, from `/proc/<pid>/stat` (proc(5)).
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may hold anything, also `)`.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}
