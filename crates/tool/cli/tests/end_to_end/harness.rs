//! Compiles the fixture programs, runs them with and without the recorder, and asks the command
//! about recordings.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::documents;

/// The command under test.
pub(crate) const HEAPLEDGER: &str = env!("CARGO_BIN_EXE_heapledger");

/// A time limit beyond any command: one that is still running then hangs. With 30 busy processes on
/// two processors a second of work takes sixteen.
const TIMEOUT: Duration = Duration::from_secs(600);

// ---------------------------------------------------------------------------------------- programs

/// The way in which a fixture is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Build {
    /// A dynamically linked program.
    Program,
    /// A program linked statically: nothing can be preloaded into it.
    Static,
    /// A program for another C library.
    Musl,
    /// A shared library `NAME.so`.
    Module,
    /// A program with gaps between its segments.
    Apart,
}

/// Compiles the fixture `fixtures/programs/NAME.{c,cpp,rs}` and returns its path.
pub(crate) fn program(name: &str) -> PathBuf {
    build(name, Build::Program)
}

/// Compiles a fixture in a chosen way. Compiles each at most once, and not at all if an earlier run
/// did.
pub(crate) fn build(name: &str, how: Build) -> PathBuf {
    type Built = Arc<OnceLock<PathBuf>>;
    static BUILT: LazyLock<Mutex<HashMap<(String, Build), Built>>> = LazyLock::new(Mutex::default);
    let built = BUILT.lock().unwrap().entry((name.to_owned(), how)).or_default().clone();
    built.get_or_init(|| compile(name, how)).clone()
}

fn compile(name: &str, how: Build) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/programs");
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    fs::create_dir_all(&into).unwrap();
    let (source, mut compiler) = [("c", "cc"), ("cpp", "c++"), ("rs", "rustc")]
        .into_iter()
        .map(|(extension, compiler)| (sources.join(name).with_extension(extension), Command::new(compiler)))
        .find(|(source, _)| source.exists())
        .unwrap_or_else(|| panic!("no fixture {name} in {}", sources.display()));
    if how == Build::Musl {
        compiler = Command::new("musl-gcc");
    }
    let output = into.join(match how {
        Build::Program => name.to_owned(),
        Build::Static => format!("{name}.static"),
        Build::Musl => format!("{name}.musl"),
        Build::Module => format!("{name}.so"),
        Build::Apart => format!("{name}.apart"),
    });
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let newest_header = [&sources, &headers().join("heapledger")]
        .into_iter()
        .flat_map(|directory| fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new("h")))
        .map(|path| changed(&path))
        .max();
    if changed(&output) > changed(&source).max(newest_header.unwrap_or(SystemTime::UNIX_EPOCH)) {
        return output;
    }
    // To another name first: another run of the tests may be executing or compiling it, too.
    let mut fresh = output.clone().into_os_string();
    fresh.push(format!(".{}.new", std::process::id()));
    match source.extension().and_then(OsStr::to_str) {
        Some("rs") => compiler.args(["--edition", "2021", "-O", "-g"]),
        // Without builtins, because a compiler that knows malloc removes calls whose result is not
        // used.
        language => compiler.args(["-O1", "-g", "-fno-builtin", "-Wall", "-Wextra", "-pthread"]).arg(match language {
            Some("c") => "-std=gnu11",
            _ => "-std=c++17",
        }),
    };
    if source.extension() != Some(OsStr::new("rs")) {
        compiler.arg("-I").arg(headers());
    }
    match how {
        Build::Program | Build::Musl => {}
        Build::Static => _ = compiler.arg("-static"),
        Build::Module => _ = compiler.args(["-shared", "-fPIC"]),
        Build::Apart => _ = compiler.args(["-Wl,-z,max-page-size=0x200000", "-Wl,-z,separate-code"]),
    }
    let done = compiler.arg(&source).arg("-o").arg(&fresh).output();
    let done = done.unwrap_or_else(|error| panic!("{compiler:?} is needed to build the fixtures: {error}"));
    assert!(done.status.success(), "{compiler:?} failed:\n{}", String::from_utf8_lossy(&done.stderr));
    fs::rename(&fresh, &output).unwrap();
    output
}

/// Returns the directory of `heapledger/heapledger.h`.
pub(crate) fn headers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../include")
}

