//! One rule of an HTTPRoute or GRPCRoute: its filters and backends, in the terms of the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    Action, AppProtocol, AuthProtocol, Destination, ExternalAuth, Filter, Guard, Mirror, Redirect, Target, Transport,
    WeightedTarget,
};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::{
    FilterFault, GroupKind, HttpBackend, HttpFilter, HttpFilters, RequestMirror, RequestRedirect, Unreadable,
    WeightedBackend,
};
use tidegate_config::project::{BackendRef, PortRef, gateway};

use crate::attachment::ConditionReason;
use crate::sources::reader::Reader;

/// State for making the rules of one route.
pub(super) struct Rules<'a, 'w> {
    pub(super) reader: &'a mut Reader<'w>,
    /// The route.
    pub(super) object: &'a ObjectRef,
    /// The findings.
    pub(super) findings: Vec<Finding>,
    /// Services that it refers to and that do not exist (yet).
    pub(super) missing: BTreeSet<ObjectRef>,
    /// The first unusable reference.
    pub(super) unresolved: Option<ConditionReason>,
    /// The first unsupported filter.
    pub(super) unsupported: Option<ConditionReason>,
    /// The fields of backends that answer 500 because of their filters, in rules of which others serve.
    pub(super) broken_backends: Vec<String>,
}

/// The effect of a rule.
pub(super) struct RuleEffect {
    pub(super) action: Action,
    pub(super) filters: Arc<[Filter]>,
    /// The conditions that a request must pass.
    pub(super) guards: Arc<[Guard]>,
    /// Whether the rule answers 500 because its filters cannot be applied.
    pub(super) broken: bool,
}

/// The reason why a backend cannot be used.
pub(super) struct UnusableBackend {
    /// The reason for the condition `ResolvedRefs`, if it applies.
    reason: Option<&'static str>,
    /// The backend as it is written.
    value: String,
    why: String,
}

impl RuleEffect {
    /// Every request is answered with 500.
    fn broken() -> Self {
        Self { broken: true, ..Self::unresolved() }
    }

    /// The same, because of an unusable reference, which [`Rules::unresolved`] records.
    fn unresolved() -> Self {
        Self { action: answered(), filters: Arc::default(), guards: Arc::default(), broken: false }
    }
}

/// The applied filters of a rule or of a backend, by type.
struct Applied {
    edits: Arc<[Filter]>,
    redirect: Option<Redirect>,
    external_auth: Option<Arc<ExternalAuth>>,
}

/// The reason why filters cannot be applied.
enum Inapplicable {
    /// They are not supported.
    Unsupported,
    /// A reference in one of them is unusable.
    Unresolved,
}

fn answered() -> Action {
    Action::Forward([share(Destination::Status(500), 1)].into())
}

fn share(to: Destination, weight: u32) -> WeightedTarget {
    WeightedTarget { to, weight, filters: Arc::default(), external_auth: None }
}

impl<'a, 'w> Rules<'a, 'w> {
    /// The empty state for a route.
    pub(super) fn of(reader: &'a mut Reader<'w>, object: &'a ObjectRef) -> Self {
        let findings = reader.world().findings_of(object).to_vec();
        Self {
            reader,
            object,
            findings,
            missing: BTreeSet::new(),
            unresolved: None,
            unsupported: None,
            broken_backends: Vec::new(),
        }
    }
}

impl Rules<'_, '_> {
    /// The effect of a rule, whose field is `field`.
    pub(super) fn make(&mut self, field: &str, filters: &HttpFilters, backends: &[HttpBackend]) -> RuleEffect {
        let Applied { edits, redirect, external_auth } = match self.filters(&format!("{field}.filters"), filters) {
            Ok(applied) => applied,
            Err(Inapplicable::Unsupported) => return RuleEffect::broken(),
            Err(Inapplicable::Unresolved) => return RuleEffect::unresolved(),
        };
        let guards = external_auth.map_or_else(Arc::default, |asked| [Guard::ExternalAuth(asked)].into());
        if let Some(redirect) = redirect {
            return RuleEffect { action: Action::Redirect(Box::new(redirect)), filters: edits, guards, broken: false };
        }
        let mut without_filters = Vec::new();
        let shares: Vec<WeightedTarget> =
            backends.iter().map(|backend| self.share(backend, &mut without_filters)).collect();
        let total: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
        let action = if total == 0 { answered() } else { Action::Forward(shares.into()) };
        let broken = !backends.is_empty() && without_filters.len() == backends.len();
        if !broken {
            self.broken_backends.append(&mut without_filters);
        }
        RuleEffect { action, filters: edits, guards, broken }
    }

