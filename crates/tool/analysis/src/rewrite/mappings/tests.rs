use heapledger_core::{Bytes, StackId};
use heapledger_recording::{MappingCall, MappingKind, Protection};

use super::*;

fn event(time: u64, serial: u64, start: u64, bytes: u64, change: MappingChange) -> MappingEvent {
    MappingEvent {
        time: Time(time),
        thread: None,
        stack: StackId(5),
        call: MappingCall::Mmap,
        serial: MappingSerial(serial),
        start,
        bytes: Bytes(bytes),
        change,
    }
}

/// A part begins with what is mapped then: the pieces that are left, where they are now, at their
/// offsets in the file.
#[test]
fn a_part_begins_with_what_is_mapped() {
    let mapped = MappingChange::Mapped {
        kind: MappingKind::File,
        protection: Protection::READ,
        flags: MappingFlags::NONE,
        file: TextId(3),
        offset: 0x100,
    };
    let events = vec![
        event(1, 0, 0x1000, 0x4000, mapped),
        event(2, 1, 0x9000, 0x1000, mapped),
        event(3, 0, 0x2000, 0x1000, MappingChange::Unmapped),
        event(4, 0, 0x3000, 0x2000, MappingChange::Moved { to: 0x5000 }),
        event(5, 1, 0x9000, 0x1000, MappingChange::Unmapped),
        event(6, 0, 0x1000, 0x1000, MappingChange::Protected { protection: Protection::NONE }),
        event(9, 2, 0x9000, 0x1000, mapped),
    ];
    let part = of_part(events.clone(), &(Time(5)..=Time(8)));
    let carried: Vec<_> = part.iter().filter(|event| is_carried(event)).map(|it| (it.serial.0, it.start)).collect();
    assert_eq!(carried, [(0, 0x1000), (0, 0x5000), (1, 0x9000)]);
    assert!(matches!(part[1].change, MappingChange::Mapped { offset: 0x2100, .. }), "{:?}", part[1]);
    assert_eq!(part[3..], events[4..6]);
    assert_eq!(part.iter().filter_map(MappingEvent::file).collect::<Vec<_>>(), [TextId(3); 3]);
    // All of the time is the recording itself.
    assert_eq!(of_part(events.clone(), &(Time(0)..=Time(9))), events);
    let (mut whole, mut joined) = (AddressSpace::default(), AddressSpace::default());
    events[..6].iter().for_each(|event| _ = whole.apply(event));
    part.iter().for_each(|event| _ = joined.apply(event));
    assert_eq!(whole.pieces().collect::<Vec<_>>(), joined.pieces().collect::<Vec<_>>());
}
