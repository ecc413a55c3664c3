//! The heaps of a dump, in both formats.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Deserializer, de};

use crate::chrome::heap::UNKNOWN_TYPE;
use crate::chrome::names::NO_STACK;
use crate::chrome::profile::MAIN_HEAP;
use crate::gather::{Gather, Labels};
use crate::profile::{Amount, Frame, Location, Module};

/// The heaps of a dump.
pub(super) enum Heaps {
    None,
    V1(V1),
    V2(V2),
}

/// `heaps`: by allocator, parts with everything below them.
pub(super) type V1 = BTreeMap<String, Entries>;

#[derive(Deserialize)]
pub(super) struct Entries {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    size: Hex,
    #[serde(default)]
    count: Hex,
    /// The stack. 0: all stacks.
    #[serde(default)]
    bt: Number,
    /// The type. `None`: all types.
    #[serde(default, rename = "type")]
    of_type: Option<Number>,
}

/// `heaps_v2`: the own amounts of stacks and types, and the names that are new.
#[derive(Deserialize)]
pub(super) struct V2 {
    allocators: BTreeMap<String, Columns>,
    #[serde(default)]
    maps: Maps,
}

#[derive(Deserialize)]
struct Columns {
    nodes: Vec<Number>,
    types: Vec<Number>,
    counts: Vec<Number>,
    sizes: Vec<Number>,
}

#[derive(Deserialize, Default)]
struct Maps {
    #[serde(default)]
    strings: Vec<MapString>,
    #[serde(default)]
    nodes: Vec<MapNode>,
    #[serde(default)]
    types: Vec<MapType>,
}

#[derive(Deserialize)]
struct MapString {
    id: Number,
    string: String,
}

#[derive(Deserialize)]
struct MapNode {
    id: Number,
    name_sid: Number,
    #[serde(default)]
    parent: Number,
}

#[derive(Deserialize)]
struct MapType {
    id: Number,
    name_sid: Number,
}

/// The names of frames and types that are known so far.
#[derive(Default)]
pub(super) struct Names {
    strings: HashMap<u64, String>,
    frames: HashMap<u64, NamedFrame>,
    types: HashMap<u64, String>,
}

/// A stack: its innermost frame, and the stack around it; 0 if there is none.
#[derive(Clone)]
struct NamedFrame {
    name: String,
    outer: u64,
}

#[derive(Deserialize)]
pub(super) struct StackFrames {
    #[serde(rename = "stackFrames")]
    frames: HashMap<String, StackFrame>,
}

#[derive(Deserialize)]
struct StackFrame {
    name: String,
    #[serde(default)]
    parent: Number,
}

#[derive(Deserialize)]
pub(super) struct TypeNames {
    #[serde(rename = "typeNames")]
    types: HashMap<String, String>,
}

impl Names {
    pub(super) fn add_frames(&mut self, StackFrames { frames }: StackFrames) {
        let frame = |(id, frame): (String, StackFrame)| {
            Some((id.parse().ok()?, NamedFrame { name: frame.name, outer: frame.parent.0 }))
        };
        self.frames.extend(frames.into_iter().filter_map(frame));
    }

    pub(super) fn add_types(&mut self, TypeNames { types }: TypeNames) {
        self.types.extend(types.into_iter().filter_map(|(id, name)| Some((id.parse().ok()?, name))));
    }

    fn add_maps(&mut self, maps: &Maps) -> Result<(), String> {
        self.strings.extend(maps.strings.iter().map(|it| (it.id.0, it.string.clone())));
        let name = |strings: &HashMap<u64, String>, number: Number| {
            strings.get(&number.0).cloned().ok_or_else(|| format!("a name of string {}, which is not there", number.0))
        };
        for node in &maps.nodes {
            let name = name(&self.strings, node.name_sid)?;
            self.frames.insert(node.id.0, NamedFrame { name, outer: node.parent.0 });
        }
        for named in &maps.types {
            let name = name(&self.strings, named.name_sid)?;
            self.types.insert(named.id.0, name);
        }
        Ok(())
    }
}

/// A stack and a type in a heap, and their own amounts.
type Cell = (u64, u64, Amount);

