//! Timeouts and retries of a rule.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::duration::duration;
use crate::project::field::{FindingList, read};

/// The maximum number of codes of one rule: as many as there can be.
const CODES_MAX: usize = 200;

/// The maximum number of attempts after the first; the proxy makes no more.
const ATTEMPTS_MAX: u32 = 9;

/// `timeouts`. Zero disables a timeout; an absent one has the default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timeouts {
    /// From a request to the end of its response, including all attempts.
    pub request: Option<Duration>,
    /// For one attempt.
    pub backend_request: Option<Duration>,
}

/// `retry`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retry {
    /// The statuses of endpoints that are retried, in ascending order.
    pub codes: Box<[u16]>,
    /// Attempts after the first; 0 for none.
    pub attempts: u32,
    /// The least time between two attempts.
    pub backoff: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct TimeoutsJson<'a> {
    #[serde(borrow)]
    request: Option<&'a RawValue>,
    #[serde(borrow)]
    backend_request: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct RetryJson<'a> {
    #[serde(borrow)]
    codes: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    attempts: Option<&'a RawValue>,
    #[serde(borrow)]
    backoff: Option<&'a RawValue>,
}

/// Reads a setting; if it cannot be read, the default applies.
fn setting<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>, field: &str, findings: &mut FindingList) -> Option<T> {
    let read = raw.map(|raw| read(raw, field)).transpose();
    read.unwrap_or_else(|invalid| {
        findings.ignored(&invalid.field, &invalid.value, &invalid.why);
        None
    })
}

fn time(raw: Option<&RawValue>, field: &str, findings: &mut FindingList) -> Option<Duration> {
    let text: String = setting(raw, field, findings)?;
    duration(&text).map_err(|why| findings.ignored(field, &text, why)).ok()
}

pub(super) fn timeouts(raw: Option<&RawValue>, field: &str, findings: &mut FindingList) -> Timeouts {
    let Some(json) = setting::<TimeoutsJson<'_>>(raw, field, findings) else { return Timeouts::default() };
    Timeouts {
        request: time(json.request, &format!("{field}.request"), findings),
        backend_request: time(json.backend_request, &format!("{field}.backendRequest"), findings),
    }
}

pub(super) fn retry(raw: Option<&RawValue>, field: &str, findings: &mut FindingList) -> Option<Retry> {
    let json: RetryJson<'_> = setting(raw, field, findings)?;
    let mut codes: Vec<u16> = Vec::new();
    for (field, raw) in findings.entries(json.codes, CODES_MAX, &format!("{field}.codes")) {
        let Some(number) = findings.entry::<i64>(raw, &field) else { continue };
        match u16::try_from(number) {
            Ok(code @ 400..=599) => codes.push(code),
            _ => findings.dropped(&field, &number.to_string(), "is not between 400 and 599"),
        }
    }
    codes.sort_unstable();
    codes.dedup();
    let attempts = format!("{field}.attempts");
    let attempts = setting::<i64>(json.attempts, &attempts, findings).and_then(|number| {
        u32::try_from(number)
            .map_err(|_| findings.ignored(&attempts, &number.to_string(), "is not a number of attempts"))
            .ok()
    });
    if let Some(number) = attempts.filter(|number| *number > ATTEMPTS_MAX) {
        let why = format!("no request is sent more than ten times, so {ATTEMPTS_MAX} applies");
        findings.without_effect(&format!("{field}.attempts"), &number.to_string(), why);
    }
    let backoff = time(json.backoff, &format!("{field}.backoff"), findings);
    Some(Retry { codes: codes.into(), attempts: attempts.unwrap_or(1), backoff })
}
