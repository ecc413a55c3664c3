//! A run of the work with an allocator.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use heapledger_collect::{CommandAllocator, Library, RecordError, is_loadable, parts_of_older_glibc};
use heapledger_wire::replay::{RESULT, UNKNOWN, VARIABLE, WORK, flag, state};

use crate::figures::Run;
use crate::played::{Layout, Played};
use crate::work::Work;

/// The most processes that run at once: each takes a thread here, and file descriptors.
const RUNNING_MAX: usize = 128;

/// An allocator to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// Its name in the results.
    pub name: String,
    /// The shared library that defines its malloc functions, where the loader finds it; `None` for
    /// that of the C library.
    library: Option<PathBuf>,
    /// The variables of its environment, beside those of this process.
    variables: Vec<(String, String)>,
}

/// The wishes for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// The number of rounds, at least 1.
    pub rounds: u32,
    /// A byte of each page of a block is written when it is allocated.
    pub touches: bool,
    /// The calls are as far apart as in the program, times this. `None`: one after the other.
    pub pace: Option<f64>,
}

/// The reason why there are no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The player cannot be put where the loader finds it.
    #[error(transparent)]
    Install(#[from] RecordError),
    /// The process cannot be started, or its result not be read.
    #[error("the replay cannot be run")]
    Io(#[from] io::Error),
    /// A signal ended the process.
    #[error("the process with this allocator was ended by signal {0}")]
    Signal(i32),
    /// The process ended before the player began: the allocator cannot be loaded, or ended it.
    #[error("the process with this allocator ended before the replay began: {0}")]
    Start(String),
    /// The process ended while the player ran: the allocator ended it.
    #[error("the process with this allocator ended during the replay: {0}")]
    Ended(String),
    /// The player could not map its memory, or start its threads.
    #[error("there is not enough memory, or there are too many threads")]
    Resources,
}

/// The player, where the loader finds it, and the works of a replay.
#[derive(Debug)]
pub struct Player {
    library: Library,
    host: PathBuf,
    /// The number of files for works.
    works: u64,
}

impl Player {
    /// Puts the player, given by its bytes, into a private directory. `host` is the program that is
    /// started for each run: any with the C library.
    ///
    /// # Errors
    ///
    /// Fails if there is no place for it.
    pub fn install(player: &[u8], host: PathBuf) -> Result<Player, RunError> {
        Ok(Player { library: Library::install(player, &[])?, host, works: 0 })
    }

    /// Puts an allocator where the loader finds it. `variables` are added to its environment.
    ///
    /// # Errors
    ///
    /// Fails if its file cannot be made.
    pub fn allocator(
        &self,
        name: String,
        allocator: &CommandAllocator,
        variables: &[(String, String)],
    ) -> io::Result<Allocator> {
        // The name in the file system says nothing to the loader.
        let number = fs::read_dir(self.directory())?.count();
        let path = self.directory().join(format!("allocator.{number}.so"));
        let library = match allocator {
            CommandAllocator::System => None,
            CommandAllocator::Carried(bytes) => {
                OpenOptions::new().write(true).create_new(true).mode(0o500).open(&path)?.write_all(bytes)?;
                Some(path)
            }
            // Not by a link if that can be: the library may look for others beside it.
            CommandAllocator::File(file) if is_loadable(file) => Some(file.clone()),
            CommandAllocator::File(file) => {
                symlink(file, &path)?;
                Some(path)
            }
        };
        Ok(Allocator { name, library, variables: variables.to_vec() })
    }

    /// Makes an empty file for the work of a process, in a directory of its own, and returns its
    /// path.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be made.
    pub fn work_file(&mut self) -> io::Result<PathBuf> {
        let directory = self.directory().join(format!("process.{}", self.works));
        self.works += 1;
        DirBuilder::new().mode(0o700).create(&directory)?;
        let path = directory.join(WORK);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(path)
    }

    fn directory(&self) -> &Path {
        self.library.directory()
    }

    /// Runs each work with each allocator, and returns the figures: for each work, those of the
    /// allocators in their order. The time is the least of the rounds, in which allocators take
    /// turns, and so is that of the player alone. Memory and system calls are found in runs of
    /// their own, since asking costs time. Works run one after the other; with a pace, they begin
    /// when their processes did, and several may run at once. `progress` gets the number of runs
    /// done, and that of all.
    ///
    /// # Errors
    ///
    /// Fails if a process cannot be run to its end. The name is that of its allocator.
    pub fn run(
        &self,
        works: &[&Work],
        allocators: &[Allocator],
        options: &Options,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Vec<Vec<Run>>, (String, RunError)> {
        let wishes = if options.touches { flag::TOUCH } else { 0 };
        let pace = if options.pace.is_some() { flag::TIME } else { 0 };
        let rounds = u64::from(options.rounds.max(1));
        let all = (rounds + 2) * allocators.len() as u64 + rounds;
        let mut done = 0;
        let mut play = |allocator: &Allocator, flags: u64| {
            let played = self.play_all(works, allocator, wishes | flags, options);
            done += 1;
            progress(done, all);
            played.map_err(|error| (allocator.name.clone(), error))
        };
        let nobody = Allocator { name: "the player alone".to_owned(), library: None, variables: Vec::new() };
        let mut alone: Vec<Option<Played>> = works.iter().map(|_| None).collect();
        let run = Run { cpu_ns: u64::MAX, ..Run::default() };
        let mut runs = vec![vec![run; allocators.len()]; works.len()];
        for _ in 0..rounds {
            for (alone, played) in alone.iter_mut().zip(play(&nobody, flag::NULL)?) {
                if alone.as_ref().is_none_or(|least| played.cpu < least.cpu) {
                    *alone = Some(played);
                }
            }
            for (at, allocator) in allocators.iter().enumerate() {
                for (runs, played) in runs.iter_mut().zip(play(allocator, pace)?) {
                    let run = &mut runs[at];
                    if played.cpu < run.cpu_ns {
                        (run.cpu_ns, run.wall_ns, run.failed) = (played.cpu, played.wall, played.failed);
                        (run.faults_minor, run.faults_major) = (played.faults_minor, played.faults_major);
                    }
                }
            }
        }
        for (at, allocator) in allocators.iter().enumerate() {
            let (sized, counted) = (play(allocator, pace | flag::SIZES)?, play(allocator, pace | flag::CALLS)?);
            for (((runs, alone), sized), counted) in runs.iter_mut().zip(&alone).zip(sized).zip(counted) {
                let run = &mut runs[at];
                if let Some(alone) = alone {
                    (run.cpu_player_ns, run.wall_player_ns) = (alone.cpu, alone.wall);
                    run.faults_minor = run.faults_minor.saturating_sub(alone.faults_minor);
                }
                (run.samples, run.classes, run.bins) = (sized.samples, sized.classes, sized.bins);
                run.points = sized.points;
                let is_counted = !counted.system_calls.contains(&UNKNOWN);
                run.system_calls = is_counted.then_some(counted.system_calls);
            }
        }
        Ok(runs)
    }

    /// Runs each work once.
    fn play_all(
        &self,
        works: &[&Work],
        allocator: &Allocator,
        flags: u64,
        options: &Options,
    ) -> Result<Vec<Played>, RunError> {
        let Some(pace) = options.pace.filter(|_| flags & flag::TIME != 0 && works.len() > 1) else {
            return works.iter().map(|work| self.play(work, allocator, flags, options)).collect();
        };
        let first = works.iter().map(|work| work.begins).min().unwrap_or(0);
        let begin = |work: &&Work| Duration::from_nanos(work.begins - first).mul_f64(pace);
        let begins: Vec<Duration> = works.iter().map(begin).collect();
        at_their_times(&begins, RUNNING_MAX, |at| self.play(works[at], allocator, flags, options))
    }

    /// Runs a work once.
    fn play(&self, work: &Work, allocator: &Allocator, flags: u64, options: &Options) -> Result<Played, RunError> {
        let layout = Layout::new(work, flags & flag::SIZES != 0);
        // The parts in 1,024; more than a million times as slow is not meant.
        let scale = options.pace.map_or(1024.0, |pace| (pace * 1024.0).clamp(0.0, 1e9)) as u64;
        let directory = work.path.parent().unwrap_or(Path::new("."));
        let path = directory.join(RESULT);
        fs::write(&path, layout.empty(flags, scale))?;

        let mut command = Command::new(&self.host);
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"HEAPLEDGER_") && name != "HEAPLEDGER_ALLOCATOR_OPTIONS" {
                command.env_remove(name);
            }
        }
        let mut preloaded = OsString::from(self.library.path());
        if let Some(library) = &allocator.library {
            preloaded.push(":");
            preloaded.push(library);
        }
        for part in parts_of_older_glibc() {
            preloaded.push(":");
            preloaded.push(part);
        }
        command.envs(allocator.variables.iter().map(|(name, value)| (name, value)));
        command.env("LD_PRELOAD", preloaded).env(VARIABLE, directory);
        let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
        let played = Played::read(&fs::read(&path)?, &layout, work);
        fs::remove_file(&path)?;
        if let Some(signal) = output.status.signal() {
            return Err(RunError::Signal(signal));
        }
        match played.state {
            state::DONE => Ok(played),
            state::CANNOT => Err(RunError::Resources),
            state::RUNNING => Err(RunError::Ended(first_line(&output.stderr))),
            _ => Err(RunError::Start(first_line(&output.stderr))),
        }
    }
}

