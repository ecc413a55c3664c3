//! Tests of what there is one of in a process: one after the other.

use std::time::Instant;

use heapledger_live_profile as profile;

/// Runs those whose names have the first argument in them; all, if there is none.
pub(crate) fn run(tests: &[(&str, fn())]) {
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    for (name, test) in tests {
        if wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            let began = Instant::now();
            test();
            profile::stop();
            println!("test {name} ... ok ({:.1?})", began.elapsed());
        }
    }
}
