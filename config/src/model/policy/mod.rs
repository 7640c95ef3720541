//! The policies of a request: one chain of steps, which [`run_policies`] holds in the order in which they run. The
//! proxy and `explain` run the same chain, so that an explanation is true of the proxy.
//!
//! A step is pure or waits; its [`StepResult`] says which. A pure step decides by the attributes of the request and the
//! routing model alone, and may be evaluated again after a wait. A step that waits returns a [`Question`] as data: the
//! proxy asks it under a deadline and then goes on with the chain; `explain` goes on as if the answer allowed the
//! request. [`PolicyProgress`] only moves forward, so that no question is asked twice.

mod attributes;
mod cel;
mod cors;
mod external_auth;
mod guard;
mod limit;
mod path;

use std::sync::Arc;

pub use attributes::{Attributes, ConnectionAttributes};
pub use cel::{EvaluationError, Predicate, ValueExpression};
pub use cors::{AnyOr, Cors};
pub use external_auth::{AuthProtocol, ExternalAuth};
pub use guard::Guard;
pub use limit::{Limit, Rate};
pub(super) use path::no_policies;
pub use path::{ListenerPolicies, Overridden, PathPolicies, PolicyMap, TargetPolicies};

use super::backend::{Destination, Target};
use super::condition::Head;
use super::filter::{DirectResponse, Redirect};
use super::route::Action;

/// The steps that have run for a request.
#[derive(Debug, Default)]
pub struct PolicyProgress {
    guards: usize,
    share: bool,
}

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepResult<'r> {
    /// A pure step lets the request pass.
    Passes,
    /// A pure step answers the request.
    Answers(Answer<'r>),
    /// The step waits.
    Waits(Question<'r>),
}

/// A question to somebody else about a request. The request goes on if the answer allows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question<'r> {
    /// For an authorisation service.
    ExternalAuth(&'r Arc<ExternalAuth>),
}

/// The decision about a request. `B` is a backend that has an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision<'r, B> {
    /// All steps let it pass, and it goes to an endpoint.
    Forward(&'r Arc<Target>, B),
    /// The edge answers it.
    Answer(Answer<'r>),
    /// The chain continues after the answer to a question.
    Wait(Question<'r>),
}

/// The edge's own answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'r> {
    /// The request is refused.
    Refused(Refusal),
    /// The client is redirected to the same URL over TLS with this status.
    ToTls(u16),
    /// A CORS preflight is answered by a policy.
    Preflight(&'r Arc<Cors>),
    /// The client is redirected as the route says.
    Redirected(&'r Redirect),
    /// The route answers by itself.
    Responded(&'r Arc<DirectResponse>),
    /// The share has no usable backend, or a filter that cannot be applied, and answers with this status.
    InvalidShare(u16),
}

/// The reason of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its body is larger than the route allows.
    BodyTooLarge,
    /// The client is not allowed.
    Denied,
    /// The route does not serve the listener.
    NotHere,
    /// There is no endpoint.
    NoEndpoints,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::BodyTooLarge, Self::Denied, Self::NotHere, Self::NoEndpoints];

    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BodyTooLarge => 413,
            Self::Denied => 403,
            Self::NotHere => 404,
            Self::NoEndpoints => 503,
        }
    }
}

impl Answer<'_> {
    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Refused(refusal) => refusal.status(),
            Self::ToTls(status) | Self::InvalidShare(status) => *status,
            Self::Preflight(_) => Cors::PREFLIGHT_STATUS,
            Self::Redirected(redirect) => redirect.status,
            Self::Responded(response) => response.status,
        }
    }
}

