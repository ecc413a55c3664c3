use heapledger_recording::Time;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::state::LiveKey;
use super::*;
use crate::args::By;

fn picture(state: &LiveState) -> Picture {
    let row = |name: &str, place: &str, bytes| LiveRow {
        name: RowName { name: name.to_owned(), place: place.to_owned() },
        bytes,
        blocks: bytes / 16,
        bytes_through: Some(bytes * 2),
        allocations: 200,
        temporary: 50,
        allocations_per_second: Some(1234.5),
    };
    Picture {
        program: "server".to_owned(),
        pid: 4711,
        processes: vec![4711, 4712],
        time: Time(12_300_000_000),
        is_on: true,
        bytes: 3 << 20,
        blocks: 1000,
        bytes_max: 5 << 20,
        allocations: 1_204_000,
        allocations_per_second: Some(800.0),
        bytes_resident: Some(7 << 20),
        timeline: vec![(Time(1), 100), (Time(6_000_000_000), 5 << 20)],
        by: Some(state.question.by),
        path: state.question.path.clone(),
        rows: vec![row("store::insert", "src/store.rs:17", 2 << 20), row("a\u{1b}[31mb\nc", "", 1 << 20)],
        ..Picture::default()
    }
}

fn state() -> LiveState {
    let mut state = LiveState::new(By::Function, true);
    let picture = picture(&state);
    state.take(picture);
    state
}

/// Returns the lines of the picture, and the number of cells with a colour.
fn drawn(state: &mut LiveState, width: u16, height: u16, colors: bool) -> (Vec<String>, usize) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, colors)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells = |line: u16| (0..width).map(move |column| &buffer[(column, line)]);
    let lines = (0..height).map(|line| cells(line).map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned());
    let colored = |cell: &&ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
    let lines: Vec<String> = lines.collect();
    (lines, (0..height).flat_map(cells).filter(colored).count())
}