/// Returns a command with the libraries that the program was linked with: cargo's library path
/// leads to builds with other features.
pub(crate) fn plain_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// Returns the path of an optional program, or `None` after printing that it is missing.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    // The distribution's own programs first: version managers put shell scripts before them.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = ["/usr/bin", "/bin"]
        .into_iter()
        .map(PathBuf::from)
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file());
    let Some(found) = found else {
        skipped(&format!("{name} is not installed"));
        return None;
    };
    if name == "python3" {
        // A version manager's shell script starts the interpreter: ask it for the real path.
        let asked = Command::new(&found).args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
        return Some(PathBuf::from(String::from_utf8(asked.stdout).unwrap().trim_end()));
    }
    Some(found)
}

/// Returns the path of an optional shared library, or `None` after printing that it is missing.
pub(crate) fn shared_library(name: &str) -> Option<PathBuf> {
    let directories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"].map(Path::new);
    let found = directories.into_iter().map(|directory| directory.join(name)).find(|file| file.is_file());
    if found.is_none() {
        skipped(&format!("{name} is not installed"));
    }
    found
}

/// Reports that a test did not run, or fails it if nothing may be skipped.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("HEAPLEDGER_NO_SKIP").is_none_or(|value| value != "1"), "may not be skipped: {why}");
    // eprintln! is not used, because the test runner captures its output.
    let line = format!("skipped: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

// ----------------------------------------------------------------------------------------- scratch

/// A directory for one test, kept for inspection if the test fails.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test").replace("::", "-");
        let name = format!("{test}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runs").join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes an executable file. Another process makes it, because a file that we have open for
    /// writing, and that another test's child inherits at that moment, cannot be executed.
    pub(crate) fn script(&self, name: &str, content: impl AsRef<[u8]>) {
        let text = self.write(&format!("{name}.text"), content);
        let done = Command::new("install").args(["-m", "755"]).arg(text).arg(self.file(name)).status();
        assert!(done.unwrap().success());
    }

    /// Returns the recordings in it, by name.
    pub(crate) fn recordings(&self) -> Vec<PathBuf> {
        let mut found: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension() == Some(OsStr::new("hl")))
            .collect();
        found.sort();
        found
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept for inspection: {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A control group with a bound on its memory, removed when dropped.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    path: PathBuf,
    limit: &'static str,
    peak: &'static str,
}

impl MemoryGroup {
    /// Makes a group without a limit, or returns `None` after printing why it cannot.
    pub(crate) fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = |controller: &str| {
            own.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(controller)?.strip_prefix(":/"))
        };
        // Version 1; or version 2, in which only a group without processes of its own can contain
        // limited groups.
        let first = own("memory").map(|path| (Path::new("/sys/fs/cgroup/memory").join(path), 1));
        let second = own("").map(|path| (Path::new("/sys/fs/cgroup").join(path), 2));
        let root = Some((PathBuf::from("/sys/fs/cgroup"), 2));
        let name = format!("heapledger-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        for (parent, version) in [first, second, root].into_iter().flatten() {
            let (limit, peak) = match version {
                1 => ("memory.limit_in_bytes", "memory.max_usage_in_bytes"),
                _ => ("memory.max", "memory.peak"),
            };
            let path = parent.join(&name);
            if fs::create_dir(&path).is_ok() {
                let group = MemoryGroup { path, limit, peak };
                if group.path.join(limit).exists() && group.path.join(peak).exists() {
                    return Some(group);
                }
            }
        }
        skipped("no control group with a bound on its memory can be made here (root's, version 1 or 2)");
        None
    }

    pub(crate) fn limit(&self, bytes: u64) {
        fs::write(self.path.join(self.limit), bytes.to_string()).unwrap();
    }

    /// Returns the maximum memory in use.
    pub(crate) fn peak(&self) -> u64 {
        fs::read_to_string(self.path.join(self.peak)).unwrap().trim().parse().unwrap()
    }

    /// Returns the beginning of a line of `/bin/sh` whose command then runs in the group.
    pub(crate) fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs && exec ", self.path.display())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Killed processes in it may take a moment to end.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

// ----------------------------------------------------------------------------------------- running

