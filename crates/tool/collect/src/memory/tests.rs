use super::*;

#[test]
fn what_the_kernel_writes_is_understood() {
    let mut sample = MemorySample::default();
    let status = "Name:\tVmRSS: 7\nVmRSS:\t    2612 kB\nRssAnon:\t     116 kB\nRssFile:\t    1496 kB\n\
                  RssShmem:\t    1000 kB\nVmSwap:\t       4 kB\nThreads:\t1\n";
    parse_status(status.as_bytes(), &mut sample);
    let maps = "564b018ef000-564b018f1000 r--p 00000000 fe:00 247282                     /usr/bin/head\n\
                564b018f1000-564b018f2000 rw-p 00002000 fe:00 247282                     /usr/bin/head\n\
                564b01a00000-564b01a21000 rw-p 00000000 00:00 0                          [heap]\n\
                7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
                7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n\
                7f1000000000-7f1000001000 rw-s 00000000 00:01 7                          /memfd:heapledger (deleted)\n\
                7f2000000000-7f2000003000 rw-p 00000000 00:00 0                          [anon:arena]\n\
                7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n";
    parse_maps(maps.as_bytes(), &mut sample);
    let expected = MemorySample {
        time: Time(0),
        resident: Bytes(2612 << 10),
        resident_anonymous: Bytes(116 << 10),
        resident_file: Bytes(2496 << 10),
        heap: Bytes(0x21000),
        mappings: Bytes(0x21000 + 0x3000),
        swapped: Bytes(4 << 10),
    };
    assert_eq!(sample, expected);
}

#[test]
fn this_process_is_sampled() {
    let memory = vec![1_u8; 64 << 20];
    let mut prober = Prober::default();
    let sample = prober.sample(std::process::id(), Time(5)).unwrap();
    assert!(sample.resident_anonymous >= Bytes(memory.len() as u64) && sample.mappings >= Bytes(64 << 20));
    assert!(sample.resident >= sample.resident_anonymous && sample.time == Time(5));
    assert!(prober.sample(u32::MAX, Time(0)).is_none());
}

#[test]
fn long_runs_have_few_samples() {
    let mut samples = Samples::new();
    let (mut written, mut now) = (0, 0);
    while now < 86_400_000_000_000 {
        now = samples.next.0;
        written += samples.add(MemorySample { time: Time(now), ..MemorySample::default() }).map_or(0, |it| it.len());
    }
    assert!((3_000..=4_352).contains(&written), "{written}");
}

#[test]
fn sampling_takes_a_hundredth_of_the_time() {
    let mut budget = Budget::default();
    assert!(budget.is_left());
    let (start, before) = (thread_time(), Instant::now());
    while thread_time() - start < Duration::from_millis(10) {}
    budget.spend(start);
    assert!(!budget.is_left());
    assert!(budget.next.unwrap() > before + Duration::from_millis(990));
}
