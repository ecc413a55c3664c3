//! The bodies of the fuzz targets, one for each format that is read, shared with a property test.
//! Each reads the data and, if it is a file of the format, writes the profile as pprof and reads
//! that. It panics if one of these steps does, or if the profile is not consistent.
//!
//! A new format also has an entry in [`TARGETS`], a small file at the end of `FILES` (tests below
//! take files by index), a target in `fuzz/`, and a place in the loop of `.ci/fuzz`.

use crate::{Event, EventKind, Profile, ReadError};

/// The targets.
pub const TARGETS: [fn(&[u8]); 13] = [
    bytehound,
    chrome,
    collapsed,
    dhat,
    firefox,
    gperftools,
    heapprofile,
    heaptrack,
    jemalloc,
    massif,
    memray,
    pprof,
    speedscope,
];

/// Exercises bytehound's files. The data is read as a file, and as the events after a header.
pub fn bytehound(data: &[u8]) {
    // Not compressed, so that changed bytes are events most of the time.
    let block = |contents: &[u8]| [&[2][..], &(contents.len() as u32).to_le_bytes(), contents].concat();
    let mut header = [0; 77];
    (header[68], header[76]) = (1, 8);
    let events = &data[..data.len().min(1 << 20)];
    for file in [data, &[block(&header), block(events)].concat()] {
        crate::bytehound::detects(file);
        let mut events = Vec::new();
        if let Ok(profile) = crate::bytehound::read(file, &mut |event| events.push(event)) {
            check(&profile);
            check_events(&profile, &events);
        }
    }
}

/// Exercises Chrome's trace JSON, with either kind of heaps.
pub fn chrome(data: &[u8]) {
    crate::chrome::read(data).iter().flatten().for_each(check);
}

/// Exercises collapsed stacks.
pub fn collapsed(data: &[u8]) {
    crate::collapsed::detects(data);
    check_read(crate::collapsed::read(data));
}

/// Exercises DHAT's JSON.
pub fn dhat(data: &[u8]) {
    check_read(crate::dhat::read(data));
}

/// Exercises the Firefox Profiler's JSON, processed or not.
pub fn firefox(data: &[u8]) {
    if let Ok((profile, events)) = crate::firefox::read(data) {
        check(&profile);
        check_events(&profile, &events);
    }
}

/// Exercises gperftools' text.
pub fn gperftools(data: &[u8]) {
    check_read(crate::gperftools::read(data));
}

/// Exercises V8's sampled heaps.
pub fn heapprofile(data: &[u8]) {
    check_read(crate::heapprofile::read(data));
}

/// Exercises heaptrack's data, interpreted or raw.
pub fn heaptrack(data: &[u8]) {
    let mut events = Vec::new();
    if let Ok(profile) = crate::heaptrack::read(&mut &data[..], &mut |event| events.push(event)) {
        check(&profile);
        check_events(&profile, &events);
    }
}

/// Exercises jemalloc's text.
pub fn jemalloc(data: &[u8]) {
    check_read(crate::jemalloc::read(data));
}

/// Exercises massif's text.
pub fn massif(data: &[u8]) {
    check_read(crate::massif::read(data));
}

/// Exercises memray's captures, of either kind, packed or not.
pub fn memray(data: &[u8]) {
    crate::memray::detects(data);
    let Ok(capture) = crate::memray::Capture::open(data) else { return };
    let mut runs_python = |_: &str, address: u64| address.is_multiple_of(3);
    if capture.is_aggregated() {
        return check_read(capture.read_totals(&mut runs_python));
    }
    let mut events = Vec::new();
    if let Ok(profile) = capture.read_events(&mut runs_python, &mut |event| events.push(event)) {
        check(&profile);
        check_events(&profile, &events);
    }
}

/// Exercises pprof's messages.
pub fn pprof(data: &[u8]) {
    check_read(crate::pprof::read(data));
}

/// Exercises Speedscope's JSON.
pub fn speedscope(data: &[u8]) {
    check_read(crate::speedscope::read(data));
}

fn check_read(read: Result<Profile, ReadError>) {
    read.iter().for_each(check);
}

