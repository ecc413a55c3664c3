//! Events written to a ring are read back, in order, across any number of wraps.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use heapledger_core::sample::Rate;
use heapledger_core::{Api, NodeKind, StackId};
use heapledger_wire::event::{
    self, Decoder, Event, Extended, MapCall, MapStep, Packed, ReallocOutcome, UsableCall, WORDS_MAX,
};
use heapledger_wire::publish::Producer;
use heapledger_wire::ring::Ring;
use heapledger_wire::session::{SessionPage, state};
use proptest::prelude::*;

/// An owned ring in ordinary memory.
struct TestRing {
    ring: Ring,
    memory: NonNull<u8>,
    layout: Layout,
}

impl TestRing {
    fn new(words: usize) -> TestRing {
        let layout = Layout::from_size_align(Ring::mapping_length(words * 8), 4096).unwrap();
        // SAFETY: `alloc_zeroed` requires a layout whose size is not 0: a ring's mapping has a
        // header.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        // SAFETY: the memory is zeroed, aligned, lives as long as `self`, and is used only through
        // the ring.
        let ring = unsafe { Ring::new(memory, layout.size()) }.unwrap();
        TestRing { ring, memory, layout }
    }
}

impl Drop for TestRing {
    fn drop(&mut self) {
        // SAFETY: `dealloc` requires a live block of this allocator and its layout: `new` allocated
        // it with this one. The ring, which refers to it, is not used any more.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

fn session() -> SessionPage {
    SessionPage {
        version: AtomicU32::new(1),
        state: AtomicU32::new(state::RECORDING),
        sleeping: AtomicU32::new(0),
        mode: AtomicU32::new(0),
        without_contexts: AtomicU32::new(0),
        rate: AtomicU32::new(0),
        heartbeat: AtomicU32::new(0),
        heartbeat_of_broker: AtomicU32::new(0),
        stall_milliseconds: AtomicU32::new(0),
        exit_wait: AtomicU32::new(0),
        target_memory: AtomicU64::new(0),
        stalled_at: AtomicU64::new(0),
    }
}

/// An event that owns what it refers to.
#[derive(Clone, Debug)]
enum Owned {
    Free(u64),
    Malloc(u64, u64, u32),
    Calloc(u64, u32, u16, u32),
    ReallocBegin(u64),
    ReallocEnd(u64, u64, u32),
    WithUsable(u8, u64, u64, u32, u64),
    Node(u32, u32, u8, u64),
    Alloc(u64, u64, u32, u64),
    Ended(u8, u64),
    Thread(u32, [u8; 16]),
    Module(u64, Vec<u8>, Vec<u8>),
    Text(u64, u32, Vec<u8>),
    Ignored(u64),
    Reattributed(u64, u32),
    Stamped(u64, u64),
    Marked(u64, u64, u32, bool),
    Unmarked(u64, u64),
    Marks(bool),
    Exec([u32; 2], u16, bool, u64, Vec<u8>),
    ExecFailed(u32),
    Mapping(usize, u8, u32, [u64; 5]),
    Annotation(u16, Vec<u64>),
}

/// Returns an event of a call that changes mappings.
fn mapping(call: usize, step: u8, stack: u32, words: [u64; 5]) -> Extended<'static> {
    let [address, length, arguments @ ..] = words;
    Extended::Mapping {
        call: MAP_CALLS[call],
        step: [MapStep::Done, MapStep::Begins, MapStep::Failed][usize::from(step % 3)],
        is_allocators: step < 3,
        stack: StackId(stack),
        address,
        length,
        arguments,
    }
}

/// Some calls that change mappings, by either function.
const MAP_CALLS: [MapCall; 4] = [MapCall::Mmap, MapCall::Shmdt, MapCall::SyscallMmap, MapCall::SyscallShmdt];

fn address() -> impl Strategy<Value = u64> {
    (0_u64..1 << 44).prop_map(|address| address << 3)
}

fn stack() -> impl Strategy<Value = u32> {
    0..=StackId::MAX.0
}

fn owned() -> impl Strategy<Value = Owned> {
    prop_oneof![
        address().prop_map(Owned::Free),
        (address(), 0..event::COMPACT_SIZE_END, stack()).prop_map(|(a, s, k)| Owned::Malloc(a, s, k)),
        (address(), 0_u32..1 << 22, any::<u16>(), stack()).prop_map(|(a, c, e, k)| Owned::Calloc(a, c, e, k)),
        address().prop_map(Owned::ReallocBegin),
        (address(), 0..event::COMPACT_SIZE_END, stack()).prop_map(|(a, s, k)| Owned::ReallocEnd(a, s, k)),
        (0_u8..3, address(), 0..event::COMPACT_SIZE_END, stack(), 0..event::COMPACT_SLOP_END)
            .prop_map(|(c, a, s, k, l)| Owned::WithUsable(c, a, s, k, l)),
        (stack(), stack(), 0_u8..8, any::<u64>()).prop_map(|(i, p, k, a)| Owned::Node(i, p, k, a)),
        (any::<u64>(), any::<u64>(), stack(), any::<u64>()).prop_map(|(a, s, k, l)| Owned::Alloc(a, s, k, l)),
        (0_u8..3, any::<u64>()).prop_map(|(o, a)| Owned::Ended(o, a)),
        (any::<u32>(), any::<[u8; 16]>()).prop_map(|(t, n)| Owned::Thread(t, n)),
        (any::<u64>(), prop::collection::vec(any::<u8>(), 0..33), prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(s, b, p)| Owned::Module(s, b, p)),
        (any::<u64>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..250))
            .prop_map(|(a, f, t)| Owned::Text(a, f, t)),
        any::<u64>().prop_map(Owned::Ignored),
        (any::<u64>(), stack()).prop_map(|(a, k)| Owned::Reattributed(a, k)),
        any::<[u64; 2]>().prop_map(|[a, s]| Owned::Stamped(a, s)),
        (any::<[u64; 2]>(), stack(), any::<bool>()).prop_map(|([a, r], k, kept)| Owned::Marked(a, r, k, kept)),
        any::<[u64; 2]>().prop_map(|[a, r]| Owned::Unmarked(a, r)),
        any::<bool>().prop_map(Owned::Marks),
        (any::<[u32; 2]>(), any::<u16>(), any::<bool>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..250))
            .prop_map(|(p, r, t, s, f)| Owned::Exec(p, r, t, s, f)),
        any::<u32>().prop_map(Owned::ExecFailed),
        (0..MAP_CALLS.len(), 0_u8..6, stack(), any::<[u64; 5]>()).prop_map(|(c, s, k, w)| Owned::Mapping(c, s, k, w)),
        (256_u16.., prop::collection::vec(any::<u64>(), 0..20)).prop_map(|(c, p)| Owned::Annotation(c, p)),
    ]
}

