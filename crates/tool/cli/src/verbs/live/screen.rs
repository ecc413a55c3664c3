//! The picture of the view in the terminal.

use std::time::Duration;

use heapledger_report_format::{escape, without_middle};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};

use super::picture::{LiveRow, Picture, RowName};
use super::state::{LiveState, Mode, Sort};
use crate::format::{bytes, count, counted, duration};

/// The height of the sparkline in lines.
const SPARKLINE: u16 = 3;
/// The narrowest picture that has all columns.
const WIDE: u16 = 100;
/// The fewest characters of a place that tell something.
const PLACE_MIN: usize = 12;

const HELP: &str = "\
↑ ↓ PgUp PgDn Home End   select a row
Enter →                  go into the row: its callers, from the inside out
Backspace ←              go back
s                        sort by the next figure
/                        show only rows with a text; Esc ends that
g                        group by function, owner, type, module, line, site,
                         context, heap
m                        mark this moment: growth is counted from here
p                        pause the picture; reading goes on
q Ctrl-C                 leave

live        bytes of the row's own live blocks
through     bytes of all live blocks that the function had a part in
allocs/s    allocations a second, since the last picture
temporary   share of all its allocations freed by the next call";

/// Draws the view.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut LiveState, colors: bool) {
    let areas = [Constraint::Length(2), Constraint::Length(SPARKLINE), Constraint::Min(2), Constraint::Length(1)];
    let [head, line, table, foot] = Layout::vertical(areas).areas(frame.area());
    state.page = usize::from(table.height.saturating_sub(1)).max(1);
    match state.picture() {
        Some(picture) => {
            frame.render_widget(Paragraph::new(head_lines(state, picture, colors)), head);
            draw_timeline(frame, picture, line, colors);
            draw_rows(frame, state, table, colors);
        }
        None => {
            let text = state.stalled.as_deref().map_or("waiting for the first figures …".into(), escape);
            frame.render_widget(Paragraph::new(text), head);
        }
    }
    frame.render_widget(Paragraph::new(foot_line(state, colors)), foot);
    if state.mode == Mode::Help {
        let area = frame.area();
        let height = (HELP.lines().count() as u16).min(area.height);
        let area = Rect { height, ..area };
        frame.render_widget(Clear, area);
        frame.render_widget(Paragraph::new(HELP), area);
    }
}

fn bold() -> Style {
    Style::default().add_modifier(Modifier::BOLD)
}

fn colored(style: Style, color: Color, colors: bool) -> Style {
    if colors { style.fg(color) } else { style }
}

/// Returns the lines with the totals.
fn head_lines<'p>(state: &LiveState, picture: &'p Picture, colors: bool) -> Vec<Line<'p>> {
    let live = format!("{} live", bytes(picture.bytes));
    let mut first = vec![
        Span::styled(format!("{} ({})", escape(&picture.program), picture.pid), bold()),
        Span::raw(format!("  {}  ", duration(Duration::from_nanos(picture.time.0)))),
        Span::styled(live, colored(bold(), Color::Cyan, colors)),
    ];
    if let Some(growth) = state.growth_of_all() {
        first.push(Span::styled(format!(", {} since mark,", signed(growth)), of_growth(growth, colors)));
    }
    first.push(Span::raw(format!(" in {}", counted(picture.blocks, "block", "blocks"))));
    let rate =
        picture.allocations_per_second.map_or(String::new(), |rate| format!("{} allocations/s, ", count(rate as u64)));
    let mut second = format!("{rate}{} in all, peak {}", count(picture.allocations), bytes(picture.bytes_max));
    if let Some(resident) = picture.bytes_resident {
        second += &format!(", {} resident", bytes(resident));
    }
    if picture.processes.len() > 1 {
        second += &format!(", {} processes", picture.processes.len());
    }
    if picture.is_sample {
        second += ", estimated from a sample";
    }
    if picture.sites_left_out > 0 {
        second += &format!(", {} small stacks in one row", count(picture.sites_left_out));
    }
    let mut states = Vec::new();
    states.extend(state.is_paused.then_some("PAUSED  "));
    states.extend((!picture.is_on && state.ended.is_none()).then_some("NOT RECORDING  "));
    let states = states.into_iter().map(|text| Span::styled(text, colored(bold(), Color::Yellow, colors)));
    let second: Vec<Span<'_>> = states.chain([Span::raw(second)]).collect();
    vec![Line::from(first), Line::from(second)]
}

