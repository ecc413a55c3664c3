//! An analysis as text, byte for byte as Mozilla's script prints it; and what we know beyond that.

use std::fmt::Write as _;

use heapledger_report_format::grouped;

use crate::analysis::{Analysis, DefectRecord, Kind, KindName, Record, Share, Total};
use crate::log::{DefectKind, Mode};

/// The most records of a list in the text.
pub const RECORDS_MAX: usize = 1000;
/// The most types and contexts of a record that are shown.
const SHARES_MAX: usize = 4;

/// The options for what is shown beyond the output of Mozilla's script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// True to show types, contexts, and the names of reporters.
    pub details: bool,
    /// True to show the defects of reporters, if there are any.
    pub defects: bool,
}

impl Analysis {
    /// Returns the analysis as text. `command` is the line with the command that prints it.
    pub fn text(&self, command: &str, options: &TextOptions) -> String {
        let mut text = Text { out: String::new(), analysis: self, options };
        text.head(command);
        for kind in &self.kinds {
            text.kind(kind);
        }
        text.summary();
        if options.defects {
            text.defects();
        }
        text.out
    }

    /// Returns the defects of reporters, as text; empty if there are none.
    pub fn defects_text(&self) -> String {
        let mut text = Text { out: String::new(), analysis: self, options: &TextOptions::default() };
        text.defects();
        text.out
    }
}

struct Text<'a> {
    out: String,
    analysis: &'a Analysis,
    options: &'a TextOptions,
}

/// Writes a line to a `String`, which cannot fail.
macro_rules! line {
    ($text:expr, $($arguments:tt)*) => {{
        let _ = writeln!($text.out, $($arguments)*);
    }};
}

