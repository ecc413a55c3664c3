//! Verbs that help with the command itself.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Say what can be recorded here, and what not
///
/// Looks at the machine: kernel, limits, memory, places for files; and records a
/// small program to see whether all of it works. With a command, also looks at its
/// program, without running it: whether it can be recorded, and completely; which
/// malloc it has; and how good stacks and names of it and its libraries will be.
///
/// Each finding has a code, which `heapledger explain` explains, and a hint.
///
///     $ heapledger doctor
///     $ heapledger doctor ./server
///     $ heapledger doctor --json ./server | jq .verdict
///
/// Exit status: 0 it can be recorded (perhaps with warnings), 101 it cannot.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The program; its arguments, if given, are ignored
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Explain a code that stands beside a message
///
/// Errors, warnings and findings of `doctor` have codes like HL0005. Prints the
/// cause of one, its consequences, and what to do. Without a code, lists all codes.
///
///     $ heapledger explain HL0005
///     $ heapledger explain
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Explain {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The code, or its number
    #[arg(value_name = "CODE")]
    pub(crate) code: Option<String>,
}

/// Print a completion script for a shell
///
///     $ cd ~/.local/share/bash-completion/completions
///     $ heapledger completions bash > heapledger
///     $ cd /usr/local/share/zsh/site-functions
///     $ heapledger completions zsh > _heapledger
///     $ cd ~/.config/fish/completions
///     $ heapledger completions fish > heapledger.fish
///
/// The scripts of bash, zsh and fish ask the command itself what there is to
/// complete, so they stay valid when the command is updated.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page, or write those of all verbs to a directory
///
///     $ heapledger man | man -l -
///     $ heapledger man --dir ~/.local/share/man/man1
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Man {
    /// The directory to write to; created if it does not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,

    /// Replace pages that are there
    #[arg(short, long, requires = "dir")]
    pub(crate) force: bool,
}

/// Print the manual of a verb
///
///     $ heapledger help top
///     $ heapledger help reports show
///
/// Without a verb, lists them all. The same as `heapledger VERB --help`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Help {
    /// The verb, such as top, or reports show
    #[arg(value_name = "VERB")]
    pub(crate) verb: Vec<String>,
}

/// Print the possible next words of a command line, for the completion scripts
#[derive(Debug, Args)]
pub(crate) struct CompleteWords {
    /// The words after the name of the command; the last one is being typed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub(crate) words: Vec<OsString>,
}
