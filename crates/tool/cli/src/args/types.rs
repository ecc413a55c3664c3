//! Verbs about the types of blocks, and about single blocks.

use clap::{Args, ValueEnum};

use crate::args::select::{Live, What};
use crate::args::values::number;
use crate::args::{Input, Symbols};

/// Show what types of blocks there are, and how much each holds
///
/// The type of a block is the stamp that the program gave it; without one, it is
/// inferred from the code that allocates the block, by debug information and
/// symbols, without any change to the program. `[T]` is a buffer of T; `[unknown]`
/// stands for blocks whose type is not known.
///
///     $ heapledger types                          at the peak, by the types of
///                                                 the blocks
///     $ heapledger types --at end --by element    Token, whether it is in a
///                                                 Vec, a Box or a HashMap
///     $ heapledger types --by container           who holds them: HashMap,
///                                                 Arc, String
///     $ heapledger types --total --metric blocks  what was allocated most
///                                                 often
///     $ heapledger types --type "[Token]"         the sites of a type, with
///                                                 the evidence
///     $ heapledger types --type Token --stacks    and with their stacks
///     $ heapledger types --json | jq ".rows[] | [.type, .bytes]"
///
/// How sure a type is:
///
///   stamped          the program said so
///   exact            the code that allocates names it; no size contradicts
///   size-consistent  it may be another one, but sizes agree with this one
///   ambiguous        it names several, or a size contradicts
///   probable         a guess from what is around: source text, or a C function
///   unknown          nothing is known
///
/// A type with several sites is as sure as its least sure site; `+`: others are
/// surer. With --type, each site shows its own.
///
/// Below the table are the binaries from which types were known, and those from
/// which they were not, with what would help.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Types {
    #[command(flatten)]
    pub(crate) input: Input,

    /// The type to show for a block
    #[arg(long, value_name = "WHAT", default_value = "block")]
    pub(crate) by: TypesBy,

    /// With --type: show the stacks of the sites
    #[arg(long)]
    pub(crate) stacks: bool,

    /// How many types to show, and how many sites of each; 0 for all [default: 20, with --json all]
    #[arg(short = 'n', long = "rows", value_name = "N", value_parser = number)]
    pub(crate) rows: Option<usize>,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// The type that is shown for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TypesBy {
    /// The type of the whole block; a buffer of T is `[T]`
    Block,
    /// The type of the elements of the block; for a buffer of T: T
    Element,
    /// The container that the block is a part of; a block in no container has its own type
    Container,
}

/// List the blocks that are live at a moment, one by one
///
/// The largest blocks come first; among equals, the oldest. The number of a block
/// is the ordinal of its allocation in its process image, from 0. Its age is how
/// long it had been there at that moment. The stacks that allocated the blocks are
/// below the table; a block has the number of its stack.
///
///     $ heapledger blocks --type Token -n 5     the largest five of a type at
///                                               the peak
///     $ heapledger blocks --at end --size 1M..  large ones that were never
///                                               freed
///     $ heapledger blocks --at 2s --thread worker --json
///
/// This is answered from the events: the more were recorded, the longer it takes.
/// At the peak of several processes, all events are read twice.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Blocks {
    #[command(flatten)]
    pub(crate) input: Input,

    /// How many blocks to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) what: Live,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}
