use heapledger_recording::Time;

use super::*;

fn row(name: &str, bytes: u64, allocations: u64) -> LiveRow {
    let name = RowName { name: name.to_owned(), place: format!("{name}.c:7") };
    LiveRow { name, bytes, blocks: 1, allocations, temporary: allocations / 2, ..LiveRow::default() }
}

fn picture(state: &LiveState, time: u64, rows: &[(&str, u64, u64)]) -> Picture {
    let mut rows: Vec<LiveRow> =
        rows.iter().map(|(name, bytes, allocations)| row(name, *bytes, *allocations)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    Picture {
        time: Time(time),
        bytes: rows.iter().map(|row| row.bytes).sum(),
        by: Some(state.question.by),
        path: state.question.path.clone(),
        rows,
        ..Picture::default()
    }
}

fn give(state: &mut LiveState, time: u64, rows: &[(&str, u64, u64)]) {
    let picture = picture(state, time, rows);
    state.take(picture);
}

fn names(state: &LiveState) -> Vec<&str> {
    state.rows().iter().map(|row| row.name.name.as_str()).collect()
}

fn press(state: &mut LiveState, keys: &str) {
    for character in keys.chars() {
        assert_eq!(state.key(LiveKey::Char(character)), Action::Nothing);
    }
}

fn table() -> LiveState {
    let mut state = LiveState::new(By::Function, false);
    give(&mut state, 1, &[("large", 300, 3), ("middle", 200, 40), ("small", 100, 20)]);
    state
}

#[test]
fn the_selection_stays_on_its_row() {
    let mut state = table();
    state.key(LiveKey::Down);
    assert_eq!(state.rows()[state.selected].name.name, "middle");
    give(&mut state, 2, &[("large", 300, 3), ("middle", 900, 40), ("new", 500, 1), ("small", 100, 20)]);
    assert_eq!((names(&state)[0], state.selected), ("middle", 0));
    // At the top, it stays there.
    give(&mut state, 2, &[("large", 1000, 3), ("middle", 900, 40), ("new", 500, 1), ("small", 100, 20)]);
    assert_eq!((names(&state)[0], state.selected), ("large", 0));
    for (key, at) in
        [(LiveKey::End, 3), (LiveKey::Down, 3), (LiveKey::PageUp, 0), (LiveKey::Up, 0), (LiveKey::PageDown, 3)]
    {
        state.key(key);
        assert_eq!(state.selected, at, "{key:?}");
    }
    give(&mut state, 3, &[("large", 1, 1)]);
    assert_eq!(state.selected, 0);
    give(&mut state, 4, &[]);
    state.key(LiveKey::Down);
    assert_eq!((state.selected, state.key(LiveKey::Enter)), (0, Action::Nothing));
}

#[test]
fn rows_are_sorted_by_each_figure_in_turn() {
    let mut state = table();
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push((state.sort.name(), names(&state)[0].to_owned()));
        press(&mut state, "s");
    }
    // Rows without inclusive figures, and without a mark: there is nothing to sort by.
    let expected = [("live", "large"), ("allocations/s", "large"), ("temporary", "middle"), ("name", "large")];
    assert_eq!(seen, expected.map(|(sort, name)| (sort, name.to_owned())));
    assert_eq!(state.sort, Sort::Live);
    press(&mut state, "ms");
    assert_eq!(state.sort, Sort::Growth);
    give(&mut state, 2, &[("large", 290, 3), ("middle", 210, 40), ("small", 150, 20)]);
    assert_eq!(names(&state), ["small", "middle", "large"]);
}

#[test]
fn growth_counts_from_the_mark() {
    let mut state = table();
    assert_eq!(state.growth_of_all(), None);
    press(&mut state, "m");
    give(&mut state, 2, &[("large", 250, 3), ("middle", 200, 40), ("small", 100, 20), ("new", 70, 1)]);
    let growth: Vec<_> = state.rows().iter().map(|row| state.growth(row)).collect();
    assert_eq!(growth, [Some(-50), Some(0), Some(0), Some(70)]);
    assert_eq!(state.growth_of_all(), Some(20));
    // Rows of another kind have their own figures at the mark: those of their first picture.
    assert_eq!(state.key(LiveKey::Char('g')), Action::Ask(LiveQuestion { by: By::Owner, path: Vec::new() }));
    give(&mut state, 3, &[("owner", 500, 3)]);
    give(&mut state, 4, &[("owner", 510, 3)]);
    assert_eq!(state.growth(state.rows()[0]), Some(10));
    press(&mut state, "m");
    assert_eq!((state.growth(state.rows()[0]), state.growth_of_all()), (Some(0), Some(0)));
}

