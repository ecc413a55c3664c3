use super::*;

fn failed(session: &Session, verb: &str, query: &str) -> AnswerError {
    let question = Question::parse(verb, query).unwrap();
    Answer::ask(session, &question, &Work::default()).unwrap_err()
}

/// Collapsed stacks: the smallest file that is a profile.
fn session(directory: &Path) -> Session {
    let path = directory.join("a.folded");
    fs::write(&path, "main;f;malloc 100\nmain;g 50\n").unwrap();
    Session::new(vec![path], Vec::new()).unwrap()
}

#[test]
fn a_question_is_answered_by_its_verb() {
    let directory = tempfile::TempDir::new_in("/tmp").unwrap();
    let session = session(directory.path());
    let work = Work::default();
    let question = Question::parse("tree", "file=0&threshold=0&total=").unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&Answer::ask(&session, &question, &work).unwrap()).unwrap();
    assert_eq!((&answer["schema"], &answer["total"]["bytes"]), (&"heapledger/tree".into(), &150.into()));

    let columns = Answer::columns(&session, &Question::parse("", "file=0&total=").unwrap(), &work).unwrap();
    let nodes = answer["nodes"].as_array().unwrap();
    // The root is not in JSON.
    assert_eq!(columns.depth.len(), nodes.len() + 1);
    for (at, node) in nodes.iter().enumerate() {
        let name = &columns.names[columns.name[at + 1] as usize];
        assert_eq!(node["function"], *name.function);
        assert_eq!(node["depth"].as_u64().unwrap() + 1, u64::from(columns.depth[at + 1]));
        assert_eq!(node["own"]["bytes"], columns.metrics[0].own[at + 1]);
    }
    assert_eq!((columns.metrics[0].total, columns.cut), (150, (0, 0)));

    let columns =
        Answer::columns(&session, &Question::parse("", "file=0&total=&metric=blocks").unwrap(), &work).unwrap();
    let metrics: Vec<_> = columns.metrics.iter().map(|metric| metric.name).collect();
    assert_eq!((columns.unit, metrics), ("blocks", vec!["blocks", "bytes", "temporary"]));

    // Nodes that are left out count for their parents.
    let cut = Answer::columns(&session, &Question::parse("", "file=0&total=&threshold=50").unwrap(), &work).unwrap();
    assert_eq!(cut.metrics[0].own.iter().sum::<u64>(), 150);
    assert_eq!(cut.cut, (1, 50));
    let shallow = Answer::columns(&session, &Question::parse("", "file=0&total=&depth=1").unwrap(), &work).unwrap();
    assert_eq!((&*shallow.depth, shallow.metrics[0].own.clone()), (&[0, 1][..], vec![0, 150]));
}

#[test]
fn failures_say_what_and_why() {
    let directory = tempfile::TempDir::new_in("/tmp").unwrap();
    let session = session(directory.path());
    let error = failed(&session, "top", "file=0&by=nonsense");
    assert_eq!((error.status, &*error.code), (400, "HL0090"));
    assert!(error.message.starts_with("invalid value 'nonsense' for '--by"), "{error}");
    assert_eq!(error.hint.as_deref(), Some("`heapledger help top` says what its options take"));
    for (verb, query, message) in [
        ("top", "", "the question is about no file"),
        ("top", "file=1", "there is no file 1"),
        ("top", "file=x", "`x` is no number of a file"),
        ("dmd", "file=0", "`dmd` cannot be asked about `a.folded`"),
        ("record", "file=0", "`record` cannot be asked about `a.folded`"),
        ("completions", "file=0", "`completions` cannot be asked about `a.folded`"),
        ("top", "file=0&output=/tmp/x", "the option `output` cannot be set by the page"),
    ] {
        let error = failed(&session, verb, query);
        assert_eq!((error.status, &*error.code, &*error.message), (400, "HL0134", message));
    }
    let before = Answer::files(&session);
    fs::remove_file(directory.path().join("a.folded")).unwrap();
    let error = failed(&session, "top", "file=0");
    assert_eq!((error.status, &*error.code), (404, "HL0134"));
    assert!(error.message.starts_with("cannot read `") && !error.causes.is_empty(), "{error:?}");
    assert!(Answer::files(&session) != before && Answer::files(&session)[0].0.is_none());
}

#[test]
fn a_cancelled_question_ends() {
    let directory = tempfile::TempDir::new_in("/tmp").unwrap();
    let session = session(directory.path());
    let work = Work::default();
    work.cancel();
    let question = Question::parse("top", "file=0&total=").unwrap();
    // Where a verb reports no progress, it ends with its answer.
    match Answer::ask(&session, &question, &work) {
        Ok(answer) => assert!(!answer.is_empty()),
        Err(error) => assert_eq!(error.status, 409),
    }
}

#[test]
fn kinds_and_verbs_are_in_the_session() {
    let directory = tempfile::TempDir::new_in("/tmp").unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let paths = vec![
        write("a.folded", "main;f 1\n"),
        write("log.json", "{\n \"version\": 5,\n \"invocation\": {}\n}"),
        write("reports.json", "{\"version\": 1, \"hasMozMallocUsableSize\": true, \"reports\": []}"),
    ];
    let session = Session::new(paths.clone(), Vec::new()).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&Answer::session(&session, &Memory::default())).unwrap();
    assert_eq!((&json["version"], &json["schema"]), (&1.into(), &"heapledger/open".into()));
    let kinds: Vec<_> = json["files"].as_array().unwrap().iter().map(|file| file["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["profile", "dmd", "reports"]);
    assert_eq!(json["files"][0]["bytes"], 9);
    assert_eq!(json["files"][1]["verbs"], serde_json::json!(["dmd"]));
    assert_eq!(json["files"][2]["path"], *paths[2].to_string_lossy());
    let wrong = Session::new(vec![write("x.txt", "nothing that anybody knows")], Vec::new()).unwrap_err();
    assert!(wrong.to_string().contains("is not a file that the page shows"), "{wrong}");
    assert!(Session::new(vec!["/nowhere/at/all.hl".into()], Vec::new()).is_err());
}
