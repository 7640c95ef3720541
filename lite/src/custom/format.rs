//! Formats of strings. One that is not known here is not checked, as in the real server.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::Duration;

use crate::names::is_subdomain;

/// Whether a text has a format.
pub(super) fn fits(format: &str, text: &str) -> bool {
    match format {
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_network(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "date" => is_date(text),
        "date-time" | "datetime" => is_moment(text),
        "duration" => duration(text).is_some(),
        "uuid" => is_uuid(text),
        "mac" => is_hardware_address(text),
        "hostname" => is_subdomain(&text.to_ascii_lowercase()),
        "email" => text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty()),
        "uri" => text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some()) || text.starts_with('/'),
        _ => true,
    }
}

fn is_network(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    address.parse::<Ipv4Addr>().is_ok() && bits <= 32 || address.parse::<Ipv6Addr>().is_ok() && bits <= 128
}

/// Digits that are a number of this range.
fn number(text: &str, digits: usize, range: std::ops::RangeInclusive<u32>) -> bool {
    text.len() == digits
        && text.bytes().all(|one| one.is_ascii_digit())
        && text.parse().is_ok_and(|number| range.contains(&number))
}

/// RFC 3339 `full-date`.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    if !(number(year, 4, 0..=9999) && number(month, 2, 1..=12) && number(day, 2, 1..=31)) {
        return false;
    }
    let year: u32 = year.parse().unwrap_or_default();
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match *month {
        "02" if leap => 29,
        "02" => 28,
        "04" | "06" | "09" | "11" => 30,
        _ => 31,
    };
    day.parse::<u32>().is_ok_and(|day| day <= days)
}

/// RFC 3339 `date-time`.
pub(crate) fn is_moment(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    let Some(at) = time.find(['Z', 'z', '+', '-']) else { return false };
    let (clock, zone) = time.split_at(at);
    let clock_fits = {
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
        let parts: Vec<&str> = clock.split(':').collect();
        matches!(parts.as_slice(), [hour, minute, second]
            if number(hour, 2, 0..=23) && number(minute, 2, 0..=59) && number(second, 2, 0..=60))
            && !fraction.is_empty()
            && fraction.bytes().all(|one| one.is_ascii_digit())
    };
    let zone_fits = zone.eq_ignore_ascii_case("z")
        || zone
            .strip_prefix(['+', '-'])
            .and_then(|zone| zone.split_once(':'))
            .is_some_and(|(hour, minute)| number(hour, 2, 0..=23) && number(minute, 2, 0..=59));
    is_date(date) && clock_fits && zone_fits
}

/// A duration as Go writes it (`1h30m`), or else the sum of all whole numbers with a unit in a text (`2 days, 3 min`),
/// as strfmt has it.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let nanos = go_duration(text).or_else(|| duration_in_words(text))?;
    i64::try_from(nanos).ok().map(Duration::nanoseconds)
}

const UNITS: &[(&[&str], i128)] = &[
    (&["ns", "nano"], 1),
    (&["us", "µs", "μs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];
/// Go's own units end with the hour.
const GO_UNITS: usize = 6;

/// Nanoseconds of numbers with units and nothing between them.
fn go_duration(text: &str) -> Option<i128> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1 } else { 1 };
    if rest == "0" {
        return Some(0);
    }
    let mut sum: i128 = 0;
    while !rest.is_empty() || sum == 0 {
        let (number, after) = rest.split_at(rest.find(|one: char| !one.is_ascii_digit() && one != '.')?);
        let (name, next) =
            after.split_at(after.find(|one: char| one.is_ascii_digit() || one == '.').unwrap_or(after.len()));
        let unit = |(names, _): &&(&[&str], i128)| name.len() <= 3 && names.contains(&name) && !is_word(name);
        let (_, nanos) = UNITS.iter().take(GO_UNITS).find(unit)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        // More digits than these are below a nanosecond of an hour.
        let fraction = fraction.get(..fraction.len().min(18))?;
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i64>().ok().map(i128::from) };
        let below = digits(fraction)? * nanos / 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        sum = sum.checked_add(digits(whole)? * nanos + below)?;
        rest = next;
        if rest.is_empty() {
            break;
        }
    }
    Some(sign * sum)
}

/// Whether a unit is a word or an abbreviation that Go does not have.
fn is_word(name: &str) -> bool {
    matches!(name, "sec" | "min" | "hr")
}

fn duration_in_words(text: &str) -> Option<i128> {
    let mut sum = None;
    let mut rest = text;
    while let Some(at) = rest.find(|one: char| one.is_ascii_digit()) {
        let from = rest.get(at..)?;
        let (number, after) = from.split_at(from.find(|one: char| !one.is_ascii_digit()).unwrap_or(from.len()));
        let after = after.trim_start();
        let (name, next) =
            after.split_at(after.find(|one: char| !one.is_ascii_alphabetic() && one != 'µ').unwrap_or(after.len()));
        rest = next;
        if name.is_empty() {
            continue;
        }
        let name = name.to_lowercase();
        let number = i128::from(number.parse::<i64>().ok()?);
        let fits =
            |names: &[&str]| names.contains(&name.as_str()) || names.last().is_some_and(|long| name.starts_with(long));
        if let Some((_, nanos)) = UNITS.iter().find(|(names, _)| fits(names)) {
            sum = Some(sum.unwrap_or(0) + number * nanos);
        }
    }
    sum
}

fn is_uuid(text: &str) -> bool {
    let hex = text.replace('-', "");
    hex.len() == 32 && hex.bytes().all(|one| one.is_ascii_hexdigit())
}

fn is_hardware_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|one| one.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, good: &[&str], bad: &[&str]) {
        good.iter().for_each(|text| assert!(fits(format, text), "{format}: {text}"));
        bad.iter().for_each(|text| assert!(!fits(format, text), "{format}: {text}"));
    }

    #[test]
    fn durations_are_sums() {
        for (text, nanos) in [
            ("1h30m", 5_400_000_000_000),
            ("-1.5s", -1_500_000_000),
            ("1µs2ns", 1_002),
            (".5m", 30_000_000_000),
            ("2 days, 3 min", 172_980_000_000_000),
            ("1 Week", 604_800_000_000_000),
            // The sign and what is before a point are lost in words, as in strfmt.
            ("-1.2 sec", 2_000_000_000),
        ] {
            assert_eq!(duration(text), Some(Duration::nanoseconds(nanos)), "{text}");
        }
        assert_eq!(duration("9999999999h"), None);
    }

    #[test]
    fn formats_are_recognised() {
        check("date", &["2024-02-29"], &["2023-02-29", "2024-13-01", "24-01-01", "2024-1-1", ""]);
        check(
            "date-time",
            &["2024-02-29T01:02:03Z", "2024-02-29T01:02:03.5+02:00"],
            &["2024-02-29", "2024-02-29T25:00:00Z", "2024-02-29T01:02:03", "2024-02-29T01:02:03+2"],
        );
        check("duration", &["1h30m", "0", "1.5s", "3 ms", "2 days", "1.2.3s"], &["", "1", "1x", "h", "-", ".s", "s"]);
        check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0/33", "10.0.0.0", "x/8"]);
        check("uuid", &["6f1c2c9e-8d1c-4b8e-9a52-6f3e1d2c3b4a"], &["6f1c", "zz1c2c9e-8d1c-4b8e-9a52-6f3e1d2c3b4a"]);
        check("mac", &["00:11:22:aa:bb:cc"], &["00:11:22", "x"]);
        check("uri", &["https://a.b/c", "/a"], &["::", ""]);
        check("unheard-of", &["anything"], &[]);
    }
}
