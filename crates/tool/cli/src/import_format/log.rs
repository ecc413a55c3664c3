//! Recordings of logs of allocator calls.

use std::fmt;
use std::fs::File;
use std::io::BufRead;

use heapledger_alloc_log::{Line, for_each_line};
use heapledger_analysis::rewrite::Draft;
use heapledger_analysis::{ImportedLog, LogFacts, LogLineError};
use heapledger_report_format::escape;

use super::{ImportError, count_and_finish};

/// The number of lines by which a log is detected.
const LINES: usize = 16;

/// A log that was made a recording.
#[derive(Debug)]
pub(crate) struct ImportedFile {
    pub(crate) facts: LogFacts,
    /// The number of lines that were left out, and the first of them.
    pub(crate) left_out: Option<(u64, LogError)>,
}

/// A line of a log that cannot be read.
#[derive(Clone, Debug)]
pub(crate) enum LogError {
    /// It cannot be in a recording: its number, the reason, and its beginning.
    Line { number: u64, why: String, text: String },
    /// There is no call at all.
    NoCall,
}

impl std::error::Error for LogError {}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Line { number, why, text } => write!(f, "line {number} is no call: {why}: \"{text}\""),
            LogError::NoCall => f.write_str("it has no call of an allocator"),
        }
    }
}

/// True if a file may be a log: more than half of its first lines are calls. The last one may be
/// cut, as the first 64 KiB are.
pub(super) fn detects(head: &[u8]) -> bool {
    let lines = head.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).take(LINES);
    let (calls, all) =
        lines.fold((0, 0), |(calls, all), line| (calls + usize::from(Line::parse(line).is_ok()), all + 1));
    calls * 2 > all
}

/// Writes the recording of a log. A line that is no call ends it, unless `keeps_going`: then such
/// lines are left out.
pub(crate) fn import(
    log: impl BufRead,
    source: &str,
    keeps_going: bool,
    out: &File,
) -> Result<ImportedFile, ImportError> {
    let mut draft = Draft::new(out.try_clone()?);
    let mut import = ImportedLog::new(&mut draft);
    let (mut left_out, mut failed) = (None::<(u64, LogError)>, None);
    for_each_line(log, |line| {
        let why = match import.add(line) {
            Ok(()) => return true,
            Err(LogLineError::Write(error)) => {
                failed = Some(ImportError::Write(error));
                return false;
            }
            Err(why) => why,
        };
        match &mut left_out {
            Some((count, _)) => *count += 1,
            None => {
                let text = String::from_utf8_lossy(line.trim_ascii()).chars().take(100).collect::<String>();
                let error = LogError::Line {
                    number: import.facts().lines,
                    why: why.to_string(),
                    text: escape(&text).to_string(),
                };
                left_out = Some((1, error));
            }
        }
        keeps_going
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if let (false, Some((_, error))) = (keeps_going, &left_out) {
        return Err(ImportError::Log(error.clone()));
    }
    if import.facts().calls == 0 {
        return Err(ImportError::Log(LogError::NoCall));
    }
    let (footer, facts) = import.finish(source)?;
    count_and_finish(draft, footer, out)?;
    Ok(ImportedFile { facts, left_out })
}
