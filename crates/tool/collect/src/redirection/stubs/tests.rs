use heapledger_entries::{Entry, Evidence, Refusal, Refused};

use super::*;

/// The bias of the module, and the place of the stubs.
const BIAS: u64 = 0x5555_5000_0000;
const AT: u64 = 0x5555_4000_0000;

fn entry(kind: EntryKind, at: u64) -> Entry {
    Entry { name: String::new(), kind, at, size: 16, evidence: Evidence::SymbolTable, is_exported: false }
}

/// Returns a patch that displaces `push rbp; mov rbp, rsp; push rbx`.
fn patch(kind: EntryKind, at: u64) -> Patch {
    Patch { entry: entry(kind, at), at, displaced: vec![0x55, 0x48, 0x89, 0xe5, 0x53], clobbers_all: false }
}

fn word(code: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(code[at..at + 8].try_into().unwrap())
}

/// Returns the place of the site that the stub at this offset loads the address of.
fn site_of(code: &[u8], stub: usize) -> usize {
    let distance = u32::from_le_bytes(code[stub + 5..stub + 9].try_into().unwrap());
    stub + 9 + distance as usize
}

#[test]
fn a_plan_without_entries_has_no_stubs() {
    let plan = Plan::default();
    let (code, jumps) = Stubs::new(&plan, 0, 0x1234, Library::Preload).place(0x10_0000, 0);
    assert_eq!(code.len(), HEAD);
    assert_eq!(code[..16], [0x1234_u64, 0x1334].map(u64::to_le_bytes).concat());
    assert!(jumps.is_empty());
}

#[test]
fn a_site_has_the_addresses_of_its_stub() {
    let plan =
        Plan { patches: vec![patch(EntryKind::Malloc, 0x1000), patch(EntryKind::Free, 0x2000)], refused: vec![] };
    let (code, jumps) = Stubs::new(&plan, BIAS, 0x1234, Library::Preload).place(AT, 0x77);
    assert_eq!(jumps.iter().map(|jump| jump.address).collect::<Vec<_>>(), [BIAS + 0x1000, BIAS + 0x2000]);
    let site = site_of(&code, HEAD);
    assert_eq!(word(&code, site), AT + HEAD as u64 + 15);
    assert_eq!(word(&code, site + 8), AT + HEAD as u64 + 17);
    assert_eq!((word(&code, site + 16), word(&code, site + 24)), (0, 0x77));
    assert_eq!(code[site + 32], EntryKind::Malloc.number());
}

/// An entry that changes all registers has the thunk of its kind, and a stub that pushes nothing: a
/// call goes on in the original with the stack as it was.
#[test]
fn an_entry_that_changes_all_registers_has_the_thunk_of_its_kind() {
    let kinds = [EntryKind::Malloc, EntryKind::Delete, EntryKind::Valloc];
    for (kind, thunk) in kinds.into_iter().zip([Thunk::Malloc, Thunk::Free, Thunk::Other]) {
        let plan = Plan { patches: vec![Patch { clobbers_all: true, ..patch(kind, 0x1000) }], refused: vec![] };
        let (code, jumps) = Stubs::new(&plan, BIAS, 0x1000, Library::Preload).place(AT, 0);
        assert_eq!(jumps.len(), 1);
        let code_of = &code[HEAD..];
        assert_eq!((&code_of[..3], &code_of[7..9]), (&LOAD[..], &JUMP[..]));
        let site = HEAD + 7 + u32::from_le_bytes(code_of[3..7].try_into().unwrap()) as usize;
        assert_eq!((word(&code, site), word(&code, site + 8)), (AT + HEAD as u64 + 13, AT + HEAD as u64 + 13));
        let to_thunk = i32::from_le_bytes(code_of[9..13].try_into().unwrap());
        let at = usize::try_from(HEAD as i32 + 13 + to_thunk).unwrap();
        assert_eq!(word(&code, at), thunk.address(0x1000), "{kind:?}");
    }
}

