//! The state of the terminal view: what a key does, and which rows are shown.

use std::collections::HashMap;

use super::picture::{LiveQuestion, LiveRow, Picture, RowName};
use crate::args::By;

/// The breakdowns that `g` goes through.
const GROUPINGS: [By; 8] = [By::Function, By::Owner, By::Type, By::Module, By::Line, By::Site, By::Context, By::Heap];

/// A key, or what else happens at the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiveKey {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Backspace,
    Escape,
    Interrupt,
    Char(char),
}

/// The consequence of a key outside of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Only the picture changes.
    Nothing,
    /// Other rows are needed.
    Ask(LiveQuestion),
    /// The view ends; the recording goes on.
    Leave,
    /// The program that was started for the view is to end.
    EndProgram,
    /// The program that was started for the view goes on unrecorded.
    EndRecording,
}

/// The figure by which rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Live,
    Through,
    Growth,
    Rate,
    Temporary,
    Name,
}

impl Sort {
    const ALL: [Sort; 6] = [Sort::Live, Sort::Through, Sort::Growth, Sort::Rate, Sort::Temporary, Sort::Name];

    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Live => "live",
            Sort::Through => "through",
            Sort::Growth => "growth",
            Sort::Rate => "allocations/s",
            Sort::Temporary => "temporary",
            Sort::Name => "name",
        }
    }
}

/// The part of the view that has the keyboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Table,
    /// A filter is being typed.
    Filter,
    Help,
    /// The question whether to end the program.
    Leaving,
}

/// The moment from which growth is counted.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    bytes: u64,
    /// The live bytes of the rows then, by the question that had these rows.
    rows: Vec<(LiveQuestion, HashMap<RowName, u64>)>,
}

/// The state of the view.
#[derive(Debug)]
pub(super) struct LiveState {
    pub(super) question: LiveQuestion,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) is_paused: bool,
    pub(super) selected: usize,
    /// The reason why no more pictures come.
    pub(super) ended: Option<String>,
    /// The reason why the picture is old, though more may come.
    pub(super) stalled: Option<String>,
    /// True if the function whose callers are shown allocates nothing itself.
    pub(super) allocates_nothing: bool,
    /// True if the program was started for the view.
    pub(super) is_owner: bool,
    /// The row to select in the next picture: the one that was gone back from.
    wanted: Option<RowName>,
    mark: Option<Mark>,
    shown: Option<Picture>,
    /// The newest picture, while an older one is shown.
    newest: Option<Picture>,
    /// The number of rows on a page.
    pub(super) page: usize,
}

impl LiveState {
    pub(super) fn new(by: By, is_owner: bool) -> LiveState {
        LiveState {
            question: LiveQuestion { by, path: Vec::new() },
            sort: Sort::default(),
            filter: String::new(),
            mode: Mode::default(),
            is_paused: false,
            selected: 0,
            ended: None,
            stalled: None,
            allocates_nothing: false,
            is_owner,
            wanted: None,
            mark: None,
            shown: None,
            newest: None,
            page: 10,
        }
    }

    /// Takes a new picture. It is shown at once, unless the view is paused.
    pub(super) fn take(&mut self, picture: Picture) {
        // A picture that was asked for before the latest key would make the rows jump.
        if !self.is_answer(&picture) {
            return;
        }
        // A paused view shows other rows if they are asked for.
        let is_other = !self.is_answered();
        if self.is_paused && !is_other {
            self.newest = Some(picture);
            return;
        }
        self.show(picture);
    }

    /// True if a picture has the rows that were asked for last.
    fn is_answer(&self, picture: &Picture) -> bool {
        picture.by == Some(self.question.by) && picture.path == self.question.path
    }

