//! Texts with a form of their own: base64, points in time and quantities. They are read and written again as Go's types
//! for them do it, with the words of Go's decoders.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use chrono::{NaiveDate, NaiveDateTime, TimeDelta};
use serde_json::Value;

use crate::quantity;

/// A form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Bytes in base64.
    Bytes,
    /// A time in seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A quantity of a resource, which may also be a number.
    Quantity,
}

/// A value that its format does not allow.
pub(crate) enum Misread {
    /// It is not even a text.
    Mistyped,
    /// The words of the decoder.
    Words(String),
}

/// Bits beyond the last byte are ignored, as in Go.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&ALPHABET, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

impl Format {
    /// The value as the real server writes it.
    pub(crate) fn read(self, value: &Value) -> Result<Value, Misread> {
        let text = match (self, value) {
            (Self::Quantity, Value::String(text)) => Cow::Borrowed(text.trim()),
            (Self::Quantity, other) => Cow::Owned(other.to_string()),
            (_, Value::String(text)) => Cow::Borrowed(text.as_str()),
            (_, _) => return Err(Misread::Mistyped),
        };
        let read = match self {
            Self::Bytes => bytes(&text),
            Self::Time => time(&text, false),
            Self::MicroTime => time(&text, true),
            Self::Quantity => quantity::canonical(&text).map_err(str::to_owned),
        };
        read.map(Value::String).map_err(Misread::Words)
    }
}

fn bytes(text: &str) -> Result<String, String> {
    let plain: String = text.chars().filter(|one| !matches!(one, '\r' | '\n')).collect();
    let illegal = |_| format!("illegal base64 data at input byte {}", illegal_at(text.as_bytes()));
    LENIENT.decode(plain).map(|bytes| STANDARD.encode(bytes)).map_err(illegal)
}

/// The place that Go's decoder names of a text that is not base64.
fn illegal_at(text: &[u8]) -> usize {
    let is_digit = |one: u8| one.is_ascii_alphanumeric() || matches!(one, b'+' | b'/');
    let (mut count, mut at) = (0, 0);
    while let Some(&one) = text.get(at) {
        match one {
            b'\r' | b'\n' => {}
            b'=' if count >= 2 => {
                let rest = &text[at + 1..];
                let skip =
                    |from: usize| from + text[from..].iter().take_while(|one| matches!(one, b'\r' | b'\n')).count();
                if count == 3 {
                    return skip(at + 1);
                }
                let second = skip(at + 1);
                return match text.get(second) {
                    None => at + 1 + rest.len(),
                    Some(b'=') => skip(second + 1),
                    Some(_) => second - 1,
                };
            }
            one if !is_digit(one) => return at,
            _ => count = (count + 1) % 4,
        }
        at += 1;
    }
    at - count
}

/// Reads a time as Go does by its layout of RFC 3339, and gives it in UTC.
fn time(text: &str, micro: bool) -> Result<String, String> {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let error = |why: String| format!("parsing time {}{why}", quoted(text));
    let at = Clock { rest: text }.read(micro).map_err(|wrong| match wrong {
        Wrong::Part(rest, part) => {
            error(format!(" as {}: cannot parse {} as {}", quoted(layout), quoted(&rest), quoted(part)))
        }
        Wrong::Range(what) => error(format!(": {what} out of range")),
        Wrong::Extra(rest) => error(format!(": extra text: {}", quoted(&rest))),
    })?;
    Ok(at.format(if micro { "%Y-%m-%dT%H:%M:%S%.6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" }).to_string())
}

/// The fault of a text for a time.
enum Wrong {
    /// The rest of the text does not begin with this part of the layout.
    Part(String, &'static str),
    Range(&'static str),
    Extra(String),
}

/// The part of a time that is not read yet.
struct Clock<'a> {
    rest: &'a str,
}

impl Clock<'_> {
    fn read(mut self, micro: bool) -> Result<NaiveDateTime, Wrong> {
        let year = self.number(4, 4, "2006")?;
        self.literal("-")?;
        let month = self.ranged(2, "01", 1..=12, "month")?;
        self.literal("-")?;
        let day = self.number(2, 2, "02")?;
        self.literal("T")?;
        let hour = self.ranged(1, "15", 0..=23, "hour")?;
        self.literal(":")?;
        let minute = self.ranged(2, "04", 0..=59, "minute")?;
        self.literal(":")?;
        let second = self.ranged(2, "05", 0..=59, "second")?;
        let micros = if micro { self.micros()? } else { self.fraction() };
        let offset_minutes = self.zone()?;
        if !self.rest.is_empty() {
            return Err(Wrong::Extra(self.rest.to_owned()));
        }
        let date = i32::try_from(year).ok().and_then(|year| NaiveDate::from_ymd_opt(year, month, day));
        let local = date.and_then(|date| date.and_hms_micro_opt(hour, minute, second, micros));
        let utc = local.and_then(|local| local.checked_sub_signed(TimeDelta::minutes(offset_minutes)));
        utc.ok_or(Wrong::Range("day"))
    }

    fn wrong(&self, part: &'static str) -> Wrong {
        Wrong::Part(self.rest.to_owned(), part)
    }

    fn literal(&mut self, part: &'static str) -> Result<(), Wrong> {
        self.rest = self.rest.strip_prefix(part).ok_or_else(|| self.wrong(part))?;
        Ok(())
    }

