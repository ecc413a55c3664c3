//! `heapledger dmd`: logs of the dark matter detector.

use std::process::Command;

use crate::documents;
use crate::harness::{HEAPLEDGER, Job, Outcome, Scratch};

const LOG: &str = r##"{
 "version": 5,
 "invocation": {"dmdEnvVar": null, "mode": "dark-matter"},
 "blockList": [
  {"req": 100, "slop": 12, "alloc": "A", "num": 3, "type": "T"},
  {"req": 40, "alloc": "A", "reps": ["B"], "by": ["R"]},
  {"req": 8, "reps": ["B", "B"], "by": ["R", "S"]}
 ],
 "traceTable": {"A": ["C", "D"], "B": ["D"]},
 "frameTable": {"C": "#00: malloc (m.c:1)", "D": "#00: main (a.c:2)"},
 "nameTable": {"T": "Vec<u8>", "R": "explicit/a", "S": "explicit/b"},
 "heapledger": {"program": "p", "pid": 7, "defectsCount": 1,
  "defects": [{"kind": "partly", "by": "R", "addr": "1000", "rep": "B", "measured": 3, "usable": 40, "num": 1}]}
}"##;

fn dmd(scratch: &Scratch, words: &[&str]) -> Outcome {
    Job::new([HEAPLEDGER, "dmd"].iter().chain(words)).directory(scratch.path()).bare()
}

/// Returns the output, if the command succeeds and prints nothing else.
fn printed(scratch: &Scratch, words: &[&str]) -> String {
    let outcome = dmd(scratch, words);
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{words:?}: {outcome:?}");
    outcome.text()
}

