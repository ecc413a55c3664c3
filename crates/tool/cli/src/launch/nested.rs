//! A `heapledger` that another one started. The programs that it starts belong to its own session,
//! not to the outer one.

use heapledger_collect::is_observed;

use crate::code::Code;
use crate::error::hint_lines;
use crate::messages::warn;

/// Warns that the program that `verb` starts is seen by this `heapledger` alone, if another one
/// observes this process. The other one cannot always warn: there may be a shell between the two.
pub(crate) fn warn_of_nesting(verb: &str, is_quiet: bool) {
    if is_quiet || !is_observed() {
        return;
    }
    let hint = format!("heapledger {verb} -- COMMAND, without the other around it, unless you mean heapledger itself");
    warn(
        Code::Nested,
        format_args!(
            "this is heapledger under another heapledger: what its `{verb}` starts is seen by this one alone\n{}",
            hint_lines(&hint)
        ),
    );
}
