use heapledger_analysis::Metric;

use super::*;

/// A root with two children: one of 60 that has one of 40 inside, which has one of 30 inside; and
/// one of 10.
fn tree() -> CallColumns {
    CallColumns {
        metrics: vec![Metric::Bytes, Metric::Blocks],
        depths: vec![0, 1, 2, 3, 1],
        names_of: vec![0, 1, 2, 1, 2],
        own: vec![vec![5, 20, 10, 30, 10], vec![1, 2, 3, 4, 5]],
        names: vec![ColumnName::Root, ColumnName::Smaller, ColumnName::Smaller],
        total: vec![75, 15],
        ..CallColumns::default()
    }
}

fn cut(depth: Option<u32>, least: f64) -> ColumnTree {
    let mut named = 0;
    let name = |_: &ColumnName| {
        named += 1;
        ColumnFrame { function: named.to_string(), ..ColumnFrame::default() }
    };
    Walk::new(&tree(), CutBy { depth, least }).columns(name)
}

#[test]
fn amounts_add_up_whatever_is_cut() {
    let whole = cut(None, 0.0);
    assert_eq!((&*whole.depth, whole.cut), (&[0, 1, 2, 3, 1][..], (0, 0)));
    assert_eq!(whole.name, [0, 1, 2, 1, 2]);
    assert_eq!(whole.names.len(), 3);
    assert_eq!((&*whole.metrics[0].own, &*whole.metrics[1].own), (&[5, 20, 10, 30, 10][..], &[1, 2, 3, 4, 5][..]));

    // A node that is cut and all inside of it are one subtree.
    let shallow = cut(Some(1), 0.0);
    assert_eq!((&*shallow.depth, shallow.cut), (&[0, 1, 1][..], (1, 40)));
    assert_eq!((&*shallow.metrics[0].own, &*shallow.metrics[1].own), (&[5, 60, 10][..], &[1, 9, 5][..]));

    let large = cut(None, 0.5);
    assert_eq!((&*large.depth, large.cut), (&[0, 1, 2][..], (2, 40)));
    assert_eq!((&*large.metrics[0].own, large.metrics[0].total), (&[15, 20, 40][..], 75));
    let none = cut(Some(0), 0.0);
    assert_eq!((&*none.metrics[0].own, &*none.metrics[1].own, none.cut), (&[75][..], &[15][..], (2, 70)));
}
