//! Builds a profile for other tools from a recording.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use heapledger_analysis::{
    self as analysis, AllocatorEvent, AllocatorEventKind, ContextId, MomentAmounts, Names, NodeId, Position,
    StackFrame, Stacks, TypeBy, UNKNOWN_TYPE,
};
use heapledger_profile_formats::{Amounts, Frame, Holds, Location, Module, Profile, Purge, Sample};
use heapledger_recording::{ImageId, ModuleId, NodeKind, Recording};
use heapledger_symbols::{BuildId, Headers};

use crate::error::Result;
use crate::label::Labels;
use crate::question::Question;
use crate::text::command;

/// Labels of a sample: names and values.
type LabelList = Vec<(Cow<'static, str>, String)>;

/// Returns the purges of the selected processes in the selected time, in the order of time.
///
/// Purges after the selection's moment are left out if that is a time, and purges outside the times
/// of allocation if the filter has such times. Takes O(images + events).
pub(super) fn purges(question: &Question<'_, '_>) -> Result<Vec<Purge>> {
    let (recording, selection) = (question.recording, &question.selection);
    let images = selection.filter.images(recording).map_err(|error| question.input.unanswered(error))?;
    let selected: HashSet<ImageId> = images.into_iter().collect();
    let all = recording.images().iter().map(|image| (image.image, image.pid));
    let pids: HashMap<ImageId, u32> = all.filter(|(image, _)| selected.contains(image)).collect();
    let is_selected = |event: &AllocatorEvent| {
        let is_in_time = selection.moment.time().is_none_or(|end| event.time <= end);
        is_in_time && selection.filter.allocated.as_ref().is_none_or(|range| range.contains(&event.time.0))
    };
    let purge = |event: AllocatorEvent| {
        let AllocatorEventKind::Purged(purge) = event.kind else { return None };
        Some(Purge {
            pid: pids.get(&event.image).copied()?,
            start_ns: event.time.0.saturating_sub(purge.duration_ns),
            end_ns: event.time.0,
            arena: purge.arena,
            label: purge.label,
            reason: purge.reason,
            pages: purge.pages,
            calls: purge.calls,
            chunks: purge.chunks,
        })
    };
    let mut purges: Vec<Purge> = analysis::allocator_events(recording).filter(is_selected).filter_map(purge).collect();
    purges.sort_by_key(|purge| purge.start_ns);
    Ok(purges)
}

/// Gathers stacks that are equal once the allocator's own functions are left out.
pub(super) struct Gatherer<'q, 'r, 'a> {
    recording: &'r Recording<'a>,
    labels: &'q mut Labels<'r, 'a>,
    pub(super) profile: Profile,
    /// True if owners are among the labels.
    pub(super) names_owners: bool,
    /// The index of each module in the profile, and its bias.
    modules: HashMap<ModuleId, (Option<usize>, u64)>,
    /// The index of each location, by the recorded frame and the number of functions left of it.
    locations: HashMap<(Option<StackFrame>, usize), usize>,
    samples: HashMap<(Vec<usize>, LabelList), usize>,
}

impl<'r, 'a> AsMut<Names<'r, 'a>> for Gatherer<'_, 'r, 'a> {
    fn as_mut(&mut self) -> &mut Names<'r, 'a> {
        &mut self.labels.names
    }
}

impl<'q, 'r, 'a> Gatherer<'q, 'r, 'a> {
    pub(super) fn new(recording: &'r Recording<'a>, purges: Vec<Purge>, labels: &'q mut Labels<'r, 'a>) -> Self {
        let session = recording.session();
        let mut gatherer = Gatherer {
            recording,
            labels,
            profile: Profile {
                start_unix_ns: session.map_or(0, |session| session.start_unix_ns),
                duration_ns: recording.footer().map_or(0, |footer| footer.time.0),
                command: recording.images().first().map(command).unwrap_or_default(),
                pid: recording.images().first().map_or(0, |image| image.pid),
                comments: recording.images().first().map(command).into_iter().collect(),
                purges,
                ..Profile::default()
            },
            names_owners: false,
            modules: HashMap::new(),
            locations: HashMap::new(),
            samples: HashMap::new(),
        };
        // The program is the first module of the profile.
        if let Some(program) = recording.images().first()
            && let Some(module) = recording.modules().iter().find(|module| module.path == program.executable)
        {
            gatherer.module(module.module);
        }
        gatherer
    }

