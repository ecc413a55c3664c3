//! The marks of memory reporters between events.

use heapledger_core::{Bytes, Serial, StackId};
use heapledger_recording::*;
use proptest::prelude::*;

use crate::events::{draft, events, is_row};
use crate::generate::{number, stack};
use crate::{FOOTER, file};

/// Returns a mark on anything that can have one before the next serial.
fn mark((choice, back, address, by, measured): (u8, u64, u64, StackId, u64), next: u64, time: Time) -> Mark {
    let (is_kept, measured) = (choice & 8 != 0, Bytes(measured));
    let reported = |what| Mark::Reported { what, by, is_kept, measured };
    match (choice % 7, next.checked_sub(1).map(|last| Serial(last - back % next))) {
        (0, Some(block)) => reported(Reported::Block(block)),
        (1, Some(block)) => reported(Reported::Inside { block, address }),
        (2, _) => reported(Reported::Nothing { address }),
        (3, _) => reported(Reported::NotHeap { address }),
        (4, Some(block)) => Mark::Removed { block, by },
        (5, _) => Mark::Cleared,
        _ => Mark::Complete { time },
    }
}

proptest! {
    #[test]
    fn marks_keep_their_positions(
        drafts in prop::collection::vec(draft(), 1..60),
        marks in prop::collection::vec((0usize..61, (any::<u8>(), number(), any::<u64>(), stack(), number())), 0..80),
        cut in 1usize..20,
    ) {
        let events = events(&drafts);
        let mut encoder = EventsEncoder::new(ImageId(0));
        let mut compressor = Compressor::new();
        let mut chunks = Vec::new();
        let mut expected = Vec::new();
        for (index, (event, extras, live)) in events.iter().enumerate() {
            encoder.push(event, extras, *live).unwrap();
            for (_, mark_of) in marks.iter().filter(|(at, _)| *at == index) {
                let mark = mark(*mark_of, encoder.next_serial().0, event.time);
                encoder.push_mark(event.time, &mark).unwrap();
                expected.push((index + 1, mark));
            }
            if index % cut == cut - 1 {
                chunks.extend(encoder.finish(&mut compressor));
            }
        }
        // A chunk with only marks.
        encoder.push_mark(Time(0), &Mark::Cleared).unwrap();
        expected.push((events.len(), Mark::Cleared));
        chunks.extend(encoder.finish(&mut compressor));
        let late = Mark::Removed { block: encoder.next_serial(), by: StackId::ROOT };
        prop_assert!(encoder.push_mark(Time(0), &late).is_err());
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.verify(), []);
        let (mut buffer, mut before, mut found) = (EventsBuffer::default(), 0, Vec::new());
        for chunk in recording.event_chunks(ImageId(0)) {
            let decoded = chunk.decode(&mut buffer).unwrap();
            prop_assert_eq!(decoded.marks().len(), chunk.head().marks as usize);
            found.extend(decoded.marks().iter().map(|(at, mark)| (before + *at as usize, *mark)));
            before += decoded.as_slice().len();
        }
        // The order of moves and marks at the same place is not defined.
        let is_move = |index: usize| events.get(index).is_some_and(|event| !is_row(event));
        let rows_end = |at: usize| (at..).find(|&index| !is_move(index)).unwrap_or(at);
        let placed = |marks: &[(usize, Mark)]| marks.iter().map(|&(at, mark)| (rows_end(at), mark)).collect::<Vec<_>>();
        prop_assert_eq!(placed(&found), placed(&expected));
    }
}

/// Two marks of a block count, until it is freed or they are cleared; permanent ones stay, and move
/// up.
#[test]
fn the_first_two_marks_of_a_block_count() {
    let report = |serial, by, is_kept| Mark::Reported {
        what: Reported::Block(Serial(serial)),
        by: StackId(by),
        is_kept,
        measured: Bytes(0),
    };
    let mut marked = MarkedBlocks::default();
    let apply = |marked: &mut MarkedBlocks, mark| marked.apply(&mark, |one, other| one == other);
    let who = |marked: &MarkedBlocks, serial| marked.of(Serial(serial)).map(|mark| mark.map(|mark| mark.by.0));
    for (by, is_kept) in [(1, false), (2, true), (3, true)] {
        apply(&mut marked, report(7, by, is_kept));
    }
    apply(&mut marked, report(8, 1, false));
    assert_eq!((who(&marked, 7), who(&marked, 8)), ([Some(1), Some(2)], [Some(1), None]));
    apply(&mut marked, Mark::Cleared);
    assert_eq!((who(&marked, 7), who(&marked, 8), marked.is_collecting()), ([Some(2), None], [None, None], true));
    apply(&mut marked, report(7, 4, false));
    let again = marked.as_marks();
    assert_eq!(again, [Mark::Cleared, report(7, 2, true), report(7, 4, false)]);
    // A mark that is not there any more, or is another reporter's, is not taken back.
    for by in [4, 9, 2] {
        apply(&mut marked, Mark::Removed { block: Serial(7), by: StackId(by) });
    }
    apply(&mut marked, Mark::Complete { time: Time(3) });
    assert_eq!((who(&marked, 7), marked.is_collecting()), ([Some(4), None], false));
    assert_eq!(marked.free(Serial(7)).unwrap()[0].unwrap().by, StackId(4));
    assert!(marked.is_empty() && marked.free(Serial(7)).is_none());
}
