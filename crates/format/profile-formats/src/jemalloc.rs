//! The heap profiles of jemalloc (`prof:true`): text, with the addresses of sampled blocks' stacks.
//!
//! ```text
//! heap_v2/524288
//!   t*: 28106: 56637512 [0: 0]
//!   t3: 352: 16777344 [0: 0]
//! @ 0x5f86da8 0x5f5a1dc [...]
//!   t*: 13: 6688 [0: 0]
//!   t3: 12: 6496 [0: 0]
//!
//! MAPPED_LIBRARIES:
//! ```
//!
//! Numbers are those of the sample, of which amounts are estimates.

use crate::addresses::{addresses, counts, estimate, lines, text};
use crate::gather::Gather;
use crate::maps;
use crate::profile::{Known, Profile};
use crate::read_error::ReadError;

const MAGIC: &str = "heap_v2/";

/// True if a file begins as one of jemalloc.
pub fn detects(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC.as_bytes())
}

/// Reads a file.
///
/// # Errors
///
/// Fails if it is not such a file.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let text = text(bytes)?;
    let (stacks, libraries) = text.split_once("MAPPED_LIBRARIES:").unwrap_or((text, ""));
    let mut lines = lines(stacks);
    let first = lines.next().and_then(|(_, line)| line.strip_prefix(MAGIC)?.trim().parse().ok());
    let Some(mean) = first else { return Err(ReadError::new(0, "no mean distance of samples")) };
    let mut gather = Gather::default();
    gather.set_modules(maps::modules(libraries.lines()));
    gather.profile.sampling_bytes = Some(mean);
    let mut stack = None;
    let mut has_allocated = false;
    for (offset, line) in lines {
        let line = line.trim();
        if let Some(list) = line.strip_prefix('@') {
            let addresses = addresses(list).ok_or_else(|| ReadError::new(offset, "not a list of addresses"))?;
            stack = Some(addresses.into_iter().map(|address| gather.call(address)).collect::<Vec<_>>());
            continue;
        }
        let Some((thread, amounts)) = line.split_once(':').filter(|(thread, _)| thread.starts_with('t')) else {
            if line.is_empty() {
                continue;
            }
            return Err(ReadError::new(offset, "neither a stack nor what it holds"));
        };
        let [live, allocated] = counts(amounts).ok_or_else(|| ReadError::new(offset, "no amounts"))?;
        // Before the first stack these are totals; and the amounts of single threads are contained
        // in those of all.
        let Some(stack) = stack.as_ref().filter(|_| thread == "t*") else { continue };
        let amounts = gather.amounts(stack.clone(), Vec::new());
        amounts.live.add(estimate(live, mean));
        amounts.allocated.add(estimate(allocated, mean));
        has_allocated |= allocated.blocks > 0;
    }
    gather.profile.known = Known { live: true, allocated: has_allocated, ..Known::default() };
    gather.profile.moment = "when the profile was taken".into();
    Ok(gather.profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Amount;

    const FILE: &str = "heap_v2/524288\n  t*: 3: 1048704 [0: 0]\n  t0: 3: 1048704 [0: 0]\n@ 0x1001 0x2001\n  t*: 1: 1048576 [0: 0]\n  \
        t0: 1: 1048576 [0: 0]\n@ 0x1001\n  t*: 2: 128 [0: 0]\n\nMAPPED_LIBRARIES:\n1000-1800 r-xp 0 08:01 1 /bin/a\n";

    #[test]
    fn samples_stand_for_what_they_stand_for() {
        let profile = read(FILE.as_bytes()).unwrap();
        assert_eq!(profile.samples.len(), 2);
        let [large, small] = [0, 1].map(|at| profile.samples[at].amounts.live);
        // 1 / (1 - exp(-2)) = 1.1565; 1 / (1 - exp(-64 / 524288)) = 8192.5.
        assert_eq!(large, Amount { blocks: 1, bytes: 1_212_697 });
        assert_eq!(small, Amount { blocks: 16_385, bytes: 1_048_640 });
        assert!(!profile.known.allocated && profile.known.live);
        assert_eq!(profile.locations[0].module, Some(0));
        assert_eq!((profile.locations[0].address, profile.locations[1].module), (0x1000, None));
    }

    #[test]
    fn damage_is_told() {
        for (text, offset) in
            [("heap_v2/x", 0), ("heap_v2/1\n@ 0xzz", 10), ("heap_v2/1\n t*: 1 [", 10), ("heap_v2/1\nwhat", 10)]
        {
            assert_eq!(read(text.as_bytes()).unwrap_err().offset, offset, "{text}");
        }
        assert_eq!(read(b"heap_v2/1\n\xff").unwrap_err().offset, 10);
    }
}
