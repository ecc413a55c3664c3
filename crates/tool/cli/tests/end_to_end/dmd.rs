//! `heapledger dmd`: logs of the dark matter detector.

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

/// What it prints, when it ends well and says nothing else.
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
    // Nothing has changed, and the log is as it was.
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
