//! Questions asked of a recording: totals, sites, trees, leaks, temporaries.
//!
//! - [`overview`]: the totals of the session, its processes and images.
//! - [`Profile`]: what every site holds at a [`Moment`], over all processes or one.
//! - [`parts`]: the same by a property that only the events tell ([`PartBy`]).
//! - [`Selection`] and its [`Filter`]: the blocks that a question is about, by function, module,
//!   thread, process, size, lifetime and time.
//! - [`reallocations`]: the stacks that change the sizes of blocks. [`relations`]: the callers or
//!   callees of one function, with what goes through them.
//! - [`types`]: the types of blocks, and how sure they are.
//! - [`live_blocks`]: the live blocks, one by one. [`heap_events`]: the events of each block.
//! - [`block_lifetimes`]: for each stack, the most that was live and the lifetimes of its blocks.
//! - [`Names`]: the functions behind the addresses, looked up when they are asked for.
//!   [`find_names`]: all of them at once, to be kept in the recording.
//! - [`History`]: what was live over time.
//! - [`Shares`]: what groups of blocks held over time. [`size_classes`]: the sizes of their blocks.
//! - [`log_lines`]: the calls as a log of allocator calls. [`ImportedLog`]: the other way.
//! - [`statistics_points`]: where the program asked its allocator for statistics.
//! - [`allocator_events`]: the arenas that came and went, and the purges.
//! - [`diff`]: two profiles side by side.
//! - [`AdviceList`]: changes to the program that are worth making.
//! - [`rewrite`]: new recordings made from existing ones.
//! - [`rank`] and [`CallTree`]: sites grouped by function, module, context, heap or type, and as a
//!   tree of calls.
//! - [`Cube`]: what was allocated and freed over time, by site, for the same.
//! - [`SiteTable`]: all sites in memory, for the same answers within milliseconds.
//! - [`Stacks`]: the frames, the context (the scopes that the program declared) and the heap of
//!   each stack.
//!
//! # Sources of the answers
//!
//! A finished recording has the totals of every site at the peaks and at the end, so most questions
//! need no events at all. Other questions (about parts, another moment, or a recording that was cut
//! short) are answered by replaying the events through the same ledger that the recorder uses, with
//! serials in place of addresses.
//!
//! Both ways give the same answers, with one exception: times of events are rounded, so a replay
//! cannot tell the order of calls of different processes within one tick (0.5 ms), and the
//! session's peak may differ a little because of that.
//!
//! # Memory
//!
//! Nothing here grows with the length of a recording, except for one bit per allocation if
//! lifetimes are asked for. A [`Profile`] takes memory in proportion to the number of distinct
//! stacks. A replay takes 24 to 40 bytes for each block that is live at once, and a decoded chunk
//! of events (some MiB at most) for each process that runs at once.
#![forbid(unsafe_code)]

mod advice;
mod allocation_calls;
mod allocator_events;
mod allocators;
mod amount;
mod block_filter;
mod block_lifetimes;
mod block_types;
mod calls;
mod contexts;
mod cube;
mod dark_matter;
mod diff;
mod error;
mod events;
mod filter;
mod find_names;
mod functions;
pub mod fuzzing;
mod group_totals;
mod growth;
mod heap_events;
mod history;
mod images;
mod import;
mod layers;
mod lifetime_filter;
mod live;
mod log_lines;
mod moment;
mod names;
mod overview;
mod owners;
mod parts;
mod pattern;
mod profile;
mod progress;
mod rank;
mod reallocations;
mod relations;
mod replay;
mod reports;
mod resident;
pub mod rewrite;
mod roles;
mod selection;
mod shares;
mod site_table;
mod size_classes;
pub mod size_rules;
mod slop;
mod stacks;
mod statistics_points;
mod suppressions;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod texts;
mod trend;
mod types;
mod wrapper_search;
mod wrappers;

pub use advice::{
    Advice, AdviceList, Finding, Grows, OtherAllocator, Pool, ReplayedAllocator, Reporters, Reserve, SizeClass,
    Skipped, Slop, Temporary,
};
pub use allocator_events::{AllocatorEvent, AllocatorEventKind, Purge, allocator_event, allocator_events};
pub use allocators::is_allocator;
pub use amount::{Amount, Metric, MomentAmounts};
pub use block_lifetimes::{BlockLifetimes, GroupLifetimes, block_lifetimes};
pub use block_types::{Certainty, Inferred, Stamp, TypeBy, TypeId, Typed, UNKNOWN_TYPE};
pub use calls::{CallId, CallNode, CallTree};
pub use cube::{CUBE_INTERVALS, Cube, CubeOptions, CubeQuestion, CubeShares, RecordingIdentity};
pub use dark_matter::{DarkMatter, dark_matter};
pub use diff::{Difference, diff, growth};
pub use error::Error;
pub use filter::{Filter, ProcessPattern, ThreadPattern};
pub use find_names::{EncodedNames, FoundNames, find_names};
pub use functions::{Frame, FunctionId, FunctionName, Location, Position, Unnamed};
pub use growth::{GrowingGroup, Growth};
pub use heap_events::{HeapEvent, HeapEventKind, HeapEvents, Heaps, heap_events};
pub use history::{History, ProcessChange, ProcessChangeKind, resident_max};
pub use import::{ImportedEvents, ImportedLog, LOG_CALL_NS, LogFacts, LogLineError, assumed, import};
pub use layers::{Direction, Layer};
pub use lifetime_filter::LifetimeCondition;
pub use live::{LiveBlock, LiveBlocks, live_blocks};
pub use log_lines::{LogFields, log_lines};
pub use moment::Moment;
pub use names::{KnownNames, Names};
pub use overview::{ImageOverview, Overview, ProcessOverview, overview};
pub use owners::Owner;
pub use parts::{Part, PartBy, Parts, parts};
pub use pattern::{Pattern, PatternError};
pub use profile::{PartSplit, Profile, Site, SiteTotals, Totals, totals};
pub use progress::Progress;
pub use rank::{Key, Rank, RankBy, rank};
pub use reallocations::{ReallocationTotals, Reallocations, reallocations};
pub use relations::{Relation, Relations, relations};
pub use resident::{ImageSnapshots, ResidentBand, ResidentGroup, ResidentGroups};
pub use roles::Declared;
pub use selection::Selection;
pub use shares::{ShareGroup, Shares, SharesBy};
pub use site_table::{CallColumns, ColumnName, ColumnRequest, Cut, SiteRanks, SiteSet, SiteTable};
pub use size_classes::{SizeClasses, size_classes};
pub use slop::{SlopSource, allocator_name};
pub use stacks::{ContextId, NodeId, Scope, StackFrame, Stacks};
pub use statistics_points::{StatisticsPoint, statistics_points};
pub use suppressions::{Suppression, SuppressionError, Suppressions};
pub use trend::{Trend, TrendKind};
pub use types::{TypeGroup, types};
pub use wrapper_search::Wrapper;
