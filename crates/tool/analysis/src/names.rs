//! Looks up the functions behind recorded addresses.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use heapledger_block_types::{TypeFinder, TypeName};
use heapledger_core::GENERATED_CODE;
use heapledger_dmd::CodeClass;
use heapledger_recording::{ModuleId, NamedFunction, Names as RecordedNames, NodeKind, Recording};
use heapledger_symbols::{Extent, Function, ModuleRef, ModuleState, NameSource, Symbolizer};

use crate::allocators::is_allocator;
use crate::block_types::Types;
use crate::find_names::{has_files, is_whole};
use crate::functions::{Frame, FunctionId, FunctionName, Location, Position, Unnamed};
use crate::roles::{Declared, Roles};
use crate::stacks::{NodeId, StackFrame, Stacks};
use crate::wrapper_search::{Search, Wrapper};

/// The functions behind the addresses of a recording. Every address is looked up once, when it is
/// first asked for.
#[derive(Debug)]
pub struct Names<'r, 'a> {
    recording: &'r Recording<'a>,
    pub(crate) known: KnownNames,
}

/// The module, the short name, the source file if it is known, and whether this is a scope, a heap
/// or a type instead of a function. The file tells apart inlined functions that have only bare
/// names, such as `new`, because the debug information consists of line tables only. For a type,
/// the full name takes the place of the file.
type FunctionKey = (ModuleId, Arc<str>, Option<Arc<str>>, bool);

/// The functions that were looked up for a recording, without the recording: what [`Names`] know,
/// to be kept between questions.
///
/// Can be sent to another thread. See [`Names::take_known`].
#[derive(Debug)]
pub struct KnownNames {
    /// The names in the recording itself; loaded when they are first asked for.
    recorded: OnceLock<Arc<RecordedNames>>,
    symbolizer: Arc<Symbolizer>,
    type_finder: TypeFinder,
    frames: Vec<Frame>,
    /// The range in `frames` of the functions at an address, the innermost first.
    places: HashMap<StackFrame, Range<usize>>,
    functions: Vec<FunctionName>,
    ids: HashMap<FunctionKey, FunctionId>,
    /// An address in each function that has no name.
    unnamed: HashMap<FunctionId, (ModuleId, u64)>,
    types: Types,
    roles: Roles,
    /// The state of the search for wrappers.
    pub(crate) search: Search,
    pub(crate) found: Vec<Wrapper>,
}

impl KnownNames {
    /// Returns the names of a recording, with all that was looked up before. It must be the same
    /// recording, although it may have been opened anew: ids of functions keep their meaning.
    pub fn of<'r, 'a>(self, recording: &'r Recording<'a>) -> Names<'r, 'a> {
        Names { recording, known: self }
    }

    /// Estimates the memory that the names take, in bytes, without that of the symbolizer: from the
    /// numbers of entries and the sizes of their types. Takes a pass over the functions.
    pub fn memory_bytes(&self) -> u64 {
        let texts: usize = self.functions.iter().map(|name| name.short.len() + name.full.len()).sum();
        let functions = self.functions.len() * (size_of::<FunctionName>() + size_of::<(FunctionKey, FunctionId)>());
        let places = self.places.len() * size_of::<(StackFrame, Range<usize>)>();
        let frames = self.frames.len() * size_of::<Frame>();
        (texts + functions + places + frames) as u64 + self.types.memory_bytes()
    }
}

impl AsMut<Self> for Names<'_, '_> {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl<'r, 'a> Names<'r, 'a> {
    /// Returns names for a recording; none is looked up yet.
    pub fn new(recording: &'r Recording<'a>, symbolizer: impl Into<Arc<Symbolizer>>) -> Names<'r, 'a> {
        let symbolizer = symbolizer.into();
        let known = KnownNames {
            recorded: OnceLock::new(),
            type_finder: TypeFinder::new(Arc::clone(&symbolizer)),
            symbolizer,
            frames: Vec::new(),
            places: HashMap::new(),
            functions: Vec::new(),
            ids: HashMap::new(),
            unnamed: HashMap::new(),
            types: Types::default(),
            roles: Roles::new(recording),
            search: Search::default(),
            found: Vec::new(),
        };
        Names { recording, known }
    }

