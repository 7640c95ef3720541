//! GatewayClass: which Gateways are ours.

use tidegate_config::object::ObjectRef;
use tidegate_config::project::gateway::{Feature, GatewayClass, OwnStatus};

use super::condition::{Conditions, Fault, parameters};
use crate::options::GatewayServices;
use crate::sources::attachment::{Attachment, Report};
use crate::sources::reader::Reader;

/// The features that can be there, in the order of their names (<https://gateway-api.sigs.k8s.io/geps/gep-2162/>).
const FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "GRPCRouteRequestHeaderModifier",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    INFRASTRUCTURE,
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetryCodes",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// The feature that is there where Services are made for Gateways.
const INFRASTRUCTURE: &str = "GatewayInfrastructure";

/// Why a class is not accepted.
pub(super) fn fault(class: &GatewayClass) -> Option<Fault> {
    class.parameters.as_ref().map(|reference| parameters("spec.parametersRef", reference))
}

pub(in crate::sources) fn attach(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let reporting = Attachment::reporting(object, world);
    let Some(options) = &reader.options.sources.gateway else { return reporting };
    let class = world.gateway_classes.get(&object.name).filter(|class| class.controller == options.controller);
    let Some(class) = class else { return reporting };
    let mut conditions = Conditions::about(reader.generation(object));
    conditions.judge("Accepted", "Accepted", fault(class).as_ref());
    let features = FEATURES.iter().filter(|name| **name != INFRASTRUCTURE || options.services != GatewayServices::Off);
    let features = features.map(|name| Feature { name: (*name).into() }).collect();
    let status = OwnStatus { conditions: conditions.into_list(), features, ..OwnStatus::default() };
    Attachment { report: Report::of_status(world.findings_of(object), status), ..Attachment::default() }
}
