//! Detects growth in the live amounts at evenly spaced times.
//!
//! Live bytes go up and down with the work in hand, and a leak raises the level to which they come
//! back. So the times are divided into [`WINDOWS`] windows, and only the minimum of each window
//! counts, its *floor*. Work that lasts for a whole window raises one floor; it counts no more than
//! the higher one of its neighbours.
//!
//! - *Since when*: the start of the line that fits the floors best after a constant level, with any
//!   step between the two.
//! - *Whether*: the trend test of Mann and Kendall (H. B. Mann, Econometrica 13, 1945) on the
//!   floors after the bend. It uses only their order, so growth need not be even. A random walk
//!   often passes it, so the gain must also be a multiple of the largest loss.
//! - *How fast*: the median of the slopes between all pairs of floors, with its confidence interval
//!   (P. K. Sen, Journal of the American Statistical Association 63, 1968).
//! - *Caches* fill up: in the last quarter of the time they gain much less than in an earlier
//!   quarter.

/// The number of windows that the time is divided into.
pub(crate) const WINDOWS: usize = 32;
/// The fewest windows of growth: less than a quarter of the time is not enough to judge.
const WINDOWS_MIN: usize = 8;

/// A fit is nearly as good as the best one if its squared error is at most this many times as
/// large.
const NEARLY: f64 = 1.3;

/// The standard deviations of the trend test at which growth is likely: by chance, once in 2,000.
const LIKELY: f64 = 3.3;
/// The same for growth that is as good as certain: by chance, once in 3 million.
const CERTAIN: f64 = 5.0;
/// The least gain, in multiples of the largest loss.
const GAIN_LIKELY: f64 = 8.0;
const GAIN_CERTAIN: f64 = 30.0;
/// The gain of the last quarter of the time, relative to even growth. Below it, growth is slowing.
const LAST_QUARTER: f64 = 0.4;
/// The largest part of the gain in one window; above it, the growth is a step.
const STEP: f64 = 0.3;
/// For a container that grows by a factor at a time: the least factor, and the fewest steps that
/// tell it from one that was enlarged once.
const FACTOR: f64 = 1.2;
const STEPS_MIN: usize = 3;

/// The way in which something grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrendKind {
    /// At about the same rate, to the end.
    Steady,
    /// By a factor from time to time, like the memory of one container whose elements become more.
    Steps,
    /// More and more slowly, or no longer: like caches that fill up, and data that are built once.
    Slowing,
}

/// A growth that was detected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// The way in which it grows.
    pub kind: TrendKind,
    /// True if the growth is as good as certain.
    pub is_certain: bool,
    /// The window in which it begins, from 0.
    pub since: usize,
    /// The amount that the floors gained since then.
    pub gained: u64,
    /// The gain per window: the median slope. Its 95 % confidence interval follows.
    pub slope: f64,
    /// The lower bound of the slope.
    pub slope_min: f64,
    /// The upper bound of the slope.
    pub slope_max: f64,
    /// The standard deviations by which the order of the floors differs from chance.
    pub deviations: f64,
}

/// Returns the trend of live amounts at evenly spaced times, at least one for each window; `None`
/// if they do not grow.
pub(crate) fn trend(live: &[u64]) -> Option<Trend> {
    let floors = floors(live)?;
    let steps = first_of_steps(&floors);
    let since = steps.unwrap_or_else(|| bend(&floors));
    let rising = &floors[since..];
    let gained = rising[rising.len() - 1] - rising[0];
    let deviations = deviations(rising);
    let lost = most_lost(rising);
    if gained <= 0.0 || deviations < LIKELY || gained < lost * GAIN_LIKELY {
        return None;
    }
    let (slope, slope_min, slope_max) = slope(rising);
    let (rises, largest) = rises(rising);
    let last_quarter = last_quarter(rising);
    let kind = match steps {
        Some(_) => TrendKind::Steps,
        // It was enlarged once or twice.
        None if rises <= 2 => return None,
        None if last_quarter < LAST_QUARTER => TrendKind::Slowing,
        None if largest > gained * STEP || rises < rising.len() / 4 => return None,
        None => TrendKind::Steady,
    };
    let is_even = (0.6..1.7).contains(&last_quarter) && slope_max - slope_min < slope / 2.0;
    let is_certain = kind == TrendKind::Steady && deviations >= CERTAIN && gained >= lost * GAIN_CERTAIN && is_even;
    Some(Trend { kind, is_certain, since, gained: gained as u64, slope, slope_min, slope_max, deviations })
}

/// Returns the first window with an amount if all changes after it are steps by a factor. The last
/// steps must be late, because growing to twice the size takes twice as long.
fn first_of_steps(floors: &[f64]) -> Option<usize> {
    let first = floors.iter().position(|&floor| floor > 0.0)?;
    let pairs = floors[first..].windows(2).zip(first + 1..).filter(|(pair, _)| pair[0] != pair[1]);
    let mut steps = Vec::new();
    for (pair, at) in pairs {
        if pair[1] < pair[0] * FACTOR {
            return None;
        }
        steps.push(at);
    }
    let part = |at: usize| at as f64 / floors.len() as f64;
    let is_late = matches!(steps[..], [.., before, last] if part(before) >= 0.2 && part(last) >= 0.45);
    (steps.len() >= STEPS_MIN && is_late).then_some(first)
}