/// The result of a command: compared as a whole between a run with the recorder and one without.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Outcome {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the JSON objects that a truth program printed, each on a line, perhaps among others.
    pub(crate) fn printed_objects(&self) -> Vec<Value> {
        let text = self.text();
        let objects = text.lines().filter(|line| line.starts_with('{'));
        objects.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {self:?}"))).collect()
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |f: &mut fmt::Formatter<'_>, name, bytes: &[u8]| {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4000)]);
            let cut = if bytes.len() > 4000 { "…\n" } else { "" };
            writeln!(f, "--- {name}, {} bytes\n{text}{cut}", bytes.len())
        };
        writeln!(f, "{}", self.status)?;
        show(f, "stdout", &self.stdout)?;
        show(f, "stderr", &self.stderr)
    }
}

/// A command line with its environment, to be run in several ways.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    line: Vec<OsString>,
    options: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    stdin: Vec<u8>,
    timeout: Duration,
}

impl Job {
    pub(crate) fn new<Item: AsRef<OsStr>>(line: impl IntoIterator<Item = Item>) -> Self {
        let line = line.into_iter().map(|item| item.as_ref().to_owned()).collect();
        Job {
            line,
            // Reading debug information takes long in an unoptimised build, and few tests need it.
            options: vec!["--quiet".into(), "--names=none".into()],
            environment: vec![],
            directory: None,
            stdin: vec![],
            timeout: TIMEOUT,
        }
    }

    /// Adds an argument.
    pub(crate) fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.line.push(argument.as_ref().to_owned());
        self
    }

    /// Makes a job for a fixture and its arguments, separated by spaces.
    pub(crate) fn fixture(name: &str, arguments: &str) -> Self {
        Job::new([program(name).into_os_string()].into_iter().chain(arguments.split_whitespace().map(Into::into)))
    }

    /// Makes a job for a shell line, with the directory of compiled fixtures in `$PROGRAMS`.
    pub(crate) fn shell(line: &str) -> Self {
        Job::new(["/bin/sh", "-c", line])
            .variable("PROGRAMS", Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs").as_os_str())
    }

    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Sets the time limit after which it counts as hanging.
    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Adds an option for `heapledger record`.
    pub(crate) fn option(mut self, option: &str) -> Self {
        self.options.push(option.into());
        self
    }

    /// Records the names of functions: `all`, or `auto`, those for which there is time.
    pub(crate) fn with_names(mut self, which: &str) -> Self {
        self.options.retain(|option| option != "--names=none");
        if which == "auto" { self } else { self.option(&format!("--names={which}")) }
    }

    /// Enables the report of `heapledger record` on stderr, which all other tests suppress.
    pub(crate) fn with_report(mut self) -> Self {
        self.options.retain(|option| option != "--quiet");
        self
    }

    fn command(&self, line: &[OsString]) -> Command {
        let mut command = Command::new(program("fresh"));
        // No names from earlier runs, and none for later ones. And no libraries that Cargo has left
        // in the directories of its library path for tests.
        command.args(line).env("XDG_CACHE_HOME", "/dev/null").env_remove("LD_LIBRARY_PATH");
        command.envs(self.environment.iter().cloned());
        // In a group of its own, so all its processes can be ended if it hangs.
        command.process_group(0);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns this job as part of a shell line: `heapledger record … -- …`.
    pub(crate) fn recording_words(&self, output: &Path) -> String {
        let quote = |word: &OsString| format!("'{}'", word.to_str().unwrap().replace('\'', r"'\''"));
        self.recording_line(Some(output)).iter().map(quote).collect::<Vec<_>>().join(" ")
    }

    /// Returns the command line that records this job.
    fn recording_line(&self, output: Option<&Path>) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec![HEAPLEDGER.into(), "record".into()];
        line.extend(self.options.iter().cloned());
        line.extend(output.into_iter().flat_map(|path| ["-o".into(), path.into()]));
        line.push("--".into());
        line.extend(self.line.iter().cloned());
        line
    }

    pub(crate) fn bare(&self) -> Outcome {
        self.start_bare().outcome()
    }

    /// Starts the job without the recorder, and returns while it runs.
    pub(crate) fn start_bare(&self) -> Running {
        Running::start(&self.command(&self.line), self.command(&self.line), &self.stdin, self.timeout)
    }

    /// Starts the recording and returns while it runs.
    pub(crate) fn start(&self, output: Option<&Path>) -> Running {
        let line = self.recording_line(output);
        Running::start(&self.command(&line), self.command(&line), &self.stdin, self.timeout)
    }

    /// Starts the job through a verb of the command's, with hook libraries.
    pub(crate) fn launched(&self, verb: &str, libraries: &[&Path]) -> Running {
        let hooks = libraries.iter().flat_map(|library| [OsStr::new("--hook"), library.as_os_str()]);
        self.through([OsStr::new(verb), "--quiet".as_ref()].into_iter().chain(hooks))
    }

    /// Starts the job through the command, with these words in front of it.
    pub(crate) fn through<'w>(&self, words: impl IntoIterator<Item = &'w OsStr>) -> Running {
        let words = [HEAPLEDGER.as_ref()].into_iter().chain(words).chain(["--".as_ref()]).map(OsStr::to_owned);
        let line: Vec<OsString> = words.chain(self.line.iter().cloned()).collect();
        Running::start(&self.command(&line), self.command(&line), &self.stdin, self.timeout)
    }

    pub(crate) fn recorded(&self, scratch: &Scratch) -> (Outcome, Recording) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let file = scratch.file(&format!("recording-{}.hl", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let outcome = self.start(Some(&file)).outcome();
        assert!(file.exists(), "no recording of {:?}: {outcome:?}", self.line);
        let recording = Recording::open(file);
        (outcome, recording)
    }

    /// Runs the job without and with the recorder: output and exit status must be the same, byte
    /// for byte.
    pub(crate) fn both(&self, scratch: &Scratch) -> (Outcome, Recording) {
        let bare = self.bare();
        let (recorded, recording) = self.recorded(scratch);
        assert!(
            bare == recorded,
            "the recorder changed {:?}\n=== without: {bare:?}\n=== with: {recorded:?}\n{recording:?}",
            self.line
        );
        (recorded, recording)
    }
}

