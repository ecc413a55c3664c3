//! `heapledger dmd`: memory that no reporter has reported, and memory that was reported twice.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heapledger_block_types::TypeFinder;
use heapledger_dmd::{
    Analysis, DifferentModes, DmdOptions, GroupBy, Log, MOZILLA_PROBABILITY, Mode, Plan, RECORDS_MAX, Sampling, Sort,
    TextOptions,
};

use serde::Serialize;
use serde_json::Value;

use crate::args::{Dmd, DmdBy, DmdMode, DmdSort};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::document::{self, Document, Form};
use crate::messages::notify;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::page;
use crate::symbols::symbolizer;

mod groups;
mod names;
mod process;
mod recording;
pub(crate) mod referrers;
mod source;
mod spooled;
mod types;
mod wrapper_frames;

use self::source::Source;

pub(crate) fn run(arguments: &Dmd, out: &mut Output) -> Result<()> {
    let (mut saved, target) = (begin(&arguments.beyond.save, arguments)?, begin(&arguments.output, arguments)?);
    if spooled::is_enough(arguments) {
        return show(arguments, &spooled::analyse(arguments)?, None, target, out);
    }
    let symbolizer = Arc::new(symbolizer(&arguments.symbols.files));
    let finder = TypeFinder::new(Arc::clone(&symbolizer));
    let mut logs = Vec::new();
    for source in &arguments.sources {
        let mut log = Source::of(source).read(arguments)?;
        if arguments.view.clamp_contents {
            clamp(source, &mut log, arguments.view.print_clamp_stats)?;
        }
        if arguments.process.show_dump_stats {
            notify(format_args!("{source}: {}", log.dump_stats_text().trim_end()));
        }
        let is_last = logs.len() + 1 == arguments.sources.len();
        let mut saved = is_last.then(|| arguments.beyond.save.as_ref().zip(saved.take())).flatten();
        if let Some((path, target)) = saved.take_if(|_| !arguments.beyond.resolve) {
            save(&log, path, target, out)?;
        }
        if wants_types(arguments) {
            types::find(&mut log, &finder);
        }
        if !arguments.view.no_fix_stacks {
            names::resolve(&mut log, &symbolizer);
        }
        if let Some((path, target)) = saved {
            save(&log, path, target, out)?;
        }
        logs.push(log);
    }
    if arguments.beyond.page {
        return show_page(arguments, logs);
    }
    if let Some(address) = arguments.beyond.who_points_to {
        let [log] = logs.as_slice() else {
            return Err(Failure::new(Exit::Usage, "who points to a block is asked of one log"));
        };
        let (chains, options) = (referrers::find(&arguments.sources[0], log, address)?, options(arguments));
        return match arguments.beyond.json {
            true => write_document(&referrers::to_json(log, &chains, address, &options), target, out),
            false => {
                let text = referrers::text(log, &chains, address, &options);
                write(target, out, |file| file.write_all(text.as_bytes()))
            }
        };
    }
    let plan = logs.last().filter(|_| arguments.beyond.advice);
    let plan = plan.map(|log| Plan::of_log(log, options(arguments).estimate));
    show(arguments, &analyse(arguments, &logs)?, plan.as_ref(), target, out)
}

/// Begins a file, before programs are asked for its contents.
fn begin(path: &Option<PathBuf>, arguments: &Dmd) -> Result<Option<NewFile>> {
    if path.is_some() && arguments.output == arguments.beyond.save {
        return Err(Failure::new(Exit::Usage, "the text and the log cannot be written to the same file"));
    }
    let sources: Vec<&Path> = arguments.sources.iter().map(Path::new).collect();
    path.as_ref().map(|path| NewFile::create(path, arguments.force, &sources)).transpose()
}

fn show_page(arguments: &Dmd, logs: Vec<Log>) -> Result<()> {
    let name = |source: &String| source.rsplit('/').next().unwrap_or_default().to_owned();
    let names: Vec<String> = arguments.sources.iter().map(name).collect();
    page::serve(names.join(", "), |page| {
        for (name, mut log) in names.into_iter().zip(logs) {
            let sampling = options(arguments).estimate.map(|probability| Sampling { probability });
            log.about.sampling = log.about.sampling.or(sampling);
            page.load_log(name, log);
        }
    })
}

fn analyse(arguments: &Dmd, logs: &[Log]) -> Result<Analysis> {
    let options = options(arguments);
    match logs {
        [before, after] => {
            Analysis::difference(before, after, &options).map_err(|error| cannot_compare(arguments, error))
        }
        logs => Ok(Analysis::of(&logs[0], &options)),
    }
}

fn cannot_compare(arguments: &Dmd, error: DifferentModes) -> Failure {
    let what = format_args!("cannot compare `{}` with `{}`", arguments.sources[1], arguments.sources[0]);
    Failure::caused(Exit::Unreadable, what, error)
}