/// Returns the number of rises, and the largest of them.
fn rises(floors: &[f64]) -> (usize, f64) {
    let rises = floors.windows(2).map(|pair| pair[1] - pair[0]).filter(|&rise| rise > 0.0);
    rises.fold((0, 0.0), |(count, most), rise| (count + 1, most.max(rise)))
}

/// Returns the gain of the last quarter of the time, relative to even growth.
fn last_quarter(floors: &[f64]) -> f64 {
    let last = floors.len() - 1;
    let quarter = floors.len() / 4;
    (floors[last] - floors[last - quarter]) / ((floors[last] - floors[0]) * quarter as f64 / last as f64)
}

/// Returns the minimum of each window, without peaks of one window.
fn floors(live: &[u64]) -> Option<Vec<f64>> {
    let edge = |window: usize| window * live.len() / WINDOWS;
    let minimum = |window: usize| live[edge(window)..edge(window + 1)].iter().min().map(|&least| least as f64);
    let minima: Vec<f64> = (0..WINDOWS).map(minimum).collect::<Option<_>>()?;
    let without_peak = |window: usize| match window {
        0 => minima[0].min(minima[1]),
        // Nothing says that the last one will fall again.
        _ if window == WINDOWS - 1 => minima[window],
        _ => minima[window].min(minima[window - 1].max(minima[window + 1])),
    };
    Some((0..WINDOWS).map(without_peak).collect())
}

/// Returns the start of the line that fits best, by least squares, after a constant level. The data
/// that a program builds when it starts are not growth.
fn bend(floors: &[f64]) -> usize {
    let error = |bend: usize| {
        let (level, line) = floors.split_at(bend);
        squares(level, 0.0) + squares(line, slope_of_fit(line))
    };
    let errors: Vec<f64> = (0..=floors.len() - WINDOWS_MIN).map(error).collect();
    let least = errors.iter().copied().fold(f64::MAX, f64::min);
    // The first fit that is nearly as good: a later one has more freedom, and fits noise.
    errors.iter().position(|&error| error <= least * NEARLY).unwrap_or(0)
}

/// Returns the sum of the squared residuals of a line with this slope through the mean.
fn squares(floors: &[f64], slope: f64) -> f64 {
    let count = floors.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, floors.iter().sum::<f64>() / count);
    floors.iter().enumerate().map(|(at, floor)| (floor - mean - slope * (at as f64 - middle)).powi(2)).sum()
}

/// Returns the slope of the least-squares line.
fn slope_of_fit(floors: &[f64]) -> f64 {
    let middle = (floors.len() as f64 - 1.0) / 2.0;
    let from_middle = |at: usize| at as f64 - middle;
    let spread: f64 = (0..floors.len()).map(|at| from_middle(at).powi(2)).sum();
    floors.iter().enumerate().map(|(at, floor)| from_middle(at) * floor).sum::<f64>() / spread
}

/// Returns the statistic of the trend test in standard deviations, with its corrections for
/// continuity and for ties.
fn deviations(floors: &[f64]) -> f64 {
    let sign = |difference: f64| if difference == 0.0 { 0.0 } else { difference.signum() };
    let pairs = pairs(floors).map(|(one, later, _)| sign(later - one));
    let sum: f64 = pairs.sum();
    let spread = |count: f64| count * (count - 1.0) * (2.0 * count + 5.0);
    let mut sorted = floors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ties: f64 = sorted.chunk_by(|one, other| one == other).map(|equal| spread(equal.len() as f64)).sum();
    let variance = (spread(floors.len() as f64) - ties) / 18.0;
    if variance <= 0.0 || sum == 0.0 { 0.0 } else { (sum - sum.signum()) / variance.sqrt() }
}

/// Returns the median of the slopes between all pairs, and the bounds of its confidence interval.
fn slope(floors: &[f64]) -> (f64, f64, f64) {
    let mut slopes: Vec<f64> = pairs(floors).map(|(one, later, apart)| (later - one) / apart as f64).collect();
    slopes.sort_by(f64::total_cmp);
    let count = floors.len() as f64;
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    // 95 % of a normal distribution is within 1.96 standard deviations.
    let half = (1.96 * deviation / 2.0) as usize;
    let middle = slopes.len() / 2;
    (slopes[middle], slopes[middle.saturating_sub(half)], slopes[(middle + half).min(slopes.len() - 1)])
}

/// Returns all pairs of floors in their order, and how far apart they are.
fn pairs(floors: &[f64]) -> impl Iterator<Item = (f64, f64, usize)> + '_ {
    let later = move |one: usize| (one + 1..floors.len()).map(move |other| (floors[one], floors[other], other - one));
    (0..floors.len()).flat_map(later)
}

