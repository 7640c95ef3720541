//! Responses to cross-origin requests, by the [Fetch standard](https://fetch.spec.whatwg.org/#http-cors-protocol): the
//! answer to a preflight, and the headers of other responses.

use std::fmt::Write as _;
use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use http::{HeaderName, HeaderValue};
use tidegate_config::model::{AnyOr, Cors, DirectResponse, Head, HeaderEdits};

use crate::request::local_reply::LocalReply;

type Header = (HeaderName, HeaderValue);

/// The origin of a request, if it is allowed.
fn allowed_origin<H: Head + ?Sized>(cors: &Cors, head: &H) -> Option<HeaderValue> {
    HeaderValue::from_str(cors.allowed(head)?).ok()
}

/// The header edits of responses. An allowed origin is named itself and never by a star, because a star is not valid
/// with credentials; the response has `Vary: Origin` then.
pub(crate) fn edits<H: Head + ?Sized>(cors: &Cors, head: &H) -> HeaderEdits {
    let add = [(VARY, HeaderValue::from_static("Origin"))].into();
    let Some(origin) = allowed_origin(cors, head) else {
        // The route decides about origins, and not the endpoint.
        let remove = [ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_ALLOW_CREDENTIALS].into();
        return HeaderEdits { remove, add, ..HeaderEdits::default() };
    };
    let credentials = cors.credentials.then(|| (ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true")));
    let exposed = match &cors.exposed {
        // With credentials the star is the name of a header.
        AnyOr::Any if cors.credentials => None,
        AnyOr::Any => Some(HeaderValue::from_static("*")),
        AnyOr::These(names) => listed(names),
    };
    let exposed = exposed.map(|names| (ACCESS_CONTROL_EXPOSE_HEADERS, names));
    let remove = if credentials.is_none() { [ACCESS_CONTROL_ALLOW_CREDENTIALS].into() } else { Box::default() };
    let set = std::iter::once((ACCESS_CONTROL_ALLOW_ORIGIN, origin)).chain(credentials).chain(exposed).collect();
    HeaderEdits { remove, set, add }
}

/// The answer to a preflight, without the headers that [`edits`] adds to every response.
pub(crate) fn preflight<H: Head + ?Sized>(cors: &Cors, head: &H) -> LocalReply {
    let method = head.header(ACCESS_CONTROL_REQUEST_METHOD.as_str()).unwrap_or_default();
    let mut headers: Vec<Header> = Vec::new();
    if allowed_origin(cors, head).is_some() {
        let methods = match &cors.methods {
            AnyOr::Any => HeaderValue::from_bytes(method).ok(),
            AnyOr::These(methods) => listed(methods),
        };
        headers.extend(methods.map(|methods| (ACCESS_CONTROL_ALLOW_METHODS, methods)));
        let asked = head.header(ACCESS_CONTROL_REQUEST_HEADERS.as_str());
        let allowed = asked.and_then(|asked| match &cors.headers {
            AnyOr::Any => HeaderValue::from_bytes(asked).ok(),
            AnyOr::These(names) => listed(names),
        });
        headers.extend(allowed.map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names)));
        headers.push((ACCESS_CONTROL_MAX_AGE, HeaderValue::from(cors.max_age_s)));
    }
    let (headers, body) = (headers.into(), [].into());
    let status = Cors::PREFLIGHT_STATUS;
    LocalReply::direct(&Arc::new(DirectResponse { status, headers, content_type: None, body }))
}

