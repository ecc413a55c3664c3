//! Files of other tools, imported as recordings: the figures are those of the tools.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::export::totals;
use crate::harness::{Job, Recording, Scratch, heapledger, installed, number, shared_library};
use crate::readme::root;

mod browser;
mod exported;
mod javascript;
mod sampled;

/// Imports a file; returns the recording.
fn imported(scratch: &Scratch, file: &Path) -> Recording {
    let path = scratch.file("imported.hl");
    let words = [OsStr::new("import"), "--force".as_ref(), "-o".as_ref(), path.as_os_str(), file.as_os_str()];
    let outcome = heapledger(words);
    assert!(outcome.status.success(), "{outcome:?}");
    let recording = Recording::open(path);
    // The file itself gives the same answers as its recording.
    assert_eq!(Recording::open(file.to_owned()).summary["bytes_live_max"], recording.summary["bytes_live_max"]);
    recording
}

/// Returns the names of functions in the order of `top`.
fn functions(recording: &Recording, options: &[&str]) -> Vec<String> {
    let top = recording.ask("top", options);
    let rows = top["rows"].as_array().unwrap_or_else(|| panic!("{top:#}"));
    rows.iter().map(|row| row["function"].as_str().unwrap_or_else(|| panic!("{row:#}")).to_owned()).collect()
}

const GPERFTOOLS: &str = "heap profile:      3:      192 [     5:      320] @ heapprofile\n\
    2: 128 [ 4: 256] @ 0x00401200 0x00401300\n1: 64 [ 1: 64] @ 0x00401280\n\nMAPPED_LIBRARIES:\n\
    00401000-00402000 r-xp 00001000 08:01 99   /nonexistent/service\n";

const DHAT: &str = r#"{"dhatFileVersion":2,"mode":"rust-heap","verb":"Allocated","bklt":true,"bkacc":false,"tu":"µs","Mtu":"s",
    "cmd":"service --fast","pid":71,"tg":5000,"te":9000,"pps":[
    {"tb":300,"tbk":3,"tl":9,"mb":200,"mbk":2,"gb":200,"gbk":2,"eb":100,"ebk":1,"fs":[1,2]},
    {"tb":50,"tbk":5,"tl":9,"mb":10,"mbk":1,"gb":10,"gbk":1,"eb":0,"ebk":0,"fs":[3,2]}],
    "ftbl":["[root]","0x1: cache::insert::h0123 (src/cache.rs:10:5)","0x2: main (src/main.rs:3:1)","0x3: std::vector<int>::push_back (a.cc:7)"]}"#;

/// The program is beside the files: its amounts are known.
#[test]
fn files_of_bytehound() {
    let scratch = Scratch::new();
    for name in ["bytehound.dat.gz", "bytehound.names.dat.gz"] {
        let recording = imported(&scratch, &root().join("fixtures/profiles").join(name));
        // Beside the program's blocks there is one of 304 bytes for each of three threads.
        let blocks = [201 + 2 * 150 + 3, 201, 103];
        let bytes = [24_900 + 5_000_000 + 48_675 + 303_675 + 912, 24_900 + 5_000_000, 12_450 + 912];
        assert_eq!(totals(&recording), (blocks, bytes), "{name}");
        assert_eq!(recording.total("threads"), 4);
        if name.contains("names") {
            let rows = &recording.ask("top", &["--total", "--by", "line"])["rows"];
            let row =
                |at: usize| (rows[at]["function"].as_str(), number(&rows[at], "blocks"), number(&rows[at], "line"));
            assert_eq!([row(0), row(1)], [(Some("keep"), 201, 14), (Some("grow"), 150, 19)]);
        }
    }
}

#[test]
fn a_file_of_one_moment() {
    let scratch = Scratch::new();
    let file = scratch.write("service.0001.heap", GPERFTOOLS);
    let recording = imported(&scratch, &file);
    assert_eq!((recording.total("bytes_live_max"), recording.total("bytes_allocated")), (192, 320));
    let told = heapledger([OsStr::new("leaks"), file.as_os_str()]);
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(
        said.contains("is a file of gperftools") && said.contains("does not say what was live at the peak"),
        "{said}"
    );
}

