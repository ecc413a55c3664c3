use heapledger_recording::{ImageId, Time};

use super::*;

fn departure(reason: Code) -> Departure {
    Departure {
        image: ImageId(0),
        time: Time(0),
        pid: 7,
        is_fork: false,
        reason: reason as u32,
        path: b"/usr/bin/program".to_vec(),
    }
}

/// A program whose allocator was redirected in part was recorded.
#[test]
fn programs_that_were_recorded_in_part_are_counted_apart() {
    let first = [departure(Code::Static), departure(Code::NotRedirected), departure(Code::Static)];
    assert_eq!(how_many(3, &first), "2 programs ran unrecorded · 1 program was recorded in part");
    assert_eq!(how_many(1, &first[1..2]), "1 program was recorded in part");
    assert_eq!(how_many(5, &first[..1]), "5 programs ran unrecorded");
    assert!(DepartureJson::from(&first[1]).recorded_in_part && !DepartureJson::from(&first[0]).recorded_in_part);
}
