//! The answers that are kept.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::reply::Outcome;

/// The maximum number of results, whatever their size.
const RESULTS_MAX: usize = 1024;

/// The results of finished jobs, the one that was used the longest ago first. Bounded by bytes and
/// by number.
///
/// A look-up is a search through all of them: a thousand comparisons take a few microseconds.
#[derive(Debug)]
pub(crate) struct Results {
    entries: VecDeque<Entry>,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entry {
    job: u64,
    /// The question, and the state of its files; `None` if nobody else gets this answer.
    key: Option<String>,
    outcome: Arc<Outcome>,
    bytes: usize,
}

impl Results {
    pub(crate) fn new(bytes_max: usize) -> Results {
        Results { entries: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Returns the size of all results, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a result, and drops others until all fit. The new one stays, even if it alone is too
    /// large. Errors are not given to others: the next attempt may succeed.
    pub(crate) fn insert(&mut self, job: u64, key: String, outcome: Outcome) {
        let size = outcome.as_ref().map_or(0, |reply| reply.kept_bytes()) + key.len();
        let key = outcome.is_ok().then_some(key);
        self.entries.push_back(Entry { job, key, outcome: Arc::new(outcome), bytes: size });
        self.bytes += size;
        while self.entries.len() > 1 && (self.bytes > self.bytes_max || self.entries.len() > RESULTS_MAX) {
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry.bytes);
        }
    }

    /// Returns the result of a question.
    pub(crate) fn of_key(&mut self, key: &str) -> Option<Arc<Outcome>> {
        self.used(|entry| entry.key.as_deref() == Some(key))
    }

    /// Returns the result of a job.
    pub(crate) fn of_job(&mut self, job: u64) -> Option<Arc<Outcome>> {
        self.used(|entry| entry.job == job)
    }

    fn used(&mut self, is_asked: impl Fn(&Entry) -> bool) -> Option<Arc<Outcome>> {
        let at = self.entries.iter().position(is_asked)?;
        let entry = self.entries.remove(at)?;
        let outcome = Arc::clone(&entry.outcome);
        self.entries.push_back(entry);
        Some(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::AnswerError;
    use crate::reply::{JSON, Reply};

    fn reply(bytes: usize) -> Outcome {
        Ok(Reply::new(vec![b'a'; bytes], JSON, Vec::new()))
    }

    #[test]
    fn results_stay_below_their_bound() {
        let mut results = Results::new(100);
        (0..3).for_each(|job| results.insert(job, format!("{job}"), reply(30)));
        // The first one was used since, so the second one goes.
        assert!(results.of_key("0").is_some());
        results.insert(3, "3".into(), reply(30));
        assert!(results.of_key("1").is_none() && results.of_job(1).is_none());
        assert!(["0", "2", "3"].iter().all(|key| results.of_key(key).is_some()));
        assert_eq!(results.bytes(), 93);
        // One that is too large is there for its client.
        results.insert(4, "4".into(), reply(200));
        assert!(results.of_job(4).is_some());
        assert_eq!(results.bytes(), 201);
        results.insert(5, "5".into(), reply(1));
        assert_eq!((results.bytes(), results.of_job(4).is_none()), (2, true));
        (6..2000).for_each(|job| results.insert(job, String::new(), reply(0)));
        assert_eq!(results.entries.len(), RESULTS_MAX);
    }

    #[test]
    fn an_error_is_for_its_job_alone() {
        let mut results = Results::new(100);
        results.insert(1, "a".into(), Err(AnswerError::new(400, "HL", "no")));
        assert!(results.of_key("a").is_none());
        assert!(results.of_job(1).is_some_and(|outcome| outcome.is_err()));
    }
}
