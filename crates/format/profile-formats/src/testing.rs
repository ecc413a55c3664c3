//! A profile with everything that a writer may meet.

use std::io::{self, Write};

use proptest::prelude::*;

use crate::profile::{Amount, Amounts, Event, EventKind, Frame, Known, Location, Module, Process, Profile, Sample};

/// Returns a writer's output for a profile.
pub(crate) fn written(write: fn(&Profile, &mut dyn Write) -> io::Result<()>, profile: &Profile) -> Vec<u8> {
    let mut file = Vec::new();
    write(profile, &mut file).unwrap();
    file
}

fn amount(blocks: u64, bytes: u64) -> Amount {
    Amount { blocks, bytes }
}

pub(crate) fn frame(function: &str, file: &str, line: u32) -> Frame {
    Frame {
        function: function.into(),
        full_name: format!("{function}(int)"),
        known: !function.is_empty(),
        file: file.into(),
        line,
    }
}

/// Returns three stacks: one with an inlined function, twice, with different types; one with
/// unusual names; and an empty one.
pub(crate) fn example() -> Profile {
    let inner = Amounts {
        allocated: amount(8, 80),
        temporaries: 2,
        live: amount(4, 64),
        peak: amount(4, 64),
        end: amount(1, 16),
        most: amount(5, 70),
        lifetimes_ns: 9_000_000,
    };
    let others = Amounts {
        allocated: amount(4, 40),
        live: amount(2, 32),
        peak: amount(2, 32),
        most: amount(2, 32),
        lifetimes_ns: 1_000_000,
        ..Amounts::default()
    };
    let odd = Amounts {
        allocated: amount(3, 3),
        live: amount(3, 3),
        peak: amount(1, 1),
        most: amount(3, 3),
        ..Amounts::default()
    };
    let nowhere = Amounts { allocated: amount(1, 7), live: amount(1, 7), most: amount(1, 7), ..Amounts::default() };
    let label = |text: &str| vec![("type".into(), text.to_owned())];
    Profile {
        command: "/bin/a --b \"c\"".into(),
        pid: 77,
        duration_ns: 50_000_000,
        peak_ns: 20_000_000,
        moment: "live at the peak (20 ms)".into(),
        known: Known {
            allocated: true,
            temporaries: true,
            live: true,
            peak: true,
            end: true,
            most: true,
            lifetimes: true,
        },
        modules: vec![Module {
            path: "/bin/a".into(),
            build_id: "ab".into(),
            start: 0x1000,
            end: 0x3000,
            ..Module::default()
        }],
        locations: vec![
            Location {
                module: Some(0),
                address: 0x1004,
                frames: vec![frame("inner", "a.c", 3), frame("outer", "a.c", 7)],
            },
            Location { module: Some(0), address: 0x1fff, frames: vec![] },
            Location { module: Some(9), address: 0x2100, frames: vec![frame("inlined ; parse\n\tit", "", 0)] },
            Location { module: Some(0), address: 0x2200, frames: vec![frame("main", "m.c", 12)] },
        ],
        samples: vec![
            Sample { locations: vec![0, 3], labels: label("Token"), amounts: inner },
            Sample { locations: vec![0, 3], labels: label("Node"), amounts: others },
            Sample { locations: vec![1, 2, 3, 55], labels: vec![], amounts: odd },
            Sample { locations: vec![], labels: vec![], amounts: nowhere },
        ],
        processes: [70, 77].map(|pid| Process { pid, name: "a".into(), ..Process::default() }).into(),
        ..Profile::default()
    }
}

/// The next event: true to free a live block if there is one, otherwise to allocate; the index of
/// the block or of the stack; a number from which the bytes follow; the thread; the time since the
/// last event.
pub(crate) type Step = (bool, usize, u64, u32, u64);

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    // Rounded as in recordings.
    let gap = prop_oneof![6 => Just(0_u64), 3 => 1..5_u64, 1 => 1..100_u64].prop_map(|ticks| ticks * 500_000);
    prop::collection::vec((any::<bool>(), 0..1000_usize, 0..4_u64, 1..4_u32, gap), 0..most)
}

/// Returns events of two processes, with the stacks of [`example`].
pub(crate) fn events(steps: &[Step]) -> Vec<Event> {
    let (mut events, mut live, mut time_ns) = (Vec::new(), Vec::new(), 0);
    for (address, &(frees, which, bytes, thread, gap)) in (1..).zip(steps) {
        time_ns += gap;
        let event = if frees && !live.is_empty() {
            let block: Event = live.swap_remove(which % live.len());
            let EventKind::Allocated { bytes, sample } = block.kind else { unreachable!() };
            Event { time_ns, thread, kind: EventKind::Freed { bytes, sample }, ..block }
        } else {
            let kind = EventKind::Allocated { bytes: bytes * bytes * 8, sample: which % 5 };
            Event { time_ns, process: which % 2, thread, address, kind }
        };
        if let EventKind::Allocated { .. } = event.kind {
            live.push(event);
        }
        events.push(event);
    }
    events
}
