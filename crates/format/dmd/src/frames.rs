//! Frames: their texts, those that are not resolved, and resolving them.

use crate::hash::Map;
use crate::log::{FrameId, Log, NameId};

/// A frame with a known position: `function[path +0xOFFSET]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnresolvedFrame<'a> {
    /// The program's own name for the function; `???`: not known.
    pub function: &'a str,
    /// The file that it is in.
    pub path: &'a str,
    /// The return address in that file's own address space.
    pub offset: u64,
}

impl<'a> UnresolvedFrame<'a> {
    /// Parses such a text; `None`: it is another one.
    pub fn parse(text: &'a str) -> Option<UnresolvedFrame<'a>> {
        let (front, offset) = text.strip_suffix(']')?.rsplit_once(" +0x")?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        let (function, path) = front.split_once('[')?;
        Some(UnresolvedFrame { function, path, offset })
    }
}

/// Texts that make a function an allocating one if its name contains one of them.
const ALLOC_FNS: [&str; 9] = [
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "operator new(",
    "operator new[](",
    "g_slice_alloc",
    "mozilla::dmd::AllocCallback",
    "mozilla::dmd::StackTrace::Get",
];

/// True if a frame is in an allocating function.
pub fn is_alloc_fn(frame: &str) -> bool {
    ALLOC_FNS.iter().any(|part| frame.contains(part))
}

/// The texts of a log's frames, which can be replaced.
pub trait FrameTexts {
    /// Returns the log, or what it has besides stacks and blocks.
    fn log(&self) -> &Log;

    /// Replaces the text of each frame by the texts of one or more frames, innermost first:
    /// functions that were inlined there. If `resolve` returns none, the frame stays as it is.
    fn map_frames(&mut self, resolve: impl FnMut(&str) -> Vec<String>);

    /// Removes wrapper functions from the beginning of each stack, with the frames between them,
    /// unless nothing would be left.
    fn strip_wrappers(&mut self, is_wrapper: impl Fn(&str) -> bool, is_between: impl Fn(&str) -> bool);
}

impl FrameTexts for Log {
    fn log(&self) -> &Log {
        self
    }

    fn map_frames(&mut self, resolve: impl FnMut(&str) -> Vec<String>) {
        let replaced = Replaced::new(self, resolve);
        for trace in &mut self.traces {
            *trace = replaced.frames(trace).collect();
        }
    }

    fn strip_wrappers(&mut self, is_wrapper: impl Fn(&str) -> bool, is_between: impl Fn(&str) -> bool) {
        let leading = LeadingWrappers::new(self, is_wrapper, is_between);
        for trace in &mut self.traces {
            trace.drain(..leading.count(trace));
        }
    }
}

/// The frames that replace each of the frames that a log had.
pub(crate) struct Replaced(Vec<Vec<FrameId>>);

impl Replaced {
    /// Replaces the texts in the log; not the frames of stacks.
    pub(crate) fn new(log: &mut Log, mut resolve: impl FnMut(&str) -> Vec<String>) -> Replaced {
        let mut texts: Vec<String> = Vec::new();
        let mut libraries: Vec<Option<NameId>> = Vec::new();
        let mut numbers: Map<(String, Option<NameId>), FrameId> = Map::default();
        let mut replaced: Vec<Vec<FrameId>> = Vec::with_capacity(log.frames.len());
        for (at, text) in log.frames.iter().enumerate() {
            let library = log.libraries.get(at).copied().flatten();
            let mut resolved = resolve(text);
            if resolved.is_empty() {
                resolved.push(text.clone());
            }
            let numbered = resolved.into_iter().map(|text| {
                *numbers.entry((text, library)).or_insert_with_key(|(text, library)| {
                    texts.push(text.clone());
                    libraries.push(*library);
                    FrameId(texts.len() as u32 - 1)
                })
            });
            replaced.push(numbered.collect());
        }
        (log.frames, log.libraries) = (texts, libraries);
        Replaced(replaced)
    }

    /// Returns these replacements with their own frames replaced.
    pub(crate) fn then(self, next: &Replaced) -> Replaced {
        Replaced(self.0.iter().map(|frames| next.frames(frames).collect()).collect())
    }

