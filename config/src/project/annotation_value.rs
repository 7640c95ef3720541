//! Parsers of annotation values. Errors are predicates that say why a text is not valid.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::cookie;
use super::gateway::reference;
use crate::model::{Balance, ProxyHeader, SameSite};

/// The longest time of an annotation, and its spelling.
const DURATION_MAX: (Duration, &str) = (Duration::from_secs(24 * 3600), "24h");

/// The longest lifetime of a cookie: browsers shorten longer ones (RFC 6265bis section 5.5).
const COOKIE_AGE_MAX: (Duration, &str) = (Duration::from_secs(400 * 24 * 3600), "9600h");

/// The maximum number of networks in one list.
const SOURCES_MAX: usize = 4096;

/// Whether zero is a valid time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Zero {
    /// It stands for no limit.
    Unlimited,
    /// It is refused.
    Refused,
}

/// A version of the PROXY protocol.
pub(super) fn proxy_header(text: &str) -> Result<ProxyHeader, String> {
    match text {
        "v1" => Ok(ProxyHeader::V1),
        "v2" => Ok(ProxyHeader::V2),
        _ => Err("is neither v1 nor v2".to_owned()),
    }
}

/// A time such as `500ms`, `30s`, `2m`, `1h` or `1m30s`, up to 24 hours.
pub(super) fn duration(text: &str, zero: Zero) -> Result<Duration, String> {
    let text = text.trim();
    let sum = if text == "0" { Duration::ZERO } else { sum_of_units(text, DURATION_MAX)? };
    if sum.is_zero() && zero == Zero::Refused {
        return Err("is not more than zero".to_owned());
    }
    Ok(sum)
}

/// A whole number of seconds, as ingress-nginx writes times. More than 24 hours count as 24.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    seconds_up_to(DURATION_MAX.0, text)
}

/// The same for the lifetime of a cookie. More than 400 days count as 400.
pub(super) fn seconds_of_cookie(text: &str) -> Result<Duration, String> {
    seconds_up_to(COOKIE_AGE_MAX.0, text)
}

fn seconds_up_to(max: Duration, text: &str) -> Result<Duration, String> {
    let seconds = whole(text).map_err(|_| "is not a whole number of seconds".to_owned())?;
    let time = Duration::from_secs(u64::from(seconds));
    if time.is_zero() { Err("is not more than zero".to_owned()) } else { Ok(time.min(max)) }
}

/// The lifetime of a cookie: at least one second.
pub(super) fn cookie_age(text: &str) -> Result<Duration, String> {
    let sum = sum_of_units(text.trim(), COOKIE_AGE_MAX)?;
    if sum < Duration::from_secs(1) { Err("is less than 1s".to_owned()) } else { Ok(sum) }
}

/// The name of a cookie.
pub(super) fn cookie_name(text: &str) -> Result<Arc<str>, String> {
    let text = text.trim();
    if cookie::is_name(text) { Ok(text.into()) } else { Err("is not the name of a cookie".to_owned()) }
}

/// The name of an object of a kind with a definition (RFC 1123, subdomain).
pub(super) fn object_name(text: &str) -> Result<Arc<str>, String> {
    let text = text.trim();
    reference::section(text).map(|()| text.into()).map_err(str::to_owned)
}

/// The path of a cookie.
pub(super) fn cookie_path(text: &str) -> Result<Arc<str>, String> {
    let text = text.trim();
    if cookie::is_path(text) { Ok(text.into()) } else { Err("is not the path of a cookie".to_owned()) }
}

/// `Strict`, `Lax` or `None`, in any case.
pub(super) fn same_site(text: &str) -> Result<SameSite, String> {
    let all = [SameSite::Strict, SameSite::Lax, SameSite::None];
    let named = all.into_iter().find(|it| it.as_str().eq_ignore_ascii_case(text.trim()));
    named.ok_or_else(|| "is neither Strict, Lax nor None".to_owned())
}

fn sum_of_units(text: &str, (max, written): (Duration, &str)) -> Result<Duration, String> {
    let mut sum = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (digits, after) = split_digits(rest);
        let length = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(length);
        let number: u64 = digits.parse().map_err(|_| not_a_duration())?;
        let one_ms: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 3600 * 1000,
            "" if after.is_empty() => return Err("has a number without a unit (ms, s, m or h)".to_owned()),
            _ => return Err(not_a_duration()),
        };
        let part = number.checked_mul(one_ms).map(Duration::from_millis);
        let longer = part.and_then(|part| sum.checked_add(part)).filter(|sum| *sum <= max);
        sum = longer.ok_or_else(|| format!("is more than {written}"))?;
        rest = after;
    }
    if text.is_empty() { Err("is empty".to_owned()) } else { Ok(sum) }
}

