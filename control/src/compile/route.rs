//! One path or the default backend of one Ingress becomes a route.

use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    Action, AppProtocol, BackendKey, Origin, PathMatch, Route, Target, UpstreamTls, WeightedTarget,
};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::{BackendRef, DefaultBackend, Ingress, PortRef, RulePath, ServiceKind};

use crate::world::World;

/// Where in its object a route comes from, and what it takes.
struct Place {
    field: Arc<str>,
    /// The field of the Service, below `field`.
    service: &'static str,
    path: PathMatch,
    position: u32,
}

/// The route of a path. Where its backend cannot be used it answers 503, and the finding says why.
pub(super) fn of_path(world: &World, ingress: &Ingress, path: &RulePath, position: u32) -> (Route, Option<Finding>) {
    let place = Place { field: path.field.clone(), service: "backend.service", path: path.path.clone(), position };
    compile(world, ingress, place, path.backend.as_ref())
}

/// The route of a default backend; else as [`of_path`].
pub(super) fn of_default(world: &World, ingress: &Ingress, default: &DefaultBackend) -> (Route, Option<Finding>) {
    let everything = PathMatch::Prefix("".into());
    let place = Place { field: "spec.defaultBackend".into(), service: "service", path: everything, position: u32::MAX };
    compile(world, ingress, place, default.backend.as_ref())
}

fn compile(world: &World, ingress: &Ingress, place: Place, backend: Option<&BackendRef>) -> (Route, Option<Finding>) {
    let object = ObjectRef::new(Kind::Ingress, ingress.age.name.clone());
    let (targets, problem) = match backend.map(|backend| target(world, backend)) {
        None => (Vec::new(), None),
        Some(Ok(target)) => (vec![WeightedTarget { target: Arc::new(target), weight: 1 }], None),
        Some(Err(problem)) => (Vec::new(), Some(problem)),
    };
    let Place { field, service, path, position } = place;
    let finding = problem.map(|problem| Finding::new(object.clone(), format!("{field}.{service}"), problem));
    let origin = Origin { object, age: ingress.age.clone(), field, position };
    let route = Route {
        guards: Arc::clone(&ingress.guards),
        filters: Arc::clone(&ingress.filters),
        settings: Arc::clone(&ingress.settings),
        ..Route::new(origin, path, Action::Forward(targets.into()))
    };
    (route, finding)
}

fn target(world: &World, backend: &BackendRef) -> Result<Target, Problem> {
    let name = &backend.service;
    let Some(service) = world.services.get(name) else {
        return Err(Problem::ServiceMissing { service: name.to_string() });
    };
    let port = service.ports.iter().find(|port| match &backend.port {
        PortRef::Name(name) => port.name == *name,
        PortRef::Number(number) => port.number == *number,
    });
    let external = match &service.kind {
        ServiceKind::ExternalName(dns) => Some(dns),
        ServiceKind::Slices => None,
    };
    let (number, protocol) = match (port, &backend.port) {
        (Some(port), _) => (port.number, port.protocol),
        (None, PortRef::Number(number)) if external.is_some() && service.ports.is_empty() => {
            (*number, AppProtocol::default())
        }
        (None, PortRef::Number(number)) => {
            return Err(Problem::PortMissing { service: name.to_string(), port: number.to_string() });
        }
        (None, PortRef::Name(port)) => {
            return Err(Problem::PortMissing { service: name.to_string(), port: port.to_string() });
        }
    };
    let tls = (protocol == AppProtocol::Https).then(|| UpstreamTls { server_name: external.cloned(), verify: false });
    Ok(Target { backend: BackendKey { service: name.clone(), port: number }, protocol, tls })
}
