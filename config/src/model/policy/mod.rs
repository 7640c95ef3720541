//! The policies of a request: one chain of steps, which [`run_policies`] holds in the order in which they run. The
//! proxy and `explain` run the same chain, so that an explanation is true of the proxy.
//!
//! A step is pure, charges, or waits; its [`StepResult`] says which. A pure step decides by the attributes of the
//! request and the routing model alone, and may be evaluated again after a wait. A step that charges counts the request
//! in state outside of the model, which the proxy passes in as a [`PolicyState`]; that of `explain` charges nothing. A
//! step that waits returns a [`Question`] as data: the proxy asks it under a deadline and then goes on with the chain;
//! `explain` goes on as if the answer allowed the request. A step that charges can wait as well, before it has charged
//! anything. [`PolicyProgress`] only moves forward, so that no request is charged twice and no question is asked twice.
//!
//! The chain:
//!
//! 1. the size of the body;
//! 2. the policies that the object of the route names, which refuse every request if one of them cannot be used;
//! 3. guards, in the order of the route, some of which wait: access by address, TLS, authorisation services;
//! 4. the policies of the path, before the first guard that waits: limits, so that requests without credentials count
//!    and those that access refuses do not; authentication and authorisation; limits by identity;
//! 5. the answer to a CORS preflight, for which nothing is charged and nobody is asked;
//! 6. redirects and answers of the route;
//! 7. the authorisation service of the share.

mod attributes;
pub mod auth;
mod cel;
mod cors;
mod external_auth;
mod guard;
mod limit;
mod path;

use std::sync::Arc;

pub use attributes::{Attributes, ConnectionAttributes};
pub use auth::AuthDocument;
use auth::{AuthDenial, AuthGrant, AuthResult, PathAuth, PlacedCall};
pub use cel::{EvaluationError, Predicate, Selector, ValueExpression};
pub use cors::{AnyOr, Cors};
pub use external_auth::{AuthProtocol, ExternalAuth};
pub use guard::Guard;
pub use limit::{Applies, Exceeded, Limit, LimitId, Rate};
pub(super) use path::no_policies;
pub use path::{ListenerPolicies, Overridden, PathPolicies, PolicyMap, RuleKey, TargetPolicies};

use super::backend::{Destination, Target};
use super::condition::Head;
use super::filter::{DirectResponse, Redirect};
use super::route::Action;

/// The steps that have run for a request.
#[derive(Debug, Default)]
pub struct PolicyProgress {
    guards: usize,
    path: PathStep,
    share: bool,
    grant: Option<Arc<AuthGrant>>,
    calls: Vec<PlacedCall>,
}

/// The next step of the policies of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum PathStep {
    #[default]
    Limits,
    Auth,
    IdentityLimits,
    None,
}

/// The state outside of the model that steps use.
pub trait PolicyState<'r> {
    /// Counts a request in all of the limits that apply to it, or in none.
    fn charge<H: Head + ?Sized>(&mut self, limits: &'r [Arc<Limit>], attributes: &Attributes<'_, H>) -> Charged<'r>;

    /// Decides about a request by its credentials, as [`PathAuth::decide`] does.
    fn authorise<H: Head + ?Sized>(&mut self, auth: &'r PathAuth, attributes: &Attributes<'_, H>) -> AuthResult;
}

