//! `heapledger info`: the contents of a recording.

mod mismatch;

use std::collections::BTreeMap;
use std::time::Duration;

use heapledger_analysis::{AllocatorEventKind, Purge, allocator_event};
use heapledger_recording::{
    Annotation, ChunkKind, ImageEndReason, ImageId, ImageOrigin, ModuleId, NodeKind, Recording, Text, TextId, Thread,
};
use heapledger_report_format::{Row, Tree};
use heapledger_symbols::BuildId;
use serde::Serialize;

use self::mismatch::{Mismatch, STACK_MISMATCH, mismatches};
use crate::args::Info;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, counted, duration, seconds, time, utc};
use crate::input::Input;
use crate::json::amounts::{RateJson, rates_json};
use crate::json::document::Document;
use crate::json::recording::{DamageJson, PauseJson};
use crate::label::Labels;
use crate::notices::lost::{self, LostJson};
use crate::notices::stack_checks::{self, StackChecksJson};
use crate::notices::unseen::{self, UNSEEN_LIBRARY, UnseenLibrary};
use crate::output::Output;
use crate::symbols::names_from;
use crate::text::{shown, shown_command};
use crate::views::departures::{self, DepartureJson};
use crate::views::sampled;

pub(crate) fn run(arguments: &Info, out: &mut Output) -> Result<()> {
    if arguments.input.at().is_some() {
        let what = "`info` says what the whole recording consists of: it has no moment";
        return Err(Failure::new(Exit::Usage, what).hint("what was live then: heapledger top FILE@WHEN"));
    }
    let hint = "what is mapped: heapledger top FILE --mappings --by kind";
    arguments.input.needs_blocks(false, "`info` is about the file itself, and its events are", hint)?;
    let input = arguments.input.find(out)?;
    let recording = input.open()?;
    let labels = Labels::new(&recording, &arguments.symbols);
    let damage = recording.verify();
    if let Some(form) = arguments.input.form() {
        let document = InfoJson {
            format: recording.version(),
            complete: recording.complete(),
            start_unix_ns: recording.session().map(|session| session.start_unix_ns),
            bytes: input.length().0,
            events: events(&recording),
            marks: marks(&recording),
            part: recording.session().map_or(0, |session| session.segment),
            begins_seconds: recording.session().map_or(0.0, |session| seconds(session.begins)),
            totals_only: recording.session().is_some_and(|session| session.totals_only),
            sampling: rates_json(&recording),
            pauses: recording.pauses().iter().map(PauseJson::from).collect(),
            unrecorded: departures::json(&recording),
            events_lost: recording.footer().map(|footer| LostJson::new(&footer.counts)),
            events_late: recording.footer().map(|footer| footer.counts.events_late),
            events_reordered: recording.footer().map(|footer| footer.counts.events_reordered),
            frees_missed: recording.footer().map(|footer| footer.counts.frees_missed.0),
            stacks_unproven: recording.footer().map(|footer| footer.counts.stacks.unproven),
            stacks_folded: recording.footer().map(|footer| footer.counts.stacks.folded),
            places_named: labels.names.recorded().len() as u64,
            modules: recording.modules().iter().map(|module| module_json(&labels, module)).collect(),
            texts: texts(&recording).into_iter().map(|(text, uses)| text_json(text, uses)).collect(),
            images: recording.images().iter().map(|image| image_json(&recording, image.image)).collect(),
            stack_checks: recording.footer().map(|footer| StackChecksJson::new(&footer.counts.stacks)),
            stack_mismatches: mismatches(&recording),
            unseen_libraries: unseen::libraries(&recording),
            annotations: annotations(&recording).map(|annotation| AnnotationJson::from(&annotation)).collect(),
            chunks: kinds(&recording).into_iter().map(|(kind, sum)| (kind_name(kind), sum)).collect(),
            damage: damage.iter().map(DamageJson::from).collect(),
        };
        return out.document(&document, form);
    }

    session(&input, &recording, out)?;
    images(&recording, out)?;
    threads(&recording, out)?;
    modules(&recording, &labels, out)?;
    declared(&recording, out)?;
    markers(&recording, out)?;
    departures::print(&recording, out)?;
    mismatch::print(&recording, out)?;
    chunks(&input, &recording, out)?;
    if !damage.is_empty() {
        out.line("")?;
        out.title("damage")?;
        for damage in damage.iter().take(ROWS_MAX) {
            out.line(format_args!("{damage}"))?;
        }
        and_more(damage.len(), out)?;
    }
    Ok(())
}

