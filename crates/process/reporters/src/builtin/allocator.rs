//! Reports from the allocators of the process, and the bytes that are allocated on the heap.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;

use heapledger_core::weak_address;
use heapledger_inprocess::{LEDGER, control, query};
use heapledger_report_format::{Report, Unit};

use super::{add, heapledger, phc};

pub(super) fn report(reports: &mut Vec<Report>) {
    // Before anything is allocated for the sake of the answer.
    let own = heapledger::statistics();
    let glibc = glibc();
    let jemalloc = Jemalloc::find().map(|jemalloc| jemalloc.figures());
    let mimalloc = mimalloc();
    let checker = phc::statistics();
    // mimalloc does not count what is allocated, jemalloc not unless it was built to.
    let is_any = glibc.is_some() || jemalloc.is_some() || own.is_some();
    let is_whole = mimalloc.is_none() && !matches!(jemalloc, Some(None)) && is_any;
    let jemalloc = jemalloc.flatten();
    let by_allocators = [
        glibc.as_ref().map(Glibc::allocated),
        jemalloc.as_ref().map(|figures| figures.allocated),
        own.as_ref().map(|own| own.allocated as u64),
        checker.map(|checker| checker.uncounted()),
    ];
    let known: u64 = by_allocators.into_iter().flatten().sum();
    report_allocated(reports, is_whole.then_some(known));
    if let Some(own) = own {
        own.report(reports);
    }
    if let Some(checker) = checker {
        checker.report(reports);
    }
    if let Some(glibc) = glibc {
        glibc.report(reports);
    }
    if let Some(figures) = jemalloc {
        figures.report(reports);
    }
    if let Some((committed, peak)) = mimalloc {
        add(
            reports,
            "heap/mimalloc/committed",
            Unit::Bytes,
            committed,
            "Memory that mimalloc has ready for use: blocks in use and not, and its own tables. It does not count which.",
        );
        add(reports, "heap-mimalloc-committed-peak", Unit::Bytes, peak, "The most that mimalloc has ever had ready.");
    }
}

/// The figures of all allocators of the process, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes in blocks that the program has.
    pub allocated: u64,
    /// Bytes that the allocators have from the system, for blocks and for their own purposes; not
    /// all of them are touched.
    pub mapped: u64,
}

impl Figures {
    /// Returns the figures of Heapledger's allocator, glibc and jemalloc, and of the heap checker.
    /// `None` if the program has none of these allocators, or one that does not count.
    pub fn now() -> Option<Figures> {
        let glibc = glibc();
        let jemalloc = Jemalloc::find().map(|jemalloc| jemalloc.figures());
        if weak_address!("mi_process_info") != 0 || matches!(jemalloc, Some(None)) {
            return None;
        }
        let glibc = glibc.map(|glibc| Figures { allocated: glibc.allocated(), mapped: glibc.mapped() });
        let jemalloc = jemalloc.flatten().map(|figures| Figures {
            allocated: figures.allocated,
            mapped: figures.active.max(figures.allocated) + figures.metadata,
        });
        let own = heapledger::statistics();
        let own = own.map(|own| Figures { allocated: own.allocated as u64, mapped: own.mapped as u64 });
        let checker = phc::statistics().filter(|checker| checker.uncounted() > 0).map(|checker| Figures {
            allocated: checker.uncounted(),
            mapped: checker.uncounted() + (checker.stats.bytes_fragmentation + checker.stats.bytes_metadata) as u64,
        });
        let sum =
            |a: Figures, b: Figures| Figures { allocated: a.allocated + b.allocated, mapped: a.mapped + b.mapped };
        let all = [own, glibc, jemalloc].into_iter().flatten().reduce(sum)?;
        Some(checker.map_or(all, |checker| sum(all, checker)))
    }
}

fn report_allocated(reports: &mut Vec<Report>, by_allocators: Option<u64>) {
    if let Some(live) = Live::of_ledger().filter(|live| live.is_whole(by_allocators)) {
        let description = "Bytes in blocks that the program has of its allocator, slop included, as its ledger knows them. \
                           Blocks from before the start of the ledger, and those of Heapledger itself, are not in it.";
        return add(reports, "heap-allocated", Unit::Bytes, live.bytes, description);
    }
    if let Some(bytes) = by_allocators {
        let description = "Bytes in blocks that the program has of its allocators, as those count them: glibc with its \
                           headers of 8 bytes a block, and with small blocks that were freed and are kept for the thread \
                           that freed them.";
        add(reports, "heap-allocated", Unit::Bytes, bytes, description);
    }
}

/// The live blocks of the ledger.
struct Live {
    /// Usable ones.
    bytes: u64,
    blocks: u64,
}

impl Live {
    /// `None` where it does not run, or does not know all that was allocated since its start.
    fn of_ledger() -> Option<Live> {
        if !control::is_running() || control::is_sample() || control::losses().refused.0 > 0 {
            return None;
        }
        let mut live = Live { bytes: 0, blocks: 0 };
        let mut blocks = LEDGER.blocks();
        // One at a time: others may allocate meanwhile.
        while let Some(block) = query(|| blocks.next()).flatten() {
            live.bytes += block.usable.0;
            live.blocks += 1;
        }
        Some(live)
    }

    /// True if the ledger knows at least 90 percent of the bytes that the allocators have given
    /// out: it has run from the beginning.
    fn is_whole(&self, by_allocators: Option<u64>) -> bool {
        const HEADER: u64 = 8;
        by_allocators.is_none_or(|bytes| (self.bytes + self.blocks * HEADER) as f64 >= bytes as f64 * 0.9)
    }
}

