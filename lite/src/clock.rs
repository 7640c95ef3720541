//! The only file of this crate that reads a clock or draws at random. All other code receives a [`Moment`].

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One reading of the clocks, with random bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Time since this server began; never goes back.
    pub(crate) since_start: Duration,
    /// Wall clock, since 1970-01-01T00:00:00Z.
    pub(crate) unix: Duration,
    /// 128 random bits: the uid of an object, the suffix of a generated name, the jitter of a timer.
    pub(crate) draw: u128,
}

impl Moment {
    /// The wall clock as the API writes it, for example `2026-01-31T08:05:09Z`.
    pub(crate) fn timestamp(&self) -> String {
        timestamp(self.unix.as_secs())
    }

    /// A version 4 UUID made of this moment's chance.
    pub(crate) fn uid(&self) -> String {
        let bits = (self.draw & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// A number from 0.0 up to, not including, 1.0.
    pub(crate) fn fraction(&self) -> f64 {
        f64::from((self.draw >> 96) as u32) / (f64::from(u32::MAX) + 1.0)
    }

    /// The same moment with other random bits, for the second object of one request.
    pub(crate) fn redrawn(&self, nth: u128) -> Self {
        const STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        Self { draw: self.draw.wrapping_add(STEP.wrapping_mul(nth)), ..*self }
    }
}

/// The process's clock: its creation is the zero of [`Moment::since_start`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "this file is the shell that reads the clock")]
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    #[allow(clippy::disallowed_methods, reason = "this file is the shell that reads the clock")]
    pub(crate) fn now(&self) -> Moment {
        Moment {
            since_start: self.start.elapsed(),
            unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            draw: fastrand::u128(..),
        }
    }
}

/// An age in the largest unit that leaves two significant digits.
pub(crate) fn age(age: u64) -> String {
    let (minutes, hours, days) = (age / 60, age / 3_600, age / 86_400);
    match age {
        0..120 => format!("{age}s"),
        120..600 if !age.is_multiple_of(60) => format!("{minutes}m{}s", age % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if !minutes.is_multiple_of(60) => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        _ => match (days / 365, days % 365) {
            (0..2, _) => format!("{days}d"),
            (years @ 2..8, 1..) => format!("{years}y{}d", days % 365),
            (years, _) => format!("{years}y"),
        },
    }
}

/// Seconds since 1970 as RFC 3339 in UTC.
pub(crate) fn timestamp(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Days since 1970-01-01 to a Gregorian date, by eras of 400 years that begin on 1 March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// RFC 3339 in UTC back to seconds since 1970; `None` for anything else.
pub(crate) fn seconds(timestamp: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| timestamp.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    if year < 1970 || !(1..=12).contains(&month) || !timestamp.ends_with('Z') {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(days * 86_400 + number(11..13)? * 3_600 + number(14..16)? * 60 + number(17..19)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        for (unix, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(unix), text);
            assert_eq!(seconds(text), Some(unix));
        }
        assert_eq!(seconds("yesterday"), None);
    }

    #[test]
    fn a_uid_is_a_version_4_uuid() {
        let moment = Moment { since_start: Duration::ZERO, unix: Duration::ZERO, draw: u128::MAX };
        assert_eq!(moment.uid(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_ne!(moment.redrawn(1).uid(), moment.redrawn(2).uid());
    }
}
