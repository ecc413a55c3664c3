//! Symbolizes addresses offline: functions, files, lines and inlined frames.
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
//!
//! Code that asks more of a module than names uses the same mapped files, by
//! [`Symbolizer::with_open_module`]: an [`OpenModule`] has the entries of the debug information at
//! an address, the [`Units`] that they refer to, the symbols and the code. All reading of debug
//! information is [`Metered`]. Its answers can be kept beside the names: see [`cache`].

mod answer;
mod breakpad;
pub mod cache;
pub mod demangle;
mod extents;
mod files;
mod find;
mod frame;
mod headers;
mod hint;
mod image;
mod index;
mod mapped;
mod meter;
mod module;
mod modules;
mod open_module;
mod options;
mod state;
mod symbol_files;
mod symbolizer;
mod symtab;
mod tables;
mod units;

#[doc(hidden)]
pub use breakpad::exercise as exercise_breakpad;
#[doc(hidden)]
pub use cache::names::exercise as exercise_cache;
pub use extents::Extent;
pub use frame::{Function, NameSource, SymbolFrame};
pub use headers::{Headers, Segment};
pub use meter::Metered;
pub use modules::{ModuleRef, Modules};
pub use open_module::{DebugFrame, OpenModule};
pub use options::SymbolizerOptions;
pub use state::{BuildId, DebugInfo, ModuleState, NameCounts, Problem};
pub use symbol_files::{SymbolFile, SymbolFiles};
pub use symbolizer::Symbolizer;
pub use symtab::Symbol;
pub use units::{EntryKey, EntryRef, Target, Units};