#[test]
fn a_log_is_shown_as_by_the_script() {
    let scratch = Scratch::new();
    scratch.write("log.json", LOG);
    let text = printed(&scratch, &["-a", "log.json"]);
    let rule = format!("#{}", "-".repeat(65));
    let expected = format!(
        "{rule}\n# heapledger dmd -a log.json\n
Invocation {{\n  $DMD is undefined\n  Mode = 'dark-matter'\n}}\n
{rule}\n
Twice-reported {{\n  1 block in heap block record 1 of 1\n  8 bytes (8 requested / 0 slop)
  2.08% of the heap (2.08% cumulative)\n  100.00% of twice-reported (100.00% cumulative)\n  Allocated at {{
    #01: (no stack trace recorded due to --stacks=partial)\n  }}\n  Reported at {{\n    #01: main (a.c:2)\n  }}
  Reported again at {{\n    #01: main (a.c:2)\n  }}\n}}\n
{rule}\n
Unreported {{\n  3 blocks in heap block record 1 of 1\n  336 bytes (300 requested / 36 slop)
  Individual block sizes: 112 x 3\n  87.50% of the heap (87.50% cumulative)
  100.00% of unreported (100.00% cumulative)\n  Allocated at {{\n    #01: main (a.c:2)\n  }}\n}}\n
{rule}\n
Once-reported {{\n  1 block in heap block record 1 of 1\n  40 bytes (40 requested / 0 slop)
  10.42% of the heap (10.42% cumulative)\n  100.00% of once-reported (100.00% cumulative)\n  Allocated at {{
    #01: main (a.c:2)\n  }}\n  Reported at {{\n    #01: main (a.c:2)\n  }}\n}}\n
{rule}\n
Summary {{
  Total:                   384 bytes (100.00%) in       5 blocks (100.00%)
  Unreported:              336 bytes ( 87.50%) in       3 blocks ( 60.00%)
  Once-reported:            40 bytes ( 10.42%) in       1 blocks ( 20.00%)
  Twice-reported:            8 bytes (  2.08%) in       1 blocks ( 20.00%)
}}\n\n"
    );
    assert_eq!(text, expected);
    // Nothing has changed, and the log is unmodified.
    let text = printed(&scratch, &["log.json", "log.json"]);
    assert!(text.contains("# no unreported heap blocks") && text.contains("Invocation 2 {"), "{text}");
    assert_eq!(std::fs::read_to_string(scratch.path().join("log.json")).unwrap(), LOG);
}

#[test]
fn beyond_the_script() {
    let scratch = Scratch::new();
    scratch.write("log.json", LOG);
    let text = printed(&scratch, &["--details", "--defects", "log.json"]);
    assert!(text.contains("  Type: Vec<u8>\n") && text.contains("  Reported again by explicit/b at {\n"), "{text}");
    assert!(text.contains("  explicit/a: measured 3 bytes of a block of 40 bytes\n"), "{text}");
    let json = documents::read(printed(&scratch, &["--json", "log.json"]).as_bytes());
    assert_eq!(json["kinds"][1]["records"][0]["types"][0]["name"], "Vec<u8>");
    assert_eq!(json["kinds"][0]["records"][0]["reports"][1]["reporters"][0], "explicit/b");
    let text = printed(&scratch, &["--by", "type", "log.json"]);
    assert!(text.contains("unreported: 336 B in 3 blocks") && text.contains("Vec<u8>"), "{text}");
    let outcome = dmd(&scratch, &["--save", "copy.json.gz", "log.json"]);
    assert!(outcome.status.success(), "{outcome:?}");
    let same = |file| printed(&scratch, &["--details", file]).lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(same("copy.json.gz"), same("log.json"));
}

/// By parts of the program, with the same names as in other verbs: two sites of one function, and
/// one of another.
#[test]
fn sums_are_by_parts_of_the_program() {
    const LOG: &str = r##"{
 "version": 5,
 "invocation": {"dmdEnvVar": null, "mode": "live"},
 "blockList": [{"req": 100, "alloc": "A"}, {"req": 20, "alloc": "B"}, {"req": 3, "alloc": "C"}, {"req": 1}],
 "traceTable": {"A": ["M", "V", "F", "T"], "B": ["M", "V", "G", "T"], "C": ["M", "V", "T"]},
 "frameTable": {
  "M": "#00: malloc (m.c:1)", "V": "#00: alloc::vec::Vec<u8>::push (/rustc/1/library/alloc/src/vec/mod.rs:9)",
  "F": "#00: app::store::fill (/home/me/app/src/store.rs:7)", "G": "#00: app::store::fill (/home/me/app/src/store.rs:8)",
  "T": "#00: app::main (/home/me/app/src/main.rs:3)"}
}"##;
    let scratch = Scratch::new();
    scratch.write("log.json", LOG);
    for (by, expected) in [
        ("owner", [("app::store::fill", 120), ("app::main", 3)].as_slice()),
        (
            "line",
            &[
                ("/home/me/app/src/store.rs:7", 100),
                ("/home/me/app/src/store.rs:8", 20),
                ("/home/me/app/src/main.rs:3", 3),
            ],
        ),
        ("file", &[("/home/me/app/src/store.rs", 120), ("/home/me/app/src/main.rs", 3)]),
        ("function", &[("alloc::vec::Vec::push", 123)]),
    ] {
        let json = documents::read(printed(&scratch, &["--json", "--by", by, "log.json"]).as_bytes());
        let records = json["kinds"][0]["records"].as_array().unwrap();
        let found: Vec<_> = records.iter().map(|it| (it["name"].as_str(), it["bytes"].as_i64().unwrap())).collect();
        let expected: Vec<_> = expected.iter().map(|&(name, bytes)| (Some(name), bytes)).chain([(None, 1)]).collect();
        assert_eq!(found, expected, "{json:#}");
        let text = printed(&scratch, &["--by", by, "log.json"]);
        assert!(expected.iter().all(|(name, _)| text.contains(name.unwrap_or("("))), "{text}");
    }
}

#[test]
fn a_file_is_of_the_mode_in_which_it_was_written() {
    let scratch = Scratch::new();
    scratch.write("log.json", LOG);
    assert!(printed(&scratch, &["--mode", "dark-matter", "log.json"]).contains("Invocation {"));
    let outcome = dmd(&scratch, &["--mode", "live", "log.json"]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
    assert!(said.contains("`log.json` is a log of mode `dark-matter`, not `live`"), "{said}");
}

#[test]
fn what_is_no_log_is_said_with_the_place() {
    let scratch = Scratch::new();
    scratch.write("damaged.json", LOG.replace("\"slop\": 12", "\"slop\": 1.5"));
    let outcome = dmd(&scratch, &["damaged.json"]);
    assert_eq!(outcome.status.code(), Some(102), "{outcome:?}");
    let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(
        text.contains("`damaged.json` is no log") && text.contains("at byte 11") && text.contains("hint: "),
        "{text}"
    );
}

#[test]
fn what_a_dump_took_is_shown_beside_the_text() {
    let scratch = Scratch::new();
    let dump = r#""dump": {"registerBytes": 1048576, "stacksBytes": 4096, "copyBytes": 2000, "new": []}"#;
    scratch.write("log.json", LOG.replace("\"pid\": 7,", &format!("\"pid\": 7, {dump},")));
    scratch.write("old.json", LOG);
    let plain = printed(&scratch, &["--no-fix-stacks", "log.json"]);
    let outcome = dmd(&scratch, &["--no-fix-stacks", "--show-dump-stats", "log.json"]);
    let body = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&outcome.text()), body(&plain));
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(told.starts_with("log.json: Execution measurements {\n"), "{told}");
    assert!(told.contains("    Register of live blocks:      1,048,576 bytes\n"), "{told}");
    assert!(told.contains("    Copy of the register:             2,000 bytes\n"), "{told}");
    assert!(told.contains("    Blocks:                               5\n"), "{told}");
    let outcome = dmd(&scratch, &["--no-fix-stacks", "--show-dump-stats", "old.json"]);
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(told.starts_with("old.json: Execution measurements {\n  Counts {\n"), "{told}");
}

/// A program that keeps what it allocates in an inlined function; and its recording.
const KEEPS: &str = r#"
#include <stdlib.h>
static void *kept[100];
static inline __attribute__((always_inline)) void keep(int at) {
    kept[at] = malloc(1000);
}
__attribute__((noinline)) void fill(int count) {
    for (int at = 0; at < count; at++) {
        keep(at);
    }
}
int main(void) {
    fill(100);
    return kept[99] == 0;
}
"#;

/// A recording of a program that has been deleted.
struct Nameless {
    scratch: Scratch,
    /// The build id of the deleted file.
    build_id: Vec<u8>,
}

impl Nameless {
    fn new(keep_names: impl FnOnce(&Scratch)) -> Nameless {
        let scratch = Scratch::new();
        scratch.write("keeps.c", KEEPS);
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-O1", "-Wl,--build-id", "-o", "keeps", "keeps.c"]).current_dir(scratch.path());
        assert!(compiler.status().unwrap().success());
        let (_, recording) = Job::new([scratch.file("keeps")]).recorded(&scratch);
        let info = recording.ask("info", &[]);
        let mut modules = info["modules"].as_array().unwrap().iter();
        let module = modules.find(|module| module["path"].as_str().unwrap().ends_with("/keeps")).unwrap();
        let digits = module["build_id"].as_str().unwrap().as_bytes().chunks(2);
        let build_id = digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
        std::fs::rename(&recording.path, scratch.file("keeps.hl")).unwrap();
        keep_names(&scratch);
        std::fs::remove_file(scratch.file("keeps")).unwrap();
        Nameless { scratch, build_id }
    }

    /// Shows a log without the caches of earlier runs.
    fn shown(&self, words: &[&str]) -> String {
        let words = [HEAPLEDGER, "dmd"].into_iter().chain(words.iter().copied());
        let job = Job::new(words).directory(self.scratch.path());
        let outcome = job.variable("XDG_CACHE_HOME", self.scratch.path().join("none")).bare();
        assert!(outcome.status.success(), "{outcome:?}");
        outcome.text() + &String::from_utf8_lossy(&outcome.stderr)
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_log_with_names_can_leave_the_machine() {
    let body = |text: String| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    let mut here = Vec::new();
    let nameless = Nameless::new(|scratch| {
        let save = |words: &[&str]| {
            let outcome = dmd(scratch, &[&["--mode", "live", "--save"], words, &["keeps.hl"]].concat());
            assert!(outcome.status.success(), "{outcome:?}");
            body(outcome.text())
        };
        save(&["bare.json"]);
        here = save(&["named.json.gz", "--resolve"]);
    });
    let named = nameless.shown(&["named.json.gz"]);
    assert!(named.contains(": fill (") && named.contains("/keeps.c:9)") && named.contains(": main ("), "{named}");
    assert!(named.contains(": keep (") && named.contains("/keeps.c:5)"), "{named}");
    assert_eq!(body(named), here);
    let bare = nameless.shown(&["bare.json"]);
    assert!(!bare.contains("fill") && bare.contains("/keeps +0x"), "{bare}");
    // The library is still known.
    let modules = nameless.shown(&["--by", "module", "named.json.gz"]);
    assert!(modules.contains("/keeps\n"), "{modules}");
    let outcome = dmd(&nameless.scratch, &["--resolve", "named.json.gz"]);
    assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn names_come_from_symbol_files_of_breakpad() {
    let scratch_names = |scratch: &Scratch| {
        let outcome = dmd(scratch, &["--mode", "live", "--save", "bare.json", "keeps.hl"]);
        assert!(outcome.status.success(), "{outcome:?}");
    };
    let nameless = Nameless::new(scratch_names);
    let id = &nameless.build_id;
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let id: String = order.iter().map(|&at| format!("{:02X}", id[at])).collect::<String>() + "0";
    let directory = nameless.scratch.file(&format!("symbols/keeps/{id}"));
    std::fs::create_dir_all(&directory).unwrap();
    let write = |text: String| std::fs::write(directory.join("keeps.sym"), text).unwrap();
    let module = format!("MODULE Linux x86_64 {id} keeps\nFILE 3 /elsewhere/keeps.c\nINLINE_ORIGIN 0 keep\n");
    let function = "FUNC 1000 1000 0 fill\nINLINE 0 9 3 0 1000 1000\n1000 1000 5 3\n";
    write(format!("{module}{function}PUBLIC 0 0 start\n"));
    let shown = nameless.shown(&["--breakpad-symbols", "symbols", "bare.json"]);
    let frames = "    #01: keep (/elsewhere/keeps.c:5)\n    #02: fill (/elsewhere/keeps.c:9)\n";
    assert!(shown.contains(frames), "{shown}");

    // Symbols of another build, and a damaged file.
    write(format!("{}{function}", module.replace(&id, "000000000000000000000000000000000")));
    let shown = nameless.shown(&["--breakpad-symbols", "symbols", "bare.json"]);
    assert!(shown.contains("keeps.sym is of another build") && !shown.contains("fill"), "{shown}");
    write(format!("{module}{function}1000 zz 5 3\n"));
    let shown = nameless.shown(&["--breakpad-symbols", "symbols", "bare.json"]);
    let place = format!("line 7 (byte {})", module.len() + function.len());
    let reason = format!("keeps.sym is damaged: {place}: the size `zz` is not a hexadecimal number of 64 bits");
    assert!(shown.contains(&reason) && !shown.contains("fill"), "{shown}");
}
