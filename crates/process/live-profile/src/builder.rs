//! The ledger as a profile.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use heapledger_core::StackId;
use heapledger_inprocess::overhead::age_of_ledger;
use heapledger_profile_formats::{Amount, Amounts, Frame, Known, Location, Module, Profile, Sample};
use heapledger_query::{Ledger, Modules, Stack};

use crate::names::FrameNames;

/// Takes a profile of what is live now and what was allocated since the start, by stacks: unbiased
/// estimates if the ledger samples.
///
/// Labels are `type` (stamps), `context` and `heap`. Only live blocks have a type; allocated
/// amounts have none, since the types of freed blocks are not known. Blocks from before the start
/// are not included.
///
/// Takes time in proportion to the number of live sampled blocks, of sites, and of stacks whose
/// names are not known yet. The program goes on meanwhile, so the profile is not exactly of one
/// moment. Memory that this function allocates is in no profile.
pub fn snapshot(names: FrameNames) -> Profile {
    let _untracked = heapledger_annotate::untracked::enter();
    let mut builder = ProfileBuilder::new(names);
    let samples = builder.samples();
    builder.profile(samples)
}

/// Names and values.
pub(crate) type Labels = Vec<(Cow<'static, str>, String)>;

/// Collects the stacks that samples of several moments have in common. It grows with the number of
/// different stacks.
pub(crate) struct ProfileBuilder {
    names: FrameNames,
    loaded: Modules,
    locations: Vec<Location>,
    modules: Vec<Module>,
    /// Modules, by the first address of the segment.
    segments: HashMap<u64, usize>,
    /// Locations, by address; `None` for the allocator's own functions.
    by_address: HashMap<u64, Option<usize>>,
    /// Locations that are not addresses in the program.
    words: HashMap<&'static str, usize>,
    stacks: HashMap<StackId, (Vec<usize>, Labels)>,
}

impl ProfileBuilder {
    pub(crate) fn new(names: FrameNames) -> ProfileBuilder {
        ProfileBuilder {
            names,
            loaded: Modules::of_this_process(),
            locations: Vec::new(),
            modules: Vec::new(),
            segments: HashMap::new(),
            by_address: HashMap::new(),
            words: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    /// Returns the samples at this moment.
    pub(crate) fn samples(&mut self) -> Vec<Sample> {
        // Libraries may have been loaded or unloaded since.
        self.loaded = Modules::of_this_process();
        let ledger = Ledger::get();
        // Blocks first, so that the allocated amount of a site is no less than its live amount.
        let mut live: HashMap<(Stack, Option<&'static str>), Amount> = HashMap::new();
        for block in ledger.blocks() {
            let amount = live.entry((block.stack, block.type_name())).or_default();
            amount.blocks += block.weight.0;
            amount.bytes += block.weight.0 * block.size.0;
        }
        let mut gathered: HashMap<(Vec<usize>, Labels), Amounts> = HashMap::new();
        for ((stack, type_name), amount) in live {
            let (locations, mut labels) = self.stack(stack);
            labels.extend(type_name.map(|name| ("type".into(), name.to_owned())));
            gathered.entry((locations, labels)).or_default().live.add(amount);
        }
        for site in ledger.sites() {
            let allocated = &mut gathered.entry(self.stack(site.stack)).or_default().allocated;
            allocated.blocks += site.allocations.0;
            allocated.bytes += site.bytes_allocated.0;
        }
        let samples = gathered.into_iter().filter(|(_, amounts)| *amounts != Amounts::default());
        let mut samples: Vec<Sample> =
            samples.map(|((locations, labels), amounts)| Sample { locations, labels, amounts }).collect();
        samples.sort_by(|a, b| {
            let key = |sample: &Sample| (sample.amounts.live.bytes, sample.amounts.allocated.bytes);
            key(b).cmp(&key(a)).then_with(|| (&a.locations, &a.labels).cmp(&(&b.locations, &b.labels)))
        });
        samples
    }

    /// Returns the profile with these samples, as of now.
    pub(crate) fn profile(&self, samples: Vec<Sample>) -> Profile {
        let duration_ns = age_of_ledger();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Profile {
            command: command(),
            pid: std::process::id(),
            start_unix_ns: now.saturating_sub(duration_ns),
            duration_ns,
            moment: "now".into(),
            comments: comments(),
            sampling_bytes: Ledger::get().sampling().map(|mean| mean.0),
            known: Known { allocated: true, live: true, ..Known::default() },
            modules: self.modules.clone(),
            locations: self.locations.clone(),
            samples,
            ..Profile::default()
        }
    }

    /// Returns the locations of a stack, and its labels.
    pub(crate) fn stack(&mut self, stack: Stack) -> (Vec<usize>, Labels) {
        if let Some(known) = self.stacks.get(&stack.id()) {
            return known.clone();
        }
        let mut locations = Vec::new();
        for frame in stack.frames() {
            let location = self.location(frame.address);
            // The innermost functions are the allocator's own.
            match location {
                Some(location) => locations.push(location),
                None if locations.is_empty() => {}
                None => locations.extend(self.add_location(frame.address, self.names.of(frame.address).frames)),
            }
        }
        if stack.is_cut() {
            locations.push(self.word("[truncated]"));
        }
        if locations.is_empty() {
            locations.push(self.word("[unknown]"));
        }
        let mut labels = Labels::new();
        let mut scopes: Vec<String> = stack.context().map(|scope| scope.to_string()).collect();
        if !scopes.is_empty() {
            scopes.reverse();
            labels.push(("context".into(), scopes.join(" > ")));
        }
        labels.extend(stack.heap().map(|heap| ("heap".into(), heap.to_owned())));
        self.stacks.insert(stack.id(), (locations.clone(), labels.clone()));
        (locations, labels)
    }

    /// Returns the location of an address; `None` for the allocator's own functions.
    fn location(&mut self, address: u64) -> Option<usize> {
        if let Some(&known) = self.by_address.get(&address) {
            return known;
        }
        let named = self.names.of(address);
        let location = if named.is_allocator { None } else { self.add_location(address, named.frames) };
        self.by_address.insert(address, location);
        location
    }

    fn add_location(&mut self, address: u64, frames: Vec<Frame>) -> Option<usize> {
        let module = self.module(address);
        self.locations.push(Location { module, address, frames });
        Some(self.locations.len() - 1)
    }

    fn word(&mut self, word: &'static str) -> usize {
        *self.words.entry(word).or_insert_with(|| {
            let frame = Frame { function: word.into(), full_name: word.into(), ..Frame::default() };
            self.locations.push(Location { module: None, address: 0, frames: vec![frame] });
            self.locations.len() - 1
        })
    }

    /// Returns the mapping that contains an address: viewers expect mappings of code, with their
    /// offsets in the file.
    fn module(&mut self, address: u64) -> Option<usize> {
        const PAGE: u64 = 4096;
        let module = self.loaded.find(address)?;
        let segment = module.segment(address)?;
        let start = segment.addresses.start;
        if let Some(&known) = self.segments.get(&start) {
            return Some(known);
        }
        // Page-aligned, as the kernel maps it.
        let before = start % PAGE;
        self.modules.push(Module {
            path: module.path.clone(),
            build_id: module.build_id_text(),
            start: start - before,
            end: segment.addresses.end.next_multiple_of(PAGE),
            file_offset: segment.file_offset.saturating_sub(before),
            bias: None,
        });
        self.segments.insert(start, self.modules.len() - 1);
        Some(self.modules.len() - 1)
    }
}

/// Returns comments about the profile: lines for people.
fn comments() -> Vec<String> {
    let state = crate::state();
    let mut comments = vec![
        match state.sample_every {
            Some(mean) => format!(
                "heapledger: a sample, one sample point in {} bytes; amounts are estimates, with 95 % error bars",
                mean.0
            ),
            None => "heapledger: every allocation".to_owned(),
        },
        "blocks from before the profile was started are not in it".to_owned(),
    ];
    if state.totals.is_estimate {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        comments.extend(state.totals.to_string().lines().map(words));
    }
    if !state.is_on {
        comments.push("the profile is off: this is what there was when it was stopped".to_owned());
    }
    let lost = state.losses.refused.0 + state.losses.nested.0;
    if lost > 0 {
        comments.push(format!(
            "{lost} events could not be recorded, for want of memory within the bound or in signal handlers"
        ));
    }
    comments
}

/// Returns the command line.
fn command() -> String {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}
