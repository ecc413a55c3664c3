use super::*;
use crate::arch::syscall;

#[test]
fn own_memory_is_read_up_to_what_is_not_there() {
    let here = [7_u64, 8, 9];
    let at = |index: usize| (&raw const here[index]) as u64;
    let mut words = [[0_u64; 1]; 4];
    assert_eq!(read_own_memory(&[at(0), at(2), 8, at(1)], &mut words), 2);
    assert_eq!(words[..2], [[7], [9]]);
    assert_eq!(read_own_memory(&[16], &mut words), 0);
    let mut pairs = [[0_u64; 2]; 2];
    assert_eq!(read_own_memory(&[at(1), at(0)], &mut pairs), 2);
    assert_eq!(pairs, [[8, 9], [7, 8]]);
}

#[test]
fn pieces_are_read_up_to_where_nothing_is() {
    const PAGE: usize = 4096;
    // No other thread can map anything where the guard is.
    let page = map_guarded(PAGE, false).unwrap();
    let at = |offset: usize| (page as usize + offset) as u64;
    // SAFETY: mapped above, and used below only by address.
    unsafe { page.add(PAGE - 8).cast::<u64>().write(7) };
    let mut words = [1_u64; 6];
    let pieces = [[at(PAGE - 8), 8], [at(PAGE - 16), 24], [at(0), 8]];
    // The range that extends past the end of the mapping is read up to that end.
    assert_eq!((read_own_pieces(&pieces, &mut words), words), (24, [7, 0, 7, 1, 1, 1]));
    assert_eq!(read_own_pieces(&pieces[..1], &mut words[..0]), 0);
    assert_eq!(read_own_pieces(&[[16, 8]], &mut words), 0);
    // SAFETY: `map_guarded` returned it for this length, and it is not used afterwards.
    unsafe { unmap_guarded(page, PAGE) };
}

#[test]
fn readable_means_readable() {
    let local = 1_u64;
    assert!(is_readable(&raw const local as usize));
    assert!(!is_readable(8));
    let page = map_private(4096).unwrap();
    assert!(is_readable(page as usize));
    // SAFETY: the page was mapped above and is not used afterwards.
    unsafe { unmap(page, 4096) };
    assert!(!is_readable(page as usize));
}

#[test]
fn a_helper_has_descriptors_of_its_own() {
    let mine = duplicate(1).unwrap();
    let theirs = with_descriptors(mine + 1, || (process_id(), thread_id(), duplicate(mine), map_private(4096)));
    let (process, thread, closed, page) = theirs.unwrap();
    assert_eq!((process, closed), (process_id(), Err(Errno(9))));
    // SAFETY: no argument of tgkill is a pointer. Signal 0 is not sent: the kernel only checks
    // whether the thread exists.
    assert_eq!(unsafe { syscall(nr::TGKILL, [process as usize, thread as usize, 0, 0, 0, 0]) }, -3);
    let page = page.unwrap();
    // SAFETY: mapped by the helper in the memory that we share.
    unsafe {
        page.write(1);
        unmap(page, 4096);
    }
    close(duplicate(mine).unwrap());
    close(mine);
}

#[test]
fn time_goes_forward() {
    let (before, ticks_before) = (monotonic_nanoseconds(), crate::arch::ticks());
    assert!(monotonic_nanoseconds() >= before && before > 0);
    assert!(crate::arch::ticks_after_loads() > ticks_before);
}
