//! Snapshots of the output of the reading verbs for a small recording.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{
    Compressor, Counts, Event, EventKind, EventsEncoder, ExitStatus, Extras, Footer, FreedBlock, ImageCounts, ImageEnd,
    ImageEndReason, ImageId, ImageOrigin, ImageStart, Live, MemoryEncoder, MemorySample, Module, ModuleId, Node,
    NodeKind, NodesEncoder, ProcessCounts, Record, RecordingWriter, Sampled, Session, Site, SiteErrors, SitesEncoder,
    Text, TextId, Thread, Time, encode_records,
};

mod selection;
mod types;

use crate::args;
use crate::output::Output;
use crate::read;

const IMAGE: ImageId = ImageId(0);
const BLOCKS: u64 = 10;

/// Returns a recording in which a process allocates ten blocks of 1000 bytes from one stack and
/// frees half of them at once, and then allocates one of 3000 bytes from another, deeper stack,
/// which it keeps. No file of the modules exists, so no name is known.
///
/// If `is_declared`, the program allocates four of the ten blocks in one context, three in another,
/// and the rest in none; the last block belongs to a heap of its own, and is stamped.
fn recording(is_declared: bool) -> Vec<u8> {
    let compressor = &mut Compressor::new();
    let mut writer = RecordingWriter::new();
    let (start, end) = (Time(1_000_000), Time(2_500_000_000));
    let mut records = vec![
        Record::Session(Session {
            tool_version: "0.1.0".into(),
            start_unix_ns: 1_795_225_955_000_000_000,
            command: vec![b"./server".to_vec(), b"--port".to_vec(), b"80".to_vec()],
            directory: b"/srv".to_vec(),
            ..Session::default()
        }),
        Record::ImageStart(ImageStart {
            image: IMAGE,
            pid: 4411,
            how: ImageOrigin::Launched,
            time: start,
            executable: b"/nonexistent/server".to_vec(),
            argv: vec![b"./server".to_vec(), b"a\x1b[2Jb".to_vec()],
            ..ImageStart::default()
        }),
        Record::Module(Module { module: ModuleId(1), path: b"/nonexistent/server".to_vec(), build_id: vec![0xab; 20] }),
        Record::Module(Module { module: ModuleId(2), path: b"/nonexistent/libx.so".to_vec(), build_id: vec![] }),
        Record::Thread(Thread { image: IMAGE, tid: 4411, name: b"server".to_vec(), start, ..Thread::default() }),
        Record::ImageEnd(ImageEnd {
            image: IMAGE,
            time: end,
            reason: ImageEndReason::Exit,
            exit: Some(ExitStatus::Code(3)),
        }),
    ];
    if is_declared {
        let texts = ["request", "route=/a", "route=/b", "par\x1bse", "arena", "Page\nsrc/pages.rs:8\nspare"];
        records.extend((1..).zip(texts).map(|(text, bytes)| {
            let (bytes, category) = (bytes.into(), if text == 4 { b"cpu".to_vec() } else { vec![] });
            Record::Text(Text { text: TextId(text), bytes, is_task: text == 1, category })
        }));
    }
    let put = |writer: &mut RecordingWriter, records: &[Record], compressor: &mut Compressor| {
        encode_records(records, compressor).unwrap().iter().for_each(|chunk| writer.push(chunk));
    };
    put(&mut writer, &records, compressor);

    let mut nodes = NodesEncoder::new(IMAGE);
    for (id, parent, module, offset) in
        [(1, 0, 1, 0x10), (2, 1, 1, 0x20), (3, 1, 2, 0x30), (4, 3, 2, 0x40), (5, 4, 1, 0x50)]
    {
        let node =
            Node { id: StackId(id), parent: StackId(parent), kind: NodeKind::Frame, module: ModuleId(module), offset };
        nodes.push(&node).unwrap();
    }
    let declared = [
        (10, 0, NodeKind::Scope, 1),
        (11, 10, NodeKind::Value, 2),
        (12, 10, NodeKind::Value, 3),
        (13, 12, NodeKind::Scope, 4),
        (14, 2, NodeKind::Context, 11),
        (15, 2, NodeKind::Context, 13),
        (17, 5, NodeKind::Heap, 5),
        (16, 17, NodeKind::Stamp, 6),
    ];
    for (id, parent, kind, offset) in declared.into_iter().filter(|_| is_declared) {
        let (id, parent, module) = (StackId(id), StackId(parent), ModuleId::UNKNOWN);
        nodes.push(&Node { id, parent, kind, module, offset }).unwrap();
    }
    writer.push(&nodes.finish(compressor).unwrap());
    let stack_of = |block: u64| match block {
        0..4 if is_declared => StackId(14),
        4..7 if is_declared => StackId(15),
        BLOCKS if is_declared => StackId(16),
        BLOCKS => StackId(5),
        _ => StackId(2),
    };

    let mut events = EventsEncoder::new(IMAGE);
    let mut live = Live::default();
    let mut push = |events: &mut EventsEncoder, milliseconds: u64, kind: EventKind| {
        match kind {
            EventKind::Alloc { size, .. } => {
                live.bytes.0 += size.0;
                live.blocks.0 += 1;
            }
            _ => {
                live.bytes.0 -= 1000;
                live.blocks.0 -= 1;
            }
        }
        let call = if matches!(kind, EventKind::Free { .. }) { Api::Free } else { Api::Malloc };
        let event = Event {
            time: Time(milliseconds * 1_000_000),
            thread: ThreadId(0),
            call: call.into(),
            sampled: Sampled::NOT,
            kind,
        };
        events.push(&event, &Extras::NONE, live).unwrap();
    };
    for block in 0..BLOCKS {
        let serial = Serial(block);
        push(&mut events, 10 + block, EventKind::Alloc { serial, size: Bytes(1000), stack: stack_of(block) });
        if block % 2 == 0 {
            push(&mut events, 10 + block, EventKind::Free { block: FreedBlock::Known(serial) });
        }
    }
    push(&mut events, 2000, EventKind::Alloc { serial: Serial(BLOCKS), size: Bytes(3000), stack: stack_of(BLOCKS) });
    writer.push(&events.finish(compressor).unwrap());

    let memory = [(10, 700_000), (1_000, 9_000)].map(|(milliseconds, resident)| MemorySample {
        time: Time(milliseconds * 1_000_000),
        resident: Bytes(resident),
        resident_anonymous: Bytes(resident / 2),
        heap: Bytes(135_168),
        ..MemorySample::default()
    });
    MemoryEncoder::encode(IMAGE, &memory, compressor).unwrap().iter().for_each(|chunk| writer.push(chunk));

    let holds = |bytes, blocks| Live { bytes: Bytes(bytes), blocks: Blocks(blocks) };
    let site = |stack, allocations, bytes, temporaries, live: Live| Site {
        stack: StackId(stack),
        allocations: Blocks(allocations),
        bytes_allocated: Bytes(bytes),
        temporaries: Blocks(temporaries),
        live_end: live,
        live_at_image_peak: live,
        live_at_session_peak: live,
        errors: SiteErrors::default(),
    };
    let sites = match is_declared {
        false => vec![site(2, BLOCKS, 10_000, 5, holds(5000, 5)), site(5, 1, 3000, 0, holds(3000, 1))],
        true => vec![
            site(14, 4, 4000, 2, holds(2000, 2)),
            site(15, 3, 3000, 2, holds(1000, 1)),
            site(2, 3, 3000, 1, holds(2000, 2)),
            site(16, 1, 3000, 0, holds(3000, 1)),
        ],
    };
    SitesEncoder::encode(IMAGE, &sites, compressor).unwrap().iter().for_each(|chunk| writer.push(chunk));
    let counts = Counts {
        allocations: Blocks(11),
        frees: Blocks(5),
        bytes_allocated: Bytes(13_000),
        bytes_live_max: Bytes(8000),
        bytes_live_max_time: Time(2_000_000_000),
        blocks_at_bytes_max: Blocks(6),
        blocks_live_max: Blocks(6),
        bytes_live_end: Bytes(8000),
        blocks_live_end: Blocks(6),
        temporary_allocations: Blocks(5),
        threads: 1,
        ..Counts::default()
    };
    let records = [
        Record::ImageCounts(ImageCounts { image: IMAGE, counts }),
        Record::ProcessCounts(ProcessCounts { first_image: IMAGE, pid: 4411, counts }),
    ];
    put(&mut writer, &records, compressor);
    let footer = Footer {
        time: Time(2_600_000_000),
        complete: true,
        counts,
        exit: Some(ExitStatus::Code(3)),
        ..Footer::default()
    };
    writer.finish(&footer, compressor);
    writer.pending().to_vec()
}