/// The most rows of a list; longer lists are cut.
const ROWS_MAX: usize = 50;

fn and_more(all: usize, out: &mut Output) -> Result<()> {
    if all > ROWS_MAX {
        out.dim_line(format_args!("and {} more: --json lists them all", count((all - ROWS_MAX) as u64)))?;
    }
    Ok(())
}

fn session(input: &Input, recording: &Recording<'_>, out: &mut Output) -> Result<()> {
    let (major, minor) = recording.version();
    let mut facts = Tree::new([""]);
    let mut fact = |name: &str, text: String| facts.push(0, Row::new(text).cells([name]));
    fact("file", format!("{}, format {major}.{minor}", shown(&input.path)));
    if let Some(session) = recording.session() {
        let command: Vec<_> = session.command.iter().map(|word| String::from_utf8_lossy(word)).collect();
        fact("command", command.join(" "));
        fact("directory", String::from_utf8_lossy(&session.directory).into_owned());
        fact("began", utc(session.start_unix_ns));
        fact("recorded by", format!("heapledger {}", session.tool_version));
        if !session.options.is_empty() {
            fact("options", session.options.clone());
        }
        if session.segment > 0 {
            fact("part", format!("{} of its session, which it joins at {}", session.segment, time(session.begins)));
        }
        if session.totals_only {
            fact("events", "none: sites and totals only".to_owned());
        }
        for (at, one) in recording.sampling().iter().take(ROWS_MAX).enumerate() {
            let from = if at == 0 { String::new() } else { format!(" from {} on", time(one.from)) };
            fact("sampled", format!("{}{from}", sampled::rate(one.rate)));
        }
    }
    match recording.footer() {
        Some(footer) => {
            fact("took", duration(Duration::from_nanos(footer.time.0)));
            fact("complete", if recording.complete() { "yes" } else { "no" }.to_owned());
        }
        None => fact("complete", "no: the recorder did not finish".to_owned()),
    }
    for pause in recording.pauses().iter().take(ROWS_MAX) {
        let until = pause.until.map_or("the end".to_owned(), time);
        fact(if pause.is_stall { "stalled" } else { "paused" }, format!("from {} to {until}", time(pause.from)));
    }
    if let Some(lost) = recording.footer().and_then(|footer| lost::describe(&footer.counts)) {
        fact("lost", lost);
    }
    if let Some(bounds) = recording.footer().and_then(lost::peak_bounds) {
        fact("peak", bounds);
    }
    for (_, text) in unseen::describe(recording) {
        fact("unseen", text);
    }
    if let Some(checks) = recording.footer().and_then(|footer| stack_checks::describe(&footer.counts.stacks)) {
        fact("stacks", checks);
    }
    let counts = recording.footer().map(|footer| footer.counts).unwrap_or_default();
    if let Some(missed) = lost::missed(&counts) {
        fact("missed", missed);
    }
    if let Some(folded) = lost::folded(&counts) {
        fact("folded", format!("{folded} [{}]", Code::Folded));
    }
    if let Some(unproven) = lost::unproven(&counts) {
        fact("unproven", format!("{unproven} [{}]", Code::UnprovenStacks));
    }
    if counts.events_reordered > 0 {
        let events = counted(counts.events_reordered, "allocation", "allocations");
        fact("reordered", format!("{events}, stamped before the free of the same address in another thread"));
    }
    if counts.events_late > 0 {
        let events = counted(counts.events_late, "event", "events");
        fact("late", format!("{events} that came after their moment had been passed, and stand later"));
    }
    if marks(recording) > 0 {
        fact("reports", format!("{} of memory reporters: `heapledger dmd` has them", count(marks(recording))));
    }
    out.title("session")?;
    out.tree(&facts)?;
    Ok(())
}

