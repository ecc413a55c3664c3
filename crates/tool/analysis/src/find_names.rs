//! The names of all functions in a recording's stacks, to be kept in the recording.
//!
//! Addresses are looked up in the order of the bytes held by their stacks, so that a limit leaves
//! out what matters least. A time limit always holds: one lookup can take many seconds (the first
//! reads debug information of gigabytes), so lookups run in a thread of their own, which is
//! abandoned when the time is up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use heapledger_core::{Bytes, GENERATED_CODE, StackId};
use heapledger_recording::{
    CodeExtent, Compressor, EncodedChunk, ImageId, ModuleId, NamedFunction, NamedLocation, Names as RecordedNames,
    NamesEncoder, Node, NodeCache, NodeKind, Recording, RecordingError, Site,
};
use heapledger_symbols::{Extent, Function, ModuleRef, NameSource, SymbolFrame, Symbolizer};

use crate::progress::Progress;

/// The interval at which progress is reported while nothing is found.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The functions at the places of a recording's stacks.
#[derive(Debug)]
pub struct FoundNames {
    /// The places that were looked up, in that order.
    found: Vec<Found>,
    /// The names before and after each function without a name, by module and first byte.
    neighbours: HashMap<At, [Option<Function>; 2]>,
    /// The number of all places in modules.
    places: usize,
    /// The number of places that were looked up.
    looked_up: usize,
    /// The names that the recording already had.
    before: RecordedNames,
}

/// A place in a module.
type At = (ModuleId, u64);

/// A place, and the functions there.
#[derive(Debug)]
struct Found {
    at: At,
    /// Empty if no name is known; the name is `module+0xoffset` then.
    frames: Arc<[SymbolFrame]>,
    /// The extent of the outermost function, into which the others were inlined.
    extent: Option<Extent>,
}

/// The encoded names for a recording.
#[derive(Debug)]
pub struct EncodedNames {
    /// The chunks to append to the recording.
    pub chunks: Vec<EncodedChunk>,
    /// The number of places whose names are in the chunks.
    pub places: usize,
    /// The number of places with names that were left out because of the size limit.
    pub left_out: usize,
}

