//! A timeline as a picture: one SVG file that needs nothing else.

use std::fmt::Write as _;

use heapledger_analysis::ProcessChangeKind;
use heapledger_recording::Time;

use super::view::{MEMORY, Program, View, letter};
use crate::format::{bytes, count, time};
use crate::text::shown_command;
use crate::views::chart::{BAND_COLORS, binary_step, decimal_step, xml};
use crate::views::sampled;

/// The width in pixels; all lengths below are in pixels, too.
const WIDTH: usize = 1000;
const LEFT: usize = 90;
const RIGHT: usize = 30;
const TOP: usize = 90;
const AREA: usize = 320;
const GAP: usize = 40;
const BLOCKS: usize = 80;
const LINE: usize = 18;
pub(super) const COLUMNS: usize = WIDTH - LEFT - RIGHT;

const LIVE_COLOR: &str = "#4c78a8";
const OTHERS_COLOR: &str = "#bab0ac";
const MEMORY_COLORS: [&str; 4] = ["#d62728", "#ff7f0e", "#2ca02c", "#9467bd"];

/// Draws a view.
pub(super) fn draw(view: &View<'_, '_>, title: &str) -> String {
    let (programs, more) = view.listed();
    let listed = if view.programs.len() > 1 { programs.len() + 1 } else { 0 };
    let bands = if view.bands.is_empty() { 0 } else { view.bands.len() + 1 };
    let height = TOP + AREA + GAP + BLOCKS + GAP + (bands + listed) * LINE + 10;
    let mut svg = String::new();
    let command = view.recording.images().first().map(shown_command).unwrap_or_default();
    let heading = xml(&format!("{command}: {title}"));
    let below = match sampled::notice(view.recording) {
        Some(notice) => format!("{} · {notice}", cut(&command, 60)),
        None => cut(&command, 130),
    };
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12">
<title>{heading}</title>
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="26" font-size="15" font-weight="bold">{}</text>
<text x="{LEFT}" y="46" fill="#555">{}</text>
"##,
        xml(title),
        xml(&below),
    );
    let panel = Panel { view, svg: &mut svg };
    panel.draw(&programs);
    key(view, &mut svg);
    if listed > 0 {
        list(&programs, more, bands, &mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

struct Panel<'v, 'r, 'a> {
    view: &'v View<'r, 'a>,
    svg: &'v mut String,
}

impl Panel<'_, '_, '_> {
    fn draw(mut self, programs: &[&Program]) {
        let live = self.view.live(COLUMNS);
        // Together with bands, lines of resident memory would only be confusing.
        let has_memory = !self.view.history.memory.is_empty() && self.view.bands.is_empty();
        let memory: Vec<_> = match has_memory {
            true => MEMORY.iter().map(|&(name, figure)| (name, self.view.memory(COLUMNS, figure))).collect(),
            false => Vec::new(),
        };
        let largest = |values: &[Option<u64>]| values.iter().flatten().copied().max().unwrap_or(0);
        let most = memory.iter().map(|(_, values)| largest(values)).max().unwrap_or(0).max(largest(&live)).max(1);
        let most = most.max(self.view.bands_max());
        // Some room above, for the label of the peak.
        let scale = Scale { top: TOP, height: AREA, most: most.saturating_add(most / 12) };

        self.pauses();
        self.grid(&scale, binary_step(most), &bytes);
        if self.view.bands.is_empty() {
            self.area(&live, &scale);
        } else {
            self.bands(&scale);
        }
        for ((_, values), color) in memory.iter().zip(MEMORY_COLORS) {
            let path = path(values, &scale, false);
            let _ = writeln!(self.svg, r#"<path d="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>"#);
        }
        self.legend(&memory);

        let blocks = self.view.blocks(COLUMNS);
        let most = largest(&blocks).max(1);
        let scale_of_blocks = Scale { top: TOP + AREA + GAP, height: BLOCKS, most };
        self.grid(&scale_of_blocks, decimal_step(most, 2), &|value| count(value));
        self.area(&blocks, &scale_of_blocks);
        self.text(LEFT, scale_of_blocks.top - 6, "start", "#555", "live blocks");

        self.times();
        self.programs(programs);
        // The peak is that of live bytes, which are the lowest band of resident memory.
        self.peak(&scale);
    }

    fn text(&mut self, x: usize, y: usize, anchor: &str, color: &str, text: &str) {
        let text = xml(text);
        let _ = writeln!(self.svg, r#"<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}">{text}</text>"#);
    }

    fn line(&mut self, from: (usize, usize), to: (usize, usize), style: &str) {
        let _ = writeln!(self.svg, r#"<line x1="{}" y1="{}" x2="{}" y2="{}" {style}/>"#, from.0, from.1, to.0, to.1);
    }

    fn x(&self, moment: Time) -> usize {
        LEFT + self.view.column(moment, COLUMNS)
    }

    /// Draws horizontal lines with figures.
    fn grid(&mut self, scale: &Scale, step: u64, format: &dyn Fn(u64) -> String) {
        let mut value = 0;
        while value <= scale.most {
            let y = scale.y(value);
            let style = if value == 0 { r##"stroke="#333""## } else { r##"stroke="#ddd""## };
            self.line((LEFT, y), (LEFT + COLUMNS, y), style);
            self.text(LEFT - 8, y + 4, "end", "#333", &format(value));
            value += step;
        }
    }

    fn area(&mut self, values: &[Option<u64>], scale: &Scale) {
        let (filled, outline) = (path(values, scale, true), path(values, scale, false));
        let _ = writeln!(
            self.svg,
            r#"<path d="{filled}" fill="{LIVE_COLOR}" fill-opacity="0.35"/>
<path d="{outline}" fill="none" stroke="{LIVE_COLOR}" stroke-width="1.5"/>"#
        );
    }

    /// Draws the bands stacked, the largest at the bottom.
    fn bands(&mut self, scale: &Scale) {
        let mut sums = vec![0_u64; COLUMNS];
        let mut outlines = Vec::new();
        for (at, band) in self.view.bands.iter().enumerate() {
            sums.iter_mut().zip(&band.bytes).for_each(|(sum, bytes)| *sum = sum.saturating_add(*bytes));
            let values: Vec<Option<u64>> = sums.iter().copied().map(Some).collect();
            outlines.push((path(&values, scale, true), band_color(self.view, at)));
        }
        // Each band is drawn from the bottom up, over the lower part of the one drawn before.
        for (outline, color) in outlines.into_iter().rev() {
            let _ = writeln!(self.svg, r#"<path d="{outline}" fill="{color}"/>"#);
        }
    }

    fn legend(&mut self, memory: &[(&str, Vec<Option<u64>>)]) {
        let live = self.view.bands.is_empty().then_some(("live bytes", LIVE_COLOR));
        let entries = live.into_iter().chain(memory.iter().zip(MEMORY_COLORS).map(|((name, _), color)| (*name, color)));
        let mut x = LEFT;
        for (name, color) in entries {
            let _ = writeln!(self.svg, r#"<rect x="{x}" y="58" width="14" height="10" fill="{color}"/>"#);
            self.text(x + 20, 67, "start", "#333", name);
            x += 40 + name.len() * 8;
        }
    }

    fn times(&mut self) {
        let (from, to) = (self.view.from.0, self.view.to.0);
        let step = time_step(to - from);
        let bottom = TOP + AREA + GAP + BLOCKS;
        let mut at = from.div_ceil(step) * step;
        while at <= to {
            let x = self.x(Time(at));
            for (top, end) in [(TOP, TOP + AREA), (bottom - BLOCKS, bottom)] {
                self.line((x, top), (x, end), r##"stroke="#000" stroke-opacity="0.08""##);
            }
            self.text(x, bottom + 18, "middle", "#333", &time(Time(at)));
            at += step;
        }
    }

    fn pauses(&mut self) {
        for pause in &self.view.history.pauses {
            let until = pause.until.unwrap_or(self.view.to).min(self.view.to);
            if until <= self.view.from || pause.from >= self.view.to {
                continue;
            }
            let (start, end) = (self.x(pause.from), self.x(until));
            let what = if pause.is_stall { "the recorder stood still" } else { "recording was paused" };
            let _ = writeln!(
                self.svg,
                r##"<rect x="{start}" y="{TOP}" width="{}" height="{AREA}" fill="#eee"><title>{what}</title></rect>"##,
                (end - start).max(1)
            );
        }
    }

    /// Draws a line where each program began.
    fn programs(&mut self, programs: &[&Program]) {
        if programs.len() < 2 {
            return;
        }
        let mut last_letter = 0;
        for (at, program) in programs.iter().enumerate() {
            if program.from < self.view.from {
                continue;
            }
            let x = self.x(program.from);
            self.line((x, TOP), (x, TOP + AREA), r##"stroke="#777" stroke-dasharray="3 3""##);
            // Overlapping letters would be unreadable.
            if x >= last_letter + 9 || last_letter == 0 {
                self.text(x, TOP - 5, "middle", "#555", &letter(at).to_string());
                last_letter = x;
            }
        }
    }

    fn peak(&mut self, scale: &Scale) {
        let peak = self.view.peak;
        let (x, y) = (self.x(peak.time), scale.y(peak.live.bytes.0));
        let _ = writeln!(self.svg, r#"<circle cx="{x}" cy="{y}" r="4" fill="{LIVE_COLOR}"/>"#);
        let (x, anchor) = if x > LEFT + COLUMNS * 3 / 4 { (x - 8, "end") } else { (x + 8, "start") };
        let label = format!("{} at {}", bytes(peak.live.bytes.0), time(peak.time));
        self.text(x, y - 5, anchor, "#1f3a5f", &label);
    }
}

fn band_color(view: &View<'_, '_>, at: usize) -> &'static str {
    if at + 1 == view.bands.len() && !view.is_resident { OTHERS_COLOR } else { BAND_COLORS[at % BAND_COLORS.len()] }
}

/// Draws the key of the bands below the picture, in the order in which they are stacked, from top
/// to bottom.
fn key(view: &View<'_, '_>, svg: &mut String) {
    let top = TOP + AREA + GAP + BLOCKS + GAP + LINE;
    for (row, (at, band)) in view.bands.iter().enumerate().rev().enumerate() {
        let y = top + row * LINE;
        let color = band_color(view, at);
        let most = bytes(band.bytes.iter().copied().max().unwrap_or(0));
        let _ = writeln!(
            svg,
            r##"<rect x="{LEFT}" y="{}" width="14" height="10" fill="{color}"/>
<text x="{}" y="{y}" fill="#333">{}</text>
<text x="{}" y="{y}" fill="#777" text-anchor="end">at most {most}</text>"##,
            y - 9,
            LEFT + 20,
            xml(&cut(&band.name, 105)),
            WIDTH - RIGHT,
        );
    }
}

/// Lists the programs below the picture and `lines` other lines.
fn list(programs: &[&Program], more: usize, lines: usize, svg: &mut String) {
    let top = TOP + AREA + GAP + BLOCKS + GAP + LINE + lines * LINE;
    let mut cell = |x: usize, row: usize, color: &str, text: &str| {
        let _ = writeln!(svg, r#"<text x="{x}" y="{}" fill="{color}">{}</text>"#, top + row * LINE, xml(text));
    };
    for (row, program) in programs.iter().enumerate() {
        let to = program.to.map_or("the end".to_owned(), time);
        let how = if program.how == ProcessChangeKind::Exec { "by exec: " } else { "" };
        cell(LEFT, row, "#333", &letter(row).to_string());
        cell(LEFT + 20, row, "#333", &format!("{} to {to}", time(program.from)));
        cell(LEFT + 180, row, "#333", &program.pid.to_string());
        cell(LEFT + 250, row, "#333", &format!("{how}{}", cut(&program.command, 85)));
    }
    if more > 0 {
        cell(LEFT, programs.len(), "#777", &format!("and {more} smaller ones"));
    }
}

struct Scale {
    top: usize,
    height: usize,
    most: u64,
}

impl Scale {
    fn y(&self, value: u64) -> usize {
        let height = u128::from(value.min(self.most)) * self.height as u128 / u128::from(self.most);
        self.top + self.height - height as usize
    }
}

/// Returns the outline of values as an SVG path, in steps of a pixel; closed at the bottom if it is
/// to be filled.
fn path(values: &[Option<u64>], scale: &Scale, closed: bool) -> String {
    let mut path = String::new();
    let mut height = None;
    let bottom = scale.y(0);
    for (column, value) in values.iter().enumerate() {
        let x = LEFT + column;
        let Some(value) = value else { continue };
        let y = scale.y(*value);
        match height {
            None if closed => _ = write!(path, "M{x} {bottom}V{y}"),
            None => _ = write!(path, "M{x} {y}"),
            // Equal values share one horizontal line.
            Some(before) if before == y => {}
            Some(_) => _ = write!(path, "H{x}V{y}"),
        }
        height = Some(y);
    }
    if height.is_some() {
        let _ = write!(path, "H{}", LEFT + values.len());
        if closed {
            let _ = write!(path, "V{bottom}Z");
        }
    }
    path
}

/// Returns the distance between marks on a time axis of this length, both in nanoseconds.
fn time_step(length: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let long = [60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400].map(|seconds| seconds * SECOND);
    if length < 300 * SECOND {
        return decimal_step(length, 5);
    }
    long.into_iter().find(|step| length / step <= 10).unwrap_or_else(|| length / 8 + 1)
}

/// Shortens a text to at most `most` characters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_times() {
        for length in [1, 10, 1_000_000, 299_000_000_000, 301_000_000_000, 86_400_000_000_000, u64::MAX] {
            let marks = length / time_step(length);
            assert!(marks <= 13, "{length}: {marks}");
        }
    }

    #[test]
    fn outlines() {
        let scale = Scale { top: 0, height: 10, most: 100 };
        let values = [None, Some(0), Some(50), Some(50), Some(100), None];
        assert_eq!(path(&values, &scale, false), "M91 10H92V5H94V0H96");
        assert_eq!(path(&values, &scale, true), "M91 10V10H92V5H94V0H96V10Z");
        assert_eq!(path(&[None], &scale, true), "");
    }

    #[test]
    fn names_are_no_markup() {
        assert_eq!(xml("a<b>&\"\x1b"), "a&lt;b&gt;&amp;&quot;\\u{1b}");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
    }
}
