//! `heapledger export`: the sites of a recording, for other tools.

use std::collections::HashMap;

use clap::ValueEnum;
use heapledger_analysis::{
    Amount, ContextId, Metric, Moment, NodeId, Place, Profile, StackFrame, Stacks, TypeBy, UNKNOWN_TYPE,
};
use heapledger_profiles::{self as profiles, Amounts, Location, Module, Sample, pprof};
use heapledger_recording::{ModuleId, NodeKind, Recording};
use heapledger_symbols::BuildId;

use crate::args::Export;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::label::{Labels, command};
use crate::output::Output;
use crate::question::Question;

/// The formats that can be written. A new one is a variant here, its encoder below, and a module of
/// `heapledger-profiles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Of `go tool pprof`, Speedscope, Grafana Pyroscope and others
    Pprof,
}

impl Format {
    fn encoder(self) -> fn(&profiles::Profile) -> Vec<u8> {
        match self {
            Format::Pprof => pprof::encode,
        }
    }
}

pub(crate) fn run(arguments: &Export, out: &mut Output) -> Result<()> {
    let input = Input::find(arguments.file.as_deref())?;
    let recording = input.open()?;
    let which = &arguments.which;
    let selection = which.at(arguments.at.or(which.retained()).unwrap_or(Moment::Peak));
    let mut question =
        Question::new(&input, &recording, &arguments.symbols, selection, Metric::Bytes).expect_something()?;
    let (what, live) = (question.what(), question.profile()?);
    question.selection.moment = Moment::Total;
    let total = question.profile()?;
    let mut exporter = Exporter::new(&recording, question.labels);
    exporter.add(&total, |amount, sum| {
        sum.blocks_allocated += amount.blocks.0;
        sum.bytes_allocated += amount.bytes.0;
    });
    exporter.add(&live, |amount, sum| {
        sum.blocks_live += amount.blocks.0;
        sum.bytes_live += amount.bytes.0;
    });
    let mut profile = exporter.finish();
    if profile.samples.is_empty() {
        return Err(Failure::new(Exit::NothingRecorded, "there is nothing to export: no block was allocated"));
    }
    profile.comments.push(format!("inuse: {what}"));
    let bytes = arguments.to.encoder()(&profile);
    out.save(&arguments.output, |out| out.write_all(&bytes))
}

