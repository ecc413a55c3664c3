//! Answers about time: a timeline, and differences.

use super::{golden, printed};

#[test]
fn timeline() {
    golden("timeline");
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
    golden("diff");
    assert!(printed("diff FILE FILE --total --threshold 1%").ends_with("\nnothing differs\n"));
    assert!(printed("diff FILE@1s FILE --threshold 50%").contains("+2.9 KiB  new"));
    assert!(printed("diff FILE@1s FILE --threshold 61%").contains("and 1 that differ by less than the threshold"));
    let json: serde_json::Value = serde_json::from_str(&printed("diff FILE@1s FILE --json --fail-above 3KiB")).unwrap();
    assert_eq!((&json["growth"], &json["exceeded"]), (&serde_json::json!(3000), &serde_json::json!(false)));
    assert_eq!(json["rows"][0]["stack"].as_array().unwrap().len(), 4);
}
