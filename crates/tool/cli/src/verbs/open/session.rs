//! The files of a session, and the verbs' answers about them.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use heapledger_recording::Recording;
use heapledger_viewer::{Answer, AnswerError, ColumnTree, FileState, Memory, Question, Work};
use serde::Serialize;

use super::call_tree;
use super::kind::{Contents, Kind};
use super::words::{Asked, FILE, file_number, refused, words};
use crate::args::{self, Refusal, Verb};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::json::document::{self, Document, Form};
use crate::kept::{Kept, keep};
use crate::listener::listen;
use crate::output::Output;
use crate::verbs;

/// The session as JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OpenJson {
    /// The version of this command.
    heapledger: &'static str,
    /// The address of the page. Absent in the page itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    files: Vec<FileJson>,
    memory: MemoryJson,
}

impl Document for OpenJson {
    const SCHEMA: &'static str = "open";
    const ROWS: Option<&'static str> = None;
}

/// A file of the session.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FileJson {
    /// Its number in questions.
    id: usize,
    name: String,
    path: String,
    kind: Kind,
    /// Its size; 0 if it is gone.
    bytes: u64,
    /// The verbs that can be asked about it; an action of a verb follows after a slash.
    verbs: Vec<&'static str>,
    /// The recorded processes; empty for files of other tools.
    processes: Vec<ProcessJson>,
}

/// A recorded process.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProcessJson {
    /// Its number in the order of the processes' beginnings, from 1.
    process: usize,
    /// The file name of its last program.
    name: String,
    pid: u32,
}

/// The memory that the server keeps.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MemoryJson {
    /// The size of the answers that are kept, and of the sites and names of recordings.
    bytes: u64,
    /// The maximum of `bytes`.
    bound: u64,
    /// The resident memory of the server that is not of a file.
    resident: u64,
}

/// The verbs for which the sites and the names of a recording are kept between questions.
const KEEPING_VERBS: [&str; 7] = ["top", "tree", "leaks", "temporary", "callers", "callees", "types"];
/// The maximum of the memory that they take, in bytes.
const KEPT_BYTES_MAX: u64 = 1 << 30;

