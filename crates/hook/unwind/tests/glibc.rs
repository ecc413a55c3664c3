//! Checks captured stacks against glibc's `backtrace()`, frame by frame, on call trees that change
//! in every way that might mislead the memory of the previous stack.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::{LazyLock, Mutex};

use heapledger_core::{NodeKind, StackId};
use heapledger_unwind::arch::FrameRegisters;
use heapledger_unwind::modules::Module;
use heapledger_unwind::walk::{FRAMES_MAX, FRAMES_MIN, Walker};
use heapledger_unwind::{Sink, bounds, rules, tree};
use proptest::prelude::*;

unsafe extern "C" {
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
    static __libc_stack_end: *mut c_void;
}

#[derive(Default)]
struct Nodes {
    parents: HashMap<StackId, (StackId, NodeKind, u64)>,
    modules: Vec<(u64, u64, Vec<u8>)>,
}

impl Sink for Nodes {
    fn node(&mut self, id: StackId, parent: StackId, kind: NodeKind, address: u64) -> bool {
        assert!(self.parents.insert(id, (parent, kind, address)).is_none());
        true
    }

    fn module(&mut self, module: &Module<'_>) -> bool {
        self.modules.push((module.start, module.end, module.build_id.to_vec()));
        true
    }
}

/// The nodes of the tree, which is shared by the whole process; the walker is the thread's.
static NODES: LazyLock<Mutex<Nodes>> = LazyLock::new(|| {
    assert!(rules::initialise() && tree::initialise());
    // SAFETY: the C library sets it before any code of ours runs.
    bounds::set_first_top(unsafe { __libc_stack_end } as u64);
    Mutex::default()
});

thread_local! {
    // SAFETY: `zeroed` requires that zeroes are a valid value: those of a `Walker` are, as its
    // documentation says.
    static WALKER: RefCell<Box<Walker>> = RefCell::new(Box::new(unsafe { std::mem::zeroed() }));
}

/// Captures the current stack and compares its frames with those of `backtrace`.
#[inline(never)]
fn check() {
    let mut expected = vec![std::ptr::null_mut::<c_void>(); FRAMES_MAX * 8];
    // SAFETY: `backtrace` writes at most as many addresses as it is told, and the buffer has that
    // many entries.
    let count = unsafe { backtrace(expected.as_mut_ptr(), expected.len() as c_int) } as usize;
    let expected: Vec<u64> = expected[..count].iter().map(|address| *address as u64).collect();
    let (lookup, sp, rbp): (u64, u64, u64);
    // SAFETY: the instructions write the three registers that they declare, and touch neither
    // memory, nor the stack, nor flags.
    unsafe {
        std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) lookup, out(reg) sp, out(reg) rbp)
    };
    WALKER.with_borrow_mut(|walker| {
        let nodes = &mut *NODES.lock().unwrap();
        let lost = walker.incomplete.lost;
        // SAFETY: these are this frame's registers, and the frame stays live.
        let id = unsafe { walker.capture(FrameRegisters { slot: sp - 8, return_address: lookup + 1, rbp }, nodes) };
        assert_eq!(walker.incomplete.lost, lost, "a frame without a rule");
        let (mut id, mut found, mut truncated) = (id, Vec::new(), false);
        while id != StackId::ROOT {
            let (parent, kind, address) = nodes.parents[&id];
            match kind {
                NodeKind::Frame => found.push(address + 1),
                NodeKind::Truncated => truncated = true,
                _ => {}
            }
            id = parent;
        }
        // The first entries are different addresses in this function itself.
        if truncated {
            assert!(found.len() >= FRAMES_MIN && found.len() <= FRAMES_MAX && count > found.len());
            assert_eq!(found[1..], expected[1..found.len()]);
        } else {
            assert_eq!(found[1..], expected[1..]);
        }
    });
}

/// One step of a random call tree.
#[derive(Clone, Debug)]
enum Call {
    Check,
    Plain(Vec<Call>),
    Big(Vec<Call>),
    Boxed(Vec<Call>),
    Aligned(Vec<Call>),
}

fn run(calls: &[Call]) {
    for call in calls {
        match call {
            Call::Check => check(),
            Call::Plain(inner) => plain(inner),
            Call::Big(inner) => big(inner),
            Call::Boxed(inner) => {
                let boxed: Box<dyn Fn()> = Box::new(|| run(inner));
                boxed();
                black_box(&boxed);
            }
            Call::Aligned(inner) => aligned(inner),
        }
    }
}

#[inline(never)]
fn plain(inner: &[Call]) {
    run(inner);
    black_box(inner);
}

#[inline(never)]
fn big(inner: &[Call]) {
    let space = black_box([0_u8; 3000]);
    run(inner);
    black_box(space);
}

/// Makes the compiler realign the stack, and so address the frame through rbp.
#[inline(never)]
fn aligned(inner: &[Call]) {
    #[repr(align(128))]
    struct Aligned([u8; 128]);
    let space = black_box(Aligned([0; 128]));
    run(inner);
    black_box(space.0);
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let leaf = Just(Call::Check);
    let call = leaf.prop_recursive(8, 64, 6, |inner| {
        let inner = prop::collection::vec(inner, 1..6);
        prop_oneof![
            Just(Call::Check),
            inner.clone().prop_map(Call::Plain),
            inner.clone().prop_map(Call::Big),
            inner.clone().prop_map(Call::Boxed),
            inner.prop_map(Call::Aligned),
        ]
    });
    prop::collection::vec(call, 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn equal_to_glibc(calls in calls()) {
        run(&calls);
        assert!(NODES.lock().unwrap().modules.iter().any(|(_, _, build_id)| !build_id.is_empty()));
    }
}

#[inline(never)]
fn recurse(depth: usize, check_every: usize) {
    if depth > 0 {
        recurse(depth - 1, check_every);
    }
    if depth.is_multiple_of(check_every) {
        check();
    }
    black_box(depth);
}

#[inline(never)]
fn descend(depth: usize, check_every: usize) {
    if depth.is_multiple_of(check_every) {
        check();
    }
    if depth > 0 {
        descend(depth - 1, check_every);
    }
    black_box(depth);
}

#[test]
fn deep_stacks_are_cut_and_say_so() {
    std::thread::Builder::new()
        .stack_size(64 << 20)
        .spawn(|| {
            descend(3000, 7);
            recurse(3000, 7);
            WALKER.with_borrow(|walker| assert!(walker.incomplete.truncated > 0));
        })
        .unwrap()
        .join()
        .unwrap();
}
