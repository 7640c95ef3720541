//! One rule of an HTTPRoute or GRPCRoute: its filters and backends, in the terms of the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{Action, AppProtocol, Destination, Filter, Mirror, Redirect, Target, WeightedTarget};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::{
    FilterFault, GroupKind, HttpBackend, HttpFilter, HttpFilters, RequestMirror, RequestRedirect, Unreadable,
    WeightedBackend,
};
use tidegate_config::project::{BackendRef, PortRef};

use super::condition::Fault;
use crate::sources::reader::Reader;

/// The rules of one route while they are made.
pub(super) struct Rules<'a, 'w> {
    pub(super) reader: &'a mut Reader<'w>,
    /// The route.
    pub(super) object: &'a ObjectRef,
    /// What its owner is told.
    pub(super) findings: Vec<Finding>,
    /// Services that it names and that do not exist, or not yet.
    pub(super) missing: BTreeSet<ObjectRef>,
    /// The first reference that cannot be used.
    pub(super) unresolved: Option<Fault>,
    /// The first filter that cannot be applied.
    pub(super) unsupported: Option<Fault>,
}

/// What a rule does.
pub(super) struct Made {
    pub(super) action: Action,
    pub(super) filters: Arc<[Filter]>,
    /// Whether it answers 500 in place of what it says, because its filters cannot be applied.
    pub(super) broken: bool,
}

impl Made {
    /// Every request is answered 500.
    fn broken() -> Self {
        Self { action: answered(), filters: Arc::default(), broken: true }
    }
}

fn answered() -> Action {
    Action::Forward([share(Destination::Status(500), 1)].into())
}

fn share(to: Destination, weight: u32) -> WeightedTarget {
    WeightedTarget { to, weight, filters: Arc::default() }
}

impl Rules<'_, '_> {
    /// What a rule does with requests. `field` is that of the rule.
    pub(super) fn make(&mut self, field: &str, filters: &HttpFilters, backends: &[HttpBackend]) -> Made {
        let (edits, redirect) = match self.filters(&format!("{field}.filters"), filters) {
            Ok(read) => read,
            Err(()) => return Made::broken(),
        };
        if let Some(redirect) = redirect {
            return Made { action: Action::Redirect(Box::new(redirect)), filters: edits, broken: false };
        }
        let shares: Vec<WeightedTarget> = backends.iter().map(|backend| self.share(backend)).collect();
        let total: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
        let action = if total == 0 { answered() } else { Action::Forward(shares.into()) };
        Made { action, filters: edits, broken: false }
    }

    /// A share whose backend cannot be used, or one of whose filters cannot be applied, is answered 500.
    fn share(&mut self, backend: &HttpBackend) -> WeightedTarget {
        let WeightedBackend { field, to, weight } = &backend.share;
        let answered = share(Destination::Status(500), *weight);
        let target = self.target(field, to);
        let Ok((filters, None)) = self.filters(&format!("{field}.filters"), &backend.filters) else { return answered };
        target.map_or(answered, |target| WeightedTarget {
            to: Destination::Target(Arc::new(target)),
            weight: *weight,
            filters,
        })
    }

