//! The query of a request: read once, then checked for the kind of request.

use std::str::FromStr;
use std::time::Duration;

use crate::causes::Causes;
use crate::failure::Failure;
use crate::write::Validation;

/// The maximum length of a manager's name.
pub(super) const MANAGER_MAX_BYTES: usize = 128;

/// Every parameter that this server reads. The others are ignored, as in the real one.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) version: String,
    pub(super) version_match: Option<String>,
    pub(super) token: String,
    pub(super) limit: u64,
    pub(super) bookmarks: bool,
    pub(super) send_initial_events: Option<bool>,
    pub(super) timeout: Option<Duration>,
    pub(super) labels: String,
    pub(super) fields: String,
    pub(super) dry_run: bool,
    pub(super) validation: Validation,
    pub(super) include_object: String,
    /// The field manager; empty if the request does not name one.
    pub(super) manager: String,
    /// The policy for the dependents of a deleted object.
    pub(super) propagation: String,
    /// `true` if an apply takes fields from other owners.
    pub(super) force: Option<bool>,
}

impl Query {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let mut query = Self::default();
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            let value = value.into_owned();
            match key.as_ref() {
                "watch" => query.watch = flag(&value),
                "resourceVersion" => query.version = value,
                "resourceVersionMatch" => query.version_match = Some(value).filter(|value| !value.is_empty()),
                "continue" => query.token = value,
                "limit" => {
                    // As in the real server, a negative number is no limit.
                    let limit: i64 = number(&key, &value)?;
                    query.limit = u64::try_from(limit).unwrap_or_default();
                }
                "allowWatchBookmarks" => query.bookmarks = flag(&value),
                "sendInitialEvents" => query.send_initial_events = Some(flag(&value)),
                "timeoutSeconds" => {
                    let seconds = number(&key, &value)?;
                    query.timeout = (seconds > 0).then(|| Duration::from_secs(seconds));
                }
                "labelSelector" => query.labels = value,
                "fieldSelector" => query.fields = value,
                "dryRun" => query.dry_run = dry_run(&value)?,
                "fieldValidation" => query.validation = validation(&value)?,
                "includeObject" => query.include_object = value,
                "fieldManager" => query.manager = value,
                "propagationPolicy" => query.propagation = value,
                "force" => query.force = Some(flag(&value)),
                _ => {}
            }
        }
        Ok(query)
    }

    /// Refuses combinations that are invalid for a list or a watch.
    pub(super) fn check_options(&self) -> Result<(), Failure> {
        let mut causes = Causes::default();
        if self.watch {
            self.check_watch(&mut causes)
        } else {
            self.check_list(&mut causes)
        }
        if causes.0.is_empty() { Ok(()) } else { Err(Failure::invalid_options("ListOptions", &causes.0)) }
    }

    /// Refuses an invalid manager, and for a patch the options of an apply.
    pub(super) fn check_manager(&self, options: &str, applies: Option<bool>) -> Result<(), Failure> {
        let mut causes = Causes::default();
        match applies {
            Some(true) if self.manager.is_empty() => causes.required("fieldManager", "is required for apply patch"),
            Some(false) if self.force.is_some() => {
                causes.forbidden("force", "may not be specified for non-apply patch")
            }
            Some(_) | None => {}
        }
        if self.manager.len() > MANAGER_MAX_BYTES {
            causes.too_long("fieldManager", &format!("may not be more than {MANAGER_MAX_BYTES} bytes"));
        }
        if let Some((at, letter)) = self.manager.char_indices().find(|(_, letter)| letter.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {at})", u32::from(letter));
            causes.invalid("fieldManager", &self.manager.clone().into(), &why);
        }
        if causes.0.is_empty() { Ok(()) } else { Err(Failure::invalid_options(options, &causes.0)) }
    }

    fn check_list(&self, causes: &mut Causes) {
        const MATCH: &str = "resourceVersionMatch";
        if self.send_initial_events.is_some() {
            causes.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        let Some(matching) = &self.version_match else { return };
        if self.version.is_empty() {
            causes.forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !self.token.is_empty() {
            causes.forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided");
        }
        match matching.as_str() {
            "Exact" if self.version == "0" => {
                causes.forbidden(MATCH, "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"");
            }
            "Exact" | "NotOlderThan" => {}
            _ => causes.unsupported(MATCH, &matching.clone().into(), &["Exact", "NotOlderThan", ""]),
        }
    }

    fn check_watch(&self, causes: &mut Causes) {
        const MATCH: &str = "resourceVersionMatch";
        match (&self.version_match, self.send_initial_events) {
            (None, None) => {}
            (None, Some(_)) => {
                causes.forbidden(MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
            }
            (Some(_), None) => {
                causes.forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
            (Some(matching), Some(_)) if matching != "NotOlderThan" => {
                causes.unsupported(MATCH, &matching.clone().into(), &["NotOlderThan"]);
            }
            (Some(_), Some(_)) => {}
        }
        if self.version_match.is_some() && !self.token.is_empty() {
            causes.forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided");
        }
    }

    /// The resourceVersion as a number; `None` for none and for "0".
    pub(super) fn exact_version(&self) -> Result<Option<u64>, Failure> {
        match self.version.as_str() {
            "" | "0" => Ok(None),
            text => {
                let digits = text.bytes().all(|one| one.is_ascii_digit()) && !text.starts_with('0');
                let refused = || {
                    Failure::bad_request(format!(
                        "Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
                    ))
                };
                // A number that exceeds u64 is a version that does not exist yet.
                if digits { Ok(Some(text.parse().unwrap_or(u64::MAX))) } else { Err(refused()) }
            }
        }
    }
}

pub(super) fn flag(value: &str) -> bool {
    // Every text but these two is true, even an empty one, as in Go's conversion of query strings.
    value != "0" && !value.eq_ignore_ascii_case("false")
}

pub(super) fn number<N: FromStr>(key: &str, value: &str) -> Result<N, Failure> {
    value.parse().map_err(|_| Failure::bad_request(format!("{key}: invalid value {value:?}: not a number")))
}

/// `All` or empty.
pub(super) fn dry_run(value: &str) -> Result<bool, Failure> {
    match value {
        "" => Ok(false),
        "All" => Ok(true),
        other => {
            let mut causes = Causes::default();
            causes.unsupported("dryRun", &other.into(), &["All"]);
            Err(Failure::invalid_options("CreateOptions", &causes.0))
        }
    }
}

fn validation(value: &str) -> Result<Validation, Failure> {
    match value {
        "Ignore" => Ok(Validation::Ignore),
        "" | "Warn" => Ok(Validation::Warn),
        "Strict" => Ok(Validation::Strict),
        other => {
            let mut causes = Causes::default();
            causes.unsupported("fieldValidation", &other.into(), &["", "Ignore", "Strict", "Warn"]);
            Err(Failure::invalid_options("CreateOptions", &causes.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(), u16>) {
        let found = Query::parse(text).and_then(|query| {
            query.exact_version()?;
            query.check_options()
        });
        assert_eq!(found.map_err(|failure| failure.code.as_u16()), expected, "{text}");
    }

    #[test]
    fn parameters_of_lists() {
        check("", Ok(()));
        check("resourceVersion=0&limit=500", Ok(()));
        check("resourceVersion=7&resourceVersionMatch=Exact", Ok(()));
        check("resourceVersion=0&resourceVersionMatch=NotOlderThan&unknown=x", Ok(()));
        check("resourceVersionMatch=Exact", Err(422));
        check("resourceVersion=0&resourceVersionMatch=Exact", Err(422));
        check("resourceVersion=7&resourceVersionMatch=Newest", Err(422));
        check("resourceVersion=7&resourceVersionMatch=Exact&continue=x", Err(422));
        check("sendInitialEvents=true", Err(422));
    }

    #[test]
    fn parameters_of_watches() {
        check("watch=1&timeoutSeconds=3&allowWatchBookmarks=true", Ok(()));
        check("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", Ok(()));
        check("watch&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=4", Ok(()));
        check("watch=true&sendInitialEvents=true", Err(422));
        check("watch=true&sendInitialEvents=false", Err(422));
        check("watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1", Err(422));
        check("watch=true&sendInitialEvents=true&resourceVersionMatch=Exact", Err(422));
        check("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", Err(422));
    }

    #[test]
    fn invalid_parameters_are_a_bad_request() {
        check("watch=perhaps", Ok(()));
        check("timeoutSeconds=soon", Err(400));
        check("limit=-1", Ok(()));
        check("limit=some", Err(400));
        check("resourceVersion=abc", Err(400));
        check("resourceVersion=007", Err(400));
        check("resourceVersion=99999999999999999999999999", Ok(()));
        check("dryRun=Some", Err(422));
        check("fieldValidation=Loose", Err(422));
    }
}
