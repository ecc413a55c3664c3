//! The data in /proc about a process.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The data with which a new image is introduced. What cannot be read is empty or 0.
#[derive(Debug, Default)]
pub(crate) struct Description {
    pub(crate) parent_pid: u32,
    pub(crate) executable: Vec<u8>,
    pub(crate) argv: Vec<Vec<u8>>,
}

/// The most bytes of the arguments that are kept; the kernel allows megabytes.
const ARGUMENTS_MAX: usize = 64 << 10;

impl Description {
    pub(crate) fn of(pid: u32) -> Description {
        use std::os::unix::ffi::OsStringExt;
        let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let mut arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.truncate(ARGUMENTS_MAX);
        // Each argument ends with a NUL; the last one may not, if the text was cut or overwritten.
        if arguments.last() == Some(&0) {
            arguments.pop();
        }
        let argv = if arguments.is_empty() {
            Vec::new()
        } else {
            arguments.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
        };
        Description { parent_pid: parent(pid), executable: executable.into_os_string().into_vec(), argv }
    }
}

/// The state of a process or a thread: see proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stat {
    /// `R` if it runs or waits for a processor, `T` if it is stopped, and so on.
    pub(crate) state: char,
    parent: u32,
    /// The processor time that it has used.
    pub(crate) used: Duration,
    /// The time at which it was made, since the system's start.
    started: Duration,
}

impl Stat {
    /// Reads a file such as `/proc/PID/stat`.
    pub(crate) fn read(path: &str) -> Option<Stat> {
        Stat::parse(&text(path).ok()?)
    }

    /// Parses the file. The name in parentheses before the state may itself contain parentheses and
    /// spaces.
    fn parse(stat: &str) -> Option<Stat> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let (state, parent) = (fields.next()?.chars().next()?, fields.next()?.parse().ok()?);
        let [user, system] = [fields.nth(9)?, fields.next()?].map(|ticks| ticks.parse::<u64>().ok());
        let started = fields.nth(6)?.parse::<u64>().ok()?;
        let of_ticks =
            |ticks: u64| Duration::from_millis(ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second());
        let ticks = user?.saturating_add(system?);
        Some(Stat { state, parent, used: of_ticks(ticks), started: of_ticks(started) })
    }

    fn of(pid: u32) -> Option<Stat> {
        Stat::read(&format!("/proc/{pid}/stat"))
    }
}

/// Returns a number that differs between the programs that a process runs one after the other: a
/// hash of where the kernel has put its code and stack, and of when the process was started. `None`
/// if it has ended.
pub(crate) fn image_identity(pid: u32) -> Option<u64> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let stat = text(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    // The fields are numbered from 1 in proc_pid_stat(5), and the first one here is the third.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let mut hasher = DefaultHasher::new();
    [22, 26, 28].map(|field| fields.get(field - 3)).hash(&mut hasher);
    Some(hasher.finish())
}

/// Returns the most resident bytes that a process ever had (`VmHWM`).
pub(crate) fn resident_max(pid: u32) -> Option<u64> {
    let status = text(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Reads a file of proc(5) with text. A program chooses some names in there, such as its own and
/// those of its files: bytes of them that are not UTF-8 are replaced.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// True if a file of proc(5) could not be read because the process or thread has ended.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Returns the time since a process was made; 0 if it cannot be read.
pub(crate) fn age(pid: u32) -> Duration {
    let started = Stat::of(pid).map(|stat| stat.started).unwrap_or_default();
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec as u32);
    now.checked_sub(started).filter(|_| !started.is_zero()).unwrap_or_default()
}

fn parent(pid: u32) -> u32 {
    Stat::of(pid).map_or(0, |stat| stat.parent)
}

/// True if a process is stopped by a signal.
pub(crate) fn is_stopped(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.state == 'T')
}

/// True if a process runs, or could go on: it has not ended.
pub(crate) fn is_running(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Returns the largest resident size of this process so far, in bytes.
pub(crate) fn own_rss_max() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// True if the processor's time stamp counter always runs at one rate.
pub(crate) fn has_invariant_counter() -> bool {
    let Ok(info) = fs::read_to_string("/proc/cpuinfo") else { return false };
    let mut flags = info.lines().filter_map(|line| line.strip_prefix("flags")).peekable();
    let has = |line: &str, flag: &str| line.split_ascii_whitespace().any(|word| word == flag);
    flags.peek().is_some() && flags.all(|line| has(line, "constant_tsc") && has(line, "nonstop_tsc"))
}

#[cfg(test)]
mod tests;