/// A temporary file that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(is_declared: bool) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("heapledger-snapshot-{}-{number}.hl", std::process::id()));
        fs::write(&path, recording(is_declared)).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[derive(Clone, Default)]
struct Captured(Rc<RefCell<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the output of `heapledger LINE`, with the recording's name in place of FILE.
fn printed(line: &str) -> String {
    printed_of(line, false)
}

/// Returns the output for a program that declares contexts and heaps.
fn declared(line: &str) -> String {
    printed_of(line, true)
}

fn printed_of(line: &str, is_declared: bool) -> String {
    let file = Scratch::new(is_declared);
    let words = line.split_whitespace().map(|word| match word {
        word if word.starts_with("FILE") => word.replace("FILE", &file.0.to_string_lossy()),
        word => word.to_owned(),
    });
    let arguments = args::parse(["heapledger".to_owned()].into_iter().chain(words).map(Into::into)).unwrap();
    let captured = Captured::default();
    let mut out = Output::into(captured.clone());
    read(&arguments, &mut out).unwrap();
    let text = String::from_utf8(captured.0.borrow().clone()).unwrap();
    format!("\n{}", text.replace(&*file.0.to_string_lossy(), "FILE"))
}

#[test]
fn summary() {
    assert_eq!(printed("FILE").lines().nth(1).map(|line| line.starts_with("FILE (")), Some(true));
    assert_eq!(
        printed("summary FILE").lines().skip(3).collect::<Vec<_>>().join("\n"),
        "                  peak  7.8 KiB  at 2.0 s in 6 blocks
     resident, at most  683.6 KiB  at 10.0 ms, 341.8 KiB of it of no file
       live at the end  7.8 KiB  in 6 blocks
           allocations  11  of 12.7 KiB in all, 45 % temporary
of these reallocations  0
                 frees  5
   most blocks at once  6
               threads  1

 pid     peak  live at end  allocations  temporary   ended
4411  7.8 KiB      7.8 KiB           11       45 %  exit 3  ./server a\\u{1b}[2Jb"
    );
}

#[test]
fn summary_as_json() {
    let summary: serde_json::Value = serde_json::from_str(&printed("summary FILE --json")).unwrap();
    assert_eq!(summary["allocations"], 11);
    assert_eq!(summary["bytes_live_max_time_seconds"], 2.0);
    assert_eq!(summary["complete"], true);
    assert_eq!(summary["damage"], serde_json::json!([]));
    assert_eq!(summary["processes"][0]["exit"], serde_json::json!({ "code": 3 }));
    assert_eq!(summary["processes"][0]["command"], "./server a\u{1b}[2Jb");
    assert_eq!(summary["processes"][0]["images"][0]["how"], "launched");
}

#[test]
fn top() {
    assert_eq!(
        printed("top FILE"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
4.9 KiB  62.5 %       5  server+0x20
2.9 KiB  37.5 %       1  server+0x50
"
    );
    assert_eq!(
        printed("top FILE --by module --metric blocks -n 1"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

blocks    share    bytes
     6  100.0 %  7.8 KiB  server
"
    );
    assert_eq!(
        printed("top FILE --by site --total -n 1"),
        "
12.7 KiB in 11 blocks allocated in all

  bytes   share  allocations
9.8 KiB  76.9 %           10  server+0x20
                              ← server+0x10
and 1 more with 2.9 KiB in all: -n 0 shows them
"
    );
    assert_eq!(
        printed("top FILE --by stack --at end -n 0"),
        "
7.8 KiB in 6 blocks live at the end

  bytes   share  blocks
4.9 KiB  62.5 %       5  server+0x20
                         server+0x10
2.9 KiB  37.5 %       1  server+0x50
                         libx.so+0x40
                         libx.so+0x30
                         server+0x10
"
    );
}

#[test]
fn top_from_the_events() {
    assert_eq!(
        printed("top FILE --by size --at 1s"),
        "
4.9 KiB in 5 blocks live at 1.0 s

  bytes    share  blocks
4.9 KiB  100.0 %       5  1000 bytes
"
    );
    assert_eq!(
        printed("top FILE --by thread --metric temporary"),
        "
12.7 KiB in 11 blocks allocated in all

temporary    share  of own  allocations
        5  100.0 %  45.5 %           11  server (4411)
"
    );
}

#[test]
fn a_selection_is_told() {
    assert_eq!(
        printed("top FILE --size ..2k --function server+0x20 --during 12ms-15ms"),
        "
2.0 KiB in 2 blocks retained, live at 15.0 ms
only: function server+0x20 · size up to 2.0 KiB · allocated during 12.0 ms to 15.0 ms (leaves nothing out)
of 3.9 KiB in 4 blocks allocated in that time

  bytes    share  blocks
2.0 KiB  100.0 %       2  server+0x20
"
    );
    assert_eq!(
        printed("summary FILE --not-allocated-by *0x20"),
        "
FILE
only: not allocated by *0x20 (leaves out 9.8 KiB in 10 blocks)

       allocated  2.9 KiB  in 1 allocation
live at the peak  2.9 KiB  in 1 block
 live at the end  2.9 KiB  in 1 block
"
    );
    let leaks: serde_json::Value = serde_json::from_str(&printed("leaks FILE --thread #0 --size 3000 --json")).unwrap();
    assert_eq!(leaks["only"], serde_json::json!({ "threads": ["#0"], "size": { "min": 3000, "max": 3000 } }));
    assert_eq!((&leaks["total"]["bytes"], &leaks["left_out"]["bytes"]), (&3000.into(), &5000.into()));
}

#[test]
fn tree() {
    assert_eq!(
        printed("tree FILE"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes    share  blocks
7.8 KiB  100.0 %       6  server+0x10
4.9 KiB   62.5 %       5  ├─ server+0x20
2.9 KiB   37.5 %       1  └─ libx.so+0x30
                             libx.so+0x40
                             server+0x50
"
    );
    assert_eq!(
        printed("tree FILE --bottom-up --threshold 50"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
4.9 KiB  62.5 %       5  server+0x20
                         server+0x10
2.9 KiB  37.5 %       1  … 1 smaller one
"
    );
    assert_eq!(
        printed("tree FILE --unfold --depth 1"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes    share  blocks
7.8 KiB  100.0 %       6  server+0x10
                          └─ … 2 calls deeper
"
    );
    let tree: serde_json::Value = serde_json::from_str(&printed("tree FILE --json")).unwrap();
    let nodes = tree["nodes"].as_array().unwrap();
    let parents: Vec<Option<u64>> = nodes.iter().map(|node| node["parent"].as_u64()).collect();
    assert_eq!(parents, [None, Some(0), Some(0), Some(2), Some(3)]);
    assert_eq!(nodes[4]["own"]["bytes"], 3000);
    assert_eq!(nodes[4]["depth"], 3);
}

#[test]
fn leaks() {
    assert_eq!(
        printed("leaks FILE -n 1"),
        "
7.8 KiB in 6 blocks live at the end
Live at the end does not mean unreachable: the program may have used it until then.

  bytes   share  blocks
4.9 KiB  62.5 %       5  server+0x20
                         server+0x10
and 1 more with 2.9 KiB in all: -n 0 shows them
"
    );
}

#[test]
fn temporary() {
    assert_eq!(
        printed("temporary FILE"),
        "
5 of 11 allocations were temporary (45 %)

temporary    share  of own  allocations
        5  100.0 %  50.0 %           10  server+0x20
                                         ← server+0x10
"
    );
}

#[test]
fn temporary_within() {
    assert_eq!(
        printed("temporary FILE --within 0"),
        "
5 of 11 allocations were freed before their thread's next allocation (45 %)

temporary    share  of own  allocations
        5  100.0 %  50.0 %           10  server+0x20
                                         ← server+0x10
"
    );
}

#[test]
fn sizes() {
    assert_eq!(
        printed("sizes FILE"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
4.9 KiB  62.5 %       5   ≤ 1.0 KiB  ████████████████████████████████████████
    0 B   0.0 %       0   ≤ 2.0 KiB
2.9 KiB  37.5 %       1   ≤ 4.0 KiB  ████████████████████████
"
    );
}

#[test]
fn callers_and_callees() {
    assert_eq!(
        printed("callers 0x20 FILE"),
        "
4.9 KiB in 5 blocks live at the peak (2.0 s), through server+0x20

  bytes    share  blocks
4.9 KiB  100.0 %       5  server+0x10
"
    );
    assert_eq!(
        printed("callees *+0x10 FILE --total -n 1"),
        "
12.7 KiB in 11 blocks allocated in all, through server+0x10

  bytes   share  allocations
9.8 KiB  76.9 %           10  server+0x20
and 1 more with 2.9 KiB in all: -n 0 shows them
"
    );
}

#[test]
fn reallocations() {
    assert_eq!(printed("reallocations FILE"), "\n0 reallocations (0 % to larger blocks), 0 B copied at most\n");
}

#[test]
fn info() {
    let text = printed("info FILE");
    let start = "
session
       file  FILE, format 2.6
    command  ./server --port 80
  directory  /srv
      began  2026-11-21 01:52:35 UTC
recorded by  heapledger 0.1.0
       took  2.6 s
   complete  yes

processes
image   pid      by    from     to  ended  threads  events
    0  4411  launch  1.0 ms  2.5 s   exit        1      16  ./server a\\u{1b}[2Jb

modules
names from       build id
   nothing  abababababab…  /nonexistent/server  /nonexistent/server is not there
   nothing                 /nonexistent/libx.so  /nonexistent/libx.so is not there

contents
";
    assert_eq!(&text[..start.len().min(text.len())], start);
    assert!(text.contains("stack nodes") && text.contains(" for 16 events: "), "{text}");
}

#[test]
fn flame() {
    assert_eq!(
        printed("flame FILE --collapsed -o -"),
        "\nserver+0x10;libx.so+0x30;libx.so+0x40;server+0x50 3000\nserver+0x10;server+0x20 5000\n"
    );
    assert!(printed("flame FILE -o -").contains("<svg"));
}

#[test]
fn timeline() {
    assert_eq!(
        printed("timeline FILE"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

            █ live   • resident
 683.6 KiB ┤••••••••••••••••••••
           │
           │
           │
           │
           │
 341.8 KiB ┤
           │
           │
           │
           │
           │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁••••••••••••••••••••••••••••••▁
       0 B └a──────────────────────────────────────▲───────────
            0 µs                                          2.6 s

    blocks  ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇████████████  max 6
  resident  ████████████████████▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   max 683.6 KiB
of no file  ████████████████████▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   max 341.8 KiB
  brk heap  ██████████████████████████████████████████████████   max 132.0 KiB
 anon mmap                                                       max 0 B
"
    );
    assert!(printed("timeline FILE --from 1s --to 1.5s").contains("live at most from 1.0 s to 1.5 s (at 1.0 s)"));
    let json: serde_json::Value = serde_json::from_str(&printed("timeline FILE --json --from 1s")).unwrap();
    assert_eq!(json["peak"], serde_json::json!({ "time_seconds": 2.0, "bytes": 8000, "blocks": 6 }));
    assert_eq!(json["live"][0], serde_json::json!({ "time_seconds": 1.0, "bytes": 5000, "blocks": 5 }));
    assert_eq!(json["memory"][0]["resident"], 9000);
    assert_eq!(json["programs"][0]["exit"], serde_json::json!({ "code": 3 }));
    let picture = printed("timeline FILE --svg -o -");
    assert!(picture.contains("7.8 KiB at 2.0 s") && picture.contains(">resident<"), "{picture}");
}

#[test]
fn diff() {
    assert_eq!(
        printed("diff FILE@1s FILE@peak"),
        "
+2.9 KiB (+60.0 %)
before: 4.9 KiB live at 1.0 s of FILE
after:  7.8 KiB live at the peak (2.0 s) of FILE

  change       before    after
+2.9 KiB  new     0 B  2.9 KiB  server+0x50
"
    );
    assert_eq!(
        printed("diff FILE --at end --at 1s --by site --metric blocks"),
        "
−1 (−16.7 %)
before: 6 live at the end of FILE
after:  5 live at 1.0 s of FILE

change        before  after
    −1  gone       1      0  server+0x50
                             ← [2 in libx.so] ← server+0x10
"
    );
    assert!(printed("diff FILE FILE --total --threshold 1%").ends_with("\nnothing differs\n"));
    assert!(printed("diff FILE@1s FILE --threshold 50%").contains("+2.9 KiB  new"));
    assert!(printed("diff FILE@1s FILE --threshold 61%").contains("and 1 that differ by less than the threshold"));
    assert_eq!(
        printed("diff FILE@1s FILE --markdown --by module"),
        "
**Memory: +2.9 KiB (+60.0 %)**

| | |
|---|---|
| before | 4.9 KiB live at 1.0 s of `FILE` |
| after | 7.8 KiB live at the peak (2.0 s) of `FILE` |

| change | | before | after | |
|---:|---:|---:|---:|---|
| **+2.9 KiB** | +60.0 % | 4.9 KiB | 7.8 KiB | `server` |
"
    );
    let json: serde_json::Value = serde_json::from_str(&printed("diff FILE@1s FILE --json --fail-above 3KiB")).unwrap();
    assert_eq!((&json["growth"], &json["exceeded"]), (&serde_json::json!(3000), &serde_json::json!(false)));
    assert_eq!(json["rows"][0]["stack"].as_array().unwrap().len(), 4);
}

#[test]
fn groups_that_the_program_declares() {
    assert_eq!(
        declared("top FILE --by context"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
4.9 KiB  62.5 %       3  (no context)
2.0 KiB  25.0 %       2  request{route=/a}
 1000 B  12.5 %       1  request{route=/b} > par\\u{1b}se
"
    );
    assert_eq!(
        declared("top FILE --by scope -n 2"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
4.9 KiB  62.5 %       3  (no context)
2.0 KiB  25.0 %       2  request
and 1 more with 1000 B in all: -n 0 shows them
"
    );
    assert_eq!(
        declared("top FILE --by task --total"),
        "
12.7 KiB in 11 blocks allocated in all

  bytes   share  allocations
5.9 KiB  46.2 %            4  (no task)
3.9 KiB  30.8 %            4  request{route=/a}
2.9 KiB  23.1 %            3  request{route=/b}
"
    );
    assert_eq!(
        declared("top FILE --by heap --at 1s"),
        "
4.9 KiB in 5 blocks live at 1.0 s

  bytes    share  blocks
4.9 KiB  100.0 %       5  (no heap)
"
    );
    let json = |line: &str| serde_json::from_str::<serde_json::Value>(&declared(line)).unwrap();
    let context = |at: usize| json("top FILE --by context --json")["rows"][at]["context"].clone();
    assert_eq!(context(0), serde_json::json!([]));
    let outer = serde_json::json!({ "name": "request", "value": "route=/b" });
    assert_eq!(context(2), serde_json::json!([outer, { "name": "par\u{1b}se", "value": null }]));
    assert_eq!(json("top FILE --by task --json")["rows"][0]["task"], serde_json::Value::Null);
    assert_eq!(json("top FILE --by task --json")["rows"][2]["task"], outer);
    assert_eq!(json("top FILE --by scope --json")["rows"][1]["scope"], "request");
    assert_eq!(json("top FILE --by heap --json")["rows"][1]["heap"], "arena");
    // Rows not grouped by context do not have one, but stacks do.
    assert_eq!(json("top FILE --json")["rows"][0].get("context"), None);
    let leaks = json("leaks FILE --json");
    assert_eq!((leaks["rows"][0].get("context"), &leaks["rows"][0]["heap"]), (None, &serde_json::json!("arena")));
    assert_eq!(leaks["rows"][2]["context"][0]["value"], "route=/a");
}

/// If contexts are not asked for, only the verbs that list stacks show them.
#[test]
fn stacks_say_their_context_and_heap() {
    for line in ["top FILE", "top FILE --by module", "tree FILE", "sizes FILE", "timeline FILE", "callers 0x20 FILE"] {
        assert_eq!(declared(line), printed(line));
    }
    assert_eq!(
        declared("top FILE --by site"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
2.9 KiB  37.5 %       1  server+0x50
                         ← [2 in libx.so] ← server+0x10
                         of heap arena
                         stamped Page at src/pages.rs:8: spare
2.0 KiB  25.0 %       2  server+0x20
                         ← server+0x10
2.0 KiB  25.0 %       2  server+0x20
                         ← server+0x10
                         in request{route=/a}
 1000 B  12.5 %       1  server+0x20
                         ← server+0x10
                         in request{route=/b} > par\\u{1b}se
"
    );
    assert_eq!(
        declared("leaks FILE --context request* --not-context par*"),
        "
2.0 KiB in 2 blocks live at the end
only: context request* · not context par* (leaves out 5.9 KiB in 4 blocks)
Live at the end does not mean unreachable: the program may have used it until then.

  bytes    share  blocks
2.0 KiB  100.0 %       2  server+0x20
                          server+0x10
                          in request{route=/a}
"
    );
    assert!(declared("temporary FILE --context route=/b").contains("2 of 3 allocations were temporary (67 %)"));
    assert!(declared("sizes FILE --heap arena").contains("only: heap arena (leaves out 4.9 KiB in 5 blocks)"));
    assert!(declared("callers 0x20 FILE --context /a.$/").contains("2.0 KiB in 2 blocks"));
    assert!(declared("top FILE --by size --heap arena").contains("3,000 bytes (2.9 KiB)"));
}

#[test]
fn trees_of_contexts() {
    assert_eq!(
        declared("tree FILE --by context,stack"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
4.9 KiB  62.5 %       3  (no context)
                         server+0x10
2.9 KiB  37.5 %       1  ├─ libx.so+0x30
                         │  libx.so+0x40
                         │  server+0x50
2.0 KiB  25.0 %       2  └─ server+0x20
2.0 KiB  25.0 %       2  request{route=/a}
                         server+0x10
                         server+0x20
 1000 B  12.5 %       1  request{route=/b}
                         par\\u{1b}se
                         server+0x10
                         server+0x20
"
    );
    assert_eq!(
        declared("tree FILE --by stack,context --bottom-up --function 0x20"),
        "
4.9 KiB in 5 blocks live at the peak (2.0 s)
only: function 0x20 (leaves out 2.9 KiB in 1 block)

  bytes    share  blocks
4.9 KiB  100.0 %       5  server+0x20
                          server+0x10
2.0 KiB   40.0 %       2  ├─ request{route=/a}
2.0 KiB   40.0 %       2  ├─ (no context)
 1000 B   20.0 %       1  └─ par\\u{1b}se
                             request{route=/b}
"
    );
    assert_eq!(
        declared("tree FILE --by heap"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
4.9 KiB  62.5 %       5  (no heap)
2.9 KiB  37.5 %       1  arena
"
    );
    assert_eq!(
        declared("flame FILE --collapsed --by context,stack -o - --not-function 0x50"),
        "
(no context);server+0x10;server+0x20 2000
request{route=/a};server+0x10;server+0x20 2000
request{route=/b};par\\u{1b}se;server+0x10;server+0x20 1000
"
    );
    let tree: serde_json::Value = serde_json::from_str(&declared("tree FILE --by context --json")).unwrap();
    assert_eq!(tree["nodes"][3]["function"], "par\u{1b}se");
    assert_eq!((&tree["nodes"][3]["declared"], &tree["nodes"][3]["depth"]), (&serde_json::json!(true), &1.into()));
}

#[test]
fn contexts_over_time() {
    assert_eq!(
        declared("diff FILE@1s FILE --by heap"),
        "
+2.9 KiB (+60.0 %)
before: 4.9 KiB live at 1.0 s of FILE
after:  7.8 KiB live at the peak (2.0 s) of FILE

  change       before    after
+2.9 KiB  new     0 B  2.9 KiB  arena
"
    );
    let diff = declared("diff FILE@11ms FILE --by context");
    assert!(diff.contains("+4.9 KiB       new     0 B  4.9 KiB  (no context)"), "{diff}");
    // The same stack in two contexts is two sites.
    let sites = declared("diff FILE@11ms FILE --by site");
    assert!(sites.contains("+1000 B  +100.0 %  1000 B  2.0 KiB  server+0x20"), "{sites}");
    assert!(sites.contains("+1000 B       new     0 B   1000 B  server+0x20"), "{sites}");
    let timeline: serde_json::Value = serde_json::from_str(&declared("timeline FILE --by context --json")).unwrap();
    let groups = timeline["groups"].as_array().unwrap();
    let most = |at: usize| groups[at]["bytes"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).max().unwrap();
    assert_eq!((&groups[1]["name"], most(1), most(0)), (&serde_json::json!("request{route=/a}"), 2000, 5000));
}

#[test]
fn what_was_declared_is_summed_up() {
    let summary = declared("summary FILE");
    let lines = summary.lines().skip_while(|line| !line.contains("contexts")).take(4).collect::<Vec<_>>().join("\n");
    assert_eq!(
        lines,
        "  contexts at the peak  4.9 KiB  62.5 % (no context)
                        2.0 KiB  25.0 % request{route=/a}
                        1000 B  12.5 % request{route=/b} > par\\u{1b}se
      heaps at the end  2.9 KiB  in 1 block of arena, 2.9 KiB at the peak"
    );
    let json: serde_json::Value = serde_json::from_str(&declared("summary FILE --json")).unwrap();
    assert_eq!(
        (&json["contexts"][1]["context"], &json["heaps"][0]["bytes_live_end"]),
        (&"request{route=/a}".into(), &3000.into())
    );
    let json: serde_json::Value = serde_json::from_str(&printed("summary FILE --json")).unwrap();
    assert_eq!((json.get("contexts"), json.get("heaps")), (None, None));
    let info = declared("info FILE");
    let table = info.split("contexts, heaps and stamps\n").nth(1).unwrap().split("\n\n").next().unwrap();
    assert_eq!(
        table,
        " is a  category
 task            request
scope       cpu  par\\u{1b}se
 heap            arena
value            route=/a
value            route=/b
stamp            Page  src/pages.rs:8  spare"
    );
}

#[test]
fn self_documentation() {
    let page = printed("man");
    assert!(page.contains(".TH heapledger 1") && page.contains("\n.nf\n $ heapledger record "), "{page}");
    assert!(page.contains("what nobody reports\n.fi\n"), "{page}");
    assert!(printed("completions bash").contains("complete-words"));
    assert!(printed("completions elvish").contains("temporary"));
    assert!(printed("help top").contains("Usage: heapledger top"));
}
