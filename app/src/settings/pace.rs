//! The settings of the control loop: its scheduling, its trust in lists, and the length of the history.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use tidegate_control::LaneShares;
use tidegate_control::options::{Keep, Pace, UnconfirmedRemovals};

use super::{InvalidValue, time};
use crate::args::{KeepArgs, PaceArgs, UnconfirmedRemovalsArgs};

pub(super) fn read(args: &PaceArgs) -> Result<Pace, InvalidValue> {
    let defaults = Pace::default();
    let share = LaneShares {
        batch_max: within("--batch-max", &args.batch_max, 1..=1_000_000)?,
        slow_batch_max: within("--slow-batch-max", &args.slow_batch_max, 1..=1_000_000)?,
        fast_turns_max: within("--fast-batches-max", &args.fast_batches_max, 1..=1000)?,
        slow_age_max: time("--slow-age-max", &args.slow_age_max)?,
        ..defaults.share
    };
    Ok(Pace {
        share,
        optional_grace: time("--optional-kinds-grace", &args.optional_kinds_grace)?,
        optional_slow_grace: time("--optional-kinds-slow-grace", &args.optional_kinds_slow_grace)?,
        unconfirmed_removals: read_unconfirmed_removals(&args.unconfirmed_removals)?,
        audit: time("--audit-round", &args.audit_round)?,
        ..defaults
    })
}

pub(super) fn read_unconfirmed_removals(args: &UnconfirmedRemovalsArgs) -> Result<UnconfirmedRemovals, InvalidValue> {
    Ok(UnconfirmedRemovals {
        share: within("--unconfirmed-removals-share", &args.unconfirmed_removals_share, 0.0..=1.0)?,
        count: within("--unconfirmed-removals-count", &args.unconfirmed_removals_count, 0..=usize::MAX)?,
    })
}

pub(super) fn read_keep(args: &KeepArgs) -> Result<Keep, InvalidValue> {
    Ok(Keep {
        generations: within("--history-generations", &args.history_generations, 1..=100_000)?,
        routes: within("--history-routes", &args.history_routes, 0..=1_000_000_000)?,
        publications: within("--history-publications", &args.history_publications, 1..=1_000_000)?,
    })
}

/// Parses a number within bounds.
pub(super) fn within<T>(flag: &'static str, text: &str, bounds: RangeInclusive<T>) -> Result<T, InvalidValue>
where
    T: FromStr<Err: Display> + PartialOrd + Display,
{
    let number: T = text.parse().map_err(|why| InvalidValue::new(flag, text, why))?;
    if bounds.contains(&number) {
        return Ok(number);
    }
    Err(InvalidValue::new(flag, text, format_args!("is not between {} and {}", bounds.start(), bounds.end())))
}
