//! Real browsers, driven by small clients of their own protocols.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process_group};

pub(crate) mod marionette;
pub(crate) mod webdriver;

/// Ends a process with all its descendants.
fn end(process: &mut Child) {
    let group = Pid::from_child(process);
    let _ = kill_process_group(group, Signal::KILL);
    let _ = process.wait();
}
