//! A test harness without threads of its own, which would allocate too: runs tests of a process's
//! only ledger one after the other.

use std::time::Instant;

/// Runs the tests whose names contain the first argument, all if there is none, and `reset` after
/// each.
pub(crate) fn run(tests: &[(&str, fn())], reset: impl Fn()) {
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    for (name, test) in tests {
        if wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            let began = Instant::now();
            test();
            reset();
            println!("test {name} ... ok ({:.1?})", began.elapsed());
        }
    }
}
