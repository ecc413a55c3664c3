use std::time::Instant;

use super::*;

const AUTOMATIC: ResidentSnapshots = ResidentSnapshots { automatic: true, every: None, exit_wait: None };

/// Returns the causes of the snapshots of a process with these resident MiB at these milliseconds.
fn causes(options: ResidentSnapshots, samples: &[(u64, u64)]) -> Vec<(u64, SnapshotCause)> {
    let mut schedule = Schedule::default();
    let mut causes = Vec::new();
    for &(at, resident) in samples {
        let now = Time(at * 1_000_000);
        schedule.on_sample(options, Time(0), now, resident << 20);
        if let Some(cause) = schedule.due {
            causes.push((at, cause));
            schedule.on_begun(now);
            schedule.on_outcome(&made(resident << 20, 0));
        }
    }
    causes
}

/// Returns a snapshot with so many resident bytes that took so many milliseconds, all of them to
/// read.
fn made(resident: u64, cost_ms: u64) -> Made {
    let spent = Duration::from_millis(cost_ms);
    let figures =
        ResidentFigures { resident: Bytes(resident), read_ns: spent.as_nanos() as u64, ..ResidentFigures::default() };
    let snapshot = ResidentSnapshot { figures, ..ResidentSnapshot::default() };
    Made { image: ImageId(0), snapshot: Some(snapshot), spent, is_limited: true, done: None }
}

/// Automatic snapshots take a fiftieth of a process's time, and a twenty-fifth with its last one.
#[test]
fn short_programs_have_no_snapshots() {
    use SnapshotCause::{End, Growth};
    let (mut schedule, ms) = (Schedule::default(), Duration::from_millis);
    let has = |schedule: &Schedule, age| [Growth, End].map(|cause| schedule.has_allowance(ms(age), cause));
    schedule.on_sample(AUTOMATIC, Time(0), Time(0), 0);
    assert_eq!(has(&schedule, 124), [false, false]);
    assert_eq!(has(&schedule, 125), [false, true]);
    assert_eq!(has(&schedule, 250), [true, true]);
    // The more there is to be read, the longer it takes.
    schedule.on_sample(AUTOMATIC, Time(0), Time(0), 1 << 30);
    assert_eq!((has(&schedule, 12_000), has(&schedule, 25_000)), ([false, false], [false, true]));
    // Then it is known how long it takes.
    schedule.on_begun(Time(0));
    schedule.on_outcome(&made(1 << 30, 100));
    assert_eq!(schedule.expected_cost(), Cost { processor: ms(100), reading: ms(100) });
    assert_eq!((has(&schedule, 5_000), has(&schedule, 10_000)), ([false, true], [true, true]));
    schedule.on_sample(AUTOMATIC, Time(0), Time(0), 2 << 30);
    assert_eq!(schedule.expected_cost().processor, ms(200));
    // So it is for all processes together.
    let snapshooter = Snapshooter { spent: ms(100), ..Snapshooter::default() };
    let of_session = |second: u64, cause| snapshooter.has_allowance(Time(second * 1_000_000_000), ms(100), cause);
    assert_eq!(
        [(9, Growth), (10, Growth), (4, End), (5, End)].map(|(at, cause)| of_session(at, cause)),
        [false, true, false, true]
    );
}

#[test]
fn snapshots_follow_resident_memory() {
    use SnapshotCause::{Fall, Growth, Schedule};
    let samples = [(10, 5), (60, 5), (70, 5), (80, 6), (90, 100), (100, 109), (110, 111), (120, 90), (1200, 90)];
    let expected = [(60, Growth), (90, Growth), (110, Growth), (120, Fall), (1200, Schedule)];
    assert_eq!(causes(AUTOMATIC, &samples), expected);
    // Without change, they become rarer.
    let still: Vec<(u64, u64)> = (0..1000).map(|tenth| (tenth * 100, 7)).collect();
    let times: Vec<u64> = causes(AUTOMATIC, &still).iter().map(|(at, _)| *at).collect();
    assert!((15..25).contains(&times.len()), "{times:?}");
    assert!(times.windows(2).skip(8).all(|pair| pair[1] * 4 <= pair[0] * 5 + 800), "{times:?}");
}

/// Memory that goes up and down for a day makes no more than some hundred snapshots.
#[test]
fn ups_and_downs() {
    let samples: Vec<(u64, u64)> = (0..200_000).map(|at| (at * 432, 100 + at % 2 * 100)).collect();
    let causes = causes(AUTOMATIC, &samples);
    assert!((200..800).contains(&causes.len()), "{}", causes.len());
    // A new height is never missed.
    let samples = [(100, 10), (86_400_000, 10), (86_400_005, 5), (86_400_010, 20), (86_400_015, 30)];
    assert_eq!(self::causes(AUTOMATIC, &samples).len(), 4);
}