fn outcome(number: u8) -> ReallocOutcome {
    [ReallocOutcome::Returned, ReallocOutcome::Failed, ReallocOutcome::Freed][number as usize]
}

/// A completely decoded event.
#[derive(Debug, PartialEq)]
enum Whole<'words> {
    Compact(Event<'words>),
    Extended(Extended<'words>),
}

fn whole(event: Event<'_>) -> Whole<'_> {
    match event {
        Event::Extended { code, payload } => Whole::Extended(Extended::parse(code, payload).unwrap().unwrap()),
        event => Whole::Compact(event),
    }
}

fn with_usable(call: u8, address: u64, (size, slop): (u64, u64), stack: u32) -> Whole<'static> {
    let call = [UsableCall::Malloc, UsableCall::Calloc, UsableCall::ReallocEnd][usize::from(call)];
    let (count, usable) = (u32::from(call as u8).wrapping_mul(0x89ab_cdef), size + slop);
    Whole::Compact(Event::WithUsable { call, address, size, stack: StackId(stack), count, usable })
}

/// Calls `use_it` with the decoded form of the event, borrowed from buffers here.
fn with_event<R>(owned: &Owned, use_it: impl FnOnce(Whole<'_>) -> R) -> R {
    let (mut first, mut second) = ([0_u64; 8], [0_u64; 32]);
    let event = match *owned {
        Owned::Free(address) => Whole::Compact(Event::Free { address }),
        Owned::Malloc(address, size, stack) => Whole::Compact(Event::Malloc { address, size, stack: StackId(stack) }),
        Owned::Calloc(address, count, each, stack) => Whole::Compact(Event::Calloc {
            address,
            size: u64::from(count) * u64::from(each),
            stack: StackId(stack),
            count,
            each: u32::from(each),
        }),
        Owned::ReallocBegin(address) => Whole::Compact(Event::ReallocBegin { address }),
        Owned::ReallocEnd(address, size, stack) => {
            Whole::Compact(Event::ReallocEnd { address, size, stack: StackId(stack) })
        }
        Owned::WithUsable(call, address, size, stack, slop) => with_usable(call, address, (size, slop), stack),
        Owned::Node(id, parent, kind, address) => {
            let kind = NodeKind::from_number(kind).unwrap_or(NodeKind::Frame);
            Whole::Compact(Event::Node { id: StackId(id), parent: StackId(parent), kind, address })
        }
        Owned::Alloc(address, size, stack, alignment) => Whole::Extended(Extended::Alloc {
            api: Api::PosixMemalign,
            address,
            size,
            stack: StackId(stack),
            alignment,
            count: 1,
            usable: 2,
            rate: Rate::from_logarithm(19),
        }),
        Owned::Ended(number, address) => Whole::Extended(Extended::ReallocEnd {
            api: Api::Reallocarray,
            outcome: outcome(number),
            address,
            size: 5,
            stack: StackId(6),
            count: 7,
            usable: 8,
            rate: Rate::from_logarithm(40),
        }),
        Owned::Thread(thread, name) => Whole::Extended(Extended::ThreadStart { thread, name }),
        Owned::Module(start, ref build_id, ref path) => {
            let build_words = event::pack(build_id, &mut first).unwrap();
            let path_words = event::pack(path, &mut second).unwrap();
            Whole::Extended(Extended::Module {
                start,
                end: 1,
                bias: 2,
                epoch: 3,
                build_id: Packed { words: &first[..build_words], length: build_id.len() },
                path: Packed { words: &second[..path_words], length: path.len() },
            })
        }
        Owned::Text(address, flags, ref text) => {
            let words = event::pack(text, &mut second).unwrap();
            let text = Packed { words: &second[..words], length: text.len() };
            Whole::Extended(Extended::Text { address, flags, category: address ^ 7, text })
        }
        Owned::Reattributed(address, id) => Whole::Extended(Extended::Reattributed { address, stack: StackId(id) }),
        Owned::Stamped(address, stamp) => Whole::Extended(Extended::Stamped { address, stamp }),
        Owned::Marked(address, reporter, stack, is_kept) => {
            let (stack, measured, [is_on_stack, is_around]) =
                (StackId(stack), address ^ 9, [1, 2].map(|bit| address & bit == 0));
            Whole::Extended(Extended::Marked { address, reporter, stack, is_kept, is_on_stack, is_around, measured })
        }
        Owned::Unmarked(address, reporter) => Whole::Extended(Extended::Unmarked { address, reporter }),
        Owned::Exec([process, pid], reason, is_tight, since, ref path) => {
            let words = event::pack(path, &mut second).unwrap();
            let path = Packed { words: &second[..words], length: path.len() };
            Whole::Extended(Extended::Exec { process, pid, reason, is_tight, since, path })
        }
        Owned::Mapping(call, step, stack, words) => Whole::Extended(mapping(call, step, stack, words)),
        Owned::ExecFailed(pid) => Whole::Extended(Extended::ExecFailed { pid }),
        Owned::Marks(ends) => Whole::Extended(if ends { Extended::MarksComplete } else { Extended::MarksCleared }),
        Owned::Ignored(address) => Whole::Extended(Extended::Ignored { address }),
        Owned::Annotation(code, ref payload) => Whole::Extended(Extended::Annotation { code, payload }),
    };
    use_it(event)
}

fn write(producer: &mut Producer, session: &SessionPage, ticks: u64, owned: &Owned) {
    let put = |producer: &mut Producer, words: &[u64]| producer.write(session, || false, words).unwrap();
    with_event(owned, |event| {
        let mut step = || match producer.step(ticks) {
            Some(step) => step,
            None => {
                producer.last = event::units(ticks);
                put(producer, &event::sync(producer.last));
                0
            }
        };
        match event {
            Whole::Compact(Event::Free { address }) => {
                let words = event::free(step(), address);
                put(producer, &words);
            }
            Whole::Compact(Event::Malloc { address, size, stack }) => {
                let words = event::malloc(step(), address, size, stack);
                put(producer, &words);
            }
            Whole::Compact(Event::Calloc { address, stack, count, each, .. }) => {
                let words = event::calloc(step(), address, count, each, stack);
                put(producer, &words);
            }
            Whole::Compact(Event::ReallocBegin { address }) => {
                let words = event::realloc_begin(step(), address);
                put(producer, &words);
            }
            Whole::Compact(Event::ReallocEnd { address, size, stack }) => {
                let words = event::realloc_end(step(), address, size, stack);
                put(producer, &words);
            }
            Whole::Compact(Event::WithUsable { call, address, size, stack, count, usable }) => {
                let words = event::with_usable(call, address, size, stack, count, usable - size);
                let words = event::with_step(words, step());
                put(producer, &words);
            }
            Whole::Compact(Event::Node { id, parent, kind, address }) => {
                put(producer, &event::node(id, parent, kind, address))
            }
            Whole::Extended(extended) => {
                let mut buffer = [0_u64; WORDS_MAX];
                producer.last = event::units(ticks);
                let words = event::extended(producer.last, &extended, &mut buffer).unwrap();
                put(producer, words);
            }
            Whole::Compact(_) => unreachable!(),
        }
    });
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(
        events in prop::collection::vec((owned(), 0_u64..1 << 22), 1..200),
        drain_every in 1_usize..8,
    ) {
        let memory = TestRing::new(512);
        let session = session();
        let mut producer = Producer::new(memory.ring);
        let mut decoder = Decoder::default();
        let mut pending: Vec<u64> = Vec::new();
        let (mut ticks, mut read) = (1_u64 << 40, 0);
        let mut stamps = Vec::new();
        for (index, (owned, pause)) in events.iter().enumerate() {
            ticks += pause;
            write(&mut producer, &session, ticks, owned);
            stamps.push(event::units(ticks));
            if index % drain_every == 0 || index + 1 == events.len() {
                memory.ring.drain(|word| pending.push(word)).unwrap();
                let mut at = 0;
                while let Some((event, length)) = decoder.next(&pending[at..]).unwrap() {
                    let ahead = event::look_ahead(pending[at]);
                    prop_assert_eq!(ahead.0, length);
                    if let Event::Free { address } | Event::Malloc { address, .. } | Event::WithUsable { address, .. } = event
                    {
                        prop_assert_eq!(ahead.1, Some(address));
                    }
                    at += length;
                    if event == Event::Nothing {
                        continue;
                    }
                    with_event(&events[read].0, |expected| assert_eq!(whole(event), expected));
                    if !matches!(event, Event::Node { .. }) {
                        prop_assert_eq!(decoder.stamp, stamps[read]);
                    }
                    read += 1;
                }
                pending.drain(..at);
            }
        }
        prop_assert_eq!(read, events.len());
        prop_assert!(pending.is_empty());
    }

    #[test]
    fn any_words_decode_or_are_refused(words in prop::collection::vec(any::<u64>(), 0..64)) {
        let mut decoder = Decoder::default();
        let mut at = 0;
        while let Ok(Some((event, length))) = decoder.next(&words[at..]) {
            if let Event::Extended { code, payload } = event {
                let _ = Extended::parse(code, payload);
            }
            prop_assert!(length > 0);
            at += length;
            prop_assert!(at <= words.len());
        }
    }
}

#[test]
fn two_threads_lose_nothing() {
    const EVENTS: u64 = if cfg!(miri) { 500 } else { 1_000_000 };
    let memory = TestRing::new(256);
    let ring = memory.ring;
    let session = session();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut producer = Producer::new(ring);
            for number in 0..EVENTS {
                producer.write(&session, || false, &event::malloc(1, number << 3, number, StackId(1))).unwrap();
            }
            ring.close();
        });
        let (mut expected, mut decoder, mut pending) = (0, Decoder::default(), Vec::new());
        loop {
            let closed = ring.is_closed();
            let count = ring.drain(|word| pending.push(word)).unwrap();
            let mut at = 0;
            while let Some((event, length)) = decoder.next(&pending[at..]).unwrap() {
                assert_eq!(event, Event::Malloc { address: expected << 3, size: expected, stack: StackId(1) });
                expected += 1;
                at += length;
            }
            pending.drain(..at);
            if closed && count == 0 {
                break;
            }
        }
        assert_eq!(expected, EVENTS);
        assert_eq!(decoder.stamp, EVENTS);
    });
}

