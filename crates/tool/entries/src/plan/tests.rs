use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

use super::*;
use crate::allocator::{Evidence, Family};

/// The address of the code in the modules below.
pub(crate) const AT: u64 = 0x40_1000;

/// Returns a module whose only segment is this code.
pub(crate) fn module(code: &[u8]) -> Module {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    bytes.extend([0_u64, 64, 0].map(u64::to_le_bytes).concat());
    bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    bytes.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let length = code.len() as u64;
    bytes.extend([120, AT, AT, length, length, 16].map(u64::to_le_bytes).concat());
    bytes.extend(code);
    Module::from_bytes(Path::new("module"), bytes).unwrap()
}

fn entry(kind: EntryKind, at: u64) -> Entry {
    Entry { name: "malloc".into(), kind, at, size: 0, evidence: Evidence::SymbolTable, is_exported: false }
}

fn allocator(entries: Vec<Entry>) -> Allocator {
    Allocator { family: Family::Malloc, prefix: String::new(), entries }
}

/// Returns the patch of the entry at the beginning of this code, or why there is none.
fn planned(code: &[u8]) -> Result<Patch, Refusal> {
    let mut plan = plan(&module(code), &allocator(vec![entry(EntryKind::Malloc, AT)]));
    match plan.patches.pop() {
        Some(patch) => Ok(patch),
        None => Err(plan.refused[0].reason),
    }
}

/// Returns the instructions of a trampoline, and the number of its bytes that they are.
fn decoded(code: &[u8], at: u64) -> Vec<Instruction> {
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let mut instructions = vec![];
    while decoder.can_decode() {
        let instruction = decoder.decode();
        assert!(!instruction.is_invalid());
        instructions.push(instruction);
        if instruction.mnemonic() == Mnemonic::Jmp {
            break;
        }
    }
    instructions
}

/// Reads the address at an address of a trampoline.
fn address_at(code: &[u8], at: u64, address: u64) -> u64 {
    let offset = (address - at) as usize;
    u64::from_le_bytes(code[offset..offset + 8].try_into().unwrap())
}

#[test]
fn whole_instructions_are_displaced() {
    // push rbp; mov rbp, rsp; sub rsp, 16; ret
    let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc3];
    let patch = planned(&code).unwrap();
    assert_eq!((patch.at, &patch.displaced[..]), (AT, &code[..8]));
    let with_endbr = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &code].concat();
    let patch = planned(&with_endbr).unwrap();
    assert_eq!((patch.at, &patch.displaced[..]), (AT + 4, &code[..8]));
}

#[test]
fn what_cannot_be_patched_is_refused() {
    assert_eq!(planned(&[0xcc, 0x90, 0x90, 0x90, 0x90, 0x90]), Err(Refusal::Patched));
    // ret; push rax: another function begins too early.
    assert_eq!(planned(&[0xc3, 0x50, 0x50, 0x50, 0x50, 0x50]), Err(Refusal::TooShort));
    assert_eq!(planned(&[0xc3, 0x90]), Err(Refusal::TooShort));
    assert_eq!(planned(&[0x06, 0x90, 0x90, 0x90, 0x90]), Err(Refusal::Undecodable));
    // nop; jmp to the nop; and a loop to the second instruction from behind.
    assert_eq!(planned(&[0x90, 0xeb, 0xfd, 0x90, 0x90, 0x90]), Err(Refusal::BranchTarget));
    assert_eq!(planned(&[0x90, 0x90, 0x90, 0x90, 0x90, 0x50, 0x75, 0xf9, 0xc3]), Err(Refusal::BranchTarget));
    // The same from another function, with four bytes of displacement.
    let mut far = [0x90; 64];
    far[40] = 0xe9;
    far[41..45].copy_from_slice(&(2_i32 - 45).to_le_bytes());
    assert_eq!(planned(&far), Err(Refusal::BranchTarget));
    far[41..45].copy_from_slice(&(-45_i32).to_le_bytes());
    assert!(planned(&far).is_ok(), "a branch to the first byte finds the jump");
    far[40] = 0xe8;
    far[41..45].copy_from_slice(&(4_i32 - 45).to_le_bytes());
    assert_eq!(planned(&far), Err(Refusal::BranchTarget), "a call counts, too");
    // Another entry begins inside of the first.
    let both =
        plan(&module(&[0x90; 32]), &allocator(vec![entry(EntryKind::Malloc, AT), entry(EntryKind::Free, AT + 3)]));
    assert_eq!(both.refused, [Refused { entry: entry(EntryKind::Malloc, AT), reason: Refusal::BranchTarget }]);
    let outside = plan(&module(&[0x90; 8]), &allocator(vec![entry(EntryKind::Free, 0x10)]));
    assert_eq!(outside.refused[0].reason, Refusal::NoCode);
}

#[test]
fn short_functions_end_in_their_padding() {
    let patch = planned(&[0xc3, 0x66, 0x90, 0xcc, 0xcc, 0xcc]).unwrap();
    assert_eq!(relocate(&patch, AT, AT + 0x1000).unwrap(), [0xc3]);
}

