//! The bodies of the fuzz targets of this crate.

use crate::{PhcCoreError, parse, read_core};

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

/// Reads a core file. Must not panic, whatever the bytes.
pub fn core(bytes: &[u8]) {
    match read_core(bytes) {
        Ok(core) => {
            assert!(core.maps.iter().all(|line| !line.contains('\n')));
            assert!(core.build_ids.len() <= core.maps.len());
            if let Ok(file) = core.file() {
                assert!(file.reports.iter().all(|report| report.maps.len() <= core.maps.len()));
            }
        }
        Err(PhcCoreError::NotCore) => {}
        Err(error) => assert!(crate::is_core(bytes) && !error.to_string().is_empty()),
    }
}