/// A running command, with readers on its pipes.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    line: String,
    timeout: Duration,
    stdout: mpsc::Receiver<Vec<u8>>,
    stderr: mpsc::Receiver<Vec<u8>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that fails midway must leave no processes behind.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Running {
    fn start(shown: &Command, mut command: Command, stdin: &[u8], timeout: Duration) -> Self {
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {shown:?}: {error}"));
        let (mut input, stdin) = (child.stdin.take().unwrap(), stdin.to_owned());
        std::thread::spawn(move || _ = input.write_all(&stdin));
        let stdout = read_all(child.stdout.take().unwrap());
        let stderr = read_all(child.stderr.take().unwrap());
        Running { child, line: format!("{shown:?}"), timeout, stdout, stderr }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the end of the command and of its output.
    pub(crate) fn outcome(mut self) -> Outcome {
        let deadline = Instant::now() + self.timeout;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                self.hangs("is still running");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(5));
        let Ok(stdout) = self.stdout.recv_timeout(left()) else { self.hangs("has ended, but not its output") };
        let Ok(stderr) = self.stderr.recv_timeout(left()) else { self.hangs("has ended, but not its error output") };
        Outcome { status, stdout, stderr }
    }

    fn hangs(&self, how: &str) -> ! {
        let tree = Command::new("ps").args(["-eo", "pid,ppid,pgid,stat,wchan:20,args", "--forest"]).output();
        let tree = tree.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
        let group = self.pid().as_raw_nonzero().to_string();
        let family: String = tree
            .lines()
            .filter(|line| line.split_whitespace().any(|word| word == group))
            .collect::<Vec<_>>()
            .join("\n");
        panic!("{} {how} after {:?}\n{family}", self.line, self.timeout);
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = vec![];
        let _ = from.read_to_end(&mut bytes);
        sender.send(bytes)
    });
    receiver
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, so: impl FnMut() -> bool) {
    assert!(is_true_within(TIMEOUT, so), "waited in vain until {what}");
}

