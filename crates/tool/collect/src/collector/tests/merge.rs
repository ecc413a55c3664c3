//! Tests rings that are merged, and producers that misbehave.

use super::*;

/// Deals the events of one true history out to several rings at random; the file must have them in
/// the true order.
#[test]
fn rings_are_merged_into_the_one_true_history() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        let FakeImage { id, own, .. } = bench.image(100, None);
        let mut rings = vec![own];
        for thread in 1..5 {
            rings.push(bench.ring(id, false, TID + thread, 64 << 10));
        }
        for (number, ring) in rings.iter_mut().enumerate() {
            ring.thread(0, TID + number as u32, "worker");
        }
        let mut live: Vec<(u64, u64, u64)> = Vec::new();
        let mut released: Vec<u64> = Vec::new();
        let mut expected = Vec::new();
        let (mut at, mut serial, mut bytes, mut bytes_max) = (10, 0, 0, 0);
        for _ in 0..20_000 {
            let ring = random.index(5);
            // An allocation may follow a release within the same unit; other orders could not be
            // told apart.
            at += random.below(3) + u64::from(matches!(expected.last(), Some((_, EventKind::Alloc { .. }))));
            if at > 50_000 {
                break;
            }
            if random.below(2) == 0 && !live.is_empty() {
                at += 1;
                let (address, block, size) = live.swap_remove(random.index(live.len()));
                rings[ring].free(at, address);
                expected.push((ring, freed(block)));
                released.push(address);
                bytes -= size;
            } else {
                let address = released.pop().unwrap_or(0x10_0000 + serial * 16);
                let size = random.below(500);
                rings[ring].malloc(at, address, size, 1 + random.below(30) as u32);
                live.push((address, serial, size));
                expected.push((
                    ring,
                    EventKind::Alloc { serial: heapledger_core::Serial(serial), size: Bytes(size), stack: StackId(0) },
                ));
                serial += 1;
                bytes += size;
                bytes_max = bytes_max.max(bytes);
            }
            if random.below(1_000) == 0 {
                bench.iterate();
            }
        }
        bench.iterate();
        bench.end(id, ImageEndReason::Exit);
        let (finished, file) = bench.finish();
        let recording = open(&file);
        let threads: HashMap<u32, u32> =
            recording.threads(id).iter().map(|thread| (thread.thread.0, thread.tid - TID)).collect();
        let events = events_of(&recording, id);
        assert_eq!(events.len(), expected.len());
        for ((event, _), (ring, kind)) in events.iter().zip(&expected) {
            assert_eq!(threads[&event.thread.0], *ring as u32);
            match (event.kind, kind) {
                (EventKind::Alloc { serial, size, .. }, EventKind::Alloc { serial: s, size: z, .. }) => {
                    assert_eq!((serial, size), (*s, *z));
                }
                (found, expected) => assert_eq!(found, *expected),
            }
        }
        let counts = finished.footer.counts;
        assert_eq!(
            (counts.allocations.0, counts.bytes_live_max.0, counts.bytes_live_end.0),
            (serial, bytes_max, bytes)
        );
        assert_eq!((counts.frees_unknown.0, counts.events_late, counts.threads), (0, 0, 5));
    }
}

