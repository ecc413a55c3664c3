//! The parts that pictures of figures over time share.

use heapledger_report_format::escape;

/// The colours of bands, except for the last band, which is that of all others.
pub(crate) const BAND_COLORS: [&str; 9] =
    ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#ff9da7"];

/// Returns the power of two that fits four to eight times into `most`.
pub(crate) fn binary_step(most: u64) -> u64 {
    (most / 8 + 1).next_power_of_two()
}

/// Returns the largest number of the form 1, 2 or 5 times a power of ten that fits at least `times`
/// times into `most`; at least 1.
pub(crate) fn decimal_step(most: u64, times: u64) -> u64 {
    let mut step = 1_u64;
    for factor in [2, 5, 10].into_iter().cycle() {
        let power = 10_u64.pow(step.ilog10());
        let next = match factor {
            10 => power.saturating_mul(10),
            factor => power * factor,
        };
        if next > most / times || next <= step {
            break;
        }
        step = next;
    }
    step
}

/// Escapes a text for XML.
pub(crate) fn xml(text: &str) -> String {
    escape(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_axes() {
        assert_eq!([1, 8, 9, 1 << 20, 3_000_000].map(binary_step), [1, 2, 2, 1 << 18, 1 << 19]);
        assert_eq!([1, 5, 10, 11, 99, 1_000, 4_999].map(|most| decimal_step(most, 2)), [1, 2, 5, 5, 20, 500, 2_000]);
        assert_eq!(decimal_step(u64::MAX, 5), 2_000_000_000_000_000_000);
    }
}
