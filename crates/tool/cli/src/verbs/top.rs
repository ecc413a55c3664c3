//! `heapledger top`: the functions, sites or other groups that hold or allocate the most.

use crate::args::{Rows, Top};
use crate::error::Result;
use crate::output::Output;
use crate::question::Question;
use crate::views::listing::Listing;
use crate::views::parts;

pub(crate) fn run(arguments: &Top, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find_as(arguments.what.counts_mappings(), out)?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let (name, rows) = (arguments.by.name(), arguments.rows);
    let (by, depth) = match arguments.by.rows() {
        Rows::Sites(by, depth) => (by, depth),
        Rows::Events(by) => {
            let parts = parts::load(&mut question, by)?;
            if let Some(form) = arguments.input.form() {
                return out.document(&parts::document(&question, &parts, name, rows), form);
            }
            return parts::print(&question, &parts, rows, out);
        }
    };
    let form = arguments.input.form();
    let profile = if form.is_some() { question.sums() } else { question.profile() }?;
    let listing = Listing { name, by, depth, rows };
    if let Some(form) = form {
        return listing.print_document(&mut question, &profile, form, out);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(profile.allocated, out)?;
    listing.print(&mut question, &profile, out)
}
