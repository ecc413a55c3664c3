//! Parses Rust functions: from their names and arguments in the debug information, and their source
//! files.

use std::sync::OnceLock;

use heapledger_symbols::demangle;

use super::name::{self, Of, Segment, Type};
use super::parsed::{Argument, Details, View};
use crate::frame::TypedFrame;
use crate::language::Language;

/// Container crates besides std.
const LIBRARIES: [&str; 14] = [
    "alloc",
    "core",
    "std",
    "hashbrown",
    "indexmap",
    "smallvec",
    "bytes",
    "thin_vec",
    "arrayvec",
    "slab",
    "rustc_demangle",
    "allocator_api2",
    "bumpalo",
    "crossbeam_channel",
];

/// Modules of std that run other code: the functions inlined into them are not theirs. (They
/// allocate nothing themselves.)
const RUNNERS: [&str; 3] = ["std::sys::backtrace", "std::panicking", "std::rt"];

impl View {
    pub(crate) fn new(frame: &TypedFrame) -> Self {
        let by_name = || {
            let (of, segments) = parts(frame);
            let (own, as_trait) = around(of, segments)?;
            Some(home(&own, as_trait.as_ref()))
        };
        // If link-time optimisation has lost the inlined functions, the line is in another
        // function's file.
        let of_file = || frame.file.as_deref().and_then(module_of_file);
        let module = if is_elsewhere(frame) { by_name().or_else(of_file) } else { of_file().or_else(by_name) };
        let module = module.unwrap_or_default();
        let krate = module.split("::").next().unwrap_or_default();
        let library = LIBRARIES.contains(&krate) || module.starts_with("tokio::sync::mpsc");
        let library = library && !RUNNERS.iter().any(|runner| module.starts_with(runner));
        Self { module, library, details: OnceLock::new() }
    }

    /// Returns the details of the same frame.
    pub(crate) fn details(&self, frame: &TypedFrame) -> &Details {
        self.details.get_or_init(|| Details::new(frame))
    }
}

/// True for a function whose name puts it into a crate that is not a library: it is in a module or
/// a type there, and not in a trait.
fn is_elsewhere(frame: &TypedFrame) -> bool {
    let is_other = |segments: &[Segment]| {
        segments.first().is_some_and(|first| segments.len() > 1 && !LIBRARIES.contains(&&*first.name))
    };
    frame.linkage.is_some()
        && match parts(frame) {
            (Some(of), _) => {
                of.as_trait.is_none() && matches!(&of.own, Type::Path { of: None, segments } if is_other(segments))
            }
            (None, segments) => is_other(&segments),
        }
}

/// Returns the name as a path, with the type at its beginning if there is one.
fn parts(frame: &TypedFrame) -> (Option<Box<Of>>, Vec<Segment>) {
    match Type::parse(&frame.name) {
        Type::Path { of, segments } => (of, segments),
        _ => (None, Vec::new()),
    }
}

/// Returns the type around a function and its trait, from the parts of its name.
fn around(of: Option<Box<Of>>, mut segments: Vec<Segment>) -> Option<(Type, Option<Type>)> {
    segments.pop();
    match of {
        Some(of) => Some((of.own, of.as_trait)),
        None if segments.is_empty() => None,
        None => Some((Type::Path { of: None, segments }, None)),
    }
}

