use std::path::PathBuf;

use heapledger_recording::Footer;

use super::*;
use crate::live_figures::{AnsweredFigures, FiguresCopy};

fn status() -> Status {
    Status {
        recorder: std::process::id(),
        command: 7,
        processes: vec![7, 9],
        is_attached: true,
        is_on: true,
        has_begun: true,
        sampling: Some(Rate::from_logarithm(19)),
        elapsed_ns: 5,
        allocations: 4,
        bytes_live: 3,
        bytes_written: 2,
        output: PathBuf::from("/a b/c\nd.hl"),
    }
}

#[test]
fn an_answer_says_it_all() {
    assert_eq!(Status::from_text(&status().to_text()), Some(status()));
    let newer = [b"colour 3\n", &status().to_text()[..]].concat();
    assert_eq!(Status::from_text(&newer), Some(status()));
    for damaged in [&b""[..], b"recorder 7", b"recorder x\noutput y", b"recorder 99999999999\noutput y", b"on 1\n"] {
        assert_eq!(Status::from_text(damaged), None, "{damaged:?}");
    }
    let many = Status { processes: (0..1_000_000).collect(), ..status() };
    assert!(many.to_text().len() < ANSWER_MAX);
}

#[test]
fn requests_are_parsed_as_written() {
    let rate = ControlRequest::Sample(Rate::from_logarithm(19));
    for request in [ControlRequest::Start, ControlRequest::Stop, rate, ControlRequest::Status, ControlRequest::Save] {
        assert_eq!(ControlRequest::parse(request.to_line().as_bytes()), Some(request));
    }
    for line in ["start", "\n", "heapledger-control\n", "heapledger-control rate=x\n", "heapledger-ledger stop\n"] {
        assert_eq!(ControlRequest::parse(line.as_bytes()), None, "{line}");
    }
}

#[test]
fn a_recording_is_found_stopped_and_started() {
    let page = Arc::new(crate::session::page(0, Rate::from_logarithm(19), None).unwrap());
    let inbox = Arc::new(Inbox::default());
    let switch = Arc::new(Switch::new(Arc::clone(&page), Arc::clone(&inbox), true));
    let control = Control::start(Arc::clone(&switch), status()).unwrap();
    let is_ours = |running: &RunningSession| running.status.recorder == std::process::id();
    let running = RunningSession::all().unwrap().into_iter().find(is_ours).unwrap();
    assert_eq!(running.status, status());
    assert!(!running.ask(ControlRequest::Stop).unwrap().is_on && !switch.is_on());
    assert!(!running.ask(ControlRequest::Stop).unwrap().is_on);
    assert!(running.ask(ControlRequest::Start).unwrap().is_on && switch.is_on());
    let rate = Rate::from_logarithm(20);
    assert_eq!(running.ask(ControlRequest::Sample(rate)).unwrap().sampling, Some(rate));
    assert_eq!(running.ask(ControlRequest::Sample(rate)).unwrap().sampling, Some(rate));
    assert_eq!(page.rate(), 20);
    let mut messages = Vec::new();
    inbox.take(&mut messages);
    let Some(Message::Rated { rate: posted, .. }) = messages.pop() else { panic!("{messages:?}") };
    assert_eq!(posted, rate);
    assert!(matches!(messages[..], [Message::Paused { .. }, Message::Resumed { .. }]), "{messages:?}");
    // A request to save is answered when it is done.
    let collector = std::thread::spawn(move || {
        loop {
            let mut messages = Vec::new();
            inbox.take(&mut messages);
            match messages.pop() {
                Some(Message::Save { stamp, done }) => break done.send(()).map(|()| stamp),
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    assert_eq!(running.ask(ControlRequest::Save).unwrap().output, status().output);
    assert!(collector.join().unwrap().unwrap() > 0);
    drop(control);
    assert!(running.ask(ControlRequest::Status).is_err());
    assert!(!RunningSession::all().unwrap().iter().any(is_ours));
}

/// After a rotation, the status has the path of another file.
#[test]
fn figures_name_the_file_that_has_their_stacks() {
    let page = Arc::new(crate::session::page(0, Rate::EXACT, None).unwrap());
    let inbox = Arc::new(Inbox::default());
    let switch = Switch::new(page, Arc::clone(&inbox), false);
    let file = PathBuf::from("/a.0001.hl");
    let copy = FiguresCopy {
        images: Vec::new(),
        open: Vec::new(),
        processes: Vec::new(),
        timeline: Vec::new(),
        footer: Footer::default(),
        is_sample: false,
        copy_time: Duration::ZERO,
        file: file.clone(),
    };
    let collector = thread::spawn(move || {
        loop {
            let mut messages = Vec::new();
            inbox.take(&mut messages);
            if let Some(Message::Figures { done, .. }) = messages.pop() {
                let (is_written, written) = sync_channel(1);
                is_written.send(()).unwrap();
                let next_copy = Duration::from_millis(250);
                return done.send(AnsweredFigures { copy: Arc::new(copy), is_new: false, next_copy, written }).is_ok();
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    let figures = live_figures::read(&switch.figures(status).unwrap()).unwrap();
    assert!(collector.join().unwrap());
    assert_eq!(figures.status, Status { output: file, ..status() });
    assert_eq!((figures.is_new, figures.next_copy), (false, Duration::from_millis(250)));
}
