//! Symbolizes addresses offline: functions, files, lines, inlined frames and types.
//!
//! A [`Symbolizer`] takes a module of a recording (its path and build id) and an offset in the
//! module's own ELF addresses, and returns the functions there, innermost inlined function first.
//! The sources are, in this order: the debug information, in the file itself or in a separate debug
//! file; the symbol table; the exported symbols. A function without a name in any of them is called
//! `module+0xoffset`, where the offset is that of the function if unwind information tells its
//! beginning; so there is always an answer.
//!
//! Symbol files of Breakpad come before all of these, if [`SymbolizerOptions::breakpad`] names
//! directories with some.
//!
//! A file is used only if its build id is the recorded one. [`Symbolizer::module_state`] returns
//! what was found, and [`Symbolizer::hint`] what to do about it.
//!
//! ```
//! use heapledger_symbols::{ModuleRef, SymbolizerOptions, Symbolizer};
//!
//! let symbolizer = Symbolizer::new(SymbolizerOptions::default());
//! let frames = symbolizer.frames(ModuleRef { path: b"[vdso]", build_id: b"" }, 0x91f);
//! assert_eq!(frames[0].function.full(), "[vdso]+0x91f");
//! ```
//!
//! [`SymbolizerOptions::cache`] names a directory in which answers are kept from run to run, by
//! build id.
//!
//! ELF and DWARF files may come from anybody. Damage means fewer names, never a panic, and the work
//! and the memory spent on a file are bounded by a multiple of its size.

mod breakpad;
mod cache;
mod demangle;
mod extents;
mod find;
mod frame;
mod headers;
mod hint;
mod image;
mod index;
mod mapped;
mod meter;
mod module;
mod state;
mod symbolizer;
mod symtab;
mod types;

#[doc(hidden)]
pub use breakpad::exercise as exercise_breakpad;
#[doc(hidden)]
pub use cache::exercise as exercise_cache;
pub use extents::Extent;
pub use frame::{Function, NameSource, SymbolFrame};
pub use headers::{Headers, Segment};
pub use state::{BuildId, DebugInfo, ModuleState, NameCounts, Problem};
pub use symbolizer::{ModuleRef, Symbolizer, SymbolizerOptions};
pub use types::{
    Confidence, Constructed, EachSize, Evidence, Language, Parameter, Pointee, Received, SiteSizes, SiteType,
    SizeCheck, TypeName, TypedFrame, Written,
};