/// The number of marks: notes of what memory reporters measured, and that they were asked.
fn marks(recording: &Recording<'_>) -> u64 {
    recording.chunks().iter().map(|chunk| u64::from(chunk.head.marks)).sum()
}

fn images(recording: &Recording<'_>, out: &mut Output) -> Result<()> {
    let mut table = Tree::new(["image", "pid", "by", "from", "to", "ended", "threads", "events"]);
    for image in recording.images().iter().take(ROWS_MAX) {
        let end = recording.image_end(image.image);
        let events: u64 = recording.event_chunks(image.image).map(|chunk| u64::from(chunk.head().rows)).sum();
        let cells = [
            image.image.0.to_string(),
            image.pid.to_string(),
            origin(image.how).to_owned(),
            time(image.time),
            end.map_or(String::new(), |end| time(end.time)),
            end.map_or("?", |end| reason(end.reason)).to_owned(),
            count(recording.threads(image.image).len() as u64),
            count(events),
        ];
        table.push(0, Row::new(shown_command(image)).cells(cells));
    }
    out.line("")?;
    out.title("processes")?;
    out.tree(&table)?;
    and_more(recording.images().len(), out)
}

/// Prints the threads of the processes that have several.
fn threads(recording: &Recording<'_>, out: &mut Output) -> Result<()> {
    let images = recording.images().iter().map(|image| recording.threads(image.image));
    let threads: Vec<&Thread> = images.filter(|threads| threads.len() > 1).flatten().collect();
    if threads.is_empty() {
        return Ok(());
    }
    let mut table = Tree::new(["image", "thread", "from", "to"]);
    for thread in threads.iter().take(ROWS_MAX) {
        let cells = [
            thread.image.0.to_string(),
            thread.tid.to_string(),
            time(thread.start),
            thread.end.map_or(String::new(), time),
        ];
        table.push(0, Row::new(String::from_utf8_lossy(&thread.name)).cells(cells));
    }
    out.line("")?;
    out.title("threads")?;
    out.tree(&table)?;
    and_more(threads.len(), out)
}

/// Returns the annotations that the program wrote through the bridge, and those about arenas. Stack
/// mismatches, unseen libraries and sandboxes are shown elsewhere.
fn annotations<'a>(recording: &'a Recording<'_>) -> impl Iterator<Item = Annotation> + 'a {
    recording
        .images()
        .iter()
        .flat_map(|image| recording.annotations(image.image))
        .filter_map(|annotation| annotation.ok())
        .filter(|annotation| ![STACK_MISMATCH, UNSEEN_LIBRARY, lost::SANDBOX].contains(&annotation.code))
}

fn markers(recording: &Recording<'_>, out: &mut Output) -> Result<()> {
    let all: Vec<Annotation> = annotations(recording).take(ROWS_MAX + 1).collect();
    if all.is_empty() {
        return Ok(());
    }
    let mut table = Tree::new(["image", "at", "code"]);
    for annotation in all.iter().take(ROWS_MAX) {
        let cells = [annotation.image.0.to_string(), time(annotation.time), annotation.code.to_string()];
        table.push(0, Row::new(marker_text(annotation).unwrap_or_default()).cells(cells));
    }
    out.line("")?;
    out.title("annotations")?;
    out.tree(&table)?;
    and_more(all.len(), out)
}

