//! `random_addresses FILE [COUNT]`: measures the time and the memory for looking up random
//! addresses of the code of a file. Give it a large file with debug information; run it with
//! `--release`.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::time::Instant;

use heapledger_core::sample::Random;
use heapledger_symbols::{ModuleRef, Symbolizer, SymbolizerOptions};
use object::{Object, ObjectSection, ReadCache};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or("usage: random_addresses FILE [COUNT]")?;
    let count = arguments.next().map_or(Ok(100_000), |count| count.parse())?;
    let (start, size) = {
        // In pieces: reading all of it would count as memory of the lookups.
        let file = ReadCache::new(File::open(&path)?);
        let text = object::File::parse(&file)?;
        let text = text.section_by_name(".text").ok_or("no .text")?;
        (text.address(), text.size())
    };
    // Each run asks the same.
    let mut random = Random::new(1);

    let before = peak_kib()?;
    let symbolizer = Symbolizer::new(SymbolizerOptions::default());
    let module = ModuleRef { path: path.as_bytes(), build_id: b"" };
    let begin = Instant::now();
    symbolizer.frames(module, start);
    let first = begin.elapsed();
    let frames: usize = (0..count).map(|_| symbolizer.frames(module, start + random.below(size)).len()).sum();
    let all = begin.elapsed();

    let rate = f64::from(count) / (all - first).as_secs_f64();
    let state = symbolizer.module_state(module);
    println!("first address {first:.1?}, then {count} in {:.2?}: {rate:.0}/s", all - first);
    println!("{:.2} frames per address, {:?}", frames as f64 / f64::from(count), state.names);
    println!("peak {} MiB; before the first lookup {} MiB", peak_kib()? / 1024, before / 1024);
    state.problems.iter().for_each(|problem| println!("{problem}"));
    Ok(())
}

/// Returns `VmHWM`: the largest resident set so far, which includes the pages of mapped files.
fn peak_kib() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