impl Details {
    fn new(frame: &TypedFrame) -> Self {
        let (of, segments) = parts(frame);
        let legacy = frame.linkage.as_deref().is_some_and(|linkage| demangle::is_legacy_rust(linkage.as_bytes()));
        let last = segments.last().cloned();
        let own = around(of, segments).map(|(own, _)| own);
        let arguments = match &frame.plain {
            Some(plain) => named(plain, frame),
            // The symbol only: arguments of the enclosing type, then its own.
            None if legacy => Vec::new(),
            None => {
                let outer = own.iter().flat_map(inner_arguments);
                let all = outer.chain(last.iter().flat_map(|last| &last.arguments));
                all.map(|of| Argument { name: None, of: of.clone(), size: None }).collect()
            }
        };
        let generic = !arguments.is_empty();
        // A function that is the same for all types has a symbol without them: `RawVecInner<_>`.
        let arguments: Vec<Argument> = arguments.into_iter().filter(|argument| argument.of.path() != "_").collect();
        // Legacy names have `T` in place of the type, and functions without a linkage name have
        // only a scope.
        let told = !legacy && frame.linkage.is_some();
        let function = match (last, &frame.plain) {
            (Some(last), _) => last.name,
            (None, Some(plain)) => plain.split('<').next().unwrap_or_default().to_owned(),
            (None, None) => String::new(),
        };
        Self { own: own.filter(|_| told), function, arguments, generic }
    }
}

/// Returns the arguments of `DW_AT_name`, with names and sizes from the parameters if there are
/// any.
fn named(plain: &str, frame: &TypedFrame) -> Vec<Argument> {
    let types = name::arguments(plain);
    let parameters: Vec<_> = frame.parameters.iter().filter(|parameter| !parameter.of_class).collect();
    let same = parameters.len() == types.len();
    let argument = |(at, spelled): (usize, &&str)| Argument {
        name: parameters.get(at).filter(|_| same).map(|parameter| parameter.name.clone()),
        of: Type::parse(spelled),
        size: parameters.get(at).filter(|_| same).and_then(|parameter| parameter.size),
    };
    types.iter().enumerate().map(argument).collect()
}

fn inner_arguments(own: &Type) -> Vec<&Type> {
    match own {
        Type::Path { segments, .. } => segments.iter().flat_map(|segment| &segment.arguments).collect(),
        Type::Slice(element, _) => vec![element],
        Type::Pointer(_, target) => inner_arguments(target),
        _ => Vec::new(),
    }
}

/// Returns the module of a method from its name: that of its type, or of a trait that only std has.
fn home(own: &Type, as_trait: Option<&Type>) -> String {
    let parent = |path: String| path.rsplit_once("::").map(|(module, _)| module.to_owned()).unwrap_or(path);
    let is_public = |path: &str| !path.contains("::spec_") && !path.contains("ConvertVec") && !path.contains("::Spec");
    if let Some(path) = as_trait.map(Type::path).filter(|path| !is_public(path)) {
        return parent(path);
    }
    match own {
        Type::Slice(..) => "alloc::slice".to_owned(),
        Type::Pointer(_, target) => home(target, None),
        Type::Path { segments, .. } if segments.len() == 1 && segments[0].name == "str" => "alloc::str".to_owned(),
        // The last part is a type or, for a plain function, a module.
        Type::Path { segments, .. } => {
            let is_type = segments.last().is_some_and(|last| last.name.starts_with(char::is_uppercase));
            let path = own.path();
            if is_type { parent(path) } else { path }
        }
        _ => String::new(),
    }
}

/// Returns the module of a source file: `…/library/alloc/src/vec/mod.rs` is `alloc::vec`,
/// `…/hashbrown-0.15.2/src/raw/mod.rs` is `hashbrown::raw`. `None` for files that are not in a
/// library's `src`: by its name, such a file may be anything.
fn module_of_file(file: &str) -> Option<String> {
    let (before, inside) = file.rsplit_once("/src/")?;
    let directory = before.rsplit('/').next()?;
    let versioned = directory.rsplit_once('-').filter(|(_, version)| version.starts_with(|c: char| c.is_ascii_digit()));
    let krate = match versioned {
        Some((krate, _)) => krate.replace('-', "_"),
        None if before.ends_with(&format!("library/{directory}")) => directory.to_owned(),
        None => return None,
    };
    let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    Some(if inside == "lib" { krate } else { format!("{krate}::{}", inside.replace('/', "::")) })
}

impl TypedFrame {
    /// Returns the parsed function, if it is Rust's.
    pub(crate) fn view(&self) -> Option<&View> {
        (self.language == Language::Rust).then(|| self.view.0.get_or_init(|| View::new(self)))
    }
}
