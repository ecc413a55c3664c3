//! Damaged input for tests of readers.

use heapledger_core::sample::Random;

/// Calls `body` with 20,000 versions of a message with three bytes changed, which its checksum
/// would not show.
pub(crate) fn for_each_damaged(message: &[u8], mut body: impl FnMut(&[u8])) {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut bad = message.to_vec();
        random.damage(&mut bad, 3);
        body(&bad);
    }
}

/// Replaces, removes or inserts characters of a text, `changes` times. Returns the text and the
/// place of the last change.
pub(crate) fn damaged_text(sample: &str, changes: usize, random: &mut Random) -> (String, usize) {
    let mut text: Vec<char> = sample.chars().collect();
    let mut at = 0;
    for _ in 0..changes {
        at = random.index(text.len());
        let other = random.index(text.len());
        match random.below(4) {
            0 => text[at] = text[other],
            1 => _ = text.remove(at),
            _ => text.insert(at, text[other]),
        }
    }
    (text.into_iter().collect(), at)
}
