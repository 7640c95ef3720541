//! Matching of CORS preflights. A preflight asks about another request, and a rule that answers preflights takes it if
//! it would take that request ([Fetch standard](https://fetch.spec.whatwg.org/#cors-preflight-request)).

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};

use super::condition::{Head, Unmet, ValueSource};
use super::expression::Steps;
use super::policy::Cors;
use super::route::Route;

/// The request that a preflight asks about. It has the headers and the query of the preflight, and further headers of
/// which only the names are known.
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

    /// Returns `true` if the preflight names this header.
    fn names(&self, name: &str) -> bool {
        let mut is_named = false;
        self.preflight.each_value(ACCESS_CONTROL_REQUEST_HEADERS.as_str(), &mut |names| {
            let mut names = names.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            is_named |= names.any(|own| own.eq_ignore_ascii_case(name.as_bytes()));
        });
        is_named
    }
}

/// Whether the conditions of a route hold for a request.
enum Fit<'r> {
    Holds,
    /// They hold if the headers that the preflight names without their values have the right ones. This is the first
    /// condition on one of them.
    HoldsByNames(Unmet<'r>),
    Fails(Unmet<'r>),
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
        match self.fit(head, AskedRequest::of(head).as_ref(), steps) {
            Fit::Holds => None,
            Fit::HoldsByNames(unmet) | Fit::Fails(unmet) => Some(unmet),
        }
    }

    /// Evaluates each condition once: expressions take some of the steps.
    fn fit<H: Head + ?Sized>(&self, head: &H, asked: Option<&AskedRequest<'_, H>>, steps: &Steps) -> Fit<'_> {
        let asked = asked.filter(|_| self.answers_preflights());
        let asked = asked.filter(|asked| self.conditions.unmet_by_method(asked.method).is_none());
        if asked.is_none()
            && let Some(unmet) = self.conditions.unmet_by_method(head.method())
        {
            return Fit::Fails(unmet);
        }
        let named = asked.filter(|_| Cors::of(&self.filters).is_some());
        let mut first_named = None;
        let unmet = self.conditions.unmet_by_values(head, steps, |unmet| {
            let is_named = match (named, unmet) {
                (Some(asked), Unmet::Absent(ValueSource::Header, name)) => asked.names(name),
                _ => false,
            };
            first_named = first_named.or(is_named.then_some(unmet));
            is_named
        });
        match (unmet, first_named) {
            (Some(unmet), _) => Fit::Fails(unmet),
            (None, Some(unmet)) => Fit::HoldsByNames(unmet),
            (None, None) => Fit::Holds,
        }
    }

    /// Returns `true` if the edge answers every preflight that the rule takes, so that no endpoint gets one because of
    /// the request that it asks about.
    fn answers_preflights(&self) -> bool {
        let shares = self.action.shares();
        let by_all_shares = || !shares.is_empty() && shares.iter().all(|share| Cors::of(&share.filters).is_some());
        Cors::of(&self.filters).is_some() || by_all_shares()
    }
}

impl Route {
    /// The policies by which it answers preflights: one for each share that gets requests.
    fn answering_policies(&self) -> impl Iterator<Item = &Arc<Cors>> {
        let shares = self.action.shares().iter().filter(|share| share.weight > 0).map(Some);
        let own = self.action.shares().is_empty().then_some(None);
        shares.chain(own).filter_map(|share| Cors::applied(self, share))
    }
}

/// The search for the route of a request among those that match its host and path. `P` is the place of a route.
pub(super) struct Search<'h, 'r, P, H: ?Sized> {
    head: &'h H,
    asked: Option<AskedRequest<'h, H>>,
    steps: &'h Steps,
    /// The first route that takes a preflight by the names of headers.
    by_names: Option<(P, &'r Arc<Route>)>,
    /// A policy by which such routes answer.
    policy: Option<&'r Arc<Cors>>,
    /// Whether they answer by several policies.
    differ: bool,
}

impl<'h, 'r, P, H: Head + ?Sized> Search<'h, 'r, P, H> {
    pub(super) fn new(head: &'h H, steps: &'h Steps) -> Self {
        Self { head, asked: AskedRequest::of(head), steps, by_names: None, policy: None, differ: false }
    }

    /// The steps of the request.
    pub(super) const fn steps(&self) -> &'h Steps {
        self.steps
    }

    /// Returns `true` if a route takes the request. Each route is tried once, in order of precedence.
    pub(super) fn takes(&mut self, place: P, route: &'r Arc<Route>) -> bool {
        match route.fit(self.head, self.asked.as_ref(), self.steps) {
            Fit::Holds => return true,
            Fit::HoldsByNames(_) => {
                self.by_names.get_or_insert((place, route));
                for policy in route.answering_policies() {
                    self.differ |= policy != *self.policy.get_or_insert(policy);
                }
            }
            Fit::Fails(_) => {}
        }
        false
    }

    /// The route that answers a preflight which no route takes: one that matches headers which the preflight names
    /// without their values. If the CORS policies by which such routes answer differ, none does: the request itself
    /// could go to a route, or a share, whose policy does not allow it.
    pub(super) fn by_names(self) -> Option<(P, &'r Arc<Route>)> {
        self.by_names.filter(|_| !self.differ)
    }
}

#[cfg(test)]
mod tests {
    use super::super::backend::{Destination, WeightedTarget};
    use super::super::condition::{Conditions, TextMatch, ValueMatch};
    use super::super::expression::{Comparison, Expression, Extent, Subject};
    use super::super::filter::Filter;
    use super::super::path::{PathMatch, RegexCase};
    use super::super::policy::AnyOr;
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
    fn a_preflight_takes_as_many_steps_as_another_request() {
        let (subject, case, extent) = (Subject::Value, RegexCase::Sensitive, Extent::Whole);
        let ends_with_b = Expression::new("[a-z]*b", Comparison { subject, case, extent }).unwrap();
        let conditions = Conditions {
            headers: [ValueMatch { name: "x-key".into(), value: TextMatch::Regex(ends_with_b) }].into(),
            ..Conditions::default()
        };
        let routes = [cors(5), cors(6)].map(|policy| {
            let route = route(None, None, &[policy]);
            Arc::new(Route { conditions: conditions.clone(), ..Route::clone(&route) })
        });
        let steps_of = |method| {
            let lines = [ORIGIN_OF, PUT, ("access-control-request-headers", "x-key"), ("x-key", "aaaaaaaa")];
            let (request, steps) = (SampleHead::new(method).with(&lines), Steps::of_request());
            let mut search = Search::new(&request, &steps);
            assert!(!routes.iter().any(|route| search.takes((), route)) && search.by_names().is_none());
            steps.taken()
        };
        assert!(steps_of("GET") > 0);
        assert_eq!(steps_of("OPTIONS"), steps_of("GET"));
    }

    #[test]
    fn named_headers_select_a_rule_unless_policies_differ() {
        #[track_caller]
        fn check(routes: &[Arc<Route>], request: &SampleHead, want: Option<usize>) {
            let steps = Steps::of_request();
            let mut search = Search::new(request, &steps);
            let mut places = routes.iter().enumerate();
            let taking = places.find(|(place, route)| search.takes(*place, route)).map(|(place, _)| place);
            assert_eq!(taking.or_else(|| Some(search.by_names()?.0)), want);
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
        // A share answers by its own policy.
        let with_share = |own: &[Filter]| {
            let (to, filters) = (Destination::Status(500), own.into());
            let action = Action::Forward([WeightedTarget { to, weight: 1, filters, external_auth: None }].into());
            Arc::new(Route { action, ..Route::clone(&route(None, by_key, &policy)) })
        };
        check(&[with_share(&[]), with_share(&policy)], &named, Some(0));
        check(&[with_share(&[cors(6)]), with_share(&[])], &named, None);
        check(&[with_share(&[cors(6)])], &named, Some(0));
    }
}