/// The files of a session. They are found out about once, and mapped anew for each question.
#[derive(Debug)]
pub(crate) struct Session {
    /// The files as they were named, which is how answers name them.
    paths: Vec<PathBuf>,
    about: Vec<FileJson>,
    /// The data that are kept about each file.
    kept: Vec<Arc<Kept>>,
    /// The numbers of the files, the one that was asked about last at the end.
    latest: Mutex<Vec<usize>>,
    /// The options with files of symbols that the user gave.
    symbols: Vec<(&'static str, OsString)>,
}

impl Session {
    /// Finds out about files.
    pub(super) fn new(paths: Vec<PathBuf>, symbols: Vec<(&'static str, OsString)>) -> Result<Session> {
        let about = paths.iter().enumerate().map(|(id, path)| about(id, path)).collect::<Result<_>>()?;
        let kept = paths.iter().map(|path| Arc::new(Kept::new(path))).collect();
        let latest = Mutex::new((0..paths.len()).collect());
        Ok(Session { paths, about, kept, latest, symbols })
    }

    /// Returns the names of the files.
    pub(super) fn names(&self) -> Vec<&str> {
        self.about.iter().map(|file| &*file.name).collect()
    }

    /// Returns the paths of the files, as they were named.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Returns the verbs that can be asked about each file.
    pub(super) fn verbs(&self) -> impl ExactSizeIterator<Item = &[&'static str]> {
        self.about.iter().map(|file| &*file.verbs)
    }

    /// Returns the session as JSON.
    pub(super) fn to_json(&self, address: Option<String>, memory: &Memory) -> OpenJson {
        let mut files = self.about.clone();
        for (file, path) in files.iter_mut().zip(&self.paths) {
            file.bytes = path.metadata().map_or(0, |metadata| metadata.len());
        }
        let kept: u64 = self.kept.iter().map(|kept| kept.bytes()).sum();
        let (bytes, bound) = (memory.bytes + kept, memory.bound + KEPT_BYTES_MAX);
        let memory = MemoryJson { bytes, bound, resident: memory.resident };
        OpenJson { heapledger: env!("CARGO_PKG_VERSION"), address, files, memory }
    }

    /// Returns the command that answers a question.
    fn verb(&self, question: &Question) -> Result<Verb> {
        let mut files = Vec::new();
        for text in question.values(FILE) {
            let (number, when) = file_number(text)?;
            let (Some(path), Some(about)) = (self.paths.get(number), self.about.get(number)) else {
                return Err(refused(format_args!("there is no file {number}")));
            };
            if !about.verbs.contains(&&*question.verb) {
                let what = format_args!("`{}` cannot be asked about `{}`", question.verb, about.name);
                return Err(refused(what).hint(format_args!("its verbs: {}", about.verbs.join(", "))));
            }
            // A file that is gone is never looked for elsewhere.
            fs::metadata(path).map_err(|error| {
                Failure::caused(Exit::Unreadable, format_args!("cannot read `{}`", path.display()), error)
                    .code(Code::PageRequest)
                    .hint("the file was moved or removed: open it where it is now")
            })?;
            files.push(Asked { path, when });
        }
        if files.is_empty() {
            return Err(refused("the question is about no file").hint("file=0 is the first one"));
        }
        let words = words(question, &files, &self.symbols)?;
        args::parse(words).map(|arguments| arguments.verb).map_err(|refusal| match refusal {
            Refusal::Failure(failure) => failure,
            Refusal::Clap(error) => of_clap(&error, &question.verb),
        })
    }

    /// Runs a verb with what is kept of its file, and keeps what it reads.
    fn keeping<R>(&self, question: &Question, run: impl FnOnce() -> Result<R>) -> Result<R> {
        let mut files = question.values(FILE).filter_map(|text| Some(file_number(text).ok()?.0));
        let (Some(number), None) = (files.next(), files.next()) else { return run() };
        let Some(kept) = self.kept.get(number).filter(|_| KEEPING_VERBS.contains(&&*question.verb)) else {
            return run();
        };
        kept.expect(file_state(&self.paths[number]).as_deref());
        let answer = keep(kept, run);
        // The file that was read may already have been another one.
        kept.expect(file_state(&self.paths[number]).as_deref());
        self.bound_kept(number);
        answer
    }

    /// Drops what is kept of the files that were not asked about for the longest time, until the
    /// rest is within its bound.
    fn bound_kept(&self, latest: usize) {
        let mut order = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        order.retain(|&other| other != latest);
        order.push(latest);
        let mut bytes: u64 = self.kept.iter().map(|kept| kept.bytes()).sum();
        for &number in order.iter() {
            if bytes <= KEPT_BYTES_MAX {
                break;
            }
            bytes -= self.kept[number].bytes().min(bytes);
            self.kept[number].forget();
        }
    }

    fn ask(&self, question: &Question) -> Result<Vec<u8>> {
        let verb = self.verb(question)?;
        let answer = Buffer::default();
        let mut out = Output::into(answer.clone());
        // The status says what the answer says, too.
        self.keeping(question, || verbs::answer(&verb, &mut out))?;
        drop(out);
        Ok(answer.0.take())
    }

    fn columns(&self, question: &Question) -> Result<ColumnTree> {
        let mut question = question.clone();
        "tree".clone_into(&mut question.verb);
        if question.values("threshold").next().is_none() {
            question.options.push(("threshold".into(), "0".into()));
        }
        match self.verb(&question)? {
            Verb::Tree(arguments) => self.keeping(&question, || call_tree::columns(&arguments)),
            _ => Err(refused("only a tree has columns")),
        }
    }
}

impl Answer for Session {
    fn session(&self, memory: &Memory) -> Vec<u8> {
        let mut json = Vec::new();
        // Writing to memory cannot fail.
        let _ = document::write(&self.to_json(None, memory), Form::Json, &mut json);
        json
    }

