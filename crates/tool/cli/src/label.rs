//! Names of functions and source locations, as reports show them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use heapledger_analysis::{ContextId, Frame, FunctionId, Location, Names, NodeId, Stacks, Stamp};
use heapledger_block_types::TypeName;
use heapledger_recording::{ModuleId, Recording};
use heapledger_symbols::Symbolizer;

use crate::args::{Frames, Symbols};
use crate::config;
use crate::format::counted;
use crate::symbols::symbolizer;
use crate::text::shortened;

/// The number of scopes of a deep context that are shown at each end.
const SCOPES_OUTER: usize = 6;
const SCOPES_INNER: usize = 4;

/// The names of a recording's functions, as reports show them.
#[derive(Debug)]
pub(crate) struct Labels<'r, 'a> {
    pub(crate) names: Names<'r, 'a>,
    recording: &'r Recording<'a>,
    full_names: bool,
    frames: Frames,
    /// The program's working directory, with a slash at the end: source locations below it are
    /// shown relative to it.
    directory: String,
    /// True if mappings stand in place of blocks.
    pub(crate) counts_mappings: bool,
}

impl<'r, 'a> Labels<'r, 'a> {
    pub(crate) fn new(recording: &'r Recording<'a>, symbols: &Symbols) -> Labels<'r, 'a> {
        Labels::with_symbolizer(recording, symbols, Arc::new(symbolizer(&symbols.files)))
    }

    /// Creates labels with an existing symbolizer.
    pub(crate) fn with_symbolizer(
        recording: &'r Recording<'a>,
        symbols: &Symbols,
        symbolizer: Arc<Symbolizer>,
    ) -> Labels<'r, 'a> {
        let names = Names::new(recording, symbolizer).with_declared(config::declared(&symbols.wrapper));
        Labels::with_names(recording, symbols, names)
    }

    /// Creates labels with names of which some may have been looked up already.
    pub(crate) fn with_names(recording: &'r Recording<'a>, symbols: &Symbols, names: Names<'r, 'a>) -> Labels<'r, 'a> {
        let directory = recording.session().map(|session| String::from_utf8_lossy(&session.directory));
        let mut directory = directory.map(Cow::into_owned).unwrap_or_default();
        if !directory.ends_with('/') {
            directory.push('/');
        }
        Labels {
            names,
            recording,
            full_names: symbols.full_names,
            frames: symbols.frames,
            directory,
            counts_mappings: false,
        }
    }

    /// Returns the name of a function: the short one, unless full ones were asked for.
    pub(crate) fn function(&self, function: FunctionId) -> String {
        let name = self.names.function(function);
        if self.full_names { &name.full } else { &name.short }.to_string()
    }