/// The outcome of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepResult<'r> {
    /// A pure step lets the request pass.
    Passes,
    /// A pure step answers the request.
    Answers(Answer<'r>),
    /// The step charges these limits.
    Charges(&'r [Arc<Limit>]),
    /// The step decides by the credentials of the client.
    Authorises(&'r PathAuth),
    /// The step waits.
    Waits(Question<'r>),
}

impl StepResult<'_> {
    const fn waits(&self) -> bool {
        matches!(self, Self::Waits(_))
    }
}

/// A question to somebody else about a request. The request goes on if the answer allows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question<'r> {
    /// For an authorisation service.
    ExternalAuth(&'r Arc<ExternalAuth>),
    /// For the counts that all replicas share, which whoever charges has asked for. Then the limits are charged.
    Counts,
    /// The calls of rules, which [`PolicyProgress::take_calls`] returns. Then the rules decide with the answers.
    Calls,
}

/// The outcome of charging the limits of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charged<'r> {
    /// All limits that apply to it have counted the request.
    Counted,
    /// A limit refuses it.
    Exceeded(Exceeded<'r>),
    /// It cannot be counted, and is refused.
    Uncounted,
    /// It is not counted yet: the counts have to be waited for.
    Waits,
}

/// The decision about a request. `B` is a backend that has an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision<'r, B> {
    /// All steps let it pass, and it goes to an endpoint.
    Forward(&'r Arc<Target>, B),
    /// The edge answers it.
    Answer(Answer<'r>),
    /// The chain continues after the answer to a question.
    Wait(Question<'r>),
}

/// The edge's own answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer<'r> {
    /// The request is refused.
    Refused(Refusal),
    /// A limit refuses the request.
    Limited(Exceeded<'r>),
    /// Authentication or authorisation refuses the request.
    Unauthorized(Box<AuthDenial>),
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
    /// A limit cannot count it.
    Uncounted,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::BodyTooLarge, Self::Denied, Self::NotHere, Self::NoEndpoints, Self::Uncounted];

    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BodyTooLarge => 413,
            Self::Denied => 403,
            Self::NotHere => 404,
            Self::NoEndpoints | Self::Uncounted => 503,
        }
    }
}

impl Answer<'_> {
    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Refused(refusal) => refusal.status(),
            Self::Limited(_) => 429,
            Self::Unauthorized(denial) => denial.status(),
            Self::ToTls(status) | Self::InvalidShare(status) => *status,
            Self::Preflight(_) => Cors::PREFLIGHT_STATUS,
            Self::Redirected(redirect) => redirect.status,
            Self::Responded(response) => response.status,
        }
    }
}

impl PolicyProgress {
    /// The result of authentication and authorisation, if they have allowed the request.
    #[must_use]
    pub const fn grant(&self) -> Option<&Arc<AuthGrant>> {
        self.grant.as_ref()
    }

    /// The calls that a request waits for after [`Question::Calls`].
    pub fn take_calls(&mut self) -> Vec<PlacedCall> {
        std::mem::take(&mut self.calls)
    }

    /// The next step of the policies of the path; `None` after the last one.
    fn next_of_path<'r>(&mut self, policies: &'r PathPolicies) -> Option<StepResult<'r>> {
        let charges = |limits: &'r [Arc<Limit>]| match limits {
            [] => StepResult::Passes,
            limits => StepResult::Charges(limits),
        };
        let (step, next) = match self.path {
            PathStep::Limits => (charges(&policies.limits), PathStep::Auth),
            PathStep::Auth => {
                let auth = policies.auth.as_deref();
                (auth.map_or(StepResult::Passes, StepResult::Authorises), PathStep::IdentityLimits)
            }
            PathStep::IdentityLimits => (charges(&policies.identity_limits), PathStep::None),
            PathStep::None => return None,
        };
        self.path = next;
        Some(step)
    }
}

/// A request on its way through the chain.
struct Chain<'p, 'r, 'a, H: ?Sized, S> {
    progress: &'p mut PolicyProgress,
    attributes: &'a Attributes<'r, H>,
    state: &'a mut S,
    /// The policy that answers it, if it is a CORS preflight. No step waits, charges or decides by credentials for one,
    /// because it comes without them.
    preflight: Option<&'r Arc<Cors>>,
}

