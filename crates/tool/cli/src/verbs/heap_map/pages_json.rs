//! The document of `heap-map --json` for heaps that are shown page by page.

use heapledger_resident::{HeapPages, PageSum, PageUse};
use serde::Serialize;

use crate::json::document::Document;

const PAGE: u64 = 4096;

/// The document of `--json` if the heap is shown page by page.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapPagesJson {
    process: u32,
    /// The allocator, such as `glibc's malloc`.
    allocator: String,
    /// The property by which pages are grouped, such as `arena`.
    grouping: String,
    page_size: u64,
    /// The sums over all pages.
    pages: PageUseJson,
    /// The groups. Pages have their index.
    rows: Vec<GroupJson>,
    /// The resident pages, by address: neighbours of one group are together.
    regions: Vec<RegionJson>,
}

/// A group of pages.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GroupJson {
    name: String,
    pages: PageUseJson,
}

/// Resident pages by what keeps them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PageUseJson {
    all: PageSumJson,
    /// The pages without a byte in use.
    empty: PageSumJson,
    /// The pages that one block keeps with less than a quarter of their bytes.
    alone: PageSumJson,
    /// The pages that several blocks keep with less than a quarter of their bytes.
    sparse: PageSumJson,
}

/// A number of pages, and the bytes in use on them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PageSumJson {
    pages: u64,
    bytes_used: u64,
}

/// Pages next to each other.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RegionJson {
    /// The address of the first page. Hexadecimal.
    address: String,
    /// The index of their group in `rows`.
    group: u32,
    /// The bytes in use on each page.
    bytes_used: Vec<u16>,
    /// The number of blocks in use of which a part is on the page, for each page.
    blocks: Vec<u16>,
}

impl Document for HeapPagesJson {
    const SCHEMA: &'static str = "heap-pages";
}

impl From<PageUse> for PageUseJson {
    fn from(pages: PageUse) -> PageUseJson {
        let sum = |sum: PageSum| PageSumJson { pages: sum.pages, bytes_used: sum.used };
        PageUseJson { all: sum(pages.all), empty: sum(pages.empty), alone: sum(pages.alone), sparse: sum(pages.sparse) }
    }
}

impl HeapPagesJson {
    pub(super) fn new(process: u32, heap: &HeapPages) -> HeapPagesJson {
        let mut regions: Vec<RegionJson> = Vec::new();
        let mut next = None;
        for page in &heap.pages {
            if next.replace((page.address + PAGE, page.group)) != Some((page.address, page.group)) {
                let address = format!("{:#x}", page.address);
                regions.push(RegionJson { address, group: page.group, bytes_used: vec![], blocks: vec![] });
            }
            if let Some(region) = regions.last_mut() {
                region.bytes_used.push(page.used);
                region.blocks.push(page.blocks);
            }
        }
        let groups = heap.groups.iter().zip(heap.page_use_by_group());
        HeapPagesJson {
            process,
            allocator: heap.allocator.clone(),
            grouping: heap.grouping.clone(),
            page_size: PAGE,
            pages: heap.page_use().into(),
            rows: groups.map(|(name, pages)| GroupJson { name: name.clone(), pages: pages.into() }).collect(),
            regions,
        }
    }
}
