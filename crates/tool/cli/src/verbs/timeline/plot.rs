//! A plot made of characters.

use std::io;

use heapledger_recording::Time;
use heapledger_report_format::without_middle;

use crate::format::{bytes, time};

/// The appearance of a plot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// True if the plot uses block characters with a resolution of an eighth of a row, false for
    /// plain ASCII.
    pub(crate) unicode: bool,
    pub(crate) colors: bool,
}

impl Look {
    /// Formats a moment in the characters that the plot may use.
    pub(crate) fn time(self, moment: Time) -> String {
        let text = time(moment);
        if self.unicode { text } else { text.replace('µ', "u") }
    }
}

/// An area over time with a line on the same scale, and strips below on scales of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plot {
    /// The bytes of the area, by column.
    pub(crate) area: Vec<Option<u64>>,
    /// The bytes of the line, by column.
    pub(crate) line: Option<Vec<Option<u64>>>,
    /// The column of the area's peak.
    pub(crate) peak: usize,
    /// The columns where something happened, each with its letter.
    pub(crate) marks: Vec<(usize, char)>,
    /// The label at the left end of the axis.
    pub(crate) from: String,
    /// The label at the right end.
    pub(crate) to: String,
    pub(crate) strips: Vec<Strip>,
    /// The longest line in characters: notes that do not fit go above their strips.
    pub(crate) width: Option<usize>,
}

/// One row of figures over time.
#[derive(Clone, Debug)]
pub(crate) struct Strip {
    name: &'static str,
    values: Vec<Option<u64>>,
    most: String,
    /// The value that is drawn at full height, if it is not the largest of its own.
    full: Option<u64>,
    /// The text after the largest figure.
    note: String,
}

impl Strip {
    /// Draws this value at full height, so that several strips can be compared.
    pub(crate) fn scaled_to(mut self, full: u64) -> Strip {
        self.full = Some(full);
        self
    }

    /// Adds a note at the end of the strip.
    pub(crate) fn note(mut self, note: &str) -> Strip {
        self.note = note.to_owned();
        self
    }

    pub(crate) fn new(name: &'static str, values: Vec<Option<u64>>, format: impl Fn(u64) -> String) -> Strip {
        let most = format(largest(&values));
        Strip { name, values, most, full: None, note: String::new() }
    }
}

/// The number of rows of the area.
const ROWS: usize = 12;
/// The characters before the first column: a figure, a space, the axis.
const MARGIN: usize = 12;
/// The characters after the last column of a strip: its largest figure.
const FIGURE: usize = 17;
const COLUMNS_MIN: usize = 10;

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_LEVELS: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];
const LINE_COLOR: (&str, &str) = ("\x1b[33m", "\x1b[0m");
const PLAIN: (&str, &str) = ("", "");

fn largest(values: &[Option<u64>]) -> u64 {
    values.iter().flatten().copied().max().unwrap_or(0)
}

impl Plot {
    /// Returns the number of columns that fit into a line of this many characters.
    pub(crate) fn columns(width: usize) -> usize {
        width.saturating_sub(MARGIN + FIGURE).max(COLUMNS_MIN)
    }

    /// Prints the plot line by line.
    pub(crate) fn print(&self, look: Look, line: &mut dyn FnMut(String) -> io::Result<()>) -> io::Result<()> {
        let most = largest(&self.area).max(self.line.as_deref().map_or(0, largest)).max(1);
        if self.line.is_some() {
            let (area, dots) = if look.unicode { ('█', '•') } else { ('#', 'o') };
            let (start, end) = if look.colors { LINE_COLOR } else { PLAIN };
            line(format!("{:MARGIN$}{area} live   {start}{dots} resident{end}", ""))?;
        }
        for row in (0..ROWS).rev() {
            let figure = match row {
                _ if row == ROWS - 1 => bytes(most),
                _ if row == ROWS / 2 - 1 => bytes(most / 2),
                _ => String::new(),
            };
            let axis = match (look.unicode, figure.is_empty()) {
                (true, false) => '┤',
                (true, true) => '│',
                (false, false) => '+',
                (false, true) => '|',
            };
            line(
                format!("{figure:>width$} {axis}{}", self.row(row, most, look), width = MARGIN - 2).trim_end().into(),
            )?;
        }
        line(self.axis(look))?;
        let columns = self.area.len();
        let gap = columns.saturating_sub(self.from.chars().count() + self.to.chars().count()).max(1);
        line(format!("{:MARGIN$}{}{:gap$}{}", "", self.from, "", self.to))?;
        if !self.strips.is_empty() {
            line(String::new())?;
        }
        for strip in &self.strips {
            let most = strip.full.unwrap_or(0).max(largest(&strip.values)).max(1);
            let levels = if look.unicode { EIGHTHS } else { ASCII_LEVELS };
            let level = |value: &Option<u64>| match value {
                None | Some(0) => ' ',
                // Any value above 0 is visible, however small it is.
                Some(value) => levels[(scaled(*value, most, 8)).max(1)],
            };
            let row: String = strip.values.iter().map(level).collect();
            let text = format!("{:>width$}  {row}  max {}", strip.name, strip.most, width = MARGIN - 2);
            let length = text.chars().count() + 2 + strip.note.chars().count();
            match self.width {
                _ if strip.note.is_empty() => line(text)?,
                Some(width) if length > width => {
                    let room = width.saturating_sub(MARGIN);
                    line(format!("{:MARGIN$}{}", "", without_middle(&strip.note, room)))?;
                    line(text)?;
                }
                _ => line(format!("{text}  {}", strip.note))?,
            }
        }
        Ok(())
    }

