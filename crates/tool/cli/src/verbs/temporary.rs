//! `heapledger temporary`: the sites that allocate memory only to free it at once.

use std::time::Duration;

use heapledger_analysis::{LifetimeCondition, Metric};

use crate::args::{Rows, Temporary};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{counted, duration, percent};
use crate::output::Output;
use crate::question::Question;
use crate::views::listing::Listing;
use crate::views::{parts, sampled};

pub(crate) fn run(arguments: &Temporary, out: &mut Output) -> Result<()> {
    let selection = arguments.which.until(arguments.input.at())?;
    let input = arguments.input.find(out)?;
    input.needs_history("the nodes that are there: heapledger heap census FILE")?;
    let recording = input.open()?;
    if recording.is_sample() && matches!(arguments.within, Some(LifetimeCondition::Allocations(_))) {
        let what = "a sample does not tell how many allocations a thread made before it freed a block";
        return Err(
            Failure::new(Exit::Usage, what).hint("freed before the next one: without --within; by time: --within 1ms")
        );
    }
    let mut question =
        Question::new(&input, &recording, &arguments.symbols, selection, Metric::Temporaries).expect_something()?;
    let (by, depth) = match (arguments.by.rows(), &arguments.within) {
        (Rows::Sites(by, depth), _) => (by, depth),
        (Rows::Events(_), Some(_)) => {
            let what = format!("--within is of stacks, which --by {} does not look at", arguments.by.name());
            return Err(Failure::new(Exit::Usage, what).hint("sum up by site, owner or function"));
        }
        (Rows::Events(by), None) => {
            let parts = parts::load(&mut question, by)?;
            if let Some(form) = arguments.input.form() {
                return out.document(&parts::document(&question, &parts, arguments.by.name(), arguments.rows), form);
            }
            return parts::print(&question, &parts, arguments.rows, out);
        }
    };
    let profile = match &arguments.within {
        None if arguments.input.form().is_some() => question.sums()?,
        None => question.profile()?,
        Some(within) => question.profile_within(within)?,
    };
    let listing = Listing { name: arguments.by.name(), by, depth, rows: arguments.rows };
    if let Some(form) = arguments.input.form() {
        return listing.print_document(&mut question, &profile, form, out);
    }
    let part = percent(profile.whole.temporaries.0, profile.whole.blocks.0);
    let [temporary, all] = [Metric::Temporaries, Metric::Blocks].map(|metric| sampled::figure(&profile.whole, metric));
    let what = match &arguments.within {
        None => "temporary".to_owned(),
        Some(LifetimeCondition::Allocations(0)) => "freed before their thread's next allocation".to_owned(),
        Some(LifetimeCondition::Allocations(most)) => {
            format!("freed within {} of their thread", counted(*most, "further allocation", "further allocations"))
        }
        Some(LifetimeCondition::Freed(most)) => format!("freed within {}", duration(Duration::from_nanos(*most))),
        Some(LifetimeCondition::Time(_)) => "of that lifetime".to_owned(),
    };
    out.title(format_args!("{temporary} of {all} allocations were {what} ({part})"))?;
    sampled::print_notice(question.recording, out)?;
    question.filters(&profile.left_out, out)?;
    listing.print(&mut question, &profile, out)
}