#[test]
fn a_corrupt_head_is_refused() {
    let memory = TestRing::new(64);
    memory.ring.publish(65);
    assert!(memory.ring.drain(|_| panic!("nothing to take")).is_err());
    assert_eq!(memory.ring.discard(), 64);
    assert_eq!(memory.ring.drain(|_| panic!("nothing is left")), Ok(0));
    memory.ring.add_measured(5);
    memory.ring.close();
    memory.ring.reset();
    let ring = &memory.ring;
    assert_eq!((ring.head(), ring.tail(), ring.is_closed(), ring.measured()), (0, 0, false, (0, 0)));
}

/// Texts are packed as far as there is room, whatever the words contained before.
#[test]
fn texts_are_packed_as_far_as_there_is_room() {
    for (length, room) in [(0, 2), (1, 2), (8, 2), (9, 2), (16, 2), (17, 2), (3, 0)] {
        let bytes: Vec<u8> = (1..=length).collect();
        let mut words = vec![u64::MAX; room];
        let packed = event::pack_truncated(bytes.iter().copied(), &mut words);
        assert_eq!(packed.length, bytes.len().min(room * 8));
        assert_eq!(packed.bytes().collect::<Vec<_>>(), bytes[..packed.length]);
        let mut same = vec![0; room];
        assert_eq!(event::pack(&bytes[..packed.length], &mut same).map(|count| &same[..count]), Some(packed.words));
    }
}
