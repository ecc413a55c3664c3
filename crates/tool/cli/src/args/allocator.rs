//! The allocator that a program runs with.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};

/// The option of all verbs that run programs.
#[derive(Debug, Args)]
pub(crate) struct AllocatorOption {
    /// The allocator to run with: heapledger, jemalloc, tcmalloc, mimalloc or a library
    ///
    /// `heapledger` is the one that this command carries; the others must be installed. A
    /// library is a path with a `/`, such as ./liballocator.so. The program and all that
    /// it starts run with it; `system` leaves each program its own.
    #[arg(id = "allocator", long = "allocator", value_name = "NAME|LIB.so", default_value = "system")]
    #[arg(value_parser = OsStringValueParser::new().try_map(AllocatorName::parse), value_hint = ValueHint::FilePath)]
    #[arg(verbatim_doc_comment)]
    pub(crate) name: AllocatorName,
}

/// An allocator, as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllocatorName {
    /// Each program's own.
    System,
    /// The one that this command carries.
    Heapledger,
    /// One that the distribution installs.
    Installed(InstalledAllocator),
    /// A shared library.
    File(PathBuf),
}

/// An allocator of the distribution's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstalledAllocator {
    Jemalloc,
    Tcmalloc,
    Mimalloc,
}

impl InstalledAllocator {
    pub(crate) const ALL: [InstalledAllocator; 3] =
        [InstalledAllocator::Jemalloc, InstalledAllocator::Tcmalloc, InstalledAllocator::Mimalloc];

    pub(crate) fn name(self) -> &'static str {
        match self {
            InstalledAllocator::Jemalloc => "jemalloc",
            InstalledAllocator::Tcmalloc => "tcmalloc",
            InstalledAllocator::Mimalloc => "mimalloc",
        }
    }

    /// Returns the names of its library, the preferred one first.
    pub(crate) fn files(self) -> &'static [&'static str] {
        match self {
            InstalledAllocator::Jemalloc => &["libjemalloc.so.2"],
            // Without the heap profiler and its threads.
            InstalledAllocator::Tcmalloc => &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"],
            InstalledAllocator::Mimalloc => &["libmimalloc.so.3", "libmimalloc.so.2"],
        }
    }

    /// Returns the name of Debian's package.
    pub(crate) fn package(self) -> &'static str {
        match self {
            InstalledAllocator::Jemalloc => "libjemalloc2",
            InstalledAllocator::Tcmalloc => "libtcmalloc-minimal4",
            InstalledAllocator::Mimalloc => "libmimalloc2.0",
        }
    }
}

impl AllocatorName {
    pub(super) fn parse(text: OsString) -> Result<AllocatorName, String> {
        let installed = |name: &str| InstalledAllocator::ALL.into_iter().find(|known| known.name() == name);
        match text.to_str() {
            Some("system") => Ok(AllocatorName::System),
            Some("heapledger") => Ok(AllocatorName::Heapledger),
            Some(name) if !name.contains('/') => {
                let known = installed(name).map(AllocatorName::Installed);
                known.ok_or_else(|| {
                    "expected system, heapledger, jemalloc, tcmalloc, mimalloc, or the path of a library with a `/`"
                        .to_owned()
                })
            }
            _ => Ok(AllocatorName::File(text.into())),
        }
    }
}

/// Writes the name as it is given on the command line.
impl fmt::Display for AllocatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocatorName::System => f.write_str("system"),
            AllocatorName::Heapledger => f.write_str("heapledger"),
            AllocatorName::Installed(known) => f.write_str(known.name()),
            AllocatorName::File(path) => path.display().fmt(f),
        }
    }
}

/// Print the path of a library for LD_PRELOAD, for unit files and images
///
/// Writes the library into a directory of yours, unless it is there, and prints its
/// path. It stays there; a newer heapledger replaces it when it is asked again.
///
///     $ LD_PRELOAD=$(heapledger lib allocator) ./server --port 8080
///     $ heapledger lib allocator --directory /usr/local/lib
///
/// On a terminal it also says how the library is used. For one command there is
/// `heapledger run --allocator heapledger`, which follows programs that clear their
/// environment, too.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Lib {
    /// The library
    #[arg(value_name = "LIBRARY")]
    pub(crate) library: CarriedLibrary,

    /// The directory to write it into [default: heapledger/lib in XDG_DATA_HOME or ~/.local/share]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A library that this command carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CarriedLibrary {
    /// The allocator: programs run with it instead of the C library's
    Allocator,
    /// The library that records, when asked to (docs/services.md), and that calls hook libraries
    /// (docs/hooks.md)
    #[value(alias = "record")]
    Preload,
    /// The hook library that logs the allocator's calls (docs/log.md)
    Log,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        let parse = |text: &str| AllocatorName::parse(text.into());
        for name in ["system", "heapledger", "jemalloc", "tcmalloc", "mimalloc", "./system", "/lib/liba.so"] {
            assert_eq!(parse(name).unwrap().to_string(), name);
        }
        assert_eq!(parse("system"), Ok(AllocatorName::System));
        assert_eq!(parse("./system"), Ok(AllocatorName::File("./system".into())));
        for wrong in ["", "dlmalloc", "liba.so"] {
            assert!(parse(wrong).unwrap_err().starts_with("expected system, heapledger"), "{wrong}");
        }
    }
}