/// Returns the name of a marker (code 262), which is NUL-padded UTF-8, or a sentence about an
/// arena.
fn marker_text(annotation: &Annotation) -> Option<String> {
    const MARKER: u32 = 262;
    if let Some(event) = allocator_event(annotation) {
        return Some(match event.kind {
            AllocatorEventKind::ArenaCreated { arena, label } => format!("arena {label} ({arena:#x}) created"),
            AllocatorEventKind::ArenaDisposed { arena, label } => format!("arena {label} ({arena:#x}) disposed of"),
            AllocatorEventKind::Purged(Purge { arena, label, reason, pages, .. }) => {
                let pages = counted(pages, "page", "pages");
                let of = match (&*label, arena) {
                    ("", 0) => "allocator".to_owned(),
                    ("", _) => format!("arena {arena:#x}"),
                    _ => format!("arena {label} ({arena:#x})"),
                };
                let reason = if reason.is_empty() { reason } else { format!(" ({reason})") };
                format!("{of} purged of {pages}{reason}")
            }
        });
    }
    let text = String::from_utf8_lossy(&annotation.payload);
    (annotation.code == MARKER).then(|| text.trim_end_matches('\0').to_owned())
}

fn modules(recording: &Recording<'_>, labels: &Labels<'_, '_>, out: &mut Output) -> Result<()> {
    if recording.modules().is_empty() {
        return Ok(());
    }
    let mut table = Tree::new(["names from", "build id"]);
    for module in recording.modules().iter().take(ROWS_MAX) {
        let state = labels.names.module_state(module.module);
        let id = BuildId(module.build_id.as_slice().into()).to_string();
        let short = if id.len() > 12 { format!("{}…", &id[..12]) } else { id };
        let names = state.as_ref().map_or("", |state| names_from(state.debug)).to_owned();
        let mut row = Row::new(String::from_utf8_lossy(&module.path));
        // A name such as `[vdso]` says by itself that the module is not a file.
        let problem = state.iter().flat_map(|state| &state.problems);
        if let Some(problem) = problem.map(ToString::to_string).find(|problem| problem != "not a file") {
            row = row.note(problem);
        }
        table.push(0, row.cells([names, short]));
    }
    out.line("")?;
    out.title("modules")?;
    out.tree(&table)?;
    and_more(recording.modules().len(), out)
}

/// Returns the texts of the program with their uses: names of scopes come first, then heaps,
/// values, and stamps.
fn texts<'r>(recording: &'r Recording<'_>) -> Vec<(&'r Text, [bool; 4])> {
    let mut uses: BTreeMap<TextId, [bool; 4]> = BTreeMap::new();
    if !recording.texts().is_empty() {
        for image in recording.images() {
            for node in recording.nodes(image.image).nodes() {
                let Some(text) = node.text() else { continue };
                let uses = uses.entry(text).or_default();
                uses[0] |= node.kind == NodeKind::Scope;
                uses[1] |= node.kind == NodeKind::Heap;
                uses[2] |= node.kind == NodeKind::Value;
                uses[3] |= node.kind == NodeKind::Stamp;
            }
        }
    }
    let used = |text: &'r Text| (text, uses.get(&text.text).copied().unwrap_or_default());
    let files = recording.mapped_files();
    let is_declared = |text: &&Text| uses.contains_key(&text.text) || !files.contains(&text.text);
    let mut texts: Vec<_> = recording.texts().iter().filter(is_declared).map(used).collect();
    texts.sort_by_key(|(text, uses)| (std::cmp::Reverse(*uses), text.text));
    texts
}