/// Names and values.
type LabelList = Vec<(&'static str, String)>;

/// Gathers stacks that are equal once the allocator's own functions are left out.
struct Exporter<'r, 'a> {
    recording: &'r Recording<'a>,
    labels: Labels<'r, 'a>,
    profile: profiles::Profile,
    /// Index in the profile, and bias.
    modules: HashMap<ModuleId, (Option<usize>, u64)>,
    /// By what was recorded, and how many functions are left of it.
    locations: HashMap<(Option<StackFrame>, usize), usize>,
    samples: HashMap<(Vec<usize>, LabelList), usize>,
}

impl<'r, 'a> Exporter<'r, 'a> {
    fn new(recording: &'r Recording<'a>, labels: Labels<'r, 'a>) -> Self {
        let session = recording.session();
        let mut exporter = Exporter {
            recording,
            labels,
            profile: profiles::Profile {
                start_unix_ns: session.map_or(0, |session| session.start_unix_ns),
                duration_ns: recording.footer().map_or(0, |footer| footer.time.0),
                comments: recording.images().first().map(command).into_iter().collect(),
                ..profiles::Profile::default()
            },
            modules: HashMap::new(),
            locations: HashMap::new(),
            samples: HashMap::new(),
        };
        // The program comes first.
        if let Some(program) = recording.images().first()
            && let Some(module) = recording.modules().iter().find(|module| module.path == program.executable)
        {
            exporter.module(module.module);
        }
        exporter
    }

    fn add(&mut self, profile: &Profile, add: impl Fn(&Amount, &mut Amounts)) {
        for site in &profile.sites {
            let places = self.labels.names.useful_places(&profile.stacks, site.stack);
            let locations: Vec<usize> = places.iter().map(|place| self.location(place)).collect();
            let mut labels = self.declared(&profile.stacks, site.stack);
            let typed = self.labels.names.typed(&profile.stacks, site.stack);
            if typed.name(TypeBy::Block).full() != UNKNOWN_TYPE {
                labels.push(("type", typed.name(TypeBy::Block).full().to_owned()));
            }
            let samples = &mut self.profile.samples;
            let at = *self.samples.entry((locations, labels)).or_insert_with_key(|(locations, labels)| {
                let (locations, labels) = (locations.clone(), labels.clone());
                samples.push(Sample { locations, labels, amounts: Amounts::default() });
                samples.len() - 1
            });
            add(&site.amount, &mut samples[at].amounts);
        }
    }

    fn finish(mut self) -> profiles::Profile {
        // Sites come in no particular order; the same recording gives the same file.
        self.profile.samples.sort_by(|a, b| {
            let key = |sample: &Sample| (sample.amounts.bytes_live, sample.amounts.bytes_allocated);
            key(b).cmp(&key(a)).then_with(|| (&a.locations, &a.labels).cmp(&(&b.locations, &b.labels)))
        });
        self.profile
    }

    /// What the program said of a stack.
    fn declared(&self, stacks: &Stacks, stack: NodeId) -> LabelList {
        let (names, context) = (&self.labels.names, stacks.context(stack));
        let mut labels = Vec::new();
        if context != ContextId::NONE {
            labels.push(("context", names.context(stacks, context)));
            labels.extend(stacks.task(names, context).map(|task| ("task", names.scope(task))));
        }
        labels.extend(stacks.heap(stack).map(|heap| ("heap", names.text(heap))));
        labels
    }

    fn location(&mut self, place: &Place) -> usize {
        let key = (place.at, place.frames.len());
        if let Some(&at) = self.locations.get(&key) {
            return at;
        }
        let id = place.at.map_or(ModuleId::UNKNOWN, |at| at.module);
        let (module, bias) = self.module(id);
        let offset = place.at.filter(|at| at.kind == NodeKind::Frame).map_or(0, |at| at.offset);
        let location = Location {
            module,
            address: bias.wrapping_add(offset),
            frames: place.frames.iter().map(|frame| self.frame(frame)).collect(),
        };
        self.profile.locations.push(location);
        self.locations.insert(key, self.profile.locations.len() - 1);
        self.profile.locations.len() - 1
    }

    fn frame(&self, frame: &heapledger_analysis::Frame) -> profiles::Frame {
        let name = self.labels.names.function(frame.function);
        profiles::Frame {
            function: name.short.to_string(),
            full_name: name.full.to_string(),
            known: name.known,
            file: frame.location.as_ref().map_or_else(String::new, |location| location.file.to_string()),
            line: frame.location.as_ref().map_or(0, |location| location.line),
        }
    }

    /// The index of a module, and what to add to its own addresses.
    fn module(&mut self, id: ModuleId) -> (Option<usize>, u64) {
        if let Some(&known) = self.modules.get(&id) {
            return known;
        }
        let Some(module) = self.recording.module(id) else { return (None, 0) };
        // A module may be elsewhere in each image: the first place that has it stands for all.
        let images = self.recording.images().iter();
        let mut mappings = images
            .flat_map(|image| self.recording.mappings(image.image))
            .filter(|mapping| mapping.module == id)
            .peekable();
        let first = mappings.peek().map(|first| (first.image, first.bias));
        let (mut start, mut end) = (u64::MAX, 0);
        for mapping in mappings.take_while(|mapping| first == Some((mapping.image, mapping.bias))) {
            (start, end) = (start.min(mapping.start), end.max(mapping.end));
        }
        self.profile.modules.push(Module {
            path: String::from_utf8_lossy(&module.path).into_owned(),
            build_id: BuildId(module.build_id.as_slice().into()).to_string(),
            start: start.min(end),
            end,
        });
        let known = (Some(self.profile.modules.len() - 1), first.map_or(0, |(_, bias)| bias));
        self.modules.insert(id, known);
        known
    }
}
