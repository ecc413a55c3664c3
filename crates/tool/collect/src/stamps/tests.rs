use super::*;

#[test]
fn stamps_take_the_place_of_others() {
    let mut stamps = Stamps::default();
    let (first, node) = stamps.stamped(StackId(7), TextId(1));
    assert_eq!((first, node.map(|node| node.parent)), (StackId::MAX, Some(StackId(7))));
    assert!(stamps.stamped(StackId(7), TextId(1)).1.is_none());
    let (second, _) = stamps.stamped(first, TextId(2));
    assert_eq!((stamps.parts(second), second.0), ((StackId(7), Some(TextId(2))), StackId::MAX.0 - 1));
    assert_eq!(stamps.parts(StackId(7)), (StackId(7), None));
    // A child makes its own leaves, with ids that its parent had not used.
    let mut child = stamps.fork();
    assert_eq!(child.parts(first), (StackId(7), Some(TextId(1))));
    let (third, node) = child.stamped(first, TextId(1));
    assert_eq!((third.0, node.is_some()), (StackId::MAX.0 - 2, true));
}
