//! The types of blocks: from the program's stamps, or else inferred from the code that allocates
//! them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use heapledger_core::StackId;
use heapledger_recording::{EventKind, ModuleId, NodeKind};
use heapledger_symbols::{Confidence, EachSize, Language, SiteSizes, SiteType, TypeName};

use crate::amount::{Amount, Metric};
use crate::events::for_each_chunk;
use crate::moment::{Moment, Selection};
use crate::names::{Frame, Location, Names};
use crate::pattern::Pattern;
use crate::profile::{Profile, Site};
use crate::rank::order;
use crate::stacks::{MergedStacks, NodeId, StackFrame, Stacks};

/// The part of a block's type that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TypeBy {
    /// The type of the whole block: for a buffer of `T`, `[T]`.
    #[default]
    Block,
    /// The type of which the block has one or many: for a buffer of `T`, `T`.
    Element,
    /// The container that the block belongs to. A block that is in none stands for itself.
    Container,
}

/// A type of the session, or a container. Types with the same full name are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

/// The name of the type of blocks about which nothing is known.
pub const UNKNOWN_TYPE: &str = "[unknown]";

/// The certainty of a type, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Certainty {
    /// The program stamped the block.
    Stamped,
    /// The type was inferred.
    Inferred(Confidence),
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Certainty::Stamped => f.pad("stamped"),
            Certainty::Inferred(confidence) => confidence.fmt(f),
        }
    }
}

/// The stamp of a program on a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its type.
    pub name: TypeName,
    /// The position in the program that stamps the block.
    pub location: Option<Location>,
    /// The label of the stamp.
    pub label: Option<String>,
}

/// The type of the blocks of a site.
#[derive(Clone, Debug)]
pub struct Typed {
    /// The stamp, which takes precedence.
    pub stamp: Option<Stamp>,
    /// The inferred type.
    pub inferred: Arc<Inferred>,
}

/// The type that was inferred from a stack.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// The type.
    pub site: SiteType,
    /// The module from which it was inferred.
    pub module: Option<ModuleId>,
    /// The totals that were ever allocated there, against which sizes were checked.
    pub sizes: SiteSizes,
}

impl Inferred {
    /// True if anything is known.
    pub fn is_known(&self) -> bool {
        self.site.block.is_some() || !self.site.candidates.is_empty()
    }
}

impl Typed {
    /// Returns the certainty of the type.
    pub fn certainty(&self) -> Certainty {
        match self.stamp {
            Some(_) => Certainty::Stamped,
            None => Certainty::Inferred(self.inferred.site.confidence),
        }
    }

    /// True if anything is known.
    pub fn is_known(&self) -> bool {
        self.stamp.is_some() || self.inferred.is_known()
    }

    /// Returns the name of the type.
    pub fn name(&self, by: TypeBy) -> TypeName {
        if let Some(stamp) = &self.stamp {
            return stamp.name.clone();
        }
        let site = &self.inferred.site;
        let name = match by {
            TypeBy::Block => None,
            TypeBy::Element => site.element.clone(),
            TypeBy::Container => site.container.as_deref().map(|called| TypeName::plain(container(called))),
        };
        name.or_else(|| site.block.clone()).unwrap_or_else(|| TypeName::plain(UNKNOWN_TYPE))
    }

    /// True if a pattern matches one of its names: the block's, the element's or the container's,
    /// in short or in full.
    pub(crate) fn matches(&self, pattern: &Pattern) -> bool {
        let mut names = [TypeBy::Block, TypeBy::Element, TypeBy::Container].into_iter().map(|by| self.name(by));
        names.any(|name| pattern.matches(name.short()) || pattern.matches(name.full()))
    }
}

/// The sites whose blocks are of one type.
#[derive(Clone, Debug)]
pub struct TypeGroup {
    /// The type.
    pub id: TypeId,
    /// Its name.
    pub name: TypeName,
    /// The amount that they hold together.
    pub amount: Amount,
    /// The certainty of the least certain site.
    pub certainty: Certainty,
    /// True if other sites are more certain.
    pub is_mixed: bool,
    /// The sites, the largest first.
    pub sites: Vec<(Site, Typed)>,
}