#[test]
fn a_file_of_three_moments_and_a_difference() {
    let scratch = Scratch::new();
    let file = scratch.write("dhat.out.71", DHAT);
    let recording = imported(&scratch, &file);
    let totals = ["allocations", "bytes_allocated", "bytes_live_max", "bytes_live_end", "frees"];
    assert_eq!(totals.map(|name| recording.total(name)), [8, 350, 210, 100, 7]);
    assert_eq!(functions(&recording, &["--by", "function"]), ["cache::insert::h0123", "std::vector::push_back"]);
    assert_eq!(functions(&recording, &[]), ["cache::insert::h0123", "main"]);
    let later = scratch.write("dhat.out.72", DHAT.replace("\"gb\":200", "\"gb\":900"));
    let words = [OsStr::new("diff"), file.as_os_str(), later.as_os_str(), "--json".as_ref()];
    let diff = heapledger(words);
    assert!(String::from_utf8_lossy(&diff.stdout).contains("700"), "{diff:?}");
}

#[test]
fn what_is_no_such_file_is_told() {
    let scratch = Scratch::new();
    for (text, wanted) in [
        (DHAT.replace("\"fs\":[3,2]", "\"fs\":[9]"), "has a frame 9"),
        ("heap_v2/512\n@ 0xzz\n".to_owned(), "at byte 12: not a list of addresses"),
        ("what?".to_owned(), "not a heapledger recording"),
    ] {
        let file = scratch.write("file", text);
        let outcome = heapledger([OsStr::new("top"), file.as_os_str()]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status.code() == Some(102) && said.contains(wanted), "{said}");
    }
    let outcome = heapledger([OsStr::new("import"), scratch.file("file").as_os_str(), "-o".as_ref(), "x.hl".as_ref()]);
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("no format that is known"), "{outcome:?}");
}

/// Returns a program that does the same each time.
fn sqlite(scratch: &Scratch) -> Option<Vec<String>> {
    let program = installed("sqlite3")?;
    scratch.write(
        "a.sql",
        "create table t(a integer primary key, b text);\nwith recursive n(i) as (select 1 union all select i + 1 from n where i < 3000)\
         insert into t select i, 'text ' || i from n;\nselect count(*) from t;\n",
    );
    Some([program.to_str()?, ":memory:", ".read a.sql"].map(str::to_owned).to_vec())
}

fn newest(scratch: &Scratch, prefix: &str) -> PathBuf {
    let entries = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(prefix);
    entries.filter(is_one).max().unwrap_or_else(|| panic!("no {prefix}"))
}

#[test]
#[ignore = "valgrind takes long; `.ci/run` runs it"]
fn of_dhat_and_massif() {
    let scratch = Scratch::new();
    let (Some(_), Some(line)) = (installed("valgrind"), sqlite(&scratch)) else { return };
    let run = |tool: &[&str]| {
        let done =
            Job::new(tool.iter().copied().map(str::to_owned).chain(line.clone())).directory(scratch.path()).bare();
        assert!(done.status.success(), "{done:?}");
    };
    run(&["valgrind", "--tool=dhat", "--dhat-out-file=dhat.json"]);
    let file = scratch.file("dhat.json");
    let theirs: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let sum = |name: &str| -> i64 { theirs["pps"].as_array().unwrap().iter().map(|point| number(point, name)).sum() };
    let recording = imported(&scratch, &file);
    for (ours, name) in [
        ("allocations", "tbk"),
        ("bytes_allocated", "tb"),
        ("bytes_live_max", "gb"),
        ("bytes_live_end", "eb"),
        ("blocks_live_end", "ebk"),
    ] {
        assert_eq!(recording.total(ours), sum(name), "{ours}");
    }
    // The same program, recorded.
    let (_, own) = Job::new(line.clone()).directory(scratch.path()).recorded(&scratch);
    assert!((own.total("bytes_live_max") - recording.total("bytes_live_max")).abs() < 4096, "{own:?} {recording:?}");
    let tree = recording.ask("tree", &[]);
    assert!(tree.to_string().contains("sqlite3"), "{tree:#}");

    run(&["valgrind", "--tool=massif", "--massif-out-file=massif.out"]);
    let file = scratch.file("massif.out");
    let text = fs::read_to_string(&file).unwrap();
    let is_peak = text.split("snapshot=").find(|snapshot| snapshot.contains("heap_tree=peak")).unwrap();
    let peak: i64 = is_peak.split("mem_heap_B=").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    let recording = imported(&scratch, &file);
    assert_eq!(recording.total("bytes_live_max"), peak);
    assert!(recording.ask("timeline", &[]).to_string().len() > 500);
}

