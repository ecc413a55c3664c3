//! The verbs, each in a file or folder of its own, and the one place that calls them.

pub(crate) mod advise;
mod anonymize;
mod armed;
mod attach;
pub(crate) mod blocks;
pub(crate) mod check;
mod complete;
pub(crate) mod control;
pub(crate) mod diff;
pub(crate) mod dmd;
pub(crate) mod doctor;
mod dump;
pub(crate) mod explain;
mod export;
mod flame;
pub(crate) mod growth;
pub(crate) mod heap;
pub(crate) mod heap_map;
mod import;
pub(crate) mod info;
pub(crate) mod leaks;
pub(crate) mod library;
pub(crate) mod live;
pub(crate) mod log;
mod merge;
mod names;
pub(crate) mod neighbours;
pub(crate) mod open;
pub(crate) mod phc;
pub(crate) mod reallocations;
mod record;
pub(crate) mod replay;
pub(crate) mod reports;
pub(crate) mod rss;
mod run;
mod running;
mod shell;
pub(crate) mod sizes;
pub(crate) mod summary;
mod temporary;
pub(crate) mod timeline;
mod top;
mod tree;
mod trim;
pub(crate) mod types;

use std::process::ExitCode;

use heapledger_analysis::Relation;
use heapledger_collect::ControlRequest;

use crate::args::{Arguments, Verb};
use crate::config;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::Output;

/// Runs the verb of the command line. The verbs that start a program leave its output alone, and
/// end as it does.
pub(crate) fn dispatch(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.verb.names_owners() {
        config::load()?;
    }
    match &arguments.verb {
        Verb::Record(record) => record::run(record),
        Verb::Run(run) => run::run(run),
        Verb::Check(check) => check::run(check),
        Verb::Live(live) => live::run(live, arguments.color),
        Verb::SelfTest => Ok(doctor::be_the_self_test()),
        Verb::Rss(memory) if !memory.command.is_empty() => {
            let mut out = Output::new(arguments.color);
            let exit = rss::run_command(memory, &mut out)?;
            out.finish()?;
            record::end_as(exit)
        }
        verb => {
            let mut out = Output::new(arguments.color);
            let status = answer(verb, &mut out)?;
            out.finish()?;
            Ok(status)
        }
    }
}

/// Runs any other verb: it writes to stdout or a file. Only some have exit statuses of their own.
pub(crate) fn answer(verb: &Verb, out: &mut Output) -> Result<ExitCode> {
    let answered = match verb {
        Verb::Leaks(leaks) => return leaks::run(leaks, out),
        Verb::Log(log) => return log::run(&log.action, out),
        Verb::Doctor(doctor) => return doctor::run(doctor, out).map(ExitCode::from),
        Verb::Summary(summary) => summary::run(summary, out),
        Verb::Attach(attach) => attach::run(&attach.pid, &attach.options),
        Verb::Start(start) => control::start(start, out),
        Verb::Stop(stop) => control::stop(stop, out),
        Verb::Pause(pause) => control::run(&pause.control, ControlRequest::Stop, out),
        Verb::Sample(sample) => control::sample(sample, out),
        Verb::Status(status) => control::run(&status.control, ControlRequest::Status, out),
        Verb::Top(top) => top::run(top, out),
        Verb::Types(types) => types::run(types, out),
        Verb::Blocks(blocks) => blocks::run(blocks, out),
        Verb::Tree(tree) => tree::run(tree, out),
        Verb::Temporary(temporary) => temporary::run(temporary, out),
        Verb::Flame(flame) => flame::run(flame, out),
        Verb::Timeline(timeline) => timeline::run(timeline, out),
        Verb::Growth(growth) => growth::run(growth, out),
        Verb::Advise(advise) => advise::run(advise, out),
        Verb::Diff(diff) => diff::run(diff, out),
        Verb::Export(export) => export::run(export, out),
        Verb::Merge(merge) => merge::run(merge),
        Verb::Trim(trim) => trim::run(trim),
        Verb::Import(import) => import::run(import),
        Verb::Names(names) => names::run(names),
        Verb::Anonymize(anonymize) => anonymize::run(anonymize),
        Verb::Info(info) => info::run(info, out),
        Verb::Open(open) => open::run(open, out),
        Verb::Replay(replay) => replay::run(replay, out),
        Verb::Phc(phc) => phc::run(phc, out),
        Verb::Reports(reports) => reports::run(&reports.action, out),
        Verb::Dmd(dmd) => dmd::run(dmd, out),
        Verb::Dump(dump) => dump::run(dump, out),
        Verb::HeapMap(map) => heap_map::run(map, out),
        Verb::Rss(memory) => rss::run(memory, out),
        Verb::Heap(heap) => heap::run(&heap.action, out),
        Verb::Lib(lib) => library::run(lib, out),
        Verb::Explain(explain) => explain::run(explain, out),
        Verb::Completions(completions) => shell::completions(completions, out),
        Verb::CompleteWords(words) => complete::run(words, out),
        Verb::Help(help) => shell::help(help, out),
        Verb::Man(man) => shell::man(man, out),
        Verb::Reallocations(reallocations) => reallocations::run(reallocations, out),
        Verb::Callers(neighbours) => neighbours::run(neighbours, Relation::Callers, out),
        Verb::Callees(neighbours) => neighbours::run(neighbours, Relation::Callees, out),
        Verb::Sizes(sizes) => sizes::run(sizes, out),
        Verb::Record(_) | Verb::Run(_) | Verb::Check(_) | Verb::Live(_) | Verb::SelfTest => Ok(()),
    };
    answered.map(|()| Exit::Ok.into())
}
