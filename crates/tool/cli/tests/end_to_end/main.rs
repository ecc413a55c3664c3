//! The `heapledger` command against programs that know the truth about their own allocations,
//! programs that are dangerous to observe, and programs that people use.
//!
//! The programs are in `fixtures/programs`; they are compiled once per run of the tests. Everything
//! is in one test binary, because each is a separate link.
//! `cargo test -p heapledger-cli --test end_to_end hazards::` runs one theme.
//!
//! A test whose optional program is not installed prints `skipped: …`; with `HEAPLEDGER_NO_SKIP=1`
//! it fails instead.

mod advise;
mod agreement;
mod allocators;
mod arenas;
mod armed;
mod attached;
mod browser;
mod bypasses;
mod c;
mod c_safety;
mod check;
mod chrome_trace;
mod chromium;
mod chromium_dark;
mod command;
mod confined;
mod contexts;
mod diff;
mod dmd;
mod dmd_process;
mod documents;
mod dumps_c;
mod export;
mod export_events;
mod firefox;
mod first_process;
mod foreseen;
mod full_disk;
mod generated;
mod growth;
mod harness;
mod hazards;
mod heap_map;
mod heaps;
mod hooks;
mod import;
mod impostors;
mod inside;
mod linked;
mod live;
mod logs;
mod mapped;
mod mappings;
mod marks;
mod modes;
mod names;
mod nested;
mod open;
mod own_allocator;
mod owners;
mod phc;
mod portable;
mod processes;
mod questions;
mod readme;
mod real;
mod replaced;
mod replays;
mod reporters;
mod reporters_c;
mod reports;
mod resident_advice;
mod rewrite;
mod rss;
mod sampled;
mod selection;
mod shells;
mod stacks;
mod stalled;
mod stamps;
mod stamps_c;
mod static_programs;
mod stories;
mod supplied;
mod symbols;
mod target_memory;
mod timeline;
mod trace_viewer;
mod truth;
mod types;
mod types_python;
mod types_shown;
mod unrecorded;
mod untracked;
mod usable_sizes;
mod variants;
mod verified;
mod viewers;
mod viewers_firefox;
mod written;
mod wrong_input;
