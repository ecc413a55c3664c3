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
    pages: u64,
    /// The bytes in use on all of them.
    bytes_used: u64,
    /// A character for each page: the bytes in use in steps of 128, rounded up, as a digit `0` to
    /// `9`, `a` to `w`. `0` is nothing, `w` is more than 3,968 bytes.
    fill: String,
    /// A character for each page: the number of blocks in use of which a part is on the page, as a
    /// digit `0` to `9`, `a` to `z`. `z` is 35 or more.
    blocks: String,
}

/// The bytes of a step of `fill`.
const STEP: u16 = 128;

/// Returns the digit of a number; of one that has none, the highest.
fn digit(number: u16) -> char {
    char::from_digit(u32::from(number.min(35)), 36).unwrap_or('z')
}

impl Document for HeapPagesJson {
    const SCHEMA: &'static str = "heap-pages";
    /// Until version 2, each page was two numbers in lists.
    const VERSION: u32 = 2;
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
                regions.push(RegionJson {
                    address,
                    group: page.group,
                    pages: 0,
                    bytes_used: 0,
                    fill: String::new(),
                    blocks: String::new(),
                });
            }
            if let Some(region) = regions.last_mut() {
                region.pages += 1;
                region.bytes_used += u64::from(page.used);
                region.fill.push(digit(page.used.div_ceil(STEP)));
                region.blocks.push(digit(page.blocks));
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
