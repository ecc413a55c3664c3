use super::*;

#[test]
fn this_process_is_described() {
    let description = Description::of(std::process::id());
    assert_eq!(description.parent_pid, std::os::unix::process::parent_id());
    assert!(!description.argv.is_empty());
    assert!(description.executable.starts_with(b"/"));
    assert!(own_rss_max().unwrap() > 1 << 20);
    assert!(!is_stopped(std::process::id()));
    assert!(age(std::process::id()) > Duration::ZERO && age(1) >= age(std::process::id()));
    assert_eq!(age(1 << 22), Duration::ZERO);
}

#[test]
fn odd_names_do_not_confuse() {
    let text = "12 (a) R b (c) T 7 1 7 0 -1 4194304 2 0 0 0 30 12 0 0 20 0 3 0 99";
    let used = Duration::from_millis(42_000 / rustix::param::clock_ticks_per_second());
    let started = Duration::from_millis(99_000 / rustix::param::clock_ticks_per_second());
    assert_eq!(Stat::parse(text), Some(Stat { state: 'T', parent: 7, used, started }));
    assert_eq!((Stat::parse("12"), Stat::parse("12 (a) T 7 1 1")), (None, None));
    assert_eq!(Stat::read("/proc/thread-self/stat").unwrap().state, 'R');
}

#[test]
fn names_need_not_be_text() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rustix::thread::set_name(c"caf\xe9) T").expect("it is allowed");
            assert_eq!(Stat::read("/proc/thread-self/stat").map(|stat| stat.state), Some('R'));
            assert!(text("/proc/thread-self/status").is_ok_and(|text| text.contains("\nState:\tR")));
        });
    });
    assert!(text("/proc/4194304/stat").is_err_and(|error| is_gone(&error)));
}
