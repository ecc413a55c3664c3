//! A run of the work with an allocator.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use heapledger_collect::{CommandAllocator, Library, RecordError, is_loadable};
use heapledger_wire::replay::{
    CLASSES, LAST_SAMPLE, RESULT, SYSTEM_CALLS, UNKNOWN, VARIABLE, WORK, class_start, flag, state,
};

use crate::work::Work;

/// The largest number of samples of a run.
const SAMPLES_MAX: u64 = 2000;

/// An allocator to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// Its name in the results.
    pub name: String,
    /// The shared library that defines its malloc functions, where the loader finds it; `None` for
    /// that of the C library.
    library: Option<PathBuf>,
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

/// The figures of an allocator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The processor time of the calls in nanoseconds, with that of the player.
    pub cpu_ns: u64,
    /// The same time of the player alone: of a run with functions that do nothing.
    pub cpu_player_ns: u64,
    /// The time from the first call to the last in nanoseconds.
    pub wall_ns: u64,
    /// Page faults, without those of the player alone.
    pub faults_minor: u64,
    /// Page faults that needed a device.
    pub faults_major: u64,
    /// The system calls that change mappings, in the order of [`Run::SYSTEM_CALLS`]. `None` if the
    /// kernel does not let them be counted.
    pub system_calls: Option<[u64; SYSTEM_CALLS]>,
    /// Requests that the allocator did not answer.
    pub failed: u64,
    /// The memory of the process, at up to 2,000 moments in order.
    pub samples: Vec<Sample>,
    /// The size classes with blocks.
    pub classes: Vec<SizeClass>,
}

/// The memory of the process at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The number of calls that the program had made, to 1,024.
    pub calls: u64,
    /// The requested bytes of live blocks.
    pub requested: u64,
    /// Their usable bytes.
    pub usable: u64,
    /// Resident anonymous memory.
    pub resident: u64,
    /// Mapped addresses.
    pub mapped: u64,
    /// True if the program asked for statistics here.
    pub is_statistics: bool,
}

/// All blocks whose requested size is in a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeClass {
    /// The smallest size of the class in bytes; it ends before the next one.
    pub size_min: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The sum of their requested sizes.
    pub requested: u64,
    /// The sum of their usable sizes.
    pub usable: u64,
}

impl Run {
    /// The system calls that are counted.
    pub const SYSTEM_CALLS: [&'static str; SYSTEM_CALLS] = ["mmap", "munmap", "mremap", "madvise", "mprotect", "brk"];

    /// Returns the processor time of the allocator in nanoseconds.
    pub fn cpu_allocator_ns(&self) -> u64 {
        self.cpu_ns.saturating_sub(self.cpu_player_ns)
    }

    /// Returns the sample with the most resident memory.
    pub fn peak(&self) -> Sample {
        self.samples.iter().copied().max_by_key(|sample| sample.resident).unwrap_or_default()
    }

    /// Returns the last sample.
    pub fn end(&self) -> Sample {
        self.samples.last().copied().unwrap_or_default()
    }
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

/// The player, where the loader finds it, and the work of a replay.
#[derive(Debug)]
pub struct Player {
    library: Library,
    host: PathBuf,
}

impl Player {
    /// Puts the player, given by its bytes, into a private directory, with an empty file for the
    /// work. `host` is the program that is started for each run: any with the C library.
    ///
    /// # Errors
    ///
    /// Fails if there is no place for it.
    pub fn install(player: &[u8], host: PathBuf) -> Result<Player, RunError> {
        Ok(Player { library: Library::install(player, &[])?, host })
    }

    /// Puts an allocator where the loader finds it.
    ///
    /// # Errors
    ///
    /// Fails if its file cannot be made.
    pub fn allocator(&self, name: String, allocator: &CommandAllocator) -> io::Result<Allocator> {
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
        Ok(Allocator { name, library })
    }

    /// Returns the empty file for the work.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be made.
    pub fn work_file(&self) -> io::Result<fs::File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600).open(self.directory().join(WORK))
    }

    fn directory(&self) -> &Path {
        self.library.directory()
    }

