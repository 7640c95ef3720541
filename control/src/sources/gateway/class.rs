//! GatewayClass: selects the Gateways of this controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::{Feature, GatewayClass, OwnStatus};

use crate::attachment::{Attachment, ConditionReason, Conditions, Report, parameters};
use crate::options::GatewayServices;
use crate::sources::reader::Reader;

/// The features that can be supported, in the order of their names (<https://gateway-api.sigs.k8s.io/geps/gep-2162/>).
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

/// The feature that is supported if Services are created for Gateways.
const INFRASTRUCTURE: &str = "GatewayInfrastructure";

/// The minor versions of the oldest and the latest supported release of the API, v1.x.
const RELEASES: [u16; 2] = [2, 7];

/// The reason why a class is not accepted.
pub(super) fn fault(class: &GatewayClass) -> Option<ConditionReason> {
    class.parameters.as_ref().map(|reference| parameters("spec.parametersRef", reference))
}

/// The CustomResourceDefinitions of unsupported releases of the API, by release. All of them are read as far as
/// possible.
fn unsupported(releases: &BTreeMap<Kind, Arc<str>>) -> Option<ConditionReason> {
    let mut kinds_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (kind, release) in releases.iter().filter(|(_, release)| !is_known(release)) {
        kinds_of.entry(release).or_default().push(kind.plural());
    }
    if kinds_of.is_empty() {
        return None;
    }
    let versions = kinds_of.iter().map(|(release, kinds)| {
        let release = if release.is_empty() { "an unknown release" } else { release };
        format!("{} ({release})", kinds.join(", "))
    });
    let (versions, [first, last]) = (versions.collect::<Vec<_>>().join("; "), RELEASES);
    Some(ConditionReason::new(
        "UnsupportedVersion",
        format!("unsupported CRD versions: {versions}; supported: v1.{first}–v1.{last}"),
    ))
}

/// Whether a release is one of [`RELEASES`]: `v1.7.0`, or a release candidate.
fn is_known(release: &str) -> bool {
    let minor = release.strip_prefix("v1.").and_then(|rest| rest.split_once('.')).map(|(minor, _)| minor);
    let [first, last] = RELEASES;
    minor.and_then(|minor| minor.parse().ok()).is_some_and(|minor: u16| (first..=last).contains(&minor))
}

pub(in crate::sources) fn attach(reader: &mut Reader<'_>, object: &ObjectRef) -> Attachment {
    let world = reader.world();
    let reporting = Attachment::reporting(object, world);
    let Some(options) = &reader.options.sources.gateway else { return reporting };
    let class = world.gateway_classes.get(&object.name).filter(|class| class.controller == options.controller);
    let Some(class) = class else { return reporting };
    let mut conditions = Conditions::about(reader.generation(object));
    conditions.judge("Accepted", "Accepted", fault(class).as_ref());
    // While no definitions have been read, as after a restart, their releases are unknown.
    let releases = reader.releases();
    if !releases.is_empty() {
        conditions.judge("SupportedVersion", "SupportedVersion", unsupported(releases).as_ref());
    }
    let features = FEATURES.iter().filter(|name| **name != INFRASTRUCTURE || options.services != GatewayServices::Off);
    let features = features.map(|name| Feature { name: (*name).into() }).collect();
    let status = OwnStatus { conditions: conditions.into_list(), features, ..OwnStatus::default() };
    Attachment { report: Report::of_status(world.findings_of(object), status), ..Attachment::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_sorted_by_name() {
        assert!(FEATURES.is_sorted_by(|one, next| one < next));
    }

    #[track_caller]
    fn check(releases: &[(Kind, &str)], want: Option<&str>) {
        let releases = releases.iter().map(|(kind, release)| (*kind, (*release).into())).collect();
        let fault = unsupported(&releases);
        assert_eq!(fault.as_ref().map(|fault| &*fault.message), want);
        assert!(fault.is_none_or(|fault| fault.reason == "UnsupportedVersion"));
    }

    #[test]
    fn unsupported_crd_releases_are_named() {
        use Kind::{Gateway, HttpRoute, TcpRoute};
        check(&[(Gateway, "v1.7.0"), (HttpRoute, "v1.2.1"), (TcpRoute, "v1.7.0-rc.1")], None);
        for unknown in ["v1.8.0", "v1.1.0", "v2.3.0", "v1.7", "1.7.0", "monthly-2026.10"] {
            let want = format!("unsupported CRD versions: gateways ({unknown}); supported: v1.2–v1.7");
            check(&[(Gateway, unknown), (HttpRoute, "v1.7.0")], Some(&want));
        }
        let want = "unsupported CRD versions: httproutes (an unknown release); gateways, tcproutes (v1.9.1); supported: v1.2–v1.7";
        check(&[(Gateway, "v1.9.1"), (HttpRoute, ""), (TcpRoute, "v1.9.1")], Some(want));
    }
}
