use super::*;
use crate::testing::{Computed, Counted};

const START: u64 = 0x10_0000;
const PAGES: u64 = 200;

/// Returns memory whose words are their own addresses, without a page that has gone.
fn memory_without(gone: Option<u64>) -> Counted<impl Memory> {
    let fill = move |address: u64, buffer: &mut [u8]| {
        (address..).step_by(8).zip(buffer.chunks_exact_mut(8)).for_each(|(at, word)| {
            word.copy_from_slice(&at.to_le_bytes());
        });
        let end = address + buffer.len() as u64;
        !gone.is_some_and(|gone| address < gone + PAGE && gone < end)
    };
    Counted::new(Computed(fill), u64::MAX)
}

fn pages() -> PresentPages {
    let mut pages = PresentPages::default();
    pages.push(START..START + PAGES * PAGE);
    pages
}

/// Reads a word at each step, and returns the calls and the bytes that it took.
fn read_by(step: u64) -> [u64; 2] {
    let (memory, pages) = (memory_without(None), pages());
    let mut reader = WordReader::new(&memory, &pages);
    for at in (START + 8..START + PAGES * PAGE).step_by(step as usize) {
        assert_eq!(reader.word(at), Some(at));
    }
    memory.counts()
}

#[test]
fn neighbours_are_read_at_once_and_distant_words_alone() {
    let [calls, bytes] = read_by(208);
    assert!(calls <= 10 && bytes <= PAGES * PAGE + 6 * 64, "{calls} {bytes}");
    // A chunk for every two pages: reading all is faster.
    let [calls, _] = read_by(2 * PAGE);
    assert!(calls <= 12, "{calls}");
    let [calls, bytes] = read_by(8 * PAGE);
    assert_eq!([calls, bytes], [PAGES / 8, PAGES / 8 * SMALL]);
}

#[test]
fn what_is_not_there_is_not_read() {
    let (memory, mut pages) = (memory_without(None), pages());
    pages.push(START + 2 * PAGES * PAGE..START + 3 * PAGES * PAGE);
    let mut reader = WordReader::new(&memory, &pages);
    let hole = START + PAGES * PAGE;
    assert_eq!(reader.word(hole - 8), Some(hole - 8));
    assert_eq!([hole, hole + PAGE, 0, u64::MAX - 7].map(|at| reader.word(at)), [None; 4]);
    assert_eq!(reader.word(START + 4), None);
    assert_eq!(reader.word(hole + PAGES * PAGE), Some(hole + PAGES * PAGE));
    assert_eq!(memory.counts()[0], 3);
}

#[test]
fn a_page_that_has_gone_does_not_hide_those_before_it() {
    let (memory, pages) = (memory_without(Some(START + 10 * PAGE)), pages());
    let mut reader = WordReader::new(&memory, &pages);
    for at in (START..START + 20 * PAGE).step_by(512) {
        let is_gone = (START + 10 * PAGE..START + 11 * PAGE).contains(&at);
        assert_eq!(reader.word(at), (!is_gone).then_some(at), "{at:#x}");
    }
}
