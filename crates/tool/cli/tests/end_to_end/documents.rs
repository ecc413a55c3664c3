//! Answers for programs: each one conforms to its JSON Schema.

mod schema;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use self::schema::Schema;
use crate::harness::{Job, Recording, Scratch, exited, heapledger};

/// Returns the errors in a document.
fn problems(document: &Value) -> Vec<String> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Schema>>>> = LazyLock::new(Mutex::default);
    let name = document["schema"].as_str().and_then(|name| name.strip_prefix("heapledger/"));
    let Some(name) = name else { return vec![format!("it has no name: {document:.200}")] };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let schema = Arc::clone(known.entry(name.to_owned()).or_insert_with(|| Arc::new(Schema::read(name))));
    drop(known);
    schema.problems(document).into_iter().map(|problem| format!("{name}{problem}")).collect()
}

/// Returns the parsed answer of a verb.
#[track_caller]
pub(crate) fn read(text: &[u8]) -> Value {
    let answer = serde_json::from_slice(text)
        .unwrap_or_else(|error| panic!("no answer: {error}: {}", String::from_utf8_lossy(text)));
    // Large documents take long to check.
    if text.len() < 1 << 20 {
        check(&answer);
    }
    answer
}

#[track_caller]
fn check(document: &Value) {
    let problems = problems(document);
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Commands, with the schema of their answers; `A` and `B` are recordings.
const QUESTIONS: [(&str, &str); 52] = [
    ("summary A", "summary"),
    ("summary A --at peak", "selected"),
    ("summary A --function main", "selected"),
    ("top A", "ranks"),
    ("top A --by owner --total", "ranks"),
    ("top A --by stack --size 10..100 --lifetime ..1s --during ..1h", "ranks"),
    ("top A --by module --at end", "ranks"),
    ("top A --by type", "ranks"),
    ("top A --by line", "ranks"),
    ("top A --by file", "ranks"),
    ("top A --by context", "ranks"),
    ("top A --by scope", "ranks"),
    ("top A --by task", "ranks"),
    ("top A --by heap", "ranks"),
    ("top A --by thread", "parts"),
    ("top A --by process", "parts"),
    ("top A --by size", "parts"),
    ("types A", "types"),
    ("types A --stacks --by element", "types"),
    ("blocks A", "blocks"),
    ("blocks A --at end -n 3", "blocks"),
    ("tree A", "tree"),
    ("tree A --total --bottom-up", "tree"),
    ("flame A", "tree"),
    ("leaks A", "leaks"),
    ("leaks A --by thread", "parts"),
    ("temporary A", "ranks"),
    ("temporary A --by size", "parts"),
    ("temporary A --within 1s", "ranks"),
    ("reallocations A", "reallocations"),
    ("reallocations A --by type", "reallocations"),
    ("reallocations A --by thread", "reallocations"),
    ("callers mix_step A --total", "neighbours"),
    ("callees main A --total", "neighbours"),
    ("sizes A", "parts"),
    ("sizes A --by owner", "size-groups"),
    ("sizes A --by process", "size-groups"),
    ("timeline A", "timeline"),
    ("timeline A --by function", "timeline"),
    ("timeline A --function main", "timeline"),
    ("growth A --all", "growth"),
    ("growth A --all --slop", "growth"),
    ("advise A", "advice"),
    ("diff A B", "diff"),
    ("diff A B --by type", "diff"),
    ("diff A B --by size", "diff"),
    ("diff A B --by module --fail-above 1GiB", "diff"),
    ("info A", "info"),
    ("doctor", "doctor"),
    ("doctor sh", "doctor"),
    ("explain", "explanations"),
    ("explain HL0005", "explanation"),
];

/// Runs all commands on a recording, and on it and another one.
fn ask_all(recording: &Recording, other: &Recording) {
    for (line, schema) in QUESTIONS {
        let words = line.split(' ').map(|word| match word {
            "A" => recording.path.to_str().unwrap(),
            "B" => other.path.to_str().unwrap(),
            word => word,
        });
        let mut words: Vec<&str> = words.collect();
        words.insert(1, "--json");
        let outcome = heapledger(words);
        assert!(outcome.status.success(), "{line}: {outcome:?}");
        let answer = read(&outcome.stdout);
        assert_eq!(answer["schema"], format!("heapledger/{schema}"), "{line}");
        assert!(outcome.stdout.starts_with(b"{\n  \"schema\": \"heapledger/"), "{line}: {outcome:?}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_answer_is_as_its_schema_has_it() {
    let scratch = Scratch::new();
    let (_, of_c) = Job::fixture("mix", "2000").recorded(&scratch);
    let (_, sample) = Job::fixture("mix", "20000").option("--sample=4KiB").recorded(&scratch);
    let (_, total) = Job::fixture("forks", "3").option("--aggregate").recorded(&scratch);
    ask_all(&of_c, &sample);
    ask_all(&sample, &of_c);
    for line in ["summary", "top --total", "info", "tree --total"] {
        let mut words = line.split(' ');
        total.ask(words.next().unwrap(), &words.collect::<Vec<_>>());
    }
    // An answer with a wrong type does not conform.
    let mut answer = of_c.ask("top", &[]);
    answer["rows"][0]["bytes"] = "many".into();
    answer["total"]["size"] = 5.into();
    answer.as_object_mut().unwrap().remove("rows_all");
    assert_eq!(problems(&answer).len(), 3, "{:#?}", problems(&answer));
    answer["version"] = 2.into();
    assert_eq!(problems(&answer).len(), 4, "{:#?}", problems(&answer));
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn rows_are_csv_too() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "2000").recorded(&scratch);
    let path = recording.path.to_str().unwrap();
    for (line, rows) in [
        ("top", "rows"),
        ("top --by thread", "rows"),
        ("types", "rows"),
        ("blocks -n 7", "rows"),
        ("leaks", "rows"),
        ("sizes", "rows"),
        ("tree", "nodes"),
        ("timeline", "live"),
        ("summary", "processes"),
        ("advise", "advice"),
    ] {
        let (verb, options) = line.split_once(' ').unwrap_or((line, ""));
        let options: Vec<&str> = options.split_whitespace().collect();
        let rows = recording.ask(verb, &options)[rows].as_array().unwrap().clone();
        let words = [&[verb, path, "--csv"], options.as_slice()].concat();
        let text = heapledger(words).text();
        let mut table = csv::Reader::from_reader(text.as_bytes());
        let names = table.headers().unwrap().clone();
        let lines: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
        assert_eq!(lines.len(), rows.len(), "{line}: {text}");
        for (cells, row) in lines.iter().zip(&rows) {
            for (name, cell) in names.iter().zip(cells) {
                let value = name.split('.').fold(row, |value, name| &value[name]);
                match value {
                    Value::Null => assert_eq!(cell, "", "{line}: {name} of {row:#}"),
                    Value::String(text) => assert_eq!(cell, text, "{line}"),
                    Value::Array(_) => {}
                    Value::Number(number) if number.is_f64() => {
                        assert_eq!(cell.parse::<f64>().ok(), number.as_f64(), "{line}: {name}");
                    }
                    value => assert_eq!(cell, value.to_string(), "{line}: {name}"),
                }
            }
        }
    }
    let refused = heapledger(["top", path, "--csv", "--json"]);
    assert_eq!(refused.status, exited(2), "{refused:?}");
    let refused = heapledger(["summary", path, "--at", "peak", "--csv"]);
    assert_eq!(refused.status, exited(2), "{refused:?}");
}
