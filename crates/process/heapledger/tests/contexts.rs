//! Contexts in the ledger of a program that knows what it allocates in each. Without the test
//! harness: its threads allocate, too.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{self, Poll, Waker};

use heapledger::{Allocator, Context, InContext, Ledger, LedgerOptions, Stacks, category, context, in_context};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// Blocks of this size and more are the test's own.
const SIZE: usize = 70_000;

/// Blocks and bytes, by context.
type Sums = BTreeMap<String, (u64, u64)>;

static KEPT: Mutex<(Vec<Vec<u8>>, Sums)> = Mutex::new((Vec::new(), Sums::new()));

/// Allocates a block that stays, and notes in which context it should be.
#[inline(never)]
fn keep(extra: usize, context: &str) {
    let block = black_box(vec![0_u8; SIZE + extra]);
    let (blocks, sums) = &mut *KEPT.lock().unwrap();
    blocks.push(block);
    note(sums, context, (SIZE + extra) as u64);
}

fn note(sums: &mut Sums, context: &str, bytes: u64) {
    let sum = sums.entry(context.to_owned()).or_default();
    *sum = (sum.0 + 1, sum.1 + bytes);
}

/// Returns the ledger's figures for live blocks of that size.
fn recorded(ledger: Ledger) -> Sums {
    let mut sums = Sums::new();
    for block in ledger.blocks().filter(|block| block.size.0 >= SIZE as u64) {
        let mut scopes: Vec<String> = block.stack.context().map(|scope| scope.to_string()).collect();
        scopes.reverse();
        let context = if scopes.is_empty() { "(no context)".to_owned() } else { scopes.join(" > ") };
        note(&mut sums, &context, block.size.0);
    }
    sums
}

category!(OFF = "off", disabled);

#[in_context("function", by = number)]
fn function(number: usize) {
    keep(1, &format!("thread{{number=0}} > function{{by={number}}}"));
}

#[in_context("future")]
async fn future(outside: &str) {
    keep(2, &format!("{outside} > future"));
    Yield(false).await;
    keep(3, &format!("{outside} > future"));
}

/// Is ready the second time.
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn in_a_thread(number: usize, request: &Context) {
    keep(4, "(no context)");
    let _thread = context!("thread", number = number);
    let outside = format!("thread{{number={number}}}");
    if number == 0 {
        (0..3).for_each(function);
    }
    for round in 0..20 {
        let _round = context!("round");
        keep(round, &format!("{outside} > round"));
        let _off = context!(category: OFF, "off");
        let _inner = context!("inner");
        keep(round, &format!("{outside} > round > inner"));
    }
    keep(5, &outside);
    // Polled in one thread, then in another: it takes its context along.
    let mut moving = pin!(future("request{route=/a}").in_context(request));
    let mut waker = task::Context::from_waker(Waker::noop());
    assert!(moving.as_mut().poll(&mut waker).is_pending());
    keep(6, &outside);
    std::thread::scope(|scope| {
        let moving = &mut moving;
        scope.spawn(move || {
            let mut waker = task::Context::from_waker(Waker::noop());
            assert!(moving.as_mut().poll(&mut waker).is_ready());
            keep(7, "(no context)");
        });
    });
}

fn main() {
    // Entered before there is a ledger.
    let early = context!("early");
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    keep(0, "early");
    drop(early);
    let request = {
        let _request = context!(task, "request", route = "/a");
        Context::current()
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            let request = &request;
            scope.spawn(move || in_a_thread(number, request));
        }
    });

    // Ignored: in no total, and freed where nothing is.
    let before = ledger.totals();
    let ignoring = heapledger::ignore();
    let ignored = black_box(vec![0_u8; SIZE]);
    drop(ignoring);
    assert!(ledger.block_at(ignored.as_ptr()).is_none());
    assert_eq!(ledger.totals().allocations, before.allocations);
    drop(ignored);
    assert_eq!(ledger.totals().frees_unknown, before.frees_unknown);

    let truth = std::mem::take(&mut KEPT.lock().unwrap().1);
    assert_eq!(recorded(ledger), truth);
    assert_eq!(truth.len(), 18, "{truth:?}");

    // Another context than the one in which it was allocated.
    let moved = black_box(vec![0_u8; SIZE]);
    let _cache = context!("cache");
    heapledger::set_context(moved.as_ptr());
    assert_eq!(recorded(ledger).get("cache"), Some(&(1, SIZE as u64)));
    drop(moved);
    assert_eq!(recorded(ledger), truth);

    for (stacks, has_context, has_frames) in
        [(Stacks::Native, false, true), (Stacks::Pseudo, true, false), (Stacks::None, false, false)]
    {
        ledger.set_stacks(stacks);
        let block = black_box(vec![0_u8; SIZE]);
        let stack = ledger.block_at(block.as_ptr()).unwrap().stack;
        assert_eq!((stack.context().count() > 0, stack.frames().count() > 0), (has_context, has_frames), "{stacks:?}");
    }
    println!("test contexts ... ok ({} contexts)", truth.len());
}
