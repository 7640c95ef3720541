//! Requests, and the answers that the oracle expects.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{Event, Oracle, object};

/// A request to read the collection.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) version: String,
    pub(super) matching: Option<&'static str>,
    pub(super) initial: Option<bool>,
    pub(super) limit: usize,
    /// The version of a `continue` token and the name to continue after, with the token.
    pub(super) token: Option<(u64, &'static str, String)>,
    pub(super) odd: bool,
    pub(super) watch: bool,
}

impl Asked {
    pub(super) fn draw(oracle: &Oracle, tokens: &[(u64, &'static str, String)], rng: &mut Rng) -> Self {
        let near = oracle.version.saturating_sub(rng.u64(..40)).max(1);
        let version = match rng.u8(..10) {
            0..=2 => String::new(),
            3 => "0".to_owned(),
            4 => (oracle.version + rng.u64(..40)).to_string(),
            5 => "007".to_owned(),
            _ => near.to_string(),
        };
        let matching = [None, None, None, Some("Exact"), Some("NotOlderThan"), Some("Newest")][rng.usize(..6)];
        let watch = rng.bool();
        let often = rng.u8(..4) == 0;
        Self {
            version,
            matching,
            initial: Some(rng.bool()).filter(|_| often || watch && matching == Some("NotOlderThan")),
            limit: if watch { 0 } else { [0, 0, 1, 2, 5][rng.usize(..5)] },
            token: rng.choice(tokens).cloned().filter(|_| !watch && rng.u8(..3) == 0),
            odd: rng.bool(),
            watch,
        }
    }

    pub(super) fn uri(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("resourceVersion", &self.version);
        self.matching.map(|matching| query.append_pair("resourceVersionMatch", matching));
        self.initial.map(|initial| query.append_pair("sendInitialEvents", &initial.to_string()));
        self.token.as_ref().map(|(.., token)| query.append_pair("continue", token));
        if self.limit > 0 {
            query.append_pair("limit", &self.limit.to_string());
        }
        if self.odd {
            query.append_pair("labelSelector", "odd=true");
        }
        if self.watch {
            // The watch ends by itself, with a bookmark before.
            query
                .append_pair("watch", "1")
                .append_pair("allowWatchBookmarks", "true")
                .append_pair("timeoutSeconds", "5");
        }
        format!("/api/v1/services?{}", query.finish())
    }

    fn number(&self) -> Option<u64> {
        self.version.parse().ok().filter(|number| *number > 0)
    }

    /// The status code of a refusal that depends on the parameters only.
    fn refused(&self) -> Option<u16> {
        let known = matches!(self.matching, None | Some("Exact" | "NotOlderThan"));
        let wrong = if self.watch {
            self.matching.is_some() != self.initial.is_some() || self.matching.is_some_and(|it| it != "NotOlderThan")
        } else {
            let bare = self.version.is_empty() || self.token.is_some();
            let exact_zero = self.matching == Some("Exact") && self.version == "0";
            self.initial.is_some() || !known || self.matching.is_some() && (bare || exact_zero)
        };
        if wrong {
            return Some(422);
        }
        let beside_token = self.token.is_some() && !self.version.is_empty() && self.version != "0";
        (beside_token || self.version == "007").then_some(400)
    }

    /// The status code of a refusal for a version that does not exist yet, or never will.
    fn unreached(&self, oracle: &Oracle) -> Option<u16> {
        let number = self.number().filter(|number| *number > oracle.version)?;
        Some(if number <= oracle.void { 410 } else { 504 })
    }

    fn selects(&self, odd: bool) -> bool {
        odd || !self.odd
    }

    /// The expected list, or the status code of a refusal.
    pub(super) fn list(&self, oracle: &Oracle) -> Result<Value, u16> {
        if let Some(code) = self.refused().or(self.unreached(oracle)) {
            return Err(code);
        }
        let legacy = self.limit > 0 && self.matching.is_none();
        let exact = self.number().filter(|_| legacy || self.matching == Some("Exact"));
        let (version, state) = match (&self.token, exact) {
            (Some((version, ..)), _) if *version > oracle.version => return Err(410),
            (Some((version, ..)), _) => (*version, oracle.at(*version).ok_or(410_u16)?.clone()),
            (None, Some(exact)) => (exact, oracle.at(exact).ok_or(410_u16)?.clone()),
            (None, None) => (oracle.version, oracle.now()),
        };
        let after = self.token.as_ref().map_or("", |(_, after, _)| after);
        let left = state.into_iter().filter(|(name, (_, odd))| *name > after && self.selects(*odd));
        let items: Vec<Value> = left.map(|(name, (version, odd))| object(name, version, odd)).collect();
        let all = self.limit == 0 || self.version == "0" && self.token.is_none();
        let limit = if all { items.len() } else { self.limit.min(items.len()) };
        let rest = items.len() - limit;
        let remaining = Some(rest).filter(|rest| *rest > 0 && !self.odd).into();
        Ok(json!({"version": version.to_string(), "items": items[..limit], "goes_on": rest > 0,
            "remaining": self.comparable(remaining)}))
    }

    /// A `remainingItemCount` as far as it is compared. Later pages count down from the first one, and an upstream
    /// server with another history can show other objects under the same version meanwhile; the number is an estimate
    /// by its definition.
    pub(super) fn comparable(&self, remaining: Value) -> Value {
        if self.token.is_some() { remaining.is_u64().into() } else { remaining }
    }

    /// The expected events, or the status code of a refusal.
    pub(super) fn events(&self, oracle: &Oracle) -> Result<Vec<Value>, u16> {
        if let Some(code) = self.refused() {
            return Err(code);
        }
        let error = |code: u16| vec![json!({"ERROR": code})];
        if let Some(code) = self.unreached(oracle) {
            return Ok(error(code));
        }
        let mark = |ends: bool| json!({"BOOKMARK": oracle.version.to_string(), "ends": ends});
        let mut lines = Vec::new();
        let existing = match (self.initial, self.number()) {
            (Some(true), _) | (None, None) => Some(oracle.now()),
            (Some(false), None) => None,
            (Some(false) | None, Some(version)) if version < oracle.base() => return Ok(error(410)),
            (Some(false) | None, Some(version)) => {
                lines.extend(
                    oracle.events.iter().filter(|event| event.version > version).filter_map(|it| self.seen(it)),
                );
                None
            }
        };
        for (name, (version, odd)) in existing.into_iter().flatten().filter(|(_, (_, odd))| self.selects(*odd)) {
            lines.push(json!({"ADDED": object(name, version, odd)}));
        }
        lines.extend((self.initial == Some(true)).then(|| mark(true)));
        lines.push(mark(false));
        Ok(lines)
    }

    /// The event of a change for a watch with this selector.
    fn seen(&self, Event { version, name, before, after }: &Event) -> Option<Value> {
        let [was, is] = [before, after].map(|side| side.filter(|odd| self.selects(*odd)));
        let (what, odd) = match (was, is) {
            (None, None) => return None,
            (None, Some(odd)) => ("ADDED", odd),
            (Some(_), Some(odd)) => ("MODIFIED", odd),
            (Some(odd), None) => ("DELETED", odd),
        };
        Some(json!({what: object(name, *version, odd)}))
    }
}
