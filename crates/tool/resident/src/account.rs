//! The account of a process's resident memory: a part for every page.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::allocators::{Allocator, AllocatorHeap, Search, names};
use crate::error::ResidentError;
use crate::fold::{self, BlockFold, PartRanges, PlacedBlock};
use crate::glibc::{GlibcHeap, Piece, Places};
use crate::heap::{HeapMap, Slice};
use crate::huge_pages::HugePages;
use crate::memory::ProcessMemory;
use crate::pages::{PAGE, PageMap, PresentPages};
use crate::process::SearchedFiles;
use crate::reader::WordReader;
use crate::smaps::{self, Amounts, SystemMapping, is_shared_memory, name_of};
use crate::threads::{StackUse, Threads};
use crate::zeroes;

mod kind;

pub use self::kind::{HeapOwner, HeapUse, PartGroup, PartKind};

/// The number of times that a process is read whose heap changes meanwhile.
const TRIES: usize = 3;

/// The bytes of private memory without a better name from which on it is asked who has them.
const MUCH: u64 = 1 << 20;

/// The resident memory of a process, put into parts.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ResidentMemory {
    /// The name of the program, as the kernel keeps it: at most 15 bytes.
    pub command: String,
    /// The sums of the kernel's amounts over all mappings, which are those of `smaps_rollup`.
    pub kernel: Amounts,
    /// The parts, in the order of their kinds; within a kind, the largest first.
    pub parts: Vec<ResidentPart>,
    /// The heap of glibc's malloc, if there is one.
    pub glibc: Option<GlibcHeap>,
    /// The heaps of other allocators.
    pub allocators: Vec<AllocatorHeap>,
    /// The allocators that the program has, by the names of files and functions, but whose heap was
    /// not found: it has none yet, or is of a version with another layout. Their memory is among
    /// the other private memory. Looked for only if there is a MiB of that.
    pub allocators_unread: Vec<Allocator>,
    /// Private memory in huge pages. `None` if there is none, or if the kernel does not tell where
    /// they are (before 6.7).
    pub huge_pages: Option<HugePages>,
    /// All mapped addresses in bytes, resident or not.
    pub mapped: u64,
    /// The bytes of mappings that may neither be read nor written to: guards and reservations.
    pub reserved: u64,
    /// The bytes of page tables, which are not among the resident ones.
    pub page_tables: u64,
    /// True if the kernel tells pages of zeroes from others. If not, those in heaps are counted,
    /// though the kernel does not count them.
    pub knows_zeroes: bool,
    /// The number of threads.
    pub threads: u64,
    /// The time from the first look at the process to the last. The process was not stopped.
    pub duration: Duration,
    /// The processor time of other threads than the caller's, which have helped to read it.
    pub helped: Duration,
    /// The heap of Heapledger's allocator.
    pub(crate) own_heap: Option<HeapMap>,
    /// The resident pages of private memory.
    pages: PresentPages,
    /// The addresses of the parts.
    places: PartPlaces,
}

/// A part of resident memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResidentPart {
    /// The use of the memory.
    pub kind: PartKind,
    /// The path of a file, or the name of a mapping; empty if the kind says all.
    pub name: String,
    /// The number of chunks, blocks, stacks or mappings.
    pub count: u64,
    /// The addresses in bytes, resident or not.
    pub mapped: u64,
    /// The resident bytes.
    pub resident: u64,
    /// The resident bytes of this process alone that were written to, if the part is made of whole
    /// mappings.
    pub private_dirty: u64,
    /// The resident bytes that other processes map, too, if the part is made of whole mappings.
    pub shared: u64,
}

impl ResidentPart {
    /// Returns a part of nothing.
    pub fn new(kind: PartKind, name: String) -> ResidentPart {
        ResidentPart { kind, name, count: 0, mapped: 0, resident: 0, private_dirty: 0, shared: 0 }
    }
}