    /// The weighted target of a backend. An unusable backend, or one with an inapplicable filter, answers 500; the
    /// field of the latter is added to `without_filters`.
    fn share(&mut self, backend: &HttpBackend, without_filters: &mut Vec<String>) -> WeightedTarget {
        let WeightedBackend { field, to, weight } = &backend.share;
        let answered = share(Destination::Status(500), *weight);
        let target = match to {
            Ok(to) => {
                self.target(field, to, self.is_grpc(), |value, why| Problem::FilterOrBackendInvalid { value, why })
            }
            Err(Unreadable) => self.unreadable(field),
        };
        let (filters, external_auth) = match self.filters(&format!("{field}.filters"), &backend.filters) {
            Ok(Applied { edits, redirect: None, external_auth }) => (edits, external_auth),
            Ok(Applied { redirect: Some(_), .. }) => {
                let (value, why) =
                    ("RequestRedirect".to_owned(), "is a filter of rules and not of backends".to_owned());
                self.inapplicable(&format!("{field}.filters"), Problem::FilterOrBackendInvalid { value, why });
                without_filters.push(field.to_string());
                return answered;
            }
            Err(Inapplicable::Unsupported) => {
                without_filters.push(field.to_string());
                return answered;
            }
            Err(Inapplicable::Unresolved) => return answered,
        };
        target.map_or(answered, |target| WeightedTarget {
            to: Destination::Target(Arc::new(target)),
            weight: *weight,
            filters,
            external_auth,
        })
    }

    /// Records a filter that cannot be applied.
    fn inapplicable(&mut self, field: &str, problem: Problem) {
        self.unsupported.get_or_insert_with(|| ConditionReason::new("UnsupportedValue", format!("{field}: {problem}")));
        self.findings.push(Finding::new(self.object.clone(), field, problem));
    }

    fn is_grpc(&self) -> bool {
        self.object.kind == Kind::GrpcRoute
    }

    /// The target of a backend, over gRPC if `grpc` is set.
    fn target(
        &mut self,
        field: &str,
        to: &gateway::BackendRef,
        grpc: bool,
        problem_of: fn(String, String) -> Problem,
    ) -> Option<Target> {
        let target = self.named(to).and_then(|target| self.over_tls(spoken(target, grpc)));
        self.usable(field, target, problem_of)
    }

    /// A backend that cannot be read; the projection has reported it.
    pub(super) fn unreadable<T>(&mut self, field: &str) -> Option<T> {
        self.unresolved
            .get_or_insert_with(|| ConditionReason::new("BackendNotFound", format!("{field} cannot be read")));
        None
    }

    /// A backend, or the finding and the condition if it cannot be used. `problem_of` makes the problem.
    pub(super) fn usable<T>(
        &mut self,
        field: &str,
        found: Result<T, UnusableBackend>,
        problem_of: fn(String, String) -> Problem,
    ) -> Option<T> {
        let UnusableBackend { reason, value, why } = match found {
            Ok(target) => return Some(target),
            Err(unusable) => unusable,
        };
        let problem = problem_of(value, why);
        if let Some(reason) = reason {
            self.unresolved.get_or_insert_with(|| ConditionReason::new(reason, format!("{field}: {problem}")));
        }
        self.findings.push(Finding::new(self.object.clone(), field, problem));
        None
    }

    /// The Service port of a backend.
    pub(super) fn named(&mut self, to: &gateway::BackendRef) -> Result<Target, UnusableBackend> {
        let (kind, name) = (&to.object.kind, &to.object.name);
        let unresolved = |reason, value: String, why: String| UnusableBackend { reason: Some(reason), value, why };
        let Some(port) = to.port.filter(|_| *kind == GroupKind::Known(Kind::Service)) else {
            return Err(unresolved("InvalidKind", kind.to_string(), "is not a Service".to_owned()));
        };
        if !self.reader.granted(self.object, &to.object) {
            let own = self.object.kind;
            let why = format!("is in another namespace, and no ReferenceGrant there permits {own}s of this one");
            return Err(unresolved("RefNotPermitted", name.to_string(), why));
        }
        let transport = if self.object.kind == Kind::UdpRoute { Transport::Udp } else { Transport::Tcp };
        let port_ref = BackendRef { service: name.clone(), port: PortRef::Number(port) };
        let target = self.reader.target_over(transport, &port_ref, None);
        target.map_err(|problem| {
            let absent = matches!(problem, Problem::ServiceMissing { .. });
            if absent {
                self.missing.insert(ObjectRef::new(Kind::Service, name.clone()));
            }
            let udp = if transport == Transport::Udp { "UDP " } else { "" };
            let why =
                if absent { "is a Service that does not exist".to_owned() } else { format!("has no {udp}port {port}") };
            unresolved("BackendNotFound", name.to_string(), why)
        })
    }