#[test]
fn a_corrupt_producer_harms_only_itself() {
    for kind in 0..4 {
        let mut bench = Bench::new();
        let FakeImage { id: good, own: mut good_ring, .. } = bench.image(100, None);
        let FakeImage { id: corrupt, own: mut corrupt_ring, .. } = bench.image(101, None);
        good_ring.malloc(1, 0x1000, 10, 1);
        corrupt_ring.malloc(2, 0x1000, 10, 1);
        bench.iterate();
        match kind {
            // A position that is impossible.
            0 => corrupt_ring.producer.ring().publish(1 << 40),
            // A word that is not an event.
            1 => corrupt_ring.put(&[0]),
            // Only a part of an event.
            2 => corrupt_ring.put(&event::malloc(0, 0x2000, 1, StackId(1))[..1]),
            // A stamp that is far in the future.
            _ => corrupt_ring.put(event::extended(u64::MAX, &Extended::ThreadEnd, &mut [0; 8]).unwrap()),
        }
        bench.iterate();
        // Its producer is not left waiting, however much it writes.
        for _ in 0..20 {
            if kind > 0 {
                for _ in 0..1_000 {
                    corrupt_ring.put(&[7, 7]);
                }
            }
            bench.iterate();
            assert_eq!(corrupt_ring.producer.ring().readable(), 0);
        }
        good_ring.free(50, 0x1000);
        bench.iterate();
        bench.end(corrupt, ImageEndReason::Exit);
        bench.end(good, ImageEndReason::Exit);
        let (finished, bytes) = bench.finish();
        let recording = open(&bytes);
        assert_eq!(kinds_of(&recording, good), [alloc(0, 10, 1), freed(0)]);
        assert_eq!(kinds_of(&recording, corrupt), [alloc(0, 10, 1)]);
        assert_eq!(recording.image_counts(good).unwrap().events_lost, 0);
        let lost = recording.image_counts(corrupt).unwrap().events_lost;
        assert!(lost >= if kind > 0 { 20_000 } else { 1 }, "{kind}: {lost}");
        assert_eq!(finished.footer.counts.events_lost, lost);
    }
}

#[test]
fn a_thread_that_is_stopped_between_stamp_and_publication_holds_up_nobody_for_long() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    let mut stopped = bench.ring(id, false, TID + 1, 64 << 10);
    own.thread(0, TID, "runs");
    stopped.thread(1, TID + 1, "stopped");
    stopped.malloc(2, 0x1000, 1, 1);
    stopped.producer.begin();
    let stamp = 10;
    for number in 0..100 {
        own.malloc(20 + number, 0x10_0000 + number * 16, 1, 1);
    }
    bench.iterate();
    assert_eq!(bench.collector.shared.events, 1, "the stopped thread's last stamp is the horizon");
    std::thread::sleep(bench.collector.merge.timeout * 2);
    bench.iterate();
    assert_eq!(bench.collector.shared.events, 101, "it is passed");
    stopped.malloc(stamp, 0x2000, 1, 1);
    stopped.producer.end();
    bench.iterate();
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    assert_eq!(finished.footer.counts.events_late, 1);
    let events = events_of(&recording, id);
    assert_eq!(events.len(), 102);
    assert!(events.is_sorted_by_key(|(event, _)| event.time));
    assert_eq!(events[101].0.thread.0, 1);
}

#[test]
fn what_waits_to_be_merged_is_bounded() {
    let mut bench = Bench::new();
    bench.collector.merge.backlog_max = 10_000;
    bench.collector.merge.timeout = Duration::from_secs(60);
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    let mut stopped = bench.ring(id, false, TID + 1, 64 << 10);
    stopped.malloc(1, 0x1000, 1, 1);
    stopped.producer.begin();
    let (mut written, capacity) = (0, own.producer.ring().capacity());
    let fill = |own: &mut TestRing, written: &mut u64| {
        while own.producer.ring().readable() + 8 < capacity {
            *written += 1;
            own.malloc(1 + *written, *written << 4, 1, 1);
        }
    };
    for _ in 0..10 {
        fill(&mut own, &mut written);
        bench.iterate();
    }
    // The ring was emptied until the limit was exceeded; from then on the producer would wait.
    assert!(own.producer.ring().readable() > 0);
    assert!(bench.collector.merge.sources.iter().map(Source::backlog).sum::<usize>() < 10_000 + 2 * capacity as usize);
    assert_eq!(bench.collector.shared.events, 1);
    stopped.producer.end();
    while own.producer.ring().readable() > 0 {
        bench.iterate();
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.end(id, ImageEndReason::Exit);
    let (finished, _) = bench.finish();
    let counts = finished.footer.counts;
    assert_eq!((counts.allocations.0, counts.events_late, counts.events_lost), (written + 1, 0, 0));
}
