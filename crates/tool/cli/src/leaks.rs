//! `heapledger leaks`: what was live at the end.

use heapledger_analysis::{Moment, RankBy};

use crate::args::Leaks;
use crate::error::Result;
use crate::input::Input;
use crate::output::Output;
use crate::question::Question;
use crate::ranks::{Depth, Listing};

/// Frames of a stack that are shown.
const FRAMES_MAX: usize = 12;

pub(crate) fn run(arguments: &Leaks, out: &mut Output) -> Result<()> {
    let selection = arguments.which.at(Moment::End);
    let input = Input::find(arguments.input.file.as_deref())?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, arguments.metric.into());
    let profile = question.profile()?;
    let listing = Listing { name: "site", by: RankBy::Site, depth: Depth::Stack(FRAMES_MAX), rows: arguments.rows };
    if arguments.input.json {
        return listing.json(&mut question, &profile, out);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(&profile, out)?;
    if !profile.sites.is_empty() {
        out.aside("Live at the end does not mean unreachable: the program may have used it until then.")?;
    }
    listing.print(&mut question, &profile, out)
}
