//! Matching of CORS preflights. A preflight asks about another request, and a rule that answers preflights takes it if
//! it would take that request ([Fetch standard](https://fetch.spec.whatwg.org/#cors-preflight-request)).

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};

use super::condition::{Head, Unmet};
use super::cors::Cors;
use super::expression::Steps;
use super::route::Route;

/// The request that a preflight asks about, as far as it is known: its method, and the headers of the preflight. Of its
/// other headers the preflight has the names only.
struct AskedRequest<'h, H: ?Sized> {
    preflight: &'h H,
    method: &'h str,
}

/// Returns `true` for a [preflight](https://fetch.spec.whatwg.org/#cors-preflight-request).
pub(super) fn is_preflight<H: Head + ?Sized>(head: &H) -> bool {
    AskedRequest::of(head).is_some()
}

impl<'h, H: Head + ?Sized> AskedRequest<'h, H> {
    /// The request that a preflight asks about; `None` if the request is not a preflight.
    fn of(head: &'h H) -> Option<Self> {
        if head.method() != "OPTIONS" {
            return None;
        }
        head.header(ORIGIN.as_str())?;
        let method = head.header(ACCESS_CONTROL_REQUEST_METHOD.as_str())?;
        // A method is ASCII, and no rule takes the empty one.
        Some(Self { preflight: head, method: std::str::from_utf8(method).unwrap_or_default() })
    }

    /// Returns `true` for a header that the request has and the preflight only names.
    fn announces(&self, name: &str) -> bool {
        let mut is_named = false;
        self.preflight.each_value(ACCESS_CONTROL_REQUEST_HEADERS.as_str(), &mut |names| {
            let mut names = names.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            is_named |= names.any(|own| own.eq_ignore_ascii_case(name.as_bytes()));
        });
        is_named && self.preflight.header(name).is_none()
    }
}

impl<H: Head + ?Sized> Head for AskedRequest<'_, H> {
    fn method(&self) -> &str {
        self.method
    }

    fn path(&self) -> &str {
        self.preflight.path()
    }

    fn query(&self) -> Option<&str> {
        self.preflight.query()
    }

    fn authority(&self) -> Option<&str> {
        self.preflight.authority()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.preflight.header(name)
    }

    fn each_value(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        self.preflight.each_value(name, see);
    }
}

impl Route {
    /// Returns `true` if its conditions hold for a request, or for the request that a preflight asks about if it
    /// answers preflights.
    #[must_use]
    pub fn takes<H: Head + ?Sized>(&self, head: &H, steps: &Steps) -> bool {
        self.unmet(head, steps).is_none()
    }

    /// The first condition that a request does not meet; see [`Route::takes`].
    #[must_use]
    pub fn unmet<H: Head + ?Sized>(&self, head: &H, steps: &Steps) -> Option<Unmet<'_>> {
        let unmet = self.conditions.unmet(head, steps)?;
        match AskedRequest::of(head).filter(|_| self.answers_preflights()) {
            Some(asked) => self.conditions.unmet(&asked, steps),
            None => Some(unmet),
        }
    }

    /// The route that answers a preflight which no route takes: one that matches headers which the preflight names
    /// without their values. If the CORS policies of several such routes differ, none answers: the request itself could
    /// go to a route whose policy does not allow it.
    pub(super) fn of_named_headers<'r, T, H: Head + ?Sized>(
        candidates: impl Iterator<Item = (T, &'r Arc<Self>)>,
        head: &H,
        steps: &Steps,
    ) -> Option<(T, &'r Arc<Self>)> {
        let asked = AskedRequest::of(head)?;
        let takes = |route: &Self| {
            let unmet = route.conditions.unmet_unless(&asked, steps, |name| asked.announces(name));
            Cors::of(&route.filters).is_some() && unmet.is_none()
        };
        let mut taking = candidates.filter(|(_, route)| takes(route));
        let (place, first) = taking.next()?;
        let has_same_policy = |other: &Self| Cors::of(&other.filters) == Cors::of(&first.filters);
        taking.all(|(_, other)| has_same_policy(other)).then_some((place, first))
    }

    /// Returns `true` if the edge answers every preflight that the rule takes, so that no endpoint gets one because of
    /// the request that it asks about.
    fn answers_preflights(&self) -> bool {
        let shares = self.action.shares();
        let by_all_shares = || !shares.is_empty() && shares.iter().all(|share| Cors::of(&share.filters).is_some());
        Cors::of(&self.filters).is_some() || by_all_shares()
    }
}

#[cfg(test)]
mod tests {
    use super::super::backend::{Destination, WeightedTarget};
    use super::super::condition::{Conditions, TextMatch, ValueMatch};
    use super::super::cors::AnyOr;
    use super::super::filter::Filter;
    use super::super::path::PathMatch;
    use super::super::route::{Action, Origin};
    use super::super::sample::SampleHead;
    use super::*;
    use crate::object::{Age, Kind, ObjectName, ObjectRef};

