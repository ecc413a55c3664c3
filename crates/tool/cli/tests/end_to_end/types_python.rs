//! The types of blocks of Python programs, from the names of CPython's functions in a real
//! interpreter, most of whose functions have no name in a distribution's build.

use serde_json::Value;

use crate::harness::{Job, Recording, Scratch, installed, number};

/// Makes a number of objects of several types, each in another way, and keeps all of them.
const SCRIPT: &str = "
import json
count = 1000
texts = [str(i).join(['xy'] * 300) for i in range(count)]
names = [str(i) for i in range(count)]
lists = json.loads('[' + ','.join('[%d,2,3,4,5,6,7,8,9]' % i for i in range(count)) + ']')
pairs = [(i, [i]) for i in range(count)]
numbers = [int('1' * 30 + str(i)) for i in range(count)]
functions = [(lambda i: lambda: i)(i) for i in range(count)]
arrays = [bytearray(100) for i in range(count)]
objects = json.loads('[' + ','.join('{\"k%d\": %d}' % (i, i) for i in range(count)) + ']')
table = {}
for name in names: table.setdefault(name, 1)
";
const COUNT: i64 = 1000;

fn recorded(scratch: &Scratch, malloc: &str) -> Option<Recording> {
    let python = installed("python3")?;
    let words = [python.as_os_str(), "-s".as_ref(), "-c".as_ref(), SCRIPT.as_ref()];
    Some(Job::new(words).variable("PYTHONMALLOC", malloc).recorded(scratch).1)
}

/// Returns the row of a type.
fn row<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let rows = answer["rows"].as_array().unwrap();
    rows.iter().find(|row| row["type"] == name).unwrap_or_else(|| panic!("no {name}: {answer:#}"))
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn objects_of_cpython_are_called_by_its_functions() {
    let scratch = Scratch::new();
    let Some(recording) = recorded(&scratch, "malloc") else { return };
    let answer = recording.ask("types", &["--total"]);
    for (name, least) in [
        ("PyUnicodeObject", 3 * COUNT),
        ("PyTupleObject", COUNT),
        ("PyListObject", 2 * COUNT),
        ("[PyObject*]", COUNT),
        ("PyLongObject", COUNT),
        ("PyFunctionObject", COUNT),
        ("PyDictObject", COUNT),
        ("[char]", COUNT),
    ] {
        let row = row(&answer, name);
        assert!(number(row, "blocks") >= least, "{row:#}");
        assert_eq!(row["confidence"], "probable", "{row:#}");
    }
    // Containers have their Python names.
    let containers = recording.ask("types", &["--total", "--by", "container"]);
    for (name, least) in [("list", COUNT), ("dict", 10), ("bytearray", COUNT)] {
        assert!(number(row(&containers, name), "blocks") >= least, "{containers:#}");
    }
    // Blocks requested by the functions of the evaluation loop have no type: none is guessed.
    assert!(number(row(&answer, "[unknown]"), "blocks") > 0);
}

/// With Python's own allocator, malloc only serves blocks larger than 512 bytes, and that
/// allocator's own needs.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn tables_of_pymalloc_are_called_so() {
    let scratch = Scratch::new();
    let Some(recording) = recorded(&scratch, "pymalloc") else { return };
    let answer = recording.ask("types", &["--total"]);
    let texts = row(&answer, "PyUnicodeObject");
    assert!(number(texts, "bytes") >= COUNT * 600, "{texts:#}");
    assert!(number(row(&answer, "pymalloc arena map"), "bytes") >= 128 << 10, "{answer:#}");
    // A list object is never that large, whatever list is being made then.
    let rows = answer["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["type"] != "PyListObject"), "{answer:#}");
}
