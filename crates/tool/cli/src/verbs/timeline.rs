//! `heapledger timeline`: the live blocks over time, as a plot, a picture or JSON.

pub(crate) mod json;
mod picture;
mod plot;
mod view;

use std::io::Write as _;

use heapledger_analysis::{
    History, ImageSnapshots, Metric, Moment, ProcessChangeKind, Selection, ShareGroup, Shares, SharesBy,
};
use heapledger_recording::Time;
use heapledger_report_format::{Row, Tree, escape};

use self::plot::{Look, Plot, Strip};
use self::view::{Band, MEMORY, View, letter};
use crate::args::{By, Depth, Rows, Timeline};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, time};
use crate::input::Input;
use crate::output::Output;
use crate::question::Question;
use crate::text::{quoted, shown};
use crate::views::parts::part_row;
use crate::views::rows::row;
use crate::views::sampled;

/// The columns of the output if it is not a terminal.
const WIDTH: usize = 80;

pub(crate) fn run(arguments: &Timeline, out: &mut Output) -> Result<()> {
    if arguments.resident && (arguments.input.mappings || !arguments.blocks.filter().is_of_all_blocks()) {
        let failure = Failure::new(Exit::Usage, "the parts of resident memory are those of whole processes");
        return Err(failure.hint("heapledger timeline FILE --resident -p PROCESS"));
    }
    let input = arguments.input.find(out).map_err(|failure| hint_at_output(arguments, failure))?;
    input.needs_history("to see growth, compare two snapshots: heapledger heap diff BEFORE AFTER")?;
    let recording = input.open()?;
    if arguments.svg {
        out.draw_to_default(&input, "timeline", &arguments.input.written)?;
    }
    let selection = Selection { filter: arguments.blocks.filter(), ..Selection::default() };
    let metric = if arguments.slop { Metric::Slop } else { Metric::Bytes };
    let question = Question::new(&input, &recording, &arguments.symbols, selection, metric);
    let mut question = question.expect_something()?;
    let history = question.answer(|names, selection, progress| History::load(names, selection, progress))?;
    input.warn_of(&history.damage);
    question.expect_match(history.peak.live.bytes.0 == 0)?;
    let bounds = part(&question, arguments)?;
    let mut view = View::new(&question, history, bounds)?;
    view.estimate(&mut question);
    if let Some(by) = arguments.by {
        let columns = match (arguments.svg, arguments.input.form()) {
            (false, None) => Plot::columns(out.width().unwrap_or(WIDTH)),
            _ => picture::COLUMNS,
        };
        view.times = view.ends(columns);
        view.bands = bands(&mut question, by, arguments.rows.into(), &view)?;
    }

    if arguments.resident {
        let columns = match (arguments.svg, arguments.input.form()) {
            (false, None) => Plot::columns(out.width().unwrap_or(WIDTH)),
            _ => picture::COLUMNS,
        };
        view.times = view.ends(columns);
        view.bands = resident_bands(&mut question, &view)?;
        view.is_resident = true;
    }

    if let Some(form) = arguments.input.form() {
        let by = if arguments.resident { Some("resident") } else { arguments.by.map(By::name) };
        return out.document(&json::TimelineJson::new(&view, &question, by), form);
    }
    if !arguments.svg {
        return print(&view, &question, out);
    }
    let picture = picture::draw(&view, &title(&view, &input));
    Ok(out.stream().write_all(picture.as_bytes())?)
}

/// Adds a hint on `-o` if the picture was named as the input file, as earlier versions expected it.
fn hint_at_output(arguments: &Timeline, failure: Failure) -> Failure {
    let picture =
        arguments.input.file.as_deref().filter(|file| arguments.svg && file.extension() == Some("svg".as_ref()));
    match picture {
        Some(picture) => failure.hint(format_args!("to draw that picture: --svg -o {}", quoted(&shown(picture)))),
        None => failure,
    }
}

/// Returns the part of the time that is asked for.
fn part(question: &Question<'_, '_>, arguments: &Timeline) -> Result<(Option<Time>, Option<Time>)> {
    let (from, to) = arguments.range.bounds();
    let cut = match arguments.input.at() {
        Some(Moment::At(time)) => Some(time),
        Some(Moment::Peak) => question.peak_time(),
        Some(Moment::End | Moment::Total) | None => None,
    };
    Ok((from, to.into_iter().chain(cut).min()))
}

/// Returns the bytes that the largest groups held at these times.
fn bands(question: &mut Question<'_, '_>, by: By, rows: usize, view: &View<'_, '_>) -> Result<Vec<Band>> {
    let (by, depth) = match by.rows() {
        Rows::Sites(by, depth) => (SharesBy::Rank(by), depth),
        Rows::Events(by) => (SharesBy::Part(by), Depth::Function),
    };
    // If only some blocks are selected, the moment of their peak is known only from their history.
    let is_of_all = question.selection.filter.is_of_all_blocks();
    let moment = if is_of_all { Moment::Peak } else { Moment::At(view.peak.time) };
    // The bands are those of live bytes, with --slop, too.
    let selection = Selection { counts_slop: false, ..question.selection.with_moment(moment) };
    let times = &view.times;
    let shares = question.answer(|names, _, progress| Shares::load(names, &selection, by, rows, times, progress))?;
    question.input.warn_of(&shares.damage);
    let several = question.recording.images().len() > 1;
    let mut bands = Vec::new();
    for (group, bytes) in shares.groups {
        let row = match group {
            ShareGroup::Rank(rank) => row(&mut question.labels, &shares.stacks, &rank, depth),
            ShareGroup::Part(part) => part_row(question.recording, part, several),
        };
        let texts = row.lines().iter().flat_map(|line| [line.text.as_str(), line.note.as_str()]);
        let name = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("  ");
        bands.push(Band { name: escape(&name).into_owned(), bytes });
    }
    bands.push(Band { name: "all others".to_owned(), bytes: shares.others });
    Ok(bands)
}

