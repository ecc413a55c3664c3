//! Resident memory over the calls, and its fragmentation below, a line for each allocator.

use std::fmt::Write as _;

use heapledger_replay::Sample;

use super::Figures;
use crate::format::{bytes, count, share};
use crate::views::chart::{BAND_COLORS, binary_step, decimal_step, xml};

/// Lengths in pixels.
const WIDTH: u64 = 1000;
const HEIGHT: u64 = 700;
/// The lower edges of memory and of fragmentation, and the upper edge of the latter.
const MEMORY_BOTTOM: u64 = 430;
const FRAGMENTATION_TOP: u64 = 510;
const LEFT: u64 = 90;
const RIGHT: u64 = 30;
const TOP: u64 = 90;
const BOTTOM: u64 = 50;
/// The height of a line of names.
const LEGEND_LINE: u64 = 20;
/// The longest name in characters.
const NAME_MAX: usize = 100;
/// The color of what is requested.
const REQUESTED_COLOR: &str = "#333";

/// The unit of fragmentation in the picture: a part in a million.
const MILLION: u64 = 1_000_000;

/// Draws the runs.
pub(super) fn draw(figures: &Figures<'_>) -> String {
    let samples = || figures.totals.iter().flat_map(|run| &run.samples);
    let most = samples().map(|sample| sample.resident.max(sample.requested)).max().unwrap_or(0).max(1);
    let calls = figures.calls().max(1);
    let names: Vec<&str> = ["requested"].into_iter().chain(figures.rows().map(|(name, _)| name)).collect();
    let places = legend(&names);
    // Further lines of names move all that is below.
    let down = places.last().map_or(0, |(_, line)| line * LEGEND_LINE);
    let (height, fragmentation_top) = (HEIGHT + down, FRAGMENTATION_TOP + down);
    let plane = Plane { calls, most, top: TOP + down, bottom: MEMORY_BOTTOM + down };
    let below = Plane { calls, most: MILLION, top: fragmentation_top, bottom: height - BOTTOM };
    let title = format!("Resident memory of {} calls", count(figures.calls()));
    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12">
<title>{title}</title>
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="26" font-size="15" font-weight="bold">{title}</text>
<text x="{LEFT}" y="46" fill="#555">anonymous memory beyond that before the first call, by allocator</text>
"##
    );
    plane.grid(&mut svg, binary_step(most), bytes);
    below.grid(&mut svg, MILLION / 4, |parts| share(parts as f64 / MILLION as f64));
    let (x, y) = (LEFT + (WIDTH - LEFT - RIGHT) / 2, height - BOTTOM + 36);
    let _ = writeln!(svg, r##"<text x="{x}" y="{y}" text-anchor="middle" fill="#555">calls</text>"##);
    let y = fragmentation_top - 14;
    let says = "fragmentation: the part of resident memory that is in no live block";
    let _ = writeln!(svg, r##"<text x="{LEFT}" y="{y}" fill="#555">{says}</text>"##);
    let requested = figures.totals.first().map(|run| plane.path(&run.samples, |sample| sample.requested));
    let lines = requested.into_iter().map(|path| (path, REQUESTED_COLOR, r#" stroke-dasharray="4 3""#));
    let resident = figures.totals.iter().enumerate().map(|(number, run)| {
        let fragmentation = |sample: &Sample| (sample.fragmentation() * MILLION as f64) as u64;
        let path = plane.path(&run.samples, |sample| sample.resident) + &below.path(&run.samples, fragmentation);
        // Colors are used again, for other lines.
        let dashes = if number < BAND_COLORS.len() { "" } else { r#" stroke-dasharray="8 2""# };
        (path, BAND_COLORS[number % BAND_COLORS.len()], dashes)
    });
    for ((path, color, dashes), (name, (x, line))) in lines.chain(resident).zip(names.iter().zip(places)) {
        let stroke = format!(r#"fill="none" stroke="{color}"{dashes}"#);
        let _ = writeln!(svg, r#"<path d="{path}" {stroke} stroke-width="1.5"/>"#);
        let y = 62 + line * LEGEND_LINE;
        let _ = writeln!(svg, r#"<path d="M{x} {y}h18" {stroke} stroke-width="4"/>"#);
        let _ = writeln!(svg, r##"<text x="{}" y="{}" fill="#333">{}</text>"##, x + 24, y + 5, xml(&shortened(name)));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the place of each name: its left edge in pixels, and the number of its line.
fn legend(names: &[&str]) -> Vec<(u64, u64)> {
    let (mut x, mut line) = (LEFT, 0);
    let place = |name: &&str| {
        // A character is at most so wide, on average.
        let width = 45 + shortened(name).chars().count() as u64 * 8;
        if x > LEFT && x + width > WIDTH {
            (x, line) = (LEFT, line + 1);
        }
        let place = (x, line);
        x += width;
        place
    };
    names.iter().map(place).collect()
}

/// Returns a name that fits into the picture.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// The area of the lines.
struct Plane {
    calls: u64,
    most: u64,
    /// The edges, in pixels.
    top: u64,
    bottom: u64,
}

impl Plane {
    fn x(&self, calls: u64) -> u64 {
        let width = u128::from(WIDTH - LEFT - RIGHT);
        LEFT + (u128::from(calls.min(self.calls)) * width / u128::from(self.calls)) as u64
    }

    fn y(&self, bytes: u64) -> u64 {
        let height = u128::from(self.bottom - self.top);
        self.bottom - (u128::from(bytes.min(self.most)) * height / u128::from(self.most)) as u64
    }

    /// Draws lines with figures: `text` of each to the left, calls below.
    fn grid(&self, svg: &mut String, step: u64, text: impl Fn(u64) -> String) {
        let (right, bottom) = (WIDTH - RIGHT, self.bottom);
        for value in (0..=self.most).step_by(step as usize) {
            let (y, color) = (self.y(value), if value == 0 { "#333" } else { "#ddd" });
            let _ = writeln!(svg, r#"<line x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="{color}"/>"#);
            let (x, y, text) = (LEFT - 8, y + 4, text(value));
            let _ = writeln!(svg, r##"<text x="{x}" y="{y}" text-anchor="end" fill="#333">{text}</text>"##);
        }
        for value in (0..=self.calls).step_by(decimal_step(self.calls, 4) as usize) {
            let (x, y, text) = (self.x(value), bottom + 18, count(value));
            let _ = writeln!(svg, r##"<text x="{x}" y="{y}" text-anchor="middle" fill="#333">{text}</text>"##);
        }
    }

    fn path(&self, samples: &[Sample], figure: impl Fn(&Sample) -> u64) -> String {
        let mut path = format!("M{LEFT} {}", self.bottom);
        for sample in samples {
            let _ = write!(path, "L{} {}", self.x(sample.calls), self.y(figure(sample)));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_are_on_further_lines() {
        assert_eq!(legend(&["requested", "system"]), [(90, 0), (90 + 45 + 72, 0)]);
        let long = "a".repeat(200);
        assert_eq!(legend(&["system", &long, &long, "x", "y"]), [(90, 0), (90, 1), (90, 2), (943, 2), (90, 3)]);
        assert_eq!(shortened(&long).chars().count(), NAME_MAX + 1);
    }
}
