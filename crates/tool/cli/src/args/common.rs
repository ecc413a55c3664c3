//! Options that verbs have in common.

use std::ops::{Deref, RangeInclusive};
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum, ValueHint};
use heapledger_analysis::{Moment, Pattern};
use heapledger_recording::Time;

use crate::args::values;
use crate::json::document::Form;

/// The recording to read, and the form and destination of the answer.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The recording, or FILE@WHEN for a moment of it [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(value_parser = PathBufValueParser::new().try_map(Named::parse))]
    pub(crate) file: Option<Named>,

    /// Count mappings in place of blocks: memory that is mapped by mmap, brk and the like. Takes a
    /// recording made with `record --mappings`
    #[arg(long, help_heading = "What to show")]
    pub(crate) mappings: bool,

    #[command(flatten)]
    pub(crate) data: Data,

    #[command(flatten)]
    pub(crate) written: Written,
}

/// The form of an answer for other programs.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Data {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the rows as CSV
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

impl Data {
    /// Returns the form to print instead of text, if one was chosen.
    pub(crate) fn form(self) -> Option<Form> {
        match (self.json, self.csv) {
            (true, _) => Some(Form::Json),
            (_, true) => Some(Form::Csv),
            _ => None,
        }
    }
}

impl Input {
    /// Returns the form to print instead of text, if one was chosen.
    pub(crate) fn form(&self) -> Option<Form> {
        self.data.form()
    }

    /// Returns the moment that is given with the file: FILE@WHEN.
    pub(crate) fn at(&self) -> Option<Moment> {
        self.file.as_ref().and_then(|file| file.at)
    }
}

/// The destination of the answer.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Written {
    /// Write to this file; - for stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// A recording, named by its file alone, or with a moment: FILE@WHEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    path: PathBuf,
    pub(crate) at: Option<Moment>,
}

impl Named {
    /// Splits FILE@WHEN. The name of a file that exists is never split.
    pub(crate) fn parse(path: PathBuf) -> Result<Named, String> {
        let text = path.to_string_lossy();
        let Some((file, when)) = text.rsplit_once('@').filter(|(file, _)| !file.is_empty() && !path.exists()) else {
            return Ok(Named { path, at: None });
        };
        match values::moment(when) {
            Ok(moment) => Ok(Named { path: file.into(), at: Some(moment) }),
            Err(why) if Path::new(file).exists() => Err(why),
            Err(_) => Ok(Named { path, at: None }),
        }
    }
}

impl Deref for Named {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// A recording to write.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The recording to write; - for stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// A range of time.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What to show")]
pub(crate) struct Range {
    /// Only this time: 10s-20s, 1min.., ..500ms [default: all of it]
    #[arg(long, value_name = "RANGE", value_parser = values::times, conflicts_with_all = ["from", "to"])]
    during: Option<RangeInclusive<u64>>,

    /// From this time on: the beginning of --during
    #[arg(long, value_name = "TIME", value_parser = values::time, hide = true)]
    from: Option<Time>,

    /// Up to this time: the end of --during
    #[arg(long, value_name = "TIME", value_parser = values::time, hide = true)]
    to: Option<Time>,
}

impl Range {
    /// Returns the first and the last moment, if they are given.
    pub(crate) fn bounds(&self) -> (Option<Time>, Option<Time>) {
        match &self.during {
            None => (self.from, self.to),
            Some(during) => (Some(Time(*during.start())), (*during.end() < u64::MAX).then_some(Time(*during.end()))),
        }
    }
}

/// Frames of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Frames {
    /// From the owner outwards: the innermost function that is the program's own
    #[default]
    Own,
    /// All but the allocators at the innermost end
    All,
}

/// The sources of the names of functions, and how names are shown.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Names of functions and types")]
pub(crate) struct Symbols {
    #[command(flatten)]
    pub(crate) files: SymbolFiles,

    /// Show names with all their paths, parameters and type arguments
    #[arg(long)]
    pub(crate) full_names: bool,

    /// Show these frames of a stack: from the program's own code on, or all but allocators
    #[arg(long, value_name = "WHICH", default_value = "own")]
    pub(crate) frames: Frames,

    /// A function that allocates for its callers, such as xmalloc: the callers become the owners
    ///
    /// A PATTERN is as for --function. Can be given more than once. To declare wrappers for good,
    /// put wrappers = ["pool_*"] into a file heapledger.toml in the project.
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    pub(crate) wrapper: Vec<Pattern>,
}

/// The sources of the names of functions.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Names of functions and types")]
pub(crate) struct SymbolFiles {
    /// A directory with separate debug information, before /usr/lib/debug; can be given more than
    /// once
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, action = ArgAction::Append)]
    #[arg(value_parser = PathBufValueParser::new().try_map(directory))]
    pub(crate) debug_dir: Vec<PathBuf>,

    /// A file, or a directory to search recursively, for programs, libraries and debug information
    ///
    /// For a recording from another machine, or of a program that has been replaced since. Files
    /// are known by their build ids, or by their names if they have none. Can be given more than
    /// once.
    ///
    /// Files that are not found are requested from the debuginfod servers in the environment
    /// variable DEBUGINFOD_URLS, if that is set and `debuginfod-find` is installed.
    #[arg(long = "symbols", value_name = "PATH", value_hint = ValueHint::AnyPath, action = ArgAction::Append)]
    #[arg(value_parser = PathBufValueParser::new().try_map(file_or_directory))]
    pub(crate) search: Vec<PathBuf>,

    /// A directory with Breakpad symbol files: NAME/DEBUGID/NAME.sym, as dump_syms and Firefox's
    /// builds lay them out
    ///
    /// Names come from there first. Can be given more than once. Without it, the directory in the
    /// environment variable BREAKPAD_SYMBOLS_PATH is used, if that is set, as by Mozilla's scripts.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, action = ArgAction::Append)]
    #[arg(value_parser = PathBufValueParser::new().try_map(directory))]
    pub(crate) breakpad_symbols: Vec<PathBuf>,

    /// True if debuginfod servers may be asked.
    #[arg(skip = true)]
    pub(crate) download: bool,

    /// The root of the file system in which the program ran
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(value_parser = PathBufValueParser::new().try_map(directory))]
    pub(crate) sysroot: Option<PathBuf>,
}

/// Returns the path if it is a directory.
fn directory(path: PathBuf) -> Result<PathBuf, String> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(path),
        Ok(_) => Err("it is not a directory".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the path if it exists.
fn file_or_directory(path: PathBuf) -> Result<PathBuf, String> {
    path.metadata().map_err(|error| error.to_string())?;
    Ok(path)
}