fn not_a_duration() -> String {
    "is not a duration such as 500ms, 30s or 1m30s".to_owned()
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// A number of bytes, with `k`, `m` or `g` for powers of 1024.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = split_digits(text.trim());
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return Err("is not a number of bytes such as 512k, 8m or 1g".to_owned()),
    };
    if digits.is_empty() {
        return Err("is not a number of bytes such as 512k, 8m or 1g".to_owned());
    }
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or_else(|| "is too large".to_owned())
}

/// A whole number from 1 to `max`.
pub(super) fn count(text: &str, max: u8) -> Result<u8, String> {
    let (digits, rest) = split_digits(text.trim());
    let number: Option<u8> = rest.is_empty().then(|| digits.parse().ok()).flatten();
    number.filter(|number| (1..=max).contains(number)).ok_or_else(|| format!("is not a whole number from 1 to {max}"))
}

/// A whole number from 0 to [`u32::MAX`].
pub(super) fn whole(text: &str) -> Result<u32, String> {
    let (digits, rest) = split_digits(text.trim());
    let number = rest.is_empty().then(|| digits.parse().ok()).flatten();
    number.ok_or_else(|| format!("is not a whole number from 0 to {}", u32::MAX))
}

/// `true` or `false`, in the spellings of Go's `strconv.ParseBool`, which other controllers accept.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.trim() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("is neither true nor false".to_owned()),
    }
}

/// `power-of-two` or `round-robin`.
pub(super) fn balance(text: &str) -> Result<Balance, String> {
    match text.trim() {
        "power-of-two" => Ok(Balance::PowerOfTwo),
        "round-robin" => Ok(Balance::RoundRobin),
        _ => Err("is neither power-of-two nor round-robin".to_owned()),
    }
}

/// A comma-separated list of networks and addresses, at least one.
pub(super) fn sources(text: &str) -> Result<Box<[IpNet]>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let networks: Box<[IpNet]> = entries.map(|entry| network(entry, text)).collect::<Result<_, _>>()?;
    match networks.len() {
        0 => Err("names no network".to_owned()),
        1..=SOURCES_MAX => Ok(networks),
        _ => Err(format!("names more than {SOURCES_MAX} networks")),
    }
}