/// Returns the most by which a floor is below an earlier one.
fn most_lost(floors: &[f64]) -> f64 {
    let mut highest = f64::MIN;
    let below = floors.iter().map(|&floor| {
        highest = highest.max(floor);
        highest - floor
    });
    below.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: usize = 256;

    /// A generator of numbers from 0 to 1 with a fixed seed.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Returns live amounts at evenly spaced times from 0 to 1.
    fn series(live: impl FnMut(f64) -> f64) -> Vec<u64> {
        (0..TIMES).map(|at| at as f64 / TIMES as f64).map(live).map(|bytes| bytes as u64).collect()
    }

    fn kind(live: &[u64]) -> Option<TrendKind> {
        trend(live).map(|trend| trend.kind)
    }

    #[test]
    fn a_leak_is_steady_growth() {
        let leak = trend(&series(|time| 1e6 + 1e6 * time)).unwrap();
        assert!(leak.kind == TrendKind::Steady && leak.is_certain && leak.since == 0, "{leak:?}");
        assert!((leak.slope * WINDOWS as f64 - 1e6).abs() < 1e4 && leak.slope_min <= leak.slope_max, "{leak:?}");
        // After data that are built at the start.
        let start = trend(&series(|time| if time < 0.03 { 0.0 } else { 3e6 + 1e6 * time })).unwrap();
        assert!(start.kind == TrendKind::Steady && start.is_certain && start.since == 1, "{start:?}");
        // With load from time to time.
        let bursts =
            trend(&series(|time| 1e6 * ((time * 10.0).floor() + (time * 10.0).fract().min(0.5) * 2.0))).unwrap();
        assert_eq!(bursts.kind, TrendKind::Steady);
        // From the middle on.
        let late = trend(&series(|time| 1e6 + 1e6 * (time - 0.5).max(0.0))).unwrap();
        assert!(late.kind == TrendKind::Steady && (14..=17).contains(&late.since), "{late:?}");
    }

    /// Checks how often a leak is found besides work that takes up to twenty times as much, two
    /// thirds of the time, and gives it back.
    #[test]
    fn a_leak_is_found_among_noise() {
        let mut random = Random(1);
        let mut leak = || trend(&series(|time| 1e6 * time + 1e7 * (random.next() * 3.0 - 1.0).max(0.0)));
        let is_right = |leak: &Trend| {
            leak.kind == TrendKind::Steady && leak.slope_min * 32.0 < 1.03e6 && leak.slope_max * 32.0 > 0.97e6
        };
        let found = (0..1000).filter(|_| leak().as_ref().is_some_and(is_right)).count();
        println!("{found} of 1,000 leaks");
        assert!(found > 900, "{found} of 1,000 leaks");
    }

    #[test]
    fn caches_and_containers_are_told_apart() {
        assert_eq!(kind(&series(|time| 1e6 * (1.0 - (-8.0 * time).exp()))), Some(TrendKind::Slowing));
        assert_eq!(kind(&series(|time| 1e6 * (3.0 * time).min(1.0))), Some(TrendKind::Slowing));
        let doubled = |time: f64| 64.0 * 2_f64.powf((time * 1000.0 + 1.0).log2().ceil());
        assert_eq!(kind(&series(doubled)), Some(TrendKind::Steps));
    }

    #[test]
    fn what_does_not_grow() {
        assert_eq!(trend(&series(|_| 1e6)), None);
        assert_eq!(trend(&series(|_| 0.0)), None);
        assert_eq!(trend(&series(|time| 1e6 - 1e6 * time)), None);
        // Data built when a program starts, and work done in rounds.
        assert_eq!(trend(&series(|time| if time > 0.03 { 1e6 } else { 0.0 })), None);
        assert_eq!(trend(&series(|time| if time > 0.6 { 1e6 } else { 1e5 })), None);
        assert_eq!(trend(&series(|time| 1e6 * (time * 7.0).fract())), None);
        assert_eq!(trend(&[5; WINDOWS - 1]), None);
    }

    /// Checks how often chance is taken for growth.
    #[test]
    fn noise_is_seldom_growth() {
        let mut random = Random(7);
        let steady = |live: Vec<u64>| trend(&live).is_some_and(|trend| trend.kind == TrendKind::Steady);
        let certain = |live: Vec<u64>| trend(&live).is_some_and(|trend| trend.is_certain);
        let noise = (0..2000).filter(|_| steady(series(|_| 1e6 * random.next()))).count();
        assert_eq!(noise, 0, "of 2,000");
        // For example the length of a queue: each time it becomes longer or shorter by something.
        let mut walks = |judge: &dyn Fn(Vec<u64>) -> bool| {
            let walk = |random: &mut Random| {
                let mut level = 1e7;
                series(|_| {
                    level += 1e5 * (random.next() - 0.5);
                    level
                })
            };
            (0..2000).filter(|_| judge(walk(&mut random))).count()
        };
        let (likely, certain) = (walks(&steady), walks(&certain));
        println!("{likely} likely, {certain} certain of 2,000 random walks each");
        assert!(likely < 100 && certain < 5, "{likely} likely, {certain} certain of 2,000 random walks each");
    }
}
