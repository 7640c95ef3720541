//! Lists in pages: every page shows the objects as they were at the first one.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use super::query::Query;
use crate::failure::Failure;
use crate::store::Key;

/// The continuation of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The version that the list shows.
    pub(super) version: u64,
    /// The last object shown.
    pub(super) after: Key,
    /// The objects after it, if the page before counted them: counting them again for every page would cost the square
    /// of a large list.
    pub(super) remaining: Option<Remaining>,
}

/// The number of objects that a page has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remaining {
    /// The namespace that was listed; `None` for all. Another one has another number.
    pub(super) namespace: Option<String>,
    pub(super) count: usize,
}

impl Token {
    /// Reads the `continue` of a query, if it has one.
    pub(super) fn parse(query: &Query) -> Result<Option<Self>, Failure> {
        if query.token.is_empty() {
            return Ok(None);
        }
        if !matches!(query.version.as_str(), "" | "0") {
            return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
        }
        let invalid = || Failure::bad_request("continue key is not valid: not a continue token");
        let text = query.token.trim_end_matches('=');
        let decoded = URL_SAFE_NO_PAD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok();
        let token = decoded.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()).ok_or_else(invalid)?;
        let version = token["rv"].as_u64().ok_or_else(invalid)?;
        let start = token["start"].as_str().and_then(|start| start.strip_suffix('\0')).ok_or_else(invalid)?;
        let (namespace, name) = start.split_once('/').unwrap_or(("", start));
        let count = token["remaining"].as_u64().and_then(|count| usize::try_from(count).ok());
        let remaining = count.map(|count| Remaining { namespace: token["in"].as_str().map(str::to_owned), count });
        Ok(Some(Self { version, after: Key { namespace: namespace.to_owned(), name: name.to_owned() }, remaining }))
    }

    pub(super) fn encode(&self) -> String {
        let Key { namespace, name } = &self.after;
        let slash = if namespace.is_empty() { "" } else { "/" };
        let start = format!("{namespace}{slash}{name}\0");
        let mut token = json!({"v": "meta.k8s.io/v1", "rv": self.version, "start": start});
        if let Some(Remaining { namespace, count }) = &self.remaining {
            (token["in"], token["remaining"]) = (namespace.as_deref().into(), (*count).into());
        }
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    /// 410 for a list that can no longer be continued.
    pub(super) fn expired() -> Failure {
        let message = "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.";
        Failure::expired(message)
    }
}

/// The metadata of a list: its version, and its continuation.
pub(super) fn metadata(version: u64, next: Option<&Token>, remaining: Option<usize>) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), version.to_string().into());
    if let Some(next) = next {
        metadata.insert("continue".to_owned(), next.encode().into());
        if let Some(remaining) = remaining {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
    }
    Value::Object(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(token: &str, expected: Result<Option<Token>, u16>) {
        let query = Query { token: token.to_owned(), ..Query::default() };
        assert_eq!(Token::parse(&query).map_err(|failure| failure.code.as_u16()), expected, "{token}");
    }

    #[test]
    fn a_token_round_trips() {
        let of = |namespace: &str| Some(Remaining { namespace: Some(namespace.to_owned()), count: 500 });
        for (namespace, remaining) in
            [("", None), ("", Some(Remaining { namespace: None, count: 0 })), ("a", of("a")), ("a", of(""))]
        {
            let after = Key { namespace: namespace.to_owned(), name: "b.c".to_owned() };
            let token = || Token { version: 7, after: after.clone(), remaining: remaining.clone() };
            check(&token().encode(), Ok(Some(token())));
        }
        check("", Ok(None));
        for bad in ["nonsense", "====", "e30", &URL_SAFE_NO_PAD.encode("{\"rv\":-1,\"start\":\"a\"}")] {
            check(bad, Err(400));
        }
    }
}