/// A list in the form of a header; `None` for an empty one.
fn listed<T: AsRef<str>>(words: &[T]) -> Option<HeaderValue> {
    let mut text = String::new();
    for word in words {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a String cannot fail.
        write!(text, "{comma}{}", word.as_ref()).ok();
    }
    HeaderValue::try_from(text).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::OriginPattern;

    use super::*;
    use crate::request::local_reply::Content;
    use crate::sample::Sample;

    fn policy(credentials: bool, stars: bool) -> Cors {
        let origins = AnyOr::These([OriginPattern::parse("https://www.foo.com").unwrap()].into());
        let names = |a, b| AnyOr::These([a, b].map(HeaderName::from_static).into());
        let (methods, headers, exposed) = if stars {
            (AnyOr::Any, AnyOr::Any, AnyOr::Any)
        } else {
            let methods = AnyOr::These(["GET", "OPTIONS"].map(Arc::from).into());
            (methods, names("x-header-1", "x-header-2"), names("x-header-3", "x-header-4"))
        };
        let origins = if stars { AnyOr::Any } else { origins };
        Cors { origins, credentials, methods, headers, exposed, max_age_s: 3600 }
    }

    fn ask(origin: &str, lines: &[(&str, &str)]) -> Sample {
        let head = Sample::get("a.test", "/").method("OPTIONS").with("origin", origin);
        lines.iter().fold(head, |head, (name, value)| head.with(name, value))
    }

    #[track_caller]
    fn check_preflight(cors: &Cors, head: &Sample, want: &[(&str, &str)]) {
        let reply = preflight(cors, head);
        let Content::Given(response) = reply.content else { panic!("{reply:?}") };
        assert!(response.status == 200 && response.body.is_empty());
        let got = response.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
        assert_eq!(got.collect::<Vec<_>>(), want);
    }

    #[test]
    fn preflight_answers_name_the_requested_methods_and_headers() {
        let (method, put) = (("access-control-request-method", "GET"), ("access-control-request-method", "PUT"));
        let names = ("access-control-request-headers", "x-header-1, x-own");
        let (of, age) = ("https://www.foo.com", ("access-control-max-age", "3600"));
        let (methods, headers) = ("access-control-allow-methods", "access-control-allow-headers");
        let (get, list) = ((methods, "GET, OPTIONS"), (headers, "x-header-1, x-header-2"));
        check_preflight(&policy(true, false), &ask(of, &[method, names]), &[get, list, age]);
        check_preflight(&policy(true, false), &ask(of, &[method]), &[get, age]);
        // The answer lists the allowed method or header although the requested one is not: the client compares.
        check_preflight(&policy(false, false), &ask(of, &[put]), &[get, age]);
        let echoed = [(methods, "PUT"), (headers, "x-header-1, x-own"), age];
        check_preflight(&policy(true, true), &ask("https://other", &[put, names]), &echoed);
        check_preflight(&policy(true, false), &ask("https://other", &[method, names]), &[]);
        let nothing = Cors { methods: AnyOr::These(Box::default()), ..policy(false, false) };
        check_preflight(&nothing, &ask(of, &[method]), &[age]);
    }

    #[track_caller]
    fn check_edits(cors: &Cors, head: &Sample, set: &[(&str, &str)], remove: &[&str]) {
        let edits = edits(cors, head);
        let text = |pairs: &[Header]| {
            pairs.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect::<Vec<_>>()
        };
        let want: Vec<_> = set.iter().map(|(name, value)| format!("access-control-{name}: {value}")).collect();
        assert_eq!((text(&edits.set), text(&edits.add)), (want, vec!["vary: Origin".to_owned()]));
        let removed: Vec<_> = edits.remove.iter().map(HeaderName::as_str).collect();
        assert_eq!(removed, remove.iter().map(|name| format!("access-control-{name}")).collect::<Vec<_>>());
    }

    #[test]
    fn responses_name_an_origin_that_may_ask() {
        let of = |origin| ask(origin, &[]).method("GET");
        let foo = ("allow-origin", "https://www.foo.com");
        let (credentials, exposed) = (("allow-credentials", "true"), ("expose-headers", "x-header-3, x-header-4"));
        check_edits(&policy(true, false), &of(foo.1), &[foo, credentials, exposed], &[]);
        check_edits(&policy(false, false), &of(foo.1), &[foo, exposed], &["allow-credentials"]);
        check_edits(&policy(true, true), &of(foo.1), &[foo, credentials], &[]);
        check_edits(&policy(false, true), &of(foo.1), &[foo, ("expose-headers", "*")], &["allow-credentials"]);
        let refused = ["allow-origin", "allow-credentials"];
        check_edits(&policy(true, false), &of("https://other"), &[], &refused);
        check_edits(&policy(true, false), &Sample::get("a.test", "/"), &[], &refused);
    }
}