/// Returns the types of the blocks of a profile, the largest first.
pub fn types(profile: &Profile, names: &mut Names<'_, '_>, by: TypeBy, metric: Metric) -> Vec<TypeGroup> {
    let mut groups: Vec<TypeGroup> = Vec::new();
    let mut places: HashMap<TypeId, usize> = HashMap::new();
    for site in &profile.sites {
        if site.amount.by(metric) == 0 && metric != Metric::Bytes {
            continue;
        }
        let typed = names.typed(&profile.stacks, site.stack);
        let (name, certainty) = (typed.name(by), typed.certainty());
        let id = names.type_id(&name);
        let at = *places.entry(id).or_insert(groups.len());
        if at == groups.len() {
            let (amount, sites) = Default::default();
            groups.push(TypeGroup { id, name, amount, certainty, is_mixed: false, sites });
        }
        let group = &mut groups[at];
        group.amount += site.amount;
        group.is_mixed |= group.certainty != certainty;
        group.certainty = group.certainty.max(certainty);
        group.sites.push((*site, typed));
    }
    let by_amount = |a: &Amount, b: &Amount| order(b, a, metric);
    for group in &mut groups {
        group.sites.sort_by(|(a, _), (b, _)| by_amount(&a.amount, &b.amount).then(a.stack.cmp(&b.stack)));
    }
    groups.sort_by(|a, b| by_amount(&a.amount, &b.amount).then_with(|| a.name.full().cmp(b.name.full())));
    groups
}

/// Returns the container of a member function: `Vec<u8>` for `Vec<u8>::push`. Other names are
/// returned as they are.
fn container(called: &str) -> &str {
    let mut depth = 0_usize;
    let mut last = None;
    for (at, character) in called.char_indices() {
        match character {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && called[at..].starts_with("::") => last = Some(at),
            _ => {}
        }
    }
    let around = last.map_or("", |at| &called[..at]);
    let name = around.rsplit("::").next().unwrap_or_default();
    let is_type = around.ends_with('>') || name.starts_with(char::is_uppercase) || name == "string";
    if is_type { around } else { called }
}

/// The types of a session that were asked for so far.
#[derive(Debug, Default)]
pub(crate) struct Types {
    /// The totals that every stack ever allocated, whatever context, heap or stamp the blocks have.
    sizes: Option<HashMap<Frames, SiteSizes>>,
    inferred: HashMap<Frames, Arc<Inferred>>,
    /// The ids, by full name.
    ids: HashMap<Box<str>, TypeId>,
}

/// A stack as its frames, which are the same in all profiles, unlike node ids.
type Frames = Box<[StackFrame]>;

impl Names<'_, '_> {
    /// Returns the type of the blocks of a stack. Each stack is analysed once. The first call also
    /// reads what every stack ever allocated.
    pub fn typed(&mut self, stacks: &Stacks, stack: NodeId) -> Typed {
        Typed { stamp: self.stamp(stacks, stack), inferred: self.inferred(stacks, stack) }
    }

    fn type_id(&mut self, name: &TypeName) -> TypeId {
        let ids = &mut self.types_mut().ids;
        let next = TypeId(ids.len() as u32);
        *ids.entry(name.full().into()).or_insert(next)
    }

    /// Returns the type of the blocks of a stack, and a frame that stands for it where a function
    /// is expected.
    pub(crate) fn type_of(&mut self, stacks: &Stacks, stack: NodeId, by: TypeBy) -> (TypeId, Frame) {
        let name = self.typed(stacks, stack).name(by);
        (self.type_id(&name), self.type_frame(&name))
    }