    /// A target with the BackendTLSPolicy for its Service port applied.
    pub(super) fn over_tls(&mut self, target: Target) -> Result<Target, UnusableBackend> {
        let name = target.backend.service.clone();
        // The policy's own status reports it. While policies are not known, no status is written in their namespace.
        self.reader.secured(target).map_err(|why| UnusableBackend { reason: None, value: name.to_string(), why })
    }

    /// The external authorization service, which every request must pass; `None`, with a finding, if it cannot be used.
    fn asked(&mut self, field: &str, asked: &gateway::ExternalAuth) -> Option<Arc<ExternalAuth>> {
        let grpc = matches!(asked.protocol, AuthProtocol::Grpc { .. });
        let problem_of = |value, why| Problem::FilterOrBackendInvalid { value, why };
        let target = Arc::new(self.target(field, &asked.backend, grpc, problem_of)?);
        let (protocol, body_bytes_max) = (asked.protocol.clone(), asked.body_bytes_max);
        Some(Arc::new(ExternalAuth { target, protocol, body_bytes_max }))
    }

    /// A mirror filter. With an unusable target nothing is mirrored, and requests are forwarded.
    fn mirrored(&mut self, field: &str, mirror: &RequestMirror) -> Option<Filter> {
        let dropped = |value, why| Problem::RuleDropped { value, why };
        let to = Arc::new(self.target(field, &mirror.to, self.is_grpc(), dropped)?);
        let (numerator, denominator) = (mirror.numerator, mirror.denominator);
        Some(Filter::Mirror(Mirror { to, numerator, denominator }))
    }

    /// The filters; none is applied if one cannot be.
    fn filters(&mut self, field: &str, filters: &HttpFilters) -> Result<Applied, Inapplicable> {
        let reason = match filters.fault {
            None => None,
            Some(FilterFault::Unsupported) => Some("UnsupportedValue"),
            Some(FilterFault::Incompatible) => Some("IncompatibleFilters"),
        };
        if let Some(reason) = reason {
            self.unsupported.get_or_insert_with(|| ConditionReason::new(reason, format!("{field} cannot be applied")));
            return Err(Inapplicable::Unsupported);
        }
        let (mut edits, mut redirect, mut external_auth) = (Vec::new(), None, None);
        for (number, filter) in filters.list.iter().enumerate() {
            let unsupported = match filter {
                HttpFilter::Edit(edit) => {
                    edits.push(edit.clone());
                    continue;
                }
                HttpFilter::Redirect(to) => {
                    redirect = Some(redirected(to));
                    continue;
                }
                HttpFilter::Cors(cors) => {
                    edits.push(Filter::Cors(Arc::new(cors.clone())));
                    continue;
                }
                HttpFilter::Mirror(mirror) => {
                    edits.extend(self.mirrored(&format!("{field}[{number}].requestMirror.backendRef"), mirror));
                    continue;
                }
                HttpFilter::ExternalAuth(asked) => {
                    let service = self.asked(&format!("{field}[{number}].externalAuth.backendRef"), asked);
                    external_auth = Some(service.ok_or(Inapplicable::Unresolved)?);
                    continue;
                }
                HttpFilter::Extension(reference) => reference.to_string(),
            };
            let field = format!("{field}[{number}]");
            let why = "is not a supported filter".to_owned();
            self.inapplicable(&field, Problem::FilterOrBackendInvalid { value: unsupported, why });
            return Err(Inapplicable::Unsupported);
        }
        let edits = if edits.is_empty() { Arc::default() } else { edits.into() };
        Ok(Applied { edits, redirect, external_auth })
    }
}

/// gRPC uses HTTP/2, independently of the Service port's protocol.
fn spoken(target: Target, grpc: bool) -> Target {
    let protocol = match (grpc, target.protocol) {
        (true, AppProtocol::Http | AppProtocol::Ws) => AppProtocol::H2c,
        (true, AppProtocol::Https) => AppProtocol::H2,
        (_, condition) => condition,
    };
    Target { protocol, ..target }
}

fn redirected(to: &RequestRedirect) -> Redirect {
    Redirect {
        scheme: to.scheme.map(|scheme| scheme.to_string().into()),
        host: to.host.clone(),
        port: to.port,
        path: to.path.clone(),
        status: to.status,
    }
}
