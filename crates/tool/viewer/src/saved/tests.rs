use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::*;
use crate::testing::TestAnswer;

fn saved(questions: &[&str], bytes_max: u64) -> (SavedPage, String) {
    let questions: Vec<Question> = questions
        .iter()
        .map(|text| {
            let (verb, query) = text.split_once('?').unwrap();
            Question::parse(verb, query).unwrap()
        })
        .collect();
    let mut seen = Vec::new();
    let page = SavedPage::ask(&TestAnswer::default(), &questions, bytes_max, &mut |done| seen.push(done)).unwrap();
    assert_eq!(seen, (1..=questions.len()).collect::<Vec<_>>());
    let mut file = Vec::new();
    page.write(&mut file).unwrap();
    (page, String::from_utf8(file).unwrap())
}

/// Returns what is in a block, as the page reads it.
fn block(file: &str, id: &str) -> Vec<u8> {
    let begin = format!("<script type=\"application/octet-stream\" id=\"{id}\">");
    let (_, rest) = file.split_once(&begin).unwrap_or_else(|| panic!("no block {id}"));
    let packed = STANDARD.decode(rest.split_once("</script>").unwrap().0).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn answers_are_blocks_and_equal_ones_are_one() {
    let hostile = "top?by=</script><img src=x onerror=alert(1)>";
    let (page, file) = saved(&[hostile, "columns?file=0", "columns?file=0&total=", "fail?file=0"], 1 << 20);
    assert_eq!((page.answers(), page.cut()), (3, SavedCut::default()));
    let manifest: Value = serde_json::from_slice(&block(&file, "saved")).unwrap();
    assert_eq!(manifest["session"]["bound"], 0);
    let answers = manifest["answers"].as_array().unwrap();
    // Trees come last.
    let got: Vec<_> = answers.iter().map(|one| (one["verb"].as_str().unwrap(), one["block"].as_u64())).collect();
    assert_eq!(got, [("top", Some(0)), ("fail", None), ("columns", Some(1)), ("columns", Some(1))]);
    assert_eq!(answers[0]["options"][0][1], "</script><img src=x onerror=alert(1)>");
    assert_eq!(answers[0]["notes"].as_array().unwrap().len(), 1);
    assert_eq!((&answers[1]["error"]["code"], &answers[1]["error"]["hint"]), (&"HL0090".into(), &"another one".into()));
    assert!(block(&file, "saved-0").starts_with(b"Question"));
    assert!(block(&file, "saved-1").starts_with(b"HLCOLS01"));
    assert!(!file.contains("onerror=alert"));
}

/// The page in the file: its script and style are those that the policy has the hashes of, and no
/// text ends them early.
#[test]
fn the_page_is_whole_and_names_no_other_file() {
    let (_, file) = saved(&["top?file=0"], 1 << 20);
    let inner = |begin: &str, end: &str| {
        let (_, rest) = file.split_once(begin).unwrap();
        rest.split_once(end).unwrap().0
    };
    let (script, style) = (inner("<script>", "</script>"), inner("<style>", "</style>"));
    assert_eq!((script, style), (asset("app.js"), asset("app.css")));
    let policy = inner("http-equiv=\"Content-Security-Policy\" content=\"", "\"");
    assert!(policy.contains(&hash(script)) && policy.contains(&hash(style)), "{policy}");
    assert!(!policy.contains("unsafe") && policy.starts_with("default-src 'none';"), "{policy}");
    for text in [script, include_str!("../assets/licences.txt")] {
        let text = text.to_ascii_lowercase();
        assert!(!text.contains("</script") && !text.contains("<!--"));
    }
    assert!(!file.contains("href=\"app.css\"") && !file.contains("src=\"app.js\""));
    assert_eq!(file.matches("</body>").count(), 1);
}

#[test]
fn a_small_bound_leaves_answers_out_and_says_so() {
    let questions = ["top?a=1", "large?a=2", "top?a=3"];
    assert_eq!(saved(&questions, 1 << 20).0.answers(), 3);
    let (page, file) = saved(&questions, 100);
    assert_eq!((page.answers(), page.cut().answers), (0, 3));
    let manifest: Value = serde_json::from_slice(&block(&file, "saved")).unwrap();
    assert_eq!(manifest["cut"]["answers"], 3);
}
