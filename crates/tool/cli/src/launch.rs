//! The start of a program by `record`, `run` and `check`: what is said before it, and the error if
//! it fails.

pub(crate) mod allocator;
pub(crate) mod hook;
pub(crate) mod nested;
pub(crate) mod preload;
pub(crate) mod shared_library;

use std::path::Path;

use heapledger_collect as collect;

use crate::code::Code;
use crate::error::{Failure, Result, hint_lines};
use crate::exit::Exit;
use crate::messages::warn;
use crate::new_file::directory_hint;
use crate::target::{Effect, Finding, Target};

/// Says, before the program runs, which of its allocations cannot be seen and why. Fails if it must
/// not be run under the recorder. `what` is the action in words, and `misses` is the effect on a
/// program that cannot be recorded.
pub(crate) fn report_findings(target: &Target, what: &str, misses: &str, is_quiet: bool) -> Result<()> {
    for finding in &target.findings {
        let Finding { code, effect, hint, .. } = finding;
        let what_follows = match effect {
            Effect::Refused => {
                let failure = Failure::new(Exit::NotStarted, format_args!("cannot {what}: {finding}"));
                return Err(failure.code(*code).hint(hint));
            }
            // The program runs as always.
            Effect::Unrecorded => format!(": {misses}"),
            Effect::Partial => String::new(),
        };
        if !is_quiet {
            warn(*code, format_args!("{finding}{what_follows}\n{}", hint_lines(hint)));
        }
    }
    // The script decides which of these programs is started.
    for finding in target.findings_of_starts().into_iter().filter(|_| !is_quiet) {
        warn(finding.code, format_args!("{finding} (the script may start it)\n{}", hint_lines(&finding.hint)));
    }
    Ok(())
}

/// Explains why the program was not started.
pub(crate) fn failure(error: collect::RecordError) -> Failure {
    use collect::RecordError;
    let (exit, hint) = match &error {
        RecordError::CommandNotFound { program } if !program.as_encoded_bytes().contains(&b'/') => {
            let name = program.display();
            let hint = format!("it is in no directory of PATH; a program that is here is called `./{name}`");
            (Exit::NotFound, Some(hint))
        }
        RecordError::CommandNotFound { .. } => (Exit::NotFound, None),
        RecordError::NotExecutable { .. } | RecordError::Launch { .. } => (Exit::NotExecutable, None),
        RecordError::OutputExists { .. } => (Exit::Unexpected, Some("to replace it, add --force".to_owned())),
        RecordError::CreateOutput { path, .. } if path == Path::new(".") => {
            let hint =
                "the recording is made in the current directory; elsewhere: heapledger record -o FILE -- COMMAND";
            (Exit::NotStarted, Some(hint.to_owned()))
        }
        RecordError::CreateOutput { path, source } => (Exit::NotStarted, directory_hint(path, source.kind())),
        RecordError::NoCommand => (Exit::Usage, None),
        _ => (Exit::NotStarted, None),
    };
    let code = match &error {
        RecordError::Library { .. } => Some(Code::NoLibraryPlace),
        RecordError::Session { .. } => Some(Code::System),
        RecordError::CreateOutput { .. } => Some(Code::NoOutput),
        RecordError::OutputExists { .. } => Some(Code::FileExists),
        _ => None,
    };
    let failure = Failure::from_error(exit, error);
    let failure = match code {
        Some(code) => failure.code(code),
        None => failure,
    };
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
