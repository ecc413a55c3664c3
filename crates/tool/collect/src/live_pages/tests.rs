use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const BASE: u64 = 0x7f00_0000_0000;

fn block(address: u64, size: u64, site: u32, age_ms: u32) -> AgedBlock {
    AgedBlock { address: BASE + address, size, site, age_ms }
}

#[test]
fn blocks_on_pages() {
    // Two on the first page, one that goes on to the next, and one that fills two pages.
    let mut blocks = [
        block(4000, 100, 7, 5),
        block(0, 10, 3, UNKNOWN),
        block(100, 20, 9, 80),
        block(3 * PAGE - 1, 2 * PAGE + 2, 2, 0),
    ];
    let run = |page: u64, pages: u64, used: u16, blocks: u16, site: u32, age_ms: Option<u32>| LivePages {
        address: BASE + page * PAGE,
        pages,
        used,
        blocks,
        site,
        age_ms,
    };
    let expected = [
        run(0, 1, 126, 3, 7, Some(80)),
        run(1, 1, 4, 1, 7, Some(5)),
        run(2, 1, 1, 1, 2, Some(0)),
        run(3, 2, 4096, 1, 2, Some(0)),
        run(5, 1, 1, 1, 2, Some(0)),
    ];
    let pages = by_page(&mut blocks).unwrap();
    assert_eq!(pages, expected);
    assert_eq!(read(&write(&pages).unwrap()), Some(pages));
}

#[test]
fn ages_are_between_two_moments() {
    let second = |number: u64| Time(number * 1_000_000_000);
    let mut times = SerialTimes::default();
    times.add(100, second(1));
    times.add(300, second(2));
    // Serials from 100 to 300 were reached in the second second.
    assert_eq!(
        [0, 100, 200, 300, 400].map(|serial| times.age_ms(serial, 500, second(4))),
        [4000, 3000, 2500, 2000, 1000]
    );
    // Many moments become fewer, and the first stays.
    for moment in 3..100_000 {
        times.add(moment * 100, second(moment));
    }
    assert!(times.marks.len() <= MARKS_MAX && times.marks[0] == (100, second(1)), "{:?}", &times.marks[..2]);
    let age = times.age_ms(5_000_000, 10_000_000, second(100_000));
    assert!(age.abs_diff(50_000_000) <= 1000, "{age}");
}

proptest! {
    #[test]
    fn all_live_bytes_are_on_pages(blocks in vec((0..1_u64 << 16, 0..20_000_u64, 0..9_u32), 0..60)) {
        let mut blocks: Vec<AgedBlock> = blocks.into_iter().map(|(at, size, site)| block(at, size, site, site)).collect();
        let pages = by_page(&mut blocks).unwrap();
        // They are sorted now: the bytes of each that no one before has.
        let mut taken = 0;
        let mut bytes = 0;
        for block in &blocks {
            let end = block.address + block.size.max(1);
            bytes += end.saturating_sub(block.address.max(taken));
            taken = taken.max(end);
        }
        prop_assert_eq!(pages.iter().map(|run| run.pages * u64::from(run.used)).sum::<u64>(), bytes);
        prop_assert_eq!(read(&write(&pages).unwrap()), Some(pages));
    }

    #[test]
    fn other_bytes_are_refused_or_read(bytes in vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        if let Some(pages) = read(&[&MAGIC[..], &bytes].concat()) {
            prop_assert!(pages.windows(2).all(|pair| pair[0].address + pair[0].pages * PAGE <= pair[1].address));
        }
    }
}