impl ResidentMemory {
    /// Puts the resident memory of a process into parts. The process is not stopped: a part may
    /// have changed before the next one is looked at. Nothing becomes resident by it.
    ///
    /// The time depends on the chunks of the heap that are read; see [`GlibcHeap`].
    ///
    /// # Errors
    ///
    /// Fails if there is no such process, if this user may not read it (that takes the rights of a
    /// debugger), or if the kernel does not list what its mappings hold.
    pub fn of_process(process: u32) -> Result<ResidentMemory, ResidentError> {
        Ok(Reading::of(process, false, &mut SearchedFiles::default())?.examined(process))
    }

    /// Does the same in less time, for a program that reads many processes: files that were
    /// searched for Heapledger's allocator before are not searched again, and it does not look for
    /// [`huge_pages`](ResidentMemory::huge_pages) nor for
    /// [`allocators_unread`](ResidentMemory::allocators_unread). For these, up to 256 MiB of huge
    /// pages and the names of all functions of mapped files are read.
    ///
    /// # Errors
    ///
    /// Fails as [`of_process`](ResidentMemory::of_process).
    pub fn of_process_with(process: u32, searched: &mut SearchedFiles) -> Result<ResidentMemory, ResidentError> {
        Ok(Reading::of(process, false, searched)?.memory)
    }

    /// Does the same, and looks for all blocks of all heaps, so that
    /// [`heap_pages`](ResidentMemory::heap_pages) has their pages. Takes longer: the lists of free
    /// blocks of mimalloc and tcmalloc are followed.
    ///
    /// # Errors
    ///
    /// Fails as [`of_process`](ResidentMemory::of_process).
    pub fn of_process_by_page(process: u32) -> Result<ResidentMemory, ResidentError> {
        Ok(Reading::of(process, true, &mut SearchedFiles::default())?.examined(process))
    }

    /// Returns the sum of the parts in bytes.
    pub fn found(&self) -> u64 {
        self.parts.iter().map(|part| part.resident).fold(0, u64::saturating_add)
    }

    /// Returns the bytes that the kernel counts beyond the sum of the parts; negative if the parts
    /// are more.
    pub fn difference(&self) -> i64 {
        i64::try_from(i128::from(self.kernel.resident) - i128::from(self.found())).unwrap_or(i64::MAX)
    }

    /// Returns the resident pages of private memory.
    pub(crate) fn present_pages(&self) -> &PresentPages {
        &self.pages
    }

    /// Returns the addresses of all known heaps.
    pub(crate) fn heap_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.places.heaps.iter().map(|(range, _, _)| range.clone())
    }

    /// Puts live blocks onto the resident pages of private memory: for each site, the pages that
    /// its blocks keep. Sorts the blocks by address. If blocks overlap, the bytes belong to the one
    /// that begins first.
    ///
    /// Takes time in proportion to the blocks, sorting included, and not to their sizes.
    pub fn fold(&self, blocks: &mut [PlacedBlock]) -> BlockFold {
        fold::fold(&self.pages, self.places.ranges(&self.parts), blocks)
    }
}

/// A process that was read, with what is needed to examine it further.
struct Reading {
    memory: ResidentMemory,
    /// True if the heap of another allocator contradicted itself.
    is_doubtful: bool,
    /// The addresses of huge pages.
    huge: Vec<Range<u64>>,
    mappings: Vec<SystemMapping>,
}

impl Reading {
    /// Reads a process, several times if its heap changes meanwhile.
    fn of(process: u32, by_page: bool, searched: &mut SearchedFiles) -> Result<Reading, ResidentError> {
        let begin = Instant::now();
        // The search for the allocator takes longer than all else, so it comes first.
        let own_heap = HeapMap::of_process_with(process, searched).ok();
        let mut reading = Reading::once(process, own_heap.as_ref(), by_page)?;
        for _ in 1..TRIES {
            let is_unread = |part: &ResidentPart| part.kind == PartKind::GlibcUnread;
            if !reading.is_doubtful && !reading.memory.parts.iter().any(is_unread) {
                break;
            }
            let helped = reading.memory.helped;
            reading = Reading::once(process, own_heap.as_ref(), by_page)?;
            reading.memory.helped += helped;
        }
        reading.memory.duration = begin.elapsed();
        reading.memory.own_heap = own_heap;
        Ok(reading)
    }

