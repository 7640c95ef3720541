//! The annotations of a Service, among them one that only applications of a Deis router have.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::policy::{NAME_OF_POLICY, POLICY_EFFECT, POLICY_NAME};
use super::{Annotation, OnInvalid, TIDEGATE, read, set};
use crate::model::ProxyHeader;
use crate::project::annotation_value::{Zero, duration, object_name, proxy_header, whole};
use crate::project::field::FindingList;
use crate::project::gateway::Unreadable;
use crate::project::raw_object::{Annotations, annotation_field};

/// The effects of a Service's annotations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::project) struct ServiceEffects {
    /// The maximum number of requests in flight to its endpoints; 0 for no limit.
    pub(in crate::project) requests_max: Option<u32>,
    /// The PROXY protocol header that its connections begin with, if they are passed on unread.
    pub(in crate::project) proxy_header: Option<ProxyHeader>,
    /// The time without datagrams after which flows to its UDP ports end.
    pub(in crate::project) udp_idle_timeout: Option<Duration>,
    /// The name of the policies of an application's routes.
    pub(in crate::project) policy: Option<Result<Arc<str>, Unreadable>>,
}

/// Every annotation of a Service.
pub(super) const SERVICE: [Annotation<ServiceEffects>; 3] = [
    Annotation {
        key: "requests-max",
        form: "whole number, or 0 for any number",
        default: |_| "that of `--service-requests-max`".to_owned(),
        effect: "Maximum number of requests in flight to the endpoints of each port, checks of an authorisation service included; a further one is answered 503 with the reason `service-overloaded`.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |effects, text| set(&mut effects.requests_max, whole(text)),
    },
    Annotation {
        key: "send-proxy-protocol",
        form: "`v1` or `v2`",
        default: |_| "none".to_owned(),
        effect: "The PROXY protocol header with the client's address, sent at the beginning of connections that are passed on unread.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |effects, text| set(&mut effects.proxy_header, proxy_header(text)),
    },
    Annotation {
        key: "udp-idle-timeout",
        form: "time",
        default: |_| "60s".to_owned(),
        effect: "Time without datagrams in either direction after which a flow to its UDP ports ends. For a UDPRoute to several Services the longest of theirs applies to all of its flows.",
        otherwise: OnInvalid::Default,
        inert: None,
        read: |effects, text| set(&mut effects.udp_idle_timeout, duration(text, Zero::Refused)),
    },
];

/// The annotation of a Service that is an application.
pub(super) const APPLICATION: [Annotation<ServiceEffects>; 1] = [Annotation {
    key: POLICY_NAME,
    form: NAME_OF_POLICY,
    default: |_| "none".to_owned(),
    effect: POLICY_EFFECT,
    otherwise: OnInvalid::Closed,
    inert: None,
    read: |effects, text| {
        effects.policy = Some(Ok(object_name(text)?));
        Ok(())
    },
}];

/// Every annotation of an application.
static OF_APPLICATION: LazyLock<Box<[Annotation<ServiceEffects>]>> =
    LazyLock::new(|| SERVICE.into_iter().chain(APPLICATION).collect());

/// Reads the annotations of a Service, which may be an application of a Deis router. Only those of an application
/// restrict access: no other Service has routes of its own.
pub(in crate::project) fn of_service(
    annotations: &Annotations<'_>,
    is_application: bool,
    findings: &mut FindingList,
) -> ServiceEffects {
    let mut effects = ServiceEffects::default();
    if is_application {
        if read(TIDEGATE, &OF_APPLICATION, &mut effects, annotations, findings).closed {
            effects.policy = Some(Err(Unreadable));
        }
        return effects;
    }
    let is_policy = |key: &str| key.strip_prefix(TIDEGATE.prefix) == Some(POLICY_NAME);
    let (policy, others): (Vec<_>, Vec<_>) = annotations.iter().partition(|(key, _)| is_policy(key));
    for (key, _) in policy {
        let why = "a Service without the label router.deis.io/routable=true has no routes of its own";
        findings.without_effect(&annotation_field(key), POLICY_NAME, why);
    }
    read(TIDEGATE, &SERVICE, &mut effects, others, findings);
    effects
}
