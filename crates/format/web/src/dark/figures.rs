//! Formatting of figures.

use heapledger_report_format::grouped;

/// Formats bytes in the unit in which there are at least one, and fewer than 1,024: `1.20 MB`. As
/// in about:memory, a kilobyte has 1,024 bytes.
pub(super) fn bytes(amount: f64) -> String {
    let mut left = amount;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        // An amount that would be shown as 1,024 of one unit is 1 of the next.
        if left.abs() < 1023.995 || unit == "TB" {
            return if unit == "B" { format!("{left:.0} B") } else { format!("{left:.2} {unit}") };
        }
        left /= 1024.0;
    }
    String::new()
}

/// Formats a number with commas.
pub(super) fn number(amount: f64) -> String {
    let digits = format!("{:.0}", amount.abs());
    let sign = if amount < 0.0 && digits != "0" { "-" } else { "" };
    format!("{sign}{}", grouped(&digits))
}

/// Formats a number of things: `1 block`, `2 blocks`.
pub(super) fn counted(amount: f64, what: &str) -> String {
    let number = number(amount);
    let is_one = number == "1" || number == "-1";
    format!("{number} {what}{}", if is_one { "" } else { "s" })
}

/// Formats a part of a whole; empty if there is no whole.
pub(super) fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 { String::new() } else { format!("{:.2}%", part / whole.abs() * 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_for_people() {
        let shown = [0.0, 1023.4, 1024.0, -1536.0, 1048575.9, 3e6, 5e15].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KB", "-1.50 KB", "1.00 MB", "2.86 MB", "4547.47 TB"]);
        let shown = [0.0, -0.2, 999.0, 1000.0, -1234567.0].map(number);
        assert_eq!(shown, ["0", "0", "999", "1,000", "-1,234,567"]);
        assert_eq!((counted(1.0, "block"), counted(0.0, "block")), ("1 block".to_owned(), "0 blocks".to_owned()));
        assert_eq!((percent(1.0, 8.0), percent(1.0, 0.0)), ("12.50%".to_owned(), String::new()));
    }
}
