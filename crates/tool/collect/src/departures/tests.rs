use super::*;

fn announced(pid: u32, reason: u16, time: u64) -> Announced {
    let (image, time, since) = (ImageId(0), Time(time + 1), time);
    Announced { image, process: 7, pid, reason, is_tight: false, since, time, path: vec![] }
}

fn settled(departures: &mut Departures, now: Option<u64>) -> Vec<(u32, u32)> {
    let settled = departures.settle(now.map(Time), |_| 7);
    settled.iter().map(|departure| (departure.pid, departure.reason)).collect()
}

#[test]
fn those_that_introduce_themselves_are_none() {
    let mut departures = Departures::default();
    departures.announce(announced(8, 0, 100));
    departures.announce(announced(9, 0, 100));
    // An earlier program of the same process.
    departures.introduce(8, 50);
    departures.introduce(8, 150);
    assert_eq!(settled(&mut departures, Some(u64::MAX)), []);
    assert_eq!(settled(&mut departures, None), [(9, 74)]);
    assert_eq!(departures.into_listed().0, 1);
}

#[test]
fn those_into_which_nothing_could_be_placed_say_so() {
    let mut departures = Departures::default();
    departures.announce(announced(8, 0, 100));
    departures.announce(announced(9, 0, 100));
    departures.not_followed(9);
    assert_eq!(settled(&mut departures, None), [(8, 74), (9, 122)]);
}

/// A later program of the same process, or of another one with its number, is merely silent.
#[test]
fn later_programs_of_a_process_are_not_meant() {
    let mut departures = Departures::default();
    departures.not_followed(8);
    departures.introduce(8, 50);
    departures.announce(announced(8, 0, 100));
    departures.announce(announced(9, 0, 100));
    departures.not_followed(9);
    departures.announce(announced(9, 0, 200));
    assert_eq!(settled(&mut departures, None), [(8, 74), (9, 122), (9, 74)]);
}

#[test]
fn those_that_fail_are_none() {
    let mut departures = Departures::default();
    departures.announce(announced(7, 1, 100));
    departures.announce(announced(7, 3, 200));
    departures.exec_failed(ImageId(0), 7);
    departures.exec_failed(ImageId(1), 7);
    assert_eq!(settled(&mut departures, Some(300)), []);
    assert_eq!(settled(&mut departures, Some(200 + SETTLED_AFTER)), [(7, 1)]);
    assert_eq!(settled(&mut departures, None), []);
}
