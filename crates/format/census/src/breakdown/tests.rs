use super::*;

fn error(text: &str) -> String {
    Breakdown::from_json(text).unwrap_err().to_string()
}

#[test]
fn children_that_are_left_out_are_counts() {
    let breakdown = Breakdown::from_json(r#"{"by":"objectClass"}"#).unwrap();
    assert_eq!(breakdown, Breakdown::object_class(Breakdown::count()));
    let breakdown = Breakdown::from_json(r#"{"by":"coarseType"}"#).unwrap();
    assert_eq!(breakdown, Breakdown::coarse_type(Breakdown::count()));
}

#[test]
fn every_word_reads_its_own_children() {
    let text = r#"[
        {"by":"allocationStack","then":{"by":"bucket"},"noStack":{"by":"internalType"},"other":{"by":"zzz"}},
        {"by":"filename","then":{"by":"bucket"},"noFilename":{"by":"descriptiveType"},"other":5},
        {"by":"objectClass","then":{"by":"bucket"},"other":{"by":"filename"},"noStack":null},
        {"by":"count","count":false,"label":"a"},
        []
    ]"#;
    let expected = Breakdown::All(vec![
        Breakdown::allocation_stack(Breakdown::Bucket).or_else(Breakdown::internal_type(Breakdown::count())),
        Breakdown::filename(Breakdown::Bucket).or_else(Breakdown::descriptive_type(Breakdown::count())),
        Breakdown::object_class(Breakdown::Bucket).or_else(Breakdown::filename(Breakdown::count())),
        Breakdown::Count { count: false, bytes: true, label: Some(String::from("a")) },
        Breakdown::All(Vec::new()),
    ]);
    assert_eq!(Breakdown::from_json(text).unwrap(), expected);
}

#[test]
fn values_are_converted_as_javascript_does() {
    let read = |text| Breakdown::from_json(text).unwrap();
    let count = |count, bytes, label: Option<&str>| Breakdown::Count { count, bytes, label: label.map(String::from) };
    assert_eq!(read(r#"{"by":"count","count":0,"bytes":"no"}"#), count(false, true, None));
    assert_eq!(read(r#"{"by":"count","count":null,"bytes":""}"#), count(false, false, None));
    assert_eq!(read(r#"{"by":"count","count":[],"bytes":{}}"#), count(true, true, None));
    assert_eq!(read(r#"{"by":"count","label":[1,null,"x",2.5]}"#), count(true, true, Some("1,,x,2.5")));
    assert_eq!(read(r#"{"by":["count"],"label":null}"#), count(true, true, Some("null")));
}

#[test]
fn errors_have_the_texts_of_the_engine() {
    let unrecognized = |by: &str| format!("unrecognized 'by' value in takeCensus breakdown: {by}");
    assert_eq!(error(r#"{"by":"zzz"}"#), unrecognized(r#""zzz""#));
    assert_eq!(error("{}"), unrecognized(r#""undefined""#));
    assert_eq!(error("5"), unrecognized(r#""undefined""#));
    assert_eq!(error(r#""count""#), unrecognized(r#""undefined""#));
    assert_eq!(error(r#"{"by":null}"#), unrecognized(r#""null""#));
    assert_eq!(error(r#"{"by":{}}"#), unrecognized(r#""[object Object]""#));
    assert_eq!(error(r#"{"by":"a\"\n\u0001é🎈"}"#), unrecognized(r#""a\"\n\x01\xE9\uD83C\uDF88""#));
    assert_eq!(error("null"), "can't convert null to object");
    assert_eq!(error(r#"{"by":"internalType","then":null}"#), "can't convert null to object");
    assert_eq!(
        error(r#"{"by":"objectClass","then":{"by":"objectClass"}}"#),
        "takeCensus breakdown 'by' value nested within itself: \"objectClass\""
    );
}

#[test]
fn the_first_child_decides_which_error_is_reported() {
    let text = r#"{"by":"coarseType","domNode":{"by":"b"},"other":{"by":"a"}}"#;
    assert_eq!(error(text), "unrecognized 'by' value in takeCensus breakdown: \"a\"");
    // The engine compares with the words above before it looks at the word's own children.
    let text = r#"{"by":"objectClass","other":{"by":"objectClass","then":{"by":"zzz"}}}"#;
    assert_eq!(error(text), "takeCensus breakdown 'by' value nested within itself: \"objectClass\"");
}

#[test]
fn siblings_may_have_the_same_word_but_arrays_do_not_hide_nesting() {
    let siblings = r#"{"by":"objectClass","then":{"by":"filename"},"other":{"by":"filename"}}"#;
    assert!(Breakdown::from_json(siblings).is_ok());
    let nested = r#"{"by":"filename","then":[{"by":"count"},[{"by":"objectClass","other":{"by":"filename"}}]]}"#;
    assert_eq!(error(nested), "takeCensus breakdown 'by' value nested within itself: \"filename\"");
    let built = Breakdown::filename(Breakdown::All(vec![Breakdown::filename(Breakdown::count())]));
    assert_eq!(built.check(), Err(BreakdownError::Nested(String::from("\"filename\""))));
}

#[test]
fn deep_text_is_an_error() {
    let text = "[".repeat(100_000);
    assert!(matches!(Breakdown::from_json(&text), Err(BreakdownError::Json(_))));
}

#[test]
fn the_default_is_the_documented_one() {
    let text = r#"{
        "by": "coarseType",
        "objects": { "by": "objectClass" },
        "domNode": { "by": "descriptiveType" },
        "other": { "by": "internalType" }
    }"#;
    assert_eq!(Breakdown::from_json(text).unwrap(), Breakdown::default());
}

#[test]
fn words_are_nested_from_left_to_right() {
    let nested = Breakdown::nested(&[By::Filename, By::ObjectClass]).unwrap();
    let classes = Breakdown::object_class(Breakdown::count());
    assert_eq!(nested, Breakdown::filename(classes.clone()).or_else(classes));
    assert_eq!(nested.check(), Ok(()));
    assert_eq!(Breakdown::nested(&[By::Bucket]), Ok(Breakdown::Bucket));
    assert_eq!(Breakdown::nested(&[]), Err(BreakdownError::Empty));
    assert_eq!(Breakdown::nested(&[By::Bucket, By::Filename]), Err(BreakdownError::NoGroups(By::Bucket)));
    let twice = Breakdown::nested(&[By::Filename, By::ObjectClass, By::Filename]);
    assert_eq!(twice, Err(BreakdownError::Nested(String::from("\"filename\""))));
}

#[test]
fn written_breakdowns_are_read_as_the_same() {
    let mut all: Vec<Breakdown> = By::ALL.iter().map(|by| Breakdown::nested(&[*by]).unwrap()).collect();
    all.push(Breakdown::default());
    all.push(Breakdown::default().with_buckets());
    all.push(Breakdown::Count { count: true, bytes: false, label: Some(String::from("x\"y")) });
    let all = Breakdown::All(all);
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(Breakdown::from_json(&text).unwrap(), all);
}