    fn target<U>(
        &mut self,
        field: &str,
        to: &Result<tidegate_config::project::gateway::BackendRef, U>,
    ) -> Option<Target> {
        // That it cannot be read was told by its reader.
        let Ok(to) = to else {
            self.unresolved.get_or_insert_with(|| Fault::new("BackendNotFound", format!("{field} cannot be read")));
            return None;
        };
        let (kind, name) = (&to.object.kind, &to.object.name);
        let Some(port) = to.port.filter(|_| *kind == GroupKind::Known(Kind::Service)) else {
            let why = "is no Service".to_owned();
            return self.unusable(field, "InvalidKind", Problem::AnsweredWith500 { value: kind.to_string(), why });
        };
        if !self.reader.granted(self.object, &to.object) {
            let why = format!(
                "is in another namespace, and no ReferenceGrant there permits {}s of this one",
                self.object.kind
            );
            return self.unusable(field, "RefNotPermitted", Problem::AnsweredWith500 { value: name.to_string(), why });
        }
        match self.reader.target(&BackendRef { service: name.clone(), port: PortRef::Number(port) }) {
            Ok(target) => match self.reader.secured(self.spoken(target)) {
                Ok(target) => Some(target),
                Err(fault) => {
                    let why = format!(
                        "is to be reached over TLS, and its BackendTLSPolicy cannot be followed ({})",
                        fault.message
                    );
                    self.findings.push(Finding::new(
                        self.object.clone(),
                        field,
                        Problem::AnsweredWith500 { value: name.to_string(), why },
                    ));
                    None
                }
            },
            Err(problem) => {
                let absent = matches!(problem, Problem::ServiceMissing { .. });
                if absent {
                    self.missing.insert(ObjectRef::new(Kind::Service, name.clone()));
                }
                let why = if absent { "is no Service that exists".to_owned() } else { format!("has no port {port}") };
                self.unusable(field, "BackendNotFound", Problem::AnsweredWith500 { value: name.to_string(), why })
            }
        }
    }

    /// gRPC is spoken in HTTP/2, whatever the Service port says or leaves out.
    fn spoken(&self, target: Target) -> Target {
        let protocol = match (self.object.kind == Kind::GrpcRoute, target.protocol) {
            (true, AppProtocol::Http | AppProtocol::Ws) => AppProtocol::H2c,
            (true, AppProtocol::Https) => AppProtocol::H2,
            (_, said) => said,
        };
        Target { protocol, ..target }
    }

    /// A mirror whose target cannot be used copies nothing, and its requests go on.
    fn mirrored(&mut self, field: &str, mirror: &RequestMirror) -> Option<Filter> {
        let Some(target) = self.target::<Unreadable>(field, &Ok(mirror.to.clone())) else {
            // The request itself goes on.
            if let Some(Finding { problem, .. }) = self.findings.last_mut()
                && let Problem::AnsweredWith500 { value, why } = problem
            {
                *problem = Problem::RuleDropped { value: std::mem::take(value), why: std::mem::take(why) };
            }
            return None;
        };
        let (numerator, denominator) = (mirror.numerator, mirror.denominator);
        Some(Filter::Mirror(Mirror { to: Arc::new(target), numerator, denominator }))
    }

    fn unusable<T>(&mut self, field: &str, reason: &'static str, problem: Problem) -> Option<T> {
        self.unresolved.get_or_insert_with(|| Fault::new(reason, format!("{field}: {problem}")));
        self.findings.push(Finding::new(self.object.clone(), field, problem));
        None
    }

    /// Filters that can be applied; none of them is where one cannot.
    fn filters(&mut self, field: &str, filters: &HttpFilters) -> Result<(Arc<[Filter]>, Option<Redirect>), ()> {
        let reason = match filters.fault {
            None => None,
            Some(FilterFault::Unsupported) => Some("UnsupportedValue"),
            Some(FilterFault::Incompatible) => Some("IncompatibleFilters"),
        };
        if let Some(reason) = reason {
            self.unsupported.get_or_insert_with(|| Fault::new(reason, format!("{field} cannot be applied")));
            return Err(());
        }
        let (mut edits, mut redirect) = (Vec::new(), None);
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
                HttpFilter::ExternalAuth(_) => "ExternalAuth".to_owned(),
                HttpFilter::Extension(reference) => reference.to_string(),
            };
            let field = format!("{field}[{number}]");
            let why = "is no filter that Tidegate has".to_owned();
            let problem = Problem::AnsweredWith500 { value: unsupported, why };
            self.unsupported.get_or_insert_with(|| Fault::new("UnsupportedValue", format!("{field}: {problem}")));
            self.findings.push(Finding::new(self.object.clone(), field, problem));
            return Err(());
        }
        Ok((edits.into(), redirect))
    }
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
