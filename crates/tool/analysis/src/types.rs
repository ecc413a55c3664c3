//! Finds the types of blocks: from the program's stamps, or else inferred from the code that
//! allocates them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use heapledger_block_types::{EachSize, Language, SiteSizes, TypeName};
use heapledger_core::StackId;
use heapledger_recording::{EventKind, NodeKind};

use crate::amount::{Amount, Metric, order};
use crate::block_types::{Certainty, Frames, Inferred, Stamp, TypeBy, TypeId, Typed};
use crate::events::for_each_chunk;
use crate::functions::{Frame, Location};
use crate::moment::Moment;
use crate::names::Names;
use crate::profile::{Profile, Site};
use crate::selection::Selection;
use crate::stacks::{MergedStacks, NodeId, Stacks};

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
        let id = names.types_mut().id(&name);
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

impl Names<'_, '_> {
    /// Returns the type of the blocks of a stack. Each stack is analysed once. The first call also
    /// reads what every stack ever allocated.
    pub fn typed(&mut self, stacks: &Stacks, stack: NodeId) -> Typed {
        Typed { stamp: self.stamp(stacks, stack), inferred: self.inferred(stacks, stack) }
    }

    /// Returns the type of the blocks of a stack, and a frame that stands for it where a function
    /// is expected.
    pub(crate) fn type_of(&mut self, stacks: &Stacks, stack: NodeId, by: TypeBy) -> (TypeId, Frame) {
        let name = self.typed(stacks, stack).name(by);
        (self.types_mut().id(&name), self.type_frame(&name))
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
        let site = self.type_finder().site_type(&known.collect::<Vec<_>>(), sizes);
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