#[test]
#[ignore = "`.ci/run` runs it"]
fn of_heaptrack() {
    let scratch = Scratch::new();
    let (Some(_), Some(_), Some(line)) = (installed("heaptrack"), installed("heaptrack_print"), sqlite(&scratch))
    else {
        return;
    };
    let own = ["heaptrack", "-o", "theirs"].map(str::to_owned);
    let done = Job::new(own.into_iter().chain(line)).directory(scratch.path()).bare();
    assert!(done.status.success(), "{done:?}");
    let file = newest(&scratch, "theirs");
    let sum = |kind: &str| -> i64 {
        let options = ["--flamegraph-cost-type", kind, "-p0", "-a0", "-T0", "-l0"];
        let off = ["--disable-embedded-suppressions", "--disable-builtin-suppressions", "-F", "stacks", "-f"];
        let words = ["heaptrack_print"].into_iter().chain(options).chain(off).map(OsStr::new);
        let done = Job::new(words.chain([file.as_os_str()])).directory(scratch.path()).bare();
        assert!(done.status.success(), "{done:?}");
        let text = fs::read(scratch.file("stacks")).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<i64>().ok()).sum()
    };
    let recording = imported(&scratch, &file);
    recording.assert_whole();
    for (ours, kind) in [("allocations", "allocations"), ("bytes_live_max", "peak"), ("bytes_live_end", "leaked")] {
        assert_eq!(recording.total(ours), sum(kind), "{ours}");
    }
    // heaptrack also counts the free of another block with the same size and stack as that of the
    // last one.
    let (ours, theirs) = (recording.total("temporary_allocations"), sum("temporary"));
    assert!(ours <= theirs && theirs - ours <= 2 + theirs / 10, "{ours} {theirs}");
    // The recording has events, so any moment can be asked for.
    assert!(recording.ask("top", &["--at", "1ms"])["rows"].is_array());
    assert!(recording.ask("tree", &[]).to_string().contains("sqlite3"));
}

/// Imports a file that heaptrack's recorder wrote, and the one that heaptrack makes of it.
#[test]
#[ignore = "`.ci/run` runs it"]
fn of_heaptrack_raw() {
    let scratch = Scratch::new();
    let interpret = ["/usr/lib/heaptrack/libexec/heaptrack_interpret", "/usr/libexec/heaptrack/heaptrack_interpret"];
    let interpret = interpret.into_iter().find(|path| Path::new(path).exists());
    let (Some(_), Some(interpret), Some(line)) = (installed("heaptrack"), interpret, sqlite(&scratch)) else { return };
    // This program is linked by lld, and has threads.
    let growth = [crate::harness::program("growth").display().to_string(), "20".to_owned()].to_vec();
    for (name, line) in [("sqlite", line), ("growth", growth)] {
        let own = ["heaptrack", "--raw", "-o", name].map(str::to_owned);
        let done = Job::new(own.into_iter().chain(line)).directory(scratch.path()).bare();
        assert!(done.status.success(), "{done:?}");
        let file = newest(&scratch, &format!("{name}.raw"));
        let packed = fs::File::open(&file).unwrap();
        let mut unpacked = Vec::new();
        match file.extension().and_then(OsStr::to_str) {
            Some("zst") => zstd::stream::copy_decode(packed, &mut unpacked).unwrap(),
            _ => _ = flate2::read::GzDecoder::new(packed).read_to_end(&mut unpacked).unwrap(),
        }
        let done = Job::new([interpret]).stdin(unpacked).bare();
        assert!(done.status.success(), "{done:?}");
        let interpreted = scratch.write("interpreted", &done.stdout);
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        // `	leaked allocations:   	14`
        let count = |name: &str| -> i64 {
            let line = told.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap_or_else(|| panic!("{told}"));
            line.trim_start_matches(':').trim().parse().unwrap()
        };
        let (raw, theirs) = (imported(&scratch, &file), Recording::open(interpreted));
        raw.assert_whole();
        for (ours, name) in [
            ("allocations", "allocations"),
            ("blocks_live_end", "leaked allocations"),
            ("temporary_allocations", "temporary allocations"),
        ] {
            assert_eq!(raw.total(ours), count(name), "{ours}: {told}");
        }
        for name in ["allocations", "bytes_allocated", "bytes_live_max", "bytes_live_end", "blocks_live_end", "frees"] {
            assert_eq!(raw.total(name), theirs.total(name), "{name}");
        }
        assert!(raw.ask("top", &["--at", "1ms"])["rows"].is_array());
        if name == "growth" {
            // Names are looked up by us in the one, and by heaptrack in the other.
            for recording in [&raw, &theirs] {
                let tree = recording.ask("tree", &["--total"]).to_string();
                assert!(tree.contains("growth::round") && tree.contains("growth::main"), "{tree}");
            }
        }
    }
}