    /// Sets the patterns of functions that the user classifies. Must be called before anything is
    /// looked up.
    #[must_use]
    pub fn with_declared(mut self, declared: Declared) -> Names<'r, 'a> {
        self.known.roles.declared = declared;
        self
    }

    /// Takes out all that was looked up so far, to be kept for later questions to the same
    /// recording. Nothing is looked up in the names that are left behind.
    pub fn take_known(&mut self) -> KnownNames {
        let declared = self.known.roles.declared.clone();
        let left = Names::new(self.recording, Arc::clone(&self.known.symbolizer)).with_declared(declared);
        std::mem::replace(self, left).known
    }

    /// Returns all frames of a stack from the innermost to the outermost, including inlined
    /// functions. Never empty.
    pub fn frames(&mut self, stacks: &Stacks, stack: NodeId) -> Vec<Frame> {
        let mut frames = Vec::new();
        for place in stacks.frames(stack) {
            let range = self.look_up(place);
            frames.extend_from_slice(&self.known.frames[range]);
        }
        if frames.is_empty() {
            frames.push(Frame { function: self.marker("[no stack]"), location: None, inlined: false });
        }
        frames
    }

    /// Returns the frames of a stack without the allocator functions at its inner end. The first of
    /// them names the site. If there are no other functions, the outermost allocator function
    /// stays.
    pub fn useful_frames(&mut self, stacks: &Stacks, stack: NodeId) -> Vec<Frame> {
        let mut frames = self.frames(stacks, stack);
        frames.drain(..self.allocators(frames.iter().map(|frame| frame.function)));
        frames
    }

    /// Returns the number of allocator functions at the inner end of a stack, not counting its
    /// outermost function.
    pub(crate) fn allocators(&self, functions: impl ExactSizeIterator<Item = FunctionId>) -> usize {
        let outermost = functions.len().saturating_sub(1);
        functions.take_while(|function| self.function(*function).allocator).count().min(outermost)
    }

    /// Returns the [useful frames](Self::useful_frames) grouped by their places, from the innermost
    /// to the outermost.
    pub fn useful_positions(&mut self, stacks: &Stacks, stack: NodeId) -> Vec<Position> {
        let mut rest = self.useful_frames(stacks, stack);
        let mut places = Vec::new();
        // Matched from the outside, because frames were left out at the inner end.
        let recorded: Vec<StackFrame> = stacks.frames(stack).collect();
        for at in recorded.into_iter().rev() {
            let length = self.look_up(at).len();
            let frames = rest.split_off(rest.len().saturating_sub(length));
            if frames.is_empty() {
                break;
            }
            places.push(Position { at: Some(at), frames });
        }
        if !rest.is_empty() {
            places.push(Position { at: None, frames: rest });
        }
        places.reverse();
        places
    }

    /// Returns the first of the [useful frames](Self::useful_frames). Looks up only as many
    /// addresses as that needs.
    pub fn useful_frame(&mut self, stacks: &Stacks, stack: NodeId) -> Frame {
        let mut outermost = None;
        for place in stacks.frames(stack) {
            for at in self.look_up(place) {
                let frame = &self.known.frames[at];
                if !self.function(frame.function).allocator {
                    return frame.clone();
                }
                outermost = Some(at);
            }
        }
        match outermost {
            Some(at) => self.known.frames[at].clone(),
            None => Frame { function: self.marker("[no stack]"), location: None, inlined: false },
        }
    }

    /// Returns the names of a function.
    pub fn function(&self, function: FunctionId) -> &FunctionName {
        &self.known.functions[function.0 as usize]
    }

    /// Returns the number of functions that were met so far; their ids are below it.
    pub(crate) fn functions_met(&self) -> usize {
        self.known.functions.len()
    }