    /// Returns the stamp of the blocks of a stack.
    pub fn stamp(&self, stacks: &Stacks, stack: NodeId) -> Option<Stamp> {
        let text = stacks.stamp(stack)?;
        let said = self.recording().text(text).map(|text| text.stamp()).unwrap_or_default();
        let language = match said.file.as_deref().and_then(|file| file.rsplit_once('.')) {
            Some((_, "rs")) => Language::Rust,
            Some((_, "c" | "h")) => Language::C,
            _ => Language::Cxx,
        };
        Some(Stamp {
            name: TypeName::new(language, &said.type_name),
            location: said.file.map(|file| Location { file: file.as_ref().into(), line: said.line }),
            label: said.label.map(Cow::into_owned),
        })
    }

    fn inferred(&mut self, stacks: &Stacks, stack: NodeId) -> Arc<Inferred> {
        let frames: Frames = stacks.frames(stack).collect();
        if let Some(known) = self.types_mut().inferred.get(&frames) {
            return known.clone();
        }
        let sizes = self.sizes().get(&frames).copied().unwrap_or_default();
        // Stops at the first frame in an unknown module: frames further out do not tell what its
        // code allocates.
        let known = frames.iter().map_while(|frame| {
            let module = self.module(frame.module).filter(|_| frame.kind == NodeKind::Frame)?;
            Some((module, frame.offset))
        });
        let site = self.symbolizer().site_type(&known.collect::<Vec<_>>(), sizes);
        let module = site.module.and_then(|at| frames.get(at)).map(|frame| frame.module);
        let inferred = Arc::new(Inferred { site, module, sizes });
        self.types_mut().inferred.insert(frames, inferred.clone());
        inferred
    }

    fn sizes(&mut self) -> &HashMap<Frames, SiteSizes> {
        if self.types_mut().sizes.is_none() {
            let mut sizes: HashMap<Frames, SiteSizes> = HashMap::new();
            // If the totals cannot be read, sizes are not checked; every answer has the sizes that
            // were used.
            if let Ok(all) = Profile::load(self, &Selection::at(Moment::Total), &mut |_, _| ()) {
                for site in &all.sites {
                    let sum = sizes.entry(all.stacks.frames(site.stack).collect()).or_default();
                    sum.blocks = sum.blocks.saturating_add(site.amount.blocks.0);
                    sum.bytes = sum.bytes.saturating_add(site.amount.bytes.0);
                }
            }
            for (frames, each) in self.each_size() {
                if let Some(sum) = sizes.get_mut(&frames) {
                    match &mut sum.each {
                        Some(known) => known.join(each),
                        none => *none = Some(each),
                    }
                }
            }
            self.types_mut().sizes = Some(sizes);
        }
        self.types_mut().sizes.get_or_insert_default()
    }

    /// Returns what the block sizes of each stack have in common, by a pass over all events if
    /// there are any. A stack of several images, or in several contexts, is returned more than
    /// once.
    fn each_size(&self) -> Vec<(Frames, EachSize)> {
        let recording = self.recording();
        let mut merged = MergedStacks::new(recording);
        let mut all = Vec::new();
        for image in recording.images() {
            let mut each: HashMap<StackId, EachSize> = HashMap::new();
            // Damage is reported with the totals.
            let _ = for_each_chunk(recording, image.image, &mut Vec::new(), |events| {
                for event in events {
                    if let EventKind::Alloc { size, stack, .. } | EventKind::Realloc { size, stack, .. } = event.kind {
                        each.entry(stack).and_modify(|each| each.add(size.0)).or_insert(EachSize::of(size.0));
                    }
                }
                Ok(())
            });
            for (stack, each) in each {
                let node = merged.node(image.image, stack);
                all.push((merged.stacks.frames(node).collect(), each));
            }
            merged.forget(image.image);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_those_of_what_was_called() {
        for (called, of) in [
            ("HashMap<Key, Vec<Token>>::insert", "HashMap<Key, Vec<Token>>"),
            ("std::map<int, std::vector<long>>::operator[]", "std::map<int, std::vector<long>>"),
            ("String::push_str", "String"),
            ("std::string::append", "std::string"),
            ("Vec<Token>", "Vec<Token>"),
            ("std::make_unique<a::B>", "std::make_unique<a::B>"),
            ("mpsc::channel", "mpsc::channel"),
            ("", ""),
        ] {
            assert_eq!(container(called), of);
        }
    }
}
