//! Sandboxes (`seccomp`) that the program enters: from then on Heapledger makes no system calls.

use heapledger_interpose::sandbox::Moment;
use heapledger_query::Ledger;

use crate::environment;

/// See [`heapledger_interpose::sandbox`]. In strict mode a thread may not even read the time stamp
/// counter.
#[unsafe(no_mangle)]
fn heapledger_family_sandbox(moment: Moment) {
    match moment {
        Moment::Before { is_strict } => {
            environment::report_early();
            if is_strict {
                Ledger::get().stop();
            }
        }
        Moment::Refused => environment::report_later(),
        Moment::Entered { .. } => {}
    }
}
