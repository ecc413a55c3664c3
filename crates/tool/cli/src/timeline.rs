//! `heapledger timeline`: the live blocks over time, as a plot, a picture or JSON.

pub(crate) mod json;

pub(crate) use json::PauseJson;

use std::io::Write as _;

use heapledger_analysis::{
    Amount, Filter, History, Metric, Moment, ProcessChangeKind, Profile, Selection, ShareGroup, Shares, SharesBy,
};
use heapledger_core::Bytes;
use heapledger_recording::{ExitStatus, ImageId, MemorySample, Recording, Sample, Time};
use heapledger_report_format::{Row, Tree, escape};

use crate::args::{By, Rows, Timeline};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, time};
use crate::input::shown;
use crate::label::shown_command;
use crate::output::Output;
use crate::parts::part_row;
use crate::picture;
use crate::plot::{Look, Plot, Strip};
use crate::question::Question;
use crate::ranks::{Depth, row};
use crate::report::quoted;
use crate::sampled;

/// The columns of the output if it is not a terminal.
const WIDTH: usize = 80;
/// The most programs listed below a plot or a picture: those with the highest peaks.
const PROGRAMS_MAX: usize = 12;

pub(crate) fn run(arguments: &Timeline, out: &mut Output) -> Result<()> {
    let input = arguments.input.find(out).map_err(|failure| hint_at_output(arguments, failure))?;
    let recording = input.open()?;
    if arguments.svg {
        out.draw_to_default(&input, "timeline", &arguments.input.written)?;
    }
    let selection = Selection { filter: arguments.blocks.filter(), ..Selection::default() };
    let question = Question::new(&input, &recording, &arguments.symbols, selection, Metric::Bytes);
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

    if let Some(form) = arguments.input.form() {
        return out.document(&json::TimelineJson::new(&view, &question.selection), form);
    }
    if !arguments.svg {
        return print(&view, &question, out);
    }
    let picture = picture::draw(&view, &title(&view));
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

/// The part of a history that is shown.
pub(crate) struct View<'r, 'a> {
    pub(crate) recording: &'r Recording<'a>,
    filter: Filter,
    pub(crate) from: Time,
    /// The end of the shown time, later than `from`.
    pub(crate) to: Time,
    pub(crate) history: History,
    /// The largest sample in the part, the first of equals.
    pub(crate) peak: Sample,
    /// The amount live at the peak; for a sampled recording, with its error, as far as that is
    /// known.
    pub(crate) at_peak: Amount,
    /// The programs in time order.
    pub(crate) programs: Vec<Program>,
    /// The amounts that groups of sites held at each of the times: the largest group first, and
    /// last the sum of all others. Empty if groups were not asked for.
    pub(crate) bands: Vec<Band>,
    pub(crate) times: Vec<Time>,
}

/// The bytes that a group of sites held over time.
pub(crate) struct Band {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u64>,
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
    let (selection, times) = (question.selection.with_moment(moment), &view.times);
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

/// A program that ran in the shown part.
pub(crate) struct Program {
    pub(crate) image: ImageId,
    pub(crate) pid: u32,
    pub(crate) from: Time,
    pub(crate) to: Option<Time>,
    pub(crate) how: ProcessChangeKind,
    pub(crate) exit: Option<ExitStatus>,
    pub(crate) command: String,
    bytes_live_max: Bytes,
}

impl<'r, 'a> View<'r, 'a> {
    fn new(
        question: &Question<'r, 'a>,
        history: History,
        (from, to): (Option<Time>, Option<Time>),
    ) -> Result<View<'r, 'a>> {
        let (recording, filter) = (question.recording, question.selection.filter.clone());
        let from = from.unwrap_or(history.begins).max(history.begins);
        let to = to.unwrap_or(history.ends).min(history.ends).max(Time(history.begins.0 + 1));
        if from >= to {
            let span = format!("the recording goes from {} to {}", time(history.begins), time(history.ends));
            return Err(Failure::new(Exit::Usage, "there is nothing between these times").hint(span));
        }
        let mut peak = at(&history.live, from);
        for sample in history.live.iter().filter(|sample| (from..=to).contains(&sample.time)) {
            if sample.live.bytes > peak.live.bytes {
                peak = *sample;
            }
        }
        let programs = programs(recording, &history);
        let programs = programs.into_iter().filter(|it| it.from <= to && it.to.is_none_or(|end| end >= from)).collect();
        let (bands, times) = (Vec::new(), Vec::new());
        let at_peak = Amount { bytes: peak.live.bytes, blocks: peak.live.blocks, ..Amount::default() };
        Ok(View { recording, filter, from, to, history, peak, at_peak, programs, bands, times })
    }

    /// Computes the error of the amount live at the peak. For a part of the time, this takes a
    /// replay of events.
    fn estimate(&mut self, question: &mut Question<'_, '_>) {
        if !self.recording.is_sample() {
            return;
        }
        let moment =
            if self.is_whole() && self.filter.is_of_all_blocks() { Moment::Peak } else { Moment::At(self.peak.time) };
        let selection = question.selection.with_moment(moment);
        if let Ok(profile) = question.answer(|names, _, progress| Profile::load(names, &selection, progress)) {
            self.at_peak.variance = profile.whole.variance;
        }
    }

    /// Returns the patterns of the processes that were asked for.
    fn processes(&self) -> Vec<String> {
        self.filter.processes.iter().map(ToString::to_string).collect()
    }

    /// True if the view shows all of the time.
    fn is_whole(&self) -> bool {
        (self.from, self.to) == (self.history.begins, self.history.ends)
    }

    /// Returns the largest figure in each of `columns` equal parts of the time. A figure holds
    /// until the next one; `None` before the first.
    pub(crate) fn columns<S>(
        &self,
        samples: &[S],
        columns: usize,
        moment: impl Fn(&S) -> Time,
        figure: impl Fn(&S) -> u64,
    ) -> Vec<Option<u64>> {
        let mut largest: Vec<Option<u64>> = vec![None; columns];
        let mut last = largest.clone();
        let mut held = None;
        for sample in samples.iter().take_while(|sample| moment(sample) <= self.to) {
            if moment(sample) < self.from {
                held = Some(figure(sample));
                continue;
            }
            let column = self.column(moment(sample), columns);
            largest[column] = largest[column].max(Some(figure(sample)));
            last[column] = Some(figure(sample));
        }
        for (largest, last) in largest.iter_mut().zip(last) {
            *largest = (*largest).max(held);
            held = last.or(held);
        }
        largest
    }

    /// Returns the programs to list, and the number of the others.
    pub(crate) fn listed(&self) -> (Vec<&Program>, usize) {
        let mut listed: Vec<&Program> = self.programs.iter().collect();
        listed.sort_by_key(|program| std::cmp::Reverse(program.bytes_live_max));
        listed.truncate(PROGRAMS_MAX);
        listed.sort_by_key(|program| (program.from, program.image));
        let more = self.programs.len() - listed.len();
        (listed, more)
    }

    pub(crate) fn live(&self, columns: usize) -> Vec<Option<u64>> {
        self.columns(&self.history.live, columns, |sample| sample.time, |sample| sample.live.bytes.0)
    }

    pub(crate) fn blocks(&self, columns: usize) -> Vec<Option<u64>> {
        self.columns(&self.history.live, columns, |sample| sample.time, |sample| sample.live.blocks.0)
    }

    pub(crate) fn memory(&self, columns: usize, figure: Figure) -> Vec<Option<u64>> {
        self.columns(&self.history.memory, columns, |sample| sample.time, |sample| figure(sample).0)
    }

    /// Returns the last moment of each of `columns` equal parts of the time; for the part with the
    /// peak, the moment of the peak.
    fn ends(&self, columns: usize) -> Vec<Time> {
        let length = u128::from(self.to.0 - self.from.0);
        let end = |column: u128| Time(self.from.0 + (length * (column + 1) / columns as u128) as u64);
        let mut ends: Vec<Time> = (0..columns as u128).map(end).collect();
        ends[self.column(self.peak.time, columns)] = self.peak.time;
        ends
    }

    /// Returns the index of the part that contains a moment, if the time is divided into `columns`
    /// equal parts.
    pub(crate) fn column(&self, moment: Time, columns: usize) -> usize {
        let part = u128::from(moment.0.saturating_sub(self.from.0)) * columns as u128;
        let column = part / u128::from(self.to.0 - self.from.0);
        (column as usize).min(columns - 1)
    }
}

/// Returns the last sample up to a moment.
fn at(live: &[Sample], moment: Time) -> Sample {
    let after = live.partition_point(|sample| sample.time <= moment);
    let live = after.checked_sub(1).map(|at| live[at].live).unwrap_or_default();
    Sample { time: moment, live }
}

/// A function that returns one of the figures that the system counted.
type Figure = fn(&MemorySample) -> Bytes;

/// The figures that the system counted, with the names that plots give them.
pub(crate) const MEMORY: [(&str, Figure); 4] = [
    ("resident", |sample| sample.resident),
    ("of no file", |sample| sample.resident_anonymous),
    ("brk heap", |sample| sample.heap),
    ("anon mmap", |sample| sample.mappings),
];

fn programs(recording: &Recording<'_>, history: &History) -> Vec<Program> {
    let starts = history.process_changes.iter().filter(|change| !matches!(change.what, ProcessChangeKind::Ended(_)));
    let program = |change: &heapledger_analysis::ProcessChange| {
        let start = recording.image(change.image)?;
        let end = recording.image_end(change.image);
        Some(Program {
            image: change.image,
            pid: start.pid,
            from: change.time,
            to: end.map(|end| end.time),
            how: change.what,
            exit: end.and_then(|end| end.exit),
            command: shown_command(start),
            bytes_live_max: recording.image_counts(change.image).map_or(Bytes(0), |counts| counts.bytes_live_max),
        })
    };
    starts.filter_map(program).collect()
}

/// Formats the title: `412.6 MiB in 1,234 blocks live at the peak (18.2 s)`.
fn title(view: &View<'_, '_>) -> String {
    let (live, blocks) = (sampled::bytes_of(&view.at_peak), sampled::blocks_of(&view.at_peak, "block", "blocks"));
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
    out.title(title(view))?;
    sampled::print_notice(view.recording, out)?;
    if !view.filter.is_of_all_blocks() {
        question.words(out)?;
    }
    out.line("")?;
    let look = Look { unicode: is_unicode(), colors: out.has_colors() };
    let columns = Plot::columns(out.width().unwrap_or(WIDTH));
    let mut strips = vec![Strip::new("blocks", view.blocks(columns), count)];
    let has_memory = !view.history.memory.is_empty();
    if has_memory {
        strips.extend(MEMORY.map(|(name, figure)| Strip::new(name, view.memory(columns, figure), bytes)));
    }
    for band in &view.bands {
        let values = band.bytes.iter().copied().map(Some).collect();
        strips.push(Strip::new("", values, bytes).note(&band.name));
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

/// Returns the letter of a program in a plot.
pub(crate) fn letter(at: usize) -> char {
    u8::try_from(at).ok().filter(|&at| at < 26).map_or('+', |at| char::from(b'a' + at))
}

/// True if the locale is UTF-8, by the C library's rules, or if none is set, because terminals
/// usually are.
fn is_unicode() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(locale) = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")) else { return true };
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.ends_with("utf-8") || locale.ends_with("utf8") || locale.contains("utf-8@") || locale.contains("utf8@")
}
