use super::*;
use crate::snapshots::Captured;

fn page(number: u64, group: u32, used: u16) -> HeapPage {
    HeapPage { address: 0x10_0000 + number * PAGE, group, used, blocks: u16::from(used > 0) }
}

/// A heap of two groups: pages 0 to 3, and 1,000 to 1,002.
fn heap() -> HeapPages {
    let mut heap = HeapPages::new("a <test> allocator", "owner");
    heap.groups = vec!["cache".into(), "a & b".into()];
    heap.pages = vec![page(0, 0, 4096), page(1, 0, 0), page(2, 1, 1), page(3, 0, 2048)];
    heap.pages.extend([page(1000, 1, 4096), page(1001, 1, 3000), page(1002, 1, 100)]);
    heap
}

#[test]
fn each_page_is_a_cell_if_there_is_room() {
    let lines = Lines::of(&heap(), 40);
    assert_eq!((lines.scale, lines.more, lines.lines.len()), (1, 0, 2));
    let [first, second] = [&lines.lines[0], &lines.lines[1]];
    assert_eq!(first.text(level, false), "█_▁▄");
    assert_eq!(second.text(level, false).trim_start(), "█▆▁");
    assert_eq!(first.text(|cell| letter(cell.group), true), "\x1b[34maa\x1b[32mb\x1b[34ma\x1b[0m");
    assert!(lines.are_mixed());
}

/// Pages of several owners in a line have letters, which the table explains.
#[test]
fn owners_have_letters() {
    let printed = Captured::default();
    print(&heap(), "recording", 40, &mut Output::into(printed.clone())).unwrap();
    let text = String::from_utf8(printed.0.borrow().clone()).unwrap();
    assert!(text.starts_with("recording: 28.0 KiB resident in the heap of a <test> allocator, 13.0 KiB"), "{text}");
    assert!(text.contains(" a cache\n") && text.contains(" b a & b\n"), "{text}");
    assert!(text.contains("0x100000  █_▁▄\n") && text.contains("                aaba\n"), "{text}");
    assert!(text.ends_with("a character is 1 page\n"), "{text}");
}

#[test]
fn many_pages_share_a_cell_and_none_is_lost() {
    let heap = heap();
    for shown in 1..=2 {
        let lines = Lines::of(&heap, shown);
        let pages: u64 = lines.lines.iter().flat_map(|line| &line.cells).map(|cell| cell.pages).sum();
        assert_eq!((pages, lines.more), (7, 0), "{shown}");
        assert!(lines.lines.len() <= shown);
    }
    let mut far = heap;
    far.pages.push(HeapPage { address: 1 << 46, ..HeapPage::default() });
    let lines = Lines::of(&far, 1);
    assert_eq!((lines.scale, lines.lines.len(), lines.more), (SCALE_MAX, 1, 1));
}

#[test]
fn the_picture_has_all_cells_and_names_as_xml() {
    let mut text = Vec::new();
    draw(&heap(), "process 7", 40, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("1 B in use (&lt;1 %)") && !text.contains("(<"), "{text}");
    assert_eq!(text.matches("<title>").count(), 7);
    assert!(text.contains("a &amp; b: ") && text.contains("heap of a &lt;test> allocator"), "{text}");
    assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
}

#[test]
fn letters_are_those_of_groups() {
    assert_eq!([0, 1, 25, 26, u32::MAX].map(letter), ['a', 'b', 'z', 'z', 'z']);
}
