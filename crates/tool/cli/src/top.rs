//! `heapledger top`: who holds or allocates the most.

use heapledger_analysis::{By as Parts, RankBy, TypeBy};

use crate::args::{By, Top};
use crate::error::Result;
use crate::output::Output;
use crate::parts;
use crate::question::Question;
use crate::ranks::{Depth, Listing};

pub(crate) fn run(arguments: &Top, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find(out)?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let (by, depth) = match arguments.by.resolve() {
        Grouping::Sites(by, depth) => (by, depth),
        Grouping::Parts(by) => {
            let parts = parts::load(&mut question, by)?;
            if arguments.input.json {
                return out.json(&parts::document(&question, &parts, arguments.by.name(), arguments.rows));
            }
            return parts::print(&question, &parts, arguments.rows, out);
        }
    };
    let profile = question.profile()?;
    let listing = Listing { name: arguments.by.name(), by, depth, rows: arguments.rows };
    if arguments.input.json {
        return listing.json(&mut question, &profile, out);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(profile.allocated, out)?;
    listing.print(&mut question, &profile, out)
}

/// What amounts are summed up by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grouping {
    /// Their sites, of whose stacks so much is shown.
    Sites(RankBy, Depth),
    /// What only events tell.
    Parts(Parts),
}

impl By {
    /// Returns what it stands for.
    pub(crate) fn resolve(self) -> Grouping {
        let (by, depth) = match self {
            By::Owner => (RankBy::Owner, Depth::Function),
            By::Line => (RankBy::Line, Depth::Function),
            By::File => (RankBy::File, Depth::Function),
            By::Function => (RankBy::Function, Depth::Function),
            By::Site => (RankBy::Site, Depth::Callers),
            By::Stack => (RankBy::Site, Depth::Stack(usize::MAX)),
            By::Module => (RankBy::Module, Depth::Function),
            By::Context => (RankBy::Context, Depth::Function),
            By::Scope => (RankBy::Scope, Depth::Function),
            By::Task => (RankBy::Task, Depth::Function),
            By::Heap => (RankBy::Heap, Depth::Function),
            By::Type => (RankBy::Type(TypeBy::Block), Depth::Function),
            By::Thread => return Grouping::Parts(Parts::Thread),
            By::Process => return Grouping::Parts(Parts::Process),
            By::Size => return Grouping::Parts(Parts::Size),
        };
        Grouping::Sites(by, depth)
    }

    fn name(self) -> &'static str {
        match self {
            By::Owner => "owner",
            By::Line => "line",
            By::File => "file",
            By::Function => "function",
            By::Site => "site",
            By::Stack => "stack",
            By::Module => "module",
            By::Context => "context",
            By::Scope => "scope",
            By::Task => "task",
            By::Heap => "heap",
            By::Type => "type",
            By::Thread => "thread",
            By::Process => "process",
            By::Size => "size",
        }
    }
}
