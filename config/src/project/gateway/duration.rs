//! Durations of the Gateway API (GEP-2257).

use std::time::Duration;

/// The maximum number of parts (a number with a unit) of one duration.
const PARTS_MAX: usize = 4;
/// The maximum number of digits of a part.
const DIGITS_MAX: usize = 5;

/// Parses a duration such as `500ms` or `1h30m`. Zero is valid.
pub(in crate::project) fn duration(text: &str) -> Result<Duration, &'static str> {
    const NOT_ONE: &str = "is not a duration such as 500ms, 10s or 1h30m";
    let mut sum = Duration::ZERO;
    let mut rest = text;
    for _ in 0..PARTS_MAX {
        let (digits, after) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
        let (unit, after) = after.split_at(after.bytes().take_while(u8::is_ascii_lowercase).count());
        let ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 3600 * 1000,
            _ => return Err(NOT_ONE),
        };
        let number: u64 = digits.parse().ok().filter(|_| digits.len() <= DIGITS_MAX).ok_or(NOT_ONE)?;
        // At most five digits of hours, four times: about 46 years.
        sum = sum.saturating_add(Duration::from_millis(number.saturating_mul(ms)));
        if after.is_empty() {
            return Ok(sum);
        }
        rest = after;
    }
    Err(NOT_ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want_ms: Option<u64>) {
        assert_eq!(duration(text).ok(), want_ms.map(Duration::from_millis), "{text:?}");
    }

    #[test]
    fn a_duration_has_one_to_four_numbers_of_up_to_five_digits() {
        check("0s", Some(0));
        check("500ms", Some(500));
        check("10s", Some(10_000));
        check("1h30m10s5ms", Some(5_410_005));
        check("1s1h", Some(3_601_000));
        check("99999h", Some(99_999 * 3_600_000));
        for text in ["", "0", "1", "s", "1.5s", "-1s", "1S", "1d", "100000s", "1s1s1s1s1s", "1s ", " 1s", "1sm", "1µs"]
        {
            check(text, None);
        }
    }
}
