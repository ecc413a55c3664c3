use super::*;

fn mapping(module: u32, start: u64) -> Mapping {
    Mapping { module: ModuleId(module), start, end: start + 0x1000, bias: start - 0x10, ..Mapping::default() }
}

fn node(id: u32, parent: u32, address: u64) -> NewNode {
    NewNode { id: StackId(id), parent: StackId(parent), kind: NodeKind::Frame, address }
}

fn epoch(id: u32, number: u64) -> NewNode {
    NewNode { kind: NodeKind::Epoch, ..node(id, 0, number) }
}

fn module_of(tree: &mut Tree, new: NewNode) -> Option<(u32, u64)> {
    tree.add(new).unwrap().map(|node| (node.module.0, node.offset))
}

#[test]
fn the_epoch_decides_whose_address_it_is() {
    let mut tree = Tree::default();
    tree.map(mapping(1, 0x5000), 0);
    tree.map(mapping(2, 0x9000), 0);
    assert!(module_of(&mut tree, epoch(1, 0)).is_some());
    assert_eq!(module_of(&mut tree, node(2, 1, 0x5004)), Some((1, 0x14)));
    // In epoch 3 the first module was replaced by another one; the second is still there.
    tree.map(mapping(3, 0x5000), 3);
    assert!(module_of(&mut tree, epoch(3, 3)).is_some());
    assert_eq!(module_of(&mut tree, node(4, 3, 0x5004)), Some((3, 0x14)));
    // A late node of the first epoch is resolved correctly.
    assert_eq!(module_of(&mut tree, node(5, 2, 0x5004)), Some((1, 0x14)));
    // It is not known at once whether the second module is still there.
    assert_eq!(module_of(&mut tree, node(6, 4, 0x9fff)), None);
    assert_eq!(module_of(&mut tree, node(7, 4, 0x9000)), None);
    let mut resolved = Vec::new();
    tree.resolve(false, |node| resolved.push((node.id.0, node.module.0, node.offset)));
    tree.map(mapping(4, 0x8f80), 3);
    tree.resolve(false, |node| resolved.push((node.id.0, node.module.0, node.offset)));
    assert_eq!(resolved, [(6, 2, 0x100f), (7, 4, 0x90)]);
}

#[test]
fn what_is_not_known_yet_waits() {
    let mut tree = Tree::default();
    assert_eq!(module_of(&mut tree, node(2, 1, 0x5004)), None);
    assert_eq!(module_of(&mut tree, node(3, 2, 0x7777_0000)), None);
    assert!(module_of(&mut tree, epoch(1, 0)).is_some());
    tree.map(mapping(1, 0x5000), 0);
    let mut resolved = Vec::new();
    tree.resolve(false, |node| resolved.push((node.id.0, node.module.0, node.offset)));
    assert_eq!(resolved, [(2, 1, 0x14)]);
    tree.resolve(false, |node| resolved.push((node.id.0, node.module.0, node.offset)));
    assert_eq!(resolved, [(2, 1, 0x14), (3, 0, 0x7777_0000)]);
    assert!(tree.open.is_empty());
}

#[test]
fn a_child_goes_on_with_its_parents_tree() {
    let mut tree = Tree::default();
    tree.map(mapping(1, 0x5000), 2);
    tree.add(epoch(1, 2)).unwrap();
    tree.add(node(2, 1, 0x5000)).unwrap();
    let mut child = tree.fork(StackId(3));
    let mut grandchild = child.fork(StackId(3));
    assert_eq!(module_of(&mut tree, node(3, 2, 0x5001)), Some((1, 0x11)));
    assert_eq!(module_of(&mut child, node(3, 2, 0x5002)), Some((1, 0x12)));
    assert_eq!(module_of(&mut grandchild, node(4, 2, 0x5003)), Some((1, 0x13)));
}

#[test]
fn long_chains_of_forks_end_well() {
    let mut tree = Tree::default();
    tree.add(epoch(1, 7)).unwrap();
    for _ in 0..200_000 {
        tree = tree.fork(StackId(2));
    }
    assert_eq!(tree.epochs.get(StackId(1)), Some(7));
}

#[test]
fn implausible_ids_are_refused() {
    let mut tree = Tree::default().fork(StackId(10));
    assert!(tree.add(node(9, 0, 0)).is_err());
    assert!(tree.add(node(StackId::MAX.0, 0, 0)).is_err());
    assert!(Tree::default().add(node(0, 0, 0)).is_err());
}

/// The number of an epoch is what the program's memory says.
#[test]
fn an_epoch_may_have_any_number() {
    let mut tree = Tree::default();
    tree.add(NewNode { kind: NodeKind::Epoch, ..node(1, 0, u64::MAX) }).unwrap();
    assert!(tree.epochs.get(StackId(1)).is_some() && !tree.epochs.is_unproven(StackId(1)));
}

#[test]
fn a_childs_generated_code_is_its_own() {
    let (mut tree, mut modules) = (Tree::default(), Modules::default());
    assert!(tree.separate_generated_code(ImageId(0), &mut modules).is_empty());
    let parents = modules.generated().module;
    tree.generated.set_module(parents);
    tree.map(Mapping { bias: 0, ..mapping(parents.0, 0x5000) }, 0);
    let other = modules.id(b"/a", b"").0;
    tree.map(mapping(other.0, 0x9000), 0);
    let mut child = tree.fork(StackId(1));
    let records = child.separate_generated_code(ImageId(1), &mut modules);
    assert!(matches!(&records[..], [Record::Module(_), Record::Mapping(Mapping { image: ImageId(1), .. })]));
    let own = child.generated.module().unwrap();
    assert_ne!(own, parents);
    assert_eq!(module_of(&mut tree, node(1, 0, 0x5004)), Some((parents.0, 0x5004)));
    assert_eq!(module_of(&mut child, node(1, 0, 0x5004)), Some((own.0, 0x5004)));
    assert_eq!(module_of(&mut child, node(2, 0, 0x9000)), Some((other.0, 0x10)));
    assert_eq!(modules.all().filter(|module| module.path == heapledger_core::GENERATED_CODE).count(), 2);
}

#[test]
fn stacks_inside_of_an_unproven_frame_are_unproven() {
    let mut tree = Tree::default();
    tree.map(mapping(1, 0x5000), 0);
    let unproven = NewNode { kind: NodeKind::UnprovenFrame, ..node(2, 1, 0x5008) };
    for new in [node(1, 0, 0x5001), unproven, node(3, 2, 0x5002), node(4, 1, 0x5002)] {
        assert_eq!(tree.add(new).unwrap().map(|node| node.is_unproven), Some(new.id == StackId(2)));
    }
    // A node that comes before its parent.
    assert_eq!(tree.add(node(6, 5, 0x5003)).unwrap(), None);
    tree.add(node(5, 3, 0x5004)).unwrap();
    tree.resolve(false, |_| {});
    let mut child = tree.fork(StackId(7));
    child.add(node(7, 6, 0x5005)).unwrap();
    let is_unproven = |tree: &Tree, id| tree.epochs.is_unproven(StackId(id));
    assert_eq!([1, 2, 3, 4, 5, 6].map(|id| is_unproven(&tree, id)), [false, true, true, false, true, true]);
    assert_eq!([1, 2, 7].map(|id| is_unproven(&child, id)), [false, true, true]);
    assert_eq!(tree.epochs.get(StackId(6)), Some(0));
}
