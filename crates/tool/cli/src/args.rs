//! The command line. The doc comments here and below are the manual: help, man pages and
//! completions come from them.

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand, ValueEnum};

mod allocator;
mod by;
mod common;
mod diff;
mod dmd;
mod dump;
mod export;
mod files;
mod grammar;
mod heap;
mod heap_map;
mod help;
mod live;
mod log;
mod open;
mod phc;
mod pictures;
mod record;
mod replay;
mod reports;
mod resident;
mod rss;
pub(crate) mod select;
mod start;
mod tables;
mod types;
pub(crate) mod values;
mod verbs;

pub(crate) use self::allocator::{AllocatorName, AllocatorOption, CarriedLibrary, InstalledAllocator, Lib};
pub(crate) use self::by::{By, Depth, Grouping, Rows};
pub(crate) use self::common::{Frames, Input, Named, Range, SymbolFiles, Symbols, Target, Written};
pub(crate) use self::diff::Diff;
pub(crate) use self::dmd::{Dmd, DmdBy, DmdMode, DmdSort};
pub(crate) use self::dump::{Dump, DumpHeaps, DumpLevel};
pub(crate) use self::export::{Export, ExportFormat};
pub(crate) use self::files::{Anonymize, Import, Info, Merge, Names, Trim};
pub(crate) use self::grammar::{Refusal, SUMMARY, awaited, parse, verb};
pub(crate) use self::heap::{
    Breakdown, Finding, Heap, HeapAction, HeapCensus, HeapDiff, HeapDominators, HeapExport, HeapFind, HeapNode,
    HeapPaths, ReportSort, ReportView, SnapshotFormat, Word,
};
pub(crate) use self::heap_map::{HeapMapOf, MapBy};
pub(crate) use self::help::{CompleteWords, Completions, Doctor, Explain, Help, Man};
pub(crate) use self::live::Live;
pub(crate) use self::log::{ConvertLog, InfoLog, Log, LogAction, LogFieldOptions, MungeLog, RecordLog, StatsLog};
pub(crate) use self::open::Open;
pub(crate) use self::phc::{HeapChecker, Phc, Placement, function};
pub(crate) use self::pictures::{Advise, Flame, Growth, Timeline, Tree};
pub(crate) use self::record::{
    Check, Control, FileLimit, KeptNames, OnFull, Pause, Record, Run, Sample, Stacks, Status,
};
pub(crate) use self::replay::{Replay, ReplayAllocator};
pub(crate) use self::reports::{
    DiffReports, MergeReports, Privacy, Reports, ReportsAction, ReportsFormat, ReportsTarget, ReportsView, SaveReports,
    ShowReports,
};
pub(crate) use self::resident::ResidentOptions;
pub(crate) use self::rss::Rss;
pub(crate) use self::start::{Attach, RunningOptions, Start, Stop};
pub(crate) use self::tables::{Leaks, Neighbours, ReallocationOrder, Reallocations, Sizes, Summary, Temporary, Top};
pub(crate) use self::types::{Blocks, Types, TypesBy};
pub(crate) use self::verbs::command;

const STYLES: Styles =
    Styles::styled().header(AnsiColor::Green.on_default().bold()).usage(AnsiColor::Green.on_default().bold());

