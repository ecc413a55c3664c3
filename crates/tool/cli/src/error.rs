//! Failures, as the user sees them: what failed in the user's terms, then why, then what to do
//! about it.

use std::error::Error;
use std::fmt::{self, Write as _};

use heapledger_report_format::escape;

use crate::code::Code;
use crate::exit::Exit;

/// The result of a verb.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A failure, with its code and a hint.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status to end with.
    pub(crate) exit: Exit,
    code: Code,
    error: anyhow::Error,
    hint: Option<String>,
}

impl Failure {
    /// Makes a failure from a description in the user's terms.
    pub(crate) fn new(exit: Exit, what: impl fmt::Display) -> Failure {
        Failure { exit, code: usual_code(exit), error: anyhow::Error::msg(what.to_string()), hint: None }
    }

    /// Makes a failure from a description in the user's terms and its cause.
    pub(crate) fn caused(exit: Exit, what: impl fmt::Display, cause: impl Error + Send + Sync + 'static) -> Failure {
        let error = anyhow::Error::new(cause).context(what.to_string());
        Failure { exit, code: usual_code(exit), error, hint: None }
    }

    /// Makes a failure in the words of the error, whose sources are the causes.
    pub(crate) fn from_error(exit: Exit, error: impl Error + Send + Sync + 'static) -> Failure {
        Failure { exit, code: usual_code(exit), error: error.into(), hint: None }
    }

    /// Sets the code.
    pub(crate) fn code(mut self, code: Code) -> Failure {
        self.code = code;
        self
    }

    /// Adds a hint what to do.
    pub(crate) fn hint(mut self, hint: impl fmt::Display) -> Failure {
        self.hint = Some(hint.to_string());
        self
    }

    /// Returns the code, the failure and its causes, and the hint.
    #[cfg(feature = "viewer")]
    pub(crate) fn parts(&self) -> (Code, Vec<String>, Option<&str>) {
        (self.code, self.error.chain().map(ToString::to_string).collect(), self.hint.as_deref())
    }

    /// True if the cause is that nobody reads the output any more.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        let mut io = self.error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
        io.any(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// Makes a failure to write the output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::caused(Exit::Unexpected, "cannot write the output", error).code(Code::CannotWrite)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, escape_lines(&self.error.to_string()))?;
        for cause in self.error.chain().skip(1) {
            write!(f, "\n  caused by: {}", escape_lines(&cause.to_string()))?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n\n{}", hint_lines(hint)),
            None => Ok(()),
        }
    }
}

/// Returns the code of a failure of which only the exit status is known.
fn usual_code(exit: Exit) -> Code {
    match exit {
        Exit::Usage => Code::Usage,
        Exit::NotStarted => Code::NotStarted,
        Exit::Unreadable => Code::Unreadable,
        Exit::NothingRecorded => Code::Nothing,
        Exit::NotExecutable => Code::NotExecutable,
        Exit::NotFound => Code::NotFound,
        Exit::Ok | Exit::Grew | Exit::Unexpected => Code::Unexpected,
    }
}

/// The start of a hint.
pub(crate) const HINT: &str = "hint: ";

/// Returns a hint, with its further lines aligned to the first.
pub(crate) fn hint_lines(hint: &str) -> String {
    let mut text = String::from(HINT);
    text.push_str(&escape_lines(hint).replace('\n', "\n      "));
    text
}

/// Escapes text as [`escape`] does, but keeps line ends, which are ours.
fn escape_lines(text: &str) -> String {
    let mut escaped = String::new();
    for (number, line) in text.split('\n').enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(escaped, "{}{}", if number > 0 { "\n" } else { "" }, escape(line));
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_reads_from_what_to_why_to_hint() {
        let io = std::io::Error::from_raw_os_error(2);
        let failure = Failure::caused(Exit::Unreadable, "cannot open `x.hl`", io);
        assert_eq!(
            failure.hint("record something first:\nheapledger record -- ls").to_string(),
            "error[HL0068]: cannot open `x.hl`\n  \
             caused by: No such file or directory (os error 2)\n\n\
             hint: record something first:\n      heapledger record -- ls"
        );
        assert_eq!(Failure::new(Exit::Usage, "no").to_string(), "error[HL0090]: no");
    }

    #[test]
    fn names_in_failures_cannot_control_the_terminal() {
        let failure = Failure::new(Exit::Unexpected, "cannot open `a\x1b[2Jb`").hint("c\rd");
        assert_eq!(failure.to_string(), "error[HL0091]: cannot open `a\\u{1b}[2Jb`\n\nhint: c\\rd");
    }

    #[test]
    fn broken_pipe_is_known_at_any_depth() {
        let io = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(Failure::from(io()).is_broken_pipe());
        assert!(!Failure::new(Exit::Unexpected, "x").is_broken_pipe());
    }
}
