//! Analyses of files of any size: blocks and stacks that do not fit into a small buffer go to
//! temporary files.

use heapledger_dmd::{Analysis, SpoolFile, Spooling};

use crate::args::Dmd;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::symbols::symbolizer;

use super::source::Source;
use super::{cannot_compare, names, options, wants_types};

/// The number of bytes of each log's blocks, and of its stacks, that stay in memory.
const MEMORY_MAX: usize = 32 << 20;

/// Returns true if everything that is asked for can be answered from stored files.
pub(super) fn is_enough(arguments: &Dmd) -> bool {
    let (beyond, view) = (&arguments.beyond, &arguments.view);
    let is_whole = beyond.advice || beyond.page || beyond.save.is_some() || beyond.who_points_to.is_some();
    let is_file = |source: &String| Source::of(source).is_file();
    !is_whole
        && !arguments.process.show_dump_stats
        && !view.clamp_contents
        && !wants_types(arguments)
        && arguments.sources.iter().all(is_file)
}

/// Reads the logs and analyses them.
pub(super) fn analyse(arguments: &Dmd) -> Result<Analysis> {
    let symbolizer = symbolizer(&arguments.symbols.files);
    let spooling =
        Spooling { memory_max: MEMORY_MAX, open: &|| Ok(Box::new(tempfile::tempfile()?) as Box<dyn SpoolFile>) };
    let mut logs = Vec::new();
    for source in &arguments.sources {
        let mut log = Source::of(source).read_spooled(arguments, spooling)?;
        if !arguments.view.no_fix_stacks {
            names::resolve(&mut log, &symbolizer);
        }
        logs.push(log);
    }
    let options = options(arguments);
    let analysis = match logs.as_mut_slice() {
        [before, after] => Analysis::difference_spooled(before, after, &options),
        logs => Analysis::of_spooled(&mut logs[0], &options).map(Ok),
    };
    let analysis = analysis.map_err(|error| {
        Failure::caused(Exit::Unreadable, "the temporary file of a log cannot be read", error)
            .hint("TMPDIR=DIRECTORY says where temporary files are")
    })?;
    analysis.map_err(|error| cannot_compare(arguments, error))
}
