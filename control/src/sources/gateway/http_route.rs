//! HTTPRoute and GRPCRoute: rules become routes of every listener that the route is attached to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_config::finding::field_name;
use tidegate_config::model::{Conditions, Effective, Origin, PathMatch, RetryPolicy, Route, Settings, VirtualHost};
use tidegate_config::object::ObjectRef;
use tidegate_config::project::gateway::{HttpBackend, HttpFilters, Retry, RuleSession, SessionRefused, Timeouts};

use super::client_certificate::shown_by_route;
use super::parent::RouteParents;
use super::rule::Rules;
use crate::attachment::{Attachment, Claim, ClaimTerms, ConditionReason, Key, Report, RouteConditions, RouteStatus};
use crate::sources::reader::Reader;

/// A rule of either kind of route.
struct Rule<'p> {
    index: usize,
    name: Option<&'p Arc<str>>,
    matches: Vec<(PathMatch, Conditions)>,
    filters: &'p HttpFilters,
    backends: &'p [HttpBackend],
    settings: Arc<Settings>,
    /// The reason why the requested session persistence is not in effect.
    unkept: Option<&'p SessionRefused>,
}

pub(in crate::sources) fn attach_http(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let Some(route) = reader.world().http_routes.get(&object.name) else {
        return Attachment::reporting(object, reader.world());
    };
    let rules = route.rules.iter().map(|rule| {
        let own = rule.settings.as_deref();
        let settings = own.map_or_else(
            || Settings::default().shared(),
            |own| settings(&own.timeouts, own.retry.as_ref(), own.session.as_ref()),
        );
        Rule {
            index: rule.index,
            name: rule.name.as_ref(),
            matches: rule.matches.iter().map(|it| (it.path.clone(), it.conditions.clone())).collect(),
            filters: &rule.filters,
            backends: &rule.backends,
            settings,
            unkept: unkept(own.and_then(|own| own.session.as_ref())),
        }
    });
    let route_parents = RouteParents { object, age: &route.age, parents: &route.parents, hostnames: &route.hostnames };
    attach(reader, &route_parents, rules.collect(), &route.dropped)
}

pub(in crate::sources) fn attach_grpc(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let Some(route) = reader.world().grpc_routes.get(&object.name) else {
        return Attachment::reporting(object, reader.world());
    };
    let rules = route.rules.iter().map(|rule| {
        let conditions = |headers: &_| Conditions { headers: Box::clone(headers), ..Conditions::default() };
        Rule {
            index: rule.index,
            name: rule.name.as_ref(),
            matches: rule.matches.iter().map(|it| (it.path.clone(), conditions(&it.headers))).collect(),
            filters: &rule.filters,
            backends: &rule.backends,
            settings: settings(&Timeouts::default(), None, rule.session.as_ref()),
            unkept: unkept(rule.session.as_ref()),
        }
    });
    let route_parents = RouteParents { object, age: &route.age, parents: &route.parents, hostnames: &route.hostnames };
    attach(reader, &route_parents, rules.collect(), &route.dropped)
}

/// The time without a byte of an endpoint when a route has no limit: as good as none.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The time without a byte of an endpoint, if the limits of a route for requests are longer than the default or there
/// shall be none.
fn read_timeout(timeouts: &Timeouts) -> Option<Duration> {
    let limit = |limit: Duration| if limit.is_zero() { NO_LIMIT } else { limit };
    let longest = timeouts.request.into_iter().chain(timeouts.backend_request).map(limit).max();
    longest.filter(|longest| *longest > Effective::DEFAULT.read_timeout)
}

fn settings(timeouts: &Timeouts, retry: Option<&Retry>, session: Option<&RuleSession>) -> Arc<Settings> {
    let retry = retry.map(|Retry { codes, attempts, backoff }| {
        let (statuses, backoff) = (codes.clone(), backoff.unwrap_or(RetryPolicy::BACKOFF));
        Arc::new(RetryPolicy { statuses, attempts: *attempts, backoff })
    });
    let (total_timeout, attempt_timeout) = (timeouts.request, timeouts.backend_request);
    let session = session.and_then(|session| session.as_ref().ok()).cloned();
    let read_timeout = read_timeout(timeouts);
    Settings { total_timeout, attempt_timeout, read_timeout, retry, session, ..Settings::default() }.shared()
}

fn unkept(session: Option<&RuleSession>) -> Option<&SessionRefused> {
    session?.as_ref().err()
}

