use super::*;

const TOO_MUCH: usize = isize::MAX as usize - 4096;

#[test]
fn what_can_be_had_is_as_the_standard_library_makes_it() {
    let mut vec = try_vec(3).unwrap();
    assert!(vec.capacity() >= 3);
    for number in 0..100 {
        try_push(&mut vec, number).unwrap();
    }
    try_extend(&mut vec, &[100, 101]).unwrap();
    assert_eq!(vec, (0..102).collect::<Vec<_>>());
    let mut string = try_string("heap").unwrap();
    try_push_str(&mut string, "ledger").unwrap();
    assert_eq!(string, "heapledger");
    assert_eq!(*try_slice(&[1, 2, 3]).unwrap(), [1, 2, 3]);
    assert_eq!(*try_box([7_u64; 100]).unwrap(), [7; 100]);
    try_box(()).unwrap();
    assert_eq!(*try_zeroed(1000).unwrap(), [0; 1000]);
    assert!(try_zeroed(0).unwrap().is_empty());
}

#[test]
fn what_cannot_be_had_is_an_error_with_its_size() {
    assert_eq!(try_vec::<u8>(TOO_MUCH), Err(OutOfMemory { size: TOO_MUCH }));
    assert_eq!(try_vec::<u64>(TOO_MUCH), Err(OutOfMemory { size: usize::MAX }));
    assert_eq!(try_zeroed(TOO_MUCH), Err(OutOfMemory { size: TOO_MUCH }));
    assert_eq!(try_zeroed(usize::MAX), Err(OutOfMemory { size: usize::MAX }));
    let error = OutOfMemory { size: 4096 };
    assert_eq!(error.to_string(), "out of memory: 0x0000000000001000 bytes requested");
}
