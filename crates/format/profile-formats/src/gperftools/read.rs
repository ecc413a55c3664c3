//! Reading gperftools' files.

use std::collections::HashMap;

use crate::addresses::{addresses, counts, estimate, lines, text};
use crate::gather::Gather;
use crate::maps;
use crate::profile::{Amount, Frame, Known, Profile};
use crate::read_error::ReadError;

const MAGIC: &str = "heap profile:";

/// True if a file begins as one of gperftools.
pub fn detects(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC.as_bytes())
}

/// The most functions that are kept for one address, of which all but the last are inlined.
const FRAMES_MAX: usize = 64;

/// Reads a file of gperftools, of tcmalloc's sampler, or Go's text (`/debug/pprof/heap?debug=1`),
/// which also has names.
///
/// # Errors
///
/// Fails if it is not such a file.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let text = text(bytes)?;
    let (stacks, libraries) = text.split_once("MAPPED_LIBRARIES:").unwrap_or((text, ""));
    let mut lines = lines(stacks);
    let kind = lines.next().and_then(|(_, line)| Some(line.strip_prefix(MAGIC)?.rsplit_once('@')?.1.trim()));
    let Some(mean) = kind.and_then(mean) else { return Err(ReadError::new(0, "no such kind of heap profile")) };
    let mut gather = Gather::default();
    gather.set_modules(maps::modules(libraries.lines()));
    gather.profile.sampling_bytes = (mean > 1).then_some(mean);
    let names = names(stacks);
    let mut differ = false;
    for (offset, line) in lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#')) {
        let wrong = || ReadError::new(offset, "neither a stack nor what it holds");
        let (amounts, stack) = line.split_once('@').ok_or_else(wrong)?;
        let [live, allocated] = counts(amounts).ok_or_else(wrong)?;
        let stack: Vec<u64> = addresses(stack).ok_or_else(wrong)?;
        let stack = stack.into_iter().map(|address| gather.named_call(address, &names)).collect();
        let amounts = gather.amounts(stack, Vec::new());
        amounts.live.add(estimate(live, mean));
        amounts.allocated.add(estimate(allocated, mean));
        differ |= allocated != live && allocated != Amount::default();
    }
    // If the live and the allocated amounts are equal everywhere, either the latter were not
    // recorded, or nothing was freed: the file does not tell which.
    gather.profile.known = Known { live: true, allocated: differ, ..Known::default() };
    gather.profile.moment = "when the profile was taken".into();
    Ok(gather.profile)
}

/// Returns the functions at the addresses of calls, the innermost first: Go writes them below each
/// stack.
fn names(stacks: &str) -> HashMap<u64, Vec<Frame>> {
    let mut names: HashMap<u64, Vec<Frame>> = HashMap::new();
    for (address, frame) in stacks.lines().filter_map(|line| named(line.strip_prefix("#\t")?)) {
        let frames = names.entry(address).or_default();
        if frames.len() < FRAMES_MAX && !frames.contains(&frame) {
            frames.push(frame);
        }
    }
    names
}

/// Reads `0x4b3c0e  main.keep+0x2e  /src/main.go:12`, with tabs between.
fn named(line: &str) -> Option<(u64, Frame)> {
    let mut words = line.split('\t').filter(|word| !word.is_empty());
    let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let (function, _) = words.next()?.rsplit_once('+')?;
    let (file, line) = words.next()?.rsplit_once(':')?;
    let frame = Frame {
        function: function.into(),
        full_name: function.into(),
        known: true,
        file: file.into(),
        line: line.parse().ok()?,
    };
    Some((address, frame))
}

/// Returns the mean distance of sample points for this kind of profile; 1: all blocks are recorded.
fn mean(kind: &str) -> Option<u64> {
    match kind.split_once('/') {
        None => matches!(kind, "heapprofile" | "heap_v2" | "heap").then_some(1),
        Some(("heap_v2", rate)) => rate.parse().ok(),
        // In the older kind the rate is twice the mean.
        Some(("heap", rate)) => rate.parse::<u64>().ok().map(|rate| (rate / 2).max(1)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_and_sampled() {
        let exact = "heap profile:      3:      192 [     5:      320] @ heapprofile\n     2:      128 [     4:      256] @ 0x10 0x20\n\
            1: 64 [1: 64] @ 0x30\n\nMAPPED_LIBRARIES:\n";
        let profile = read(exact.as_bytes()).unwrap();
        assert_eq!(profile.samples[0].amounts.allocated, Amount { blocks: 4, bytes: 256 });
        assert_eq!(profile.samples[1].amounts.live, Amount { blocks: 1, bytes: 64 });
        assert_eq!((profile.known.allocated, profile.sampling_bytes), (true, None));
        // The example of google-pprof: 16 blocks of 64 KiB, with a mean of 512 KiB.
        let sampled = "heap profile: 16: 1048576 [16: 1048576] @ heap_v2/524288\n16: 1048576 [16: 1048576] @ 0x10\n";
        let profile = read(sampled.as_bytes()).unwrap();
        let bytes = profile.samples[0].amounts.live.bytes;
        assert_eq!((bytes * 100 + 524_288) / 1_048_576, 851, "{bytes}");
    }

    #[test]
    fn go_has_names() {
        let file = "heap profile: 3: 48 [3: 48] @ heap/2\n2: 32 [2: 32] @ 0x11 0x21\n#\t0x10\tmain.(*T).keep+0x2e\t\t/src/a b.go:12\n\
            #\t0x20\tmain.main+0x35\t/src/a b.go:20\n\n1: 16 [1: 16] @ 0x21 0x31\n#\t0x20\tmain.main+0x35\t/src/a b.go:20\n\n\
            # runtime.MemStats\n# Alloc = 5\n";
        let profile = read(file.as_bytes()).unwrap();
        assert_eq!((profile.samples.len(), profile.sampling_bytes), (2, None));
        let shown: Vec<_> = profile.locations.iter().map(|location| (location.address, &*location.frames)).collect();
        let frame = |function: &str, line| Frame {
            function: function.into(),
            full_name: function.into(),
            known: true,
            file: "/src/a b.go".into(),
            line,
        };
        let expected = [(0x10, &[frame("main.(*T).keep", 12)][..]), (0x20, &[frame("main.main", 20)]), (0x30, &[])];
        assert_eq!(shown, expected);
    }

    #[test]
    fn damage_is_told() {
        for (text, offset) in [
            ("heap profile:", 0),
            ("heap profile: 1: 2 [3: 4] @ growth/1", 0),
            ("heap profile: 1: 2 [3: 4] @ heapprofile\n1: 2 [3: 4]", 40),
            ("heap profile: 1: 2 [3: 4] @ heapprofile\n1: 2 [3: 4] @ zz", 40),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap_err().offset, offset, "{text}");
        }
    }
}
