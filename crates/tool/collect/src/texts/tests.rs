use super::*;

#[test]
fn equal_texts_are_one() {
    let mut texts = Texts::default();
    let (mut one, mut other) = (Addresses::default(), Addresses::default());
    one.set(&mut texts, 0x10, 0, 0, b"net".to_vec());
    one.set(&mut texts, 0x20, Name::TASK, 0x10, b"request".to_vec());
    other.set(&mut texts, 0x90, 0, 0, b"net".to_vec());
    assert_eq!((one.get(0x10), one.get(0x20), other.get(0x90)), (TextId(1), TextId(2), TextId(1)));
    assert_eq!((other.get(0x20), one.get(0)), (TextId::UNKNOWN, TextId::UNKNOWN));
    let request = Text { text: TextId(2), bytes: b"request".to_vec(), is_task: true, category: b"net".to_vec() };
    assert_eq!(texts.use_text(TextId(2)), Some(request.clone()));
    assert_eq!((texts.use_text(TextId(2)), texts.use_text(TextId::UNKNOWN)), (None, None));
    assert_eq!(texts.used().collect::<Vec<_>>(), [request]);
    // The memory is reused for another text, or for one that is not a task.
    let mut child = one.clone();
    child.set(&mut texts, 0x20, 0, 0, b"request".to_vec());
    assert_eq!((child.get(0x20), one.get(0x20), child.get(0x10)), (TextId(3), TextId(2), TextId(1)));
}
