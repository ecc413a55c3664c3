//! The `heapledger` command. Its verbs are documented in [`args`], the source of its help and
//! manual; its exit codes are in [`exit`].
//!
//! [`args`] is the command line, [`verbs`] has the verbs, each in a file or folder of its own,
//! [`views`] what several of them print, and [`json`] what several of them say to other programs.
//! The other modules are what the verbs are made of.

use std::process::ExitCode;

use crate::args::Refusal;
use crate::exit::Exit;
use crate::messages::notify;

mod args;
mod code;
mod config;
mod error;
mod exit;
mod format;
mod host;
mod import_format;
mod input;
mod json;
mod kept;
mod label;
mod launch;
mod listener;
mod mapped_names;
mod messages;
mod near;
mod new_file;
mod notices;
mod output;
mod page;
mod process;
mod progress;
mod question;
mod sessions;
#[cfg(test)]
mod snapshots;
mod symbols;
mod target;
mod text;
mod verbs;
mod views;

/// The allocator of the static command. musl's takes one lock for all threads, and gives memory
/// back to the kernel all the time.
#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
#[global_allocator]
static ALLOCATOR: heapledger_heap::HeapAllocator = heapledger_heap::HeapAllocator;

fn main() -> ExitCode {
    let arguments = match args::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(Refusal::Clap(error)) => error.exit(),
        Err(Refusal::Failure(failure)) => {
            notify(&failure);
            return failure.exit.into();
        }
    };
    match verbs::dispatch(&arguments) {
        Ok(code) => code,
        // The reader of the output has closed the pipe: it has seen enough.
        Err(failure) if failure.is_broken_pipe() => Exit::Ok.into(),
        Err(failure) => {
            notify(&failure);
            failure.exit.into()
        }
    }
}