#[test]
fn displaced_instructions_do_the_same_elsewhere() {
    let (from, to) = (0x5555_5540_1000_u64, 0x5555_4000_0000_u64);
    // mov rax, [rip + 0x100]; then jump back.
    let patch = planned(&[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0xc3]).unwrap();
    let code = relocate(&patch, from, to).unwrap();
    let instructions = decoded(&code, to);
    assert_eq!(instructions[0].ip_rel_memory_address(), from + 7 + 0x100);
    assert_eq!(instructions[1].near_branch64(), from + 7);
    // test edi, edi; je over the next function's beginning: becomes a long branch.
    let patch = planned(&[0x85, 0xff, 0x74, 0x20, 0x50, 0xc3]).unwrap();
    let code = relocate(&patch, from, to).unwrap();
    assert_eq!(decoded(&code, to)[1].near_branch64(), from + 4 + 0x20);
    // jmp rel32: the whole of a function that calls another one last.
    let patch = planned(&[0xe9, 0, 1, 0, 0]).unwrap();
    let code = relocate(&patch, from, to).unwrap();
    assert_eq!(decoded(&code, to)[0].near_branch64(), from + 5 + 0x100);
    // Too far for a displacement: push rbp; mov rbp, rsp; push rbx; then a jump by an address.
    let patch = planned(&[0x55, 0x48, 0x89, 0xe5, 0x53, 0xc3]).unwrap();
    let code = relocate(&patch, from, 0x1000).unwrap();
    let instructions = decoded(&code, 0x1000);
    assert_eq!(address_at(&code, 0x1000, instructions[3].ip_rel_memory_address()), from + 5);
    // Too far for a memory operand.
    let patch = planned(&[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0xc3]).unwrap();
    assert_eq!(relocate(&patch, from, 0x1000), Err(Refusal::Immovable));
}

#[test]
fn a_displaced_call_returns_to_the_original() {
    let (from, to) = (0x5555_5540_1000_u64, 0x5555_4000_0000_u64);
    // push rax; call rel32; pop rcx; ret
    let patch = planned(&[0x50, 0xe8, 0x10, 0, 0, 0, 0x59, 0xc3]).unwrap();
    let code = relocate(&patch, from, to).unwrap();
    let instructions = decoded(&code, to);
    assert_eq!(instructions[1].mnemonic(), Mnemonic::Push);
    assert_eq!(address_at(&code, to, instructions[1].ip_rel_memory_address()), from + 6);
    assert_eq!(instructions[2].near_branch64(), from + 6 + 0x10);
    // call [rip + 0x10]
    let patch = planned(&[0xff, 0x15, 0x10, 0, 0, 0, 0xc3]).unwrap();
    let code = relocate(&patch, from, to).unwrap();
    let instructions = decoded(&code, to);
    assert_eq!(address_at(&code, to, instructions[0].ip_rel_memory_address()), from + 6);
    assert_eq!(instructions[1].mnemonic(), Mnemonic::Jmp);
    assert_eq!(instructions[1].ip_rel_memory_address(), from + 6 + 0x10);
    // call rax, which is not the last instruction that is displaced.
    assert_eq!(planned(&[0xff, 0xd0, 0x48, 0x89, 0xc3, 0xc3]), Err(Refusal::Immovable));
    // call [rsp + 8]
    assert_eq!(planned(&[0x90, 0xff, 0x54, 0x24, 0x08, 0xc3]), Err(Refusal::Immovable));
}

#[test]
fn throwing_entries_need_a_sibling() {
    let code = [0x90; 128];
    let module = module(&code);
    let new = entry(EntryKind::New, AT);
    let alone = plan(&module, &allocator(vec![new.clone()]));
    assert_eq!(alone.refused, [Refused { entry: new.clone(), reason: Refusal::NoNothrowSibling }]);
    let malloc = entry(EntryKind::Malloc, AT + 16);
    let nothrow = entry(EntryKind::NewNothrow, AT + 32);
    let with_malloc = plan(&module, &allocator(vec![new.clone(), malloc.clone()]));
    assert_eq!(with_malloc.refused, [Refused { entry: new.clone(), reason: Refusal::NoNothrowSibling }]);
    let whole = plan(&module, &allocator(vec![new, malloc.clone(), nothrow]));
    assert_eq!(whole.refused, []);
    assert_eq!(whole.nothrow_sibling(EntryKind::New).map(|patch| patch.at), Some(AT + 32));
    assert_eq!(plan(&module, &allocator(vec![malloc])).nothrow_sibling(EntryKind::Malloc), None);
}

/// `mi_new_n` and its like have no nothrow form, and `mi_ucalloc` takes a place to write to.
#[test]
fn throwing_entries_of_mimalloc_are_left_alone() {
    let module = module(&[0x90; 256]);
    let others = [EntryKind::Calloc, EntryKind::Realloc, EntryKind::Reallocarray];
    let arenas = [EntryKind::ArenaMalloc, EntryKind::ArenaCalloc];
    let throwing =
        [EntryKind::NewN, EntryKind::NewRealloc, EntryKind::NewReallocn, EntryKind::ArenaNew, EntryKind::ArenaNewN];
    let kinds = others.into_iter().chain(arenas).chain(throwing);
    let entries = kinds.zip(0..).map(|(kind, index)| entry(kind, AT + 16 * index)).collect();
    let plan = plan(&module, &allocator(entries));
    let refused: Vec<_> = plan.refused.iter().map(|refused| (refused.entry.kind, refused.reason)).collect();
    assert_eq!(refused, throwing.map(|kind| (kind, Refusal::NoNothrowSibling)));
}

#[test]
fn entries_that_only_ask_are_left_alone() {
    let plan = plan(&module(&[0x90; 16]), &allocator(vec![entry(EntryKind::UsableSize, AT)]));
    assert_eq!(plan, Plan::default());
}
