//! Flame graphs as pictures: of stacks that were coloured by their owners, or of a profile for
//! other tools.

use std::collections::BTreeSet;
use std::io::{self, Write};

use heapledger_profile_formats::collapsed::Lines;
use heapledger_profile_formats::{Figure, Profile};
use heapledger_report_format::escape;
use inferno::flamegraph::color::PaletteMap;
use inferno::flamegraph::{self, Options};

use crate::format::{bytes, count};
use crate::views::palette::{self, Paint};

/// The maximum length of the line below the title: each character takes 7 of the picture's 1,200
/// pixels.
const LINE_MAX: usize = 160;

/// A flame graph without its boxes.
pub(crate) struct Picture<'p> {
    pub(crate) title: String,
    /// A line below the title.
    pub(crate) below: String,
    pub(crate) unit: &'p str,
    pub(crate) colors: PaletteMap,
}

impl Picture<'_> {
    pub(crate) fn draw(mut self, lines: &Lines, out: &mut dyn Write) -> io::Result<()> {
        let mut options = Options::default();
        options.title = self.title;
        options.subtitle = (!self.below.is_empty()).then(|| shortened(&self.below));
        options.count_name = self.unit.to_owned();
        options.palette_map = Some(&mut self.colors);
        let lines: Vec<String> = lines.iter().collect();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
    }
}

/// Draws the picture of a profile.
pub(crate) fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let unit = profile.shown.counted();
    let what = match profile.shown {
        Figure::LiveBytes | Figure::LiveBlocks => &*profile.moment,
        Figure::AllocatedBytes | Figure::Allocations | Figure::Temporaries => "allocated in all",
    };
    let notice =
        profile.sampling_bytes.map(|mean| format!("a sample, of one point in {}: figures are estimates", bytes(mean)));
    let lines = Lines::of(profile);
    let all: u64 = lines.stacks().map(|(_, figure)| figure).sum();
    let total = match profile.shown {
        Figure::LiveBytes | Figure::AllocatedBytes => bytes(all),
        Figure::LiveBlocks | Figure::Allocations | Figure::Temporaries => format!("{} {unit}", count(all)),
    };
    let names: BTreeSet<&str> = lines.stacks().flat_map(|(stack, _)| stack.split(';')).collect();
    // A profile does not say whose code a function is.
    let colors = palette::of(names.iter().map(|name| (*name, palette::area(name).unwrap_or(name), Paint::Own)));
    let command = escape(&profile.command).into_owned();
    let picture = Picture { title: title(&command, &total, what), below: notice.unwrap_or(command), unit, colors };
    picture.draw(&lines, out)
}

/// Returns a title such as `server: 412.6 MiB live at the peak (18.2 s)`.
pub(crate) fn title(command: &str, total: &str, what: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    if program.is_empty() { format!("{total} {what}") } else { format!("{program}: {total} {what}") }
}

/// Returns the line, cut to what fits below the title.
fn shortened(line: &str) -> String {
    if line.chars().count() <= LINE_MAX {
        return line.to_owned();
    }
    line.chars().take(LINE_MAX - 1).chain(['…']).collect()
}
