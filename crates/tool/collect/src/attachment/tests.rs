use super::*;

#[test]
fn the_first_stack_is_known() {
    let top = first_stack_top(std::process::id()).expect("it is this process");
    let memory = Memory::open(std::process::id()).expect("it is this process");
    let mappings = memory.mappings().expect("it is this process");
    let stack = mappings.iter().find(|mapping| mapping.name == "[stack]").expect("every process has one");
    assert!(stack.range.contains(&top));
    // The word there is the number of arguments.
    let mut word = [0; 8];
    memory.read(top, &mut word).expect("it is mapped");
    assert_eq!(u64::from_ne_bytes(word), std::env::args_os().count() as u64);
}
