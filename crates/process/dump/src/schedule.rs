//! The schedule of periodic dumps.

use std::fmt;
use std::time::Duration;

use heapledger_profile_formats::chrome::Level;
use heapledger_reporters::internal::untracked;

/// Dumps of a level, at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The level of the dumps.
    pub level: Level,
    /// The time from one dump to the next.
    pub period: Duration,
}

/// The times and levels of periodic dumps. The shortest period is the *tick*; others are multiples
/// of it. At a tick at which several levels are due the dump has the highest of them. At the first
/// tick all are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    tick: Duration,
    /// The number of ticks from one dump of a level to the next.
    every: Vec<(Level, u128)>,
}

/// The reason why a schedule is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidSchedule {
    /// A period is zero.
    Zero,
    /// A period is not a multiple of the shortest.
    NoMultiple,
    /// A level has two periods.
    Twice,
}

impl fmt::Display for InvalidSchedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            InvalidSchedule::Zero => "a period of dumps is 0",
            InvalidSchedule::NoMultiple => "a period of dumps is no multiple of the shortest",
            InvalidSchedule::Twice => "a level of dumps has two periods",
        })
    }
}

impl std::error::Error for InvalidSchedule {}

impl Schedule {
    /// Returns a schedule without dumps.
    pub fn never() -> Schedule {
        Schedule { tick: Duration::MAX, every: Vec::new() }
    }

    /// Returns the schedule of these triggers.
    ///
    /// # Errors
    ///
    /// See [`InvalidSchedule`].
    pub fn new(triggers: &[Trigger]) -> Result<Schedule, InvalidSchedule> {
        let Some(tick) = triggers.iter().map(|trigger| trigger.period).min() else { return Ok(Schedule::never()) };
        if tick.is_zero() {
            return Err(InvalidSchedule::Zero);
        }
        let _untracked = untracked::enter();
        let mut every: Vec<(Level, u128)> = Vec::new();
        for trigger in triggers {
            let (period, tick) = (trigger.period.as_nanos(), tick.as_nanos());
            if period % tick != 0 {
                return Err(InvalidSchedule::NoMultiple);
            }
            if every.iter().any(|(level, _)| *level == trigger.level) {
                return Err(InvalidSchedule::Twice);
            }
            every.push((trigger.level, period / tick));
        }
        Ok(Schedule { tick, every })
    }

    pub(crate) fn tick(&self) -> Option<Duration> {
        (!self.every.is_empty()).then_some(self.tick)
    }

    /// Returns the level of the dump that is due at a tick, if there is one. Ticks are counted from
    /// 0.
    pub(crate) fn level(&self, tick: u64) -> Option<Level> {
        let due = self.every.iter().filter(|(_, every)| u128::from(tick) % every == 0);
        due.map(|(level, _)| *level).max()
    }
}

impl Default for Schedule {
    /// Returns a schedule with a light dump four times a second, and every eighth of them detailed.
    fn default() -> Schedule {
        let every = untracked::scope(|| vec![(Level::Light, 1), (Level::Detailed, 8)]);
        Schedule { tick: Duration::from_millis(250), every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(triggers: &[(Level, u64)]) -> Result<Schedule, InvalidSchedule> {
        let trigger = |&(level, ms)| Trigger { level, period: Duration::from_millis(ms) };
        Schedule::new(&triggers.iter().map(trigger).collect::<Vec<_>>())
    }

    #[test]
    fn the_highest_level_that_is_due() {
        use Level::{Background, Detailed, Light};
        let schedule = schedule(&[(Background, 50), (Detailed, 300), (Light, 100)]).unwrap();
        assert_eq!(schedule.tick(), Some(Duration::from_millis(50)));
        let levels: Vec<_> = (0..8).map(|tick| schedule.level(tick).unwrap()).collect();
        assert_eq!(levels, [Detailed, Background, Light, Background, Light, Background, Detailed, Background]);
        assert_eq!(Schedule::default().level(7), Some(Light));
        assert_eq!(Schedule::default().level(8), Some(Detailed));
    }

    #[test]
    fn not_every_tick_has_a_dump_to_make() {
        let never = schedule(&[]).unwrap();
        assert_eq!((never.tick(), never.level(0)), (None, None));
    }

    #[test]
    fn what_does_not_fit() {
        assert_eq!(schedule(&[(Level::Light, 0)]), Err(InvalidSchedule::Zero));
        assert_eq!(schedule(&[(Level::Light, 100), (Level::Detailed, 250)]), Err(InvalidSchedule::NoMultiple));
        assert_eq!(schedule(&[(Level::Light, 100), (Level::Light, 200)]), Err(InvalidSchedule::Twice));
    }
}
