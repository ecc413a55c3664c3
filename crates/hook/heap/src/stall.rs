//! Waiting for memory: how often, how long, and the loop that does it.

/// The attempts to get memory that the system has refused, and the time before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallSpecs {
    /// The number of attempts. With 0, a refusal is final.
    pub attempts_max: u32,
    /// The milliseconds before each attempt.
    pub delay_milliseconds: u32,
}

impl StallSpecs {
    /// Ten attempts in half a second, which is the default.
    pub const MAIN: StallSpecs = StallSpecs { attempts_max: 10, delay_milliseconds: 50 };
    /// Five attempts in a quarter of a second: for child processes, whose end hurts less than that
    /// of their parent.
    pub const CHILD: StallSpecs = StallSpecs { attempts_max: 5, delay_milliseconds: 50 };
    /// No waiting.
    pub const NONE: StallSpecs = StallSpecs { attempts_max: 0, delay_milliseconds: 0 };

    /// Waits, then tries, once per attempt. Returns the first success; `None` if there is none.
    ///
    /// `delay` is called with the milliseconds to wait. The first wait is before the first attempt,
    /// because the caller's own attempt has just failed.
    ///
    /// ```
    /// use heapledger_heap::StallSpecs;
    ///
    /// let (mut waited, mut attempts) = (0, 0);
    /// let third_time_lucky = || {
    ///     attempts += 1;
    ///     (attempts == 3).then_some("memory")
    /// };
    /// let found = StallSpecs::MAIN.stall_and_retry(|milliseconds| waited += milliseconds, third_time_lucky);
    /// assert_eq!((found, waited), (Some("memory"), 150));
    /// ```
    pub fn stall_and_retry<T>(self, mut delay: impl FnMut(u32), mut op: impl FnMut() -> Option<T>) -> Option<T> {
        (0..self.attempts_max).find_map(|_| {
            delay(self.delay_milliseconds);
            op()
        })
    }
}

#[cfg(test)]
mod tests;