/// Draws what was live over the whole time.
fn draw_timeline(frame: &mut Frame<'_>, picture: &Picture, area: Rect, colors: bool) {
    let heights = heights(picture, usize::from(area.width));
    let style = colored(Style::default(), Color::Cyan, colors);
    frame.render_widget(Sparkline::default().data(&heights).style(style), area);
}

/// Returns the most bytes that were live in each of these equal parts of the time.
fn heights(picture: &Picture, parts: usize) -> Vec<u64> {
    let mut heights = vec![None; parts];
    let end = picture.time.0.max(1);
    for (time, bytes) in &picture.timeline {
        let at = (u128::from(time.0.min(end)) * parts as u128 / (u128::from(end) + 1)) as usize;
        if let Some(height) = heights.get_mut(at) {
            *height = (*height).max(Some(*bytes));
        }
    }
    if let Some(last) = heights.last_mut() {
        *last = (*last).max(Some(picture.bytes));
    }
    // In a part without a sample, nothing has happened.
    let mut before = 0;
    heights
        .into_iter()
        .map(|height| {
            before = height.unwrap_or(before);
            before
        })
        .collect()
}

/// The columns of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Live,
    Through,
    Growth,
    Blocks,
    Rate,
    Temporary,
}

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Column::Live => "live",
            Column::Through => "through",
            Column::Growth => "growth",
            Column::Blocks => "blocks",
            Column::Rate => "allocs/s",
            Column::Temporary => "temporary",
        }
    }

    fn width(self) -> u16 {
        match self {
            Column::Live | Column::Through | Column::Growth => 11,
            Column::Blocks | Column::Rate => 10,
            Column::Temporary => 9,
        }
    }

    fn is_sorted_by(self, sort: Sort) -> bool {
        matches!(
            (self, sort),
            (Column::Live, Sort::Live)
                | (Column::Through, Sort::Through)
                | (Column::Growth, Sort::Growth)
                | (Column::Rate, Sort::Rate)
                | (Column::Temporary, Sort::Temporary)
        )
    }

    fn cell(self, state: &LiveState, row: &LiveRow, colors: bool) -> Cell<'static> {
        let (text, style) = match self {
            Column::Live => (bytes(row.bytes), Style::default()),
            Column::Through => (row.bytes_through.map_or(String::new(), bytes), Style::default()),
            Column::Growth => state.growth(row).map_or_else(Default::default, |by| (signed(by), of_growth(by, colors))),
            Column::Blocks => (count(row.blocks), Style::default()),
            Column::Rate => {
                (row.allocations_per_second.map_or(String::new(), |rate| count(rate as u64)), Style::default())
            }
            Column::Temporary => (share(row), Style::default()),
        };
        Cell::from(Line::from(text).right_aligned()).style(style)
    }
}

/// Returns the share of a row's allocations that were temporary; nothing without allocations.
fn share(row: &LiveRow) -> String {
    if row.allocations == 0 { String::new() } else { crate::format::percent(row.temporary, row.allocations) }
}

fn draw_rows(frame: &mut Frame<'_>, state: &LiveState, area: Rect, colors: bool) {
    let rows = state.rows();
    let has_through = rows.iter().any(|row| row.bytes_through.is_some());
    let has_mark = state.growth_of_all().is_some();
    let is_wide = area.width >= WIDE;
    let mut columns = vec![Column::Live];
    columns.extend(has_through.then_some(Column::Through));
    columns.extend(has_mark.then_some(Column::Growth));
    // In a narrow terminal the names need the room.
    columns.extend((is_wide || !(has_mark && has_through)).then_some(Column::Blocks));
    columns.push(Column::Rate);
    columns.extend((is_wide || !has_mark).then_some(Column::Temporary));
    let figures: u16 = columns.iter().map(|column| column.width() + 1).sum();
    let room = usize::from(area.width.saturating_sub(figures + 1));

    let heading = |column: &Column| {
        let style = if column.is_sorted_by(state.sort) { bold().add_modifier(Modifier::UNDERLINED) } else { bold() };
        Cell::from(Line::from(column.heading()).right_aligned()).style(style)
    };
    let title = Cell::from(without_middle(&title(state), room).into_owned()).style(bold());
    let header = Row::new(columns.iter().map(heading).chain([title]));
    let lines = rows.iter().map(|row| {
        let name = Cell::from(name_line(&row.name, room));
        Row::new(columns.iter().map(|column| column.cell(state, row, colors)).chain([name]))
    });
    let widths = columns.iter().map(|column| Constraint::Length(column.width())).chain([Constraint::Fill(1)]);
    let table =
        Table::new(lines, widths).header(header).row_highlight_style(Style::default().add_modifier(Modifier::REVERSED));
    let mut selected = TableState::default().with_selected((!rows.is_empty()).then_some(state.selected));
    frame.render_stateful_widget(table, area, &mut selected);
    if rows.is_empty() {
        let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1).min(1), ..area };
        frame.render_widget(Paragraph::new(nothing(state)), below);
    }
}

