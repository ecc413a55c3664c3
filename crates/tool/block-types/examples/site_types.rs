//! `site_types FILE [COUNT [CACHE]]`: measures the time and the memory for finding the types of
//! sites. Sites are made up: each has an address of its own in the code of the file, and others
//! that it shares. Give it a large file with debug information; run it with `--release`, twice if
//! there is a directory for the cache.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use heapledger_block_types::{SiteSizes, TypeFinder};
use heapledger_core::sample::Random;
use heapledger_symbols::{ModuleRef, Symbolizer, SymbolizerOptions};
use object::{Object, ObjectSection, ReadCache};

/// The number of places of a stack, and of different places for all but the innermost.
const PLACES: usize = 12;
const SHARED: usize = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or("usage: site_types FILE [COUNT [CACHE]]")?;
    let count: usize = arguments.next().map_or(Ok(20_000), |count| count.parse())?;
    let cache = arguments.next().map(PathBuf::from);
    let (start, size, build_id) = {
        // In pieces: reading all of it would count as memory of the lookups.
        let file = ReadCache::new(File::open(&path)?);
        let elf = object::File::parse(&file)?;
        let text = elf.section_by_name(".text").ok_or("no .text")?;
        (text.address(), text.size(), elf.build_id()?.unwrap_or_default().to_vec())
    };
    // Each run asks the same.
    let mut random = Random::new(1);
    let shared: Vec<u64> = (0..SHARED).map(|_| start + random.below(size)).collect();

    let begin = Instant::now();
    let symbolizer = Arc::new(Symbolizer::new(SymbolizerOptions { cache, ..SymbolizerOptions::default() }));
    let finder = TypeFinder::new(symbolizer.clone());
    let module = ModuleRef { path: path.as_bytes(), build_id: &build_id };
    let mut typed = 0;
    for _ in 0..count {
        let mut stack = vec![(module, start + random.below(size))];
        stack.extend((1..PLACES).map(|_| (module, shared[random.index(SHARED)])));
        let sizes = SiteSizes::of_one(random.below(1000));
        typed += usize::from(finder.site_type(&stack, sizes).block.is_some());
    }
    let took = begin.elapsed();
    let problems = symbolizer.module_state(module).problems;
    drop(finder);
    drop(symbolizer);
    println!("{count} sites in {:.0} ms, {typed} have a type", took.as_secs_f64() * 1000.0);
    println!("until all is kept {:.0} ms, peak {} MiB", begin.elapsed().as_secs_f64() * 1000.0, peak_kib()? / 1024);
    problems.iter().for_each(|problem| println!("{problem}"));
    Ok(())
}

/// Returns `VmHWM`: the largest resident set so far, which includes the pages of mapped files.
fn peak_kib() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
