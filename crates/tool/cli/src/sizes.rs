//! `heapledger sizes`: a histogram by size class.

use heapledger_analysis::{Amount, By, Part};
use heapledger_core::Bytes;
use heapledger_reports::Row;

use crate::args::Sizes;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::bytes;
use crate::input::Input;
use crate::output::Output;
use crate::parts::{self, Parts};
use crate::question::Question;
use crate::ranks::{Columns, print_rows};

/// Characters of the longest bar.
const WIDTH: u64 = 40;
/// Parts of a character.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

pub(crate) fn run(arguments: &Sizes, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve().map_err(|why| Failure::new(Exit::Usage, why))?;
    let input = Input::find(arguments.input.file.as_deref())?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let mut parts = parts::load(&mut question, By::SizeClass)?;
    parts.parts.sort_by_key(|(part, _)| *part);
    if arguments.input.json {
        return out.json(&parts::document(&question, &parts, "size_class", 0));
    }
    question.headline(&parts.whole, &parts.left_out, out)?;
    question.allocated(parts.allocated, out)?;
    let most = parts.parts.iter().map(|(_, amount)| amount.by(metric)).max().unwrap_or_default();
    let rows: Vec<(Row, Amount)> = classes(&parts)
        .into_iter()
        .map(|(class, amount)| {
            let text = format!("{:>10}", format!("≤ {}", bytes(class.0)));
            (Row::default().line(text, bar(amount.by(metric), most)), amount)
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    print_rows(Columns::new(metric, question.selection.moment), &parts.whole, rows, [], out)
}

/// The classes from the smallest to the largest, those between them that hold nothing included.
fn classes(parts: &Parts) -> Vec<(Bytes, Amount)> {
    let mut classes: Vec<(Bytes, Amount)> = Vec::new();
    for (part, amount) in &parts.parts {
        let Part::SizeClass(class) = *part else { continue };
        while let Some((last, _)) = classes.last()
            && let Some(next) = last.0.checked_mul(2)
            && next < class.0
        {
            classes.push((Bytes(next), Amount::default()));
        }
        classes.push((class, *amount));
    }
    classes
}

fn bar(figure: u64, most: u64) -> String {
    let eighths = (u128::from(figure) * u128::from(WIDTH * 8)).div_ceil(u128::from(most.max(1))) as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(bar(0, 100), "");
        assert_eq!(bar(1, 1_000_000), "▏");
        assert_eq!(bar(50, 100), "█".repeat(20));
        assert_eq!(bar(u64::MAX, u64::MAX), "█".repeat(40));
    }
}
