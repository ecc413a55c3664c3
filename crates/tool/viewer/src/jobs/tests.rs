use std::sync::Arc;

use super::*;
use crate::testing::TestAnswer;

fn jobs(threads_max: usize) -> (Arc<TestAnswer>, Arc<Jobs>) {
    let answer = Arc::new(TestAnswer::default());
    answer.change_file(Some("1"));
    (Arc::clone(&answer), Arc::new(Jobs::new(answer, threads_max, 1 << 20)))
}

fn question(verb: &str, gate: &str) -> Question {
    Question::parse(verb, &format!("gate={gate}")).unwrap()
}

fn ask(jobs: &Arc<Jobs>, verb: &str, gate: &str) -> Asked {
    jobs.ask(question(verb, gate), Form::Json).unwrap().unwrap()
}

fn at_work(asked: Asked) -> Pending {
    match asked {
        Asked::AtWork(pending) => pending,
        Asked::Finished(outcome) => panic!("it is finished: {outcome:?}"),
    }
}

/// Waits for the end of a job, and returns its result.
fn end_of(jobs: &Jobs, mut pending: Pending) -> Option<Arc<Outcome>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { pending.finished.changed().await.unwrap_err() });
    match jobs.state_of(pending.job) {
        Some(Asked::Finished(outcome)) => Some(outcome),
        Some(Asked::AtWork(_)) => panic!("it is at work after its end"),
        None => None,
    }
}

#[test]
fn equal_questions_are_answered_once() {
    let (answer, jobs) = jobs(2);
    let first = at_work(ask(&jobs, "wait", "a"));
    let second = at_work(ask(&jobs, "wait", "a"));
    assert_eq!(first.job, second.job);
    answer.wait_for_begun(1);
    answer.open("a");
    assert!(end_of(&jobs, first).unwrap().is_ok());
    assert!(matches!(ask(&jobs, "wait", "a"), Asked::Finished(_)));
    assert_eq!(answer.begun(), ["a"]);
    // As columns it is another question; and so it is about a file that has changed.
    assert!(end_of(&jobs, at_work(jobs.ask(question("wait", "a"), Form::Columns).unwrap().unwrap())).unwrap().is_ok());
    answer.change_file(Some("2"));
    assert!(end_of(&jobs, at_work(ask(&jobs, "wait", "a"))).unwrap().is_ok());
    assert_eq!(answer.begun(), ["a", "a"]);
    assert!(jobs.memory().bytes > 0 && jobs.memory().resident > 0);
}

#[test]
fn only_so_many_are_at_work_and_only_so_many_wait() {
    let (answer, jobs) = jobs(2);
    let mut pending = Vec::new();
    for gate in 0..2 {
        pending.push(at_work(ask(&jobs, "wait", &gate.to_string())));
        answer.wait_for_begun(gate + 1);
    }
    for gate in 2..2 + WAITING_MAX {
        pending.push(at_work(ask(&jobs, "wait", &gate.to_string())));
    }
    assert!(jobs.ask(question("wait", "more"), Form::Json).unwrap().is_none());
    assert_eq!(answer.begun().len(), 2);
    assert_eq!(pending[0].work.progress(), Some(0.25));
    (0..2 + WAITING_MAX).for_each(|gate| answer.open(&gate.to_string()));
    for pending in pending {
        assert!(end_of(&jobs, pending).unwrap().is_ok());
    }
    assert_eq!(answer.begun().len(), 2 + WAITING_MAX);
    assert!(jobs.state().jobs.is_empty());
}

#[test]
fn a_job_ends_when_all_clients_have_cancelled() {
    let (answer, jobs) = jobs(1);
    let first = at_work(ask(&jobs, "wait", "a"));
    let number = first.job;
    at_work(ask(&jobs, "wait", "a"));
    answer.wait_for_begun(1);
    assert!(jobs.cancel(number));
    assert!(!first.work.is_cancelled());
    assert!(jobs.cancel(number));
    assert!(first.work.is_cancelled() && jobs.state_of(number).is_none());
    // The question can be asked anew meanwhile, and one that waits is cancelled at once.
    let again = at_work(ask(&jobs, "wait", "a"));
    let waiting = at_work(ask(&jobs, "wait", "b"));
    assert!(again.job != number && jobs.cancel(waiting.job));
    answer.wait_for_cancelled(1);
    answer.open("a");
    assert!(end_of(&jobs, first).is_none());
    assert!(end_of(&jobs, again).unwrap().is_ok());
    assert!(end_of(&jobs, waiting).is_none());
    assert_eq!(answer.begun(), ["a", "a"]);
    assert!(!jobs.cancel(99) && jobs.state_of(99).is_none());
}

#[test]
fn a_defect_fails_one_question() {
    let (_, jobs) = jobs(1);
    let outcome = end_of(&jobs, at_work(ask(&jobs, "panic", "a"))).unwrap();
    let Err(error) = &*outcome else { panic!("a panic is an answer") };
    assert_eq!((error.status, &*error.code), (500, UNEXPECTED));
    assert!(end_of(&jobs, at_work(ask(&jobs, "other", "a"))).unwrap().is_ok());
}
