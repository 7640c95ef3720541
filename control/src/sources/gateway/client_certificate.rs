//! The client certificate of a Gateway for TLS to endpoints (`spec.tls.backend.clientCertificateRef`). It applies to
//! all routes and connections of its listeners that use TLS to backends.

use std::sync::Arc;

use tidegate_config::model::{
    Action, Certificate, Destination, ExternalAuth, Guard, Route, StreamRoute, StreamTarget, Target, UpstreamTls,
    WeightedBackend, WeightedTarget,
};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::Gateway;

use super::reader::ExpectedKind;
use crate::attachment::ConditionReason;
use crate::sources::reader::Reader;

const INVALID: &str = "InvalidClientCertificateRef";
const REFERENCE: ExpectedKind = ExpectedKind {
    kind: Kind::Secret,
    written: "spec.tls.backend.clientCertificateRef",
    invalid: INVALID,
    wrong_kind: INVALID,
};

/// The certificate of a Gateway; `None` if it has no reference.
pub(super) fn of_gateway(
    reader: &mut Reader<'_>,
    object: &ObjectRef,
    gateway: &Gateway,
) -> Option<Result<Arc<Certificate>, ConditionReason>> {
    let reference = gateway.tls.backend.as_ref()?;
    Some(reader.granted_certificate(object, reference, &REFERENCE).map(Arc::clone))
}

/// A route with this client certificate.
pub(super) fn shown_by_route(route: &Arc<Route>, certificate: &Arc<Certificate>) -> Arc<Route> {
    let Action::Forward(shares) = &route.action else {
        return guarded(route, route.action.clone(), certificate);
    };
    let share = |share: &WeightedTarget| WeightedTarget {
        to: match &share.to {
            Destination::Target(target) => Destination::Target(to_target(target, certificate)),
            Destination::Status(status) => Destination::Status(*status),
        },
        external_auth: share.external_auth.as_ref().map(|service| to_service(service, certificate)),
        ..share.clone()
    };
    guarded(route, Action::Forward(shares.iter().map(share).collect()), certificate)
}

/// The same for a route whose connections are passed on.
pub(super) fn shown_by_stream(route: &Arc<StreamRoute>, certificate: &Arc<Certificate>) -> Arc<StreamRoute> {
    let target =
        |to: &StreamTarget| StreamTarget { tls: to.tls.as_ref().map(|tls| showing(tls, certificate)), ..to.clone() };
    let backends = route.backends.iter();
    let backends = backends.map(|share| WeightedBackend { to: share.to.as_ref().map(target), ..share.clone() });
    Arc::new(StreamRoute { backends: backends.collect(), ..StreamRoute::clone(route) })
}

fn guarded(route: &Arc<Route>, action: Action, certificate: &Arc<Certificate>) -> Arc<Route> {
    let guard = |guard: &Guard| match guard {
        Guard::ExternalAuth(service) => Guard::ExternalAuth(to_service(service, certificate)),
        Guard::AllowSources(_)
        | Guard::RequireTls { .. }
        | Guard::Listeners(_)
        | Guard::RequireEndpoints
        | Guard::DenyAll => guard.clone(),
    };
    Arc::new(Route { action, guards: route.guards.iter().map(guard).collect(), ..Route::clone(route) })
}

fn to_service(service: &Arc<ExternalAuth>, certificate: &Arc<Certificate>) -> Arc<ExternalAuth> {
    Arc::new(ExternalAuth { target: to_target(&service.target, certificate), ..ExternalAuth::clone(service) })
}

fn to_target(target: &Arc<Target>, certificate: &Arc<Certificate>) -> Arc<Target> {
    match &target.tls {
        None => Arc::clone(target),
        Some(tls) => Arc::new(Target { tls: Some(showing(tls, certificate)), ..Target::clone(target) }),
    }
}

fn showing(tls: &UpstreamTls, certificate: &Arc<Certificate>) -> UpstreamTls {
    UpstreamTls { client: Some(Arc::clone(certificate)), ..tls.clone() }
}
