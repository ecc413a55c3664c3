//! Amounts, their standard errors, and sampling rates, for JSON.

use heapledger_analysis::{Amount, Metric, Moment};
use heapledger_recording::{CountErrors, Live, Recording, Sampling};
use serde::Serialize;

use crate::format::seconds;

/// An amount, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AmountJson {
    bytes: u64,
    blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temporary: Option<u64>,
    /// Usable bytes beyond the requested ones. Absent if it is 0, or not asked for (`--metric
    /// slop`).
    #[serde(skip_serializing_if = "Option::is_none")]
    slop: Option<u64>,
    #[serde(flatten)]
    errors: ErrorsJson,
}

impl AmountJson {
    pub(crate) fn new(amount: &Amount, moment: Moment) -> AmountJson {
        AmountJson {
            bytes: amount.bytes.0,
            blocks: amount.blocks.0,
            temporary: (moment == Moment::Total).then_some(amount.temporaries.0),
            slop: Some(amount.slop.0).filter(|&slop| slop > 0),
            errors: ErrorsJson::new(amount),
        }
    }
}

/// The standard errors of an amount, for JSON; present only for estimates.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ErrorsJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_standard_error: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks_standard_error: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temporary_standard_error: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slop_standard_error: Option<u64>,
}

impl ErrorsJson {
    pub(crate) fn new(amount: &Amount) -> ErrorsJson {
        let given = |metric| Some(amount.error(metric)).filter(|&error| error > 0);
        ErrorsJson {
            bytes_standard_error: given(Metric::Bytes),
            blocks_standard_error: given(Metric::Blocks),
            temporary_standard_error: given(Metric::Temporaries),
            slop_standard_error: given(Metric::Slop),
        }
    }
}

/// The standard errors of totals, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TotalErrorsJson {
    bytes_allocated: u64,
    allocations: u64,
    bytes_live_end: u64,
    blocks_live_end: u64,
    bytes_live_max: u64,
    blocks_at_bytes_live_max: u64,
}

impl From<CountErrors> for TotalErrorsJson {
    fn from(errors: CountErrors) -> TotalErrorsJson {
        let pair = |live: Live| (live.bytes.0, live.blocks.0);
        let (bytes_allocated, allocations) = pair(errors.allocated);
        let (bytes_live_end, blocks_live_end) = pair(errors.live_end);
        let (bytes_live_max, blocks_at_bytes_live_max) = pair(errors.live_at_peak);
        TotalErrorsJson {
            bytes_allocated,
            allocations,
            bytes_live_end,
            blocks_live_end,
            bytes_live_max,
            blocks_at_bytes_live_max,
        }
    }
}

/// A sampling rate, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RateJson {
    from_seconds: f64,
    /// The mean distance of sample points, in bytes; null while all blocks were recorded.
    mean_bytes: Option<u64>,
}

/// Returns the rates of a recording; empty if all blocks were recorded.
pub(crate) fn rates_json(recording: &Recording<'_>) -> Vec<RateJson> {
    let rate =
        |one: &Sampling| RateJson { from_seconds: seconds(one.from), mean_bytes: one.rate.mean().map(|mean| mean.0) };
    recording.sampling().iter().map(rate).collect()
}
