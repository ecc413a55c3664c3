//! The types of blocks: what the program stamped them with, and else what the code that allocates them tells.

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

/// What the type of a block is taken to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TypeBy {
    /// That of the whole block: a buffer of `T` is `[T]`.
    #[default]
    Block,
    /// What the block has one or many of: of a buffer of `T`, `T`.
    Element,
    /// The container that the block belongs to. A block that is in none stands for itself.
    Container,
}

/// A type of the session, or a container: the same where it is called the same in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

/// What the type is called of blocks of which nothing is known.
pub const UNKNOWN_TYPE: &str = "[unknown]";

/// How sure a type is, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Certainty {
    /// The program said so.
    Stamped,
    /// It was concluded.
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

/// What a program said of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its type.
    pub name: TypeName,
    /// Where the program says so.
    pub location: Option<Location>,
    /// What else it said.
    pub label: Option<String>,
}

/// What is known about the type of the blocks of a site.
#[derive(Clone, Debug)]
pub struct Typed {
    /// What the program said: it counts before all else.
    pub stamp: Option<Stamp>,
    /// What was concluded.
    pub inferred: Arc<Inferred>,
}

/// What was concluded of a stack.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// The type.
    pub site: SiteType,
    /// The module that told.
    pub module: Option<ModuleId>,
    /// What was ever allocated there, which sizes were checked against.
    pub sizes: SiteSizes,
}

impl Inferred {
    /// Whether anything is known.
    pub fn is_known(&self) -> bool {
        self.site.block.is_some() || !self.site.candidates.is_empty()
    }
}

impl Typed {
    /// How sure it is.
    pub fn certainty(&self) -> Certainty {
        match self.stamp {
            Some(_) => Certainty::Stamped,
            None => Certainty::Inferred(self.inferred.site.confidence),
        }
    }

    /// Whether anything is known.
    pub fn is_known(&self) -> bool {
        self.stamp.is_some() || self.inferred.is_known()
    }

    /// What the type is called.
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

    /// Whether a pattern is one of its names: the block's, the element's or the container's, in short or in full.
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
    /// How it is called.
    pub name: TypeName,
    /// What they hold together.
    pub amount: Amount,
    /// How sure the least sure of them is.
    pub certainty: Certainty,
    /// Whether others are surer.
    pub is_mixed: bool,
    /// The largest first.
    pub sites: Vec<(Site, Typed)>,
}

/// The types of the blocks of a profile, the largest first.
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

/// The container of which something was called: `Vec<u8>` of `Vec<u8>::push`. What is no member is itself.
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

/// The types of a session that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Types {
    /// What every stack ever allocated, whatever context, heap or stamp the blocks have.
    sizes: Option<HashMap<Frames, SiteSizes>>,
    inferred: HashMap<Frames, Arc<Inferred>>,
    /// By full name.
    ids: HashMap<Box<str>, TypeId>,
}

/// A stack: profiles have stacks of their own, but the same frames.
type Frames = Box<[StackFrame]>;

impl Names<'_, '_> {
    /// What is known about the type of the blocks of a stack. Each stack is looked at once; and before the first one, what
    /// every stack ever allocated.
    pub fn typed(&mut self, stacks: &Stacks, stack: NodeId) -> Typed {
        Typed { stamp: self.stamp(stacks, stack), inferred: self.inferred(stacks, stack) }
    }

    fn type_id(&mut self, name: &TypeName) -> TypeId {
        let ids = &mut self.types_mut().ids;
        let next = TypeId(ids.len() as u32);
        *ids.entry(name.full().into()).or_insert(next)
    }

    /// The type of the blocks of a stack, and what stands for it where there could be a function.
    pub(crate) fn type_of(&mut self, stacks: &Stacks, stack: NodeId, by: TypeBy) -> (TypeId, Frame) {
        let name = self.typed(stacks, stack).name(by);
        (self.type_id(&name), self.type_frame(&name))
    }

    /// What the program stamped the blocks of a stack with.
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
        // What is beyond code that nothing is known of says nothing about what that allocates.
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
            // Without them sizes are not checked, which every answer says.
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

    /// What the sizes of the blocks of each stack have in common: a pass over all events, as far as
    /// there are any. A stack of several images, or in several contexts, comes more than once.
    fn each_size(&self) -> Vec<(Frames, EachSize)> {
        let recording = self.recording();
        let mut merged = MergedStacks::new(recording);
        let mut all = Vec::new();
        for image in recording.images() {
            let mut each: HashMap<StackId, EachSize> = HashMap::new();
            // What is damaged is said where totals are.
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