fn network(entry: &str, list: &str) -> Result<IpNet, String> {
    let network = entry.parse::<IpNet>().or_else(|_| entry.parse().map(|address: std::net::IpAddr| address.into()));
    network.map(|network| network.trunc()).map_err(|_| {
        let neither = "neither an address nor a network such as 10.0.0.0/8";
        if entry == list {
            return format!("is {neither}");
        }
        format!("holds {:?}, which is {neither}", crate::finding::printable(entry))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_duration(text: &str, want_ms: Result<u64, &str>) {
        let got = duration(text, Zero::Refused);
        assert_eq!(got.as_ref().map(Duration::as_millis).map_err(|why| &**why), want_ms.map(u128::from), "{text:?}");
    }

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        check_duration("500ms", Ok(500));
        check_duration("30s", Ok(30_000));
        check_duration(" 2m ", Ok(120_000));
        check_duration("1h", Ok(3_600_000));
        check_duration("1m30s", Ok(90_000));
        check_duration("1h1m1s1ms", Ok(3_661_001));
        check_duration("0h1s", Ok(1000));
        check_duration("24h", Ok(86_400_000));
    }

    #[test]
    fn an_invalid_duration_has_a_reason() {
        let form = Err("is not a duration such as 500ms, 30s or 1m30s");
        for text in ["s", "1.5s", "-1s", "+1s", "1 s", "1S", "1d", "1s2x", "٣s", "1s,", "1m 30s", "soon"] {
            check_duration(text, form);
        }
        check_duration("30", Err("has a number without a unit (ms, s, m or h)"));
        check_duration("1m30", Err("has a number without a unit (ms, s, m or h)"));
        check_duration("", Err("is empty"));
        check_duration(" ", Err("is empty"));
        for text in ["0", "0s", "0h0m"] {
            check_duration(text, Err("is not more than zero"));
            assert_eq!(duration(text, Zero::Unlimited), Ok(Duration::ZERO), "{text:?}");
        }
        for text in ["24h1ms", "86401s", "18446744073709551615h", "18446744073709551615ms18446744073709551615ms"] {
            check_duration(text, Err("is more than 24h"));
        }
    }

    #[track_caller]
    fn check_seconds(text: &str, want_s: Option<u64>) {
        assert_eq!(seconds(text).ok().map(|time| time.as_secs()), want_s, "{text:?}");
    }

    #[test]
    fn seconds_are_whole_numbers() {
        check_seconds("1", Some(1));
        check_seconds(" 3600\n", Some(3600));
        check_seconds("86401", Some(86_400));
        check_seconds("4294967295", Some(86_400));
        for text in ["", "0", "60s", "1.5", "-1", "+1", "4294967296"] {
            check_seconds(text, None);
        }
    }

    #[track_caller]
    fn check_age(text: &str, want_s: Result<u64, &str>) {
        let got = cookie_age(text);
        assert_eq!(got.as_ref().map(Duration::as_secs).map_err(|why| &**why), want_s, "{text:?}");
    }

    #[test]
    fn cookie_ages_are_one_second_to_four_hundred_days() {
        check_age("1s", Ok(1));
        check_age(" 48h ", Ok(172_800));
        check_age("9600h", Ok(34_560_000));
        check_age("9600h1ms", Err("is more than 9600h"));
        for text in ["999ms", "0s"] {
            check_age(text, Err("is less than 1s"));
        }
        check_age("172800", Err("has a number without a unit (ms, s, m or h)"));
        check_age("0", Err("has a number without a unit (ms, s, m or h)"));
    }

    #[test]
    fn cookie_parts_cannot_inject_other_parts() {
        for text in ["route", "__Host-a", "A.b~c", &"a".repeat(256)] {
            assert_eq!(cookie_name(text).as_deref(), Ok(text));
        }
        for text in ["", "a=b", "a;b", "a b", "a,b", "\u{fc}", "\"a\"", "a\r\nb", &"a".repeat(257)] {
            assert!(cookie_name(text).is_err(), "{text:?}");
        }
        for text in ["/", "/a/b", "/%20", "/a=b"] {
            assert_eq!(cookie_path(text).as_deref(), Ok(text));
        }
        for text in ["", "a", "/;Domain=b", "/a b", "/\u{fc}", "/a\r\nb", &format!("/{}", "a".repeat(1024))] {
            assert!(cookie_path(text).is_err(), "{text:?}");
        }
        let read = |text| same_site(text).ok().map(SameSite::as_str);
        assert_eq!([read("strict"), read(" Lax"), read("NONE")], [Some("Strict"), Some("Lax"), Some("None")]);
        assert_eq!([read(""), read("Lax; Secure")], [None, None]);
    }

    #[track_caller]
    fn check_bytes(text: &str, want: Option<u64>) {
        assert_eq!(bytes(text).ok(), want, "{text:?}");
    }

    #[test]
    fn byte_units_are_powers_of_1024() {
        check_bytes("0", Some(0));
        check_bytes("1000", Some(1000));
        check_bytes("8k", Some(8192));
        check_bytes("8M", Some(8 << 20));
        check_bytes("1g", Some(1 << 30));
        check_bytes("17179869183g", Some(17_179_869_183 << 30));
        for text in ["", "k", "1kb", "1Mi", "1.5m", "-1", "17179869184g", "18446744073709551616", "1 k"] {
            check_bytes(text, None);
        }
    }

    #[test]
    fn counts_stay_within_their_limits() {
        for (text, want) in [("1", Some(1)), ("10", Some(10)), ("0", None), ("11", None), ("300", None), ("+1", None)] {
            assert_eq!(count(text, 10).ok(), want, "{text:?}");
        }
    }

    #[test]
    fn booleans_are_parsed_as_in_go() {
        let read = |text| boolean(text).ok();
        for (yes, no) in [("1", "0"), ("t", "f"), ("T", "F"), ("true", "false"), (" TRUE", "FALSE "), ("True", "False")]
        {
            assert_eq!((read(yes), read(no)), (Some(true), Some(false)), "{yes} {no}");
        }
        for text in ["", "yes", "no", "on", "tRUE", "truee", "2", "null"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[track_caller]
    fn check_sources(text: &str, want: Result<&[&str], &str>) {
        let got = sources(text).map(|networks| networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        assert_eq!(got, want.map(|networks| networks.join(" ")).map_err(str::to_owned), "{text:?}");
    }

    #[test]
    fn sources_are_addresses_and_networks() {
        check_sources("10.0.0.0/8", Ok(&["10.0.0.0/8"]));
        check_sources("10.9.8.7/8,192.0.2.1", Ok(&["10.0.0.0/8", "192.0.2.1/32"]));
        check_sources(" ::1 , 2001:db8::/32 ,", Ok(&["::1/128", "2001:db8::/32"]));
        check_sources("0.0.0.0/0", Ok(&["0.0.0.0/0"]));
    }

    #[test]
    fn a_list_with_an_invalid_entry_is_refused() {
        let is = "is neither an address nor a network such as 10.0.0.0/8";
        let holds = |entry: &str| format!("holds {entry:?}, which {is}");
        for text in ["office", "10.0.0.0/33", "10.0.0", "010.0.0.1", "::1/129", "10.0.0.1:80", "10.0.0.0/-1", "*"] {
            check_sources(text, Err(is));
            check_sources(&format!("10.0.0.0/8, {text}"), Err(&holds(text)));
        }
        check_sources("10.0.0.0/8 192.0.2.1", Err(is));
        for text in ["", " ", ",", " , ,"] {
            check_sources(text, Err("names no network"));
        }
        check_sources(&"10.0.0.1,".repeat(4097), Err("names more than 4096 networks"));
    }
}
