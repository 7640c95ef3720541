//! The route of a request.

use std::sync::Arc;

use tidegate_config::model::{BindKey, Head, ListenerName, Route, Snapshot, TlsListener};

use crate::reason::Reason;

/// The route of a request, and its listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'s> {
    /// The listener.
    pub(crate) listener: &'s ListenerName,
    /// The route.
    pub(crate) route: &'s Arc<Route>,
}

/// Finds the route by bind, host in lower case, normalised path and further conditions.
///
/// # Errors
/// [`Reason::Misdirected`] if the handshake was with another listener than that of the request's host;
/// [`Reason::NoRoute`] if no route matches.
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
    let (listener, route) = found.listener.zip(found.route).ok_or(Reason::NoRoute)?;
    Ok(Found { listener: &listener.name, route })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;
    use crate::sample_model::{bind_key, path, route, snapshot};

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
