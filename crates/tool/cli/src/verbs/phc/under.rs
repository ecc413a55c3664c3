//! The heap checker under `run` and `record`: its options, and what is said and written at the end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use heapledger_collect::HeapChecker as Library;
use heapledger_phc_report::{OffReason, PhcFile, parse};

use super::errors::named;
use crate::args::{HeapChecker, Placement, SymbolFiles, function};
use crate::code::Code;
use crate::error::{Failure, Result, hint_lines};
use crate::exit::Exit;
use crate::format::{count, counted};
use crate::launch::preload::HEAP_CHECKER;
use crate::mapped_names::Names;
use crate::messages::{notify, warn};
use crate::symbols::symbolizer;
use crate::text::{quoted, shown};

/// The number of errors that are shown at the end.
const ERRORS_MAX: usize = 8;

/// The number of functions that the library takes, and of the bytes of their names.
const FUNCTIONS_MAX: usize = 64;
const NAMES_BYTES_MAX: usize = 4096;

/// Returns the library to load, if the options ask for the checker.
pub(crate) fn library(options: &HeapChecker, is_quiet: bool) -> Result<Option<Library>> {
    if !options.phc {
        return Ok(None);
    }
    let placement = match options.phc_placement {
        Placement::End => "end",
        Placement::Start => "start",
        Placement::Drawn => "drawn",
    };
    let mut settings = format!(
        "first {}\nnormal {}\nreuse {}\nsize {}\nmemory {}\nplacement {placement}\nadaptive {}\nprints {}\n",
        options.phc_first,
        options.phc_normal,
        options.phc_reuse,
        options.phc_size,
        options.phc_min_memory,
        u8::from(options.phc_adaptive),
        u8::from(!is_quiet),
    );
    let mut never = options.phc_never.clone();
    if let Some(path) = &options.phc_never_from {
        never.extend(functions_in(path)?);
    }
    if options.phc_only.len() + never.len() > FUNCTIONS_MAX
        || options.phc_only.iter().chain(&never).map(String::len).sum::<usize>() > NAMES_BYTES_MAX
    {
        let what =
            format!("cannot choose so many functions: at most {FUNCTIONS_MAX}, of {NAMES_BYTES_MAX} bytes in all");
        return Err(Failure::new(Exit::Usage, what).hint("a namespace, class or module stands for all its functions"));
    }
    options.phc_only.iter().for_each(|name| settings.push_str(&format!("only {name}\n")));
    never.iter().for_each(|name| settings.push_str(&format!("never {name}\n")));
    Ok(Some(Library { library: HEAP_CHECKER.into(), settings }))
}

/// Reads the functions of a file.
fn functions_in(path: &Path) -> Result<Vec<String>> {
    /// A file with as many names as are allowed, and comments.
    const LENGTH_MAX: u64 = 1 << 20;
    let cannot = || format!("cannot read `{}`", path.display());
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LENGTH_MAX).read_to_string(&mut text));
    read.map_err(|error| Failure::caused(Exit::Usage, cannot(), error))?;
    let names = (1..).zip(text.lines()).filter_map(|(line, text)| {
        let name = text.split('#').next().unwrap_or("").trim();
        let wrong = |error| Failure::new(Exit::Usage, format!("{}: line {line}: {error}", cannot()));
        (!name.is_empty()).then(|| function(name).map_err(wrong))
    });
    names.collect()
}

/// Returns the options as a recording has them.
pub(crate) fn options_text(options: &HeapChecker) -> Option<String> {
    options.phc.then(|| format!("--phc --phc-first {} --phc-normal {}", options.phc_first, options.phc_normal))
}

/// Writes the reports of each process to a file, and shows them.
pub(crate) fn conclude(texts: &[String], is_quiet: bool) {
    let mut names = Names::new(symbolizer(&SymbolFiles::default()));
    let (mut sampled, mut refused, mut processes, mut shown_errors) = (0_u64, 0_u64, 0_u64, 0_usize);
    let mut off = Vec::new();
    let mut has_errors = false;
    for text in texts {
        let (text, file) = readable(text);
        processes += u64::from(file.off.is_empty());
        sampled = sampled.saturating_add(file.blocks_sampled);
        refused = refused.saturating_add(file.blocks_refused);
        off.extend(file.off.iter().copied());
        let Some(first) = file.reports.first() else { continue };
        has_errors = true;
        let written = write(first.program, first.process, text);
        if is_quiet {
            continue;
        }
        let errors = counted(file.reports.len() as u64, "error", "errors");
        let hint = match &written {
            Ok(path) => format!("to see it again: heapledger phc {}", quoted(&path.to_string_lossy())),
            Err(error) => format!("it could not be written to a file here: {error}"),
        };
        let wrote = written.as_ref().map_or_else(|_| String::new(), |path| format!(" (wrote {})", shown(path)));
        let process = first.process;
        warn(Code::HeapError, format_args!("{errors} on the heap of process {process}{wrote}\n{}", hint_lines(&hint)));
        for report in file.reports.iter().take(ERRORS_MAX.saturating_sub(shown_errors)) {
            shown_errors += 1;
            notify("");
            named(report, &mut names).lines().iter().for_each(notify);
        }
    }
    if is_quiet {
        return;
    }
    for (reason, why, hint) in [
        (
            OffReason::Memory,
            "the machine has less memory than --phc-min-memory",
            "heapledger run --phc --phc-min-memory 0 -- COMMAND",
        ),
        (OffReason::Allocator, "it has an allocator of its own", "heapledger doctor COMMAND"),
        (OffReason::System, "the system gives no memory for it", "is the address space limited?\nulimit -v"),
    ] {
        if let number @ 1.. = off.iter().filter(|&&other| other == reason).count() {
            let processes = counted(number as u64, "process", "processes");
            let hint = hint_lines(hint);
            warn(Code::HeapCheckerOff, format_args!("the heap checker did not run in {processes}: {why}\n{hint}"));
        }
    }
    if !has_errors && processes == 0 && off.is_empty() {
        notify(
            "heapledger: the heap checker found no error; how many blocks it sampled is not known, because no \
             process ended by exit",
        );
    }
    if !has_errors && processes > 0 {
        let blocks = counted(sampled, "block", "blocks");
        let processes = counted(processes, "process", "processes");
        let missed =
            if refused > 0 { format!(" (for {} more there was no room)", count(refused)) } else { String::new() };
        notify(format_args!(
            "heapledger: the heap checker sampled {blocks} in {processes}{missed}, and found no error"
        ));
    }
}

/// Reads a text up to where it makes sense: a process may have been killed while it wrote.
fn readable(text: &str) -> (&str, PhcFile<'_>) {
    if let Ok(file) = parse(text) {
        return (text, file);
    }
    let whole = text.rfind("\n\n").and_then(|end| text.get(..end + 2)).unwrap_or("");
    (whole, parse(whole).unwrap_or_default())
}

/// Writes the reports of a process to a new file in the current directory.
fn write(program: &str, process: u32, text: &str) -> io::Result<PathBuf> {
    const NAMES_MAX: u32 = 100;
    let program: String =
        program.chars().map(|letter| if letter.is_control() || letter == '/' { '_' } else { letter }).collect();
    for number in 1..=NAMES_MAX {
        let again = if number == 1 { String::new() } else { format!(".{number}") };
        let path = PathBuf::from(format!("heapledger.{program}.{process}{again}.phc"));
        match create(&path).and_then(|mut file| file.write_all(text.as_bytes())) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => return written.map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Creates a file that only its owner may read: stacks and mappings are in it.
fn create(path: &PathBuf) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
