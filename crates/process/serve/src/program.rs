//! The program that this is a part of, as what the page is of.

use std::time::{SystemTime, UNIX_EPOCH};

use heapledger_page::{Abilities, Source, Wish};
use heapledger_reports::Reports;

/// The program that this is a part of.
#[derive(Debug, Default)]
pub struct Program {
    _private: (),
}

impl Source for Program {
    fn title(&self) -> String {
        let path = std::env::current_exe().unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        format!("{name} (pid {})", std::process::id())
    }

    fn abilities(&self) -> Abilities {
        Abilities { measure: true, minimise: true, allocator: true }
    }

    fn measure(&self, _: Wish) -> Result<Reports, String> {
        let bytes = std::fs::read(std::env::args().nth(1).unwrap()).unwrap();
        Reports::parse(&bytes).map_err(|e| e.to_string())
    }

    fn minimise(&self) -> Result<(), String> {
        // SAFETY: it takes no pointer; any padding will do.
        unsafe { libc::malloc_trim(0) };
        Ok(())
    }

    fn allocator(&self) -> Result<String, String> {
        Ok("x".to_owned())
    }

    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }
}