impl Text<'_> {
    fn separator(&mut self) {
        line!(self, "#{}", "-".repeat(65));
    }

    fn head(&mut self, command: &str) {
        self.separator();
        line!(self, "# {command}\n");
        let mode = self.analysis.mode.name();
        for (at, variable) in self.analysis.variables.iter().enumerate() {
            let number = if self.analysis.variables.len() > 1 { format!(" {}", at + 1) } else { String::new() };
            line!(self, "Invocation{number} {{");
            match variable {
                Some(variable) => line!(self, "  $DMD = '{variable}'"),
                None => line!(self, "  $DMD is undefined"),
            }
            line!(self, "  Mode = '{mode}'\n}}\n");
        }
    }

    fn kind(&mut self, kind: &Kind) {
        self.separator();
        line!(self, "");
        let name = kind.name.name();
        if kind.records_count == 0 {
            line!(self, "# no {name} heap blocks\n");
        }
        let mut cumulative = 0_i64;
        for (at, record) in kind.records.iter().enumerate() {
            if at + 1 == RECORDS_MAX {
                line!(self, "# {}: stopping after {} heap block records\n", capitalized(name), number(at as i64 + 1));
                break;
            }
            cumulative = cumulative.saturating_add(record.usable);
            self.record(kind, at + 1, record, cumulative);
        }
    }

    fn record(&mut self, kind: &Kind, at: usize, record: &Record, cumulative: i64) {
        line!(self, "{} {{", capitalized(kind.name.name()));
        self.amounts(kind, at, record);
        let heap = self.analysis.heap.bytes;
        let [share, so_far] = [record.usable, cumulative].map(|bytes| percent(bytes, heap));
        line!(self, "  {share:4.2}% of the heap ({so_far:4.2}% cumulative)");
        if self.analysis.mode == Mode::DarkMatter {
            let [share, so_far] = [record.usable, cumulative].map(|bytes| percent(bytes, kind.total.bytes));
            line!(self, "  {share:4.2}% of {} ({so_far:4.2}% cumulative)", kind.name.name());
        }
        if self.options.details {
            self.shares("Type", &record.types);
            self.shares("Context", &record.contexts);
        }
        self.stack("Allocated at", &record.alloc);
        for (at, report) in record.reports.iter().enumerate() {
            let again = if at > 0 { " again" } else { "" };
            let by = match report.reporters.as_slice() {
                names if self.options.details && !names.is_empty() => format!(" by {}", names.join(", ")),
                _ => String::new(),
            };
            self.stack(&format!("Reported{again}{by} at"), &report.stack);
        }
        line!(self, "}}\n");
    }

    /// Writes the numbers and sizes of a record.
    fn amounts(&mut self, kind: &Kind, at: usize, record: &Record) {
        let Record { blocks, usable, requested, slop, .. } = record;
        let plural = if *blocks == 1 { "" } else { "s" };
        let [blocks, usable, requested, slop] = [*blocks, *usable, *requested, *slop].map(number);
        let [number_shown, count_shown] = [at, kind.records_count].map(|it| number(it as i64));
        match record.estimate {
            None => line!(self, "  {blocks} block{plural} in heap block record {number_shown} of {count_shown}"),
            Some(estimate) => {
                let error = number(estimate.blocks_error.round() as i64);
                let sampled = number(estimate.sampled_blocks.min(i64::MAX as u64) as i64);
                line!(
                    self,
                    "  ~{blocks} block{plural} (± {error}; {sampled} sampled) in heap block record {number_shown} of {count_shown}"
                );
            }
        }
        if !record.addresses.is_empty() {
            // Sorted as texts, as the script does.
            let mut addresses: Vec<String> = record.addresses.iter().map(|address| format!("0x{address:x}")).collect();
            addresses.sort();
            line!(self, "  block addresses: {}", addresses.join(", "));
        }
        match record.estimate {
            None => line!(self, "  {usable} bytes ({requested} requested / {slop} slop)"),
            Some(estimate) => {
                let error = number(estimate.bytes_error.round() as i64);
                line!(self, "  ~{usable} bytes (± {error}; ~{requested} requested / ~{slop} slop)");
            }
        }
        if !matches!(record.sizes.as_slice(), [(_, 1)]) {
            let size = |(size, count): &(i64, i64)| match count {
                ..=1 => number(*size),
                _ => format!("{} x {}", number(*size), number(*count)),
            };
            let sizes: Vec<String> = record.sizes.iter().map(size).collect();
            let sizes = if sizes.is_empty() { "(no change)".to_owned() } else { sizes.join("; ") };
            line!(self, "  Individual block sizes: {sizes}");
        }
    }

    fn shares(&mut self, what: &str, shares: &[Share]) {
        let known = shares.iter().filter(|share| share.name.is_some()).count();
        if known == 0 {
            return;
        }
        let name = |share: &Share| share.name.as_deref().unwrap_or("(unknown)").to_owned();
        if let [share] = shares {
            line!(self, "  {what}: {}", name(share));
            return;
        }
        let show = |share: &Share| format!("{} ({} bytes)", name(share), number(share.bytes));
        let mut shown: Vec<String> = shares.iter().take(SHARES_MAX).map(show).collect();
        if shares.len() > SHARES_MAX {
            shown.push(format!("{} more", number((shares.len() - SHARES_MAX) as i64)));
        }
        line!(self, "  {what}s: {}", shown.join("; "));
    }

    fn stack(&mut self, what: &str, frames: &[std::sync::Arc<str>]) {
        line!(self, "  {what} {{");
        for (at, frame) in frames.iter().enumerate() {
            line!(self, "    #{:02}: {frame}", at + 1);
        }
        line!(self, "  }}");
    }

    fn summary(&mut self) {
        self.separator();
        line!(self, "\nSummary {{");
        if self.analysis.mode == Mode::DarkMatter {
            let heap = self.analysis.heap;
            self.total("Total:", &heap, [100.0, 100.0]);
            for name in [KindName::Unreported, KindName::OnceReported, KindName::TwiceReported] {
                let total = self.analysis.kind(name).map(|kind| kind.total).unwrap_or_default();
                let shares = [percent(total.bytes, heap.bytes), percent(total.blocks, heap.blocks)];
                self.total(&format!("{}:", capitalized(name.name())), &total, shares);
            }
        } else {
            for kind in &self.analysis.kinds {
                let Total { bytes, blocks, .. } = kind.total;
                line!(self, "  Total: {} bytes in {} blocks", number(bytes), number(blocks));
            }
        }
        line!(self, "}}\n");
    }

    fn total(&mut self, label: &str, total: &Total, shares: [f64; 2]) {
        let [bytes, blocks] = [total.bytes, total.blocks].map(number);
        let [of_bytes, of_blocks] = shares;
        line!(self, "  {label:15} {bytes:>12} bytes ({of_bytes:6.2}%) in {blocks:>7} blocks ({of_blocks:6.2}%)");
    }

    fn defects(&mut self) {
        let analysis = self.analysis;
        if analysis.defects.is_empty() && analysis.defects_count == 0 {
            return;
        }
        self.separator();
        line!(self, "\n# {} of reporters\n", counted(analysis.defects_count, "defect", "defects"));
        for flaw in &analysis.defects {
            self.flaw(flaw);
        }
        let shown = analysis.defects.iter().map(|flaw| flaw.count).fold(0, u64::saturating_add);
        if shown < analysis.defects_count {
            line!(self, "# {} more are not in the log\n", number((analysis.defects_count - shown) as i64));
        }
    }

    fn flaw(&mut self, flaw: &DefectRecord) {
        let reporter = flaw.reporter.as_deref().unwrap_or("a reporter without a name");
        line!(self, "Defect {{\n  {reporter}: {}", flaw.what());
        if flaw.kind != DefectKind::Unmarked {
            line!(self, "  {} of it, one at 0x{:x}", counted(flaw.count, "report", "reports"), flaw.address);
        }
        if let Some(stack) = &flaw.stack {
            self.stack("Reported at", stack);
        }
        if let Some(stack) = &flaw.alloc {
            self.stack("Allocated at", stack);
        }
        line!(self, "}}\n");
    }
}

impl DefectRecord {
    /// Returns the defect as a sentence without its end.
    pub fn what(&self) -> String {
        let [measured, usable] = [self.measured, self.usable].map(|bytes| counted(bytes, "byte", "bytes"));
        match self.kind {
            DefectKind::NoBlock => "reported an address at which no live block is".to_owned(),
            DefectKind::Interior => format!("reported an address inside a block of {usable}, not its beginning"),
            DefectKind::NotHeap => "reported memory as heap that is not of the heap".to_owned(),
            DefectKind::Partly => format!("measured {measured} of a block of {usable}"),
            DefectKind::FreedWhileReported => {
                format!("a block of {usable} was freed while its report counted")
            }
            DefectKind::Unmarked => format!("reported {measured} as heap, and marked blocks of {usable}"),
        }
    }
}

fn capitalized(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// Formats a whole number with its thousands separated.
pub(crate) fn number(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(&number.unsigned_abs().to_string()))
}

pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(count.min(i64::MAX as u64) as i64), if count == 1 { one } else { many })
}

/// Returns the part of the whole, in percent; 0 if the whole is 0.
pub(crate) fn percent(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { (100 * i128::from(part)) as f64 / whole as f64 }
}