fn check_events(profile: &Profile, events: &[Event]) {
    let mut live = std::collections::HashSet::new();
    for event in events {
        let (EventKind::Allocated { sample, .. } | EventKind::Freed { sample, .. }) = event.kind;
        assert!(sample < profile.samples.len() && event.process < profile.processes.len().max(1));
        match event.kind {
            EventKind::Allocated { .. } => _ = live.insert((event.process, event.address)),
            EventKind::Freed { .. } => assert!(live.remove(&(event.process, event.address))),
        }
    }
}

fn check(profile: &Profile) {
    for location in &profile.locations {
        assert!(location.module.is_none_or(|at| at < profile.modules.len()));
    }
    for sample in &profile.samples {
        assert!(sample.locations.iter().all(|&at| at < profile.locations.len()));
    }
    let mut written = Vec::new();
    crate::pprof::write(profile, &mut written).expect("memory takes everything");
    let again = crate::pprof::read(&written).expect("what was written can be read");
    assert!(profile.samples.len() >= again.samples.len());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::TARGETS;
    use crate::damaged::damaged;
    use crate::memray::written::Written;
    use crate::{chrome, collapsed, dhat, firefox, gperftools, heapprofile, heaptrack, jemalloc, massif, speedscope};

    const FILES: [&str; 14] = [
        "heap_v2/524288\n  t*: 3: 1048704 [0: 0]\n@ 0x1001 0x2001\n  t*: 1: 1048576 [0: 0]\n\nMAPPED_LIBRARIES:\n1000-1800 r-xp 0 08:01 1 /a\n",
        "heap profile: 3: 192 [5: 320] @ heap_v2/524288\n 2: 128 [4: 256] @ 0x10 0x20\nMAPPED_LIBRARIES:\n10-20 r-xp 0 0:0 1 /a\n",
        r#"{"dhatFileVersion":2,"mode":"heap","bklt":true,"tu":"ms","pps":[{"tb":10,"tbk":2,"gb":6,"fs":[1,2]}],"ftbl":["[root]","0x1: f (a.c:1)","m"]}"#,
        "desc: a\ncmd: b\ntime_unit: i\nsnapshot=0\ntime=5\nmem_heap_B=9\nheap_tree=peak\nn2: 9 (all)\n n1: 5 0x1: f (a.c:5)\n  n0: 5 0x2: g\n n0: 4 in 2\n",
        "v 10400 3\nX a\ns 2 /a\ns 1 f\ni 10 1 2 1 5\nt 1 0\na 40 1\n+ 0\nc 5\n- 0\n",
        "v 10400 3\nx 2 /a\nX a\nm 1 -\nm 1 x 1000 0 80 100 50\nm 2 /b 2000 0 100\nt 1101 0\nt 2001 1\n+ 40 2 7f0\n+ 8 1 7f8\nc 5\n- 7f0\n- 1\nm 1 -\n",
        r#"{"traceEvents":[{"ph":"M","pid":3,"name":"stackFrames","args":{"stackFrames":{"1":{"name":"main"},"2":{"name":"pc:11","parent":"1"}}}},
            {"ph":"M","pid":3,"name":"typeNames","args":{"typeNames":{"0":"[unknown]","1":"T"}}},{"ph":"C","pid":3,"ts":5,"name":"live bytes","args":{"value":3}},
            {"ph":"v","id":"0x1","pid":3,"ts":2,"args":{"dumps":{"heaps":{"malloc":{"entries":[{"bt":"","size":"f","count":"3"},
            {"bt":"1","size":"d","count":"2"},{"bt":"2","size":"9"},{"bt":"2","type":"1","size":"8"},{"bt":"","type":"1","size":"8"}]}}}}}]}"#,
        r#"[{"ph":"v","id":"0x1","pid":3,"ts":2.5,"args":{"dumps":{"process_mmaps":{"vm_regions":[{"sa":"10","sz":"10","mf":"/b"}]},
            "heaps_v2":{"version":1,"allocators":{"malloc":{"nodes":[2,1],"types":[0,0],"counts":[2,1],"sizes":[60.9,4]}},
            "maps":{"strings":[{"id":1,"string":"main"},{"id":2,"string":"pc:11"}],"nodes":[{"id":1,"name_sid":1},{"id":2,"name_sid":2,"parent":1}],
            "types":[{"id":0,"name_sid":1}]}}}}}]"#,
        r#"{"meta":{"preprocessedProfileVersion":61,"startTime":0},"libs":[{"path":"/b","codeId":"ab"}],"shared":{"stringArray":["0x5","f","a.c"],
            "stackTable":{"frame":[0,1],"prefix":[null,0]},"frameTable":{"func":[0,1],"address":[5,-1],"inlineDepth":[0,0],"line":[null,3]},
            "funcTable":{"name":[0,1],"resource":[0,-1],"source":[null,0]},"resourceTable":{"lib":[0]},"sources":{"filename":[2]}},
            "threads":[{"pid":"7","nativeAllocations":{"time":[1,2,3.5],"weight":[8,9,-8],"stack":[1,0,null],"memoryAddress":[1,2,1],"threadId":[7,7,8]}}]}"#,
        r#"{"meta":{"stackwalk":1,"startTime":5},"libs":[{"start":16,"end":32,"path":"/b"}],"processes":[],"threads":[{"pid":7,
            "markers":{"schema":{"name":0,"startTime":1,"data":2},"data":[[0,1,{"type":"Native allocation","size":8,"memoryAddress":1,"threadId":7,
            "stack":{"samples":{"schema":{"stack":0},"data":[[1]]}}}],[0,2,{"type":"Native allocation","size":-8,"memoryAddress":1,"threadId":7}]]},
            "frameTable":{"schema":{"location":0},"data":[[0],[1]]},"stackTable":{"schema":{"prefix":0,"frame":1},"data":[[null,0],[0,1]]},
            "stringTable":["(root)","0x11"]}]}"#,
        "main;f;g 12\nmain;h 3\n",
        r#"{"head":{"callFrame":{"functionName":"(root)"},"selfSize":0,"children":[{"callFrame":{"functionName":"f","url":"a.js",
            "lineNumber":3},"selfSize":64,"children":[{"callFrame":{"functionName":""},"selfSize":8}]}]}}"#,
        r#"{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"heapledger","shared":{"frames":[{"name":"f"}]},
            "profiles":[{"type":"sampled","name":"bytes live","unit":"bytes","samples":[[0,0]],"weights":[9]}]}"#,
        r#"{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[{"name":"f"}]},"profiles":[{"type":"evented",
            "name":"m","unit":"bytes","events":[{"type":"O","at":0,"frame":0},{"type":"C","at":9,"frame":0}]}]}"#,
    ];

    fn damaged_files() -> impl Strategy<Value = Vec<u8>> {
        let words = vec![
            "",
            "\n",
            "@",
            ":",
            "0",
            "-1",
            "ffffffffffffffff",
            "18446744073709551615",
            "n9",
            "[",
            "\"fs\":[9]",
            "t 1 1\n",
            "m 1 -\n",
            "null",
            "1e99",
            "\"2\"",
        ];
        let mut files: Vec<Vec<u8>> = FILES.iter().map(|file| file.as_bytes().to_vec()).collect();
        files.extend((11..=13).flat_map(|version| [Written::example(version), Written::aggregated_example(version)]));
        damaged(files, words)
    }

    #[test]
    fn whole_files_can_be_read() {
        FILES.iter().for_each(|file| TARGETS.iter().for_each(|target| target(file.as_bytes())));
        for at in [4, 5] {
            assert!(heaptrack::read(&mut FILES[at].as_bytes(), &mut |_| {}).is_ok());
        }
        for at in [6, 7] {
            assert_eq!(chrome::read(FILES[at].as_bytes()).map(|it| it.len()), Ok(1));
        }
        for at in [8, 9] {
            assert!(firefox::read(FILES[at].as_bytes()).unwrap().1.len() >= 2);
        }
        assert_eq!(collapsed::read(FILES[10].as_bytes()).unwrap().samples.len(), 2);
        assert_eq!(heapprofile::read(FILES[11].as_bytes()).unwrap().samples.len(), 2);
        for at in [12, 13] {
            assert_eq!(speedscope::read(FILES[at].as_bytes()).unwrap().samples.len(), 1);
        }
        assert!(massif::read(FILES[3].as_bytes()).is_ok() && dhat::read(FILES[2].as_bytes()).is_ok());
        assert!(gperftools::read(FILES[1].as_bytes()).is_ok() && jemalloc::read(FILES[0].as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn damaged_files_are_no_danger(file in damaged_files()) {
            TARGETS.iter().for_each(|target| target(&file));
        }

        #[test]
        fn nor_is_anything_else(data: Vec<u8>) {
            TARGETS.iter().for_each(|target| target(&data));
        }
    }
}