/// Plays each work at its time after now, or later if so many are already running, and returns the
/// results in the order of the works.
fn at_their_times<T: Send>(
    begins: &[Duration],
    running_max: usize,
    play: impl Fn(usize) -> Result<T, RunError> + Sync,
) -> Result<Vec<T>, RunError> {
    let mut order: Vec<usize> = (0..begins.len()).collect();
    order.sort_by_key(|&at| begins[at]);
    let (now, play) = (Instant::now(), &play);
    let mut results: Vec<(usize, Result<T, RunError>)> = Vec::with_capacity(begins.len());
    thread::scope(|scope| {
        let (sender, ended) = mpsc::channel();
        for (started, at) in order.into_iter().enumerate() {
            thread::sleep(begins[at].saturating_sub(now.elapsed()));
            results.extend(ended.try_iter());
            if started - results.len() >= running_max {
                results.extend(ended.recv());
            }
            let sender = sender.clone();
            let run = move || drop(sender.send((at, play(at))));
            thread::Builder::new().spawn_scoped(scope, run)?;
        }
        drop(sender);
        results.extend(ended);
        Ok::<(), RunError>(())
    })?;
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Returns the first line of what a process has said.
fn first_line(said: &[u8]) -> String {
    String::from_utf8_lossy(said).lines().next().unwrap_or("it said nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_so_many_works_run_at_once() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let begins: Vec<Duration> = (0..40).map(|at| Duration::from_micros(40 - at)).collect();
        let played = at_their_times(&begins, 3, |at| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(at)
        });
        assert_eq!(played.unwrap(), (0..40).collect::<Vec<_>>());
        assert!((1..=3).contains(&most.into_inner()));
        let failed = at_their_times(&begins, 3, |at| if at == 7 { Err(RunError::Resources) } else { Ok(at) });
        assert!(matches!(failed, Err(RunError::Resources)));
    }
}
