//! `sessionPersistence` of a rule (GEP-1619, experimental channel). It is applied whole or not at all: an application
//! cannot rely on a session with other properties than configured.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::header::{COOKIE, HOST, SET_COOKIE};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::duration::duration;
use crate::finding::printable;
use crate::model::{CONNECTION_HEADERS, SameSite, SessionCarrier, SessionCookie, SessionKey, SessionPersistence};
use crate::object::Uid;
use crate::project::cookie::{is_name, is_path};
use crate::project::field::{FindingList, InvalidValue, read};

/// The session persistence of a rule that configures it.
pub type RuleSession = Result<Arc<SessionPersistence>, SessionRefused>;

/// The reason why a rule has no session persistence although it configures it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRefused {
    /// The field and the error, for the status of the route.
    pub message: Arc<str>,
}

/// The identity of a rule among those of all routes.
#[derive(Clone, Copy)]
pub(super) struct RuleId<'a> {
    /// The uid of its route.
    pub(super) uid: Option<Uid>,
    /// Its name, which identifies it whatever else it says.
    pub(super) name: Option<&'a str>,
    /// Its matches, which identify a rule without a name: of two with the same ones only the first gets requests.
    pub(super) matches: &'a [&'a RawValue],
}

impl RuleId<'_> {
    fn key(self) -> Option<SessionKey> {
        let rule = self.name.map_or_else(|| format!("matches {}", self.matched()), |name| format!("name {name}"));
        Some(SessionKey::of_rule(self.uid?, &rule))
    }

    /// The matches in one form, whatever the order of them and of their fields.
    fn matched(self) -> String {
        let one_form = |raw: &&RawValue| serde_json::from_str::<Value>(raw.get()).unwrap_or_default().to_string();
        let mut matches: Vec<String> = self.matches.iter().map(one_form).collect();
        matches.sort_unstable();
        matches.dedup();
        matches.join(" ")
    }
}

/// The schema of v1.7, and that of the releases before it (`sessionName`, `cookieConfig`, `idleTimeout`).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SessionJson<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    session_name: Option<Arc<str>>,
    absolute_timeout: Option<String>,
    #[serde(borrow)]
    idle_timeout: Option<&'a RawValue>,
    cookie: Option<CookieJson>,
    cookie_config: Option<CookieJson>,
    header: Option<HeaderJson>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct CookieJson {
    name: Option<Arc<str>>,
    path: Option<Arc<str>>,
    lifetime_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct HeaderJson {
    name: Option<Arc<str>>,
}

/// A field below that of the sessions, its value, and the error.
type Fault = (&'static str, String, &'static str);

pub(super) fn session(
    raw: Option<&RawValue>,
    field: &str,
    rule: RuleId<'_>,
    findings: &mut FindingList,
) -> Option<RuleSession> {
    let session = read::<SessionJson<'_>>(raw?, field).and_then(|json| {
        persistence(json, rule).map_err(|(below, value, why)| InvalidValue {
            field: format!("{field}{below}"),
            value,
            why: why.to_owned(),
        })
    });
    Some(session.map(Arc::new).map_err(|InvalidValue { field, value, why }| {
        findings.ignored(&field, &value, &why);
        SessionRefused { message: format!("{field}: {:?} {why}", printable(&value)).into() }
    }))
}

fn persistence(json: SessionJson<'_>, rule: RuleId<'_>) -> Result<SessionPersistence, Fault> {
    if let Some(raw) = json.idle_timeout {
        let why = "is not supported: the edge keeps no session state, so it does not know the last use";
        return Err((".idleTimeout", raw.get().trim_matches('"').to_owned(), why));
    }
    let absolute_timeout = json.absolute_timeout.map(limit).transpose()?;
    let key = rule.key().ok_or(("", String::new(), "needs an object with a uid"))?;
    let cookie = json.cookie.or(json.cookie_config);
    let carrier = match (json.kind.as_deref(), cookie, json.header) {
        (None | Some("Cookie"), cookie, None) => {
            let cookie = cookie.unwrap_or_default();
            let name = cookie.name.clone().or(json.session_name);
            SessionCarrier::Cookie(carried(&cookie, name, &key, absolute_timeout)?)
        }
        (Some("Header"), None, header) => SessionCarrier::Header(named(header, json.session_name)?),
        (None | Some("Cookie"), _, Some(_)) => {
            return Err((".header", "{}".to_owned(), "is valid only with type Header"));
        }
        (Some("Header"), Some(_), _) => return Err((".cookie", "{}".to_owned(), "is valid only with type Cookie")),
        (Some(kind), _, _) => return Err((".type", kind.to_owned(), "is neither Cookie nor Header")),
    };
    Ok(SessionPersistence { key, carrier, absolute_timeout, change_on_failure: true })
}

