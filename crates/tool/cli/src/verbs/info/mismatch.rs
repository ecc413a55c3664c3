//! Stacks that differ from the C library's (`record --verify-stacks`). A recording describes the
//! first of them.

use heapledger_recording::{Annotation, ImageId, Recording};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::error::Result;
use crate::format::{seconds, time};
use crate::output::Output;

/// The code of the annotation that describes a stack mismatch.
pub(crate) const STACK_MISMATCH: u32 = 263;

/// The number of words before the frames.
const HEAD: usize = 4;
/// The most frames described before the first that differs.
const BEFORE_MAX: u64 = 8;

/// A recorded stack, and glibc's at the same point of the program.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Mismatch {
    image: u32,
    thread: u32,
    #[serde(skip)]
    at: String,
    time_seconds: f64,
    stack: u64,
    /// The index of the first frame that differs; 0 is the innermost.
    differs_at: u64,
    /// The index of the frame with which the two lists begin.
    first_frame: u64,
    recorded: Vec<Place>,
    glibc: Vec<Place>,
}

/// The address of a call: an offset in a module, or an absolute address if no module is known.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Place {
    module: Option<String>,
    offset: u64,
}

/// Returns all mismatches that the recording describes.
pub(crate) fn mismatches(recording: &Recording<'_>) -> Vec<Mismatch> {
    let images = recording.images().iter();
    let annotations =
        images.flat_map(|image| recording.annotations(image.image)).filter_map(|annotation| annotation.ok());
    annotations.filter_map(|annotation| mismatch(recording, &annotation)).collect()
}

/// Decodes a mismatch. `None` for annotations of another kind, and for malformed ones.
fn mismatch(recording: &Recording<'_>, annotation: &Annotation) -> Option<Mismatch> {
    if annotation.code != STACK_MISMATCH {
        return None;
    }
    let (words, _) = annotation.payload.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (&[stack, differs_at, ours, theirs], frames) = words.split_first_chunk::<HEAD>()?;
    let (ours, theirs) = (usize::try_from(ours).ok()?, usize::try_from(theirs).ok()?);
    let (ours, rest) = frames.split_at_checked(ours)?;
    let theirs = rest.get(..theirs)?;
    let before = differs_at.min(BEFORE_MAX);
    let place = |address| place(recording, annotation.image, address);
    let recorded: Vec<Place> = ours.iter().map(|&lookup| place(lookup)).collect();
    // glibc's frames are return addresses, one byte past the last of the call. Before the first
    // difference, its frames are the same as ours.
    let glibc = theirs.iter().enumerate().map(|(index, &address)| match recorded.get(index) {
        Some(same) if (index as u64) < before => same.clone(),
        _ => place(address.wrapping_sub(1)),
    });
    Some(Mismatch {
        image: annotation.image.0,
        thread: annotation.thread.0,
        at: time(annotation.time),
        time_seconds: seconds(annotation.time),
        stack,
        differs_at,
        first_frame: differs_at.saturating_sub(before),
        glibc: glibc.collect(),
        recorded,
    })
}

fn place(recording: &Recording<'_>, image: ImageId, address: u64) -> Place {
    // If two libraries were loaded at the same address one after the other, the later is more
    // likely.
    let mut mappings = recording.mappings(image).iter().rev();
    match mappings.find(|mapping| (mapping.start..mapping.end).contains(&address)) {
        Some(mapping) => Place {
            module: recording.module(mapping.module).map(|module| String::from_utf8_lossy(&module.path).into_owned()),
            offset: address.wrapping_sub(mapping.bias),
        },
        None => Place { module: None, offset: address },
    }
}

/// Prints the mismatches, with both stacks side by side.
pub(crate) fn print(recording: &Recording<'_>, out: &mut Output) -> Result<()> {
    for mismatch in mismatches(recording) {
        let Mismatch { image, thread, stack, .. } = mismatch;
        out.line("")?;
        out.title(format_args!(
            "stack {stack} of image {image}, thread {thread}, at {}: as recorded, and as glibc has it",
            mismatch.at
        ))?;
        let mut table = Tree::new(["frame", "recorded", ""]);
        for index in 0..mismatch.recorded.len().max(mismatch.glibc.len()) {
            let frame = mismatch.first_frame + index as u64;
            let shown = |places: &[Place]| places.get(index).map_or("(ends)".to_owned(), Place::text);
            let mark = if frame == mismatch.differs_at { "≠" } else { "" };
            let cells = [frame.to_string(), shown(&mismatch.recorded), mark.to_owned()];
            table.push(0, Row::new(shown(&mismatch.glibc)).cells(cells));
        }
        out.tree(&table)?;
    }
    Ok(())
}

impl Place {
    fn text(&self) -> String {
        match &self.module {
            Some(path) => format!("{}+{:#x}", path.rsplit('/').next().unwrap_or(path), self.offset),
            None => format!("{:#x}", self.offset),
        }
    }
}
