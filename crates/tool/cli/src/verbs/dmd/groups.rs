//! Blocks by owner, type, library or context: one table for each kind of record.

use heapledger_dmd::{Analysis, GroupBy, Kind, Record};
use heapledger_report_format::{Layout, Row, Tree};

use crate::format::{bytes, count};

/// The number of rows shown of a table.
const ROWS_MAX: usize = 100;

/// Returns the tables as text.
pub(super) fn text(analysis: &Analysis, defects: bool) -> String {
    let mut text = String::new();
    for kind in &analysis.kinds {
        let title =
            format!("{}: {} in {}", kind.name.name(), amount(kind.total.bytes, bytes), counted(kind.total.blocks));
        text.push_str(&title);
        text.push_str("\n\n");
        // Writing to a String cannot fail.
        let _ = table(analysis, kind).print(&mut text, &Layout { width: None, note: ("", ""), heading: ("", "") });
        text.push('\n');
    }
    if defects {
        text.push_str(&analysis.defects_text());
    }
    text
}

fn table(analysis: &Analysis, kind: &Kind) -> Tree {
    let heap = analysis.heap.bytes;
    let about = if analysis.is_estimated { "~" } else { "" };
    let mut table = Tree::new(["blocks", "bytes", "of kind", "of heap"]);
    let row = |record: &Record| {
        let of = |whole| share(record.usable, whole);
        let cells = [
            format!("{about}{}", amount(record.blocks, count)),
            format!("{about}{}", amount(record.usable, bytes)),
            of(kind.total.bytes),
            of(heap),
        ];
        Row::new(name(analysis.by, record)).cells(cells)
    };
    for record in kind.records.iter().take(ROWS_MAX) {
        table.push(0, row(record));
    }
    let rest = kind.records.len().saturating_sub(ROWS_MAX);
    if rest > 0 {
        table.push(0, Row::default().line("", format!("… {} more: --json shows them", count(rest as u64))));
    }
    table
}

fn name(by: GroupBy, record: &Record) -> String {
    let unknown = match by {
        GroupBy::Type => "(type not known)",
        GroupBy::Module => "(library not known)",
        GroupBy::Context => "(no context)",
        GroupBy::Owner => "(no function of the program's own)",
        GroupBy::Line => "(line not known)",
        GroupBy::File => "(file not known)",
        GroupBy::Function => "(function not known)",
        GroupBy::Stack => "",
    };
    record.name.as_deref().unwrap_or(unknown).to_owned()
}

/// Returns the text of an amount, which may be negative in a difference.
fn amount(number: i64, show: impl Fn(u64) -> String) -> String {
    format!("{}{}", if number < 0 { "-" } else { "" }, show(number.unsigned_abs()))
}

fn counted(blocks: i64) -> String {
    format!("{} {}", amount(blocks, count), if blocks == 1 { "block" } else { "blocks" })
}

fn share(part: i64, whole: i64) -> String {
    if whole == 0 { String::new() } else { format!("{:.2} %", 100.0 * part as f64 / whole as f64) }
}