    /// True if the picture that is shown has the rows that were asked for last.
    pub(super) fn is_answered(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| self.is_answer(shown))
    }

    fn show(&mut self, picture: Picture) {
        if self.shown.as_ref().is_none_or(|shown| shown.time != picture.time) {
            self.stalled = None;
        }
        // At the top, the largest row is selected, whichever it is.
        let before = self.rows().get(self.selected).filter(|_| self.selected > 0).map(|row| row.name.clone());
        let is_same = self.shown.as_ref().is_some_and(|shown| shown.by == picture.by && shown.path == picture.path);
        if let Some(mark) = &mut self.mark
            && !mark.rows.iter().any(|(question, _)| *question == self.question)
        {
            // Rows that nobody has looked at since the mark: they grow from now on.
            mark.rows.push((self.question.clone(), bytes_of(&picture)));
        }
        self.shown = Some(picture);
        // The selection stays on its row, wherever that moves to.
        let wanted = self.wanted.take();
        let rows = self.rows();
        let at = wanted.or(before.filter(|_| is_same)).and_then(|name| rows.iter().position(|row| row.name == name));
        let last = rows.len().saturating_sub(1);
        self.selected = at.unwrap_or(if is_same { self.selected } else { 0 }).min(last);
    }

    /// Notes that there are no newer pictures for now.
    pub(super) fn stall(&mut self, why: String) {
        self.stalled = Some(why);
    }

    /// Notes that no more pictures come.
    pub(super) fn end(&mut self, why: String) {
        self.ended = Some(why);
        if self.mode == Mode::Leaving {
            self.mode = Mode::Table;
        }
    }

    /// Returns the picture that is shown; `None` before the first.
    pub(super) fn picture(&self) -> Option<&Picture> {
        self.shown.as_ref()
    }

    /// Returns the rows that match the filter, sorted; none before those are there that were asked
    /// for.
    pub(super) fn rows(&self) -> Vec<&LiveRow> {
        let Some(picture) = self.shown.as_ref().filter(|shown| self.is_answer(shown)) else { return Vec::new() };
        let filter = self.filter.to_lowercase();
        let matches = |row: &&LiveRow| {
            filter.is_empty()
                || [&row.name.name, &row.name.place].iter().any(|text| text.to_lowercase().contains(&filter))
        };
        let mut rows: Vec<&LiveRow> = picture.rows.iter().filter(matches).collect();
        let rate = |row: &LiveRow| row.allocations_per_second.unwrap_or_default();
        // Stable: rows are sorted by live bytes already.
        match self.sort {
            Sort::Live => {}
            Sort::Through => rows.sort_by_key(|row| std::cmp::Reverse(row.bytes_through)),
            Sort::Growth => rows.sort_by_key(|row| std::cmp::Reverse(self.growth(row))),
            Sort::Rate => rows.sort_by(|one, other| rate(other).total_cmp(&rate(one))),
            Sort::Temporary => rows.sort_by_key(|row| std::cmp::Reverse(row.temporary)),
            Sort::Name => rows.sort_by(|one, other| one.name.cmp(&other.name)),
        }
        rows
    }

    /// Returns by how much a row has grown since the mark; `None` without a mark.
    pub(super) fn growth(&self, row: &LiveRow) -> Option<i64> {
        let mark = self.mark.as_ref()?;
        let (_, rows) = mark.rows.iter().find(|(question, _)| *question == self.question)?;
        let then = rows.get(&row.name).copied().unwrap_or_default();
        Some(row.bytes.cast_signed().wrapping_sub(then.cast_signed()))
    }

    /// Returns by how much all live bytes have grown since the mark; `None` without a mark.
    pub(super) fn growth_of_all(&self) -> Option<i64> {
        let (mark, picture) = (self.mark.as_ref()?, self.shown.as_ref()?);
        Some(picture.bytes.cast_signed().wrapping_sub(mark.bytes.cast_signed()))
    }

    /// Does what a key means.
    pub(super) fn key(&mut self, key: LiveKey) -> Action {
        if key == LiveKey::Interrupt {
            return if self.mode == Mode::Leaving { self.key_of_leaving(LiveKey::Char('k')) } else { self.leave() };
        }
        match self.mode {
            Mode::Help => {
                self.mode = Mode::Table;
                Action::Nothing
            }
            Mode::Filter => self.key_of_filter(key),
            Mode::Leaving => self.key_of_leaving(key),
            Mode::Table => self.key_of_table(key),
        }
    }

    fn key_of_filter(&mut self, key: LiveKey) -> Action {
        match key {
            LiveKey::Enter => self.mode = Mode::Table,
            LiveKey::Escape => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            LiveKey::Backspace => _ = self.filter.pop(),
            LiveKey::Char(character) => self.filter.push(character),
            _ => {}
        }
        self.selected = 0;
        Action::Nothing
    }

    fn key_of_leaving(&mut self, key: LiveKey) -> Action {
        self.mode = Mode::Table;
        match key {
            LiveKey::Char('k') => Action::EndProgram,
            LiveKey::Char('l') => Action::EndRecording,
            _ => Action::Nothing,
        }
    }

    fn key_of_table(&mut self, key: LiveKey) -> Action {
        let last = self.rows().len().saturating_sub(1);
        match key {
            LiveKey::Up | LiveKey::Char('k') => self.selected = self.selected.saturating_sub(1),
            LiveKey::Down | LiveKey::Char('j') => self.selected = (self.selected + 1).min(last),
            LiveKey::PageUp => self.selected = self.selected.saturating_sub(self.page),
            LiveKey::PageDown => self.selected = (self.selected + self.page).min(last),
            LiveKey::Home => self.selected = 0,
            LiveKey::End => self.selected = last,
            LiveKey::Enter => return self.enter(),
            LiveKey::Backspace => return self.back(),
            LiveKey::Escape if !self.filter.is_empty() => self.filter.clear(),
            LiveKey::Escape => return self.back(),
            LiveKey::Char('s') => self.sort = self.next_sort(),
            LiveKey::Char('/') => self.mode = Mode::Filter,
            LiveKey::Char('g') => return self.group(),
            LiveKey::Char('m') => self.mark(),
            LiveKey::Char('p' | ' ') => self.pause(),
            LiveKey::Char('?' | 'h') => self.mode = Mode::Help,
            LiveKey::Char('q') => return self.leave(),
            LiveKey::Char(_) | LiveKey::Interrupt => {}
        }
        Action::Nothing
    }

    /// Goes into the selected row.
    fn enter(&mut self) -> Action {
        let row = self.rows().get(self.selected).map(|row| (row.name.clone(), row.allocations == 0));
        let Some((name, allocates_nothing)) = row else { return Action::Nothing };
        self.allocates_nothing = allocates_nothing;
        self.question.path.push(name);
        self.ask()
    }

    /// Goes back to where the row was selected.
    fn back(&mut self) -> Action {
        match self.question.path.pop() {
            Some(name) => {
                self.wanted = Some(name);
                self.ask()
            }
            None => Action::Nothing,
        }
    }

    fn group(&mut self) -> Action {
        let at = GROUPINGS.iter().position(|by| *by == self.question.by).map_or(0, |at| at + 1);
        self.question = LiveQuestion { by: GROUPINGS[at % GROUPINGS.len()], path: Vec::new() };
        self.ask()
    }

    fn ask(&mut self) -> Action {
        (self.filter, self.newest, self.selected) = (String::new(), None, 0);
        Action::Ask(self.question.clone())
    }

    /// Returns the next figure to sort by that the rows have.
    fn next_sort(&self) -> Sort {
        let has = |sort: &Sort| match sort {
            Sort::Through => self.rows().iter().any(|row| row.bytes_through.is_some()),
            Sort::Growth => self.mark.is_some(),
            _ => true,
        };
        let at = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or_default();
        Sort::ALL.iter().copied().cycle().skip(at + 1).find(has).unwrap_or_default()
    }

    /// Counts growth from now on; a second time, from then on.
    fn mark(&mut self) {
        if let Some(picture) = self.shown.as_ref().filter(|shown| self.is_answer(shown)) {
            let rows = vec![(self.question.clone(), bytes_of(picture))];
            self.mark = Some(Mark { bytes: picture.bytes, rows });
        }
    }

    fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        if let Some(newest) = self.newest.take() {
            self.show(newest);
        }
    }

    fn leave(&mut self) -> Action {
        if self.is_owner && self.ended.is_none() {
            self.mode = Mode::Leaving;
            return Action::Nothing;
        }
        Action::Leave
    }
}

/// Returns the live bytes of the rows, by their names.
fn bytes_of(picture: &Picture) -> HashMap<RowName, u64> {
    picture.rows.iter().map(|row| (row.name.clone(), row.bytes)).collect()
}

#[cfg(test)]
mod tests;
