//! Names of functions, source locations and processes, as reports show them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use heapledger_analysis::{ContextId, Frame, FunctionId, Key, Location, Names, NodeId, Scope, Stacks, Stamp};
use heapledger_recording::{ImageStart, ModuleId, Recording};
use heapledger_report_format::escape;
use heapledger_symbols::{Symbolizer, SymbolizerOptions, TypeName};
use serde::Serialize;

use crate::args::{Frames, SymbolFiles, Symbols};
use crate::config;
use crate::format::counted;
use crate::output::notify;

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
        let directory = recording.session().map(|session| String::from_utf8_lossy(&session.directory));
        let mut directory = directory.map(Cow::into_owned).unwrap_or_default();
        if !directory.ends_with('/') {
            directory.push('/');
        }
        let names = Names::new(recording, symbolizer).with_declared(config::declared(&symbols.wrapper));
        Labels { names, recording, full_names: symbols.full_names, frames: symbols.frames, directory }
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
        let heap = stacks.heap(stack).map(|heap| format!("of heap {}", self.names.text(heap)));
        let stamp = self.names.stamp(stacks, stack).map(|stamp| self.stamp(&stamp));
        context.into_iter().chain(heap).chain(stamp).collect()
    }

    /// Formats a stamp: `stamped Page at src/pages.rs:8: spare`.
    fn stamp(&self, stamp: &Stamp) -> String {
        let at = stamp.location.as_ref().map_or(String::new(), |location| format!(" at {}", self.location(location)));
        let label = stamp.label.as_ref().map_or(String::new(), |label| format!(": {label}"));
        format!("stamped {}{at}{label}", self.type_name(&stamp.name))
    }

    fn scope(&self, scope: Scope) -> ScopeJson {
        ScopeJson { name: self.names.text(scope.name), value: scope.value.map(|value| self.names.text(value)) }
    }

    /// A function, for JSON.
    pub(crate) fn label(&self, function: FunctionId) -> LabelJson {
        let name = self.names.function(function);
        LabelJson {
            function: name.short.to_string(),
            full: (name.full != name.short).then(|| name.full.to_string()),
            module: Some(self.names.module_path(name.module)).filter(|path| !path.is_empty()),
            declared: name.is_label,
        }
    }

    /// A frame, for JSON.
    pub(crate) fn frame(&self, frame: &Frame) -> FrameJson {
        FrameJson {
            label: self.label(frame.function),
            file: frame.location.as_ref().map(|location| location.file.to_string()),
            line: frame.location.as_ref().map(|location| location.line).filter(|&line| line > 0),
            inlined: frame.inlined,
        }
    }
}

/// A function, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LabelJson {
    /// The name without type arguments and parameters.
    function: String,
    /// The name with type arguments and parameters, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    full: Option<String>,
    /// The path of the executable or library.
    module: Option<String>,
    /// True if this is not a function, but the name of something else, such as a scope or a line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    declared: bool,
}

/// The owner of a stack, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OwnerJson {
    owner: FrameJson,
    /// The function that it called to allocate; `null`: the allocator itself, or something without
    /// a name.
    via: Option<LabelJson>,
    /// Facts about an owner without a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    unnamed: Option<UnnamedJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UnnamedJson {
    code_bytes: u64,
    /// The named functions on either side.
    after: Option<String>,
    before: Option<String>,
}

impl OwnerJson {
    pub(crate) fn new(labels: &mut Labels<'_, '_>, stacks: &Stacks, stack: NodeId) -> OwnerJson {
        let owner = labels.names.owner(stacks, stack);
        let unnamed = labels.names.unnamed(owner.frame.function).map(|unnamed| UnnamedJson {
            code_bytes: unnamed.code_bytes,
            after: unnamed.after,
            before: unnamed.before,
        });
        OwnerJson { owner: labels.frame(&owner.frame), via: owner.via.map(|via| labels.label(via)), unnamed }
    }
}

/// The program's declarations about blocks, for JSON: only the property by which the blocks were
/// grouped, and for stacks everything that the program declared. Blocks grouped by thread, process
/// or size have a part.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GroupNameJson {
    /// The name of the thread, process or size.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<String>,
    /// The scopes, the outermost first.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Vec<ScopeJson>>,
    /// `null` if the blocks are in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Option<String>>,
    /// `null` if the blocks are in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Option<ScopeJson>>,
    /// `null` if the blocks belong to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    heap: Option<Option<String>>,
    /// The stamp of the blocks; only for stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    stamp: Option<StampJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StampJson {
    #[serde(rename = "type")]
    name: String,
    file: Option<String>,
    line: Option<u32>,
    label: Option<String>,
}