    fn files(&self) -> Vec<FileState> {
        let state = |(path, kept): (&PathBuf, &Arc<Kept>)| {
            let state = file_state(path);
            kept.expect(state.as_deref());
            FileState(state)
        };
        self.paths.iter().zip(&self.kept).map(state).collect()
    }

    fn ask(&self, question: &Question, work: &Work) -> std::result::Result<Vec<u8>, AnswerError> {
        answered(work, || Session::ask(self, question))
    }

    fn columns(&self, question: &Question, work: &Work) -> std::result::Result<ColumnTree, AnswerError> {
        answered(work, || Session::columns(self, question))
    }
}

/// Returns the state of a file: equal as long as the file has not been changed or replaced.
fn file_state(path: &Path) -> Option<String> {
    let file = path.metadata().ok()?;
    let (seconds, nanoseconds) = (file.mtime(), file.mtime_nsec());
    Some(format!("{}:{} {} {seconds}.{nanoseconds}", file.dev(), file.ino(), file.len()))
}

/// Runs a verb, with its messages and its progress as those of the work.
fn answered<A>(work: &Work, run: impl FnOnce() -> Result<A>) -> std::result::Result<A, AnswerError> {
    match listen(work, run) {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(failure)) => Err(to_answer(&failure)),
        None => Err(AnswerError::new(409, Code::PageRequest.to_string(), "the question was cancelled")),
    }
}

/// Returns a failure as the page gets it.
fn to_answer(failure: &Failure) -> AnswerError {
    let (code, mut texts, hint) = failure.parts();
    let status = match failure.exit {
        Exit::Usage => 400,
        Exit::Unreadable if code == Code::PageRequest => 404,
        Exit::Unexpected => 500,
        _ => 422,
    };
    let causes = texts.split_off(1.min(texts.len()));
    AnswerError { status, code: code.to_string(), message: texts.concat(), causes, hint: hint.map(str::to_owned) }
}

/// Returns the failure of a command line that its verb does not take: the first sentence of what
/// the terminal would show.
fn of_clap(error: &clap::Error, verb: &str) -> Failure {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let what = first.strip_prefix("error: ").unwrap_or(first).split_whitespace().collect::<Vec<_>>().join(" ");
    let verb = verb.replace('/', " ");
    Failure::new(Exit::Usage, what).hint(format_args!("`heapledger help {verb}` says what its options take"))
}

/// Finds out about one file.
fn about(id: usize, path: &Path) -> Result<FileJson> {
    let contents = Contents::of(path)?;
    let is_recording = matches!(contents.kind, Kind::Recording | Kind::Sample | Kind::Aggregate);
    let input = Input::map_unconverted(path)?;
    let processes = if is_recording { processes(&input.recording()?) } else { Vec::new() };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok(FileJson {
        id,
        name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        path: absolute.to_string_lossy().into_owned(),
        kind: contents.kind,
        bytes: input.length().0,
        verbs: contents.verbs(),
        processes,
    })
}

fn processes(recording: &Recording<'_>) -> Vec<ProcessJson> {
    let name = |image| {
        let executable = recording.image(image).map(|start| start.executable.as_slice()).unwrap_or_default();
        let path = Path::new(std::ffi::OsStr::from_bytes(executable));
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let processes = recording.processes().iter().enumerate();
    let json = |(index, process): (usize, &heapledger_recording::Process)| ProcessJson {
        process: index + 1,
        name: process.images.last().map(|&image| name(image)).unwrap_or_default(),
        pid: process.pid,
    };
    processes.map(json).collect()
}

/// An answer in memory. Clones are the same answer.
#[derive(Clone, Default)]
struct Buffer(Rc<RefCell<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