/// Returns the uses of a text, for people.
fn uses_shown(text: &Text, [is_scope, is_heap, is_value, is_stamp]: [bool; 4]) -> String {
    let scope = if text.is_task { "task" } else { "scope" };
    let uses = [(is_scope, scope), (is_heap, "heap"), (is_value, "value"), (is_stamp, "stamp")];
    uses.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

fn declared(recording: &Recording<'_>, out: &mut Output) -> Result<()> {
    let texts = texts(recording);
    if texts.is_empty() {
        return Ok(());
    }
    let mut table = Tree::new(["is a", "category"]);
    for (text, uses) in texts.iter().take(ROWS_MAX) {
        let cells = [uses_shown(text, *uses), String::from_utf8_lossy(&text.category).into_owned()];
        // The text of a stamp has its type, its location and its label on lines of their own.
        let shown = String::from_utf8_lossy(&text.bytes).replace('\n', "  ");
        table.push(0, Row::new(shown).cells(cells));
    }
    out.line("")?;
    out.title("contexts, heaps and stamps")?;
    out.tree(&table)?;
    and_more(texts.len(), out)
}

fn chunks(input: &Input, recording: &Recording<'_>, out: &mut Output) -> Result<()> {
    let mut table = Tree::new(["chunks", "bytes", "rows", "bytes per row"]);
    for (kind, sum) in kinds(recording) {
        let per_row = if sum.rows > 0 { format!("{:.2}", sum.bytes as f64 / sum.rows as f64) } else { String::new() };
        table.push(0, Row::new(kind_name(kind)).cells([count(sum.chunks), bytes(sum.bytes), count(sum.rows), per_row]));
    }
    out.line("")?;
    out.title("contents")?;
    out.tree(&table)?;
    let events = events(recording);
    if events > 0 {
        let per_event = input.length().0 as f64 / events as f64;
        out.line(format_args!(
            "{} for {} events: {per_event:.2} bytes per event",
            bytes(input.length().0),
            count(events)
        ))?;
    }
    Ok(())
}

/// The chunks of one kind, added up.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KindSum {
    chunks: u64,
    bytes: u64,
    rows: u64,
}

fn kinds(recording: &Recording<'_>) -> BTreeMap<u16, KindSum> {
    let mut kinds: BTreeMap<u16, KindSum> = BTreeMap::new();
    for chunk in recording.chunks() {
        let sum = kinds.entry(chunk.kind.number()).or_default();
        sum.chunks += 1;
        sum.bytes += u64::from(chunk.length);
        sum.rows += u64::from(chunk.head.rows);
    }
    kinds
}

fn kind_name(kind: u16) -> String {
    match ChunkKind::from_number(kind) {
        ChunkKind::Metadata => "metadata",
        ChunkKind::Annotations => "annotations",
        ChunkKind::Nodes => "stack nodes",
        ChunkKind::Events => "events",
        ChunkKind::Checkpoint => "checkpoints",
        ChunkKind::Sites => "sites",
        ChunkKind::Timeline => "timeline",
        ChunkKind::Index => "index",
        ChunkKind::Footer => "footer",
        ChunkKind::Memory => "memory",
        ChunkKind::Names => "names",
        ChunkKind::Mappings => "mappings",
        ChunkKind::Resident => "resident snapshots",
        ChunkKind::Other(number) => return format!("kind {number}"),
    }
    .to_owned()
}

fn events(recording: &Recording<'_>) -> u64 {
    kinds(recording).get(&ChunkKind::Events.number()).map_or(0, |sum| sum.rows)
}

fn origin(how: ImageOrigin) -> &'static str {
    match how {
        ImageOrigin::Launched => "launch",
        ImageOrigin::Exec => "exec",
        ImageOrigin::Fork => "fork",
        ImageOrigin::Attached => "attach",
        _ => "?",
    }
}

