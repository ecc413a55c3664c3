use heapledger_recording::{Recording, Time};

use super::*;

fn site(stack: u32, live: u64, allocated: u64) -> Site {
    Site {
        stack: StackId(stack),
        allocations: Blocks(2),
        bytes_allocated: Bytes(allocated),
        temporaries: Blocks(1),
        live_end: Live { bytes: Bytes(live), blocks: Blocks(u64::from(live > 0)) },
        ..Site::default()
    }
}

fn copy() -> FiguresCopy {
    let counts = Counts { allocations: Blocks(8), ..Counts::default() };
    FiguresCopy {
        images: vec![
            (ImageId(1), counts, vec![site(9, 10, 100), site(3, 500, 500), site(7, 0, 900), site(5, 10, 90)]),
            (ImageId(2), counts, vec![site(3, 20, 20)]),
        ],
        open: vec![(ImageId(0), vec![site(4, 1, 1)])],
        processes: Vec::new(),
        timeline: vec![Sample { time: Time(5), live: Live::default() }],
        footer: Footer { time: Time(77), counts, ..Footer::default() },
        is_sample: false,
        copy_time: Duration::from_nanos(1234),
        file: PathBuf::new(),
    }
}

/// Returns the answer with this copy.
fn answered(copy: FiguresCopy) -> AnsweredFigures {
    let (_, written) = std::sync::mpsc::sync_channel(1);
    AnsweredFigures { copy: Arc::new(copy), is_new: true, next_copy: Duration::from_nanos(250), written }
}

fn status() -> Status {
    Status { recorder: 7, output: "/tmp/a b.hl".into(), ..Status::default() }
}

/// Returns the live bytes of each image's sites, by stack.
fn live(figures: &LiveFigures) -> Vec<(u32, Vec<(u32, u64)>)> {
    let recording = Recording::open(&figures.recording).unwrap();
    assert_eq!(recording.verify(), []);
    let of = |image: u32| {
        let rows = recording.sites(ImageId(image)).rows;
        (image, rows.iter().map(|site| (site.stack.0, site.live_end.bytes.0)).collect())
    };
    [0, 1, 2].map(of).to_vec()
}

#[test]
fn answers_are_read_as_written() {
    let answer = write(&answered(copy()), &status().to_text(), 100).unwrap();
    let figures = read(&answer).unwrap();
    assert_eq!(figures.status, status());
    assert_eq!((figures.sites, figures.sites_left_out, figures.copy_time.as_nanos()), (6, 0, 1234));
    assert!(figures.is_new && figures.next_copy.as_nanos() == 250, "{figures:?}");
    let expected = [(0, vec![(4, 1)]), (1, vec![(3, 500), (5, 10), (7, 0), (9, 10)]), (2, vec![(3, 20)])];
    assert_eq!(live(&figures), expected);
    let recording = Recording::open(&figures.recording).unwrap();
    assert_eq!(recording.footer().unwrap().time, Time(77));
    assert_eq!(recording.image_counts(ImageId(1)).unwrap().allocations, Blocks(8));
    assert_eq!(recording.timeline().rows.len(), 1);
}

#[test]
fn the_largest_sites_stay_and_the_rest_is_summed_up() {
    let figures = read(&write(&answered(copy()), &status().to_text(), 3).unwrap()).unwrap();
    assert_eq!((figures.sites, figures.sites_left_out), (3, 3));
    // Two sites have ten live bytes: the one stays that has allocated more.
    let expected = [(0, vec![(0, 1)]), (1, vec![(0, 10), (3, 500), (9, 10)]), (2, vec![(3, 20)])];
    assert_eq!(live(&figures), expected);
    let recording = Recording::open(&figures.recording).unwrap();
    let rest = recording.sites(ImageId(1)).rows[0];
    assert_eq!((rest.bytes_allocated, rest.allocations, rest.temporaries), (Bytes(990), Blocks(4), Blocks(2)));

    let equal = FiguresCopy { images: vec![(ImageId(1), Counts::default(), vec![site(1, 8, 8); 10])], ..copy() };
    let figures = read(&write(&answered(equal), &status().to_text(), 4).unwrap()).unwrap();
    assert_eq!((figures.sites, figures.sites_left_out), (4, 7));
    let none = read(&write(&answered(copy()), &status().to_text(), 0).unwrap()).unwrap();
    assert_eq!((none.sites, none.sites_left_out), (0, 6));
    assert_eq!(live(&none), [(0, vec![(0, 1)]), (1, vec![(0, 520)]), (2, vec![(0, 20)])]);
}

#[test]
fn hostile_answers_are_refused() {
    let answer = write(&answered(copy()), &status().to_text(), 100).unwrap();
    let kind = |answer: &[u8]| read(answer).map(|_| ()).map_err(|error| error.kind());
    // Without its end, only the recording is cut short, which is looked at later.
    for end in 0..HEADER + status().to_text().len() {
        assert_eq!(kind(&answer[..end]), Err(io::ErrorKind::InvalidData), "{end}");
    }
    let mut newer = answer.clone();
    newer[6] = b'3';
    assert_eq!(kind(&newer), Err(io::ErrorKind::Unsupported));
    let mut long = answer.clone();
    long[8..16].fill(0xff);
    assert_eq!(kind(&long), Err(io::ErrorKind::InvalidData));
    assert_eq!(
        kind(b"recorder 7\noutput /tmp/an earlier answer, which has a status alone"),
        Err(io::ErrorKind::InvalidData)
    );
}
