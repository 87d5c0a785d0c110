//! One redis-server process and the watcher that ends it.
//!
//! Invariant: the server does not outlive this process, not even after a SIGKILL. A small shell
//! reads from a pipe whose other end only this process has. When that end closes, for whatever
//! reason, the shell kills the server and removes its folder.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::wait;

/// Arguments: the folder, then further ones for redis-server.
///
/// The outer shell becomes the server, so `$$` in the watcher is the server's id and the server is
/// our own child. A line means: the server is already dead, leave its number and its folder alone.
const SCRIPT: &str = r#"
exec 3<&0 </dev/null
( (
    trap '' HUP INT TERM
    read -r line <&3 || { kill -9 $$; rm -rf -- "$1" || rm -rf -- "$1"; }
) & )
folder=$1
shift
exec 3<&- redis-server "$folder/redis.conf" "$@"
"#;
/// As much of a log as fits into an error.
const LOG_TAIL: u64 = 4096;
/// What a shell answers for a command that is not there.
const NOT_FOUND: i32 = 127;

/// A server that runs, or has ended without being told to.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// Where this run's part of the log starts.
    log_start: u64,
}

impl Process {
    /// Starts redis-server with `folder`/redis.conf.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> io::Result<Self> {
        let log = folder.join("redis.log");
        let output = File::options().create(true).append(true).open(&log)?;
        let log_start = output.metadata()?.len();
        let child = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(folder)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Keys pressed in a terminal are for the process that started us, not for the server.
            .process_group(0)
            .spawn()?;
        Ok(Self { child, log, log_start })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Why it has ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<io::Error>> {
        Ok(self.child.try_wait()?.map(|status| self.reason(status)))
    }

    fn reason(&self, status: ExitStatus) -> io::Error {
        if status.code() == Some(NOT_FOUND) {
            let text = "redis-server is not installed; it is in the Debian packages redis-server \
                        and redis-tools (redis-sentinel is the same program)";
            return io::Error::new(io::ErrorKind::NotFound, text);
        }
        let log = tail(&self.log, self.log_start);
        let kind = if log.contains("Address already in use") {
            io::ErrorKind::AddrInUse
        } else {
            io::ErrorKind::Other
        };
        io::Error::new(kind, format!("redis-server ended, {status}; its log:\n{log}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let number = i32::try_from(self.pid()).expect("process ids are positive i32");
        let pid = Pid::from_raw(number).expect("a child's id is not 0");
        // The child is ours and not yet reaped, so the id is still its own.
        rustix::process::kill_process(pid, signal).expect("one may signal one's own child");
    }

    /// Stops it and returns when it stands still.
    pub(crate) fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP);
        wait::until(Duration::from_secs(5), "SIGSTOP", || match state(self.pid()) {
            // Without /proc there is nothing to look at.
            Some('T') | None => Ok(()),
            Some(state) => Err(format!("process {} is in state {state}", self.pid())),
        })
    }

    /// Whether it runs and is not paused, as far as the system tells.
    pub(crate) fn answers(&self) -> bool {
        !matches!(state(self.pid()), Some('T' | 'Z' | 'X'))
    }

    /// The processor time it has used, 0 where there is no /proc.
    pub(crate) fn cpu_time(&self) -> Duration {
        let ticks = stat(self.pid()).and_then(|fields| {
            // utime and stime, the 14th and 15th field; the first two are not among these.
            let user: u64 = fields.get(11)?.parse().ok()?;
            let system: u64 = fields.get(12)?.parse().ok()?;
            Some(user + system)
        });
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Duration::from_millis(ticks.unwrap_or(0) * 1000 / per_second)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // In this order: until `wait` nobody else gets the number, and the watcher, which needs it,
        // is sent away only when the server cannot live on. Nothing can be done about an error.
        let _ = self.child.kill();
        if let Some(mut pipe) = self.child.stdin.take() {
            let _ = pipe.write_all(b"\n");
        }
        let _ = self.child.wait();
    }
}

/// The end of a log, at most a few kilobytes, nothing before `start`.
pub(crate) fn tail(log: &Path, start: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.max(length.saturating_sub(LOG_TAIL))))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("({}: {error})", log.display()),
    }
}

/// The fields of /proc/PID/stat after the name, which may contain anything.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    Some(after_name.split_whitespace().map(str::to_owned).collect())
}

fn state(pid: u32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}
