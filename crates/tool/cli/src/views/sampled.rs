//! Figures of sampled recordings, which are estimates with error bars.
//!
//! An error bar is a 95 % confidence interval: 95 of 100 estimates are no farther from the truth.
//! Figures without an error bar are exact, or nearly: all their blocks were recorded, or the blocks
//! are so large that none was missed.

use heapledger_analysis::{Amount, Metric};
use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::{bar_of_blocks, bar_of_bytes};
use heapledger_recording::{Recording, Sampling};

use crate::error::Result;
use crate::format::{bytes, count, time};
use crate::input::Input;
use crate::output::Output;

/// Says below the title of an answer that the recording is a sample, if it is one.
pub(crate) fn print_notice(recording: &Recording<'_>, out: &mut Output) -> Result<()> {
    match notice(recording) {
        Some(notice) => Ok(out.dim_line(notice)?),
        None => Ok(()),
    }
}

/// Returns the notice for a sampled recording:
/// `a sample, of one point in 512.0 KiB: figures are estimates, with error bars of 95 %`.
pub(crate) fn notice(recording: &Recording<'_>) -> Option<String> {
    recording.is_sample().then(|| {
        let rates = rates(recording.sampling());
        format!("a sample, of {rates}: figures are estimates, with error bars of 95 %")
    })
}

/// Formats the sampling rates in the order in which they applied.
fn rates(sampling: &[Sampling]) -> String {
    /// The most rates that are listed.
    const RATES_MAX: usize = 4;
    let told = |(at, one): (usize, &Sampling)| match at {
        0 => rate(one.rate),
        _ => format!("{} from {} on", rate(one.rate), time(one.from)),
    };
    let mut rates: Vec<String> = sampling.iter().enumerate().take(RATES_MAX).map(told).collect();
    if sampling.len() > RATES_MAX {
        rates.push("…".to_owned());
    }
    rates.join(", ")
}

/// Formats a rate: `one point in 512.0 KiB`.
pub(crate) fn rate(rate: Rate) -> String {
    rate.mean().map_or_else(|| "all blocks".to_owned(), |mean| format!("one point in {}", bytes(mean.0)))
}

/// Formats an amount's bytes for a sentence: `412.6 MiB ± 9.1 MiB`.
pub(crate) fn bytes_of(amount: &Amount) -> String {
    figure(amount, Metric::Bytes)
}

/// Formats a figure of an amount for a sentence: `412.6 MiB ± 9.1 MiB`, `1,234 ± 55`.
pub(crate) fn figure(amount: &Amount, metric: Metric) -> String {
    let shown = shown(metric);
    with_bar(shown(amount.by(metric)), bar(amount, metric), shown)
}

impl Input {
    /// Formats an amount's blocks, or mappings in their place, with their unit: `1,234 blocks`.
    pub(crate) fn counted(&self, amount: &Amount) -> String {
        match self.counts_mappings() {
            true => blocks_of(amount, "mapping", "mappings"),
            false => blocks_of(amount, "block", "blocks"),
        }
    }
}

/// Formats an amount's blocks with their unit: `1,234 ± 55 blocks`.
pub(crate) fn blocks_of(amount: &Amount, one: &str, more: &str) -> String {
    let unit = if amount.blocks.0 == 1 { one } else { more };
    format!("{} {unit}", figure(amount, Metric::Blocks))
}

/// Formats bytes with a standard error: `412.6 MiB ± 9.1 MiB`.
pub(crate) fn bytes_with(figure: Bytes, error: Bytes) -> String {
    with_bar(bytes(figure.0), bar_of_bytes(figure, error).0, bytes)
}

/// Formats a number of blocks with a standard error: `1,234 ± 55`.
pub(crate) fn count_with(figure: Blocks, error: Blocks) -> String {
    with_bar(count(figure.0), bar_of_blocks(figure, error).0, count)
}

/// Appends an error bar to a figure.
pub(crate) fn with_bar(figure: String, bar: u64, shown: fn(u64) -> String) -> String {
    match bar {
        0 => figure,
        bar => format!("{figure} ± {}", shown(bar)),
    }
}

/// Formats a figure of an amount for a table: `412.6 MiB ±2 %`.
pub(crate) fn cell(amount: &Amount, metric: Metric) -> String {
    let shown = shown(metric);
    with_percent(shown(amount.by(metric)), amount.by(metric), bar(amount, metric))
}

/// Formats bytes with a standard error for a table: `412.6 MiB ±2 %`.
pub(crate) fn bytes_cell(figure: Bytes, error: Bytes) -> String {
    with_percent(bytes(figure.0), figure.0, bar_of_bytes(figure, error).0)
}

/// Formats a number of blocks with a standard error for a table: `1,234 ±4 %`.
pub(crate) fn count_cell(figure: Blocks, error: Blocks) -> String {
    with_percent(count(figure.0), figure.0, bar_of_blocks(figure, error).0)
}

/// Appends an error bar in percent of the figure.
fn with_percent(shown: String, figure: u64, bar: u64) -> String {
    match bar {
        0 => shown,
        bar => {
            let percent = bar as f64 * 100.0 / figure.max(1) as f64;
            if percent < 0.95 { format!("{shown} ±<1 %") } else { format!("{shown} ±{percent:.0} %") }
        }
    }
}

/// Returns the function that formats a figure of a metric.
pub(crate) fn shown(metric: Metric) -> fn(u64) -> String {
    match metric {
        Metric::Bytes | Metric::Slop => bytes,
        Metric::Blocks | Metric::Temporaries => count,
    }
}

/// Returns the error bar of a figure.
pub(crate) fn bar(amount: &Amount, metric: Metric) -> u64 {
    let (figure, error) = (amount.by(metric), amount.error(metric));
    match metric {
        Metric::Bytes | Metric::Slop => bar_of_bytes(Bytes(figure), Bytes(error)).0,
        Metric::Blocks | Metric::Temporaries => bar_of_blocks(Blocks(figure), Blocks(error)).0,
    }
}

#[cfg(test)]
mod tests {
    use heapledger_recording::Time;

    use super::*;

    #[test]
    fn error_bars_are_wider_than_two_standard_errors() {
        let mut amount = Amount { bytes: Bytes(10 << 20), blocks: Blocks(1000), ..Amount::default() };
        assert_eq!(
            (bytes_of(&amount), blocks_of(&amount, "block", "blocks")),
            ("10.0 MiB".into(), "1,000 blocks".into())
        );
        assert_eq!((cell(&amount, Metric::Bytes), cell(&amount, Metric::Blocks)), ("10.0 MiB".into(), "1,000".into()));
        amount.variance.bytes = 1 << 40;
        amount.variance.blocks = 9;
        assert_eq!(bytes_of(&amount), "10.0 MiB ± 2.2 MiB");
        assert_eq!(blocks_of(&amount, "block", "blocks"), "1,000 ± 6 blocks");
        assert_eq!(
            (cell(&amount, Metric::Bytes), cell(&amount, Metric::Blocks)),
            ("10.0 MiB ±22 %".into(), "1,000 ±<1 %".into())
        );
    }

    #[test]
    fn rates_are_told_one_after_the_other() {
        let at = |seconds: u64, logarithm| Sampling {
            from: Time(seconds * 1_000_000_000),
            rate: Rate::from_logarithm(logarithm),
        };
        assert_eq!(rates(&[at(0, 19)]), "one point in 512.0 KiB");
        assert_eq!(rates(&[at(0, 19), at(3, 0)]), "one point in 512.0 KiB, all blocks from 3.0 s on");
    }
}