/// Waits until a condition holds; false if it does not within the time limit.
pub(crate) fn is_true_within(timeout: Duration, mut so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        match so() {
            true => return true,
            false if Instant::now() >= deadline => return false,
            false => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Runs the command with these arguments.
pub(crate) fn heapledger<Item: AsRef<OsStr>>(arguments: impl IntoIterator<Item = Item>) -> Outcome {
    let line = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
    Job::new([OsString::from(HEAPLEDGER)].into_iter().chain(line)).bare()
}

/// Returns the exit status of a program that returned `code`.
pub(crate) fn exited(code: i32) -> ExitStatus {
    ExitStatus::from_raw(code << 8)
}

// -------------------------------------------------------------------------------------- recordings

/// A recording and its summary, as the command prints it.
pub(crate) struct Recording {
    pub(crate) path: PathBuf,
    pub(crate) summary: Value,
}

/// Prints the totals, and a line for each process.
impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = |f: &mut fmt::Formatter<'_>, object: &Value| {
            let numbers = object.as_object().into_iter().flatten().filter(|(_, value)| !value.is_array());
            numbers.filter(|(name, _)| *name != "command").try_for_each(|(name, value)| write!(f, " {name} {value}"))
        };
        write!(f, "recording {}:", self.path.display())?;
        totals(f, &self.summary)?;
        for process in self.summary["processes"].as_array().into_iter().flatten() {
            write!(f, "\n  {:.200}:", process["command"].as_str().unwrap_or("?"))?;
            totals(f, process)?;
        }
        writeln!(f)
    }
}

impl Recording {
    pub(crate) fn open(path: PathBuf) -> Self {
        let mut recording = Recording { path, summary: Value::Null };
        recording.summary = recording.ask("summary", &[]);
        recording
    }

    /// Returns the JSON answer of a reading verb.
    pub(crate) fn ask(&self, verb: &str, options: &[&str]) -> Value {
        let arguments = [verb.as_ref(), self.path.as_os_str(), "--json".as_ref()];
        let outcome = heapledger(arguments.into_iter().chain(options.iter().map(OsStr::new)));
        assert!(outcome.status.success(), "{verb} of {}: {outcome:?}", self.path.display());
        documents::read(&outcome.stdout)
    }

    /// Returns one of the session's totals.
    #[track_caller]
    pub(crate) fn total(&self, name: &str) -> i64 {
        number(&self.summary, name)
    }

    /// Returns the processes in it.
    #[track_caller]
    pub(crate) fn processes(&self) -> &[Value] {
        self.summary["processes"].as_array().unwrap_or_else(|| panic!("no processes: {self:?}"))
    }

    /// Returns the only process with this id.
    #[track_caller]
    pub(crate) fn process(&self, pid: i64) -> &Value {
        let found: Vec<_> = self.processes().iter().filter(|process| process["pid"] == pid).collect();
        assert_eq!(found.len(), 1, "one entry per process id; {pid} in {self:?}");
        found[0]
    }

    /// Returns the only process whose command contains `text`.
    #[track_caller]
    pub(crate) fn process_named(&self, text: &str) -> &Value {
        let [process] = self.running(text)[..] else { panic!("not one process {text:?} in {self:?}") };
        process
    }

    /// Returns the processes whose command contains `text`.
    #[track_caller]
    pub(crate) fn running(&self, text: &str) -> Vec<&Value> {
        let contains = |process: &&Value| process["command"].as_str().is_some_and(|command| command.contains(text));
        self.processes().iter().filter(contains).collect()
    }

    /// Asserts that nothing was lost and nothing is unexplained.
    #[track_caller]
    pub(crate) fn assert_whole(&self) -> &Self {
        assert_eq!(self.summary["complete"], true, "not complete: {self:?}");
        for count in ["events_lost", "frees_unknown", "frees_missed"] {
            assert_eq!(self.total(count), 0, "{count}: {self:?}");
        }
        self
    }

    /// Asserts that the session's totals are the sums over its processes.
    #[track_caller]
    pub(crate) fn assert_adds_up(&self) -> &Self {
        let names = ["allocations", "reallocations", "frees", "failed", "bytes_allocated", "temporary_allocations"];
        for name in names.into_iter().chain(["bytes_live_end", "blocks_live_end"]) {
            let sum: i64 = self.processes().iter().map(|process| number(process, name)).sum();
            assert_eq!(self.total(name), sum, "{name} is not the sum over the processes: {self:?}");
        }
        self
    }
}

/// Returns a number in an object of the command's JSON.
#[track_caller]
pub(crate) fn number(object: &Value, name: &str) -> i64 {
    object[name].as_i64().unwrap_or_else(|| panic!("no number {name:?} in {object:#}"))
}