/// Every byte accounted for: records and explains what programs allocate
///
/// Works on unmodified Linux programs and everything they start. `heapledger
/// record` runs a program and writes a recording; the other verbs read one.
/// Without a file they read the newest `heapledger.*.hl` here.
///
///     $ heapledger record -- ./server --port 8080
///     $ heapledger top                   what is live at the peak, by function
///     $ heapledger types                 the same by the types of blocks
///     $ heapledger tree                  the same as a tree of calls
///     $ heapledger leaks                 what was never freed
///     $ heapledger temporary             what was freed at once
///     $ heapledger sizes                 a histogram of sizes
///     $ heapledger flame                 a picture
///     $ heapledger open                  all of it, in a browser
///     $ heapledger timeline              what was live over time
///     $ heapledger diff before.hl after.hl
///     $ heapledger export --to pprof -o peak.pb.gz
///     $ heapledger reports show memory-report.json.gz
///     $ heapledger heap census server.heapsnapshot
///     $ heapledger dmd dmd-4711.json.gz  what nobody reports
///
/// `heapledger FILE` is short for `heapledger summary FILE`; `heapledger help VERB`
/// is the manual of a verb.
///
/// Exit status: 0 all went well; 1 something unexpected; 2 a command line that
/// makes no sense, or a filter that fits no block of the recording; 102 the
/// recording cannot be read; 103 there is nothing to show, because nothing was
/// recorded; 104 `heapledger diff` found more growth than --fail-above allows.
/// `heapledger record`, `run` and `check` end as the program did; 101: it could
/// not be started, 126: it is not executable, 127: there is no such program.
#[derive(Debug, Parser)]
#[command(name = "heapledger", version, verbatim_doc_comment, arg_required_else_help = true, styles = STYLES)]
#[command(disable_help_subcommand = true, subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
#[command(override_usage = "heapledger VERB [OPTIONS] [FILE]\n       heapledger FILE\n       heapledger help VERB")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,

    /// When to use colours.
    ///
    /// `auto`: on a terminal, unless the environment variable NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    pub(crate) color: Color,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Verb {
    /// True if the verb distinguishes the program's own code from other code: it reads
    /// `heapledger.toml`.
    pub(crate) fn names_owners(&self) -> bool {
        matches!(
            self,
            Verb::Record(_)
                | Verb::Summary(_)
                | Verb::Top(_)
                | Verb::Types(_)
                | Verb::Blocks(_)
                | Verb::Tree(_)
                | Verb::Leaks(_)
                | Verb::Temporary(_)
                | Verb::Reallocations(_)
                | Verb::Callers(_)
                | Verb::Callees(_)
                | Verb::Sizes(_)
                | Verb::Flame(_)
                | Verb::Timeline(_)
                | Verb::Diff(_)
                | Verb::Growth(_)
                | Verb::Advise(_)
                | Verb::Open(_)
                | Verb::Export(_)
                | Verb::Live(_)
        )
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Record(Record),
    Run(Run),
    Check(Check),
    Phc(Phc),
    Attach(Attach),
    #[command(alias = "resume")]
    Start(Start),
    Pause(Pause),
    Stop(Stop),
    Sample(Sample),
    Status(Status),
    Live(Live),
    Summary(Summary),
    Top(Top),
    Types(Types),
    Blocks(Blocks),
    Tree(Tree),
    Leaks(Leaks),
    Temporary(Temporary),
    Reallocations(Reallocations),
    Callers(Neighbours),
    /// Show the callees of one function, and how much memory goes through each
    ///
    /// Sums up all that was allocated on stacks with the function on them, by the
    /// functions that it calls directly; its own allocations are `(itself)`. Each stack
    /// counts once: if a function is on a stack several times, its innermost call
    /// counts. So the rows add up.
    ///
    ///     $ heapledger callees "json::parse*" --at end
    ///     $ heapledger callees /^main$/ --total --metric blocks
    ///
    /// FUNCTION is a pattern, as with --function: several functions that match are
    /// taken as one.
    #[command(verbatim_doc_comment)]
    Callees(Neighbours),
    Sizes(Sizes),
    Flame(Flame),
    Timeline(Timeline),
    Growth(Growth),
    Advise(Advise),
    Diff(Diff),
    Export(Export),
    Merge(Merge),
    Trim(Trim),
    Import(Import),
    Names(Names),
    Anonymize(Anonymize),
    Info(Info),
    Open(Open),
    Reports(Reports),
    Dmd(Dmd),
    Dump(Dump),
    HeapMap(HeapMapOf),
    Rss(Rss),
    Log(Log),
    Replay(Replay),
    Heap(Heap),
    Lib(Lib),
    Doctor(Doctor),
    Explain(Explain),
    Completions(Completions),
    Man(Man),
    Help(Help),
    #[command(hide = true)]
    CompleteWords(CompleteWords),
    /// The program that `doctor` records
    #[command(hide = true)]
    SelfTest,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use heapledger_analysis::{Filter, Metric, Moment, Pattern, Selection};
    use heapledger_recording::Time;

    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_tree_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_command_is_left_alone() {
        let Verb::Record(record) = parse("heapledger record -o f -- cc -o x --color never").unwrap().verb else {
            panic!("not record")
        };
        assert_eq!(record.command, ["cc", "-o", "x", "--color", "never"]);
        assert_eq!(record.output, Some("f".into()));
        let Verb::Record(record) = parse("heapledger record -q ls -f --wait").unwrap().verb else {
            panic!("not record")
        };
        assert_eq!(record.command, ["ls", "-f", "--wait"]);
        assert!(record.quiet && !record.force && !record.wait);
        assert!(parse("heapledger record").is_err());
        // Before the command, `-p` is an option of `record`; after it, the command's own.
        for line in ["record -p 7", "record --pid 7", "record -q -p 7 -- ls"] {
            let Verb::Record(record) = parse(&format!("heapledger {line}")).unwrap().verb else { panic!("not record") };
            assert_eq!(record.pid.as_deref(), Some("7"), "{line}");
        }
        for line in ["record -p 7 --mappings", "attach 7 --mappings", "start 7 --mappings"] {
            assert!(parse(&format!("heapledger {line}")).is_ok(), "{line}");
        }
        assert!(parse("heapledger attach 7 --mappings --aggregate").is_err());
        let Verb::Record(record) = parse("heapledger record ss -p 7").unwrap().verb else { panic!("not record") };
        assert_eq!((record.pid, record.command.len()), (None, 3));
    }

    #[test]
    fn names_that_were_other_ones() {
        assert!(matches!(parse("heapledger stop").unwrap().verb, Verb::Stop(_)));
        assert!(matches!(parse("heapledger pause 7").unwrap().verb, Verb::Pause(_)));
        assert!(matches!(parse("heapledger resume 7").unwrap().verb, Verb::Start(_)));
        let bounds = |line: &str| match parse(&format!("heapledger timeline {line}")).map(|arguments| arguments.verb) {
            Ok(Verb::Timeline(timeline)) => Some(timeline.range.bounds()),
            _ => None,
        };
        let time = |seconds: u64| Some(Time(seconds * 1_000_000_000));
        assert_eq!(bounds("--during 1s-2s"), Some((time(1), time(2))));
        assert_eq!(bounds("--during 1s.."), Some((time(1), None)));
        assert_eq!(bounds("--from 1s --to 2s"), bounds("--during 1s-2s"));
        assert_eq!((bounds(""), bounds("--from 1s --during 1s-2s")), (Some((None, None)), None));
    }

    #[test]
    fn selections() {
        let resolve = |line: &str| match parse(&format!("heapledger top {line}")).map(|arguments| arguments.verb) {
            Ok(Verb::Top(top)) => top.what.resolve(None).map_err(|failure| failure.to_string()),
            other => Err(format!("{other:?}")),
        };
        assert_eq!(resolve(""), Ok((Selection::at(Moment::Peak), Metric::Bytes)));
        let of_7 = Selection { filter: Filter::process(7), ..Selection::at(Moment::End) };
        assert_eq!(resolve("--at end -p 7"), Ok((of_7, Metric::Bytes)));
        assert_eq!(resolve("--total --metric blocks").unwrap().0.moment, Moment::Total);
        assert_eq!(resolve("--metric temporary").unwrap(), (Selection::at(Moment::Total), Metric::Temporaries));
        assert_eq!(resolve("--at 1.5s").unwrap().0.moment, Moment::At(Time(1_500_000_000)));
        let of_time = |range| Filter { allocated: Some(range), ..Filter::default() };
        for (line, moment, range) in [
            ("--during 1s-2s", Moment::At(Time(2_000_000_000)), 1_000_000_000..=2_000_000_000),
            ("--during 1s..", Moment::End, 1_000_000_000..=u64::MAX),
            ("--during ..1s --total", Moment::Total, 0..=1_000_000_000),
            ("--during 1s --at peak", Moment::Peak, 1_000_000_000..=1_000_000_000),
        ] {
            let expected = Selection { filter: of_time(range), ..Selection::at(moment) };
            assert_eq!(resolve(line), Ok((expected, Metric::Bytes)), "{line}");
        }
        let filter =
            resolve("--function a --function /b/ --not-module *.so --size 1k.. --lifetime ..1ms").unwrap().0.filter;
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text).unwrap()).collect::<Vec<_>>();
        assert_eq!((filter.functions, filter.not_modules), (patterns(&["a", "/b/"]), patterns(&["*.so"])));
        assert_eq!((filter.size, filter.lifetime), (Some(1024..=u64::MAX), Some(0..=1_000_000)));
        assert!(resolve("--metric temporary --at peak").is_err());
        assert!(resolve("--total --at peak").is_err());
        assert!(resolve("--at soon").is_err());
    }
}
