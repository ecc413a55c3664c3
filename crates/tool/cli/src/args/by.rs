//! The values of `--by`: the same words in every verb that has rows of sites.
//!
//! [`By`] has all of them. [`PartBy`] of the analysis has only those that events tell, and the size
//! classes of `sizes`.

use clap::ValueEnum;
use clap::builder::{EnumValueParser, TypedValueParser};
use heapledger_analysis::{PartBy, RankBy, TypeBy};

/// The breakdown: the property by which blocks are summed up in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The program's own function that the memory is for
    Owner,
    /// The source line in that function
    Line,
    /// The source file of that function
    File,
    /// The innermost function that is not an allocator
    Function,
    /// The stack, shown by its innermost functions from its owner on
    Site,
    /// The stack, shown in full
    Stack,
    /// The executable or library of the innermost function that is not an allocator
    Module,
    /// The scopes that the program was in, from the outermost to the innermost
    Context,
    /// The name of the innermost scope, whatever its value
    Scope,
    /// The innermost scope that is a task, such as a request
    Task,
    /// The heap that the block is from, if the program declares heaps; an arena is one. Of a
    /// mapping, its kind
    #[value(aliases = ["arena", "kind"])]
    Heap,
    /// The type of the blocks; `heapledger types` also shows how certain it is. Of a mapping, its
    /// file
    #[value(alias = "mapped-file")]
    Type,
    /// The thread that allocated
    Thread,
    /// The process that allocated
    Process,
    /// The exact requested size
    Size,
}

/// The part of a stack that a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The function alone.
    Function,
    /// The function, and a line of callers.
    Callers,
    /// All of the stack; or, if less than [`usize::MAX`], this many lines of it.
    Stack(usize),
}

/// The source of a table's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    /// Groups of sites, with stacks shown to this depth.
    Sites(RankBy, Depth),
    /// Groups that only the events tell apart.
    Events(PartBy),
}

impl By {
    /// Returns its name in JSON and on the command line.
    pub(crate) fn name(self) -> &'static str {
        self.definition().0
    }

    /// Returns the source of these rows.
    pub(crate) fn rows(self) -> Rows {
        self.definition().1
    }

    fn definition(self) -> (&'static str, Rows) {
        let function = |rank| Rows::Sites(rank, Depth::Function);
        match self {
            By::Owner => ("owner", function(RankBy::Owner)),
            By::Line => ("line", function(RankBy::Line)),
            By::File => ("file", function(RankBy::File)),
            By::Function => ("function", function(RankBy::Function)),
            By::Site => ("site", Rows::Sites(RankBy::Site, Depth::Callers)),
            By::Stack => ("stack", Rows::Sites(RankBy::Site, Depth::Stack(usize::MAX))),
            By::Module => ("module", function(RankBy::Module)),
            By::Context => ("context", function(RankBy::Context)),
            By::Scope => ("scope", function(RankBy::Scope)),
            By::Task => ("task", function(RankBy::Task)),
            By::Heap => ("heap", function(RankBy::Heap)),
            By::Type => ("type", function(RankBy::Type(TypeBy::Block))),
            By::Thread => ("thread", Rows::Events(PartBy::Thread)),
            By::Process => ("process", Rows::Events(PartBy::Process)),
            By::Size => ("size", Rows::Events(PartBy::Size)),
        }
    }
}

/// Returns the parser of `--by` for verbs whose rows are always groups of sites: those of a part,
/// too, because sites are split by it first.
pub(crate) fn grouping() -> impl TypedValueParser<Value = Grouping> {
    EnumValueParser::<By>::new().map(Grouping::from)
}

/// The breakdown by which sites are grouped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouping {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The key of a group.
    pub(crate) rank: RankBy,
    /// The breakdown by events that sites are split by first, if it is one of those.
    pub(crate) parts: Option<PartBy>,
    /// The depth to which stacks are shown.
    pub(crate) depth: Depth,
}

impl From<By> for Grouping {
    fn from(by: By) -> Grouping {
        let (rank, parts, depth) = match by.rows() {
            Rows::Sites(rank, depth) => (rank, None, depth),
            Rows::Events(parts) => (RankBy::Part, Some(parts), Depth::Function),
        };
        Grouping { name: by.name(), rank, parts, depth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for by in By::value_variants() {
            assert_eq!(By::from_str(by.name(), false), Ok(*by));
        }
    }
}