impl Heaps {
    /// Chooses `heaps` if there are any, as viewers do, and `heaps_v2` otherwise.
    pub(super) fn new(v1: Option<V1>, v2: Option<V2>) -> Heaps {
        match (v1, v2) {
            (Some(heaps), _) => Heaps::V1(heaps),
            (None, Some(heaps)) => Heaps::V2(heaps),
            (None, None) => Heaps::None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Heaps::None)
    }

    /// Returns the live amounts of samples. `named` are the names for the process's heaps that are
    /// written as entries; `names` those for the others, as of the dump before.
    pub(super) fn cells(
        &self,
        named: &Names,
        names: &mut Names,
        gather: &mut Gather,
    ) -> Result<Vec<(usize, Amount)>, String> {
        let mut cells = Vec::new();
        match self {
            Heaps::V1(heaps) => {
                for (allocator, Entries { entries }) in heaps {
                    add(&own(entries, named), allocator, named, gather, &mut cells)?;
                }
            }
            Heaps::V2(heaps) => {
                names.add_maps(&heaps.maps)?;
                for (allocator, columns) in &heaps.allocators {
                    add(&columns.cells(allocator)?, allocator, names, gather, &mut cells)?;
                }
            }
            Heaps::None => {}
        }
        Ok(cells)
    }
}

impl Columns {
    fn cells(&self, allocator: &str) -> Result<Vec<Cell>, String> {
        let Columns { nodes, types, counts, sizes } = self;
        if [types.len(), counts.len(), sizes.len()] != [nodes.len(); 3] {
            return Err(format!("the columns of the heap `{allocator}` are not of one length"));
        }
        let cell = |at: usize| {
            let amount = Amount { blocks: counts[at].0, bytes: sizes[at].0 };
            (nodes[at].0, types[at].0, amount)
        };
        Ok((0..nodes.len()).map(cell).collect())
    }
}

/// Adds the amounts of a heap's cells.
fn add(
    cells: &[Cell],
    allocator: &str,
    names: &Names,
    gather: &mut Gather,
    held: &mut Vec<(usize, Amount)>,
) -> Result<(), String> {
    let (mut stacks, mut places) = <(HashMap<u64, Vec<usize>>, HashMap<u64, usize>)>::default();
    for &(stack, of_type, amount) in cells.iter().filter(|(.., amount)| *amount != Amount::default()) {
        let locations = match stacks.get(&stack) {
            Some(known) => known,
            None => {
                let locations = locations(stack, names, gather, &mut places)?;
                stacks.entry(stack).or_insert(locations)
            }
        };
        let mut labels = Labels::new();
        let name = names.types.get(&of_type).map_or(UNKNOWN_TYPE, String::as_str);
        if name != UNKNOWN_TYPE {
            labels.push(("type".into(), name.to_owned()));
        }
        if allocator != MAIN_HEAP {
            labels.push(("heap".into(), allocator.to_owned()));
        }
        held.push((gather.sample(locations.clone(), labels), amount));
    }
    Ok(())
}

/// Returns the locations of a stack, the innermost first. `places` has the locations of frames that
/// are known.
fn locations(
    stack: u64,
    names: &Names,
    gather: &mut Gather,
    places: &mut HashMap<u64, usize>,
) -> Result<Vec<usize>, String> {
    let (mut locations, mut next) = (Vec::new(), stack);
    while next != 0 {
        let frame = names.frames.get(&next).ok_or_else(|| format!("a stack {next}, which is not there"))?;
        if locations.len() > names.frames.len() {
            return Err(format!("a stack {stack}, which is around itself"));
        }
        // The name for a stack without frames is left out.
        if frame.outer != 0 || frame.name != NO_STACK {
            let place = *places.entry(next).or_insert_with(|| location(&frame.name, gather));
            locations.extend(gather.walk(std::iter::once(place))?);
        }
        next = frame.outer;
    }
    Ok(locations)
}

/// Returns the location of a frame, whose name may be an address.
fn location(name: &str, gather: &mut Gather) -> usize {
    let address = name.strip_prefix("pc:").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    if let Some(returns_to) = address {
        return gather.call(returns_to);
    }
    let frame = Frame { function: name.into(), full_name: name.into(), known: true, ..Frame::default() };
    gather.location(Location { module: None, address: 0, frames: vec![frame] })
}