fn attach(
    reader: &mut Reader<'_>,
    route_parents: &RouteParents<'_>,
    rules: Vec<Rule<'_>>,
    dropped: &[usize],
) -> Attachment {
    let RouteParents { object, age, .. } = *route_parents;
    let joined = route_parents.join(reader);
    if joined.parents.is_empty() {
        return Attachment::default();
    }
    let generation = reader.generation(object);
    let mut made = Rules::of(reader, object);
    let (mut routes, mut broken) = (Vec::new(), dropped.to_vec());
    for rule in &rules {
        let field = format!("spec.rules[{}]", rule.index);
        let does = made.make(&field, rule.filters, rule.backends);
        if does.broken {
            broken.push(rule.index);
        }
        for (number, (path, conditions)) in (0_u32..).zip(&rule.matches) {
            let field = field_name(&format!("{field}.matches[{number}]"));
            let position = Origin::position(u32::try_from(rule.index).unwrap_or(u32::MAX), number);
            let origin = Origin { object: object.clone(), age: age.clone(), field, position };
            routes.push(Arc::new(Route {
                rule: rule.name.cloned(),
                conditions: conditions.clone(),
                guards: Arc::clone(&does.guards),
                filters: Arc::clone(&does.filters),
                settings: Arc::clone(&rule.settings),
                ..Route::new(origin, path.clone(), does.action.clone())
            }));
        }
    }
    let Rules { missing, unresolved, unsupported, broken_backends, mut findings, .. } = made;
    findings.extend(joined.findings(object));
    findings.sort_unstable();
    findings.dedup();
    broken.sort_unstable();
    let (refused, partly) = faults(&broken, rules.len() + dropped.len(), (unsupported, &broken_backends));
    let unkept: Vec<&str> = rules.iter().filter_map(|rule| rule.unkept).map(|refused| &*refused.message).collect();
    let unkept = if unkept.is_empty() { String::new() } else { format!("No sessions are kept: {}", unkept.join("; ")) };
    let terms = Arc::new(ClaimTerms {
        object: object.clone(),
        age: age.clone(),
        field: "spec.hostnames",
        routes: routes.into(),
        fallback: None,
        last_resort: false,
        guest: false,
        certificates: Box::default(),
        missing: missing.into_iter().collect(),
    });
    let claim = |host: VirtualHost| {
        let terms = match joined.clients.get(&host.table) {
            None => Arc::clone(&terms),
            Some(client) => {
                let routes = terms.routes.iter().map(|route| shown_by_route(route, client)).collect();
                Arc::new(ClaimTerms { routes, ..ClaimTerms::clone(&terms) })
            }
        };
        Claim { host, terms }
    };
    let listeners = attached_to(reader, joined.listeners, refused.is_some());
    let outcome = RouteConditions { refused, unresolved, partly, accepted: unkept };
    let status = RouteStatus::new(route_parents.parents, generation, joined.parents, outcome);
    Attachment {
        claims: joined.hosts.into_iter().map(claim).collect(),
        listeners,
        report: Report::of_route(findings, status),
        ..Attachment::default()
    }
}

/// The listeners that count a route as attached: none, if it is refused. An older route may keep that one off them
/// nevertheless, with the 500s that it answers.
fn attached_to(reader: &mut Reader<'_>, joined: BTreeSet<Key>, refused: bool) -> Box<[Key]> {
    if refused {
        joined.iter().filter_map(Key::conflict).for_each(|listener| reader.note(listener));
        return Box::default();
    }
    joined.into_iter().collect()
}

/// The fault of a route that is not accepted because of its rules, or the message about dropped rules and backends.
fn faults(
    broken: &[usize],
    rules: usize,
    (unsupported, backends): (Option<ConditionReason>, &[String]),
) -> (Option<ConditionReason>, Option<String>) {
    if broken.is_empty() && backends.is_empty() {
        return (None, None);
    }
    let of_rules = broken.iter().map(|index| format!("spec.rules[{index}]"));
    let names: Vec<String> = of_rules.chain(backends.iter().cloned()).collect();
    let why = unsupported.as_ref().map_or("a match cannot be read", |fault| &fault.message);
    let message = format!("Dropped Rule: {} ({why})", names.join(", "));
    if broken.len() < rules {
        return (None, Some(message));
    }
    let reason = unsupported.map_or("UnsupportedValue", |fault| fault.reason);
    (Some(ConditionReason::new(reason, message)), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(request: Option<u64>, backend_request: Option<u64>, want: Option<Duration>) {
        let [request, backend_request] = [request, backend_request].map(|limit| limit.map(Duration::from_secs));
        assert_eq!(read_timeout(&Timeouts { request, backend_request }), want);
    }

    #[test]
    fn a_silent_endpoint_has_as_long_as_the_limits_of_the_route() {
        check(None, None, None);
        check(Some(30), Some(60), None);
        check(Some(100), None, Some(Duration::from_secs(100)));
        check(Some(100), Some(90), Some(Duration::from_secs(100)));
        check(None, Some(90), Some(Duration::from_secs(90)));
        check(Some(0), None, Some(NO_LIMIT));
        check(Some(0), Some(10), Some(NO_LIMIT));
    }
}