/// The sibling is called by its trampoline, or by its entry if that is not redirected. `malloc` is
/// none, and a function that throws is left alone without one.
#[test]
fn functions_that_throw_call_their_nothrow_form() {
    let throwing = || patch(EntryKind::NewAligned, 0x1000);
    let placed = |patches: Vec<Patch>, refused: Vec<Refused>| {
        let plan = Plan { patches, refused };
        let (code, jumps) = Stubs::new(&plan, BIAS, 0x1234, Library::Preload).place(AT, 0);
        let site = site_of(&code, HEAD);
        jumps.iter().any(|jump| jump.address == BIAS + 0x1000).then(|| word(&code, site + 16))
    };
    assert_eq!(placed(vec![throwing()], vec![]), None);
    assert_eq!(placed(vec![throwing(), patch(EntryKind::MallocAligned, 0x2000)], vec![]), None);
    let refused = Refused { entry: entry(EntryKind::NewAlignedNothrow, 0x3000), reason: Refusal::TooShort };
    assert_eq!(placed(vec![throwing()], vec![refused]), Some(BIAS + 0x3000));
    let both = placed(vec![throwing(), patch(EntryKind::NewAlignedNothrow, 0x3000)], vec![]).unwrap();
    assert!((AT + (HEAD + BEFORE_ORIGINAL_MAX) as u64 + 1..AT + 0x200).contains(&both), "{both:#x}");
}

/// A kind that throws and has no nothrow form calls no function that merely has the same kind of
/// arguments.
#[test]
fn functions_without_a_nothrow_form_are_left_alone() {
    for kind in EntryKind::ALL.into_iter().filter(|kind| kind.layout().throws && kind.nothrow().is_none()) {
        let patches = vec![patch(kind, 0x1000), patch(EntryKind::ArenaMalloc, 0x2000)];
        let plan = Plan { patches, refused: vec![] };
        let (_, jumps) = Stubs::new(&plan, BIAS, 0x1234, Library::Preload).place(AT, 0);
        assert_eq!(jumps.iter().map(|jump| jump.address).collect::<Vec<_>>(), [BIAS + 0x2000], "{kind:?}");
    }
}

/// An attachment takes over the jumps of a recorder that was killed, but not those of the preload
/// library.
#[test]
fn stubs_for_a_placed_library_are_known() {
    // Near the stubs, or too far for a direct jump.
    for (clobbers_all, thunk) in [(true, 0x1000), (false, 0x1000), (true, 1 << 45), (false, 1 << 45)] {
        let plan = Plan { patches: vec![Patch { clobbers_all, ..patch(EntryKind::Malloc, 0x1000) }], refused: vec![] };
        let known = [Library::Preload, Library::Placed].map(|library| {
            let (code, jumps) = Stubs::new(&plan, BIAS, thunk, library).place(AT, 0);
            assert_eq!(jumps.len(), 1);
            is_placed_stub(code[HEAD..HEAD + STUB_LENGTH].try_into().unwrap())
        });
        assert_eq!(known, [false, true], "{clobbers_all} {thunk:#x}");
    }
}

#[test]
fn a_near_thunk_of_a_placed_library_is_reached_by_a_direct_jump() {
    let plan = Plan { patches: vec![Patch { clobbers_all: true, ..patch(EntryKind::Free, 0x1000) }], refused: vec![] };
    let (code, _) = Stubs::new(&plan, BIAS, AT + 0x2000, Library::Placed).place(AT, 0);
    let jump = &code[HEAD + LOAD.len() + 4..];
    let from = AT + (HEAD + LOAD.len() + 4 + Jump::LENGTH) as u64;
    let distance = i32::from_le_bytes(jump[1..5].try_into().unwrap());
    assert_eq!((jump[0], from.wrapping_add_signed(distance.into())), (0xe9, Thunk::Free.address(AT + 0x2000)));
    // The original is behind the mark.
    let site = HEAD + 7 + u32::from_le_bytes(code[HEAD + 3..HEAD + 7].try_into().unwrap()) as usize;
    assert_eq!((&jump[5..7], word(&code, site)), (&MARK[..], from + MARK.len() as u64));
}