    /// Runs the work with each allocator, and returns their figures in the same order. The time is
    /// the least of the rounds, in which allocators take turns, and so is that of the player alone.
    /// Memory and system calls are found in runs of their own, since asking costs time. `progress`
    /// gets the number of runs done, and that of all.
    ///
    /// # Errors
    ///
    /// Fails if a process cannot be run to its end. The name is that of its allocator.
    pub fn run(
        &self,
        work: &Work,
        allocators: &[Allocator],
        options: &Options,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Vec<Run>, (String, RunError)> {
        let wishes = if options.touches { flag::TOUCH } else { 0 };
        let pace = if options.pace.is_some() { flag::TIME } else { 0 };
        let rounds = u64::from(options.rounds.max(1));
        let all = (rounds + 2) * allocators.len() as u64 + rounds;
        let mut done = 0;
        let mut play = |allocator: &Allocator, flags: u64| {
            let played = self.play(work, allocator, wishes | flags, options);
            done += 1;
            progress(done, all);
            played.map_err(|error| (allocator.name.clone(), error))
        };
        let nobody = Allocator { name: "the player alone".to_owned(), library: None };
        let mut alone = Played { cpu: u64::MAX, ..Played::default() };
        let mut runs = vec![Run { cpu_ns: u64::MAX, ..Run::default() }; allocators.len()];
        for _ in 0..rounds {
            let played = play(&nobody, flag::NULL)?;
            if played.cpu < alone.cpu {
                alone = played;
            }
            for (run, allocator) in runs.iter_mut().zip(allocators) {
                let played = play(allocator, pace)?;
                if played.cpu < run.cpu_ns {
                    (run.cpu_ns, run.wall_ns, run.failed) = (played.cpu, played.wall, played.failed);
                    (run.faults_minor, run.faults_major) = (played.faults_minor, played.faults_major);
                }
            }
        }
        for (run, allocator) in runs.iter_mut().zip(allocators) {
            let sized = play(allocator, pace | flag::SIZES)?;
            let counted = play(allocator, pace | flag::CALLS)?;
            run.cpu_player_ns = alone.cpu;
            run.faults_minor = run.faults_minor.saturating_sub(alone.faults_minor);
            (run.samples, run.classes) = (sized.samples, sized.classes);
            let is_counted = !counted.system_calls.contains(&UNKNOWN);
            run.system_calls = is_counted.then_some(counted.system_calls);
        }
        Ok(runs)
    }

    /// Runs the work once.
    fn play(&self, work: &Work, allocator: &Allocator, flags: u64, options: &Options) -> Result<Played, RunError> {
        let takes_samples = flags & flag::SIZES != 0;
        let stride = if takes_samples { work.samples.div_ceil(SAMPLES_MAX).max(1) } else { u64::MAX };
        let room = if takes_samples { work.samples.div_ceil(stride) + work.points.len() as u64 + 1 } else { 0 };
        // The parts in 1,024; more than a million times as slow is not meant.
        let scale = options.pace.map_or(1024.0, |pace| (pace * 1024.0).clamp(0.0, 1e9)) as u64;
        let path = self.directory().join(RESULT);
        let mut result = Vec::new();
        for word in [flags, stride, room, scale] {
            result.extend_from_slice(&word.to_le_bytes());
        }
        result.resize((HEAD + 3 * CLASSES + SAMPLE * room as usize) * 8, 0);
        fs::write(&path, &result)?;

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
        command.env("LD_PRELOAD", preloaded).env(VARIABLE, self.directory());
        let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
        let played = Played::read(&fs::read(&path)?, work);
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

/// Returns the first line of what a process has said.
fn first_line(said: &[u8]) -> String {
    String::from_utf8_lossy(said).lines().next().unwrap_or("it said nothing").to_owned()
}

/// The words in front of the size classes in a result, and those of a sample.
const HEAD: usize = 9 + SYSTEM_CALLS + 2;
const SAMPLE: usize = 6;

/// The result of one run.
#[derive(Default)]
struct Played {
    state: u64,
    cpu: u64,
    wall: u64,
    faults_minor: u64,
    faults_major: u64,
    system_calls: [u64; SYSTEM_CALLS],
    failed: u64,
    samples: Vec<Sample>,
    classes: Vec<SizeClass>,
}

impl Played {
    /// Reads the words of an `Outcome`.
    fn read(bytes: &[u8], work: &Work) -> Played {
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
        let [_, _, _, _, state, cpu, wall, faults_minor, faults_major, rest @ ..] = &words[..] else {
            return Played::default();
        };
        let Some((system_calls, rest)) = rest.split_first_chunk::<SYSTEM_CALLS>() else { return Played::default() };
        let [failed, taken, rest @ ..] = rest else { return Played::default() };
        let Some((classes, rest)) = rest.split_at_checked(3 * CLASSES) else { return Played::default() };
        let class = |(number, class): (usize, &[u64])| match *class {
            [blocks, requested, usable] if blocks > 0 => {
                Some(SizeClass { size_min: class_start(number) as u64, blocks, requested, usable })
            }
            _ => None,
        };
        let mut points = work.points.iter();
        let sample = |words: &[u64]| match *words {
            [number, requested, usable, resident, mapped, is_statistics] => {
                let is_statistics = is_statistics != 0;
                let (calls, requested) = match number {
                    LAST_SAMPLE => (work.calls, work.bytes_live_end),
                    _ if is_statistics => (points.next().map_or(0, |point| point.calls), requested),
                    _ => ((number + 1) * work.calls_per_sample(), requested),
                };
                Some(Sample { calls, requested, usable, resident, mapped, is_statistics })
            }
            _ => None,
        };
        let samples = rest.chunks_exact(SAMPLE).take(usize::try_from(*taken).unwrap_or(usize::MAX));
        Played {
            state: *state,
            cpu: *cpu,
            wall: *wall,
            faults_minor: *faults_minor,
            faults_major: *faults_major,
            system_calls: *system_calls,
            failed: *failed,
            samples: samples.filter_map(sample).collect(),
            classes: classes.chunks_exact(3).enumerate().filter_map(class).collect(),
        }
    }
}
