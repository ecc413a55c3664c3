//! `heapledger log convert`: the calls of a recording as a log.

use std::io::{self, Write as _};

use heapledger_alloc_log::{Line, Pointer, Request};
use heapledger_core::Serial;
use heapledger_recording::RecordingError;
use heapledger_replay::{Call, Effect, RecordedCall, recorded_calls};

use crate::args::ConvertLog;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::counted;
use crate::input::Input;
use crate::messages::notify;
use crate::output::Output;
use crate::progress::Progress;
use crate::text::shown;

pub(super) fn run(arguments: &ConvertLog, out: &mut Output) -> Result<()> {
    let input = Input::map(&arguments.file)?;
    let recording = input.open()?;
    let file = shown(&input.path);
    if recording.is_sample() {
        let what = format_args!("`{file}` has a sample of the blocks: a log has all calls");
        return Err(Failure::new(Exit::Usage, what).hint("record all blocks: heapledger record -o FILE.hl -- COMMAND"));
    }
    if let Some(path) = &arguments.written.output {
        out.direct(path, arguments.written.force, &[&input.path])?;
    }
    let rows = |chunk: heapledger_recording::EventChunk<'_>| u64::from(chunk.head().rows);
    let all: u64 = recording.images().iter().flat_map(|start| recording.event_chunks(start.image)).map(rows).sum();
    if all == 0 {
        return Err(Failure::new(Exit::Usage, format_args!("`{file}` has no events"))
            .hint("a recording made with --aggregate has only sums: record without it"));
    }
    let (mut progress, mut done, mut unknown, mut text) = (Progress::new(), 0, 0_u64, Vec::new());
    for start in recording.images() {
        let written = recorded_calls(
            &recording,
            start.image,
            |events| {
                done += events;
                progress.events(done, all);
            },
            |call| {
                let Some(line) = line_of(start.pid.into(), &call) else {
                    unknown += 1;
                    return Ok(());
                };
                text.clear();
                line.write_to(&mut text);
                text.push(b'\n');
                Ok::<(), Cannot>(out.stream().write_all(&text)?)
            },
        );
        written.map_err(|error| match error {
            Cannot::Read(error) => Failure::caused(Exit::Unreadable, format_args!("cannot read `{file}`"), error),
            Cannot::Write(error) => error.into(),
        })?;
    }
    drop(progress);
    if unknown > 0 {
        let frees = counted(unknown, "free", "frees");
        notify(format_args!("heapledger: {frees} of blocks that the recording does not have left out"));
    }
    Ok(())
}

/// The reason why a line cannot be written.
enum Cannot {
    Read(RecordingError),
    Write(io::Error),
}

impl From<RecordingError> for Cannot {
    fn from(error: RecordingError) -> Cannot {
        Cannot::Read(error)
    }
}

impl From<io::Error> for Cannot {
    fn from(error: io::Error) -> Cannot {
        Cannot::Write(error)
    }
}

/// Returns the line of a call. `None` for a free of a block that the recording does not have.
fn line_of(process: u64, call: &RecordedCall) -> Option<Line> {
    let slot = |Serial(serial)| Pointer::Slot(serial + 1);
    let (request, result) = match call.effect {
        Effect::Freed(block) => (Request::Free { block: slot(block?) }, None),
        Effect::Reallocated { old, block, size } => {
            // A block of before is the null pointer here: it becomes one of this log.
            let old = old.map_or(Pointer::Address(0), slot);
            (Request::Realloc { block: old, size: size.0 }, Some(slot(block)))
        }
        Effect::Allocated { call, block, size } => {
            let size = size.0;
            let request = match call {
                Call::Malloc => Request::Malloc { size },
                // The recording has the product.
                Call::Calloc => Request::Calloc { count: 1, size },
                Call::Memalign { alignment } => Request::Memalign { alignment, size },
                Call::PosixMemalign { alignment } => Request::PosixMemalign { alignment, size },
                Call::AlignedAlloc { alignment } => Request::AlignedAlloc { alignment, size },
                Call::Valloc => Request::Valloc { size },
            };
            (request, Some(slot(block)))
        }
    };
    Some(Line { process, thread: call.thread.0.into(), request, result })
}
