//! Reading them.

use crate::addresses::{addresses, counts, estimate, lines, text};
use crate::gather::Gather;
use crate::maps;
use crate::profile::{Amount, Known, Profile};
use crate::read_error::ReadError;

const MAGIC: &str = "heap profile:";

/// Whether a file begins as one.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC.as_bytes())
}

/// Reads a file.
///
/// # Errors
///
/// It is not such a file.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let text = text(bytes)?;
    let (stacks, libraries) = text.split_once("MAPPED_LIBRARIES:").unwrap_or((text, ""));
    let mut lines = lines(stacks);
    let kind = lines.next().and_then(|(_, line)| Some(line.strip_prefix(MAGIC)?.rsplit_once('@')?.1.trim()));
    let Some(mean) = kind.and_then(mean) else { return Err(ReadError::new(0, "no such kind of heap profile")) };
    let mut gather = Gather::default();
    gather.set_modules(maps::modules(libraries.lines()));
    gather.profile.sampling_bytes = (mean > 1).then_some(mean);
    let mut differ = false;
    for (offset, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = || ReadError::new(offset, "neither a stack nor what it holds");
        let (amounts, stack) = line.split_once('@').ok_or_else(wrong)?;
        let [live, allocated] = counts(amounts).ok_or_else(wrong)?;
        let stack: Vec<u64> = addresses(stack).ok_or_else(wrong)?;
        let stack = stack.into_iter().map(|address| gather.call(address)).collect();
        let amounts = gather.amounts(stack, Vec::new());
        amounts.live.add(estimate(live, mean));
        amounts.allocated.add(estimate(allocated, mean));
        differ |= allocated != live && allocated != Amount::default();
    }
    // Where they are equal everywhere they were not recorded, or nothing was freed: which of the two the file does not say.
    gather.profile.known = Known { live: true, allocated: differ, ..Known::default() };
    gather.profile.moment = "when the profile was taken".into();
    Ok(gather.profile)
}

/// The mean distance of sample points of this kind of profile; 1: everything is there.
fn mean(kind: &str) -> Option<u64> {
    match kind.split_once('/') {
        None => matches!(kind, "heapprofile" | "heap_v2" | "heap").then_some(1),
        Some(("heap_v2", rate)) => rate.parse().ok(),
        // Of the older kind the rate is twice the mean.
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
        // As google-pprof has it: 16 blocks of 64 KiB, by a mean of 512 KiB.
        let sampled = "heap profile: 16: 1048576 [16: 1048576] @ heap_v2/524288\n16: 1048576 [16: 1048576] @ 0x10\n";
        let profile = read(sampled.as_bytes()).unwrap();
        let bytes = profile.samples[0].amounts.live.bytes;
        assert_eq!((bytes * 100 + 524_288) / 1_048_576, 851, "{bytes}");
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
