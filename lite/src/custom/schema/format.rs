//! Formats of strings. One that is not known here is not checked, as in the real server.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::rules::metadata::is_subdomain;

/// Whether a text has a format.
pub(in crate::custom) fn fits(format: &str, text: &str) -> bool {
    match format {
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_network(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "date" => is_date(text),
        "date-time" | "datetime" => is_moment(text),
        "duration" => is_duration(text),
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

/// Numbers with units, as Go writes durations, or one with the unit as a word.
fn is_duration(text: &str) -> bool {
    const UNITS: &[&str] = &["ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", "w"];
    let mut rest = text.trim().trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (digit, after) = rest.split_at(digits);
        let unit = after.trim_start();
        let length = unit.find(|letter: char| letter.is_ascii_digit() || letter == ' ').unwrap_or(unit.len());
        let (unit, next) = unit.split_at(length);
        if digit.is_empty() || digit.parse::<f64>().is_err() || !UNITS.contains(&unit) {
            return false;
        }
        any = true;
        rest = next.trim_start();
    }
    any
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
    fn formats_are_recognised() {
        check("date", &["2024-02-29"], &["2023-02-29", "2024-13-01", "24-01-01", "2024-1-1", ""]);
        check(
            "date-time",
            &["2024-02-29T01:02:03Z", "2024-02-29T01:02:03.5+02:00"],
            &["2024-02-29", "2024-02-29T25:00:00Z", "2024-02-29T01:02:03", "2024-02-29T01:02:03+2"],
        );
        check("duration", &["1h30m", "0", "1.5s", "3 ms"], &["", "1", "1x", "h", "1.2.3s"]);
        check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0/33", "10.0.0.0", "x/8"]);
        check("uuid", &["6f1c2c9e-8d1c-4b8e-9a52-6f3e1d2c3b4a"], &["6f1c", "zz1c2c9e-8d1c-4b8e-9a52-6f3e1d2c3b4a"]);
        check("mac", &["00:11:22:aa:bb:cc"], &["00:11:22", "x"]);
        check("uri", &["https://a.b/c", "/a"], &["::", ""]);
        check("unheard-of", &["anything"], &[]);
    }
}