impl StampJson {
    fn new(stamp: Stamp) -> StampJson {
        StampJson {
            name: stamp.name.full().to_owned(),
            file: stamp.location.as_ref().map(|location| location.file.to_string()),
            line: stamp.location.map(|location| location.line).filter(|&line| line > 0),
            label: stamp.label,
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ScopeJson {
    name: String,
    value: Option<String>,
}

impl GroupNameJson {
    pub(crate) fn new(labels: &Labels<'_, '_>, stacks: &Stacks, key: Key) -> GroupNameJson {
        let context = |context| Some(stacks.scopes(context).into_iter().map(|scope| labels.scope(scope)).collect());
        let mut declared = GroupNameJson::default();
        match key {
            Key::Owner(_) | Key::Line(_) | Key::File(_) | Key::Function(_) | Key::Module(_) | Key::Type(_) => {}
            Key::Part(label) => declared.part = label.map(|label| labels.names.function(label).short.to_string()),
            Key::Context(id) => declared.context = context(id),
            Key::Scope(name) => declared.scope = Some(name.map(|name| labels.names.text(name))),
            Key::Task(task) => declared.task = Some(task.map(|task| labels.scope(task))),
            Key::Heap(heap) => declared.heap = Some(heap.map(|heap| labels.names.text(heap))),
            Key::Site(stack) => {
                let id = stacks.context(stack);
                declared.context = context(id).filter(|_| id != ContextId::NONE);
                declared.heap = stacks.heap(stack).map(|heap| Some(labels.names.text(heap)));
                declared.stamp = labels.names.stamp(stacks, stack).map(StampJson::new);
            }
        }
        declared
    }
}

/// A frame, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FrameJson {
    #[serde(flatten)]
    label: LabelJson,
    file: Option<String>,
    line: Option<u32>,
    /// True if the function was inlined into that of the next frame.
    inlined: bool,
}

/// Creates the symbolizer with these options.
pub(crate) fn symbolizer(symbols: &SymbolFiles) -> Symbolizer {
    let mut options = SymbolizerOptions { sysroot: symbols.sysroot.clone(), ..SymbolizerOptions::default() };
    options.debug_dirs.splice(0..0, symbols.debug_dir.iter().cloned());
    options.search.clone_from(&symbols.search);
    options.breakpad.clone_from(&symbols.breakpad_symbols);
    if options.breakpad.is_empty() {
        options.breakpad.extend(std::env::var_os("BREAKPAD_SYMBOLS_PATH").map(PathBuf::from));
    }
    options.cache = cache_directory().map(|directory| directory.join("heapledger/symbols"));
    if symbols.download && std::env::var_os("DEBUGINFOD_URLS").is_some_and(|urls| !urls.is_empty()) {
        options.debuginfod = Some(|name| notify(format_args!("heapledger: asking debuginfod for {}", escape(name))));
    }
    Symbolizer::new(options)
}

/// Returns the user's cache directory, as the XDG Base Directory Specification defines it.
fn cache_directory() -> Option<PathBuf> {
    let directory = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    directory("XDG_CACHE_HOME").or_else(|| Some(directory("HOME")?.join(".cache")))
}

/// Returns the last three components of a path that has more.
pub(crate) fn shortened(path: &str) -> Cow<'_, str> {
    let kept: usize = path.rsplit('/').take(3).map(|component| component.len() + 1).sum();
    if kept < path.len() { Cow::Owned(format!("…{}", &path[path.len() - kept..])) } else { Cow::Borrowed(path) }
}

/// Returns the command line of an image: its arguments, or at least its executable.
pub(crate) fn command(image: &ImageStart) -> String {
    let words: Vec<Cow<'_, str>> = image.argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
    if words.is_empty() { String::from_utf8_lossy(&image.executable).into_owned() } else { words.join(" ") }
}

/// Returns the command line of an image, escaped for people.
pub(crate) fn shown_command(image: &ImageStart) -> String {
    escape(&command(image)).into_owned()
}

/// Returns a time in seconds.
pub(crate) fn seconds(time: heapledger_recording::Time) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_shortened() {
        assert_eq!(shortened("main.c"), "main.c");
        assert_eq!(shortened("/src/main.c"), "/src/main.c");
        assert_eq!(shortened("/a/b/c/d.rs"), "…/b/c/d.rs");
        assert_eq!(shortened("b/c/d.rs"), "b/c/d.rs");
    }

    #[test]
    fn commands() {
        let mut image = ImageStart { executable: b"/bin/cat".to_vec(), ..ImageStart::default() };
        assert_eq!(command(&image), "/bin/cat");
        image.argv = vec![b"cat".to_vec(), b"a\xff\x1b[m".to_vec()];
        assert_eq!(command(&image), "cat a\u{fffd}\x1b[m");
        assert_eq!(shown_command(&image), "cat a\u{fffd}\\u{1b}[m");
    }
}