    /// Returns the name of a type.
    pub(crate) fn type_name<'n>(&self, name: &'n TypeName) -> &'n str {
        if self.full_names { name.full() } else { name.short() }
    }

    /// Returns the source location of a frame, or its module.
    pub(crate) fn place(&self, function: FunctionId, location: Option<&Location>) -> String {
        match location {
            Some(location) => self.location(location),
            // The function's name, `module+0xoffset`, has the module already.
            None if !self.names.function(function).known => String::new(),
            None => self.module(self.names.function(function).module),
        }
    }

    /// Returns the source location of a frame, and the function by which it allocates:
    /// `src/main.rs:19, via Vec::with_capacity`.
    pub(crate) fn place_via(&self, frame: &Frame, via: Option<FunctionId>) -> String {
        let place = match self.names.function(frame.function).known {
            true => self.place(frame.function, frame.location.as_ref()),
            false => self.surroundings(frame.function).unwrap_or_default(),
        };
        match via {
            None => place,
            Some(via) if place.is_empty() => format!("via {}", self.via(via)),
            Some(via) => format!("{place}, via {}", self.via(via)),
        }
    }

    /// Describes a function without a name by the size of its code and its nearest named
    /// neighbours: `181 bytes between ggc_grow and ggc_free`.
    fn surroundings(&self, function: FunctionId) -> Option<String> {
        let unnamed = self.names.unnamed(function)?;
        let near = match (&unnamed.after, &unnamed.before) {
            (Some(after), Some(before)) => format!("between {after} and {before}"),
            (Some(after), None) => format!("after {after}"),
            (None, Some(before)) => format!("before {before}"),
            (None, None) => "of code".to_owned(),
        };
        Some(format!("{} {near}", counted(unnamed.code_bytes, "byte", "bytes")))
    }

    /// Returns the short name of a function that allocates for another: `Vec::with_capacity`.
    fn via(&self, function: FunctionId) -> String {
        let name = self.function(function);
        // The last two components of a path are enough; a trait's implementation needs all of them.
        let from = if self.full_names || name.contains(['<', '(', '{', ' ']) {
            None
        } else {
            name.rmatch_indices("::").nth(1)
        };
        from.map_or_else(|| name.clone(), |(at, parts)| name[at + parts.len()..].to_owned())
    }

    /// Returns the frames of a stack that are shown, and the function by which the first one
    /// allocates, if that function is not shown.
    pub(crate) fn frames(&mut self, stacks: &Stacks, stack: NodeId) -> (Vec<Frame>, Option<FunctionId>) {
        match self.frames {
            Frames::Own => self.names.own_frames(stacks, stack),
            Frames::All => (self.names.useful_frames(stacks, stack), None),
        }
    }

    /// Summarises a run of functions in the same module without known names, at the beginning of a
    /// stack. Returns the text that replaces them and their number, if there are several.
    pub(crate) fn unnamed(&self, functions: impl IntoIterator<Item = FunctionId>) -> Option<(String, usize)> {
        let mut functions = functions.into_iter().map(|function| self.names.function(function)).peekable();
        let module = functions.peek()?.module;
        let length = functions.take_while(|name| !name.known && name.module == module).count();
        (length > 1).then(|| (format!("[{length} in {}]", self.module(module)), length))
    }

    /// Returns the name of a module, without its directory.
    pub(crate) fn module(&self, module: ModuleId) -> String {
        let Some(module) = self.recording.module(module) else { return String::new() };
        let path = String::from_utf8_lossy(&module.path);
        path.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Returns a source location: relative to the program's working directory, or the end of a
    /// longer path.
    fn location(&self, location: &Location) -> String {
        let file = self.file(&location.file);
        if location.line > 0 { format!("{file}:{}", location.line) } else { file.into_owned() }
    }

    /// Returns a source path, with or without a line, shortened in the same way.
    pub(crate) fn file<'f>(&self, file: &'f str) -> Cow<'f, str> {
        match file.strip_prefix(self.directory.as_str()) {
            Some(below) => Cow::Borrowed(below),
            None => shortened(file),
        }
    }

    /// Returns a hint on how to get better names for the first of these functions for which there
    /// is one.
    pub(crate) fn hint(&self, functions: impl IntoIterator<Item = FunctionId>) -> Option<String> {
        let modules = functions.into_iter().map(|function| self.names.function(function).module);
        let mut asked = HashSet::new();
        modules.filter(|&module| asked.insert(module)).find_map(|module| self.names.hint(module))
    }

    /// Returns a hint on how to get names for the functions that have none.
    pub(crate) fn hint_for_unnamed(&self, functions: impl IntoIterator<Item = FunctionId>) -> Option<String> {
        self.hint(functions.into_iter().filter(|&function| !self.names.function(function).known))
    }

    /// Returns the name of a context, without the middle of a very deep one.
    pub(crate) fn context(&self, stacks: &Stacks, context: ContextId) -> String {
        let scopes: Vec<String> = stacks.scopes(context).into_iter().map(|scope| self.names.scope(scope)).collect();
        let Some(left_out) = scopes.len().checked_sub(SCOPES_OUTER + SCOPES_INNER).filter(|&left_out| left_out > 1)
        else {
            return self.names.context(stacks, context);
        };
        let (outer, inner) = (&scopes[..SCOPES_OUTER], &scopes[SCOPES_OUTER + left_out..]);
        format!("{} > [{left_out} more] > {}", outer.join(" > "), inner.join(" > "))
    }

    /// Returns what the program declared about a stack, if anything: a line for its context, one
    /// for its heap, and one for its stamp.
    pub(crate) fn declared(&self, stacks: &Stacks, stack: NodeId) -> Vec<String> {
        let context = stacks.context(stack);
        let context = (context != ContextId::NONE).then(|| format!("in {}", self.context(stacks, context)));
        let heap = stacks.heap(stack).map(|heap| self.names.text(heap));
        let stamp = self.names.stamp(stacks, stack);
        if self.counts_mappings {
            let file = stamp.filter(|stamp| Some(stamp.name.full()) != heap.as_deref());
            let file = file.map(|file| format!("of {}", file.name.full()));
            return context.into_iter().chain(heap.map(|kind| format!("kind: {kind}"))).chain(file).collect();
        }
        let heap = heap.map(|heap| format!("of heap {heap}"));
        let stamp = stamp.map(|stamp| self.stamp(&stamp));
        context.into_iter().chain(heap).chain(stamp).collect()
    }

    /// Formats a stamp: `stamped Page at src/pages.rs:8: spare`.
    fn stamp(&self, stamp: &Stamp) -> String {
        let at = stamp.location.as_ref().map_or(String::new(), |location| format!(" at {}", self.location(location)));
        let label = stamp.label.as_ref().map_or(String::new(), |label| format!(": {label}"));
        format!("stamped {}{at}{label}", self.type_name(&stamp.name))
    }
}