fn limit(text: String) -> Result<Duration, Fault> {
    match duration(&text) {
        Ok(Duration::ZERO) => Err((".absoluteTimeout", text, "is not more than zero")),
        Ok(limit) => Ok(limit),
        Err(why) => Err((".absoluteTimeout", text, why)),
    }
}

fn carried(
    json: &CookieJson,
    name: Option<Arc<str>>,
    key: &SessionKey,
    absolute_timeout: Option<Duration>,
) -> Result<SessionCookie, Fault> {
    let name = name.unwrap_or_else(|| format!("tidegate-session-{}", key.label()).into());
    if !is_name(&name) {
        return Err((".cookie.name", name.as_ref().to_owned(), "is not the name of a cookie"));
    }
    let path = json.path.clone().unwrap_or_else(|| "/".into());
    if !is_path(&path) {
        return Err((".cookie.path", path.as_ref().to_owned(), "is not the path of a cookie"));
    }
    let permanent = match json.lifetime_type.as_deref() {
        None | Some("Session") => false,
        Some("Permanent") if absolute_timeout.is_some() => true,
        Some(text @ "Permanent") => {
            return Err((".cookie.lifetimeType", text.to_owned(), "needs an absoluteTimeout"));
        }
        Some(text) => return Err((".cookie.lifetimeType", text.to_owned(), "is neither Session nor Permanent")),
    };
    Ok(SessionCookie { name, path: Some(path), permanent, same_site: SameSite::default(), secure: None })
}

/// The header. It must not be one that frames messages or describes the connection.
fn named(header: Option<HeaderJson>, session_name: Option<Arc<str>>) -> Result<HeaderName, Fault> {
    const TAKEN: [HeaderName; 3] = [COOKIE, HOST, SET_COOKIE];
    let name = header.and_then(|header| header.name).or(session_name);
    let name = name.ok_or((".header.name", String::new(), "is missing"))?;
    let fault = |why| (".header.name", name.as_ref().to_owned(), why);
    let header = HeaderName::from_bytes(name.as_bytes()).ok().filter(|_| is_name(&name));
    let header = header.ok_or_else(|| fault("is not the name of a header"))?;
    if TAKEN.contains(&header) || CONNECTION_HEADERS.contains(&header) {
        return Err(fault("is a header with another meaning"));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: Option<&str>, matches: &[&str]) -> SessionKey {
        let raw: Vec<Box<RawValue>> =
            matches.iter().map(|text| RawValue::from_string((*text).to_owned()).unwrap()).collect();
        let matches: Vec<&RawValue> = raw.iter().map(|raw| &**raw).collect();
        let uid = Uid::parse("6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e");
        RuleId { uid, name, matches: &matches }.key().unwrap()
    }

    #[test]
    fn an_unnamed_rule_is_identified_by_its_matches_in_any_order() {
        let (cart, get) = (r#"{"path":{"type":"PathPrefix","value":"/cart"}}"#, r#"{"method":"GET"}"#);
        let same = [key(None, &[cart, get]), key(None, &[get, cart]), key(None, &[get, cart, get])];
        assert!(same.iter().all(|other| *other == same[0]));
        assert_eq!(key(None, &[r#"{ "path": {"value": "/cart", "type": "PathPrefix"} }"#]), key(None, &[cart]));
        let others = [key(None, &[]), key(None, &[cart]), key(None, &[get]), key(Some("cart"), &[cart, get])];
        assert!(others.iter().all(|other| *other != same[0]));
        assert_eq!(key(Some("cart"), &[cart]), key(Some("cart"), &[get]));
        // It is the same in every release, so that replicas of two releases read each other's tokens.
        assert_eq!(key(None, &[cart, get]).label(), "719d854f");
    }
}
