//! CPU time that a hypervisor takes from the machine for others. A turn with much of it is not representative, and is
//! repeated.

use std::fmt;

use serde::Serialize;

use crate::size::Size;

/// The share of the time of all cores that may be taken in a turn.
const SHARE_MAX: f64 = 0.02;
/// The maximum number of attempts for a turn.
const TRIES_MAX: usize = 6;

/// The time taken in a turn, and the number of attempts until it was small enough.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Steal {
    /// The share of the time of all cores, from 0 to 1; also 0 if the kernel does not count it.
    share: f64,
    /// The number of attempts, from 1.
    tries: usize,
}

/// Runs a turn, at full size again while too much time was taken from the machine. The last attempt counts in any case.
///
/// # Errors
/// When the turn fails.
pub(crate) async fn undisturbed<T>(
    size: Size,
    mut turn: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Steal)> {
    let tries_max = if size == Size::Smoke { 1 } else { TRIES_MAX };
    for tries in 1.. {
        let before = Ticks::now();
        let value = turn().await?;
        let share = Ticks::now().stolen_since(before);
        if share <= SHARE_MAX || tries >= tries_max {
            return Ok((value, Steal { share, tries }));
        }
    }
    anyhow::bail!("no turn was taken")
}

/// The summary of all turns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steals {
    turns: usize,
    again: usize,
    beyond: usize,
    worst: f64,
}

impl FromIterator<Steal> for Steals {
    fn from_iter<I: IntoIterator<Item = Steal>>(steals: I) -> Self {
        steals.into_iter().fold(Self::default(), |all, steal| Self {
            turns: all.turns + 1,
            again: all.again + steal.tries - 1,
            beyond: all.beyond + usize::from(steal.share > SHARE_MAX),
            worst: all.worst.max(steal.share),
        })
    }
}

impl fmt::Display for Steals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { turns, again, beyond, worst } = *self;
        let (most, worst) = (100.0 * SHARE_MAX, 100.0 * worst);
        write!(
            f,
            "Stolen: {again} turns were taken again, for others had more than {most} % of the machine meanwhile; "
        )?;
        write!(f, "of the {turns} that count, {beyond} are such, the worst of {worst:.1} %")
    }
}

/// Time of all cores since the machine began, as the kernel counts it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Self {
        std::fs::read_to_string("/proc/stat").ok().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// The first line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal, and the guests' times,
    /// which the first two include.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_ascii_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        Some(Self { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }

    #[allow(clippy::cast_precision_loss, reason = "ticks far below 2^52")]
    fn stolen_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let before = Ticks::parse("cpu  100 10 50 700 5 0 35 100 7 3\ncpu0 1 2 3\n").unwrap();
        assert_eq!(before, Ticks { all: 1000, stolen: 100 });
        let after = Ticks::parse("cpu  150 10 50 720 5 0 35 130 7 3\n").unwrap();
        assert!((after.stolen_since(before) - 0.3).abs() < 1e-9);
        assert_eq!(Ticks::parse("cpu0 1 2 3"), None);
        assert!(Ticks::now().all > 0);
    }

    #[tokio::test]
    async fn at_smoke_size_the_first_turn_counts() {
        let mut turns = 0;
        let (value, steal) = undisturbed(Size::Smoke, async || Ok(std::mem::replace(&mut turns, 1))).await.unwrap();
        assert_eq!((value, steal.tries, turns), (0, 1, 1));
    }

    #[test]
    fn the_worst_turn_is_reported() {
        let steals: Steals =
            [(0.0, 1), (0.5, 6), (0.01, 2)].map(|(share, tries)| Steal { share, tries }).into_iter().collect();
        let want = "Stolen: 6 turns were taken again, for others had more than 2 % of the machine meanwhile; of the 3 that count, 1 \
            are such, the worst of 50.0 %";
        assert_eq!(steals.to_string(), want);
    }
}