/// `struct mallinfo2` of glibc's `<malloc.h>`.
#[repr(C)]
struct Glibc {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// glibc's figures; `None` with another C library, or an old one, or if Heapledger's allocator
/// answers in its place.
fn glibc() -> Option<Glibc> {
    let address = if heapledger::answers_for_glibc() { 0 } else { weak_address!("mallinfo2") };
    // SAFETY: `transmute` requires the address of a function of this type, and the address is not
    // 0. It is that of the C library's `mallinfo2`, which takes nothing and returns the structure
    // that `Glibc` declares.
    (address != 0).then(|| unsafe { mem::transmute::<usize, unsafe extern "C" fn() -> Glibc>(address)() })
}

impl Glibc {
    fn allocated(&self) -> u64 {
        (self.uordblks + self.hblkhd) as u64
    }

    fn mapped(&self) -> u64 {
        (self.arena + self.hblkhd) as u64
    }

    fn report(&self, reports: &mut Vec<Report>) {
        let info = self;
        let parts = [
            ("allocated/arenas", info.uordblks, "Blocks in arenas, with their headers, and those kept for threads."),
            ("allocated/mapped", info.hblkhd, "Large blocks, each with a mapping of its own."),
            (
                "free/inner",
                info.fordblks.saturating_sub(info.keepcost).saturating_sub(info.fsmblks),
                "Free memory between blocks: it can be used for others, not given back.",
            ),
            ("free/small", info.fsmblks, "Freed small blocks that are kept as they are, for others of the same size."),
            ("free/top", info.keepcost, "Free memory at the end of the main arena: malloc_trim gives it back."),
        ];
        for (path, bytes, description) in parts {
            add(reports, &format!("heap/glibc/{path}"), Unit::Bytes, bytes as u64, description);
        }
        add(
            reports,
            "heap-glibc-mapped-blocks",
            Unit::Count,
            info.hblks as u64,
            "Large blocks that glibc has given a mapping of their own.",
        );
    }
}

/// jemalloc's way to ask anything, by whatever name it goes.
struct Jemalloc(Mallctl);

type Mallctl = unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

/// See jemalloc's manual, under `stats`.
struct JemallocFigures {
    allocated: u64,
    active: u64,
    metadata: u64,
    resident: u64,
    retained: u64,
}

impl Jemalloc {
    fn find() -> Option<Jemalloc> {
        let names = [weak_address!("mallctl"), weak_address!("_rjem_mallctl"), weak_address!("je_mallctl")];
        let address = names.into_iter().find(|&address| address != 0)?;
        // SAFETY: `transmute` requires the address of a function of this type, and the address is
        // not 0. jemalloc's manual declares `mallctl` so; the other names are those that builds
        // with a prefix give it.
        Some(Jemalloc(unsafe { mem::transmute::<usize, Mallctl>(address) }))
    }

    fn figures(&self) -> Option<JemallocFigures> {
        let mut epoch = 1_u64;
        let length = size_of::<u64>();
        // SAFETY: the manual: what is read and written there is a `uint64_t`. It makes the figures
        // those of now.
        unsafe { (self.0)(c"epoch".as_ptr(), ptr::null_mut(), ptr::null_mut(), (&raw mut epoch).cast(), length) };
        Some(JemallocFigures {
            allocated: self.figure(c"stats.allocated")?,
            active: self.figure(c"stats.active")?,
            metadata: self.figure(c"stats.metadata")?,
            resident: self.figure(c"stats.resident")?,
            retained: self.figure(c"stats.retained")?,
        })
    }

    /// `None` where jemalloc was built without statistics.
    fn figure(&self, name: &CStr) -> Option<u64> {
        let (mut value, mut length) = (0_usize, size_of::<usize>());
        // SAFETY: `mallctl` requires a name that ends with NUL, and room of `length` bytes for the
        // value. By jemalloc's manual the value of each of these names is a `size_t`, as `value`
        // is. Nothing is set, since the new value is null.
        let error = unsafe { (self.0)(name.as_ptr(), (&raw mut value).cast(), &raw mut length, ptr::null_mut(), 0) };
        (error == 0).then_some(value as u64)
    }
}

impl JemallocFigures {
    fn report(&self, reports: &mut Vec<Report>) {
        let dirty = self.resident.saturating_sub(self.active).saturating_sub(self.metadata);
        let parts = [
            ("committed/allocated", self.allocated, "Blocks that the program has."),
            (
                "committed/bin-unused",
                self.active.saturating_sub(self.allocated),
                "Free memory in pages that have blocks on them.",
            ),
            ("committed/bookkeeping", self.metadata, "The allocator's own tables."),
            ("committed/unused-pages/dirty", dirty, "Free pages that are kept for the next blocks."),
            ("decommitted/retained", self.retained, "Addresses that are kept mapped without memory behind them."),
        ];
        for (path, bytes, description) in parts {
            add(reports, &format!("heap/jemalloc/{path}"), Unit::Bytes, bytes, description);
        }
    }
}

/// Returns the bytes that mimalloc has committed, and their maximum.
fn mimalloc() -> Option<(u64, u64)> {
    let address = weak_address!("mi_process_info");
    if address == 0 {
        return None;
    }
    type Info = unsafe extern "C" fn(
        *mut usize,
        *mut usize,
        *mut usize,
        *mut usize,
        *mut usize,
        *mut usize,
        *mut usize,
        *mut usize,
    );
    let (mut committed, mut peak) = (0_usize, 0_usize);
    let none = ptr::null_mut;
    // SAFETY: mimalloc's function of this name, which takes null for what nobody wants to know.
    unsafe {
        mem::transmute::<usize, Info>(address)(
            none(),
            none(),
            none(),
            none(),
            none(),
            &raw mut committed,
            &raw mut peak,
            none(),
        );
    }
    Some((committed as u64, peak as u64))
}
