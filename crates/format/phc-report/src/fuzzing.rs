//! The body of the fuzz target of this crate.

use crate::parse;

/// Reads a file. Must not panic, whatever the bytes.
pub fn reports(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse(&text) {
        Ok(file) => {
            for report in &file.reports {
                assert!(report.maps.iter().all(|line| !line.is_empty()));
                assert!(report.at.stack.len() <= super::FRAMES_MAX);
            }
        }
        Err(error) => {
            assert!((1..=text.lines().count() + 1).contains(&error.line), "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}