#[test]
fn a_schedule_of_ones_own() {
    let every = |automatic| ResidentSnapshots { automatic, every: Some(Duration::from_millis(100)), exit_wait: None };
    let samples: Vec<(u64, u64)> = (0..50).map(|at| (at * 10, if at > 20 { 500 } else { 5 })).collect();
    let times = |automatic| causes(every(automatic), &samples).into_iter().map(|(at, _)| at).collect::<Vec<_>>();
    assert_eq!(times(false), [50, 150, 250, 350, 450]);
    assert_eq!(times(true), [50, 150, 210, 310, 410]);
    // A snapshot that waits for its time does not stop the schedule.
    let mut schedule = Schedule { last: Some((Time(0), 1)), due: Some(SnapshotCause::Growth), ..Schedule::default() };
    schedule.on_sample(every(true), Time(0), Time(100_000_000), 1);
    assert_eq!(schedule.due, Some(SnapshotCause::Schedule));
    // A process that comes later has one at once, though there is no allowance for other causes.
    let mut schedule = Schedule::default();
    schedule.on_sample(every(true), Time(0), Time(AGE_MIN), 1);
    assert_eq!((schedule.due, schedule.begun()), (Some(SnapshotCause::Schedule), None));
    let off = ResidentSnapshots { automatic: false, every: None, exit_wait: None };
    assert_eq!(causes(off, &samples), []);
}

#[test]
fn failures_end_it() {
    let mut schedule = Schedule::default();
    for second in 1..10 {
        schedule.on_sample(AUTOMATIC, Time(0), Time(second * 10_000_000_000), second << 30);
        if schedule.due.is_some() {
            schedule.on_begun(Time(second * 10_000_000_000));
            schedule.on_outcome(&Made { snapshot: None, ..made(0, 0) });
        }
    }
    assert_eq!(schedule.failures, FAILURES_MAX);
}

/// A block of this process is in the snapshot, with the pages that it fills.
#[test]
fn a_snapshot_of_this_process() {
    let buffer = vec![1_u8; 1 << 20];
    let block = PlacedBlock { address: buffer.as_ptr() as u64, size: 1 << 20, site: 3, slop: 0 };
    let pid = std::process::id();
    let mut snapshooter = Snapshooter::default();
    let identity = process::image_identity(pid);
    let request = |identity| Request {
        image: ImageId(0),
        pid,
        identity,
        time: Time(9),
        cause: SnapshotCause::Asked,
        is_limited: true,
        blocks: vec![block],
        has_sites: true,
        live: Live { bytes: Bytes(1 << 20), blocks: Blocks(1) },
        copy_ns: 1,
        done: None,
        exiting: None,
    };
    snapshooter.begin(request(identity));
    let made = snapshooter.take(Duration::from_secs(60)).expect("an answer");
    let snapshot = made.snapshot.expect("a snapshot");
    assert!(!snapshooter.is_busy());
    assert!(made.spent >= Duration::from_nanos(1) && snapshooter.spent == made.spent);
    let site = snapshot.sites[0];
    assert_eq!((site.stack, site.bytes, site.resident), (StackId(3), Bytes(1 << 20), Bytes(1 << 20)));
    let live: u64 = snapshot.parts.iter().map(|part| part.live.0).sum();
    assert_eq!(live, 1 << 20, "{snapshot:?}");
    assert!(snapshot.figures.resident_max >= snapshot.figures.resident);
    drop(buffer);
    // Another program runs in the process.
    snapshooter.begin(request(Some(0)));
    assert!(snapshooter.take(Duration::from_secs(60)).expect("an answer").snapshot.is_none());
    // The time of one that was asked for does not count.
    let before = snapshooter.spent;
    snapshooter.begin(Request { is_limited: false, ..request(identity) });
    assert!(snapshooter.take(Duration::from_secs(60)).expect("an answer").snapshot.is_some());
    assert_eq!(snapshooter.spent, before);
}

/// A process that exits goes on when its memory has been read.
#[test]
fn processes_that_exit() {
    let exiting = || {
        let (connection, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pid, since) = (std::process::id(), Instant::now());
        let wait = Duration::from_secs(3600);
        (Exiting { pid, stamp: 0, connection: connection.into(), since, wait }, other)
    };
    let mut snapshooter = Snapshooter::default();
    let (process, mut other) = exiting();
    assert!(!process.is_late());
    snapshooter.begin(Request {
        image: ImageId(0),
        pid: process.pid,
        identity: process::image_identity(process.pid),
        time: Time(9),
        cause: SnapshotCause::End,
        is_limited: true,
        blocks: Vec::new(),
        has_sites: true,
        live: Live::default(),
        copy_ns: 1,
        done: None,
        exiting: Some(process),
    });
    assert_eq!(std::io::Read::read(&mut other, &mut [0]).unwrap(), 0);
    let made = snapshooter.take(Duration::from_secs(60)).expect("an answer");
    assert_eq!(made.snapshot.expect("a snapshot").figures.cause, SnapshotCause::End);
    assert!(snapshooter.spent > Duration::ZERO);

    let (process, _other) = exiting();
    let long_ago = Instant::now().checked_sub(Duration::from_secs(3600)).unwrap();
    assert!(Exiting { since: long_ago, ..process }.is_late());
}

#[test]
fn many_parts_are_joined() {
    let part = |at: usize| SnapshotPart {
        kind: "file".into(),
        name: format!("/f{at}"),
        resident: Bytes(1),
        count: 1,
        ..SnapshotPart::default()
    };
    let joined = with_fewer((0..6000).map(part).collect());
    assert_eq!(joined.len(), 4097);
    assert_eq!(joined.iter().map(|part| part.resident.0).sum::<u64>(), 6000);
    assert_eq!(joined.last().map(|part| (part.name.as_str(), part.count)), Some(("", 1904)));
    assert_eq!(shortened(&"x".repeat(500)).chars().count(), NAME_MAX + 2);
    assert_eq!(shortened("/lib/c.so"), "/lib/c.so");
}
