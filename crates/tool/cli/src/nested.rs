//! A command that is `heapledger` itself: what that starts belongs to its own session, not to the one around it.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::code::Code;
use crate::error::hint_lines;
use crate::output::warn;
use crate::target::Target;

/// Verbs that start programs.
const VERBS: [&str; 3] = ["record", "check", "run"];

/// Warns if the command is a `heapledger` that starts programs: they are not `done` (recorded, checked) here.
pub(crate) fn say(command: &[OsString], target: &Target, done: &str, is_quiet: bool) {
    let Some(verb) = command.get(1).and_then(|word| VERBS.into_iter().find(|verb| word == verb)) else { return };
    if is_quiet || !target.file.as_deref().is_some_and(is_heapledger) {
        return;
    }
    let hint = "heapledger record -- COMMAND, without the other around it, unless you mean heapledger itself";
    warn(
        Code::Nested,
        format_args!(
            "the program is heapledger itself: what its `{verb}` starts is not {done} here, only by that one\n{}",
            hint_lines(hint)
        ),
    );
}

/// True if a file is the `heapledger` that runs here, or another one.
fn is_heapledger(file: &Path) -> bool {
    let id = |path: &Path| path.metadata().map(|data| (data.dev(), data.ino())).ok();
    let own = std::env::current_exe().ok().and_then(|own| id(&own));
    own.is_some() && own == id(file) || file.file_name().is_some_and(|name| name == "heapledger")
}
