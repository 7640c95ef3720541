//! The annotations of a Service.

use std::time::Duration;

use super::{Annotation, OnInvalid, TIDEGATE, read, set};
use crate::model::ProxyHeader;
use crate::project::annotation_value::{Zero, duration, proxy_header, whole};
use crate::project::field::FindingList;
use crate::project::raw_object::Annotations;

/// The effects of a Service's annotations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::project) struct ServiceEffects {
    /// The maximum number of requests in flight to its endpoints; 0 for no limit.
    pub(in crate::project) requests_max: Option<u32>,
    /// The PROXY protocol header that its connections begin with, if they are passed on unread.
    pub(in crate::project) proxy_header: Option<ProxyHeader>,
    /// The time without datagrams after which flows to its UDP ports end.
    pub(in crate::project) udp_idle_timeout: Option<Duration>,
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

/// Reads the annotations of a Service, none of which restricts access.
pub(in crate::project) fn of_service(annotations: &Annotations<'_>, findings: &mut FindingList) -> ServiceEffects {
    let mut effects = ServiceEffects::default();
    read(TIDEGATE, &SERVICE, &mut effects, annotations, findings);
    effects
}