/// Compares with the output of google-pprof.
#[test]
#[ignore = "`.ci/run` runs it"]
fn of_gperftools() {
    let scratch = Scratch::new();
    let (Some(pprof), Some(library)) = (installed("google-pprof"), shared_library("libtcmalloc.so.4")) else { return };
    let program = crate::harness::program("growth");
    // One file after each half MiB of allocations.
    let variables = [
        format!("LD_PRELOAD={}", library.display()),
        "HEAPPROFILE=gperf".to_owned(),
        "HEAP_PROFILE_ALLOCATION_INTERVAL=500000".to_owned(),
    ];
    let line = ["env".to_owned()].into_iter().chain(variables).chain([program.display().to_string(), "60".to_owned()]);
    let done = Job::new(line).directory(scratch.path()).bare();
    assert!(done.status.success(), "{done:?}");
    let file = newest(&scratch, "gperf");
    let recording = imported(&scratch, &file);
    for (option, unit, ours) in [
        ("--inuse_objects", "objects", "blocks_live_end"),
        ("--inuse_space", "B", "bytes_live_end"),
        ("--alloc_objects", "objects", "allocations"),
        ("--alloc_space", "B", "bytes_allocated"),
    ] {
        let mut command = std::process::Command::new(&pprof);
        let done = command.args(["--text", "--show_bytes", option]).args([&program, &file]).output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let expected = format!("Total: {} {unit}\n", recording.total(ours));
        assert!(text.starts_with(&expected), "{option}: {expected}{text}");
    }
    // The program is linked by lld, and its functions are still found.
    let tree = recording.ask("tree", &["--total"]).to_string();
    assert!(tree.contains("growth::round") || tree.contains("growth::grow"), "{tree}");
}

#[test]
#[ignore = "`.ci/run` runs it"]
fn of_jemalloc() {
    let scratch = Scratch::new();
    let (Some(library), Some(line)) = (shared_library("libjemalloc.so.2"), sqlite(&scratch)) else { return };
    let options = "prof:true,prof_final:true,lg_prof_sample:12,prof_prefix:jeprof";
    let own = ["env".to_owned(), format!("LD_PRELOAD={}", library.display()), format!("MALLOC_CONF={options}")];
    let done = Job::new(own.into_iter().chain(line.clone())).directory(scratch.path()).bare();
    assert!(done.status.success(), "{done:?}");
    let file = newest(&scratch, "jeprof");
    let recording = imported(&scratch, &file);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("heap_v2/4096"), "{text}");
    // At the end little is left; its names come from the symbols of the program's libraries.
    let names = functions(&recording, &[]);
    assert!(recording.total("bytes_live_end") == 0 || !names.is_empty(), "{names:?} {text}");
}

/// Exports a recording and imports it again.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_pprof() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "100").recorded(&scratch);
    let file = scratch.file("profile.pb.gz");
    let words = [OsStr::new("export"), recording.path.as_os_str(), "--to".as_ref(), "pprof".as_ref(), "-o".as_ref()];
    let done = heapledger(words.into_iter().chain([file.as_os_str()]));
    assert!(done.status.success(), "{done:?}");
    let again = imported(&scratch, &file);
    for name in ["allocations", "bytes_allocated", "bytes_live_max"] {
        assert_eq!(again.total(name), recording.total(name), "{name}");
    }
    assert_eq!(functions(&again, &[]), functions(&recording, &[]));
}
