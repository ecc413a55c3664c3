//! Names of functions, for frames that have only an address.

use std::collections::{BTreeSet, HashMap};

use heapledger_dmd::{FrameTexts, Log, UnresolvedFrame};
use heapledger_report_format::escape;
use heapledger_symbols::{ModuleRef, NameSource, Problem, SymbolFrame, Symbolizer};

use crate::code::Code;
use crate::messages::warn;

use super::wrapper_frames::WrapperFrames;

/// Gives names to the log's frames, in memory. Frames without a known name stay as they are. In
/// logs of heapledger, wrapper frames at the beginning of stacks are removed.
pub(super) fn resolve(log: &mut impl FrameTexts, symbolizer: &Symbolizer) {
    let build_ids = BuildIds::of(log.log());
    let mut wrappers = WrapperFrames::default();
    let mut asked: BTreeSet<String> = BTreeSet::new();
    log.map_frames(|text| {
        let Some(place) = UnresolvedFrame::parse(text) else { return Vec::new() };
        if !asked.contains(place.path) {
            asked.insert(place.path.to_owned());
        }
        let frames = symbolizer.frames(build_ids.module(&place), call(&place));
        match frames.last() {
            Some(SymbolFrame { source: NameSource::None, .. }) | None => Vec::new(),
            Some(_) => {
                let texts: Vec<String> = frames.iter().map(|frame| shown(frame, &place)).collect();
                frames.iter().zip(&texts).for_each(|(frame, text)| wrappers.add(frame, text));
                texts
            }
        }
    });
    if !log.log().about.is_nothing() {
        wrappers.leave_out(log);
    }
    for path in &asked {
        let module = ModuleRef { path: path.as_bytes(), build_id: build_ids.of_path(path) };
        for problem in &symbolizer.module_state(module).problems {
            match problem {
                Problem::BuildIdMismatch { .. } => {
                    warn(Code::OtherBuild, escape(&format!("`{path}`: {problem}; its frames have no names")));
                }
                Problem::Damaged { .. } | Problem::DebugFileMismatch { .. } => {
                    warn(Code::DebugInformation, escape(&format!("`{path}`: {problem}")));
                }
                _ => {}
            }
        }
    }
}

/// Returns the text of a frame in the format of Mozilla's fix_stacks.
fn shown(frame: &SymbolFrame, place: &UnresolvedFrame<'_>) -> String {
    let function = frame.function.full();
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{function} ({file}:{line})"),
        (Some(file), None) => format!("{function} ({file}:0)"),
        (None, _) => format!("{function} ({} + 0x{:x})", place.path, place.offset),
    }
}

/// Returns an address inside the call to which a frame returns.
pub(super) fn call(place: &UnresolvedFrame<'_>) -> u64 {
    place.offset.saturating_sub(1)
}

/// The build ids of the files that a log's frames are in.
pub(super) struct BuildIds(HashMap<String, Vec<u8>>);

impl BuildIds {
    pub(super) fn of(log: &Log) -> BuildIds {
        BuildIds(log.about.modules.iter().map(|module| (module.path.clone(), module.build_id.clone())).collect())
    }

    /// Returns the build id of a file; empty if it is not known.
    fn of_path(&self, path: &str) -> &[u8] {
        self.0.get(path).map_or(&[], Vec::as_slice)
    }

    pub(super) fn module<'a>(&'a self, place: &UnresolvedFrame<'a>) -> ModuleRef<'a> {
        ModuleRef { path: place.path.as_bytes(), build_id: self.of_path(place.path) }
    }
}
