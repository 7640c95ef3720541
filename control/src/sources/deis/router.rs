//! The router's own Deployment.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use http::HeaderValue;
use ipnet::{IpNet, Ipv4Net};
use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    Action, AppProtocol, Backend, BackendKey, DirectResponse, Endpoint, Guard, HostPattern, ListenerName, Origin,
    PathMatch, Route, Target, WeightedTarget,
};
use tidegate_config::object::{Age, ObjectRef};
use tidegate_config::project::DeisRouter;

use super::{PORT, scope, shared};
use crate::attachment::{Attachment, Claim, ClaimTerms, GlobalClaim};
use crate::options::Deis;
use crate::sources::reader::Reader;

const DEFAULT_SERVICE: &str = "metadata.annotations[router.deis.io/nginx.defaultServiceIP]";

/// The peers that the router trusts if its Deployment names none.
static TRUSTED_PROXIES: [IpNet; 1] = [IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8))];

/// The response to `/healthz`.
static HEALTHY: LazyLock<Arc<DirectResponse>> = LazyLock::new(|| {
    Arc::new(DirectResponse {
        status: 200,
        headers: Box::default(),
        content_type: Some(HeaderValue::from_static("text/plain")),
        body: Arc::default(),
    })
});

/// Attaches the router's own Deployment: it provides the defaults of all applications, answers health checks for
/// unknown hosts, and may name an address for other requests to unknown hosts. Without it, the certificate of the
/// platform and the default of trusted peers still apply.
pub(in crate::sources) fn attach_router(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let router = world.deployments.get(&object.name).map(|deployment| &deployment.router);
    let mut attachment = Attachment::reporting(object, world);
    attachment.other_claims_mut().globals = Some(Arc::new(globals(reader, object, router)));
    let Some(router) = router else { return attachment };
    attachment.other_claims_mut().scopes = [(scope(), Arc::new(shared(router)))].into();
    let mut fallback = None;
    if let Some((address, name)) = &router.default_service {
        match reader.refusal(*address, PORT) {
            None => fallback = Some(default_service(object, SocketAddr::new(*address, PORT), name)),
            Some(why) => {
                let problem = Problem::AddressRefused { address: address.to_string(), why: why.to_owned() };
                attachment.add_findings([Finding::new(object.clone(), DEFAULT_SERVICE, problem)]);
            }
        }
    }
    attachment.claims = [unknown_hosts(object, fallback)].into();
    attachment
}

/// The operator's certificate takes precedence over that of the platform, which need not exist.
fn globals(reader: &mut Reader<'_>, object: &ObjectRef, router: Option<&DeisRouter>) -> GlobalClaim {
    let certificate = match reader.options.default_certificate {
        Some(_) => None,
        None => reader.secret(&Deis::platform_certificate(&object.name)).and_then(|it| it.as_ref().ok().cloned()),
    };
    let trusted_proxies = router.and_then(|router| router.trusted_proxies.as_deref()).unwrap_or(&TRUSTED_PROXIES);
    GlobalClaim { certificate, trusted_proxies: trusted_proxies.into(), edge: router.map(|router| router.edge.clone()) }
}

/// The age of claims of the router's Deployment: every other object takes precedence.
fn youngest(object: &ObjectRef) -> Age {
    Age { created_s: i64::MAX, name: object.name.clone() }
}

/// The claim for unknown hosts: `/healthz`, for load balancers, and the route for other requests. An older claim to the
/// same path takes precedence; one to all paths, such as a default backend, does not.
fn unknown_hosts(object: &ObjectRef, fallback: Option<Arc<Route>>) -> Claim {
    let routes = (0..).zip(["/healthz", "/healthz/"]).map(|(position, path)| {
        let origin = Origin { object: object.clone(), age: youngest(object), field: "".into(), position };
        let action = Action::Respond(Arc::clone(&HEALTHY));
        Arc::new(Route::new(origin, PathMatch::Exact(path.into()), action))
    });
    let terms = ClaimTerms {
        object: object.clone(),
        routes: routes.collect(),
        age: youngest(object),
        field: DEFAULT_SERVICE,
        fallback,
        last_resort: false,
        guest: false,
        certificates: Box::default(),
        missing: Box::default(),
    };
    Claim::new(HostPattern::Any, terms)
}

/// A route to the address in the Deployment, for requests over plain HTTP. It is not an application, so the defaults of
/// applications do not apply.
fn default_service(object: &ObjectRef, to: SocketAddr, name: &Arc<str>) -> Arc<Route> {
    // No Service can have this name, so the backend is not shared with a real one.
    let key = BackendKey::tcp(object.name.beside(format!("default service ({name})")), to.port());
    let backend = Backend::new(key.clone(), [Endpoint::tcp(to, None)].into());
    let (protocol, fixed) = (AppProtocol::Http, Some(Arc::new(backend)));
    let target = Target { backend: key, protocol, tls: None, fixed };
    let action = Action::Forward([WeightedTarget::new(Arc::new(target), 1)].into());
    let field = DEFAULT_SERVICE.into();
    let origin = Origin { object: object.clone(), age: youngest(object), field, position: 0 };
    let guards = [Guard::Listeners([ListenerName("http".into())].into())].into();
    Arc::new(Route {
        guards,
        log_name: Some(Arc::clone(name)),
        ..Route::new(origin, PathMatch::Prefix("".into()), action)
    })
}
