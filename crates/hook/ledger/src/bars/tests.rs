extern crate std;

use super::*;

#[test]
fn few_blocks_have_bars_like_counts() {
    // For equal weights, the exact upper bounds of Poisson counts: 5.57, 11.67, 18.39, 121.63.
    for (count, upper) in [(1_u64, 5.57), (5, 11.67), (10, 18.39), (100, 121.63)] {
        let (estimate, error) = (count * 1000, (count as f64).sqrt() * 1000.0);
        let bar = bar_of_bytes(Bytes(estimate), Bytes(error as u64)).0;
        let exact = (upper - count as f64) * 1000.0;
        assert!((bar as f64 / exact - 1.0).abs() < 0.02, "{count}: {bar} for {exact}");
    }
}

#[test]
fn many_blocks_have_two_standard_errors() {
    assert_eq!(bar_of_bytes(Bytes(10_000), Bytes(0)), Bytes(0));
    let bar = bar_of_blocks(Blocks(1_000_000_000), Blocks(1_000_000)).0;
    assert!((1_959_000..2_000_000).contains(&bar), "{bar}");
    assert_eq!(bar_of_blocks(Blocks(u64::MAX), Blocks(1)), Blocks(2));
    assert!(bar_of_blocks(Blocks(1), Blocks(u64::MAX)).0 > u64::MAX / 2);
    assert_eq!(bar_of_blocks(Blocks(0), Blocks(100)), Blocks(196));
}

#[test]
fn the_root_is_a_root() {
    for x in [0.0, 0.3, 1.0, 7.25, 1e6, 1e10] {
        assert!((square_root(x) - f64::sqrt(x)).abs() <= 1e-6, "{x}");
    }
}