    /// Returns the size and the neighbours of a function that has no name, if the recording or its
    /// module's file has them.
    pub fn unnamed(&self, function: FunctionId) -> Option<Unnamed> {
        let (module, offset) = *self.known.unnamed.get(&function)?;
        if let Some(extent) = self.recorded().extent(module, offset) {
            let [after, before] = extent.neighbours.map(|name| name.map(Cow::into_owned));
            return Some(Unnamed { code_bytes: extent.size, after, before });
        }
        let module = self.module(module)?;
        let extent = self.known.symbolizer.extents(module, &[offset]).pop().flatten()?;
        let [after, before] =
            self.known.symbolizer.neighbours(module, extent).map(|name| Some(name?.short().to_owned()));
        Some(Unnamed { code_bytes: extent.size, after, before })
    }

    /// Returns the first byte and the size of the function at each of these addresses of a module,
    /// from the recording or else from the module's file.
    pub(crate) fn extents(&self, id: ModuleId, offsets: &[u64]) -> Vec<Option<Extent>> {
        let recorded = self.recorded();
        let extent = |&offset: &u64| {
            let extent = recorded.extent(id, offset)?;
            Some(Extent { start: extent.start, size: extent.size })
        };
        let mut extents: Vec<Option<Extent>> = offsets.iter().map(extent).collect();
        let missing: Vec<usize> = (0..extents.len()).filter(|&at| extents[at].is_none()).collect();
        if let Some(module) = self.module(id).filter(|_| !missing.is_empty()) {
            let offsets: Vec<u64> = missing.iter().map(|&at| offsets[at]).collect();
            for (at, extent) in missing.into_iter().zip(self.known.symbolizer.extents(module, &offsets)) {
                extents[at] = extent;
            }
        }
        extents
    }

    /// Returns how well the addresses of a module can be looked up.
    pub fn module_state(&self, module: ModuleId) -> Option<ModuleState> {
        Some(self.known.symbolizer.module_state(self.module(module)?))
    }

    /// Returns one line on how to get better names for a module; `None` if they are as good as they
    /// can be.
    pub fn hint(&self, module: ModuleId) -> Option<String> {
        self.known.symbolizer.hint(self.module(module)?)
    }

    /// Returns the recording.
    pub fn recording(&self) -> &'r Recording<'a> {
        self.recording
    }

    /// Returns the path of a module; empty if it is not known.
    pub fn module_path(&self, module: ModuleId) -> String {
        let module = self.recording().module(module);
        module.map_or(String::new(), |module| String::from_utf8_lossy(&module.path).into_owned())
    }

    pub(crate) fn module(&self, module: ModuleId) -> Option<ModuleRef<'r>> {
        let module = self.recording.module(module)?;
        Some(ModuleRef { path: &module.path, build_id: &module.build_id })
    }

    /// Marks a function as a wrapper. Returns false if the user has declared it the program's own.
    pub(crate) fn set_wrapper(&mut self, function: FunctionId) -> bool {
        let name = &mut self.known.functions[function.0 as usize];
        if self.known.roles.is_declared_own(name) {
            return false;
        }
        name.wrapper = true;
        name.whose = if name.whose == CodeClass::Own { CodeClass::Helper } else { CodeClass::Library };
        true
    }

    /// Returns the functions at a place of a stack, the innermost first.
    pub(crate) fn frames_at(&mut self, place: StackFrame) -> &[Frame] {
        let range = self.look_up(place);
        &self.known.frames[range]
    }

    fn look_up(&mut self, place: StackFrame) -> Range<usize> {
        if let Some(range) = self.known.places.get(&place) {
            return range.clone();
        }
        let start = self.known.frames.len();
        match place.kind {
            NodeKind::Frame => self.look_up_address(place.module, place.offset),
            NodeKind::Truncated => self.push_marker("[outer frames cut off]"),
            NodeKind::Foreign => self.push_marker("[signal or fiber stack]"),
            _ => self.push_marker("[unknown kind of frame]"),
        }
        let range = start..self.known.frames.len();
        self.known.places.insert(place, range.clone());
        range
    }