/// Runs the chain for a request from where it has come to, until a step answers or waits, or the request goes to an
/// endpoint. `backend` returns the backend of a target that has an endpoint.
///
/// A CORS preflight is answered after the guards. No step waits for it, because it comes without the credentials that
/// an answer would depend on.
pub fn run_policies<'r, B, H: Head + ?Sized>(
    progress: &mut PolicyProgress,
    attributes: &Attributes<'r, H>,
    backend: impl Fn(&'r Target) -> Option<B>,
) -> Decision<'r, B> {
    let Attributes { route, share, .. } = *attributes;
    let preflight = Cors::applied(route, share).filter(|_| Cors::is_preflight(attributes.head));
    // First, as in nginx: a request that is too large for the route need not be redirected before it is refused.
    if attributes.effective.body_bytes_max.zip(attributes.body_bytes).is_some_and(|(max, bytes)| bytes > max) {
        return Decision::Answer(Answer::Refused(Refusal::BodyTooLarge));
    }
    let has_endpoint = || route.action.targets().any(|target| backend(target).is_some());
    while let Some(guard) = route.guards.get(progress.guards) {
        progress.guards += 1;
        match guard.step(attributes, has_endpoint) {
            StepResult::Passes => {}
            StepResult::Answers(answer) => return Decision::Answer(answer),
            StepResult::Waits(_) if preflight.is_some() => {}
            StepResult::Waits(question) => return Decision::Wait(question),
        }
    }
    match (preflight, &route.action) {
        (Some(cors), _) => return Decision::Answer(Answer::Preflight(cors)),
        (None, Action::Redirect(redirect)) => return Decision::Answer(Answer::Redirected(redirect)),
        (None, Action::Respond(response)) => return Decision::Answer(Answer::Responded(response)),
        (None, Action::Forward(_)) => {}
    }
    let Some(share) = share else { return Decision::Answer(Answer::Refused(Refusal::NoEndpoints)) };
    if let Some(service) = share.external_auth.as_ref().filter(|_| !std::mem::replace(&mut progress.share, true)) {
        return Decision::Wait(Question::ExternalAuth(service));
    }
    match &share.to {
        Destination::Status(status) => Decision::Answer(Answer::InvalidShare(*status)),
        Destination::Target(target) => match backend(target) {
            Some(backend) => Decision::Forward(target, backend),
            None => Decision::Answer(Answer::Refused(Refusal::NoEndpoints)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::backend::{AppProtocol, BackendKey, WeightedTarget};
    use super::super::filter::Filter;
    use super::super::listener::ListenerName;
    use super::super::path::PathMatch;
    use super::super::route::{Origin, Route};
    use super::super::sample::SampleHead;
    use super::super::settings::Effective;
    use super::*;
    use crate::object::{Age, Kind, ObjectName, ObjectRef};

    fn target(name: &str) -> Arc<Target> {
        let backend = BackendKey::tcp(ObjectName::new("shop", name), 80);
        Arc::new(Target { backend, protocol: AppProtocol::Http, tls: None, fixed: None })
    }

    fn service(name: &str) -> Arc<ExternalAuth> {
        let protocol = AuthProtocol::Grpc { request_headers: Box::default() };
        Arc::new(ExternalAuth { target: target(name), protocol, body_bytes_max: 0 })
    }

    fn cors(max_age_s: u32) -> Filter {
        let (origins, methods, headers, exposed) = (AnyOr::Any, AnyOr::Any, AnyOr::Any, AnyOr::Any);
        Filter::Cors(Arc::new(Cors { origins, credentials: false, methods, headers, exposed, max_age_s }))
    }

    fn share(to: Destination, external_auth: Option<Arc<ExternalAuth>>, filters: &[Filter]) -> WeightedTarget {
        WeightedTarget { to, weight: 1, filters: filters.into(), external_auth }
    }

    fn route(guards: &[Guard], filters: &[Filter], share: WeightedTarget) -> Route {
        let object = ObjectRef::new(Kind::HttpRoute, ObjectName::new("shop", "web"));
        let age = Age { created_s: 0, name: object.name.clone() };
        let origin = Origin { object, field: "spec".into(), age, position: 0 };
        let new = Route::new(origin, PathMatch::Prefix("/".into()), Action::Forward([share].into()));
        Route { guards: guards.into(), filters: filters.into(), ..new }
    }

    /// The questions of a request, each of which is allowed, and the decision after them. A target has an endpoint
    /// unless it is called `empty`.
    #[track_caller]
    fn check(route: &Route, head: &SampleHead, questions: &[&Arc<ExternalAuth>], want: Decision<'_, ()>) {
        let attributes = Attributes {
            head,
            host: "a.test",
            path: "/",
            request_id: None,
            protocol: None,
            address: Some([192, 0, 2, 9].into()),
            secure: false,
            connection: ConnectionAttributes::default(),
            listener: &ListenerName("http".into()),
            body_bytes: None,
            route,
            share: route.action.shares().first(),
            effective: &Effective::DEFAULT,
            now: || SystemTime::UNIX_EPOCH,
        };
        let (mut progress, mut asked) = (PolicyProgress::default(), Vec::new());
        let decision = loop {
            let backend = |target: &Target| (&*target.backend.service.name != "empty").then_some(());
            match run_policies(&mut progress, &attributes, backend) {
                Decision::Wait(Question::ExternalAuth(service)) => asked.push(service),
                decision @ (Decision::Forward(..) | Decision::Answer(_)) => break decision,
            }
        };
        assert_eq!((&*asked, decision), (questions, want));
    }

    #[test]
    fn each_question_is_asked_once_and_in_order() {
        let [first, second, of_share] = ["first", "second", "of-share"].map(service);
        let ask = |service: &Arc<ExternalAuth>| Guard::ExternalAuth(Arc::clone(service));
        let get = SampleHead::new("GET");
        let (web, empty) = (target("web"), target("empty"));
        let to = |target: &Arc<Target>| Destination::Target(Arc::clone(target));
        let refused = |refusal| Decision::Answer(Answer::Refused(refusal));
        let forward = Decision::Forward(&web, ());
        check(&route(&[], &[], share(to(&web), None, &[])), &get, &[], forward);
        let guards = [ask(&first), Guard::RequireEndpoints, ask(&second)];
        let guarded = |to, guards: &[Guard]| route(guards, &[], share(to, Some(Arc::clone(&of_share)), &[]));
        check(&guarded(to(&web), &guards), &get, &[&first, &second, &of_share], forward);
        check(&guarded(to(&empty), &guards), &get, &[&first], refused(Refusal::NoEndpoints));
        check(&guarded(to(&empty), &[]), &get, &[&of_share], refused(Refusal::NoEndpoints));
        let invalid = Decision::Answer(Answer::InvalidShare(500));
        check(&guarded(Destination::Status(500), &[]), &get, &[&of_share], invalid);
        let denied = [ask(&first), Guard::DenyAll, ask(&second)];
        check(&guarded(to(&web), &denied), &get, &[&first], refused(Refusal::Denied));
    }

    #[test]
    fn nobody_is_asked_about_a_preflight_and_the_narrowest_policy_answers_it() {
        let lines = [("origin", "https://a.test"), ("access-control-request-method", "PUT")];
        let (plain, preflight) = (SampleHead::new("OPTIONS"), SampleHead::new("OPTIONS").with(&lines));
        let (first, web) = (service("first"), target("web"));
        let (of_route, of_share) = ([cors(5)], [cors(6)]);
        let ask = Guard::ExternalAuth(Arc::clone(&first));
        let to = |filters: &[Filter]| share(Destination::Target(Arc::clone(&web)), Some(Arc::clone(&first)), filters);
        let [by_route, by_share] = [&of_route, &of_share].map(|filters| Cors::of(filters).unwrap());
        let answer = |cors| Decision::Answer(Answer::Preflight(cors));
        let guards = [ask.clone(), ask];
        check(&route(&guards, &of_route, to(&[])), &preflight, &[], answer(by_route));
        check(&route(&guards, &[], to(&of_share)), &preflight, &[], answer(by_share));
        check(&route(&guards, &of_route, to(&of_share)), &preflight, &[], answer(by_share));
        let forward = Decision::Forward(&web, ());
        check(&route(&guards, &[], to(&[])), &preflight, &[&first, &first, &first], forward);
        check(&route(&guards, &of_route, to(&[])), &plain, &[&first, &first, &first], forward);
        let denied = Decision::Answer(Answer::Refused(Refusal::Denied));
        check(&route(&[Guard::DenyAll], &of_route, to(&of_share)), &preflight, &[], denied);
    }
}