#[test]
fn a_filter_is_typed_kept_and_ended() {
    let mut state = table();
    press(&mut state, "/MIDq");
    state.key(LiveKey::Backspace);
    assert_eq!((state.mode, names(&state)), (Mode::Filter, vec!["middle"]));
    state.key(LiveKey::Enter);
    assert_eq!((state.mode, state.filter.as_str()), (Mode::Table, "MID"));
    // By the place, too.
    state.key(LiveKey::Escape);
    press(&mut state, "/small.c:");
    assert_eq!(names(&state), ["small"]);
    state.key(LiveKey::Escape);
    assert_eq!((state.mode, names(&state).len()), (Mode::Table, 3));
}

#[test]
fn a_paused_picture_stays_while_reading_goes_on() {
    let mut state = table();
    press(&mut state, "p");
    give(&mut state, 2, &[("large", 1, 1)]);
    give(&mut state, 3, &[("large", 2, 1)]);
    assert_eq!(state.picture().unwrap().time, Time(1));
    // Other rows are shown at once, as of their moment.
    state.key(LiveKey::Enter);
    give(&mut state, 4, &[("caller", 5, 1)]);
    assert_eq!((state.picture().unwrap().time, names(&state)), (Time(4), vec!["caller"]));
    give(&mut state, 5, &[("caller", 6, 1)]);
    assert_eq!(state.picture().unwrap().time, Time(4));
    press(&mut state, "p");
    assert_eq!(state.picture().unwrap().time, Time(5));
    give(&mut state, 6, &[("caller", 6, 1)]);
    assert_eq!(state.picture().unwrap().time, Time(6));
}

#[test]
fn enter_goes_to_the_callers_and_backspace_back_to_the_row() {
    let mut state = table();
    state.key(LiveKey::Down);
    let middle = RowName { name: "middle".into(), place: "middle.c:7".into() };
    assert_eq!(state.key(LiveKey::Enter), Action::Ask(LiveQuestion { by: By::Function, path: vec![middle] }));
    // Until the callers are there, there is nothing to go into.
    assert_eq!((names(&state).len(), state.key(LiveKey::Enter)), (0, Action::Nothing));
    // A picture that was asked for before is not that of the callers.
    let late = Picture { by: Some(By::Function), time: Time(9), ..Picture::default() };
    state.take(late);
    assert_eq!(state.picture().unwrap().time, Time(1));
    give(&mut state, 2, &[("caller", 200, 3)]);
    assert_eq!((names(&state), state.selected), (vec!["caller"], 0));
    let back = LiveQuestion { by: By::Function, path: Vec::new() };
    assert_eq!(state.key(LiveKey::Backspace), Action::Ask(back));
    give(&mut state, 3, &[("large", 300, 3), ("middle", 200, 40), ("small", 100, 20)]);
    assert_eq!(state.rows()[state.selected].name.name, "middle");
    assert_eq!(state.key(LiveKey::Backspace), Action::Nothing);
}

#[test]
fn leaving_asks_what_becomes_of_a_program_of_its_own() {
    let mut other = table();
    assert_eq!(other.key(LiveKey::Char('q')), Action::Leave);
    assert_eq!(other.key(LiveKey::Interrupt), Action::Leave);
    for (key, action) in [
        (LiveKey::Char('k'), Action::EndProgram),
        (LiveKey::Char('l'), Action::EndRecording),
        (LiveKey::Interrupt, Action::EndProgram),
        (LiveKey::Escape, Action::Nothing),
    ] {
        let mut own = LiveState::new(By::Function, true);
        press(&mut own, "q");
        assert_eq!((own.mode, own.key(key), own.mode), (Mode::Leaving, action, Mode::Table));
    }
    let mut own = LiveState::new(By::Function, true);
    press(&mut own, "q");
    own.end("process 7 has ended".to_owned());
    assert_eq!((own.mode, own.key(LiveKey::Char('q'))), (Mode::Table, Action::Leave));
}

#[test]
fn groupings_go_around_and_help_ends_with_any_key() {
    let mut state = table();
    for by in GROUPINGS.iter().cycle().skip(1).take(GROUPINGS.len()) {
        let Action::Ask(question) = state.key(LiveKey::Char('g')) else { panic!("{by:?}") };
        assert_eq!(question.by, *by);
    }
    press(&mut state, "?");
    assert_eq!(state.mode, Mode::Help);
    press(&mut state, "q");
    assert_eq!(state.mode, Mode::Table);
}
