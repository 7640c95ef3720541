//! Numbers as Go prints them.

/// A float by `%v`: the shortest digits that give it again, with an exponent from 1e+06 on and below 0.0001.
pub(super) fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A bound that a whole number is compared with, as the real server turns it into one.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, and drops the fraction as the real server does"
)]
pub(super) fn whole(bound: f64) -> i64 {
    bound as i64
}

/// A whole number as a float.
#[allow(clippy::cast_precision_loss, reason = "comparisons of floats are meant")]
pub(super) fn real(value: i64) -> f64 {
    value as f64
}