    /// Adds sites; returns the index of the sample that each has become a part of.
    pub(super) fn add(
        &mut self,
        stacks: &Stacks,
        sites: &[(NodeId, MomentAmounts)],
        add: impl Fn(&MomentAmounts, &mut Amounts),
    ) -> HashMap<NodeId, usize> {
        let mut added = HashMap::new();
        for (stack, moment_amounts) in sites.iter().filter(|(_, moment_amounts)| !moment_amounts.is_nothing()) {
            let at = self.sample(stacks, *stack);
            add(moment_amounts, &mut self.profile.samples[at].amounts);
            added.insert(*stack, at);
        }
        added
    }

    /// Returns the index of the sample that a stack is a part of, and adds the sample if it is new.
    pub(super) fn sample(&mut self, stacks: &Stacks, stack: NodeId) -> usize {
        let places = self.labels.names.useful_positions(stacks, stack);
        let locations: Vec<usize> = places.iter().map(|place| self.location(place)).collect();
        let mut labels = self.declared(stacks, stack);
        let typed = self.labels.names.typed(stacks, stack);
        if typed.name(TypeBy::Block).full() != UNKNOWN_TYPE {
            labels.push(("type".into(), typed.name(TypeBy::Block).full().to_owned()));
        }
        if self.names_owners {
            let owner = self.labels.names.owner(stacks, stack).frame.function;
            labels.push(("owner".into(), self.labels.function(owner)));
        }
        let samples = &mut self.profile.samples;
        *self.samples.entry((locations, labels)).or_insert_with_key(|(locations, labels)| {
            let (locations, labels) = (locations.clone(), labels.clone());
            samples.push(Sample { locations, labels, amounts: Amounts::default() });
            samples.len() - 1
        })
    }

    /// Returns the sample to which the maxima and lifetimes of each stack are attributed. If the
    /// format has no labels, stacks that differ in nothing else share one maximum, attributed to
    /// the first of their samples.
    pub(super) fn groups(&self, mut stacks: HashMap<NodeId, usize>, holds: &Holds) -> HashMap<NodeId, usize> {
        if !holds.labels {
            let mut first: HashMap<&[usize], usize> = HashMap::new();
            let samples = self.profile.samples.iter().enumerate();
            let first: Vec<usize> = samples.map(|(at, sample)| *first.entry(&sample.locations).or_insert(at)).collect();
            stacks.values_mut().for_each(|at| *at = first[*at]);
        }
        stacks
    }

    /// Returns the labels for what the program declared of a stack: context, task, heap.
    fn declared(&self, stacks: &Stacks, stack: NodeId) -> LabelList {
        let (names, context) = (&self.labels.names, stacks.context(stack));
        let mut labels = Vec::new();
        if context != ContextId::NONE {
            labels.push(("context".into(), names.context(stacks, context)));
            labels.extend(stacks.task(names, context).map(|task| ("task".into(), names.scope(task))));
        }
        labels.extend(stacks.heap(stack).map(|heap| ("heap".into(), names.text(heap))));
        labels
    }

    fn location(&mut self, place: &Position) -> usize {
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

    fn frame(&self, frame: &analysis::Frame) -> Frame {
        let name = self.labels.names.function(frame.function);
        Frame {
            function: self.labels.function(frame.function),
            full_name: name.full.to_string(),
            known: name.known,
            file: frame.location.as_ref().map_or_else(String::new, |location| location.file.to_string()),
            line: frame.location.as_ref().map_or(0, |location| location.line),
        }
    }

    /// Returns the index of a module, and the bias to add to its own addresses.
    fn module(&mut self, id: ModuleId) -> (Option<usize>, u64) {
        if let Some(&known) = self.modules.get(&id) {
            return known;
        }
        let Some(module) = self.recording.module(id) else { return (None, 0) };
        // A module may be at another address in each image: the first image that has it stands for
        // all.
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
        let bias = first.map_or(0, |(_, bias)| bias);
        // The range of the code, which all stacks go through; the whole mapping, if the file is not
        // there.
        let headers = Headers::read(Path::new(OsStr::from_bytes(&module.path)));
        let code = headers.as_ref().and_then(Headers::code).filter(|code| {
            let first = bias.wrapping_add(code.start);
            (start..end).contains(&first) && first.checked_add(code.end - code.start).is_some()
        });
        let (start, end, file_offset) = match code {
            Some(code) => (bias.wrapping_add(code.start), bias.wrapping_add(code.end), code.offset),
            None => (start.min(end), end, 0),
        };
        self.profile.modules.push(Module {
            path: String::from_utf8_lossy(&module.path).into_owned(),
            build_id: BuildId(module.build_id.as_slice().into()).to_string(),
            start,
            end,
            file_offset,
            bias: Some(bias),
        });
        let known = (Some(self.profile.modules.len() - 1), bias);
        self.modules.insert(id, known);
        known
    }
}