fn show(
    arguments: &Dmd,
    analysis: &Analysis,
    plan: Option<&Plan>,
    target: Option<NewFile>,
    out: &mut Output,
) -> Result<()> {
    let beyond = &arguments.beyond;
    if beyond.json {
        let document = DmdJson { analysis: analysis.to_json(), advice: plan.map(Plan::to_json) };
        return write_document(&document, target, out);
    }
    let advice = plan.map(ToString::to_string).unwrap_or_default();
    if analysis.by != GroupBy::Stack {
        let text = groups::text(analysis, beyond.defects) + &advice;
        return write(target, out, |file| file.write_all(text.as_bytes()));
    }
    let options = TextOptions { details: beyond.details, defects: beyond.defects };
    let text = analysis.text(&command(), &options) + &advice;
    write(target, out, |file| file.write_all(text.as_bytes()))
}

/// The document of `--json`: all that the text shows, uncut.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DmdJson {
    /// The totals of the heap, and the records of each kind.
    #[serde(flatten)]
    analysis: Value,
    /// Advice, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<Value>,
}

impl Document for DmdJson {
    const SCHEMA: &'static str = "dmd";
    const ROWS: Option<&'static str> = None;
}

fn write_document(document: &impl Document, target: Option<NewFile>, out: &mut Output) -> Result<()> {
    let mut text = Vec::new();
    document::write(document, Form::Json, &mut text)?;
    write(target, out, |file| file.write_all(&text))
}

/// Returns the mode that was asked for.
fn mode_asked(arguments: &Dmd) -> Option<Mode> {
    arguments.process.mode.map(|mode| match mode {
        DmdMode::Live => Mode::Live,
        DmdMode::DarkMatter => Mode::DarkMatter,
        DmdMode::Cumulative => Mode::Cumulative,
        DmdMode::Scan => Mode::Scan,
    })
}

/// Returns the mode of a log that is made now.
fn mode(arguments: &Dmd) -> Mode {
    mode_asked(arguments).unwrap_or(Mode::DarkMatter)
}

/// Writes to the file that was asked for, or to standard output.
fn write(
    target: Option<NewFile>,
    out: &mut Output,
    text: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    match target {
        Some(target) => target.write(out.stream(), text),
        None => Ok(text(out.stream())?),
    }
}

fn options(arguments: &Dmd) -> DmdOptions {
    let view = &arguments.view;
    DmdOptions {
        max_frames: view.max_frames.into(),
        sort: match view.sort_by {
            DmdSort::Usable => Sort::Usable,
            DmdSort::Req => Sort::Requested,
            DmdSort::Slop => Sort::Slop,
            DmdSort::NumBlocks => Sort::Blocks,
        },
        ignore_alloc_fns: view.ignore_alloc_fns,
        filters: view.filter.clone(),
        filter_stacks_for_testing: view.filter_stacks_for_testing,
        estimate: arguments.beyond.estimate.then_some(MOZILLA_PROBABILITY),
        by: match arguments.beyond.by {
            None => GroupBy::Stack,
            Some(DmdBy::Type) => GroupBy::Type,
            Some(DmdBy::Module) => GroupBy::Module,
            Some(DmdBy::Context) => GroupBy::Context,
            Some(DmdBy::Owner) => GroupBy::Owner,
            Some(DmdBy::Line) => GroupBy::Line,
            Some(DmdBy::File) => GroupBy::File,
            Some(DmdBy::Function) => GroupBy::Function,
        },
        records_max: if arguments.beyond.json || arguments.beyond.by.is_some() { usize::MAX } else { RECORDS_MAX },
    }
}

/// True if types are shown. Only then they are looked for in debug information, which may take
/// seconds.
fn wants_types(arguments: &Dmd) -> bool {
    let beyond = &arguments.beyond;
    !arguments.view.no_fix_stacks
        && (beyond.json
            || beyond.resolve
            || beyond.details
            || beyond.advice
            || beyond.page
            || beyond.by == Some(DmdBy::Type))
}

/// Returns the command line without directories, as dmd.py prints it.
fn command() -> String {
    let name = |word: OsString| {
        let word = word.to_string_lossy().into_owned();
        word.rsplit('/').next().unwrap_or_default().to_owned()
    };
    std::env::args_os().map(name).collect::<Vec<_>>().join(" ")
}

fn clamp(source: &str, log: &mut Log, with_stats: bool) -> Result<()> {
    let cannot = || format!("cannot clamp the contents of blocks in `{source}`");
    if log.mode != Mode::Scan {
        let why = std::io::Error::other(format!("it is of mode `{}`, not `scan`", log.mode.name()));
        return Err(
            Failure::caused(Exit::Unreadable, cannot(), why).hint("logs with contents are those of mode `scan`")
        );
    }
    let stats = log.clamp().map_err(|error| Failure::caused(Exit::Unreadable, cannot(), error))?;
    if with_stats {
        notify(stats);
    }
    Ok(())
}

fn save(log: &Log, path: &Path, target: NewFile, out: &mut Output) -> Result<()> {
    let is_packed = path.extension().is_some_and(|extension| extension == "gz");
    target.write(out.stream(), |file| if is_packed { file.write_all(&log.to_gzip()) } else { log.write(file) })
}
