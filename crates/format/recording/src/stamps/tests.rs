use super::*;

#[test]
fn parts_come_back() {
    for text in ["T", "T\nsrc/main.rs:7", "T\n\nlabel", "T\na:b:7\nlabel", "", "\n\nlabel"] {
        assert_eq!(StampText::parse(text.as_bytes()).to_bytes(), text.as_bytes(), "{text:?}");
    }
    let odd = StampText::parse(b"T\nfile:x\nlabel\nmore");
    assert_eq!((odd.file.as_deref(), odd.line, odd.label.as_deref()), (Some("file:x"), 0, Some("label")));
    assert_eq!(StampText::parse(b"\xff\n\xff:3").file.as_deref(), Some("\u{fffd}"));
}