/// Returns the parts of resident memory at the view's times.
fn resident_bands(question: &mut Question<'_, '_>, view: &View<'_, '_>) -> Result<Vec<Band>> {
    let all = question.answer(|names, selection, _| ImageSnapshots::load(names, &selection.filter))?;
    question.input.warn_of(&all.damage);
    if all.snapshots.is_empty() {
        let what = format_args!("`{}` has no resident snapshot", question.input.path.display());
        return Err(Failure::new(Exit::Usage, what)
            .code(Code::NoSnapshots)
            .hint("record again: heapledger record -- COMMAND"));
    }
    let bands = all.over_time(question.recording, &view.times);
    Ok(bands.into_iter().map(|(band, bytes)| Band { name: band.name().to_owned(), bytes }).collect())
}

/// Formats the title: `412.6 MiB in 1,234 blocks live at the peak (18.2 s)`.
fn title(view: &View<'_, '_>, input: &Input) -> String {
    let (live, blocks) = (sampled::bytes_of(&view.at_peak), input.counted(&view.at_peak));
    let when = time(view.peak.time);
    let process = match &view.processes()[..] {
        [] => String::new(),
        patterns => format!(" of process {}", patterns.join(" or ")),
    };
    if view.is_whole() {
        format!("{live} in {blocks} live at the peak{process} ({when})")
    } else {
        let (from, to) = (time(view.from), time(view.to));
        format!("{live} in {blocks} live at most{process} from {from} to {to} (at {when})")
    }
}

fn print(view: &View<'_, '_>, question: &Question<'_, '_>, out: &mut Output) -> Result<()> {
    out.title(title(view, question.input))?;
    sampled::print_notice(view.recording, out)?;
    if let Some(source) = &question.slop_source {
        let most = bytes(view.slop_max());
        out.dim_line(format_args!("slop: at most {most}, {source}"))?;
    }
    if !view.filter.is_of_all_blocks() {
        question.words(out)?;
    }
    out.line("")?;
    let look = Look { unicode: is_unicode(), colors: out.has_colors() };
    let columns = Plot::columns(out.width().unwrap_or(WIDTH));
    let mut strips = vec![Strip::new(question.input.unit(), view.blocks(columns), count)];
    if !view.history.slop.is_empty() {
        strips.push(Strip::new("slop", view.slop(columns), bytes));
    }
    let has_memory = !view.history.memory.is_empty();
    if has_memory {
        strips.extend(MEMORY.map(|(name, figure)| Strip::new(name, view.memory(columns, figure), bytes)));
    }
    for band in &view.bands {
        let values = band.bytes.iter().copied().map(Some).collect();
        let strip = Strip::new("", values, bytes).note(&band.name);
        // The parts of resident memory are on one scale: its largest sum.
        strips.push(if view.is_resident { strip.scaled_to(view.bands_max()) } else { strip });
    }
    let (programs, more) = view.listed();
    let letters = programs.iter().enumerate().map(|(at, program)| {
        let column = (program.from >= view.from).then(|| view.column(program.from, columns));
        (letter(at), column)
    });
    let plot = Plot {
        area: view.live(columns),
        line: has_memory.then(|| view.memory(columns, |sample| sample.resident)),
        peak: view.column(view.peak.time, columns),
        marks: letters.filter_map(|(letter, column)| Some((column?, letter))).collect(),
        from: look.time(view.from),
        to: look.time(view.to),
        strips,
        width: out.width(),
    };
    plot.print(look, &mut |line| out.line(line))?;
    if view.programs.len() > 1 {
        out.line("")?;
        let mut table = Tree::new(["", "from", "to", "pid"]);
        for (at, program) in programs.iter().enumerate() {
            let to = program.to.map_or("running".to_owned(), time);
            let row = Row::new(program.command.as_str()).note(if program.how == ProcessChangeKind::Exec {
                "by exec"
            } else {
                ""
            });
            table.push(0, row.cells([letter(at).to_string(), time(program.from), to, program.pid.to_string()]));
        }
        out.tree(&table)?;
        if more > 0 {
            out.dim_line(format_args!("and {more} smaller ones: --json lists them"))?;
        }
    }
    for pause in &view.history.pauses {
        let until = pause.until.map_or("the end".to_owned(), time);
        let what = if pause.is_stall { "the recorder stood still" } else { "recording was paused" };
        out.dim_line(format_args!("{what} from {} to {until}", time(pause.from)))?;
    }
    if !has_memory && view.filter.is_of_all_blocks() {
        out.dim_line("nobody looked at resident memory while this was recorded")?;
    }
    Ok(())
}

/// True if the locale is UTF-8, by the C library's rules, or if none is set, because terminals
/// usually are.
fn is_unicode() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(locale) = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")) else { return true };
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.ends_with("utf-8") || locale.ends_with("utf8") || locale.contains("utf-8@") || locale.contains("utf8@")
}