    /// Returns a stack with these frames replaced.
    pub(crate) fn frames(&self, trace: &[FrameId]) -> impl Iterator<Item = FrameId> {
        trace.iter().flat_map(|frame| &self.0[frame.0 as usize]).copied()
    }
}

/// The wrapper frames that are stripped from the beginning of stacks.
pub(crate) struct LeadingWrappers {
    wrappers: Vec<bool>,
    between: Vec<bool>,
}

impl LeadingWrappers {
    pub(crate) fn new(
        log: &Log,
        is_wrapper: impl Fn(&str) -> bool,
        is_between: impl Fn(&str) -> bool,
    ) -> LeadingWrappers {
        LeadingWrappers {
            wrappers: log.frames.iter().map(|frame| is_wrapper(frame)).collect(),
            between: log.frames.iter().map(|frame| is_between(frame)).collect(),
        }
    }

    /// Returns how many frames a stack is to lose.
    pub(crate) fn count(&self, trace: &[FrameId]) -> usize {
        let is = |set: &[bool], frame: &FrameId| set[frame.0 as usize];
        let leading = trace.iter().take_while(|frame| is(&self.wrappers, frame) || is(&self.between, frame)).count();
        let last = trace[..leading].iter().rposition(|frame| is(&self.wrappers, frame));
        last.map(|last| last + 1).filter(|count| *count < trace.len()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::log::{Block, Mode};

    #[test]
    fn an_unresolved_frame_has_a_path_and_an_offset() {
        let frame = |function, path, offset| Some(UnresolvedFrame { function, path, offset });
        assert_eq!(UnresolvedFrame::parse("???[/usr/lib/a b.so +0x1f]"), frame("???", "/usr/lib/a b.so", 0x1f));
        assert_eq!(UnresolvedFrame::parse("f(int)[x[1] +0xA]"), frame("f(int)", "x[1]", 10));
        for text in ["", "main (a.c:3)", "f[a +0x]", "f[a +0xg]", "f[a+0x1]", "f +0x1]", "f[a +0x11112222333344445]"] {
            assert_eq!(UnresolvedFrame::parse(text), None, "{text}");
        }
    }

    #[test]
    fn leading_wrappers_are_stripped() {
        let mut builder = Builder::new(Mode::Live);
        let frames = ["std::a", "pass", "std::b", "main", "pass"].map(|text| builder.frame(text));
        let traces = [&frames[..], &frames[..2], &frames[2..], &frames[1..3]].map(|frames| builder.trace(frames));
        let mut log = builder.finish();
        log.strip_wrappers(|frame| frame == "pass", |frame| frame.starts_with("std"));
        let left = traces.map(|trace| log.trace(trace).iter().map(|frame| log.frame(*frame)).collect::<Vec<_>>());
        assert_eq!(
            left,
            [&["std::b", "main", "pass"][..], &["std::a", "pass"], &["std::b", "main", "pass"], &["std::b"]]
        );
    }

    #[test]
    fn a_frame_becomes_several_and_keeps_its_library() {
        let mut builder = Builder::new(Mode::Live);
        let frames = [builder.frame("???[a.so +0x1]"), builder.frame("main (a.c:1)")];
        let trace = builder.trace(&frames);
        let (reports, type_name, context) = ([None; 2], None, None);
        let block = Block {
            requested: 1,
            slop: 0,
            count: 1,
            weight: 1.0,
            variance: 0.0,
            alloc: Some(trace),
            reports,
            type_name,
            context,
        };
        builder.add(&block);
        let mut log = builder.finish();
        log.map_frames(|text| {
            if text.starts_with("???") { vec!["inner (b.c:2)".into(), "outer (b.c:9)".into()] } else { Vec::new() }
        });
        let shown: Vec<&str> = log.trace(trace).iter().map(|frame| log.frame(*frame)).collect();
        assert_eq!(shown, ["inner (b.c:2)", "outer (b.c:9)", "main (a.c:1)"]);
        let library = |frame: FrameId| log.libraries[frame.0 as usize].map(|name| log.name(name));
        assert_eq!(
            log.trace(trace).iter().map(|frame| library(*frame)).collect::<Vec<_>>(),
            [Some("a.so"), Some("a.so"), None]
        );
    }
}
