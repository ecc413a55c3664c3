//! `heapledger top`: who holds or allocates the most.

use heapledger_analysis::{By as Parts, RankBy, TypeBy};

use crate::args::{By, Top};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::output::Output;
use crate::parts;
use crate::question::Question;
use crate::ranks::{Depth, Listing};

pub(crate) fn run(arguments: &Top, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve().map_err(|why| Failure::new(Exit::Usage, why))?;
    let input = Input::find(arguments.input.file.as_deref())?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let (by, depth) = match arguments.by {
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
        By::Thread | By::Process | By::Size => {
            let by = match arguments.by {
                By::Thread => Parts::Thread,
                By::Process => Parts::Process,
                _ => Parts::Size,
            };
            let parts = parts::load(&mut question, by)?;
            if arguments.input.json {
                return out.json(&parts::document(&question, &parts, name(arguments.by), arguments.rows));
            }
            return parts::print(&question, &parts, arguments.rows, out);
        }
    };
    let profile = question.profile()?;
    let listing = Listing { name: name(arguments.by), by, depth, rows: arguments.rows };
    if arguments.input.json {
        return listing.json(&mut question, &profile, out);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(profile.allocated, out)?;
    listing.print(&mut question, &profile, out)
}

fn name(by: By) -> &'static str {
    match by {
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