#[test]
fn a_small_terminal_has_all_that_matters() {
    let (lines, _) = drawn(&mut state(), 80, 24, true);
    assert_eq!(lines[0], "server (4711)  12.3 s  3.0 MiB live in 1,000 blocks");
    assert_eq!(lines[1], "800 allocations/s, 1,204,000 in all, peak 5.0 MiB, 7.0 MiB resident, 2 processes");
    // The time is 80 columns wide; from its middle on, the most that was ever live.
    assert!(lines[4].starts_with(' ') && lines[4].ends_with('█'), "{lines:#?}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words(&lines[5]), "live through blocks allocs/s temporary function");
    assert_eq!(words(&lines[6]), "2.0 MiB 4.0 MiB 131,072 1,234 25 % store::insert");
    assert!(lines[23].starts_with("Enter callers") && lines[23].contains("q leave"), "{lines:#?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
}

#[test]
fn a_wide_terminal_shows_places_and_growth() {
    let mut state = state();
    state.key(LiveKey::Char('m'));
    let mut grown = picture(&state);
    grown.rows[0].bytes += 1024;
    grown.bytes += 1024;
    state.take(grown);
    let (lines, colored) = drawn(&mut state, 120, 30, true);
    assert!(
        lines[0].contains("3.0 MiB live, +1.0 KiB since mark, in 1,000 blocks") && lines[6].contains("+1.0 KiB"),
        "{lines:#?}"
    );
    assert!(lines[6].ends_with("store::insert  src/store.rs:17"), "{lines:#?}");
    assert!(colored > 0);
    // Without colours, everything is told by words and signs.
    assert_eq!(drawn(&mut state, 120, 30, false), (lines, 0));
}

#[test]
fn names_cannot_write_to_the_terminal() {
    let (lines, _) = drawn(&mut state(), 120, 24, true);
    assert!(!lines.iter().any(|line| line.contains('\u{1b}')), "{lines:#?}");
    assert!(lines[7].contains("[31mb"), "{lines:#?}");
}

#[test]
fn every_state_says_what_it_is() {
    let mut empty = LiveState::new(By::Function, true);
    assert_eq!(drawn(&mut empty, 80, 24, true).0[0], "waiting for the first figures …");
    let nothing = Picture { rows: Vec::new(), ..picture(&empty) };
    empty.take(nothing);
    assert_eq!(drawn(&mut empty, 80, 24, true).0[6], "nothing has been allocated yet");
    empty.key(LiveKey::Char('g'));
    assert_eq!(drawn(&mut empty, 80, 24, true).0[6], "…");
    let mut early = LiveState::new(By::Function, true);
    early.stall("cannot read `a.hl`".to_owned());
    assert_eq!(drawn(&mut early, 80, 24, true).0[0], "cannot read `a.hl`");
    let mut state = state();
    let last_line = |state: &mut LiveState| drawn(state, 80, 24, true).0[23].clone();
    state.key(LiveKey::Char('/'));
    state.key(LiveKey::Char('x'));
    assert!(last_line(&mut state).starts_with("filter: x▏"));
    state.key(LiveKey::Enter);
    assert!(last_line(&mut state).starts_with("only `x`"));
    state.key(LiveKey::Escape);
    state.key(LiveKey::Char('q'));
    assert_eq!(last_line(&mut state), "the program still runs: k ends it, l leaves it unrecorded, any other key stays");
    state.key(LiveKey::Escape);
    state.key(LiveKey::Char('p'));
    assert!(drawn(&mut state, 80, 24, true).0[1].starts_with("PAUSED"));
    state.key(LiveKey::Char('p'));
    state.stall("the recorder (process 7) does not answer".to_owned());
    let same = picture(&state);
    state.take(same);
    assert_eq!(last_line(&mut state), "the recorder (process 7) does not answer: these figures are old");
    let newer = Picture { time: Time(13_000_000_000), ..picture(&state) };
    state.take(newer);
    assert!(last_line(&mut state).starts_with("Enter callers"));
    state.end("process 4711 has ended".to_owned());
    assert_eq!(last_line(&mut state), "process 4711 has ended: these are its last figures. q leaves");
    state.key(LiveKey::Char('?'));
    let (lines, _) = drawn(&mut state, 80, 24, true);
    assert!(lines[0].contains("select a row") && lines[14].starts_with("temporary"), "{lines:#?}");
}

/// A function may have stacks of its own that are summed up with others, or none at all.
#[test]
fn callers_that_are_not_shown_are_explained() {
    let explained = |allocations, sites_left_out| {
        let mut state = LiveState::new(By::Function, true);
        let mut table = picture(&state);
        table.rows[0].allocations = allocations;
        state.take(table);
        state.key(LiveKey::Enter);
        let callers = Picture { rows: Vec::new(), sites_left_out, ..picture(&state) };
        state.take(callers);
        drawn(&mut state, 80, 24, true).0[6].clone()
    };
    assert_eq!(explained(200, 0), "it has no callers: Backspace goes back");
    assert_eq!(explained(200, 7), "its callers are not known: its stacks are among the small ones in one row");
    assert_eq!(explained(0, 7), "it allocates nothing itself: Backspace goes back");
}

#[test]
fn a_tiny_terminal_is_no_reason_to_panic() {
    for (width, height) in [(1, 1), (10, 3), (20, 6), (40, 8), (300, 100)] {
        drawn(&mut state(), width, height, true);
        let mut help = state();
        help.key(LiveKey::Char('?'));
        drawn(&mut help, width, height, true);
    }
}

#[test]
fn the_timeline_has_the_most_of_each_part_of_the_time() {
    let sample = |time, bytes| (Time(time), bytes);
    let picture = Picture {
        time: Time(100),
        bytes: 4,
        timeline: vec![sample(0, 1), sample(5, 9), sample(6, 2), sample(55, 7)],
        ..Picture::default()
    };
    assert_eq!(heights(&picture, 4), [9, 9, 7, 4]);
    assert!(heights(&picture, 0).is_empty());
    assert_eq!(heights(&Picture::default(), 3), [0, 0, 0]);
}