impl<'r, H: Head + ?Sized, S: PolicyState<'r>> Chain<'_, 'r, '_, H, S> {
    /// The decision that a step leads to, if it ends the chain or waits.
    fn apply<B>(&mut self, step: StepResult<'r>) -> Option<Decision<'r, B>> {
        match step {
            StepResult::Passes => None,
            StepResult::Answers(answer) => Some(Decision::Answer(answer)),
            StepResult::Charges(_) | StepResult::Authorises(_) | StepResult::Waits(_) if self.preflight.is_some() => {
                None
            }
            StepResult::Charges(limits) => {
                let charged = match &self.progress.grant {
                    Some(grant) => self.state.charge(limits, &self.attributes.with_auth(&grant.document)),
                    None => self.state.charge(limits, self.attributes),
                };
                match charged {
                    Charged::Counted => None,
                    Charged::Exceeded(exceeded) => Some(Decision::Answer(Answer::Limited(exceeded))),
                    Charged::Uncounted => Some(Decision::Answer(Answer::Refused(Refusal::Uncounted))),
                    Charged::Waits => Some(Decision::Wait(Question::Counts)),
                }
            }
            StepResult::Authorises(auth) => match self.state.authorise(auth, self.attributes) {
                AuthResult::Granted(grant) => {
                    self.progress.grant = Some(Arc::from(grant));
                    None
                }
                AuthResult::Refused(denial) => Some(Decision::Answer(Answer::Unauthorized(denial))),
                AuthResult::Waits(calls) => {
                    self.progress.calls = calls;
                    Some(Decision::Wait(Question::Calls))
                }
            },
            StepResult::Waits(question) => Some(Decision::Wait(question)),
        }
    }

    /// The policies of the path, in their order.
    fn path<B>(&mut self) -> Option<Decision<'r, B>> {
        let policies = self.attributes.policies?;
        loop {
            let before = self.progress.path;
            let step = self.progress.next_of_path(policies)?;
            let decision = self.apply(step);
            if matches!(decision, Some(Decision::Wait(Question::Counts | Question::Calls))) {
                // Nothing is charged or decided yet: the step goes on after the wait.
                self.progress.path = before;
            }
            if decision.is_some() {
                return decision;
            }
        }
    }

    /// The guards of the route, with the policies of the path before the first that waits.
    fn guards<B>(&mut self, has_endpoint: impl Fn() -> bool) -> Option<Decision<'r, B>> {
        while let Some(guard) = self.attributes.route.guards.get(self.progress.guards) {
            let step = guard.step(self.attributes, &has_endpoint);
            if step.waits()
                && let Some(decision) = self.path()
            {
                return Some(decision);
            }
            self.progress.guards += 1;
            if let Some(decision) = self.apply(step) {
                return Some(decision);
            }
        }
        None
    }
}