    /// A number of some digits.
    fn number(&mut self, least: usize, most: usize, part: &'static str) -> Result<u32, Wrong> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return Err(self.wrong(part));
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        Ok(number.parse().unwrap_or_default())
    }

    /// A number of at most two digits within a range.
    fn ranged(
        &mut self,
        least: usize,
        part: &'static str,
        range: std::ops::RangeInclusive<u32>,
        what: &'static str,
    ) -> Result<u32, Wrong> {
        let number = self.number(least, 2, part)?;
        if range.contains(&number) { Ok(number) } else { Err(Wrong::Range(what)) }
    }

    /// Exactly six digits after a point.
    fn micros(&mut self) -> Result<u32, Wrong> {
        let digits = self.rest.strip_prefix(['.', ',']).and_then(|rest| rest.get(..6));
        let digits = digits.filter(|digits| digits.bytes().all(|one| one.is_ascii_digit()));
        let micros = digits.ok_or_else(|| self.wrong(".000000"))?.parse().unwrap_or_default();
        self.rest = &self.rest[7..];
        Ok(micros)
    }

    /// A fraction that the layout does not name: it is taken and lost.
    fn fraction(&mut self) -> u32 {
        if let Some(rest) = self.rest.strip_prefix(['.', ','])
            && rest.starts_with(|one: char| one.is_ascii_digit())
        {
            self.rest = rest.trim_start_matches(|one: char| one.is_ascii_digit());
        }
        0
    }

    /// Minutes by which a local time is ahead of UTC.
    fn zone(&mut self) -> Result<i64, Wrong> {
        const PART: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let zone = self.rest.get(..6).filter(|zone| zone.as_bytes()[3] == b':').ok_or_else(|| self.wrong(PART))?;
        let two = |at: usize| {
            let digits = zone.get(at..at + 2).filter(|two| two.bytes().all(|one| one.is_ascii_digit()));
            digits.and_then(|two| two.parse::<i64>().ok()).ok_or_else(|| self.wrong(PART))
        };
        let (hours, minutes) = (two(1)?, two(4)?);
        if hours > 24 {
            return Err(Wrong::Range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(Wrong::Range("time zone offset minute"));
        }
        let sign = match zone.as_bytes()[0] {
            b'+' => 1,
            b'-' => -1,
            _ => return Err(self.wrong(PART)),
        };
        self.rest = &self.rest[6..];
        Ok(sign * (hours * 60 + minutes))
    }
}

/// A text in quotes, as Go's package for times writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='\u{7e}' => quoted.push(letter),
            _ => letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| quoted.push_str(&format!("\\x{byte:02x}"))),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(format: Format, value: Value, expected: Result<&str, &str>) {
        let found = format.read(&value).map_err(|misread| match misread {
            Misread::Mistyped => "mistyped".to_owned(),
            Misread::Words(why) => why,
        });
        assert_eq!(found.as_ref().map(|value| value.as_str().unwrap()).map_err(String::as_str), expected);
    }

    #[test]
    fn bytes_are_base64() {
        check(Format::Bytes, json!("YQ=="), Ok("YQ=="));
        check(Format::Bytes, json!("Y\nQ==\r\n"), Ok("YQ=="));
        check(Format::Bytes, json!("YR=="), Ok("YQ=="));
        check(Format::Bytes, json!(1), Err("mistyped"));
        for (text, at) in
            [("pass word", 4), ("YQ", 0), ("YWJjZ", 4), ("__-_", 0), ("YQ==YQ==", 4), ("YQ=", 3), ("YQ=a", 2), ("=", 0)]
        {
            check(Format::Bytes, json!(text), Err(&format!("illegal base64 data at input byte {at}")));
        }
    }

    #[test]
    fn times_are_in_utc() {
        check(Format::Time, json!("2026-12-30T23:00:00.123456+01:30"), Ok("2026-12-30T21:30:00Z"));
        check(Format::Time, json!("2026-12-30T3:00:00,5Z"), Ok("2026-12-30T03:00:00Z"));
        check(Format::MicroTime, json!("2026-12-30T23:00:00.123456+01:00"), Ok("2026-12-30T22:00:00.123456Z"));
        check(Format::Time, json!(5), Err("mistyped"));
    }

    #[test]
    fn invalid_times_have_the_message_of_go() {
        for (text, why) in [
            ("today", " as \"2006-01-02T15:04:05Z07:00\": cannot parse \"today\" as \"2006\""),
            ("2026-01-02", " as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"T\""),
            ("2026-02-30T00:00:00Z", ": day out of range"),
            ("2026-13-30T00:00:00Z", ": month out of range"),
            ("2026-12-30T24:00:00Z", ": hour out of range"),
            ("2026-12-30T23:00:00Zx", ": extra text: \"x\""),
            ("2026-12-30T23:00:00+25:00", ": time zone offset hour out of range"),
            ("2026-12-30T23:00:00", " as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"Z07:00\""),
        ] {
            check(Format::Time, json!(text), Err(&format!("parsing time \"{text}\"{why}")));
        }
        for (text, rest, part) in [
            ("2026-12-30T23:00:00Z", "Z", ".000000"),
            ("2026-12-30T23:00:00.123Z", ".123Z", ".000000"),
            ("2026-12-30T23:00:00.123456789Z", "789Z", "Z07:00"),
        ] {
            let why = format!(
                "parsing time \"{text}\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"{rest}\" as \"{part}\""
            );
            check(Format::MicroTime, json!(text), Err(&why));
        }
    }
}
