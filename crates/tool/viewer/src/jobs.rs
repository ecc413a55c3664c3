//! Questions at work: threads, progress, cancellation.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::watch;

use crate::answer::{Answer, AnswerError, Memory};
use crate::question::Question;
use crate::reply::{COLUMNS, JSON, Outcome, Reply};
use crate::results::Results;
use crate::work::Work;

/// The maximum number of questions that wait for a thread.
const WAITING_MAX: usize = 64;
/// The stack of a thread, in bytes: as large as the main thread's usually is.
const STACK_BYTES: usize = 8 << 20;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// JSON, as the verb prints it.
    Json,
    /// A call tree as columns.
    Columns,
}

/// The jobs of a server: at most so many run at once, each on a thread of its own.
#[derive(Debug)]
pub(crate) struct Jobs {
    answer: Arc<dyn Answer>,
    threads_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The number of the next job.
    next: u64,
    jobs: BTreeMap<u64, Job>,
    /// The jobs that wait for a thread.
    waiting: VecDeque<u64>,
    threads: usize,
    results: Results,
}

/// A job that is not finished.
#[derive(Debug)]
struct Job {
    key: String,
    question: Question,
    form: Form,
    work: Work,
    /// The number of clients that asked and did not cancel.
    clients: usize,
    /// Dropped when the job is finished.
    finished: watch::Sender<()>,
}

/// The state of a question.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It was answered.
    Finished(Arc<Outcome>),
    /// It is at work, or waits for a thread.
    AtWork(Pending),
}

/// A job to wait for.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The number of the job.
    pub(crate) job: u64,
    /// Its progress.
    pub(crate) work: Work,
    /// Closed when the job is finished.
    pub(crate) finished: watch::Receiver<()>,
}

impl Jobs {
    /// Creates jobs without any at work. `bytes_max` bounds the answers that are kept.
    pub(crate) fn new(answer: Arc<dyn Answer>, threads_max: usize, bytes_max: usize) -> Jobs {
        let (jobs, waiting) = Default::default();
        let state = State { next: 1, jobs, waiting, threads: 0, results: Results::new(bytes_max) };
        Jobs { answer, threads_max: threads_max.max(1), bytes_max, state: Mutex::new(state) }
    }

    /// Returns the source of the answers.
    pub(crate) fn answer(&self) -> &dyn Answer {
        &*self.answer
    }

    /// Returns the memory that the answers take.
    pub(crate) fn memory(&self) -> Memory {
        let bytes = self.state().results.bytes() as u64;
        Memory { bytes, bound: self.bytes_max as u64, resident: resident_bytes() }
    }

    /// Asks a question, or joins those who have asked it. `None` if too many questions wait.
    ///
    /// # Errors
    ///
    /// An error if no thread can be started.
    pub(crate) fn ask(self: &Arc<Jobs>, question: Question, form: Form) -> io::Result<Option<Asked>> {
        let key = format!("{form:?} {question:?} {:?}", self.answer.files());
        let mut state = self.state();
        if let Some(outcome) = state.results.of_key(&key) {
            return Ok(Some(Asked::Finished(outcome)));
        }
        let same = state.jobs.iter_mut().find(|(_, job)| job.key == key && !job.work.is_cancelled());
        if let Some((&number, job)) = same {
            job.clients += 1;
            return Ok(Some(Asked::AtWork(job.pending(number))));
        }
        if state.waiting.len() >= WAITING_MAX {
            return Ok(None);
        }
        let number = state.next;
        state.next += 1;
        let work = Work::default();
        let job = Job { key, question, form, work, clients: 1, finished: watch::Sender::new(()) };
        let pending = job.pending(number);
        state.jobs.insert(number, job);
        state.waiting.push_back(number);
        if state.threads < self.threads_max {
            let jobs = Arc::clone(self);
            let thread = thread::Builder::new().name("question".into()).stack_size(STACK_BYTES);
            match thread.spawn(move || jobs.work()) {
                Ok(_) => state.threads += 1,
                // The threads that there are answer it later.
                Err(_) if state.threads > 0 => {}
                Err(error) => {
                    state.waiting.pop_back();
                    state.jobs.remove(&number);
                    return Err(error);
                }
            }
        }
        Ok(Some(Asked::AtWork(pending)))
    }

    /// Returns the state of a job; `None` if there is none of this number, or if its answer was
    /// dropped to make room for others.
    pub(crate) fn state_of(&self, number: u64) -> Option<Asked> {
        let mut state = self.state();
        if let Some(job) = state.jobs.get(&number).filter(|job| !job.work.is_cancelled()) {
            return Some(Asked::AtWork(job.pending(number)));
        }
        state.results.of_job(number).map(Asked::Finished)
    }

    /// Cancels a job for one client. The work ends when the last one has cancelled. False if there
    /// is no such job.
    pub(crate) fn cancel(&self, number: u64) -> bool {
        let mut state = self.state();
        let Some(job) = state.jobs.get_mut(&number) else { return state.results.of_job(number).is_some() };
        job.clients = job.clients.saturating_sub(1);
        if job.clients == 0 {
            job.work.cancel();
            if let Some(at) = state.waiting.iter().position(|&waiting| waiting == number) {
                state.waiting.remove(at);
                state.jobs.remove(&number);
            }
        }
        true
    }

    /// Answers questions until none waits.
    fn work(&self) {
        loop {
            let mut state = self.state();
            let Some(number) = state.waiting.pop_front() else {
                state.threads -= 1;
                return;
            };
            let Some(job) = state.jobs.get(&number) else { continue };
            let (question, form, work) = (job.question.clone(), job.form, job.work.clone());
            drop(state);
            let outcome = self.outcome(&question, form, &work);
            let mut state = self.state();
            if let Some(job) = state.jobs.remove(&number)
                && !work.is_cancelled()
            {
                state.results.insert(number, job.key, outcome);
            }
        }
    }

    /// Answers a question. A panic is a defect of the verb; the other questions go on.
    fn outcome(&self, question: &Question, form: Form, work: &Work) -> Outcome {
        let answer = || {
            let (body, media_type) = match form {
                Form::Json => (self.answer.ask(question, work)?, JSON),
                Form::Columns => {
                    let tree = self.answer.columns(question, work)?;
                    let bytes = tree.to_bytes().map_err(|why| {
                        AnswerError::new(500, UNEXPECTED, format!("the call tree cannot be sent: {why}"))
                    })?;
                    (bytes, COLUMNS)
                }
            };
            Ok(Reply::new(body, media_type, work.take_notes()))
        };
        catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| {
            let what = format!("`{}` failed unexpectedly", question.verb);
            Err(AnswerError::new(500, UNEXPECTED, what).hint("the terminal in which heapledger runs says where"))
        })
    }

    /// A thread that panics while it holds the lock has changed nothing halfway.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn pending(&self, number: u64) -> Pending {
        Pending { job: number, work: self.work.clone(), finished: self.finished.subscribe() }
    }
}

/// The code of failures that the command does not foresee.
pub(crate) const UNEXPECTED: &str = "HL0091";

/// Returns the resident memory of this process that is not of a file, in bytes; 0 if the system
/// does not tell.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.map_or(0, |kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests;
