use super::*;

#[test]
fn this_process_can_be_read() {
    let here = this_process_can_be_read as *const () as u64;
    let regions = read(std::process::id()).unwrap();
    let code = regions.iter().find(|region| region.range.contains(&here)).unwrap();
    assert_eq!(protection(code), Protection::from_bits(5));
    let program = std::env::current_exe().unwrap();
    let name = program.file_name().unwrap().as_encoded_bytes();
    assert!(has_name(std::process::id(), name) && !has_name(std::process::id(), b"/no such file"));
    assert_eq!((read(u32::MAX), has_name(u32::MAX, b"")), (None, false));
}