    /// Examines huge pages, and looks for names of allocators whose heap was not found.
    fn examined(self, process: u32) -> ResidentMemory {
        let begin = Instant::now();
        let Reading { mut memory, huge, mappings, .. } = self;
        if let Some(of_process) = ProcessMemory::open(process).ok().filter(|_| !huge.is_empty()) {
            memory.huge_pages = Some(HugePages::examine(&of_process, &huge));
        }
        let private = memory.parts.iter().filter(|part| part.kind == PartKind::Anonymous);
        if private.map(|part| part.resident).sum::<u64>() >= MUCH {
            let mut named = names::find(process, &mappings);
            memory.allocators.iter().for_each(|heap| _ = named.remove(&heap.allocator));
            memory.allocators_unread = named.into_iter().collect();
        }
        memory.duration += begin.elapsed();
        memory
    }

    fn once(process: u32, own_heap: Option<&HeapMap>, by_page: bool) -> Result<Reading, ResidentError> {
        let read = |name: &'static str| read_text(process, name);
        let mappings = smaps::parse(&read("smaps")?);
        let kernel = smaps::sum(&mappings);
        if mappings.is_empty() {
            return Err(ResidentError::NoProcess(process));
        }
        let refused = |error| ResidentError::of(process, "pagemap", error);
        let memory = ProcessMemory::open(process).map_err(|error| ResidentError::of(process, "mem", error))?;
        let mut page_map = PageMap::open(process).map_err(refused)?;
        let mut pages = PresentPages::default();
        for mapping in mappings.iter().filter(|mapping| needs_pages(mapping)) {
            page_map.read(mapping.addresses.clone(), &mut pages).map_err(refused)?;
        }
        let mut huge = Vec::new();
        for mapping in mappings.iter().filter(|mapping| mapping.amounts.anonymous_huge > 0) {
            huge.extend(page_map.huge(mapping.addresses.clone()).unwrap_or_default());
        }
        let threads = Threads::of_process(process);
        let mut reader = WordReader::new(&memory, &pages);
        let mappings = threads.divide_stacks(mappings, &pages, &mut reader);

        let mut account = Account {
            mappings: &mappings,
            pages: &pages,
            parts: BTreeMap::new(),
            carved: Vec::new(),
            places: PartPlaces::default(),
        };
        if let Some(map) = own_heap {
            account.carve_heapledger(map);
        }
        account.carve_zeroes(process);
        let uses: Vec<StackUse> = account.stacks(&threads, &mut reader);
        // Their memory may look like blocks of glibc's.
        let is_doubtful = Cell::new(false);
        let allocators = account.allocators(&memory, &is_doubtful, by_page);
        allocators.iter().for_each(|heap| account.carve_allocator(heap));
        let mut helped = Duration::ZERO;
        let glibc = GlibcHeap::read(&memory, &pages, &account.places(&uses), &mut helped);
        if let Some(glibc) = &glibc {
            account.carve_glibc(glibc);
        }
        account.add_mappings(&uses);

        let places = std::mem::take(&mut account.places);
        let parts = account.finish();
        let status = read("status")?;
        let page_tables = status.lines().filter_map(smaps::amount).find(|(name, _)| *name == "VmPTE");
        let cannot_be_used = |mapping: &&SystemMapping| !mapping.is_readable && !mapping.is_writable;
        let memory = ResidentMemory {
            command: read("comm")?.trim_end().to_owned(),
            kernel,
            parts,
            glibc,
            allocators,
            allocators_unread: Vec::new(),
            huge_pages: None,
            mapped: mappings.iter().map(SystemMapping::size).fold(0, u64::saturating_add),
            reserved: mappings.iter().filter(cannot_be_used).map(SystemMapping::size).fold(0, u64::saturating_add),
            page_tables: page_tables.map_or(0, |(_, kilobytes)| kilobytes.saturating_mul(1024)),
            knows_zeroes: page_map.knows_zeroes(),
            threads: threads.ids.len() as u64,
            duration: Duration::ZERO,
            helped,
            own_heap: None,
            pages,
            places,
        };
        Ok(Reading { memory, is_doubtful: is_doubtful.get(), huge, mappings })
    }
}

