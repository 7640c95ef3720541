//! The number of concurrent writes of status. It follows the API server: it grows while answers come as fast as at
//! best, and falls by half with each answer that asks for a pause, as a congestion window does.

use std::time::Duration;

/// The number of writes at the start, and at least: a server that is busy answers some.
pub(super) const WRITERS_MIN: usize = 4;
/// The maximum number.
pub(super) const WRITERS_MAX: usize = 32;
/// An answer that takes longer than this factor of the fastest recent one comes from a server under load.
const SLOW: u32 = 4;
/// Answers faster than this are equal: what is measured is noise.
const FLOOR: Duration = Duration::from_millis(5);

/// The number of concurrent writes.
#[derive(Debug)]
pub(super) struct WriterPace {
    width: usize,
    /// Fast answers since the last change of the width.
    fast: usize,
    fastest: Duration,
}

impl Default for WriterPace {
    fn default() -> Self {
        Self { width: WRITERS_MIN, fast: 0, fastest: Duration::MAX }
    }
}

impl WriterPace {
    /// The number of writes that may be in flight now.
    pub(super) const fn width(&self) -> usize {
        self.width
    }

    /// A write was answered after this time. One more is allowed when as many as may be in flight were answered fast;
    /// one less after a slow answer.
    pub(super) fn answered(&mut self, after: Duration) {
        let after = after.max(FLOOR);
        // The fastest is forgotten slowly, so that a server that has become slower for good is not held to it.
        let drift = self.fastest.saturating_add(self.fastest / 64);
        self.fastest = drift.min(after);
        if after > self.fastest.saturating_mul(SLOW) {
            (self.width, self.fast) = ((self.width - 1).max(WRITERS_MIN), 0);
            return;
        }
        self.fast += 1;
        if self.fast >= self.width {
            (self.width, self.fast) = ((self.width + 1).min(WRITERS_MAX), 0);
        }
    }

    /// The API server asks for a pause, or gives no answer.
    pub(super) fn refused(&mut self) {
        (self.width, self.fast) = ((self.width / 2).max(WRITERS_MIN), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(pace: &mut WriterPace, times: usize, ms: u64) -> usize {
        (0..times).for_each(|_| pace.answered(Duration::from_millis(ms)));
        pace.width()
    }

    #[test]
    fn the_width_grows_while_answers_are_fast() {
        let mut pace = WriterPace::default();
        assert_eq!(pace.width(), 4);
        assert_eq!(answered(&mut pace, 3, 50), 4);
        assert_eq!(answered(&mut pace, 1, 50), 5);
        assert_eq!(answered(&mut pace, 5, 150), 6, "not slow yet");
        assert_eq!(answered(&mut pace, 1000, 50), 32);
    }

    #[test]
    fn the_width_falls_when_the_server_is_busy() {
        let mut pace = WriterPace::default();
        assert_eq!(answered(&mut pace, 1000, 50), 32);
        assert_eq!(answered(&mut pace, 3, 500), 29);
        pace.refused();
        assert_eq!(pace.width(), 14);
        (0..9).for_each(|_| pace.refused());
        assert_eq!(pace.width(), 4);
        // A server that stays slower becomes the measure.
        assert_eq!(answered(&mut pace, 1000, 500), 32);
    }

    #[test]
    fn noise_is_not_load() {
        let mut pace = WriterPace::default();
        assert_eq!(answered(&mut pace, 1, 0), 4);
        assert_eq!(answered(&mut pace, 1000, 18), 32);
    }
}