    /// Returns one row of the area, with the line over it. Row 0 is at the bottom.
    fn row(&self, row: usize, most: u64, look: Look) -> String {
        let mut text = String::new();
        for (column, area) in self.area.iter().enumerate() {
            let filled = scaled(area.unwrap_or(0), most, ROWS * 8).max(usize::from(area.unwrap_or(0) > 0));
            let eighths = filled.saturating_sub(row * 8).min(8);
            let line = self.line.as_ref().and_then(|line| line[column]);
            let is_line =
                line.is_some_and(|line| line > 0 && scaled(line, most, ROWS * 8).saturating_sub(1) / 8 == row);
            if is_line {
                let (start, end) = if look.colors { LINE_COLOR } else { PLAIN };
                let dot = if look.unicode { '•' } else { 'o' };
                text.push_str(start);
                text.push(dot);
                text.push_str(end);
            } else if look.unicode {
                text.push(EIGHTHS[eighths]);
            } else {
                text.push(if eighths >= 4 || (row == 0 && eighths > 0) { '#' } else { ' ' });
            }
        }
        text
    }

    fn axis(&self, look: Look) -> String {
        let (corner, dash, peak) = if look.unicode { ('└', '─', '▲') } else { ('+', '-', '^') };
        let mut axis = vec![dash; self.area.len()];
        for &(column, letter) in self.marks.iter().rev() {
            if let Some(place) = axis.get_mut(column) {
                *place = letter;
            }
        }
        if let Some(place) = axis.get_mut(self.peak) {
            *place = peak;
        }
        let axis: String = axis.into_iter().collect();
        format!("{:>width$} {corner}{axis}", "0 B", width = MARGIN - 2)
    }
}

/// Scales a value to `steps` steps, rounded to the nearest.
fn scaled(value: u64, most: u64, steps: usize) -> usize {
    let (value, most, steps) = (u128::from(value), u128::from(most), steps as u128);
    ((value * steps * 2 + most) / (most * 2)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let area: Vec<Option<u64>> = (0..12).map(|step| (step > 0).then_some(step * 1024)).collect();
        let line = area.iter().map(|value| value.map(|_| 6 * 1024)).collect();
        let strips = vec![Strip::new("blocks", area.clone(), |most| most.to_string())];
        let (from, to) = ("0 µs".to_owned(), "1.0 s".to_owned());
        Plot { area, line: Some(line), peak: 11, marks: vec![(0, 'a'), (4, 'b')], from, to, strips, width: None }
    }

    fn printed(plot: &Plot, unicode: bool, colors: bool) -> String {
        let mut text = String::from("\n");
        let mut push = |line: String| {
            text.push_str(&line);
            text.push('\n');
            Ok(())
        };
        plot.print(Look { unicode, colors }, &mut push).unwrap();
        text
    }

    #[test]
    fn with_blocks() {
        assert_eq!(
            printed(&plot(), true, false),
            "
            █ live   • resident
  11.0 KiB ┤           █
           │          ▇█
           │         ▇██
           │        ▆███
           │       ▅████
           │ •••••••••••
   5.5 KiB ┤     ▄██████
           │    ▃███████
           │   ▂████████
           │  ▁█████████
           │ ▁██████████
           │ ███████████
       0 B └a───b──────▲
            0 µs   1.0 s

    blocks   ▁▁▂▃▄▄▅▆▇▇█  max 11264
"
        );
    }

    #[test]
    fn long_notes_are_above() {
        let mut plot = plot();
        plot.strips = vec![plot.strips[0].clone().note("package::of::a::long::name  …/src/hint.rs:99, via read")];
        let last = |plot: &Plot, lines: usize| {
            let text = printed(plot, true, false);
            text.lines()
                .rev()
                .take(lines)
                .map(|line| format!("{line}\n"))
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect()
        };
        let strip: String = last(&plot, 1);
        assert_eq!(
            strip,
            "    blocks   ▁▁▂▃▄▄▅▆▇▇█  max 11264  package::of::a::long::name  …/src/hint.rs:99, via read\n"
        );
        plot.width = Some(50);
        let strip: String = last(&plot, 2);
        let expected = "
            package::of::a::long::nam…99, via read
    blocks   ▁▁▂▃▄▄▅▆▇▇█  max 11264
";
        assert_eq!(strip, expected[1..]);
    }

    #[test]
    fn in_ascii() {
        let look = Look { unicode: false, colors: false };
        let text = printed(&Plot { from: look.time(Time(0)), ..plot() }, false, false);
        assert!(text.is_ascii(), "{text}");
        assert!(text.contains("            # live   o resident\n  11.0 KiB +           #\n"), "{text}");
        assert!(text.contains("\n       0 B +a---b------^\n"), "{text}");
        assert!(text.contains("\n    blocks   ..:-==+*##@  max 11264\n"), "{text}");
    }

    #[test]
    fn colours_change_nothing_else() {
        let colored = printed(&plot(), true, true);
        assert!(colored.contains('\x1b'));
        assert_eq!(colored.replace("\x1b[33m", "").replace("\x1b[0m", ""), printed(&plot(), true, false));
    }

    #[test]
    fn nothing_at_all() {
        let plot = Plot { area: vec![None; 20], ..Plot::default() };
        assert!(printed(&plot, true, false).contains("0 B └▲──"));
    }

    #[test]
    fn scales() {
        assert_eq!([0, 1, 50, 99, 100].map(|value| scaled(value, 100, 8)), [0, 0, 4, 8, 8]);
        assert_eq!(scaled(u64::MAX, u64::MAX, 96), 96);
    }
}
