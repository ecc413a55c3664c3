//! An answer for tests, which ends when the test says so.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex};

use crate::answer::{Answer, AnswerError, FileState, Memory};
use crate::columns::{ColumnFrame, ColumnTree, MetricColumn};
use crate::question::Question;
use crate::work::Work;

/// An answer whose verb `wait` waits for `open`, and `panic` panics. Other verbs answer their
/// question.
#[derive(Debug, Default)]
pub(crate) struct TestAnswer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The values of the option `gate` whose questions may end.
    open: HashSet<String>,
    /// The questions that were begun, and the number of them that were cancelled.
    begun: Vec<String>,
    cancelled: usize,
    file: Option<String>,
}

impl TestAnswer {
    /// Lets the questions with this `gate` end.
    pub(crate) fn open(&self, gate: &str) {
        self.state.lock().unwrap().open.insert(gate.into());
        self.changed.notify_all();
    }

    /// Waits until so many questions have begun.
    pub(crate) fn wait_for_begun(&self, count: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.begun.len() < count).unwrap());
    }

    /// Waits until so many questions have noticed that they are cancelled.
    pub(crate) fn wait_for_cancelled(&self, count: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.cancelled < count).unwrap());
    }

    /// Returns the gates of the questions that were begun.
    pub(crate) fn begun(&self) -> Vec<String> {
        self.state.lock().unwrap().begun.clone()
    }

    /// Changes the file of the session.
    pub(crate) fn change_file(&self, state: Option<&str>) {
        self.state.lock().unwrap().file = state.map(str::to_owned);
    }
}

impl Answer for TestAnswer {
    fn session(&self, memory: &Memory) -> Vec<u8> {
        format!("{{\"bound\":{}}}", memory.bound).into_bytes()
    }

    fn files(&self) -> Vec<FileState> {
        vec![FileState(self.state.lock().unwrap().file.clone())]
    }

    fn ask(&self, question: &Question, work: &Work) -> Result<Vec<u8>, AnswerError> {
        let gate = question.values("gate").next().unwrap_or_default();
        let mut state = self.state.lock().unwrap();
        state.begun.push(gate.into());
        self.changed.notify_all();
        match &*question.verb {
            "wait" => {
                work.report(1, 4);
                while !state.open.contains(gate) && !work.is_cancelled() {
                    // Nobody notifies of a cancellation.
                    let period = std::time::Duration::from_millis(1);
                    state = self.changed.wait_timeout(state, period).unwrap().0;
                }
                if work.is_cancelled() {
                    state.cancelled += 1;
                    self.changed.notify_all();
                }
            }
            "panic" => {
                drop(state);
                panic!("a defect")
            }
            "fail" => {
                let mut error = AnswerError::new(400, "HL0090", "it makes no sense").hint("another one");
                error.causes.push("because".into());
                return Err(error);
            }
            "large" => return Ok(vec![b'a'; 100_000]),
            _ => {}
        }
        work.note("é\"\u{7f}😀".into());
        Ok(format!("{question:?}").into_bytes())
    }

    fn columns(&self, _: &Question, _: &Work) -> Result<ColumnTree, AnswerError> {
        let metric = MetricColumn { name: "bytes", total: 7, own: vec![7] };
        let (depth, name, names) = (vec![0], vec![0], vec![ColumnFrame::default()]);
        Ok(ColumnTree { unit: "bytes", depth, name, names, metrics: vec![metric], cut: (0, 0) })
    }
}
