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
/// The color of what is requested.
const REQUESTED_COLOR: &str = "#333";

/// The unit of fragmentation in the picture: a part in a million.
const MILLION: u64 = 1_000_000;

/// Draws the runs.
pub(super) fn draw(figures: &Figures<'_>) -> String {
    let samples = || figures.totals.iter().flat_map(|run| &run.samples);
    let most = samples().map(|sample| sample.resident.max(sample.requested)).max().unwrap_or(0).max(1);
    let calls = figures.calls().max(1);
    let plane = Plane { calls, most, top: TOP, bottom: MEMORY_BOTTOM };
    let below = Plane { calls, most: MILLION, top: FRAGMENTATION_TOP, bottom: HEIGHT - BOTTOM };
    let title = format!("Resident memory of {} calls", count(figures.calls()));
    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12">
<title>{title}</title>
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="26" font-size="15" font-weight="bold">{title}</text>
<text x="{LEFT}" y="46" fill="#555">anonymous memory beyond that before the first call, by allocator</text>
"##
    );
    plane.grid(&mut svg, binary_step(most), bytes);
    below.grid(&mut svg, MILLION / 4, |parts| share(parts as f64 / MILLION as f64));
    let y = FRAGMENTATION_TOP - 14;
    let says = "fragmentation: the part of resident memory that is in no live block";
    let _ = writeln!(svg, r##"<text x="{LEFT}" y="{y}" fill="#555">{says}</text>"##);
    let requested = figures.totals.first().map(|run| plane.path(&run.samples, |sample| sample.requested));
    let lines = requested.into_iter().map(|path| ("requested", path, REQUESTED_COLOR));
    let resident = figures.rows().zip(BAND_COLORS.iter().cycle());
    let resident = resident.map(|((name, run), color)| {
        let fragmentation = |sample: &Sample| (sample.fragmentation() * MILLION as f64) as u64;
        let path = plane.path(&run.samples, |sample| sample.resident) + &below.path(&run.samples, fragmentation);
        (name, path, *color)
    });
    let mut x = LEFT;
    for (name, path, color) in lines.chain(resident) {
        let dashes = if color == REQUESTED_COLOR { r#" stroke-dasharray="4 3""# } else { "" };
        let _ = writeln!(svg, r#"<path d="{path}" fill="none" stroke="{color}" stroke-width="1.5"{dashes}/>"#);
        let _ = writeln!(svg, r#"<rect x="{x}" y="60" width="14" height="4" fill="{color}"/>"#);
        let _ = writeln!(svg, r##"<text x="{}" y="67" fill="#333">{}</text>"##, x + 20, xml(name));
        x += 45 + name.chars().count() as u64 * 8;
    }
    svg.push_str("</svg>\n");
    svg
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