    fn look_up_address(&mut self, module: ModuleId, offset: u64) {
        if let Some(place) = self.recording.imported_location(module, offset) {
            return self.push_named(module, place.functions().collect());
        }
        // Recorded names with files come from the debug information of the very program that ran.
        let names = self.recorded();
        let recorded = names.functions(module, offset);
        if let Some(functions) = recorded.as_deref().filter(|functions| has_files(functions)) {
            return self.push_named(module, functions.to_vec());
        }
        // Generated code has no file. If the program did not name it, only the address is known.
        let is_file = |reference: &ModuleRef<'_>| reference.path != GENERATED_CODE;
        let Some(reference) = self.module(module).filter(is_file) else {
            let module = self.module(module).map_or(ModuleId::UNKNOWN, |_| module);
            let name: Arc<str> = format!("{offset:#x}").into();
            let (short, full) = (name.clone(), name);
            let name = FunctionName {
                short,
                full,
                module,
                allocator: false,
                whose: CodeClass::Library,
                wrapper: false,
                known: false,
                is_label: false,
            };
            let function = self.intern(name, None);
            self.known.frames.push(Frame { function, location: None, inlined: false });
            return;
        };
        let frames = self.known.symbolizer.frames(reference, offset);
        if let Some(functions) = recorded.filter(|_| !is_whole(&frames)) {
            return self.push_named(module, functions);
        }
        let path = String::from_utf8_lossy(reference.path);
        for (at, frame) in frames.iter().enumerate() {
            let is_known = frame.source != NameSource::None;
            // An offset from the function's start: the file that has it may not be on this machine.
            let start = names.extent(module, offset).filter(|_| !is_known).map(|extent| extent.start);
            let unnamed =
                start.and_then(|start| Some(format!("{}+{start:#x}", frame.function.full().rsplit_once('+')?.0)));
            let outer = frames[at + 1..].iter().map(|frame| &frame.function);
            let qualified = qualified(&frame.function, outer);
            let function = qualified.as_ref().unwrap_or(&frame.function);
            let mut name = FunctionName {
                short: unnamed.as_deref().unwrap_or(function.short()).into(),
                full: unnamed.as_deref().unwrap_or(function.full()).into(),
                module,
                allocator: is_allocator(function.short(), frame.file.as_deref()),
                whose: CodeClass::Library,
                wrapper: false,
                known: is_known,
                is_label: false,
            };
            name.whose = self.known.roles.whose(&name, &path, frame.file.as_deref());
            let function = self.intern(name, frame.file.clone());
            if !is_known {
                self.known.unnamed.entry(function).or_insert((module, offset));
            }
            let location = frame.file.clone().map(|file| Location { file, line: frame.line.unwrap_or(0) });
            self.known.frames.push(Frame { function, location, inlined: frame.inlined });
        }
    }

    /// Returns the names in the recording itself.
    pub fn recorded(&self) -> Arc<RecordedNames> {
        self.known.recorded.get_or_init(|| Arc::new(self.recording.names())).clone()
    }

    /// Adds frames with the names that the recording has.
    fn push_named(&mut self, module: ModuleId, functions: Vec<NamedFunction<'_>>) {
        let mut inlined = functions.len();
        let path = self.module_path(module);
        let read: Vec<Function> = functions.iter().map(|named| Function::named(&named.name)).collect();
        for (at, named) in functions.into_iter().enumerate() {
            inlined -= 1;
            let file = named.file.map(Arc::<str>::from);
            let function = qualified(&read[at], &read[at + 1..]).unwrap_or_else(|| read[at].clone());
            let mut name = FunctionName {
                short: function.short().into(),
                full: function.full().into(),
                module,
                allocator: is_allocator(function.short(), file.as_deref()),
                whose: CodeClass::Library,
                wrapper: false,
                known: true,
                is_label: false,
            };
            name.whose = self.known.roles.whose(&name, &path, file.as_deref());
            let function = self.intern(name, file.clone());
            let location = file.map(|file| Location { file, line: named.line });
            self.known.frames.push(Frame { function, location, inlined: inlined > 0 });
        }
    }

