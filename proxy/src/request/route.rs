//! The route of a request.

use std::sync::Arc;

use tidegate_config::model::{BindKey, Head, Listener, Route, Snapshot, Subject, TlsListener};

use crate::reason::Reason;

/// The route of a request, and its listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'s> {
    /// The listener.
    pub(crate) listener: &'s Listener,
    /// The route.
    pub(crate) route: &'s Arc<Route>,
}

/// Finds the route by bind, host in lower case, normalised path and further conditions.
///
/// # Errors
/// [`Reason::Misdirected`] if the handshake was with another listener than that of the request's host;
/// [`Reason::PathUntried`] or [`Reason::ValueUntried`] if an expression could not be tried; [`Reason::NoRoute`] if no
/// route matches.
pub(crate) fn find<'s, H: Head + ?Sized>(
    snapshot: &'s Snapshot,
    (bind, handshake_listener): (&BindKey, Option<&TlsListener>),
    host: &str,
    path: &str,
    head: &H,
) -> Result<Found<'s>, Reason> {
    let found = snapshot.find(bind, host, path, head);
    if found
        .listener
        .zip(handshake_listener)
        .is_some_and(|(listener, handshake_listener)| handshake_listener.is_other_than(listener))
    {
        return Err(Reason::Misdirected);
    }
    if let Some(subject) = found.untried {
        return Err(untried(subject));
    }
    let (listener, route) = found.listener.zip(found.route).ok_or(Reason::NoRoute)?;
    Ok(Found { listener, route })
}

/// A request whose route is not known because of an expression.
const fn untried(subject: Subject) -> Reason {
    match subject {
        Subject::HostName | Subject::Path => Reason::PathUntried,
        Subject::Value | Subject::Agent => Reason::ValueUntried,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{Comparison, Expression, Extent, PathMatch, RegexCase, TextMatch, ValueMatch};

    use super::*;
    use crate::sample::Sample;
    use crate::sample_model::{bind_key, path, route, snapshot};

    const ANY: Comparison = Comparison { subject: Subject::Path, case: RegexCase::Sensitive, extent: Extent::Whole };

    #[track_caller]
    fn check(host: &str, target: &str, want: Option<&str>) {
        let snapshot = snapshot(
            vec![
                ("a.test", vec![route("api", path("/api")), route("root", path("/"))]),
                ("b.test", vec![route("only", path("/only"))]),
            ],
            Some(route("fallback", path("/"))),
        );
        let found = find(&snapshot, (&bind_key(), None), host, target, &Sample::get(host, target));
        let got = found.ok().map(|found| found.route.origin.object.name.name.to_string());
        assert_eq!(got.as_deref(), want, "{host}{target}");
    }

    #[test]
    fn host_then_path_then_fallback() {
        check("a.test", "/api/x", Some("api"));
        check("a.test", "/apix", Some("root"));
        check("b.test", "/only", Some("only"));
        check("b.test", "/other", Some("fallback"));
        check("c.test", "/api", Some("fallback"));
    }

    #[test]
    fn a_request_that_an_expression_cannot_be_tried_with_has_no_route() {
        let whole = PathMatch::regex("/admin/.*", RegexCase::Sensitive, Extent::Whole).unwrap();
        let value = Expression::new("[a-z]+", Comparison { subject: Subject::Value, ..ANY }).unwrap();
        let mut by_header = route("by-header", path("/by-header"));
        by_header.conditions.headers = [ValueMatch { name: "x-a".into(), value: TextMatch::Regex(value) }].into();
        let routes = vec![route("admin", whole), by_header, route("root", path("/"))];
        let snapshot = snapshot(vec![("a.test", routes)], None);
        let check = |target: &str, value: &str, want: Result<&str, Reason>| {
            let head = Sample::get("a.test", target).with("x-a", value);
            let got = find(&snapshot, (&bind_key(), None), "a.test", target, &head);
            assert_eq!(got.map(|found| &*found.route.origin.object.name.name), want);
        };
        let long = "a".repeat(8 << 10);
        check("/admin/x", "", Ok("admin"));
        check(&format!("/admin/{long}"), "", Err(Reason::PathUntried));
        check(&format!("/{long}"), "", Err(Reason::PathUntried));
        check("/by-header", &long, Ok("by-header"));
        check("/by-header", &format!("{long}a"), Err(Reason::ValueUntried));
        check("/", &format!("{long}a"), Ok("root"));
    }

    #[test]
    fn no_route_matches() {
        let empty = snapshot(vec![("a.test", vec![route("only", path("/only"))])], None);
        for (host, target) in [("a.test", "/"), ("b.test", "/only")] {
            let got = find(&empty, (&bind_key(), None), host, target, &Sample::get(host, target));
            assert_eq!(got.err(), Some(Reason::NoRoute), "{host}{target}");
        }
        let elsewhere = BindKey { address: ([127, 0, 0, 1], 9).into(), ..bind_key() };
        assert!(find(&empty, (&elsewhere, None), "a.test", "/only", &Sample::get("a.test", "/only")).is_err());
    }
}