/// Says why there are no rows.
fn nothing(state: &LiveState) -> &'static str {
    let has_small = state.picture().is_some_and(|picture| picture.sites_left_out > 0);
    match (state.filter.is_empty(), state.question.path.is_empty()) {
        _ if !state.is_answered() => "…",
        (false, _) => "no row has this text",
        (true, false) if state.allocates_nothing => "it allocates nothing itself: Backspace goes back",
        (true, false) if has_small => "its callers are not known: its stacks are among the small ones in one row",
        (true, false) => "it has no callers: Backspace goes back",
        (true, true) => "nothing has been allocated yet",
    }
}

/// Returns the title of the rows: the breakdown, and the way to the callers that are shown.
fn title(state: &LiveState) -> String {
    let callers: Vec<_> = state.question.path.iter().rev().map(|row| escape(&row.name)).collect();
    let mut title = match callers.is_empty() {
        true => state.question.by.name().to_owned(),
        // As they call each other: the one whose callers are shown is the first.
        false => format!("callers of {}", callers.join(" › ")),
    };
    if state.sort != Sort::Live {
        title += &format!(" (by {})", state.sort.name());
    }
    title
}

/// Returns a name with its place, as far as there is room.
fn name_line(row: &RowName, room: usize) -> Line<'static> {
    let name = without_middle(&escape(&row.name), room).into_owned();
    let left = room.saturating_sub(name.chars().count() + 2);
    let place = if left < PLACE_MIN || row.place.is_empty() {
        String::new()
    } else {
        without_middle(&escape(&row.place), left).into_owned()
    };
    let dim = Style::default().add_modifier(Modifier::DIM);
    Line::from(vec![Span::raw(name), Span::raw("  "), Span::styled(place, dim)])
}

fn foot_line(state: &LiveState, colors: bool) -> Line<'static> {
    let warning = colored(bold(), Color::Yellow, colors);
    let why_old = state.stalled.as_ref().filter(|_| state.picture().is_some());
    match (state.mode, &state.ended) {
        (Mode::Table, None) if why_old.is_some() => {
            let why = why_old.map_or_else(Default::default, |why| escape(why));
            Line::styled(format!("{why}: these figures are old"), warning)
        }
        (Mode::Filter, _) => Line::from(format!("filter: {}▏  Enter keeps it, Esc ends it", escape(&state.filter))),
        (Mode::Leaving, _) => {
            Line::styled("the program still runs: k ends it, l leaves it unrecorded, any other key stays", warning)
        }
        (_, Some(why)) => Line::styled(format!("{}: these are its last figures. q leaves", escape(why)), warning),
        _ if !state.filter.is_empty() => {
            Line::from(format!("only `{}`: Esc shows all  ? help  q leave", escape(&state.filter)))
        }
        _ => Line::from("Enter callers  s sort  / filter  g group  m mark  p pause  ? keys  q leave"),
    }
}

/// Returns a difference with its sign.
fn signed(difference: i64) -> String {
    let size = bytes(difference.unsigned_abs());
    match difference {
        0 => size,
        1.. => format!("+{size}"),
        _ => format!("-{size}"),
    }
}

/// Returns the style of growth: red and blue, which colour-blind eyes tell apart.
fn of_growth(difference: i64, colors: bool) -> Style {
    match difference {
        0 => Style::default(),
        1.. => colored(Style::default(), Color::Red, colors),
        _ => colored(Style::default(), Color::Blue, colors),
    }
}

#[cfg(test)]
mod tests;