fn reason(reason: ImageEndReason) -> &'static str {
    match reason {
        ImageEndReason::Exec => "exec",
        ImageEndReason::Exit => "exit",
        ImageEndReason::Detached => "running",
        ImageEndReason::Lost => "lost",
        _ => "?",
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct InfoJson {
    format: (u8, u8),
    complete: bool,
    /// The time at which the session began, in nanoseconds since 1970.
    start_unix_ns: Option<u64>,
    bytes: u64,
    events: u64,
    /// The number of marks: notes of what memory reporters measured, and that they were asked.
    marks: u64,
    /// The number of this file among the segments of its session, from 1; 0 for the only one.
    part: u32,
    begins_seconds: f64,
    totals_only: bool,
    /// The rates at which blocks were sampled, if they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sampling: Vec<RateJson>,
    pauses: Vec<PauseJson>,
    /// The programs that recorded processes started and that were not recorded.
    unrecorded: Vec<DepartureJson>,
    events_lost: Option<LostJson>,
    events_late: Option<u64>,
    events_reordered: Option<u64>,
    frees_missed: Option<u64>,
    /// The number of allocations whose stacks go through code without unwind information, such as
    /// generated code, where callers were found by frame pointers.
    stacks_unproven: Option<u64>,
    /// The number of stacks that were folded into their callers, for want of memory.
    stacks_folded: Option<u64>,
    images: Vec<ImageJson>,
    /// The number of code locations whose functions are named in the recording itself.
    places_named: u64,
    modules: Vec<ModuleJson>,
    /// The program's names for its scopes, their values and its heaps, and its stamps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    texts: Vec<TextJson>,
    /// The number of stacks in each class, with `--verify-stacks`.
    #[serde(flatten)]
    stack_checks: Option<StackChecksJson>,
    stack_mismatches: Vec<Mismatch>,
    unseen_libraries: Vec<UnseenLibrary>,
    annotations: Vec<AnnotationJson>,
    chunks: BTreeMap<String, KindSum>,
    damage: Vec<DamageJson>,
}

impl Document for InfoJson {
    const SCHEMA: &'static str = "info";
    const ROWS: Option<&'static str> = Some("images");
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AnnotationJson {
    image: u32,
    thread: u32,
    time_seconds: f64,
    code: u32,
    /// The name, if this is a marker; a sentence, if it is about an arena.
    text: Option<String>,
    /// The payload in hexadecimal.
    payload: String,
}

impl From<&Annotation> for AnnotationJson {
    fn from(annotation: &Annotation) -> AnnotationJson {
        AnnotationJson {
            image: annotation.image.0,
            thread: annotation.thread.0,
            time_seconds: seconds(annotation.time),
            code: annotation.code,
            text: marker_text(annotation),
            payload: annotation.payload.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ImageJson {
    image: u32,
    pid: u32,
    origin: &'static str,
    ended: Option<&'static str>,
    events: u64,
    threads: Vec<ThreadJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ThreadJson {
    thread: u32,
    tid: u32,
    name: String,
    start_time_seconds: f64,
    end_time_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ModuleJson {
    module: u32,
    path: String,
    build_id: String,
    names_from: Option<&'static str>,
    problems: Vec<String>,
    hint: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TextJson {
    text: String,
    is_scope: bool,
    is_task: bool,
    is_heap: bool,
    is_value: bool,
    is_stamp: bool,
    category: Option<String>,
}

fn text_json(text: &Text, [is_scope, is_heap, is_value, is_stamp]: [bool; 4]) -> TextJson {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let category = (!text.category.is_empty()).then(|| lossy(&text.category));
    TextJson { text: lossy(&text.bytes), is_scope, is_task: text.is_task, is_heap, is_value, is_stamp, category }
}

fn image_json(recording: &Recording<'_>, image: ImageId) -> ImageJson {
    let start = recording.image(image);
    ImageJson {
        image: image.0,
        pid: start.map_or(0, |start| start.pid),
        origin: start.map_or("?", |start| origin(start.how)),
        ended: recording.image_end(image).map(|end| reason(end.reason)),
        events: recording.event_chunks(image).map(|chunk| u64::from(chunk.head().rows)).sum(),
        threads: recording
            .threads(image)
            .iter()
            .map(|thread| ThreadJson {
                thread: thread.thread.0,
                tid: thread.tid,
                name: String::from_utf8_lossy(&thread.name).into_owned(),
                start_time_seconds: seconds(thread.start),
                end_time_seconds: thread.end.map(seconds),
            })
            .collect(),
    }
}

fn module_json(labels: &Labels<'_, '_>, module: &heapledger_recording::Module) -> ModuleJson {
    let id: ModuleId = module.module;
    let state = labels.names.module_state(id);
    ModuleJson {
        module: id.0,
        path: String::from_utf8_lossy(&module.path).into_owned(),
        build_id: BuildId(module.build_id.as_slice().into()).to_string(),
        names_from: state.as_ref().map(|state| names_from(state.debug)),
        problems: state.iter().flat_map(|state| &state.problems).map(ToString::to_string).collect(),
        hint: labels.names.hint(id),
    }
}
