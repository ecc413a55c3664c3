//! Logs made from recordings, including those of running recorders.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use heapledger_analysis::{Filter, Metric, Moment, ProcessPattern, Selection, dark_matter};
use heapledger_collect::{ControlRequest, RunningSession};
use heapledger_dmd::{Log, Mode};

use crate::args::Dmd;
use crate::args::select::one_moment;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::messages::notify;
use crate::question::Question;

use super::mode;

/// The bytes with which every recording begins.
const MAGIC: [u8; 8] = *b"\x89HLR\r\n\x1a\n";

/// True if a file is a recording.
pub(super) fn is_recording(path: &Path) -> bool {
    let mut first = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first == MAGIC
}

/// Returns the log of a recording.
pub(super) fn log(path: &Path, in_name: Option<Moment>, arguments: &Dmd) -> Result<Log> {
    let input = Input::map(path)?;
    // Fails with the reason if the file is damaged.
    drop(input.open()?);
    let at = one_moment(arguments.recording.at, in_name)?;
    log_of(&input, &arguments.recording.processes, at, arguments)
}

/// Returns the log of a process that is being recorded, as far as the recording has come.
pub(super) fn log_so_far(pid: u32, arguments: &Dmd) -> Result<Log> {
    let cannot = |error| {
        let what = format_args!("cannot read the recording of process {pid}").to_string();
        Failure::caused(Exit::Unreadable, what, error).hint("`heapledger status` lists what is being recorded")
    };
    let recorder = RunningSession::of_process(pid).map_err(cannot)?;
    let recorder = recorder.ok_or(std::io::ErrorKind::NotFound.into()).map_err(cannot)?;
    let asked = recorder.ask(ControlRequest::Save).map_err(cannot)?;
    log_of(&Input::map(&asked.output)?, &[ProcessPattern::Pid(pid)], arguments.recording.at, arguments)
}

fn log_of(input: &Input, processes: &[ProcessPattern], at: Option<Moment>, arguments: &Dmd) -> Result<Log> {
    let mode = mode(arguments);
    if mode == Mode::Scan {
        return Err(Failure::new(Exit::Usage, "a recording has no contents of blocks")
            .hint("a program that holds a ledger has them: heapledger dmd --mode scan PID"));
    }
    let recording = input.recording()?;
    let filter = Filter { processes: processes.to_vec(), ..Filter::default() };
    let selection = Selection { moment: at.unwrap_or(Moment::Total), filter, ..Selection::default() };
    let question = Question::new(input, &recording, &arguments.symbols, selection, Metric::Bytes);
    let mut question = question.expect_something()?;
    let found = question.answer(|names, selection, progress| dark_matter(names, mode, selection, progress))?;
    input.warn_of(&found.damage);
    if mode == Mode::DarkMatter && !found.is_complete && at.is_none() {
        notify("heapledger: nobody in the recording has asked reporters: this is what was live at the end");
    }
    if let Some(source) = &found.slop_source {
        notify(format_args!("heapledger: the slop of these blocks is {source}"));
    }
    if found.images.len() > 1 {
        let count = found.images.len();
        notify(format_args!("heapledger: of {count} processes and programs together: --process chooses among them"));
    }
    Ok(found.log)
}