    fn cors(max_age_s: u32) -> Filter {
        let (origins, methods, headers, exposed) = (AnyOr::Any, AnyOr::Any, AnyOr::Any, AnyOr::Any);
        Filter::Cors(Arc::new(Cors { origins, credentials: false, methods, headers, exposed, max_age_s }))
    }

    /// A route that matches by method and header.
    fn route(method: Option<&str>, header: Option<&str>, filters: &[Filter]) -> Arc<Route> {
        let object = ObjectRef::new(Kind::HttpRoute, ObjectName::new("shop", "web"));
        let age = Age { created_s: 0, name: object.name.clone() };
        let origin = Origin { object, field: "spec".into(), age, position: 0 };
        let value = |name: &str| ValueMatch { name: name.into(), value: TextMatch::Exact("1".into()) };
        let conditions = Conditions {
            methods: method.map(Arc::from).into_iter().collect(),
            headers: header.map(value).into_iter().collect(),
            queries: Box::default(),
        };
        let new = Route::new(origin, PathMatch::Prefix("/".into()), Action::Forward(Box::default()));
        Arc::new(Route { conditions, filters: filters.into(), ..new })
    }

    const ORIGIN_OF: (&str, &str) = ("origin", "https://a.test");
    const PUT: (&str, &str) = ("access-control-request-method", "PUT");

    #[test]
    fn a_preflight_goes_to_the_rule_of_the_method_that_it_asks_about() {
        #[track_caller]
        fn check(route: &Route, request: &SampleHead, want: bool) {
            assert_eq!(route.takes(request, &Steps::of_request()), want);
        }
        let preflight = SampleHead::new("OPTIONS").with(&[ORIGIN_OF, PUT]);
        let policy = [cors(5)];
        check(&route(Some("PUT"), None, &policy), &preflight, true);
        check(&route(Some("GET"), None, &policy), &preflight, false);
        check(&route(Some("OPTIONS"), None, &policy), &preflight, true);
        check(&route(Some("PUT"), None, &[]), &preflight, false);
        check(&route(Some("PUT"), None, &policy), &SampleHead::new("OPTIONS").with(&[ORIGIN_OF]), false);
        check(&route(Some("PUT"), None, &policy), &SampleHead::new("OPTIONS").with(&[PUT]), false);
        check(&route(Some("PUT"), None, &policy), &SampleHead::new("GET").with(&[ORIGIN_OF, PUT]), false);
        check(&route(Some("PUT"), Some("x-key"), &policy), &preflight, false);
        let has_key = SampleHead::new("OPTIONS").with(&[ORIGIN_OF, PUT, ("x-key", "1")]);
        check(&route(Some("PUT"), Some("x-key"), &policy), &has_key, true);
        let shares = |filters: &[&[Filter]]| {
            let share = |filters: &&[Filter]| WeightedTarget {
                to: Destination::Status(500),
                weight: 1,
                filters: (*filters).into(),
                external_auth: None,
            };
            let action = Action::Forward(filters.iter().map(share).collect());
            Route { action, ..Route::clone(&route(Some("PUT"), None, &[])) }
        };
        check(&shares(&[&policy, &policy]), &preflight, true);
        // An endpoint of the other share must not get a request that the rule does not match.
        check(&shares(&[&policy, &[]]), &preflight, false);
    }

    #[test]
    fn named_headers_select_a_rule_unless_policies_differ() {
        #[track_caller]
        fn check(routes: &[Arc<Route>], request: &SampleHead, want: Option<usize>) {
            let found = Route::of_named_headers(routes.iter().enumerate(), request, &Steps::of_request());
            assert_eq!(found.map(|(place, _)| place), want);
        }
        let named =
            SampleHead::new("OPTIONS").with(&[ORIGIN_OF, PUT, ("access-control-request-headers", "x-a, X-Key")]);
        let unnamed =
            SampleHead::new("OPTIONS").with(&[ORIGIN_OF, PUT, ("access-control-request-headers", "x-a, x-keys")]);
        let given = SampleHead::new("OPTIONS").with(&[
            ORIGIN_OF,
            PUT,
            ("access-control-request-headers", "x-key"),
            ("x-key", "2"),
        ]);
        let plain = SampleHead::new("GET").with(&[ORIGIN_OF, PUT, ("access-control-request-headers", "x-key")]);
        let (by_key, policy) = (Some("x-key"), [cors(5)]);
        let one = [route(Some("GET"), by_key, &policy), route(None, by_key, &[]), route(None, by_key, &policy)];
        check(&one, &named, Some(2));
        check(&one, &unnamed, None);
        check(&one, &given, None);
        check(&one, &plain, None);
        let two = |other: u32| [route(None, by_key, &policy), route(Some("PUT"), by_key, &[cors(other)])];
        check(&two(5), &named, Some(0));
        check(&two(6), &named, None);
    }
}