/// The addresses of the parts of an account.
#[derive(Clone, Debug, Default)]
struct PartPlaces {
    /// The heaps of known allocators, with the kind and the name of the part for blocks in use.
    heaps: Vec<(Range<u64>, PartKind, &'static str)>,
    /// All mappings, ascending, with the part that they are in apart from the heaps.
    mappings: Vec<(Range<u64>, PartKind, String)>,
}

impl PartPlaces {
    fn add_heap(&mut self, range: Range<u64>, kind: PartKind, name: &'static str) {
        self.heaps.push((range, kind, name));
    }

    /// Returns the same with the indices of the parts.
    fn ranges(&self, parts: &[ResidentPart]) -> PartRanges {
        let named = parts.iter().enumerate().map(|(at, part)| ((part.kind, part.name.as_str()), at));
        let named: BTreeMap<(PartKind, &str), usize> = named.collect();
        let part = |kind: PartKind, name: &str| named.get(&(kind, name)).copied();
        let mut heaps: Vec<_> =
            self.heaps.iter().map(|(range, kind, name)| (range.clone(), part(*kind, name))).collect();
        heaps.sort_by_key(|(range, _)| range.start);
        let mappings = self.mappings.iter().map(|(range, kind, name)| (range.clone(), part(*kind, name)));
        PartRanges { heaps, mappings: mappings.collect(), parts: parts.len() }
    }
}

/// Reads a text file of `/proc/PID`.
pub(crate) fn read_text(process: u32, name: &'static str) -> Result<String, ResidentError> {
    let bytes = fs::read(format!("/proc/{process}/{name}")).map_err(|error| ResidentError::of(process, name, error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl ResidentError {
    /// Returns the error for a file of `/proc/PID` that cannot be read.
    pub(crate) fn of(process: u32, file: &'static str, source: io::Error) -> ResidentError {
        let is = |errno: Errno| source.raw_os_error() == Some(errno.raw_os_error());
        // The kernel has no `smaps` if it was built without CONFIG_PROC_PAGE_MONITOR.
        let is_there = fs::exists(format!("/proc/{process}")).unwrap_or(false);
        match source.kind() {
            io::ErrorKind::PermissionDenied => ResidentError::NotAllowed(process),
            io::ErrorKind::NotFound if is_there => ResidentError::NotTold { file, source },
            io::ErrorKind::NotFound => ResidentError::NoProcess(process),
            _ if is(Errno::SRCH) => ResidentError::NoProcess(process),
            _ => ResidentError::NotTold { file, source },
        }
    }
}

/// True if the pages of a mapping are looked at one by one: the heap may be there, or the
/// description of an arena.
fn needs_pages(mapping: &SystemMapping) -> bool {
    let has_own_pages = mapping.is_writable && !mapping.is_shared && mapping.amounts.anonymous > 0;
    let is_heap = mapping.is_private_memory() && mapping.amounts.resident > 0;
    (has_own_pages || is_heap) && mapping.name != "[stack]" && !is_of_kernel(&mapping.name)
}

/// True if the mapping is one that the kernel makes in every process for itself.
fn is_of_kernel(name: &str) -> bool {
    ["[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]", "[uprobes]", "[sigpage]"].contains(&name)
}

/// An account in progress.
struct Account<'a> {
    mappings: &'a [SystemMapping],
    pages: &'a PresentPages,
    /// The parts, by kind and name.
    parts: BTreeMap<(PartKind, String), ResidentPart>,
    /// The addresses whose pages are in parts already.
    carved: Vec<Range<u64>>,
    places: PartPlaces,
}

impl Account<'_> {
    fn part(&mut self, kind: PartKind, name: &str) -> &mut ResidentPart {
        self.parts.entry((kind, name.to_owned())).or_insert_with(|| ResidentPart::new(kind, name.to_owned()))
    }

    fn add(&mut self, kind: PartKind, piece: Piece) {
        self.add_named(kind, "", piece);
    }

    fn add_named(&mut self, kind: PartKind, name: &str, piece: Piece) {
        if piece.bytes > 0 {
            let part = self.part(kind, name);
            part.count += piece.chunks;
            part.mapped = part.mapped.saturating_add(piece.bytes);
            part.resident = part.resident.saturating_add(piece.resident);
        }
    }

    /// Adds a range of Heapledger's allocator.
    fn add_range(&mut self, kind: PartKind, range: Range<u64>) {
        let resident = self.pages.bytes_within(range.clone());
        self.add(kind, Piece { chunks: 1, bytes: range.end - range.start, resident });
    }

    /// Adds the chunks and huge blocks of Heapledger's allocator.
    fn carve_heapledger(&mut self, map: &HeapMap) {
        for chunk in &map.chunks {
            let Some(end) = chunk.address.checked_add(map.chunk_size) else { continue };
            self.carved.push(chunk.address..end);
            self.places.add_heap(chunk.address..end, PartKind::HeapledgerUsed, "");
            let mut at = chunk.address.saturating_add(map.slice_size).min(end);
            self.add_range(PartKind::HeapledgerBookkeeping, chunk.address..at);
            for slice in &chunk.slices {
                let slices = match slice {
                    Slice::Free(_) => 1,
                    Slice::Run(run) => u64::from(run.slices.max(1)),
                };
                let range = at..at.saturating_add(slices.saturating_mul(map.slice_size)).min(end);
                at = range.end;
                match slice {
                    Slice::Free(_) => self.add_range(PartKind::HeapledgerFree, range),
                    Slice::Run(run) => {
                        let (bytes, resident) = (range.end - range.start, self.pages.bytes_within(range));
                        let used = u64::from(run.used) * u64::from(run.block_size);
                        // Blocks lie side by side, so their pages are resident first.
                        let resident_used = used.min(resident);
                        let used = Piece { chunks: run.used.into(), bytes: used.min(bytes), resident: resident_used };
                        let unused = bytes - used.bytes;
                        self.add(PartKind::HeapledgerUsed, used);
                        let rest = Piece { chunks: 1, bytes: unused, resident: resident - resident_used };
                        self.add(PartKind::HeapledgerUnused, rest);
                    }
                }
            }
            if at < end {
                self.add_range(PartKind::HeapledgerFree, at..end);
            }
        }
        for huge in &map.huge {
            let Some(end) = huge.address.checked_add(huge.bytes).and_then(|end| end.checked_next_multiple_of(PAGE))
            else {
                continue;
            };
            self.carved.push(huge.address..end);
            self.places.add_heap(huge.address..end, PartKind::HeapledgerUsed, "");
            self.add_range(PartKind::HeapledgerUsed, huge.address..end);
        }
        self.carved.sort_by_key(|range| range.start);
    }

    /// Adds the data of programs and libraries that begin as zeroes.
    fn carve_zeroes(&mut self, process: u32) {
        for (range, path) in zeroes::find(process, self.mappings) {
            let resident = self.pages.bytes_within(range.clone());
            let part = self.part(PartKind::File, &path);
            part.mapped = part.mapped.saturating_add(range.end - range.start);
            part.resident = part.resident.saturating_add(resident);
            part.private_dirty = part.private_dirty.saturating_add(resident);
            self.carved.push(range);
        }
        self.carved.sort_by_key(|range| range.start);
    }

    /// Returns the use of each mapping as a stack.
    fn stacks(&self, threads: &Threads, reader: &mut WordReader<'_>) -> Vec<StackUse> {
        let is_carved = |mapping: &SystemMapping| {
            self.carved
                .iter()
                .any(|carved| carved.start < mapping.addresses.end && mapping.addresses.start < carved.end)
        };
        let may_be = |mapping: &&SystemMapping| {
            let is_nameless = mapping.name.is_empty() || mapping.name.contains("stack");
            mapping.is_private_memory() && mapping.is_writable && is_nameless && mapping.name != "[stack]"
        };
        let mut below: Option<&SystemMapping> = None;
        let mut uses = Vec::with_capacity(self.mappings.len());
        for mapping in self.mappings {
            let is_guard = |below: &SystemMapping| {
                !below.is_readable && !below.is_writable && below.addresses.end == mapping.addresses.start
            };
            let has_guard = below.replace(mapping).is_some_and(is_guard);
            uses.push(match Some(mapping).filter(may_be) {
                Some(mapping) if !is_carved(mapping) => threads.use_of(&mapping.addresses, has_guard, reader),
                _ => StackUse::None,
            });
        }
        uses
    }

    /// Returns the places where the heap of glibc may be.
    fn places(&self, uses: &[StackUse]) -> Places {
        let mut places = Places::default();
        for (mapping, stack) in self.mappings.iter().zip(uses) {
            let addresses = mapping.addresses.clone();
            if mapping.name == "[heap]" {
                // The heap may be several mappings, whose properties differ.
                places.brk.start = if places.brk.is_empty() { addresses.start } else { places.brk.start };
                places.brk.end = addresses.end;
            } else if mapping.is_private_memory() && mapping.is_writable && *stack == StackUse::None {
                if mapping.amounts.resident > 0 && mapping.name != "[stack]" {
                    places.anonymous.extend(self.not_carved(addresses));
                }
            } else if *stack == StackUse::None
                && mapping.is_writable
                && !mapping.is_shared
                && mapping.amounts.anonymous > 0
            {
                places.data.push(addresses);
            }
        }
        places
    }

    /// Returns the parts of a range that are in no part yet.
    fn not_carved(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut parts, mut at) = (Vec::new(), range.start);
        let first = self.carved.partition_point(|carved| carved.end <= range.start);
        for carved in self.carved[first..].iter().take_while(|carved| carved.start < range.end) {
            parts.push(at..carved.start.max(at));
            at = at.max(carved.end);
        }
        parts.push(at.min(range.end)..range.end);
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Returns the heaps of other allocators.
    fn allocators(&self, memory: &ProcessMemory, is_doubtful: &Cell<bool>, by_page: bool) -> Vec<AllocatorHeap> {
        let is_heap = |mapping: &&SystemMapping| mapping.is_private_memory() && mapping.name != "[stack]";
        let is_writable = |mapping: &&SystemMapping| mapping.is_writable && mapping.amounts.resident > 0;
        // The kernel makes one mapping of a stack and of memory of the heap that is next to it.
        let private = self.mappings.iter().filter(is_heap).filter(is_writable);
        let private: Vec<Range<u64>> = private.flat_map(|mapping| self.not_carved(mapping.addresses.clone())).collect();
        // Data that begin as zeroes are in parts already, as the only ones but Heapledger's heap.
        let mut data = self.places(&vec![StackUse::None; self.mappings.len()]).data;
        data.extend(self.carved.iter().cloned());
        data.sort_by_key(|range| range.start);
        let mut spaces: Vec<Range<u64>> = Vec::new();
        for mapping in self.mappings.iter().filter(is_heap) {
            match spaces.last_mut() {
                Some(last) if last.end == mapping.addresses.start => last.end = mapping.addresses.end,
                _ => spaces.push(mapping.addresses.clone()),
            }
        }
        let (data, private, spaces) = (&data[..], &private[..], &spaces[..]);
        Search { memory, pages: self.pages, data, private, spaces, is_doubtful, by_page }.heaps()
    }

    fn carve_allocator(&mut self, heap: &AllocatorHeap) {
        let pieces = [
            (PartKind::AllocatorUsed, heap.used),
            (PartKind::AllocatorCached, heap.cached),
            (PartKind::AllocatorFree, heap.free),
            (PartKind::AllocatorDirty, heap.dirty),
            (PartKind::AllocatorLazy, heap.lazy),
            (PartKind::AllocatorReturned, heap.returned),
            (PartKind::AllocatorBookkeeping, heap.bookkeeping),
            (PartKind::AllocatorUnread, heap.unread),
        ];
        for (kind, piece) in pieces {
            self.add_named(kind, heap.allocator.name(), piece);
        }
        for range in &heap.ranges {
            self.places.add_heap(range.clone(), PartKind::AllocatorUsed, heap.allocator.name());
        }
        self.carved.extend(heap.ranges.iter().cloned());
        self.carved.sort_by_key(|range| range.start);
    }

    fn carve_glibc(&mut self, heap: &GlibcHeap) {
        let total = heap.total();
        self.add(PartKind::GlibcUsed, total.used);
        self.add(PartKind::GlibcMapped, heap.mapped);
        self.add(PartKind::GlibcCached, total.cached);
        self.add(PartKind::GlibcFast, total.fast);
        self.add(PartKind::GlibcFree, total.free);
        self.add(PartKind::GlibcTop, total.top);
        self.add(PartKind::GlibcBookkeeping, total.bookkeeping);
        self.add(PartKind::GlibcUnread, total.unread);
        self.carved.extend(heap.ranges.iter().cloned());
        for range in &heap.ranges {
            let is_mapped = heap.mapped_ranges.binary_search_by_key(&range.start, |mapped| mapped.start).is_ok();
            let kind = if is_mapped { PartKind::GlibcMapped } else { PartKind::GlibcUsed };
            self.places.add_heap(range.clone(), kind, "");
        }
        self.carved.sort_by_key(|range| range.start);
    }

    /// Adds all mappings, without the pages that are in parts already.
    fn add_mappings(&mut self, uses: &[StackUse]) {
        for (mapping, stack) in self.mappings.iter().zip(uses) {
            let (kind, name) = match *stack {
                StackUse::Thread => (PartKind::ThreadStack, ""),
                StackUse::Ended => (PartKind::EndedStack, ""),
                StackUse::None if mapping.name == "[stack]" => (PartKind::MainStack, ""),
                StackUse::None if is_of_kernel(&mapping.name) => (PartKind::Kernel, mapping.name.as_str()),
                StackUse::None if is_shared_memory(mapping) => (PartKind::Shared, mapping.name.as_str()),
                StackUse::None if mapping.name.starts_with('/') => (PartKind::File, mapping.name.as_str()),
                StackUse::None => (PartKind::Anonymous, name_of(&mapping.name)),
            };
            self.places.mappings.push((mapping.addresses.clone(), kind, name.to_owned()));
            self.add_mapping(kind, name, mapping);
        }
    }

    fn add_mapping(&mut self, kind: PartKind, name: &str, mapping: &SystemMapping) {
        let first = self.carved.partition_point(|carved| carved.end <= mapping.addresses.start);
        let carved = self.carved[first..].iter().take_while(|carved| carved.start < mapping.addresses.end);
        let (mut covered, mut covered_resident, mut at) = (0, 0, mapping.addresses.start);
        for range in carved {
            let range = range.start.max(at)..range.end.min(mapping.addresses.end);
            if range.start < range.end {
                covered += range.end - range.start;
                covered_resident += self.pages.bytes_within(range.clone());
                at = range.end;
            }
        }
        let amounts = mapping.amounts;
        let rest = match covered {
            0 => amounts.resident,
            _ => self.pages.bytes_within(mapping.addresses.clone()).saturating_sub(covered_resident),
        };
        let mapped = mapping.size() - covered;
        // Addresses that may not be used are no part of what is next to them.
        if mapped == 0 || (rest == 0 && !mapping.is_readable && !mapping.is_writable) {
            return;
        }
        let part = self.part(kind, name);
        part.count += 1;
        part.mapped = part.mapped.saturating_add(mapped);
        part.resident = part.resident.saturating_add(rest);
        part.private_dirty = part.private_dirty.saturating_add(amounts.private_dirty.min(rest));
        part.shared = part.shared.saturating_add(amounts.shared_clean.saturating_add(amounts.shared_dirty).min(rest));
    }

    fn finish(self) -> Vec<ResidentPart> {
        let mut parts: Vec<ResidentPart> = self.parts.into_values().collect();
        parts.sort_by(|a, b| (a.kind, b.resident, &a.name).cmp(&(b.kind, a.resident, &b.name)));
        parts
    }
}

#[cfg(test)]
mod tests;