/// Looks up the functions of all stacks, for at most `time_max`. Places whose stacks held the most
/// come first.
///
/// # Errors
///
/// Fails if the system could not start a thread.
pub fn find_names(
    recording: &Recording<'_>,
    symbolizer: &Arc<Symbolizer>,
    time_max: Option<Duration>,
    progress: Progress<'_>,
) -> std::io::Result<FoundNames> {
    let until = time_max.map(|time| Instant::now() + time);
    let places = places(recording);
    let before = recording.names();
    let mut found =
        FoundNames { found: Vec::new(), neighbours: HashMap::new(), places: places.len(), looked_up: 0, before };
    let modules: HashMap<ModuleId, (Vec<u8>, Vec<u8>)> = recording
        .modules()
        .iter()
        .map(|module| (module.module, (module.path.clone(), module.build_id.clone())))
        .collect();
    let (sender, answers) = mpsc::channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let (symbolizer, is_over_there) = (symbolizer.clone(), is_over.clone());
    let look_up = move || {
        let mut extents: HashMap<ModuleId, HashMap<u64, Extent>> = HashMap::new();
        let mut known = HashSet::new();
        for &at in &places {
            let Some((path, build_id)) = modules.get(&at.0) else { continue };
            let module = ModuleRef { path, build_id };
            let frames = symbolizer.frames(module, at.1);
            let extents = extents.entry(at.0).or_insert_with(|| extents_of(&symbolizer, module, at.0, &places));
            let extent = extents.get(&at.1).copied();
            let is_named = frames.last().is_some_and(|frame| frame.source != NameSource::None);
            let unnamed = extent.filter(|extent| !is_named && known.insert((at.0, extent.start)));
            let neighbours = unnamed.map(|extent| symbolizer.neighbours(module, extent));
            let frames = if is_named { frames } else { Arc::default() };
            if is_over_there.load(Ordering::Relaxed) || sender.send((Found { at, frames, extent }, neighbours)).is_err()
            {
                break;
            }
        }
    };
    std::thread::Builder::new().name("names".into()).spawn(look_up)?;
    loop {
        let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        match answers.recv_timeout(left.min(PROGRESS_INTERVAL)) {
            Ok((place, neighbours)) => {
                found.looked_up += 1;
                if let (Some(extent), Some(neighbours)) = (place.extent, neighbours) {
                    found.neighbours.insert((place.at.0, extent.start), neighbours);
                }
                if place.extent.is_some() || !place.frames.is_empty() {
                    found.found.push(place);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        progress(found.looked_up as u64, found.places as u64);
        if left.is_zero() {
            break;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    Ok(found)
}

impl FoundNames {
    /// Returns the number of places in modules that the stacks have.
    pub fn places(&self) -> usize {
        self.places
    }

    /// Returns the number of places for which there was no time.
    pub fn not_looked_up(&self) -> usize {
        self.places - self.looked_up
    }

    /// Encodes the names to be stored, in at most `bytes_max` bytes: those that were found, and the
    /// names that the recording already had for places where nothing as good was found.
    ///
    /// # Errors
    ///
    /// Fails if the names of one place are larger than a chunk.
    pub fn encode(&self, bytes_max: Option<Bytes>) -> Result<EncodedNames, RecordingError> {
        let mut spellings = HashMap::new();
        let mut named: Vec<Option<NamedLocation<'_>>> = Vec::with_capacity(self.found.len());
        let mut is_there = HashSet::new();
        for Found { at: (module, offset), frames, .. } in &self.found {
            let before = self.before.functions(*module, *offset);
            let functions: Vec<NamedFunction<'_>> = match before {
                Some(before) if !is_whole(frames) && has_files(&before) => before,
                _ => frames.iter().map(|frame| stored(frame, &mut spellings)).collect(),
            };
            let has_name = !functions.is_empty();
            if has_name {
                is_there.insert((*module, *offset));
            }
            named.push(has_name.then_some(NamedLocation { module: *module, offset: *offset, functions }));
        }
        named.extend(self.before.iter().filter(|place| !is_there.contains(&(place.module, place.offset))).map(Some));
        let all = named.iter().flatten().count();
        let mut compressor = Compressor::new();
        let mut kept = named.len();
        loop {
            let mut part: Vec<NamedLocation<'_>> = named[..kept].iter().flatten().cloned().collect();
            part.sort_by_key(|place| (place.module, place.offset));
            let mut chunks = NamesEncoder::encode(&part, &mut compressor)?;
            chunks.extend(NamesEncoder::encode_extents(&self.extents(kept, kept == named.len()), &mut compressor)?);
            let bytes: usize = chunks.iter().map(|chunk| chunk.bytes().len()).sum();
            match bytes_max {
                // Fewer names compress worse, so a little less than their share is kept.
                Some(Bytes(max)) if bytes as u64 > max && kept > 0 => {
                    kept = (kept as f64 * max as f64 / bytes as f64 * 0.9) as usize;
                }
                _ => return Ok(EncodedNames { chunks, places: part.len(), left_out: all - part.len() }),
            }
        }
    }

    /// Returns the extents of the functions at the first `places` places. If these are all, the
    /// extents that the recording already had are added.
    fn extents(&self, places: usize, are_all: bool) -> Vec<CodeExtent<'_>> {
        let found = &self.found[..places.min(self.found.len())];
        let mut extents: BTreeMap<At, CodeExtent<'_>> = BTreeMap::new();
        if are_all {
            extents.extend(self.before.extents().map(|extent| ((extent.module, extent.start), extent)));
        }
        for place in found {
            let (module, Some(extent)) = (place.at.0, place.extent) else { continue };
            let key = (module, extent.start);
            let neighbours = self.neighbours.get(&key);
            let name = |at: usize| neighbours.and_then(|both| Some(both[at].as_ref()?.short().into()));
            let Extent { start, size } = extent;
            extents.insert(key, CodeExtent { module, start, size, neighbours: [name(0), name(1)] });
        }
        extents.into_values().collect()
    }
}

/// Looks up the extents of the functions at all places of a module.
fn extents_of(symbolizer: &Symbolizer, module: ModuleRef<'_>, id: ModuleId, places: &[At]) -> HashMap<u64, Extent> {
    let mut offsets: Vec<u64> = places.iter().filter(|at| at.0 == id).map(|at| at.1).collect();
    offsets.sort_unstable();
    let extents = symbolizer.extents(module, &offsets);
    offsets.into_iter().zip(extents).filter_map(|(offset, extent)| Some((offset, extent?))).collect()
}

/// True if all frames are named from debug information, which no other source can improve.
pub(crate) fn is_whole(frames: &[SymbolFrame]) -> bool {
    frames.iter().all(|frame| frame.source == NameSource::Debug)
}

/// True if all functions have source files, so that their names came from debug information.
pub(crate) fn has_files(functions: &[NamedFunction<'_>]) -> bool {
    functions.iter().all(|function| function.file.is_some())
}

fn stored<'f>(frame: &'f SymbolFrame, spellings: &mut HashMap<&'f Function, &'f str>) -> NamedFunction<'f> {
    let function = &frame.function;
    let name = *spellings.entry(function).or_insert_with(|| spelling(function));
    NamedFunction { name: name.into(), file: frame.file.as_deref().map(Into::into), line: frame.line.unwrap_or(0) }
}

/// Returns a spelling from which both the short and the full name can be restored: the linker's
/// name, if it has everything.
fn spelling(function: &Function) -> &str {
    let spellings = || function.linkage().into_iter().chain([function.full(), function.short()]);
    let is_same = |name: &&str| {
        let again = Function::named(name);
        (again.short(), again.full()) == (function.short(), function.full())
    };
    let is_similar = |name: &&str| Function::named(name).short() == function.short();
    spellings().find(is_same).or_else(|| spellings().find(is_similar)).unwrap_or(function.full())
}

/// Returns all places of the stacks, each once: first those whose stacks held the most at the peak,
/// then those that allocated the most. Memory: the nodes of one image, and of those that others
/// were forked from.
fn places(recording: &Recording<'_>) -> Vec<At> {
    let parents: HashSet<ImageId> = recording.images().iter().filter_map(|start| start.parent_image).collect();
    let mut cache = NodeCache::default();
    let mut weights: HashMap<At, (Bytes, Bytes)> = HashMap::new();
    for start in recording.images() {
        let tree = recording.stack_tree(start.image, &mut cache);
        let mut sites = recording.sites(start.image).rows;
        sites.sort_by_key(|site| Reverse(weight(site)));
        let mut seen: HashSet<StackId> = HashSet::new();
        for site in &sites {
            // Frames further out were already seen with a stack that held more.
            for node in tree.frames(site.stack).take_while(|node| seen.insert(node.id)) {
                add(&mut weights, node, weight(site));
            }
        }
        // A recording without sites has nodes only.
        for node in recording.nodes(start.image).nodes() {
            add(&mut weights, node, Default::default());
        }
        if !parents.contains(&start.image) {
            cache.forget(start.image);
        }
    }
    // Places with names from another tool need no lookup.
    weights.retain(|&(module, offset), _| {
        recording.module(module).is_some_and(|module| module.path != GENERATED_CODE)
            && recording.imported_location(module, offset).is_none()
    });
    let mut places: Vec<(At, (Bytes, Bytes))> = weights.into_iter().collect();
    places.sort_unstable_by_key(|&(at, weight)| (Reverse(weight), at));
    places.into_iter().map(|(at, _)| at).collect()
}

/// Returns the bytes that a site held at the peak, and the bytes that it allocated.
fn weight(site: &Site) -> (Bytes, Bytes) {
    (site.live_at_session_peak.bytes, site.bytes_allocated)
}

fn add(weights: &mut HashMap<At, (Bytes, Bytes)>, node: &Node, weight: (Bytes, Bytes)) {
    if node.kind == NodeKind::Frame && node.module != ModuleId::UNKNOWN {
        let known = weights.entry((node.module, node.offset)).or_default();
        *known = weight.max(*known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapledger_recording::{Footer, Module, NodesEncoder, Record, RecordingWriter, encode_records};
    use heapledger_symbols::SymbolizerOptions;

    /// Returns a recording whose stacks lead through this test program.
    fn recording(offsets: &[u64]) -> Vec<u8> {
        let path = std::env::current_exe().unwrap().into_os_string().into_encoded_bytes();
        let module = Module { module: ModuleId(1), path, build_id: Vec::new() };
        let mut compressor = Compressor::new();
        let mut writer = RecordingWriter::new();
        let mut nodes = NodesEncoder::new(ImageId(1));
        for (at, &offset) in offsets.iter().enumerate() {
            let id = StackId(at as u32 + 1);
            let node = Node {
                id,
                parent: StackId::ROOT,
                kind: NodeKind::Frame,
                module: ModuleId(1),
                offset,
                is_unproven: false,
            };
            nodes.push(&node).unwrap();
        }
        let start = heapledger_recording::ImageStart { image: ImageId(1), ..Default::default() };
        let records = [Record::Module(module), Record::ImageStart(start)];
        let mut chunks = encode_records(&records, &mut compressor).unwrap();
        chunks.extend(nodes.finish(&mut compressor));
        chunks.iter().for_each(|chunk| writer.push(chunk));
        writer.finish(&Footer::default(), &mut compressor);
        writer.pending().to_vec()
    }

    fn found(file: &[u8], time_max: Option<Duration>) -> FoundNames {
        let recording = Recording::open(file).unwrap();
        let symbolizer = Arc::new(Symbolizer::new(SymbolizerOptions::default()));
        find_names(&recording, &symbolizer, time_max, &mut |_, _| ()).unwrap()
    }

    /// Returns offsets of named functions in the text of this program.
    fn offsets() -> Vec<u64> {
        let symbolizer = Symbolizer::new(SymbolizerOptions::default());
        let path = std::env::current_exe().unwrap().into_os_string().into_encoded_bytes();
        let module = ModuleRef { path: &path, build_id: &[] };
        let is_named = |offset: &u64| is_whole(&symbolizer.frames(module, *offset));
        (0..16 << 20).step_by(1021).filter(is_named).take(300).collect()
    }

    #[test]
    fn limits_hold() {
        let offsets = offsets();
        assert_eq!(offsets.len(), 300);
        let file = recording(&offsets);
        let all = found(&file, None);
        assert_eq!((all.places(), all.not_looked_up()), (300, 0));
        let names = all.encode(None).unwrap();
        let size = |names: &EncodedNames| names.chunks.iter().map(|chunk| chunk.bytes().len() as u64).sum::<u64>();
        assert_eq!((names.places, names.left_out), (300, 0));
        let half = all.encode(Some(Bytes(size(&names) / 2))).unwrap();
        assert!(size(&half) <= size(&names) / 2 && half.places > 50, "{half:?}");
        assert_eq!(half.places + half.left_out, 300);
        assert_eq!(all.encode(Some(Bytes(0))).unwrap().places, 0);
        // A lookup is not waited for, however long it takes.
        let none = found(&file, Some(Duration::ZERO));
        assert!(none.not_looked_up() > 0, "{none:?}");
    }
}