    fn push_marker(&mut self, name: &str) {
        let function = self.marker(name);
        self.known.frames.push(Frame { function, location: None, inlined: false });
    }

    fn marker(&mut self, name: &str) -> FunctionId {
        self.intern(named(name, false), None)
    }

    pub(crate) fn roles(&self) -> &Roles {
        &self.known.roles
    }

    pub(crate) fn type_finder(&self) -> &TypeFinder {
        &self.known.type_finder
    }

    pub(crate) fn types_mut(&mut self) -> &mut Types {
        &mut self.known.types
    }

    /// Returns a frame that stands for a type where a function is expected.
    pub(crate) fn type_frame(&mut self, name: &TypeName) -> Frame {
        let label = FunctionName { full: name.full().into(), ..named(name.short(), true) };
        Frame { function: self.intern(label, Some(name.full().into())), location: None, inlined: false }
    }

    /// Returns a frame that stands for a scope, a heap or another label where a function is
    /// expected.
    pub(crate) fn label(&mut self, name: &str) -> Frame {
        Frame::named(self.intern(named(name, true), None))
    }

    fn intern(&mut self, name: FunctionName, file: Option<Arc<str>>) -> FunctionId {
        *self.known.ids.entry((name.module, name.short.clone(), file, name.is_label)).or_insert_with(|| {
            self.known.functions.push(name);
            FunctionId(self.known.functions.len() as u32 - 1)
        })
    }
}

/// Returns the name with its path of an inlined closure or part of an async function. Line tables
/// alone give names such as `{async_block#0}`, but the functions around it often have its type
/// among their arguments.
fn qualified<'f>(function: &Function, outer: impl IntoIterator<Item = &'f Function>) -> Option<Function> {
    let bare = function.full();
    let (kind, number) = bare.strip_prefix('{')?.strip_suffix('}')?.split_once('#')?;
    let types = [format!("::{{{kind}_env#{number}}}"), format!("::{bare}")];
    let path = outer.into_iter().find_map(|outer| {
        let full = outer.full();
        let at = types.iter().find_map(|name| full.find(name))?;
        let is_of_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '{' | '}' | '#');
        let path = &full[..at];
        Some(path[path.trim_end_matches(is_of_path).len()..].trim_start_matches(':'))
    })?;
    (!path.is_empty()).then(|| Function::named(&format!("{path}::{bare}")))
}

/// Returns a name that belongs to no module.
fn named(name: &str, is_label: bool) -> FunctionName {
    let name: Arc<str> = name.into();
    let (short, full) = (name.clone(), name);
    let (allocator, whose) = (false, CodeClass::Library);
    FunctionName { short, full, module: ModuleId::UNKNOWN, allocator, whose, wrapper: false, known: true, is_label }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inlined_closures_have_paths() {
        let name = |bare: &str, outer: &[&str]| {
            let outer: Vec<Function> = outer.iter().map(|name| Function::named(name)).collect();
            qualified(&Function::named(bare), &outer)
        };
        let poll = "poll<service::render::{async_fn#0}::{async_block_env#0}>";
        let fold = "fold<u8, app::Store::get::{closure#1}::{closure_env#0}<u8>>";
        for (bare, outer, expected) in [
            ("{async_block#0}", &["poll", poll][..], Some("service::render")),
            ("{async_block#1}", &[poll], None),
            ("{closure#0}", &[fold], Some("app::Store::get::{closure#1}::{closure#0}")),
            ("{closure#0}", &["{closure#0}", "call<::{closure_env#0}>"], None),
            ("{async_fn#0}", &["f<fn(u8) -> a::b::{async_fn_env#0}>"], Some("a::b")),
            ("render", &["service::render"], None),
        ] {
            assert_eq!(name(bare, outer).as_ref().map(Function::short), expected, "{bare} in {outer:?}");
        }
    }
}
