//! The functions by which C libraries tell a program about its heap.

use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};

use heapledger_core::print::Printer;
use heapledger_heap::{self as heap, DetailedStatistics, StatisticsFormat};

const EINVAL: c_int = 22;
const STDERR: i32 = 2;

unsafe extern "C" {
    fn fwrite(from: *const c_void, size: usize, count: usize, file: *mut c_void) -> usize;
}

/// `struct mallinfo2` of glibc.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Mallinfo2 {
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

/// glibc's `mallinfo2`: the bytes of chunks (`arena`), the number and bytes of huge blocks
/// (`hblks`, `hblkhd`), the bytes of blocks in use in chunks (`uordblks`), the rest of the chunks
/// (`fordblks`), and of that the bytes that `malloc_trim` would return (`keepcost`). The other
/// fields are 0.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    let now = heap::detailed_statistics();
    let (arena, uordblks) = (now.chunks * now.chunk_size, now.allocated - now.huge);
    Mallinfo2 {
        arena,
        hblks: now.huge_blocks,
        hblkhd: now.huge,
        uordblks,
        fordblks: arena.saturating_sub(uordblks),
        keepcost: now.dirty,
        ..Mallinfo2::default()
    }
}

/// `struct mallinfo` of glibc.
#[derive(Debug)]
#[repr(C)]
pub struct Mallinfo([c_int; 10]);

/// glibc's `mallinfo`: the figures of [`mallinfo2`]. Those of over 2 GiB are shown as 2 GiB.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo {
    let all = mallinfo2();
    let fields = [
        all.arena,
        all.ordblks,
        all.smblks,
        all.hblks,
        all.hblkhd,
        all.usmblks,
        all.fsmblks,
        all.uordblks,
        all.fordblks,
        all.keepcost,
    ];
    Mallinfo(fields.map(|field| c_int::try_from(field).unwrap_or(c_int::MAX)))
}

/// glibc's `malloc_stats`: prints the statistics to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    let mut printer = Printer::new(STDERR);
    let _ = heap::write_statistics(StatisticsFormat::Text, &mut printer);
    printer.finish();
}

/// Text for a `FILE` of the C library.
struct File(*mut c_void);

impl Write for File {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: `fwrite` demands a readable range and an open file, as the caller of
        // `malloc_info` has passed.
        let count = unsafe { fwrite(text.as_ptr().cast(), 1, text.len(), self.0) };
        if count == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// glibc's `malloc_info`: writes XML of glibc's form, with the free blocks by size.
///
/// # Safety
///
/// The contract of the C function: `file` is open for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, file: *mut c_void) -> c_int {
    if options != 0 {
        return EINVAL;
    }
    c_int::from(xml(&heap::detailed_statistics(), &mut File(file)).is_err()).wrapping_neg()
}

fn xml(now: &DetailedStatistics, out: &mut dyn Write) -> fmt::Result {
    out.write_str("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n")?;
    let (mut count, mut bytes) = (0, 0);
    for bin in now.bins.iter().filter(|bin| bin.unused > 0) {
        let (size, free) = (bin.size, bin.unused / bin.size);
        writeln!(out, "  <size from=\"{size}\" to=\"{size}\" total=\"{}\" count=\"{free}\"/>", bin.unused)?;
        count += free;
        bytes += bin.unused;
    }
    let rest = now.dirty + now.fresh + now.madvised;
    writeln!(out, "</sizes>\n<total type=\"fast\" count=\"{count}\" size=\"{bytes}\"/>")?;
    writeln!(out, "<total type=\"rest\" count=\"1\" size=\"{rest}\"/>")?;
    writeln!(out, "<system type=\"current\" size=\"{0}\"/>\n<system type=\"max\" size=\"{0}\"/>", now.mapped)?;
    writeln!(
        out,
        "<aspace type=\"total\" size=\"{0}\"/>\n<aspace type=\"mprotect\" size=\"{0}\"/>\n</heap>",
        now.mapped
    )?;
    writeln!(out, "<total type=\"fast\" count=\"{count}\" size=\"{bytes}\"/>")?;
    writeln!(out, "<total type=\"rest\" count=\"1\" size=\"{rest}\"/>")?;
    writeln!(out, "<total type=\"mmap\" count=\"{}\" size=\"{}\"/>", now.huge_blocks, now.huge)?;
    writeln!(out, "<system type=\"current\" size=\"{0}\"/>\n<system type=\"max\" size=\"{0}\"/>", now.mapped)?;
    writeln!(
        out,
        "<aspace type=\"total\" size=\"{0}\"/>\n<aspace type=\"mprotect\" size=\"{0}\"/>\n</malloc>",
        now.mapped
    )
}

/// glibc's `mallopt`. The parameters that are about glibc's way of working (`M_MXFAST`,
/// `M_TRIM_THRESHOLD`, `M_TOP_PAD`, `M_MMAP_THRESHOLD`, `M_MMAP_MAX`, `M_ARENA_TEST`,
/// `M_ARENA_MAX`) are accepted and change nothing: 1. Others, also `M_PERTURB` and
/// `M_CHECK_ACTION`, whose effect a program may rely on, are refused: 0.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    c_int::from(matches!(parameter, 1 | -1 | -2 | -3 | -4 | -7 | -8))
}

/// BSD's `malloc_good_size`: the usable size of a block of `size` bytes. A size that no block can
/// have is returned as it is.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_good_size(size: usize) -> usize {
    heap::good_size(size).unwrap_or(size)
}