/// Runs the chain for a request from where it has come to, until a step answers or waits, or the request goes to an
/// endpoint. `backend` returns the backend of a target that has an endpoint.
///
/// A CORS preflight is answered after the guards.
pub fn run_policies<'r, B, H: Head + ?Sized>(
    progress: &mut PolicyProgress,
    attributes: &Attributes<'r, H>,
    backend: impl Fn(&'r Target) -> Option<B>,
    state: &mut impl PolicyState<'r>,
) -> Decision<'r, B> {
    let Attributes { route, share, .. } = *attributes;
    let preflight = Cors::applied(route, share).filter(|_| Cors::is_preflight(attributes.head));
    // First, as in nginx: a request that is too large for the route need not be redirected before it is refused.
    if attributes.effective.body_bytes_max.zip(attributes.body_bytes).is_some_and(|(max, bytes)| bytes > max) {
        return Decision::Answer(Answer::Refused(Refusal::BodyTooLarge));
    }
    if attributes.policies.is_some_and(|policies| policies.closed) {
        return Decision::Answer(Answer::Refused(Refusal::Denied));
    }
    let has_endpoint = || route.action.targets().any(|target| backend(target).is_some());
    let mut chain = Chain { progress, attributes, state, preflight };
    if let Some(decision) = chain.guards(has_endpoint).or_else(|| chain.path()) {
        return decision;
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
    use std::time::{Duration, SystemTime};

    use super::super::backend::{AppProtocol, BackendKey, WeightedTarget};
    use super::super::filter::Filter;
    use super::super::path::PathMatch;
    use super::super::route::{Origin, Route};
    use super::super::sample::SampleHead;
    use super::auth::{
        AuthFacts, AuthRuleName, CacheKey, CallAnswer, CallFault, CallPlace, Jwt, TokenFault, VerifiedToken,
    };
    use super::*;
    use crate::object::{Age, Kind, ObjectName, ObjectRef};

    /// Notes its events, and may refuse, or wait so often before.
    #[derive(Default)]
    struct State {
        refuses: bool,
        waits: usize,
        /// Whether calls of rules have been answered.
        answered: bool,
        events: Vec<String>,
    }

    impl<'r> PolicyState<'r> for State {
        fn charge<H: Head + ?Sized>(
            &mut self,
            limits: &'r [Arc<Limit>],
            attributes: &Attributes<'_, H>,
        ) -> Charged<'r> {
            let [limit] = limits else { panic!("{} limits", limits.len()) };
            let known = if attributes.auth.is_some() { " by identity" } else { "" };
            if self.waits > 0 {
                self.waits -= 1;
                return Charged::Waits;
            }
            self.events.push(format!("charge{known}"));
            let exceeded = Exceeded { limit, rate: limit.rates[0], resets_in: Duration::ZERO };
            if self.refuses { Charged::Exceeded(exceeded) } else { Charged::Counted }
        }

        fn authorise<H: Head + ?Sized>(&mut self, auth: &'r PathAuth, attributes: &Attributes<'_, H>) -> AuthResult {
            self.events.push("authorise".to_owned());
            auth.decide(attributes, self)
        }
    }

    impl AuthFacts for State {
        fn verify(&mut self, _: &Jwt, _: &str, _: SystemTime) -> Result<Arc<VerifiedToken>, TokenFault> {
            unreachable!("no rule reads tokens")
        }

        fn answer(&mut self, _: CallPlace, _: Option<&CacheKey>) -> Option<CallAnswer> {
            self.answered.then_some(Ok(None))
        }

        fn fail(&mut self, _: CallPlace, _: AuthRuleName, fault: CallFault) {
            panic!("{fault:?}")
        }
    }

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

    #[track_caller]
    fn check_limited(route: &Route, head: &SampleHead, refuses: bool, want: &[&str], want_status: u16) {
        check_waiting(route, head, State { refuses, ..State::default() }, want, want_status);
    }

    /// The events of a request with a limit: `charge`, `counts` for each wait before, and the question for each service
    /// by its name, which is allowed; then the status of the answer, or 0 for a request that is forwarded.
    #[track_caller]
    fn check_waiting(route: &Route, head: &SampleHead, mut state: State, want: &[&str], want_status: u16) {
        let limit = Arc::new(Limit {
            id: LimitId::new(ObjectRef::new(Kind::RateLimitPolicy, ObjectName::new("shop", "p")), "ip".into()),
            when: Box::default(),
            counters: Box::default(),
            rates: [Rate { max: 1, window: Duration::from_secs(1) }].into(),
            shadow: false,
        });
        let policies = PathPolicies { limits: [limit].into(), ..PathPolicies::default() };
        let attributes = Attributes { policies: Some(&policies), ..attributes(route, head) };
        let mut progress = PolicyProgress::default();
        let status = loop {
            match run_policies(&mut progress, &attributes, |_| Some(()), &mut state) {
                Decision::Wait(Question::ExternalAuth(service)) => {
                    state.events.push(service.target.backend.service.name.to_string());
                }
                Decision::Wait(Question::Counts) => state.events.push("counts".to_owned()),
                Decision::Wait(Question::Calls) => {
                    let calls = progress.take_calls().len();
                    state.events.push(format!("{calls} calls"));
                    state.answered = true;
                }
                Decision::Forward(..) => break 0,
                Decision::Answer(answer) => break answer.status(),
            }
        };
        let events = state.events;
        assert_eq!((events.iter().map(|event| &**event).collect::<Vec<_>>(), status), (want.to_vec(), want_status));
    }

    #[test]
    fn limits_are_charged_once_after_access_and_before_the_first_question() {
        let ask = |name: &str| Guard::ExternalAuth(service(name));
        let to = |external_auth| share(Destination::Target(target("web")), external_auth, &[]);
        let tls = Guard::RequireTls { status: 308 };
        let get = SampleHead::new("GET");
        check_limited(&route(&[], &[], to(None)), &get, false, &["charge"], 0);
        check_limited(&route(&[], &[], to(None)), &get, true, &["charge"], 429);
        let guards = [Guard::RequireEndpoints, ask("first"), ask("second")];
        check_limited(&route(&guards, &[], to(None)), &get, false, &["charge", "first", "second"], 0);
        check_limited(&route(&guards, &[], to(None)), &get, true, &["charge"], 429);
        check_limited(&route(&[], &[], to(Some(service("share")))), &get, false, &["charge", "share"], 0);
        check_limited(&route(std::slice::from_ref(&tls), &[], to(None)), &get, false, &[], 308);
        check_limited(&route(&[ask("first"), tls], &[], to(None)), &get, false, &["charge", "first"], 308);
        let lines = [("origin", "https://a.test"), ("access-control-request-method", "PUT")];
        let preflight = SampleHead::new("OPTIONS").with(&lines);
        check_limited(&route(&guards, &[cors(5)], to(None)), &preflight, true, &[], 200);
        check_limited(&route(&guards, &[], to(None)), &preflight, true, &["charge"], 429);
    }

    #[test]
    fn limits_that_wait_are_charged_afterwards_and_once() {
        let ask = |name: &str| Guard::ExternalAuth(service(name));
        let to = |external_auth| share(Destination::Target(target("web")), external_auth, &[]);
        let (get, plain) = (SampleHead::new("GET"), route(&[], &[], to(None)));
        let state = |waits, refuses| State { waits, refuses, ..State::default() };
        check_waiting(&plain, &get, state(1, false), &["counts", "charge"], 0);
        check_waiting(&plain, &get, state(2, true), &["counts", "counts", "charge"], 429);
        let guards = [Guard::RequireEndpoints, ask("first"), ask("second")];
        let asking = route(&guards, &[], to(Some(service("share"))));
        check_waiting(&asking, &get, state(1, false), &["counts", "charge", "first", "second", "share"], 0);
        check_waiting(&asking, &get, state(1, true), &["counts", "charge"], 429);
        let lines = [("origin", "https://a.test"), ("access-control-request-method", "PUT")];
        let preflight = SampleHead::new("OPTIONS").with(&lines);
        check_waiting(&route(&guards, &[cors(5)], to(None)), &preflight, state(1, true), &[], 200);
    }

    #[test]
    fn a_closed_path_refuses_every_request() {
        let closed = PathPolicies { closed: true, ..PathPolicies::default() };
        let lines = [("origin", "https://a.test"), ("access-control-request-method", "PUT")];
        let heads = [SampleHead::new("GET"), SampleHead::new("OPTIONS").with(&lines)];
        let guards = [Guard::ExternalAuth(service("auth")), Guard::RequireTls { status: 308 }];
        for (head, policies, want) in heads.iter().flat_map(|head| [(head, Some(&closed), true), (head, None, false)]) {
            let route = route(&guards, &[cors(5)], share(Destination::Target(target("web")), None, &[]));
            let attributes = Attributes { policies, ..attributes(&route, head) };
            let decision =
                run_policies(&mut PolicyProgress::default(), &attributes, |_| Some(()), &mut State::default());
            assert_eq!(decision == Decision::Answer(Answer::Refused(Refusal::Denied)), want, "{head:?}");
        }
    }

    fn attributes<'a>(route: &'a Route, head: &'a SampleHead) -> Attributes<'a, SampleHead> {
        Attributes { share: route.action.shares().first(), ..Attributes::sample(route, head) }
    }

    /// The questions of a request, each of which is allowed, and the decision after them. A target has an endpoint
    /// unless it is called `empty`.
    #[track_caller]
    fn check(route: &Route, head: &SampleHead, questions: &[&Arc<ExternalAuth>], want: Decision<'_, ()>) {
        let attributes = attributes(route, head);
        let (mut progress, mut asked) = (PolicyProgress::default(), Vec::new());
        let decision = loop {
            let backend = |target: &Target| (&*target.backend.service.name != "empty").then_some(());
            match run_policies(&mut progress, &attributes, backend, &mut State::default()) {
                Decision::Wait(Question::ExternalAuth(service)) => asked.push(service),
                Decision::Wait(Question::Counts | Question::Calls) => panic!("nothing is counted or called"),
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
        let forward = || Decision::Forward(&web, ());
        check(&route(&[], &[], share(to(&web), None, &[])), &get, &[], forward());
        let guards = [ask(&first), Guard::RequireEndpoints, ask(&second)];
        let guarded = |to, guards: &[Guard]| route(guards, &[], share(to, Some(Arc::clone(&of_share)), &[]));
        check(&guarded(to(&web), &guards), &get, &[&first, &second, &of_share], forward());
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
        let forward = || Decision::Forward(&web, ());
        check(&route(&guards, &[], to(&[])), &preflight, &[&first, &first, &first], forward());
        check(&route(&guards, &of_route, to(&[])), &plain, &[&first, &first, &first], forward());
        let denied = Decision::Answer(Answer::Refused(Refusal::Denied));
        check(&route(&[Guard::DenyAll], &of_route, to(&of_share)), &preflight, &[], denied);
    }
}
