//! Types of blocks without a declared type, inferred from debug information about the code that
//! allocates them.

use std::collections::HashMap;

use heapledger_block_types::{EachSize, SiteSizes, TypeFinder};
use heapledger_dmd::{Log, NameId, TraceId, UnresolvedFrame};

use super::names::{BuildIds, call};

/// Sets the types of blocks. Frames must not have been resolved yet.
pub(super) fn find(log: &mut Log, finder: &TypeFinder) {
    let build_ids = BuildIds::of(log);
    let mut sizes: HashMap<TraceId, SiteSizes> = HashMap::new();
    let mut each: HashMap<TraceId, Option<EachSize>> = HashMap::new();
    for group in log.groups.iter().filter(|group| group.type_name.is_none()) {
        let Some(trace) = group.alloc else { continue };
        let sum = sizes.entry(trace).or_default();
        for size in &group.sizes {
            sum.blocks = sum.blocks.saturating_add(size.count);
            let bytes = size.count.saturating_mul(size.requested).saturating_add_signed(size.rest);
            sum.bytes = sum.bytes.saturating_add(bytes);
        }
        // Blocks that were merged when they were read have sums only, not each size.
        if group.sizes.iter().all(|size| size.rest == 0) {
            let mut sizes = group.sizes.iter().map(|size| size.requested);
            let first = each.entry(trace).or_insert_with(|| sizes.next().map(EachSize::of));
            sizes.for_each(|size| first.iter_mut().for_each(|each| each.add(size)));
        } else {
            each.insert(trace, None);
        }
    }
    let mut found: HashMap<TraceId, String> = HashMap::new();
    for (trace, sum) in sizes {
        let sizes = SiteSizes { each: each.get(&trace).copied().flatten(), ..sum };
        let places = log.trace(trace).iter().map_while(|frame| UnresolvedFrame::parse(log.frame(*frame)));
        let stack: Vec<_> = places.map(|place| (build_ids.module(&place), call(&place))).collect();
        if let Some(name) = finder.site_type(&stack, sizes).block {
            found.insert(trace, name.full().to_owned());
        }
    }
    let mut numbers: HashMap<String, NameId> =
        log.names.iter().enumerate().map(|(at, name)| (name.clone(), NameId(at as u32))).collect();
    for group in log.groups.iter_mut().filter(|group| group.type_name.is_none()) {
        let Some(name) = group.alloc.and_then(|trace| found.get(&trace)) else { continue };
        group.type_name = Some(*numbers.entry(name.clone()).or_insert_with_key(|name| {
            log.names.push(name.clone());
            NameId(log.names.len() as u32 - 1)
        }));
    }
}
