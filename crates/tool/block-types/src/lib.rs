//! Infers the types of allocated blocks, offline, from the code that allocates them.
//!
//! A block has no type of its own, but the code that allocates it does. The compiler leaves the
//! type arguments of every function, inlined ones too, in the debug information, and some of them
//! in symbol names. [`TypeFinder::typed_frames`] reads them; [`TypeFinder::site_type`] draws the
//! conclusion. The rules depend on the language of the code that allocates: one file each.
//!
//! ```
//! use heapledger_block_types::{SiteSizes, TypeFinder};
//! use heapledger_symbols::{ModuleRef, Symbolizer, SymbolizerOptions};
//!
//! let finder = TypeFinder::new(Symbolizer::new(SymbolizerOptions::default()));
//! let vdso = ModuleRef { path: b"[vdso]", build_id: b"" };
//! assert_eq!(finder.site_type(&[(vdso, 0x91f)], SiteSizes::of_one(24)).block, None);
//! ```
//!
//! The files are those that the [`Symbolizer`](heapledger_symbols::Symbolizer) has found and
//! mapped, and its bounds on work apply.

#![forbid(unsafe_code)]

mod bodies;
mod body;
mod c;
mod cache;
mod conclude;
mod constructors;
mod cxx;
mod cxx_name;
mod definitions;
mod entries;
mod finder;
mod frame;
mod known_entries;
mod language;
mod lookup;
mod machine_code;
mod module;
mod normal_name;
mod places;
mod pointers;
mod python;
mod rendering;
mod rust;
mod site_type;
mod sizes;
mod source;
mod spelled;
#[cfg(test)]
mod testing;
mod type_name;
mod typed_answer;

#[doc(hidden)]
pub use cache::exercise as exercise_cache;
pub use finder::TypeFinder;
pub use frame::{Constructed, Parameter, Pointee, Received, TypedFrame, Written};
pub use language::Language;
pub use site_type::{Confidence, Evidence, SiteType, SizeCheck};
pub use sizes::{EachSize, SiteSizes};
pub use type_name::TypeName;