/// Returns the amounts of a heap's parts that are not in parts below them. Parts that were cut off
/// count for the part around them; for types, as far as they are given.
fn own(entries: &[Entry], names: &Names) -> Vec<Cell> {
    let all_types: HashMap<u64, Amount> =
        entries.iter().filter(|it| it.of_type.is_none()).map(|it| (it.bt.0, it.amount())).collect();
    let typed: BTreeMap<(u64, u64), Amount> =
        entries.iter().filter_map(|it| Some(((it.bt.0, it.of_type?.0), it.amount()))).collect();
    // The nearest part around each, and the sum of the parts in it.
    let around = |stack: u64| {
        let outer = names.frames.get(&stack).map_or(0, |frame| frame.outer);
        if all_types.contains_key(&outer) { outer } else { 0 }
    };
    let (mut inner, mut inner_typed) = <(HashMap<u64, Amount>, HashMap<(u64, u64), Amount>)>::default();
    for (&stack, &amount) in all_types.iter().filter(|(stack, _)| **stack != 0) {
        inner.entry(around(stack)).or_default().add(amount);
    }
    for (&(stack, of_type), &amount) in typed.iter().filter(|((stack, _), _)| *stack != 0) {
        inner_typed.entry((around(stack), of_type)).or_default().add(amount);
    }
    let rest = |whole: Amount, part: Option<&Amount>| less(whole, part.copied().unwrap_or_default());
    let mut cells = Vec::new();
    for (&stack, &amount) in &all_types {
        let mut left = rest(amount, inner.get(&stack));
        for (&(_, of_type), &amount) in typed.range((stack, 0)..=(stack, u64::MAX)) {
            let own = rest(amount, inner_typed.get(&(stack, of_type)));
            // The amounts for types may include parts that were cut off.
            let own = Amount { blocks: own.blocks.min(left.blocks), bytes: own.bytes.min(left.bytes) };
            left = less(left, own);
            cells.push((stack, of_type, own));
        }
        cells.push((stack, 0, left));
    }
    cells.sort_unstable_by_key(|&(stack, of_type, _)| (stack, of_type));
    cells
}

fn less(whole: Amount, part: Amount) -> Amount {
    Amount { blocks: whole.blocks.saturating_sub(part.blocks), bytes: whole.bytes.saturating_sub(part.bytes) }
}

impl Entry {
    fn amount(&self) -> Amount {
        Amount { blocks: self.count.0, bytes: self.size.0 }
    }
}

#[derive(Deserialize)]
pub(super) struct Mmaps {
    #[serde(default)]
    pub(super) vm_regions: Vec<Region>,
}

/// A mapping.
#[derive(Deserialize)]
pub(super) struct Region {
    #[serde(default)]
    sa: Hex,
    #[serde(default)]
    sz: Hex,
    #[serde(default)]
    mf: String,
}

/// Returns the mapped files. The lowest address of each is taken for its beginning.
pub(super) fn modules(regions: &[Region]) -> Vec<Module> {
    let mut modules: BTreeMap<&str, Module> = BTreeMap::new();
    for Region { sa, sz, mf } in regions.iter().filter(|region| region.mf.starts_with('/')) {
        let (start, end) = (sa.0, sa.0.saturating_add(sz.0));
        let first = Module { path: mf.clone(), start, end, ..Module::default() };
        let module = modules.entry(mf).or_insert(first);
        (module.start, module.end) = (module.start.min(start), module.end.max(end));
        module.bias = Some(module.start);
    }
    modules.into_values().collect()
}

/// A number, as such or as text. Decimal places, if there are any, are cut off.
#[derive(Clone, Copy, Default)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Digits { radix: 10 }).map(Number)
    }
}

/// A number as text, in hexadecimal.
#[derive(Clone, Copy, Default)]
pub(super) struct Hex(u64);

impl Hex {
    pub(super) fn parse(text: &str) -> Option<u64> {
        u64::from_str_radix(text, 16).ok()
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Digits { radix: 16 }).map(Hex)
    }
}

struct Digits {
    radix: u32,
}

impl de::Visitor<'_> for Digits {
    type Value = u64;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.radix == 16 { "a hexadecimal number in quotes" } else { "a number" })
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<u64, E> {
        if value >= 0.0 { Ok(value as u64) } else { Err(E::invalid_value(de::Unexpected::Float(value), &self)) }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        // For all stacks, or for no parent.
        if text.is_empty() && self.radix == 10 {
            return Ok(0);
        }
        u64::from_str_radix(text, self.radix).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}
